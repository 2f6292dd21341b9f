//! Operations that touch both domains: the same ending after a repeat, a refusal, a fence and a crash at any of their commits.

use std::collections::BTreeSet;

use domain::causality::{Domain, StreamId};
use domain::code::ErrorCode;
use domain::commit::{Cause, Change, Commit, Committed, Expected, Guard, Write};
use domain::entry::{Actor, Head};
use domain::id::{AgentId, RawId, WorkspaceId};
use domain::record::Record;
use domain::records::agent::Agent;
use domain::records::fence::Fence;
use domain::records::message::{AgentMessageKind, Message};
use domain::records::note::Note;
use domain::records::saga::{Saga, SagaPhase};
use domain::records::slug::Slug;
use domain::records::wrappers::AgentMessageMetadata;
use domain::time::Timestamp;
use store::env::Env;
use store::memory::MemoryStore;
use store::saga::{self, Committer, Ending, Plan, Recovered};
use store::store::{Reader, Scan, Store, own_streams};
use store::{Error, Result, verify};

use crate::fixtures::{commit, dump, host, id, operation, workspace};

/// A note in the journal and the message about it in the agent domain, as an agent's tool call writes them.
pub(crate) fn plan(key: &str) -> Plan {
    let operation_id = operation(key);
    let note = put_of(&note(key), operation_id.created(Note::SPEC.kind, 0));
    Plan {
        operation_id,
        request: format!(r#"{{"note":"{key}"}}"#),
        actor: Actor::Agent(agent_id()),
        cause: Cause { depth: 1, ..Cause::default() },
        guards: Vec::new(),
        journal: vec![note],
        agent: vec![put_of(&message("done"), operation_id.created(Message::SPEC.kind, 0))],
        agent_if_refused: vec![put_of(&message("refused"), operation_id.created(Message::SPEC.kind, 1))],
    }
}

pub(crate) fn note(title: &str) -> Note {
    Note {
        title: title.to_owned(),
        text: "what an agent wrote down ".repeat(8),
        kind: Slug::parse("note").unwrap(),
        category: None,
        labels: BTreeSet::new(),
        created_at: Timestamp::EPOCH,
        updated_at: Timestamp::EPOCH,
    }
}

fn message(about: &str) -> Message {
    Message {
        agent_id: agent_id(),
        thread_id: format!("{}:run:{about}", agent_id()),
        kind: AgentMessageKind::ToolResult,
        created_at: Timestamp::EPOCH,
        prev_message_id: None,
        content_entry_id: None,
        trigger_source_id: None,
        summary_start_message_id: None,
        summary_end_message_id: None,
        summary_depth: 0,
        tokens_approx: 0,
        metadata: AgentMessageMetadata::default(),
    }
}

fn agent_id() -> AgentId {
    AgentId::from_raw(id(7))
}

pub(crate) fn put_of<R: Record>(record: &R, id: RawId) -> Write {
    Write { spec: R::SPEC, id, workspace: workspace(), expected: Expected::Absent, change: Change::Put(record.to_body().unwrap()) }
}

/// How many of a plan's records exist: the note, the message, the message about a refusal.
pub(crate) fn traces(journal: &dyn Store, agent: &dyn Store, plan: &Plan) -> Result<[usize; 3]> {
    let count = |store: &dyn Store, writes: &[Write]| {
        let reader = store.reader();
        let snapshot = reader.read()?;
        let mut found = 0;
        for write in writes {
            found += usize::from(snapshot.get(write.spec, &write.id)?.is_some_and(|row| !row.deleted && row.version == 1));
        }
        Ok(found)
    };
    Ok([count(journal, &plan.journal)?, count(agent, &plan.agent)?, count(agent, &plan.agent_if_refused)?])
}

pub(crate) fn open_sagas(agent: &dyn Store) -> Result<usize> {
    Ok(agent.reader().read()?.scan(&Scan::new(Saga::SPEC, "by_updated"))?.rows.len())
}

/// What is wrong with the logs, each also held against what the other file remembers of it.
pub(crate) fn damages(journal: &dyn Store, agent: &dyn Store) -> Result<Vec<verify::Damage>> {
    let mut found = Vec::new();
    for (store, other) in [(journal, agent), (agent, journal)] {
        let kinds: Vec<_> = domain::catalogue::of_domain(store.domain()).collect();
        let witnesses = other.reader().read()?.witnesses()?;
        let report = verify::domain(store.reader().as_ref(), store.domain(), &kinds, &witnesses, &mut |_| {})?;
        found.extend(report.streams.into_iter().filter_map(|stream| stream.damage));
    }
    Ok(found)
}

struct Pair {
    journal: MemoryStore,
    agent: MemoryStore,
}

impl Pair {
    fn new() -> Self {
        let make = |domain, seed| MemoryStore::new(domain, host(1), Env::seeded(seed));
        Self { journal: make(Domain::Journal, 1), agent: make(Domain::Agent, 2) }
    }

    fn run(&mut self, plan: &Plan) -> Result<Ending> {
        saga::run(&mut self.journal, &mut self.agent, plan, Timestamp::EPOCH)
    }

    fn recover(&mut self) -> usize {
        let recovered = saga::recover(&mut self.journal, &mut self.agent).unwrap();
        assert_eq!(recovered.stuck, 0);
        recovered.finished
    }

    fn traces(&self, plan: &Plan) -> [usize; 3] {
        traces(&self.journal, &self.agent, plan).unwrap()
    }

    /// Everything both logs hold.
    fn dump(&self) -> [String; 2] {
        let streams: [StreamId; 2] = own_streams(host(1));
        [dump(self.journal.reader().as_ref(), &streams), dump(self.agent.reader().as_ref(), &streams)]
    }

    fn assert_settled(&self) {
        assert_eq!(open_sagas(&self.agent), Ok(0));
        assert_eq!(damages(&self.journal, &self.agent), Ok(Vec::new()));
    }
}

/// A plan that the journal refuses, because its note is there already.
fn refused_plan(pair: &mut Pair) -> Plan {
    let plan = plan("taken");
    pair.journal.commit(commit("first", plan.journal.clone())).unwrap();
    plan
}

/// The ending as a repeat reports it.
fn again(ending: Ending) -> Ending {
    match ending {
        Ending::Done(committed) => Ending::Done(Committed { repeated: true, ..committed }),
        other @ (Ending::Refused(_) | Ending::Stuck(_)) => other,
    }
}

#[test]
fn l24_an_operation_is_written_in_the_journal_and_then_for_the_agent() {
    let mut pair = Pair::new();
    let plan = plan("a");
    let Ok(Ending::Done(committed)) = pair.run(&plan) else { panic!("nothing stands against it") };
    assert_eq!((committed.operation_id, committed.repeated, committed.writes.len()), (plan.operation_id, false, 1));
    assert_eq!(pair.traces(&plan), [1, 1, 0]);
    pair.assert_settled();
    let heads = |store: &dyn Store| store.reader().read().unwrap().witnesses().unwrap();
    assert_eq!(heads(&pair.journal).len(), 2, "the effect names the agent domain's heads");
    let journal_heads: Vec<_> = heads(&pair.agent).iter().map(|witness| witness.head.counter).collect();
    assert_eq!(journal_heads, [1, 0], "the outcome names the journal's heads, the effect included");
}

#[test]
fn l24_l20_a_repeat_returns_the_same_ending_and_writes_nothing() {
    let mut pair = Pair::new();
    let refused_plan = refused_plan(&mut pair);
    for plan in [plan("a"), refused_plan] {
        let first = pair.run(&plan).unwrap();
        let before = pair.dump();
        for _ in 0..2 {
            assert_eq!(pair.run(&plan).unwrap(), again(first.clone()));
        }
        assert_eq!(pair.dump(), before);
    }
    pair.assert_settled();
}

#[test]
fn l24_l20_a_repeat_carries_out_the_plan_that_was_decided_first() {
    let mut pair = Pair::new();
    let first = plan("a");
    let mut reworded = plan("a");
    reworded.journal = vec![put_of(&note("decided anew"), first.journal[0].id)];
    let mut journal = Flaky { store: &mut pair.journal, calls: 0, fails_at: 1, is_done: false };
    saga::run(&mut journal, &mut pair.agent, &first, Timestamp::EPOCH).unwrap_err();
    assert_eq!(open_sagas(&pair.agent), Ok(1));
    pair.run(&reworded).unwrap();
    let row = pair.journal.reader().read().unwrap().get(Note::SPEC, &first.journal[0].id).unwrap().unwrap();
    assert_eq!(row.record::<Note>().unwrap().unwrap(), note("a"));
    pair.assert_settled();
}

#[test]
fn l24_a_refusal_of_the_journal_is_recorded_for_the_agent() {
    let mut pair = Pair::new();
    let plan = refused_plan(&mut pair);
    assert_eq!(pair.run(&plan).unwrap(), Ending::Refused(ErrorCode::VersionConflict));
    assert_eq!(pair.traces(&plan), [1, 0, 1], "the note is the one that was there before");
    assert_eq!(pair.journal.reader().read().unwrap().outcome(&plan.operation_id).unwrap(), None);
    pair.assert_settled();
}

#[test]
fn l24_another_request_under_the_same_operation_is_refused() {
    let mut pair = Pair::new();
    let plan = plan("a");
    pair.run(&plan).unwrap();
    let other = Plan { request: "{}".to_owned(), ..plan.clone() };
    let refused = pair.run(&other).unwrap_err();
    assert_eq!(refused, Error::OperationIdReused { operation_id: plan.operation_id });
}

/// A domain that fails at one of its commits, before or after it was done.
struct Flaky<'a> {
    store: &'a mut MemoryStore,
    calls: usize,
    fails_at: usize,
    is_done: bool,
}

impl Committer for Flaky<'_> {
    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        self.calls += 1;
        if self.calls != self.fails_at {
            return self.store.commit(commit);
        }
        let operation_id = commit.operation_id;
        if self.is_done {
            self.store.commit(commit).ok();
        }
        Err(Error::CommitUnknown { domain: self.store.domain(), operation_id, message: "the process died here".to_owned() })
    }

    fn heads(&mut self) -> Result<Vec<Head>> {
        Committer::heads(self.store)
    }

    fn with_reader(&self, read: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        self.store.with_reader(read)
    }
}

/// Plans an operation on a fresh pair.
type Prepare = fn(&mut Pair) -> Plan;

/// Dies at one of the three commits of an operation.
fn dies_at(at: usize, is_done: bool, before: Prepare) -> (Pair, Plan) {
    let mut pair = Pair::new();
    let plan = before(&mut pair);
    // The agent commits first and last, the journal in between.
    let (journal_at, agent_at) = [(0, 1), (1, 0), (0, 2)][at];
    let mut journal = Flaky { store: &mut pair.journal, calls: 0, fails_at: journal_at, is_done };
    let mut agent = Flaky { store: &mut pair.agent, calls: 0, fails_at: agent_at, is_done };
    saga::run(&mut journal, &mut agent, &plan, Timestamp::EPOCH).unwrap_err();
    (pair, plan)
}

#[test]
fn l24_a_crash_at_any_commit_converges() {
    let plans: [(Prepare, _); 2] = [(|_| plan("a"), [1, 1, 0]), (refused_plan, [1, 0, 1])];
    for (before, ended) in plans {
        let fresh = before(&mut Pair::new());
        for (at, is_done) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true)] {
            let (mut pair, plan) = dies_at(at, is_done, before);
            let nothing_intended = (at, is_done) == (0, false);
            let open = usize::from(!nothing_intended && (at, is_done) != (2, true));
            assert_eq!(pair.recover(), open, "{at} {is_done}");
            let expected = if nothing_intended { pair.traces(&fresh) } else { ended };
            assert_eq!(pair.traces(&plan), expected, "{at} {is_done}");
            let settled = pair.dump();
            assert_eq!((pair.recover(), &pair.dump()), (0, &settled), "a second recovery finds nothing to do");
            // Whoever asked did not learn the ending, and asks again.
            let ending = pair.run(&plan).unwrap();
            assert_eq!(matches!(ending, Ending::Done(_)), ended == [1, 1, 0]);
            assert_eq!(pair.traces(&plan), ended);
            assert_eq!(again(pair.run(&plan).unwrap()), again(ending));
            pair.assert_settled();
        }
    }
}

#[test]
fn l24_a_repeat_finishes_what_a_crash_left_without_a_recovery() {
    for (at, is_done) in [(0, true), (1, false), (1, true), (2, false), (2, true)] {
        let (mut pair, plan) = dies_at(at, is_done, |_| plan("a"));
        assert!(matches!(pair.run(&plan).unwrap(), Ending::Done(_)));
        assert_eq!((pair.traces(&plan), pair.recover()), ([1, 1, 0], 0));
        pair.assert_settled();
    }
}

#[test]
fn l24_recovery_finishes_every_open_operation() {
    let mut pair = Pair::new();
    let plans: Vec<_> = (0..5).map(|number| plan(&format!("open {number}"))).collect();
    for plan in &plans {
        let mut journal = Flaky { store: &mut pair.journal, calls: 0, fails_at: 1, is_done: false };
        saga::run(&mut journal, &mut pair.agent, plan, Timestamp::EPOCH).unwrap_err();
    }
    assert_eq!(pair.recover(), 5);
    assert!(plans.iter().all(|plan| pair.traces(plan) == [1, 1, 0]));
    pair.assert_settled();
}

fn raise(store: &mut MemoryStore, epoch: u64) {
    let fence = Fence { subject: "agent_x".to_owned(), epoch, raised_at: Timestamp::EPOCH };
    let write = Write { workspace: WorkspaceId::NONE, ..put_of(&fence, Fence::id_of("agent_x")) };
    store.commit(commit("raise", vec![write])).unwrap();
}

fn guarded() -> Plan {
    Plan { guards: vec![Guard::Fence { subject: "agent_x".to_owned(), epoch: 1 }], ..plan("a") }
}

#[test]
fn l24_a_fence_raised_before_the_intent_refuses_everything() {
    let mut pair = Pair::new();
    raise(&mut pair.agent, 2);
    let before = pair.dump();
    let refused = pair.run(&guarded()).unwrap_err();
    assert_eq!(refused, Error::Fenced { subject: "agent_x".to_owned(), epoch: 1, current: 2 });
    assert_eq!((pair.dump(), pair.recover(), pair.traces(&guarded())), (before, 0, [0, 0, 0]));
    pair.assert_settled();
}

#[test]
fn l24_a_fence_raised_between_intent_and_effect_refuses_the_effect() {
    let mut pair = Pair::new();
    raise(&mut pair.journal, 2);
    assert_eq!(pair.run(&guarded()).unwrap(), Ending::Refused(ErrorCode::Fenced));
    assert_eq!(pair.traces(&guarded()), [0, 0, 1]);
    pair.assert_settled();
}

#[test]
fn l24_a_fence_raised_after_the_effect_does_not_undo_it() {
    let (mut pair, _) = dies_at(1, true, |_| guarded());
    raise(&mut pair.journal, 2);
    raise(&mut pair.agent, 2);
    assert!(matches!(pair.run(&guarded()).unwrap(), Ending::Done(_)), "recording what already happened is not refused");
    assert_eq!(pair.traces(&guarded()), [1, 1, 0]);
    pair.assert_settled();
}

#[test]
fn l1_each_guard_is_checked_in_the_domain_of_its_record() {
    let mut pair = Pair::new();
    let body = crate::fixtures::body(r#"{"created_at":"1970-01-01T00:00:00.000Z"}"#);
    let agent = Write { spec: Agent::SPEC, change: Change::Put(body), ..put_of(&note("x"), id(7)) };
    pair.agent.commit(commit("agent", vec![agent])).unwrap();
    let guards = vec![Guard::Live { spec: Agent::SPEC, id: id(7) }];
    assert!(matches!(pair.run(&Plan { guards, ..plan("a") }).unwrap(), Ending::Done(_)));
    let guards = vec![Guard::Live { spec: Note::SPEC, id: id(9) }];
    assert_eq!(pair.run(&Plan { guards, ..plan("b") }).unwrap(), Ending::Refused(ErrorCode::GuardFailed));
    pair.assert_settled();
}

#[test]
fn l1_no_agent_record_gets_into_the_journal_by_a_saga() {
    let mut pair = Pair::new();
    let good = plan("a");
    let astray = Plan { journal: good.agent.clone(), agent: Vec::new(), ..good };
    assert_eq!(pair.run(&astray).unwrap(), Ending::Refused(ErrorCode::InvalidCommit));
    assert_eq!(pair.traces(&astray), [0, 0, 1]);
    pair.assert_settled();
}

#[test]
fn an_erasure_is_refused_before_anything_is_written() {
    let mut pair = Pair::new();
    let mut erasing = plan("a");
    erasing.journal[0].change = Change::Erase;
    assert!(matches!(pair.run(&erasing), Err(Error::InvalidCommit(_))));
    assert_eq!((open_sagas(&pair.agent), pair.traces(&erasing)), (Ok(0), [0, 0, 0]));
}

#[test]
fn l24_an_outcome_that_the_agent_domain_refuses_stays_for_a_person_and_keeps_nothing_from_opening() {
    let mut pair = Pair::new();
    let plan = plan("stuck");
    pair.agent.commit(commit("in the way", plan.agent.clone())).unwrap();
    assert_eq!(pair.run(&plan).unwrap(), Ending::Stuck(ErrorCode::VersionConflict));
    let expected = Recovered { finished: 0, stuck: 1 };
    assert_eq!(saga::recover(&mut pair.journal, &mut pair.agent), Ok(expected));
    assert_eq!(saga::recover(&mut pair.journal, &mut pair.agent), Ok(expected), "and nothing is doubled by trying again");
    let row = pair.agent.reader().read().unwrap().get(Saga::SPEC, &Saga::row_id(&plan.operation_id)).unwrap().unwrap();
    let saga: Saga = row.record().unwrap().unwrap();
    assert_eq!((saga.phase, saga.last_error.as_deref()), (SagaPhase::AgentRefused, Some("VERSION_CONFLICT")));
    assert_eq!(pair.traces(&plan), [1, 1, 0]);
}

#[test]
fn l24_a_fence_raised_after_a_crash_keeps_recovery_from_the_effect() {
    let mut pair = Pair::new();
    let plan = guarded();
    // The intent is durable, then the process dies; the fence is raised before the next start.
    let dead = saga::run(&mut Dead, &mut pair.agent, &plan, Timestamp::EPOCH);
    assert!(matches!(dead, Err(Error::CommitUnknown { .. })), "something is durable, so nobody is told that nothing is: {dead:?}");
    raise(&mut pair.journal, 2);
    assert_eq!(pair.recover(), 1);
    assert_eq!(pair.traces(&plan), [0, 0, 1]);
    pair.assert_settled();
}

/// A journal that cannot be reached.
struct Dead;

impl Committer for Dead {
    fn commit(&mut self, _commit: Commit) -> Result<Committed> {
        Err(Error::Storage { domain: Domain::Journal, message: "gone".to_owned() })
    }

    fn heads(&mut self) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }

    fn with_reader(&self, _read: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        Err(Error::SnapshotExpired)
    }
}

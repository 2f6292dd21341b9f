//! What the fault tests run, and how they tell what became of it.
//!
//! A few plans over both domains, a group of commits with a refusal in the middle, an erasure, a fence that only a control row
//! remembers, a checkpoint of each file. Every answer is kept: a commit that was answered and is not there was lost, one that was denied
//! and is there was written behind somebody's back. What is put more often than the workload puts it was doubled.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::LazyLock;

use domain::catalogue::CYCLE;
use domain::causality::Domain;
use domain::commit::{Change, Commit, Expected, Write};
use domain::entry::{Op, Witness};
use domain::id::{OperationId, RawId, WorkspaceId};
use domain::record::{Class, Record, Spec};
use domain::records::fence::Fence;
use domain::records::lease::Lease;
use domain::records::message::Message;
use domain::records::note::Note;
use domain::time::Timestamp;
use fault_disk::FaultVfs;
use store::env::Env;
use store::sqlite::{Location, SqliteStore};
use store::store::{Scan, Snapshot, Store, own_streams};
use store::{Error, Result, verify};

use super::plan::{Plan, Progress, note, put_note, put_of};
use crate::fixtures::{commit, host, id};

/// Both stores of a simulated disk.
pub(super) struct Home {
    pub(super) journal: SqliteStore,
    pub(super) agent: SqliteStore,
}

impl Home {
    /// Makes both stores, with the one note that stands in the way of a plan.
    pub(super) fn create(vfs: &FaultVfs) {
        let make = |domain, seed| SqliteStore::create(&location(vfs, domain), host(1), &Env::seeded(seed)).unwrap();
        let (mut journal, _agent) = (make(Domain::Journal, 1), make(Domain::Agent, 2));
        assert!(journal.apply_group(&[before()])[0].is_ok());
    }

    pub(super) fn open(vfs: &FaultVfs) -> Result<Self> {
        let journal = SqliteStore::open(&location(vfs, Domain::Journal), &Env::seeded(3))?;
        let agent = SqliteStore::open(&location(vfs, Domain::Agent), &Env::seeded(4))?;
        Ok(Self { journal, agent })
    }

    /// Commits what is missing of every plan that a crash left open, under the ids it was first given.
    pub(super) fn recover(&mut self) -> Result<()> {
        for plan in plans() {
            if self.progress(plan)? != Progress::Open {
                continue;
            }
            let mut answers = Answers::new();
            self.follow(plan, &mut answers, &|| false);
            let failed = |answer: Result<()>| answer.err().filter(|error| !error.is_refusal());
            if let Some(failure) = answers.into_values().find_map(failed) {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Runs the workload until its end or until `stop` says so, which is asked after every answer.
    pub(super) fn run(&mut self, stop: &dyn Fn() -> bool) -> Answers {
        let mut answers = Answers::new();
        for act in &*ACTS {
            match act {
                Act::Plan(plan) => self.follow(plan, &mut answers, stop),
                Act::Group(domain, commits) => {
                    let results = self.store(*domain).apply_group(commits);
                    answers.extend(commits.iter().zip(results).map(|(commit, result)| (commit.operation_id, result.map(|_| ()))));
                }
                Act::Checkpoint(domain) => {
                    // Whether it succeeds or not, no answer depends on it.
                    self.store(*domain).checkpointer().and_then(|mut checkpointer| checkpointer.truncate()).ok();
                }
            }
            if stop() {
                break;
            }
        }
        answers
    }

    /// The three commits of a plan, each after the one before is durable.
    fn follow(&mut self, plan: &Plan, answers: &mut Answers, stop: &dyn Fn() -> bool) {
        if !answer(&mut self.agent, plan.plan(), answers) || stop() {
            return;
        }
        let Ok(heads) = witnesses(&mut self.agent, Domain::Agent) else { return };
        let is_done = answer(&mut self.journal, plan.effect(heads), answers);
        let is_refused = matches!(answers.get(&plan.operation_id), Some(Err(error)) if error.is_refusal());
        if !(is_done || is_refused) || stop() {
            return;
        }
        let Ok(heads) = witnesses(&mut self.journal, Domain::Journal) else { return };
        answer(&mut self.agent, plan.outcome(is_done, heads), answers);
    }

    fn store(&mut self, domain: Domain) -> &mut SqliteStore {
        if domain == Domain::Journal { &mut self.journal } else { &mut self.agent }
    }

    /// Holds what is there against what was answered, before anything is recovered: a recovery must not make up for a loss.
    pub(super) fn compare(&self, answers: &Answers) -> Result<Findings> {
        let mut findings = Findings { doubled: self.doubled()?, unsound: self.damages()?, ..Findings::default() };
        let (journal, agent) = (self.journal.reader(), self.agent.reader());
        let (journal, agent) = (journal.read()?, agent.read()?);
        for (act, commits) in ACTS.iter().zip(&*COMMITS) {
            let mut done = Vec::new();
            for (domain, commit) in commits {
                let snapshot = if *domain == Domain::Journal { &journal } else { &agent };
                let is_there = is_there(snapshot.as_ref(), commit, &mut findings)?;
                match answers.get(&commit.operation_id) {
                    Some(Ok(())) => findings.lost += usize::from(!is_there),
                    // Nobody was told anything, or that nobody knows.
                    Some(Err(Error::CommitUnknown { .. })) | None => {}
                    Some(Err(_)) => findings.denied += usize::from(is_there),
                }
                done.extend((!is_refused(commit)).then_some(is_there));
            }
            let is_group = matches!(act, Act::Group(..));
            findings.parted += usize::from(is_group && done.iter().any(|one| *one != done[0]));
        }
        Ok(findings)
    }

    /// Once everything is recovered, both domains tell the same story, and it has an end.
    pub(super) fn compare_settled(&self, answers: &Answers) -> Result<Findings> {
        // What was denied may have been done by now.
        let mut findings = Findings { denied: 0, ..self.compare(answers)? };
        for plan in plans() {
            let expected = match (self.progress(plan)?, plan.is_taken) {
                (Progress::Nothing, _) => [false, false, false],
                (_, false) => [true, true, false],
                (_, true) => [false, false, true],
            };
            let agent = self.agent.reader();
            let agent = agent.read()?;
            let has_message = |kth| Ok::<_, Error>(agent.get(Message::SPEC, &plan.message_id(kth))?.is_some());
            let is_done = self.journal.reader().read()?.outcome(&plan.operation_id)?.is_some();
            findings.parted += usize::from([is_done, has_message(0)?, has_message(1)?] != expected);
            findings.unsound += usize::from(self.progress(plan)? == Progress::Open);
        }
        findings.unsound += self.agent.reader().read()?.scan(&Scan::new(Lease::SPEC, "by_agent"))?.rows.len();
        Ok(findings)
    }

    fn progress(&self, plan: &Plan) -> Result<Progress> {
        let row = self.agent.reader().read()?.get(&CYCLE, &plan.cycle_id())?;
        Ok(match row.map(|row| row.version) {
            None => Progress::Nothing,
            Some(1) => Progress::Open,
            Some(_) => Progress::Closed,
        })
    }

    /// How many records were put more often than the workload does it.
    fn doubled(&self) -> Result<usize> {
        let mut puts: BTreeMap<(String, RawId), usize> = BTreeMap::new();
        for store in [&self.journal, &self.agent] {
            let reader = store.reader();
            let snapshot = reader.read()?;
            for stream in own_streams(host(1)) {
                for (logged, _) in snapshot.entries(&stream, 0, 1_000)? {
                    if logged.entry.op == Op::Put {
                        *puts.entry((logged.entry.kind, logged.entry.id)).or_default() += 1;
                    }
                }
            }
        }
        Ok(puts.into_iter().filter(|(record, count)| *count > PUTS.get(record).copied().unwrap_or(0)).count())
    }

    /// How many streams are damaged, each also held against what the other file remembers of it.
    fn damages(&self) -> Result<usize> {
        let mut found = 0;
        for (store, other) in [(&self.journal, &self.agent), (&self.agent, &self.journal)] {
            let witnesses = other.reader().read()?.witnesses()?;
            let kinds = &store.location().kinds;
            let report = verify::domain(store.reader().as_ref(), store.domain(), kinds, &witnesses, &mut |_| {})?;
            found += report.streams.iter().filter(|stream| stream.damage.is_some()).count();
        }
        Ok(found)
    }
}

/// Commits and keeps the answer; true if it is done.
fn answer(place: &mut dyn store::Committer, commit: Commit, answers: &mut Answers) -> bool {
    let operation_id = commit.operation_id;
    let result = place.commit(commit).map(|_| ());
    let is_done = result.is_ok();
    answers.insert(operation_id, result);
    is_done
}

fn witnesses(place: &mut dyn store::Committer, domain: Domain) -> Result<Vec<Witness>> {
    Ok(place.heads()?.into_iter().map(|head| Witness { domain, head }).collect())
}

/// Whether a commit is remembered; one that is, and whose records are not there, lost them.
fn is_there(snapshot: &dyn Snapshot, commit: &Commit, findings: &mut Findings) -> Result<bool> {
    let is_there = snapshot.outcome(&commit.operation_id)?.is_some();
    for write in commit.writes.iter().filter(|_| is_there) {
        findings.lost += usize::from(!is_written(snapshot, write)?);
    }
    Ok(is_there)
}

fn is_written(snapshot: &dyn Snapshot, write: &Write) -> Result<bool> {
    let row = snapshot.get(write.spec, &write.id)?;
    let version = match write.expected {
        Expected::Absent => 1,
        Expected::Version(version) => version + 1,
    };
    Ok(match write.change {
        // A lease comes and goes with its plan; what is left of them is counted at the end.
        _ if write.spec.kind == Lease::SPEC.kind => true,
        Change::Put(_) | Change::Tombstone => row.is_some_and(|row| row.version >= version),
        Change::Erase => row.is_some_and(|row| row.version >= version && row.body.is_none()),
    })
}

fn location(vfs: &FaultVfs, domain: Domain) -> Location {
    // Only what is written: every further table costs each of the thousands of starts.
    let kinds: Vec<&'static Spec> = match domain {
        Domain::Journal => vec![Note::SPEC, Fence::SPEC],
        Domain::Agent | Domain::Ledger => vec![&CYCLE, Lease::SPEC, Message::SPEC, Fence::SPEC],
    };
    Location { domain, path: PathBuf::from(format!("{domain}.sqlite")), kinds, vfs: Some(vfs.name().to_owned()) }
}

/// What each commit was answered.
pub(super) type Answers = BTreeMap<OperationId, Result<()>>;

/// The workload, made once: making it takes longer than looking for it.
static ACTS: LazyLock<Vec<Act>> = LazyLock::new(acts);
/// The commits of each act.
static COMMITS: LazyLock<Vec<Vec<(Domain, Commit)>>> = LazyLock::new(|| ACTS.iter().map(Act::commits).collect());
/// How often each logged record is put if everything is done once.
static PUTS: LazyLock<BTreeMap<(String, RawId), usize>> = LazyLock::new(planned_puts);

enum Act {
    Plan(Plan),
    Group(Domain, Vec<Commit>),
    Checkpoint(Domain),
}

impl Act {
    fn commits(&self) -> Vec<(Domain, Commit)> {
        match self {
            Self::Plan(plan) => plan.commits(),
            Self::Group(domain, commits) => commits.iter().map(|commit| (*domain, commit.clone())).collect(),
            Self::Checkpoint(_) => Vec::new(),
        }
    }
}

fn acts() -> Vec<Act> {
    let plan = |key| Act::Plan(Plan::new(key));
    let mut wrong = put_note("wrong", 3);
    wrong.writes[0].expected = WRONG_VERSION;
    let erase = Write { expected: Expected::Version(1), change: Change::Erase, ..put_of(&note(""), id(1)) };
    let fence = Fence { subject: "agent one".to_owned(), epoch: 2, raised_at: Timestamp::EPOCH };
    let fence = Write { workspace: WorkspaceId::NONE, ..put_of(&fence, Fence::id_of("agent one")) };
    vec![
        plan("a"),
        Act::Group(Domain::Journal, vec![put_note("one", 1), wrong, put_note("two", 2)]),
        Act::Checkpoint(Domain::Journal),
        plan("b"),
        Act::Plan(Plan::taken("taken", id(TAKEN))),
        Act::Group(Domain::Journal, vec![commit("erase", vec![erase])]),
        Act::Group(Domain::Agent, vec![commit("fence", vec![fence])]),
        plan("c"),
        Act::Checkpoint(Domain::Agent),
    ]
}

const WRONG_VERSION: Expected = Expected::Version(5);
/// The number of the note that exists before the workload.
const TAKEN: u8 = 9;

fn before() -> Commit {
    put_note("before", TAKEN)
}

fn plans() -> impl Iterator<Item = &'static Plan> {
    ACTS.iter().filter_map(|act| if let Act::Plan(plan) = act { Some(plan) } else { None })
}

fn planned_puts() -> BTreeMap<(String, RawId), usize> {
    let mut puts = BTreeMap::new();
    let commits = COMMITS.iter().flatten().map(|(_, commit)| commit);
    for commit in commits.filter(|commit| !is_refused(commit)).chain([&before()]) {
        let is_logged = |write: &&Write| write.spec.class != Class::Control && write.change.body().is_some();
        for write in commit.writes.iter().filter(is_logged) {
            *puts.entry((write.spec.kind.to_owned(), write.id)).or_default() += 1;
        }
    }
    puts
}

/// Whether no store may ever accept it, as a part of the workload.
fn is_refused(commit: &Commit) -> bool {
    commit.writes[0].expected == WRONG_VERSION || commit.writes[0].id == id(TAKEN)
}

/// Whether everything was answered as on a disk that never fails.
pub(super) fn are_all_good(answers: &Answers) -> bool {
    let commits = || COMMITS.iter().flatten().map(|(_, commit)| commit);
    let is_good = |commit: &Commit| match answers.get(&commit.operation_id) {
        Some(Ok(())) => !is_refused(commit),
        Some(Err(error)) => is_refused(commit) && error.is_refusal(),
        None => false,
    };
    answers.len() == commits().count() && commits().all(is_good)
}

/// What was found wrong. All zeroes is what the store promises.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Findings {
    /// Answered, and not there.
    pub(super) lost: usize,
    /// There more than once.
    pub(super) doubled: usize,
    /// The domains do not agree on a plan, or half a group is there.
    pub(super) parted: usize,
    /// Answered with an error that says nothing was written, and there.
    pub(super) denied: usize,
    /// Damage in a log, or a plan or lease that was left open.
    pub(super) unsound: usize,
    /// A store that cannot be opened or read.
    pub(super) unreadable: usize,
}

impl AddAssign for Findings {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.parted += other.parted;
        self.denied += other.denied;
        self.unsound += other.unsound;
        self.unreadable += other.unreadable;
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, doubled, parted, denied, unsound, unreadable } = self;
        write!(f, "lost {lost}, doubled {doubled}, parted {parted}, denied {denied}, unsound {unsound}, unreadable {unreadable}")
    }
}

//! The part of the workload that spans two domains: what a plan commits, and where.
//!
//! The agent domain records the plan, the journal does it under an operation id of its own, the agent domain records what came of
//! it; the later two name the other domain's heads. Nothing in the store ties the three together. Whoever finds a plan without an
//! outcome commits the rest again, under the same ids.

use std::collections::BTreeSet;

use domain::catalogue::CYCLE;
use domain::causality::Domain;
use domain::commit::{Cause, Change, Commit, Expected, Write};
use domain::entry::{Actor, Witness};
use domain::id::{AgentId, OperationId, RawId, RunId};
use domain::record::Record;
use domain::records::lease::Lease;
use domain::records::message::{AgentMessageKind, Message};
use domain::records::note::Note;
use domain::records::slug::Slug;
use domain::records::wrappers::AgentMessageMetadata;
use domain::time::Timestamp;

use crate::fixtures::{body, id, operation, workspace};

/// A note in the journal, and what the agent domain knows about it.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    key: &'static str,
    pub(super) operation_id: OperationId,
    note_id: RawId,
    /// Whether the journal has to refuse it, because its note is there already.
    pub(super) is_taken: bool,
}

/// What the agent domain holds of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Nothing,
    Open,
    Closed,
}

impl Plan {
    pub(super) fn new(key: &'static str) -> Self {
        let operation_id = operation(key);
        Self { key, operation_id, note_id: operation_id.created(Note::SPEC.kind, 0), is_taken: false }
    }

    /// A plan that is too late: somebody else's note has the id.
    pub(super) fn taken(key: &'static str, note_id: RawId) -> Self {
        Self { note_id, is_taken: true, ..Self::new(key) }
    }

    /// The agent's first commit: a cycle with its plan, and a lease on the agent.
    pub(super) fn plan(&self) -> Commit {
        let lease = Lease { agent_id: self.agent_id(), run_id: self.run_id(), incarnation: 1, taken_at: Timestamp::EPOCH };
        self.agent_commit("plan", vec![self.cycle_write(Progress::Open), put_of(&lease, self.agent_id().raw())], Vec::new())
    }

    /// The journal's commit.
    pub(super) fn effect(&self, witnesses: Vec<Witness>) -> Commit {
        let request = format!(r#"{{"note":"{}"}}"#, self.key);
        self.commit(self.operation_id, request, vec![put_of(&note(self.key), self.note_id)], witnesses)
    }

    /// The agent's second commit: the cycle is closed with a message, and the lease goes.
    pub(super) fn outcome(&self, is_done: bool, witnesses: Vec<Witness>) -> Commit {
        let (part, kth) = if is_done { ("done", 0) } else { ("refused", 1) };
        let message = put_of(&self.message(part), self.message_id(kth));
        let lease = Write {
            expected: Expected::Version(1),
            change: Change::Tombstone,
            spec: Lease::SPEC,
            ..put_of(&note(""), self.agent_id().raw())
        };
        let mut outcome = self.agent_commit("outcome", vec![self.cycle_write(Progress::Closed), message, lease], witnesses);
        // A repeat that comes to another end is another request, and is refused.
        outcome.request = format!(r#"["{part}","{}"]"#, self.operation_id);
        outcome
    }

    /// All commits, as they are when nothing goes wrong.
    pub(super) fn commits(&self) -> Vec<(Domain, Commit)> {
        let outcome = self.outcome(!self.is_taken, Vec::new());
        vec![(Domain::Agent, self.plan()), (Domain::Journal, self.effect(Vec::new())), (Domain::Agent, outcome)]
    }

    pub(super) fn agent_id(&self) -> AgentId {
        AgentId::from_raw(self.operation_id.created("agent", 0))
    }

    pub(super) fn cycle_id(&self) -> RawId {
        self.operation_id.created(CYCLE.kind, 0)
    }

    /// Of the message about what was done, or, as the first, of the one about a refusal.
    pub(super) fn message_id(&self, kth: u64) -> RawId {
        self.operation_id.created(Message::SPEC.kind, kth)
    }

    fn run_id(&self) -> RunId {
        RunId::from_raw(self.operation_id.created("run", 0))
    }

    fn cycle_write(&self, progress: Progress) -> Write {
        let text = format!(r#"{{"number":1,"progress":"{progress:?}","run_id":"{}"}}"#, self.run_id());
        let expected = if progress == Progress::Open { Expected::Absent } else { Expected::Version(1) };
        Write { spec: &CYCLE, id: self.cycle_id(), workspace: workspace(), expected, change: Change::Put(body(&text)) }
    }

    fn message(&self, about: &str) -> Message {
        Message {
            agent_id: self.agent_id(),
            thread_id: format!("{}:run:{about}", self.agent_id()),
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

    fn agent_commit(&self, part: &str, writes: Vec<Write>, witnesses: Vec<Witness>) -> Commit {
        let request = format!(r#"["{part}","{}"]"#, self.operation_id);
        self.commit(operation(&format!("{part} of {}", self.key)), request, writes, witnesses)
    }

    fn commit(&self, operation_id: OperationId, request: String, writes: Vec<Write>, witnesses: Vec<Witness>) -> Commit {
        let (actor, cause) = (Actor::Agent(self.agent_id()), Cause { depth: 1, ..Cause::default() });
        Commit { operation_id, request, actor, cause, guards: Vec::new(), writes, witnesses }
    }
}

pub(super) fn note(title: &str) -> Note {
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

pub(super) fn put_of<R: Record>(record: &R, id: RawId) -> Write {
    Write { spec: R::SPEC, id, workspace: workspace(), expected: Expected::Absent, change: Change::Put(record.to_body().unwrap()) }
}

/// A note of the tests' own, numbered.
pub(super) fn put_note(key: &str, number: u8) -> Commit {
    crate::fixtures::commit(key, vec![put_of(&note(key), id(number))])
}

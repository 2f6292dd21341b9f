//! The run: what its machine keeps between two steps. A versioned wire type; nothing of it lives in memory only.

use std::collections::BTreeSet;

use domain::catalogue;
use domain::hash::{Hash, Salt};
use domain::id::{AgentId, ManifestId, MessageId, PromptItemId, RawId, RunId, TaskId, WakeId, WorkspaceId};
use domain::key::RunKey;
use domain::named_enum;
use domain::record::{Record, Spec};
use domain::records::budget::Amounts;
use domain::records::wake::WakeReason;
use domain::records::wrappers::SchemaVersion;
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::cycle::Looked;
use crate::loop_state::LoopState;

/// How this build decides. A run keeps the version it began with, and is replayed only by a build of the same version.
pub const BEHAVIOUR_VERSION: u32 = 1;
/// LIMIT: what one step counts as time at work. A model may be slow; a longer pause was a process that did not run.
pub const STEP_MS_MAX: i64 = 300_000;
/// LIMIT: results of the last cycles that a model is shown.
pub const RECENT_MAX: usize = 5;

named_enum! {
    RunStatus {
        /// Only shown: the run's wake waits for its turn, and there is no run yet.
        Queued = "queued",
        Running = "running",
        Waiting = "waiting",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl RunStatus {
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

named_enum! {
    /// Where a run stands in its cycle. The durable points lie between: A leads to `asked`, B to `planned`, D back to `between`.
    Phase { Between = "between", Asked = "asked", Planned = "planned" }
}

named_enum! {
    WaitReason {
        /// A person has to answer.
        People = "people",
        /// The day's budget is used up.
        Budget = "budget",
        /// A kill switch is thrown.
        Stopped = "stopped",
        /// The agent is paused.
        Paused = "paused",
        /// The model did not answer; the next attempt comes later.
        Backoff = "backoff",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    pub reason: WaitReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

named_enum! {
    /// The events of the machine, as the record of what led from one state to the next.
    EventName {
        Begun = "begun",
        Opened = "opened",
        Answered = "answered",
        AskFailed = "ask_failed",
        Performed = "performed",
        Cancelled = "cancelled",
    }
}

/// Sixteen bytes that make the hashes of this run's contents confirm no guess once the run is erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSalt(pub Salt);

impl Serialize for RunSalt {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&RawId::from_bytes(self.0.0))
    }
}

impl<'de> Deserialize<'de> for RunSalt {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let id = RawId::parse(&text).ok_or_else(|| serde::de::Error::custom("not a salt"))?;
        Ok(Self(Salt(*id.as_bytes())))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub schema_version: SchemaVersion,
    pub agent_id: AgentId,
    pub workspace_id: WorkspaceId,
    pub run_key: RunKey,
    pub reason: WakeReason,
    /// The wakes that it answers; frozen when it begins.
    pub wake_ids: Vec<WakeId>,
    pub manifest_id: ManifestId,
    pub behaviour_version: u32,
    pub salt: RunSalt,
    pub cause_depth: u8,
    pub status: RunStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// A person wants it to end; it does at the next point.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// Why it failed or was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The number of the cycle that is open, or was last; durable before the ask.
    pub cycle: u32,
    /// How often the open cycle was asked.
    pub attempt: u32,
    /// Cycles in which a model was asked.
    pub asks: u32,
    pub phase: Phase,
    pub label: LoopState,
    /// Answers in a row that did not decode.
    pub faults_in_row: u32,
    /// Asks in a row without an answer.
    pub failures_in_row: u32,
    pub tokens: i64,
    /// Actions that were carried out.
    pub operations: u32,
    pub active_ms: i64,
    /// The last step at work; none while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<Parked>,
    /// Contents that a person has denied.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub denied: BTreeSet<Hash>,
    /// The task that this run has chosen last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<Recent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_message: Option<MessageId>,
    /// What the last step saw, when it opened no cycle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked: Option<Box<Looked>>,
    /// What led from the version before to this one.
    pub events: Vec<EventName>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// What is set aside for the open cycle, and for which day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    pub day: String,
    pub amounts: Amounts,
}

/// An action or a question that waits for a person: its row stays as it was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parked {
    pub item: PromptItemId,
    pub cycle: u32,
    pub action: Action,
}

/// What became of a proposal, as the next asks are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recent {
    pub cycle: u32,
    pub what: String,
    pub result: String,
    /// A person's own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

impl Record for Run {
    const SPEC: &'static Spec = &catalogue::RUN;
}

/// What a new run is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub agent_id: AgentId,
    pub workspace_id: WorkspaceId,
    pub run_key: RunKey,
    pub reason: WakeReason,
    pub wake_ids: Vec<WakeId>,
    pub manifest_id: ManifestId,
    pub salt: Salt,
    pub cause_depth: u8,
}

impl Run {
    /// A run before its first cycle.
    #[must_use]
    pub fn begin(origin: Origin, now: Timestamp) -> Self {
        Self {
            schema_version: SchemaVersion::default(),
            agent_id: origin.agent_id,
            workspace_id: origin.workspace_id,
            run_key: origin.run_key,
            reason: origin.reason,
            wake_ids: origin.wake_ids,
            manifest_id: origin.manifest_id,
            behaviour_version: BEHAVIOUR_VERSION,
            salt: RunSalt(origin.salt),
            cause_depth: origin.cause_depth,
            status: RunStatus::Running,
            waiting: None,
            cancel_requested: false,
            code: None,
            cycle: 0,
            attempt: 0,
            asks: 0,
            phase: Phase::Between,
            label: LoopState::Planning,
            faults_in_row: 0,
            failures_in_row: 0,
            tokens: 0,
            operations: 0,
            active_ms: 0,
            running_since: Some(now),
            reserved: None,
            parked: Vec::new(),
            denied: BTreeSet::new(),
            task_id: None,
            recent: Vec::new(),
            last_message: None,
            looked: None,
            events: vec![EventName::Begun],
            created_at: now,
            updated_at: now,
            ended_at: None,
        }
    }

    #[must_use]
    pub fn id(&self) -> RunId {
        RunId::of_key(&self.run_key)
    }

    /// Over content of this run: equal contents of one run are equal, and erasing the run erases what could be guessed.
    #[must_use]
    pub fn content_hash(&self, text: &str) -> Hash {
        domain::hash::salted(&self.salt.0, text.as_bytes())
    }

    pub(crate) fn remember(&mut self, recent: Recent) {
        self.recent.push(recent);
        let surplus = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..surplus);
    }

    /// Time at work so far. A clock that went back adds nothing, and a night between two steps adds no night.
    #[must_use]
    pub fn worked_ms(&self, now: Timestamp) -> i64 {
        let since = self.running_since.map_or(0, |since| now.as_ms().saturating_sub(since.as_ms()).clamp(0, STEP_MS_MAX));
        self.active_ms.saturating_add(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k17_names_are_what_is_stored() {
        let names: Vec<_> = RunStatus::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(names, ["queued", "running", "waiting", "succeeded", "failed", "cancelled"]);
        assert_eq!(Phase::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["between", "asked", "planned"]);
        let waits: Vec<_> = WaitReason::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(waits, ["people", "budget", "stopped", "paused", "backoff"]);
        let events: Vec<_> = EventName::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(events, ["begun", "opened", "answered", "ask_failed", "performed", "cancelled"]);
    }
}

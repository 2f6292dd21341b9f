//! Runs as people look at them: which there are, how they stand, what waits for somebody.

use control::action::Action;
use control::cycle::Cycle;
use control::run::{Run, RunStatus, WaitReason};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{AgentId, ManifestId, OperationId, PromptItemId, RunId, WakeId, WorkspaceId};
use domain::key::RunKey;
use domain::limits::PAGE_ROWS_MAX;
use domain::record::{Record, Value};
use domain::records::agent::Agent;
use domain::records::budget::Amounts;
use domain::records::prompt::{PromptItem, PromptState};
use domain::records::wake::{Wake, WakeReason, WakeState};
use domain::time::Timestamp;
use serde::Serialize;
use serde_json::json;
use store::store::{Direction, Scan, Snapshot};

use crate::house::{Held, House, held};
use crate::inbox::standing;
use crate::waits::Needs;
use crate::{Error, Result};

/// LIMIT: candidates that an ambiguous id is answered with.
const CANDIDATES_MAX: usize = 5;
/// LIMIT: characters of an id that may stand for the whole, its prefix included.
const ABBREVIATED_CHARS_MIN: usize = 8;

/// One line of a list: a run, or a wake that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunLine {
    pub id: RunId,
    pub agent_id: AgentId,
    /// The agent's name, as its manifest gives it.
    pub agent: String,
    pub status: RunStatus,
    pub waiting: Option<WaitReason>,
    /// It waited for people, and what became of a question lets it go on.
    pub resolved: Option<PromptState>,
    pub code: Option<String>,
    pub cycles: u32,
    pub operations: u32,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// A run as it stands, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunView {
    pub id: RunId,
    /// What was asked for, when another wake's run has answered it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesced_from: Option<RunId>,
    pub agent_id: AgentId,
    pub agent: String,
    pub workspace_id: WorkspaceId,
    pub manifest_id: Option<ManifestId>,
    pub behaviour_version: u32,
    pub run_key: RunKey,
    pub reason: WakeReason,
    pub status: RunStatus,
    pub waiting: Option<WaitView>,
    pub cancel_requested: bool,
    pub code: Option<String>,
    pub cycles: u32,
    pub attempt: u32,
    pub operations: u32,
    pub tokens: i64,
    pub active_ms: i64,
    pub wakes: Vec<WakeId>,
    pub asks: Vec<AskView>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitView {
    pub reason: WaitReason,
    pub until: Option<Timestamp>,
    pub needs: Needs,
}

/// A question of the run that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskView {
    pub id: PromptItemId,
    pub cycle: u32,
    pub tool: String,
    pub operation_id: OperationId,
    /// An approval is answered with yes or no, a question with words.
    pub approval: bool,
    pub text: String,
    /// What a reply has to be one of, where there is a choice.
    pub options: Vec<String>,
    /// How it stands now: one that nobody answered in time is expired, whether or not that was written down.
    pub status: PromptState,
    pub required_by: Option<Timestamp>,
}

/// What stands behind a run's id.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    Run(Box<Run>),
    /// A wake that waits for its turn.
    Queued(Wake),
    /// A wake that ended without a run.
    Ended(Wake),
}

impl House {
    /// A run as it stands.
    pub fn run(&self, id: &RunId) -> Result<Run> {
        let held = self.held::<Run>(Domain::Agent, &id.raw())?;
        held.map(|held| held.record).ok_or_else(|| missing(id))
    }

    /// The whole id of a run that a person named, perhaps by its first characters.
    pub fn find_run(&self, name: &str) -> Result<RunId> {
        let parsed = RunId::parse(name);
        let (Err(unread), true) = (&parsed, name.starts_with("run_") && name.len() >= ABBREVIATED_CHARS_MIN) else {
            return parsed.map_err(|error| Error::argument("run", &error.to_string()));
        };
        let lines = self.runs(PAGE_ROWS_MAX)?;
        let fitting: Vec<_> = lines.iter().map(|line| line.id).filter(|id| id.to_string().starts_with(name)).collect();
        match fitting.as_slice() {
            [id] => Ok(*id),
            [] if name.len() > unread.prefix.len() + 26 => Err(Error::argument("run", &unread.to_string())),
            [] => Err(Error::new(ErrorCode::RunNotFound, format!("no run begins with `{name}`"))),
            several => {
                let shown: Vec<_> = several.iter().take(CANDIDATES_MAX).map(ToString::to_string).collect();
                let message = format!("`{name}` could be {} runs: {}", several.len(), shown.join(", "));
                let mut error = Error::argument("run", &message);
                error.details["candidates"] = json!(shown);
                Err(error)
            }
        }
    }

    /// What an id stands for: a run, also the one that answered its wake together with others, or a wake.
    pub(crate) fn found(&self, id: &RunId) -> Result<Found> {
        if let Some(held) = self.held::<Run>(Domain::Agent, &id.raw())? {
            return Ok(Found::Run(Box::new(held.record)));
        }
        let wake: Option<Held<Wake>> = self.held(Domain::Agent, &WakeId::from_raw(id.raw()).raw())?;
        let wake = wake.ok_or_else(|| missing(id))?.record;
        match (wake.run_id, wake.status) {
            (Some(run), _) => Ok(Found::Run(Box::new(self.run(&run)?))),
            (None, WakeState::Waiting) => Ok(Found::Queued(wake)),
            (None, _) => Ok(Found::Ended(wake)),
        }
    }

    /// The run behind an id that has begun; a wake alone has nothing to show yet.
    pub(crate) fn begun(&self, id: &RunId) -> Result<Run> {
        match self.found(id)? {
            Found::Run(run) => Ok(*run),
            Found::Queued(_) => Err(Error::new(ErrorCode::RunNotFound, format!("{id} has not begun: its wake waits for its turn"))),
            Found::Ended(wake) => Err(Error::new(ErrorCode::RunNotFound, format!("{id} never began: its wake is {}", wake.status))),
        }
    }

    /// A run, or the wake that waits for one, as it stands.
    pub fn run_view(&self, id: &RunId) -> Result<RunView> {
        match self.found(id)? {
            Found::Run(run) => {
                let mut view = self.view_of(&run)?;
                view.coalesced_from = (view.id != *id).then_some(*id);
                Ok(view)
            }
            Found::Queued(wake) => self.view_of_wake(*id, &wake, RunStatus::Queued),
            Found::Ended(wake) => {
                let cancelled = wake.code.as_deref() == Some(ErrorCode::Cancelled.as_str());
                self.view_of_wake(*id, &wake, if cancelled { RunStatus::Cancelled } else { RunStatus::Failed })
            }
        }
    }

    fn view_of(&self, run: &Run) -> Result<RunView> {
        let now = self.now();
        let mut asks = Vec::new();
        for parked in &run.parked {
            let item: Option<Held<PromptItem>> = self.held(Domain::Agent, &parked.item.raw())?;
            let item = item.map(|held| held.record);
            let Action { tool, operation_id, .. } = &parked.action;
            asks.push(AskView {
                id: parked.item,
                cycle: parked.cycle,
                tool: tool.clone(),
                operation_id: *operation_id,
                approval: item.as_ref().is_none_or(|item| item.gates.is_some()),
                // One that is gone will not be answered.
                status: item.as_ref().map_or(PromptState::Withdrawn, |item| standing(item, now)),
                required_by: item.as_ref().map(|item| item.required_by),
                options: item.as_ref().map_or_else(Vec::new, |item| item.options.clone()),
                text: item.map_or_else(String::new, |item| item.prompt_text),
            });
        }
        let waiting = match &run.waiting {
            Some(waiting) => Some(WaitView { reason: waiting.reason, until: waiting.until, needs: self.needs(run, &asks)? }),
            None => None,
        };
        Ok(RunView {
            id: run.id(),
            coalesced_from: None,
            agent_id: run.agent_id,
            agent: self.agent_name(&run.agent_id)?,
            workspace_id: run.workspace_id,
            manifest_id: Some(run.manifest_id),
            behaviour_version: run.behaviour_version,
            run_key: run.run_key,
            reason: run.reason,
            status: run.status,
            waiting,
            cancel_requested: run.cancel_requested,
            code: run.code.clone(),
            cycles: run.cycle,
            attempt: run.attempt,
            operations: run.operations,
            tokens: run.tokens,
            active_ms: run.active_ms,
            wakes: run.wake_ids.clone(),
            asks,
            created_at: run.created_at,
            updated_at: run.updated_at,
            ended_at: run.ended_at,
        })
    }

    fn view_of_wake(&self, id: RunId, wake: &Wake, status: RunStatus) -> Result<RunView> {
        let agent: Option<Held<Agent>> = self.held(Domain::Agent, &wake.agent_id.raw())?;
        Ok(RunView {
            id,
            coalesced_from: None,
            agent_id: wake.agent_id,
            agent: agent.as_ref().map_or_else(String::new, |held| held.record.kind.to_string()),
            workspace_id: agent.map_or(WorkspaceId::NONE, |held| held.workspace),
            manifest_id: None,
            behaviour_version: control::run::BEHAVIOUR_VERSION,
            run_key: wake.run_key,
            reason: wake.reason,
            status,
            waiting: None,
            cancel_requested: false,
            code: wake.code.clone(),
            cycles: 0,
            attempt: 0,
            operations: 0,
            tokens: Amounts::NONE.tokens,
            active_ms: 0,
            wakes: vec![WakeId::of_key(&wake.run_key)],
            asks: Vec::new(),
            created_at: wake.created_at,
            updated_at: wake.ended_at.unwrap_or(wake.created_at),
            ended_at: wake.ended_at,
        })
    }

    /// The name that an agent's manifest gives it.
    pub(crate) fn agent_name(&self, id: &AgentId) -> Result<String> {
        let agent: Option<Held<Agent>> = self.held(Domain::Agent, &id.raw())?;
        Ok(agent.map_or_else(String::new, |held| held.record.kind.to_string()))
    }

    /// The cycles of a run, in order.
    pub fn cycles(&self, id: &RunId) -> Result<Vec<Cycle>> {
        self.read(Domain::Agent, |snapshot| {
            let mut scan = Scan::new(Cycle::SPEC, "by_run");
            scan.prefix = vec![Value::from(id.raw())];
            let mut found = Vec::new();
            loop {
                let page = snapshot.scan(&scan)?;
                for row in &page.rows {
                    found.extend(held::<Cycle>(row)?.map(|held| held.record));
                }
                let Some(next) = page.next else { return Ok(found) };
                scan.after = Some(next);
            }
        })
    }

    /// What waits for its turn, then the newest runs.
    pub fn runs(&self, limit: usize) -> Result<Vec<RunLine>> {
        let now = self.now();
        let mut lines = self.read(Domain::Agent, |snapshot| {
            let mut lines = Vec::new();
            let mut scan = Scan::new(Wake::SPEC, "by_status");
            scan.prefix = vec![Value::from(WakeState::Waiting.as_str())];
            scan.limit = limit.min(scan.limit);
            for row in snapshot.scan(&scan)?.rows {
                let Some(wake) = held::<Wake>(&row)?.filter(|held| held.record.run_id.is_none()) else { continue };
                lines.push(queued(&wake.record));
            }
            let mut scan = Scan::new(Run::SPEC, "by_created");
            scan.direction = Direction::Backward;
            scan.limit = limit.min(scan.limit);
            for row in snapshot.scan(&scan)?.rows {
                let Some(Held { record: run, .. }) = held::<Run>(&row)? else { continue };
                let resolved = resolved(snapshot, &run, now)?;
                lines.push(RunLine { resolved, ..line(&run) });
            }
            lines.truncate(limit);
            Ok(lines)
        })?;
        for line in &mut lines {
            line.agent = self.agent_name(&line.agent_id)?;
        }
        Ok(lines)
    }
}

fn missing(id: &RunId) -> Error {
    Error::new(ErrorCode::RunNotFound, format!("there is no {id}"))
}

/// What became of the questions of a run that waits for people, if it may go on.
fn resolved(snapshot: &dyn Snapshot, run: &Run, now: Timestamp) -> Result<Option<PromptState>> {
    if run.waiting.as_ref().is_none_or(|waiting| waiting.reason != WaitReason::People) {
        return Ok(None);
    }
    let mut found = None;
    for parked in &run.parked {
        let row = snapshot.get(PromptItem::SPEC, &parked.item.raw())?;
        let item = row.map(|row| held::<PromptItem>(&row)).transpose()?.flatten();
        match item.map_or(PromptState::Withdrawn, |item| standing(&item.record, now)) {
            PromptState::Open => {}
            PromptState::Answered => return Ok(Some(PromptState::Answered)),
            ended @ (PromptState::Expired | PromptState::Withdrawn) => found = Some(ended),
        }
    }
    Ok(found)
}

fn queued(wake: &Wake) -> RunLine {
    RunLine {
        id: RunId::of_key(&wake.run_key),
        agent_id: wake.agent_id,
        agent: String::new(),
        status: RunStatus::Queued,
        waiting: None,
        resolved: None,
        code: None,
        cycles: 0,
        operations: 0,
        created_at: wake.created_at,
        ended_at: None,
    }
}

fn line(run: &Run) -> RunLine {
    RunLine {
        id: run.id(),
        agent_id: run.agent_id,
        agent: String::new(),
        status: run.status,
        waiting: run.waiting.as_ref().map(|waiting| waiting.reason),
        resolved: None,
        code: run.code.clone(),
        cycles: run.cycle,
        operations: run.operations,
        created_at: run.created_at,
        ended_at: run.ended_at,
    }
}

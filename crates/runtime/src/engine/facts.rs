//! Loading: the world as a point of a cycle finds it, from the stores and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control::board::{ArtifactFact, Board, Evidence, TaskFact};
use control::cycle::{AnswerFact, AnswerVerdict, Gate};
use control::machine::day_of;
use control::manifest::Manifest;
use control::run::Run;
use control::tool;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::entry::Actor;
use domain::id::{AgentId, ArtifactId, ManifestId, PromptResponseId, TaskId, WorkspaceId};
use domain::limits::{BOARD_ARTIFACTS_MAX, BOARD_TASKS_MAX};
use domain::plant::{self, Bug};
use domain::record::{Record, Value};
use domain::records::agent::{Agent, AgentLifecycle};
use domain::records::artifact::Artifact;
use domain::records::budget::{Amounts, BudgetLimit, BudgetUsage, SUMS};
use domain::records::fence::Fence;
use domain::records::manifest::StoredManifest;
use domain::records::prompt::{PromptItem, PromptResponse, PromptState, Verdict};
use domain::records::slug::Slug;
use domain::records::switch::SwitchSubject;
use domain::records::task::{RequiredEffect, Task, TaskStatus};
use domain::time::Timestamp;
use policy::World;
use store::store::{Direction, Scan, Snapshot};

use crate::engine::outside::Outside;
use crate::house::{Held, House, get, held};
use crate::{Error, Result, switches};

/// Everything that a point of a cycle is fed with.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub manifest: Arc<Manifest>,
    pub gate: Gate,
    pub board: Board,
    pub answers: Vec<AnswerFact>,
}

impl Loaded {
    pub(crate) fn facts(&self) -> control::machine::Facts<'_> {
        control::machine::Facts { manifest: &self.manifest, gate: &self.gate, board: &self.board, answers: &self.answers }
    }
}

/// The fence of an agent's own life: raised when it is destroyed.
pub(crate) fn agent_fence(agent: &AgentId) -> String {
    format!("agent/{agent}")
}

impl House {
    /// Everything at once. `agent` is a snapshot of the agent domain.
    pub(crate) fn load(&mut self, agent: &dyn Snapshot, run: &Run, outside: &dyn Outside, now: Timestamp) -> Result<Loaded> {
        let manifest = self.manifest_in(agent, &run.manifest_id)?;
        let gate = gate(agent, &run.agent_id, &run.workspace_id, &manifest, outside, now)?;
        let (board, answers) = (self.board_of(run)?, answers(agent, run)?);
        Ok(Loaded { manifest, gate, board, answers })
    }

    pub(crate) fn board_of(&self, run: &Run) -> Result<Board> {
        self.read(Domain::Journal, |snapshot| board(snapshot, run.workspace_id))
    }

    /// A stored manifest. It is content-addressed, so a copy in memory cannot be stale.
    pub(crate) fn manifest(&mut self, id: &ManifestId) -> Result<Arc<Manifest>> {
        let reader = self.reader(Domain::Agent);
        let agent = reader.read()?;
        self.manifest_in(agent.as_ref(), id)
    }

    pub(crate) fn manifest_in(&mut self, agent: &dyn Snapshot, id: &ManifestId) -> Result<Arc<Manifest>> {
        if let Some(known) = self.manifests.get(id) {
            return Ok(Arc::clone(known));
        }
        let stored: Option<Held<StoredManifest>> = get(agent, &id.raw())?;
        let stored = stored.ok_or_else(|| Error::new(ErrorCode::DatabaseDamaged, format!("{id} is not stored")))?;
        let manifest: Manifest = serde_json::from_str(&stored.record.content)
            .map_err(|error| Error::new(ErrorCode::DatabaseDamaged, format!("{id} does not read: {error}")))?;
        let manifest = Arc::new(manifest);
        self.manifests.insert(*id, Arc::clone(&manifest));
        Ok(manifest)
    }
}

/// What decisions about an agent are made on.
pub(crate) fn gate(
    snapshot: &dyn Snapshot,
    agent_id: &AgentId,
    workspace: &WorkspaceId,
    manifest: &Manifest,
    outside: &dyn Outside,
    now: Timestamp,
) -> Result<Gate> {
    let reachable = |name: &&String| tool::find(name).is_some() || outside.reaches(name);
    let agent = agent_of(snapshot, agent_id)?;
    let (limits, used) = budget(snapshot, agent_id, manifest, &day_of(now))?;
    let world = World {
        stopped: stopped(snapshot)?,
        lifecycle: agent.lifecycle,
        workspace: *workspace,
        categories: agent.allowed_category_ids,
        kinds: manifest.kinds.clone(),
        capabilities: manifest.capabilities.clone(),
        tools: manifest.tools.iter().filter(reachable).cloned().collect(),
        mode: manifest.mode,
        limits,
        used,
        denied: BTreeSet::new(),
        pending: BTreeSet::new(),
    };
    Ok(Gate { world, fences: fences(snapshot, agent_id, manifest)? })
}

fn agent_of(snapshot: &dyn Snapshot, id: &AgentId) -> Result<Agent> {
    let agent = get::<Agent>(snapshot, &id.raw())?;
    Ok(agent.ok_or_else(|| Error::new(ErrorCode::AgentNotFound, format!("{id} is not there")))?.record)
}

/// Whether an agent stands still: stopped, paused or destroyed. Looked at right before something leaves the process.
pub(crate) fn stands_still(snapshot: &dyn Snapshot, agent: &AgentId) -> Result<bool> {
    let stopped = stopped(snapshot)?;
    let subjects = [SwitchSubject::Everything, SwitchSubject::Agent(*agent)];
    let switched_off = !plant::is(Bug::IgnoreSwitch) && subjects.iter().any(|subject| stopped.contains(subject));
    Ok(switched_off || agent_of(snapshot, agent)?.lifecycle != AgentLifecycle::Active)
}

/// The day's limits and what is used of them, over all hosts.
pub(crate) fn budget(snapshot: &dyn Snapshot, agent: &AgentId, manifest: &Manifest, day: &str) -> Result<(Amounts, Amounts)> {
    let row = snapshot.get(BudgetLimit::SPEC, &BudgetLimit::id_of(agent))?;
    let set = row.map(|row| held::<BudgetLimit>(&row)).transpose()?.flatten();
    let limits = set.map_or(manifest.budget, |held| held.record.limits);
    let group = [Value::from(agent.raw()), Value::from(day)];
    let mut sums = [0; 4];
    for (sum, name) in sums.iter_mut().zip(SUMS) {
        *sum = snapshot.aggregate(BudgetUsage::SPEC, name, &group)?;
    }
    let [tokens, cost_micros, runtime_ms, tool_calls] = sums;
    Ok((limits, Amounts { tokens, cost_micros, runtime_ms, tool_calls }))
}

/// What people have stopped and not released.
pub(crate) fn stopped(snapshot: &dyn Snapshot) -> Result<BTreeSet<SwitchSubject>> {
    Ok(switches::thrown(snapshot)?.into_iter().map(|switch| switch.subject).collect())
}

/// The fences that guard an agent's work, as they stand.
fn fences(snapshot: &dyn Snapshot, agent: &AgentId, manifest: &Manifest) -> Result<BTreeMap<String, u64>> {
    let ours = tool::OURS.iter().filter_map(|tool| Slug::parse(tool.class).ok());
    let classes: BTreeSet<Slug> = ours.chain(manifest.services.values().map(|service| service.class.clone())).collect();
    let mut subjects = vec![agent_fence(agent), SwitchSubject::Everything.fence(), SwitchSubject::Agent(*agent).fence()];
    subjects.extend(classes.into_iter().map(|class| SwitchSubject::Tools(class).fence()));
    let mut found = BTreeMap::new();
    for subject in subjects {
        let row = snapshot.get(Fence::SPEC, &Fence::id_of(&subject))?;
        let epoch = row.map(|row| held::<Fence>(&row)).transpose()?.flatten().map_or(0, |held| held.record.epoch);
        found.insert(subject, epoch);
    }
    Ok(found)
}

fn board(snapshot: &dyn Snapshot, workspace: WorkspaceId) -> Result<Board> {
    let mut counts = BTreeMap::new();
    for status in TaskStatus::ALL {
        let group = [Value::from(workspace.raw()), Value::from(status.as_str())];
        let count = snapshot.aggregate(Task::SPEC, "per_status", &group)?;
        if count > 0 {
            counts.insert(*status, u64::try_from(count).unwrap_or(0));
        }
    }
    let mut tasks = Vec::new();
    for status in [TaskStatus::InProgress, TaskStatus::Pending, TaskStatus::Blocked] {
        if !counts.contains_key(&status) {
            continue;
        }
        let mut scan = Scan::new(Task::SPEC, "by_status");
        scan.prefix = vec![Value::from(workspace.raw()), Value::from(status.as_str())];
        scan.limit = BOARD_TASKS_MAX;
        for row in snapshot.scan(&scan)?.rows {
            let Some(Held { record, version, .. }) = held::<Task>(&row)? else { continue };
            tasks.push(task_fact(snapshot, workspace, TaskId::from_raw(row.id), version, record)?);
        }
    }
    Ok(Board { workspace, tasks, counts, artifacts: artifacts(snapshot, workspace)? })
}

pub(crate) fn task_fact(snapshot: &dyn Snapshot, workspace: WorkspaceId, id: TaskId, version: u64, task: Task) -> Result<TaskFact> {
    let mut ready = true;
    for needed in &task.preconditions {
        let row = snapshot.get(Task::SPEC, &needed.raw())?;
        let status = row.map(|row| held::<Task>(&row)).transpose()?.flatten().map(|held| held.record.status);
        ready &= status == Some(TaskStatus::Done);
    }
    let mut evidence = Vec::new();
    for RequiredEffect::Artifact { artifact_type, artifact_key } in &task.required_effects {
        let artifact_id = ArtifactId::of_key(&workspace, artifact_type, artifact_key);
        let row = snapshot.get(Artifact::SPEC, &artifact_id.raw())?.filter(|row| !row.deleted);
        evidence.push(row.map(|row| Evidence { artifact_id, version: row.version }));
    }
    if evidence.is_empty() {
        let mut scan = Scan::new(Artifact::SPEC, "by_task");
        scan.prefix = vec![Value::from(id.raw())];
        scan.limit = 1;
        let first = snapshot.scan(&scan)?.rows.into_iter().next();
        evidence.push(first.map(|row| Evidence { artifact_id: ArtifactId::from_raw(row.id), version: row.version }));
    }
    Ok(TaskFact { id, version, task, ready, evidence })
}

fn artifacts(snapshot: &dyn Snapshot, workspace: WorkspaceId) -> Result<Vec<ArtifactFact>> {
    let mut scan = Scan::new(Artifact::SPEC, "by_created");
    scan.prefix = vec![Value::from(workspace.raw())];
    scan.direction = Direction::Backward;
    scan.limit = BOARD_ARTIFACTS_MAX;
    let mut found = Vec::new();
    for row in snapshot.scan(&scan)?.rows {
        let Some(Held { record, version, .. }) = held::<Artifact>(&row)? else { continue };
        let Artifact { artifact_type, artifact_key, .. } = record;
        found.push(ArtifactFact { id: ArtifactId::from_raw(row.id), version, artifact_type, artifact_key });
    }
    Ok(found)
}

/// What people have said to the questions that a run has parked, and which of them have expired.
pub(crate) fn answers(snapshot: &dyn Snapshot, run: &Run) -> Result<Vec<AnswerFact>> {
    let mut found = Vec::new();
    for parked in &run.parked {
        let row = snapshot.get(PromptItem::SPEC, &parked.item.raw())?;
        let item = row.map(|row| held::<PromptItem>(&row)).transpose()?.flatten().map(|held| held.record);
        let (verdict, by, text, binds) = match item.as_ref().map(|item| item.status) {
            Some(PromptState::Answered) => {
                let id = PromptResponseId::of_item(&parked.item);
                let row = snapshot.get(PromptResponse::SPEC, &id.raw())?;
                let Some(response) = row.map(|row| held::<PromptResponse>(&row)).transpose()?.flatten() else { continue };
                let PromptResponse { verdict, text, binds, responded_by, .. } = response.record;
                let verdict = match verdict {
                    Verdict::Approve => AnswerVerdict::Approve,
                    Verdict::Deny => AnswerVerdict::Deny,
                    Verdict::Reply => AnswerVerdict::Reply,
                };
                (verdict, responded_by, text, binds)
            }
            // An item that is gone, or was withdrawn by somebody else, will not be answered either.
            Some(PromptState::Expired | PromptState::Withdrawn) | None => {
                (AnswerVerdict::Expired, Actor::System, String::new(), None)
            }
            #[cfg(feature = "planted")]
            Some(PromptState::Open) if plant::is(Bug::ResumeOtherRun) => match other_answer(snapshot, run)? {
                Some(response) => (AnswerVerdict::Approve, response.responded_by, response.text, response.binds),
                None => continue,
            },
            Some(PromptState::Open) => continue,
        };
        found.push(AnswerFact { item: parked.item, verdict, by, text, binds });
    }
    Ok(found)
}

#[cfg(feature = "planted")]
/// The planted mistake: any approval for the agent is as good as any other.
fn other_answer(snapshot: &dyn Snapshot, run: &Run) -> Result<Option<PromptResponse>> {
    let mut scan = Scan::new(PromptItem::SPEC, "by_status");
    scan.prefix = vec![Value::from(PromptState::Answered.as_str())];
    for row in snapshot.scan(&scan)?.rows {
        let item = held::<PromptItem>(&row)?.filter(|held| held.record.agent_id == run.agent_id && held.record.run_id != run.id());
        if item.is_some() {
            let id = PromptResponseId::of_item(&domain::id::PromptItemId::from_raw(row.id));
            let response = snapshot.get(PromptResponse::SPEC, &id.raw())?.map(|row| held::<PromptResponse>(&row)).transpose()?;
            return Ok(response.flatten().map(|held| held.record).filter(|response| response.verdict == Verdict::Approve));
        }
    }
    Ok(None)
}

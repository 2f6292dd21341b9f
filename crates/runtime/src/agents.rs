//! Agents: made from a manifest, paused, resumed, destroyed.

use std::collections::BTreeSet;
use std::sync::Arc;

use control::manifest::Manifest;
use control::run::{Run, RunStatus};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Expected, Guard, Write};
use domain::entry::Actor;
use domain::id::{AgentId, ManifestId, OperationId, WorkspaceId};
use domain::key::{RunKey, keyed};
use domain::record::{Record, Value};
use domain::records::agent::{Agent, AgentInteractionMode, AgentLifecycle};
use domain::records::manifest::StoredManifest;
use domain::records::prompt::{PromptItem, PromptState};
use domain::records::slug::Slug;
use domain::records::wake::{Wake, WakeReason, WakeState};
use domain::records::wrappers::AgentConfig;
use domain::time::Timestamp;
use serde_json::json;
use store::store::Scan;

use crate::engine::{Drive, Progress, Scripted, wakes};
use crate::house::{Held, House, expecting, held, put};
use crate::operation::{ClientKey, owner};
use crate::{Error, Result};
use domain::id::RunId;

impl House {
    /// The agent of a manifest: made if it is new, brought up to date if the manifest has changed. The same name is the same agent.
    pub fn adopt(&mut self, manifest: &Manifest, key: &ClientKey) -> Result<AgentId> {
        manifest.check().map_err(|error| Error::new(ErrorCode::ManifestInvalid, error.to_string()))?;
        let workspace = self.workspace(manifest.workspace.as_str())?;
        let content = manifest.canonical().map_err(|error| Error::new(ErrorCode::ManifestInvalid, error.to_string()))?;
        let manifest_id = ManifestId::of_content(&content);
        let id = AgentId::from_raw(keyed("agent", &workspace.to_string(), manifest.agent.as_str()));
        let known: Option<Held<Agent>> = self.held(Domain::Agent, &id.raw())?;
        let prompt_id = Some(manifest_id.to_string());
        if known.as_ref().is_some_and(|held| held.record.lifecycle == AgentLifecycle::Destroyed) {
            let message = format!("agent `{}` was destroyed; give the new one another name", manifest.agent);
            return Err(Error::new(ErrorCode::AgentDestroyed, message));
        }
        if known.as_ref().is_some_and(|held| held.record.config.prompt_id == prompt_id) {
            return Ok(id);
        }
        let now = self.now();
        let version = known.as_ref().map(|held| held.version);
        let config = AgentConfig { model_id: Some(manifest.model.name().to_owned()), prompt_id, ..AgentConfig::default() };
        let title = if manifest.title.is_empty() { manifest.agent.to_string() } else { manifest.title.clone() };
        let agent = match known {
            Some(held) => Agent { display_name: title, config, updated_at: now, ..held.record },
            None => Agent {
                kind: manifest.agent.clone(),
                display_name: title,
                lifecycle: AgentLifecycle::Active,
                mode: AgentInteractionMode::Autonomous,
                allowed_category_ids: BTreeSet::new(),
                current_state_id: None,
                created_at: now,
                updated_at: now,
                destroyed_at: None,
                config,
            },
        };
        let mut writes = vec![put(&agent, id.raw(), workspace, expecting(version))?];
        if self.row(Domain::Agent, StoredManifest::SPEC, &manifest_id.raw())?.is_none() {
            let stored = StoredManifest { content, stored_at: now };
            writes.push(put(&stored, manifest_id.raw(), WorkspaceId::NONE, Expected::Absent)?);
        }
        let request = json!({ "command": "agent.adopt", "manifest": manifest_id });
        let operation_id = key.operation_id().part("adopt");
        self.act(Domain::Agent, owner(), operation_id, &request, Vec::new(), writes)?;
        Ok(id)
    }

    /// Asks for a run by hand. The same key is the same run.
    pub fn wake_by_hand(&mut self, agent: AgentId, key: &ClientKey) -> Result<RunId> {
        self.enqueue(agent, RunKey::manual(&agent, key.as_str()), WakeReason::Manual, 0)
    }

    /// A person's pause: no new asks, plans and effects until it is resumed.
    pub fn pause_agent(&mut self, id: AgentId, key: &ClientKey) -> Result<()> {
        if self.agent(id)?.lifecycle == AgentLifecycle::Active && !self.was_done(Domain::Agent, key)? {
            self.fence_out(id)?;
        }
        self.set_lifecycle(id, AgentLifecycle::Dormant, key, Vec::new())
    }

    pub fn resume_agent(&mut self, id: AgentId, key: &ClientKey) -> Result<()> {
        self.set_lifecycle(id, AgentLifecycle::Active, key, Vec::new())
    }

    /// Ends an agent for good: late work is fenced out of every domain first, then it is written down.
    pub fn destroy_agent(&mut self, id: AgentId, key: &ClientKey) -> Result<()> {
        self.agent(id)?;
        if self.was_done(Domain::Agent, key)? {
            // Whether it was this that was done is decided before anything is fenced out.
            return self.set_lifecycle(id, AgentLifecycle::Destroyed, key, Vec::new());
        }
        self.fence_out(id)?;
        let now = self.now();
        let mut writes = Vec::new();
        for (wake_id, held) in self.read(Domain::Agent, |snapshot| wakes::waiting(snapshot, &id, None))? {
            let code = Some(ErrorCode::AgentDestroyed.as_str().to_owned());
            let wake = Wake { status: WakeState::SkippedDestroyed, code, ended_at: Some(now), ..held.record };
            writes.push(put(&wake, wake_id.raw(), held.workspace, Expected::Version(held.version))?);
        }
        self.set_lifecycle(id, AgentLifecycle::Destroyed, key, writes)
    }

    /// What was decided for the agent so far is refused from here on, in memory first, then in every domain. Each time anew: an
    /// attempt that died halfway must not have used the epoch up.
    fn fence_out(&mut self, id: AgentId) -> Result<()> {
        let fence = crate::engine::agent_fence(&id);
        let mut epoch = 0;
        for domain in Domain::ALL {
            epoch = epoch.max(self.fence_epoch(*domain, &fence)?);
        }
        for domain in Domain::ALL {
            self.place(*domain).fence(&fence, epoch + 1);
        }
        for domain in Domain::ALL {
            self.raise_fence(*domain, &fence, epoch + 1)?;
        }
        Ok(())
    }

    fn set_lifecycle(&mut self, id: AgentId, lifecycle: AgentLifecycle, key: &ClientKey, mut writes: Vec<Write>) -> Result<()> {
        let known: Option<Held<Agent>> = self.held(Domain::Agent, &id.raw())?;
        let held = known.ok_or_else(|| Error::new(ErrorCode::AgentNotFound, format!("there is no {id}")))?;
        // A repeat goes to the store whatever the agent is now: it compares the requests and answers with the first outcome.
        let repeated = self.was_done(Domain::Agent, key)?;
        if held.record.lifecycle == lifecycle && !repeated {
            return Ok(());
        }
        if held.record.lifecycle == AgentLifecycle::Destroyed && !repeated {
            return Err(Error::new(ErrorCode::AgentDestroyed, format!("{id} was destroyed")));
        }
        let now = self.now();
        let destroyed_at = (lifecycle == AgentLifecycle::Destroyed).then_some(now);
        let agent = Agent { lifecycle, updated_at: now, destroyed_at, ..held.record };
        writes.push(put(&agent, id.raw(), held.workspace, Expected::Version(held.version))?);
        let request = json!({ "command": "agent.lifecycle", "id": id, "to": lifecycle });
        let live = Guard::Live { spec: Agent::SPEC, id: id.raw() };
        self.act(Domain::Agent, owner(), key.operation_id(), &request, vec![live], writes)?;
        Ok(())
    }
}

/// LIMIT: points until a run of a destroyed agent has ended; it takes one.
const ENDING_POINTS_MAX: usize = 8;

impl House {
    /// Ends what a destroyed agent has left waiting: its questions are withdrawn, and each of its runs ends with `agent_destroyed`. What
    /// was left at work ends when it is gone on with. The runs that it looked at.
    pub fn end_runs_of(&mut self, id: AgentId) -> Result<Vec<RunId>> {
        let mut scan = Scan::new(Run::SPEC, "by_status");
        scan.prefix = vec![Value::from(RunStatus::Waiting.as_str())];
        let mut runs = Vec::new();
        loop {
            let page = self.page(Domain::Agent, &scan)?;
            for row in &page.rows {
                runs.extend(held::<Run>(row)?.map(|held| held.record).filter(|run| run.agent_id == id));
            }
            let Some(next) = page.next else { break };
            scan.after = Some(next);
        }
        if !runs.is_empty() && self.incarnation == 0 {
            self.begin_life()?;
        }
        for run in &runs {
            self.withdraw_questions(run)?;
            let mut drive = Drive::new(run.id());
            for _ in 0..ENDING_POINTS_MAX {
                // Nothing is asked and nothing carried out any more: the agent's own fence and every decision are against it.
                if let Progress::Rests(_) = self.advance(&mut drive, &mut Scripted)? {
                    break;
                }
            }
        }
        Ok(runs.iter().map(Run::id).collect())
    }

    /// Takes the open questions of a run back; a run that waits for people learns from it that no answer will come.
    fn withdraw_questions(&mut self, run: &Run) -> Result<()> {
        let now = self.now();
        let mut writes = Vec::new();
        for parked in &run.parked {
            let item: Option<Held<PromptItem>> = self.held(Domain::Agent, &parked.item.raw())?;
            let Some(Held { record, version, workspace }) = item.filter(|held| held.record.status == PromptState::Open) else {
                continue;
            };
            let withdrawn = PromptItem { status: PromptState::Withdrawn, resolved_at: Some(now), ..record };
            writes.push(put(&withdrawn, parked.item.raw(), workspace, Expected::Version(version))?);
        }
        if writes.is_empty() {
            return Ok(());
        }
        let operation_id = OperationId::of_client(&Actor::System, &format!("withdraw {} cycle {}", run.id(), run.cycle));
        self.act(Domain::Agent, Actor::System, operation_id, &json!(["withdraw", run.id()]), Vec::new(), writes)?;
        Ok(())
    }
}

/// An agent as lists name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    pub id: AgentId,
    /// What people type: its name in the workspace.
    pub name: Slug,
    pub title: String,
    pub lifecycle: AgentLifecycle,
    pub workspace: WorkspaceId,
    pub created_at: Timestamp,
}

impl House {
    /// The agent that a person means: by id, or by its name in a workspace.
    pub fn agent_by_name(&self, workspace: &str, text: &str) -> Result<AgentId> {
        if let Ok(id) = AgentId::parse(text) {
            return self.agent(id).map(|found| found.id);
        }
        let shown: String = text.chars().take(60).collect();
        let rule = format!("`{shown}` is neither an agent's id nor a name: lower-case letters, digits, `-` and `_`");
        let name = Slug::parse(text).map_err(|_| Error::argument("agent", &rule))?;
        let id = AgentId::from_raw(keyed("agent", &self.workspace(workspace)?.to_string(), name.as_str()));
        let missing = || Error::new(ErrorCode::AgentNotFound, format!("there is no agent `{name}` in workspace `{workspace}`"));
        self.held::<Agent>(Domain::Agent, &id.raw())?.map(|_| id).ok_or_else(missing)
    }

    pub fn agent(&self, id: AgentId) -> Result<AgentRecord> {
        let known: Option<Held<Agent>> = self.held(Domain::Agent, &id.raw())?;
        let held = known.ok_or_else(|| Error::new(ErrorCode::AgentNotFound, format!("there is no agent {id}")))?;
        Ok(agent_record(id, held))
    }

    /// The agents of a workspace, oldest first, destroyed ones included.
    pub fn agents(&self, workspace: &str) -> Result<Vec<AgentRecord>> {
        let mut scan = Scan::new(Agent::SPEC, "by_created");
        scan.prefix = vec![Value::from(self.workspace(workspace)?.raw())];
        let mut found = Vec::new();
        loop {
            let page = self.page(Domain::Agent, &scan)?;
            for row in &page.rows {
                found.extend(held::<Agent>(row)?.map(|held| agent_record(AgentId::from_raw(row.id), held)));
            }
            let Some(next) = page.next else { return Ok(found) };
            scan.after = Some(next);
        }
    }

    /// The manifest that an agent would run on now.
    pub(crate) fn manifest_of(&mut self, agent: &Agent) -> Result<Option<Arc<Manifest>>> {
        let id = agent.config.prompt_id.as_deref().and_then(|id| ManifestId::parse(id).ok());
        id.map(|id| self.manifest(&id)).transpose()
    }
}

fn agent_record(id: AgentId, held: Held<Agent>) -> AgentRecord {
    let Held { record: Agent { kind: name, display_name: title, lifecycle, created_at, .. }, workspace, .. } = held;
    AgentRecord { id, name, title, lifecycle, workspace, created_at }
}

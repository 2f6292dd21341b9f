//! Planning: a proposal becomes an action with fixed writes, an operation id and a decision. Pure; the same inputs plan the same bytes.

use domain::code::ErrorCode;
use domain::entry::Actor;
use domain::hash::{Digest, Hash};
use domain::id::{ArtifactId, OperationId, PersonId, RawId, TaskId};
use domain::key::{ActionIntent, ActionStableId};
use domain::plant::{self, Bug};
use domain::record::Record;
use domain::records::artifact::{Artifact, ArtifactSource};
use domain::records::budget::Amounts;
use domain::records::switch::SwitchSubject;
use domain::records::task::{RequiredEffect, Task, TaskStatus};
use domain::time::Timestamp;
use policy::{Act, Approval, Decision, Request, Target, Verdict, World, authorize};
use serde_json::json;

use crate::action::{Action, ActionState, Based, Effect, FenceAt, PlannedWrite};
use crate::board::{Board, TaskFact};
use crate::cycle::Gate;
use crate::manifest::Manifest;
use crate::proposal::Proposal;
use crate::run::Run;
use crate::tool;

/// What a plan is made on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub manifest: &'a Manifest,
    pub run: &'a Run,
    pub board: &'a Board,
    pub gate: &'a Gate,
    pub cycle: u32,
    pub now: Timestamp,
}

/// Plans and decides one proposal. `before` are the actions of the same plan so far.
pub(crate) fn action(ground: Ground<'_>, proposal: &Proposal, before: &[Action]) -> Action {
    let draft = Draft::of(ground, proposal);
    let mut action = finish(ground, draft, before, None);
    if action.state == ActionState::Parked {
        action.proposal = Some(proposal.clone());
    }
    action
}

/// The controller's own: a task whose required effects are there is done.
pub(crate) fn completion(ground: Ground<'_>, fact: &TaskFact, before: &[Action]) -> Action {
    let evidence: Vec<_> = fact.evidence.iter().flatten().copied().collect();
    let arguments = json!({ "task_id": fact.id, "evidence": evidence });
    let write = task_write(ground, fact, TaskStatus::Done);
    let mut draft = Draft::new(tool::COMPLETE_TASK, arguments);
    draft.task_id = Some(fact.id);
    draft.targets = vec![based(fact)];
    draft.effect = Ok(Effect::Journal { writes: vec![write], evidence });
    finish(ground, draft, before, None)
}

/// A parked action after a person's yes: decided again by every layer, executed as it was stored.
pub(crate) fn approved(ground: Ground<'_>, parked: &Action, by: Actor, approval: Approval) -> Action {
    let mut action = parked.clone();
    let request = Request {
        agent: ground.run.agent_id,
        act: action.act.clone().unwrap_or(Act::Ask { model: String::new() }),
        reservation: Amounts::NONE,
        approval: Some(approval),
    };
    action.decision = authorize(&request, &world(ground));
    action.proposal = None;
    action.approved_by = Some(by);
    settle(ground, &mut action);
    if action.is_to_do() {
        approve_writes(ground.run, &mut action.effect, by);
    }
    action
}

/// The world with what this run knows of people's answers.
pub(crate) fn world(ground: Ground<'_>) -> World {
    let mut world = ground.gate.world.clone();
    world.denied = ground.run.denied.clone();
    world.pending = ground.run.parked.iter().filter_map(|parked| parked.action.content()).collect();
    world
}

/// Whether what an action was made on is still what it was.
pub(crate) fn is_current(board: &Board, action: &Action) -> bool {
    let same = |based: &Based| {
        let task = TaskId::parse(&based.id).ok().and_then(|id| board.task(&id));
        task.is_some_and(|fact| fact.version == based.version)
    };
    // An artifact that was kept under the same key since is not overwritten by a yes that was given before.
    let unwritten = |write: &PlannedWrite| {
        let id = ArtifactId::parse(&write.id).ok();
        id.is_none_or(|id| known_version(board, &id) == write.expected_version)
    };
    let writes = match &action.effect {
        Effect::Journal { writes, .. } => writes.as_slice(),
        _ => &[],
    };
    action.targets.iter().all(same) && writes.iter().all(unwritten)
}

/// A proposal on its way to becoming an action.
struct Draft {
    tool: String,
    task_id: Option<TaskId>,
    arguments: serde_json::Value,
    targets: Vec<Based>,
    /// Filled in once the operation id is known, since new records' ids derive from it.
    effect: Result<Effect, (ErrorCode, &'static str)>,
    creates: Option<Creates>,
}

/// A record that the action creates.
enum Creates {
    Task(Task),
    Artifact(Artifact),
}

impl Draft {
    fn new(tool: &str, arguments: serde_json::Value) -> Self {
        Self { tool: tool.to_owned(), task_id: None, arguments, targets: Vec::new(), effect: Ok(Effect::Nothing), creates: None }
    }

    fn of(ground: Ground<'_>, proposal: &Proposal) -> Self {
        let arguments = serde_json::to_value(proposal).unwrap_or_default();
        let tool = match proposal {
            Proposal::ExecuteTool { tool_name, .. } => tool_name.as_str(),
            other => other.word(),
        };
        let mut draft = Self::new(tool, arguments);
        draft.task_id = proposal.task_id();
        let fact = match draft.task_id.map(|id| ground.board.task(&id)) {
            None => None,
            Some(Some(fact)) => Some(fact),
            Some(None) => {
                draft.effect = Err((ErrorCode::UnsafeTarget, "there is no such open task in this workspace"));
                return draft;
            }
        };
        draft.targets = fact.map(based).into_iter().collect();
        draft.effect = draft.effect_of(ground, proposal, fact);
        draft
    }

    fn effect_of(
        &mut self,
        ground: Ground<'_>,
        proposal: &Proposal,
        fact: Option<&TaskFact>,
    ) -> Result<Effect, (ErrorCode, &'static str)> {
        if fact.is_some_and(|fact| !fact.is_eligible()) {
            return Err((ErrorCode::TaskNotEligible, "the task is blocked or waits for another one"));
        }
        let artifact = |artifact_type: &str, artifact_key: Option<String>, content: String| Artifact {
            artifact_type: tool::slug(artifact_type),
            artifact_key,
            source: ArtifactSource::Agent,
            content,
            task_id: fact.map(|fact| fact.id),
            approved_by: None,
            created_at: ground.now,
            updated_at: ground.now,
        };
        match proposal {
            Proposal::CreateTask { description, preconditions, .. } => {
                if preconditions.iter().any(|id| ground.board.task(id).is_none()) {
                    return Err((ErrorCode::UnsafeTarget, "a precondition is not an open task of this workspace"));
                }
                let task = new_task(ground, description, preconditions);
                task.check().map_err(|_| (ErrorCode::ProposalInvalid, "the task breaks a rule of its fields"))?;
                self.creates = Some(Creates::Task(task));
                Ok(Effect::Nothing)
            }
            Proposal::SelectNextTask { .. } => match fact {
                Some(fact) if fact.task.status == TaskStatus::Pending => {
                    let write = task_write(ground, fact, TaskStatus::InProgress);
                    Ok(Effect::Journal { writes: vec![write], evidence: Vec::new() })
                }
                // Somebody has begun with it: this run goes on with it, and nothing is to be written.
                _ => Ok(Effect::Nothing),
            },
            Proposal::PersistArtifact { artifact_type, artifact_key, content, .. } => {
                let artifact = artifact(artifact_type, artifact_key.clone(), content.clone());
                artifact.check().map_err(|_| (ErrorCode::ProposalInvalid, "the artifact breaks a rule of its fields"))?;
                self.creates = Some(Creates::Artifact(artifact));
                Ok(Effect::Nothing)
            }
            Proposal::GenerateMessage { message_type, content, personalization_context, .. } => {
                let text = json!({ "type": message_type, "content": content, "context": personalization_context }).to_string();
                self.creates = Some(Creates::Artifact(artifact("message_draft", None, text)));
                Ok(Effect::Nothing)
            }
            Proposal::ExecuteTool { tool_name, parameters, .. } => match ground.manifest.services.get(tool_name) {
                Some(service) => Ok(Effect::Outside {
                    service: tool_name.clone(),
                    parameters: parameters.clone(),
                    honours_keys: service.honours_keys,
                }),
                None => Err((ErrorCode::UnknownTool, "there is no such tool")),
            },
            Proposal::AnalyzeLeads { .. } => Err((ErrorCode::UnknownTool, "there are no leads in this workspace")),
            Proposal::RequestUserInput { question, options, .. } => {
                Ok(Effect::Question { question: question.clone(), options: options.clone() })
            }
            Proposal::NoOp { .. } => Ok(Effect::Nothing),
        }
    }
}

/// Names the action, fills its writes in, and decides it.
fn finish(ground: Ground<'_>, mut draft: Draft, before: &[Action], approval: Option<Approval>) -> Action {
    let run = ground.run;
    let arguments = domain::json::write(&draft.arguments).unwrap_or_default();
    let arguments_hash = run.content_hash(&arguments);
    let equal =
        |action: &&Action| action.tool == draft.tool && action.arguments_hash == arguments_hash && action.targets == draft.targets;
    let targets: Vec<_> =
        draft.targets.iter().filter_map(|based| Some((RawId::parse_prefixed(&based.id)?.1, based.version))).collect();
    let intent = ActionIntent {
        cycle: if plant::is(Bug::OperationIdWithoutCycle) { 0 } else { ground.cycle.into() },
        tool: &draft.tool,
        arguments_hash,
        scope_hash: scope_hash(ground),
        targets: &targets,
        k: before.iter().filter(equal).count() as u64,
    };
    let operation_id = OperationId::of_action(&run.run_key, &ActionStableId::derive(&intent));
    let effect = match (draft.effect, draft.creates.take()) {
        (Ok(Effect::Nothing), Some(creates)) => Ok(created(ground, &operation_id, draft.task_id, creates)),
        (effect, _) => effect,
    };
    let mut action = Action {
        operation_id,
        tool: draft.tool,
        task_id: draft.task_id,
        arguments_hash,
        targets: draft.targets,
        planned_at: ground.now,
        act: None,
        decision: Decision { verdict: Verdict::Deny, layer: None, rule: String::new(), code: None },
        fences: Vec::new(),
        approved_by: None,
        effect: Effect::Nothing,
        state: ActionState::Refused,
        code: None,
        proposal: None,
    };
    match effect {
        Ok(effect) => {
            action.effect = effect;
            decide(ground, &mut action, approval);
        }
        Err((code, rule)) => {
            action.decision = Decision { verdict: Verdict::Deny, layer: None, rule: rule.to_owned(), code: Some(code) };
            action.code = Some(code.as_str().to_owned());
        }
    }
    action
}

fn decide(ground: Ground<'_>, action: &mut Action, approval: Option<Approval>) {
    let act = act_of(ground, action);
    let request = Request { agent: ground.run.agent_id, act, reservation: Amounts::NONE, approval };
    action.decision = authorize(&request, &world(ground));
    action.act = Some(request.act);
    settle(ground, action);
    let standing = ground.manifest.preapproved.contains(&action.tool);
    if action.is_to_do() && standing && tool::find(&action.tool).is_some_and(|tool| tool.keeps_data) {
        let owner = Actor::Person(PersonId::owner());
        action.approved_by = Some(owner);
        approve_writes(ground.run, &mut action.effect, owner);
    }
}

/// From the verdict to the state, bounds of the cycle included.
fn settle(ground: Ground<'_>, action: &mut Action) {
    let code = action.decision.code.map(|code| code.as_str().to_owned());
    (action.state, action.code) = match action.decision.verdict {
        Verdict::Allow if over_cap(ground, &action.effect) => {
            (ActionState::Refused, Some(ErrorCode::LoopLimit.as_str().to_owned()))
        }
        Verdict::Allow => (ActionState::Planned, None),
        Verdict::Ask => (ActionState::Parked, code),
        Verdict::Deny => (ActionState::Refused, code),
    };
    // A stop of one class of tools must not refuse another class's act.
    let class = match &action.act {
        Some(Act::Use { class, .. }) => Some(SwitchSubject::Tools(class.clone()).fence()),
        _ => None,
    };
    let concerns = |subject: &&String| !subject.starts_with("switch/tools/") || Some(*subject) == class.as_ref();
    let fences = ground.gate.fences.iter().filter(|(subject, _)| concerns(subject));
    action.fences = fences.map(|(subject, epoch)| FenceAt { subject: subject.clone(), epoch: *epoch }).collect();
}

/// LIMIT: what one cycle may create and change. A plan of one action counts that action's writes.
fn over_cap(ground: Ground<'_>, effect: &Effect) -> bool {
    let Effect::Journal { writes, .. } = effect else { return false };
    let creates = writes.iter().filter(|write| write.expected_version == 0).count();
    let bounds = &ground.manifest.bounds;
    creates > bounds.max_notes_per_loop as usize || writes.len() - creates > bounds.max_edits_per_loop as usize
}

fn act_of(ground: Ground<'_>, action: &Action) -> Act {
    let kinds: Vec<&str> = match &action.effect {
        Effect::Journal { writes, .. } => writes.iter().map(|write| write.kind.as_str()).collect(),
        _ => Vec::new(),
    };
    let category = action.task_id.and_then(|id| ground.board.task(&id)).and_then(|fact| fact.task.category);
    let target = |kind: &str| Target { workspace: ground.board.workspace, kind: tool::slug(kind), category };
    let targets = kinds.into_iter().map(target).collect();
    tool::act(ground.manifest, &action.tool, targets, content_hash(ground.run, action))
}

/// Over tool, arguments and the state they were made on: what a person approves or denies.
fn content_hash(run: &Run, action: &Action) -> Hash {
    let targets = action.targets.iter().flat_map(|based| [based.id.clone(), based.version.to_string()]);
    let digest = Digest::new("verger.content.v1").text(&action.tool).shown(&action.arguments_hash).list(targets).finish();
    domain::hash::salted(&run.salt.0, digest.as_bytes())
}

fn scope_hash(ground: Ground<'_>) -> Hash {
    let world = &ground.gate.world;
    let categories = world.categories.iter().map(ToString::to_string);
    let kinds = world.kinds.iter().map(ToString::to_string);
    Digest::new("verger.scope.v1").shown(&world.workspace).list(categories).list(kinds).finish()
}

fn new_task(ground: Ground<'_>, description: &str, preconditions: &[TaskId]) -> Task {
    Task {
        description: description.to_owned(),
        status: TaskStatus::Pending,
        preconditions: preconditions.iter().copied().collect(),
        required_effects: Vec::new(),
        category: None,
        blocked_reason: None,
        created_by: Actor::Agent(ground.run.agent_id),
        created_at: ground.now,
        updated_at: ground.now,
        completed_at: None,
        completed_by: None,
    }
}

/// The writes of an action that makes a record. An artifact also moves its task: to done when it was the last effect required.
fn created(ground: Ground<'_>, operation_id: &OperationId, task_id: Option<TaskId>, creates: Creates) -> Effect {
    match creates {
        Creates::Task(task) => {
            let id = TaskId::from_raw(operation_id.created(Task::SPEC.kind, 0));
            let writes = vec![write_of(ground.run, &task, id.to_string(), 0)];
            Effect::Journal { writes, evidence: Vec::new() }
        }
        Creates::Artifact(artifact) => {
            let workspace = ground.board.workspace;
            let id = match &artifact.artifact_key {
                Some(key) => ArtifactId::of_key(&workspace, &artifact.artifact_type, key),
                None => ArtifactId::from_raw(operation_id.created(Artifact::SPEC.kind, 0)),
            };
            let known = known_version(ground.board, &id);
            let mut writes = vec![write_of(ground.run, &artifact, id.to_string(), known)];
            let fact = task_id.and_then(|id| ground.board.task(&id));
            let (moved, evidence) = fact.map_or((None, Vec::new()), |fact| task_after(ground, fact, &id));
            writes.extend(moved);
            Effect::Journal { writes, evidence }
        }
    }
}

/// What an artifact does to its task, and what else must be there for that.
fn task_after(ground: Ground<'_>, fact: &TaskFact, made: &ArtifactId) -> (Option<PlannedWrite>, Vec<crate::board::Evidence>) {
    let required = |effect: &RequiredEffect| {
        let RequiredEffect::Artifact { artifact_type, artifact_key } = effect;
        ArtifactId::of_key(&ground.board.workspace, artifact_type, artifact_key)
    };
    let wanted: Vec<ArtifactId> = fact.task.required_effects.iter().map(required).collect();
    let others: Vec<_> = fact.evidence.iter().flatten().filter(|evidence| evidence.artifact_id != *made).copied().collect();
    let is_there = |id: &ArtifactId| id == made || others.iter().any(|evidence| evidence.artifact_id == *id);
    let early = plant::is(Bug::MoveStateEarly);
    if early || wanted.iter().all(is_there) {
        let others = if wanted.is_empty() || early { Vec::new() } else { others };
        return (Some(task_write(ground, fact, TaskStatus::Done)), others);
    }
    let moved = (fact.task.status == TaskStatus::Pending).then(|| task_write(ground, fact, TaskStatus::InProgress));
    (moved, Vec::new())
}

fn known_version(board: &Board, id: &ArtifactId) -> u64 {
    let listed = board.artifacts.iter().find(|fact| fact.id == *id).map(|fact| fact.version);
    let evidence =
        || board.tasks.iter().flat_map(|fact| fact.evidence.iter().flatten()).find(|evidence| evidence.artifact_id == *id);
    listed.or_else(|| evidence().map(|evidence| evidence.version)).unwrap_or(0)
}

fn task_write(ground: Ground<'_>, fact: &TaskFact, status: TaskStatus) -> PlannedWrite {
    let completed_at = (status == TaskStatus::Done).then_some(ground.now);
    let updated_at = ground.now.max(fact.task.updated_at);
    let task = Task { status, completed_at, updated_at, ..fact.task.clone() };
    write_of(ground.run, &task, fact.id.to_string(), fact.version)
}

fn write_of<R: Record>(run: &Run, record: &R, id: String, expected_version: u64) -> PlannedWrite {
    let body = record.to_body().map(|body| body.text().to_owned()).unwrap_or_default();
    let body_hash = run.content_hash(&body);
    PlannedWrite { kind: R::SPEC.kind.to_owned(), id, expected_version, body: Some(body), body_hash }
}

/// An artifact says who allowed it to be kept.
fn approve_writes(run: &Run, effect: &mut Effect, by: Actor) {
    let Effect::Journal { writes, .. } = effect else { return };
    for write in writes.iter_mut().filter(|write| write.kind == Artifact::SPEC.kind) {
        let Some(artifact) = write.body.as_deref().and_then(|body| Artifact::from_body(body).ok()) else { continue };
        let approved = Artifact { approved_by: Some(by), ..artifact };
        *write = write_of(run, &approved, write.id.clone(), write.expected_version);
    }
}

fn based(fact: &TaskFact) -> Based {
    Based { id: fact.id.to_string(), version: fact.version }
}

//! Why something was or would be allowed: every layer's word on a past act of a run, or on one that somebody imagines.

use control::action::Action;
use control::cycle::{Cycle, CycleKind, Gate};
use control::run::Run;
use control::tool;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{AgentId, OperationId, PromptItemId, RunId};
use domain::records::agent::Agent;
use domain::records::budget::Amounts;
use domain::records::slug::Slug;
use policy::{Act, Approval, Decision, LayerVerdict, Request, Target, World, authorize, explain};

use crate::engine;
use crate::engine::{Recall, Scripted};
use crate::house::{Held, House};
use crate::waits::Shortfall;
use crate::{Error, Result};

/// One request with what every layer says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The tool, or `ask` for a call of the model.
    pub what: String,
    /// The cycle and operation of a past act.
    pub past: Option<(u32, Option<OperationId>)>,
    pub decision: Decision,
    pub layers: Vec<LayerVerdict>,
    /// What was recorded, when the same facts lead to another verdict now: the rules have changed since.
    pub recorded: Option<Decision>,
    /// The amount of the day's budget that does not suffice, when it is the budget that refuses.
    pub shortfall: Option<Shortfall>,
}

/// A request that somebody imagines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imagined {
    /// An agent's id, or its name in a workspace.
    pub agent: String,
    pub workspace: String,
    /// A tool, or `ask`.
    pub tool: String,
    /// Where its target would be; the agent's own workspace unless given.
    pub target_workspace: Option<String>,
    /// What the request would use up; an ask sets its manifest's reservation aside unless given.
    pub tokens: Option<i64>,
}

impl House {
    /// Explains what a cycle of a run asked for and planned.
    pub fn explain_cycle(&mut self, id: &RunId, number: u32) -> Result<Vec<Explanation>> {
        let id = &self.begun(id)?.id();
        let Recall::Whole(recording) = self.record(id)? else {
            return Err(Error::new(ErrorCode::ReplayUnverifiable, format!("a part of {id} was erased")));
        };
        let is_here = |cycle: &&Cycle| cycle.number == number;
        let newest = recording.states.iter().rev().find_map(|state| state.cycles.iter().find(is_here));
        let Some(cycle) = newest else {
            let last = recording.states.last().map_or(0, |state| state.run.cycle);
            let rule = if last == 0 { format!("{id} has no cycles") } else { format!("{id} has cycles 1 to {last}") };
            return Err(Error::argument("cycle", &rule));
        };
        // The run as it stood before the plan was made: what it had parked and what people had denied.
        let planned = |state: &&control::replay::Recorded| state.cycles.iter().any(|c| c.number == number && c.decided.is_some());
        let place = recording.states.iter().position(|state| planned(&state)).unwrap_or(recording.states.len());
        let before = place.checked_sub(1).and_then(|place| recording.states.get(place)).map(|state| &state.run);
        let mut found = Vec::new();
        if let Some(recorded) = &cycle.opened.decision {
            let act = Act::Ask { model: recording.manifest.model.name().to_owned() };
            let agent = recording.states[0].run.agent_id;
            let request = Request { agent, act, reservation: cycle.opened.reserved, approval: None };
            found.push(past(number, None, "ask", &request, &cycle.opened.gate.world, recorded));
        }
        let gate = cycle.decided.as_ref().and_then(|decided| decided.gate.as_ref()).unwrap_or(&cycle.opened.gate);
        for action in cycle.actions() {
            let world = world_of(gate, before, cycle);
            found.push(explain_action(recording.states[0].run.agent_id, cycle, action, &world));
        }
        Ok(found)
    }

    /// Explains a request that nobody has made, against the world as it is now.
    pub fn explain_imagined(&mut self, imagined: &Imagined) -> Result<Explanation> {
        let agent_id = self.agent_by_name(&imagined.workspace, &imagined.agent)?;
        let missing = || Error::new(ErrorCode::AgentNotFound, format!("there is no {agent_id}"));
        let agent: Held<Agent> = self.held(Domain::Agent, &agent_id.raw())?.ok_or_else(missing)?;
        let no_manifest = || Error::new(ErrorCode::ManifestInvalid, format!("{agent_id} has no manifest"));
        let manifest = self.manifest_of(&agent.record)?.ok_or_else(no_manifest)?;
        let now = self.now();
        let gate =
            self.read(Domain::Agent, |snapshot| engine::gate(snapshot, &agent_id, &agent.workspace, &manifest, &Scripted, now))?;
        let workspace = match &imagined.target_workspace {
            Some(slug) => self.workspace(slug)?,
            None => agent.workspace,
        };
        let act = match imagined.tool.as_str() {
            "ask" => Act::Ask { model: manifest.model.name().to_owned() },
            name => {
                let target = |kind: &str| Slug::parse(kind).ok().map(|kind| Target { workspace, kind, category: None });
                let kinds: &[&str] = match tool::find(name).map(|tool| tool.class) {
                    Some("task") => &["task"],
                    Some("artifact") => &["artifact", "task"],
                    _ => &[],
                };
                let content = domain::hash::plain(b"an act that somebody imagines");
                tool::act(&manifest, name, kinds.iter().filter_map(|kind| target(kind)).collect(), content)
            }
        };
        // As the controller does: an ask reserves, and what an act uses up is counted when it is carried out.
        let usual = if matches!(act, Act::Ask { .. }) { manifest.reservation } else { Amounts::NONE };
        let reservation = Amounts { tokens: imagined.tokens.unwrap_or(usual.tokens), ..usual };
        let request = Request { agent: agent_id, act, reservation, approval: None };
        let decision = authorize(&request, &gate.world);
        Ok(Explanation {
            what: imagined.tool.clone(),
            past: None,
            shortfall: shortfall(&request, &gate.world, &decision),
            decision,
            layers: explain(&request, &gate.world),
            recorded: None,
        })
    }
}

/// The world as the plan saw it: the gate, and what this run knew of people's answers.
fn world_of(gate: &Gate, before: Option<&Run>, cycle: &Cycle) -> World {
    let mut world = gate.world.clone();
    let Some(run) = before else { return world };
    world.denied = run.denied.clone();
    let answered = |item: &PromptItemId| cycle.opened.answers.iter().any(|answer| answer.item == *item);
    let controllers = cycle.opened.kind == CycleKind::Controller;
    let open = run.parked.iter().filter(|parked| !(controllers && answered(&parked.item)));
    world.pending = open.filter_map(|parked| parked.action.content()).collect();
    world
}

fn explain_action(agent: AgentId, cycle: &Cycle, action: &Action, world: &World) -> Explanation {
    let operation = Some(action.operation_id);
    let Some(act) = &action.act else {
        // What could not even be planned was never put to the layers.
        let (past, decision) = (Some((cycle.number, operation)), action.decision.clone());
        return Explanation { what: action.tool.clone(), past, decision, layers: Vec::new(), recorded: None, shortfall: None };
    };
    let item = PromptItemId::of_operation(&action.operation_id);
    let answer = cycle.opened.answers.iter().find(|answer| answer.item == item);
    let approval = answer.and_then(|answer| {
        let binds = answer.binds.as_ref()?;
        let (tool, content, policy_version) = (binds.tool.clone(), binds.arguments_hash, binds.policy_version);
        Some(Approval { by: answer.by, tool, content, policy_version })
    });
    let request = Request { agent, act: act.clone(), reservation: Amounts::NONE, approval };
    past(cycle.number, operation, &action.tool, &request, world, &action.decision)
}

fn past(
    cycle: u32,
    operation: Option<OperationId>,
    what: &str,
    request: &Request,
    world: &World,
    recorded: &Decision,
) -> Explanation {
    let decision = authorize(request, world);
    Explanation {
        what: what.to_owned(),
        past: Some((cycle, operation)),
        layers: explain(request, world),
        recorded: (decision != *recorded).then(|| recorded.clone()),
        shortfall: shortfall(request, world, &decision),
        decision,
    }
}

fn shortfall(request: &Request, world: &World, decision: &Decision) -> Option<Shortfall> {
    let refuses = decision.code == Some(ErrorCode::BudgetExceeded);
    refuses.then(|| Shortfall::of(world.limits, world.used, request.reservation)).flatten()
}

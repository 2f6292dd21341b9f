//! A step becomes one commit of the agent domain: the new state, what the machine wishes for, the lease, the wakes.

use control::cycle::{Cycle, Gate};
use control::machine::{State, Step, Wish};
use control::run::{EventName, Run, RunStatus};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Cause, Change, Commit, Expected, Guard, Write};
use domain::entry::Actor;
use domain::id::{OperationId, WorkspaceId};
use domain::key::{Point, keyed};
use domain::record::{Body, Record, Value};
use domain::records::budget::{Amounts, BudgetUsage, SUMS};
use domain::records::lease::Lease;
use domain::records::message::Message;
use domain::records::prompt::{PromptItem, PromptState};
use domain::records::wake::{Wake, WakeState};
use domain::time::Timestamp;
use serde_json::json;

use crate::Result;
use crate::engine::wakes;
use crate::house::{Held, House, canonical, expecting, get, put};
use store::store::Snapshot;

/// What a commit is made of beside the step itself.
pub(crate) struct Context<'a> {
    /// The run's version before; none when it begins.
    pub version: Option<u64>,
    pub before: Option<&'a Run>,
    /// The gate that the step decided on, if it asked for something new.
    pub gate: Option<&'a Gate>,
}

/// What a step changes of one day's usage.
struct Day<'a> {
    day: &'a str,
    charged: Amounts,
    reserved: Amounts,
    /// Whether something of it is a new reservation, which the limits guard.
    reserves: bool,
}

impl<'a> Day<'a> {
    fn of(wish: &'a Wish) -> Option<Self> {
        match wish {
            Wish::Reserve { day, amounts } => Some(Self { day, charged: *amounts, reserved: *amounts, reserves: true }),
            Wish::Settle { day, reserved, spent } => {
                let given_back = Amounts::NONE.minus(*reserved);
                Some(Self { day, charged: spent.minus(*reserved), reserved: given_back, reserves: false })
            }
            Wish::OpenPrompt { .. } | Wish::ClosePrompt { .. } | Wish::Record { .. } => None,
        }
    }

    fn add(&mut self, other: &Self) {
        self.charged = self.charged.plus(other.charged);
        self.reserved = self.reserved.plus(other.reserved);
        self.reserves |= other.reserves;
    }
}

/// The lease of an agent as a row.
pub(crate) fn lease_id(run: &Run) -> domain::id::RawId {
    keyed("lease", "", &run.agent_id.to_string())
}

impl House {
    /// `agent` is a snapshot of the agent domain; what it shows is what the writes expect.
    pub(crate) fn point(&mut self, agent: &dyn Snapshot, step: &Step, context: &Context<'_>) -> Result<Commit> {
        let run = &step.state.run;
        let mut writes = vec![put(run, run.id().raw(), run.workspace_id, expecting(context.version))?];
        for cycle in step.closed.iter().chain(&step.state.cycle) {
            writes.extend(cycle_write(agent, run, cycle)?);
        }
        let mut guards = vec![self.life_guard()];
        let opens = step.wishes.iter().any(|wish| matches!(wish, Wish::Reserve { .. }));
        if let Some(gate) = context.gate.filter(|_| opens) {
            guards.extend(fence_guards(gate));
        }
        self.budget_writes(agent, step, context, &mut guards, &mut writes)?;
        for wish in &step.wishes {
            writes.extend(wish_write(agent, run, wish, &step.wishes)?);
        }
        self.lease(agent, step, &mut writes)?;
        wake_writes(agent, step, context, &mut writes)?;
        let (operation_id, request) = name(step, context)?;
        let cause = Cause { run_key: Some(run.run_key), source_event: None, depth: run.cause_depth.saturating_add(1) };
        let witnesses = if closes(run) { self.witnesses(Domain::Journal)? } else { Vec::new() };
        Ok(Commit { operation_id, request, actor: Actor::Agent(run.agent_id), cause, guards, writes, witnesses })
    }

    /// Reservations and settlements of a step as one change of each day's usage, guarded where something is reserved.
    fn budget_writes(
        &self,
        agent: &dyn Snapshot,
        step: &Step,
        context: &Context<'_>,
        guards: &mut Vec<Guard>,
        writes: &mut Vec<Write>,
    ) -> Result<()> {
        let run = &step.state.run;
        let mut days: Vec<Day<'_>> = Vec::new();
        for wish in &step.wishes {
            let Some(change) = Day::of(wish) else { continue };
            match days.iter_mut().find(|known| known.day == change.day) {
                Some(known) => known.add(&change),
                None => days.push(change),
            }
        }
        let host = self.host();
        for Day { day, charged, reserved, reserves } in days {
            if charged == Amounts::NONE && reserved == Amounts::NONE {
                continue;
            }
            let id = BudgetUsage::id_of(&run.agent_id, day, &host);
            let known: Option<Held<BudgetUsage>> = get(agent, &id)?;
            let version = known.as_ref().map(|held| held.version);
            let usage = known.map_or_else(|| no_usage(run, day, host), |held| held.record);
            let totals = usage.charged().plus(charged);
            let usage = BudgetUsage { reserved: usage.reserved.plus(reserved), updated_at: run.updated_at, ..usage };
            writes.push(put(&usage.with_charged(totals), id, WorkspaceId::NONE, expecting(version))?);
            if let Some(gate) = context.gate.filter(|_| reserves) {
                guards.extend(limit_guards(run, day, charged, &gate.world.limits));
            }
        }
        Ok(())
    }

    /// A run at work holds the agent's lease; one that waits or has ended does not.
    fn lease(&self, agent: &dyn Snapshot, step: &Step, writes: &mut Vec<Write>) -> Result<()> {
        let run = &step.state.run;
        let id = lease_id(run);
        let known: Option<Held<Lease>> = get(agent, &id)?;
        let working = run.status == RunStatus::Running;
        let (run_id, incarnation) = (run.id(), self.incarnation);
        let ours = known.as_ref().is_some_and(|held| held.record.run_id == run_id && held.record.incarnation == incarnation);
        if working && !ours {
            let lease = Lease { agent_id: run.agent_id, run_id, incarnation, taken_at: run.updated_at };
            writes.push(put(&lease, id, WorkspaceId::NONE, expecting(known.map(|held| held.version)))?);
        } else if let Some(held) = known.filter(|held| !working && held.record.run_id == run_id) {
            let expected = Expected::Version(held.version);
            writes.push(Write { spec: Lease::SPEC, id, workspace: WorkspaceId::NONE, expected, change: Change::Tombstone });
        }
        Ok(())
    }
}

fn cycle_write(agent: &dyn Snapshot, run: &Run, cycle: &Cycle) -> Result<Option<Write>> {
    let known = agent.get(Cycle::SPEC, &cycle.id().raw())?;
    let write = put(cycle, cycle.id().raw(), run.workspace_id, expecting(known.as_ref().map(|row| row.version)))?;
    let same = known.is_some_and(|row| row.body.as_deref() == write.change.body().map(Body::text));
    Ok((!same).then_some(write))
}

fn wish_write(agent: &dyn Snapshot, run: &Run, wish: &Wish, all: &[Wish]) -> Result<Option<Write>> {
    match wish {
        Wish::OpenPrompt { id, item } => {
            // A question may be put and withdrawn in one commit, when the run ends with it.
            let closed = all.iter().find_map(|other| match other {
                Wish::ClosePrompt { id: of, state } if of == id => Some(*state),
                _ => None,
            });
            let item =
                PromptItem { status: closed.unwrap_or(item.status), resolved_at: closed.map(|_| run.updated_at), ..item.clone() };
            put(&item, id.raw(), run.workspace_id, Expected::Absent).map(Some)
        }
        Wish::ClosePrompt { id, state } => {
            let held: Option<Held<PromptItem>> = get(agent, &id.raw())?;
            let open = held.filter(|held| held.record.status == PromptState::Open);
            open.map(|open| {
                let item = PromptItem { status: *state, resolved_at: Some(run.updated_at), ..open.record };
                put(&item, id.raw(), open.workspace, Expected::Version(open.version))
            })
            .transpose()
        }
        Wish::Record { id, message } => put::<Message>(message, id.raw(), run.workspace_id, Expected::Absent).map(Some),
        Wish::Reserve { .. } | Wish::Settle { .. } => Ok(None),
    }
}

/// Wakes follow their run: taken when it begins, ended with it; an answer is used up when the run goes on.
fn wake_writes(agent: &dyn Snapshot, step: &Step, context: &Context<'_>, writes: &mut Vec<Write>) -> Result<()> {
    let run = &step.state.run;
    let now = run.updated_at;
    let ended = run.status.is_terminal();
    let run_id = run.id();
    if context.version.is_none() || ended {
        for (place, id) in run.wake_ids.iter().enumerate() {
            let held: Option<Held<Wake>> = get(agent, &id.raw())?;
            let Some(held) = held.filter(|held| !held.record.status.is_terminal()) else { continue };
            let status = if ended { ending(run, place) } else { WakeState::Running };
            let code = if ended && place == 0 { run.code.clone() } else { None };
            let wake = Wake { status, run_id: Some(run_id), code, ended_at: ended.then_some(now), ..held.record };
            writes.push(put(&wake, id.raw(), held.workspace, Expected::Version(held.version))?);
        }
    }
    let resumed = context.before.is_some_and(|before| before.status == RunStatus::Waiting) && run.status != RunStatus::Waiting;
    if resumed || ended {
        let answers = wakes::waiting(agent, &run.agent_id, Some(&run_id))?;
        for (id, held) in answers {
            let wake = Wake { status: WakeState::Coalesced, ended_at: Some(now), ..held.record };
            writes.push(put(&wake, id.raw(), held.workspace, Expected::Version(held.version))?);
        }
    }
    Ok(())
}

/// How a run's wakes end: the oldest as the run, the others with it.
fn ending(run: &Run, place: usize) -> WakeState {
    let destroyed = run.code.as_deref() == Some(ErrorCode::AgentDestroyed.as_str());
    match run.status {
        _ if destroyed => WakeState::SkippedDestroyed,
        _ if place > 0 => WakeState::Coalesced,
        RunStatus::Succeeded => WakeState::Completed,
        _ => WakeState::FailedTerminal,
    }
}

fn no_usage(run: &Run, day: &str, host: domain::id::HostId) -> BudgetUsage {
    BudgetUsage {
        agent_id: run.agent_id,
        day: day.to_owned(),
        host_id: host,
        tokens: 0,
        cost_micros: 0,
        runtime_ms: 0,
        tool_calls: 0,
        reserved: Amounts::NONE,
        updated_at: run.updated_at,
    }
}

/// What was decided on the day's usage must still hold in the transaction that adds to it.
fn limit_guards(run: &Run, day: &str, adding: Amounts, limits: &Amounts) -> Vec<Guard> {
    let mut guards = Vec::new();
    for ((aggregate, (_, adding)), (_, limit)) in SUMS.into_iter().zip(adding.named()).zip(limits.named()) {
        if adding > 0 {
            let group = vec![Value::from(run.agent_id.raw()), Value::from(day)];
            guards.push(Guard::AtMost { spec: BudgetUsage::SPEC, aggregate, group, adding, limit });
        }
    }
    guards
}

/// A stop that was committed since the gate was read refuses what the gate let through. Tool classes guard their own actions.
fn fence_guards(gate: &Gate) -> Vec<Guard> {
    let general = gate.fences.iter().filter(|(subject, _)| !subject.starts_with("switch/tools/"));
    general.map(|(subject, epoch)| Guard::Fence { subject: subject.clone(), epoch: *epoch }).collect()
}

/// Whether a point follows an effect in the journal, whose head it then witnesses.
fn closes(run: &Run) -> bool {
    run.events.contains(&EventName::Performed)
}

/// The operation id of a point, and what a repeat is compared by.
fn name(step: &Step, context: &Context<'_>) -> Result<(OperationId, String)> {
    let State { run, .. } = &step.state;
    let before = context.before.map_or(0, |before| before.cycle);
    let of = |cycle: u32, point: Point| OperationId::of_point(&run.run_key, cycle.into(), point);
    let opened = run.looked.is_none();
    let (point, cycle, id) = match run.events.iter().find(|event| **event != EventName::Begun) {
        Some(EventName::Answered) => ("B", before, of(before, Point::B)),
        Some(EventName::Performed | EventName::AskFailed) => ("D", before, of(before, Point::D)),
        _ if opened && run.attempt == 1 => ("A", run.cycle, of(run.cycle, Point::A)),
        _ if opened => ("A", run.cycle, of(run.cycle, Point::A).part(&format!("attempt {}", run.attempt))),
        // A look that opened nothing may happen again; what it looked from names it.
        _ => ("A", run.cycle, of(run.cycle, Point::A).part(&format!("look from version {}", context.version.unwrap_or(0)))),
    };
    let request = canonical(&json!(["point", run.id(), cycle, point]))?;
    Ok((id, request))
}

/// The time at which a run may be looked at again, if it waits for one.
pub(crate) fn due_at(run: &Run) -> Option<Timestamp> {
    run.waiting.as_ref().and_then(|waiting| waiting.until)
}

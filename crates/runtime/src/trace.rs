//! A run told from its records: what woke it, what each cycle was shown, proposed, decided, did and cost.
//!
//! These are views with a shape of their own: what a program reads stays as it is when the machine's records change.

use std::collections::BTreeMap;

use control::action::{Action, ActionState, Effect, Seen};
use control::cycle::{AnswerFact, AnswerVerdict, Cycle, CycleKind};
use control::dialect::Fault;
use control::run::Run;
use domain::causality::Domain;
use domain::entry::Actor;
use domain::id::{OperationId, PromptItemId, RunId, TaskId};
use domain::records::budget::Amounts;
use domain::time::Timestamp;
use policy::{Decision, Layer, Verdict};
use serde::Serialize;

use crate::Result;
use crate::house::House;
use crate::runs::RunView;

/// A run with all its cycles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    pub run: RunView,
    pub cycles: Vec<CycleTrace>,
    /// What all cycles have used up together.
    pub spent: Amounts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CycleTrace {
    pub number: u32,
    /// How often it was asked.
    pub attempt: u32,
    pub kind: CycleKind,
    pub opened_at: Timestamp,
    pub reserved: Amounts,
    /// What its lost asks had set aside: nobody knows what they used, so it counts as spent.
    pub lost: Amounts,
    /// How many of its asks were lost.
    pub lost_asks: u32,
    /// What people had said when it was opened.
    pub answers: Vec<AnswerTrace>,
    pub ask: Option<AskTrace>,
    pub reply: Option<ReplyTrace>,
    pub proposals: Vec<serde_json::Value>,
    pub faults: Vec<FaultTrace>,
    pub actions: Vec<ActionTrace>,
    pub closed_at: Option<Timestamp>,
    pub spent: Option<Amounts>,
    /// Why the ask led to nothing.
    pub code: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerTrace {
    pub item: PromptItemId,
    pub verdict: AnswerVerdict,
    pub by: Actor,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskTrace {
    pub decision: Option<DecisionTrace>,
    pub context: Vec<PartTrace>,
    pub tasks_shown: usize,
    pub artifacts_shown: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartTrace {
    pub name: String,
    pub bytes: u64,
    pub cut: u64,
    pub hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyTrace {
    pub at: Timestamp,
    pub model: String,
    pub bytes: u64,
    /// Text around the proposal; it was ignored.
    pub narration_bytes: u64,
    pub spent: Amounts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultTrace {
    pub kind: String,
    pub sentence: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionTrace {
    pub verdict: Verdict,
    /// The layer that refused or asks; none when all passed, or when the plan itself was impossible.
    pub layer: Option<Layer>,
    pub rule: String,
    pub code: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActionTrace {
    pub operation_id: OperationId,
    pub tool: String,
    pub task_id: Option<TaskId>,
    pub decision: DecisionTrace,
    pub approved_by: Option<Actor>,
    /// The question that it waits for, if it was parked.
    pub asks: Option<PromptItemId>,
    pub effect: &'static str,
    /// What it was to write: id, and the version it expected.
    pub writes: Vec<WriteTrace>,
    pub outcome: ActionState,
    pub code: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteTrace {
    pub kind: String,
    pub id: String,
    pub expected_version: u64,
    /// The version that the journal held afterwards; none if it was not written.
    pub version: Option<u64>,
}

impl House {
    /// Tells a run.
    pub fn trace(&self, id: &RunId) -> Result<Trace> {
        let run = self.run_view(id)?;
        let Some(held) = self.held::<Run>(Domain::Agent, &run.id.raw())? else {
            // A wake alone: nothing was asked, nothing was used up.
            return Ok(Trace { run, cycles: Vec::new(), spent: Amounts::NONE });
        };
        let ask = self.manifest_of_run(&held.record)?.reservation;
        let cycles: Vec<_> = self.cycles(&run.id)?.iter().map(|cycle| cycle_trace(cycle, &held.record, ask)).collect();
        let spent = cycles.iter().map(|cycle| cycle.spent.unwrap_or(Amounts::NONE).plus(cycle.lost));
        let spent = spent.fold(Amounts::NONE, Amounts::plus);
        Ok(Trace { run, cycles, spent })
    }

    /// Tells one cycle of a run, for whoever watches it.
    pub fn trace_cycle(&self, id: &RunId, number: u32) -> Result<Option<CycleTrace>> {
        let run = self.run(id)?;
        let ask = self.manifest_of_run(&run)?.reservation;
        let held = self.held::<Cycle>(Domain::Agent, &Cycle::id_of(id, number).raw())?;
        Ok(held.map(|held| cycle_trace(&held.record, &run, ask)))
    }
}

/// How many asks of a cycle were lost: each attempt after the first follows one, and so does a rest or an end while one was under way,
/// which leaves nothing set aside.
fn lost_asks(cycle: &Cycle, run: &Run) -> u32 {
    let given_up =
        cycle.opened.kind == CycleKind::Ask && cycle.decided.is_none() && cycle.closed.is_none() && run.reserved.is_none();
    cycle.attempt.saturating_sub(1) + u32::from(given_up)
}

fn times(amounts: Amounts, count: u32) -> Amounts {
    (0..count).fold(Amounts::NONE, |sum, _| sum.plus(amounts))
}

/// `ask` is what each ask of the run sets aside.
fn cycle_trace(cycle: &Cycle, run: &Run, ask: Amounts) -> CycleTrace {
    let lost_asks = lost_asks(cycle, run);
    let decided = cycle.decided.as_ref();
    let decoded = decided.and_then(|decided| decided.decoded.as_ref());
    let narration_bytes = decoded.map_or(0, |decoded| decoded.narration_bytes);
    let reply = decided.and_then(|decided| Some((decided.at, decided.reply.as_ref()?)));
    let reply = reply.map(|(at, reply)| {
        let (model, bytes, spent) = (reply.model.clone(), reply.bytes, reply.spent);
        ReplyTrace { at, model, bytes, narration_bytes, spent }
    });
    let proposals = decoded.map_or(&[][..], |decoded| &decoded.proposals);
    CycleTrace {
        number: cycle.number,
        attempt: cycle.attempt,
        kind: cycle.opened.kind,
        opened_at: cycle.opened.at,
        reserved: cycle.opened.reserved,
        lost: times(ask, lost_asks),
        lost_asks,
        answers: cycle.opened.answers.iter().map(answer_trace).collect(),
        ask: ask_trace(cycle),
        reply,
        proposals: proposals.iter().filter_map(|proposal| serde_json::to_value(proposal).ok()).collect(),
        faults: decided.map_or(&[][..], |decided| &decided.faults).iter().map(fault_trace).collect(),
        actions: cycle.actions().iter().map(|action| action_trace(cycle, action)).collect(),
        closed_at: cycle.closed.as_ref().map(|closed| closed.at),
        spent: cycle.closed.as_ref().map(|closed| closed.spent),
        code: cycle.closed.as_ref().and_then(|closed| closed.code.clone()),
    }
}

fn ask_trace(cycle: &Cycle) -> Option<AskTrace> {
    let context = cycle.opened.context.as_ref()?;
    let part = |part: &control::context::Part| PartTrace {
        name: part.name.clone(),
        bytes: part.bytes,
        cut: part.cut,
        hash: part.hash.to_string(),
    };
    Some(AskTrace {
        decision: cycle.opened.decision.as_ref().map(decision_trace),
        context: context.parts.iter().map(part).collect(),
        tasks_shown: cycle.opened.board.tasks.len(),
        artifacts_shown: cycle.opened.board.artifacts.len(),
    })
}

fn answer_trace(answer: &AnswerFact) -> AnswerTrace {
    AnswerTrace { item: answer.item, verdict: answer.verdict, by: answer.by, text: answer.text.clone() }
}

fn fault_trace(fault: &Fault) -> FaultTrace {
    FaultTrace { kind: fault.kind.to_string(), sentence: fault.sentence() }
}

pub(crate) fn decision_trace(decision: &Decision) -> DecisionTrace {
    DecisionTrace {
        verdict: decision.verdict,
        layer: decision.layer,
        rule: decision.rule.clone(),
        code: decision.code.map(|code| code.as_str().to_owned()),
    }
}

fn action_trace(cycle: &Cycle, action: &Action) -> ActionTrace {
    let observations = cycle.closed.as_ref().map_or(&[][..], |closed| &closed.observations);
    let seen = observations.iter().find(|observation| observation.operation_id == action.operation_id);
    let versions: BTreeMap<&str, u64> = match seen.map(|observation| &observation.seen) {
        Some(Seen::Committed { records }) => records.iter().map(|record| (record.id.as_str(), record.version)).collect(),
        _ => BTreeMap::new(),
    };
    let (effect, writes) = match &action.effect {
        Effect::Journal { writes, .. } => ("journal", writes.as_slice()),
        Effect::Outside { .. } => ("outside", &[][..]),
        Effect::Question { .. } => ("question", &[][..]),
        Effect::Nothing => ("nothing", &[][..]),
    };
    let write = |write: &control::action::PlannedWrite| WriteTrace {
        kind: write.kind.clone(),
        id: write.id.clone(),
        expected_version: write.expected_version,
        version: versions.get(write.id.as_str()).copied(),
    };
    ActionTrace {
        operation_id: action.operation_id,
        tool: action.tool.clone(),
        task_id: action.task_id,
        decision: decision_trace(&action.decision),
        approved_by: action.approved_by,
        asks: (action.state == ActionState::Parked).then(|| PromptItemId::of_operation(&action.operation_id)),
        effect,
        writes: writes.iter().map(write).collect(),
        outcome: action.state,
        code: action.code.clone(),
    }
}

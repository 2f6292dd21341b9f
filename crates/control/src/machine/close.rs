//! Point D: outcomes are held against what was planned, and the run goes on, waits or ends.

use domain::code::ErrorCode;
use domain::id::{MessageId, PromptItemId};
use domain::record::Record;
use domain::records::budget::Amounts;
use domain::records::message::Message;
use domain::records::prompt::{Gated, InteractionType, PromptItem, PromptState};
use domain::time::Timestamp;
use policy::POLICY_VERSION;

use crate::action::{Action, ActionState, Effect, Observation, Seen};
use crate::cycle::{Closed, CycleKind};
use crate::loop_state::LoopState;
use crate::machine::{Draft, Facts, Next, Refusal, Wish};
use crate::message;
use crate::proposal::Proposal;
use crate::run::{Parked, Phase, Recent, RunStatus, WaitReason};
use crate::tool;
use crate::verify::{self, Verified};

/// LIMIT: answers in a row that do not decode: the first and two repairs.
const FAULTS_MAX: u32 = 3;

/// Actions that need a person are parked: their rows stay, and a question goes into the one queue.
pub(super) fn park(draft: &mut Draft, facts: &Facts<'_>) {
    let Some(cycle) = &mut draft.cycle else { return };
    let Some(decided) = &mut cycle.decided else { return };
    let required_by = Timestamp::from_ms(draft.now.as_ms().saturating_add(facts.manifest.approval_ttl_ms.into()));
    for action in &mut decided.actions {
        let question = matches!(action.effect, Effect::Question { .. }) && action.is_to_do();
        if action.state != ActionState::Parked && !question {
            continue;
        }
        if draft.run.parked.len() >= domain::limits::PARKED_MAX {
            action.state = ActionState::Refused;
            action.code = Some(ErrorCode::LoopLimit.as_str().to_owned());
            continue;
        }
        action.state = ActionState::Parked;
        let item = PromptItemId::of_operation(&action.operation_id);
        let prompt = prompt_of(&draft.run, action, draft.now, required_by);
        draft.wishes.push(Wish::OpenPrompt { id: item, item: prompt });
        draft.run.parked.push(Parked { item, cycle: cycle.number, action: action.clone() });
        // The row lives on in the run; the cycle's record names it.
        action.proposal = None;
    }
}

fn prompt_of(run: &crate::run::Run, action: &Action, created_at: Timestamp, required_by: Timestamp) -> PromptItem {
    let (interaction_type, prompt_text, options, gates) = match &action.effect {
        Effect::Question { question, options } => {
            let kind = if options.is_empty() { InteractionType::FreeText } else { InteractionType::MultiChoice };
            (kind, question.clone(), options.clone(), None)
        }
        _ => {
            let gated = Gated {
                operation_id: action.operation_id,
                tool: action.tool.clone(),
                arguments_hash: action.content().unwrap_or(action.arguments_hash),
                policy_version: POLICY_VERSION,
            };
            (InteractionType::YesNo, message::preview(action), Vec::new(), Some(gated))
        }
    };
    PromptItem {
        agent_id: run.agent_id,
        run_id: run.id(),
        run_key: run.run_key,
        interaction_type,
        prompt_text,
        options,
        gates,
        status: PromptState::Open,
        created_at,
        required_by,
        resolved_at: None,
    }
}

pub(super) fn performed(draft: &mut Draft, observations: Vec<Observation>) -> Result<(), Refusal> {
    if draft.run.phase != Phase::Planned {
        return Err(Refusal::OutOfOrder);
    }
    let seen = |action: &Action| observations.iter().any(|observation| observation.operation_id == action.operation_id);
    let planned = |observation: &Observation| {
        let actions = draft.cycle.as_ref().map_or(&[][..], |cycle| cycle.actions());
        actions.iter().any(|action| action.is_to_do() && action.operation_id == observation.operation_id)
    };
    if !observations.iter().all(planned) {
        return Err(Refusal::Stale);
    }
    let complete = draft.cycle.as_ref().is_some_and(|cycle| cycle.actions().iter().filter(|a| a.is_to_do()).all(seen));
    if !complete {
        return Err(Refusal::Stale);
    }
    draft.label(LoopState::Evaluating);
    close(draft, observations);
    Ok(())
}

/// Closes the newest cycle with what was observed of its actions.
pub(super) fn close(draft: &mut Draft, observations: Vec<Observation>) {
    let broken = judge(draft, &observations);
    record(draft);
    let spent = spent(draft);
    settle(draft, spent);
    let at = draft.now;
    if let Some(cycle) = &mut draft.cycle {
        cycle.closed = Some(Closed { at, observations, spent, code: None });
    }
    draft.run.phase = Phase::Between;
    draft.label(LoopState::Planning);
    what_next(draft, broken);
}

/// Closes a cycle whose ask led to nothing.
pub(super) fn close_failed(draft: &mut Draft, spent: Amounts, code: ErrorCode) {
    settle(draft, spent);
    let at = draft.now;
    if let Some(cycle) = &mut draft.cycle {
        let code = Some(code.as_str().to_owned());
        cycle.closed = Some(Closed { at, observations: Vec::new(), spent, code });
    }
    draft.run.phase = Phase::Between;
}

/// Each action gets its ending. True when the store does not hold what it acknowledged.
fn judge(draft: &mut Draft, observations: &[Observation]) -> bool {
    let mut broken = false;
    let Some(decided) = draft.cycle.as_mut().and_then(|cycle| cycle.decided.as_mut()) else { return false };
    for action in decided.actions.iter_mut().filter(|action| action.is_to_do()) {
        let seen = observations.iter().find(|observation| observation.operation_id == action.operation_id);
        let (state, code) = match seen.map(|observation| &observation.seen) {
            Some(Seen::Refused { code }) => (ActionState::Failed, Some(code.clone())),
            Some(Seen::Unknown) | None => (ActionState::InDoubt, Some(ErrorCode::InDoubt.as_str().to_owned())),
            Some(seen) => match verify::effects(action, seen) {
                Verified::Holds => (ActionState::Done, None),
                Verified::Differs => {
                    broken = true;
                    (ActionState::Failed, Some(ErrorCode::VerificationFailed.as_str().to_owned()))
                }
            },
        };
        if state == ActionState::Done && action.tool == tool::SELECT_NEXT_TASK {
            draft.run.task_id = action.task_id;
        }
        draft.run.operations += u32::from(state == ActionState::Done);
        (action.state, action.code) = (state, code);
        forget_bodies(action);
    }
    broken
}

/// The journal has the bodies now, or nobody will; their hashes stay for the replay.
fn forget_bodies(action: &mut Action) {
    if let Effect::Journal { writes, .. } = &mut action.effect {
        writes.iter_mut().for_each(|write| write.body = None);
    }
}

/// The action and its result become messages, and the next asks are told.
fn record(draft: &mut Draft) {
    let Some(cycle) = &draft.cycle else { return };
    let mut previous = draft.run.last_message;
    let mut recents = Vec::new();
    for action in cycle.actions() {
        // What was parked before has its first pair already.
        let parked_before = action.approved_by.is_some() || action.state == ActionState::Superseded;
        let first = if cycle.opened.kind == CycleKind::Controller && parked_before { 2 } else { 0 };
        let ids = [first, first + 1].map(|k| MessageId::from_raw(action.operation_id.created(Message::SPEC.kind, k)));
        let [call, result] = message::pair(&draft.run, action, ids, previous, draft.now);
        previous = Some(ids[1]);
        draft.wishes.push(Wish::Record { id: ids[0], message: call });
        draft.wishes.push(Wish::Record { id: ids[1], message: result });
        let result = match action.state {
            ActionState::Parked => ErrorCode::PendingApproval.as_str().to_owned(),
            state => action.code.clone().unwrap_or_else(|| state.as_str().to_owned()),
        };
        recents.push(Recent { cycle: cycle.number, what: action.tool.clone(), result, words: String::new() });
    }
    for fault in cycle.decided.iter().flat_map(|decided| &decided.faults) {
        recents.push(Recent {
            cycle: cycle.number,
            what: "answer".to_owned(),
            result: fault.kind.to_string(),
            words: String::new(),
        });
    }
    recents.into_iter().for_each(|recent| draft.run.remember(recent));
    draft.run.last_message = previous;
}

fn spent(draft: &Draft) -> Amounts {
    let Some(cycle) = &draft.cycle else { return Amounts::NONE };
    let reply = cycle.decided.as_ref().and_then(|decided| decided.reply.as_ref());
    let carried_out = |action: &&Action| matches!(action.state, ActionState::Done | ActionState::Failed | ActionState::InDoubt);
    let done = cycle.actions().iter().filter(carried_out).count();
    let calls = Amounts { tool_calls: i64::try_from(done).unwrap_or(i64::MAX), ..Amounts::NONE };
    reply.map_or(Amounts::NONE, |reply| reply.spent).plus(calls)
}

fn settle(draft: &mut Draft, spent: Amounts) {
    if let Some(reserved) = draft.run.reserved.take() {
        draft.run.tokens = draft.run.tokens.saturating_add(spent.tokens);
        draft.wishes.push(Wish::Settle { day: reserved.day, reserved: reserved.amounts, spent });
    }
}

fn what_next(draft: &mut Draft, broken: bool) {
    let proposals = draft.cycle.as_ref().and_then(|cycle| cycle.decided.as_ref()).and_then(|decided| decided.decoded.as_ref());
    let idle = proposals.is_some_and(|decoded| decoded.proposals.iter().any(|proposal| matches!(proposal, Proposal::NoOp { .. })));
    if broken {
        draft.end(RunStatus::Failed, Some(ErrorCode::VerificationFailed));
    } else if draft.run.faults_in_row >= FAULTS_MAX {
        draft.end(RunStatus::Failed, Some(ErrorCode::ProposalInvalid));
    } else if draft.run.cancel_requested {
        draft.end(RunStatus::Cancelled, Some(ErrorCode::Cancelled));
    } else if idle && draft.run.parked.is_empty() {
        draft.end(RunStatus::Succeeded, None);
    } else if idle {
        draft.rest(WaitReason::People, None);
    } else {
        draft.next = Next::Open;
    }
}

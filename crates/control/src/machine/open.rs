//! Point A: a cycle is opened on a fresh look at the world, or there is a reason not to.

use domain::code::ErrorCode;
use domain::limits::PARKED_MAX;
use domain::plant::{self, Bug};
use domain::records::budget::Amounts;
use domain::records::task::TaskStatus;
use domain::records::wrappers::SchemaVersion;
use domain::time::Timestamp;
use policy::{Act, Approval, Request, Verdict, authorize};

use crate::action::{Action, ActionState};
use crate::context;
use crate::cycle::{AnswerVerdict, Cycle, CycleKind, Decided, Looked, Opened};
use crate::loop_state::LoopState;
use crate::machine::{Ask, Draft, Facts, Next, Refusal, Wish, close, day_of, next_day};
use crate::plan::{self, Ground};
use crate::run::{Parked, Phase, Recent, Reserved, RunStatus, WaitReason, Waiting};

pub(super) fn step(draft: &mut Draft, facts: &Facts<'_>) -> Result<(), Refusal> {
    let before = draft.run.cycle;
    let attempt = draft.run.attempt;
    look(draft, facts)?;
    if (draft.run.cycle, draft.run.attempt) == (before, attempt) {
        let (gate, board, answers) = (facts.gate.clone(), facts.board.refs(), facts.answers.to_vec());
        draft.run.looked = Some(Box::new(Looked { at: draft.now, gate, board, answers }));
    }
    Ok(())
}

fn look(draft: &mut Draft, facts: &Facts<'_>) -> Result<(), Refusal> {
    if draft.run.phase == Phase::Planned {
        return Err(Refusal::OutOfOrder);
    }
    if draft.run.cancel_requested {
        draft.end(RunStatus::Cancelled, Some(ErrorCode::Cancelled));
        return Ok(());
    }
    if let Some(waiting) = &draft.run.waiting {
        // When to look again after a backoff is the runtime's business: a clock that was set back must not make it last for hours.
        let answered = || facts.answers.iter().any(|answer| draft.run.parked.iter().any(|parked| parked.item == answer.item));
        if waiting.reason == WaitReason::People && !answered() {
            return Err(Refusal::NotYet);
        }
    }
    if let Some(held) = held_back(draft, facts, Amounts::NONE) {
        return held.apply(draft);
    }
    resume(draft);
    let (number, attempt) = match draft.run.phase {
        Phase::Asked => {
            // The ask was lost: what was set aside for it counts as spent.
            draft.settle_all();
            (draft.run.cycle, draft.run.attempt + 1)
        }
        Phase::Between | Phase::Planned => (draft.run.cycle + 1, 1),
    };
    let before = draft.run.clone();
    let own = own_actions(draft, facts, number);
    let unpaid = |action: &&Action| action.decision.code == Some(ErrorCode::BudgetExceeded);
    let calls = to_do(&own) + own.iter().filter(unpaid).count();
    let reserved = Amounts { tool_calls: i64::try_from(calls).unwrap_or(i64::MAX), ..Amounts::NONE };
    if reserved != Amounts::NONE
        && let Some(held) = held_back(draft, facts, reserved)
    {
        // Nothing of it is lost: answers and effects are still there when the budget is.
        draft.run = before;
        return held.apply(draft);
    }
    if !own.is_empty() {
        if draft.run.cycle >= cycles_max(facts) {
            draft.end(RunStatus::Failed, Some(ErrorCode::IterationLimit));
        } else {
            controller_cycle(draft, facts, (number, attempt), reserved, own);
        }
        return Ok(());
    }
    if nothing_to_do(draft, facts) {
        if draft.waited_for.as_ref().is_some_and(|waited| waited.reason == WaitReason::People) && draft.run.parked == before.parked
        {
            return Err(Refusal::NotYet);
        }
        if draft.run.parked.is_empty() {
            draft.end(RunStatus::Succeeded, None);
        } else {
            draft.rest(WaitReason::People, None);
        }
        return Ok(());
    }
    if let Some(code) = bound_reached(draft, facts, attempt) {
        draft.end(RunStatus::Failed, Some(code));
        return Ok(());
    }
    if let Some(held) = held_back(draft, facts, facts.manifest.reservation) {
        return held.apply(draft);
    }
    ask(draft, facts, (number, attempt));
    Ok(())
}

/// Why a run does not go on now.
enum Held {
    Rest(WaitReason, Option<Timestamp>),
    Fail(ErrorCode),
}

impl Held {
    fn apply(self, draft: &mut Draft) -> Result<(), Refusal> {
        match self {
            // It waits for the same thing already: nothing has changed.
            Self::Rest(reason, until) if draft.waited_for == Some(Waiting { reason, until }) => Err(Refusal::NotYet),
            Self::Rest(reason, until) => {
                draft.rest(reason, until);
                Ok(())
            }
            Self::Fail(code) => {
                draft.end(RunStatus::Failed, Some(code));
                Ok(())
            }
        }
    }
}

fn held_back(draft: &Draft, facts: &Facts<'_>, reservation: Amounts) -> Option<Held> {
    let decision = authorize(&ask_request(draft, facts, reservation), &facts.gate.world);
    if decision.verdict == Verdict::Allow {
        return None;
    }
    match decision.code {
        Some(ErrorCode::Stopped) => Some(Held::Rest(WaitReason::Stopped, None)),
        Some(ErrorCode::AgentDormant) => Some(Held::Rest(WaitReason::Paused, None)),
        Some(ErrorCode::BudgetExceeded) if reservation == Amounts::NONE => None,
        Some(ErrorCode::BudgetExceeded) => Some(Held::Rest(WaitReason::Budget, Some(next_day(clock(draft.now))))),
        Some(code) => Some(Held::Fail(code)),
        None => None,
    }
}

fn ask_request(draft: &Draft, facts: &Facts<'_>, reservation: Amounts) -> Request {
    let act = Act::Ask { model: facts.manifest.model.name().to_owned() };
    Request { agent: draft.run.agent_id, act, reservation, approval: None }
}

/// The instant that decisions are made at.
fn clock(now: Timestamp) -> Timestamp {
    #[cfg(feature = "planted")]
    if plant::is(Bug::WallClockInDecision) {
        #[expect(clippy::disallowed_methods, reason = "this is the planted bug")]
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        return Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    }
    let _ = plant::is(Bug::WallClockInDecision);
    now
}

fn resume(draft: &mut Draft) {
    draft.run.status = RunStatus::Running;
    draft.run.waiting = None;
    if draft.run.running_since.is_none() {
        draft.run.running_since = Some(draft.now);
    }
    draft.label(LoopState::Planning);
}

/// LIMIT: cycles of a run, those of the controller's own included: each ask can lead to one of them, and each question that was parked.
fn cycles_max(facts: &Facts<'_>) -> u32 {
    facts.manifest.bounds.max_iterations.saturating_mul(2).saturating_add(u32::try_from(PARKED_MAX).unwrap_or(u32::MAX))
}

/// Asking is what is bounded: whoever has nothing left to ask may end well, and what a person approved is carried out.
fn bound_reached(draft: &Draft, facts: &Facts<'_>, attempt: u32) -> Option<ErrorCode> {
    let bounds = &facts.manifest.bounds;
    let asked_enough = attempt == 1 && draft.run.asks >= bounds.max_iterations;
    if asked_enough || draft.run.cycle >= cycles_max(facts) {
        return Some(ErrorCode::IterationLimit);
    }
    if draft.run.worked_ms(clock(draft.now)) >= i64::from(bounds.max_wall_ms) {
        return Some(ErrorCode::WallTimeLimit);
    }
    (draft.run.tokens >= bounds.max_tokens).then_some(ErrorCode::TokenLimit)
}

/// Nothing that a model could work on; then nobody is asked.
fn nothing_to_do(draft: &Draft, facts: &Facts<'_>) -> bool {
    if facts.board.total() == 0 {
        return !facts.manifest.tools.contains("create_task") || !draft.run.parked.is_empty();
    }
    let open = |status: TaskStatus| facts.board.counts.get(&status).copied().unwrap_or(0);
    let listed = facts.board.tasks.iter().filter(|fact| fact.task.status != TaskStatus::Blocked).count() as u64;
    if open(TaskStatus::Pending) + open(TaskStatus::InProgress) > listed {
        // There are more than a cycle looks at: what lies beyond may be eligible.
        return false;
    }
    let parked = |id| draft.run.parked.iter().any(|parked| parked.action.task_id == Some(id));
    !facts.board.tasks.iter().any(|fact| fact.is_eligible() && !parked(fact.id))
}

/// What the controller does by itself: what people have answered, then tasks whose required effects are there.
fn own_actions(draft: &mut Draft, facts: &Facts<'_>, number: u32) -> Vec<Action> {
    let mut actions = answered_actions(draft, facts, number);
    let run = draft.run.clone();
    let ground = ground(&run, facts, number, draft.now);
    for fact in facts.board.tasks.iter().filter(|fact| fact.is_eligible() && fact.is_fulfilled()) {
        let taken = actions.iter().any(|action| action.is_to_do() && action.task_id == Some(fact.id));
        if !taken {
            let action = plan::completion(ground, fact, &actions);
            // What the decision refuses here is not tried over and over.
            actions.extend(action.is_to_do().then_some(action));
        }
    }
    actions
}

fn answered_actions(draft: &mut Draft, facts: &Facts<'_>, number: u32) -> Vec<Action> {
    let mut actions: Vec<Action> = Vec::new();
    for answer in facts.answers {
        let Some(place) = draft.run.parked.iter().position(|parked| parked.item == answer.item) else { continue };
        let Parked { action, cycle, .. } = draft.run.parked.remove(place);
        let ground = || ground(&draft.run, facts, number, draft.now);
        let current = answer.verdict == AnswerVerdict::Approve && plan::is_current(facts.board, &action);
        let approved = current.then(|| plan::approved(ground(), &action, answer.by, approval_of(answer.by, answer.binds.as_ref())));
        // A yes to something else, or under other rules, is no yes; the question is put again as a new one.
        let approved = approved.filter(|action| action.state != ActionState::Parked);
        if approved.as_ref().is_some_and(|approved| approved.decision.code == Some(ErrorCode::Stopped)) {
            // A class of tools stands still: the yes is kept for when it does not.
            draft.run.parked.insert(place, Parked { action, cycle, item: answer.item });
            continue;
        }
        let superseded = answer.verdict == AnswerVerdict::Approve && approved.is_none();
        let again = action.proposal.as_ref().filter(|_| superseded).map(|proposal| plan::action(ground(), proposal, &actions));
        let result = match answer.verdict {
            AnswerVerdict::Reply => Some("answered"),
            AnswerVerdict::Expired => Some(ErrorCode::PromptExpired.as_str()),
            AnswerVerdict::Deny => Some(ErrorCode::DeniedByPerson.as_str()),
            AnswerVerdict::Approve if superseded => Some(ErrorCode::Superseded.as_str()),
            AnswerVerdict::Approve => None,
        };
        if let Some(result) = result {
            let (what, words) = (action.tool.clone(), answer.text.clone());
            draft.run.remember(Recent { cycle, what, result: result.to_owned(), words });
        }
        if answer.verdict == AnswerVerdict::Deny {
            draft.run.denied.extend(action.content());
        }
        actions.extend(approved);
        if superseded {
            let code = Some(ErrorCode::Superseded.as_str().to_owned());
            actions.push(Action { state: ActionState::Superseded, code, proposal: None, ..action });
            actions.extend(again);
        }
    }
    actions
}

fn approval_of(by: domain::entry::Actor, binds: Option<&domain::records::prompt::Gated>) -> Approval {
    let nothing = domain::hash::plain(b"nothing was approved");
    match binds {
        Some(binds) => {
            Approval { by, tool: binds.tool.clone(), content: binds.arguments_hash, policy_version: binds.policy_version }
        }
        None => Approval { by, tool: String::new(), content: nothing, policy_version: 0 },
    }
}

fn ground<'a>(run: &'a crate::run::Run, facts: &Facts<'a>, cycle: u32, now: Timestamp) -> Ground<'a> {
    Ground { manifest: facts.manifest, run, board: facts.board, gate: facts.gate, cycle, now }
}

/// A cycle without an ask: A and B are one point.
fn controller_cycle(draft: &mut Draft, facts: &Facts<'_>, place: (u32, u32), reserved: Amounts, actions: Vec<Action>) {
    open_cycle(draft, facts, place, CycleKind::Controller, reserved);
    let at = draft.now;
    if let Some(cycle) = &mut draft.cycle {
        cycle.decided = Some(Decided { at, gate: None, reply: None, decoded: None, faults: Vec::new(), actions });
    }
    planned(draft, facts);
}

fn to_do(actions: &[Action]) -> usize {
    actions.iter().filter(|action| action.is_to_do()).count()
}

/// From a decided plan onwards: questions are put, and either something is carried out or the cycle is closed at once.
pub(super) fn planned(draft: &mut Draft, facts: &Facts<'_>) {
    close::park(draft, facts);
    if draft.cycle.as_ref().is_some_and(|cycle| to_do(cycle.actions()) > 0) {
        draft.run.phase = Phase::Planned;
        draft.label(LoopState::Executing);
        draft.next = Next::Perform;
    } else {
        close::close(draft, Vec::new());
    }
}

fn ask(draft: &mut Draft, facts: &Facts<'_>, (number, attempt): (u32, u32)) {
    let faults = draft.cycle.as_ref().and_then(|cycle| cycle.decided.as_ref()).map(|decided| decided.faults.clone());
    let reserved = facts.manifest.reservation;
    let sections = context::assemble(facts.manifest, &draft.run, facts.board, &faults.unwrap_or_default());
    open_cycle(draft, facts, (number, attempt), CycleKind::Ask, reserved);
    let decision = authorize(&ask_request(draft, facts, reserved), &facts.gate.world);
    if let Some(cycle) = &mut draft.cycle {
        cycle.opened.context = Some(context::manifest_of(&draft.run, &sections));
        cycle.opened.decision = Some(decision);
    }
    draft.run.phase = Phase::Asked;
    draft.run.asks += u32::from(attempt == 1);
    draft.next = Next::Ask(Ask { cycle: number, attempt, nth: draft.run.asks, sections, tokens_max: reserved.tokens });
}

fn open_cycle(draft: &mut Draft, facts: &Facts<'_>, (number, attempt): (u32, u32), kind: CycleKind, reserved: Amounts) {
    let day = day_of(clock(draft.now));
    let opened = Opened {
        at: draft.now,
        kind,
        gate: facts.gate.clone(),
        board: facts.board.refs(),
        answers: facts.answers.to_vec(),
        context: None,
        decision: None,
        reserved,
    };
    draft.cycle = Some(Cycle {
        schema_version: SchemaVersion::default(),
        run_id: draft.run.id(),
        number,
        attempt,
        opened,
        decided: None,
        closed: None,
    });
    draft.run.cycle = number;
    draft.run.attempt = attempt;
    draft.run.reserved = Some(Reserved { day: day.clone(), amounts: reserved });
    draft.wishes.push(Wish::Reserve { day, amounts: reserved });
}

//! Point B: an answer becomes decided actions, or faults, or a reason to try again.

use domain::code::ErrorCode;
use domain::records::budget::Amounts;
use domain::time::Timestamp;

use crate::action::Action;
use crate::cycle::{Decided, Reply};
use crate::dialect::{Decoded, Fault};
use crate::machine::{AskRef, Draft, Facts, Refusal, close, open};
use crate::plan::{self, Ground};
use crate::proposal::Proposal;
use crate::run::{Phase, RunStatus, WaitReason};

/// LIMIT: asks in a row that fail before the run does: the first and three more (K19).
const FAILURES_MAX: u32 = 4;
/// LIMIT: the longest pause between two attempts.
pub const BACKOFF_MS_MAX: i64 = 5_000;

pub(super) fn answered(
    draft: &mut Draft,
    facts: &Facts<'_>,
    ask: AskRef,
    reply: Reply,
    decoded: Result<Decoded, Vec<Fault>>,
) -> Result<(), Refusal> {
    expected(draft, ask)?;
    draft.run.failures_in_row = 0;
    let (decoded, faults) = match decoded {
        Ok(decoded) => (Some(decoded), Vec::new()),
        Err(faults) => (None, faults),
    };
    draft.run.faults_in_row = if faults.is_empty() { 0 } else { draft.run.faults_in_row + 1 };
    // Nothing more is begun for somebody who wants it to end.
    let proposals = decoded.as_ref().filter(|_| !draft.run.cancel_requested).map_or(&[][..], |decoded| &decoded.proposals);
    let actions = plan_all(draft, facts, proposals);
    let gate = Some(facts.gate.clone());
    let decided = Decided { at: draft.now, gate, reply: Some(reply), decoded, faults, actions };
    if let Some(cycle) = &mut draft.cycle {
        cycle.decided = Some(decided);
    }
    open::planned(draft, facts);
    Ok(())
}

fn plan_all(draft: &Draft, facts: &Facts<'_>, proposals: &[Proposal]) -> Vec<Action> {
    let ground = Ground {
        manifest: facts.manifest,
        run: &draft.run,
        board: facts.board,
        gate: facts.gate,
        cycle: draft.run.cycle,
        now: draft.now,
    };
    let mut actions = Vec::new();
    for proposal in proposals.iter().filter(|proposal| !matches!(proposal, Proposal::NoOp { .. })) {
        let action = plan::action(ground, proposal, &actions);
        actions.push(action);
    }
    actions
}

/// The model did not answer. What was set aside counts as spent: nobody knows what it used.
pub(super) fn failed(draft: &mut Draft, ask: AskRef, code: ErrorCode) -> Result<(), Refusal> {
    expected(draft, ask)?;
    draft.run.failures_in_row += 1;
    let spent = draft.run.reserved.as_ref().map_or(Amounts::NONE, |reserved| reserved.amounts);
    close::close_failed(draft, spent, code);
    let failures = draft.run.failures_in_row;
    if draft.run.cancel_requested {
        draft.end(RunStatus::Cancelled, Some(ErrorCode::Cancelled));
    } else if code == ErrorCode::ScriptEnded || failures >= FAILURES_MAX {
        draft.end(RunStatus::Failed, Some(code));
    } else {
        let pause_ms = (100_i64 << failures.min(16)).min(BACKOFF_MS_MAX);
        let until = Timestamp::from_ms(draft.now.as_ms().saturating_add(pause_ms));
        draft.rest(WaitReason::Backoff, Some(until));
    }
    Ok(())
}

/// An answer counts for the ask that is open, and for no other. A run that waits has given its ask up.
fn expected(draft: &Draft, ask: AskRef) -> Result<(), Refusal> {
    let open = AskRef { cycle: draft.run.cycle, attempt: draft.run.attempt };
    match draft.run.phase {
        Phase::Asked if draft.run.status == RunStatus::Running && ask == open => Ok(()),
        Phase::Asked => Err(Refusal::Stale),
        Phase::Between | Phase::Planned => Err(Refusal::OutOfOrder),
    }
}

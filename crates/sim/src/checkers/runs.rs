//! Between two events: S04 legal transitions of every run, S15 one ending, S16 ids that can be computed again, S25 one proposal a cycle.

use std::collections::BTreeMap;

use control::cycle::{Cycle, CycleKind};
use control::run::{Phase, Run, RunStatus};
use domain::hash::Digest;
use domain::id::{OperationId, RawId, RunId};
use domain::key::{ActionIntent, ActionStableId};

use crate::ledger::Violation;

/// What was seen of a run last.
pub type Seen = BTreeMap<RunId, (RunStatus, Phase, u32, u64)>;

/// Holds a run against what was seen of it before.
pub fn check(seen: &mut Seen, run: &Run, cycle: Option<&Cycle>, version: u64) -> Option<Violation> {
    let id = run.id();
    let now = (run.status, run.phase, run.cycle, version);
    let before = seen.insert(id, now);
    if let Some((status, _, cycles, seen_version)) = before {
        if status.is_terminal() && seen_version != version {
            return Some(Violation::new("S15 one ending", format!("{id} was {status} and is {} now", run.status)));
        }
        if run.cycle < cycles {
            return Some(Violation::new("S04 transitions", format!("{id} went back from cycle {cycles} to {}", run.cycle)));
        }
    }
    if run.status.is_terminal() != run.ended_at.is_some() || (run.status.is_terminal() && !run.parked.is_empty()) {
        return Some(Violation::new("S15 one ending", format!("{id} is {} with loose ends", run.status)));
    }
    if run.status == RunStatus::Waiting && (run.waiting.is_none() || run.phase == Phase::Planned) {
        return Some(Violation::new("S04 transitions", format!("{id} waits in phase {}", run.phase)));
    }
    cycle.and_then(|cycle| plan(run, cycle))
}

fn plan(run: &Run, cycle: &Cycle) -> Option<Violation> {
    if cycle.opened.kind != CycleKind::Ask {
        return None;
    }
    if cycle.actions().len() > 1 {
        return Some(Violation::new(
            "S25 one proposal",
            format!("cycle {} of {} has {} actions", cycle.number, run.id(), cycle.actions().len()),
        ));
    }
    let gate = cycle.decided.as_ref().and_then(|decided| decided.gate.as_ref())?;
    let world = &gate.world;
    let scope_hash = Digest::new("verger.scope.v1")
        .shown(&world.workspace)
        .list(world.categories.iter().map(ToString::to_string))
        .list(world.kinds.iter().map(ToString::to_string))
        .finish();
    for action in cycle.actions() {
        let targets: Vec<_> =
            action.targets.iter().filter_map(|based| Some((RawId::parse_prefixed(&based.id)?.1, based.version))).collect();
        let (tool, arguments_hash) = (action.tool.as_str(), action.arguments_hash);
        let intent = ActionIntent { cycle: cycle.number.into(), tool, arguments_hash, scope_hash, targets: &targets, k: 0 };
        let expected = OperationId::of_action(&run.run_key, &ActionStableId::derive(&intent));
        if action.operation_id != expected {
            let what = format!("cycle {} of {}: {} should be {expected}", cycle.number, run.id(), action.operation_id);
            return Some(Violation::new("S16 ids", what));
        }
    }
    None
}

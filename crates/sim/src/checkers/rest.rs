//! At rest: Q02 what was planned is done once, Q04 every wake has ended, Q06 every run replays without a question, Q07 both ledgers agree, Q08 the
//! budget covers the meter, Q09 no answer lost and no question left over.

use std::collections::BTreeSet;

use control::action::{Action, ActionState, Effect};
use control::cycle::Cycle;
use control::replay::{Report, replay};
use control::run::{Phase, Run};
use domain::causality::{Domain, StreamId};
use domain::entry::Actor;
use domain::id::OperationId;
use domain::record::Record;
use domain::records::budget::{Amounts, BudgetUsage};
use domain::records::prompt::{PromptItem, PromptState};
use domain::records::wake::Wake;
use runtime::House;
use runtime::engine::Recall;
use store::store::{Row, Scan, Snapshot};

use crate::ledger::{Ledger, Violation};
use crate::place::{Stores, lock, store_of};

type Checked = Result<(), Violation>;

/// Everything that holds when nothing is left to do.
pub fn check(stores: &Stores, house: &mut House, ledger: &Ledger, replayed: bool) -> Checked {
    let reader = lock(store_of(stores, Domain::Agent)).reader();
    let runs = {
        let agent = reader.read().map_err(|error| Violation::new("Q10 reads", error.to_string()))?;
        let runs: Vec<Run> =
            all(agent.as_ref(), Run::SPEC, "by_created").into_iter().filter_map(|row| row.record().ok()?).collect();
        ended(agent.as_ref(), &runs)?;
        wakes(agent.as_ref(), &runs)?;
        prompts(agent.as_ref(), &runs)?;
        budgets(agent.as_ref(), &runs, ledger)?;
        effects(stores, agent.as_ref(), ledger)?;
        runs
    };
    for run in runs.iter().filter(|_| replayed) {
        replays(house, run)?;
    }
    Ok(())
}

fn all(snapshot: &dyn Snapshot, spec: &'static domain::record::Spec, index: &str) -> Vec<Row> {
    let mut scan = Scan::new(spec, index);
    let mut rows = Vec::new();
    while let Ok(page) = snapshot.scan(&scan) {
        rows.extend(page.rows);
        let Some(next) = page.next else { break };
        scan.after = Some(next);
    }
    rows
}

fn ended(agent: &dyn Snapshot, runs: &[Run]) -> Checked {
    match runs.iter().find(|run| !run.status.is_terminal()) {
        Some(run) => {
            let waiting = run.waiting.as_ref().map(|waiting| waiting.reason);
            let item = |parked: &control::run::Parked| {
                let row = agent.get(PromptItem::SPEC, &parked.item.raw()).ok().flatten();
                let item = row.and_then(|row| row.record::<PromptItem>().ok().flatten());
                item.map_or_else(|| "gone".to_owned(), |item| format!("{} until {}", item.status, item.required_by))
            };
            let parked: Vec<_> = run.parked.iter().map(item).collect();
            let what = format!(
                "{} is {} ({waiting:?}, phase {}, parked {parked:?}) and nothing moves it",
                run.id(),
                run.status,
                run.phase
            );
            Err(Violation::new("Q05 rest", what))
        }
        None => Ok(()),
    }
}

fn wakes(agent: &dyn Snapshot, runs: &[Run]) -> Checked {
    for row in all(agent, Wake::SPEC, "by_status") {
        let Ok(Some(wake)) = row.record::<Wake>() else { continue };
        let run = runs.iter().find(|run| Some(run.id()) == wake.run_id);
        let over = run.is_none_or(|run| run.status.is_terminal());
        if over && !wake.status.is_terminal() {
            let of = run.map_or_else(|| format!("no run ({:?})", wake.run_id), |run| format!("{} ({})", run.id(), run.status));
            return Err(Violation::new("Q04 wakes", format!("a wake ({}) is {} for ever, of {of}", wake.reason, wake.status)));
        }
    }
    Ok(())
}

/// A question is open exactly as long as the run that asked it has it parked.
fn prompts(agent: &dyn Snapshot, runs: &[Run]) -> Checked {
    let parked: BTreeSet<_> = runs.iter().flat_map(|run| &run.parked).map(|parked| parked.item.raw()).collect();
    for row in all(agent, PromptItem::SPEC, "by_status") {
        let Ok(Some(item)) = row.record::<PromptItem>() else { continue };
        if item.status == PromptState::Open && !parked.contains(&row.id) {
            return Err(Violation::new("Q09 questions", "a question is open that no run has parked".to_owned()));
        }
    }
    Ok(())
}

/// Nothing stays reserved, and what the provider has metered was charged.
fn budgets(agent: &dyn Snapshot, runs: &[Run], ledger: &Ledger) -> Checked {
    let busy = runs.iter().any(|run| !run.status.is_terminal() && run.phase != Phase::Between);
    let mut charged = std::collections::BTreeMap::new();
    for row in all(agent, BudgetUsage::SPEC, "by_agent") {
        let Ok(Some(usage)) = row.record::<BudgetUsage>() else { continue };
        if !busy && usage.reserved != Amounts::NONE {
            return Err(Violation::new("Q08 budget", format!("{:?} stay reserved", usage.reserved)));
        }
        *charged.entry(usage.agent_id).or_insert(0) += usage.tokens;
    }
    for (agent, metered) in &ledger.meter {
        let known = charged.get(agent).copied().unwrap_or(0);
        if known < *metered {
            return Err(Violation::new("Q08 budget", format!("{agent} was charged {known} tokens, the meter says {metered}")));
        }
    }
    Ok(())
}

/// Every effect is explained by a plan that says done, and every plan that says done by an effect.
fn effects(stores: &Stores, agent: &dyn Snapshot, ledger: &Ledger) -> Checked {
    let reader = lock(store_of(stores, Domain::Journal)).reader();
    let journal = reader.read().map_err(|error| Violation::new("Q10 reads", error.to_string()))?;
    let cycles: Vec<Cycle> = all(agent, Cycle::SPEC, "by_run").into_iter().filter_map(|row| row.record().ok()?).collect();
    let actions: Vec<&Action> = cycles.iter().flat_map(Cycle::actions).collect();
    let done: BTreeSet<OperationId> = actions.iter().filter(|a| a.state == ActionState::Done).map(|a| a.operation_id).collect();
    let open: BTreeSet<OperationId> = actions.iter().filter(|a| a.is_to_do()).map(|a| a.operation_id).collect();
    let mut seen = BTreeSet::new();
    for stream in journal.streams().unwrap_or_default() {
        for entry in entries(journal.as_ref(), &stream) {
            if matches!(entry.actor, Actor::Agent(_)) {
                seen.insert(entry.operation_id);
            }
        }
    }
    if let Some(stray) = seen.iter().find(|id| !done.contains(*id) && !open.contains(*id)) {
        return Err(Violation::new("Q07 ledger", format!("{stray} is in the journal, and no cycle says that it is done")));
    }
    for action in actions.iter().filter(|action| action.state == ActionState::Done) {
        let missing = match &action.effect {
            Effect::Journal { .. } => !seen.contains(&action.operation_id),
            Effect::Outside { .. } => ledger.calls.get(&action.operation_id).is_none_or(|called| called.acted == 0),
            _ => false,
        };
        if missing {
            return Err(Violation::new(
                "Q02 once",
                format!("{} ({}) is called done and was never done", action.operation_id, action.tool),
            ));
        }
    }
    if let Some((id, called)) = ledger.calls.iter().find(|(_, called)| called.acted > 1) {
        return Err(Violation::new("S02 once", format!("a service acted {} times on {id}", called.acted)));
    }
    Ok(())
}

fn entries(journal: &dyn Snapshot, stream: &StreamId) -> Vec<domain::entry::Entry> {
    let mut found: Vec<domain::entry::Entry> = Vec::new();
    loop {
        let after = found.last().map_or(0, |entry| entry.dot.counter);
        let page = journal.entries(stream, after, 500).unwrap_or_default();
        if page.is_empty() {
            return found;
        }
        found.extend(page.into_iter().map(|(logged, _)| logged.entry));
    }
}

/// Q06: the same steps again from the record, and nobody is asked.
pub fn replays(house: &mut House, run: &Run) -> Checked {
    let id = run.id();
    let recording = match house.record(&id) {
        Ok(Recall::Whole(recording)) => recording,
        Ok(Recall::Erased { what }) => return Err(Violation::new("Q06 replay", format!("{id}: erased: {what}"))),
        Err(error) => return Err(Violation::new("Q06 replay", format!("{id}: {error}"))),
    };
    match replay(&recording) {
        Ok(Report::Identical { .. }) => Ok(()),
        Ok(other) => Err(Violation::new("Q06 replay", format!("{id}: {other:?}"))),
        Err(damaged) => Err(Violation::new("Q06 replay", format!("{id}: {damaged}"))),
    }
}

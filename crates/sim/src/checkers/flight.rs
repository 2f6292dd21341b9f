//! S33: one run of an agent at a time, also over a crash, and at rest every key and every wake has one run at most.

use std::collections::BTreeSet;

use control::run::{Run, RunStatus};
use domain::causality::Domain;
use domain::commit::{Change, Commit};
use domain::key::keyed;
use domain::record::{Record, Value};
use domain::records::lease::Lease;
use store::store::{Scan, Snapshot};

use crate::ledger::Violation;
use crate::place::{Stores, lock, store_of};

/// What a life writes of a run at work, it writes with the agent's lease in hand.
pub(crate) fn leased(agent: &dyn Snapshot, commit: &Commit, incarnation: u64) -> Option<Violation> {
    let write = commit.writes.iter().find(|write| write.spec == Run::SPEC)?;
    let Change::Put(body) = &write.change else { return None };
    let run = Run::from_body(body.text()).ok().filter(|run| run.status == RunStatus::Running)?;
    let row = agent.get(Lease::SPEC, &keyed("lease", "", &run.agent_id.to_string())).ok()?;
    let lease: Option<Lease> = row.and_then(|row| row.record().ok()?);
    if lease.as_ref().is_some_and(|lease| lease.run_id == run.id() && lease.incarnation == incarnation) {
        return None;
    }
    let holder = lease.map_or_else(|| "nobody".to_owned(), |lease| format!("{} in life {}", lease.run_id, lease.incarnation));
    let what = format!("{} is at work in life {incarnation}, and {holder} has the lease of its agent", run.id());
    Some(Violation::new("S33 single flight", what))
}

/// No other run of the agent is at work while this one is, not even one that an earlier life has left.
pub fn alone(agent: &dyn Snapshot, run: &Run) -> Option<Violation> {
    if run.status != RunStatus::Running {
        return None;
    }
    let mut scan = Scan::new(Run::SPEC, "by_status");
    scan.prefix = vec![Value::from(RunStatus::Running.as_str())];
    let rows = agent.scan(&scan).map(|page| page.rows).unwrap_or_default();
    let others = rows.iter().filter_map(|row| row.record::<Run>().ok()?).filter(|other| other.id() != run.id());
    let other = others.into_iter().find(|other| other.agent_id == run.agent_id)?;
    Some(Violation::new("S33 single flight", format!("{} and {} of {} are at work at once", run.id(), other.id(), run.agent_id)))
}

/// No key has led to two runs, and no wake was answered by two.
pub fn once(stores: &Stores) -> Option<Violation> {
    let reader = lock(store_of(stores, Domain::Agent)).reader();
    let agent = reader.read().ok()?;
    let (mut keys, mut wakes) = (BTreeSet::new(), BTreeSet::new());
    let mut scan = Scan::new(Run::SPEC, "by_created");
    while let Ok(page) = agent.scan(&scan) {
        for run in page.rows.iter().filter_map(|row| row.record::<Run>().ok()?) {
            if !keys.insert(run.run_key) || !run.wake_ids.iter().all(|wake| wakes.insert(*wake)) {
                let what = format!("{} answers what another run has answered", run.id());
                return Some(Violation::new("S33 single flight", what));
            }
        }
        scan.after = Some(page.next?);
    }
    None
}

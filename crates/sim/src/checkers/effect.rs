//! At the moment of an effect: S01 intent first, S04 versions, S07 decided, S08 approved for exactly this, S09 nothing after a stop, S10 nothing of a
//! destroyed agent, D3 done only with its effects, S31 nothing of an earlier life, S33 one run of an agent at a time.

use std::sync::{Arc, Mutex};

use control::action::Action;
use control::cycle::Cycle;
use control::run::{Phase, Run};
use domain::causality::Domain;
use domain::commit::{Change, Commit, Expected, Guard};
use domain::entry::Actor;
use domain::id::{AgentId, ArtifactId, PromptItemId, RunId};
use domain::record::Record;
use domain::records::artifact::Artifact;
use domain::records::budget::Amounts;
use domain::records::lease::INCARNATION;
use domain::records::switch::SwitchSubject;
use domain::records::task::{RequiredEffect, Task, TaskStatus};
use policy::{Act, Request, Verdict, authorize};
use store::store::Snapshot;

use crate::checkers::flight;
use crate::ledger::{Ledger, Violation};
use crate::place::{Stores, Watch, lock, store_of};

/// Looks at a commit that has just been applied.
pub(crate) fn check(domain: Domain, stores: &Stores, watch: &Arc<Mutex<Watch>>, commit: &Commit) {
    let reader = lock(store_of(stores, domain)).reader();
    let agent = lock(store_of(stores, Domain::Agent)).reader();
    let mut found = Vec::new();
    if let (Ok(here), Ok(agent)) = (reader.read(), agent.read()) {
        versions(here.as_ref(), commit, &mut found);
        let mut watch = lock(watch);
        let incarnation = watch.incarnation;
        let life = life(commit);
        if let Some(epoch) = life.filter(|epoch| *epoch < incarnation) {
            // What an earlier life still wants to write is fenced out.
            found.push(Violation::new("S31 one life", format!("life {epoch} wrote while life {incarnation} was at work")));
        }
        if let (Domain::Agent, Some(epoch)) = (domain, life) {
            found.extend(flight::leased(here.as_ref(), commit, epoch));
        }
        if let (Domain::Journal, Actor::Agent(id)) = (domain, commit.actor) {
            planned(here.as_ref(), agent.as_ref(), commit, id, &mut watch.ledger, &mut found);
        }
        watch.violations.append(&mut found);
    }
}

/// S04: a write lands on the version it expected, or not at all.
fn versions(here: &dyn Snapshot, commit: &Commit, found: &mut Vec<Violation>) {
    for write in &commit.writes {
        let expected = match write.expected {
            Expected::Absent => 0,
            Expected::Version(version) => version,
        };
        // A control row that is taken away leaves nothing to look at.
        let Ok(Some(row)) = here.get(write.spec, &write.id) else { continue };
        if row.version != expected + 1 {
            let what = format!("a {} that was meant for version {expected} landed as version {}", write.spec.kind, row.version);
            found.push(Violation::new("S04 versions", what));
        }
    }
}

/// The life of the process that a commit comes from; a person's comes from none.
fn life(commit: &Commit) -> Option<u64> {
    commit.guards.iter().find_map(|guard| match guard {
        Guard::Fence { subject, epoch } if subject == INCARNATION => Some(*epoch),
        _ => None,
    })
}

fn planned(
    journal: &dyn Snapshot,
    agent: &dyn Snapshot,
    commit: &Commit,
    id: AgentId,
    ledger: &mut Ledger,
    found: &mut Vec<Violation>,
) {
    let Some((run, cycle)) = commit.cause.run_key.and_then(|key| newest(agent, &RunId::of_key(&key))) else {
        found.push(Violation::new("S01 intent", "an effect without a run"));
        return;
    };
    let action = cycle.actions().iter().find(|action| action.operation_id == commit.operation_id && action.is_to_do());
    let Some(action) = action.filter(|_| run.phase == Phase::Planned) else {
        let what = format!("{} of {} was carried out without a durable plan", commit.operation_id, run.id());
        found.push(Violation::new("S01 intent", what));
        return;
    };
    if action.decision.verdict != Verdict::Allow {
        found.push(Violation::new(
            "S07 decided",
            format!("{} was carried out though it was {}", action.tool, action.decision.verdict),
        ));
    }
    approved(&run, &cycle, action, ledger, found);
    stopped(id, action, ledger, found);
    for write in commit.writes.iter().filter(|write| write.spec == Task::SPEC) {
        if let Change::Put(body) = &write.change
            && let Ok(task) = Task::from_body(body.text())
        {
            done_with_effects(journal, commit, &task, found);
        }
    }
}

fn newest(agent: &dyn Snapshot, id: &RunId) -> Option<(Run, Cycle)> {
    let run: Run = agent.get(Run::SPEC, &id.raw()).ok()??.record().ok()??;
    let cycle: Cycle = agent.get(Cycle::SPEC, &Cycle::id_of(id, run.cycle).raw()).ok()??.record().ok()??;
    Some((run, cycle))
}

/// S08: what would have had to ask was approved by a person, for these bytes, and once.
fn approved(run: &Run, cycle: &Cycle, action: &Action, ledger: &mut Ledger, found: &mut Vec<Violation>) {
    let Some(act) = action.act.clone() else { return };
    let gate = cycle.decided.as_ref().and_then(|decided| decided.gate.as_ref()).unwrap_or(&cycle.opened.gate);
    let request = Request { agent: run.agent_id, act, reservation: Amounts::NONE, approval: None };
    if authorize(&request, &gate.world).verdict != Verdict::Ask {
        return;
    }
    let item = PromptItemId::of_operation(&action.operation_id);
    let shown = ledger.approved.get(&item).copied();
    if shown.is_none() || shown != action.content() {
        let what = format!(
            "{} was carried out; the person approved {}",
            action.tool,
            if shown.is_some() { "other bytes" } else { "nothing" }
        );
        found.push(Violation::new("S08 approved", what));
    }
    let used = ledger.used.entry(action.operation_id).or_default();
    *used += 1;
    if *used > 1 {
        found.push(Violation::new("S08 approved", format!("the approval of {} was used {used} times", action.operation_id)));
    }
}

/// S09 and S10: people were told that this stands still.
fn stopped(id: AgentId, action: &Action, ledger: &Ledger, found: &mut Vec<Violation>) {
    let class = match &action.act {
        Some(Act::Use { class, .. }) => Some(SwitchSubject::Tools(class.clone())),
        _ => None,
    };
    let subjects = [Some(SwitchSubject::Everything), Some(SwitchSubject::Agent(id)), class];
    if let Some(subject) = subjects.into_iter().flatten().find(|subject| ledger.stopped.contains(subject)) {
        found.push(Violation::new("S09 stopped", format!("{} was carried out after a stop of {subject}", action.tool)));
    }
    if ledger.paused.contains(&id) {
        found.push(Violation::new("S34 paused", format!("{} was carried out though the agent is paused", action.tool)));
    }
    if ledger.destroyed.contains(&id) {
        found.push(Violation::new("S10 destroyed", format!("{} was carried out by a destroyed agent", action.tool)));
    }
}

/// D3: a task is done when what it requires is there.
fn done_with_effects(journal: &dyn Snapshot, commit: &Commit, task: &Task, found: &mut Vec<Violation>) {
    if task.status != TaskStatus::Done {
        return;
    }
    let workspace = commit.writes[0].workspace;
    for RequiredEffect::Artifact { artifact_type, artifact_key } in &task.required_effects {
        let id = ArtifactId::of_key(&workspace, artifact_type, artifact_key);
        let live = journal.get(Artifact::SPEC, &id.raw()).ok().flatten().is_some_and(|row| !row.deleted);
        if !live {
            let what = format!("a task is done, and {artifact_type}/{artifact_key} is not there");
            found.push(Violation::new("D3 verified", what));
        }
    }
}

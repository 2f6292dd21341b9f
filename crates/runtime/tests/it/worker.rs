//! The worker and recovery: what a life left behind is finished by the next one, once.

use control::run::{RunStatus, WaitReason};
use domain::id::RunId;
use domain::records::switch::SwitchSubject;
use runtime::engine::{Progress, Scripted};
use runtime::{House, Watched, Worker};
use serde_json::{Value, json};

use crate::house::{Stores, key, manifest, start};

fn create() -> Value {
    json!({ "action": "create_task", "task": { "description": "write the first page", "preconditions": [] }, "justification": "" })
}

fn no_op() -> Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}

/// How many tasks the workspace holds.
fn tasks(house: &House) -> u64 {
    house.tasks("home", None, 100, None).expect("tasks can be listed").total
}

fn quiet(_: &Watched) {}

#[test]
fn l24_an_effect_without_an_outcome_is_finished_by_the_next_life_and_happens_once() {
    let stores = Stores::new();
    let mut house = stores.house();
    let (agent, run) = start(&mut house, &manifest(&[create(), no_op()]), "one");
    let mut drive = house.begin(agent, &Scripted).expect("it begins").expect("nobody else is at work");
    while house.advance(&mut drive, &mut Scripted).expect("it advances") != Progress::Performed {}
    drop(house);
    let mut next = stores.house();
    assert_eq!(next.recover(&mut Scripted).expect("it recovers"), 1);
    let left = next.run(&run).expect("the run is there");
    assert_eq!((left.status, left.operations, tasks(&next)), (RunStatus::Running, 1, 1), "nobody is asked anything on the way");
    assert_eq!(next.recover(&mut Scripted).expect("it recovers"), 0, "there is nothing left to recover");
    let mut watch = quiet;
    let ended = Worker::new(next, &mut watch).resume(&run).expect("it goes on");
    assert_eq!((ended.status, ended.operations, tasks(&stores.house())), (RunStatus::Succeeded, 1, 1));
}

#[test]
fn k17_a_run_that_another_life_began_is_driven_on_under_the_same_key() {
    let stores = Stores::new();
    let mut house = stores.house();
    let manifest = manifest(&[create(), no_op()]);
    let (agent, run) = start(&mut house, &manifest, "one");
    house.begin(agent, &Scripted).expect("it begins").expect("nobody else is at work");
    let mut points = Vec::new();
    let mut watch = |point: &Watched| points.push((point.cycle, point.attempt, point.status));
    let view = Worker::new(stores.house(), &mut watch).start(&manifest, &key("one")).expect("it goes on");
    assert_eq!((view.id, view.status, view.operations), (run, RunStatus::Succeeded, 1));
    // The ask of the first life was lost, so the second life asks again.
    let running = RunStatus::Running;
    assert_eq!(points[0], (1, 1, running));
    assert!(points.contains(&(1, 2, running)), "{points:?}");
    assert_eq!(points.last(), Some(&(2, 1, RunStatus::Succeeded)));
    let mut watch = quiet;
    let again = Worker::new(stores.house(), &mut watch).start(&manifest, &key("one")).expect("it is shown again");
    assert_eq!((&again, tasks(&stores.house())), (&view, 1));
    // What the lost ask had set aside is in the trace as it is in the run.
    let trace = stores.house().trace(&run).expect("it can be told");
    assert_eq!((trace.spent.tokens, trace.cycles[0].lost_asks), (view.tokens, 1));
    assert_eq!(trace.cycles[0].lost, manifest.reservation);
}

#[test]
fn l10_wakes_that_wait_together_are_answered_by_one_run() {
    let stores = Stores::new();
    let mut house = stores.house();
    let manifest = manifest(&[create(), no_op()]);
    let (agent, first) = start(&mut house, &manifest, "one");
    let second = house.wake_by_hand(agent, &key("two")).expect("it is queued");
    let queued: Vec<RunId> = house.runs(10).expect("runs can be listed").iter().map(|line| line.id).collect();
    assert_eq!(queued, [first, second]);
    let mut watch = quiet;
    let view = Worker::new(house, &mut watch).resume(&second).expect("it runs");
    assert_eq!((view.id, view.coalesced_from, view.status), (first, Some(second), RunStatus::Succeeded));
    assert_eq!(tasks(&stores.house()), 1);
}

#[test]
fn l31_a_worker_leaves_what_is_stopped_alone_and_takes_it_up_again() {
    let stores = Stores::new();
    let mut house = stores.house();
    let (_, run) = start(&mut house, &manifest(&[create(), no_op()]), "one");
    house.stop(&SwitchSubject::Everything, "", &key("stop")).expect("it is stopped");
    let mut watch = quiet;
    let mut worker = Worker::new(stores.house(), &mut watch);
    let waits = worker.resume(&run).expect("it is looked at");
    assert_eq!((waits.status, waits.waiting.map(|waiting| waiting.reason)), (RunStatus::Waiting, Some(WaitReason::Stopped)));
    assert_eq!(worker.resume_all().expect("it is looked at again"), [], "nothing has changed");
    house.release(&SwitchSubject::Everything, &key("release")).expect("it is released");
    let resumed = worker.resume_all().expect("it goes on");
    assert_eq!(resumed.iter().map(|view| (view.id, view.status)).collect::<Vec<_>>(), [(run, RunStatus::Succeeded)]);
}

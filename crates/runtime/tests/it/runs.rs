//! Runs from their wake to their end.

use control::run::{Phase, RunStatus};
use runtime::House;
use runtime::engine::{Progress, Scripted};
use serde_json::json;

use crate::house::{Stores, manifest, start, work};

fn create(description: &str) -> serde_json::Value {
    json!({ "action": "create_task", "task": { "description": description, "preconditions": [] }, "justification": "it is needed" })
}

fn no_op() -> serde_json::Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}

#[test]
fn d2_a_run_asks_decides_executes_verifies_and_ends() {
    let stores = Stores::new();
    let mut house = stores.house();
    let (_, run) = start(&mut house, &manifest(&[create("write the first page"), no_op()]), "one");
    work(&mut house, &mut Scripted);
    let shown = house.run(&run).unwrap();
    assert_eq!((shown.status, shown.cycle, shown.operations), (RunStatus::Succeeded, 2, 1), "{shown:#?}");
    let recall = house.record(&run).unwrap();
    let runtime::engine::Recall::Whole(recording) = recall else { panic!("nothing was erased") };
    let report = control::replay::replay(&recording).unwrap();
    assert_eq!(report, control::replay::Report::Identical { steps: recording.states.len(), cycles: 2 });
}

#[test]
fn d1_what_a_model_proposes_is_nothing_until_the_controller_has_done_it() {
    let stores = Stores::new();
    let mut house = stores.house();
    let (agent, run) = start(&mut house, &manifest(&[create("write the first page"), no_op()]), "one");
    let mut drive = house.begin(agent, &Scripted).unwrap().expect("nobody else is at work");
    let tasks = |house: &House| house.tasks("home", None, 10, None).unwrap().total;
    while house.run(&run).unwrap().phase != Phase::Planned {
        house.advance(&mut drive, &mut Scripted).unwrap();
    }
    assert_eq!(tasks(&house), 0, "it is proposed and planned");
    assert_eq!((house.advance(&mut drive, &mut Scripted).unwrap(), tasks(&house)), (Progress::Performed, 1));
}

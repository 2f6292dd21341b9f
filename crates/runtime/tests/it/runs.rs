//! Runs from their wake to their end.

use control::run::RunStatus;
use runtime::engine::Scripted;
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

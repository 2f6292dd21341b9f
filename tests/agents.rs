//! Agents from outside: a person pauses one, lets it go on, or ends it.

use serde_json::{Value, json};

use crate::support::{Home, list};

fn manifest(home: &Home) -> String {
    let create = json!({ "action": "create_task", "task": { "description": "order the seeds", "preconditions": [] }, "justification": "needed" });
    let done = json!({ "action": "no_op", "reason": "campaign_complete", "details": "" });
    let manifest = json!({
        "schema": 1, "agent": "gardener", "mode": "yolo", "prompt": "do the tasks",
        "model": { "provider": "scripted", "script": [create.to_string(), done.to_string()] },
    });
    home.file("gardener.json", manifest.to_string().as_bytes())
}

fn lifecycle(home: &Home) -> Value {
    let document = home.json("verger.agents.v1", &["agent", "list"]);
    let [agent] = list(&document, "agents") else { panic!("one agent: {document:#}") };
    agent["lifecycle"].clone()
}

fn newest(home: &Home) -> Value {
    let run = home.json("verger.runs.v1", &["run", "list"])["runs"][0].clone();
    json!([run["status"], run["waiting"], run["operations"]])
}

#[test]
fn l32_a_paused_agent_waits_until_a_person_resumes_it() {
    let home = Home::new();
    home.run(&["agent", "list"]).ok().shows("no agents here yet");
    let manifest = manifest(&home);
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    assert_eq!(lifecycle(&home), "active");
    home.run(&["agent", "pause", "gardener"]).ok().shows("paused gardener; it is paused");
    home.run(&["agent", "pause", "gardener"]).ok().shows("it is paused");
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    home.run(&["run", "resume"]).ok();
    assert_eq!((lifecycle(&home), newest(&home)), (json!("dormant"), json!(["waiting", "paused", 0])));
    home.run(&["agent", "resume", "gardener"]).ok().shows("next: verger run resume");
    home.run(&["run", "resume"]).ok();
    assert_eq!((lifecycle(&home), newest(&home)), (json!("active"), json!(["succeeded", null, 1])));
}

#[test]
fn l32_a_destroyed_agent_stays_destroyed_and_what_it_made_stays() {
    let home = Home::new();
    let manifest = manifest(&home);
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    home.run(&["agent", "destroy", "gardener"]).fails(2, "invalid_argument").says("--yes");
    assert_eq!(lifecycle(&home), "active");
    home.run(&["agent", "destroy", "gardener", "--yes"]).ok().shows("it is destroyed");
    home.run(&["agent", "destroy", "gardener", "--yes"]).ok();
    home.run(&["agent", "resume", "gardener"]).fails(5, "agent_destroyed");
    home.run(&["run", "start", "--manifest", &manifest]).fails(5, "agent_destroyed").says("another name");
    assert_eq!(lifecycle(&home), "destroyed");
    assert_eq!(home.json("verger.tasks.v1", &["task", "list"])["total"], 1);
    home.assert_sound();
}

#[test]
fn agent_arguments_that_cannot_be_are_refused() {
    let home = Home::new();
    for (arguments, exit, code, says) in [
        (vec!["pause"], 2, "invalid_argument", "<AGENT>"),
        (vec!["pause", "nobody"], 3, "agent_not_found", "there is no agent `nobody` in workspace `home`"),
        (vec!["resume", "Two Words"], 2, "invalid_argument", "neither an agent's id nor a name"),
        (vec!["destroy", "nobody", "--yes"], 3, "agent_not_found", "`nobody`"),
        (vec!["destroy", "agent_0000000000000000000000000a", "--yes"], 3, "agent_not_found", "there is no agent agent_"),
        (vec!["list", "--workspace", "attic"], 3, "WORKSPACE_NOT_FOUND", "`attic`"),
        (vec!["pause", "nobody", "--operation-id", ""], 2, "invalid_argument", "operation-id: "),
    ] {
        let arguments: Vec<_> = ["--json", "agent"].into_iter().chain(arguments).collect();
        let error = home.run(&arguments).fails(exit, code).says(says).error();
        assert_eq!(error["code"], code, "{error:#}");
    }
}

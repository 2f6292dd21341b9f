//! Agents from outside: a person pauses one, lets it go on, or ends it.

use serde_json::{Value, json};

use crate::support::{Home, list, newest_run, text};

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

#[test]
fn l32_a_paused_agent_waits_until_a_person_resumes_it() {
    let home = Home::new();
    home.run(&["agent", "list"]).ok().shows("no agents here yet");
    let manifest = manifest(&home);
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    assert_eq!(lifecycle(&home), "active");
    home.run(&["agent", "pause", "gardener"]).ok().shows("paused gardener\n");
    home.run(&["agent", "pause", "gardener"]).ok().shows("gardener was paused already");
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    home.run(&["run", "resume"]).ok();
    assert_eq!((lifecycle(&home), newest_run(&home)), (json!("dormant"), json!(["waiting", "paused", 0])));
    let run = home.json("verger.runs.v1", &["run", "list"])["runs"][0]["id"].as_str().expect("an id").to_owned();
    let shown = home.run(&["run", "show", &run]).ok();
    shown
        .shows("waiting until its agent is no longer paused")
        .shows(&format!("next: verger agent resume gardener, then verger run resume {run}"));
    home.run(&["agent", "resume", "gardener"]).ok().shows("next: verger run resume");
    home.run(&["run", "show", &run]).ok().shows(&format!("next: verger run resume {run}"));
    home.run(&["run", "resume"]).ok();
    assert_eq!((lifecycle(&home), newest_run(&home)), (json!("active"), json!(["succeeded", null, 1])));
}

#[test]
fn l32_a_destroyed_agent_stays_destroyed_and_what_it_made_stays() {
    let home = Home::new();
    let manifest = manifest(&home);
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    home.run(&["agent", "destroy", "gardener"]).fails(2, "invalid_argument").says("--yes");
    assert_eq!(lifecycle(&home), "active");
    home.run(&["agent", "destroy", "gardener", "--yes"]).ok().shows("destroyed gardener\n");
    home.run(&["agent", "destroy", "gardener", "--yes"]).ok().shows("gardener was destroyed already");
    home.run(&["agent", "resume", "gardener"]).fails(5, "agent_destroyed");
    home.run(&["run", "start", "--manifest", &manifest]).fails(5, "agent_destroyed").says("another name");
    assert_eq!(lifecycle(&home), "destroyed");
    assert_eq!(home.json("verger.tasks.v1", &["task", "list"])["total"], 1);
    home.assert_sound();
}

#[test]
fn l32_what_a_destroyed_agent_has_left_waiting_ends_with_it() {
    let home = Home::new();
    let manifest = manifest(&home);
    let reviewed = std::fs::read_to_string(&manifest).expect("it was written").replace("yolo", "reviewed");
    let manifest = home.file("reviewed.json", reviewed.as_bytes());
    let run = home.json("verger.run.v1", &["run", "start", "--manifest", &manifest]);
    let (run, ask) = (text(&run, "id").to_owned(), text(&run["asks"][0], "id").to_owned());
    home.run(&["agent", "destroy", "gardener", "--yes", "--operation-id", "enough"]).ok();
    home.run(&["inbox", "list"]).ok().shows("nothing waits for an answer");
    home.run(&["inbox", "approve", &ask]).fails(4, "prompt_closed").says("it is withdrawn at ");
    let shown = home.json("verger.run.v1", &["run", "show", &run]);
    assert_eq!((&shown["status"], &shown["code"], &shown["asks"]), (&json!("failed"), &json!("agent_destroyed"), &json!([])));
    home.run(&["run", "trace", &run]).ok().shows("ended failed: agent_destroyed, ");
    home.run(&["run", "replay", &run]).ok().shows("ends failed");
    home.run(&["agent", "destroy", "gardener", "--yes", "--operation-id", "enough"]).ok().shows("it is destroyed now");
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

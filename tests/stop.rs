//! Kill switches from outside: they hold over processes, everybody sees them, and only a person releases them.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::support::{Home, end, line, list, start, text};

/// An agent of this name that adds a task and is done.
fn agent(home: &Home, name: &str) -> String {
    let create = json!({ "action": "create_task", "task": { "description": "order the seeds", "preconditions": [] }, "justification": "needed" });
    let done = json!({ "action": "no_op", "reason": "campaign_complete", "details": "" });
    let manifest = json!({
        "schema": 1, "agent": name, "mode": "yolo", "prompt": "do the tasks",
        "model": { "provider": "scripted", "script": [create.to_string(), done.to_string()] },
    });
    home.file(&format!("{name}.json"), manifest.to_string().as_bytes())
}

/// The newest runs with how they stand, newest first.
fn runs(home: &Home) -> Vec<Value> {
    let document = home.json("verger.runs.v1", &["run", "list"]);
    list(&document, "runs").iter().map(|run| json!([run["agent"], run["status"], run["waiting"]])).collect()
}

fn tasks(home: &Home) -> Value {
    home.json("verger.tasks.v1", &["task", "list"])["total"].clone()
}

fn stopped(home: &Home) -> Vec<String> {
    let document = home.json("verger.stops.v1", &["stop", "--status"]);
    list(&document, "stopped").iter().map(|switch| text(switch, "subject").to_owned()).collect()
}

#[test]
fn l31_a_stop_of_everything_holds_until_a_person_releases_it() {
    let home = Home::new();
    home.run(&["stop", "--status"]).ok().shows("nothing is stopped");
    let done = home.json("verger.stopped.v1", &["stop", "--reason", "the cat is on the keyboard"]);
    assert_eq!(
        (&done["subject"], &done["durable"], &done["until_exit"]),
        (&json!("everything"), &json!(["journal", "agent", "ledger"]), &json!([]))
    );
    home.run(&["run", "start", "--manifest", &agent(&home, "gardener")]).ok();
    home.run(&["run", "resume"]).ok();
    assert_eq!((runs(&home), tasks(&home)), (vec![json!(["gardener", "waiting", "stopped"])], json!(0)));

    home.run(&["stop", "--status"]).ok().shows("everything").shows("the cat is on the keyboard");
    for command in [["run", "list"], ["task", "list"], ["inbox", "list"], ["budget", "show"]] {
        home.run(&command).ok().says("stopped: everything (the cat is on the keyboard)");
    }
    home.run(&["task", "add", "People are not stopped"]).ok();
    home.run(&["stop"]).ok().shows("(it was stopped already)");

    home.run(&["stop", "--release"]).ok().shows("released everything");
    assert_eq!(stopped(&home), [""; 0]);
    home.run(&["run", "resume"]).ok();
    assert_eq!((runs(&home), tasks(&home)), (vec![json!(["gardener", "succeeded", null])], json!(2)));
    home.run(&["stop", "--release"]).ok().shows("there is no stop of everything");
    home.assert_sound();
}

#[test]
fn l31_a_stop_of_one_agent_leaves_the_others_alone() {
    let home = Home::new();
    let (gardener, cook) = (agent(&home, "gardener"), agent(&home, "cook"));
    home.run(&["run", "start", "--manifest", &gardener]).ok();
    let done = home.json("verger.stopped.v1", &["stop", "--agent", "gardener"]);
    let subject = text(&done, "subject");
    assert!(subject.starts_with("agent/agent_"), "{subject}");
    home.run(&["stop", "--status"]).ok().shows("agent gardener").shows(&subject["agent/".len()..]);
    home.run(&["stop", "--agent", "gardener"]).ok().shows("stopped agent gardener").shows("--release --agent gardener`");
    home.run(&["run", "start", "--manifest", &gardener]).ok();
    home.run(&["run", "start", "--manifest", &cook]).ok();
    let expected =
        [json!(["cook", "succeeded", null]), json!(["gardener", "waiting", "stopped"]), json!(["gardener", "succeeded", null])];
    assert_eq!(runs(&home), expected);
    let waits = text(&home.json("verger.runs.v1", &["run", "list"])["runs"][1], "id").to_owned();
    home.run(&["run", "show", &waits]).ok().shows("next: verger stop --release --agent gardener when it is safe again, then");
    // By its id it is the same agent.
    home.run(&["stop", "--release", "--agent", &subject["agent/".len()..]]).ok().shows("released");
    assert_eq!(stopped(&home), [""; 0]);
}

#[test]
fn l31_a_stop_of_a_class_of_tools_refuses_these_tools_only() {
    let home = Home::new();
    home.run(&["stop", "--tools", "task"]).ok().shows("stopped tools of class task").shows("`verger stop --release --tools task`");
    home.run(&["run", "start", "--manifest", &agent(&home, "gardener")]).ok();
    assert_eq!((runs(&home), tasks(&home)), (vec![json!(["gardener", "succeeded", null])], json!(0)));
    home.run(&["stop", "--tools", "artefact"])
        .ok()
        .says("warning: no tool has the class `artefact` now; the known ones are artifact, question, task");
    home.run(&["stop", "--release"])
        .ok()
        .shows("nothing to release: there is no stop of everything")
        .shows("still stopped: tools of class task, tools of class artefact");
    home.run(&["stop", "--release", "--tools", "artefact"]).ok().shows("still stopped: tools of class task");
    home.run(&["stop", "--release", "--tools", "task"]).ok();
    home.run(&["run", "start", "--manifest", &agent(&home, "gardener")]).ok();
    assert_eq!(tasks(&home), 1);
}

#[test]
fn l31_a_repeated_stop_does_not_stop_again_what_was_released_since() {
    let home = Home::new();
    let stop = ["stop", "--operation-id", "drill"];
    assert_eq!(home.json("verger.stopped.v1", &stop)["repeated"], false);
    assert_eq!(home.json("verger.stopped.v1", &stop)["repeated"], true);
    let reused = home.run(&["--json", "stop", "--operation-id", "drill", "--reason", "another"]).fails(4, "operation_id_reused");
    assert_eq!(reused.says("operation id `drill` was used").error()["details"]["operation_id"], "drill");
    home.run(&["stop", "--release"]).ok();
    home.run(&stop).ok().shows("(it had been done before)").shows("verger stop --status");
    assert_eq!(stopped(&home), [""; 0]);
    home.run(&["run", "start", "--manifest", &agent(&home, "gardener")]).ok();
    assert_eq!((runs(&home), tasks(&home)), (vec![json!(["gardener", "succeeded", null])], json!(1)));
}

#[test]
fn beside_a_process_that_has_the_home_everybody_may_look_and_nobody_may_act() {
    let home = Home::new();
    let task = text(&home.json("verger.task-written.v1", &["task", "add", "Order the seeds"]), "id").to_owned();
    let mut writer = start(home.command().args(["note", "add", "--stdin"]));
    let mut stdin = writer.stdin.take().expect("stdin is piped");
    let mut answers = BufReader::new(writer.stdout.take().expect("stdout is piped")).lines();
    stdin.write_all(line("a", "A").as_bytes()).expect("the writer reads its lines");
    answers.next().expect("the writer answers each line").expect("the answer can be read");
    let looks: [&[&str]; 5] =
        [&["stop", "--status"], &["task", "list"], &["task", "show", &task], &["inbox", "list"], &["budget", "show"]];
    for look in looks {
        home.run(look).ok();
    }
    home.run(&["stop"]).fails(6, "home_locked").says(&format!("is in use by process {}", writer.id()));
    assert_eq!(stopped(&home), [""; 0], "what was not done is not claimed");
    drop(answers);
    end(writer, stdin).ok();
    home.run(&["stop"]).ok();
}

#[test]
fn stop_arguments_that_cannot_be_are_refused_and_stop_nothing() {
    let home = Home::new();
    let check = |arguments: &[&str], exit: i32, code: &str, says: &str| {
        let arguments: Vec<_> = ["--json", "stop"].iter().chain(arguments).copied().collect();
        let error = home.run(&arguments).fails(exit, code).says(says).error();
        assert_eq!(error["code"], code, "{error:#}");
    };
    check(&["--agent", "nobody"], 3, "agent_not_found", "there is no agent `nobody` in workspace `home`");
    check(&["--agent", "agent_0000000000000000000000000a"], 3, "agent_not_found", "there is no agent agent_");
    check(&["--agent", "Two Words"], 2, "invalid_argument", "neither an agent's id nor a name");
    check(&["--agent", "a", "--workspace", "attic"], 3, "WORKSPACE_NOT_FOUND", "`attic`");
    check(&["--tools", "Two Words"], 2, "invalid_argument", "tools: ");
    check(&["--agent", "a", "--tools", "task"], 2, "invalid_argument", "--tools");
    check(&["--release", "--reason", "x"], 2, "invalid_argument", "--reason");
    check(&["--status", "--release"], 2, "invalid_argument", "--release");
    check(&["--reason", &"x".repeat(4_097)], 2, "invalid_argument", "at most 4096 bytes");
    check(&["--reason", "esc \u{1b}[2J"], 2, "invalid_argument", "no control characters");
    check(&["everything"], 2, "invalid_argument", "everything");
    assert_eq!(stopped(&home), [""; 0]);
}

//! Tasks from outside: people write them, agents work on them, and each shows what it waits for and what was made.

use serde_json::{Value, json};

use crate::support::{Home, list, text};

const WRITTEN: &str = "verger.task-written.v1";

fn add(home: &Home, arguments: &[&str]) -> String {
    let arguments: Vec<_> = ["task", "add"].iter().chain(arguments).copied().collect();
    text(&home.json(WRITTEN, &arguments), "id").to_owned()
}

fn task(home: &Home, id: &str) -> Value {
    home.json("verger.task.v1", &["task", "show", id])
}

/// What a task says, without ids and instants.
fn content(task: &Value) -> Value {
    json!([task["description"], task["status"], task["ready"], task["blocked_reason"], task["version"]])
}

fn listed(home: &Home, arguments: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut all: Vec<_> = ["task", "list", "--limit", "2"].iter().chain(arguments).copied().collect();
        all.extend(after.as_deref().map(|after| ["--after", after]).into_iter().flatten());
        let page = home.json("verger.tasks.v1", &all);
        found.extend(list(&page, "tasks").iter().map(|task| text(task, "description").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => {
                assert_eq!(page["total"], found.len(), "the total is what the pages hold together");
                return found;
            }
        }
    }
}

/// An agent that keeps one artifact for a task, with the owner's standing word.
fn keeper(home: &Home, task: &str) -> String {
    let keep = json!({
        "action": "persist_artifact", "task_id": task, "requires_approval": true,
        "artifact": { "type": "context", "key": "sources", "content": "beans\n\npeas\nleeks\nkale" },
    });
    let manifest = json!({
        "schema": 1, "agent": "keeper", "mode": "yolo", "prompt": "keep what is found", "preapproved": ["persist_artifact"],
        "model": { "provider": "scripted", "script": [keep.to_string()] },
    });
    home.file("keeper.json", manifest.to_string().as_bytes())
}

#[test]
fn d6_a_task_is_written_read_changed_taken_away_and_brought_back() {
    let home = Home::new();
    let id = add(&home, &["Plan the beds"]);
    assert_eq!(content(&task(&home, &id)), json!(["Plan the beds", "pending", true, null, 1]));
    home.json(WRITTEN, &["task", "edit", &id, "--description", "- Plan all beds", "--status", "in_progress", "--version", "1"]);
    assert_eq!(content(&task(&home, &id)), json!(["- Plan all beds", "in_progress", true, null, 2]));
    home.run(&["task", "edit", &id, "--description", "x", "--version", "1"]).fails(4, "VERSION_CONFLICT").says("is at version 2");
    home.json(WRITTEN, &["task", "edit", &id, "--status", "blocked", "--reason", "no paper"]);
    assert_eq!(content(&task(&home, &id)), json!(["- Plan all beds", "blocked", true, "no paper", 3]));
    home.json(WRITTEN, &["task", "rm", &id, "--version", "3"]);
    home.run(&["task", "show", &id]).fails(3, "TASK_NOT_FOUND").says("was deleted");
    home.run(&["task", "rm", &id]).fails(3, "TASK_NOT_FOUND");
    assert_eq!(listed(&home, &[]), [""; 0]);
    home.json(WRITTEN, &["task", "restore", &id]);
    assert_eq!(content(&task(&home, &id)), json!(["- Plan all beds", "blocked", true, "no paper", 5]));
    home.assert_sound();
}

#[test]
fn d6_a_task_is_done_on_a_persons_word_or_when_its_effects_are_seen_and_says_which() {
    let home = Home::new();
    let word = add(&home, &["Plan the beds", "--requires", "context/plan"]);
    home.json(WRITTEN, &["task", "edit", &word, "--status", "done"]);
    let shown = task(&home, &word);
    assert_eq!((&shown["completed_by"], &shown["required_effects"][0]["artifact"]), (&shown["created_by"], &Value::Null));
    home.run(&["task", "show", &word]).ok().shows("on your word").shows("○ context/plan is not there yet");

    let seen = add(&home, &["Collect the sources", "--requires", "context/sources"]);
    home.run(&["run", "start", "--manifest", &keeper(&home, &seen)]).ok();
    let shown = task(&home, &seen);
    assert_eq!((&shown["status"], &shown["completed_by"]), (&json!("done"), &Value::Null));
    let [artifact] = list(&shown, "artifacts") else { panic!("one artifact was made: {shown:#}") };
    assert_eq!(artifact["content"], "beans\n\npeas\nleeks\nkale");
    assert_eq!((&artifact["source"], &artifact["approved_by"]), (&json!("agent"), &shown["created_by"]));
    assert_eq!(shown["required_effects"][0]["artifact"]["id"], artifact["id"]);
    let shown = home.run(&["task", "show", &seen]).ok().shows("its effects were seen by the controller").shows("│ beans");
    assert!(!shown.stdout.contains("kale"), "the first lines are enough: {}", shown.stdout);
}

#[test]
fn d6_a_task_waits_for_others_and_says_for_which() {
    let home = Home::new();
    let first = add(&home, &["Order the seeds"]);
    let second = add(&home, &["Sow the beans", "--needs", &first]);
    assert_eq!(task(&home, &second)["ready"], false);
    let waits = json!([{ "id": first, "status": "pending", "description": "Order the seeds" }]);
    assert_eq!(task(&home, &second)["waits_for"], waits);
    home.run(&["task", "edit", &first, "--needs", &second]).fails(2, "invalid_argument").says("would wait for itself");
    home.run(&["task", "edit", &first, "--needs", &first]).fails(2, "invalid_argument").says("cannot wait for itself");
    home.run(&["task", "edit", &first, "--status", "done"]).ok();
    assert_eq!(task(&home, &second)["ready"], true);
    // Whoever waits for a task that is gone would wait for ever: that is said when it goes, and shown afterwards.
    home.run(&["task", "rm", &first]).ok().says(&format!("warning: {second} waits for it"));
    home.run(&["task", "show", &second]).ok().shows("is gone, so this will not be worked on");
    home.run(&["task", "edit", &second, "--no-needs"]).ok();
    assert_eq!(task(&home, &second)["ready"], true);
}

#[test]
fn l20_a_task_command_is_repeated_without_harm() {
    let home = Home::new();
    let command = ["task", "add", "Order the seeds", "--operation-id", "seeds"];
    let first = home.json(WRITTEN, &command);
    let again = home.json(WRITTEN, &command);
    assert_eq!((&again["id"], &again["repeated"]), (&first["id"], &json!(true)));
    let id = text(&first, "id");
    home.run(&["task", "add", "Something else", "--operation-id", "seeds"]).fails(4, "operation_id_reused");
    home.run(&["task", "rm", id, "--operation-id", "away"]).ok();
    home.run(&["task", "rm", id, "--operation-id", "away"]).ok().shows("(it had been done before)");
    home.run(&["task", "restore", id, "--operation-id", "back"]).ok();
    home.run(&["task", "restore", id, "--operation-id", "back"]).ok().shows("(it had been done before)");
    assert_eq!(listed(&home, &[]), ["Order the seeds"]);
}

#[test]
fn tasks_are_listed_newest_first_page_by_page_and_by_status() {
    let home = Home::new();
    home.run(&["task", "list"]).ok().shows("no tasks here yet");
    let ids: Vec<_> = ["One task", "Two tasks", "Three tasks"].iter().map(|name| add(&home, &[name])).collect();
    home.run(&["task", "edit", &ids[1], "--status", "done"]).ok();
    assert_eq!(listed(&home, &[]), ["Three tasks", "Two tasks", "One task"]);
    assert_eq!(listed(&home, &["--status", "pending"]), ["Three tasks", "One task"]);
    assert_eq!(listed(&home, &["--status", "blocked"]), [""; 0]);
    home.run(&["task", "list", "--status", "blocked"]).ok().shows("no task is blocked");
    let page = home.json("verger.tasks.v1", &["task", "list", "-n", "1"]);
    assert_eq!(page["counts"], json!({ "pending": 2, "done": 1 }));
    home.run(&["task", "list", "-n", "1"]).ok().shows("2 pending · 1 done").says("1 of 3; more with --after ");
}

#[test]
fn task_arguments_that_cannot_be_are_refused_and_change_nothing() {
    let home = Home::new();
    let id = add(&home, &["Kept as it is"]);
    let check = |arguments: &[&str], exit: i32, code: &str, says: &str| {
        let arguments: Vec<_> = ["--json", "task"].iter().chain(arguments).copied().collect();
        let error = home.run(&arguments).fails(exit, code).says(says).error();
        assert_eq!(error["code"], code, "{error:#}");
    };
    let unknown = "task_0000000000000000000000000a";
    check(&["add", " "], 2, "invalid_argument", "the description is empty");
    check(&["add", &"x".repeat(501)], 2, "invalid_argument", "the description has 501 characters; at most 500");
    check(&["add", "esc \u{1b}[2J"], 2, "invalid_argument", "control character at byte 4");
    check(&["add", "x", "--requires", "summary"], 2, "invalid_argument", "`summary` is not TYPE/KEY");
    check(&["add", "x", "--requires", "poem/k"], 2, "invalid_argument", "`poem` is not a type of artifact; use one of context");
    check(&["add", "x", "--requires", "context/"], 2, "invalid_argument", "an artifact's key has 1 to 200 bytes");
    check(&["add", "x", "--needs", unknown], 3, "TASK_NOT_FOUND", "to wait for");
    check(&["add", "x", "--needs", "note_0000000000000000000000000a"], 2, "invalid_argument", "is not a task id");
    check(&["add", "x", "--workspace", "attic"], 3, "WORKSPACE_NOT_FOUND", "`attic`");
    let many: Vec<_> = (0..17).map(|n| format!("--requires=context/k{n}")).collect();
    let many: Vec<_> = ["add", "x"].into_iter().chain(many.iter().map(String::as_str)).collect();
    check(&many, 2, "invalid_argument", "at most 16 preconditions");
    check(&["edit", &id], 2, "invalid_argument", "nothing to change");
    check(&["edit", unknown, "--status", "done"], 3, "TASK_NOT_FOUND", unknown);
    check(&["edit", &id, "--status", "finished"], 2, "invalid_argument", "pending, in_progress, done or blocked");
    check(&["edit", &id, "--status", "blocked"], 2, "invalid_argument", "say why it is blocked");
    check(&["edit", &id, "--status", "blocked", "--reason", " "], 2, "invalid_argument", "a reason has 1 to 500 characters");
    check(&["edit", &id, "--status", "done", "--reason", "x"], 2, "invalid_argument", "only a blocked task has a reason");
    check(&["edit", &id, "--no-needs", "--needs", &id], 2, "invalid_argument", "--no-needs");
    check(&["restore", &id], 2, "invalid_argument", "was not deleted");
    check(&["restore", unknown], 3, "TASK_NOT_FOUND", unknown);
    check(&["show", unknown], 3, "TASK_NOT_FOUND", unknown);
    check(&["rm", unknown], 3, "TASK_NOT_FOUND", unknown);
    check(&["list", "--limit", "0"], 2, "invalid_argument", "1 to 1000");
    check(&["list", "--after", "yesterday"], 2, "invalid_argument", "after: ");
    check(&["list", "--status", "open"], 2, "invalid_argument", "pending, in_progress, done or blocked");
    assert_eq!(content(&task(&home, &id)), json!(["Kept as it is", "pending", true, null, 1]));
    assert_eq!(listed(&home, &[]), ["Kept as it is"]);
}

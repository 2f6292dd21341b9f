//! The inbox from outside: what agents ask, and what becomes of it when a person says yes, no, something, or nothing in time.

use serde_json::{Value, json};

use crate::support::{Home, list, text};

const ANSWERED: &str = "verger.inbox-answered.v1";

fn create(description: &str) -> Value {
    json!({ "action": "create_task", "task": { "description": description, "preconditions": [] }, "justification": "needed" })
}

fn question(options: &[&str]) -> Value {
    json!({ "action": "request_user_input", "question": "Which colour shall it have?", "options": options, "context": "the door" })
}

/// Starts a reviewed agent that says these things, each cycle the next.
fn start(home: &Home, script: &[Value], ttl_ms: u32) {
    let script: Vec<_> = script.iter().map(ToString::to_string).collect();
    let manifest = json!({
        "schema": 1, "agent": "gardener", "prompt": "do the tasks", "approval_ttl_ms": ttl_ms,
        "model": { "provider": "scripted", "script": script },
    });
    let file = home.file("gardener.json", manifest.to_string().as_bytes());
    home.run(&["run", "start", "--manifest", &file]).ok();
}

const DAY_MS: u32 = 86_400_000;

fn items(home: &Home, status: &str) -> Vec<Value> {
    let document = home.json("verger.inbox.v1", &["inbox", "list", "--status", status]);
    list(&document, "items").to_vec()
}

/// The id of the one item that is open.
fn only(home: &Home) -> String {
    let open = items(home, "open");
    let [item] = open.as_slice() else { panic!("one item is open: {open:#?}") };
    text(item, "id").to_owned()
}

fn tasks(home: &Home) -> Value {
    home.json("verger.tasks.v1", &["task", "list"])["total"].clone()
}

fn done() -> Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}

#[test]
fn l22_nothing_that_needs_a_person_happens_before_the_person_says_yes() {
    let home = Home::new();
    home.run(&["inbox", "list"]).ok().shows("nothing waits for an answer");
    start(&home, &[create("order the seeds"), done(), done()], DAY_MS);
    assert_eq!(tasks(&home), 0);
    let id = only(&home);
    let item = home.json("verger.inbox-item.v1", &["inbox", "show", &id]);
    assert_eq!(
        (&item["gates"]["tool"], &item["status"], &item["agent"]),
        (&json!("create_task"), &json!("open"), &json!("gardener"))
    );
    assert_eq!(item["prompt_text"], "new task, pending: order the seeds");
    home.run(&["inbox", "list"]).ok().shows("create_task").shows("order the seeds");
    home.run(&["inbox", "show", &id]).ok().shows(&format!("verger inbox approve {id}"));

    let command = ["inbox", "approve", &id, "--reason", "it is time", "--operation-id", "yes"];
    let answered = home.json(ANSWERED, &command);
    assert_eq!((&answered["run_id"], &answered["repeated"]), (&item["run_id"], &json!(false)));
    assert_eq!(home.json(ANSWERED, &command)["repeated"], true);
    assert_eq!(tasks(&home), 0, "an answer is a wake; the run acts when it goes on");
    let run = text(&item, "run_id");
    home.run(&["run", "list"]).ok().shows("waiting: answered");
    home.run(&["run", "show", run]).ok().shows("(answered), create_task").shows(&format!("next: verger run resume {run}"));
    home.run(&["run", "resume", run]).ok();
    assert_eq!(tasks(&home), 1);
    home.run(&["run", "resume"]).ok();
    assert_eq!(tasks(&home), 1, "an approval is used once");
    let item = &items(&home, "answered")[0];
    assert_eq!((&item["response"]["verdict"], &item["response"]["text"]), (&json!("approve"), &json!("it is time")));
    home.run(&["inbox", "show", &id]).ok().shows("approved by you");
    home.assert_sound();
}

#[test]
fn l32_a_denied_act_does_not_happen_and_the_first_answer_counts() {
    let home = Home::new();
    start(&home, &[create("order the seeds"), done(), done()], DAY_MS);
    let id = only(&home);
    home.run(&["inbox", "deny", &id, "--reason", "there are enough"])
        .ok()
        .shows(&format!("denied {id}"))
        .shows("next: verger run resume run_");
    home.run(&["inbox", "approve", &id]).fails(4, "prompt_closed").says("it was denied at 2");
    home.run(&["inbox", "deny", &id]).fails(4, "prompt_closed");
    home.run(&["run", "resume"]).ok();
    assert_eq!(tasks(&home), 0);
    assert_eq!(items(&home, "open"), [Value::Null; 0]);
    home.run(&["inbox", "show", &id]).ok().shows("denied by you").shows("there are enough");
}

#[test]
fn l36_a_question_is_answered_with_one_of_its_options() {
    let home = Home::new();
    start(&home, &[question(&["red", "green"]), done(), done()], DAY_MS);
    let id = only(&home);
    home.run(&["inbox", "show", &id]).ok().shows("│ the door").shows("· green").shows("verger inbox reply");
    let item = home.json("verger.inbox-item.v1", &["inbox", "show", &id]);
    assert_eq!(item["context"], "the door");
    home.run(&["run", "show", text(&item, "run_id")]).ok().shows("    · green");
    home.run(&["inbox", "reply", &id, "blue"]).fails(2, "invalid_argument").says("none of the options: red | green");
    home.run(&["inbox", "approve", &id]).fails(2, "invalid_argument").says("it is a question: reply to it, or deny it");
    home.run(&["inbox", "reply", &id, "green"]).ok();
    home.run(&["inbox", "reply", &id, "red"]).fails(4, "prompt_closed").says("it was answered with `green` at 2");
    home.run(&["inbox", "show", &id]).ok().shows("│ the door").shows("next: verger run resume run_");
    assert_eq!(items(&home, "answered")[0]["response"]["text"], "green");
}

#[test]
fn l36_an_answer_that_comes_too_late_is_refused_and_the_act_does_not_happen() {
    let home = Home::new();
    start(&home, &[create("order the seeds"), done(), done()], 1);
    // Nobody has written the expiry down yet: whoever only looks works it out.
    home.run(&["inbox", "list"]).ok().shows("nothing waits for an answer");
    let [item] = items(&home, "expired").try_into().expect("one item is expired");
    let id = text(&item, "id").to_owned();
    assert_eq!((&item["status"], &item["resolved_at"]), (&json!("expired"), &Value::Null));
    let run = text(&item, "run_id").to_owned();
    let shown = home.run(&["inbox", "show", &id]).ok().shows("· expired 2").shows(&format!("next: verger run resume {run}"));
    assert!(!shown.stdout.contains("approve"), "{}", shown.stdout);
    home.run(&["run", "show", &run]).ok().shows("its question is expired").shows(&format!("next: verger run resume {run}"));
    home.run(&["run", "list"]).ok().shows("waiting: expired");
    home.run(&["inbox", "approve", &id]).fails(5, "prompt_expired").says("expired at");
    assert_eq!((items(&home, "open").len(), items(&home, "expired").len()), (0, 1));
    home.run(&["inbox", "approve", &id]).fails(5, "prompt_expired");
    home.run(&["run", "resume"]).ok();
    assert_eq!(tasks(&home), 0);
}

#[test]
fn l32_a_cancelled_run_takes_its_questions_back() {
    let home = Home::new();
    start(&home, &[create("order the seeds"), done()], DAY_MS);
    let id = only(&home);
    let run = text(&items(&home, "open")[0], "run_id").to_owned();
    home.run(&["run", "cancel", &run]).ok();
    home.run(&["inbox", "approve", &id]).fails(4, "prompt_closed").says("it is withdrawn");
    assert_eq!((items(&home, "withdrawn").len(), tasks(&home)), (1, json!(0)));
}

#[test]
fn inbox_arguments_that_cannot_be_are_refused_and_answer_nothing() {
    let home = Home::new();
    start(&home, &[create("order the seeds"), done()], DAY_MS);
    let id = only(&home);
    let check = |arguments: &[&str], exit: i32, code: &str, says: &str| {
        let arguments: Vec<_> = ["--json", "inbox"].iter().chain(arguments).copied().collect();
        let error = home.run(&arguments).fails(exit, code).says(says).error();
        assert_eq!(error["code"], code, "{error:#}");
    };
    let unknown = "ask_0000000000000000000000000a";
    check(&["show", unknown], 3, "prompt_not_found", unknown);
    check(&["approve", unknown], 3, "prompt_not_found", unknown);
    check(&["reply", unknown, "x"], 3, "prompt_not_found", unknown);
    check(&["approve", "task_0000000000000000000000000a"], 2, "invalid_argument", "is not a");
    check(&["approve"], 2, "invalid_argument", "<ITEM>");
    check(&["reply", &id], 2, "invalid_argument", "<TEXT>");
    check(&["reply", &id, "yes"], 2, "invalid_argument", "an act waits for it: approve or deny it");
    check(&["deny", &id, "--reason", &"x".repeat(4_097)], 2, "invalid_argument", "at most 4096 bytes");
    check(&["deny", &id, "--reason", "esc \u{1b}[2J"], 2, "invalid_argument", "no control characters");
    check(&["list", "--status", "new"], 2, "invalid_argument", "open, answered, expired or withdrawn");
    check(&["list", "--limit", "0"], 2, "invalid_argument", "1 to 1000");
    check(&["list", "--after", "yesterday"], 2, "invalid_argument", "after: ");
    assert_eq!(only(&home), id);
}

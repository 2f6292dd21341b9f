//! Runs from outside: a manifest goes in, durable work comes out, and whatever happens in between, it comes out once.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::snapshots::redacted;
use crate::support::{Answer, Home, list, start, text};

const PLANNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/agents/planner.yaml");

fn create(what: &str) -> Value {
    json!({ "action": "create_task", "task": { "description": format!("see to the {what}"), "preconditions": [] }, "justification": "" })
}

fn done() -> Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}

/// A manifest of an agent that works by itself.
fn manifest(script: &[Value]) -> Value {
    json!({
        "schema": 1, "agent": "gardener", "prompt": "look after the garden", "mode": "yolo",
        "model": { "provider": "scripted", "script": script },
    })
}

fn written(home: &Home, manifest: &Value) -> String {
    home.file("manifest.json", manifest.to_string().as_bytes())
}

/// Starts a run that comes to rest without an error, and gives its document.
fn started(home: &Home, manifest: &str, key: &str) -> Value {
    home.json("verger.run.v1", &["run", "start", "--manifest", manifest, "--operation-id", key])
}

/// How many tasks there are.
fn tasks(home: &Home) -> Value {
    home.json("verger.tasks.v1", &["task", "list"])["total"].clone()
}

fn replays(home: &Home, run: &str) -> Value {
    home.json("verger.run-replay.v1", &["run", "replay", run])["result"].clone()
}

#[test]
fn l33_the_example_runs_waits_for_a_person_and_can_be_looked_at_whole() {
    let home = Home::new();
    home.run(&["run", "list"]).ok().shows("no runs here yet");
    let waits = started(&home, PLANNER, "spring");
    let run = text(&waits, "id");
    assert_eq!((&waits["status"], &waits["waiting"]["reason"], &waits["cycles"]), (&json!("waiting"), &json!("people"), &json!(5)));
    let ask = text(&list(&waits, "asks")[0], "id").to_owned();
    assert_eq!(waits["next"], format!("verger inbox approve {ask}, then verger run resume {run}"));
    assert_eq!(tasks(&home), 2);
    home.run(&["inbox", "approve", &ask]).ok();
    let ended = home.json("verger.run.v1", &["run", "resume", run]);
    assert_eq!((&ended["status"], &ended["operations"], &ended["asks"]), (&json!("succeeded"), &json!(4), &json!([])));
    home.run(&["run", "replay", run]).ok().shows("identical (12 steps, 7 cycles), ends succeeded");
    let shown = |arguments: &[&str]| traceless(&home.run(arguments).ok().stdout);
    insta::assert_snapshot!("run-list", shown(&["run", "list"]));
    insta::assert_snapshot!("run-show", shown(&["run", "show", run]));
    insta::assert_snapshot!("run-trace", shown(&["run", "trace", run]));
    insta::assert_snapshot!("policy-explain", shown(&["policy", "explain", "--run", run, "--cycle", "4"]));
    let trace = home.json("verger.run-trace.v1", &["run", "trace", run]);
    assert_eq!((&trace["run"]["id"], list(&trace, "cycles").len()), (&json!(run), 7));
    home.assert_sound();
}

/// What the shared redaction leaves: short operation ids, the short run key, and how long something took.
fn traceless(output: &str) -> String {
    let mut shown = String::new();
    for line in redacted(output).lines() {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for place in 0..words.len() {
            if words[place].starts_with("op_") && words[place].ends_with(':') {
                words[place] = "op_xxxxxxxx:".to_owned();
            }
            if place > 0 && words[place] == "ms" {
                words[place - 1] = "0".to_owned();
            }
            if place > 0 && words[place - 1] == "key" && words[place].ends_with('…') {
                words[place] = "ffffffff…".to_owned();
            }
        }
        shown.push_str(&words.join(" "));
        shown.push('\n');
    }
    shown
}

#[test]
fn k17_the_same_key_is_the_same_run_and_gives_its_result() {
    let home = Home::new();
    let manifest = written(&home, &manifest(&[create("beans"), done()]));
    let first = started(&home, &manifest, "monday");
    assert_eq!((&first["status"], &first["operations"]), (&json!("succeeded"), &json!(1)));
    let again = started(&home, &manifest, "monday");
    assert_eq!(again, first);
    assert_eq!(list(&home.json("verger.runs.v1", &["run", "list"]), "runs").len(), 1);
    assert_eq!(tasks(&home), 1);
    let other = started(&home, &manifest, "tuesday");
    assert_ne!(other["id"], first["id"]);
    assert_eq!(tasks(&home), 2);
    // Another manifest under a key that was used is another request, and does not touch the agent.
    let changed = home.file("changed.json", self::manifest(&[done()]).to_string().as_bytes());
    for key in ["monday", "tuesday"] {
        let reused = home.run(&["run", "start", "--manifest", &changed, "--operation-id", key]).fails(4, "operation_id_reused");
        reused.says(&format!("`{key}`"));
    }
    assert_eq!(started(&home, &manifest, "monday"), first);
}

#[test]
fn k17_a_run_is_found_by_the_beginning_of_its_id() {
    let home = Home::new();
    let manifest = written(&home, &manifest(&[done()]));
    let run = started(&home, &manifest, "one");
    let run = text(&run, "id");
    home.run(&["run", "show", &run[..12]]).ok().shows(run);
    home.run(&["run", "show", "run_zzzzzzzzzz"]).fails(3, "run_not_found").says("`verger run list`");
    home.run(&["run", "show", "run_00000000000000000000000000"]).fails(3, "run_not_found");
    home.run(&["run", "show", "note_2srs36v16b0y619sw3jgxxsjgs"]).fails(2, "invalid_argument");
    home.run(&["run", "show", "run"]).fails(2, "invalid_argument");
    home.run(&["run", "replay"]).fails(2, "invalid_argument");
    home.run(&["run", "replay", run, "--file", "x"]).fails(2, "invalid_argument");
    home.run(&["policy", "explain"]).fails(2, "invalid_argument");
    home.run(&["policy", "explain", "--run", run]).fails(2, "invalid_argument");
    home.run(&["policy", "explain", "--run", run, "--cycle", "9"]).fails(2, "invalid_argument").says("has cycles 1 to 1");
    home.run(&["policy", "explain", "--agent", "nobody", "--tool", "ask"]).fails(3, "agent_not_found");
}

#[test]
fn k18_every_bound_ends_a_run_with_its_code() {
    let cases = [
        (json!({ "bounds": { "max_iterations": 2 } }), 5, "ITERATION_LIMIT"),
        (json!({ "bounds": { "max_tokens": 1 } }), 5, "token_limit"),
        (json!({ "model": { "provider": "scripted", "script": [create("beans")] } }), 5, "script_ended"),
        (json!({ "capabilities": ["taskWrite"] }), 5, "capability_denied"),
    ];
    for (change, exit, code) in cases {
        let home = Home::new();
        let mut manifest = manifest(&[create("beans"), create("peas"), create("leeks"), done()]);
        for (field, value) in change.as_object().expect("a case is an object") {
            manifest[field] = value.clone();
        }
        let file = written(&home, &manifest);
        let answer = home.run(&["--json", "run", "start", "--manifest", &file]).fails(exit, code);
        let document = answer.document("verger.run.v1");
        assert_eq!((&document["status"], &document["code"]), (&json!("failed"), &json!(code)));
        assert_eq!(replays(&home, text(&document, "id")), "identical");
    }
}

#[test]
fn k18_whoever_resumes_all_learns_which_failed() {
    let home = Home::new();
    let mut manifest = manifest(&[create("beans"), create("peas"), done()]);
    manifest["bounds"] = json!({ "max_iterations": 1 });
    let file = written(&home, &manifest);
    home.run(&["stop"]).ok();
    let run = started(&home, &file, "one");
    home.run(&["stop", "--release"]).ok();
    let answer = home.run(&["--json", "run", "resume"]).fails(5, "ITERATION_LIMIT");
    let resumed = answer.document("verger.runs-resumed.v1");
    assert_eq!(resumed["runs"][0]["id"], run["id"]);
    // Several may be under way, so each line names its run.
    answer.says(&format!("{} cycle 1: create_task is done", &text(&run, "id")[..12])).says("failed after 1 cycle\n");
    home.run(&["run", "resume"]).ok().shows("nothing can go on now");
}

#[test]
fn l36_a_yes_that_came_too_late_for_what_it_was_made_on_is_said_so() {
    let home = Home::new();
    let waits = started(&home, PLANNER, "spring");
    let (run, ask) = (text(&waits, "id"), text(&waits["asks"][0], "id").to_owned());
    let board = home.json("verger.tasks.v1", &["task", "list"]);
    let task = list(&board, "tasks").iter().find(|task| task["status"] == "in_progress").expect("one is in progress");
    home.run(&["task", "edit", text(task, "id"), "--description", "Decide on fewer vegetables"]).ok();
    home.run(&["inbox", "approve", &ask]).ok();
    let answer = home.run(&["run", "resume", run]).ok();
    let again = home.json("verger.run.v1", &["run", "show", run]);
    let again = text(&again["asks"][0], "id");
    assert_ne!(again, ask);
    answer.shows(&format!("approved persist_artifact as {ask}, but superseded: asked again as {again}"));
    let trace = home.run(&["run", "trace", run]).ok();
    assert!(!trace.stdout.contains("superseded, superseded"), "{}", trace.stdout);
}

#[test]
fn k20_answers_that_do_not_read_fail_the_run_and_change_nothing() {
    let two = format!("{} {}", create("beans"), create("peas"));
    let script = [json!("I have done everything already."), json!(two), json!({ "action": "fly", "task_id": "x" })];
    let home = Home::new();
    let file = written(&home, &manifest(&script));
    let answer = home.run(&["--json", "run", "start", "--manifest", &file]).fails(5, "proposal_invalid");
    let run = answer.document("verger.run.v1");
    assert_eq!((&run["cycles"], &run["operations"], tasks(&home)), (&json!(3), &json!(0), json!(0)));
    let trace = home.run(&["run", "trace", text(&run, "id")]).ok();
    trace.shows("fault no_proposal").shows("fault several_proposals").shows("fault unknown_action");
}

#[test]
fn d15_an_agent_that_forgets_repeats_and_lies_about_completion_does_no_harm() {
    let invented =
        json!({ "action": "select_next_task", "task_id": "task_2srs36v16b0y619sw3jgxxsjgs", "reasoning": "it is urgent" });
    let select = json!({ "action": "select_next_task", "task_id": "$next_task", "reasoning": "" });
    let again = json!({ "action": "select_next_task", "task_id": "$current_task", "reasoning": "" });
    let script = [create("beans"), invented, select, again, json!("All tasks are completed."), done()];
    let home = Home::new();
    let run = started(&home, &written(&home, &manifest(&script)), "liar");
    assert_eq!((&run["status"], &run["operations"]), (&json!("succeeded"), &json!(3)));
    let document = home.json("verger.tasks.v1", &["task", "list"]);
    let states: Vec<_> = list(&document, "tasks").iter().map(|task| text(task, "status")).collect();
    assert_eq!(states, ["in_progress"], "the model's word changes nothing");
    let trace = home.run(&["run", "trace", text(&run, "id")]).ok();
    // Choosing its task once more writes nothing.
    trace.shows("refused, unsafe_target").shows("fault no_proposal");
    let changes = home.json("verger.log-entries.v1", &["log", "tail"]);
    let of_task = list(&changes, "entries").iter().filter(|entry| entry["kind"] == json!("task")).count();
    assert_eq!(of_task, 2, "made and begun");
    assert_eq!(replays(&home, text(&run, "id")), "identical");
}

#[test]
fn l32_a_run_that_waits_can_be_cancelled_once() {
    let home = Home::new();
    let run = started(&home, PLANNER, "spring");
    let run = text(&run, "id");
    let cancelled = home.json("verger.run.v1", &["run", "cancel", run, "--operation-id", "enough"]);
    assert_eq!((&cancelled["status"], &cancelled["code"]), (&json!("cancelled"), &json!("cancelled")));
    home.run(&["run", "show", run]).ok().shows(&format!("{run} cancelled\n"));
    home.run(&["run", "trace", run]).ok().shows("─ ended cancelled, 2");
    home.run(&["run", "list"]).ok().shows("cancelled  5");
    assert_eq!(home.json("verger.run.v1", &["run", "cancel", run, "--operation-id", "enough"]), cancelled);
    home.run(&["run", "cancel", run]).fails(4, "run_ended");
    home.run(&["run", "resume", run]).fails(5, "cancelled");
    assert_eq!(replays(&home, run), "identical");
}

#[test]
fn l30_a_budget_of_zero_asks_nobody_and_says_what_to_do() {
    let home = Home::new();
    let mut manifest = manifest(&[create("beans"), done()]);
    manifest["budget"] = json!({ "tokens": 0, "cost_micros": 0, "runtime_ms": 0, "tool_calls": 0 });
    let file = written(&home, &manifest);
    let warned = home.run(&["run", "start", "--manifest", &file, "--operation-id", "broke"]).ok();
    warned.says("warning: one ask reserves 4000 tokens, more than the manifest's budget of 0 for a day");
    let run = started(&home, &file, "broke");
    assert_eq!((&run["status"], &run["waiting"]["reason"], &run["cycles"]), (&json!("waiting"), &json!("budget"), &json!(0)));
    assert!(text(&run, "next").starts_with("verger budget set --agent gardener"), "{run:#}");
    assert_eq!(tasks(&home), 0);
    home.run(&["run", "show", text(&run, "id")])
        .ok()
        .shows("tokens of the day: limit 0, used 0, wanted 4000")
        .shows("next: verger budget set --agent gardener --tokens N with 4000 or more, then verger run resume");
    let why = home.run(&["policy", "explain", "--agent", "gardener", "--tool", "ask"]).ok();
    why.shows("deny, tokens of the day [budget_exceeded]").shows("tokens: limit 0, used 0, wanted 4000");
    let why = home.run(&["policy", "explain", "--agent", "gardener", "--tool", "ask", "--tokens", "1"]).ok();
    why.shows("tokens: limit 0, used 0, wanted 1");
    home.run(&["budget", "set", "--agent", "gardener", "--tokens", "50000", "--runtime-ms", "600000", "--tool-calls", "50"]).ok();
    let ended = home.json("verger.run.v1", &["run", "resume", text(&run, "id")]);
    assert_eq!((&ended["status"], tasks(&home)), (&json!("succeeded"), json!(1)));
}

#[test]
fn a_manifest_that_does_not_read_is_refused_with_its_line_and_touches_no_home() {
    let good = "schema: 1\nagent: gardener\nprompt: look after it\nmodel: { provider: scripted, script: [] }\n";
    let cases: &[(&str, &str)] = &[
        ("", "it is empty; a manifest is a mapping with the fields `schema`, `agent`, `prompt`, `model`"),
        ("[1, 2]", "it is a list; a manifest is a mapping"),
        ("prompt: x\n", "broken.yaml: schema: it is missing"),
        (&good.replace("schema: 1", "schema: '1'"), "line 1: schema: a whole number is expected"),
        (&good.replace(", script: []", ""), "line 4: model: `script` is missing"),
        ("schema: 1\nagent: gardener\nagent: cook\n", "line 3: duplicate mapping key: agent"),
        (&good.replace("schema: 1", "schema: 7"), "line 1: schema: 7 is not known"),
        (&good.replace("gardener", "The Gardener"), "line 2: agent: a name has"),
        (&good.replace("prompt: look after it", "prompt: ''"), "line 3: prompt: it has 1 to 32768 bytes"),
        (&good.replace("scripted", "oracle"), "line 4: "),
        (&format!("{good}mood: sunny\n"), "line 5: unknown field `mood`"),
        (&format!("{good}mode: wild\n"), "line 5: mode: `wild` is not one of reviewed, yolo"),
        (&format!("{good}tools: [fly]\n"), "line 5: tools: `fly` is not a tool"),
        (&format!("{good}bounds: {{ max_iterations: 0 }}\n"), "line 5: bounds: "),
        (&format!("{good}budget: {{ tokens: -1, cost_micros: 0, runtime_ms: 0, tool_calls: 0 }}\n"), "line 5: budget: "),
        (&format!("{good}title: &x y\n"), "without anchors and aliases"),
        (&format!("{good}prompt: {}\n", "x".repeat(300_000)), "a manifest has at most 262144 bytes"),
    ];
    let home = Home::missing();
    for (content, expected) in cases {
        let file = home.file("broken.yaml", content.as_bytes());
        let answer = home.run(&["run", "start", "--manifest", &file]);
        answer.fails(2, "manifest_invalid").says("broken.yaml").says(expected);
    }
    let file = home.file("latin.yaml", b"schema: 1\nagent: caf\xe9\n");
    home.run(&["run", "start", "--manifest", &file]).fails(2, "manifest_invalid").says("line 2: it is not UTF-8");
    let missing = home.run(&["run", "start", "--manifest", "/nowhere/at/all.yaml"]).fails(2, "manifest_invalid");
    missing.says("there is no such file").says("next: look at the path");
    assert!(!home.path().exists());
    let file = home.file("good.yaml", good.as_bytes());
    home.run(&["run", "start", "--manifest", &file]).fails(6, "home_missing");
    let home = Home::new();
    let file = home.file("elsewhere.yaml", format!("{good}workspace: nowhere\n").as_bytes());
    home.run(&["run", "start", "--manifest", &file]).fails(3, "WORKSPACE_NOT_FOUND");
}

#[test]
fn l34_a_recording_replays_anywhere_and_what_was_changed_in_it_is_found() {
    let home = Home::new();
    let run = started(&home, &written(&home, &manifest(&[create("beans"), create("peas"), done()])), "one");
    let run = text(&run, "id");
    let file = home.beside("recording.json");
    let path = file.display().to_string();
    home.run(&["run", "export", run, "--out", &path]).ok().shows("wrote the recording");
    assert_eq!(std::fs::metadata(&file).expect("it was written").permissions().mode() & 0o777, 0o600);
    let next = "next: name a new file in a folder that is there; nothing was written";
    let over = home.run(&["run", "export", run, "--out", &path]).fails(2, "invalid_argument");
    over.says(&format!("out: {path}: there is something of that name, and nothing is written over")).says(next);
    let nowhere = home.run(&["run", "export", run, "--out", "/nowhere/at/all.json"]).fails(2, "invalid_argument");
    nowhere.says("out: /nowhere/at/all.json: its folder is not there").says(next);
    let whole = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(home.run(&["run", "export", run]).ok().stdout, whole, "stdout gets the same");
    let elsewhere = Home::missing();
    let replayed = |content: &str| -> Answer {
        let file = elsewhere.file("r.json", content.as_bytes());
        elsewhere.run(&["run", "replay", "--file", &file])
    };
    replayed(&whole).ok().shows("identical (6 steps, 3 cycles), ends succeeded");

    let changed = |change: &dyn Fn(&mut Value)| {
        let mut recording: Value = serde_json::from_str(&whole).expect("a recording is JSON");
        change(&mut recording);
        recording.to_string()
    };
    let shortened = changed(&|recording| recording["states"].as_array_mut().expect("a list").truncate(4));
    replayed(&shortened).ok().shows("identical (4 steps, 2 cycles), ends running");
    let lied = changed(&|recording| recording["states"][2]["run"]["operations"] = json!(7));
    replayed(&lied).fails(8, "replay_diverged").shows("diverged at cycle 2, point A, run.operations").shows("expected 7");
    let older = changed(&|recording| {
        recording["behaviour_version"] = json!(0);
        recording["a_field_of_old"] = json!(true);
    });
    replayed(&older).fails(5, "replay_unverifiable").shows("other behaviour version: the run was made by 0, this build is 1");
    let erased = changed(&|recording| {
        recording["tasks"].as_array_mut().expect("a list").remove(0);
    });
    replayed(&erased).fails(5, "replay_unverifiable").shows("unverifiable: erased");
    let cut = changed(&|recording| {
        recording["states"][1]["cycles"] = json!([]);
    });
    replayed(&cut).fails(8, "recording_damaged").says("state 1");
    replayed(&whole[..whole.len() / 2]).fails(8, "recording_damaged").says("r.json: ").says("line");
    replayed("").fails(8, "recording_damaged");
    replayed("{\"schema\": 9, \"behaviour_version\": 1}").fails(8, "recording_damaged").says("this build reads 1");
    elsewhere.run(&["run", "replay", "--file", "/nowhere.json"]).fails(8, "recording_damaged");
}

/// LIMIT: enough moments to meet every point of a cycle, few enough for a test.
const KILLS: u32 = 24;

#[test]
fn k8_killed_at_any_moment_a_run_goes_on_and_no_effect_happens_twice() {
    const CYCLES: usize = 8;
    let script: Vec<_> = (0..CYCLES).map(|n| create(&format!("bed number {n}"))).chain([done()]).collect();
    let mut manifest = manifest(&script);
    // A killed ask counts as spent, so there has to be enough for many.
    manifest["budget"] = json!({ "tokens": 1_i64 << 40, "cost_micros": 0, "runtime_ms": 1_i64 << 40, "tool_calls": 1 << 20 });
    let home = Home::new();
    let file = written(&home, &manifest);
    started(&home, &file, "whole");
    let mut left_behind = 0;
    for kill in 1..=KILLS {
        let key = format!("kill {kill}");
        let mut child = start(home.command().args(["run", "start", "--manifest", &file, "--operation-id", &key]));
        // Each line is told right after a point became durable; what follows it is what the kill interrupts.
        let told = BufReader::new(child.stderr.take().expect("stderr is piped"));
        told.lines().take(kill as usize).for_each(drop);
        child.kill().expect("our own child can be killed");
        child.wait().expect("our own child can be waited for");
        let resumed = home.json("verger.runs-resumed.v1", &["run", "resume"]);
        left_behind += list(&resumed, "runs").len();
        // Whether or not the kill came before the wake was durable, the same key finishes it.
        let ended = started(&home, &file, &key);
        assert_eq!((&ended["status"], &ended["operations"]), (&json!("succeeded"), &json!(CYCLES)), "{ended:#}");
        assert_eq!(replays(&home, text(&ended, "id")), "identical");
        let trace = home.json("verger.run-trace.v1", &["run", "trace", text(&ended, "id")]);
        assert_eq!(trace["spent"]["tokens"], ended["tokens"], "a lost ask is in the trace, too");
        assert_eq!(tasks(&home), CYCLES * (kill as usize + 1), "after kill {kill}");
    }
    println!("{left_behind} of {KILLS} runs were left behind by a kill and resumed");
    assert!(left_behind > 0, "some kill comes in the middle");
    home.assert_sound();
}

#[test]
fn l31_a_run_that_died_and_was_stopped_waits_until_it_is_released() {
    let home = Home::new();
    let mut manifest = manifest(&[create("beans"), create("peas"), create("leeks"), done()]);
    manifest["loop_delay_ms"] = json!(1000);
    let file = written(&home, &manifest);
    let mut child = start(home.command().args(["run", "start", "--manifest", &file, "--operation-id", "one"]));
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let second = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("cycle 1: create_task is done")));
    assert!(second.is_some(), "it gets as far as the pause after cycle 1");
    home.run(&["run", "list"]).ok().shows("gardener  running");
    child.kill().expect("our own child can be killed");
    child.wait().expect("our own child can be waited for");
    home.run(&["stop", "--reason", "what is it doing?"]).ok();
    let before = tasks(&home);
    let waits = started(&home, &file, "one");
    assert_eq!((&waits["status"], &waits["waiting"]["reason"]), (&json!("waiting"), &json!("stopped")));
    let run = text(&waits, "id");
    home.run(&["run", "resume", run])
        .ok()
        .shows("waiting until it is no longer stopped")
        .says("stopped: everything (what is it doing?)");
    assert_eq!(tasks(&home), before, "nothing happens while it is stopped");
    home.run(&["policy", "explain", "--agent", "gardener", "--tool", "ask"]).ok().shows("everything is stopped");
    home.run(&["stop", "--release"]).ok();
    let ended = home.json("verger.run.v1", &["run", "resume", run]);
    assert_eq!((&ended["status"], tasks(&home)), (&json!("succeeded"), json!(3)));
    assert_eq!(replays(&home, run), "identical");
}

#[test]
fn k17_a_wake_that_waits_is_queued_and_runs_after_what_was_left_behind() {
    let home = Home::new();
    let mut manifest = manifest(&[create("beans"), create("peas"), done()]);
    manifest["loop_delay_ms"] = json!(300);
    let file = written(&home, &manifest);
    let mut child = start(home.command().args(["run", "start", "--manifest", &file, "--operation-id", "first"]));
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let second = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("cycle 1: create_task is done")));
    assert!(second.is_some(), "it gets as far as cycle 1");
    child.kill().expect("our own child can be killed");
    child.wait().expect("our own child can be waited for");
    // There is one run of an agent at a time: the one that was left behind ends first.
    let began = Instant::now();
    let second = started(&home, &file, "second");
    assert_eq!(second["status"], "succeeded");
    assert!(began.elapsed() > Duration::from_millis(600), "the pauses between cycles are kept");
    let runs = home.json("verger.runs.v1", &["run", "list"]);
    let states: Vec<_> = list(&runs, "runs").iter().map(|run| (text(run, "status"), &run["operations"])).collect();
    assert_eq!(states, [("succeeded", &json!(2)), ("succeeded", &json!(2))]);
    assert_eq!(tasks(&home), 4);
}

//! Budgets from outside: what an agent may use up in a day, what it has, and what happens at the limit.

use serde_json::{Value, json};

use crate::support::{Home, list, newest_run};

fn manifest(home: &Home) -> String {
    let create = json!({ "action": "create_task", "task": { "description": "order the seeds", "preconditions": [] }, "justification": "needed" });
    let done = json!({ "action": "no_op", "reason": "campaign_complete", "details": "" });
    let manifest = json!({
        "schema": 1, "agent": "gardener", "mode": "yolo", "prompt": "do the tasks",
        "model": { "provider": "scripted", "script": [create.to_string(), done.to_string()] },
        "budget": { "tokens": 50_000, "cost_micros": 7, "runtime_ms": 60_000, "tool_calls": 9 },
        "reservation": { "tokens": 1_000, "cost_micros": 0, "runtime_ms": 1, "tool_calls": 1 },
    });
    home.file("gardener.json", manifest.to_string().as_bytes())
}

fn shown(home: &Home) -> Value {
    let document = home.json("verger.budgets.v1", &["budget", "show", "--agent", "gardener"]);
    let [budget] = list(&document, "budgets") else { panic!("one agent, one budget: {document:#}") };
    budget.clone()
}

fn set(home: &Home, arguments: &[&str]) -> Value {
    let arguments: Vec<_> = ["budget", "set", "--agent", "gardener"].iter().chain(arguments).copied().collect();
    home.json("verger.budget-set.v1", &arguments)
}

#[test]
fn l30_what_a_run_used_is_counted_for_the_day_and_nothing_stays_reserved() {
    let home = Home::new();
    home.run(&["budget", "show"]).ok().shows("no agents here yet");
    home.run(&["run", "start", "--manifest", &manifest(&home)]).ok();
    let budget = shown(&home);
    assert_eq!(budget["limits"], json!({ "tokens": 50_000, "cost_micros": 7, "runtime_ms": 60_000, "tool_calls": 9 }));
    assert_eq!(budget["reserved"], json!({ "tokens": 0, "cost_micros": 0, "runtime_ms": 0, "tool_calls": 0 }));
    let used = budget["used"]["tokens"].as_i64().expect("a number");
    assert!(used > 0, "{budget:#}");
    assert_eq!(
        (&budget["used"]["tool_calls"], &budget["set_by_person"], &budget["zone"]),
        (&json!(1), &json!(false), &json!("UTC"))
    );
    home.run(&["run", "start", "--manifest", &manifest(&home)]).ok();
    let more = shown(&home);
    assert_eq!(more["used"]["tool_calls"], 2, "the day's use grows from run to run");
    assert!(more["used"]["tokens"].as_i64() > Some(used), "{more:#}");
    home.run(&["budget", "show"]).ok().shows("gardener").shows("the manifest's").shows("tool_calls");
}

#[test]
fn l30_a_budget_of_nothing_holds_a_run_until_it_is_raised() {
    let home = Home::new();
    let manifest = manifest(&home);
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    let before = shown(&home);
    let budget = set(&home, &["--tokens", "0"]);
    assert_eq!((&budget["limits"]["tokens"], &budget["limits"]["tool_calls"]), (&json!(0), &json!(9)), "what was not given stays");
    home.run(&["budget", "show"]).ok().shows("nothing may be spent").shows("set by you");
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    home.run(&["run", "resume"]).ok();
    assert_eq!(newest_run(&home), json!(["waiting", "budget", 0]));
    assert_eq!(shown(&home)["used"], before["used"], "nothing was spent");
    set(&home, &["--tokens", "50000"]);
    home.run(&["run", "resume"]).ok();
    assert_eq!(newest_run(&home), json!(["succeeded", null, 1]));
}

#[test]
fn l30_a_soft_limit_warns_before_the_hard_one() {
    let home = Home::new();
    home.run(&["run", "start", "--manifest", &manifest(&home)]).ok();
    let used = shown(&home)["used"]["tokens"].as_i64().expect("a number");
    let limit = (2 * used).to_string();
    let budget = set(&home, &["--tokens", &limit, "--soft-percent", "50"]);
    assert_eq!((&budget["over_soft_limit"], &budget["spent"]), (&json!(["tokens"]), &json!([])));
    home.run(&["budget", "show"]).ok().shows("over 50 %");
    let budget = set(&home, &["--soft-percent", "51"]);
    assert_eq!(budget["over_soft_limit"], json!([]));
    let budget = set(&home, &["--tokens", &used.to_string()]);
    assert_eq!(budget["spent"], json!(["tokens"]));
}

#[test]
fn budget_arguments_that_cannot_be_are_refused_and_set_nothing() {
    let home = Home::new();
    home.run(&["run", "start", "--manifest", &manifest(&home)]).ok();
    let before = shown(&home);
    let check = |arguments: &[&str], exit: i32, code: &str, says: &str| {
        let arguments: Vec<_> = ["--json", "budget"].iter().chain(arguments).copied().collect();
        let error = home.run(&arguments).fails(exit, code).says(says).error();
        assert_eq!(error["code"], code, "{error:#}");
    };
    check(&["set", "--tokens", "1"], 2, "invalid_argument", "--agent");
    check(&["set", "--agent", "gardener"], 2, "invalid_argument", "nothing to set");
    check(&["set", "--agent", "gardener", "--tokens", "-1"], 2, "invalid_argument", "an amount is 0 to");
    check(&["set", "--agent", "gardener", "--tool-calls", "1125899906842625"], 2, "invalid_argument", "tool-calls: ");
    check(&["set", "--agent", "gardener", "--tokens", "lots"], 2, "invalid_argument", "lots");
    check(&["set", "--agent", "gardener", "--cost-micros", "1.5"], 2, "invalid_argument", "1.5");
    check(&["set", "--agent", "gardener", "--soft-percent", "0"], 2, "invalid_argument", "1 to 100");
    check(&["set", "--agent", "gardener", "--soft-percent", "101"], 2, "invalid_argument", "1 to 100");
    check(&["set", "--agent", "nobody", "--tokens", "1"], 3, "agent_not_found", "`nobody`");
    check(&["show", "--agent", "nobody"], 3, "agent_not_found", "`nobody`");
    check(&["show", "--workspace", "attic"], 3, "WORKSPACE_NOT_FOUND", "`attic`");
    assert_eq!(shown(&home), before);
    let first = set(&home, &["--tokens", "5", "--operation-id", "five"]);
    let again = set(&home, &["--tokens", "5", "--operation-id", "five"]);
    assert_eq!((&first["repeated"], &again["repeated"]), (&json!(false), &json!(true)));
    let other = ["budget", "set", "--agent", "gardener", "--tokens", "6", "--operation-id", "five"];
    home.run(&other).fails(4, "operation_id_reused");
}

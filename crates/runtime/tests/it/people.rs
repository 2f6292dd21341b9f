//! People's commands on the house: tasks, the inbox, stops and budgets, beside runs that feel them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::manifest::Manifest;
use control::run::{RunStatus, WaitReason};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::{AgentId, HostId, PromptItemId, TaskId};
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::prompt::{PromptState, Verdict};
use domain::records::slug::Slug;
use domain::records::switch::SwitchSubject;
use domain::records::task::TaskStatus;
use runtime::engine::Scripted;
use runtime::{BudgetChange, House, TaskChange, TaskDraft};
use serde_json::json;
use store::Committer;
use store::store::Reader;

use crate::house::{Shared, Stores, key, manifest, start, work};

fn create(description: &str) -> serde_json::Value {
    json!({ "action": "create_task", "task": { "description": description, "preconditions": [] }, "justification": "it is needed" })
}

fn no_op() -> serde_json::Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}

fn ask(options: &[&str]) -> serde_json::Value {
    json!({ "action": "request_user_input", "question": "Which colour?", "options": options, "context": "the page" })
}

/// An agent that asks before it changes anything.
fn reviewed(script: &[serde_json::Value]) -> Manifest {
    let mut manifest = manifest(script);
    manifest.mode = serde_json::from_value(json!("reviewed")).expect("a mode of the manifest");
    manifest
}

fn draft(description: &str, preconditions: &[TaskId]) -> TaskDraft {
    let preconditions = preconditions.to_vec();
    TaskDraft { description: description.into(), preconditions, workspace: "home".into(), ..TaskDraft::default() }
}

fn needs(preconditions: &[TaskId]) -> TaskChange {
    TaskChange { preconditions: Some(preconditions.to_vec()), ..TaskChange::default() }
}

fn status(status: TaskStatus, reason: Option<&str>) -> TaskChange {
    TaskChange { status: Some(status), reason: reason.map(Into::into), ..TaskChange::default() }
}

fn only_item(house: &House) -> PromptItemId {
    let page = house.prompts(PromptState::Open, 10, None).expect("the inbox can be read");
    let [record] = page.items.as_slice() else { panic!("one item is open: {page:#?}") };
    record.id
}

#[test]
fn d6_a_person_may_call_a_task_done_and_the_task_says_so() {
    let mut house = Stores::new().house();
    let id = house.add_task(&draft("Water the beds", &[]), &key("add")).unwrap().id;
    house.edit_task(id, &status(TaskStatus::Done, None), &key("done")).unwrap();
    let task = house.task(id).unwrap().record.task;
    assert_eq!((task.status, task.completed_by), (TaskStatus::Done, Some(task.created_by)));
    assert!(task.completed_at.is_some());
    house.edit_task(id, &status(TaskStatus::Blocked, Some("no water")), &key("blocked")).unwrap();
    let task = house.task(id).unwrap().record.task;
    assert_eq!((task.completed_at, task.completed_by, task.blocked_reason.as_deref()), (None, None, Some("no water")));
    for (change, argument) in [
        (status(TaskStatus::Pending, Some("why")), "reason"),
        (status(TaskStatus::Blocked, Some(" ")), "reason"),
        (TaskChange::default(), "task edit"),
    ] {
        let error = house.edit_task(id, &change, &key("bad")).unwrap_err();
        assert_eq!((error.code, &error.details["argument"]), (ErrorCode::InvalidArgument, &json!(argument)), "{change:?}");
    }
    house.edit_task(id, &status(TaskStatus::Pending, None), &key("again")).unwrap();
    assert_eq!(house.task(id).unwrap().record.task.blocked_reason, None);
}

#[test]
fn d6_tasks_do_not_wait_in_a_circle_nor_across_workspaces() {
    let mut house = Stores::new().house();
    let first = house.add_task(&draft("first", &[]), &key("1")).unwrap().id;
    let second = house.add_task(&draft("second", &[first]), &key("2")).unwrap().id;
    let third = house.add_task(&draft("third", &[second]), &key("3")).unwrap().id;
    for wanted in [first, second, third] {
        let error = house.edit_task(first, &needs(&[wanted]), &key("circle")).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{wanted}");
    }
    house.create_workspace("attic", "Attic").unwrap();
    let other = TaskDraft { workspace: "attic".into(), ..draft("elsewhere", &[]) };
    let other = house.add_task(&other, &key("4")).unwrap().id;
    assert_eq!(house.edit_task(first, &needs(&[other]), &key("far")).unwrap_err().code, ErrorCode::InvalidArgument);
    house.remove_task(other, None, &key("5")).unwrap();
    assert_eq!(house.edit_task(first, &needs(&[other]), &key("gone")).unwrap_err().code, ErrorCode::TaskNotFound);
    assert_eq!(house.tasks_waiting_for(first).unwrap(), [second]);
    let page = house.tasks("home", None, 10, None).unwrap();
    let ready: Vec<_> = page.tasks.iter().map(|record| (record.id, record.ready)).collect();
    assert_eq!(ready, [(third, false), (second, false), (first, true)]);
}

#[test]
fn l20_a_repeated_task_command_gives_its_first_answer_whatever_became_of_the_task() {
    let mut house = Stores::new().house();
    let needed = house.add_task(&draft("needed", &[]), &key("needed")).unwrap().id;
    let first = house.add_task(&draft("waits", &[needed]), &key("add")).unwrap();
    house.remove_task(needed, None, &key("rm")).unwrap();
    let again = house.add_task(&draft("waits", &[needed]), &key("add")).unwrap();
    assert_eq!((again.id, again.version, again.repeated), (first.id, 1, true));
    let edited = house.edit_task(first.id, &status(TaskStatus::Done, None), &key("edit")).unwrap();
    house.remove_task(first.id, None, &key("rm 2")).unwrap();
    let again = house.edit_task(first.id, &status(TaskStatus::Done, None), &key("edit")).unwrap();
    assert_eq!((again.version, again.repeated), (edited.version, true));
    let reused = house.edit_task(first.id, &status(TaskStatus::Pending, None), &key("edit")).unwrap_err();
    assert_eq!(reused.code, ErrorCode::OperationIdReused);
    assert_eq!(house.task(first.id).unwrap_err().code, ErrorCode::TaskNotFound);
    house.restore_task(first.id, &key("restore")).unwrap();
    assert_eq!(house.task(first.id).unwrap().record.task.status, TaskStatus::Done);
    assert_eq!(house.restore_task(first.id, &key("restore 2")).unwrap_err().code, ErrorCode::InvalidArgument);
    assert!(house.restore_task(first.id, &key("restore")).unwrap().repeated);
}

#[test]
fn tasks_are_listed_page_by_page_by_status() {
    let mut house = Stores::new().house();
    let ids: Vec<_> =
        (0..5).map(|n| house.add_task(&draft(&format!("task {n}"), &[]), &key(&format!("add {n}"))).unwrap().id).collect();
    house.edit_task(ids[1], &status(TaskStatus::Done, None), &key("done")).unwrap();
    for (wanted, expect) in
        [(None, vec![4, 3, 2, 1, 0]), (Some(TaskStatus::Pending), vec![4, 3, 2, 0]), (Some(TaskStatus::Blocked), vec![])]
    {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = house.tasks("home", wanted, 2, after.as_deref()).unwrap();
            assert_eq!(page.total, expect.len() as u64);
            found.extend(page.tasks.iter().map(|record| record.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expect.iter().map(|n| ids[*n]).collect::<Vec<_>>(), "{wanted:?}");
    }
}

#[test]
fn l22_what_needs_a_person_waits_for_one_answer_and_the_first_one_counts() {
    let mut house = Stores::new().house();
    let (_, run) = start(&mut house, &reviewed(&[create("plant beans"), no_op()]), "one");
    work(&mut house, &mut Scripted);
    assert_eq!(house.run(&run).unwrap().status, RunStatus::Waiting);
    assert_eq!(house.tasks("home", None, 10, None).unwrap().total, 0, "nothing happens without the person");
    let item = only_item(&house);
    let reply = house.reply(item, "beans", &key("reply")).unwrap_err();
    assert_eq!(reply.code, ErrorCode::InvalidArgument, "an act is approved or denied");
    house.answer(item, Verdict::Approve, "", &key("yes")).unwrap();
    house.answer(item, Verdict::Approve, "", &key("yes")).unwrap();
    let twice = house.answer(item, Verdict::Deny, "", &key("no")).unwrap_err();
    assert_eq!(twice.code, ErrorCode::PromptClosed);
    work(&mut house, &mut Scripted);
    let tasks = house.tasks("home", None, 10, None).unwrap();
    assert_eq!((tasks.total, tasks.tasks[0].task.description.as_str()), (1, "plant beans"));
    let shown = house.prompt(item).unwrap();
    assert_eq!((shown.item.status, shown.response.unwrap().verdict), (PromptState::Answered, Verdict::Approve));
}

#[test]
fn l36_an_answer_that_comes_too_late_is_told_so_whether_or_not_the_expiry_was_noticed() {
    let mut house = Stores::new().house();
    let mut agent = reviewed(&[create("plant beans"), no_op()]);
    agent.approval_ttl_ms = 1;
    start(&mut house, &agent, "one");
    work(&mut house, &mut Scripted);
    assert_eq!(house.prompts(PromptState::Open, 10, None).unwrap().items, []);
    let [record] = house.prompts(PromptState::Expired, 10, None).unwrap().items.try_into().expect("one item is expired");
    let item = record.id;
    let late = |house: &mut House, name: &str| house.answer(item, Verdict::Approve, "", &key(name)).unwrap_err().code;
    assert_eq!(late(&mut house, "late"), ErrorCode::PromptExpired);
    assert_eq!(house.expire().unwrap(), 1);
    assert_eq!(late(&mut house, "later"), ErrorCode::PromptExpired);
    assert_eq!(house.prompt(item).unwrap().item.status, PromptState::Expired);
}

#[test]
fn l36_expired_items_are_listed_in_one_order_whether_or_not_the_expiry_was_noticed() {
    let mut house = Stores::new().house();
    let mut agent = reviewed(&[create("plant beans"), no_op()]);
    agent.approval_ttl_ms = 1;
    for (name, noticed) in [("one", true), ("two", false), ("three", false)] {
        agent.agent = Slug::parse(name).unwrap();
        start(&mut house, &agent, name);
        work(&mut house, &mut Scripted);
        if noticed {
            house.expire().unwrap();
        }
    }
    let whole = house.prompts(PromptState::Expired, 10, None).unwrap();
    assert_eq!((whole.items.len(), &whole.next), (3, &None));
    assert!(whole.items.windows(2).all(|pair| pair[0].item.required_by >= pair[1].item.required_by), "{whole:#?}");
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = house.prompts(PromptState::Expired, 1, after.as_deref()).unwrap();
        paged.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole.items);
}

#[test]
fn l36_a_choice_is_answered_by_one_of_its_options() {
    let mut house = Stores::new().house();
    start(&mut house, &reviewed(&[ask(&["red", "green"]), no_op()]), "one");
    work(&mut house, &mut Scripted);
    let item = only_item(&house);
    for bad in ["", "blue"] {
        assert_eq!(house.reply(item, bad, &key("bad")).unwrap_err().code, ErrorCode::InvalidArgument, "{bad}");
    }
    let long = "x".repeat(domain::limits::PERSON_TEXT_BYTES_MAX + 1);
    assert_eq!(house.answer(item, Verdict::Deny, &long, &key("long")).unwrap_err().code, ErrorCode::InvalidArgument);
    house.reply(item, "green", &key("good")).unwrap();
    assert_eq!(house.prompt(item).unwrap().response.unwrap().text, "green");
}

#[test]
fn l31_a_stop_that_is_repeated_after_its_release_stops_nothing_and_raises_no_fence() {
    let mut house = Stores::new().house();
    let everything = SwitchSubject::Everything;
    let stopped = house.stop(&everything, "drill", &key("stop")).unwrap();
    assert_eq!((stopped.epoch, stopped.durable.as_slice(), stopped.repeated), (1, Domain::ALL, false));
    let again = house.stop(&everything, "drill", &key("stop")).unwrap();
    assert_eq!((again.epoch, again.durable.as_slice(), again.repeated), (1, Domain::ALL, true), "it still holds");
    assert!(house.release(&everything, &key("release")).unwrap());
    let late = house.stop(&everything, "drill", &key("stop")).unwrap();
    assert!(late.repeated && late.durable.is_empty() && house.stops().unwrap().is_empty());
    let other = house.stop(&everything, "another reason", &key("stop")).unwrap_err();
    assert_eq!(other.code, ErrorCode::OperationIdReused);
    // Work that is decided now gets through: no domain knows a fence that the others do not.
    let (_, run) = start(&mut house, &manifest(&[create("go on with the work"), no_op()]), "one");
    work(&mut house, &mut Scripted);
    assert_eq!((house.run(&run).unwrap().status, house.run(&run).unwrap().operations), (RunStatus::Succeeded, 1));
    house.stop(&everything, "again", &key("stop 2")).unwrap();
    assert!(house.release(&everything, &key("release")).unwrap(), "the first answer of that key");
    assert_eq!(house.stops().unwrap().len(), 1, "and yet the second stop holds");
}

/// A place that takes no commits while it is broken.
struct Fragile(Shared, Arc<AtomicBool>);

impl Committer for Fragile {
    fn host(&self) -> HostId {
        self.0.host()
    }

    fn commit(&mut self, commit: Commit) -> store::Result<Committed> {
        if self.1.load(Ordering::Relaxed) { Err(store::Error::Full("a test".into())) } else { self.0.commit(commit) }
    }

    fn heads(&mut self) -> store::Result<Vec<Head>> {
        self.0.heads()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.0.reader()
    }
}

#[test]
fn l31_a_stop_says_where_it_is_not_durable_and_its_repeat_completes_it() {
    for broken in Domain::ALL {
        let stores = Stores::new();
        let flags: Vec<_> = Domain::ALL.iter().map(|domain| Arc::new(AtomicBool::new(domain == broken))).collect();
        let place = |at: usize| Box::new(Fragile(stores.places[at].clone(), Arc::clone(&flags[at])));
        let mut house = House::new(stores.env.clone(), place(0), place(1), place(2));
        let first = house.stop(&SwitchSubject::Everything, "", &key("stop")).unwrap();
        let lost: Vec<_> = first.only_in_memory.iter().map(|(domain, error)| (*domain, error.code)).collect();
        assert_eq!(lost, [(*broken, ErrorCode::StorageFull)]);
        let others: Vec<_> = Domain::ALL.iter().copied().filter(|domain| domain != broken).collect();
        assert_eq!(first.durable, others);
        flags.iter().for_each(|flag| flag.store(false, Ordering::Relaxed));
        let again = house.stop(&SwitchSubject::Everything, "", &key("stop")).unwrap();
        assert_eq!((again.durable.as_slice(), again.only_in_memory.len()), (Domain::ALL, 0), "{broken}");
        assert_eq!(house.stops().unwrap().len(), 1);
        // Once released, work that is decided anew passes every domain's fence.
        assert!(house.release(&SwitchSubject::Everything, &key("release")).unwrap());
        let mut house = stores.house();
        let (_, run) = start(&mut house, &manifest(&[create("go on with the work"), no_op()]), "one");
        work(&mut house, &mut Scripted);
        assert_eq!((house.run(&run).unwrap().status, house.run(&run).unwrap().operations), (RunStatus::Succeeded, 1), "{broken}");
    }
}

#[test]
fn l31_a_stop_is_seen_however_many_switches_there_are() {
    let mut house = Stores::new().house();
    for n in 0..=domain::limits::PAGE_ROWS_MAX {
        let class = SwitchSubject::Tools(Slug::parse(&format!("class-{n}")).unwrap());
        house.stop(&class, "", &key(&format!("stop {n}"))).unwrap();
    }
    house.stop(&SwitchSubject::Everything, "", &key("stop all")).unwrap();
    let (_, run) = start(&mut house, &manifest(&[create("what comes too late"), no_op()]), "one");
    work(&mut house, &mut Scripted);
    let run = house.run(&run).unwrap();
    assert_eq!((run.status, run.waiting.map(|waiting| waiting.reason)), (RunStatus::Waiting, Some(WaitReason::Stopped)));
}

#[test]
fn l30_a_budget_of_nothing_holds_a_run_until_it_is_raised() {
    let mut house = Stores::new().house();
    let agent = manifest(&[create("go on with the work"), no_op()]);
    let (id, run) = start(&mut house, &agent, "one");
    assert_eq!(house.budget(id).unwrap().limits, agent.budget);
    let nothing = BudgetChange { tokens: Some(0), ..BudgetChange::default() };
    assert!(!house.set_budget(id, &nothing, &key("nothing")).unwrap());
    assert!(house.set_budget(id, &nothing, &key("nothing")).unwrap(), "a repeat");
    work(&mut house, &mut Scripted);
    let waiting = house.run(&run).unwrap().waiting.map(|waiting| (waiting.reason, waiting.until));
    let state = house.budget(id).unwrap();
    assert_eq!(waiting, Some((WaitReason::Budget, Some(state.resets_at))));
    assert_eq!((state.limits, state.used), (Amounts { tokens: 0, ..agent.budget }, Amounts::NONE));
    house.set_budget(id, &BudgetChange { tokens: Some(50_000), ..BudgetChange::default() }, &key("more")).unwrap();
    work(&mut house, &mut Scripted);
    assert_eq!(house.run(&run).unwrap().status, RunStatus::Succeeded);
    let state = house.budget(id).unwrap();
    assert_eq!((state.reserved, state.set_by_person, state.soft_percent), (Amounts::NONE, true, 80));
    assert!(state.used.tool_calls > 0);
}

#[test]
fn l30_amounts_that_cannot_be_are_refused() {
    let mut house = Stores::new().house();
    let (id, _) = start(&mut house, &manifest(&[no_op()]), "one");
    let none = BudgetChange::default();
    for bad in [
        BudgetChange { tokens: Some(-1), ..none.clone() },
        BudgetChange { cost_micros: Some(i64::MAX), ..none.clone() },
        BudgetChange { soft_percent: Some(0), ..none.clone() },
        BudgetChange { soft_percent: Some(101), ..none.clone() },
        none,
    ] {
        assert_eq!(house.set_budget(id, &bad, &key("bad")).unwrap_err().code, ErrorCode::InvalidArgument, "{bad:?}");
    }
    let nobody = AgentId::from_raw(domain::id::RawId::from_bytes([9; 16]));
    let some = BudgetChange { tokens: Some(1), ..BudgetChange::default() };
    assert_eq!(house.set_budget(nobody, &some, &key("bad")).unwrap_err().code, ErrorCode::AgentNotFound);
}

#[test]
fn l32_a_repeated_pause_does_not_undo_a_resume_and_another_request_under_its_key_is_refused() {
    let mut house = Stores::new().house();
    let (id, _) = start(&mut house, &manifest(&[no_op()]), "one");
    house.pause_agent(id, &key("pause")).unwrap();
    house.resume_agent(id, &key("resume")).unwrap();
    house.pause_agent(id, &key("pause")).unwrap();
    assert_eq!(house.agent(id).unwrap().lifecycle, AgentLifecycle::Active);
    assert_eq!(house.resume_agent(id, &key("pause")).unwrap_err().code, ErrorCode::OperationIdReused);
    assert_eq!(house.destroy_agent(id, &key("pause")).unwrap_err().code, ErrorCode::OperationIdReused);
    house.destroy_agent(id, &key("destroy")).unwrap();
    house.destroy_agent(id, &key("destroy")).unwrap();
    assert_eq!(house.agent(id).unwrap().lifecycle, AgentLifecycle::Destroyed);
    assert_eq!(house.resume_agent(id, &key("again")).unwrap_err().code, ErrorCode::AgentDestroyed);
    let nobody = AgentId::from_raw(domain::id::RawId::from_bytes([9; 16]));
    assert_eq!(house.destroy_agent(nobody, &key("nobody")).unwrap_err().code, ErrorCode::AgentNotFound);
}

#[test]
fn an_agent_is_found_by_its_name_in_a_workspace_or_by_its_id() {
    let mut house = Stores::new().house();
    let (id, _) = start(&mut house, &manifest(&[no_op()]), "one");
    assert_eq!(house.agent_by_name("home", "tester").unwrap(), id);
    assert_eq!(house.agent_by_name("home", &id.to_string()).unwrap(), id);
    house.create_workspace("attic", "Attic").unwrap();
    for (workspace, name, code) in [
        ("attic", "tester", ErrorCode::AgentNotFound),
        ("home", "nobody", ErrorCode::AgentNotFound),
        ("home", "agent_0000000000000000000000000a", ErrorCode::AgentNotFound),
        ("home", "Two Words", ErrorCode::InvalidArgument),
        ("cellar", "tester", ErrorCode::WorkspaceNotFound),
    ] {
        assert_eq!(house.agent_by_name(workspace, name).unwrap_err().code, code, "{workspace} {name}");
    }
    assert_eq!(house.agents("home").unwrap().len(), 1);
}

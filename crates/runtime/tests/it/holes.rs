//! Holes that a review found, each as a test: outside acts in doubt, late stops, halves of a destroy, and long queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use control::cycle::Cycle;
use control::machine::Ask;
use control::manifest::Manifest;
use control::run::Phase;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::{AgentId, HostId, RunId, TaskId};
use domain::record::Record;
use domain::records::prompt::{PromptState, Verdict};
use domain::records::switch::SwitchSubject;
use domain::records::wake::Wake;
use runtime::engine::{Answer, Call, CallResult, Drive, Outside, Progress, Rest, Scripted};
use runtime::{House, TaskChange, TaskDraft};
use serde_json::{Value, json};
use store::Committer;
use store::store::{Reader, Scan};

use crate::house::{Shared, Stores, key, start, work};

/// LIMIT: points until a run of these tests has a plan or an end; the longest needs fewer than ten.
const POINTS_MAX: usize = 30;

/// A store that takes so many commits more and then fails.
struct Failing {
    domain: Domain,
    place: Shared,
    commits_left: Arc<AtomicUsize>,
}

impl Committer for Failing {
    fn host(&self) -> HostId {
        self.place.host()
    }

    fn commit(&mut self, commit: Commit) -> store::Result<Committed> {
        let taken = self.commits_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() {
            return Err(store::Error::Storage { domain: self.domain, message: "the disk is gone".to_owned() });
        }
        self.place.commit(commit)
    }

    fn heads(&mut self) -> store::Result<Vec<Head>> {
        self.place.heads()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.place.reader()
    }
}

/// A process of which one store fails once its commits are used up; it has more than enough until a test says otherwise.
fn failing(stores: &Stores, of: Domain) -> (House, Arc<AtomicUsize>) {
    let commits_left = Arc::new(AtomicUsize::new(usize::MAX));
    let place = |domain: Domain| -> Box<dyn Committer + Send> {
        let at = Domain::ALL.iter().position(|known| *known == domain).unwrap();
        let place = stores.places[at].clone();
        if domain == of { Box::new(Failing { domain, place, commits_left: commits_left.clone() }) } else { Box::new(place) }
    };
    let mut house = House::new(stores.env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger));
    house.level_fences().unwrap();
    house.begin_life().unwrap();
    (house, commits_left)
}

/// A service that counts what reaches it, and a model that follows the manifest's script.
#[derive(Default)]
struct Post {
    acts_count: usize,
    asks_count: usize,
    /// What the next calls come to; every call after them is done.
    results: Vec<CallResult>,
}

impl Outside for Post {
    fn ask(&mut self, manifest: &Manifest, run_id: &RunId, ask: &Ask) -> Result<Answer, ErrorCode> {
        self.asks_count += 1;
        Scripted.ask(manifest, run_id, ask)
    }

    fn call(&mut self, _: &Call) -> CallResult {
        self.acts_count += 1;
        if self.results.is_empty() { CallResult::Done } else { self.results.remove(0) }
    }

    fn reaches(&self, _: &str) -> bool {
        true
    }
}

fn no_op() -> Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}

fn call() -> Value {
    json!({ "action": "execute_tool", "task_id": "$next_task", "tool_name": "post", "parameters": { "n": 1 } })
}

/// An agent with a service, which knows a repeated call by its key or does not.
fn poster(script: &[Value], mode: &str, honours_keys: bool) -> Manifest {
    let script: Vec<String> = script.iter().map(ToString::to_string).collect();
    let manifest = json!({
        "schema": 1, "agent": "tester", "prompt": "do the tasks", "mode": mode,
        "model": { "provider": "scripted", "script": script },
        "capabilities": ["ask", "taskRead", "taskWrite", "artifactWrite", "outsideCall"],
        "tools": [
            "create_task", "select_next_task", "complete_task", "persist_artifact", "generate_message", "request_user_input", "post",
        ],
        "services": { "post": { "class": "mail", "risk": "low", "honours_keys": honours_keys } },
        "preapproved": [],
    });
    serde_json::from_value(manifest).unwrap()
}

fn add_task(house: &mut House, name: &str) -> TaskId {
    let draft = TaskDraft { description: name.to_owned(), workspace: "home".to_owned(), ..TaskDraft::default() };
    house.add_task(&draft, &key(name)).unwrap().id
}

/// A house with one task and a run that shall call the service once, freely and by a key.
fn calling(stores: &Stores) -> (House, AgentId, RunId) {
    let mut house = stores.house();
    add_task(&mut house, "a letter");
    let (agent, run) = start(&mut house, &poster(&[call(), no_op()], "yolo", true), "one");
    (house, agent, run)
}

/// Begins the agent's run and drives it until its plan is durable and nothing of it has happened.
fn planned(house: &mut House, agent: AgentId, post: &mut Post) -> Drive {
    let mut drive = house.begin(agent, post).unwrap().expect("nobody else is at work");
    for _ in 0..POINTS_MAX {
        if house.run(&drive.run_id()).unwrap().phase == Phase::Planned {
            return drive;
        }
        house.advance(&mut drive, post).unwrap();
    }
    panic!("never planned: {:?}", house.run(&drive.run_id()));
}

/// What became of every action of a run, in order.
fn action_states(house: &House, run: &RunId) -> Vec<String> {
    let run = house.run(run).unwrap();
    let mut states = Vec::new();
    for number in 1..=run.cycle {
        let id = Cycle::id_of(&run.id(), number).raw();
        let row = house.read(Domain::Agent, |agent| Ok(agent.get(Cycle::SPEC, &id)?)).unwrap().expect("a cycle has a row");
        let cycle = row.record::<Cycle>().unwrap().expect("no cycle was erased");
        states.extend(cycle.actions().iter().map(|action| action.state.to_string()));
    }
    states
}

/// How many wakes belong to a run and have not ended.
fn wakes_left(house: &House, run: &RunId) -> usize {
    let mut scan = Scan::new(Wake::SPEC, "by_status");
    let mut left = 0;
    loop {
        let page = house.read(Domain::Agent, |agent| Ok(agent.scan(&scan)?)).unwrap();
        for row in &page.rows {
            let wake = row.record::<Wake>().unwrap().expect("no wake was erased");
            left += usize::from(wake.run_id == Some(*run) && !wake.status.is_terminal());
        }
        let Some(next) = page.next else { return left };
        scan.after = Some(next);
    }
}

#[test]
fn l24_a_recovered_outside_call_that_a_stop_holds_back_stays_in_doubt() {
    let stores = Stores::new();
    let mut post = Post::default();
    let (mut house, agent, run) = calling(&stores);
    let mut drive = planned(&mut house, agent, &mut post);
    // The call leaves and is done, and the process dies before it can write that down.
    house.advance(&mut drive, &mut post).unwrap();
    assert_eq!(post.acts_count, 1);
    drop(house);
    stores.house().stop(&SwitchSubject::Everything, "", &key("stop")).unwrap();
    let mut next = stores.house();
    next.recover(&mut post).unwrap();
    assert_eq!((post.acts_count, action_states(&next, &run)), (1, vec!["in_doubt".to_owned()]));
}

#[test]
fn l24_a_call_without_an_answer_stays_in_doubt_when_its_repeat_is_refused() {
    let stores = Stores::new();
    let (mut house, _, run) = calling(&stores);
    let results = vec![CallResult::Unknown, CallResult::Refused(ErrorCode::LlmTimeout)];
    work(&mut house, &mut Post { results, ..Post::default() });
    assert_eq!(action_states(&house, &run), ["in_doubt"]);
}

#[test]
fn l24_opening_a_home_does_not_call_an_outside_act_undone() {
    let stores = Stores::new();
    let mut post = Post::default();
    let (mut house, agent, run) = calling(&stores);
    let mut drive = planned(&mut house, agent, &mut post);
    house.advance(&mut drive, &mut post).unwrap();
    let mut next = stores.house();
    // Whoever opens a home recovers it without its services at hand.
    next.recover(&mut Scripted).unwrap();
    assert_eq!((post.acts_count, action_states(&next, &run)), (1, vec!["planned".to_owned()]));
}

#[test]
fn l24_a_call_without_keys_is_not_repeated_after_a_store_that_failed() {
    let stores = Stores::new();
    let (mut house, commits_left) = failing(&stores, Domain::Journal);
    add_task(&mut house, "a letter");
    add_task(&mut house, "another letter");
    let create = json!({ "action": "create_task", "task": { "description": "a new task to do", "preconditions": [] } });
    let mut post = Post::default();
    let (_, run) = start(&mut house, &poster(&[call(), create, no_op()], "reviewed", false), "one");
    work(&mut house, &mut post);
    for (place, item) in house.prompts(PromptState::Open, 10, None).unwrap().items.iter().enumerate() {
        house.answer(item.id, Verdict::Approve, "", &key(&format!("yes {place}"))).unwrap();
    }
    let mut drive = Drive::new(run);
    house.advance(&mut drive, &mut post).unwrap();
    commits_left.store(0, Ordering::Relaxed);
    let broken = house.advance(&mut drive, &mut post);
    commits_left.store(usize::MAX, Ordering::Relaxed);
    let mended = house.advance(&mut drive, &mut post);
    assert_eq!(post.acts_count, 1, "{broken:?}, then {mended:?}");
}

#[test]
fn l31_nothing_leaves_after_a_pause_was_acknowledged() {
    let stores = Stores::new();
    let mut post = Post::default();
    let (mut house, agent, _) = calling(&stores);
    let mut drive = planned(&mut house, agent, &mut post);
    house.pause_agent(agent, &key("pause")).unwrap();
    house.advance(&mut drive, &mut post).unwrap();
    assert_eq!(post.acts_count, 0, "a paused agent acted outside");
}

#[test]
fn l5_a_repeated_destroy_keeps_out_what_was_planned_after_its_first_half() {
    let stores = Stores::new();
    let mut post = Post::default();
    let (_, agent, run) = calling(&stores);
    let (mut person, commits_left) = failing(&stores, Domain::Agent);
    // The fence of the agent domain lands, the agent's own row does not.
    commits_left.store(1, Ordering::Relaxed);
    person.destroy_agent(agent, &key("destroy")).unwrap_err();
    planned(&mut stores.house(), agent, &mut post);
    let mut person = stores.house();
    let mut house = stores.house();
    person.destroy_agent(agent, &key("destroy")).unwrap();
    let late = house.advance(&mut Drive::new(run), &mut post);
    assert_eq!(post.acts_count, 0, "a destroyed agent acted outside: {late:?}");
}

#[test]
fn l10_an_answers_wake_ends_with_its_run_behind_a_long_queue() {
    let stores = Stores::new();
    let mut house = stores.house();
    add_task(&mut house, "a letter");
    let question =
        json!({ "action": "request_user_input", "question": "Which colour shall it be?", "options": [], "context": "x" });
    let mut post = Post::default();
    let (agent, run) = start(&mut house, &poster(&[question, no_op()], "yolo", true), "one");
    work(&mut house, &mut post);
    for place in 0..1000 {
        house.wake_by_hand(agent, &key(&format!("queued {place}"))).unwrap();
    }
    let open = house.prompts(PromptState::Open, 10, None).unwrap();
    house.answer(open.items[0].id, Verdict::Reply, "red", &key("yes")).unwrap();
    let mut drive = Drive::new(run);
    for _ in 0..POINTS_MAX {
        if house.advance(&mut drive, &mut post).unwrap() == Progress::Rests(Rest::Ended) {
            break;
        }
    }
    assert!(house.run(&run).unwrap().status.is_terminal());
    assert_eq!(wakes_left(&house, &run), 0, "a wake is left for a run that has ended");
}

#[test]
fn a_run_does_not_succeed_unasked_while_there_is_work_beyond_the_first_hundred_tasks() {
    let stores = Stores::new();
    let mut house = stores.house();
    let held: Vec<TaskId> = (0..100).map(|place| add_task(&mut house, &format!("task {place}"))).collect();
    let free = add_task(&mut house, "a free task");
    add_task(&mut house, "another free task");
    for (place, id) in held.into_iter().enumerate() {
        let change = TaskChange { preconditions: Some(vec![free]), ..TaskChange::default() };
        house.edit_task(id, &change, &key(&format!("edit {place}"))).unwrap();
    }
    let mut post = Post::default();
    let (_, run) = start(&mut house, &poster(&[no_op()], "yolo", true), "one");
    work(&mut house, &mut post);
    let status = house.run(&run).unwrap().status;
    assert!(post.asks_count > 0, "nobody was asked, the run says {status}, and two tasks could be worked on");
}

#![allow(warnings)]
use crate::house::{Shared, Stores, key, start, work};
use control::cycle::Cycle;
use control::manifest::Manifest;
use control::run::{Phase, Run, RunStatus};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::*;
use domain::record::Record;
use domain::records::prompt::{PromptState, Verdict};
use domain::records::switch::SwitchSubject;
use domain::records::task::TaskStatus;
use domain::records::wake::WakeReason;
use runtime::engine::*;
use runtime::{House, TaskChange, TaskDraft};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use store::Committer;
use store::store::Reader;

#[derive(Clone)]
struct Flaky(Shared, Arc<AtomicBool>);
impl Committer for Flaky {
    fn host(&self) -> HostId {
        self.0.host()
    }
    fn commit(&mut self, commit: Commit) -> store::Result<Committed> {
        if self.1.load(Ordering::Relaxed) {
            return Err(store::Error::Storage { domain: Domain::Agent, message: "no".into() });
        }
        self.0.commit(commit)
    }
    fn heads(&mut self) -> store::Result<Vec<Head>> {
        self.0.heads()
    }
    fn reader(&self) -> Arc<dyn Reader> {
        self.0.reader()
    }
}
fn flaky(stores: &Stores, of: Domain) -> (House, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    let place = |domain: Domain| -> Box<dyn Committer + Send> {
        let at = Domain::ALL.iter().position(|k| *k == domain).unwrap();
        let s = stores.places[at].clone();
        if domain == of { Box::new(Flaky(s, flag.clone())) } else { Box::new(s) }
    };
    let mut house = House::new(stores.env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger));
    house.level_fences().unwrap();
    house.begin_life().unwrap();
    (house, flag)
}

struct Post {
    acted: usize,
    asked: usize,
    answers: Vec<CallResult>,
    script: Vec<serde_json::Value>,
}
impl Post {
    fn new() -> Self {
        Self { acted: 0, asked: 0, answers: vec![], script: vec![] }
    }
}
impl Outside for Post {
    fn ask(&mut self, m: &Manifest, ask: &Outgoing) -> Result<Answer, ErrorCode> {
        self.asked += 1;
        Scripted.ask(m, ask)
    }
    fn call(&mut self, _: &Call) -> CallResult {
        self.acted += 1;
        if self.answers.is_empty() { CallResult::Done } else { self.answers.remove(0) }
    }
    fn reaches(&self, _: &str) -> bool {
        true
    }
}
fn no_op() -> serde_json::Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}
fn call() -> serde_json::Value {
    json!({ "action": "execute_tool", "task_id": "$next_task", "tool_name": "post", "parameters": { "n": 1 } })
}
fn with(script: &[serde_json::Value], keys: bool, mode: &str, pre: serde_json::Value) -> Manifest {
    let script: Vec<String> = script.iter().map(ToString::to_string).collect();
    serde_json::from_value(json!({
        "schema": 1, "agent": "tester", "prompt": "do", "mode": mode,
        "model": { "provider": "scripted", "script": script },
        "capabilities": ["ask","taskRead","taskWrite","artifactWrite","outsideCall"],
        "tools": ["create_task","select_next_task","complete_task","persist_artifact","generate_message","request_user_input","post"],
        "services": { "post": { "class": "mail", "risk": "low", "honours_keys": keys } },
        "preapproved": pre,
    })).unwrap()
}
fn task(house: &mut House, n: usize, pre: &[TaskId]) -> TaskId {
    house
        .add_task(
            &TaskDraft {
                description: format!("t{n}"),
                preconditions: pre.to_vec(),
                workspace: "home".into(),
                ..TaskDraft::default()
            },
            &key(&format!("t{n}")),
        )
        .unwrap()
        .id
}
fn to_planned(house: &mut House, agent: AgentId, out: &mut Post) -> Drive {
    let mut drive = house.begin(agent, out).unwrap().unwrap();
    for _ in 0..20 {
        let run = house.run(&drive.run_id()).unwrap();
        if run.phase == Phase::Planned {
            return drive;
        }
        house.advance(&mut drive, out).unwrap();
    }
    panic!("never planned: {:?}", house.run(&drive.run_id()));
}
fn states(house: &House, run: &RunId) -> Vec<(String, String, Option<String>)> {
    let run = house.run(run).unwrap();
    let mut v = vec![];
    for n in 1..=run.cycle {
        let c = house
            .read(Domain::Agent, |s| {
                Ok(s.get(Cycle::SPEC, &Cycle::id_of(&run.id(), n).raw())?.unwrap().record::<Cycle>()?.unwrap())
            })
            .unwrap();
        for a in c.actions() {
            v.push((a.tool.clone(), a.state.to_string(), a.code.clone()));
        }
    }
    v
}

#[test]
fn recovered_keyed_call_after_stop_is_recorded_as_certainly_not_done() {
    let stores = Stores::new();
    let mut house = stores.house();
    task(&mut house, 1, &[]);
    let mut out = Post::new();
    let (agent, run) = start(&mut house, &with(&[call(), no_op()], true, "yolo", json!([])), "one");
    let mut drive = to_planned(&mut house, agent, &mut out);
    house.advance(&mut drive, &mut out).unwrap(); // the call leaves and is done; D is not committed
    assert_eq!(out.acted, 1);
    drop(house);
    let mut person = stores.house();
    person.stop(&SwitchSubject::Everything, "x", &key("stop")).unwrap();
    let mut house = stores.house();
    house.recover(&mut out).unwrap();
    println!("acted {} recorded {:?}", out.acted, states(&house, &run));
    assert_ne!(states(&house, &run)[0].1, "failed", "it was done, and the record says certainly not done");
}

#[test]
fn nothing_leaves_after_a_pause_was_acknowledged() {
    let stores = Stores::new();
    let mut house = stores.house();
    task(&mut house, 1, &[]);
    let mut out = Post::new();
    let (agent, run) = start(&mut house, &with(&[call(), no_op()], true, "yolo", json!([])), "one");
    let mut drive = to_planned(&mut house, agent, &mut out);
    house.pause_agent(agent, &key("pause")).unwrap();
    house.advance(&mut drive, &mut out).unwrap();
    assert_eq!(out.acted, 0, "a paused agent acted outside");
}

#[test]
fn second_destroy_keeps_out_what_was_planned_after_a_half_done_first_one() {
    let stores = Stores::new();
    let mut out = Post::new();
    let mut house = stores.house();
    task(&mut house, 1, &[]);
    let (agent, run) = start(&mut house, &with(&[call(), no_op()], true, "yolo", json!([])), "one");
    // First destroy: fences are raised, then the agent row cannot be written (crash).
    // a first destroy that dies after its fences: simulated by failing the agent store only for the last commit
    struct DieAfter(Shared, Arc<AtomicUsize>);
    impl Committer for DieAfter {
        fn host(&self) -> HostId {
            self.0.host()
        }
        fn commit(&mut self, c: Commit) -> store::Result<Committed> {
            if self.1.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err(store::Error::Storage { domain: Domain::Agent, message: "dead".into() });
            }
            self.0.commit(c)
        }
        fn heads(&mut self) -> store::Result<Vec<Head>> {
            self.0.heads()
        }
        fn reader(&self) -> Arc<dyn Reader> {
            self.0.reader()
        }
    }
    let left = Arc::new(AtomicUsize::new(1)); // the fence of the agent domain lands, the agent row does not
    let mut person = House::new(
        stores.env.clone(),
        Box::new(stores.places[0].clone()),
        Box::new(DieAfter(stores.places[1].clone(), left)),
        Box::new(stores.places[2].clone()),
    );
    assert!(person.destroy_agent(agent, &key("destroy")).is_err());
    let mut house = stores.house();
    let mut drive = to_planned(&mut house, agent, &mut out);
    let mut person = stores.house();
    house = stores.house();
    person.destroy_agent(agent, &key("destroy")).unwrap();
    let mut drive = Drive::new(run);
    house.advance(&mut drive, &mut out).ok();
    assert_eq!(out.acted, 0, "a destroyed agent acted outside");
}

#[test]
fn a_run_does_not_succeed_while_there_is_work_beyond_the_first_hundred() {
    let stores = Stores::new();
    let mut house = stores.house();
    let mut ids = vec![];
    for n in 0..100 {
        ids.push(task(&mut house, n, &[]));
    }
    let free = task(&mut house, 1000, &[]);
    let other = task(&mut house, 1001, &[]);
    for (n, id) in ids.iter().enumerate() {
        house
            .edit_task(*id, &TaskChange { preconditions: Some(vec![free]), ..TaskChange::default() }, &key(&format!("e{n}")))
            .unwrap();
    }
    let mut out = Post::new();
    let (agent, run) = start(&mut house, &with(&[no_op()], true, "yolo", json!([])), "one");
    work(&mut house, &mut out);
    let r = house.run(&run).unwrap();
    println!("{:?} asked {}", r.status, out.asked);
    assert!(out.asked > 0, "nobody was asked, the run says {}, and two tasks could be worked on", r.status);
}

#[test]
fn unknown_then_refused_stays_in_doubt() {
    let stores = Stores::new();
    let mut house = stores.house();
    task(&mut house, 1, &[]);
    let mut out = Post::new();
    out.answers = vec![CallResult::Unknown, CallResult::Refused(ErrorCode::LlmTimeout)];
    let (agent, run) = start(&mut house, &with(&[call(), no_op()], true, "yolo", json!([])), "one");
    work(&mut house, &mut out);
    println!("{:?}", states(&house, &run));
    assert_eq!(states(&house, &run)[0].1, "in_doubt");
}

#[test]
fn a_call_without_keys_is_not_repeated_by_the_same_drive_after_an_error() {
    let stores = Stores::new();
    let (mut house, broken) = flaky(&stores, Domain::Journal);
    task(&mut house, 1, &[]);
    task(&mut house, 2, &[]);
    let mut out = Post::new();
    let art = json!({ "action": "persist_artifact", "task_id": "$next_task", "artifact": { "type": "context", "key": "k", "content": "x" } });
    let script = [
        json!({ "action": "execute_tool", "task_id": "$next_task", "tool_name": "post", "parameters": { "n": 1 } }),
        json!({ "action": "create_task", "task": { "description": "a new task to do", "preconditions": [] } }),
        no_op(),
    ];
    let (agent, run) = start(&mut house, &with(&script, false, "reviewed", json!([])), "one");
    work(&mut house, &mut out);
    let open = house.prompts(PromptState::Open, 10, None).unwrap();
    println!("open {} status {:?}", open.items.len(), house.run(&run).unwrap().status);
    for (n, i) in open.items.iter().enumerate() {
        house.answer(i.id, Verdict::Approve, "", &key(&format!("yes{n}"))).unwrap();
    }
    let mut drive = Drive::new(run);
    house.advance(&mut drive, &mut out).unwrap();
    println!("phase {:?} {:?}", house.run(&run).unwrap().phase, states(&house, &run));
    broken.store(true, Ordering::Relaxed);
    println!("{:?}", house.advance(&mut drive, &mut out));
    broken.store(false, Ordering::Relaxed);
    println!("{:?}", house.advance(&mut drive, &mut out));
    assert_eq!(out.acted, 1, "acted twice");
}

#[test]
fn opening_the_home_does_not_call_an_outside_act_undone() {
    let stores = Stores::new();
    let mut house = stores.house();
    task(&mut house, 1, &[]);
    let mut out = Post::new();
    let (agent, run) = start(&mut house, &with(&[call(), no_op()], true, "yolo", json!([])), "one");
    let mut drive = to_planned(&mut house, agent, &mut out);
    house.advance(&mut drive, &mut out).unwrap();
    let mut house = stores.house();
    house.recover(&mut Scripted).unwrap(); // what Handle::open does
    println!("acted {} recorded {:?}", out.acted, states(&house, &run));
    assert_ne!(states(&house, &run)[0].1, "failed");
}

#[test]
fn answer_wake_ends_with_its_run_behind_a_long_queue() {
    let stores = Stores::new();
    let mut house = stores.house();
    task(&mut house, 1, &[]);
    let mut out = Post::new();
    let q = json!({ "action": "request_user_input", "question": "Which colour shall it be?", "options": [], "context": "x" });
    let (agent, run) = start(&mut house, &with(&[q, no_op()], true, "yolo", json!([])), "one");
    work(&mut house, &mut out);
    for n in 0..1000 {
        house.wake_by_hand(agent, &key(&format!("q{n}"))).unwrap();
    }
    let open = house.prompts(PromptState::Open, 10, None).unwrap();
    house.answer(open.items[0].id, Verdict::Reply, "red", &key("yes")).unwrap();
    let mut drive = Drive::new(run);
    for _ in 0..30 {
        if matches!(house.advance(&mut drive, &mut out).unwrap(), Progress::Rests(Rest::Ended)) {
            break;
        }
    }
    let r = house.run(&run).unwrap();
    use domain::records::wake::{Wake, WakeState};
    let left = house
        .read(Domain::Agent, |s| {
            let mut scan = store::store::Scan::new(Wake::SPEC, "by_status");
            let mut n = 0;
            loop {
                let p = s.scan(&scan)?;
                for row in &p.rows {
                    let w = row.record::<Wake>()?.unwrap();
                    if w.run_id == Some(run) && !w.status.is_terminal() {
                        n += 1;
                    }
                }
                let Some(x) = p.next else { break };
                scan.after = Some(x);
            }
            Ok(n)
        })
        .unwrap();
    println!("{:?} left {left}", r.status);
    assert!(r.status.is_terminal());
    assert_eq!(left, 0, "a wake is left for an ended run");
}

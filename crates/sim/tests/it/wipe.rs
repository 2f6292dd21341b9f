//! What is not state may be lost: chat, context records and projections are taken away between two cycles, and the next action is the same.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use control::cycle::Cycle;
use domain::causality::Domain;
use domain::commit::{Change, Expected, Write};
use domain::id::OperationId;
use domain::record::Record;
use domain::records::message::Message;
use runtime::House;
use runtime::engine::{Drive, Job, Progress, Scripted};
use sim::place::{Stores, Watch, lock, store_of, unasked};
use sim::stores::fresh;
use store::store::{Row, Scan};

use crate::scenario::{all, approve_all, begin, env, house};

fn process(stores: &Stores) -> House {
    house(&env(), stores, &Arc::new(Mutex::new(Watch::default())), &Arc::new(AtomicBool::new(true)))
}

/// Works through so many points of the run.
fn work(house: &mut House, points: usize) {
    let mut left = points;
    while left > 0 {
        approve_all(house, &Mutex::new(Watch::default())).unwrap();
        for job in house.jobs().unwrap() {
            let drive = match job {
                Job::Continue(run) => Some(Drive::new(run)),
                Job::Begin(agent) => house.begin(agent, &Scripted).unwrap(),
            };
            let Some(mut drive) = drive else { continue };
            while left > 0 && !matches!(house.advance(&mut drive, &mut Scripted).unwrap(), Progress::Rests(_)) {
                left -= 1;
            }
        }
        left = left.saturating_sub(1);
    }
}

/// Erases every message that the agent has written.
fn wipe_chat(stores: &Stores) -> usize {
    wipe::<Message>(stores, "by_thread", |_| true)
}

/// Takes the text of every closed cycle's record away: what was shown, answered and decided.
fn wipe_cycles(stores: &Stores) -> usize {
    wipe::<Cycle>(stores, "by_run", |cycle| cycle.closed.is_some())
}

fn wipe<R: Record>(stores: &Stores, index: &str, which: impl Fn(&R) -> bool) -> usize {
    let reader = lock(store_of(stores, Domain::Agent)).reader();
    let rows = reader.read().unwrap().scan(&Scan::new(R::SPEC, index)).unwrap().rows;
    let rows: Vec<_> = rows.iter().filter(|row| row.record::<R>().unwrap().is_some_and(|record| which(&record))).collect();
    for Row { spec, id, workspace, version, .. } in &rows {
        let (spec, id, workspace, expected) = (*spec, *id, *workspace, Expected::Version(*version));
        let commit = unasked(&format!("wipe {id}"), Write { spec, id, workspace, expected, change: Change::Erase });
        lock(store_of(stores, Domain::Agent)).apply_group(&[commit]).pop().unwrap().unwrap();
    }
    rows.len()
}

/// The operations of all actions, in the order of their cycles.
fn operations(stores: &Stores) -> Vec<(u32, OperationId, String)> {
    let reader = lock(store_of(stores, Domain::Agent)).reader();
    let snapshot = reader.read().unwrap();
    let cycles = all::<Cycle>(snapshot.as_ref(), "by_run");
    let of = |cycle: &Cycle| {
        let number = cycle.number;
        cycle.actions().iter().map(move |action| (number, action.operation_id, action.tool.clone())).collect::<Vec<_>>()
    };
    cycles.iter().flat_map(of).collect()
}

#[test]
fn d15_chat_and_the_records_of_past_cycles_deleted_between_two_cycles_change_nothing() {
    let undisturbed = fresh(None, &env());
    let mut house = process(&undisturbed);
    begin(&mut house).unwrap();
    work(&mut house, 200);
    let expected = operations(&undisturbed);
    assert!(expected.len() >= 4, "{expected:?}");
    let mut wiped = (0, 0);
    for points in 1..14 {
        let stores = fresh(None, &env());
        let mut first = process(&stores);
        begin(&mut first).unwrap();
        work(&mut first, points);
        drop(first);
        let before = operations(&stores);
        wiped.0 += wipe_chat(&stores);
        wiped.1 += wipe_cycles(&stores);
        let mut second = process(&stores);
        begin(&mut second).unwrap();
        work(&mut second, 200);
        let mut found = operations(&stores);
        found.extend(before.into_iter().filter(|action| !found.contains(action)).collect::<Vec<_>>());
        found.sort();
        let mut wanted = expected.clone();
        wanted.sort();
        assert_eq!(found, wanted, "after {points} points");
    }
    assert!(wiped.0 > 20 && wiped.1 > 20, "{wiped:?} messages and cycles were there to delete");
}

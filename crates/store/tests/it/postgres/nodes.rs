//! Two nodes on one server, at the same time: each waits for the other where it must, and nothing is done twice or lost.

use std::sync::{Arc, Barrier};

use domain::commit::{Commit, Committed, Guard, Write};
use domain::record::{Record, Value};
use domain::records::fence::Fence;
use domain::time::Timestamp;
use store::env::Env;
use store::postgres::{PgLocation, PostgresStore};
use store::store::Store;
use store::{Error, Result};

use super::{apply, fresh, hooked, location};
use crate::fixtures::{CHECKPOINT, LEASE, MEMO, THING, assert_sound, commit, host, id, put, workspace};
use crate::pg_server;

/// Counts a record up `times` times, whoever else does the same.
fn count_up(store: &mut PostgresStore, times: u64) -> u64 {
    let (mut conflicts, mut done) = (0, 0);
    while done < times {
        let number = u8::try_from(done % 3).unwrap();
        let row = store.reader().read().unwrap().get(&THING, &id(number)).unwrap();
        let version = row.map_or(0, |row| row.version);
        let writes =
            vec![put(&THING, number, version, &format!(r#"{{"name":"n","size":{version}}}"#)), put(&CHECKPOINT, number, 0, "{}")];
        // A checkpoint of its own per attempt: also the local stream moves.
        let mut step = commit(&format!("{}-{done}-{conflicts}", store.host()), writes);
        step.writes[1].id = step.operation_id.raw();
        match apply(store, step) {
            Ok(_) => done += 1,
            Err(Error::VersionConflict { .. }) => conflicts += 1,
            Err(error) => panic!("{error}"),
        }
    }
    conflicts
}

#[test]
fn two_nodes_write_the_same_records_and_each_counts_without_gaps() {
    const TIMES: u64 = 60;
    let (location, mut one) = fresh("nodes");
    let mut two = PostgresStore::open(&location, host(2), &Env::seeded(2)).unwrap();
    let conflicts = std::thread::scope(|scope| {
        let other = scope.spawn(|| count_up(&mut two, TIMES));
        count_up(&mut one, TIMES) + other.join().unwrap()
    });
    assert_sound(&one);
    let reader = two.reader();
    let snapshot = reader.read().unwrap();
    assert!(snapshot.heads().unwrap().iter().all(|head| head.counter == TIMES), "{conflicts} conflicts left no gap");
    let rows: Vec<_> = (0..3).map(|number| snapshot.get(&THING, &id(number)).unwrap().unwrap()).collect();
    for row in &rows {
        assert_eq!(row.version, row.state.edits.values().sum::<u64>());
        let history = snapshot.history(&THING, &row.id, 1_000).unwrap();
        let versions: Vec<_> = history.iter().map(|(logged, _)| logged.entry.version).collect();
        assert_eq!(versions, (1..=row.version).rev().collect::<Vec<_>>(), "every version was written once");
        for pair in history.windows(2) {
            let (after, before) = (&pair[0].0.entry, pair[1].0.entry.dot);
            let seen = if before.stream.host == after.dot.stream.host {
                after.dot.counter - 1
            } else {
                after.clock.get(&before.stream.host)
            };
            assert!(seen >= before.counter, "a writer has seen what it overwrites");
        }
    }
    let edits = |node| rows.iter().map(|row| row.state.edits.get(&node).copied().unwrap_or(0)).sum::<u64>();
    assert_eq!((edits(host(1)), edits(host(2))), (TIMES, TIMES));
    assert_eq!(snapshot.aggregate(&THING, "count", &[Value::from(workspace().raw())]).unwrap(), 3);
}

/// Runs the same on both nodes, from the same moment on.
fn at_once<T: Send>(nodes: [&mut PostgresStore; 2], run: impl Fn(&mut PostgresStore) -> T + Sync) -> [T; 2] {
    let start = Barrier::new(2);
    let (run, start) = (&run, &start);
    std::thread::scope(|scope| {
        let started = nodes.map(|node| {
            scope.spawn(move || {
                start.wait();
                run(node)
            })
        });
        started.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn an_operation_that_reaches_two_nodes_is_done_once() {
    let (location, mut one) = fresh("done_once");
    let mut two = PostgresStore::open(&location, host(2), &Env::seeded(2)).unwrap();
    for round in 0..30u8 {
        // Rows that both make, rows of the log and rows without it: what one does the other finds done.
        let spec = if round % 2 == 0 { &THING } else { &LEASE };
        let step = || commit(&format!("{round}"), vec![put(spec, round, 0, &format!(r#"{{"name":"{round}"}}"#))]);
        let answers = at_once([&mut one, &mut two], |node| apply(node, step()).unwrap());
        assert_eq!(answers.iter().filter(|answer| answer.repeated).count(), 1);
        assert_eq!(answers[0].writes, answers[1].writes);
    }
    assert_sound(&one);
}

#[test]
fn a_record_that_two_nodes_make_at_once_is_made_by_one() {
    let (location, mut one) = fresh("one_maker");
    let mut two = PostgresStore::open(&location, host(2), &Env::seeded(2)).unwrap();
    for round in 0..30u8 {
        let answers = at_once([&mut one, &mut two], |node| {
            let name = node.host().to_string();
            apply(node, commit(&format!("{round}-{name}"), vec![put(&THING, round, 0, "{}"), put(&THING, 100 + round, 0, "{}")]))
        });
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        assert!(answers.iter().flatten().count() == 1);
        let refused = answers.into_iter().find_map(Result::err).unwrap();
        let conflict = Error::VersionConflict {
            kind: "thing",
            prefix: "thing",
            id: id(round),
            expected: None,
            current: Some(1),
            deleted: false,
        };
        assert_eq!(refused, conflict);
    }
    assert_sound(&one);
}

#[test]
fn a_limit_holds_over_two_nodes() {
    let (location, mut one) = fresh("limits");
    let mut two = PostgresStore::open(&location, host(2), &Env::seeded(2)).unwrap();
    let group = vec![Value::from(workspace().raw()), Value::from("n")];
    let done = at_once([&mut one, &mut two], |node| {
        let mut done = 0;
        for round in 0..30u8 {
            let mut step = commit(&format!("{round}-{}", node.host()), vec![put(&THING, round, 0, r#"{"name":"n","size":3}"#)]);
            step.writes[0].id = step.operation_id.raw();
            step.guards.push(Guard::AtMost { spec: &THING, aggregate: "total", group: group.clone(), adding: 3, limit: 100 });
            match apply(node, step) {
                Ok(_) => done += 1,
                Err(Error::LimitReached { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        done
    });
    assert_eq!(done.iter().sum::<i64>(), 33);
    assert_eq!(one.reader().read().unwrap().aggregate(&THING, "total", &group).unwrap(), 99);
}

/// What became of two commits, the second of which began in the middle of the first.
struct Overlap {
    first: Result<Committed>,
    /// Whether the second waited for the first to end.
    waited: bool,
    second: Result<Committed>,
}

/// Runs the first commit on node one; when it has checked everything and is about to write, runs the second on node two until
/// that is done or waits for a lock.
fn overlap(location: &PgLocation, first: Commit, second: Commit) -> Overlap {
    let mut two = Some(PostgresStore::open(location, host(2), &Env::seeded(2)).unwrap());
    let mut client = ::postgres::Client::connect(&location.config, ::postgres::NoTls).unwrap();
    let name = format!("verger {}journal {}", location.prefix, host(2));
    let (send, receive) = std::sync::mpsc::channel();
    let hook = move || {
        let (mut two, second) = (two.take().expect("called once"), second.clone());
        let running = std::thread::spawn(move || apply(&mut two, second));
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
        let waited = loop {
            if running.is_finished() {
                break false;
            } else if !client.query(waiting, &[&name]).unwrap().is_empty() {
                break true;
            }
        };
        send.send((running, waited)).unwrap();
    };
    let mut one = PostgresStore::open(location, host(1), &hooked(1, 1, hook)).unwrap();
    let first = apply(&mut one, first);
    let (running, waited) = receive.recv().unwrap();
    let second = running.join().unwrap();
    assert_sound(&one);
    Overlap { first, waited, second }
}

/// A domain with one record at version 1 and one fence at epoch 1.
fn furnished(name: &str) -> PgLocation {
    let (location, mut store) = fresh(name);
    apply(&mut store, commit("furniture", vec![put(&MEMO, 1, 0, "{}"), raise(1, 0)])).unwrap();
    location
}

fn raise(epoch: u64, expected: u64) -> Write {
    let fence = Fence { subject: "agent_x".into(), epoch, raised_at: Timestamp::EPOCH };
    Write { id: Fence::id_of("agent_x"), ..put(Fence::SPEC, 0, expected, fence.to_body().unwrap().text()) }
}

fn guarded(key: &str, guard: Guard) -> Commit {
    Commit { guards: vec![guard], ..commit(key, vec![put(&MEMO, 2, 0, "{}")]) }
}

fn conflict(number: u8, expected: Option<u64>, current: u64) -> Error {
    Error::VersionConflict { kind: "memo", prefix: "memo", id: id(number), expected, current: Some(current), deleted: false }
}

#[test]
fn a_record_that_one_node_is_writing_is_waited_for() {
    let location = furnished("wait_record");
    let change = |key: &str, expected| commit(key, vec![put(&MEMO, 1, expected, &format!(r#"{{"k":"{key}"}}"#))]);
    let stale = overlap(&location, change("a", 1), change("b", 1));
    assert!(stale.first.is_ok() && stale.waited);
    assert_eq!(stale.second, Err(conflict(1, Some(1), 2)));
    // With the version that the first is about to make it fits, and it has seen what it overwrites.
    let fitting = overlap(&location, change("c", 2), change("d", 3));
    assert!(fitting.waited);
    let (before, after) = (fitting.first.unwrap().writes[0].dot.unwrap(), fitting.second.unwrap().writes[0].dot.unwrap());
    let store = PostgresStore::open(&location, host(1), &Env::seeded(1)).unwrap();
    let (after, _) = store.reader().read().unwrap().entry(&after).unwrap().unwrap();
    assert_eq!((after.previous, after.entry.clock.get(&host(1))), (Some(before), before.counter));
    assert_eq!(after.entry.edits, [(host(1), 3), (host(2), 1)].into());
}

#[test]
fn a_record_that_two_nodes_make_at_the_same_moment_is_the_faster_ones() {
    let location = furnished("wait_maker");
    let made = overlap(&location, commit("a", vec![put(&MEMO, 9, 0, "{}")]), commit("b", vec![put(&MEMO, 9, 0, "{}")]));
    assert!(!made.waited, "there was nothing to lock yet");
    assert!(made.second.is_ok());
    assert_eq!(made.first, Err(conflict(9, None, 1)));
}

#[test]
fn what_a_guard_holds_on_to_does_not_change_until_its_commit_is_done() {
    let location = furnished("wait_guard");
    let version = Guard::Version { spec: &MEMO, id: id(1), version: 1 };
    let held = overlap(&location, guarded("a", version), commit("b", vec![put(&MEMO, 1, 1, "{}")]));
    assert!(held.first.is_ok() && held.waited && held.second.is_ok(), "{:?}", held.second);
}

#[test]
fn a_fence_is_raised_after_what_it_let_through_and_before_what_it_stops() {
    let location = furnished("wait_fence");
    let fence = || Guard::Fence { subject: "agent_x".into(), epoch: 1 };
    let let_through = overlap(&location, guarded("a", fence()), commit("raise", vec![raise(2, 1)]));
    assert!(let_through.first.is_ok() && let_through.waited && let_through.second.is_ok());
    let location = furnished("wait_fence2");
    let stopped = overlap(&location, commit("raise", vec![put(&MEMO, 3, 0, "{}"), raise(2, 1)]), guarded("a", fence()));
    assert!(stopped.first.is_ok() && stopped.waited);
    assert_eq!(stopped.second, Err(Error::Fenced { subject: "agent_x".into(), epoch: 1, current: 2 }));
}

#[test]
fn a_fence_that_was_never_raised_is_held_on_to_as_well() {
    let bare = |name: &str| fresh(name).0;
    let fence = || Guard::Fence { subject: "agent_x".into(), epoch: 0 };
    let let_through = overlap(&bare("wait_bare"), guarded("a", fence()), commit("raise", vec![raise(2, 0)]));
    assert!(let_through.first.is_ok() && let_through.waited && let_through.second.is_ok());
    let stopped = overlap(&bare("wait_bare2"), commit("raise", vec![put(&MEMO, 3, 0, "{}"), raise(2, 0)]), guarded("a", fence()));
    assert!(stopped.first.is_ok() && stopped.waited);
    assert_eq!(stopped.second, Err(Error::Fenced { subject: "agent_x".into(), epoch: 0, current: 2 }));
}

#[test]
fn a_deadlock_between_two_nodes_is_resolved_commit_by_commit() {
    let server = pg_server::shared();
    let location = location(server, "deadlock");
    drop(PostgresStore::create(&location, host(1), &Env::seeded(1)).unwrap());
    // Both have made their first record, and only then try to make the other's. A kind without aggregates: those they would lock
    // in order before anything else.
    let meeting = Arc::new(Barrier::new(2));
    let open = |number: u8| {
        let meeting = Arc::clone(&meeting);
        let env = hooked(u64::from(number), 2, move || {
            meeting.wait();
        });
        PostgresStore::open(&location, host(number), &env).unwrap()
    };
    let (mut one, mut two) = (open(1), open(2));
    let answers = at_once([&mut one, &mut two], |node| {
        let order = if node.host() == host(1) { [1, 2] } else { [2, 1] };
        let group = order.map(|number| commit(&format!("{number}-{}", node.host()), vec![put(&MEMO, number, 0, "{}")]));
        node.apply_group(&group)
    });
    assert!(server.log().contains("deadlock detected"), "the test made none: {}", server.log());
    assert_eq!(answers.iter().flatten().filter(|answer| answer.is_ok()).count(), 2, "{answers:?}");
    assert!(
        answers
            .iter()
            .flatten()
            .filter_map(|answer| answer.as_ref().err())
            .all(|error| matches!(error, Error::VersionConflict { .. }))
    );
    assert_sound(&one);
}

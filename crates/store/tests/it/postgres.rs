//! PostgreSQL keeps the suite's promises, on a real server: with several nodes at once, and when connections are cut.
#![cfg(feature = "postgres")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use domain::causality::{Domain, Stream, StreamId};
use domain::commit::{Change, Commit, Committed, Guard, Write};
use domain::entry::{Head, Witness};
use domain::hash;
use domain::id::HostId;
use domain::record::{Column, Index, Record, Spec, Value, ValueType};
use domain::records::fence::Fence;
use domain::time::Timestamp;
use store::env::{Entropy, Env};
use store::memory::MemoryStore;
use store::postgres::{PgLocation, PostgresStore, SCHEMA_VERSION};
use store::store::{Direction, Scan, Store, own_streams};
use store::{Error, Result};

use crate::conformance;
use crate::fixtures::{
    self, CHECKPOINT, LEASE, MEMO, PING, THING, assert_sound, commit, dump, host, id, kinds, operation, put, workspace, write,
};
use crate::pg_server::{self, Server};

fn location(server: &Server, name: &str) -> PgLocation {
    PgLocation { domain: Domain::Journal, config: server.config(), kinds: kinds(), prefix: format!("{name}_") }
}

/// A fresh domain on the shared server, opened by its first node.
fn fresh(name: &str) -> (PgLocation, PostgresStore) {
    let location = location(pg_server::shared(), name);
    let store = PostgresStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    (location, store)
}

fn apply(store: &mut dyn Store, commit: Commit) -> Result<Committed> {
    store.apply_group(&[commit]).pop().expect("a group of one has one result")
}

/// Ends the server process of a node's writer and waits until it is gone.
fn cut(location: &PgLocation, host: HostId) {
    let mut client = ::postgres::Client::connect(&location.config, ::postgres::NoTls).unwrap();
    let name = format!("verger {}journal {host}", location.prefix);
    let ended =
        client.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1", &[&name]);
    assert_eq!(ended.unwrap(), 1, "each node has one writer");
}

/// Calls a function when a certain salt is drawn: in the middle of a group, before the entry it is for is written.
struct Hooked {
    inner: Arc<dyn Entropy>,
    left: AtomicUsize,
    hook: Mutex<Box<dyn FnMut() + Send>>,
}

impl Entropy for Hooked {
    fn fill(&self, bytes: &mut [u8]) {
        self.inner.fill(bytes);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            (self.hook.lock().unwrap())();
        }
    }
}

/// An environment whose `nth` draw from now on calls `hook`.
fn hooked(seed: u64, nth: usize, hook: impl FnMut() + Send + 'static) -> Env {
    let env = Env::seeded(seed);
    let entropy = Hooked { inner: env.entropy, left: AtomicUsize::new(nth), hook: Mutex::new(Box::new(hook)) };
    Env { clock: env.clock, entropy: Arc::new(entropy) }
}

#[test]
fn d7_postgresql_conforms() {
    let server = pg_server::shared();
    conformance::all(&|name| {
        let location = location(server, &format!("suite_{name}"));
        Box::new(PostgresStore::create(&location, host(1), &Env::seeded(1)).unwrap())
    });
}

#[test]
fn the_same_host_twice_is_refused_until_the_first_is_closed() {
    let (location, store) = fresh("slots");
    let refused = PostgresStore::open(&location, host(1), &Env::seeded(2)).unwrap_err();
    assert!(refused.to_string().contains("another process writes as"), "{refused}");
    PostgresStore::open(&location, host(2), &Env::seeded(2)).unwrap();
    drop(store);
    PostgresStore::open(&location, host(1), &Env::seeded(3)).unwrap();
}

#[test]
fn a_domain_is_created_once_and_opened_only_where_it_is() {
    let (location, store) = fresh("once");
    assert!(PostgresStore::create(&location, host(2), &Env::seeded(2)).is_err());
    let elsewhere = PgLocation { prefix: "nowhere_".to_owned(), ..location.clone() };
    assert!(matches!(PostgresStore::open(&elsewhere, host(2), &Env::seeded(2)), Err(Error::Missing { .. })));
    let odd = PgLocation { prefix: "a\"b".to_owned(), ..location.clone() };
    assert!(PostgresStore::create(&odd, host(2), &Env::seeded(2)).is_err());
    drop(store);
}

#[test]
fn a_newer_schema_is_refused_untouched() {
    let (location, store) = fresh("newer");
    drop(store);
    let newer = (SCHEMA_VERSION + 1).to_string();
    let sql = "UPDATE newer_journal.meta SET value = $1 WHERE key = 'schema'";
    pg_server::shared().client().execute(sql, &[&newer.as_bytes()]).unwrap();
    let refused = PostgresStore::open(&location, host(1), &Env::seeded(2)).unwrap_err();
    assert_eq!(refused, Error::SchemaNewer { domain: Domain::Journal, found: SCHEMA_VERSION + 1, known: SCHEMA_VERSION });
}

#[test]
fn a_changed_declaration_makes_the_table_anew_from_its_rows() {
    static WIDER: Spec = Spec {
        columns: &[Column { name: "name", value_type: ValueType::Text }, Column { name: "colour", value_type: ValueType::Text }],
        indexes: &[Index { name: "by_colour", columns: &["colour"], unique: false }],
        ..fixtures::PLAIN
    };
    let mut location = location(pg_server::shared(), "wider");
    location.kinds = vec![&fixtures::PLAIN];
    let mut store = PostgresStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    apply(&mut store, commit("a", vec![put(&fixtures::PLAIN, 1, 0, r#"{"colour":"red","name":"x"}"#)])).unwrap();
    drop(store);
    for kinds in [vec![&WIDER], vec![&fixtures::PLAIN], vec![&WIDER]] {
        location.kinds = kinds;
        drop(PostgresStore::open(&location, host(1), &Env::seeded(2)).unwrap());
    }
    let store = PostgresStore::open(&location, host(1), &Env::seeded(2)).unwrap();
    let scan = Scan { prefix: vec!["red".into()], ..Scan::new(&WIDER, "by_colour") };
    assert_eq!(store.reader().read().unwrap().scan(&scan).unwrap().rows.len(), 1);
    assert_eq!(store.reader().search(&WIDER, &workspace(), "x", 9).unwrap().len(), 1);
}

#[test]
fn an_error_that_ends_the_transaction_fails_only_the_commit_that_caused_it() {
    let (_, mut store) = fresh("poison");
    let trigger =
        "CREATE FUNCTION poison_journal.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''poison''; END';
         CREATE TRIGGER poison BEFORE INSERT ON poison_journal.things FOR EACH ROW WHEN (new.body LIKE '%poison%')
         EXECUTE FUNCTION poison_journal.refuse()";
    pg_server::shared().client().batch_execute(trigger).unwrap();
    for poisoned_at in 0..4u8 {
        let group: Vec<_> = (0..4u8)
            .map(|place| {
                let text = if place == poisoned_at { r#"{"name":"poison"}"# } else { "{}" };
                commit(&format!("{poisoned_at}-{place}"), vec![put(&THING, poisoned_at * 10 + place, 0, text)])
            })
            .collect();
        let results = store.apply_group(&group);
        for (place, result) in (0..4u8).zip(&results) {
            assert_eq!(result.is_err(), place == poisoned_at, "{result:?}");
        }
        assert!(matches!(results[usize::from(poisoned_at)], Err(Error::Storage { .. })));
        assert_sound(&store);
    }
}

#[test]
fn a_snapshot_sees_one_moment_and_answers_nothing_when_it_is_old() {
    let location = location(pg_server::shared(), "moment");
    let env = Env::seeded(1);
    let mut store = PostgresStore::create(&location, host(1), &env).unwrap();
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    apply(&mut store, commit("a", vec![put(&THING, 1, 0, "{}")])).unwrap();
    assert_eq!(snapshot.get(&THING, &id(1)).unwrap(), None);
    assert!(reader.read().unwrap().get(&THING, &id(1)).unwrap().is_some());
    for _ in 0..=domain::limits::SNAPSHOT_AGE_MS_MAX {
        env.clock.now();
    }
    assert_eq!(snapshot.get(&THING, &id(1)), Err(Error::SnapshotExpired));
}

#[test]
fn witnesses_are_kept_and_replaced() {
    let (_, mut store) = fresh("witnesses");
    let head = |counter| Head { stream: own_streams(host(1))[0], counter, chain: hash::plain(b"x"), at: Timestamp::EPOCH };
    let witness = |counter| Witness { domain: Domain::Agent, head: head(counter) };
    store.witness(&[witness(1)]).unwrap();
    let mut step = commit("a", vec![put(&THING, 1, 0, "{}")]);
    step.witnesses.push(witness(2));
    apply(&mut store, step).unwrap();
    assert_eq!(store.reader().read().unwrap().witnesses().unwrap(), [witness(2)]);
}

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

/// Runs the first commit on node one; when it has checked everything and is about to write, runs the second on node two until that is
/// done or waits for a lock.
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
fn a_deadlock_between_two_nodes_is_resolved_commit_by_commit() {
    let server = pg_server::shared();
    let location = location(server, "deadlock");
    drop(PostgresStore::create(&location, host(1), &Env::seeded(1)).unwrap());
    // Both have made their first record, and only then try to make the other's. A kind without aggregates: those they would lock
    // in order before anything else.
    let meeting = Arc::new(Barrier::new(2));
    let open = |number: u8| {
        let meeting = Arc::clone(&meeting);
        let env = hooked(u64::from(number), 2, move || drop(meeting.wait()));
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

/// Three commits that are one group.
fn three(key: &str) -> Vec<Commit> {
    (1..=3u8)
        .map(|number| commit(&format!("{key}-{number}"), vec![put(&THING, number, 0, "{}"), put(&CHECKPOINT, number, 0, "{}")]))
        .collect()
}

fn synced_counter(store: &dyn Store) -> u64 {
    store.heads().unwrap().iter().find(|head| head.stream.stream == Stream::Synced).unwrap().counter
}

#[test]
fn a_connection_cut_between_groups_is_replaced_unnoticed() {
    let (location, mut store) = fresh("cut_idle");
    apply(&mut store, commit("before", vec![put(&THING, 9, 0, "{}")])).unwrap();
    cut(&location, host(1));
    let results = store.apply_group(&three("a"));
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    cut(&location, host(1));
    store.witness(&[]).unwrap();
    assert_eq!(synced_counter(&store), 4);
    assert_sound(&store);
}

#[test]
fn a_connection_cut_within_a_group_leaves_nothing_of_it() {
    let location = location(pg_server::shared(), "cut_within");
    drop(PostgresStore::create(&location, host(1), &Env::seeded(1)).unwrap());
    // Each draw is a place between two statements.
    for draw in 1..=6 {
        let at = location.clone();
        let env = hooked(2, draw, move || cut(&at, host(1)));
        let mut store = PostgresStore::open(&location, host(1), &env).unwrap();
        let before = synced_counter(&store);
        let group: Vec<_> = three(&format!("{draw}"))
            .into_iter()
            .map(|mut commit| {
                commit.writes.iter_mut().for_each(|write| write.id = commit.operation_id.raw());
                commit
            })
            .collect();
        let results = store.apply_group(&group);
        let nothing = |result: &Result<Committed>| matches!(result, Err(Error::Storage { message, .. }) if message.contains("nothing was written"));
        assert!(results.iter().all(nothing), "{results:?}");
        assert_eq!(synced_counter(&store), before);
        // The same operations again, on the connection that replaced it: done, and once.
        let results = store.apply_group(&group);
        assert!(results.iter().flatten().filter(|committed| !committed.repeated).count() == 3, "{results:?}");
        assert!(store.apply_group(&group).iter().flatten().filter(|committed| committed.repeated).count() == 3);
        assert_eq!(synced_counter(&store), before + 3);
        assert_sound(&store);
    }
}

#[test]
fn a_connection_cut_after_the_commit_was_durable_is_resolved_by_its_operations() {
    // A server of its own: it waits for a standby that does not exist, between making a commit durable and saying so.
    let server = Server::start();
    let location = location(&server, "durable");
    let mut store = PostgresStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    let mut client = server.client();
    let set = |client: &mut ::postgres::Client, value: &str| {
        client.batch_execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{value}'")).unwrap();
        client.batch_execute("SELECT pg_reload_conf()").unwrap();
        while client.query_one("SELECT current_setting('synchronous_standby_names')", &[]).unwrap().get::<_, String>(0) != value {}
    };
    set(&mut client, "nobody");
    let results = std::thread::scope(|scope| {
        let group = scope.spawn(|| store.apply_group(&three("a")));
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while client.query(waiting, &[]).unwrap().is_empty() {}
        cut(&location, host(1));
        set(&mut client, "");
        group.join().unwrap()
    });
    assert!(results.iter().flatten().filter(|committed| committed.repeated).count() == 3, "{results:?}");
    assert_eq!(synced_counter(&store), 3);
    apply(&mut store, commit("b", vec![put(&THING, 9, 0, "{}")])).unwrap();
    assert_sound(&store);
}

#[test]
fn a_connection_cut_while_the_commit_is_made_leaves_nothing_of_it() {
    let server = pg_server::shared();
    let (location, mut store) = fresh("cut_commit");
    // A check at the end of the transaction that waits for a lock which the test holds.
    let mut client = server.client();
    client
        .batch_execute(
            "CREATE FUNCTION cut_commit_journal.wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7, 7); RETURN NULL; END';
             CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON cut_commit_journal.log_head DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION cut_commit_journal.wait();
             SELECT pg_advisory_lock(7, 7)",
        )
        .unwrap();
    let results = std::thread::scope(|scope| {
        let group = scope.spawn(|| store.apply_group(&three("a")));
        let waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 7 AND NOT granted";
        while client.query(waiting, &[]).unwrap().is_empty() {}
        cut(&location, host(1));
        group.join().unwrap()
    });
    assert!(results.iter().all(Result::is_err), "{results:?}");
    client.batch_execute("SELECT pg_advisory_unlock(7, 7)").unwrap();
    let results = store.apply_group(&three("a"));
    assert!(results.iter().flatten().filter(|committed| !committed.repeated).count() == 3, "{results:?}");
    assert_sound(&store);
}

#[test]
fn a_node_whose_slot_another_process_took_writes_no_more() {
    let (location, mut store) = fresh("deposed");
    apply(&mut store, commit("a", vec![put(&THING, 1, 0, "{}")])).unwrap();
    cut(&location, host(1));
    let mut successor = PostgresStore::open(&location, host(1), &Env::seeded(2)).unwrap();
    let results = store.apply_group(&three("b"));
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert!(matches!(apply(&mut store, commit("c", vec![put(&THING, 9, 0, "{}")])), Err(Error::Failing { .. })));
    assert!(store.reader().read().unwrap().get(&THING, &id(1)).unwrap().is_some(), "it can still read");
    apply(&mut successor, commit("d", vec![put(&THING, 1, 1, "{}")])).unwrap();
    assert_eq!(synced_counter(&successor), 2);
    assert_sound(&successor);
}

#[test]
fn a_row_that_a_refused_commit_replaced_is_there_for_the_next() {
    let (_, mut store) = fresh("replaced");
    apply(&mut store, commit("a", vec![put(&LEASE, 1, 0, r#"{"name":"a"}"#)])).unwrap();
    let replace = || vec![write(&LEASE, 1, 1, Change::Tombstone), put(&LEASE, 1, 0, r#"{"name":"b"}"#)];
    let mut refused = replace();
    refused.push(put(&THING, 1, 7, "{}"));
    let results = store.apply_group(&[commit("b", refused), commit("c", replace()), commit("d", vec![put(&LEASE, 1, 1, "{}")])]);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, true], "{results:?}");
}

/// A small generator, so that a history is the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

/// Texts whose order a server's language would change, and those that PostgreSQL's text cannot hold as they are.
const NAMES: [&str; 12] = ["", "a", "B", "b", "ä", "Z", "a b", "a-b", "\0", "\u{1}", "a\0", "\u{10ffff}"];

fn random_commit(dice: &mut Dice, number: u64) -> Commit {
    let writes = (0..=dice.roll(2))
        .map(|_| {
            let spec = dice.pick(&[&THING, &THING, &THING, &PING, &CHECKPOINT, &MEMO, &LEASE]);
            let mut fields = serde_json::Map::new();
            let mut set = |name: &str, value: serde_json::Value, odds: u64| {
                if odds > 0 {
                    fields.insert(name.to_owned(), value);
                }
            };
            set("name", dice.pick(&NAMES).into(), dice.roll(4));
            set("size", i64::try_from(dice.roll(4)).unwrap().into(), dice.roll(4));
            set("parent", id(u8::try_from(dice.roll(2)).unwrap()).with_prefix("thing").into(), dice.roll(3));
            set("text", "Two words".into(), dice.roll(2));
            let text = serde_json::Value::Object(fields).to_string();
            let (number, expected) = (u8::try_from(dice.roll(12)).unwrap(), dice.pick(&[0, 0, 1, 1, 2, 3]));
            match dice.roll(12) {
                0 => write(spec, number, expected, Change::Tombstone),
                1 if !std::ptr::eq(spec, &LEASE) => write(spec, number, expected, Change::Erase),
                _ => put(spec, number, expected, &text),
            }
        })
        .collect();
    // Sometimes an operation comes again.
    commit(&dice.pick(&[number, number, number, number / 2]).to_string(), writes)
}

fn random_scan(dice: &mut Dice) -> Scan<'static> {
    let (index, values): (_, [Vec<Value>; 2]) = if dice.roll(2) == 0 {
        let sizes = (0..4).map(Value::Integer).chain([Value::Null]).collect();
        ("by_size", [vec![Value::from(workspace().raw())], sizes])
    } else {
        let names = NAMES.iter().map(|name| Value::from(*name)).chain([Value::Null]).collect();
        ("by_parent", [vec![Value::Null, Value::from(id(0)), Value::from(id(1))], names])
    };
    let any = |dice: &mut Dice, from: &[Value]| from[usize::try_from(dice.roll(from.len() as u64)).unwrap()].clone();
    let width = usize::try_from(dice.roll(3)).unwrap();
    let prefix = values[..width].iter().map(|from| any(dice, from)).collect();
    let mut bound = |dice: &mut Dice| values.get(width).filter(|_| dice.roll(2) == 0).map(|from| any(dice, from));
    let (from, to) = (bound(dice), bound(dice));
    let limit = usize::try_from(1 + dice.roll(4)).unwrap();
    Scan { prefix, from, to, limit, direction: dice.pick(&[Direction::Forward, Direction::Backward]), ..Scan::new(&THING, index) }
}

#[test]
fn random_histories_leave_the_same_as_in_memory() {
    let location = location(pg_server::shared(), "random");
    let seed = 20_260_802;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut memory = MemoryStore::new(Domain::Journal, host(1), Env::seeded(5));
    let mut store = PostgresStore::create(&location, host(1), &Env::seeded(5)).unwrap();
    for round in 0..120 {
        let group: Vec<_> = (0..=dice.roll(4)).map(|place| random_commit(&mut dice, round * 5 + place)).collect();
        assert_eq!(store.apply_group(&group), memory.apply_group(&group), "round {round}: {group:#?}");
    }
    let streams: Vec<StreamId> = own_streams(host(1)).to_vec();
    assert_eq!(dump(store.reader().as_ref(), &streams), dump(memory.reader().as_ref(), &streams));
    let (reader, reference) = (store.reader(), memory.reader());
    for _ in 0..400 {
        let mut scan = random_scan(&mut dice);
        loop {
            let page = reader.read().unwrap().scan(&scan).unwrap();
            assert_eq!(page, reference.read().unwrap().scan(&scan).unwrap(), "{scan:?}");
            scan.after = page.next;
            if scan.after.is_none() {
                break;
            }
        }
    }
    for words in ["two", "words two", "a", "ä", "Z b"] {
        let ids = |reader: &dyn store::store::Reader| {
            let mut found: Vec<_> = reader.search(&THING, &workspace(), words, 99).unwrap().iter().map(|row| row.id).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(ids(reader.as_ref()), ids(reference.as_ref()), "{words}");
    }
    assert!(store.reader().read().unwrap().outcome(&operation("0")).unwrap().is_some());
    assert_sound(&store);
}

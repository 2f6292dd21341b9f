//! PostgreSQL keeps the suite's promises, on a real server: with several nodes at once, and when connections are cut.

mod cuts;
mod nodes;
mod random;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use domain::causality::Domain;
use domain::commit::{Change, Commit, Committed};
use domain::record::{Column, Index, Spec, ValueType};
use store::env::{Entropy, Env};
use store::postgres::{PgLocation, PostgresStore, SCHEMA_VERSION};
use store::store::{Scan, Store};
use store::{Error, Result};

use crate::conformance;
use crate::fixtures::{self, LEASE, THING, assert_sound, commit, host, id, kinds, put, workspace, write};
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
    let odd = PgLocation { prefix: "a\"b".to_owned(), ..location };
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
fn a_row_that_a_refused_commit_replaced_is_there_for_the_next() {
    let (_, mut store) = fresh("replaced");
    apply(&mut store, commit("a", vec![put(&LEASE, 1, 0, r#"{"name":"a"}"#)])).unwrap();
    let replace = || vec![write(&LEASE, 1, 1, Change::Tombstone), put(&LEASE, 1, 0, r#"{"name":"b"}"#)];
    let mut refused = replace();
    refused.push(put(&THING, 1, 7, "{}"));
    let results = store.apply_group(&[commit("b", refused), commit("c", replace()), commit("d", vec![put(&LEASE, 1, 1, "{}")])]);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, true], "{results:?}");
}

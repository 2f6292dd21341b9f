//! SQLite keeps the suite's promises, and answers truly when its transactions end badly.

use std::path::Path;

use domain::causality::Domain;
use store::Error;
use store::env::Env;
use store::sqlite::{Location, SqliteReader, SqliteStore};
use store::store::Store;

use crate::fixtures::{THING, assert_sound, commit, host, id, kinds, put};
use crate::{conformance, fixtures};

pub(crate) fn location(folder: &Path, name: &str) -> Location {
    Location { domain: Domain::Journal, path: folder.join(format!("{name}.sqlite")), kinds: kinds(), vfs: None }
}

#[test]
fn sqlite_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conformance::all(&|name| Box::new(SqliteStore::create(&location(folder.path(), name), host(1), &Env::seeded(1)).unwrap()));
}

/// Runs statements on a file behind the store's back.
pub(crate) fn tamper(path: &Path, sql: &str) {
    let connection = rusqlite_open(path);
    connection.execute_batch(sql).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "tests change files behind the store's back")]
pub(crate) fn rusqlite_open(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

#[test]
fn an_error_that_ends_the_transaction_fails_only_the_commit_that_caused_it() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "poison");
    let mut store = SqliteStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    let trigger =
        "CREATE TRIGGER poison BEFORE INSERT ON things WHEN new.body LIKE '%poison%' BEGIN SELECT RAISE(ROLLBACK, 'poison'); END";
    tamper(&location.path, trigger);
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
    let rows = (0..40).filter(|number| store.reader().read().unwrap().get(&THING, &id(*number)).unwrap().is_some()).count();
    assert_eq!(rows, 12);
}

#[test]
fn a_reader_beside_the_writer_sees_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::create(&location(folder.path(), "moment"), host(1), &Env::system()).unwrap();
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    store.apply_group(&[commit("a", vec![put(&THING, 1, 0, "{}")])]).pop().unwrap().unwrap();
    assert_eq!(snapshot.get(&THING, &id(1)).unwrap(), None);
    drop(snapshot);
    assert!(reader.read().unwrap().get(&THING, &id(1)).unwrap().is_some());
}

#[test]
fn a_snapshot_that_is_too_old_answers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // The seeded clock's monotonic time is its number of readings.
    let env = Env::seeded(1);
    let store = SqliteStore::create(&location(folder.path(), "old"), host(1), &env).unwrap();
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    for _ in 0..=domain::limits::SNAPSHOT_AGE_MS_MAX {
        env.clock.now();
    }
    assert_eq!(snapshot.get(&THING, &id(1)), Err(Error::SnapshotExpired));
}

#[test]
fn a_changed_declaration_makes_the_table_anew_from_its_rows() {
    use domain::record::{Column, Index, Spec, ValueType};
    static WIDER: Spec = Spec {
        columns: &[Column { name: "name", value_type: ValueType::Text }, Column { name: "colour", value_type: ValueType::Text }],
        indexes: &[Index { name: "by_colour", columns: &["colour"], unique: false }],
        aggregates: &[],
        ..fixtures::PLAIN
    };
    let folder = tempfile::tempdir().unwrap();
    let mut location = location(folder.path(), "wider");
    location.kinds = vec![&fixtures::PLAIN];
    let mut store = SqliteStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    store.apply_group(&[commit("a", vec![put(&fixtures::PLAIN, 1, 0, r#"{"colour":"red","name":"x"}"#)])]).pop().unwrap().unwrap();
    drop(store);
    location.kinds = vec![&WIDER];
    let store = SqliteStore::open(&location, &Env::seeded(2)).unwrap();
    let scan = store::store::Scan { prefix: vec!["red".into()], ..store::store::Scan::new(&WIDER, "by_colour") };
    let page = store.reader().read().unwrap().scan(&scan).unwrap();
    assert_eq!(page.rows.len(), 1);
}

#[test]
fn a_changed_aggregate_or_full_text_is_noticed_too() {
    use domain::record::{Aggregate, Spec};
    static COUNTED: Spec = Spec {
        aggregates: &[Aggregate { name: "count", group: &["workspace"], sum: None }],
        full_text: &["name", "text"],
        ..fixtures::PLAIN
    };
    let folder = tempfile::tempdir().unwrap();
    let mut location = location(folder.path(), "counted");
    location.kinds = vec![&fixtures::PLAIN];
    let mut store = SqliteStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    store.apply_group(&[commit("a", vec![put(&fixtures::PLAIN, 1, 0, r#"{"name":"x","text":"hidden"}"#)])]).pop().unwrap().unwrap();
    drop(store);
    location.kinds = vec![&COUNTED];
    let reader = SqliteReader::open(&location, &Env::seeded(2)).unwrap();
    assert!(matches!(reader.check_tables(), Err(Error::SchemaOlder { .. })), "a reader changes nothing, but says so");
    let store = SqliteStore::open(&location, &Env::seeded(2)).unwrap();
    reader.check_tables().unwrap();
    let workspace = domain::record::Value::from(fixtures::workspace().raw());
    assert_eq!(store.reader().read().unwrap().aggregate(&COUNTED, "count", &[workspace]), Ok(1));
    assert_eq!(store.reader().search(&COUNTED, &fixtures::workspace(), "hidden", 9).unwrap().len(), 1);
}

#[test]
fn d8_a_table_that_is_gone_is_refused_and_then_rebuilt_from_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "gone");
    let mut store = SqliteStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    let writes = vec![put(&THING, 1, 0, r#"{"name":"kept"}"#), put(&THING, 2, 0, r#"{"name":"also"}"#)];
    store.apply_group(&[commit("a", writes)]).pop().unwrap().unwrap();
    drop(store);
    tamper(&location.path, "DROP TABLE things");
    assert!(matches!(SqliteStore::open(&location, &Env::seeded(2)), Err(Error::Damaged { .. })));
    let mut store = SqliteStore::open_to_rebuild(&location, &Env::seeded(2)).unwrap();
    let report = store::sqlite::rebuild::run(&mut store, &mut |_| {}).unwrap();
    assert_eq!((report.differing_rows, report.rows), (2, 2));
    drop(store);
    let store = SqliteStore::open(&location, &Env::seeded(3)).unwrap();
    assert_eq!(store.reader().search(&THING, &fixtures::workspace(), "kept", 9).unwrap().len(), 1);
    assert_sound(&store);
}

#[test]
fn d8_a_rebuild_says_which_rows_differed_and_puts_them_right() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "differs");
    let mut store = SqliteStore::create(&location, host(1), &Env::seeded(1)).unwrap();
    let writes = (1..=4).map(|number| put(&THING, number, 0, r#"{"name":"n","size":3}"#)).collect();
    store.apply_group(&[commit("a", writes)]).pop().unwrap().unwrap();
    drop(store);
    let sql = format!(
        "UPDATE things SET body = '{{}}' WHERE n = 1; DELETE FROM things WHERE n = 2; UPDATE things SET size = 9 WHERE n = 3;
         INSERT INTO things(id, version, workspace, deleted) VALUES (x'{}', 1, x'{}', 0);
         UPDATE aggregates SET value = 7",
        "0f".repeat(16),
        "00".repeat(16)
    );
    tamper(&location.path, &sql);
    let mut store = SqliteStore::open(&location, &Env::seeded(2)).unwrap();
    let report = store::sqlite::rebuild::run(&mut store, &mut |_| {}).unwrap();
    assert_eq!((report.differing_rows, report.differing_aggregates), (4, 2), "{report:#?}");
    let again = store::sqlite::rebuild::run(&mut store, &mut |_| {}).unwrap();
    assert_eq!((again.differing_rows, again.differing_aggregates, again.rows), (0, 0, 4), "{again:#?}");
}

//! Connections that are cut at every kind of moment: a commit is found by its operation or was not written, and is never doubled.

use domain::causality::Stream;
use domain::commit::{Commit, Committed};
use domain::id::HostId;
use store::env::Env;
use store::postgres::{PgLocation, PostgresStore};
use store::store::Store;
use store::{Error, Result};

use super::{apply, fresh, hooked, location};
use crate::fixtures::{CHECKPOINT, THING, assert_sound, commit, host, id, put};
use crate::pg_server::{self, Server};

/// Ends the server process of a node's writer and waits until it is gone.
fn cut(location: &PgLocation, host: HostId) {
    let mut client = ::postgres::Client::connect(&location.config, ::postgres::NoTls).unwrap();
    let name = format!("verger {}journal {host}", location.prefix);
    let ended =
        client.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1", &[&name]);
    assert_eq!(ended.unwrap(), 1, "each node has one writer");
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
        let nothing = |result: &Result<Committed>| match result {
            Err(Error::Storage { message, .. }) => message.contains("nothing was written"),
            _ => false,
        };
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
            "CREATE FUNCTION cut_commit_journal.wait() RETURNS trigger LANGUAGE plpgsql
             AS 'BEGIN PERFORM pg_advisory_xact_lock(7, 7); RETURN NULL; END';
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

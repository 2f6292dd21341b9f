//! The promises of the storage trait, one case each, the same for every backend.

use domain::causality::{Domain, Stream, StreamId};
use domain::commit::{Change, Guard};
use domain::entry::{FieldsSet, Head, Op, Witness};
use domain::hash;
use domain::id::RawId;
use domain::record::{Record, Value};
use domain::records::cursor::Cursor;
use domain::records::fence::Fence;
use domain::time::Timestamp;
use store::store::{Direction, PageKey, Scan, Store};
use store::{Error, cursor};

use crate::fixtures::{
    CHECKPOINT, LEASE, MEMO, PING, THING, assert_sound, body, commit, host, id, operation, put, workspace, write,
};

pub(crate) type Make<'a> = &'a dyn Fn(&str) -> Box<dyn Store>;

type Case = fn(&mut dyn Store);

/// Every case, each on a fresh store.
pub(crate) fn all(make: Make<'_>) {
    let cases: &[(&str, Case)] = &[
        ("put_read", a_put_can_be_read),
        ("versions", a_write_on_another_version_is_refused_and_changes_nothing),
        ("tombstone", a_tombstone_hides_and_a_put_brings_back),
        ("repeat", the_same_operation_returns_the_first_outcome),
        ("reuse", another_request_under_the_same_operation_is_refused),
        ("classes", each_class_leaves_its_own_trace),
        ("ranges", a_commit_is_a_contiguous_range_per_stream),
        ("group", refused_commits_leave_no_gap),
        ("fields", fields_carry_the_dot_of_the_write_that_set_them),
        ("guards", guards_are_checked_in_the_transaction),
        ("aggregates", aggregates_follow_every_write),
        ("unique", a_unique_key_is_held_by_one),
        ("scans", scans_walk_an_index_in_both_directions_page_by_page),
        ("nulls", scans_page_through_rows_without_a_value),
        ("erase", erasing_destroys_every_body_and_says_so),
        ("cursors", a_cursor_moves_with_its_product),
        ("witnesses", witnesses_are_kept_with_a_commit_and_replaced),
        ("batches", a_batch_holds_whole_commits),
        ("history", a_cursor_of_another_history_is_refused),
        ("backwards", a_clock_that_runs_backwards_does_not_move_the_log_back),
        ("search", words_find_rows_until_they_change),
        ("shape", impossible_commits_are_refused),
    ];
    for (name, case) in cases {
        let mut store = make(name);
        case(store.as_mut());
        assert_sound(store.as_ref());
    }
}

pub(crate) fn apply(store: &mut dyn Store, commit: domain::commit::Commit) -> Result<domain::commit::Committed, Error> {
    store.apply_group(&[commit]).pop().expect("a group of one has one result")
}

fn synced(store: &dyn Store) -> StreamId {
    StreamId { host: store.host(), stream: Stream::Synced }
}

fn local(store: &dyn Store) -> StreamId {
    StreamId { host: store.host(), stream: Stream::Local }
}

fn a_put_can_be_read(store: &mut dyn Store) {
    let done = apply(store, commit("a", vec![put(&THING, 1, 0, r#"{"name":"x","size":"5"}"#)])).unwrap();
    assert_eq!((done.writes.len(), done.writes[0].version, done.repeated), (1, 1, false));
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    let row = snapshot.get(&THING, &id(1)).unwrap().unwrap();
    assert_eq!((row.version, row.deleted, row.body.as_deref()), (1, false, Some(r#"{"name":"x","size":"5"}"#)));
    assert_eq!(row.dot, done.writes[0].dot);
    assert_eq!(snapshot.get(&THING, &id(2)).unwrap(), None);
    let many = snapshot.get_many(&THING, &[id(2), id(1)]).unwrap();
    assert_eq!(many, [None, Some(row)]);
}

fn a_write_on_another_version_is_refused_and_changes_nothing(store: &mut dyn Store) {
    let conflict = |expected, current, deleted| Error::VersionConflict {
        kind: "thing",
        prefix: "thing",
        id: id(1),
        expected,
        current,
        deleted,
    };
    let refused = apply(store, commit("a", vec![put(&THING, 1, 3, "{}")])).unwrap_err();
    assert_eq!(refused, conflict(Some(3), None, false));
    apply(store, commit("b", vec![put(&THING, 1, 0, "{}")])).unwrap();
    assert_eq!(apply(store, commit("c", vec![put(&THING, 1, 0, "{}")])).unwrap_err(), conflict(None, Some(1), false));
    assert_eq!(apply(store, commit("d", vec![put(&THING, 1, 2, "{}")])).unwrap_err(), conflict(Some(2), Some(1), false));
    // The second write of the commit is refused, so the first must not be seen either.
    let both = vec![put(&THING, 1, 1, r#"{"name":"y"}"#), put(&THING, 2, 7, "{}")];
    apply(store, commit("e", both)).unwrap_err();
    assert_eq!(store.reader().read().unwrap().get(&THING, &id(1)).unwrap().unwrap().body.as_deref(), Some("{}"));
    // A refusal is not stored: the same operation can succeed later.
    let later = vec![put(&THING, 1, 1, r#"{"name":"y"}"#)];
    assert_eq!(apply(store, commit("e", later)).unwrap().writes[0].version, 2);
}

fn a_tombstone_hides_and_a_put_brings_back(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&THING, 1, 0, r#"{"name":"x"}"#)])).unwrap();
    let done = apply(store, commit("b", vec![write(&THING, 1, 1, Change::Tombstone)])).unwrap();
    assert_eq!((done.writes[0].version, done.writes[0].op), (2, Op::Tombstone));
    let row = store.reader().read().unwrap().get(&THING, &id(1)).unwrap().unwrap();
    assert_eq!((row.deleted, row.body, row.version), (true, None, 2));
    assert!(apply(store, commit("c", vec![write(&THING, 1, 2, Change::Tombstone)])).is_err(), "nothing is deleted twice");
    assert!(apply(store, commit("d", vec![put(&THING, 1, 0, "{}")])).is_err(), "a deleted row is not absent");
    apply(store, commit("e", vec![put(&THING, 1, 2, r#"{"name":"y"}"#)])).unwrap();
    let reader = store.reader();
    let history = reader.read().unwrap().history(&THING, &id(1), 10).unwrap();
    let shown: Vec<_> = history.iter().map(|(logged, _)| (logged.entry.version, logged.entry.op)).collect();
    assert_eq!(shown, [(3, Op::Put), (2, Op::Tombstone), (1, Op::Put)]);
}

fn the_same_operation_returns_the_first_outcome(store: &mut dyn Store) {
    let writes = || vec![put(&THING, 1, 0, "{}"), put(&CHECKPOINT, 1, 0, "{}"), put(&THING, 2, 0, "{}"), put(&LEASE, 1, 0, "{}")];
    let first = apply(store, commit("a", writes())).unwrap();
    assert_eq!(first.writes.len(), 3, "the control row is not part of a logged outcome");
    let again = apply(store, commit("a", writes())).unwrap();
    assert_eq!(again, domain::commit::Committed { repeated: true, ..first.clone() });
    assert_eq!(store.reader().read().unwrap().outcome(&operation("a")).unwrap(), Some(first));
    let control = apply(store, commit("b", vec![put(&LEASE, 2, 0, "{}")])).unwrap();
    let again = apply(store, commit("b", vec![put(&LEASE, 2, 0, "{}")])).unwrap();
    assert_eq!(again, domain::commit::Committed { repeated: true, ..control });
    // Within one group, too.
    let mut results = store.apply_group(&[commit("c", vec![put(&THING, 3, 0, "{}")]), commit("c", vec![put(&THING, 3, 0, "{}")])]);
    assert!(results.pop().unwrap().unwrap().repeated && !results.pop().unwrap().unwrap().repeated);
}

fn another_request_under_the_same_operation_is_refused(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&THING, 1, 0, "{}")])).unwrap();
    let refused = apply(store, commit("a", vec![put(&THING, 1, 0, r#"{"name":"z"}"#)])).unwrap_err();
    assert_eq!(refused, Error::OperationIdReused { operation_id: operation("a") });
    apply(store, commit("b", vec![put(&LEASE, 1, 0, "{}")])).unwrap();
    let refused = apply(store, commit("b", vec![put(&LEASE, 2, 0, "{}")])).unwrap_err();
    assert_eq!(refused, Error::OperationIdReused { operation_id: operation("b") });
}

fn each_class_leaves_its_own_trace(store: &mut dyn Store) {
    let writes = vec![
        put(&THING, 1, 0, r#"{"name":"t"}"#),
        put(&PING, 1, 0, r#"{"size":1}"#),
        put(&CHECKPOINT, 1, 0, r#"{"at":"c"}"#),
        put(&MEMO, 1, 0, r#"{"secret":"m"}"#),
        put(&LEASE, 1, 0, r#"{"name":"l"}"#),
    ];
    apply(store, commit("a", writes)).unwrap();
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    let kinds = |stream: StreamId| -> Vec<_> {
        snapshot.entries(&stream, 0, 10).unwrap().into_iter().map(|(logged, stored)| (logged.entry.kind, stored.body)).collect()
    };
    let owned = |kind: &str, body: Option<&str>| (kind.to_owned(), body.map(str::to_owned));
    let expected = [owned("thing", Some(r#"{"name":"t"}"#)), owned("ping", Some(r#"{"size":1}"#)), owned("memo", None)];
    assert_eq!(kinds(synced(store)), expected);
    assert_eq!(kinds(local(store)), [owned("checkpoint", Some(r#"{"at":"c"}"#))]);
    let row = snapshot.get(&MEMO, &id(1)).unwrap().unwrap();
    let (logged, stored) = snapshot.entry(&row.dot.unwrap()).unwrap().unwrap();
    assert_eq!(logged.entry.body_hash, Some(hash::salted(&stored.salt.unwrap(), row.body.unwrap().as_bytes())));
    let ping = snapshot.get(&PING, &id(1)).unwrap().unwrap();
    assert_eq!(ping.body.as_deref(), Some(r#"{"size":1}"#), "an immutable body is read from beside the log");
    let lease = snapshot.get(&LEASE, &id(1)).unwrap().unwrap();
    assert_eq!((lease.version, lease.dot), (1, None));
    drop(snapshot);
    apply(store, commit("b", vec![write(&LEASE, 1, 1, Change::Tombstone)])).unwrap();
    assert_eq!(reader.read().unwrap().get(&LEASE, &id(1)).unwrap(), None, "a control row leaves nothing behind");
    apply(store, commit("c", vec![put(&LEASE, 1, 0, r#"{"name":"l"}"#)])).unwrap();
}

fn a_commit_is_a_contiguous_range_per_stream(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&THING, 1, 0, "{}")])).unwrap();
    let writes = vec![put(&THING, 2, 0, "{}"), put(&CHECKPOINT, 1, 0, "{}"), put(&THING, 3, 0, "{}"), put(&CHECKPOINT, 2, 0, "{}")];
    let done = apply(store, commit("b", writes)).unwrap();
    assert_eq!((done.last_counter(Stream::Synced), done.last_counter(Stream::Local)), (Some(3), Some(2)));
    let ranges = |stream| -> Vec<_> {
        let entries = store.reader().read().unwrap().entries(&stream, 0, 10).unwrap();
        entries.iter().map(|(logged, _)| (logged.entry.dot.counter, logged.entry.first, logged.entry.last)).collect()
    };
    assert_eq!(ranges(synced(store)), [(1, 1, 1), (2, 2, 3), (3, 2, 3)]);
    assert_eq!(ranges(local(store)), [(1, 1, 2), (2, 1, 2)]);
}

fn refused_commits_leave_no_gap(store: &mut dyn Store) {
    for refused_at in 0..5u8 {
        let base = refused_at * 10;
        let group: Vec<_> = (0..5u8)
            .map(|place| {
                let expected = if place == refused_at { 9 } else { 0 };
                commit(
                    &format!("{refused_at}-{place}"),
                    vec![put(&THING, base + place, 0, "{}"), put(&THING, 100 + base + place, expected, "{}")],
                )
            })
            .collect();
        let results = store.apply_group(&group);
        let refused: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_err()).map(|(place, _)| place).collect();
        assert_eq!(refused, [usize::from(refused_at)]);
    }
    let heads = store.heads().unwrap();
    assert_eq!(heads.iter().find(|head| head.stream.stream == Stream::Synced).unwrap().counter, 5 * 4 * 2);
}

fn fields_carry_the_dot_of_the_write_that_set_them(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&THING, 1, 0, r#"{"name":"x","size":1,"text":"t"}"#)])).unwrap();
    apply(store, commit("b", vec![put(&THING, 1, 1, r#"{"name":"y","size":1}"#)])).unwrap();
    apply(store, commit("c", vec![put(&THING, 1, 2, r#"{"name":"y","size":2}"#)])).unwrap();
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    let set: Vec<_> = snapshot.entries(&synced(store), 0, 9).unwrap().into_iter().map(|(logged, _)| logged.entry.fields).collect();
    let some = |names: &[&str]| FieldsSet::Some(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(set, [FieldsSet::All, some(&["name", "text"]), some(&["size"])]);
    let state = snapshot.get(&THING, &id(1)).unwrap().unwrap().state;
    let older: Vec<_> = state.older_fields.iter().map(|(name, dot)| (name.as_str(), dot.counter)).collect();
    assert_eq!(older, [("name", 2)], "size is as new as the row, and text is gone");
    assert_eq!(state.edits.values().sum::<u64>(), 3);
}

fn guards_are_checked_in_the_transaction(store: &mut dyn Store) {
    let fence = |epoch: u64| {
        let fence = Fence { subject: "agent_x".into(), epoch, raised_at: Timestamp::EPOCH };
        let text = fence.to_body().unwrap().text().to_owned();
        let mut fence_write = put(Fence::SPEC, 0, 0, &text);
        fence_write.id = Fence::id_of("agent_x");
        fence_write
    };
    let guarded = |key: &str, guard: Guard, number: u8| {
        let mut guarded = commit(key, vec![put(&THING, number, 0, r#"{"name":"n","size":4}"#)]);
        guarded.guards.push(guard);
        guarded
    };
    let at = |epoch| Guard::Fence { subject: "agent_x".into(), epoch };
    apply(store, guarded("a", at(0), 1)).unwrap();
    apply(store, commit("raise", vec![fence(2)])).unwrap();
    let refused = apply(store, guarded("b", at(1), 2)).unwrap_err();
    assert_eq!(refused, Error::Fenced { subject: "agent_x".into(), epoch: 1, current: 2 });
    apply(store, guarded("c", at(2), 2)).unwrap();
    let mut lower = fence(1);
    lower.expected = domain::commit::Expected::Version(1);
    let mut gone = lower.clone();
    gone.change = Change::Tombstone;
    for write in [lower, gone] {
        assert!(matches!(apply(store, commit("lower", vec![write])), Err(Error::InvalidCommit(_))), "a fence only rises");
    }
    let version = |version| Guard::Version { spec: &THING, id: id(1), version };
    assert!(matches!(apply(store, guarded("d", version(2), 3)), Err(Error::GuardFailed { .. })));
    apply(store, guarded("e", version(1), 3)).unwrap();
    apply(store, guarded("f", Guard::Live { spec: &THING, id: id(3) }, 4)).unwrap();
    assert!(matches!(apply(store, guarded("g", Guard::Live { spec: &THING, id: id(99) }, 5)), Err(Error::GuardFailed { .. })));
    let group = vec![Value::from(workspace().raw()), Value::from("n")];
    let at_most = |limit| Guard::AtMost { spec: &THING, aggregate: "total", group: group.clone(), adding: 4, limit };
    let refused = apply(store, guarded("h", at_most(19), 6)).unwrap_err();
    assert_eq!(refused, Error::LimitReached { kind: "thing", aggregate: "total", current: 16, adding: 4, limit: 19 });
    apply(store, guarded("i", at_most(20), 6)).unwrap();
}

fn aggregates_follow_every_write(store: &mut dyn Store) {
    let counts = |store: &dyn Store, name: &str| {
        let reader = store.reader();
        let snapshot = reader.read().unwrap();
        let workspace = Value::from(workspace().raw());
        let count = snapshot.aggregate(&THING, "count", std::slice::from_ref(&workspace)).unwrap();
        (count, snapshot.aggregate(&THING, "total", &[workspace, Value::from(name)]).unwrap())
    };
    apply(store, commit("a", vec![put(&THING, 1, 0, r#"{"name":"x","size":5}"#), put(&THING, 2, 0, r#"{"name":"x","size":7}"#)]))
        .unwrap();
    assert_eq!(counts(store, "x"), (2, 12));
    apply(store, commit("b", vec![put(&THING, 1, 1, r#"{"name":"y","size":6}"#)])).unwrap();
    assert_eq!((counts(store, "x"), counts(store, "y")), ((2, 7), (2, 6)));
    apply(store, commit("c", vec![write(&THING, 1, 2, Change::Tombstone)])).unwrap();
    assert_eq!((counts(store, "x"), counts(store, "y")), ((1, 7), (1, 0)));
    apply(store, commit("d", vec![put(&THING, 3, 0, r#"{"name":"x","size":1}"#), put(&THING, 2, 9, "{}")])).unwrap_err();
    assert_eq!(counts(store, "x"), (1, 7), "a refused commit counts nothing");
}

fn a_unique_key_is_held_by_one(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&LEASE, 1, 0, r#"{"name":"n"}"#)])).unwrap();
    let group = [
        commit("b", vec![put(&THING, 1, 0, "{}"), put(&LEASE, 2, 0, r#"{"name":"n"}"#)]),
        commit("c", vec![put(&LEASE, 3, 0, r#"{"name":"m"}"#)]),
    ];
    let results = store.apply_group(&group);
    assert_eq!(results[0], Err(Error::DuplicateKey { kind: "lease", prefix: "lease", id: id(2) }));
    assert!(results[1].is_ok());
    assert_eq!(store.reader().read().unwrap().get(&THING, &id(1)).unwrap(), None);
    apply(store, commit("d", vec![write(&LEASE, 1, 1, Change::Tombstone), put(&LEASE, 2, 0, r#"{"name":"n"}"#)])).unwrap();
}

fn sized(store: &mut dyn Store, count: u8) {
    let writes = (0..count).map(|number| put(&THING, number, 0, &format!(r#"{{"name":"n","size":{}}}"#, number / 3))).collect();
    apply(store, commit("fill", writes)).unwrap();
}

fn pages(store: &dyn Store, mut scan: Scan<'_>) -> Vec<RawId> {
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    let mut found = Vec::new();
    loop {
        let page = snapshot.scan(&scan).unwrap();
        assert!(page.rows.len() <= scan.limit);
        found.extend(page.rows.iter().map(|row| row.id));
        let Some(next) = page.next else { return found };
        scan.after = Some(next);
    }
}

fn scans_walk_an_index_in_both_directions_page_by_page(store: &mut dyn Store) {
    sized(store, 20);
    apply(store, commit("rm", vec![write(&THING, 5, 1, Change::Tombstone)])).unwrap();
    let prefix = vec![Value::from(workspace().raw())];
    let scan = |direction, limit| Scan { prefix: prefix.clone(), direction, limit, ..Scan::new(&THING, "by_size") };
    let live: Vec<_> = (0..20).filter(|number| *number != 5).map(id).collect();
    for limit in [1, 2, 3, 7, 100] {
        assert_eq!(pages(store, scan(Direction::Forward, limit)), live);
        let mut backward = pages(store, scan(Direction::Backward, limit));
        backward.reverse();
        assert_eq!(backward, live);
    }
    let ranged = Scan { from: Some(Value::Integer(2)), to: Some(Value::Integer(4)), ..scan(Direction::Forward, 2) };
    assert_eq!(pages(store, ranged), (6..12).map(id).collect::<Vec<_>>());
    let exact = Scan { prefix: vec![prefix[0].clone(), Value::Integer(0)], ..scan(Direction::Forward, 2) };
    assert_eq!(pages(store, exact), [id(0), id(1), id(2)]);
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    assert!(snapshot.scan(&Scan::new(&THING, "by_colour")).is_err());
    let foreign = PageKey { values: vec![], id: id(0) };
    assert!(snapshot.scan(&Scan { after: Some(foreign), ..Scan::new(&THING, "by_size") }).is_err());
}

fn scans_page_through_rows_without_a_value(store: &mut dyn Store) {
    let parent = id(9).with_prefix("thing");
    let writes = vec![
        put(&THING, 1, 0, "{}"),
        put(&THING, 2, 0, r#"{"name":"a"}"#),
        put(&THING, 3, 0, &format!(r#"{{"parent":"{parent}"}}"#)),
        put(&THING, 4, 0, &format!(r#"{{"parent":"{parent}","name":"a"}}"#)),
        put(&THING, 5, 0, "{}"),
    ];
    apply(store, commit("a", writes)).unwrap();
    let expected = [id(1), id(5), id(2), id(3), id(4)];
    for limit in [1, 2, 5] {
        let scan = |direction| Scan { limit, direction, ..Scan::new(&THING, "by_parent") };
        assert_eq!(pages(store, scan(Direction::Forward)), expected);
        let mut backward = pages(store, scan(Direction::Backward));
        backward.reverse();
        assert_eq!(backward, expected);
    }
    let none = Scan { prefix: vec![Value::Null], limit: 2, ..Scan::new(&THING, "by_parent") };
    assert_eq!(pages(store, none), [id(1), id(5), id(2)]);
}

fn erasing_destroys_every_body_and_says_so(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&PING, 9, 0, r#"{"size":3}"#), put(&THING, 1, 0, r#"{"name":"secret"}"#)])).unwrap();
    apply(store, commit("b", vec![put(&THING, 1, 1, r#"{"name":"still secret"}"#)])).unwrap();
    let done = apply(store, commit("c", vec![write(&THING, 1, 2, Change::Erase)])).unwrap();
    assert_eq!((done.writes[0].op, done.writes[0].version), (Op::Erase, 3));
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    let row = snapshot.get(&THING, &id(1)).unwrap().unwrap();
    assert_eq!((row.deleted, row.body), (true, None));
    let entries = snapshot.entries(&synced(store), 0, 9).unwrap();
    let gone: Vec<_> =
        entries.iter().map(|(_, stored)| (stored.body.is_none(), stored.salt.is_none(), stored.request.is_none())).collect();
    assert_eq!(gone, [(false, false, true), (true, true, true), (true, true, true), (false, false, false)]);
    assert!(entries[3].1.body.as_ref().unwrap().contains("#2") && entries[3].1.body.as_ref().unwrap().contains("#3"));
    drop(snapshot);
    apply(store, commit("d", vec![write(&PING, 9, 1, Change::Erase)])).unwrap();
    let ping = reader.read().unwrap().get(&PING, &id(9)).unwrap().unwrap();
    assert_eq!((ping.deleted, ping.body), (true, None), "what an erase left behind is not the body of an immutable row");
    // The erased requests can no longer be compared; their ids alone decide.
    assert!(apply(store, commit("b", vec![put(&THING, 1, 1, r#"{"name":"a guess"}"#)])).unwrap().repeated);
    let found = reader.search(&THING, &workspace(), "secret", 10).unwrap();
    assert_eq!(found, []);
}

fn opened(store: &dyn Store) -> cursor::Opened {
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    cursor::open(snapshot.as_ref(), snapshot.as_ref(), "reader", Timestamp::EPOCH, store.domain()).unwrap()
}

fn held(store: &dyn Store) -> cursor::Held {
    match opened(store) {
        cursor::Opened::Held(held) => held,
        cursor::Opened::New(_) => panic!("the cursor is not stored"),
    }
}

fn a_cursor_moves_with_its_product(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&THING, 1, 0, "{}")])).unwrap();
    let cursor::Opened::New(start) = opened(store) else { panic!("nobody has stored it") };
    apply(store, commit("start", vec![start])).unwrap();
    let first = held(store);
    assert_eq!((first.version, first.cursor.places.len()), (1, 1), "a new consumer starts at the head");
    apply(store, commit("b", vec![put(&THING, 2, 0, "{}"), put(&CHECKPOINT, 1, 0, "{}")])).unwrap();
    let reader = store.reader();
    let batch = cursor::next(reader.read().unwrap().as_ref(), &first, 10, Timestamp::EPOCH).unwrap();
    let kinds: Vec<_> = batch.entries.iter().map(|(logged, _)| logged.entry.kind.as_str()).collect();
    assert_eq!(kinds, ["thing", "checkpoint"]);
    let mut step = commit("step", vec![put(&LEASE, 7, 0, "{}"), cursor::moved(&first, &batch.after).unwrap()]);
    step.operation_id = domain::id::OperationId::of_consumer("reader", &first.cursor.hash());
    apply(store, step.clone()).unwrap();
    assert!(apply(store, step).unwrap().repeated, "a restart cannot double the product");
    let second = held(store);
    assert_eq!(second.version, 2);
    let snapshot = reader.read().unwrap();
    assert!(cursor::next(snapshot.as_ref(), &second, 10, Timestamp::EPOCH).unwrap().entries.is_empty());
    assert_eq!(cursor::list(snapshot.as_ref()).unwrap(), [second]);
}

fn a_batch_holds_whole_commits(store: &mut dyn Store) {
    let cursor::Opened::New(start) = opened(store) else { panic!("nobody has stored it") };
    apply(store, commit("start", vec![start])).unwrap();
    for (number, key) in [(10, "a"), (20, "b")] {
        apply(store, commit(key, (number..number + 3).map(|number| put(&THING, number, 0, "{}")).collect())).unwrap();
    }
    let mut held = held(store);
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    for (limit, expected) in [(4, 3), (1, 3), (5, 0)] {
        let batch = cursor::next(snapshot.as_ref(), &held, limit, Timestamp::EPOCH).unwrap();
        assert_eq!(batch.entries.len(), expected, "at most {limit}");
        held.cursor = batch.after;
    }
}

fn a_cursor_of_another_history_is_refused(store: &mut dyn Store) {
    apply(store, commit("a", vec![put(&THING, 1, 0, "{}")])).unwrap();
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    let good = cursor::at_head(snapshot.as_ref(), "reader", Timestamp::EPOCH, store.domain()).unwrap();
    cursor::check(snapshot.as_ref(), &good).unwrap();
    let mut ahead: Cursor = good.clone();
    ahead.places[0].counter = 2;
    let mut other_chain: Cursor = good.clone();
    other_chain.places[0].chain = hash::plain(b"x");
    let other_history = Cursor { history: domain::id::HistoryId::from_raw(id(1)), ..good };
    for cursor in [ahead, other_chain, other_history] {
        assert!(matches!(cursor::check(snapshot.as_ref(), &cursor), Err(Error::CursorFromOtherHistory { .. })));
    }
}

fn a_clock_that_runs_backwards_does_not_move_the_log_back(store: &mut dyn Store) {
    for number in 0..10 {
        apply(store, commit(&number.to_string(), vec![put(&THING, number, 0, "{}")])).unwrap();
    }
    let entries = store.reader().read().unwrap().entries(&synced(store), 0, 10).unwrap();
    assert!(entries.windows(2).all(|pair| pair[0].0.entry.at <= pair[1].0.entry.at));
}

fn words_find_rows_until_they_change(store: &mut dyn Store) {
    let found = |store: &dyn Store, words: &str| -> std::collections::BTreeSet<RawId> {
        store.reader().search(&THING, &workspace(), words, 10).unwrap().into_iter().map(|row| row.id).collect()
    };
    let writes = vec![
        put(&THING, 1, 0, r#"{"name":"Green tea","text":"steep two minutes"}"#),
        put(&THING, 2, 0, r#"{"name":"Black tea","text":"steep four minutes"}"#),
    ];
    apply(store, commit("a", writes)).unwrap();
    assert_eq!(found(store, "tea"), [id(1), id(2)].into());
    assert_eq!(found(store, "TEA green"), [id(1)].into());
    assert_eq!(found(store, "coffee"), [].into());
    assert_eq!(found(store, "\"tea\" OR * -green NEAR("), [].into(), "nothing that is typed is query syntax");
    apply(store, commit("b", vec![put(&THING, 1, 1, r#"{"name":"Coffee","text":""}"#), write(&THING, 2, 1, Change::Tombstone)]))
        .unwrap();
    assert_eq!((found(store, "tea"), found(store, "coffee")), ([].into(), [id(1)].into()));
}

fn witnesses_are_kept_with_a_commit_and_replaced(store: &mut dyn Store) {
    let stream = StreamId { host: host(2), stream: Stream::Synced };
    let witness = |counter| {
        let head = Head { stream, counter, chain: hash::plain(b"x"), at: Timestamp::EPOCH };
        Witness { domain: Domain::Agent, head }
    };
    store.witness(&[witness(1)]).unwrap();
    let mut step = commit("a", vec![put(&THING, 1, 0, "{}")]);
    step.witnesses.push(witness(2));
    apply(store, step).unwrap();
    assert_eq!(store.reader().read().unwrap().witnesses().unwrap(), [witness(2)]);
    // A refused commit has told nothing.
    let mut refused = commit("b", vec![put(&THING, 1, 7, "{}")]);
    refused.witnesses.push(witness(3));
    apply(store, refused).unwrap_err();
    assert_eq!(store.reader().read().unwrap().witnesses().unwrap(), [witness(2)]);
}

fn impossible_commits_are_refused(store: &mut dyn Store) {
    let invalid = |store: &mut dyn Store, commit| assert!(matches!(apply(store, commit), Err(Error::InvalidCommit(_))));
    invalid(store, commit("a", vec![]));
    invalid(store, commit("b", vec![put(domain::records::note::Note::SPEC, 1, 0, "{}"); 1001]));
    invalid(store, commit("c", vec![put(domain::records::agent::Agent::SPEC, 1, 0, "{}")]));
    invalid(store, commit("d", vec![put(&THING, 1, 0, r#"{"size":"many"}"#)]));
    invalid(store, commit("e", vec![put(&THING, 1, 0, r#"{"a,b":1}"#)]));
    apply(store, commit("f", vec![put(&PING, 1, 0, "{}")])).unwrap();
    invalid(store, commit("g", vec![put(&PING, 1, 1, "{}")]));
    invalid(store, commit("h", vec![write(&LEASE, 1, 1, Change::Erase)]));
    let mut deep = commit("i", vec![put(&THING, 1, 0, "{}")]);
    deep.cause.depth = 9;
    invalid(store, deep);
    let mut astray = commit("j", vec![put(&THING, 1, 0, "{}")]);
    astray.guards.push(Guard::Live { spec: domain::records::agent::Agent::SPEC, id: id(1) });
    invalid(store, astray);
    assert_eq!(body("{}").text(), "{}");
}

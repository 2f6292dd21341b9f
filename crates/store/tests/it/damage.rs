//! Whatever is done to a file behind the store's back, `verify` names the first entry that is not as it was.
//!
//! Two databases witness each other. Each case takes a fresh copy of both, changes one of them with plain SQL, and looks at the report.
//! What single flipped bits do is in [`flips`].

#[cfg(test)]
mod flips;
#[cfg(test)]
mod home;

use domain::causality::Dot;
use store::Error;
use store::sqlite::SqliteStore;
use store::store::{Reader, Store};

use crate::fixtures::{THING, commit, host, put, write};
use home::{Home, Numbers, synced};

/// A home that is built once and copied for every case.
fn whole(folder: &std::path::Path) -> (Home, Numbers) {
    let home = Home::build(folder);
    let numbers = home.numbers();
    (home, numbers)
}

/// The report of a changed copy names `expected` first.
fn check(home: &Home, what: &str, sql: &str, expected: u64) {
    let (_folder, copy) = home.copy();
    copy.tamper(sql);
    let report = copy.verify(true).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = report.streams.iter().find_map(|stream| stream.damage.clone());
    let found = found.unwrap_or_else(|| panic!("{what}: `{sql}` was not found"));
    assert_eq!(found.at, Dot { stream: synced(), counter: expected }, "{what}: `{sql}`: {}", found.what);
    assert!(!report.is_sound());
}

#[test]
fn d8_a_whole_log_passes_and_says_how_far_it_is_witnessed() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    for witnessed in [true, false] {
        let report = home.verify(witnessed).unwrap();
        assert!(report.is_sound(), "{report:#?}");
        let stream = report.streams.iter().find(|stream| stream.stream == synced()).unwrap();
        assert_eq!((stream.verified, stream.erased), (numbers.end, numbers.erased));
        assert_eq!(stream.witnessed, if witnessed { numbers.witnessed } else { 0 });
    }
    let report = home.verify_agent().unwrap();
    assert!(report.is_sound() && report.streams.iter().any(|stream| stream.witnessed > 0), "{report:#?}");
    assert!(numbers.end > 300 && numbers.witnessed > 200 && numbers.erased > 2, "{numbers:?}");
}

#[test]
fn d8_every_column_of_every_kind_of_entry_is_covered() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let other = domain::causality::StreamId { host: host(9), ..synced() }.host;
    let mut cases = 0;
    for at in [numbers.edit, numbers.tombstone, numbers.erase, numbers.memo, numbers.first_of_commit, numbers.end] {
        let mut change = |column: &str, values: &[&str]| {
            for value in values {
                let sql = format!("UPDATE log SET {column} = {value} WHERE pos = {}", home::position(at));
                check(&home, column, &sql, at);
                cases += 1;
            }
        };
        change("pos", &["pos + 100000", "pos + (5 << 40)", "-pos"]);
        change("before", &["before + 1", "-1", "9000000000"]);
        change("after", &["after + 1", "-1", "9223372036854775807"]);
        change("kind", &["'things'", "''"]);
        change("schema", &["schema + 1", "-1", "1 << 40"]);
        change("workspace", &["zeroblob(16)", "x'01'"]);
        change("id", &["randomblob(16)", "x''"]);
        change("op", &["CASE op WHEN 'put' THEN 'tombstone' ELSE 'put' END", "'destroy'"]);
        change("version", &["version + 1", "-version"]);
        let edits = [format!("'{}=1'", host(1)), format!("'{other}=1,{}=1'", host(1)), "'many'".to_owned(), "''".to_owned()];
        change("edits", &edits.iter().map(String::as_str).skip(usize::from(at == numbers.first_of_commit)).collect::<Vec<_>>());
        change("fields", &["ifnull(fields, '') || 'x'"]);
        change("clock", &[&format!("'{other}=1'"), "'late'", "''"]);
        change("actor", &["x'73'", "x'78'", "CAST(actor || x'00' AS BLOB)"]);
        change("operation", &["randomblob(16)", "randomblob(15)"]);
        change("run_key", &["zeroblob(32)", "zeroblob(31)"]);
        change("source_event", &["zeroblob(16)", "x''"]);
        change("cause_depth", &["cause_depth + 1", "-1", "256"]);
        change("at", &["at + 1", "at - 1", "9223372036854775807"]);
        change("body_hash", &["zeroblob(32)", "x'00'"]);
        change("chain", &["zeroblob(32)", "x'00'"]);
        let before = home::position(at - 1);
        let foreign = [
            before.to_string(),
            "pos".to_owned(),
            "pos + 1".to_owned(),
            "5 << 40".to_owned(),
            "1 << 40".to_owned(),
            "-1".to_owned(),
        ];
        change("previous", &foreign.iter().map(String::as_str).collect::<Vec<_>>());
    }
    // What only some entries have.
    let at = home::position(numbers.caused);
    for column in ["run_key", "source_event", "body_hash"] {
        check(&home, column, &format!("UPDATE log SET {column} = NULL WHERE pos = {at}"), numbers.caused);
    }
    for column in ["fields", "previous"] {
        check(&home, column, &format!("UPDATE log SET {column} = NULL WHERE pos = {}", home::position(numbers.edit)), numbers.edit);
    }
    println!("{} changed columns were each named at their entry", cases + 5);
}

#[test]
fn d8_a_link_to_an_older_entry_of_the_same_record_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let older = format!("(SELECT l.previous FROM log l WHERE l.pos = log.previous) WHERE pos = {}", home::position(numbers.third));
    check(&home, "previous", &format!("UPDATE log SET previous = {older}"), numbers.third);
}

#[test]
fn d8_a_deleted_entry_is_found_wherever_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    for at in [1, 2, numbers.edit, numbers.erase, numbers.witnessed, numbers.end - 1, numbers.end] {
        let position = home::position(at);
        check(&home, "entry", &format!("DELETE FROM log WHERE pos = {position}"), at);
        check(&home, "both", &format!("DELETE FROM log WHERE pos = {position}; DELETE FROM bodies WHERE pos = {position}"), at);
    }
}

#[test]
fn d8_two_entries_that_changed_places_are_found_at_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let swap = |table: &str, a: u64, b: u64| {
        let (a, b) = (home::position(a), home::position(b));
        format!(
            "UPDATE {table} SET pos = 0 WHERE pos = {a}; UPDATE {table} SET pos = {a} WHERE pos = {b}; UPDATE {table} SET pos = {b} WHERE pos = 0;"
        )
    };
    for (a, b) in [(1, 2), (numbers.edit, numbers.edit + 1), (numbers.edit, numbers.end), (numbers.memo, numbers.erase)] {
        let (a, b) = (a.min(b), a.max(b));
        check(&home, "log", &swap("log", a, b), a);
        check(&home, "bodies", &swap("bodies", a, b), a);
        check(&home, "both", &(swap("log", a, b) + &swap("bodies", a, b)), a);
    }
}

#[test]
fn d8_a_tail_that_was_cut_off_is_found_while_the_head_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    for kept in [0, 1, numbers.erase - 1, numbers.witnessed, numbers.end - 1] {
        let cut = home::position(kept);
        let sql =
            format!("DELETE FROM log WHERE pos > {cut} AND pos < 2 << 40; DELETE FROM bodies WHERE pos > {cut} AND pos < 2 << 40");
        check(&home, "tail", &sql, kept + 1);
        let (_folder, copy) = home.copy();
        copy.tamper(&sql);
        let alone = copy.verify(false).unwrap();
        assert!(!alone.is_sound(), "without witnesses, too");
    }
}

#[test]
fn d8_a_tail_that_was_cut_off_with_its_head_is_found_up_to_the_last_witness() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let cut = |kept: u64| {
        let (_folder, copy) = home.copy();
        copy.tamper(&home::cut_with_head(kept));
        (copy.verify(true).unwrap(), copy.verify(false).unwrap())
    };
    for kept in numbers.boundaries.iter().copied().filter(|kept| *kept >= numbers.last_erase) {
        let (witnessed, alone) = cut(kept);
        assert!(alone.is_sound(), "nobody remembers entry {}: {alone:#?}", kept + 1);
        assert!(alone.streams.iter().all(|stream| stream.witnessed == 0));
        let stream = witnessed.streams.iter().find(|stream| stream.stream == synced()).unwrap();
        assert_eq!(stream.witnessed, numbers.witnessed);
        let found = stream.damage.as_ref().map(|damage| damage.at.counter);
        assert_eq!(found, (kept < numbers.witnessed).then_some(kept + 1));
    }
    // A cut that takes an erase entry with it leaves bodies missing that nothing names: found without any witness.
    let (_, alone) = cut(numbers.erase - 1);
    assert_eq!(alone.streams.iter().find_map(|stream| stream.damage.clone()).unwrap().at.counter, numbers.erased_first);
}

#[test]
fn d8_a_body_salt_or_request_that_changed_is_found_at_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let set = |at: u64, what: &str| format!("UPDATE bodies SET {what} WHERE pos = {}", home::position(at));
    for at in [1, numbers.edit, numbers.erase, numbers.end] {
        for what in ["body = body || ' '", "body = '{}'", "body = NULL", "salt = zeroblob(16)", "salt = NULL", "salt = x'00'"] {
            check(&home, "bodies", &set(at, what), at);
        }
        check(&home, "bodies", &format!("DELETE FROM bodies WHERE pos = {}", home::position(at)), at);
    }
    for at in [numbers.first_of_commit, numbers.erase, numbers.tombstone] {
        for what in ["request = zeroblob(32)", "request = x'00'", "request = NULL", "salt = zeroblob(16)", "salt = NULL"] {
            check(&home, "request", &set(at, what), at);
        }
    }
    check(&home, "request", &set(numbers.edit, "request = zeroblob(32)"), numbers.edit);
    check(&home, "body", &set(numbers.tombstone, "body = '{}'"), numbers.tombstone);
    let named = format!(r#"body = '{{"erased":["{}"]}}'"#, store::place(&Dot { stream: synced(), counter: 1 }));
    check(&home, "list", &set(numbers.erase, &named), numbers.erase);
    check(&home, "list", &set(numbers.last_erase, r#"body = '{"erased":[]}'"#), numbers.last_erase);
}

#[test]
fn d8_a_hash_logged_body_that_changed_in_its_table_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let row = format!("WHERE pos = {}", home::position(numbers.memo));
    check(&home, "memos", &format!("UPDATE memos SET body = '{{}}' {row}"), numbers.memo);
    check(&home, "memos", &format!("UPDATE memos SET body = NULL {row}"), numbers.memo);
    check(&home, "memos", &format!("DELETE FROM memos {row}"), numbers.memo);
    check(&home, "bodies", &format!("UPDATE bodies SET salt = zeroblob(16) {row}"), numbers.memo);
}

#[test]
fn d8_a_changed_or_missing_head_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let end = numbers.end;
    let heads = [
        ("UPDATE log_head SET counter = counter - 1 WHERE stream = 1", end),
        ("UPDATE log_head SET counter = counter + 1 WHERE stream = 1", end + 1),
        ("UPDATE log_head SET chain = zeroblob(32) WHERE stream = 1", end),
        ("UPDATE log_head SET at = at + 1 WHERE stream = 1", end),
        ("DELETE FROM log_head WHERE stream = 1", end),
    ];
    for (sql, at) in heads {
        check(&home, "head", sql, at);
    }
    for sql in [
        "UPDATE log_head SET chain = x'00'",
        "UPDATE log_head SET counter = -1",
        "UPDATE log_head SET stream = 9 WHERE stream = 1",
        "UPDATE log_head SET stream = -1 WHERE stream = 1",
    ] {
        let (_folder, copy) = home.copy();
        copy.tamper(sql);
        assert!(matches!(copy.verify(true), Err(Error::Damaged { .. })), "{sql}");
        assert!(matches!(SqliteStore::open(&copy.journal, &home::env()), Err(Error::Damaged { .. })), "{sql}");
    }
}

#[test]
fn d8_a_changed_table_of_streams_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (home, _) = whole(folder.path());
    for sql in [
        "UPDATE streams SET host = zeroblob(16) WHERE n = 1",
        "UPDATE streams SET host = zeroblob(15) WHERE n = 1",
        "UPDATE streams SET stream = 'both' WHERE n = 1",
        "UPDATE streams SET stream = iif(n = 1, 'local', 'synced'), host = iif(n = 1, zeroblob(16), host)",
        "UPDATE streams SET n = n + 7",
        "UPDATE streams SET n = -n",
        "UPDATE streams SET n = n << 40",
        "UPDATE streams SET n = 0 WHERE n = 1",
        "DELETE FROM streams WHERE n = 1",
        "DELETE FROM streams",
        "DELETE FROM streams; DELETE FROM log_head",
        "DELETE FROM streams WHERE n = 2; DELETE FROM log_head WHERE stream = 2",
        "UPDATE meta SET value = zeroblob(16) WHERE key = 'host'",
        "UPDATE meta SET value = zeroblob(3) WHERE key = 'host'",
        "DELETE FROM meta WHERE key = 'host'",
    ] {
        let (_folder, copy) = home.copy();
        copy.tamper(sql);
        for witnessed in [true, false] {
            let found = copy.verify(witnessed);
            assert!(found.as_ref().map_or(true, |report| !report.is_sound()), "{sql}: {found:#?}");
        }
    }
}

#[test]
fn d8_an_older_copy_of_a_file_is_found_by_its_witness() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    // Taken before the other file wrote the head down, and after.
    for (older, found) in [(&home.early, true), (&home.late, false)] {
        let (_folder, copy) = home.copy();
        std::fs::copy(older, &copy.journal.path).unwrap();
        let alone = copy.verify(false).unwrap();
        assert!(alone.is_sound(), "in itself it is whole: {alone:#?}");
        let end = alone.streams.iter().find(|stream| stream.stream == synced()).unwrap().verified;
        assert!(end < numbers.end);
        let report = copy.verify(true).unwrap();
        let stream = report.streams.iter().find(|stream| stream.stream == synced()).unwrap();
        assert_eq!(stream.witnessed, numbers.witnessed);
        assert_eq!(stream.damage.as_ref().map(|damage| damage.at.counter), found.then_some(end + 1));
    }
}

#[test]
fn d8_another_log_under_the_same_name_is_found_by_its_witness() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let (_folder, copy) = home.copy();
    std::fs::remove_file(&copy.journal.path).unwrap();
    let mut other = SqliteStore::create(&copy.journal, host(1), &home::env()).unwrap();
    for number in 0..=numbers.witnessed {
        let number = u8::try_from(number % 200).unwrap();
        let version = u64::from(other.reader().read().unwrap().get(&THING, &crate::fixtures::id(number)).unwrap().is_some());
        let key = format!("{number} at {version}");
        other.apply_group(&[commit(&key, vec![put(&THING, number, version, "{}")])]).pop().unwrap().unwrap();
    }
    drop(other);
    let report = copy.verify(true).unwrap();
    let found = report.streams.iter().find_map(|stream| stream.damage.clone()).unwrap();
    assert_eq!((found.at.counter, found.what.contains("another file")), (numbers.witnessed, true), "{found:?}");
}

#[test]
fn d8_the_first_of_two_damages_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let body_gone = |at: u64| format!("DELETE FROM bodies WHERE pos = {};", home::position(at));
    let changed = |at: u64| format!("UPDATE log SET at = at + 1 WHERE pos = {};", home::position(at));
    let unreadable = |at: u64| format!("UPDATE log SET op = '' WHERE pos = {};", home::position(at));
    let (a, b) = (numbers.edit, numbers.edit + 20);
    for sql in [body_gone(a) + &changed(b), changed(a) + &body_gone(b), changed(a) + &unreadable(b), unreadable(a) + &changed(b)] {
        check(&home, "two", &sql, a);
    }
    // Behind the damage there are still erase entries to be read, and others that cannot be.
    let behind = unreadable(numbers.erase - 1) + &unreadable(numbers.erase + 1);
    check(&home, "three", &(changed(numbers.edit) + &behind), numbers.edit);
}

#[test]
fn d8_an_index_that_forgot_an_operation_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (home, _) = whole(folder.path());
    let (_folder, copy) = home.copy();
    // The index still has an entry for it, under another value: a repeat would be done twice.
    let forget = "PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = 'CREATE INDEX log_operation ON log(operation) WHERE before = 7' WHERE name = 'log_operation';";
    copy.tamper(forget);
    copy.tamper("REINDEX log_operation");
    copy.tamper(&forget.replace("= 7", "= 0"));
    let found = copy.verify(true);
    assert!(found.as_ref().map_or(true, |report| !report.is_sound()), "{found:#?}");
}

#[test]
fn a_writer_that_goes_on_while_the_log_is_checked_is_no_damage() {
    struct Busy(std::sync::Mutex<(SqliteStore, u8)>, store::sqlite::SqliteReader);
    impl store::store::FullText for Busy {
        fn search(
            &self,
            spec: &'static domain::record::Spec,
            workspace: &domain::id::WorkspaceId,
            words: &str,
            limit: usize,
        ) -> store::Result<Vec<store::store::Row>> {
            store::store::FullText::search(&self.1, spec, workspace, words, limit)
        }
    }
    impl Reader for Busy {
        fn read(&self) -> store::Result<Box<dyn store::store::Snapshot + '_>> {
            let mut writer = self.0.lock().unwrap();
            let number = writer.1;
            writer.1 += 1;
            let group = [commit(
                &format!("busy {number}"),
                vec![put(&THING, number, 0, "{}"), put(&crate::fixtures::CHECKPOINT, number, 0, "{}")],
            )];
            writer.0.apply_group(&group).pop().unwrap()?;
            self.1.read()
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let location = crate::sqlite::location(folder.path(), "busy");
    let store = SqliteStore::create(&location, host(1), &home::env()).unwrap();
    let reader = store.sqlite_reader();
    let busy = Busy(std::sync::Mutex::new((store, 0)), reader);
    let report = store::verify::domain(&busy, location.domain, &location.kinds, &[], &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report:#?}");
}

#[test]
fn links_that_lead_in_a_circle_end_an_erase_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (home, numbers) = whole(folder.path());
    let (_folder, copy) = home.copy();
    let at = home::position(numbers.third);
    copy.tamper(&format!("UPDATE log SET previous = {at} WHERE pos = (SELECT previous FROM log WHERE pos = {at})"));
    let mut store = SqliteStore::open(&copy.journal, &home::env()).unwrap();
    let number = numbers.third_thing;
    let version = store.reader().read().unwrap().get(&THING, &crate::fixtures::id(number)).unwrap().unwrap().version;
    let erase = commit("circle", vec![write(&THING, number, version, domain::commit::Change::Erase)]);
    assert!(matches!(store.apply_group(&[erase]).pop().unwrap(), Err(Error::Unreadable(_))));
    let history = store.reader().read().unwrap().history(&THING, &crate::fixtures::id(number), 1_000).unwrap();
    assert_eq!(history.len(), 1_000, "a walk is as long as it was asked to be");
}

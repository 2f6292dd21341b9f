//! The files themselves: what is refused and left as it was, who may read them, what is in their bytes, and old ones.

mod shown;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::Change;
use domain::hash::{self, Hash};
use domain::record::{Record, Value};
use domain::records;
use domain::records::budget::{BudgetUsage, SUMS};
use store::Error;
use store::env::Env;
use store::sqlite::{Location, SqliteReader, SqliteStore, rebuild};
use store::store::{Reader, Row, Scan, Store};

use crate::fixtures::{LEASE, MEMO, PING, PLAIN, THING, assert_sound, commit, host, id, put, workspace, write};
use crate::sqlite::{location, rusqlite_open, tamper};

fn env() -> Env {
    Env::seeded(1)
}

/// A journal with something in it, in one file.
fn filled(folder: &Path) -> Location {
    let location = location(folder, "journal");
    let mut store = SqliteStore::create(&location, host(1), &env()).unwrap();
    for number in 0..50 {
        store.apply_group(&[commit(&number.to_string(), vec![put(&THING, number, 0, r#"{"name":"n"}"#)])]).pop().unwrap().unwrap();
    }
    store.checkpointer().unwrap().truncate().unwrap();
    location
}

fn content(path: &Path) -> Option<Hash> {
    std::fs::read(path).ok().map(|bytes| hash::plain(&bytes))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Both ways to open a file refuse it, with the same error, and change nothing.
fn assert_refused(location: &Location, what: &str, code: ErrorCode, says: &str) {
    let wal = beside(&location.path, "-wal");
    let before = (content(&location.path), content(&wal).filter(|_| std::fs::metadata(&wal).unwrap().len() > 0));
    let written = SqliteStore::open(location, &env()).map(|_| ());
    let read = SqliteReader::open(location, &env()).map(|_| ());
    for opened in [written, read] {
        let error = opened.expect_err(what);
        assert_eq!(error.code(), code, "{what}: {error}");
        assert!(error.to_string().contains(says), "{what}: {error}");
    }
    let after = (content(&location.path), content(&wal).filter(|_| std::fs::metadata(&wal).unwrap().len() > 0));
    assert_eq!(before, after, "{what}: the file was changed");
}

#[test]
fn a_missing_file_is_not_made_by_opening_it() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "journal");
    let error = SqliteStore::open(&location, &env()).map(|_| ()).unwrap_err();
    assert_eq!(error, Error::Missing { domain: Domain::Journal, path: location.path.display().to_string() });
    assert_refused(&location, "missing", ErrorCode::HomeMissing, "no journal database");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::create_dir(&location.path).unwrap();
    assert_refused(&location, "a folder", ErrorCode::HomeMissing, "no journal database");
}

#[test]
fn a_file_that_was_cut_short_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(filled(folder.path()).path).unwrap();
    let lengths = [0, 1, 15, 16, 99, 100, 512, 4_095, 4_096, 4_097, 8_192, whole.len() / 2, whole.len() - 4_096, whole.len() - 1];
    for length in lengths {
        let folder = tempfile::tempdir().unwrap();
        let location = location(folder.path(), "journal");
        std::fs::write(&location.path, &whole[..length]).unwrap();
        assert_refused(&location, &format!("{length} bytes"), ErrorCode::DatabaseDamaged, "damaged");
    }
}

#[test]
fn a_file_that_is_not_ours_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "journal");
    let noise: Vec<u8> = (0..20_000u32).flat_map(|number| *hash::plain(&number.to_be_bytes()).as_bytes()).collect();
    let mut magic = b"SQLite format 3\0".to_vec();
    magic.extend(&noise);
    let text = "Dear diary, ".repeat(1_000).into_bytes();
    for (what, bytes) in [("text", text), ("noise", noise), ("noise with the right beginning", magic)] {
        std::fs::write(&location.path, &bytes).unwrap();
        assert_refused(&location, what, ErrorCode::DatabaseDamaged, "not a database");
    }
    std::fs::remove_file(&location.path).unwrap();
    tamper(&location.path, "CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB); INSERT INTO meta VALUES ('domain', 'journal')");
    assert_refused(&location, "another program's", ErrorCode::DatabaseDamaged, "not a Verger database");
}

#[test]
fn another_domains_file_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let journal = filled(folder.path());
    let agent = Location { domain: Domain::Agent, ..journal };
    assert_refused(&agent, "the journal's", ErrorCode::DatabaseDamaged, "holds the journal domain");
}

#[test]
fn l61_a_newer_schema_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let location = filled(folder.path());
    tamper(&location.path, "PRAGMA user_version = 99");
    assert_refused(&location, "newer", ErrorCode::SchemaNewer, "schema 99");
    let refused = SqliteStore::open(&location, &env()).map(|_| ()).unwrap_err();
    assert_eq!(refused, Error::SchemaNewer { domain: Domain::Journal, found: 99, known: store::sqlite::SCHEMA_VERSION });
    // Also while the change is only in the WAL: neither file may be written.
    tamper(&location.path, &format!("PRAGMA user_version = {}", store::sqlite::SCHEMA_VERSION));
    let writer = rusqlite_open(&location.path);
    writer.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 100").unwrap();
    assert!(std::fs::metadata(beside(&location.path, "-wal")).unwrap().len() > 0);
    assert_refused(&location, "newer in the WAL", ErrorCode::SchemaNewer, "schema 100");
    drop(writer);
    for (version, says) in [(0, "no schema version"), (-1, "schema 4294967295")] {
        tamper(&location.path, &format!("PRAGMA user_version = {version}"));
        let code = if version == 0 { ErrorCode::DatabaseDamaged } else { ErrorCode::SchemaNewer };
        assert_refused(&location, "without a schema", code, says);
    }
}

#[test]
fn nothing_is_created_over_a_file_that_exists() {
    let folder = tempfile::tempdir().unwrap();
    let location = filled(folder.path());
    for what in ["a database", "an empty file", "text"] {
        match what {
            "an empty file" => std::fs::write(&location.path, b"").unwrap(),
            "text" => std::fs::write(&location.path, b"text").unwrap(),
            _ => {}
        }
        let before = content(&location.path);
        let refused = SqliteStore::create(&location, host(2), &env()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::Storage { .. }) && refused.to_string().contains("exists"), "{what}: {refused}");
        assert_eq!(content(&location.path), before, "{what}");
    }
}

#[test]
fn only_the_owner_can_read_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "journal");
    let mut store = SqliteStore::create(&location, host(1), &env()).unwrap();
    store.apply_group(&[commit("a", vec![put(&THING, 1, 0, "{}")])]).pop().unwrap().unwrap();
    for ending in ["", "-wal", "-shm"] {
        let mode = std::fs::metadata(beside(&location.path, ending)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "`{ending}`");
    }
}

#[test]
fn a_reader_that_was_opened_by_itself_sees_what_the_writer_commits() {
    let folder = tempfile::tempdir().unwrap();
    let location = filled(folder.path());
    let alone = SqliteReader::open(&location, &env()).unwrap();
    assert!(alone.read().unwrap().get(&THING, &id(49)).unwrap().is_some(), "without a writer");
    let mut store = SqliteStore::open(&location, &env()).unwrap();
    let snapshot = alone.read().unwrap();
    for number in 50..60 {
        store.apply_group(&[commit(&number.to_string(), vec![put(&THING, number, 0, "{}")])]).pop().unwrap().unwrap();
        assert!(alone.read().unwrap().get(&THING, &id(number)).unwrap().is_some());
        assert_eq!(snapshot.get(&THING, &id(number)).unwrap(), None, "a snapshot stays one moment");
    }
    drop(snapshot);
    store.checkpointer().unwrap().truncate().unwrap();
    drop(store);
    assert!(alone.read().unwrap().get(&THING, &id(59)).unwrap().is_some(), "after the writer has gone");
    assert_eq!(alone.read().unwrap().heads().unwrap()[0].counter, 60);
}

#[test]
fn l1_no_agent_table_is_in_the_journal_and_the_agent_file_can_be_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Location::in_folder(folder.path(), Domain::Journal);
    let agent = Location::in_folder(folder.path(), Domain::Agent);
    let mut store = SqliteStore::create(&journal, host(1), &env()).unwrap();
    drop(SqliteStore::create(&agent, host(1), &env()).unwrap());
    let note = commit("note", vec![put(records::note::Note::SPEC, 1, 0, r#"{"text":"stays"}"#)]);
    store.apply_group(std::slice::from_ref(&note)).pop().unwrap().unwrap();
    drop(store);
    let tables = |path: &Path| -> BTreeSet<String> {
        let connection = rusqlite_open(path);
        let mut statement = connection.prepare("SELECT tbl_name FROM sqlite_schema").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    };
    let (in_journal, in_agent) = (tables(&journal.path), tables(&agent.path));
    for spec in domain::catalogue::ALL {
        assert_eq!(in_journal.contains(spec.table), spec.domains.contains(&Domain::Journal), "{}", spec.kind);
        assert_eq!(in_agent.contains(spec.table), spec.domains.contains(&Domain::Agent), "{}", spec.kind);
    }
    let before = content(&journal.path);
    std::fs::remove_file(&agent.path).unwrap();
    drop(SqliteStore::create(&agent, host(1), &env()).unwrap());
    assert_eq!(content(&journal.path), before);
    let mut store = SqliteStore::open(&journal, &env()).unwrap();
    assert!(store.apply_group(&[note]).pop().unwrap().unwrap().repeated);
}

/// Where any of the words is in the bytes of a database and its WAL.
fn found_in_bytes(path: &Path, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for file in [path.to_owned(), beside(path, "-wal")] {
        let bytes = std::fs::read(&file).unwrap_or_default();
        for word in words {
            if bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word.as_bytes())) {
                found.push(format!("`{word}` in {}", file.display()));
            }
        }
    }
    found
}

#[test]
fn erased_text_is_in_no_byte_of_any_file() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location { kinds: [crate::fixtures::kinds(), vec![&PLAIN]].concat(), ..location(folder.path(), "journal") };
    let mut store = SqliteStore::create(&location, host(1), &env()).unwrap();
    let mut run = |key: &str, writes| store.apply_group(&[commit(key, writes)]).pop().unwrap().unwrap();
    // Others before, between and behind, so that pages and index segments are full and get merged.
    let mut filler = |key: &str, from: u8| {
        for number in from..from + 40 {
            let words: Vec<String> =
                (0..60u32).map(|word| hash::hex(&hash::plain(&[number, u8::try_from(word).unwrap()]).as_bytes()[..4])).collect();
            let text = format!(r#"{{"name":"filler {number}","size":1,"text":"{}"}}"#, words.join(" "));
            run(&format!("{key} {number}"), vec![put(&THING, number, 0, &text)]);
        }
    };
    filler("before", 100);
    let long = "qzvxlong jwkqyfar ".repeat(800);
    let secret = |more: &str| format!(r#"{{"name":"xqjvname of","size":3,"text":"the wvkqztext {more}"}}"#);
    let words = ["qjvname", "vkqztext", "zvxlong", "wkqyfar", "qwzxedit", "zjqxping", "kxqvmemo", "vqzkplain"];
    run_all(
        &mut store,
        vec![
            (
                "a",
                vec![
                    put(&THING, 1, 0, &secret("")),
                    put(&PING, 1, 0, r#"{"thread":"zjqxping"}"#),
                    put(&MEMO, 1, 0, r#"{"m":"kxqvmemo"}"#),
                ],
            ),
            ("b", vec![put(&THING, 1, 1, &secret(&long)), put(&PLAIN, 1, 0, r#"{"name":"vqzkplain"}"#)]),
            ("c", vec![put(&LEASE, 1, 0, "{}"), put(&THING, 1, 2, &secret("qwzxedit"))]),
            ("d", vec![write(&THING, 1, 3, Change::Tombstone), put(&MEMO, 1, 1, r#"{"m":"kxqvmemo again"}"#)]),
            ("e", vec![put(&THING, 1, 4, &secret("once more")), write(&PLAIN, 1, 1, Change::Tombstone)]),
        ],
    );
    store.checkpointer().unwrap().truncate().unwrap();
    assert_eq!(found_in_bytes(&location.path, &words).len(), words.len(), "they are there before");
    run_all(
        &mut store,
        vec![(
            "erase",
            vec![
                write(&THING, 1, 5, Change::Erase),
                write(&PING, 1, 1, Change::Erase),
                write(&MEMO, 1, 2, Change::Erase),
                write(&PLAIN, 1, 2, Change::Erase),
            ],
        )],
    );
    assert_eq!(found_in_bytes(&location.path, &words), Vec::<String>::new());
    assert_sound(&store);
    drop(store);
    assert_eq!(found_in_bytes(&location.path, &words), Vec::<String>::new(), "and after closing");
    let mut store = SqliteStore::open(&location, &env()).unwrap();
    rebuild::run(&mut store, &mut |_| {}).unwrap();
    store.checkpointer().unwrap().truncate().unwrap();
    assert_eq!(found_in_bytes(&location.path, &words), Vec::<String>::new(), "and after a rebuild");
}

fn run_all(store: &mut SqliteStore, commits: Vec<(&str, Vec<domain::commit::Write>)>) {
    for (key, writes) in commits {
        store.apply_group(&[commit(key, writes)]).pop().unwrap().unwrap();
    }
}

#[test]
fn erased_text_is_gone_when_it_was_written_and_erased_in_one_group() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "journal");
    let mut store = SqliteStore::create(&location, host(1), &env()).unwrap();
    let group = [
        commit("a", vec![put(&THING, 1, 0, r#"{"name":"xqjvname","text":"wvkqztext"}"#), put(&THING, 2, 0, r#"{"name":"kept"}"#)]),
        commit("b", vec![write(&THING, 1, 1, Change::Erase)]),
    ];
    assert!(store.apply_group(&group).iter().all(Result::is_ok));
    assert_eq!(found_in_bytes(&location.path, &["qjvname", "vkqztext"]), Vec::<String>::new());
    assert_eq!(store.reader().search(&THING, &workspace(), "kept", 9).unwrap().len(), 1);
}

/// The typed record of a row reads, whatever its kind.
fn assert_typed(row: &Row) {
    let read = match row.spec.kind {
        "workspace" => row.record::<records::workspace::Workspace>().map(|_| ()),
        "category" => row.record::<records::category::Category>().map(|_| ()),
        "label" => row.record::<records::label::Label>().map(|_| ()),
        "note" => row.record::<records::note::Note>().map(|_| ()),
        "agent" => row.record::<records::agent::Agent>().map(|_| ()),
        "message" => row.record::<records::message::Message>().map(|_| ()),
        "payload" => row.record::<records::payload::Payload>().map(|_| ()),
        "link" => row.record::<records::link::Link>().map(|_| ()),
        "task" => row.record::<records::task::Task>().map(|_| ()),
        "artifact" => row.record::<records::artifact::Artifact>().map(|_| ()),
        "agent_manifest" => row.record::<records::manifest::StoredManifest>().map(|_| ()),
        "wake" => row.record::<records::wake::Wake>().map(|_| ()),
        "prompt_item" => row.record::<records::prompt::PromptItem>().map(|_| ()),
        "prompt_response" => row.record::<records::prompt::PromptResponse>().map(|_| ()),
        "budget_limit" => row.record::<records::budget::BudgetLimit>().map(|_| ()),
        "budget_usage" => row.record::<BudgetUsage>().map(|_| ()),
        "switch" => row.record::<records::switch::Switch>().map(|_| ()),
        "lease" => row.record::<records::lease::Lease>().map(|_| ()),
        "cursor" => row.record::<records::cursor::Cursor>().map(|_| ()),
        "fence" => row.record::<records::fence::Fence>().map(|_| ()),
        other => panic!("the first schema has no kind `{other}`"),
    };
    read.unwrap();
}

#[test]
fn l61_the_first_schema_opens_with_all_data() {
    // Runs and cycles are missing: their structs are the controller's, and nothing here could read them.
    const KINDS: [&str; 20] = [
        "agent",
        "agent_manifest",
        "artifact",
        "budget_limit",
        "budget_usage",
        "category",
        "cursor",
        "fence",
        "label",
        "lease",
        "link",
        "message",
        "note",
        "payload",
        "prompt_item",
        "prompt_response",
        "switch",
        "task",
        "wake",
        "workspace",
    ];
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema-1");
    let folder = tempfile::tempdir().unwrap();
    let mut shown = Vec::new();
    let mut found = BTreeSet::new();
    let mut stores = Vec::new();
    let mut witnesses = Vec::new();
    for domain in Domain::ALL {
        let location = Location::in_folder(folder.path(), *domain);
        std::fs::copy(fixture.join(location.path.file_name().unwrap()), &location.path).unwrap();
        assert!(std::fs::metadata(&location.path).unwrap().len() < 400_000);
        let mut store = SqliteStore::open(&location, &env()).unwrap();
        // Twice: as it was stored, and as it is made anew from the log.
        let before = shown::lines(*domain, &location.kinds, store.reader().read().unwrap().as_ref()).unwrap();
        let report = rebuild::run(&mut store, &mut |_| {}).unwrap();
        assert_eq!((report.differing_rows, report.differing_aggregates, report.differences), (0, 0, vec![]), "{domain}");
        let reader = store.reader();
        let snapshot = reader.read().unwrap();
        assert_eq!(shown::lines(*domain, &location.kinds, snapshot.as_ref()).unwrap(), before);
        for row in shown::rows(&location.kinds, snapshot.as_ref()).unwrap() {
            assert_typed(&row);
            found.insert(row.spec.kind);
        }
        witnesses.extend(snapshot.witnesses().unwrap());
        shown.extend(before);
        drop(snapshot);
        stores.push(store);
    }
    let expected = std::fs::read_to_string(fixture.join("expected.jsonl")).unwrap();
    assert_eq!(shown, expected.lines().collect::<Vec<_>>());
    assert_eq!(found, KINDS.into());
    for store in &stores {
        let kinds = &store.location().kinds;
        let report = store::verify::domain(store.reader().as_ref(), store.domain(), kinds, &witnesses, &mut |_| {}).unwrap();
        assert!(report.is_sound(), "{report:#?}");
        assert!(report.streams.iter().all(|stream| stream.witnessed == stream.verified), "{report:#?}");
    }
    let [journal, agent, _] = stores.as_mut_slice() else { panic!("three domains") };
    assert_eq!(journal.reader().search(records::note::Note::SPEC, &workspace(), "edited", 99).unwrap().len(), 4);
    assert_counts(journal);
    assert_sums(agent);
}

fn assert_counts(journal: &SqliteStore) {
    let reader = journal.reader();
    let snapshot = reader.read().unwrap();
    let prefix = vec![Value::from(workspace().raw())];
    let live = snapshot.scan(&Scan { prefix: prefix.clone(), ..Scan::new(records::note::Note::SPEC, "by_updated") }).unwrap().rows;
    let counted = snapshot.aggregate(records::note::Note::SPEC, "per_workspace", &prefix).unwrap();
    assert_eq!((live.len(), counted), (15, 15));
}

/// What an agent used on one day, over the hosts.
fn assert_sums(agent: &SqliteStore) {
    let reader = agent.reader();
    let snapshot = reader.read().unwrap();
    let usage = snapshot.scan(&Scan::new(BudgetUsage::SPEC, "by_agent")).unwrap().rows;
    let first: BudgetUsage = usage[0].record().unwrap().unwrap();
    let day = [Value::from(first.agent_id.raw()), Value::from("2027-01-15")];
    let sums = SUMS.map(|name| snapshot.aggregate(BudgetUsage::SPEC, name, &day).unwrap());
    assert_eq!((usage.len(), sums), (3, [300, 20, 40, 6]));
}

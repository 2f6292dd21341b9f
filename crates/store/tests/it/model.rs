//! Random histories against an oracle: every answer, every row and every count of every backend is predicted, and two backends with one
//! seed hold the same bytes.
//!
//! A history is drawn as drafts; the oracle, which walks along, turns each into a commit that mostly fits (a right version) and
//! sometimes does not, and says what the answer must be. The clock runs backwards now and then.

mod oracle;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::causality::{Domain, Stream};
use domain::commit::{Change, Commit, Committed, Expected, Guard, Write};
use domain::id::{OperationId, RawId, WorkspaceId};
use domain::record::{Class, Record, Spec, Value};
use domain::records::agent::Agent;
use domain::records::fence::Fence;
use domain::time::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use store::env::{Clock, Env};
use store::memory::MemoryStore;
use store::sqlite::{SqliteStore, rebuild};
use store::store::{Scan, Store, own_streams};
use store::{Error, Result};

use crate::fixtures::{CHECKPOINT, LEASE, MEMO, PING, THING, assert_sound, body, commit, dump, host, id, workspace};
use crate::sqlite::{location, tamper};
use oracle::{Content, Done, Flaw, Oracle, Sent};

/// LIMIT: histories a run; about ten seconds in a debug build.
const HISTORIES: u32 = 220;
const KINDS: [&Spec; 6] = [&THING, &PING, &CHECKPOINT, &MEMO, &LEASE, Fence::SPEC];
const NAMES: [&str; 2] = ["apple", "pear"];
const SUBJECT: &str = "agent_x";

/// One write, before it is known which version is the right one.
#[derive(Debug, Clone)]
struct Intent {
    kind: usize,
    number: u8,
    elsewhere: bool,
    change: u8,
    content: u8,
    /// What the expected version is off by; `None` expects no row.
    off_by: Option<u64>,
}

/// One commit, before it is known what is there.
#[derive(Debug, Clone)]
struct Draft {
    intents: Vec<Intent>,
    origin: Origin,
    guard: Option<(u8, u8)>,
    depth: u8,
}

#[derive(Debug, Clone)]
enum Origin {
    Fresh,
    /// The very commit that was sent as number n, whatever became of it.
    Repeat(usize),
    /// Other writes under the operation id of number n.
    Reuse(usize),
}

#[derive(Debug, Clone)]
enum Turn {
    Group(Vec<Draft>),
    Reopen,
}

impl Intent {
    /// Few ids, so that writes meet; more of what can be put only once.
    fn id(&self) -> RawId {
        match KINDS[self.kind] {
            spec if spec == Fence::SPEC => Fence::id_of(SUBJECT),
            spec if spec.immutable => id(self.number + self.content % 8),
            _ => id(self.number),
        }
    }
}

fn any_intent() -> impl Strategy<Value = Intent> {
    let off_by = prop_oneof![20 => Just(Some(0)), 1 => Just(Some(1)), 1 => Just(None)];
    (0..KINDS.len(), 0..4u8, prop::bool::weighted(0.2), 0..12u8, 0..24u8, off_by)
        .prop_map(|(kind, number, elsewhere, change, content, off_by)| Intent { kind, number, elsewhere, change, content, off_by })
}

fn any_draft() -> impl Strategy<Value = Draft> {
    let origin = prop_oneof![
        8 => Just(Origin::Fresh),
        2 => any::<prop::sample::Index>().prop_map(|index| Origin::Repeat(index.index(1 << 16))),
        1 => any::<prop::sample::Index>().prop_map(|index| Origin::Reuse(index.index(1 << 16))),
    ];
    let intents = prop_oneof![1 => Just(0..=0usize), 40 => Just(1..=4usize)]
        .prop_flat_map(|count| prop::collection::vec(any_intent(), count));
    let depth = prop_oneof![60 => Just(0), 1 => Just(9)];
    (intents, origin, prop::option::weighted(0.25, (0..7u8, 0..4u8)), depth).prop_map(|(intents, origin, guard, depth)| Draft {
        intents,
        origin,
        guard,
        depth,
    })
}

fn any_history() -> impl Strategy<Value = Vec<Turn>> {
    let group = prop::collection::vec(any_draft(), 1..7).prop_map(Turn::Group);
    prop::collection::vec(prop_oneof![6 => group, 1 => Just(Turn::Reopen)], 1..12)
}

/// A commit and the answer to it.
type Foretold = (Sent, Result<Done>);

/// A history with every commit spelled out and every answer foretold.
struct Script {
    /// Groups; `None` opens the store again.
    turns: Vec<Option<Vec<Foretold>>>,
    oracle: Oracle,
    sent: Vec<Sent>,
}

impl Script {
    fn new(history: &[Turn], has_poison: bool) -> Self {
        let mut script = Self { turns: Vec::new(), oracle: Oracle::new(host(1)), sent: Vec::new() };
        for turn in history {
            let turn = match turn {
                Turn::Reopen => None,
                Turn::Group(drafts) => Some(drafts.iter().map(|draft| script.foretell(draft, has_poison)).collect()),
            };
            script.turns.push(turn);
        }
        script
    }

    fn foretell(&mut self, draft: &Draft, has_poison: bool) -> Foretold {
        let earlier = |n: usize| self.sent.get(n % self.sent.len().max(1));
        let sent = match draft.origin {
            Origin::Repeat(n) if !self.sent.is_empty() => earlier(n).cloned().expect("something was sent"),
            Origin::Reuse(n) if !self.sent.is_empty() => {
                let operation_id = earlier(n).expect("something was sent").commit.operation_id;
                let mut sent = self.spell_out(draft, has_poison);
                sent.commit.operation_id = operation_id;
                sent
            }
            _ => self.spell_out(draft, has_poison),
        };
        let answer = self.oracle.answer(&sent);
        self.sent.push(sent.clone());
        (sent, answer)
    }

    fn spell_out(&self, draft: &Draft, has_poison: bool) -> Sent {
        let mut writes: Vec<Write> = Vec::new();
        let mut contents = Vec::new();
        for intent in &draft.intents {
            let spec = KINDS[intent.kind];
            let id = intent.id();
            let held = self.oracle.rows.get(&(spec.kind, id));
            let in_commit = writes.iter().filter(|write| write.spec == spec && write.id == id).count() as u64;
            let known = held.map_or(0, |held| held.version) + in_commit;
            let content = content_of(spec, intent.content, has_poison);
            // Mostly what can be done, and now and then what cannot.
            let is_stubborn = intent.content % 8 == 7;
            let (change, content) = match intent.change {
                0 | 1 if is_stubborn || held.is_some_and(|held| held.content.is_some()) && !spec.immutable => {
                    (Change::Tombstone, None)
                }
                2 if is_stubborn || held.is_some() && spec.class != Class::Control => (Change::Erase, None),
                _ => (Change::Put(body(&content.text)), Some(content)),
            };
            let expected = intent.off_by.map(|off_by| known + off_by).filter(|version| *version > 0);
            let workspace = if intent.elsewhere { WorkspaceId::of_slug("work") } else { workspace() };
            writes.push(Write { spec, id, workspace, expected: expected.map_or(Expected::Absent, Expected::Version), change });
            contents.push(content);
        }
        let mut commit = commit(&self.sent.len().to_string(), writes);
        commit.cause.depth = draft.depth;
        commit.guards.extend(draft.guard.map(|(kind, number)| self.guard(kind, number)));
        Sent { commit, contents }
    }

    fn guard(&self, kind: u8, number: u8) -> Guard {
        let id = id(number);
        match kind {
            0 | 1 => Guard::Fence { subject: SUBJECT.to_owned(), epoch: number.into() },
            2 | 3 => {
                let version = self.oracle.rows.get(&(THING.kind, id)).map_or(1, |held| held.version);
                Guard::Version { spec: &THING, id, version: if kind == 2 { version } else { version + 1 } }
            }
            4 => Guard::Live { spec: KINDS[usize::from(number)], id },
            5 => {
                let group = vec![Value::from(workspace().raw())];
                Guard::AtMost { spec: &THING, aggregate: "count", group, adding: 1, limit: number.into() }
            }
            _ => Guard::Live { spec: Agent::SPEC, id },
        }
    }
}

fn content_of(spec: &'static Spec, choice: u8, has_poison: bool) -> Content {
    let name = [None, Some(NAMES[0]), Some(NAMES[1])][usize::from(choice % 3)];
    let size = [None, Some(-1), Some(0), Some(1)][usize::from(choice % 4)];
    if spec == Fence::SPEC {
        let epoch = i64::from(choice % 4);
        let text = format!(r#"{{"epoch":"{epoch}","raised_at":"{}","subject":"{SUBJECT}"}}"#, Timestamp::EPOCH);
        return Content { text, name: Some(SUBJECT), size: Some(epoch), flaw: None };
    }
    let is_thing = spec == &THING;
    let (field, flaw) = match choice {
        20 if is_thing => (r#","a,b":1"#, Some(Flaw::FieldName)),
        21 if is_thing => (r#","updated_at":"soon""#, Some(Flaw::Column)),
        18 | 19 | 22 | 23 if is_thing && has_poison => (r#","text":"poison""#, Some(Flaw::Poison)),
        12.. => (r#","text":"red apple""#, None),
        _ => ("", None),
    };
    let name_field = name.map_or(String::new(), |name| format!(r#","name":"{name}""#));
    let size_field = size.map_or(String::new(), |size| format!(r#","size":{size}"#));
    let text = body(&format!(r#"{{"choice":{choice}{field}{name_field}{size_field}}}"#)).text().to_owned();
    Content { text, name, size, flaw }
}

/// A clock that steps back now and then; the log may not follow it.
#[derive(Default)]
struct Wavering {
    readings: AtomicU64,
}

impl Clock for Wavering {
    fn now(&self) -> Timestamp {
        let reading = i64::try_from(self.readings.fetch_add(1, Ordering::Relaxed)).expect("a history is short");
        Timestamp::from_ms(1_800_000_000_000 + reading + reading * reading * 31 % 40)
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }
}

fn env() -> Env {
    Env { clock: Arc::new(Wavering::default()), ..Env::seeded(1) }
}

/// A backend that can be put down and taken up again.
trait Backend {
    fn store(&mut self) -> &mut dyn Store;
    fn reopen(&mut self);
}

impl Backend for MemoryStore {
    fn store(&mut self) -> &mut dyn Store {
        self
    }

    fn reopen(&mut self) {}
}

/// The store is `None` only between two lives.
struct File {
    location: store::sqlite::Location,
    env: Env,
    store: Option<SqliteStore>,
}

impl File {
    fn new(folder: &Path) -> Self {
        let (location, env) = (location(folder, "model"), env());
        for name in ["model.sqlite", "model.sqlite-wal", "model.sqlite-shm"] {
            std::fs::remove_file(folder.join(name)).ok();
        }
        let store = SqliteStore::create(&location, host(1), &env).unwrap();
        Self { location, env, store: Some(store) }
    }

    fn sqlite(&mut self) -> &mut SqliteStore {
        self.store.as_mut().expect("it is open between two calls")
    }
}

impl Backend for File {
    fn store(&mut self) -> &mut dyn Store {
        self.sqlite()
    }

    fn reopen(&mut self) {
        drop(self.store.take());
        self.store = Some(SqliteStore::open(&self.location, &self.env).unwrap());
    }
}

/// Plays a script and holds every answer against the foretold one.
fn play(backend: &mut dyn Backend, script: &Script) {
    let mut firsts: BTreeMap<OperationId, Committed> = BTreeMap::new();
    for turn in &script.turns {
        let Some(group) = turn else {
            backend.reopen();
            continue;
        };
        let commits: Vec<Commit> = group.iter().map(|(sent, _)| sent.commit.clone()).collect();
        let answers = backend.store().apply_group(&commits);
        assert_eq!(answers.len(), group.len());
        for (answer, (sent, foretold)) in answers.into_iter().zip(group) {
            check_answer(answer, foretold, &sent.commit, &mut firsts);
        }
    }
    check_state(backend.store(), &script.oracle);
    for (operation_id, first) in &firsts {
        assert_eq!(backend.store().reader().read().unwrap().outcome(operation_id).unwrap().as_ref(), Some(first));
    }
}

fn check_answer(
    answer: Result<Committed>,
    foretold: &Result<Done>,
    commit: &Commit,
    firsts: &mut BTreeMap<OperationId, Committed>,
) {
    match (answer, foretold) {
        (Err(Error::InvalidCommit(_)), Err(Error::InvalidCommit(_))) | (Err(Error::Storage { .. }), Err(Error::Storage { .. })) => {
        }
        (Err(answer), Err(foretold)) => assert_eq!(answer, *foretold, "{}", commit.request),
        (Ok(answer), Ok(foretold)) => {
            let done = Done { repeated: answer.repeated, writes: answer.writes.clone() };
            assert_eq!((answer.operation_id, &done), (commit.operation_id, foretold), "{}", commit.request);
            let first = firsts.entry(commit.operation_id).or_insert_with(|| answer.clone());
            assert_eq!(answer, Committed { repeated: answer.repeated, ..first.clone() }, "a repeat returns the first outcome");
        }
        (answer, foretold) => panic!("{answer:?} instead of {foretold:?} for {}", commit.request),
    }
}

fn check_state(store: &dyn Store, oracle: &Oracle) {
    assert_sound(store);
    check_log(store, oracle);
    let reader = store.reader();
    let snapshot = reader.read().unwrap();
    for spec in KINDS {
        for id in (0..12).map(id).chain([Fence::id_of(SUBJECT)]) {
            let row = snapshot.get(spec, &id).unwrap().map(|row| (row.version, row.workspace, row.deleted, row.body));
            let held = oracle.rows.get(&(spec.kind, id));
            let body = |content: &Content| content.text.clone();
            let held = held.map(|held| (held.version, held.workspace, held.content.is_none(), held.content.as_ref().map(body)));
            assert_eq!(row, held, "{} {id}", spec.kind);
        }
    }
    for workspace in [workspace(), WorkspaceId::of_slug("work")] {
        let group = Value::from(workspace.raw());
        assert_eq!(snapshot.aggregate(&THING, "count", std::slice::from_ref(&group)).unwrap(), oracle.things(&workspace, None).0);
        for name in [None, Some(NAMES[0]), Some(NAMES[1])] {
            let members = [group.clone(), name.map_or(Value::Null, Value::from)];
            assert_eq!(snapshot.aggregate(&THING, "total", &members).unwrap(), oracle.things(&workspace, Some(name)).1);
        }
        let live = live_things(oracle, &workspace);
        let mut by_size: Vec<_> = live.iter().map(|(id, content)| (content.size, *id)).collect();
        by_size.sort_unstable();
        let page = snapshot.scan(&Scan { prefix: vec![group], ..Scan::new(&THING, "by_size") }).unwrap();
        assert_eq!(page.rows.iter().map(|row| row.id).collect::<Vec<_>>(), by_size.iter().map(|(_, id)| *id).collect::<Vec<_>>());
        for word in NAMES.into_iter().chain(["red"]) {
            let found: BTreeSet<_> = reader.search(&THING, &workspace, word, 10).unwrap().into_iter().map(|row| row.id).collect();
            let holds = |content: &Content| content.name == Some(word) || content.text.contains("red apple") && word != "pear";
            assert_eq!(found, live.iter().filter(|(_, content)| holds(content)).map(|(id, _)| *id).collect(), "{word}");
        }
    }
}

fn live_things<'a>(oracle: &'a Oracle, workspace: &WorkspaceId) -> Vec<(RawId, &'a Content)> {
    let things = oracle.rows.iter().filter(|((kind, _), held)| *kind == THING.kind && held.workspace == *workspace);
    things.filter_map(|((_, id), held)| Some((*id, held.content.as_ref()?))).collect()
}

fn check_log(store: &dyn Store, oracle: &Oracle) {
    for stream in own_streams(store.host()) {
        let entries = store.reader().read().unwrap().entries(&stream, 0, 10_000).unwrap();
        let lines = &oracle.log[&stream.stream];
        assert_eq!(entries.len(), lines.len(), "{}", stream.stream);
        for ((logged, stored), line) in entries.iter().zip(lines) {
            let entry = &logged.entry;
            let written = &line.written;
            assert_eq!((&entry.kind, entry.id, entry.op, entry.version), (&written.kind, written.id, written.op, written.version));
            assert_eq!((Some(entry.dot), (entry.first, entry.last)), (written.dot, line.range));
            assert_eq!((entry.operation_id, &stored.body), (line.operation_id, &line.body));
        }
        assert!(entries.windows(2).all(|pair| pair[0].0.entry.at <= pair[1].0.entry.at), "the log's time does not go back");
        let head = store.heads().unwrap().into_iter().find(|head| head.stream == stream).expect("each stream has a head");
        assert_eq!(head.counter, lines.len() as u64);
    }
}

/// Rebuilding finds nothing to put right, and leaves what was there.
fn check_rebuild(file: &mut File, oracle: &Oracle) {
    let report = rebuild::run(file.sqlite(), &mut |_| {}).unwrap();
    assert_eq!((report.differing_rows, report.differing_aggregates, &report.differences), (0, 0, &Vec::new()));
    let logged: usize = Stream::ALL.iter().map(|stream| oracle.log[stream].len()).sum();
    assert_eq!(report.entries, logged as u64);
    check_state(file.sqlite(), oracle);
}

/// Draws histories from a seed that is printed first; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` set seed and number.
fn for_each_script(what: &str, has_poison: bool, check: impl Fn(&Script)) {
    let config = ProptestConfig::default();
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => Env::system().id().as_bytes().iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte)),
    };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { HISTORIES };
    println!("{what}: seed {seed}, {cases} histories");
    let config =
        ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, max_shrink_iters: 1_000, ..config };
    let foretold = RefCell::new(BTreeMap::<_, usize>::new());
    let result = TestRunner::new(config).run(&any_history(), |history| {
        let script = Script::new(&history, has_poison);
        for (_, answer) in script.turns.iter().flatten().flatten() {
            let answer =
                answer.as_ref().map_or_else(|error| error.code().as_str(), |done| if done.repeated { "repeated" } else { "done" });
            *foretold.borrow_mut().entry(answer).or_default() += 1;
        }
        check(&script);
        Ok(())
    });
    result.unwrap();
    let foretold = foretold.into_inner();
    println!("{what}: {} commits, {foretold:?}", foretold.values().sum::<usize>());
    assert_eq!(foretold.len(), if has_poison { 10 } else { 9 }, "every kind of answer occurs");
}

#[test]
fn l20_d8_every_answer_is_the_one_foretold_and_both_backends_hold_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for_each_script("model", false, |script| {
        let mut memory = MemoryStore::new(Domain::Journal, host(1), env());
        play(&mut memory, script);
        let mut file = File::new(folder.path());
        play(&mut file, script);
        let streams = own_streams(host(1));
        let (kept, stored) = (dump(memory.reader().as_ref(), &streams), dump(file.sqlite().reader().as_ref(), &streams));
        for (kept, stored) in kept.lines().zip(stored.lines()) {
            assert_eq!(kept, stored);
        }
        assert_eq!(kept.len(), stored.len());
        check_rebuild(&mut file, &script.oracle);
    });
}

#[test]
fn l20_d8_a_commit_that_ends_the_transaction_changes_no_other_answer() {
    let folder = tempfile::tempdir().unwrap();
    for_each_script("poison", true, |script| {
        let mut file = File::new(folder.path());
        for event in ["INSERT", "UPDATE"] {
            let raise = "WHEN new.body LIKE '%poison%' BEGIN SELECT RAISE(ROLLBACK, 'poison'); END";
            tamper(&file.location.path, &format!("CREATE TRIGGER poison_{event} BEFORE {event} ON things {raise}"));
        }
        play(&mut file, script);
        check_rebuild(&mut file, &script.oracle);
    });
}

#[test]
fn d8_an_error_while_the_head_is_written_leaves_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = File::new(folder.path());
    let trigger =
        "CREATE TRIGGER poison BEFORE UPDATE ON log_head WHEN new.counter = 2 BEGIN SELECT RAISE(ROLLBACK, 'poison'); END";
    tamper(&file.location.path, trigger);
    let put_thing = |number: u8| commit(&number.to_string(), vec![crate::fixtures::put(&THING, number, 0, "{}")]);
    let results = file.sqlite().apply_group(&[put_thing(1), put_thing(2)]);
    assert!(matches!(results[..], [Ok(_), Err(Error::Storage { .. })]), "{results:?}");
    tamper(&file.location.path, "DROP TRIGGER poison");
    let results = file.sqlite().apply_group(&[put_thing(2), put_thing(3)]);
    let counters: Vec<_> = results.into_iter().map(|result| result.unwrap().last_counter(Stream::Synced)).collect();
    assert_eq!(counters, [Some(2), Some(3)]);
    assert_sound(file.sqlite());
}

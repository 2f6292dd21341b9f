//! The group-commit queue: every answer is true and comes after the commit, groups form, a stop acts at once, and nobody waits for ever.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::causality::{Domain, Stream};
use domain::commit::{Commit, Committed, Guard};
use domain::entry::{Head, Witness};
use domain::hash;
use domain::id::HostId;
use domain::limits::{GROUP_BYTES_MAX, GROUP_COMMITS_MAX};
use store::actor::{self, Running, Writer};
use store::env::Env;
use store::memory::MemoryStore;
use store::sqlite::SqliteStore;
use store::store::{GroupFailure, Maintenance, Reader, Store};
use store::{Error, Result};

use crate::fixtures::{THING, assert_sound, commit, host, id, operation, put};
use crate::sqlite::location;

/// LIMIT: only a test that has already failed waits for this long.
const PATIENCE: Duration = Duration::from_secs(120);

type Outcome = std::result::Result<Vec<Result<Committed>>, GroupFailure>;

/// A store that is watched, held up, and made to fail.
struct Watched {
    inner: Box<dyn Store>,
    watch: Arc<Watch>,
    /// What to do instead of passing a group on; by default it is passed on.
    script: Script,
    reopens: bool,
    maintains: bool,
}

type Script = Box<dyn FnMut(&mut dyn Store, &[Commit]) -> Outcome + Send>;

#[derive(Default)]
struct Watch {
    /// The sizes of the groups, in order.
    groups: Mutex<Vec<usize>>,
    closed: Mutex<bool>,
    opened: Condvar,
    /// Groups that have arrived at the gate.
    arrived: AtomicUsize,
    arrival: Condvar,
}

impl Watch {
    fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn wait_for_arrival(&self) {
        let closed = self.closed.lock().unwrap();
        let arrived = |_: &mut bool| self.arrived.load(Ordering::SeqCst) == 0;
        let (guard, timeout) = self.arrival.wait_timeout_while(closed, PATIENCE, arrived).unwrap();
        drop(guard);
        assert!(!timeout.timed_out(), "no group arrived");
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        self.arrived.fetch_add(1, Ordering::SeqCst);
        self.arrival.notify_all();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }

    fn groups(&self) -> Vec<usize> {
        self.groups.lock().unwrap().clone()
    }
}

impl Store for Watched {
    fn domain(&self) -> Domain {
        self.inner.domain()
    }

    fn host(&self) -> HostId {
        self.inner.host()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.inner.reader()
    }

    fn try_group(&mut self, group: &[Commit]) -> Outcome {
        self.watch.groups.lock().unwrap().push(group.len());
        let outcome = (self.script)(self.inner.as_mut(), group);
        // After the commit, before the answer.
        self.watch.pass();
        outcome
    }

    fn reopen(&mut self) -> Result<()> {
        if self.reopens { self.inner.reopen() } else { Err(storage("the disk is gone")) }
    }

    fn lookup(&mut self, commit: &Commit) -> Result<Option<Committed>> {
        self.inner.lookup(commit)
    }

    fn witness(&mut self, witnesses: &[Witness]) -> Result<()> {
        self.inner.witness(witnesses)
    }

    fn failing(&mut self) -> &mut Option<String> {
        self.inner.failing()
    }

    fn maintenance(&self) -> Option<Box<dyn Maintenance>> {
        struct Panics;
        impl Maintenance for Panics {
            fn after_commits(&mut self) {
                panic!("a checkpoint that panics");
            }
        }
        if self.maintains { Some(Box::new(Panics)) } else { None }
    }
}

fn storage(message: &str) -> Error {
    Error::Storage { domain: Domain::Journal, message: message.to_owned() }
}

fn memory() -> Box<dyn Store> {
    Box::new(MemoryStore::new(Domain::Journal, host(1), Env::seeded(1)))
}

fn start(inner: Box<dyn Store>) -> (Writer, Running, Arc<Watch>) {
    start_with(inner, Box::new(|inner, group| inner.try_group(group)), |_| {})
}

fn start_with(inner: Box<dyn Store>, script: Script, change: impl FnOnce(&mut Watched)) -> (Writer, Running, Arc<Watch>) {
    let watch = Arc::<Watch>::default();
    let mut store = Watched { inner, watch: Arc::clone(&watch), script, reopens: true, maintains: false };
    change(&mut store);
    let (writer, running) = actor::start(Box::new(store)).unwrap();
    (writer, running, watch)
}

fn numbered(number: u8) -> Commit {
    commit(&number.to_string(), vec![put(&THING, number, 0, "{}")])
}

fn guarded(number: u8, epoch: u64) -> Commit {
    Commit { guards: vec![Guard::Fence { subject: "agent_x".to_owned(), epoch }], ..numbered(number) }
}

/// Sends a commit from a thread of its own.
fn send(writer: &Writer, commit: Commit) -> JoinHandle<Result<Committed>> {
    let writer = writer.clone();
    std::thread::spawn(move || writer.commit(commit))
}

/// Ends the test when somebody waits for ever.
fn within_patience<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || sender.send(run()).ok());
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("somebody waits for ever"),
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}

#[test]
fn every_caller_gets_its_own_answer_and_finds_it_committed() {
    const THREADS: u8 = 16;
    const COMMITS: u64 = 15;
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::create(&location(folder.path(), "many"), host(1), &Env::system()).unwrap();
    let (writer, running, watch) = start(Box::new(store));
    let barrier = Arc::new(Barrier::new(usize::from(THREADS)));
    let caller = |thread: u8| {
        let (writer, barrier) = (writer.clone(), Arc::clone(&barrier));
        move || {
            let reader = writer.reader();
            barrier.wait();
            let mut counters = Vec::new();
            for version in 0..COMMITS {
                let key = format!("{thread} {version}");
                let refused =
                    writer.commit(commit(&format!("{key} refused"), vec![put(&THING, thread, version + 7, "{}")])).unwrap_err();
                assert!(matches!(refused, Error::VersionConflict { current, .. } if current == (version > 0).then_some(version)));
                let done =
                    writer.commit(commit(&key, vec![put(&THING, thread, version, &format!(r#"{{"name":"{key}"}}"#))])).unwrap();
                assert_eq!((done.operation_id, done.writes.len()), (operation(&key), 1));
                assert_eq!((done.writes[0].id, done.writes[0].version), (id(thread), version + 1));
                let row = reader.read().unwrap().get(&THING, &id(thread)).unwrap().unwrap();
                assert_eq!((row.version, row.dot), (version + 1, done.writes[0].dot), "an answer comes after the commit");
                counters.push(done.last_counter(Stream::Synced).unwrap());
            }
            assert!(counters.is_sorted(), "a caller's commits stay in order");
            counters
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|thread| std::thread::spawn(caller(thread))).collect();
    let mut counters: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    counters.sort_unstable();
    assert_eq!(counters, (1..=u64::from(THREADS) * COMMITS).collect::<Vec<_>>(), "dense, and each taken once");
    drop(writer);
    assert_sound(running.join().unwrap().as_ref());
    let (groups, commits) = (watch.groups().len(), watch.groups().iter().sum::<usize>());
    println!("{commits} commits of {THREADS} threads in {groups} groups, the largest of {:?}", watch.groups().iter().max());
    assert!(groups < commits, "at least some shared a group");
}

#[test]
fn what_waits_while_a_group_is_written_becomes_the_next_group_within_its_limits() {
    const CALLERS: usize = 600;
    let (writer, running, watch) = start(memory());
    watch.close();
    let first = send(&writer, numbered(0));
    watch.wait_for_arrival();
    let barrier = Arc::new(Barrier::new(CALLERS + 1));
    let caller = |number: usize| {
        let (writer, barrier) = (writer.clone(), Arc::clone(&barrier));
        let mut commit = commit(&format!("caller {number}"), vec![put(&THING, 1, 0, "{}")]);
        commit.writes[0].id = domain::id::RawId::from_hash(&hash::plain(&number.to_be_bytes()));
        let builder = std::thread::Builder::new().stack_size(128 << 10);
        let run = move || {
            barrier.wait();
            writer.commit(commit)
        };
        builder.spawn(run).unwrap()
    };
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    barrier.wait();
    // They are on their way; how many have arrived does not matter to any promise.
    (0..1_000).for_each(|_| std::thread::yield_now());
    watch.open();
    assert!(first.join().unwrap().is_ok());
    assert!(callers.into_iter().all(|caller| caller.join().unwrap().is_ok()));
    drop(writer);
    assert_sound(running.join().unwrap().as_ref());
    let groups = watch.groups();
    println!("{CALLERS} waiting callers became groups of {groups:?}");
    assert_eq!(groups.iter().sum::<usize>(), CALLERS + 1);
    assert!(groups.iter().all(|size| *size <= GROUP_COMMITS_MAX) && groups.len() <= CALLERS / 2, "{groups:?}");
}

#[test]
fn a_group_ends_when_its_bodies_are_large() {
    let large = |number: u8| {
        let text = "x".repeat(GROUP_BYTES_MAX / 2);
        commit(&number.to_string(), vec![put(&THING, number, 0, &format!(r#"{{"blob":"{text}"}}"#))])
    };
    let (writer, running, watch) = start(memory());
    watch.close();
    let first = send(&writer, numbered(0));
    watch.wait_for_arrival();
    let callers: Vec<_> = (1..6).map(|number| send(&writer, large(number))).collect();
    watch.open();
    assert!(first.join().unwrap().is_ok() && callers.into_iter().all(|caller| caller.join().unwrap().is_ok()));
    drop(writer);
    drop(running.join());
    assert!(watch.groups().iter().all(|size| *size <= 2), "{:?}", watch.groups());
}

#[test]
fn nobody_is_answered_before_the_group_is_through() {
    let (writer, running, watch) = start(memory());
    watch.close();
    let answered = Arc::new(AtomicBool::new(false));
    let caller = {
        let (writer, answered) = (writer.clone(), Arc::clone(&answered));
        std::thread::spawn(move || {
            let result = writer.commit(numbered(1));
            answered.store(true, Ordering::SeqCst);
            result
        })
    };
    watch.wait_for_arrival();
    // It is in the store already; the store has not said so.
    assert!(writer.reader().read().unwrap().get(&THING, &id(1)).unwrap().is_some());
    assert!(!answered.load(Ordering::SeqCst));
    watch.open();
    assert!(caller.join().unwrap().is_ok());
    drop(writer);
    drop(running.join());
}

#[test]
fn a_fence_in_memory_refuses_at_once_and_never_falls() {
    let (writer, running, watch) = start(memory());
    let other = writer.clone();
    writer.commit(guarded(1, 0)).unwrap();
    writer.fence("agent_x", 2);
    let groups = watch.groups().len();
    let refused = |epoch| Err(Error::Fenced { subject: "agent_x".to_owned(), epoch, current: 2 });
    assert_eq!(writer.commit(guarded(2, 0)), refused(0));
    assert_eq!(other.commit(guarded(2, 1)), refused(1), "every handle knows");
    assert_eq!(watch.groups().len(), groups, "the store was not asked");
    writer.fence("agent_x", 1);
    assert_eq!(writer.commit(guarded(2, 1)), refused(1));
    writer.commit(guarded(2, 2)).unwrap();
    writer.commit(numbered(3)).unwrap();
    writer.fence("agent_y", 9);
    writer.commit(guarded(4, 2)).unwrap();
    drop((writer, other));
    let store = running.join().unwrap();
    assert_eq!(store.reader().read().unwrap().get(&THING, &id(4)).unwrap().unwrap().version, 1);
}

#[test]
fn a_fence_stops_what_still_waits() {
    let (writer, running, watch) = start(memory());
    watch.close();
    let first = send(&writer, guarded(0, 1));
    watch.wait_for_arrival();
    let waiting: Vec<_> = (1..20).map(|number| send(&writer, guarded(number, 1))).collect();
    writer.fence("agent_x", 2);
    watch.open();
    assert!(first.join().unwrap().is_ok(), "it was in the store before the stop");
    for caller in waiting {
        assert!(matches!(caller.join().unwrap(), Err(Error::Fenced { current: 2, .. })));
    }
    drop(writer);
    drop(running.join());
    assert_eq!(watch.groups(), [1]);
}

#[test]
fn heads_and_witnesses_go_through_the_owner() {
    let (writer, running, _) = start(memory());
    assert_eq!((writer.domain(), writer.host()), (Domain::Journal, host(1)));
    let done = writer.commit(numbered(1)).unwrap();
    let heads: BTreeMap<Stream, Head> = writer.heads().unwrap().into_iter().map(|head| (head.stream.stream, head)).collect();
    assert_eq!(heads[&Stream::Synced].counter, done.last_counter(Stream::Synced).unwrap());
    assert_eq!((heads.len(), heads[&Stream::Local].counter), (2, 0));
    let witness = Witness { domain: Domain::Agent, head: heads[&Stream::Synced] };
    writer.witness(vec![witness]).unwrap();
    assert_eq!(writer.reader().read().unwrap().witnesses().unwrap(), [witness]);
    drop(writer);
    drop(running.join());
}

#[test]
fn the_last_writer_that_goes_ends_the_thread_and_gives_the_store_back() {
    within_patience(|| {
        let (writer, running, _) = start(memory());
        let other = writer.clone();
        drop(writer);
        other.commit(numbered(1)).unwrap();
        drop(other);
        let mut store = running.join().unwrap();
        assert!(store.apply_group(&[numbered(1)]).pop().unwrap().unwrap().repeated);
        assert_sound(store.as_ref());
    });
}

#[test]
fn a_closed_sqlite_store_leaves_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), "one");
    let (writer, running) = actor::start(Box::new(SqliteStore::create(&location, host(1), &Env::system()).unwrap())).unwrap();
    (0..50).for_each(|number| drop(writer.commit(numbered(number)).unwrap()));
    let reader = writer.reader();
    assert!(reader.read().unwrap().get(&THING, &id(49)).unwrap().is_some());
    drop((reader, writer));
    drop(running.join());
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one.sqlite"]);
}

#[test]
fn a_store_that_panics_leaves_nobody_waiting() {
    within_patience(|| {
        let script: Script = Box::new(|inner, group| {
            assert!(!group.iter().any(|commit| commit.operation_id == operation("7")), "the store panics on 7");
            inner.try_group(group)
        });
        let (writer, running, watch) = start_with(memory(), script, |_| {});
        watch.close();
        let first = send(&writer, numbered(0));
        watch.wait_for_arrival();
        // In the group that panics, behind it in the queue, and too late.
        let callers: Vec<_> = (1..40).map(|number| send(&writer, numbered(number))).collect();
        watch.open();
        assert!(first.join().unwrap().is_ok());
        let mut unknown = 0;
        for caller in callers {
            match caller.join().unwrap() {
                Ok(done) => assert!(!done.repeated, "before the panic"),
                Err(Error::CommitUnknown { .. }) => unknown += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(unknown > 0);
        assert!(matches!(writer.commit(numbered(99)), Err(Error::CommitUnknown { .. })));
        assert!(matches!(writer.heads(), Err(Error::Storage { .. })));
        assert!(matches!(writer.witness(Vec::new()), Err(Error::Storage { .. })));
        writer.fence("agent_x", 1);
        assert!(running.join().is_none(), "there is no store to give back");
    });
}

#[test]
fn a_store_that_answers_too_little_leaves_nobody_waiting() {
    within_patience(|| {
        let (writer, running, _) = start_with(memory(), Box::new(|_, _| Ok(Vec::new())), |_| {});
        assert!(matches!(writer.commit(numbered(1)), Err(Error::CommitUnknown { .. })));
        drop(writer);
        assert!(running.join().is_some());
    });
}

#[test]
fn a_group_that_rolled_back_is_tried_one_by_one_and_only_the_poisonous_fails() {
    let script: Script = Box::new(|inner, group| {
        if group.iter().any(|commit| commit.operation_id == operation("7")) {
            return Err(GroupFailure::RolledBack(storage("poison")));
        }
        inner.try_group(group)
    });
    let (writer, running, watch) = start_with(memory(), script, |_| {});
    watch.close();
    let first = send(&writer, numbered(0));
    watch.wait_for_arrival();
    let callers: Vec<_> = (1..20).map(|number| (number, send(&writer, numbered(number)))).collect();
    watch.open();
    assert!(first.join().unwrap().is_ok());
    for (number, caller) in callers {
        let result = caller.join().unwrap();
        assert_eq!(result.is_err(), number == 7, "{number}: {result:?}");
    }
    drop(writer);
    assert_sound(running.join().unwrap().as_ref());
}

#[test]
fn an_unknown_commit_is_answered_by_what_the_reopened_store_holds() {
    // The first is durable in spite of its error, the second is not.
    let mut calls = 0;
    let script: Script = Box::new(move |inner, group| {
        calls += 1;
        match calls {
            1 => inner.try_group(group).and(Err(GroupFailure::Unknown(storage("fsync")))),
            2 => Err(GroupFailure::Unknown(storage("fsync"))),
            _ => inner.try_group(group),
        }
    });
    let (writer, running, _) = start_with(memory(), script, |_| {});
    assert!(writer.commit(numbered(1)).unwrap().repeated, "it was done, and is told so");
    assert!(matches!(writer.commit(numbered(2)), Err(Error::Storage { .. })));
    assert!(!writer.commit(numbered(2)).unwrap().repeated);
    drop(writer);
    assert_sound(running.join().unwrap().as_ref());
}

#[test]
fn a_store_that_cannot_be_reopened_says_unknown_once_and_then_that_it_is_failing() {
    let script: Script = Box::new(|_, _| Err(GroupFailure::Unknown(storage("fsync"))));
    let (writer, running, watch) = start_with(memory(), script, |store| store.reopens = false);
    let unknown = writer.commit(numbered(1)).unwrap_err();
    assert!(matches!(&unknown, Error::CommitUnknown { operation_id, .. } if *operation_id == operation("1")), "{unknown}");
    for number in 1..4 {
        let failing = writer.commit(numbered(number)).unwrap_err();
        assert!(matches!(failing, Error::Failing { .. }), "{failing}");
    }
    assert_eq!(watch.groups(), [1], "a failing store is not written to");
    assert!(writer.reader().read().is_ok(), "it can still be read");
    drop(writer);
    assert!(running.join().is_some());
}

#[test]
fn maintenance_that_panics_stops_no_commit() {
    within_patience(|| {
        let (writer, running, _) =
            start_with(memory(), Box::new(|inner, group| inner.try_group(group)), |store| store.maintains = true);
        (0..20).for_each(|number| drop(writer.commit(numbered(number)).unwrap()));
        drop(writer);
        assert!(running.join().is_some());
    });
}

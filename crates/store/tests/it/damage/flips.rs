//! Single flipped bits anywhere in a database file: found, or without any effect on what the log says.
//!
//! A flip may hit free space; a table that is made of the log, which `rebuild` puts right; or a control row, which nothing covers. It
//! must never change what the log says and go unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use domain::causality::{Stream, StreamId};
use domain::hash::Digest;
use domain::id::{OperationId, RawId};
use domain::record::{Class, Spec, Value};
use store::Error;
use store::sqlite::{Location, SqliteReader, SqliteStore, rebuild};
use store::store::{Direction, FullText, Reader, Scan, Snapshot};

use super::home::{self, Home, synced};
use crate::fixtures::{LEASE, THING, host, id, kinds, operation, workspace};
use crate::sqlite::rusqlite_open;

/// LIMIT: flips at random places of the whole file.
const RANDOM_FLIPS: u64 = 300;
/// LIMIT: bytes between two flips of the sweep; a prime, so that it wanders through pages and rows.
const SWEEP_STEP: usize = 307;

/// Everything that can be read, by what vouches for it; an error is an answer, too.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    log: Result<String, Error>,
    /// Tables, indexes, counts and words that are made of the log.
    derived: Result<String, Error>,
    /// Control rows and what is known of other files.
    beside: Result<String, Error>,
}

/// What the whole file holds, so that a damaged one is asked for the same.
struct Known {
    operations: BTreeSet<OperationId>,
    unlogged: Vec<OperationId>,
    records: BTreeSet<(&'static str, RawId)>,
    groups: Vec<(&'static str, Vec<Value>)>,
}

impl Known {
    fn of(location: &Location) -> Self {
        let reader = SqliteReader::open(location, &home::env()).unwrap();
        let snapshot = reader.read().unwrap();
        let (mut operations, mut records) = (BTreeSet::new(), BTreeSet::new());
        for stream in streams() {
            for (logged, _) in snapshot.entries(&stream, 0, 10_000).unwrap() {
                operations.insert(logged.entry.operation_id);
                let spec = kinds().into_iter().find(|spec| spec.kind == logged.entry.kind).unwrap();
                records.insert((spec.kind, logged.entry.id));
            }
        }
        let group = |name: &str| ("total", vec![Value::from(workspace().raw()), Value::from(name)]);
        let groups = ["thing 0", "thing 119", "edited 1", "edited 2", "kept"].map(group);
        let count = ("count", vec![Value::from(workspace().raw())]);
        let unlogged = (0..8).map(|number| operation(&format!("lease {number}"))).collect();
        Self { operations, unlogged, records, groups: groups.into_iter().chain([count]).collect() }
    }

    fn read(&self, location: &Location) -> Content {
        let reader = SqliteReader::open(location, &home::env());
        let each = |read: &dyn Fn(&SqliteReader) -> Result<String, Error>| reader.as_ref().map_err(Clone::clone).and_then(read);
        Content {
            log: each(&|reader| self.read_log(reader.read()?.as_ref())),
            derived: each(&|reader| self.read_derived(reader)),
            beside: each(&|reader| self.read_beside(reader.read()?.as_ref())),
        }
    }

    fn read_log(&self, snapshot: &dyn Snapshot) -> Result<String, Error> {
        let mut text = String::new();
        for stream in streams() {
            for (logged, stored) in snapshot.entries(&stream, 0, 10_000)? {
                // A salt beside neither a body nor a request is the salt of nothing any more.
                let salt = stored.salt.filter(|_| stored.body.is_some() || stored.request.is_some()).map(|salt| salt.0);
                text.push_str(&format!("{logged:?} {salt:?} {:?} {:?}\n", stored.body, stored.request));
            }
        }
        text.push_str(&format!("{:?}\n", snapshot.heads()?));
        for operation in &self.operations {
            text.push_str(&format!("{:?}\n", snapshot.outcome(operation)?));
        }
        Ok(text)
    }

    fn read_derived(&self, reader: &SqliteReader) -> Result<String, Error> {
        let mut text = String::new();
        let snapshot = reader.read()?;
        for (kind, id) in &self.records {
            let spec = kinds().into_iter().find(|spec| spec.kind == *kind).unwrap();
            text.push_str(&format!("{:?}\n", snapshot.get(spec, id)?));
        }
        for spec in kinds().into_iter().filter(|spec| spec.class != Class::Control) {
            text.push_str(&scans(snapshot.as_ref(), spec)?);
        }
        for (name, group) in &self.groups {
            text.push_str(&format!("{name} {group:?} {}\n", snapshot.aggregate(&THING, name, group)?));
        }
        drop(snapshot);
        for words in ["thing", "words of 3", "edited", "kept"] {
            let found = reader.search(&THING, &workspace(), words, 1_000)?;
            text.push_str(&format!("{:?}\n", found.iter().map(|row| row.id).collect::<BTreeSet<_>>()));
        }
        Ok(text)
    }

    fn read_beside(&self, snapshot: &dyn Snapshot) -> Result<String, Error> {
        let mut text = String::new();
        for spec in kinds().into_iter().filter(|spec| spec.class == Class::Control) {
            text.push_str(&scans(snapshot, spec)?);
        }
        for number in 0..=255 {
            text.push_str(&format!("{:?}\n", snapshot.get(&LEASE, &id(number))?));
        }
        for operation in &self.unlogged {
            text.push_str(&format!("{:?}\n", snapshot.outcome(operation)?));
        }
        text.push_str(&format!("{:?} {:?}\n", snapshot.witnesses()?, snapshot.history_id()?));
        Ok(text)
    }
}

fn scans(snapshot: &dyn Snapshot, spec: &'static Spec) -> Result<String, Error> {
    let mut text = String::new();
    for index in spec.indexes {
        for direction in [Direction::Forward, Direction::Backward] {
            text.push_str(&format!("{:?}\n", snapshot.scan(&Scan { direction, ..Scan::new(spec, index.name) })?));
        }
    }
    Ok(text)
}

fn streams() -> [StreamId; 2] {
    [synced(), StreamId { host: host(1), stream: Stream::Local }]
}

/// What became of one flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Nothing can be opened or read.
    Refused,
    /// `verify` ends with an error.
    Unreadable,
    /// `verify` names an entry.
    Named,
    /// Everything is as it was.
    NoEffect,
    /// Only tables differ, and a rebuild puts them right.
    Rebuilt,
    /// Only tables differ, and a rebuild says that it cannot put them right.
    Lost,
    /// Only rows differ that no log covers.
    Beside,
}

struct Flipper {
    home: Home,
    known: Known,
    whole: Content,
    fates: BTreeMap<(String, Fate), u64>,
}

impl Flipper {
    fn flip(&mut self, what: &str, offset: u64, bit: u32) {
        let file = OpenOptions::new().read(true).write(true).open(&self.home.journal.path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], offset).unwrap();
        let fate = self.fate().unwrap_or_else(|wrong| panic!("bit {bit} of byte {offset} ({what}): {wrong}"));
        file.write_all_at(&byte, offset).unwrap();
        *self.fates.entry((what.to_owned(), fate)).or_insert(0) += 1;
    }

    fn fate(&self) -> Result<Fate, String> {
        if SqliteReader::open(&self.home.journal, &home::env()).is_err() {
            return Ok(Fate::Refused);
        }
        match self.home.verify(true) {
            Err(_) => return Ok(Fate::Unreadable),
            Ok(report) if !report.is_sound() => return Ok(Fate::Named),
            Ok(_) => {}
        }
        let found = self.known.read(&self.home.journal);
        if found.log != self.whole.log {
            return Err(format!("the log says something else and passes: {}", first_difference(&self.whole.log, &found.log)));
        }
        if found.derived != self.whole.derived {
            return self.rebuilt(&first_difference(&self.whole.derived, &found.derived));
        }
        Ok(if found == self.whole { Fate::NoEffect } else { Fate::Beside })
    }

    /// The log is whole, so what is made of it can be made again.
    fn rebuilt(&self, difference: &str) -> Result<Fate, String> {
        let (_folder, copy) = self.home.copy();
        let Ok(mut store) = SqliteStore::open(&copy.journal, &home::env()) else { return Ok(Fate::Lost) };
        let Ok(report) = rebuild::run(&mut store, &mut |_| {}) else { return Ok(Fate::Lost) };
        drop(store);
        let found = self.known.read(&copy.journal);
        if (&found.log, &found.derived) != (&self.whole.log, &self.whole.derived) {
            if report.differing_rows > 0 && found.log == self.whole.log {
                return Ok(Fate::Lost);
            }
            return Err(format!("{difference}; a rebuild left {}", first_difference(&self.whole.derived, &found.derived)));
        }
        Ok(Fate::Rebuilt)
    }
}

fn first_difference(before: &Result<String, Error>, after: &Result<String, Error>) -> String {
    let (Ok(before), Ok(after)) = (before, after) else { return format!("{:?}", after.as_ref().err()) };
    let differs = before.lines().zip(after.lines()).find(|(before, after)| before != after);
    differs.map_or_else(|| "another length".to_owned(), |(before, after)| format!("\n{before}\n{after}"))
}

/// The pages of a file with the table or index that each belongs to.
fn pages(path: &Path) -> BTreeMap<u64, String> {
    let connection = rusqlite_open(path);
    let mut statement = connection.prepare("SELECT pageno, name FROM dbstat").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

fn random(seed: u64, bound: u64) -> u64 {
    let hash = Digest::new("verger.flips.v1").number(seed).finish();
    u64::from_be_bytes(hash.as_bytes()[..8].try_into().unwrap()) % bound
}

#[test]
fn d8_a_flipped_bit_is_found_or_changes_nothing_that_the_log_says() {
    const PAGE: u64 = 4_096;
    let folder = tempfile::tempdir().unwrap();
    let home = Home::build(folder.path());
    let known = Known::of(&home.journal);
    let whole = known.read(&home.journal);
    assert!(whole.log.is_ok() && whole.derived.is_ok() && whole.beside.is_ok());
    let pages = pages(&home.journal.path);
    let length = std::fs::metadata(&home.journal.path).unwrap().len();
    let mut flipper = Flipper { home, known, whole, fates: BTreeMap::new() };
    for seed in 0..RANDOM_FLIPS {
        let bit = u32::try_from(random(seed + RANDOM_FLIPS, 8)).unwrap();
        flipper.flip("anywhere", random(seed, length), bit);
    }
    let covered: BTreeSet<u64> = pages
        .iter()
        .filter(|(_, name)| ["log", "bodies", "log_operation"].contains(&name.as_str()))
        .map(|(page, _)| *page)
        .collect();
    let places = covered.iter().flat_map(|page| (page - 1) * PAGE..page * PAGE);
    for (count, offset) in places.enumerate().step_by(SWEEP_STEP) {
        let bit = u32::try_from(count / SWEEP_STEP % 8).unwrap();
        flipper.flip(&pages[&(offset / PAGE + 1)], offset, bit);
    }
    // The first bytes of each page say where everything else is.
    for offset in covered.iter().flat_map(|page| (page - 1) * PAGE..(page - 1) * PAGE + 8) {
        flipper.flip("page headers", offset, u32::try_from(offset % 8).unwrap());
    }
    println!("{length} bytes, {} pages of the log and its bodies", covered.len());
    for ((what, fate), count) in &flipper.fates {
        println!("{what:>14} {fate:>10?} {count:>5}");
    }
    assert_eq!(flipper.known.read(&flipper.home.journal), flipper.whole, "every flip was taken back");
}

//! The two databases that are damaged: a journal with every class of record, and an agent store that witnesses it.

use std::path::{Path, PathBuf};

use domain::causality::{Domain, Stream, StreamId};
use domain::commit::{Cause, Change, Commit};
use domain::entry::{Actor, Op, Witness};
use domain::hash;
use domain::id::EventId;
use domain::key::RunKey;
use domain::record::Record;
use domain::records::link::Link;
use store::env::Env;
use store::sqlite::{Location, SqliteReader, SqliteStore};
use store::store::{Logged, Reader, Store, Stored};
use store::verify::Report;

use crate::fixtures::{CHECKPOINT, LEASE, MEMO, PING, THING, commit, host, id, put, write};
use crate::sqlite::{location, tamper};

pub(crate) fn env() -> Env {
    Env::seeded(1)
}

pub(crate) fn synced() -> StreamId {
    StreamId { host: host(1), stream: Stream::Synced }
}

/// Where an entry of the synced stream is in the table.
pub(crate) fn position(counter: u64) -> u64 {
    1 << 40 | counter
}

/// Cuts the synced stream behind an entry, and has the head agree.
pub(crate) fn cut_with_head(kept: u64) -> String {
    let cut = position(kept);
    format!(
        "DELETE FROM log WHERE pos > {cut} AND pos < 2 << 40; DELETE FROM bodies WHERE pos > {cut} AND pos < 2 << 40;
         UPDATE log_head SET counter = {kept}, (chain, at) = (SELECT chain, at FROM log WHERE pos = {cut}) WHERE stream = 1;"
    )
}

pub(crate) struct Home {
    pub journal: Location,
    pub agent: Location,
    /// Older copies of the journal: from before the other file wrote its head down, and from after.
    pub early: PathBuf,
    pub late: PathBuf,
}

/// Entries of the synced stream that cases are about.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub end: u64,
    pub witnessed: u64,
    /// Ends of commits.
    pub boundaries: Vec<u64>,
    /// An edit inside of a commit, long before the erase entries.
    pub edit: u64,
    /// The third write of a thing.
    pub third: u64,
    pub third_thing: u8,
    /// First of a commit, and first of its record.
    pub first_of_commit: u64,
    /// A put with a run key and an event.
    pub caused: u64,
    /// A tombstone that is the first of its commit.
    pub tombstone: u64,
    /// The newest entry of a hash-logged record.
    pub memo: u64,
    pub erase: u64,
    pub last_erase: u64,
    /// Bodies that are gone, and the first of those that `erase` names.
    pub erased: u64,
    pub erased_first: u64,
}

impl Home {
    pub(crate) fn build(folder: &Path) -> Self {
        let home = Self {
            journal: location(folder, "journal"),
            agent: Location::in_folder(folder, Domain::Agent),
            early: folder.join("early"),
            late: folder.join("late"),
        };
        let mut journal = SqliteStore::create(&home.journal, host(1), &env()).unwrap();
        let mut agent = SqliteStore::create(&home.agent, host(1), &env()).unwrap();
        for number in 0..60u8 {
            run(&mut agent, commit(&format!("link {number}"), vec![put(Link::SPEC, number, 0, "{}")]));
        }
        make(&mut journal);
        edit(&mut journal, 0..60, 1);
        home.keep(&journal, &home.early);
        take_away(&mut journal, 100..105, 7);
        for number in 0..8u8 {
            run(&mut journal, commit(&format!("lease {number}"), vec![put(&LEASE, 200 + number, 0, "{}")]));
        }
        let heads = |store: &dyn Store, domain| -> Vec<Witness> {
            store.heads().unwrap().into_iter().map(|head| Witness { domain, head }).collect()
        };
        agent.witness(&heads(&journal, Domain::Journal)).unwrap();
        journal.witness(&heads(&agent, Domain::Agent)).unwrap();
        edit(&mut journal, 8..30, 2);
        home.keep(&journal, &home.late);
        take_away(&mut journal, 105..110, 11);
        edit(&mut journal, 40..60, 2);
        for store in [&journal, &agent] {
            store.checkpointer().unwrap().truncate().unwrap();
        }
        home
    }

    fn keep(&self, journal: &SqliteStore, path: &Path) {
        journal.checkpointer().unwrap().truncate().unwrap();
        std::fs::copy(&self.journal.path, path).unwrap();
    }

    /// Fresh copies of both files.
    pub(crate) fn copy(&self) -> (tempfile::TempDir, Self) {
        let folder = tempfile::tempdir().unwrap();
        let moved = |location: &Location| {
            let path = folder.path().join(location.path.file_name().unwrap());
            std::fs::copy(&location.path, &path).unwrap();
            Location { path, ..location.clone() }
        };
        let copy =
            Self { journal: moved(&self.journal), agent: moved(&self.agent), early: self.early.clone(), late: self.late.clone() };
        (folder, copy)
    }

    pub(crate) fn tamper(&self, sql: &str) {
        tamper(&self.journal.path, sql);
    }

    /// Verifies the journal, with what the agent file remembers of it or alone.
    pub(crate) fn verify(&self, witnessed: bool) -> store::Result<Report> {
        let others: &[&Location] = &[&self.agent];
        verify(&self.journal, if witnessed { others } else { &[] })
    }

    pub(crate) fn verify_agent(&self) -> store::Result<Report> {
        verify(&self.agent, &[&self.journal])
    }

    pub(crate) fn numbers(&self) -> Numbers {
        let reader = SqliteReader::open(&self.journal, &env()).unwrap();
        let entries = reader.read().unwrap().entries(&synced(), 0, 10_000).unwrap();
        let witnesses = SqliteReader::open(&self.agent, &env()).unwrap().read().unwrap().witnesses().unwrap();
        let witness = witnesses.iter().find(|witness| witness.head.stream == synced()).unwrap();
        numbers(&entries, witness.head.counter)
    }
}

fn numbers(entries: &[(Logged, Stored)], witnessed: u64) -> Numbers {
    let find = |matches: &dyn Fn(&Logged, &Stored) -> bool| {
        let found = entries.iter().find(|(logged, stored)| matches(logged, stored));
        found.map(|(logged, _)| logged.entry.dot.counter).expect("the home holds one")
    };
    let erases: Vec<u64> =
        entries.iter().filter(|(logged, _)| logged.entry.op == Op::Erase).map(|(logged, _)| logged.entry.dot.counter).collect();
    let gone: Vec<&Logged> = entries
        .iter()
        .filter(|(logged, stored)| logged.entry.kind != "memo" && logged.entry.body_hash.is_some() && stored.body.is_none())
        .map(|(logged, _)| logged)
        .collect();
    let erased_by_first = entries[usize::try_from(erases[0]).unwrap() - 1].0.entry.id;
    let third = find(&|logged, _| (logged.entry.kind.as_str(), logged.entry.op, logged.entry.version) == ("thing", Op::Put, 3));
    Numbers {
        end: u64::try_from(entries.len()).unwrap(),
        witnessed,
        boundaries: entries
            .iter()
            .map(|(logged, _)| logged.entry.last)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect(),
        edit: find(&|logged, stored| {
            let entry = &logged.entry;
            let inside = entry.first < entry.dot.counter && entry.dot.counter < entry.last;
            inside && entry.version == 2 && entry.kind == "thing" && stored.body.is_some()
        }),
        third,
        third_thing: entries[usize::try_from(third).unwrap() - 1].0.entry.id.as_bytes()[0],
        first_of_commit: find(&|logged, stored| {
            logged.entry.first == logged.entry.dot.counter && logged.entry.version == 1 && stored.request.is_some()
        }),
        caused: find(&|logged, stored| logged.entry.run_key.is_some() && stored.body.is_some()),
        tombstone: find(&|logged, stored| logged.entry.op == Op::Tombstone && stored.request.is_some()),
        memo: find(&|logged, stored| logged.entry.kind == "memo" && logged.entry.version == 2 && stored.salt.is_some()),
        erase: erases[0],
        last_erase: *erases.last().unwrap(),
        erased: u64::try_from(gone.len()).unwrap(),
        erased_first: gone.iter().find(|logged| logged.entry.id == erased_by_first).unwrap().entry.dot.counter,
    }
}

pub(crate) fn verify(of: &Location, others: &[&Location]) -> store::Result<Report> {
    let mut witnesses = Vec::new();
    for other in others {
        witnesses.extend(SqliteReader::open(other, &env())?.read()?.witnesses()?);
    }
    store::verify::domain(&SqliteReader::open(of, &env())?, of.domain, &of.kinds, &witnesses, &mut |_| {})
}

fn run(store: &mut SqliteStore, commit: Commit) {
    store.apply_group(&[commit]).pop().unwrap().unwrap();
}

fn make(journal: &mut SqliteStore) {
    for number in 0..120u8 {
        let text = format!(r#"{{"name":"thing {number}","size":{},"text":"words of {number}"}}"#, number % 7);
        let mut writes = vec![put(&THING, number, 0, &text)];
        if number % 3 == 0 {
            writes.push(put(&PING, number, 0, &format!(r#"{{"size":{number}}}"#)));
        }
        if number % 4 == 0 {
            writes.push(put(&CHECKPOINT, number, 0, r#"{"done":"yes"}"#));
        }
        if number % 5 == 0 {
            writes.push(put(&MEMO, number, 0, &format!(r#"{{"secret":"memo {number}"}}"#)));
        }
        if number % 6 == 0 {
            writes.push(put(&LEASE, number, 0, &format!(r#"{{"name":"lease {number}"}}"#)));
        }
        let mut commit = commit(&format!("make {number}"), writes);
        if number % 10 == 1 {
            let run_key = Some(RunKey::from_hash(hash::plain(&[number])));
            commit.cause = Cause { run_key, source_event: Some(EventId::from_raw(id(number))), depth: 2 };
            commit.actor = Actor::System;
        }
        run(journal, commit);
    }
}

/// Edits things in commits of three, and hash-logged records beside them.
fn edit(journal: &mut SqliteStore, numbers: std::ops::Range<u8>, version: u64) {
    let numbers: Vec<u8> = numbers.filter(|number| ![7, 11].contains(number) || version == 1).collect();
    for chunk in numbers.chunks(3) {
        let edited = |number: &u8| put(&THING, *number, version, &format!(r#"{{"name":"edited {version}","size":{number}}}"#));
        let mut writes: Vec<_> = chunk.iter().map(edited).collect();
        writes.extend(
            chunk.iter().filter(|number| *number % 10 == 0).map(|number| put(&MEMO, *number, version, r#"{"secret":"other"}"#)),
        );
        run(journal, commit(&format!("edit {chunk:?} at {version}"), writes));
    }
}

/// Tombstones that are followed by an edit in their commit, then an erase.
fn take_away(journal: &mut SqliteStore, numbers: std::ops::Range<u8>, erased: u8) {
    for number in numbers {
        let writes = vec![write(&THING, number, 1, Change::Tombstone), put(&THING, number - 25, 1, r#"{"name":"kept"}"#)];
        run(journal, commit(&format!("take {number}"), writes));
    }
    run(journal, commit(&format!("erase {erased}"), vec![write(&THING, erased, 2, Change::Erase)]));
}

//! Checking a log against itself and against what others remember of it.
//!
//! Counters must be dense, commits contiguous, every chain value the hash of the one before and the header, every body what its hash
//! says or named by an erase entry, the stored head the end that was found, and every witness in another file on the chain. The
//! chain is unkeyed: this finds damage and clumsy edits, not somebody who rewrites every file with care.

use std::collections::BTreeSet;

use domain::causality::{Domain, Dot, StreamId};
use domain::entry::{Entry, Head, Op, Witness};
use domain::hash::{self, Hash};
use domain::record::{Class, Spec};

use crate::store::{Logged, Reader, Snapshot, Stored};
use crate::{Error, Result};

/// LIMIT: entries read at once; small enough that a snapshot never gets old.
const ENTRIES_AT_ONCE: usize = 500;

/// What was found in one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub domain: Domain,
    pub streams: Vec<StreamReport>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamReport {
    pub stream: StreamId,
    /// The last entry that is as it should be.
    pub verified: u64,
    pub chain: Hash,
    pub erased: u64,
    /// Up to here another file vouches for the stream: a cut behind it cannot be told from a log that never was longer.
    pub witnessed: u64,
    /// What is wrong first, if anything.
    pub damage: Option<Damage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The entry it is about.
    pub at: Dot,
    pub what: String,
}

impl Report {
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.streams.iter().all(|stream| stream.damage.is_none())
    }
}

/// Verifies one domain. `witnesses` are what the other files say about it; `progress` is told the entries checked so far.
pub fn domain(
    reader: &dyn Reader,
    domain: Domain,
    kinds: &[&'static Spec],
    witnesses: &[Witness],
    progress: &mut dyn FnMut(u64),
) -> Result<Report> {
    let heads = reader.read()?.heads()?;
    let mut streams: BTreeSet<StreamId> = heads.iter().map(|head| head.stream).collect();
    streams.extend(witnesses.iter().filter(|witness| witness.domain == domain).map(|witness| witness.head.stream));
    let mut walks = Vec::new();
    let mut checked = 0;
    for stream in streams {
        let about = witnesses.iter().filter(|witness| witness.domain == domain && witness.head.stream == stream);
        let mut walk = Walk::new(domain, stream, kinds, about.map(|witness| witness.head).collect());
        while walk.read_on(reader)? {
            progress(checked + walk.last.counter);
        }
        checked += walk.last.counter;
        walks.push(walk);
    }
    let erased: BTreeSet<Dot> = walks.iter().flat_map(|walk| walk.named.iter().copied()).collect();
    let finish = |walk: Walk<'_>| {
        let head = heads.iter().find(|head| head.stream == walk.stream).copied();
        walk.finish(head, &erased)
    };
    Ok(Report { domain, streams: walks.into_iter().map(finish).collect() })
}

/// One stream on its way to the end.
struct Walk<'a> {
    stream: StreamId,
    kinds: &'a [&'static Spec],
    witnesses: Vec<Head>,
    last: Head,
    /// The commit that the next entry must belong to, if it is not complete.
    open_commit: Option<Entry>,
    /// Bodies that are missing: fine if an erase entry names them.
    missing: Vec<Dot>,
    named: Vec<Dot>,
    damage: Option<Damage>,
}

impl<'a> Walk<'a> {
    fn new(domain: Domain, stream: StreamId, kinds: &'a [&'static Spec], witnesses: Vec<Head>) -> Self {
        let chain = domain::entry::genesis(domain, &stream);
        let last = Head { stream, counter: 0, chain, at: domain::time::Timestamp::EPOCH };
        Self { stream, kinds, witnesses, last, open_commit: None, missing: Vec::new(), named: Vec::new(), damage: None }
    }

    /// Checks the next entries; false at the end or at the first damage.
    fn read_on(&mut self, reader: &dyn Reader) -> Result<bool> {
        let snapshot = reader.read()?;
        let read = match snapshot.entries(&self.stream, self.last.counter, ENTRIES_AT_ONCE) {
            Err(Error::BadEntry { dot, message }) => {
                // Those before the unreadable one are checked first: the first damage is the one to name.
                let sound = usize::try_from(dot.counter.saturating_sub(self.last.counter + 1)).unwrap_or(0);
                let before = snapshot.entries(&self.stream, self.last.counter, sound.min(ENTRIES_AT_ONCE))?;
                self.check_all(snapshot.as_ref(), before)?;
                self.damage.get_or_insert(Damage { at: dot, what: format!("does not read: {message}") });
                return Ok(false);
            }
            read => read?,
        };
        let more = read.len() == ENTRIES_AT_ONCE;
        self.check_all(snapshot.as_ref(), read)?;
        Ok(more && self.damage.is_none())
    }

    fn check_all(&mut self, snapshot: &dyn Snapshot, entries: Vec<(Logged, Stored)>) -> Result<()> {
        for (logged, stored) in entries {
            if let Err(what) = self.check(snapshot, &logged, &stored)? {
                self.damage = Some(Damage { at: logged.entry.dot, what });
                return Ok(());
            }
        }
        Ok(())
    }

    fn check(&mut self, snapshot: &dyn Snapshot, logged: &Logged, stored: &Stored) -> Result<std::result::Result<(), String>> {
        let entry = &logged.entry;
        let expected = self.last.counter + 1;
        if entry.dot.counter != expected {
            return Ok(Err(format!("entry {expected} is missing before it")));
        }
        if entry.chain(&self.last.chain) != logged.chain {
            return Ok(Err("its chain value does not follow from its header and the entry before it".to_owned()));
        }
        if let Err(what) = self.check_commit(entry) {
            return Ok(Err(what));
        }
        if let Some(head) = self.witnesses.iter().find(|head| head.counter == entry.dot.counter && head.chain != logged.chain) {
            return Ok(Err(format!("another file remembers chain {} here", head.chain)));
        }
        if let Err(what) = self.check_body(entry, stored) {
            return Ok(Err(what));
        }
        if let Err(what) = check_previous(snapshot, logged)? {
            return Ok(Err(what));
        }
        self.last = Head { stream: self.stream, counter: entry.dot.counter, chain: logged.chain, at: entry.at };
        self.open_commit = (entry.last > entry.dot.counter).then(|| entry.clone());
        Ok(Ok(()))
    }

    fn check_commit(&self, entry: &Entry) -> std::result::Result<(), String> {
        let fits = match &self.open_commit {
            Some(open) => (open.first, open.last, open.operation_id) == (entry.first, entry.last, entry.operation_id),
            None => entry.first == entry.dot.counter && entry.last >= entry.first,
        };
        if fits { Ok(()) } else { Err("its commit's range is broken".to_owned()) }
    }

    fn check_body(&mut self, entry: &Entry, stored: &Stored) -> std::result::Result<(), String> {
        let hash_logged = |kind: &str| self.kinds.iter().any(|spec| spec.kind == kind && spec.class == Class::HashLogged);
        match (entry.body_hash, &stored.body, stored.salt) {
            (None, None, _) => {}
            (Some(_), None, _) if hash_logged(&entry.kind) => {}
            (Some(_), None, _) => self.missing.push(entry.dot),
            (Some(expected), Some(body), Some(salt)) if hash::salted(&salt, body.as_bytes()) == expected => {}
            _ => return Err("its body is not the one that its hash was made of".to_owned()),
        }
        if entry.op == Op::Erase {
            let named = stored.body.as_deref().and_then(erased_places);
            self.named.extend(named.ok_or_else(|| "its list of erased entries does not read".to_owned())?);
        }
        Ok(())
    }

    fn finish(self, head: Option<Head>, erased: &BTreeSet<Dot>) -> StreamReport {
        let at = |counter: u64| Dot { stream: self.stream, counter };
        let witnessed = self.witnesses.iter().map(|head| head.counter).max().unwrap_or(0);
        let unerased = self.missing.iter().find(|dot| !erased.contains(dot));
        let damage = match (unerased, self.damage) {
            (Some(dot), damage) if damage.as_ref().is_none_or(|damage| dot < &damage.at) => {
                Some(Damage { at: *dot, what: "its body is gone and no erase entry names it".to_owned() })
            }
            (_, Some(damage)) => Some(damage),
            (_, None) => {
                let stored = head.filter(|head| head.stream == self.stream);
                let end = self.last.counter;
                if stored.is_some_and(|head| head.counter > end) || witnessed > end {
                    let by = if stored.is_some_and(|head| head.counter > end) { "the stored head" } else { "another file" };
                    Some(Damage { at: at(end + 1), what: format!("it is missing, though {by} remembers it: the tail was cut off") })
                } else if stored.is_none_or(|head| head.counter != end || head.chain != self.last.chain) {
                    Some(Damage { at: at(end), what: "the stored head is not the last entry".to_owned() })
                } else if self.open_commit.is_some() {
                    Some(Damage { at: at(end), what: "its commit is not complete".to_owned() })
                } else {
                    None
                }
            }
        };
        let erased = u64::try_from(self.missing.iter().filter(|dot| erased.contains(dot)).count()).unwrap_or(u64::MAX);
        StreamReport { stream: self.stream, verified: self.last.counter, chain: self.last.chain, erased, witnessed, damage }
    }
}

/// The link to the record's entry before must lead to one of the same record.
fn check_previous(snapshot: &dyn Snapshot, logged: &Logged) -> Result<std::result::Result<(), String>> {
    let entry = &logged.entry;
    let Some(previous) = logged.previous else {
        let first = entry.version == 1;
        return Ok(if first { Ok(()) } else { Err("its link to the record's entry before is gone".to_owned()) });
    };
    let found = match snapshot.entry(&previous) {
        Err(Error::BadEntry { .. }) => None,
        found => found?,
    };
    let fits = found.is_some_and(|(before, _)| before.entry.id == entry.id && before.entry.kind == entry.kind);
    let earlier = previous.stream != entry.dot.stream || previous.counter < entry.dot.counter;
    Ok(if fits && earlier { Ok(()) } else { Err("its link to the record's entry before is wrong".to_owned()) })
}

fn erased_places(body: &str) -> Option<Vec<Dot>> {
    let value = domain::json::parse_object(body).ok()?;
    let places = value.get("erased")?.as_array()?;
    places.iter().map(|place| place.as_str().and_then(crate::row::parse_place)).collect()
}

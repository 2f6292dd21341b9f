//! Checking a log against itself and against what others remember of it.
//!
//! Counters must be dense, commits contiguous, every chain value the hash of the one before and the header, every body what its hash
//! says or named by an erase entry, every request hash whole, the stored head the end that was found, and every witness in another file
//! on the chain. Then the backend checks its own pages and indexes. The chain is unkeyed: this finds damage and clumsy edits, not somebody who rewrites every file with care.

use std::collections::BTreeSet;

use domain::causality::{Domain, Dot, StreamId};
use domain::entry::{Entry, Head, Op, Witness};
use domain::hash::{self, Hash, Salt};
use domain::id::{OperationId, RawId};
use domain::record::{Class, Spec};

use crate::row;
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
    /// Up to here counters, commits and chain hold.
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
    let mut streams: BTreeSet<StreamId> = reader.read()?.streams()?.into_iter().collect();
    streams.extend(witnesses.iter().filter(|witness| witness.domain == domain).map(|witness| witness.head.stream));
    let mut walks = Vec::new();
    let mut checked = 0;
    for stream in streams {
        let about = witnesses.iter().filter(|witness| witness.domain == domain && witness.head.stream == stream);
        let mut walk = Walk::new(domain, stream, kinds, about.map(|witness| witness.head).collect());
        while walk.read_on(reader)? {
            progress(checked + walk.last.counter);
        }
        walk.end(reader)?;
        checked += walk.last.counter;
        walks.push(walk);
    }
    let erased = Erased::of(&walks);
    let report = Report { domain, streams: walks.into_iter().map(|walk| walk.finish(&erased)).collect() };
    if report.is_sound() {
        // Last, because it names pages and not entries.
        reader.check()?;
    }
    Ok(report)
}

/// What is known of erased bodies once every stream has been read.
struct Erased {
    /// Named by an erase entry.
    named: BTreeSet<Dot>,
    /// Commits that an erase took a body of; their request hashes went with it.
    operations: BTreeSet<OperationId>,
    /// Bad entries that may have been the erase entries that are not found.
    suspects: Vec<Suspect>,
}

impl Erased {
    fn of(walks: &[Walk<'_>]) -> Self {
        let named: BTreeSet<Dot> = walks.iter().flat_map(|walk| walk.named.iter().copied()).collect();
        let missing = walks.iter().flat_map(|walk| &walk.missing);
        Self {
            operations: missing.map(|missing| missing.operation).collect(),
            named,
            suspects: walks.iter().filter_map(|walk| walk.suspect.clone()).collect(),
        }
    }

    /// Whether a body may be gone. Beside a bad entry that could be the erase it is not the first damage.
    fn explains(&self, missing: &Missing) -> bool {
        let may_be = |suspect: &Suspect| match suspect {
            Suspect::Anything => true,
            Suspect::About(kind, id) => (kind, id) == (&missing.kind, &missing.id),
        };
        self.named.contains(&missing.at) || self.suspects.iter().any(may_be)
    }
}

/// What the first bad entry of a stream was.
#[derive(Debug, Clone)]
enum Suspect {
    /// It is missing or does not read.
    Anything,
    /// Kind and id are those of this record.
    About(String, RawId),
}

/// A body that is not there: fine if an erase entry names it.
struct Missing {
    at: Dot,
    kind: String,
    id: RawId,
    operation: OperationId,
}

impl Missing {
    fn of(entry: &Entry) -> Self {
        Self { at: entry.dot, kind: entry.kind.clone(), id: entry.id, operation: entry.operation_id }
    }
}

/// One stream on its way to the end.
struct Walk<'a> {
    stream: StreamId,
    kinds: &'a [&'static Spec],
    witnesses: Vec<Head>,
    last: Head,
    /// As it was stored at the moment in which the last entries were read.
    head: Option<Head>,
    /// The commit that the next entry must belong to, if it is not complete.
    open_commit: Option<Entry>,
    missing: Vec<Missing>,
    /// First entries of commits whose request hash is nowhere.
    unrequested: Vec<(Dot, OperationId)>,
    named: Vec<Dot>,
    damage: Option<Damage>,
    suspect: Option<Suspect>,
}

impl<'a> Walk<'a> {
    fn new(domain: Domain, stream: StreamId, kinds: &'a [&'static Spec], witnesses: Vec<Head>) -> Self {
        let chain = domain::entry::genesis(domain, &stream);
        let last = Head { stream, counter: 0, chain, at: domain::time::Timestamp::EPOCH };
        Self {
            stream,
            kinds,
            witnesses,
            last,
            head: None,
            open_commit: None,
            missing: Vec::new(),
            unrequested: Vec::new(),
            named: Vec::new(),
            damage: None,
            suspect: None,
        }
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
                if self.damage.is_none() {
                    let counter = dot.counter.min(self.last.counter + 1);
                    let what =
                        if counter == dot.counter { format!("does not read: {message}") } else { "it is missing".to_owned() };
                    self.damage = Some(Damage { at: Dot { counter, ..dot }, what });
                    self.suspect = Some(Suspect::Anything);
                }
                return Ok(false);
            }
            read => read?,
        };
        let more = read.len() == ENTRIES_AT_ONCE;
        self.check_all(snapshot.as_ref(), read)?;
        if !more {
            // In this snapshot, because a writer may go on while the log is checked.
            self.head = snapshot.heads()?.into_iter().find(|head| head.stream == self.stream);
        }
        Ok(more && self.damage.is_none())
    }

    fn check_all(&mut self, snapshot: &dyn Snapshot, entries: Vec<(Logged, Stored)>) -> Result<()> {
        for (logged, stored) in entries {
            let entry = &logged.entry;
            let expected = Dot { stream: self.stream, counter: self.last.counter + 1 };
            if entry.dot != expected {
                let what = format!("it is missing, though entry {} is there", entry.dot.counter);
                self.damage = Some(Damage { at: expected, what });
                self.suspect = Some(Suspect::Anything);
                return Ok(());
            }
            if let Err(what) = self.check(snapshot, &logged, &stored)? {
                self.damage = Some(Damage { at: entry.dot, what });
                self.suspect = Some(Suspect::About(entry.kind.clone(), entry.id));
                self.named.extend(stored.body.as_deref().and_then(erased_places).unwrap_or_default());
                return Ok(());
            }
            self.last = Head { stream: self.stream, counter: entry.dot.counter, chain: logged.chain, at: entry.at };
            self.open_commit = (entry.last > entry.dot.counter).then(|| entry.clone());
        }
        Ok(())
    }

    fn check(&mut self, snapshot: &dyn Snapshot, logged: &Logged, stored: &Stored) -> Result<std::result::Result<(), String>> {
        let entry = &logged.entry;
        if entry.chain(&self.last.chain) != logged.chain {
            return Ok(Err("its chain value does not follow from its header and the entry before it".to_owned()));
        }
        if let Err(what) = self.check_commit(entry) {
            return Ok(Err(what));
        }
        if let Some(head) = self.witnesses.iter().find(|head| head.counter == entry.dot.counter && head.chain != logged.chain) {
            return Ok(Err(format!("another file remembers chain {} here", head.chain)));
        }
        if let Err(what) = self.check_request(snapshot, entry, stored)? {
            return Ok(Err(what));
        }
        if let Err(what) = check_previous(snapshot, logged)? {
            return Ok(Err(what));
        }
        self.check_body(snapshot, entry, stored)
    }

    fn check_commit(&self, entry: &Entry) -> std::result::Result<(), String> {
        let fits = match &self.open_commit {
            Some(open) => (open.first, open.last, open.operation_id) == (entry.first, entry.last, entry.operation_id),
            None => entry.first == entry.dot.counter && entry.last >= entry.first,
        };
        if fits { Ok(()) } else { Err("its commit's range is broken".to_owned()) }
    }

    /// A commit keeps its request's hash beside its first entry, in one of its streams.
    fn check_request(
        &mut self,
        snapshot: &dyn Snapshot,
        entry: &Entry,
        stored: &Stored,
    ) -> Result<std::result::Result<(), String>> {
        let first = entry.first == entry.dot.counter;
        match (stored.request, stored.salt) {
            (Some(request), Some(salt)) if first && row::request_is_whole(&salt, &request) => {}
            (Some(_), _) => return Ok(Err("its request hash is not what was stored".to_owned())),
            (None, _) if first && !self.requested_elsewhere(snapshot, entry)? => {
                self.unrequested.push((entry.dot, entry.operation_id));
            }
            (None, _) => {}
        }
        Ok(Ok(()))
    }

    fn requested_elsewhere(&self, snapshot: &dyn Snapshot, entry: &Entry) -> Result<bool> {
        let outcome = match snapshot.outcome(&entry.operation_id) {
            // The other stream's own walk names what does not read.
            Err(Error::BadEntry { .. } | Error::Unreadable(_)) => return Ok(true),
            outcome => outcome?,
        };
        for dot in outcome.iter().flat_map(|outcome| &outcome.writes).filter_map(|write| write.dot) {
            if dot.stream != self.stream && snapshot.entry(&dot)?.is_some_and(|(_, stored)| stored.request.is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn check_body(&mut self, snapshot: &dyn Snapshot, entry: &Entry, stored: &Stored) -> Result<std::result::Result<(), String>> {
        let hash_logged = self.kinds.iter().copied().find(|spec| spec.kind == entry.kind && spec.class == Class::HashLogged);
        let body = match (entry.body_hash, &stored.body, stored.salt) {
            (None, None, _) => Found::Whole,
            (Some(expected), Some(body), Some(salt)) => Found::compare(&salt, body, &expected),
            (Some(expected), None, Some(salt)) if let Some(spec) = hash_logged => {
                in_table(snapshot, spec, entry, &salt, &expected)?
            }
            (Some(_), None, _) => Found::Nothing,
            _ => Found::Other,
        };
        match body {
            Found::Whole => {}
            Found::Other => return Ok(Err("its body is not the one that its hash was made of".to_owned())),
            Found::Nothing => self.missing.push(Missing::of(entry)),
            Found::NoRow => {
                // A table that lost a row lost the newest body only.
                self.missing.retain(|missing| (&missing.kind, &missing.id) != (&entry.kind, &entry.id));
                self.missing.push(Missing::of(entry));
            }
        }
        if entry.op == Op::Erase {
            let Some(named) = stored.body.as_deref().and_then(erased_places) else {
                return Ok(Err("its list of erased entries does not read".to_owned()));
            };
            self.named.extend(named);
        }
        Ok(Ok(()))
    }

    /// What only the end of a stream shows.
    fn end(&mut self, reader: &dyn Reader) -> Result<()> {
        if self.damage.is_some() {
            return self.read_names(reader);
        }
        let end = self.last.counter;
        let at = |counter: u64| Dot { stream: self.stream, counter };
        let witnessed = self.witnessed();
        let beyond = self.head.is_some_and(|head| head.counter > end);
        if beyond || witnessed > end {
            let by = if beyond { "the stored head" } else { "another file" };
            let what = format!("it is missing, though {by} remembers it: the tail was cut off");
            self.damage = Some(Damage { at: at(end + 1), what });
            self.suspect = Some(Suspect::Anything);
        } else if self.head != Some(self.last) {
            self.damage = Some(Damage { at: at(end), what: "the stored head is not the last entry".to_owned() });
        } else if self.open_commit.is_some() {
            self.damage = Some(Damage { at: at(end), what: "its commit is not complete".to_owned() });
        }
        Ok(())
    }

    /// Looks for erase entries behind the first damage: without them, what they erased would pass for an earlier one.
    fn read_names(&mut self, reader: &dyn Reader) -> Result<()> {
        let mut after = self.last.counter;
        loop {
            let snapshot = reader.read()?;
            let (read, unreadable) = match snapshot.entries(&self.stream, after, ENTRIES_AT_ONCE) {
                Err(Error::BadEntry { dot, .. }) => {
                    let sound = usize::try_from(dot.counter.saturating_sub(after + 1)).unwrap_or(0);
                    (snapshot.entries(&self.stream, after, sound.min(ENTRIES_AT_ONCE)), Some(dot.counter))
                }
                read => (read, None),
            };
            let Ok(read) = read else {
                self.suspect = Some(Suspect::Anything);
                return Ok(());
            };
            let erases = read.iter().filter(|(logged, _)| logged.entry.op == Op::Erase);
            self.named.extend(erases.filter_map(|(_, stored)| erased_places(stored.body.as_deref()?)).flatten());
            let last = read.last().map(|(logged, _)| logged.entry.dot.counter);
            // Each turn gets further, or it is the last one.
            match unreadable.or(last).filter(|last| *last > after) {
                Some(last) if unreadable.is_some() || read.len() == ENTRIES_AT_ONCE => after = last,
                _ => return Ok(()),
            }
        }
    }

    fn witnessed(&self) -> u64 {
        self.witnesses.iter().map(|head| head.counter).max().unwrap_or(0)
    }

    fn finish(self, erased: &Erased) -> StreamReport {
        let gone = self.missing.iter().find(|missing| !erased.explains(missing));
        let gone = gone.map(|gone| Damage { at: gone.at, what: "its body is gone and no erase entry names it".to_owned() });
        let unrequested = self.unrequested.iter().find(|(_, operation)| !erased.operations.contains(operation));
        let unrequested = unrequested
            .map(|(dot, _)| Damage { at: *dot, what: "its request hash is gone and nothing of its commit was erased".to_owned() });
        StreamReport {
            stream: self.stream,
            verified: self.last.counter,
            chain: self.last.chain,
            erased: u64::try_from(self.missing.iter().filter(|missing| erased.named.contains(&missing.at)).count())
                .unwrap_or(u64::MAX),
            witnessed: self.witnessed(),
            damage: [gone, unrequested, self.damage].into_iter().flatten().min_by_key(|damage| damage.at),
        }
    }
}

/// What there is of an entry's body.
enum Found {
    Whole,
    Other,
    Nothing,
    NoRow,
}

impl Found {
    fn compare(salt: &Salt, body: &str, expected: &Hash) -> Self {
        if hash::salted(salt, body.as_bytes()) == *expected { Self::Whole } else { Self::Other }
    }
}

/// The body of a hash-logged record is only in its table, and only the newest one.
fn in_table(snapshot: &dyn Snapshot, spec: &'static Spec, entry: &Entry, salt: &Salt, expected: &Hash) -> Result<Found> {
    let row = match snapshot.get(spec, &entry.id) {
        Err(Error::Unreadable(_)) => return Ok(Found::Other),
        row => row?,
    };
    let Some(row) = row else { return Ok(Found::NoRow) };
    // Whether a newer entry made the row is for a rebuild to say, which looks at rows and not at entries.
    if row.dot != Some(entry.dot) {
        return Ok(Found::Whole);
    }
    let whole = row.is_of(entry) && !row.deleted;
    Ok(row.body.filter(|_| whole).map_or(Found::Other, |body| Found::compare(salt, &body, expected)))
}

/// The link to the record's entry before must lead to it.
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
    let host = entry.dot.stream.host;
    let fits = found.is_some_and(|(before, _)| {
        let before = before.entry;
        // A host counts its own writes to a record; other hosts' entries may have come in between, in any order.
        let own_edits = |entry: &Entry| entry.edits.get(&host).copied().unwrap_or(0);
        let next = before.dot.stream.host != host || own_edits(&before) + 1 == own_edits(entry);
        (&before.id, &before.kind) == (&entry.id, &entry.kind) && next
    });
    let earlier = previous.stream != entry.dot.stream || previous.counter < entry.dot.counter;
    Ok(if fits && earlier { Ok(()) } else { Err("its link to the record's entry before is wrong".to_owned()) })
}

fn erased_places(body: &str) -> Option<Vec<Dot>> {
    let value = domain::json::parse_object(body).ok()?;
    let places = value.get("erased")?.as_array()?;
    places.iter().map(|place| place.as_str().and_then(row::parse_place)).collect()
}

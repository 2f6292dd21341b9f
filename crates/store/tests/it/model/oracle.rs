//! A store of ordered maps that predicts every answer: the rules of a commit written a second time, as plainly as possible.
//!
//! It shares no code with the store but the types of its answers. Counts and sums are taken from the rows each time they are asked
//! for, and a refused commit is undone by putting the copy from before it back.

use std::collections::BTreeMap;

use domain::causality::{Dot, Stream, StreamId};
use domain::commit::{Change, Commit, Expected, Guard, Write, Written};
use domain::entry::Op;
use domain::id::{HostId, OperationId, RawId, WorkspaceId};
use domain::limits::CAUSE_DEPTH_MAX;
use domain::record::{Class, Record};
use domain::records::fence::Fence;
use store::Error;

use crate::fixtures::THING;

/// What a put writes, with the parts of it that the rules look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) name: Option<&'static str>,
    /// A thing's size, a fence's epoch.
    pub(super) size: Option<i64>,
    pub(super) flaw: Option<Flaw>,
}

/// Why a body cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A field of a mergeable record whose name is not a word: the commit's shape is refused.
    FieldName,
    /// A field that does not fit its column: found when the row is made.
    Column,
    /// SQLite is made to end the transaction over it.
    Poison,
}

/// A commit with what its writes hold.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) commit: Commit,
    /// One for each write; `None` for a tombstone or an erasure.
    pub(super) contents: Vec<Option<Content>>,
}

/// A commit's outcome but for the time, which is the clock's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) repeated: bool,
    pub(super) writes: Vec<Written>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) version: u64,
    pub(super) workspace: WorkspaceId,
    /// `None` when deleted.
    pub(super) content: Option<Content>,
    puts: Vec<(OperationId, Stream, usize)>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) written: Written,
    pub(super) operation_id: OperationId,
    pub(super) range: (u64, u64),
    /// What is kept beside it: `None` for a tombstone, what was erased and what is only hashed.
    pub(super) body: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Oracle {
    host: HostId,
    pub(super) rows: BTreeMap<(&'static str, RawId), Held>,
    pub(super) log: BTreeMap<Stream, Vec<Line>>,
    /// The request is forgotten once content that it named is erased.
    outcomes: BTreeMap<OperationId, (Option<String>, Vec<Written>)>,
}

impl Oracle {
    pub(super) fn new(host: HostId) -> Self {
        let log = Stream::ALL.iter().map(|stream| (*stream, Vec::new())).collect();
        Self { host, rows: BTreeMap::new(), log, outcomes: BTreeMap::new() }
    }

    /// The answer to a commit; a refusal changes nothing.
    pub(super) fn answer(&mut self, sent: &Sent) -> Result<Done, Error> {
        let before = self.clone();
        self.step(sent).inspect_err(|_| *self = before)
    }

    pub(super) fn live(&self, kind: &str, id: &RawId) -> Option<(&Held, &Content)> {
        self.rows.iter().find(|((k, i), _)| *k == kind && i == id).and_then(|(_, held)| Some((held, held.content.as_ref()?)))
    }

    /// Count and sum of the sizes of the live things in a workspace, of one name or of all.
    pub(super) fn things(&self, workspace: &WorkspaceId, name: Option<Option<&str>>) -> (i64, i64) {
        let things = self.rows.iter().filter(|((kind, _), held)| *kind == THING.kind && held.workspace == *workspace);
        let contents = things.filter_map(|(_, held)| held.content.as_ref());
        let wanted = contents.filter(|content| name.is_none_or(|name| content.name == name));
        wanted.fold((0, 0), |(count, sum), content| (count + 1, sum + content.size.unwrap_or(0)))
    }

    fn step(&mut self, sent: &Sent) -> Result<Done, Error> {
        let commit = &sent.commit;
        if !has_good_shape(sent) {
            return Err(Error::InvalidCommit(String::new()));
        }
        if let Some((request, writes)) = self.outcomes.get(&commit.operation_id) {
            return match request {
                Some(request) if *request != commit.request => Err(Error::OperationIdReused { operation_id: commit.operation_id }),
                _ => Ok(Done { repeated: true, writes: writes.clone() }),
            };
        }
        commit.guards.iter().try_for_each(|guard| self.check(guard))?;
        let mut ranges = BTreeMap::new();
        for stream in commit.writes.iter().filter_map(|write| write.spec.class.stream()) {
            let next = self.next_counter(stream);
            ranges.entry(stream).or_insert((next, next - 1)).1 += 1;
        }
        self.outcomes.insert(commit.operation_id, (Some(commit.request.clone()), Vec::new()));
        let mut writes = Vec::new();
        for (write, content) in commit.writes.iter().zip(&sent.contents) {
            writes.push(self.write(write, content.as_ref(), commit.operation_id, &ranges)?);
        }
        if !ranges.is_empty() {
            writes.retain(|written| written.dot.is_some());
            writes.sort_by_key(|written| written.dot.map(|dot| (dot.stream.stream, dot.counter)));
        }
        self.outcomes.entry(commit.operation_id).and_modify(|(_, kept)| kept.clone_from(&writes));
        Ok(Done { repeated: false, writes })
    }

    fn check(&self, guard: &Guard) -> Result<(), Error> {
        let gone = |kind, prefix, id: &RawId, found: String| Err(Error::GuardFailed { kind, prefix, id: *id, found });
        match guard {
            Guard::Fence { subject, epoch } => {
                let raised = self.live(Fence::SPEC.kind, &Fence::id_of(subject)).and_then(|(_, content)| content.size);
                let current = raised.unwrap_or(0).unsigned_abs();
                if current > *epoch { Err(Error::Fenced { subject: subject.clone(), epoch: *epoch, current }) } else { Ok(()) }
            }
            Guard::Version { spec, id, version } => match self.live(spec.kind, id) {
                Some((held, _)) if held.version == *version => Ok(()),
                Some((held, _)) => gone(spec.kind, spec.prefix, id, format!("it is at version {}", held.version)),
                None => gone(spec.kind, spec.prefix, id, "it is gone".to_owned()),
            },
            Guard::Live { spec, id } => match self.live(spec.kind, id) {
                Some(_) => Ok(()),
                None => gone(spec.kind, spec.prefix, id, "it is gone".to_owned()),
            },
            Guard::AtMost { spec, aggregate, adding, limit, .. } => {
                let (current, _) = self.things(&crate::fixtures::workspace(), None);
                let refusal = Error::LimitReached { kind: spec.kind, aggregate, current, adding: *adding, limit: *limit };
                if current + adding > *limit { Err(refusal) } else { Ok(()) }
            }
        }
    }

    fn write(
        &mut self,
        write: &Write,
        content: Option<&Content>,
        operation_id: OperationId,
        ranges: &BTreeMap<Stream, (u64, u64)>,
    ) -> Result<Written, Error> {
        let spec = write.spec;
        let before = self.rows.get(&(spec.kind, write.id)).cloned();
        self.expect(write, before.as_ref())?;
        if spec == Fence::SPEC {
            let epoch = |content: Option<&Content>| content.and_then(|content| content.size);
            let current = before.as_ref().and_then(|held| epoch(held.content.as_ref()));
            // A fence only rises, and stays.
            if epoch(content) < current || content.is_none() {
                return Err(Error::InvalidCommit(String::new()));
            }
        }
        let version = before.as_ref().map_or(1, |held| held.version + 1);
        let mut held = Held {
            version,
            workspace: write.workspace,
            content: content.cloned(),
            puts: before.map_or(Vec::new(), |held| held.puts),
        };
        let erased = matches!(write.change, Change::Erase).then(|| self.erase(&held));
        let mut written = Written { kind: spec.kind.to_owned(), id: write.id, op: write.change.op(), version, dot: None };
        if let Some(stream) = spec.class.stream() {
            let counter = self.next_counter(stream);
            written.dot = Some(Dot { stream: StreamId { host: self.host, stream }, counter });
            let lines = self.log.entry(stream).or_default();
            if written.op == Op::Put {
                held.puts.push((operation_id, stream, lines.len()));
            }
            let text = content.filter(|_| spec.class != Class::HashLogged).map(|content| content.text.clone());
            lines.push(Line { written: written.clone(), operation_id, range: ranges[&stream], body: text.or(erased) });
        }
        self.refuse_content(write, content)?;
        if spec.class == Class::Control && content.is_none() {
            self.rows.remove(&(spec.kind, write.id));
        } else {
            self.rows.insert((spec.kind, write.id), held);
        }
        Ok(written)
    }

    fn expect(&self, write: &Write, before: Option<&Held>) -> Result<(), Error> {
        let current = before.map(|held| held.version);
        let expected = match write.expected {
            Expected::Absent => None,
            Expected::Version(version) => Some(version),
        };
        let deleted = before.is_some_and(|held| held.content.is_none());
        let pointless = match write.change {
            Change::Put(_) => false,
            Change::Tombstone => before.is_none() || deleted,
            Change::Erase => before.is_none(),
        };
        let (kind, prefix, id) = (write.spec.kind, write.spec.prefix, write.id);
        let conflict = Error::VersionConflict { kind, prefix, id, expected, current, deleted };
        if expected == current && !pointless { Ok(()) } else { Err(conflict) }
    }

    /// What only the table finds wrong with a body.
    fn refuse_content(&self, write: &Write, content: Option<&Content>) -> Result<(), Error> {
        let Some(content) = content else { return Ok(()) };
        let spec = write.spec;
        match content.flaw {
            Some(Flaw::Column) => return Err(Error::InvalidCommit(String::new())),
            Some(Flaw::Poison) => {
                return Err(Error::Storage { domain: domain::causality::Domain::Journal, message: String::new() });
            }
            Some(Flaw::FieldName) | None => {}
        }
        let has_unique_name = spec.indexes.iter().any(|index| index.unique);
        let held_by_another = |((kind, id), held): (&(&str, RawId), &Held)| {
            *kind == spec.kind
                && *id != write.id
                && held.content.as_ref().is_some_and(|other| other.name.is_some() && other.name == content.name)
        };
        if has_unique_name && self.rows.iter().any(held_by_another) {
            return Err(Error::DuplicateKey { kind: spec.kind, prefix: spec.prefix, id: write.id });
        }
        Ok(())
    }

    /// Takes the bodies of every put of the record, and what would betray them; returns the text that names the places.
    fn erase(&mut self, held: &Held) -> String {
        let mut places = Vec::new();
        for (operation_id, stream, at) in &held.puts {
            self.outcomes.entry(*operation_id).and_modify(|(request, _)| *request = None);
            self.log.entry(*stream).and_modify(|lines| lines[*at].body = None);
            places.push(format!(r#""{}/{stream}#{}""#, self.host, at + 1));
        }
        format!(r#"{{"erased":[{}]}}"#, places.join(","))
    }

    fn next_counter(&self, stream: Stream) -> u64 {
        self.log[&stream].len() as u64 + 1
    }
}

fn has_good_shape(sent: &Sent) -> bool {
    let commit = &sent.commit;
    let fine = |(write, content): (&Write, &Option<Content>)| {
        let creates = matches!((&write.change, write.expected), (Change::Put(_), Expected::Absent));
        let erases = matches!(write.change, Change::Erase);
        let misnamed = write.spec.mergeable && content.as_ref().is_some_and(|content| content.flaw == Some(Flaw::FieldName));
        (!write.spec.immutable || creates || erases) && !(erases && write.spec.class == Class::Control) && !misnamed
    };
    let at_home = |guard: &Guard| match guard {
        Guard::Fence { .. } => true,
        Guard::Version { spec, .. } | Guard::Live { spec, .. } | Guard::AtMost { spec, .. } => {
            spec.domains.contains(&domain::causality::Domain::Journal)
        }
    };
    let bounded = !commit.writes.is_empty() && commit.cause.depth <= CAUSE_DEPTH_MAX;
    bounded && commit.guards.iter().all(at_home) && commit.writes.iter().zip(&sent.contents).all(fine)
}

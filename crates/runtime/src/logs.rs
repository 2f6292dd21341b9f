//! The log as people see it: read it, check it, rebuild the tables from it, move its consumers.

use domain::causality::{Domain, Dot, Stream, StreamId};
use domain::code::ErrorCode;
use domain::entry::{Actor, Witness};
use domain::hash::Hash;
use domain::id::{HostId, OperationId};
use domain::records::cursor::Cursor;
use serde_json::json;
use store::cursor;
use store::env::Env;
use store::sqlite::{SqliteStore, rebuild as tables};
use store::store::{Logged, Stored};
use store::verify::{self, Damage, Report};

use crate::home::Home;
use crate::{Error, Handle, Result, View};

/// One entry, with its body if it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    pub domain: Domain,
    pub logged: Logged,
    pub stored: Stored,
}

/// What a check of the whole home found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogStatus {
    pub reports: Vec<Report>,
    /// Databases that could not be read at all.
    pub unreadable: Vec<(Domain, Error)>,
    /// The anchor does not fit, and why.
    pub anchor_mismatch: Option<String>,
}

impl LogStatus {
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.unreadable.is_empty() && self.anchor_mismatch.is_none() && self.reports.iter().all(Report::is_sound)
    }

    /// The first damage, in the order of domains.
    #[must_use]
    pub fn first_damage(&self) -> Option<(Domain, &Damage)> {
        self.reports.iter().find_map(|report| {
            let damage = report.streams.iter().find_map(|stream| stream.damage.as_ref())?;
            Some((report.domain, damage))
        })
    }
}

/// A head that somebody wrote down outside: `journal/host_…/synced#12=<chain>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    pub domain: Domain,
    pub dot: Dot,
    pub chain: Hash,
}

impl Anchor {
    pub fn parse(text: &str) -> Result<Self> {
        let read = || {
            let (place, chain) = text.split_once('=')?;
            let (domain, place) = place.split_once('/')?;
            let (stream, counter) = place.split_once('#')?;
            let (host, stream) = stream.split_once('/')?;
            let stream = StreamId { host: HostId::parse(host).ok()?, stream: Stream::parse(stream)? };
            let dot = Dot { stream, counter: counter.parse().ok()? };
            Some(Self { domain: Domain::parse(domain)?, dot, chain: Hash::parse(chain)? })
        };
        read().ok_or_else(|| Error::argument("expect", "a head looks like `journal/host_…/synced#12=` and 64 hexadecimal digits"))
    }
}

impl std::fmt::Display for Anchor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}={}", self.domain, store::place(&self.dot), self.chain)
    }
}

/// A consumer and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorState {
    /// The domain that holds it.
    pub domain: Domain,
    pub cursor: Cursor,
    /// Entries of the source that it has not read.
    pub behind: u64,
    /// Why it is stopped, if it is.
    pub stopped: Option<Error>,
}

impl View {
    /// The last entries of a stream of this home's own host, oldest first.
    pub fn log_tail(&self, domain: Domain, stream: Stream, count: usize) -> Result<Vec<EntryRecord>> {
        let snapshot = self.reader(domain).read()?;
        let mut found = Vec::new();
        for head in snapshot.heads()?.iter().filter(|head| head.stream.stream == stream) {
            let after = head.counter.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
            found.extend(snapshot.entries(&head.stream, after, count)?);
        }
        Ok(found.into_iter().map(|(logged, stored)| EntryRecord { domain, logged, stored }).collect())
    }

    /// One entry by its counter.
    pub fn log_entry(&self, domain: Domain, stream: Stream, counter: u64, host: Option<HostId>) -> Result<EntryRecord> {
        let snapshot = self.reader(domain).read()?;
        let heads = snapshot.heads()?;
        let missing = || Error::new(ErrorCode::EntryNotFound, format!("there is no entry {counter} in {domain}/{stream}"));
        let head = heads.iter().find(|head| head.stream.stream == stream && host.is_none_or(|host| head.stream.host == host));
        let head = head.ok_or_else(missing)?;
        let entry = snapshot.entry(&Dot { stream: head.stream, counter })?;
        let (logged, stored) = entry.ok_or_else(missing)?;
        Ok(EntryRecord { domain, logged, stored })
    }

    /// Every consumer of every domain.
    pub fn cursors(&self) -> Result<Vec<CursorState>> {
        let mut found = Vec::new();
        for domain in Domain::ALL {
            let held = cursor::list(self.reader(*domain).read()?.as_ref())?;
            for held in held {
                found.push(self.cursor_state(*domain, held.cursor)?);
            }
        }
        Ok(found)
    }

    fn cursor_state(&self, domain: Domain, cursor: Cursor) -> Result<CursorState> {
        let source = self.reader(cursor.source).read()?;
        let read = |stream: &StreamId| {
            let place = cursor.places.iter().find(|place| place.host == stream.host && place.stream == stream.stream);
            place.map_or(0, |place| place.counter)
        };
        let behind = source.heads()?.iter().map(|head| head.counter.saturating_sub(read(&head.stream))).sum();
        let stopped = cursor::check(source.as_ref(), &cursor).err().map(Error::from);
        Ok(CursorState { domain, cursor, behind, stopped })
    }
}

impl LogStatus {
    /// Checks every database of a home; `progress` is told the entries checked so far.
    pub fn check(home: &Home, env: &Env, anchor: Option<&Anchor>, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        home.check()?;
        let mut status = Self { reports: Vec::new(), unreadable: Vec::new(), anchor_mismatch: None };
        let mut readers = Vec::new();
        let mut witnesses: Vec<Witness> = Vec::new();
        for domain in Domain::ALL {
            let opened = store::sqlite::SqliteReader::open(&home.location(*domain), env).and_then(|reader| {
                let seen = store::store::Reader::read(&reader)?.witnesses()?;
                Ok((reader, seen))
            });
            match opened {
                Ok((reader, seen)) => {
                    readers.push((*domain, reader));
                    witnesses.extend(seen);
                }
                Err(error) => status.unreadable.push((*domain, error.into())),
            }
        }
        let mut done = 0;
        for (domain, reader) in &readers {
            let kinds: Vec<_> = domain::catalogue::of_domain(*domain).collect();
            match verify::domain(reader, *domain, &kinds, &witnesses, &mut |checked| progress(done + checked)) {
                Ok(report) => {
                    done += report.streams.iter().map(|stream| stream.verified).sum::<u64>();
                    status.reports.push(report);
                }
                Err(error) => status.unreadable.push((*domain, error.into())),
            }
        }
        if let Some(anchor) = anchor {
            let reader = readers.iter().find(|(domain, _)| *domain == anchor.domain).map(|(_, reader)| reader);
            let found = reader.map(|reader| store::store::Reader::read(reader)?.entry(&anchor.dot)).transpose()?.flatten();
            status.anchor_mismatch = match found {
                Some((logged, _)) if logged.chain == anchor.chain => None,
                Some((logged, _)) => Some(format!("entry {} has chain {}", store::place(&anchor.dot), logged.chain)),
                None => Some(format!("there is no entry {}", store::place(&anchor.dot))),
            };
        }
        Ok(status)
    }
}

/// What a rebuild did, domain by domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildOutcome {
    pub domain: Domain,
    pub report: tables::Report,
}

/// Rebuilds the logged tables of a home from its log. A damaged log is refused: it would make damaged tables.
pub fn rebuild(home: &Home, env: &Env, progress: &mut dyn FnMut(Domain, u64)) -> Result<Vec<RebuildOutcome>> {
    home.check()?;
    let _lock = home.lock()?;
    let status = LogStatus::check(home, env, None, &mut |_| {})?;
    if let Some((domain, error)) = status.unreadable.first() {
        return Err(Error::new(error.code, format!("the {domain} log cannot be read: {error}")));
    }
    if let Some((domain, damage)) = status.first_damage() {
        let message = format!("the {domain} log is damaged at {}: {}", store::place(&damage.at), damage.what);
        return Err(Error::new(ErrorCode::LogDamaged, message));
    }
    let mut outcomes = Vec::new();
    for domain in Domain::ALL {
        let mut store = SqliteStore::open_to_rebuild(&home.location(*domain), env)?;
        let report = tables::run(&mut store, &mut |done| progress(*domain, done))?;
        outcomes.push(RebuildOutcome { domain: *domain, report });
    }
    Ok(outcomes)
}

impl Handle {
    /// Moves a consumer to the end of its source: what lies between is not read by it.
    pub fn reset_cursor(&self, consumer: &str) -> Result<CursorState> {
        let missing = || Error::new(ErrorCode::CursorNotFound, format!("there is no consumer `{consumer}`"));
        let state = self.view().cursors()?.into_iter().find(|state| state.cursor.consumer == consumer).ok_or_else(missing)?;
        let now = self.env().clock.now();
        let held = cursor::list(self.view().reader(state.domain).read()?.as_ref())?;
        let held = held.into_iter().find(|held| held.cursor.consumer == consumer).ok_or_else(missing)?;
        let source = state.cursor.source;
        let moved = cursor::at_head(self.view().reader(source).read()?.as_ref(), consumer, now, source)?;
        let operation_id = OperationId::of_consumer(&format!("reset {consumer} at version {}", held.version), &held.cursor.hash());
        let write = cursor::moved(&held, &moved)?;
        let request = json!(["cursor.reset", consumer, held.version.to_string()]);
        self.house().act(state.domain, Actor::System, operation_id, &request, Vec::new(), vec![write])?;
        self.view().cursor_state(state.domain, moved)
    }
}

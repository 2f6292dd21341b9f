//! Cursors: how anything downstream reads a log.
//!
//! A consumer reads entries of every stream after its places, makes its product, and commits product and moved cursor together, in
//! the product's database. Streams are read one by one; there is no order between them, and none is invented.

use domain::causality::{Domain, Dot, StreamId};
use domain::commit::{Change, Expected, Write};
use domain::entry::Head;
use domain::id::{RawId, WorkspaceId};
use domain::record::Record;
use domain::records::cursor::{Cursor, Place};
use domain::time::Timestamp;

use crate::store::{Logged, Row, Scan, Snapshot, Stored};
use crate::{Error, Result};

/// A stored cursor with the version its next move expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub cursor: Cursor,
    pub version: u64,
}

/// What a consumer has to read next, and where it stands afterwards.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Whole commits only.
    pub entries: Vec<(Logged, Stored)>,
    pub after: Cursor,
}

/// A consumer that starts up.
#[derive(Debug, Clone)]
pub enum Opened {
    Held(Held),
    /// It is new, and starts at the head of the source: what happened before it existed is not its business. This write must be
    /// committed first, or a crash would move the start past what came in between.
    New(Write),
}

/// Finds a consumer's cursor and checks that the source still is the log it stands in.
pub fn open(product: &dyn Snapshot, source: &dyn Snapshot, consumer: &str, at: Timestamp, of: Domain) -> Result<Opened> {
    let row = product.get(Cursor::SPEC, &Cursor::id_of(consumer))?;
    match row.as_ref().map(held).transpose()?.flatten() {
        Some(held) => {
            check(source, &held.cursor)?;
            Ok(Opened::Held(held))
        }
        None => Ok(Opened::New(write(&at_head(source, consumer, at, of)?, Expected::Absent)?)),
    }
}

/// A cursor at the end of everything there is.
pub fn at_head(source: &dyn Snapshot, consumer: &str, at: Timestamp, of: Domain) -> Result<Cursor> {
    let places = source.heads()?.iter().filter(|head| head.counter > 0).map(place_of).collect();
    Ok(Cursor { consumer: consumer.to_owned(), source: of, history: source.history_id()?, places, updated_at: at })
}

fn place_of(head: &Head) -> Place {
    Place { host: head.stream.host, stream: head.stream.stream, counter: head.counter, chain: head.chain }
}

/// Every cursor that a domain holds.
pub fn list(product: &dyn Snapshot) -> Result<Vec<Held>> {
    let page = product.scan(&Scan::new(Cursor::SPEC, "by_consumer"))?;
    Ok(page.rows.iter().map(held).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn held(row: &Row) -> Result<Option<Held>> {
    Ok(row.record()?.map(|cursor| Held { cursor, version: row.version }))
}

/// Whether the log still is the one that the cursor stands in.
pub fn check(source: &dyn Snapshot, cursor: &Cursor) -> Result<()> {
    let other = |place: String| Error::CursorFromOtherHistory { consumer: cursor.consumer.clone(), place };
    if source.history_id()? != cursor.history {
        return Err(other(format!("history {}", cursor.history)));
    }
    for place in &cursor.places {
        let dot = dot_of(place);
        let found = source.entry(&dot)?.map(|(logged, _)| logged.chain);
        if found != Some(place.chain) {
            return Err(other(crate::error::place(&dot)));
        }
    }
    Ok(())
}

fn dot_of(place: &Place) -> Dot {
    Dot { stream: StreamId { host: place.host, stream: place.stream }, counter: place.counter }
}

/// Reads on from a cursor: about `limit` entries, cut between commits and never inside one.
pub fn next(source: &dyn Snapshot, held: &Held, limit: usize, at: Timestamp) -> Result<Batch> {
    let mut after = Cursor { updated_at: at, ..held.cursor.clone() };
    let mut entries = Vec::new();
    for head in source.heads()? {
        let known = after.places.iter_mut().find(|place| dot_of(place).stream == head.stream);
        let from = known.as_ref().map_or(0, |place| place.counter);
        let read = whole_commits(source, &head, from, limit.saturating_sub(entries.len()))?;
        let Some((last, _)) = read.last() else { continue };
        let place =
            Place { host: head.stream.host, stream: head.stream.stream, counter: last.entry.dot.counter, chain: last.chain };
        match known {
            Some(known) => *known = place,
            None => after.places.push(place),
        }
        entries.extend(read);
    }
    after.places.sort_by_key(|place| (place.host, place.stream));
    Ok(Batch { entries, after })
}

/// Entries of a stream up to the end of a commit; the first commit is read whole even if it is longer than the limit.
fn whole_commits(source: &dyn Snapshot, head: &Head, from: u64, limit: usize) -> Result<Vec<(Logged, Stored)>> {
    let mut read = source.entries(&head.stream, from, limit)?;
    let Some(last) = read.last().map(|(logged, _)| logged.entry.clone()) else { return Ok(read) };
    if last.dot.counter < last.last {
        let started_here = last.first == from + 1;
        if started_here {
            let rest = usize::try_from(last.last - last.dot.counter).unwrap_or(usize::MAX);
            read.extend(source.entries(&head.stream, last.dot.counter, rest)?);
        } else {
            read.retain(|(logged, _)| logged.entry.dot.counter < last.first);
        }
    }
    Ok(read)
}

/// The write that moves a cursor, to be committed with the product.
pub fn moved(held: &Held, after: &Cursor) -> Result<Write> {
    write(after, Expected::Version(held.version))
}

fn write(cursor: &Cursor, expected: Expected) -> Result<Write> {
    let body = cursor.to_body().map_err(|error| Error::InvalidCommit(error.to_string()))?;
    let id: RawId = Cursor::id_of(&cursor.consumer);
    Ok(Write { spec: Cursor::SPEC, id, workspace: WorkspaceId::NONE, expected, change: Change::Put(body) })
}

//! The reads that writer and readers share: rows, entries, outcomes, heads.

use domain::causality::{Domain, Stream, StreamId};
use domain::commit::{Committed, Written};
use domain::entry::{Head, Witness};
use domain::hash::{Hash, Salt};
use domain::id::{HostId, OperationId, RawId, WorkspaceId};
use domain::record::{Spec, Value};
use domain::time::Timestamp;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use crate::apply::Outcome;
use crate::row::{self, LogRow};
use crate::sqlite::connect::failure;
use crate::store::{Logged, Row, Stored};
use crate::streams::Streams;
use crate::{Error, Result};

/// The file's numbers for streams.
pub(crate) fn load_streams(connection: &Connection, domain: Domain) -> Result<Streams> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let mut statement = connection.prepare_cached("SELECT n, host, stream FROM streams").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut streams = Streams::default();
    while let Some(row) = rows.next().map_err(failed)? {
        let (number, host, name): (i64, Vec<u8>, String) =
            (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?, row.get(2).map_err(failed)?);
        let host = RawId::from_slice(&host).map(HostId::from_raw).filter(|_| (1..=row::STREAM_NUMBER_MAX).contains(&number));
        let (Some(host), Some(stream)) = (host, Stream::parse(&name)) else {
            return Err(Error::Damaged { domain, message: format!("stream {number} does not read") });
        };
        streams.insert(number, StreamId { host, stream });
    }
    Ok(streams)
}

/// A record column on its way into SQLite.
pub(crate) struct Bound<'a>(pub &'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

pub(crate) fn value_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null | ValueRef::Real(_) => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

/// A connection with what is needed to read it.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub connection: &'a Connection,
    pub streams: &'a Streams,
    pub domain: Domain,
}

/// The columns that every record table has, from alias `t`; an immutable kind's body is beside the log.
pub(crate) fn row_columns(spec: &Spec) -> &'static str {
    if spec.immutable {
        // An erased row's place in the log holds the list of what was erased, which is not a body of the record.
        "t.id, t.version, t.workspace, t.deleted, t.pos, t.state, \
         CASE t.deleted WHEN 0 THEN (SELECT body FROM bodies WHERE bodies.pos = t.pos) END"
    } else {
        "t.id, t.version, t.workspace, t.deleted, t.pos, t.state, t.body"
    }
}

impl Queries<'_> {
    fn failed(&self, error: &rusqlite::Error) -> Error {
        failure(self.domain, error)
    }

    pub(crate) fn row(&self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        let sql = format!("SELECT {} FROM {} t WHERE t.id = ?1", row_columns(spec), spec.table);
        let mut statement = self.connection.prepare_cached(&sql).map_err(|error| self.failed(&error))?;
        let mut rows = statement.query([id.as_bytes()]).map_err(|error| self.failed(&error))?;
        rows.next().map_err(|error| self.failed(&error))?.map(|row| self.read_row(spec, row)).transpose()
    }

    /// Calls `visit` for every row of a table, deleted ones included, by id.
    pub(crate) fn each_row(&self, spec: &'static Spec, table: &str, mut visit: impl FnMut(Row) -> Result<()>) -> Result<()> {
        let sql = format!("SELECT {} FROM {table} t ORDER BY t.id", row_columns(spec));
        let mut statement = self.connection.prepare(&sql).map_err(|error| self.failed(&error))?;
        let mut rows = statement.query([]).map_err(|error| self.failed(&error))?;
        while let Some(row) = rows.next().map_err(|error| self.failed(&error))? {
            visit(self.read_row(spec, row)?)?;
        }
        Ok(())
    }

    /// Reads the columns of [`row_columns`].
    pub(crate) fn read_row(&self, spec: &'static Spec, row: &rusqlite::Row<'_>) -> Result<Row> {
        let bad = |error: rusqlite::Error| Error::Unreadable(format!("{} in the {} store: {error}", spec.kind, self.domain));
        let raw = |bytes: Vec<u8>| RawId::from_slice(&bytes).ok_or_else(|| Error::Unreadable(format!("an id in {}", spec.table)));
        let version = row.get::<_, i64>(1).map_err(bad)?.unsigned_abs();
        let position: Option<i64> = row.get(4).map_err(bad)?;
        let dot = position.map(|position| self.streams.dot(position)).transpose()?;
        let state: Option<String> = row.get(5).map_err(bad)?;
        Ok(Row {
            spec,
            id: raw(row.get(0).map_err(bad)?)?,
            version,
            workspace: WorkspaceId::from_raw(raw(row.get(2).map_err(bad)?)?),
            deleted: row.get::<_, i64>(3).map_err(bad)? != 0,
            body: row.get(6).map_err(bad)?,
            dot,
            state: row::read_state(state.as_deref(), dot.as_ref(), version)?,
        })
    }

    pub(crate) fn entries(&self, stream: &StreamId, after: u64, limit: usize) -> Result<Vec<(Logged, Stored)>> {
        let Some(number) = self.streams.number(stream) else { return Ok(Vec::new()) };
        let sql = concat!(
            "SELECT log.pos, previous, before, after, kind, schema, workspace, id, op, version, edits, fields, clock, actor, ",
            "operation, run_key, source_event, cause_depth, at, body_hash, chain, salt, request, body ",
            "FROM log LEFT JOIN bodies ON bodies.pos = log.pos WHERE log.pos > ?1 AND log.pos < ?2 ORDER BY log.pos LIMIT ?3"
        );
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.failed(&error))?;
        let first = row::position(number, after.min(row::COUNTER_MAX));
        let bounds = params![first, row::position(number + 1, 0), i64::try_from(limit).unwrap_or(i64::MAX)];
        let mut rows = statement.query(bounds).map_err(|error| self.failed(&error))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(|error| self.failed(&error))? {
            found.push(self.read_entry(row)?);
        }
        Ok(found)
    }

    fn read_entry(&self, row: &rusqlite::Row<'_>) -> Result<(Logged, Stored)> {
        let position: i64 = row.get(0).map_err(|error| self.failed(&error))?;
        let dot = self.streams.dot(position)?;
        let bad = |message: String| Error::BadEntry { dot, message };
        let columns = read_log_row(row).map_err(|error| bad(error.to_string()))?;
        let previous: Option<i64> = row.get(1).map_err(|error| bad(error.to_string()))?;
        let previous = previous.map(|position| self.streams.dot(position)).transpose().map_err(|error| bad(error.to_string()))?;
        let logged = columns.decode(dot, previous).map_err(|column| bad(format!("column `{column}`")))?;
        let stored = read_stored(row).map_err(|error| bad(error.to_string()))?;
        Ok((logged, stored.ok_or_else(|| bad("salt or request hash".to_owned()))?))
    }

    pub(crate) fn outcome(&self, operation_id: &OperationId) -> Result<Option<Outcome>> {
        if let Some(outcome) = self.logged_outcome(operation_id)? {
            return Ok(Some(outcome));
        }
        let sql = "SELECT salt, request, at, outcome FROM outcomes WHERE operation = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.failed(&error))?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let found: Option<(Vec<u8>, Vec<u8>, i64, String)> =
            statement.query_row([operation_id.raw().as_bytes()], read).optional().map_err(|error| self.failed(&error))?;
        let Some((salt, request, at, text)) = found else { return Ok(None) };
        let committed = row::read_outcome(*operation_id, Timestamp::from_ms(at), &text)?;
        Ok(Some(Outcome { committed, request: salt_of(&salt).zip(Hash::from_slice(&request)) }))
    }

    fn logged_outcome(&self, operation_id: &OperationId) -> Result<Option<Outcome>> {
        let sql = concat!(
            "SELECT f.pos, f.after, b.salt, b.request FROM log f LEFT JOIN bodies b ON b.pos = f.pos ",
            "WHERE f.operation = ?1 AND f.before = 0 ORDER BY f.pos"
        );
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.failed(&error))?;
        let mut rows = statement.query([operation_id.raw().as_bytes()]).map_err(|error| self.failed(&error))?;
        let mut committed = Committed { operation_id: *operation_id, at: Timestamp::EPOCH, writes: Vec::new(), repeated: false };
        let mut request = None;
        while let Some(row) = rows.next().map_err(|error| self.failed(&error))? {
            let failed = |error: rusqlite::Error| self.failed(&error);
            let (first, after): (i64, i64) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
            let (salt, hash): (Option<Vec<u8>>, Option<Vec<u8>>) = (row.get(2).map_err(failed)?, row.get(3).map_err(failed)?);
            request = request.or_else(|| Some((salt_of(&salt?)?, Hash::from_slice(&hash?)?)));
            self.add_range(&mut committed, first, after)?;
        }
        committed.writes.sort_by_key(|write| write.dot);
        Ok((!committed.writes.is_empty()).then_some(Outcome { committed, request }))
    }

    fn add_range(&self, committed: &mut Committed, first: i64, after: i64) -> Result<()> {
        let from = self.streams.dot(first)?;
        let length = usize::try_from(after).unwrap_or(0) + 1;
        for (logged, _) in self.entries(&from.stream, from.counter - 1, length)? {
            let entry = logged.entry;
            committed.at = committed.at.max(entry.at);
            let (kind, id, op, version) = (entry.kind, entry.id, entry.op, entry.version);
            committed.writes.push(Written { kind, id, op, version, dot: Some(entry.dot) });
        }
        Ok(())
    }

    pub(crate) fn aggregate(&self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        let sql = "SELECT value FROM aggregates WHERE kind = ?1 AND name = ?2 AND members = ?3";
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.failed(&error))?;
        let value = statement.query_row(params![spec.kind, name, row::write_group(group)], |row| row.get(0)).optional();
        Ok(value.map_err(|error| self.failed(&error))?.unwrap_or(0))
    }
}

fn read_log_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<LogRow> {
    Ok(LogRow {
        before: row.get(2)?,
        after: row.get(3)?,
        kind: row.get(4)?,
        schema: row.get(5)?,
        workspace: row.get(6)?,
        id: row.get(7)?,
        op: row.get(8)?,
        version: row.get(9)?,
        edits: row.get(10)?,
        fields: row.get(11)?,
        clock: row.get(12)?,
        actor: row.get(13)?,
        operation: row.get(14)?,
        run_key: row.get(15)?,
        source_event: row.get(16)?,
        cause_depth: row.get(17)?,
        at: row.get(18)?,
        body_hash: row.get(19)?,
        chain: row.get(20)?,
    })
}

fn read_stored(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Stored>> {
    let (salt, request): (Option<Vec<u8>>, Option<Vec<u8>>) = (row.get(21)?, row.get(22)?);
    let body = row.get(23)?;
    let (salt, request) = match (salt.map(|salt| salt_of(&salt)), request.map(|hash| Hash::from_slice(&hash))) {
        (Some(None), _) | (_, Some(None)) => return Ok(None),
        (salt, request) => (salt.flatten(), request.flatten()),
    };
    Ok(Some(Stored { salt, body, request }))
}

fn salt_of(bytes: &[u8]) -> Option<Salt> {
    bytes.try_into().ok().map(Salt)
}

pub(crate) fn heads(connection: &Connection, domain: Domain, streams: &Streams) -> Result<Vec<Head>> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let mut statement =
        connection.prepare_cached("SELECT stream, counter, chain, at FROM log_head ORDER BY stream").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let number: i64 = row.get(0).map_err(failed)?;
        let bad = || Error::Damaged { domain, message: format!("the head of stream {number} does not read") };
        let stream = streams.stream(number).ok_or_else(bad)?;
        let counter = row.get::<_, i64>(1).ok().and_then(|counter| u64::try_from(counter).ok()).ok_or_else(bad)?;
        let chain = row.get::<_, Vec<u8>>(2).ok().and_then(|chain| Hash::from_slice(&chain)).ok_or_else(bad)?;
        let at = Timestamp::from_ms(row.get(3).map_err(|_| bad())?);
        heads.push(Head { stream, counter, chain, at });
    }
    Ok(heads)
}

pub(crate) fn witnesses(connection: &Connection, domain: Domain) -> Result<Vec<Witness>> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let sql = "SELECT domain, host, stream, counter, chain, at FROM witnesses ORDER BY domain, host, stream";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let bad = || Error::Damaged { domain, message: "a witness does not read".to_owned() };
        let text = |column: usize| row.get::<_, String>(column).map_err(|_| bad());
        let bytes = |column: usize| row.get::<_, Vec<u8>>(column).map_err(|_| bad());
        let host = HostId::from_raw(RawId::from_slice(&bytes(1)?).ok_or_else(bad)?);
        let stream = StreamId { host, stream: Stream::parse(&text(2)?).ok_or_else(bad)? };
        let counter = row.get::<_, i64>(3).ok().and_then(|counter| u64::try_from(counter).ok()).ok_or_else(bad)?;
        let chain = Hash::from_slice(&bytes(4)?).ok_or_else(bad)?;
        let at = Timestamp::from_ms(row.get(5).map_err(|_| bad())?);
        found.push(Witness { domain: Domain::parse(&text(0)?).ok_or_else(bad)?, head: Head { stream, counter, chain, at } });
    }
    Ok(found)
}

//! Snapshots: a bounded pool of read-only connections, each lent for a short time.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};

use domain::causality::StreamId;
use domain::commit::Committed;
use domain::entry::{Head, Witness};
use domain::id::{HistoryId, OperationId, RawId, WorkspaceId};
use domain::limits::{READERS_MAX, SNAPSHOT_AGE_MS_MAX};
use domain::record::{Spec, Value};
use rusqlite::{Connection, ToSql, params_from_iter};

use crate::env::Env;
use crate::sqlite::connect::{self, Access, failure};
use crate::sqlite::query::{self, Bound, Queries, Streams, row_columns, value_of};
use crate::sqlite::{Location, schema, text};
use crate::store::{Direction, Logged, Page, PageKey, Reader, Row, Scan, Snapshot, Stored};
use crate::{Error, Result};

/// Reads one domain's file. Needs no lock on the home: WAL readers and the writer do not disturb each other.
#[derive(Clone)]
pub struct SqliteReader {
    location: Location,
    env: Env,
    pool: Arc<Pool>,
}

impl fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteReader").field("location", &self.location).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Pool {
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Connection>,
    lent: usize,
}

impl SqliteReader {
    pub(crate) fn new(location: Location, env: Env) -> Self {
        Self { location, env, pool: Arc::default() }
    }

    /// Opens an existing file for reading only, beside or without a writer.
    pub fn open(location: &Location, env: &Env) -> Result<Self> {
        schema::check_version(location)?;
        Ok(Self::new(location.clone(), env.clone()))
    }

    /// Drops connections that nobody uses: after an fsync error none of them is trusted.
    pub(crate) fn close_idle(&self) {
        let dropped = std::mem::take(&mut self.lock().idle);
        drop(dropped);
    }

    pub(crate) fn snapshot(&self) -> Result<SqliteSnapshot<'_>> {
        let connection = self.borrow()?;
        let mut snapshot = SqliteSnapshot {
            reader: self,
            connection: Some(connection),
            streams: Streams::default(),
            until_ms: self.env.clock.monotonic_ms() + SNAPSHOT_AGE_MS_MAX,
        };
        let connection = snapshot.connection()?;
        connection.execute_batch("BEGIN").map_err(|error| failure(self.location.domain, &error))?;
        // The first read fixes the moment.
        snapshot.streams = Streams::load(connection, self.location.domain)?;
        Ok(snapshot)
    }

    fn borrow(&self) -> Result<Connection> {
        let mut state = self.lock();
        while state.lent >= READERS_MAX {
            state = self.pool.returned.wait(state).expect("no thread panics while it holds the pool");
        }
        state.lent += 1;
        let idle = state.idle.pop();
        drop(state);
        idle.map_or_else(|| connect::open(&self.location, Access::Read), Ok).inspect_err(|_| self.give_back(None))
    }

    fn give_back(&self, connection: Option<Connection>) {
        let mut state = self.lock();
        state.lent -= 1;
        state.idle.extend(connection);
        drop(state);
        self.pool.returned.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        self.pool.state.lock().expect("no thread panics while it holds the pool")
    }
}

impl Reader for SqliteReader {
    fn read(&self) -> Result<Box<dyn Snapshot + '_>> {
        Ok(Box::new(self.snapshot()?))
    }

    fn search(&self, spec: &'static Spec, workspace: &WorkspaceId, words: &str, limit: usize) -> Result<Vec<Row>> {
        let snapshot = self.snapshot()?;
        text::search(&snapshot.queries()?, spec, workspace, words, limit)
    }
}

/// A read transaction on a lent connection.
pub(crate) struct SqliteSnapshot<'a> {
    reader: &'a SqliteReader,
    /// `None` only while it is given back.
    connection: Option<Connection>,
    streams: Streams,
    until_ms: u64,
}

impl Drop for SqliteSnapshot<'_> {
    fn drop(&mut self) {
        let ended = self.connection.take().filter(|connection| connection.execute_batch("ROLLBACK").is_ok());
        self.reader.give_back(ended);
    }
}

impl SqliteSnapshot<'_> {
    fn connection(&self) -> Result<&Connection> {
        self.connection.as_ref().ok_or(Error::SnapshotExpired)
    }

    /// The only way to the data, so that an old snapshot answers nothing.
    pub(crate) fn queries(&self) -> Result<Queries<'_>> {
        if self.reader.env.clock.monotonic_ms() > self.until_ms {
            return Err(Error::SnapshotExpired);
        }
        Ok(Queries { connection: self.connection()?, streams: &self.streams, domain: self.reader.location.domain })
    }
}

impl Snapshot for SqliteSnapshot<'_> {
    fn get(&self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        self.queries()?.row(spec, id)
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Page> {
        run_scan(&self.queries()?, scan)
    }

    fn aggregate(&self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        self.queries()?.aggregate(spec, name, group)
    }

    fn history_id(&self) -> Result<HistoryId> {
        let queries = self.queries()?;
        schema::history(queries.connection, queries.domain)
    }

    fn heads(&self) -> Result<Vec<Head>> {
        let queries = self.queries()?;
        query::heads(queries.connection, queries.domain, queries.streams)
    }

    fn witnesses(&self) -> Result<Vec<Witness>> {
        let queries = self.queries()?;
        query::witnesses(queries.connection, queries.domain)
    }

    fn entries(&self, stream: &StreamId, after: u64, limit: usize) -> Result<Vec<(Logged, Stored)>> {
        self.queries()?.entries(stream, after, limit)
    }

    fn outcome(&self, operation_id: &OperationId) -> Result<Option<Committed>> {
        Ok(self.queries()?.outcome(operation_id)?.map(|outcome| outcome.committed))
    }
}

fn run_scan(queries: &Queries<'_>, scan: &Scan<'_>) -> Result<Page> {
    let failed = |error: rusqlite::Error| failure(queries.domain, &error);
    let columns = scan.checked()?.columns;
    let mut values: Vec<&Value> = scan.prefix.iter().collect();
    // `IS` and not `=`, because an index may hold NULLs.
    let mut terms: Vec<String> = columns.iter().take(values.len()).zip(1..).map(|(name, n)| format!("t.{name} IS ?{n}")).collect();
    for (bound, sign) in [(&scan.from, ">="), (&scan.to, "<")] {
        if let Some(value) = bound {
            values.push(value);
            terms.push(format!("t.{} {sign} ?{}", columns[scan.prefix.len()], values.len()));
        }
    }
    let (order, sign) = match scan.direction {
        Direction::Forward => ("ASC", ">"),
        Direction::Backward => ("DESC", "<"),
    };
    let after_id = scan.after.as_ref().map(|after| Value::from(after.id));
    if let (Some(after), Some(id)) = (&scan.after, &after_id) {
        let start = values.len();
        values.extend(after.values.iter().chain([id]));
        terms.push(keyset(columns, start, sign));
        terms.extend(seek(columns, scan.prefix.len(), start, after, sign));
    }
    let named: String = columns.iter().map(|name| format!(", t.{name}")).collect();
    let ordered: Vec<_> = columns.iter().chain(&["id"]).map(|name| format!("t.{name} {order}")).collect();
    let filter: String = terms.iter().map(|term| format!(" AND {term}")).collect();
    let sql = format!(
        "SELECT {}{named} FROM {} t WHERE t.deleted = 0{filter} ORDER BY {} LIMIT {}",
        row_columns(scan.spec),
        scan.spec.table,
        ordered.join(", "),
        scan.limit + 1
    );
    let mut statement = queries.connection.prepare_cached(&sql).map_err(failed)?;
    let bound: Vec<_> = values.into_iter().map(Bound).collect();
    let mut rows = statement.query(params_from_iter(bound.iter().map(|value| value as &dyn ToSql))).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let read = queries.read_row(scan.spec, row)?;
        let key = (7..7 + columns.len()).map(|column| row.get_ref(column).map(value_of)).collect::<std::result::Result<_, _>>();
        found.push((PageKey { values: key.map_err(failed)?, id: read.id }, read));
    }
    let next = (found.len() > scan.limit && scan.limit > 0).then(|| found[scan.limit - 1].0.clone());
    Ok(Page { rows: found.into_iter().take(scan.limit).map(|(_, row)| row).collect(), next })
}

/// A bound that the index can jump to; without it a page would cost as much as all pages before it.
fn seek(columns: &[&str], width: usize, start: usize, after: &PageKey, sign: &str) -> Option<String> {
    let (name, value) = columns.get(width).zip(after.values.get(width))?;
    let place = start + width + 1;
    match (value, sign) {
        (Value::Null, ">") => None,
        (Value::Null, _) => Some(format!("t.{name} IS NULL")),
        (_, ">") => Some(format!("t.{name} >= ?{place}")),
        // NULLs come last in this direction and compare as unknown; `keyset` lets them in, so no bound may shut them out.
        (_, _) => Some(format!("(t.{name} <= ?{place} OR t.{name} IS NULL)")),
    }
}

/// `(a, b, id) > (x, y, z)` written out, since NULLs sort first but compare as unknown.
fn keyset(columns: &[&str], start: usize, sign: &str) -> String {
    let mut alternatives = Vec::new();
    for (width, name) in columns.iter().chain(&["id"]).enumerate() {
        let equal: String = columns[..width].iter().zip(start + 1..).map(|(name, n)| format!("t.{name} IS ?{n} AND ")).collect();
        let place = start + width + 1;
        let differs = if sign == ">" {
            format!("(t.{name} > ?{place} OR (?{place} IS NULL AND t.{name} IS NOT NULL))")
        } else {
            format!("(t.{name} < ?{place} OR (t.{name} IS NULL AND ?{place} IS NOT NULL))")
        };
        alternatives.push(format!("({equal}{differs})"));
    }
    format!("({})", alternatives.join(" OR "))
}

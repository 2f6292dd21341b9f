//! Snapshots: a bounded pool of read-only connections, each lent for a short time.

use std::fmt;
use std::sync::Arc;

use domain::causality::StreamId;
use domain::commit::Committed;
use domain::entry::{Head, Witness};
use domain::id::{HistoryId, OperationId, RawId, WorkspaceId};
use domain::limits::SNAPSHOT_AGE_MS_MAX;
use domain::record::{Spec, Value};
use rusqlite::Connection;

use crate::env::Env;
use crate::pool::Pool;
use crate::sqlite::connect::{self, Access, failure};
use crate::sqlite::query::{self, Queries};
use crate::sqlite::{Location, projection, scan, schema, text};
use crate::store::{FullText, Logged, Page, Reader, Row, Scan, Snapshot, Stored, own_streams};
use crate::streams::Streams;
use crate::{Error, Result};

/// Reads one domain's file. Needs no lock on the home: WAL readers and the writer do not disturb each other.
#[derive(Clone)]
pub struct SqliteReader {
    location: Location,
    env: Env,
    pool: Arc<Pool<Connection>>,
}

impl fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteReader").field("location", &self.location).finish_non_exhaustive()
    }
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

    /// Whether the file's tables are those that this build reads. The log can be read either way.
    pub fn check_tables(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        let queries = snapshot.queries()?;
        schema::check_not_older(queries.connection, queries.domain)?;
        projection::check(queries.connection, &self.location)
    }

    /// Drops connections that nobody uses: after an fsync error none of them is trusted.
    pub(crate) fn close_idle(&self) {
        self.pool.close_idle();
    }

    pub(crate) fn snapshot(&self) -> Result<SqliteSnapshot<'_>> {
        let idle = self.pool.borrow();
        let opened = idle.map_or_else(|| connect::open(&self.location, Access::Read), Ok);
        let connection = opened.inspect_err(|_| self.pool.give_back(None))?;
        let mut snapshot = SqliteSnapshot {
            reader: self,
            connection: Some(connection),
            streams: Streams::default(),
            until_ms: self.env.clock.monotonic_ms() + SNAPSHOT_AGE_MS_MAX,
        };
        let connection = snapshot.connection()?;
        run_cached(connection, "BEGIN").map_err(|error| failure(self.location.domain, &error))?;
        // The first read fixes the moment.
        snapshot.streams = query::load_streams(connection, self.location.domain)?;
        Ok(snapshot)
    }
}

/// A statement that every snapshot runs; parsing it each time costs more than running it.
fn run_cached(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

impl FullText for SqliteReader {
    fn search(&self, spec: &'static Spec, workspace: &WorkspaceId, words: &str, limit: usize) -> Result<Vec<Row>> {
        let snapshot = self.snapshot()?;
        text::search(&snapshot.queries()?, spec, workspace, words, limit)
    }
}

impl Reader for SqliteReader {
    fn read(&self) -> Result<Box<dyn Snapshot + '_>> {
        Ok(Box::new(self.snapshot()?))
    }

    /// Table by table, so that no snapshot gets old. Record tables are left out: a rebuild must stay possible when one is damaged.
    fn check(&self) -> Result<()> {
        let domain = self.location.domain;
        for table in schema::KEPT_TABLES {
            let snapshot = self.snapshot()?;
            let found: String = snapshot
                .connection()?
                .query_row(&format!("PRAGMA integrity_check({table})"), [], |row| row.get(0))
                .map_err(|error| failure(domain, &error))?;
            if found != "ok" {
                return Err(Error::Damaged { domain, message: format!("table {table}: {found}") });
            }
        }
        Ok(())
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
        let ended = self.connection.take().filter(|connection| run_cached(connection, "ROLLBACK").is_ok());
        self.reader.pool.give_back(ended);
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
        scan::run(&self.queries()?, scan)
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

    fn streams(&self) -> Result<Vec<StreamId>> {
        let queries = self.queries()?;
        let own = own_streams(schema::own_host(queries.connection, queries.domain)?);
        Ok(queries.streams.iter().copied().chain(own).collect())
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

//! The one place where a connection is made, where its statements are kept, and where its errors become ours.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use domain::causality::Domain;
use domain::hash::{Digest, Hash};
use domain::id::HostId;
use postgres::error::{DbError, Severity, SqlState};
use postgres::types::ToSql;
use postgres::{Client, Config, NoTls, Statement};

use crate::postgres::PgLocation;
use crate::{Error, Result};

/// LIMIT: how long a writer waits for another node's group before its own is rolled back.
const LOCK_MS_MAX: u64 = 30_000;
/// LIMIT: how long a slot is waited for; a process that has just ended leaves its server process behind for a moment.
const SLOT_MS_MAX: u64 = 2_000;
/// LIMIT: how long a server process may take to end, at worst in the middle of a slow COMMIT.
const BACKEND_MS_MAX: u64 = 30_000;
/// LIMIT: how long a connection may take to come about.
const CONNECT_MS_MAX: u64 = 10_000;
/// LIMIT: prepared statements kept per connection; the store has fewer unless scans come in many shapes.
const STATEMENTS_MAX: usize = 512;

pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What an error says about the connection and its transaction, beyond its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Another node was in the way. The transaction is rolled back, and the same one can succeed.
    Collision,
    /// The connection is gone, and with it the knowledge of what became of its last statement.
    Lost,
    /// The statement failed; the transaction waits for its rollback.
    Statement,
}

/// One server process, so that its successor can tell it from another with the same number.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    pid: i32,
    started: String,
}

/// A connection inside one domain's schema.
pub(crate) struct Link {
    client: Client,
    domain: Domain,
    statements: BTreeMap<String, Statement>,
    fault: Option<Fault>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("domain", &self.domain).field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects; `purpose` is what an administrator sees in `pg_stat_activity`.
    pub(crate) fn open(location: &PgLocation, purpose: &str) -> Result<Self> {
        let domain = location.domain;
        let invalid =
            |error: &postgres::Error| Error::Storage { domain, message: format!("the connection string: {}", shown(error)) };
        let mut config: Config = location.config.parse().map_err(|error| invalid(&error))?;
        config.application_name(purpose);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_millis(CONNECT_MS_MAX));
        }
        let client = config.connect(NoTls).map_err(|error| failure(domain, &error))?;
        let mut link = Self { client, domain, statements: BTreeMap::new(), fault: None };
        // A node that lost its network must not keep its locks for the two hours that TCP would give it.
        link.batch(&format!(
            "SET search_path TO {}; SET client_min_messages = warning; SET lock_timeout = {LOCK_MS_MAX}; \
             SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
            location.schema()
        ))?;
        let encoding: String =
            link.query("SELECT current_setting('server_encoding')", &[])?.first().map_or(String::new(), |row| row.get(0));
        if encoding != "UTF8" {
            return Err(Error::Storage { domain, message: format!("the database's encoding is {encoding}, not UTF8") });
        }
        Ok(link)
    }

    pub(crate) fn domain(&self) -> Domain {
        self.domain
    }

    /// The fault of the last statement that failed, once.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Makes an error of the last statement ours, and remembers what it said about the connection.
    pub(crate) fn failed(&mut self, error: &postgres::Error) -> Error {
        self.fault = Some(fault_of(error));
        failure(self.domain, error)
    }

    /// For a collision that the server does not report as one.
    pub(crate) fn collided(&mut self, message: &str) -> Error {
        self.fault = Some(Fault::Collision);
        Error::Storage { domain: self.domain, message: message.to_owned() }
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).map_err(|error| self.failed(&error))
    }

    pub(crate) fn query(&mut self, sql: &str, params: Params<'_>) -> Result<Vec<postgres::Row>> {
        let statement = self.prepared(sql).map_err(|error| self.failed(&error))?;
        self.client.query(&statement, params).map_err(|error| self.failed(&error))
    }

    pub(crate) fn execute(&mut self, sql: &str, params: Params<'_>) -> Result<u64> {
        self.try_execute(sql, params).map_err(|error| self.failed(&error))
    }

    /// For a caller that has to look at the error itself.
    pub(crate) fn try_execute(&mut self, sql: &str, params: Params<'_>) -> std::result::Result<u64, postgres::Error> {
        let statement = self.prepared(sql)?;
        self.client.execute(&statement, params)
    }

    fn prepared(&mut self, sql: &str) -> std::result::Result<Statement, postgres::Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Takes the node's slot for as long as this connection lives; false when another process holds it.
    pub(crate) fn take_slot(&mut self, location: &PgLocation, host: HostId) -> Result<bool> {
        let key = lock_key(&Digest::new("verger.postgres.slot.v1").text(&location.schema()).shown(&host).finish());
        self.batch(&format!("SET lock_timeout = {SLOT_MS_MAX}"))?;
        match self.client.execute("SELECT pg_advisory_lock($1)", &[&key]) {
            Ok(_) => {}
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => return Ok(false),
            Err(error) => return Err(self.failed(&error)),
        }
        self.batch(&format!("SET lock_timeout = {LOCK_MS_MAX}"))?;
        Ok(true)
    }

    /// The process at the other end.
    pub(crate) fn backend(&mut self) -> Result<Backend> {
        let sql = "SELECT pid, extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        let rows = self.query(sql, &[])?;
        let row = rows
            .first()
            .ok_or_else(|| Error::Storage { domain: self.domain, message: "the server hides its processes".to_owned() })?;
        Ok(Backend { pid: row.get(0), started: row.get(1) })
    }

    /// Ends a process whose connection was lost but which may not know it, and waits until it is gone with its locks.
    pub(crate) fn end_backend(&mut self, backend: &Backend) -> Result<()> {
        let sql = format!(
            "SELECT pg_terminate_backend(pid, {BACKEND_MS_MAX}) FROM pg_stat_activity \
             WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2"
        );
        self.query(&sql, &[&backend.pid, &backend.started]).map(|_| ())
    }
}

/// The key of an advisory lock: the first eight bytes of a hash.
pub(crate) fn lock_key(hash: &Hash) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    i64::from_be_bytes(bytes)
}

fn fault_of(error: &postgres::Error) -> Fault {
    match error.as_db_error() {
        None => Fault::Lost,
        Some(error) if ends_the_connection(error) => Fault::Lost,
        Some(error) if [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(error.code()) => {
            Fault::Collision
        }
        Some(_) => Fault::Statement,
    }
}

fn ends_the_connection(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// What a PostgreSQL error means to us.
pub(crate) fn failure(domain: Domain, error: &postgres::Error) -> Error {
    let message = shown(error);
    match error.code() {
        Some(&SqlState::DISK_FULL) => Error::Full(format!("{domain} store: {message}")),
        Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => Error::Damaged { domain, message },
        _ => Error::Storage { domain, message },
    }
}

/// The server's words and its code; never the details, which can hold a row's values.
fn shown(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

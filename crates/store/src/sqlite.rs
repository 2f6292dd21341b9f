//! SQLite: one file per domain, WAL with `synchronous=FULL`, one writer, a few readers, checkpoints on their own connection.
//!
//! `NORMAL` would lose acknowledged commits when the power fails, so it is not an option. After an error that came with a COMMIT nothing
//! in memory is believed any more: a new connection must complete a truncating checkpoint and a commit of its own before anything
//! is answered.

pub mod bench;
mod checkpoint;
mod connect;
mod projection;
mod query;
mod read;
pub mod rebuild;
mod scan;
mod schema;
mod text;
mod txn;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::causality::Domain;
use domain::commit::{Commit, Committed};
use domain::entry::{Head, Witness};
use domain::id::{HistoryId, HostId};
use domain::record::Spec;
use rusqlite::Connection;

use checkpoint::WalPages;

pub use checkpoint::Checkpointer;
pub use read::SqliteReader;
pub use schema::{MIGRATIONS, Migration, SCHEMA_VERSION};

use crate::apply::{self, Position};
use crate::env::Env;
use crate::sqlite::connect::{Access, failure};
use crate::sqlite::projection::Lost;
use crate::sqlite::txn::SqliteTxn;
use crate::store::{GroupFailure, Maintenance, Reader, Store};
use crate::streams::Streams;
use crate::{Error, Result};

/// Where a domain's file is and what it holds.
#[derive(Debug, Clone)]
pub struct Location {
    pub domain: Domain,
    pub path: PathBuf,
    /// The kinds it stores; the product's catalogue, or a test's own.
    pub kinds: Vec<&'static Spec>,
    /// A VFS registered with SQLite; `None` is the machine's own.
    pub vfs: Option<String>,
}

impl Location {
    /// A domain of the product's catalogue under a folder: `journal.sqlite`, `agent.sqlite`, `ledger.sqlite`.
    #[must_use]
    pub fn in_folder(folder: &Path, domain: Domain) -> Self {
        let path = folder.join(format!("{domain}.sqlite"));
        Self { domain, path, kinds: domain::catalogue::of_domain(domain).collect(), vfs: None }
    }
}

/// The writer of one domain's file.
pub struct SqliteStore {
    location: Location,
    env: Env,
    position: Position,
    /// Dropped before the writer: the last connection to go moves the WAL into the database, and a reader's cannot.
    reader: SqliteReader,
    /// `None` only between dropping the old connection and having a new one.
    writer: Option<Connection>,
    /// A connection whose COMMIT failed, until a new one has emptied the WAL.
    ///
    /// INVARIANT: it stays open that long. While any connection is open, the WAL's index knows only frames whose sync succeeded; the
    /// first one to open after the last was closed would take the others for commits, though they may not be durable.
    retired: Option<Connection>,
    /// Pages in the WAL after the last commit.
    wal_pages: WalPages,
    streams: Streams,
    /// Something was erased that the WAL may still hold.
    erase_pending: bool,
    failing: Option<String>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("location", &self.location).field("position", &self.position).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Makes a new, empty database; one that exists already is left alone and refused.
    pub fn create(location: &Location, host: HostId, env: &Env) -> Result<Self> {
        let connection = connect::create(location)?;
        schema::create(&connection, location, host, HistoryId::from_raw(env.id()))?;
        drop(connection);
        Self::open(location, env)
    }

    /// Opens an existing database: refuses a newer schema untouched, migrates an older one after a backup.
    pub fn open(location: &Location, env: &Env) -> Result<Self> {
        Self::open_with(location, env, Lost::Refuse)
    }

    /// Opens a database for [`rebuild::run`]: tables that are gone are made empty, to be filled from the log.
    pub fn open_to_rebuild(location: &Location, env: &Env) -> Result<Self> {
        Self::open_with(location, env, Lost::MakeEmpty)
    }

    fn open_with(location: &Location, env: &Env, lost: Lost) -> Result<Self> {
        schema::check_version(location)?;
        let mut writer = connect::open(location, Access::Write)?;
        let wal_pages = WalPages::default();
        wal_pages.watch(&mut writer, location.domain)?;
        checkpoint::settle(&writer, location.domain)?;
        schema::migrate(&writer, location, MIGRATIONS)?;
        projection::bring_up_to_date(&writer, location, lost)?;
        let streams = query::load_streams(&writer, location.domain)?;
        let position = load_position(&writer, location.domain, &streams)?;
        let reader = SqliteReader::new(location.clone(), env.clone());
        Ok(Self {
            location: location.clone(),
            env: env.clone(),
            position,
            reader,
            writer: Some(writer),
            retired: None,
            wal_pages,
            streams,
            erase_pending: false,
            failing: None,
        })
    }

    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// A connection of its own for checkpoints.
    pub fn checkpointer(&self) -> Result<Checkpointer> {
        Checkpointer::open(&self.location, self.wal_pages.clone())
    }

    /// The concrete reader, which can also be opened without a writer.
    #[must_use]
    pub fn sqlite_reader(&self) -> SqliteReader {
        self.reader.clone()
    }

    pub(crate) fn writer(&self) -> Result<&Connection> {
        self.writer
            .as_ref()
            .ok_or_else(|| Error::Storage { domain: self.location.domain, message: "the connection was lost".to_owned() })
    }

    fn run(&mut self, group: &[Commit]) -> std::result::Result<Vec<Result<Committed>>, GroupFailure> {
        let domain = self.location.domain;
        let connection = self
            .writer
            .as_ref()
            .ok_or_else(|| GroupFailure::RolledBack(Error::Storage { domain, message: "the connection was lost".to_owned() }))?;
        let before = self.position.clone();
        let rolled_back = |error| {
            // A failed ROLLBACK leaves no transaction either: SQLite has rolled back by itself.
            connection.execute_batch("ROLLBACK").ok();
            GroupFailure::RolledBack(error)
        };
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| GroupFailure::RolledBack(failure(domain, &error)))?;
        let mut txn = SqliteTxn::new(connection, &self.streams, domain);
        let results = match apply::group(&mut txn, &mut self.position, &self.env, group) {
            Ok(results) => results,
            Err(error) => return Err(rolled_back(error)),
        };
        match connection.execute_batch("COMMIT") {
            Ok(()) => Ok(results),
            Err(error) => {
                self.position = before;
                let error = failure(domain, &error);
                // A write that found no room left no commit behind; every other error may have.
                if matches!(error, Error::Full(_)) { Err(rolled_back(error)) } else { Err(GroupFailure::Unknown(error)) }
            }
        }
    }
}

fn load_position(connection: &Connection, domain: Domain, streams: &Streams) -> Result<Position> {
    let host = schema::own_host(connection, domain)?;
    let heads = query::heads(connection, domain, streams)?;
    Position::of(domain, host, &heads)
}

impl Store for SqliteStore {
    fn domain(&self) -> Domain {
        self.location.domain
    }

    fn host(&self) -> HostId {
        self.position.host
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.reader.clone())
    }

    fn try_group(&mut self, group: &[Commit]) -> std::result::Result<Vec<Result<Committed>>, GroupFailure> {
        let erases =
            group.iter().flat_map(|commit| &commit.writes).any(|write| matches!(write.change, domain::commit::Change::Erase));
        let results = self.run(group)?;
        self.erase_pending |= erases;
        if self.erase_pending {
            // The WAL still holds what was erased. A reader may delay this; it is tried again after every group until it is done.
            self.erase_pending = self.checkpointer().and_then(|mut checkpointer| checkpointer.truncate()).is_err();
        }
        Ok(results)
    }

    fn reopen(&mut self) -> Result<()> {
        self.reader.close_idle();
        self.retired = self.writer.take();
        if let Some(retired) = &self.retired {
            retired.execute_batch("ROLLBACK").ok();
        }
        let mut writer = connect::open(&self.location, Access::Write)?;
        self.wal_pages.watch(&mut writer, self.location.domain)?;
        checkpoint::truncate(&writer, self.location.domain)?;
        checkpoint::begin_wal(&writer, self.location.domain)?;
        self.streams = query::load_streams(&writer, self.location.domain)?;
        self.position = load_position(&writer, self.location.domain, &self.streams)?;
        self.writer = Some(writer);
        self.retired = None;
        Ok(())
    }

    fn lookup(&mut self, commit: &Commit) -> Result<Option<Committed>> {
        let connection = self.writer()?;
        let mut txn = SqliteTxn::new(connection, &self.streams, self.location.domain);
        apply::repeated(&mut txn, commit)
    }

    fn witness(&mut self, witnesses: &[Witness]) -> Result<()> {
        let domain = self.location.domain;
        let connection = self.writer()?;
        let failed = |error: rusqlite::Error| failure(domain, &error);
        let known = query::witnesses(connection, domain)?;
        let news: Vec<_> = witnesses.iter().filter(|witness| !known.contains(witness)).collect();
        if news.is_empty() {
            return Ok(());
        }
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        for witness in news {
            txn::put_witness(&transaction, domain, witness)?;
        }
        transaction.commit().map_err(failed)
    }

    fn heads(&self) -> Result<Vec<Head>> {
        Ok(self.position.heads.values().copied().collect())
    }

    fn failing(&mut self) -> &mut Option<String> {
        &mut self.failing
    }

    fn maintenance(&self) -> Option<Box<dyn Maintenance>> {
        let checkpointer = self.checkpointer().ok()?;
        Some(Box::new(checkpointer))
    }
}

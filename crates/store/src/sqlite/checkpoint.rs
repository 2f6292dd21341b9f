//! Checkpoints, on a connection of their own so that no commit waits for one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use domain::causality::Domain;
use rusqlite::Connection;

use crate::sqlite::Location;
use crate::sqlite::connect::{self, Access, failure};
use crate::store::Maintenance;
use crate::{Error, Result};

/// LIMIT: SQLite's own default: 4 MB of WAL between two checkpoints.
const CHECKPOINT_PAGES: i32 = 1_000;
/// LIMIT: how long the end of a checkpoint waits for a writer or a reader; it is tried again soon.
const FINISH_WAIT: Duration = Duration::from_millis(20);

/// LIMIT: longer than a snapshot may live, so that an ordinary reader only delays it.
const TRUNCATE_WAIT: Duration = Duration::from_millis(2_500);

/// The number of pages in the WAL, kept by the writer's connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct WalPages(Arc<AtomicI32>);

impl WalPages {
    /// Has a writer's connection report every commit.
    pub(crate) fn watch(&self, connection: &mut Connection, domain: Domain) -> Result<()> {
        let pages = Arc::clone(&self.0);
        let hook = move |_: &mut rusqlite::hooks::Wal, now: i32| {
            pages.store(now, Ordering::Relaxed);
            Ok(())
        };
        connection.wal_hook(Some(hook)).map_err(|error| failure(domain, &error))
    }
}

/// Moves the WAL's pages into the database.
pub struct Checkpointer {
    location: Location,
    connection: Connection,
    wal_pages: WalPages,
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Checkpointer {
    pub(crate) fn open(location: &Location, wal_pages: WalPages) -> Result<Self> {
        let connection = connect::open(location, Access::Write)?;
        Ok(Self { location: location.clone(), connection, wal_pages })
    }

    /// Empties the WAL and cuts its file to nothing. A reader or the writer that takes long keeps it from that, which is an error.
    pub fn truncate(&mut self) -> Result<()> {
        self.connection.busy_timeout(TRUNCATE_WAIT).map_err(|error| failure(self.location.domain, &error))?;
        truncate(&self.connection, self.location.domain)
    }

    /// The WAL file's size now: a metric.
    #[must_use]
    pub fn wal_bytes(&self) -> u64 {
        let mut wal = self.location.path.clone().into_os_string();
        wal.push("-wal");
        std::fs::metadata(wal).map_or(0, |metadata| metadata.len())
    }
}

pub(crate) fn truncate(connection: &Connection, domain: Domain) -> Result<()> {
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(|error| failure(domain, &error))?;
    if busy != 0 {
        return Err(Error::Storage { domain, message: "a reader kept the checkpoint from completing".to_owned() });
    }
    Ok(())
}

/// On opening: what a killed process left in the WAL may be in the kernel's memory only. It is made durable before anybody is told
/// of it. A reader in another process can keep the WAL from being emptied, but not from being synced.
pub(crate) fn settle(connection: &Connection, domain: Domain) -> Result<()> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let checkpoint = |pragma: &str| connection.query_row(pragma, [], read).map_err(|error| failure(domain, &error));
    let (_, pages) = checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
    if pages > 0 && truncate(connection, domain).is_ok() {
        begin_wal(connection, domain)?;
    }
    Ok(())
}

/// Makes the emptying of the WAL durable, and shows that the disk takes commits again.
///
/// Nothing syncs a WAL that was cut or deleted: after a power cut the old one could be back, with a commit in it that was answered as
/// failed. A commit begins a new one, whose first sync ends that. It writes what is there already.
pub(crate) fn begin_wal(connection: &Connection, domain: Domain) -> Result<()> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    connection.execute_batch(&format!("PRAGMA user_version={version}")).map_err(failed)
}

impl Maintenance for Checkpointer {
    fn after_commits(&mut self) {
        if self.wal_pages.0.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return;
        }
        // The bulk without disturbing anybody, then the rest that was written meanwhile with the writer held for a moment: without that
        // the WAL would never be quite empty under constant writing, and so never begin again. A checkpoint that fails is tried
        // again with the next commits; what is committed stays in the WAL.
        let checkpoint = |pragma: &str| self.connection.query_row(pragma, [], |_| Ok(()));
        if checkpoint("PRAGMA wal_checkpoint(PASSIVE)").is_ok() && self.connection.busy_timeout(FINISH_WAIT).is_ok() {
            checkpoint("PRAGMA wal_checkpoint(FULL)").ok();
        }
    }
}

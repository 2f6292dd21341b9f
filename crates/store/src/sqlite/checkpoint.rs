//! Checkpoints, on a connection of their own so that no commit waits for one.

use std::fmt;

use domain::causality::Domain;
use rusqlite::Connection;

use crate::sqlite::Location;
use crate::sqlite::connect::{self, Access, failure};
use crate::store::Maintenance;
use crate::{Error, Result};

/// LIMIT: bytes of commits between two checkpoints; SQLite's own default is a WAL of 4 MB.
const CHECKPOINT_BYTES: usize = 4 << 20;
/// LIMIT: a WAL that has grown to this is emptied even if the writer has to wait for it.
const WAL_BYTES_MAX: u64 = 64 << 20;

/// Moves the WAL's pages into the database.
pub struct Checkpointer {
    location: Location,
    connection: Connection,
    pending_bytes: usize,
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Checkpointer {
    pub(crate) fn open(location: &Location) -> Result<Self> {
        let connection = connect::open(location, Access::Write)?;
        Ok(Self { location: location.clone(), connection, pending_bytes: 0 })
    }

    /// Empties the WAL and cuts its file to nothing. Waits for readers, then for the writer.
    pub fn truncate(&mut self) -> Result<()> {
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
    let busy: i64 = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .map_err(|error| failure(domain, &error))?;
    if busy != 0 {
        return Err(Error::Storage { domain, message: "a reader kept the checkpoint from completing".to_owned() });
    }
    Ok(())
}

impl Maintenance for Checkpointer {
    fn after_commits(&mut self, bytes: usize) {
        self.pending_bytes += bytes;
        if self.pending_bytes < CHECKPOINT_BYTES {
            return;
        }
        self.pending_bytes = 0;
        // A passive one never waits, but under constant writing it never quite finishes either.
        let mode = if self.wal_bytes() > WAL_BYTES_MAX { "RESTART" } else { "PASSIVE" };
        // A checkpoint that fails is tried again with the next commits; what is committed stays in the WAL.
        self.connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).ok();
    }
}

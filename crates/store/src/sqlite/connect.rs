//! The one place where SQLite is opened, and where its errors become ours.

use std::time::Duration;

use domain::causality::Domain;
use domain::plant::{self, Bug};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::platform;
use crate::sqlite::Location;
use crate::{Error, Result};

/// `Vrgr`, in the header of every file that is ours.
pub(crate) const APPLICATION_ID: i32 = 0x5672_6772;

/// LIMIT: how long a connection waits for another one of this process, or for a reader in another.
const BUSY_MS_MAX: u64 = 5_000;
/// LIMIT: prepared statements kept per connection; the store has fewer.
const STATEMENTS_MAX: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
}

pub(crate) fn open(location: &Location, access: Access) -> Result<Connection> {
    if location.vfs.is_none() && !location.path.is_file() {
        return Err(Error::Missing { domain: location.domain, path: location.path.display().to_string() });
    }
    let flags = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let connection = connect(location, flags)?;
    let failed = |error: rusqlite::Error| failure(location.domain, &error);
    if access == Access::Read {
        // A reader leaves the WAL to the writer, also when it is the last to go.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    }
    if access == Access::Read
        && let Some(unchanging) = on_unwritable_media(location, &connection)?
    {
        return Ok(unchanging);
    }
    if access == Access::Write {
        // The checkpointer decides when; an automatic one would stall whoever commits.
        let pragmas = "PRAGMA synchronous=FULL; PRAGMA secure_delete=ON; PRAGMA wal_autocheckpoint=0;";
        connection.execute_batch(pragmas).map_err(failed)?;
        use_wal(location, &connection)?;
        if plant::is(Bug::DropFsync) {
            connection.execute_batch("PRAGMA synchronous=OFF;").map_err(failed)?;
        }
    }
    Ok(connection)
}

/// Reading a WAL database needs a place for its shared memory. Where nothing can be written and no WAL is waiting, the file cannot
/// change under us either, and is read as it is.
fn on_unwritable_media(location: &Location, connection: &Connection) -> Result<Option<Connection>> {
    let probed = connection.query_row("PRAGMA schema_version", [], |_| Ok(()));
    let unwritable = [Some(ErrorCode::CannotOpen), Some(ErrorCode::ReadOnly)];
    let refused = probed.is_err_and(|error| unwritable.contains(&error.sqlite_error_code()));
    let mut wal = location.path.clone().into_os_string();
    wal.push("-wal");
    let is_waiting = std::fs::metadata(&wal).is_ok_and(|metadata| metadata.len() > 0);
    let (true, Some(path), false) = (refused, location.path.to_str(), is_waiting) else {
        return Ok(None);
    };
    let escaped = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let unchanging = Location { path: format!("file:{escaped}?immutable=1").into(), ..location.clone() };
    connect(&unchanging, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI).map(Some)
}

/// Makes a file that only its owner can read; one that exists is refused.
pub(crate) fn create(location: &Location) -> Result<Connection> {
    if location.vfs.is_none() {
        platform::create_private_file(&location.path).map_err(|error| Error::Storage {
            domain: location.domain,
            message: format!("{}: {error}", location.path.display()),
        })?;
    }
    let connection = connect(location, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    let pragmas = "PRAGMA synchronous=FULL; PRAGMA secure_delete=ON;";
    connection.execute_batch(pragmas).map_err(|error| failure(location.domain, &error))?;
    use_wal(location, &connection)?;
    Ok(connection)
}

/// SQLite answers with the mode it really has: a file system without shared memory refuses WAL in silence.
fn use_wal(location: &Location, connection: &Connection) -> Result<()> {
    let mode: String =
        connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(|error| failure(location.domain, &error))?;
    if mode != "wal" {
        let message = format!("this file system does not take a write-ahead log (journal mode `{mode}`)");
        return Err(Error::Storage { domain: location.domain, message });
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this is the one function that opens SQLite")]
fn connect(location: &Location, flags: OpenFlags) -> Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = match &location.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(&location.path, flags, vfs.as_str()),
        None => Connection::open_with_flags(&location.path, flags),
    };
    let failed = |error: rusqlite::Error| failure(location.domain, &error);
    let connection = opened.map_err(failed)?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX)).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans must not depend on the values bound: it costs a new plan at every look-up, and repeats would differ.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    connection.execute_batch("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY;").map_err(failed)?;
    Ok(connection)
}

/// What an SQLite error means to us.
pub(crate) fn failure(domain: Domain, error: &rusqlite::Error) -> Error {
    let message = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full(format!("{domain} store: {message}")),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Damaged { domain, message },
        _ => Error::Storage { domain, message },
    }
}

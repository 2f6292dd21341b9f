//! The file's fixed tables, by numbered migrations. A migration's text never changes once released.

use std::path::PathBuf;

use domain::causality::Domain;
use domain::id::{HistoryId, HostId, RawId};
use domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use crate::platform;
use crate::sqlite::Location;
use crate::sqlite::connect::{self, APPLICATION_ID, Access, failure};
use crate::store::own_streams;
use crate::{Error, Result};

/// One step of the file's schema.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub to: u32,
    pub sql: &'static str,
}

/// Every step, in order. The first makes a new file.
pub const MIGRATIONS: &[Migration] = &[Migration { to: 1, sql: include_str!("migrations/0001.sql") }];

/// The tables that no rebuild can make again.
pub(crate) const KEPT_TABLES: &[&str] = &["meta", "streams", "log", "bodies", "log_head", "witnesses", "outcomes"];

/// The schema that this build writes.
pub const SCHEMA_VERSION: u32 = MIGRATIONS[MIGRATIONS.len() - 1].to;

pub(crate) fn create(connection: &Connection, location: &Location, host: HostId, history: HistoryId) -> Result<()> {
    let failed = |error: rusqlite::Error| failure(location.domain, &error);
    let transaction = connection.unchecked_transaction().map_err(failed)?;
    for migration in MIGRATIONS {
        transaction.execute_batch(migration.sql).map_err(failed)?;
    }
    let meta = [
        ("domain", location.domain.as_str().as_bytes().to_vec()),
        ("host", host.raw().as_bytes().to_vec()),
        ("history", history.raw().as_bytes().to_vec()),
    ];
    for (key, value) in meta {
        transaction.execute("INSERT INTO meta(key, value) VALUES (?1, ?2)", params![key, value]).map_err(failed)?;
    }
    for (number, stream) in (1..).zip(own_streams(host)) {
        let chain = domain::entry::genesis(location.domain, &stream);
        transaction
            .execute(
                "INSERT INTO streams(n, host, stream) VALUES (?1, ?2, ?3)",
                params![number, stream.host.raw().as_bytes(), stream.stream.as_str()],
            )
            .map_err(failed)?;
        transaction
            .execute(
                "INSERT INTO log_head(stream, counter, chain, at) VALUES (?1, 0, ?2, ?3)",
                params![number, chain.as_bytes(), Timestamp::EPOCH.as_ms()],
            )
            .map_err(failed)?;
    }
    let header = format!("PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};");
    transaction.execute_batch(&header).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Refuses a file that is not ours or too new, through a connection that cannot write.
pub(crate) fn check_version(location: &Location) -> Result<()> {
    let connection = connect::open(location, Access::Read)?;
    let domain = location.domain;
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let pragma = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let (application, found) = (pragma("application_id").map_err(failed)?, pragma("user_version").map_err(failed)?);
    if application != i64::from(APPLICATION_ID) {
        return Err(Error::Damaged { domain, message: "the file is not a Verger database".to_owned() });
    }
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found == 0 {
        return Err(Error::Damaged { domain, message: "the file has no schema version".to_owned() });
    }
    if found > SCHEMA_VERSION {
        return Err(Error::SchemaNewer { domain, found, known: SCHEMA_VERSION });
    }
    let page_bytes = pragma("page_size").map_err(failed)?.unsigned_abs();
    if location.vfs.is_none() && ends_within_a_page(location, page_bytes) {
        return Err(Error::Damaged { domain, message: "the file was cut short".to_owned() });
    }
    let stored: Vec<u8> = meta(&connection, domain, "domain")?;
    if stored != domain.as_str().as_bytes() {
        let stored = String::from_utf8_lossy(&stored).into_owned();
        return Err(Error::Damaged { domain, message: format!("the file holds the {stored} domain") });
    }
    Ok(())
}

/// SQLite would read the missing end of a last page as zeros. While there is a WAL, that has the page whole.
fn ends_within_a_page(location: &Location, page_bytes: u64) -> bool {
    let bytes_of = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut wal = location.path.clone().into_os_string();
    wal.push("-wal");
    bytes_of(wal.as_ref()) == 0 && !bytes_of(&location.path).is_multiple_of(page_bytes.max(1))
}

/// A reader brings no file up to date.
pub(crate) fn check_not_older(connection: &Connection, domain: Domain) -> Result<()> {
    let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(|error| failure(domain, &error))?;
    if found < SCHEMA_VERSION {
        return Err(Error::SchemaOlder { domain, what: format!("its schema is {found}, not {SCHEMA_VERSION}") });
    }
    Ok(())
}

/// Brings an older file up to date, one step a transaction, after a copy of it was made beside it.
pub(crate) fn migrate(connection: &Connection, location: &Location, migrations: &[Migration]) -> Result<()> {
    let domain = location.domain;
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    let steps: Vec<_> = migrations.iter().filter(|step| step.to > found).collect();
    if steps.is_empty() {
        return Ok(());
    }
    back_up(connection, location, found)?;
    for step in steps {
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        transaction.execute_batch(step.sql).map_err(failed)?;
        transaction.execute_batch(&format!("PRAGMA user_version={}", step.to)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

/// Copies the file beside itself, once for each schema it was found with.
fn back_up(connection: &Connection, location: &Location, found: u32) -> Result<()> {
    let domain = location.domain;
    let backup = backup_path(location, found);
    if backup.exists() {
        return Ok(());
    }
    let failed = |error: std::io::Error| Error::Storage { domain, message: format!("{}: {error}", backup.display()) };
    // Written under another name first: a copy that a crash cut short must not pass for one.
    let partial = backup.with_extension("partial");
    match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // SQLite fills an empty file, and would make one that everybody can read.
    platform::create_private_file(&partial).map_err(failed)?;
    connection.execute("VACUUM INTO ?1", [partial.display().to_string()]).map_err(|error| failure(domain, &error))?;
    platform::publish_file(&partial, &backup).map_err(failed)
}

/// The copy that a migration leaves: `journal.before-schema-2.sqlite`, say.
pub(crate) fn backup_path(location: &Location, found: u32) -> PathBuf {
    location.path.with_extension(format!("before-schema-{}.sqlite", found + 1))
}

pub(crate) fn own_host(connection: &Connection, domain: Domain) -> Result<HostId> {
    id_of(connection, domain, "host").map(HostId::from_raw)
}

pub(crate) fn history(connection: &Connection, domain: Domain) -> Result<HistoryId> {
    id_of(connection, domain, "history").map(HistoryId::from_raw)
}

fn id_of(connection: &Connection, domain: Domain, key: &str) -> Result<RawId> {
    let value = meta(connection, domain, key)?;
    RawId::from_slice(&value).ok_or_else(|| Error::Damaged { domain, message: format!("meta `{key}` is not an id") })
}

fn meta(connection: &Connection, domain: Domain, key: &str) -> Result<Vec<u8>> {
    let value: Option<Vec<u8>> = connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
        .optional()
        .map_err(|error| failure(domain, &error))?;
    value.ok_or_else(|| Error::Damaged { domain, message: format!("meta `{key}` is missing") })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use domain::commit::{Cause, Change, Commit, Expected, Write};
    use domain::entry::Actor;
    use domain::id::{OperationId, WorkspaceId};
    use domain::record::{Body, Record};
    use domain::records::note::Note;

    use super::*;
    use crate::env::Env;
    use crate::sqlite::SqliteStore;
    use crate::store::Store;

    const SECOND: Migration = Migration { to: 2, sql: "CREATE TABLE second(a INTEGER); INSERT INTO second VALUES (2)" };
    const THIRD: Migration = Migration { to: 3, sql: "ALTER TABLE second ADD COLUMN b TEXT; UPDATE second SET b = 'third'" };
    const BROKEN: Migration = Migration { to: 3, sql: "INSERT INTO second VALUES (3); INSERT INTO nowhere VALUES (3)" };

    /// A journal with one note in it, and the connection that migrates it.
    fn journal(folder: &std::path::Path) -> (Location, Connection) {
        let location = Location::in_folder(folder, Domain::Journal);
        let host = HostId::from_raw(RawId::from_bytes([1; 16]));
        let mut store = SqliteStore::create(&location, host, &Env::seeded(1)).unwrap();
        let change = Change::Put(Body::parse(r#"{"text":"kept"}"#).unwrap());
        let write = Write {
            spec: Note::SPEC,
            id: RawId::from_bytes([2; 16]),
            workspace: WorkspaceId::NONE,
            expected: Expected::Absent,
            change,
        };
        let commit = Commit {
            operation_id: OperationId::from_raw(RawId::from_bytes([3; 16])),
            request: "{}".to_owned(),
            actor: Actor::System,
            cause: Cause::default(),
            guards: Vec::new(),
            writes: vec![write],
            witnesses: Vec::new(),
        };
        store.apply_group(&[commit]).pop().unwrap().unwrap();
        drop(store);
        let connection = connect::open(&location, Access::Write).unwrap();
        (location, connection)
    }

    fn version(connection: &Connection) -> u32 {
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    fn holds(connection: &Connection, table: &str) -> bool {
        connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name = ?1", [table], |row| row.get::<_, i64>(0)).unwrap()
            == 1
    }

    /// A backup is a whole database of the schema before, for its owner only.
    fn assert_whole(location: &Location, backup: PathBuf) {
        assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
        let location = Location { path: backup, ..location.clone() };
        let store = SqliteStore::open(&location, &Env::seeded(1)).unwrap();
        let row = store.reader().read().unwrap().get(Note::SPEC, &RawId::from_bytes([2; 16])).unwrap().unwrap();
        assert_eq!(row.body.as_deref(), Some(r#"{"text":"kept"}"#));
        let report = crate::verify::domain(store.reader().as_ref(), location.domain, &location.kinds, &[], &mut |_| {}).unwrap();
        assert!(report.is_sound(), "{report:#?}");
    }

    #[test]
    fn l61_an_older_file_is_backed_up_and_then_brought_up_step_by_step() {
        let folder = tempfile::tempdir().unwrap();
        let (location, connection) = journal(folder.path());
        migrate(&connection, &location, &[MIGRATIONS[0], SECOND, THIRD]).unwrap();
        assert_eq!(version(&connection), 3);
        let row: (i64, String) = connection.query_row("SELECT a, b FROM second", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(row, (2, "third".to_owned()));
        assert_whole(&location, backup_path(&location, 1));
        assert!(!backup_path(&location, 2).exists(), "one backup for one migration, however many steps");
        let made = std::fs::metadata(backup_path(&location, 1)).unwrap().modified().unwrap();
        migrate(&connection, &location, &[MIGRATIONS[0], SECOND, THIRD]).unwrap();
        assert_eq!(std::fs::metadata(backup_path(&location, 1)).unwrap().modified().unwrap(), made, "nothing is left to do");
    }

    #[test]
    fn an_up_to_date_file_is_not_backed_up() {
        let folder = tempfile::tempdir().unwrap();
        let (location, connection) = journal(folder.path());
        migrate(&connection, &location, MIGRATIONS).unwrap();
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| name.to_str().unwrap().starts_with("journal.sqlite")), "{names:?}");
    }

    #[test]
    fn l61_a_step_that_fails_leaves_the_schema_before_it_and_the_backup() {
        let folder = tempfile::tempdir().unwrap();
        let (location, connection) = journal(folder.path());
        let failed = migrate(&connection, &location, &[MIGRATIONS[0], SECOND, BROKEN]).unwrap_err();
        assert!(matches!(failed, Error::Storage { .. }), "{failed:?}");
        assert_eq!(version(&connection), 2);
        let rows: i64 = connection.query_row("SELECT count(*) FROM second", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1, "nothing of the broken step is left");
        assert_whole(&location, backup_path(&location, 1));
        // A build that has the step right goes on from there, and keeps both backups.
        migrate(&connection, &location, &[MIGRATIONS[0], SECOND, THIRD]).unwrap();
        assert_eq!(version(&connection), 3);
        assert!(backup_path(&location, 1).exists() && backup_path(&location, 2).exists());
    }

    #[test]
    fn an_interrupted_copy_is_not_taken_for_a_backup() {
        let folder = tempfile::tempdir().unwrap();
        let (location, connection) = journal(folder.path());
        let partial = backup_path(&location, 1).with_extension("partial");
        std::fs::write(&partial, b"SQLite format 3\0 and then the power went").unwrap();
        migrate(&connection, &location, &[MIGRATIONS[0], SECOND]).unwrap();
        assert!(!partial.exists());
        assert_whole(&location, backup_path(&location, 1));
    }

    #[test]
    fn without_a_backup_nothing_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (location, connection) = journal(folder.path());
        // A folder in the way: the copy cannot be written.
        std::fs::create_dir(backup_path(&location, 1).with_extension("partial")).unwrap();
        assert!(matches!(migrate(&connection, &location, &[MIGRATIONS[0], SECOND]), Err(Error::Storage { .. })));
        assert!(version(&connection) == 1 && !holds(&connection, "second"));
    }
}

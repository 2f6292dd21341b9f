//! The file's tables: the fixed ones by numbered migrations, the records' by their declarations.
//!
//! A migration's text never changes once released. A record's table is made from its declaration; when the declaration changes, the
//! table is made anew from the rows themselves (columns are copies of body fields), so a new record or index needs no migration.

use std::path::PathBuf;

use domain::causality::Domain;
use domain::id::{HistoryId, HostId, RawId};
use domain::record::{Spec, ValueType};
use domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use crate::sqlite::connect::{self, APPLICATION_ID, Access, failure};
use crate::sqlite::query::{Queries, Streams};
use crate::sqlite::{Location, text, txn};
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

/// The fixed tables.
pub(crate) const TABLES: &[&str] =
    &["meta", "streams", "log", "bodies", "log_head", "witnesses", "outcomes", "aggregates", "projections"];

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
    if found > SCHEMA_VERSION {
        return Err(Error::SchemaNewer { domain, found, known: SCHEMA_VERSION });
    }
    let stored: Vec<u8> = meta(&connection, domain, "domain")?;
    if stored != domain.as_str().as_bytes() {
        let stored = String::from_utf8_lossy(&stored).into_owned();
        return Err(Error::Damaged { domain, message: format!("the file holds the {stored} domain") });
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
    let backup = backup_path(location, found);
    if !backup.exists() {
        // Written under another name first: a copy that a crash cut short must not pass for one.
        let partial = backup.with_extension("partial");
        std::fs::remove_file(&partial).ok();
        connection.execute("VACUUM INTO ?1", [partial.display().to_string()]).map_err(failed)?;
        std::fs::rename(&partial, &backup)
            .map_err(|error| Error::Storage { domain, message: format!("{}: {error}", backup.display()) })?;
    }
    for step in steps {
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        transaction.execute_batch(step.sql).map_err(failed)?;
        transaction.execute_batch(&format!("PRAGMA user_version={}", step.to)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

/// The copy that a migration leaves: `journal.before-schema-2.sqlite`, say.
pub(crate) fn backup_path(location: &Location, found: u32) -> PathBuf {
    location.path.with_extension(format!("before-schema-{}.sqlite", found + 1))
}

/// Makes the tables of kinds that are new or whose declaration changed.
pub(crate) fn project_kinds(connection: &Connection, location: &Location) -> Result<()> {
    let domain = location.domain;
    let failed = |error: rusqlite::Error| failure(domain, &error);
    for spec in location.kinds.iter().copied() {
        let wanted = ddl(spec, spec.table);
        let made: Option<String> = connection
            .query_row("SELECT ddl FROM projections WHERE name = ?1", [spec.table], |row| row.get(0))
            .optional()
            .map_err(failed)?;
        if made.as_deref() == Some(wanted.as_str()) {
            continue;
        }
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        match made {
            None => transaction.execute_batch(&wanted).map_err(failed)?,
            Some(_) => remake(&transaction, domain, spec)?,
        }
        if !spec.full_text.is_empty() {
            text::make(&transaction, domain, spec)?;
        }
        transaction
            .execute("INSERT OR REPLACE INTO projections(name, ddl) VALUES (?1, ?2)", [spec.table, wanted.as_str()])
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

/// Table and indexes of a kind. The text is kept in `projections`, so it says when a declaration has changed.
pub(crate) fn ddl(spec: &Spec, table: &str) -> String {
    let mut sql = table_ddl(spec, table);
    sql.push_str(&index_ddl(spec));
    sql
}

pub(crate) fn table_ddl(spec: &Spec, table: &str) -> String {
    let columns: String = spec.columns.iter().map(|column| format!(", {} {}", column.name, sql_type(column.value_type))).collect();
    format!(
        "CREATE TABLE {table}(n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, version INTEGER NOT NULL, workspace BLOB NOT NULL, \
         deleted INTEGER NOT NULL, pos INTEGER, state TEXT{columns}, body TEXT) STRICT;\n"
    )
}

pub(crate) fn index_ddl(spec: &Spec) -> String {
    let index = |index: &domain::record::Index| {
        let unique = if index.unique { "UNIQUE " } else { "" };
        // A unique index must not end with the id, or it would never be hit.
        let tail = if index.unique { "" } else { ", id" };
        let columns = index.columns.join(", ");
        format!("CREATE {unique}INDEX {}_{} ON {}({columns}{tail}) WHERE deleted = 0;\n", spec.table, index.name, spec.table)
    };
    spec.indexes.iter().map(index).collect()
}

const fn sql_type(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Text => "TEXT",
        ValueType::Integer | ValueType::Boolean | ValueType::Time => "INTEGER",
        ValueType::Id | ValueType::Digest => "BLOB",
    }
}

/// Makes a table anew from its own rows.
fn remake(connection: &Connection, domain: Domain, spec: &'static Spec) -> Result<()> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let streams = Streams::load(connection, domain)?;
    let old = format!("{}__old", spec.table);
    connection.execute_batch(&format!("ALTER TABLE {} RENAME TO {old}", spec.table)).map_err(failed)?;
    let dropped: Vec<String> = {
        let mut names = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?1 AND sql IS NOT NULL")
            .map_err(failed)?;
        let names = names.query_map([&old], |row| row.get(0)).map_err(failed)?.collect::<std::result::Result<_, _>>();
        names.map_err(failed)?
    };
    for name in dropped {
        connection.execute_batch(&format!("DROP INDEX {name}")).map_err(failed)?;
    }
    connection.execute_batch(&ddl(spec, spec.table)).map_err(failed)?;
    let queries = Queries { connection, streams: &streams, domain };
    queries.each_row(spec, &old, |row| {
        let columns = crate::apply::columns_of(spec, row.parsed_body()?.as_ref())?;
        txn::insert_row(connection, &streams, domain, spec.table, &row, &columns)
    })?;
    connection.execute_batch(&format!("DROP TABLE {old}")).map_err(failed)
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

//! The schema's tables: the fixed ones by numbered migrations, the records' by their declarations.
//!
//! Nodes start at the same time, so all of it happens in one transaction under one advisory lock. A migration's text never changes
//! once released. A record's table is made from its declaration; when the declaration changes, the table is made anew from the rows
//! themselves (columns are copies of body fields), so a new record or index needs no migration.

use domain::hash::Digest;
use domain::id::{HistoryId, HostId};
use domain::record::{Spec, ValueType};
use domain::time::Timestamp;

use crate::postgres::PgLocation;
use crate::postgres::connect::{Link, lock_key};
use crate::postgres::query::{self, Queries, bytes, get, quoted, row_columns};
use crate::postgres::{text, txn};
use crate::store::own_streams;
use crate::{Error, Result};

/// Every step, in order. The first makes a new schema.
const MIGRATIONS: &[(u32, &str)] = &[(1, include_str!("migrations/0001.sql"))];

/// The schema that this build writes.
pub const SCHEMA_VERSION: u32 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// LIMIT: rows in memory while a table is made anew.
const ROWS_AT_ONCE: i64 = 500;

/// Makes a new, empty domain; one that exists is left alone and refused.
pub(crate) fn create(link: &mut Link, location: &PgLocation, history: HistoryId) -> Result<()> {
    transaction(link, location, |link| {
        let name = location.schema_name();
        if found_version(link, location)?.is_some() {
            return Err(Error::Storage { domain: location.domain, message: format!("schema `{name}` holds a domain already") });
        }
        // Asked first: an owner may have made the schema for a role that cannot.
        if link.query("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&name])?.is_empty() {
            link.batch(&format!("CREATE SCHEMA {}", location.schema()))?;
        }
        migrate(link, 0)?;
        put_meta(link, "domain", location.domain.as_str().as_bytes())?;
        put_meta(link, "history", bytes(&history.raw()))
    })
}

/// Brings an existing domain up to date and enters the node's streams; a newer schema is refused untouched.
pub(crate) fn open(link: &mut Link, location: &PgLocation, host: HostId) -> Result<()> {
    let domain = location.domain;
    transaction(link, location, |link| {
        let found = found_version(link, location)?;
        let found = found.ok_or_else(|| Error::Missing { domain, path: format!("schema `{}`", location.schema_name()) })?;
        if found > SCHEMA_VERSION {
            return Err(Error::SchemaNewer { domain, found, known: SCHEMA_VERSION });
        }
        let stored = query::meta(link, "domain")?;
        if stored != domain.as_str().as_bytes() {
            let stored = String::from_utf8_lossy(&stored).into_owned();
            return Err(Error::Damaged { domain, message: format!("the schema holds the {stored} domain") });
        }
        migrate(link, found)?;
        project_kinds(link, location)?;
        enter_streams(link, location, host)
    })
}

fn transaction(link: &mut Link, location: &PgLocation, work: impl FnOnce(&mut Link) -> Result<()>) -> Result<()> {
    let key = lock_key(&Digest::new("verger.postgres.schema.v1").text(&location.schema()).finish());
    link.batch("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")?;
    let done = link.query("SELECT pg_advisory_xact_lock($1)", &[&key]).and_then(|_| work(link));
    match done {
        Ok(()) => link.batch("COMMIT"),
        Err(error) => {
            // A connection that cannot roll back has ended, and its transaction with it.
            link.batch("ROLLBACK").ok();
            Err(error)
        }
    }
}

fn found_version(link: &mut Link, location: &PgLocation) -> Result<Option<u32>> {
    let name = format!("{}.meta", location.schema());
    let found = link.query("SELECT to_regclass($1) IS NOT NULL", &[&name])?;
    if !found.first().map_or(Ok(false), |row| get::<bool>(row, 0))? {
        return Ok(None);
    }
    let value = query::meta(link, "schema")?;
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    let damaged = || Error::Damaged { domain: location.domain, message: "meta `schema` is not a number".to_owned() };
    number.ok_or_else(damaged).map(Some)
}

fn migrate(link: &mut Link, found: u32) -> Result<()> {
    for (to, sql) in MIGRATIONS.iter().filter(|(to, _)| *to > found) {
        link.batch(sql)?;
        put_meta(link, "schema", to.to_string().as_bytes())?;
    }
    Ok(())
}

fn put_meta(link: &mut Link, key: &str, value: &[u8]) -> Result<()> {
    let sql = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    link.execute(sql, &[&key, &value]).map(|_| ())
}

/// Gives the node's streams their numbers, once for ever.
fn enter_streams(link: &mut Link, location: &PgLocation, host: HostId) -> Result<()> {
    for stream in own_streams(host) {
        let (raw, name) = (stream.host.raw(), stream.stream.as_str());
        let sql = "INSERT INTO streams SELECT coalesce(max(n), 0) + 1, $1::bytea, $2::text FROM streams \
                   ON CONFLICT DO NOTHING RETURNING n";
        let entered = link.query(sql, &[&bytes(&raw), &name])?;
        if let Some(row) = entered.first() {
            let (number, chain) = (get::<i64>(row, 0)?, domain::entry::genesis(location.domain, &stream));
            let (chain, at) = (chain.as_bytes().as_slice(), Timestamp::EPOCH.as_ms());
            link.execute("INSERT INTO log_head VALUES ($1, 0, $2, $3)", &[&number, &chain, &at])?;
        }
    }
    Ok(())
}

/// Makes the tables of kinds that are new or whose declaration changed.
fn project_kinds(link: &mut Link, location: &PgLocation) -> Result<()> {
    for spec in location.kinds.iter().copied() {
        let wanted = ddl(spec);
        let rows = link.query("SELECT ddl FROM projections WHERE name = $1", &[&spec.table])?;
        let made: Option<String> = rows.first().map(|row| get(row, 0)).transpose()?;
        match made {
            Some(made) if made == wanted => continue,
            Some(_) => remake(link, spec, &wanted)?,
            None => link.batch(&wanted)?,
        }
        let sql = "INSERT INTO projections VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET ddl = excluded.ddl";
        link.execute(sql, &[&spec.table, &wanted])?;
    }
    Ok(())
}

/// Table and indexes of a kind. The text is kept in `projections`, so it says when a declaration has changed.
fn ddl(spec: &Spec) -> String {
    let columns: String =
        spec.columns.iter().map(|column| format!(", {} {}", quoted(column.name), sql_type(column.value_type))).collect();
    let table = quoted(spec.table);
    let words = if spec.full_text.is_empty() { String::new() } else { format!(", {} TSVECTOR", text::COLUMN) };
    let mut sql = format!(
        "CREATE TABLE {table}(id BYTEA PRIMARY KEY, version BIGINT NOT NULL, workspace BYTEA NOT NULL, deleted SMALLINT NOT NULL, \
         pos BIGINT, state TEXT COLLATE \"C\"{columns}, body TEXT COLLATE \"C\"{words});\n"
    );
    for index in spec.indexes {
        let unique = if index.unique { "UNIQUE " } else { "" };
        // A unique index must not end with the id, or it would never be hit.
        let tail = if index.unique { "" } else { ", id" };
        // The order of every backend: nothing comes before something.
        let columns: Vec<_> = index.columns.iter().map(|name| format!("{} NULLS FIRST", quoted(name))).collect();
        let name = quoted(&format!("{}_{}", spec.table, index.name));
        sql.push_str(&format!("CREATE {unique}INDEX {name} ON {table}({}{tail}) WHERE deleted = 0;\n", columns.join(", ")));
    }
    if !spec.full_text.is_empty() {
        let name = quoted(&format!("{}{}", spec.table, text::COLUMN));
        sql.push_str(&format!("CREATE INDEX {name} ON {table} USING gin({}) WHERE deleted = 0;\n", text::COLUMN));
    }
    sql
}

const fn sql_type(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Text => "TEXT COLLATE \"C\"",
        ValueType::Integer | ValueType::Boolean | ValueType::Time => "BIGINT",
        ValueType::Id | ValueType::Digest => "BYTEA",
    }
}

/// Makes a table anew from its own rows.
fn remake(link: &mut Link, spec: &'static Spec, ddl: &str) -> Result<()> {
    let (table, old) = (quoted(spec.table), quoted(&format!("{}__old", spec.table)));
    link.batch(&format!("ALTER TABLE {table} RENAME TO {old}"))?;
    // An index keeps its name when its table gets another, and the new one's would collide with it.
    let indexes =
        "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass($1)";
    for row in link.query(indexes, &[&old])? {
        let name: String = get(&row, 0)?;
        link.batch(&format!("ALTER INDEX {} RENAME TO {}", quoted(&name), quoted(&format!("{name}__old"))))?;
    }
    link.batch(ddl)?;
    let (streams, _) = query::streams(link)?;
    let sql = format!("SELECT {} FROM {old} t WHERE t.id > $1 ORDER BY t.id LIMIT $2", row_columns(spec));
    let mut after: Vec<u8> = Vec::new();
    loop {
        let rows = link.query(&sql, &[&after, &ROWS_AT_ONCE])?;
        for row in &rows {
            let row = Queries { link, streams: &streams }.read_row(spec, row)?;
            let columns = crate::apply::columns_of(spec, row.parsed_body()?.as_ref())?;
            txn::insert_row(link, &streams, &row, &columns)?;
        }
        let Some(last) = rows.last() else { break };
        after = get(last, 0)?;
    }
    link.batch(&format!("DROP TABLE {old}"))
}

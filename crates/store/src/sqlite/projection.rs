//! The records' tables, made from their declarations.
//!
//! A file remembers the declaration that each table was made from. When it changes, the table, its full text and its aggregates are made
//! anew from the table's own rows, since columns are copies of body fields; so a new record, column, index or aggregate needs no
//! migration.

use domain::causality::Domain;
use domain::record::{Aggregate, Spec, ValueType};
use rusqlite::{Connection, OptionalExtension};

use crate::sqlite::connect::failure;
use crate::sqlite::query::{Queries, load_streams};
use crate::sqlite::{Location, rebuild, text, txn};
use crate::{Error, Result};

/// What to do about a table that the file says it has, but has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Refuse,
    /// Make it empty: a rebuild fills it.
    MakeEmpty,
}

/// Makes the tables of kinds that are new or whose declaration changed.
pub(crate) fn bring_up_to_date(connection: &Connection, location: &Location, lost: Lost) -> Result<()> {
    let domain = location.domain;
    let failed = |error: rusqlite::Error| failure(domain, &error);
    for spec in location.kinds.iter().copied() {
        // What a rebuild left behind when it was cut short holds copies of bodies.
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {}", rebuild::beside(spec))).map_err(failed)?;
        let wanted = declaration(spec);
        let made = remembered(connection, domain, spec)?;
        let exists = made.is_none() || has_table(connection, domain, spec)?;
        if !exists && lost == Lost::Refuse {
            return Err(Error::Damaged { domain, message: format!("table `{}` is missing", spec.table) });
        }
        if exists && made.as_deref() == Some(wanted.as_str()) {
            continue;
        }
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        if exists && made.is_some() {
            remake(&transaction, domain, spec)?;
        } else {
            transaction.execute_batch(&(table_ddl(spec, spec.table) + &index_ddl(spec))).map_err(failed)?;
        }
        text::make(&transaction, domain, spec)?;
        transaction
            .execute("INSERT OR REPLACE INTO projections(name, ddl) VALUES (?1, ?2)", [spec.table, wanted.as_str()])
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

/// A reader changes nothing, so it can only say that somebody must.
pub(crate) fn check(connection: &Connection, location: &Location) -> Result<()> {
    let domain = location.domain;
    for spec in location.kinds.iter().copied() {
        let what = match remembered(connection, domain, spec)? {
            None => format!("it has no table `{}` yet", spec.table),
            Some(made) if made != declaration(spec) => format!("table `{}` has another shape", spec.table),
            Some(_) if !has_table(connection, domain, spec)? => {
                return Err(Error::Damaged { domain, message: format!("table `{}` is missing", spec.table) });
            }
            Some(_) => continue,
        };
        return Err(Error::SchemaOlder { domain, what });
    }
    Ok(())
}

fn remembered(connection: &Connection, domain: Domain, spec: &Spec) -> Result<Option<String>> {
    let sql = "SELECT ddl FROM projections WHERE name = ?1";
    connection.query_row(sql, [spec.table], |row| row.get(0)).optional().map_err(|error| failure(domain, &error))
}

fn has_table(connection: &Connection, domain: Domain, spec: &Spec) -> Result<bool> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    let found = connection.query_row(sql, [spec.table], |_| Ok(())).optional().map_err(|error| failure(domain, &error))?;
    Ok(found.is_some())
}

/// Everything about a kind that its table, full text and aggregates follow from, as text to compare.
fn declaration(spec: &Spec) -> String {
    let types: Vec<_> = spec.columns.iter().map(|column| format!("{} {:?}", column.name, column.value_type)).collect();
    let aggregate = |aggregate: &Aggregate| format!("{} {:?} {:?}", aggregate.name, aggregate.group, aggregate.sum);
    let aggregates: Vec<_> = spec.aggregates.iter().map(aggregate).collect();
    format!(
        "{}{}-- types: {}\n-- aggregates: {}\n-- full text: {}\n",
        table_ddl(spec, spec.table),
        index_ddl(spec),
        types.join(", "),
        aggregates.join(", "),
        spec.full_text.join(", ")
    )
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

/// Makes a table and its aggregates anew from its own rows.
fn remake(connection: &Connection, domain: Domain, spec: &'static Spec) -> Result<()> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let streams = load_streams(connection, domain)?;
    let queries = Queries { connection, streams: &streams, domain };
    let old = format!("{}__old", spec.table);
    connection.execute_batch(&format!("ALTER TABLE {} RENAME TO {old}", spec.table)).map_err(failed)?;
    for index in indexes_of(connection, &old).map_err(failed)? {
        connection.execute_batch(&format!("DROP INDEX {index}")).map_err(failed)?;
    }
    connection.execute_batch(&(table_ddl(spec, spec.table) + &index_ddl(spec))).map_err(failed)?;
    queries.each_row(spec, &old, |row| {
        let columns = crate::apply::columns_of(spec, row.parsed_body()?.as_ref())?;
        txn::insert_row(connection, &streams, domain, spec.table, &row, &columns)
    })?;
    connection.execute_batch(&format!("DROP TABLE {old}")).map_err(failed)?;
    rebuild::recount(&queries, spec).map(|_| ())
}

fn indexes_of(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?1 AND sql IS NOT NULL";
    let mut statement = connection.prepare(sql)?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

//! Rebuilding the logged tables from the log.
//!
//! The new tables are made beside the old ones and compared with them row by row; then both change places in one transaction. A crash
//! before that leaves the old ones, and what was half built is thrown away by the next rebuild. Control rows are not touched;
//! hash-logged rows are checked against their hash and kept, since the log has no body for them.

use std::collections::BTreeMap;

use domain::causality::StreamId;
use domain::commit::{Change, Write};
use domain::entry::{Entry, Op};
use domain::hash;
use domain::id::RawId;
use domain::record::{Body, Class, Spec};

use crate::apply::{columns_of, contribution, next_row};
use crate::row::write_group;
use crate::sqlite::connect::failure;
use crate::sqlite::query::Queries;
use crate::sqlite::{SqliteStore, projection, text, txn};
use crate::store::{Row, Store, Stored};
use crate::{Error, Result};

/// LIMIT: entries replayed in one transaction, so that the WAL stays small.
const ENTRIES_AT_ONCE: usize = 2_000;
/// LIMIT: differences listed one by one; the rest is counted.
const DIFFERENCES_MAX: usize = 20;

/// What a rebuild found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub entries: u64,
    pub rows: u64,
    /// Rows that were not what the log says, and now are.
    pub differing_rows: u64,
    pub differing_aggregates: u64,
    /// The first of them, in words.
    pub differences: Vec<String>,
    /// Hash-logged rows: checked against their hash and kept.
    pub kept_rows: u64,
}

impl Report {
    fn differs(&mut self, what: String) {
        self.differing_rows += 1;
        self.list(what);
    }

    fn list(&mut self, what: String) {
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(what);
        }
    }
}

/// Rebuilds every logged table of a store; `progress` is told the entries replayed so far.
pub fn run(store: &mut SqliteStore, progress: &mut dyn FnMut(u64)) -> Result<Report> {
    let kinds: Vec<&'static Spec> = store.location().kinds.clone();
    let rebuilt: Vec<_> = kinds.iter().copied().filter(|spec| matches!(spec.class, Class::Synced | Class::Local)).collect();
    let mut report = Report::default();
    let connection = store.writer()?;
    let domain = store.domain();
    let failed = |error: rusqlite::Error| failure(domain, &error);
    for spec in &rebuilt {
        let beside = beside(spec);
        connection
            .execute_batch(&format!("DROP TABLE IF EXISTS {beside}; {}", projection::table_ddl(spec, &beside)))
            .map_err(failed)?;
    }
    replay(store, &rebuilt, &mut report, progress)?;
    let transaction = connection.unchecked_transaction().map_err(failed)?;
    for spec in &rebuilt {
        match compare(store, spec, &mut report) {
            Ok(()) => {}
            // A table that is damaged is replaced like any other.
            Err(error @ (Error::Damaged { .. } | Error::Unreadable(_))) => {
                report.differs(format!("the table of every {} could not be read: {error}", spec.kind));
            }
            Err(error) => return Err(error),
        }
        transaction
            .execute_batch(&format!(
                "DROP TABLE {table}; ALTER TABLE {} RENAME TO {table}; {}",
                beside(spec),
                projection::index_ddl(spec),
                table = spec.table
            ))
            .map_err(failed)?;
        text::make(&transaction, domain, spec)?;
    }
    check_hash_logged(store, &kinds, &mut report)?;
    replace_aggregates(store, &kinds, &mut report)?;
    transaction.commit().map_err(failed)?;
    Ok(report)
}

pub(crate) fn beside(spec: &Spec) -> String {
    format!("{}__rebuilt", spec.table)
}

/// Streams are replayed one after the other: no kind is logged in two streams of one host, and hosts merge in any order.
fn replay(store: &SqliteStore, kinds: &[&'static Spec], report: &mut Report, progress: &mut dyn FnMut(u64)) -> Result<()> {
    let connection = store.writer()?;
    let domain = store.domain();
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let queries = Queries { connection, streams: &store.streams, domain };
    let streams: Vec<StreamId> = store.reader().read()?.heads()?.iter().map(|head| head.stream).collect();
    for stream in streams {
        let mut after = 0;
        loop {
            let entries = queries.entries(&stream, after, ENTRIES_AT_ONCE)?;
            let Some((last, _)) = entries.last() else { break };
            after = last.entry.dot.counter;
            let transaction = connection.unchecked_transaction().map_err(failed)?;
            for (logged, stored) in &entries {
                report.entries += 1;
                let spec = kinds.iter().copied().find(|spec| spec.kind == logged.entry.kind);
                if let Some(spec) = spec {
                    replay_entry(store, spec, &logged.entry, stored)?;
                }
            }
            transaction.commit().map_err(failed)?;
            progress(report.entries);
        }
    }
    Ok(())
}

fn replay_entry(store: &SqliteStore, spec: &'static Spec, entry: &Entry, stored: &Stored) -> Result<()> {
    let (connection, domain) = (store.writer()?, store.domain());
    let queries = Queries { connection, streams: &store.streams, domain };
    let table = beside(spec);
    let mut before = None;
    if entry.version > 1 {
        before = find(&queries, spec, &table, &entry.id)?;
    }
    // An erased body leaves an empty row here; the erase entry further on makes it a deleted one.
    let body = match (entry.op, &stored.body) {
        (Op::Put, Some(text)) => Some(Body::parse(text).map_err(|error| Error::Unreadable(error.to_string()))?),
        _ => None,
    };
    let change = match (&body, entry.op) {
        (Some(body), _) => Change::Put(body.clone()),
        (None, Op::Erase) => Change::Erase,
        (None, _) => Change::Tombstone,
    };
    let expected = domain::commit::Expected::Version(entry.version);
    let write = Write { spec, id: entry.id, workspace: entry.workspace, expected, change };
    let before_body = before.as_ref().map(Row::parsed_body).transpose()?.flatten();
    let (row, _) = next_row(entry.dot.stream.host, &write, before.as_ref(), before_body.as_ref(), Some(entry.dot));
    let columns = columns_of(spec, body.as_ref())?;
    if before.is_some() {
        connection
            .execute(&format!("DELETE FROM {table} WHERE id = ?1"), [entry.id.as_bytes()])
            .map_err(|error| failure(domain, &error))?;
    }
    txn::insert_row(connection, &store.streams, domain, &table, &row, &columns)
}

fn find(queries: &Queries<'_>, spec: &'static Spec, table: &str, id: &RawId) -> Result<Option<Row>> {
    let failed = |error: rusqlite::Error| failure(queries.domain, &error);
    let sql = format!("SELECT {} FROM {table} t WHERE t.id = ?1", crate::sqlite::query::row_columns(spec));
    let mut statement = queries.connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query([id.as_bytes()]).map_err(failed)?;
    rows.next().map_err(failed)?.map(|row| queries.read_row(spec, row)).transpose()
}

/// Compares the rows of both tables, columns included, by walking their ids side by side.
fn compare(store: &SqliteStore, spec: &'static Spec, report: &mut Report) -> Result<()> {
    let (connection, domain) = (store.writer()?, store.domain());
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let (old, new) = (spec.table, beside(spec));
    let count = connection.query_row(&format!("SELECT count(*) FROM {new}"), [], |row| row.get::<_, i64>(0)).map_err(failed)?;
    report.rows += count.unsigned_abs();
    let fixed = ["version", "workspace", "deleted", "pos", "state", "body"].into_iter();
    let columns = fixed.chain(spec.columns.iter().map(|column| column.name));
    let same: Vec<_> = columns.map(|name| format!("o.{name} IS n.{name}")).collect();
    let differs = format!("SELECT o.id FROM {old} o JOIN {new} n ON n.id = o.id WHERE NOT ({})", same.join(" AND "));
    let only_in =
        |one: &str, other: &str| format!("SELECT id FROM {one} o WHERE NOT EXISTS (SELECT 1 FROM {other} n WHERE n.id = o.id)");
    for (sql, what) in [
        (differs, "differed from the log"),
        (only_in(old, &new), "was in the table but not in the log"),
        (only_in(&new, old), "was missing from the table"),
    ] {
        let mut statement = connection.prepare(&sql).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let id: Vec<u8> = row.get(0).map_err(failed)?;
            let shown =
                RawId::from_slice(&id).map_or_else(|| "a row with a broken id".to_owned(), |id| id.with_prefix(spec.prefix));
            report.differs(format!("{shown} {what}"));
        }
    }
    Ok(())
}

/// The log has only the hash of these bodies: the row stays, and is checked.
fn check_hash_logged(store: &SqliteStore, kinds: &[&'static Spec], report: &mut Report) -> Result<()> {
    let queries = Queries { connection: store.writer()?, streams: &store.streams, domain: store.domain() };
    for spec in kinds.iter().copied().filter(|spec| spec.class == Class::HashLogged) {
        queries.each_row(spec, spec.table, |row| {
            report.kept_rows += 1;
            let Some(dot) = row.dot else {
                report.differs(format!("{} {} names no entry", spec.kind, row.id));
                return Ok(());
            };
            let entry = queries.entries(&dot.stream, dot.counter - 1, 1)?.pop();
            let fits = entry.is_some_and(|(logged, stored)| {
                let entry = &logged.entry;
                let body = match (&row.body, entry.body_hash, stored.salt) {
                    (Some(body), Some(expected), Some(salt)) => hash::salted(&salt, body.as_bytes()) == expected && !row.deleted,
                    (None, _, _) => row.deleted && entry.op != Op::Put,
                    _ => false,
                };
                body && entry.dot == dot && row.is_of(entry)
            });
            if !fits {
                report.differs(format!("{} {} is not what its hash in the log says", spec.kind, row.id.with_prefix(spec.prefix)));
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn replace_aggregates(store: &SqliteStore, kinds: &[&'static Spec], report: &mut Report) -> Result<()> {
    let queries = Queries { connection: store.writer()?, streams: &store.streams, domain: store.domain() };
    for spec in kinds.iter().copied() {
        for difference in recount(&queries, spec)? {
            report.differing_aggregates += 1;
            report.list(difference);
        }
    }
    Ok(())
}

/// Counts a kind's aggregates anew from its table; says where the stored ones were wrong.
pub(crate) fn recount(queries: &Queries<'_>, spec: &'static Spec) -> Result<Vec<String>> {
    let Queries { connection, domain, .. } = *queries;
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let mut differences = Vec::new();
    let mut counted: BTreeMap<(&str, String), i64> = BTreeMap::new();
    queries.each_row(spec, spec.table, |row| {
        let Some(body) = row.parsed_body()?.filter(|_| !row.deleted) else { return Ok(()) };
        for aggregate in spec.aggregates {
            let (group, amount) = contribution(spec, aggregate, &row, &body)?;
            *counted.entry((aggregate.name, write_group(&group))).or_insert(0) += amount;
        }
        Ok(())
    })?;
    let mut statement =
        connection.prepare("SELECT name, members, value FROM aggregates WHERE kind = ?1 AND value <> 0").map_err(failed)?;
    let stored = statement
        .query_map([spec.kind], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))
        .and_then(Iterator::collect::<rusqlite::Result<BTreeMap<(String, String), i64>>>)
        .map_err(failed)?;
    counted.retain(|_, value| *value != 0);
    for ((name, members), value) in &counted {
        let found = stored.get(&((*name).to_owned(), members.clone())).copied().unwrap_or(0);
        if found != *value {
            differences.push(format!("{name} of {} for {members} was {found}, is {value}", spec.kind));
        }
    }
    for ((name, members), value) in &stored {
        if !counted.contains_key(&(name.as_str(), members.clone())) {
            differences.push(format!("{name} of {} for {members} was {value}, is 0", spec.kind));
        }
    }
    connection.execute("DELETE FROM aggregates WHERE kind = ?1", [spec.kind]).map_err(failed)?;
    for ((name, members), value) in counted {
        let values = rusqlite::params![spec.kind, name, members, value];
        connection.execute("INSERT INTO aggregates VALUES (?1, ?2, ?3, ?4)", values).map_err(failed)?;
    }
    Ok(differences)
}

//! The writes of a transaction.

use domain::causality::{Domain, Dot};
use domain::commit::Committed;
use domain::entry::{Head, Witness};
use domain::hash::{Hash, Salt};
use domain::id::{OperationId, RawId};
use domain::record::{Body, Spec, Value};
use rusqlite::{Connection, ToSql, params, params_from_iter};

use crate::apply::{Outcome, Txn};
use crate::row::{self, LogRow};
use crate::sqlite::connect::failure;
use crate::sqlite::query::{Bound, Queries};
use crate::sqlite::text;
use crate::store::{Logged, Row, Stored};
use crate::streams::Streams;
use crate::{Error, Result};

pub(crate) struct SqliteTxn<'a> {
    connection: &'a Connection,
    streams: &'a Streams,
    domain: Domain,
    /// Full-text changes of the group. FTS5 writes its index out at every savepoint, so they wait until the last one is closed.
    texts: Vec<text::TextChange>,
    texts_at_savepoint: usize,
}

impl<'a> SqliteTxn<'a> {
    pub(crate) fn new(connection: &'a Connection, streams: &'a Streams, domain: Domain) -> Self {
        Self { connection, streams, domain, texts: Vec::new(), texts_at_savepoint: 0 }
    }
    fn queries(&self) -> Queries<'_> {
        Queries { connection: self.connection, streams: self.streams, domain: self.domain }
    }

    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        execute(self.connection, self.domain, sql, params)
    }
}

fn execute(connection: &Connection, domain: Domain, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    connection.prepare_cached(sql).map_err(failed)?.execute(params).map_err(failed)
}

impl Txn for SqliteTxn<'_> {
    fn savepoint(&mut self) -> Result<()> {
        self.texts_at_savepoint = self.texts.len();
        self.execute("SAVEPOINT one", []).map(|_| ())
    }

    fn release(&mut self) -> Result<()> {
        self.execute("RELEASE one", []).map(|_| ())
    }

    fn rollback(&mut self) -> Result<()> {
        self.texts.truncate(self.texts_at_savepoint);
        self.execute("ROLLBACK TO one", [])?;
        self.release()
    }

    fn row(&mut self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        self.queries().row(spec, id)
    }

    fn put_row(&mut self, row: &Row, columns: &[Value], known: bool) -> Result<()> {
        if known {
            update_row(self.connection, self.streams, self.domain, row, columns)
        } else {
            insert_row(self.connection, self.streams, self.domain, row.spec.table, row, columns)
        }
    }

    fn remove_row(&mut self, spec: &'static Spec, id: &RawId) -> Result<()> {
        self.execute(&format!("DELETE FROM {} WHERE id = ?1", spec.table), [id.as_bytes()]).map(|_| ())
    }

    fn index_text(&mut self, row: &Row, before: Option<&Body>, after: Option<&Body>) -> Result<()> {
        self.texts.extend(text::TextChange::of(row, before, after));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.texts.iter().try_for_each(|change| change.apply(self.connection, self.domain))
    }

    fn append(&mut self, logged: &Logged, stored: &Stored) -> Result<()> {
        let position = self.streams.position(&logged.entry.dot)?;
        let previous = logged.previous.map(|dot| self.streams.position(&dot)).transpose()?;
        let log = LogRow::encode(logged);
        self.execute(
            "INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
            params![
                position, log.before, log.after, log.kind, log.schema, log.workspace, log.id, log.op, log.version, log.edits,
                log.fields, log.clock, log.actor, log.operation, log.run_key, log.source_event, log.cause_depth, log.at,
                log.body_hash, log.chain, previous
            ],
        )?;
        if *stored != Stored::default() {
            let (salt, request) = (stored.salt.map(|salt| salt.0), stored.request.map(|hash| *hash.as_bytes()));
            self.execute("INSERT INTO bodies VALUES (?1, ?2, ?3, ?4)", params![position, salt, request, stored.body])?;
        }
        Ok(())
    }

    fn entry(&mut self, dot: &Dot) -> Result<Option<Logged>> {
        let found = self.queries().entries(&dot.stream, dot.counter - 1, 1)?;
        Ok(found.into_iter().map(|(logged, _)| logged).find(|logged| logged.entry.dot == *dot))
    }

    fn erase(&mut self, dots: &[Dot], operations: &[OperationId]) -> Result<()> {
        for operation in operations {
            self.execute(
                "UPDATE bodies SET request = NULL WHERE pos IN (SELECT pos FROM log WHERE operation = ?1 AND before = 0)",
                [operation.raw().as_bytes()],
            )?;
        }
        for dot in dots {
            self.execute("DELETE FROM bodies WHERE pos = ?1", [self.streams.position(dot)?])?;
        }
        Ok(())
    }

    fn set_head(&mut self, head: &Head) -> Result<()> {
        let number = self.streams.number(&head.stream);
        let number = number.ok_or_else(|| Error::Unreadable(format!("stream {:?}", head.stream)))?;
        let counter = i64::try_from(head.counter).unwrap_or(i64::MAX);
        self.execute(
            "UPDATE log_head SET counter = ?2, chain = ?3, at = ?4 WHERE stream = ?1",
            params![number, counter, head.chain.as_bytes(), head.at.as_ms()],
        )
        .map(|_| ())
    }

    fn set_witness(&mut self, witness: &Witness) -> Result<()> {
        put_witness(self.connection, self.domain, witness)
    }

    fn outcome(&mut self, operation_id: &OperationId) -> Result<Option<Outcome>> {
        self.queries().outcome(operation_id)
    }

    fn put_outcome(&mut self, committed: &Committed, salt: &Salt, request: &Hash) -> Result<()> {
        let (operation, at) = (committed.operation_id.raw(), committed.at.as_ms());
        self.execute(
            "INSERT INTO outcomes VALUES (?1, ?2, ?3, ?4, ?5)",
            params![operation.as_bytes(), salt.0, request.as_bytes(), at, row::write_outcome(committed)],
        )
        .map(|_| ())
    }

    fn aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        self.queries().aggregate(spec, name, group)
    }

    fn add_to_aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value], difference: i64) -> Result<()> {
        let sql = concat!(
            "INSERT INTO aggregates VALUES (?1, ?2, ?3, ?4) ",
            "ON CONFLICT(kind, name, members) DO UPDATE SET value = value + excluded.value RETURNING value"
        );
        let failed = |error: rusqlite::Error| failure(self.domain, &error);
        let group = row::write_group(group);
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let value: i64 = statement.query_row(params![spec.kind, name, group, difference], |row| row.get(0)).map_err(failed)?;
        if value == 0 {
            // No row reads as 0, too, and this one may hold words that are to be erased.
            let sql = "DELETE FROM aggregates WHERE kind = ?1 AND name = ?2 AND members = ?3";
            self.execute(sql, params![spec.kind, name, group])?;
        }
        Ok(())
    }
}

pub(crate) fn put_witness(connection: &Connection, domain: Domain, witness: &Witness) -> Result<()> {
    let head = &witness.head;
    let counter = i64::try_from(head.counter).unwrap_or(i64::MAX);
    execute(
        connection,
        domain,
        concat!(
            "INSERT INTO witnesses VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(domain, host, stream) ",
            "DO UPDATE SET counter = excluded.counter, chain = excluded.chain, at = excluded.at WHERE excluded.counter >= counter"
        ),
        params![
            witness.domain.as_str(),
            head.stream.host.raw().as_bytes(),
            head.stream.stream.as_str(),
            counter,
            head.chain.as_bytes(),
            head.at.as_ms()
        ],
    )
    .map(|_| ())
}

pub(crate) fn insert_row(
    connection: &Connection,
    streams: &Streams,
    domain: Domain,
    table: &str,
    row: &Row,
    columns: &[Value],
) -> Result<()> {
    let spec = row.spec;
    let names: String = spec.columns.iter().map(|column| format!(", {}", column.name)).collect();
    let places: String = (8..8 + columns.len()).map(|place| format!(", ?{place}")).collect();
    let sql = format!(
        "INSERT INTO {table}(id, version, workspace, deleted, pos, state, body{names}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7{places})"
    );
    write_row(connection, streams, domain, &sql, row, columns)
}

fn update_row(connection: &Connection, streams: &Streams, domain: Domain, row: &Row, columns: &[Value]) -> Result<()> {
    let spec = row.spec;
    let named: String = spec.columns.iter().zip(8..).map(|(column, place)| format!(", {} = ?{place}", column.name)).collect();
    let sql = format!(
        "UPDATE {} SET version = ?2, workspace = ?3, deleted = ?4, pos = ?5, state = ?6, body = ?7{named} WHERE id = ?1",
        spec.table
    );
    write_row(connection, streams, domain, &sql, row, columns)
}

fn write_row(connection: &Connection, streams: &Streams, domain: Domain, sql: &str, row: &Row, columns: &[Value]) -> Result<()> {
    let position = row.dot.map(|dot| streams.position(&dot)).transpose()?;
    let version = i64::try_from(row.version).unwrap_or(i64::MAX);
    let state = row::write_state(&row.state, row.dot.as_ref(), row.version);
    let body = row.body.as_deref().filter(|_| !row.spec.immutable);
    let (id, workspace) = (row.id, row.workspace.raw());
    let fixed: [&dyn ToSql; 7] = [id.as_bytes(), &version, workspace.as_bytes(), &row.deleted, &position, &state, &body];
    let bound: Vec<Bound<'_>> = columns.iter().map(Bound).collect();
    let all = fixed.into_iter().chain(bound.iter().map(|value| value as &dyn ToSql));
    let failed = |error: rusqlite::Error| match error.sqlite_error().map(|error| error.extended_code) {
        Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE) => {
            Error::DuplicateKey { kind: row.spec.kind, prefix: row.spec.prefix, id: row.id }
        }
        _ => failure(domain, &error),
    };
    connection.prepare_cached(sql).map_err(failed)?.execute(params_from_iter(all)).map_err(failed).map(|_| ())
}

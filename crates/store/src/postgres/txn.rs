//! The writes of a transaction.

use domain::causality::Dot;
use domain::commit::Committed;
use domain::entry::{Head, Witness};
use domain::hash::{Hash, Salt};
use domain::id::{OperationId, RawId};
use domain::record::{Body, Spec, Value};
use postgres::error::SqlState;
use postgres::types::ToSql;

use crate::apply::{Outcome, Txn};
use crate::postgres::connect::Link;
use crate::postgres::lock::{Locked, RowKey};
use crate::postgres::query::{Bound, Queries, bytes, get, quoted};
use crate::postgres::{PgLocation, text};
use crate::row::{self, LogRow};
use crate::store::{Logged, Row, Stored};
use crate::streams::Streams;
use crate::{Error, Result};

pub(crate) struct PostgresTxn<'a> {
    link: &'a mut Link,
    streams: &'a Streams,
    location: &'a PgLocation,
    locked: Locked,
    /// Rows made since the savepoint, and whether they had existed before: what a rollback puts back.
    made: Vec<(RowKey, bool)>,
}

impl<'a> PostgresTxn<'a> {
    pub(crate) fn new(link: &'a mut Link, streams: &'a Streams, location: &'a PgLocation, locked: Locked) -> Self {
        Self { link, streams, location, locked, made: Vec::new() }
    }

    fn queries(&mut self) -> Queries<'_> {
        Queries { link: self.link, streams: self.streams }
    }
}

impl Txn for PostgresTxn<'_> {
    fn savepoint(&mut self) -> Result<()> {
        self.made.clear();
        self.link.batch("SAVEPOINT one")
    }

    fn release(&mut self) -> Result<()> {
        self.link.batch("RELEASE SAVEPOINT one")
    }

    fn rollback(&mut self) -> Result<()> {
        for (key, existed) in self.made.drain(..).rev() {
            self.locked.rows.insert(key, existed);
        }
        self.link.batch("ROLLBACK TO SAVEPOINT one; RELEASE SAVEPOINT one")
    }

    fn row(&mut self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        let domain = self.location.domain;
        if !self.location.kinds.contains(&spec) {
            return Err(Error::Storage { domain, message: format!("a {} is not stored here", spec.kind) });
        }
        match self.locked.rows.get(&(spec.table, *id)) {
            Some(true) => self.queries().row(spec, id),
            Some(false) => Ok(None),
            // INVARIANT: what is decided on was locked first; a row read past the locks would be another moment's.
            None => Err(Error::Storage { domain, message: format!("{} {id} was read without its lock", spec.kind) }),
        }
    }

    fn put_row(&mut self, row: &Row, columns: &[Value], known: bool) -> Result<()> {
        if known {
            return update_row(self.link, self.streams, row, columns);
        }
        if !insert_row(self.link, self.streams, row, columns)? {
            return Err(self.made_elsewhere(row));
        }
        let key = (row.spec.table, row.id);
        let existed = self.locked.rows.insert(key, true).unwrap_or(false);
        self.made.push((key, existed));
        Ok(())
    }

    fn remove_row(&mut self, spec: &'static Spec, id: &RawId) -> Result<()> {
        self.link.execute(&format!("DELETE FROM {} WHERE id = $1", quoted(spec.table)), &[&bytes(id)]).map(|_| ())
    }

    /// The words are a column and went with the row.
    fn index_text(&mut self, _row: &Row, _before: Option<&Body>, _after: Option<&Body>) -> Result<()> {
        Ok(())
    }

    fn append(&mut self, logged: &Logged, stored: &Stored) -> Result<()> {
        let position = self.streams.position(&logged.entry.dot)?;
        let previous = logged.previous.map(|dot| self.streams.position(&dot)).transpose()?;
        let log = LogRow::encode(logged);
        // The operation may come again within the group.
        self.locked.operations.insert(logged.entry.operation_id);
        self.link.execute(
            "INSERT INTO log \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)",
            &[
                &position,
                &log.before,
                &log.after,
                &log.kind,
                &log.schema,
                &log.workspace,
                &log.id,
                &log.op,
                &log.version,
                &log.edits,
                &log.fields,
                &log.clock,
                &log.actor,
                &log.operation,
                &log.run_key,
                &log.source_event,
                &log.cause_depth,
                &log.at,
                &log.body_hash,
                &log.chain,
                &previous,
            ],
        )?;
        if *stored != Stored::default() {
            let salt = stored.salt.as_ref().map(|salt| salt.0.as_slice());
            let request = stored.request.as_ref().map(|hash| hash.as_bytes().as_slice());
            self.link.execute("INSERT INTO bodies VALUES ($1, $2, $3, $4)", &[&position, &salt, &request, &stored.body])?;
        }
        Ok(())
    }

    fn entry(&mut self, dot: &Dot) -> Result<Option<Logged>> {
        let found = self.queries().entries(&dot.stream, dot.counter - 1, 1)?;
        Ok(found.into_iter().map(|(logged, _)| logged).find(|logged| logged.entry.dot == *dot))
    }

    fn erase(&mut self, dots: &[Dot], operations: &[OperationId]) -> Result<()> {
        let raw: Vec<RawId> = operations.iter().map(OperationId::raw).collect();
        let operations: Vec<&[u8]> = raw.iter().map(bytes).collect();
        self.link.execute(
            "UPDATE bodies SET request = NULL WHERE pos IN (SELECT pos FROM log WHERE operation = ANY($1) AND before = 0)",
            &[&operations],
        )?;
        let places: Vec<i64> = dots.iter().map(|dot| self.streams.position(dot)).collect::<Result<_>>()?;
        self.link.execute("DELETE FROM bodies WHERE pos = ANY($1)", &[&places]).map(|_| ())
    }

    fn set_head(&mut self, head: &Head) -> Result<()> {
        let number = self.streams.number(&head.stream);
        let number = number.ok_or_else(|| Error::Unreadable(format!("stream {:?}", head.stream)))?;
        let chain = head.chain.as_bytes().as_slice();
        let changed = self.link.execute(
            "UPDATE log_head SET counter = $2, chain = $3, at = $4 WHERE stream = $1",
            &[&number, &signed(head.counter), &chain, &head.at.as_ms()],
        )?;
        assert!(changed == 1, "the head was locked when the group began");
        Ok(())
    }

    fn set_witness(&mut self, witness: &Witness) -> Result<()> {
        put_witness(self.link, witness)
    }

    fn outcome(&mut self, operation_id: &OperationId) -> Result<Option<Outcome>> {
        if !self.locked.operations.contains(operation_id) {
            return Ok(None);
        }
        self.queries().outcome(operation_id)
    }

    fn put_outcome(&mut self, committed: &Committed, salt: &Salt, request: &Hash) -> Result<()> {
        let operation = committed.operation_id.raw();
        let (salt, request) = (salt.0.as_slice(), request.as_bytes().as_slice());
        self.locked.operations.insert(committed.operation_id);
        self.link
            .execute(
                "INSERT INTO outcomes VALUES ($1, $2, $3, $4, $5)",
                &[&bytes(&operation), &salt, &request, &committed.at.as_ms(), &row::write_outcome(committed)],
            )
            .map(|_| ())
    }

    fn aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        self.queries().aggregate(spec, name, group)
    }

    fn add_to_aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value], difference: i64) -> Result<()> {
        let sql = "INSERT INTO aggregates VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (kind, name, members) DO UPDATE SET value = aggregates.value + excluded.value";
        self.link.execute(sql, &[&spec.kind, &name, &row::write_group(group), &difference]).map(|_| ())
    }
}

impl PostgresTxn<'_> {
    /// Another node made the row after this group had looked for it.
    fn made_elsewhere(&mut self, row: &Row) -> Error {
        let spec = row.spec;
        let sql = format!("SELECT version, deleted FROM {} WHERE id = $1", quoted(spec.table));
        let found = self.link.query(&sql, &[&bytes(&row.id)]).and_then(|rows| {
            let found = rows.first().map(|row| Ok((get::<i64>(row, 0)?.unsigned_abs(), get::<i16>(row, 1)? != 0)));
            found.transpose()
        });
        match found {
            Ok(Some((version, deleted))) => {
                let (kind, prefix, current) = (spec.kind, spec.prefix, Some(version));
                Error::VersionConflict { kind, prefix, id: row.id, expected: None, current, deleted }
            }
            Ok(None) => self.link.collided(&format!("{} {} came and went", spec.kind, row.id)),
            Err(error) => error,
        }
    }
}

pub(crate) fn put_witness(link: &mut Link, witness: &Witness) -> Result<()> {
    let head = &witness.head;
    let (host, chain) = (head.stream.host.raw(), head.chain.as_bytes().as_slice());
    link.execute(
        "INSERT INTO witnesses VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (domain, host, stream) \
         DO UPDATE SET counter = excluded.counter, chain = excluded.chain, at = excluded.at \
         WHERE excluded.counter >= witnesses.counter",
        &[&witness.domain.as_str(), &bytes(&host), &head.stream.stream.as_str(), &signed(head.counter), &chain, &head.at.as_ms()],
    )
    .map(|_| ())
}

/// Makes a row; false when its id is there already.
pub(crate) fn insert_row(link: &mut Link, streams: &Streams, row: &Row, columns: &[Value]) -> Result<bool> {
    let spec = row.spec;
    let names: String = column_names(spec).iter().map(|name| format!(", {name}")).collect();
    let places: String = column_names(spec).iter().zip(8..).map(|(name, place)| format!(", {}", place_of(name, place))).collect();
    let sql = format!(
        "INSERT INTO {}(id, version, workspace, deleted, pos, state, body{names}) VALUES ($1, $2, $3, $4, $5, $6, $7{places}) \
         ON CONFLICT (id) DO NOTHING",
        quoted(spec.table)
    );
    Ok(write_row(link, streams, &sql, row, columns)? == 1)
}

fn update_row(link: &mut Link, streams: &Streams, row: &Row, columns: &[Value]) -> Result<()> {
    let spec = row.spec;
    let named: String =
        column_names(spec).iter().zip(8..).map(|(name, place)| format!(", {name} = {}", place_of(name, place))).collect();
    let sql = format!(
        "UPDATE {} SET version = $2, workspace = $3, deleted = $4, pos = $5, state = $6, body = $7{named} WHERE id = $1",
        quoted(spec.table)
    );
    let changed = write_row(link, streams, &sql, row, columns)?;
    assert!(changed == 1, "a known row was locked when the group began");
    Ok(())
}

/// The declared columns, then the words if the kind is searched.
fn column_names(spec: &Spec) -> Vec<String> {
    let words = (!spec.full_text.is_empty()).then(|| text::COLUMN.to_owned());
    spec.columns.iter().map(|column| quoted(column.name)).chain(words).collect()
}

fn place_of(name: &str, place: usize) -> String {
    if name == text::COLUMN { format!("array_to_tsvector(${place}::text[])") } else { format!("${place}") }
}

fn write_row(link: &mut Link, streams: &Streams, sql: &str, row: &Row, columns: &[Value]) -> Result<u64> {
    let spec = row.spec;
    let position = row.dot.map(|dot| streams.position(&dot)).transpose()?;
    let state = row::write_state(&row.state, row.dot.as_ref(), row.version);
    let body = row.body.as_deref().filter(|_| !spec.immutable);
    let words = if spec.full_text.is_empty() { None } else { row.parsed_body()?.map(|body| text::words_of(spec, &body)) };
    let (id, workspace) = (row.id, row.workspace.raw());
    let (id, version, deleted) = (bytes(&id), signed(row.version), i16::from(row.deleted));
    let workspace = bytes(&workspace);
    let fixed: [&(dyn ToSql + Sync); 7] = [&id, &version, &workspace, &deleted, &position, &state, &body];
    let bound: Vec<Bound<'_>> = columns.iter().map(Bound).collect();
    let mut all: Vec<&(dyn ToSql + Sync)> = fixed.into_iter().chain(bound.iter().map(|value| value as _)).collect();
    if !spec.full_text.is_empty() {
        all.push(&words);
    }
    link.try_execute(sql, &all).map_err(|error| match error.code() {
        Some(&SqlState::UNIQUE_VIOLATION) => Error::DuplicateKey { kind: spec.kind, prefix: spec.prefix, id: row.id },
        Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => {
            Error::InvalidCommit(format!("a {} has a value that is too long for an index", spec.kind))
        }
        _ => link.failed(&error),
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

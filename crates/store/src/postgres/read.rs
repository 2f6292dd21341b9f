//! Snapshots: a bounded number of connections, each lent for a short time with a repeatable-read transaction on it.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use domain::causality::StreamId;
use domain::commit::Committed;
use domain::entry::{Head, Witness};
use domain::id::{HistoryId, OperationId, RawId, WorkspaceId};
use domain::limits::SNAPSHOT_AGE_MS_MAX;
use domain::record::{Spec, Value};
use postgres::types::ToSql;

use crate::env::Env;
use crate::pool::Pool;
use crate::postgres::connect::Link;
use crate::postgres::query::{self, Bound, Queries, quoted, row_columns, type_of, value};
use crate::postgres::{PgLocation, text};
use crate::store::{Direction, FullText, Logged, Page, PageKey, Reader, Row, Scan, Snapshot, Stored};
use crate::streams::Streams;
use crate::{Error, Result};

/// Reads one domain's schema.
#[derive(Clone)]
pub struct PostgresReader {
    location: PgLocation,
    env: Env,
    pool: Arc<Pool<Link>>,
}

impl fmt::Debug for PostgresReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresReader").field("domain", &self.location.domain).finish_non_exhaustive()
    }
}

impl PostgresReader {
    pub(crate) fn new(location: PgLocation, env: Env) -> Self {
        Self { location, env, pool: Arc::default() }
    }

    /// Drops connections that nobody uses: what cut one may have cut them all.
    pub(crate) fn close_idle(&self) {
        self.pool.close_idle();
    }

    fn snapshot(&self) -> Result<PostgresSnapshot<'_>> {
        let idle = self.pool.borrow();
        let (link, streams, heads) = self.begin(idle).inspect_err(|_| self.pool.give_back(None))?;
        let until_ms = self.env.clock.monotonic_ms() + SNAPSHOT_AGE_MS_MAX;
        Ok(PostgresSnapshot { reader: self, link: RefCell::new(Some(link)), streams, heads, until_ms })
    }

    /// Fixes the moment on an idle connection, or on a new one if there is none or it has ended meanwhile.
    fn begin(&self, idle: Option<Link>) -> Result<(Link, Streams, Vec<Head>)> {
        if let Some(mut link) = idle
            && let Ok((streams, heads)) = fix_moment(&mut link)
        {
            return Ok((link, streams, heads));
        }
        let mut link = Link::open(&self.location, &format!("verger {} reader", self.location.schema_name()))?;
        let (streams, heads) = fix_moment(&mut link)?;
        Ok((link, streams, heads))
    }
}

fn fix_moment(link: &mut Link) -> Result<(Streams, Vec<Head>)> {
    link.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    query::streams(link)
}

impl FullText for PostgresReader {
    fn search(&self, spec: &'static Spec, workspace: &WorkspaceId, words: &str, limit: usize) -> Result<Vec<Row>> {
        self.snapshot()?.with(|queries| text::search(queries, spec, workspace, words, limit))
    }
}

impl Reader for PostgresReader {
    fn read(&self) -> Result<Box<dyn Snapshot + '_>> {
        Ok(Box::new(self.snapshot()?))
    }
}

/// A read transaction on a lent connection.
struct PostgresSnapshot<'a> {
    reader: &'a PostgresReader,
    /// `None` only while it is given back.
    link: RefCell<Option<Link>>,
    streams: Streams,
    heads: Vec<Head>,
    until_ms: u64,
}

impl Drop for PostgresSnapshot<'_> {
    fn drop(&mut self) {
        let ended = self.link.take().and_then(|mut link| link.batch("ROLLBACK").is_ok().then_some(link));
        self.reader.pool.give_back(ended);
    }
}

impl PostgresSnapshot<'_> {
    /// The only way to the data, so that an old snapshot answers nothing.
    fn with<T>(&self, read: impl FnOnce(&mut Queries<'_>) -> Result<T>) -> Result<T> {
        if self.reader.env.clock.monotonic_ms() > self.until_ms {
            return Err(Error::SnapshotExpired);
        }
        let mut link = self.link.borrow_mut();
        let link = link.as_mut().ok_or(Error::SnapshotExpired)?;
        read(&mut Queries { link, streams: &self.streams })
    }
}

impl Snapshot for PostgresSnapshot<'_> {
    fn get(&self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        self.with(|queries| queries.row(spec, id))
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Page> {
        self.with(|queries| run_scan(queries, scan))
    }

    fn aggregate(&self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        self.with(|queries| queries.aggregate(spec, name, group))
    }

    fn history_id(&self) -> Result<HistoryId> {
        self.with(|queries| query::history(queries.link))
    }

    fn heads(&self) -> Result<Vec<Head>> {
        self.with(|_| Ok(self.heads.clone()))
    }

    fn streams(&self) -> Result<Vec<StreamId>> {
        self.with(|_| Ok(self.streams.iter().copied().collect()))
    }

    fn witnesses(&self) -> Result<Vec<Witness>> {
        self.with(|queries| query::witnesses(queries.link))
    }

    fn entries(&self, stream: &StreamId, after: u64, limit: usize) -> Result<Vec<(Logged, Stored)>> {
        self.with(|queries| queries.entries(stream, after, limit))
    }

    fn outcome(&self, operation_id: &OperationId) -> Result<Option<Committed>> {
        self.with(|queries| Ok(queries.outcome(operation_id)?.map(|outcome| outcome.committed)))
    }
}

fn run_scan(queries: &mut Queries<'_>, scan: &Scan<'_>) -> Result<Page> {
    let columns = scan.checked()?.columns;
    let after_id = scan.after.as_ref().map(|after| Value::from(after.id));
    let mut terms = Terms::default();
    for (name, value) in columns.iter().zip(&scan.prefix) {
        let equal = terms.equal(name, value);
        terms.all.push(equal);
    }
    if let Some(name) = columns.get(scan.prefix.len()) {
        terms.range(name, scan.from.as_ref(), scan.to.as_ref());
    }
    if let (Some(after), Some(id)) = (&scan.after, &after_id) {
        terms.seek(columns, scan.prefix.len(), after, scan.direction);
        terms.beyond(columns, after, id, scan.direction);
    }
    let named: String = columns.iter().map(|name| format!(", t.{}", quoted(name))).collect();
    let order = match scan.direction {
        Direction::Forward => "ASC NULLS FIRST",
        Direction::Backward => "DESC NULLS LAST",
    };
    let ordered: Vec<_> = columns.iter().chain(&["id"]).map(|name| format!("t.{} {order}", quoted(name))).collect();
    let filter: String = terms.all.iter().map(|term| format!(" AND {term}")).collect();
    let sql = format!(
        "SELECT {}{named} FROM {} t WHERE t.deleted = 0{filter} ORDER BY {} LIMIT {}",
        row_columns(scan.spec),
        quoted(scan.spec.table),
        ordered.join(", "),
        query::signed(scan.limit).saturating_add(1)
    );
    let bound: Vec<Bound<'_>> = terms.values.into_iter().map(Bound).collect();
    let params: Vec<&(dyn ToSql + Sync)> = bound.iter().map(|value| value as _).collect();
    let mut found = Vec::new();
    for row in queries.link.query(&sql, &params)? {
        let read = queries.read_row(scan.spec, &row)?;
        let key = (7..).zip(columns).map(|(column, name)| value(&row, column, type_of(scan.spec, name)));
        found.push((PageKey { values: key.collect::<Result<_>>()?, id: read.id }, read));
    }
    let next = (found.len() > scan.limit && scan.limit > 0).then(|| found[scan.limit - 1].0.clone());
    Ok(Page { rows: found.into_iter().take(scan.limit).map(|(_, row)| row).collect(), next })
}

/// The conditions of a scan. NULL comes before everything else, but SQL's comparisons do not know that, and an index serves
/// `IS NULL` and `=` but not `IS NOT DISTINCT FROM`: so each condition is written for the value at hand.
#[derive(Default)]
struct Terms<'a> {
    values: Vec<&'a Value>,
    all: Vec<String>,
}

impl<'a> Terms<'a> {
    fn compare(&mut self, name: &str, sign: &str, value: &'a Value) -> String {
        self.values.push(value);
        format!("t.{} {sign} ${}", quoted(name), self.values.len())
    }

    fn equal(&mut self, name: &str, value: &'a Value) -> String {
        match value {
            Value::Null => format!("t.{} IS NULL", quoted(name)),
            _ => self.compare(name, "=", value),
        }
    }

    /// Smaller or greater, as `sign` says (`<`, `<=`, `>`, `>=`), with NULL as the smallest.
    fn ordered(&mut self, name: &str, sign: &str, value: &'a Value) -> String {
        let quoted = quoted(name);
        match (value, sign) {
            (Value::Null, ">=") => "true".to_owned(),
            (Value::Null, ">") => format!("t.{quoted} IS NOT NULL"),
            (Value::Null, "<=") => format!("t.{quoted} IS NULL"),
            (Value::Null, _) => "false".to_owned(),
            (_, "<" | "<=") => format!("({} OR t.{quoted} IS NULL)", self.compare(name, sign, value)),
            (_, _) => self.compare(name, sign, value),
        }
    }

    /// Inclusive from, exclusive to; whoever asks for a range does not ask for rows without a value.
    fn range(&mut self, name: &str, from: Option<&'a Value>, to: Option<&'a Value>) {
        for (bound, sign) in [(from, ">="), (to, "<")] {
            let term = match bound {
                None => continue,
                Some(Value::Null) if sign == "<" => "false".to_owned(),
                Some(Value::Null) => format!("t.{} IS NOT NULL", quoted(name)),
                Some(value) => self.compare(name, sign, value),
            };
            self.all.push(term);
        }
    }

    /// A bound that the index can jump to; without it a page would cost as much as all pages before it.
    fn seek(&mut self, columns: &[&str], width: usize, after: &'a PageKey, direction: Direction) {
        let Some((name, value)) = columns.get(width).zip(after.values.get(width)) else { return };
        let sign = if direction == Direction::Forward { ">=" } else { "<=" };
        let term = self.ordered(name, sign, value);
        self.all.push(term);
    }

    /// `(a, b, id) > (x, y, z)`, or smaller, written out column by column.
    fn beyond(&mut self, columns: &[&str], after: &'a PageKey, id: &'a Value, direction: Direction) {
        let sign = if direction == Direction::Forward { ">" } else { "<" };
        let names: Vec<&str> = columns.iter().copied().chain(["id"]).collect();
        let values: Vec<&'a Value> = after.values.iter().chain([id]).collect();
        let mut alternatives = Vec::new();
        for (width, (name, value)) in names.iter().zip(&values).enumerate() {
            let mut terms: Vec<String> = Vec::new();
            for (name, value) in names.iter().zip(&values).take(width) {
                terms.push(self.equal(name, value));
            }
            terms.push(self.ordered(name, sign, value));
            alternatives.push(format!("({})", terms.join(" AND ")));
        }
        self.all.push(format!("({})", alternatives.join(" OR ")));
    }
}

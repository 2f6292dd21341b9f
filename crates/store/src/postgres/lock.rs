//! What a group locks before it decides anything: always in the same order, so that nodes wait for each other, never in a circle.
//!
//! The order: the own heads; the operations; the fences by name; guard and record rows by table and id; aggregates. A row that does not exist cannot be
//! locked: creating it meets the other node's at the table's key. Rows that were absent here stay absent for the whole group, so
//! everything a commit is decided on was read under a lock.

use std::collections::{BTreeMap, BTreeSet};

use domain::commit::{Commit, Guard};
use domain::hash::{Digest, Hash};
use domain::id::{OperationId, RawId, WorkspaceId};
use domain::record::{Aggregate, Record, Spec, Value};
use domain::records::fence::Fence;

use crate::Result;
use crate::postgres::PgLocation;
use crate::postgres::connect::Link;
use crate::postgres::query::{get, quoted, type_of, value};
use crate::row;
use crate::store::own_streams;
use crate::streams::Streams;

pub(crate) type RowKey = (&'static str, RawId);

/// What the group's transaction holds.
#[derive(Debug, Default)]
pub(crate) struct Locked {
    /// Every row the group names, and whether it exists.
    pub rows: BTreeMap<RowKey, bool>,
    /// Operations that may have an outcome; any other certainly has none.
    pub operations: BTreeSet<OperationId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    /// The row must stay as it is.
    Share,
    /// The row will change.
    Update,
}

impl Strength {
    const fn clause(self) -> &'static str {
        match self {
            Self::Share => "FOR SHARE",
            Self::Update => "FOR UPDATE",
        }
    }
}

type Wanted = BTreeMap<RowKey, (&'static Spec, Strength)>;
/// Kind, name and members, in the order of the table's key.
type AggregateKeys = BTreeSet<(&'static str, &'static str, String)>;

/// Locks everything that the group will read or write.
pub(crate) fn group(link: &mut Link, location: &PgLocation, commits: &[Commit]) -> Result<Locked> {
    let operations = lock_operations(link, location, commits)?;
    lock_fences(link, location, commits)?;
    let wanted = wanted_rows(location, commits);
    let mut rows: BTreeMap<RowKey, bool> = wanted.keys().map(|key| (*key, false)).collect();
    let mut aggregates = aggregates_after(location, commits);
    let keys: Vec<_> = wanted.iter().map(|((_, id), (spec, strength))| (*id, *spec, *strength)).collect();
    // One statement for each run of rows that are locked alike; sorting by strength first could close a circle.
    for run in keys.chunk_by(|(_, a, x), (_, b, y)| a.table == b.table && x == y) {
        let (_, spec, strength) = run[0];
        let ids: Vec<&[u8]> = run.iter().map(|(id, ..)| id.as_bytes().as_slice()).collect();
        for id in lock_rows(link, spec, strength, &ids, &mut aggregates)? {
            rows.insert((spec.table, id), true);
        }
    }
    lock_aggregates(link, &aggregates)?;
    Ok(Locked { rows, operations })
}

/// Locks the own streams' heads; waits for a lost connection's transaction to end.
pub(crate) fn heads(link: &mut Link, streams: &Streams, host: domain::id::HostId) -> Result<()> {
    let own: Vec<i64> = own_streams(host).iter().filter_map(|stream| streams.number(stream)).collect();
    link.query("SELECT stream FROM log_head WHERE stream = ANY($1) ORDER BY stream FOR UPDATE", &[&own]).map(|_| ())
}

/// The same operation may reach two nodes at once; the second waits here and then finds the first's outcome.
fn lock_operations(link: &mut Link, location: &PgLocation, commits: &[Commit]) -> Result<BTreeSet<OperationId>> {
    let ids: BTreeSet<RawId> = commits.iter().map(|commit| commit.operation_id.raw()).collect();
    let ids: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes().as_slice()).collect();
    let salt = Digest::new("verger.postgres.operation.v1").text(&location.schema()).finish();
    let mut keys: Vec<(i32, i32)> = ids.iter().map(|id| advisory_key(&salt, id)).collect();
    keys.sort_unstable();
    let (high, low): (Vec<i32>, Vec<i32>) = keys.into_iter().unzip();
    let sql = "SELECT count(pg_advisory_xact_lock(high, low)) FROM unnest($1::int4[], $2::int4[]) AS keys(high, low)";
    link.query(sql, &[&high, &low])?;
    let sql = "SELECT operation FROM log WHERE operation = ANY($1) AND before = 0 \
               UNION SELECT operation FROM outcomes WHERE operation = ANY($1)";
    let rows = link.query(sql, &[&ids])?;
    rows.iter().map(|row| read_id(row).map(OperationId::from_raw)).collect()
}

/// A fence that was never raised has no row to lock, so its subject is locked by name: shared by those it lets through, alone by
/// whoever raises it.
fn lock_fences(link: &mut Link, location: &PgLocation, commits: &[Commit]) -> Result<()> {
    let salt = Digest::new("verger.postgres.fence.v1").text(&location.schema()).finish();
    let mut wanted: BTreeMap<(i32, i32), Strength> = BTreeMap::new();
    for commit in commits {
        for guard in &commit.guards {
            if let Guard::Fence { subject, .. } = guard {
                wanted.entry(advisory_key(&salt, Fence::id_of(subject).as_bytes())).or_insert(Strength::Share);
            }
        }
        for write in commit.writes.iter().filter(|write| write.spec == Fence::SPEC) {
            wanted.insert(advisory_key(&salt, write.id.as_bytes()), Strength::Update);
        }
    }
    for ((high, low), strength) in wanted {
        let sql = match strength {
            Strength::Share => "SELECT count(pg_advisory_xact_lock_shared($1::int4, $2::int4))",
            Strength::Update => "SELECT count(pg_advisory_xact_lock($1::int4, $2::int4))",
        };
        link.query(sql, &[&high, &low])?;
    }
    Ok(())
}

/// Half of an id as the two halves of an advisory lock's key: apart from keys of one whole, which the slots have.
fn advisory_key(salt: &Hash, id: &[u8]) -> (i32, i32) {
    let half = |from: usize| {
        let byte = |at: usize| id[at] ^ salt.as_bytes()[at];
        i32::from_be_bytes([byte(from), byte(from + 1), byte(from + 2), byte(from + 3)])
    };
    (half(0), half(4))
}

/// The rows that guards and writes name; the stronger lock if both do. Kinds that are not stored here are refused on their way.
fn wanted_rows(location: &PgLocation, commits: &[Commit]) -> Wanted {
    let mut wanted = Wanted::new();
    let mut want = |spec: &'static Spec, id: RawId, strength: Strength| {
        if location.kinds.contains(&spec) {
            let known = wanted.entry((spec.table, id)).or_insert((spec, strength));
            known.1 = strength.max(known.1);
        }
    };
    for commit in commits {
        for guard in &commit.guards {
            match guard {
                Guard::Fence { subject, .. } => want(Fence::SPEC, Fence::id_of(subject), Strength::Share),
                Guard::Version { spec, id, .. } | Guard::Live { spec, id } => want(spec, *id, Strength::Share),
                Guard::AtMost { .. } => {}
            }
        }
        for write in &commit.writes {
            want(write.spec, write.id, Strength::Update);
        }
    }
    wanted
}

/// Locks rows of one table by id; those that will change also name the aggregates that they are part of now.
fn lock_rows(
    link: &mut Link,
    spec: &'static Spec,
    strength: Strength,
    ids: &[&[u8]],
    aggregates: &mut AggregateKeys,
) -> Result<Vec<RawId>> {
    let counted = strength == Strength::Update && !spec.aggregates.is_empty();
    let named: String = if counted {
        spec.columns
            .iter()
            .map(|column| format!(", t.{}", quoted(column.name)))
            .chain([", t.workspace, t.deleted".to_owned()])
            .collect()
    } else {
        String::new()
    };
    let (table, clause) = (quoted(spec.table), strength.clause());
    let sql = format!("SELECT t.id{named} FROM {table} t WHERE t.id = ANY($1) ORDER BY t.id {clause}");
    let rows = link.query(&sql, &[&ids])?;
    for row in rows.iter().filter(|_| counted) {
        let width = spec.columns.len();
        let columns: Vec<Value> =
            (1..).zip(spec.columns).map(|(place, column)| value(row, place, column.value_type)).collect::<Result<_>>()?;
        let workspace = value(row, width + 1, type_of(spec, "workspace"))?;
        if get::<i16>(row, width + 2)? == 0 {
            aggregates.extend(spec.aggregates.iter().map(|aggregate| key_of(spec, aggregate, &columns, &workspace)));
        }
    }
    rows.iter().map(read_id).collect()
}

/// The aggregates that guards compare and that new bodies will be part of.
fn aggregates_after(location: &PgLocation, commits: &[Commit]) -> AggregateKeys {
    let mut keys = AggregateKeys::new();
    for commit in commits {
        for guard in &commit.guards {
            if let Guard::AtMost { spec, aggregate, group, .. } = guard {
                keys.insert((spec.kind, aggregate, row::write_group(group)));
            }
        }
        for write in commit.writes.iter().filter(|write| location.kinds.contains(&write.spec)) {
            // A body that does not project is refused on its way.
            let Some(Ok(columns)) = write.change.body().map(|body| write.spec.project(body)) else { continue };
            let workspace = workspace_value(write.workspace);
            keys.extend(write.spec.aggregates.iter().map(|aggregate| key_of(write.spec, aggregate, &columns, &workspace)));
        }
    }
    keys
}

fn workspace_value(workspace: WorkspaceId) -> Value {
    Value::from(workspace.raw())
}

fn key_of(
    spec: &'static Spec,
    aggregate: &'static Aggregate,
    columns: &[Value],
    workspace: &Value,
) -> (&'static str, &'static str, String) {
    let value_of = |name: &&str| match spec.columns.iter().position(|column| column.name == *name) {
        Some(place) => columns[place].clone(),
        None => workspace.clone(),
    };
    let members: Vec<Value> = aggregate.group.iter().map(value_of).collect();
    (spec.kind, aggregate.name, row::write_group(&members))
}

/// Two nodes that add to the same aggregate take turns, so that a limit holds over both.
fn lock_aggregates(link: &mut Link, keys: &AggregateKeys) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let kinds: Vec<&str> = keys.iter().map(|(kind, ..)| *kind).collect();
    let names: Vec<&str> = keys.iter().map(|(_, name, _)| *name).collect();
    let members: Vec<&str> = keys.iter().map(|(.., members)| members.as_str()).collect();
    // The update that never happens locks the row all the same.
    let sql = "INSERT INTO aggregates \
               SELECT kind, name, members, 0 FROM unnest($1::text[], $2::text[], $3::text[]) AS keys(kind, name, members) \
               ON CONFLICT (kind, name, members) DO UPDATE SET value = excluded.value WHERE false";
    link.execute(sql, &[&kinds, &names, &members]).map(|_| ())
}

fn read_id(row: &postgres::Row) -> Result<RawId> {
    let bytes: &[u8] = get(row, 0)?;
    RawId::from_slice(bytes).ok_or_else(|| crate::Error::Unreadable("an id has not sixteen bytes".to_owned()))
}

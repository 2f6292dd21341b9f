//! The in-memory backend: the reference the others are compared with, and what a simulator runs on.
//!
//! State is a set of ordered maps behind an `Arc`. A snapshot is a clone of the `Arc`; a transaction keeps an undo list and walks it
//! back. It keeps the same promises as the others but durability, and searches by plain word comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use domain::causality::{Domain, Dot, StreamId, VectorClock};
use domain::commit::{Commit, Committed, Written};
use domain::entry::{Head, Witness};
use domain::hash::{Hash, Salt};
use domain::id::{HistoryId, HostId, OperationId, RawId, WorkspaceId};
use domain::record::{Body, Spec, Value};

use crate::apply::{self, Outcome, Position, Txn};
use crate::env::Env;
use crate::store::{
    Direction, FullText, GroupFailure, Logged, Page, PageKey, Reader, Row, Scan, Snapshot, Store, Stored, own_streams,
};
use crate::{Error, Result};

type AggregateKey = (&'static str, String, Vec<Value>);

#[derive(Debug, Clone)]
struct State {
    history: HistoryId,
    rows: BTreeMap<(&'static str, RawId), (Row, Vec<Value>)>,
    log: BTreeMap<Dot, (Logged, Stored)>,
    /// First entries of the operations that are in the log.
    operations: BTreeMap<OperationId, Vec<Dot>>,
    outcomes: BTreeMap<OperationId, (Committed, Salt, Hash)>,
    aggregates: BTreeMap<AggregateKey, i64>,
    heads: BTreeMap<StreamId, Head>,
    witnesses: BTreeMap<(Domain, StreamId), Head>,
}

/// What a change has to put back.
#[derive(Debug)]
enum Undo {
    Row((&'static str, RawId), Option<(Row, Vec<Value>)>),
    Log(Dot, OperationId),
    Stored(Dot, Stored),
    Outcome(OperationId),
    Aggregate(AggregateKey, i64),
    Head(StreamId, Option<Head>),
    Witness((Domain, StreamId), Option<Head>),
}

#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Arc<State>>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Arc<State>> {
        self.0.lock().expect("no thread panics while it holds the state")
    }
}

/// A domain in memory.
pub struct MemoryStore {
    env: Env,
    position: Position,
    shared: Shared,
    failing: Option<String>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("position", &self.position).finish_non_exhaustive()
    }
}

impl MemoryStore {
    #[must_use]
    pub fn new(domain: Domain, host: HostId, env: Env) -> Self {
        let source = env.clone();
        Self::starting(domain, host, env, &source)
    }

    /// A domain whose history id comes from another source than what is written to it, as that of a file that was made before.
    #[must_use]
    pub fn starting(domain: Domain, host: HostId, env: Env, made_with: &Env) -> Self {
        let mut heads = BTreeMap::new();
        let mut own = BTreeMap::new();
        for stream in own_streams(host) {
            let head =
                Head { stream, counter: 0, chain: domain::entry::genesis(domain, &stream), at: domain::time::Timestamp::EPOCH };
            heads.insert(stream, head);
            own.insert(stream.stream, head);
        }
        let state = State {
            history: HistoryId::from_raw(made_with.id()),
            rows: BTreeMap::new(),
            log: BTreeMap::new(),
            operations: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            heads,
            witnesses: BTreeMap::new(),
        };
        let position = Position { domain, host, heads: own, clock: VectorClock::default() };
        Self { env, position, shared: Shared(Arc::new(Mutex::new(Arc::new(state)))), failing: None }
    }
}

impl Store for MemoryStore {
    fn domain(&self) -> Domain {
        self.position.domain
    }

    fn host(&self) -> HostId {
        self.position.host
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.shared.clone())
    }

    fn try_group(&mut self, group: &[Commit]) -> std::result::Result<Vec<Result<Committed>>, GroupFailure> {
        let mut guard = self.shared.lock();
        let mut txn = MemoryTxn { state: Arc::make_mut(&mut guard), undo: Vec::new(), savepoint: 0 };
        apply::group(&mut txn, &mut self.position, &self.env, group).map_err(|error| {
            txn.undo_to(0);
            GroupFailure::RolledBack(error)
        })
    }

    fn reopen(&mut self) -> Result<()> {
        Ok(())
    }

    fn lookup(&mut self, commit: &Commit) -> Result<Option<Committed>> {
        let mut guard = self.shared.lock();
        let mut txn = MemoryTxn { state: Arc::make_mut(&mut guard), undo: Vec::new(), savepoint: 0 };
        apply::repeated(&mut txn, commit)
    }

    fn witness(&mut self, witnesses: &[Witness]) -> Result<()> {
        let mut guard = self.shared.lock();
        let state = Arc::make_mut(&mut guard);
        state.witnesses.extend(witnesses.iter().map(|witness| ((witness.domain, witness.head.stream), witness.head)));
        Ok(())
    }

    fn failing(&mut self) -> &mut Option<String> {
        &mut self.failing
    }
}

struct MemoryTxn<'a> {
    state: &'a mut State,
    undo: Vec<Undo>,
    savepoint: usize,
}

impl MemoryTxn<'_> {
    fn undo_to(&mut self, length: usize) {
        while self.undo.len() > length {
            let Some(undo) = self.undo.pop() else { return };
            match undo {
                Undo::Row(key, row) => restore(&mut self.state.rows, key, row),
                Undo::Head(key, head) => restore(&mut self.state.heads, key, head),
                Undo::Witness(key, head) => restore(&mut self.state.witnesses, key, head),
                Undo::Stored(dot, stored) => {
                    if let Some(entry) = self.state.log.get_mut(&dot) {
                        entry.1 = stored;
                    }
                }
                Undo::Log(dot, operation_id) => {
                    self.state.log.remove(&dot);
                    self.state.operations.remove(&operation_id);
                }
                Undo::Outcome(operation_id) => {
                    self.state.outcomes.remove(&operation_id);
                }
                Undo::Aggregate(key, value) => {
                    self.state.aggregates.insert(key, value);
                }
            }
        }
    }
}

fn restore<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

impl Txn for MemoryTxn<'_> {
    fn savepoint(&mut self) -> Result<()> {
        self.savepoint = self.undo.len();
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        self.undo_to(self.savepoint);
        Ok(())
    }

    fn row(&mut self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        Ok(self.state.rows.get(&(spec.kind, *id)).map(|(row, _)| row.clone()))
    }

    fn put_row(&mut self, row: &Row, columns: &[Value], _known: bool) -> Result<()> {
        for index in row.spec.indexes.iter().filter(|index| index.unique && !row.deleted) {
            let key = index_key(row, columns, index.columns);
            let taken = self
                .state
                .rows_of(row.spec)
                .any(|(other, values)| other.id != row.id && !other.deleted && index_key(other, values, index.columns) == key);
            // As in SQL, a key that lacks a value is nobody's.
            if taken && !key.contains(&Value::Null) {
                return Err(Error::DuplicateKey { kind: row.spec.kind, prefix: row.spec.prefix, id: row.id });
            }
        }
        let key = (row.spec.kind, row.id);
        let before = self.state.rows.insert(key, (row.clone(), columns.to_vec()));
        self.undo.push(Undo::Row(key, before));
        Ok(())
    }

    fn remove_row(&mut self, spec: &'static Spec, id: &RawId) -> Result<()> {
        let before = self.state.rows.remove(&(spec.kind, *id));
        self.undo.push(Undo::Row((spec.kind, *id), before));
        Ok(())
    }

    fn index_text(&mut self, _row: &Row, _before: Option<&Body>, _after: Option<&Body>) -> Result<()> {
        Ok(())
    }

    fn append(&mut self, logged: &Logged, stored: &Stored) -> Result<()> {
        let entry = &logged.entry;
        if entry.dot.counter == entry.first {
            self.state.operations.entry(entry.operation_id).or_default().push(entry.dot);
        }
        self.undo.push(Undo::Log(entry.dot, entry.operation_id));
        self.state.log.insert(entry.dot, (logged.clone(), stored.clone()));
        Ok(())
    }

    fn entry(&mut self, dot: &Dot) -> Result<Option<Logged>> {
        Ok(self.state.log.get(dot).map(|(logged, _)| logged.clone()))
    }

    fn erase(&mut self, dots: &[Dot], operations: &[OperationId]) -> Result<()> {
        let firsts: Vec<Dot> = operations.iter().filter_map(|id| self.state.operations.get(id)).flatten().copied().collect();
        let mut change = |dot: &Dot, change: fn(&mut Stored)| {
            if let Some((_, stored)) = self.state.log.get_mut(dot) {
                self.undo.push(Undo::Stored(*dot, stored.clone()));
                change(stored);
            }
        };
        dots.iter().for_each(|dot| change(dot, |stored| *stored = Stored::default()));
        firsts.iter().for_each(|dot| change(dot, |stored| stored.request = None));
        Ok(())
    }

    fn set_head(&mut self, head: &Head) -> Result<()> {
        let before = self.state.heads.insert(head.stream, *head);
        self.undo.push(Undo::Head(head.stream, before));
        Ok(())
    }

    fn set_witness(&mut self, witness: &Witness) -> Result<()> {
        let key = (witness.domain, witness.head.stream);
        let before = self.state.witnesses.insert(key, witness.head);
        self.undo.push(Undo::Witness(key, before));
        Ok(())
    }

    fn outcome(&mut self, operation_id: &OperationId) -> Result<Option<Outcome>> {
        Ok(self.state.outcome(operation_id))
    }

    fn put_outcome(&mut self, committed: &Committed, salt: &Salt, request: &Hash) -> Result<()> {
        self.state.outcomes.insert(committed.operation_id, (committed.clone(), *salt, *request));
        self.undo.push(Undo::Outcome(committed.operation_id));
        Ok(())
    }

    fn aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        Ok(self.state.aggregate_value(spec, name, group))
    }

    fn add_to_aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value], difference: i64) -> Result<()> {
        let key = (spec.kind, name.to_owned(), group.to_vec());
        let value = self.state.aggregates.entry(key.clone()).or_insert(0);
        self.undo.push(Undo::Aggregate(key, *value));
        *value += difference;
        Ok(())
    }
}

/// The values of an index's columns for a row.
fn index_key(row: &Row, columns: &[Value], names: &[&str]) -> Vec<Value> {
    let value = |name: &&str| match row.spec.columns.iter().position(|column| column.name == *name) {
        Some(position) => columns[position].clone(),
        None => Value::from(row.workspace.raw()),
    };
    names.iter().map(value).collect()
}

impl State {
    fn rows_of(&self, spec: &'static Spec) -> impl Iterator<Item = &(Row, Vec<Value>)> {
        let first = (spec.kind, RawId::from_bytes([0; 16]));
        self.rows.range(first..).take_while(move |((kind, _), _)| *kind == spec.kind).map(|(_, row)| row)
    }

    fn aggregate_value(&self, spec: &'static Spec, name: &str, group: &[Value]) -> i64 {
        self.aggregates.get(&(spec.kind, name.to_owned(), group.to_vec())).copied().unwrap_or(0)
    }

    fn outcome(&self, operation_id: &OperationId) -> Option<Outcome> {
        if let Some((committed, salt, request)) = self.outcomes.get(operation_id) {
            return Some(Outcome { committed: committed.clone(), request: Some((*salt, *request)) });
        }
        let firsts = self.operations.get(operation_id)?;
        let mut writes = Vec::new();
        let mut request = None;
        let mut at = domain::time::Timestamp::EPOCH;
        for first in firsts {
            let (logged, stored) = self.log.get(first)?;
            request = request.or_else(|| Some((stored.salt?, stored.request?)));
            let last = Dot { counter: logged.entry.last, ..*first };
            for (dot, (logged, _)) in self.log.range(*first..=last) {
                let entry = &logged.entry;
                at = at.max(entry.at);
                writes.push(Written {
                    kind: entry.kind.clone(),
                    id: entry.id,
                    op: entry.op,
                    version: entry.version,
                    dot: Some(*dot),
                });
            }
        }
        writes.sort_by_key(|write| write.dot);
        Some(Outcome { committed: Committed { operation_id: *operation_id, at, writes, repeated: false }, request })
    }
}

impl FullText for Shared {
    fn search(&self, spec: &'static Spec, workspace: &WorkspaceId, words: &str, limit: usize) -> Result<Vec<Row>> {
        MemorySnapshot(self.lock().clone()).search(spec, workspace, words, limit)
    }
}

impl Reader for Shared {
    fn read(&self) -> Result<Box<dyn Snapshot + '_>> {
        Ok(Box::new(MemorySnapshot(self.lock().clone())))
    }
}

struct MemorySnapshot(Arc<State>);

impl Snapshot for MemorySnapshot {
    fn get(&self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        Ok(self.0.rows.get(&(spec.kind, *id)).map(|(row, _)| row.clone()))
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Page> {
        let index = scan.checked()?;
        let width = scan.prefix.len();
        let bounded = scan.from.is_some() || scan.to.is_some();
        let in_range = |key: &PageKey| {
            key.values.starts_with(&scan.prefix)
                && !(bounded && key.values[width] == Value::Null)
                && scan.from.as_ref().is_none_or(|from| key.values[width] >= *from)
                && scan.to.as_ref().is_none_or(|to| key.values[width] < *to)
        };
        let after = |key: &PageKey| match (&scan.after, scan.direction) {
            (None, _) => true,
            (Some(after), Direction::Forward) => key > after,
            (Some(after), Direction::Backward) => key < after,
        };
        let live = self.0.rows_of(scan.spec).filter(|(row, _)| !row.deleted);
        let keyed = live.map(|(row, columns)| (PageKey { values: index_key(row, columns, index.columns), id: row.id }, row));
        let mut found: Vec<_> = keyed.filter(|(key, _)| in_range(key) && after(key)).collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        if scan.direction == Direction::Backward {
            found.reverse();
        }
        let next = scan.limit.checked_sub(1).filter(|_| found.len() > scan.limit).map(|last| found[last].0.clone());
        Ok(Page { rows: found.into_iter().take(scan.limit).map(|(_, row)| row.clone()).collect(), next })
    }

    fn aggregate(&self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        Ok(self.0.aggregate_value(spec, name, group))
    }

    fn history_id(&self) -> Result<HistoryId> {
        Ok(self.0.history)
    }

    fn heads(&self) -> Result<Vec<Head>> {
        Ok(self.0.heads.values().copied().collect())
    }

    fn witnesses(&self) -> Result<Vec<Witness>> {
        Ok(self.0.witnesses.iter().map(|((domain, _), head)| Witness { domain: *domain, head: *head }).collect())
    }

    fn entries(&self, stream: &StreamId, after: u64, limit: usize) -> Result<Vec<(Logged, Stored)>> {
        let first = Bound::Excluded(Dot { stream: *stream, counter: after });
        let last = Bound::Included(Dot { stream: *stream, counter: u64::MAX });
        Ok(self.0.log.range((first, last)).take(limit).map(|(_, entry)| entry.clone()).collect())
    }

    fn outcome(&self, operation_id: &OperationId) -> Result<Option<Committed>> {
        Ok(self.0.outcome(operation_id).map(|outcome| outcome.committed))
    }
}

impl FullText for MemorySnapshot {
    fn search(&self, spec: &'static Spec, workspace: &WorkspaceId, words: &str, limit: usize) -> Result<Vec<Row>> {
        let wanted = words_of(words);
        let mut found = Vec::new();
        for (row, columns) in self.0.rows_of(spec).filter(|(row, _)| !row.deleted && row.workspace == *workspace) {
            let Some(body) = row.parsed_body()? else { continue };
            let present: BTreeSet<_> = spec.full_text.iter().flat_map(|field| words_of(body.text_of(field))).collect();
            if !wanted.is_empty() && wanted.is_subset(&present) {
                found.push((std::cmp::Reverse(columns.first().cloned()), row.clone()));
            }
        }
        found.sort_by(|(a, left), (b, right)| a.cmp(b).then(left.id.cmp(&right.id)));
        Ok(found.into_iter().take(limit).map(|(_, row)| row).collect())
    }
}

fn words_of(text: &str) -> BTreeSet<String> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

//! What a commit does, once for all backends.
//!
//! Everything here happens inside a transaction that the backend opened. A backend implements [`Txn`]: plain reads and writes of rows.
//! Counters, chain and clock are values ([`Position`]) carried through the group; a refused commit restores them with its
//! savepoint, so counters stay dense. A refusal is a value; any other error ends the transaction.

use std::collections::{BTreeMap, BTreeSet};

use domain::causality::{Domain, Dot, Stream, StreamId, VectorClock};
use domain::commit::{Change, Commit, Committed, Expected, Guard, Write, Written};
use domain::entry::{Entry, FieldsSet, Head, Witness};
use domain::hash::{self, Hash, Salt};
use domain::id::{HostId, OperationId, RawId};
use domain::limits::{CAUSE_DEPTH_MAX, COMMIT_BYTES_MAX, COMMIT_GUARDS_MAX, COMMIT_WRITES_MAX};
use domain::plant::{self, Bug};
use domain::record::{Body, Class, Record, Spec, Value};
use domain::records::fence::Fence;
use domain::time::Timestamp;
use serde_json::json;

use crate::env::Env;
use crate::row;
use crate::store::{Logged, Row, RowState, Stored, own_streams};
use crate::{Error, Result};

/// Rows, for one transaction.
pub(crate) trait Txn {
    fn savepoint(&mut self) -> Result<()>;
    fn release(&mut self) -> Result<()>;
    fn rollback(&mut self) -> Result<()>;

    fn row(&mut self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>>;
    /// Writes a row and its index columns. A unique index that is hit is [`Error::DuplicateKey`].
    fn put_row(&mut self, row: &Row, columns: &[Value], known: bool) -> Result<()>;
    fn remove_row(&mut self, spec: &'static Spec, id: &RawId) -> Result<()>;
    fn index_text(&mut self, row: &Row, before: Option<&Body>, after: Option<&Body>) -> Result<()>;
    /// After the last commit of the group: what a backend put off until no savepoint is open.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn append(&mut self, logged: &Logged, stored: &Stored) -> Result<()>;
    fn entry(&mut self, dot: &Dot) -> Result<Option<Logged>>;
    /// Destroys bodies and salts, and the request hashes of the operations that wrote them.
    fn erase(&mut self, dots: &[Dot], operations: &[OperationId]) -> Result<()>;
    fn set_head(&mut self, head: &Head) -> Result<()>;
    fn set_witness(&mut self, witness: &Witness) -> Result<()>;

    fn outcome(&mut self, operation_id: &OperationId) -> Result<Option<Outcome>>;
    fn put_outcome(&mut self, committed: &Committed, salt: &Salt, request: &Hash) -> Result<()>;

    fn aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64>;
    fn add_to_aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value], difference: i64) -> Result<()>;
}

/// A stored outcome with what tells whether the request was the same.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub committed: Committed,
    /// Absent once the request's content was erased: then the id alone decides.
    pub request: Option<(Salt, Hash)>,
}

/// Where the host stands in its streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    pub domain: Domain,
    pub host: HostId,
    pub heads: BTreeMap<Stream, Head>,
    /// What is known of the other hosts' synced streams.
    pub clock: VectorClock,
}

impl Position {
    /// Where a host stands, and what is known of the others.
    pub(crate) fn of(domain: Domain, host: HostId, heads: &[Head]) -> Result<Self> {
        let own: BTreeMap<Stream, Head> =
            heads.iter().filter(|head| head.stream.host == host).map(|head| (head.stream.stream, *head)).collect();
        if let Some(missing) = own_streams(host).iter().find(|stream| !own.contains_key(&stream.stream)) {
            return Err(Error::Damaged { domain, message: format!("the head of stream {} is missing", missing.stream) });
        }
        let others = heads.iter().filter(|head| head.stream.host != host && head.stream.stream == Stream::Synced);
        let clock = others.map(|head| (head.stream.host, head.counter)).collect();
        Ok(Self { domain, host, heads: own, clock })
    }

    fn head(&mut self, stream: Stream) -> &mut Head {
        let Self { domain, host, heads, .. } = self;
        heads.entry(stream).or_insert_with(|| {
            let stream = StreamId { host: *host, stream };
            Head { stream, counter: 0, chain: domain::entry::genesis(*domain, &stream), at: Timestamp::EPOCH }
        })
    }
}

/// Applies a group inside an open transaction. An error ends the transaction, and the position is the one from before it.
pub(crate) fn group(txn: &mut dyn Txn, position: &mut Position, env: &Env, commits: &[Commit]) -> Result<Vec<Result<Committed>>> {
    let before = position.clone();
    each(txn, position, env, commits).inspect_err(|_| *position = before)
}

fn each(txn: &mut dyn Txn, position: &mut Position, env: &Env, commits: &[Commit]) -> Result<Vec<Result<Committed>>> {
    let now = env.clock.now();
    let mut results = Vec::with_capacity(commits.len());
    let before = position.heads.clone();
    for commit in commits {
        let saved = position.clone();
        txn.savepoint()?;
        match one(txn, position, env, now, commit) {
            Ok(committed) => {
                txn.release()?;
                results.push(Ok(committed));
            }
            Err(refusal) if refusal.is_refusal() => {
                txn.rollback()?;
                *position = saved;
                results.push(Err(refusal));
            }
            Err(error) => return Err(error),
        }
    }
    txn.finish()?;
    // INVARIANT: the head is written last, so that a cut tail with its head kept is always found.
    for (stream, head) in &position.heads {
        if before.get(stream) != Some(head) {
            txn.set_head(head)?;
        }
    }
    Ok(results)
}

fn one(txn: &mut dyn Txn, position: &mut Position, env: &Env, now: Timestamp, commit: &Commit) -> Result<Committed> {
    check_shape(position.domain, commit)?;
    if let Some(committed) = repeated(txn, commit)? {
        return Ok(committed);
    }
    for guard in &commit.guards {
        check_guard(txn, guard)?;
    }
    let mut ranges: BTreeMap<Stream, (u64, u64)> = BTreeMap::new();
    for stream in commit.writes.iter().filter_map(|write| write.spec.class.stream()) {
        let next = position.head(stream).counter + 1;
        ranges.entry(stream).and_modify(|(_, last)| *last += 1).or_insert((next, next));
    }
    let mut step = Step { txn, position, env, now, commit, ranges, logged_at: None };
    let mut writes = Vec::with_capacity(commit.writes.len());
    for write in &commit.writes {
        writes.push(step.write(write)?);
    }
    let logged_at = step.logged_at;
    if logged_at.is_some() {
        writes.retain(|write| write.dot.is_some());
        writes.sort_by_key(|write| write.dot);
    }
    for witness in &commit.witnesses {
        txn.set_witness(witness)?;
    }
    let committed = Committed { operation_id: commit.operation_id, at: logged_at.unwrap_or(now), writes, repeated: false };
    if logged_at.is_none() {
        let salt = env.salt();
        txn.put_outcome(&committed, &salt, &row::request_hash(&salt, &commit.request))?;
    }
    Ok(committed)
}

/// The first outcome of an operation that was done before.
pub(crate) fn repeated(txn: &mut dyn Txn, commit: &Commit) -> Result<Option<Committed>> {
    let Some(Outcome { committed, request }) = txn.outcome(&commit.operation_id)? else {
        return Ok(None);
    };
    match request {
        Some((salt, stored)) if !row::request_is_whole(&salt, &stored) => {
            Err(Error::Unreadable(format!("the request hash of {}", commit.operation_id)))
        }
        Some((salt, stored)) if row::request_hash(&salt, &commit.request) != stored => {
            Err(Error::OperationIdReused { operation_id: commit.operation_id })
        }
        _ => Ok(Some(Committed { repeated: true, ..committed })),
    }
}

fn check_shape(domain: Domain, commit: &Commit) -> Result<()> {
    let invalid = |message: String| Err(Error::InvalidCommit(message));
    if commit.writes.is_empty() || commit.writes.len() > COMMIT_WRITES_MAX {
        return invalid(format!("it has {} writes; 1 to {COMMIT_WRITES_MAX} are allowed", commit.writes.len()));
    }
    if commit.body_bytes() + commit.request.len() > COMMIT_BYTES_MAX {
        return invalid(format!("its bodies and its request have more than {COMMIT_BYTES_MAX} bytes"));
    }
    if commit.guards.len() > COMMIT_GUARDS_MAX {
        return invalid(format!("it has {} guards; at most {COMMIT_GUARDS_MAX} are allowed", commit.guards.len()));
    }
    if commit.cause.depth > CAUSE_DEPTH_MAX {
        return invalid(format!("its cause depth is {}; at most {CAUSE_DEPTH_MAX} is allowed", commit.cause.depth));
    }
    for guard in &commit.guards {
        if let Some(spec) = guarded(guard).filter(|spec| !spec.domains.contains(&domain)) {
            return invalid(format!("a guard about a {} cannot be checked in the {domain} domain", spec.kind));
        }
        if let Guard::AtMost { spec, aggregate, .. } = guard
            && spec.aggregate(aggregate).is_none()
        {
            return invalid(format!("a {} has no aggregate `{aggregate}`", spec.kind));
        }
    }
    for write in &commit.writes {
        if !write.spec.domains.contains(&domain) {
            return invalid(format!("a {} does not belong in the {domain} domain", write.spec.kind));
        }
        let creates = matches!((&write.change, write.expected), (Change::Put(_), Expected::Absent));
        if write.spec.immutable && !creates && !matches!(write.change, Change::Erase) {
            return invalid(format!("a {} is written once", write.spec.kind));
        }
        // Field names are joined by commas in the log, and `*` stands for all of them.
        let plain = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if write.spec.mergeable && write.change.body().is_some_and(|body| !body.fields().keys().all(plain)) {
            return invalid(format!("a field of a {} has a name that is not a plain word", write.spec.kind));
        }
        if matches!(write.change, Change::Erase) && write.spec.class == Class::Control {
            return invalid(format!("a {} has nothing to erase", write.spec.kind));
        }
    }
    Ok(())
}

/// The kind that a guard looks at; a fence stands in every domain.
fn guarded(guard: &Guard) -> Option<&'static Spec> {
    match guard {
        Guard::Fence { .. } => None,
        Guard::Version { spec, .. } | Guard::Live { spec, .. } | Guard::AtMost { spec, .. } => Some(spec),
    }
}

fn check_guard(txn: &mut dyn Txn, guard: &Guard) -> Result<()> {
    match guard {
        Guard::Fence { subject, epoch } => {
            let current = fence_epoch(txn, subject)?;
            if current > *epoch {
                return Err(Error::Fenced { subject: subject.clone(), epoch: *epoch, current });
            }
        }
        Guard::Version { spec, id, version } => {
            let row = txn.row(spec, id)?.filter(|row| !row.deleted);
            if row.as_ref().is_none_or(|row| row.version != *version) {
                let found = row.map_or_else(|| "it is gone".to_owned(), |row| format!("it is at version {}", row.version));
                return Err(Error::GuardFailed { kind: spec.kind, prefix: spec.prefix, id: *id, found });
            }
        }
        Guard::Live { spec, id } => {
            if txn.row(spec, id)?.is_none_or(|row| row.deleted) {
                return Err(Error::GuardFailed { kind: spec.kind, prefix: spec.prefix, id: *id, found: "it is gone".to_owned() });
            }
        }
        Guard::AtMost { spec, aggregate, group, adding, limit } => {
            let current = txn.aggregate(spec, aggregate, group)?;
            if current.saturating_add(*adding) > *limit {
                return Err(Error::LimitReached { kind: spec.kind, aggregate, current, adding: *adding, limit: *limit });
            }
        }
    }
    Ok(())
}

fn fence_epoch(txn: &mut dyn Txn, subject: &str) -> Result<u64> {
    let row = txn.row(Fence::SPEC, &Fence::id_of(subject))?;
    let fence: Option<Fence> = row.map(|row| row.record()).transpose()?.flatten();
    Ok(fence.map_or(0, |fence| fence.epoch))
}

/// One commit on its way through the transaction.
struct Step<'a> {
    txn: &'a mut dyn Txn,
    position: &'a mut Position,
    env: &'a Env,
    now: Timestamp,
    commit: &'a Commit,
    ranges: BTreeMap<Stream, (u64, u64)>,
    /// The newest entry's time; the request hash is beside the first entry.
    logged_at: Option<Timestamp>,
}

impl Step<'_> {
    fn write(&mut self, write: &Write) -> Result<Written> {
        let before = self.txn.row(write.spec, &write.id)?;
        check_expected(write, before.as_ref())?;
        check_fence(write, before.as_ref())?;
        // Only what is merged, counted or searched asks what was there before; reading it costs more than the rest of the write.
        let spec = write.spec;
        let compares = spec.mergeable || !spec.aggregates.is_empty() || !spec.full_text.is_empty();
        let before_body = before.as_ref().filter(|_| compares).map(Row::parsed_body).transpose()?.flatten();
        let dot = write.spec.class.stream().map(|stream| {
            let counter = self.position.head(stream).counter + 1;
            Dot { stream: StreamId { host: self.position.host, stream }, counter }
        });
        let row = next_row(self.position.host, write, before.as_ref(), before_body.as_ref(), dot);
        if let Some(dot) = dot {
            let previous = before.as_ref().and_then(|row| row.dot);
            self.log(write, &row.0, row.1, dot, previous)?;
        }
        self.project(&row.0, before.as_ref(), before_body.as_ref(), write.change.body())?;
        Ok(Written { kind: write.spec.kind.to_owned(), id: write.id, op: write.change.op(), version: row.0.version, dot })
    }

    fn log(&mut self, write: &Write, row: &Row, fields: FieldsSet, dot: Dot, previous: Option<Dot>) -> Result<()> {
        let stream = dot.stream.stream;
        let (first, last) = self.ranges[&stream];
        let body = match &write.change {
            Change::Put(body) => Some(body.text().to_owned()),
            Change::Tombstone => None,
            Change::Erase => Some(self.erase_history(previous)?),
        };
        let salt = self.env.salt();
        let body_hash = body.as_ref().map(|body| hash::salted(&salt, body.as_bytes()));
        let at = self.now.max(self.position.head(stream).at);
        let entry = Entry {
            dot,
            first,
            last,
            kind: write.spec.kind.to_owned(),
            schema: write.spec.schema,
            workspace: write.workspace,
            id: write.id,
            op: write.change.op(),
            version: row.version,
            edits: row.state.edits.clone(),
            fields,
            clock: if stream == Stream::Synced { self.position.clock.clone() } else { VectorClock::default() },
            actor: self.commit.actor,
            operation_id: self.commit.operation_id,
            run_key: self.commit.cause.run_key,
            source_event: self.commit.cause.source_event,
            cause_depth: self.commit.cause.depth,
            at,
            body_hash,
        };
        let chain = entry.chain(&self.position.head(stream).chain);
        let request = self.logged_at.is_none().then(|| row::request_hash(&salt, &self.commit.request));
        self.logged_at = self.logged_at.max(Some(at));
        // A hash-logged body stays out of the log's files; its salt is what the hash is checked with.
        let kept = if write.spec.class == Class::HashLogged && matches!(write.change, Change::Put(_)) { None } else { body };
        let salt = (body_hash.is_some() || request.is_some()).then_some(salt);
        self.txn.append(&Logged { entry, chain, previous }, &Stored { salt, body: kept, request })?;
        *self.position.head(stream) = Head { stream: dot.stream, counter: dot.counter, chain, at };
        Ok(())
    }

    /// Destroys every body of the record and returns the erase entry's own body, which names their entries.
    fn erase_history(&mut self, latest: Option<Dot>) -> Result<String> {
        let mut dots = Vec::new();
        let mut operations = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = latest;
        while let Some(dot) = next {
            let Some(logged) = self.txn.entry(&dot)? else {
                return Err(Error::Unreadable(format!("entry {} is missing", crate::error::place(&dot))));
            };
            if logged.entry.op == domain::entry::Op::Put {
                dots.push(dot);
                operations.push(logged.entry.operation_id);
            }
            // INVARIANT: links lead back, so a walk along them ends; a damaged one may lead in a circle.
            if !seen.insert(dot) {
                return Err(Error::Unreadable(format!("entry {} is linked from itself", crate::error::place(&dot))));
            }
            next = logged.previous;
        }
        dots.sort_unstable();
        self.txn.erase(&dots, &operations)?;
        let named: Vec<_> = dots.iter().map(|dot| json!(crate::error::place(dot))).collect();
        domain::json::write(&json!({ "erased": named })).map_err(|error| Error::InvalidCommit(error.to_string()))
    }

    /// Updates table, indexes, aggregates and full text.
    fn project(&mut self, row: &Row, before: Option<&Row>, before_body: Option<&Body>, body: Option<&Body>) -> Result<()> {
        let spec = row.spec;
        if spec.class == Class::Control && row.deleted {
            self.txn.remove_row(spec, &row.id)?;
        } else {
            let columns = columns_of(spec, body)?;
            self.txn.put_row(row, &columns, before.is_some())?;
        }
        adjust_aggregates(self.txn, spec, before, before_body, row, body)?;
        if !spec.full_text.is_empty() {
            self.txn.index_text(row, before_body, body)?;
        }
        Ok(())
    }
}

fn check_expected(write: &Write, before: Option<&Row>) -> Result<()> {
    if plant::is(Bug::DropVersionCheck) {
        return Ok(());
    }
    let (expected, current) = match write.expected {
        Expected::Absent => (None, before.map(|row| row.version)),
        Expected::Version(version) => (Some(version), before.map(|row| row.version)),
    };
    // Nothing can be taken away that is not there; what was deleted still has bodies to erase.
    let pointless = match write.change {
        Change::Put(_) => false,
        Change::Tombstone => before.is_none_or(|row| row.deleted),
        Change::Erase => before.is_none(),
    };
    if expected != current || pointless {
        return Err(Error::VersionConflict {
            kind: write.spec.kind,
            prefix: write.spec.prefix,
            id: write.id,
            expected,
            current,
            deleted: before.is_some_and(|row| row.deleted),
        });
    }
    Ok(())
}

/// A fence only rises, and stays.
fn check_fence(write: &Write, before: Option<&Row>) -> Result<()> {
    if write.spec != Fence::SPEC {
        return Ok(());
    }
    let epoch_of = |text: &str| Fence::from_body(text).map(|fence| fence.epoch);
    let wanted = write.change.body().map(|body| epoch_of(body.text())).transpose();
    let wanted = wanted.map_err(|error| Error::InvalidCommit(error.to_string()))?;
    let current = before.and_then(|row| row.body.as_deref()).map(epoch_of).transpose();
    let current = current.map_err(|error| Error::Unreadable(error.to_string()))?;
    match (wanted, current) {
        (None, _) => Err(Error::InvalidCommit("a fence is not taken away".to_owned())),
        (Some(wanted), Some(current)) if wanted < current => {
            Err(Error::InvalidCommit(format!("a fence at epoch {current} is not lowered to {wanted}")))
        }
        _ => Ok(()),
    }
}

/// The row after a write, and which fields the write set.
pub(crate) fn next_row(
    host: HostId,
    write: &Write,
    before: Option<&Row>,
    before_body: Option<&Body>,
    dot: Option<Dot>,
) -> (Row, FieldsSet) {
    let body = write.change.body();
    let mut state = before.map(|row| row.state.clone()).unwrap_or_default();
    *state.edits.entry(host).or_insert(0) += 1;
    let fields = match (write.spec.mergeable, body, before_body) {
        (false, _, _) => FieldsSet::Whole,
        (true, Some(body), Some(before_body)) => FieldsSet::Some(body.changed_fields(before_body)),
        (true, Some(_), None) => FieldsSet::All,
        (true, None, _) => FieldsSet::Some(Vec::new()),
    };
    state.older_fields = match write.change {
        Change::Put(_) | Change::Tombstone => older_fields(&state, &fields, before, before_body),
        // Not even the names of the fields stay: a rebuild, which has no bodies to take them from, must find the same.
        Change::Erase => BTreeMap::new(),
    };
    let row = Row {
        spec: write.spec,
        id: write.id,
        version: state.edits.values().sum(),
        workspace: write.workspace,
        deleted: body.is_none(),
        body: body.map(|body| body.text().to_owned()),
        dot,
        state,
    };
    (row, fields)
}

/// Every field that this write did not set keeps the dot it had.
fn older_fields(state: &RowState, fields: &FieldsSet, before: Option<&Row>, before_body: Option<&Body>) -> BTreeMap<String, Dot> {
    let (FieldsSet::Some(set), Some(before), Some(before_body)) = (fields, before, before_body) else {
        return BTreeMap::new();
    };
    let unset = before_body.fields().keys().filter(|name| !set.contains(*name));
    unset.filter_map(|name| Some((name.clone(), state.older_fields.get(name).copied().or(before.dot)?))).collect()
}

pub(crate) fn columns_of(spec: &'static Spec, body: Option<&Body>) -> Result<Vec<Value>> {
    match body {
        Some(body) => spec.project(body).map_err(|error| Error::InvalidCommit(format!("{}: {error}", spec.kind))),
        None => Ok(vec![Value::Null; spec.columns.len()]),
    }
}

fn adjust_aggregates(
    txn: &mut dyn Txn,
    spec: &'static Spec,
    before: Option<&Row>,
    before_body: Option<&Body>,
    row: &Row,
    body: Option<&Body>,
) -> Result<()> {
    for aggregate in spec.aggregates {
        let mut differences: BTreeMap<Vec<Value>, i64> = BTreeMap::new();
        for (sign, row, body) in [(-1, before, before_body), (1, Some(row), body)] {
            let (Some(row), Some(body)) = (row.filter(|row| !row.deleted), body) else { continue };
            let (group, amount) = contribution(spec, aggregate, row, body)?;
            let difference = differences.entry(group).or_insert(0);
            *difference = difference.saturating_add(amount.saturating_mul(sign));
        }
        for (group, difference) in differences.into_iter().filter(|(_, difference)| *difference != 0) {
            txn.add_to_aggregate(spec, aggregate.name, &group, difference)?;
        }
    }
    Ok(())
}

/// What one live row adds to an aggregate, and to which group.
pub(crate) fn contribution(
    spec: &'static Spec,
    aggregate: &domain::record::Aggregate,
    row: &Row,
    body: &Body,
) -> Result<(Vec<Value>, i64)> {
    let columns = columns_of(spec, Some(body))?;
    let value_of = |name: &str| match spec.columns.iter().position(|column| column.name == name) {
        Some(position) => columns[position].clone(),
        None => Value::from(row.workspace.raw()),
    };
    let amount = match aggregate.sum.map(value_of) {
        None => 1,
        Some(Value::Integer(amount)) => amount,
        Some(_) => 0,
    };
    Ok((aggregate.group.iter().map(|name| value_of(name)).collect(), amount))
}

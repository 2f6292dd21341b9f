//! The storage trait: blocking, small, the same for every backend.
//!
//! A [`Store`] is the one writer of one domain. A [`Reader`] opens snapshots beside it. Nothing outside this crate writes SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::causality::{Domain, Dot, Stream, StreamId};
use domain::commit::{Commit, Committed};
use domain::entry::{Edits, Entry, Head, Witness};
use domain::hash::{Hash, Salt};
use domain::id::{HistoryId, HostId, OperationId, RawId, WorkspaceId};
use domain::record::{Body, Record, Spec, Value};

use crate::group;
use crate::{Error, Result};

/// One record as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub spec: &'static Spec,
    pub id: RawId,
    pub version: u64,
    pub workspace: WorkspaceId,
    pub deleted: bool,
    /// Canonical text; absent when deleted or erased.
    pub body: Option<String>,
    /// The entry that made it so; control rows have none.
    pub dot: Option<Dot>,
    pub state: RowState,
}

impl Row {
    /// Reads the typed record; a deleted row has none.
    pub fn record<R: Record>(&self) -> Result<Option<R>> {
        let read = self.body.as_deref().map(R::from_body).transpose();
        read.map_err(|error| Error::Unreadable(error.to_string()))
    }

    /// Whether a row that no other host has written is the one that an entry made, apart from its body.
    pub(crate) fn is_of(&self, entry: &Entry) -> bool {
        let row = (self.spec.kind, self.id, self.version, self.workspace, &self.state.edits);
        row == (entry.kind.as_str(), entry.id, entry.version, entry.workspace, &entry.edits)
    }

    pub(crate) fn parsed_body(&self) -> Result<Option<Body>> {
        let parsed = self.body.as_deref().map(Body::parse).transpose();
        parsed.map_err(|error| Error::Unreadable(format!("{} {}: {error}", self.spec.kind, self.id)))
    }
}

/// How a row came about, as far as merging needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowState {
    pub edits: Edits,
    /// For mergeable kinds: the dot of every field that is older than the row's own dot.
    pub older_fields: BTreeMap<String, Dot>,
}

/// An entry with its chain value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub entry: Entry,
    pub chain: Hash,
    /// The entry before it of the same record, in this file's order. Not part of the chain: it differs between devices.
    pub previous: Option<Dot>,
}

/// What is kept beside an entry and can be erased.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    pub salt: Option<Salt>,
    pub body: Option<String>,
    /// Over salt and request (`row::request_hash`); only beside the first entry of a commit.
    pub request: Option<Hash>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// A walk over one declared index of the live rows.
#[derive(Debug, Clone)]
pub struct Scan<'a> {
    pub spec: &'static Spec,
    pub index: &'a str,
    /// Values of the index's first columns.
    pub prefix: Vec<Value>,
    /// Bounds on the column after the prefix: inclusive from, exclusive to. A row without a value is within no bounds.
    pub from: Option<Value>,
    pub to: Option<Value>,
    pub direction: Direction,
    /// Where the page before ended.
    pub after: Option<PageKey>,
    pub limit: usize,
}

impl<'a> Scan<'a> {
    #[must_use]
    pub fn new(spec: &'static Spec, index: &'a str) -> Self {
        Self {
            spec,
            index,
            prefix: Vec::new(),
            from: None,
            to: None,
            direction: Direction::Forward,
            after: None,
            limit: domain::limits::PAGE_ROWS_MAX,
        }
    }

    /// The index, with the scan's shape checked against it.
    pub(crate) fn checked(&self) -> Result<&'static domain::record::Index> {
        let index = self.spec.index(self.index);
        let index = index.ok_or_else(|| Error::InvalidCommit(format!("{} has no index `{}`", self.spec.kind, self.index)))?;
        let columns = index.columns.len();
        let ranged = self.from.is_some() || self.to.is_some();
        if self.prefix.len() > columns || (ranged && self.prefix.len() == columns) {
            return Err(Error::InvalidCommit(format!("index `{}` has {columns} columns", self.index)));
        }
        if self.limit > domain::limits::PAGE_ROWS_MAX {
            return Err(Error::InvalidCommit(format!("a page has at most {} rows", domain::limits::PAGE_ROWS_MAX)));
        }
        if self.after.as_ref().is_some_and(|after| after.values.len() != columns || !after.values.starts_with(&self.prefix)) {
            return Err(Error::InvalidCommit(format!("the page key is not one of this scan of index `{}`", self.index)));
        }
        Ok(index)
    }
}

/// The place of a row in an index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageKey {
    pub values: Vec<Value>,
    pub id: RawId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// `None` at the end.
    pub next: Option<PageKey>,
}

/// One moment of a domain, for as long as [`domain::limits::SNAPSHOT_AGE_MS_MAX`].
pub trait Snapshot {
    fn get(&self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>>;
    fn scan(&self, scan: &Scan<'_>) -> Result<Page>;
    fn aggregate(&self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64>;
    fn history_id(&self) -> Result<HistoryId>;
    fn heads(&self) -> Result<Vec<Head>>;
    /// The streams that there must be, also where a head is lost.
    fn streams(&self) -> Result<Vec<StreamId>> {
        Ok(self.heads()?.iter().map(|head| head.stream).collect())
    }
    fn witnesses(&self) -> Result<Vec<Witness>>;
    /// Entries of a stream after a counter, in order.
    fn entries(&self, stream: &StreamId, after: u64, limit: usize) -> Result<Vec<(Logged, Stored)>>;
    fn outcome(&self, operation_id: &OperationId) -> Result<Option<Committed>>;

    fn get_many(&self, spec: &'static Spec, ids: &[RawId]) -> Result<Vec<Option<Row>>> {
        ids.iter().map(|id| self.get(spec, id)).collect()
    }

    fn entry(&self, dot: &Dot) -> Result<Option<(Logged, Stored)>> {
        let found = self.entries(&dot.stream, dot.counter.saturating_sub(1), 1)?;
        Ok(found.into_iter().find(|(logged, _)| logged.entry.dot == *dot))
    }

    /// The entries of one record, newest first.
    fn history(&self, spec: &'static Spec, id: &RawId, limit: usize) -> Result<Vec<(Logged, Stored)>> {
        let mut next = self.get(spec, id)?.and_then(|row| row.dot);
        let mut found = Vec::new();
        while let Some(dot) = next {
            if found.len() == limit {
                break;
            }
            let Some(entry) = self.entry(&dot)? else {
                return Err(Error::Unreadable(format!("entry {} is missing", crate::error::place(&dot))));
            };
            next = entry.0.previous;
            found.push(entry);
        }
        Ok(found)
    }
}

/// Full text: derived, compared as sets. Where a backend ranks (SQLite), the order is rank, newest first, id, and so always the same;
/// SQLite also folds accents.
pub trait FullText {
    /// Live rows that hold all the words.
    fn search(&self, spec: &'static Spec, workspace: &WorkspaceId, words: &str, limit: usize) -> Result<Vec<Row>>;
}

/// Opens snapshots; cheap to clone and shared between threads.
pub trait Reader: FullText + Send + Sync {
    fn read(&self) -> Result<Box<dyn Snapshot + '_>>;
    /// The backend's own check of what lies beneath the log: pages, and indexes against their tables.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Why a group's transaction ended without results.
#[derive(Debug)]
pub enum GroupFailure {
    /// Certainly nothing of it is durable.
    RolledBack(Error),
    /// It may be durable: the error came with the COMMIT itself.
    Unknown(Error),
}

/// The one writer of one domain.
pub trait Store: Send {
    fn domain(&self) -> Domain;
    fn host(&self) -> HostId;
    fn reader(&self) -> Arc<dyn Reader>;

    /// Runs a group in one transaction, each commit under its own savepoint. Results only after COMMIT.
    fn try_group(&mut self, group: &[Commit]) -> std::result::Result<Vec<Result<Committed>>, GroupFailure>;

    /// After an unknown commit: makes durable what is known to be committed, and goes on with new connections.
    fn reopen(&mut self) -> Result<()>;

    /// Looks a commit's operation up on the writer's own connection; another request under its id is a refusal.
    fn lookup(&mut self, commit: &Commit) -> Result<Option<Committed>>;

    /// Stores other domains' heads.
    fn witness(&mut self, witnesses: &[Witness]) -> Result<()>;

    /// Why the store takes no writes any more, if so.
    fn failing(&mut self) -> &mut Option<String>;

    /// Work that belongs beside the writer and must not hold it up, such as checkpoints.
    fn maintenance(&self) -> Option<Box<dyn Maintenance>> {
        None
    }

    /// The one way in. An error that ends the transaction voids every result of the group; if it certainly rolled back, each
    /// commit runs once alone, so that a poisonous one fails alone.
    fn apply_group(&mut self, group: &[Commit]) -> Vec<Result<Committed>> {
        group::apply(self, group)
    }

    /// The own streams' heads.
    fn heads(&self) -> Result<Vec<Head>> {
        let host = self.host();
        let heads = self.reader().read()?.heads()?;
        Ok(heads.into_iter().filter(|head| head.stream.host == host).collect())
    }
}

/// Runs on its own thread and connection.
pub trait Maintenance: Send {
    /// Called after commits, now and then: several groups may have passed since the last call.
    fn after_commits(&mut self);
}

/// The two streams that a host writes in a domain.
#[must_use]
pub fn own_streams(host: HostId) -> [StreamId; 2] {
    [StreamId { host, stream: Stream::Synced }, StreamId { host, stream: Stream::Local }]
}

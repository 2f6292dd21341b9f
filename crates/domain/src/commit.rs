//! The commit: the one way to change anything that is stored.
//!
//! A [`Commit`] is plain data. The store decides it in one transaction: guards, expected versions, then counters, chain and tables.
//! The same `operation_id` with the same request returns the first outcome; with another request it is refused.

use crate::causality::{Dot, Stream};
use crate::entry::{Actor, Op, Witness};
use crate::id::{EventId, OperationId, RawId, WorkspaceId};
use crate::key::RunKey;
use crate::record::{Body, Spec, Value};
use crate::time::Timestamp;

/// What led to a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    pub run_key: Option<RunKey>,
    pub source_event: Option<EventId>,
    /// A person's act is 0; every wake in between adds one.
    pub depth: u8,
}

#[derive(Debug, Clone)]
pub struct Commit {
    pub operation_id: OperationId,
    /// Canonical JSON of the command and its arguments as they were given; only its salted hash is stored.
    pub request: String,
    pub actor: Actor,
    pub cause: Cause,
    pub guards: Vec<Guard>,
    pub writes: Vec<Write>,
    /// Other domains' heads to write down in the same transaction.
    pub witnesses: Vec<Witness>,
}

impl Commit {
    /// Bytes of the bodies in it: what a group is measured by.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.writes.iter().map(|write| write.change.body().map_or(0, |body| body.text().len())).sum()
    }
}

/// The state a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// No row, not even a deleted one.
    Absent,
    /// A row, deleted or not, at exactly this version.
    Version(u64),
}

#[derive(Debug, Clone)]
pub struct Write {
    pub spec: &'static Spec,
    pub id: RawId,
    pub workspace: WorkspaceId,
    pub expected: Expected,
    pub change: Change,
}

#[derive(Debug, Clone)]
pub enum Change {
    Put(Body),
    Tombstone,
    /// Destroys every stored body of the record, the current one included. Nothing brings it back.
    Erase,
}

impl Change {
    #[must_use]
    pub fn body(&self) -> Option<&Body> {
        match self {
            Self::Put(body) => Some(body),
            Self::Tombstone | Self::Erase => None,
        }
    }

    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::Put(_) => Op::Put,
            Self::Tombstone => Op::Tombstone,
            Self::Erase => Op::Erase,
        }
    }
}

/// What must hold in the commit's own transaction, so that a decision made before cannot go stale unnoticed.
#[derive(Debug, Clone)]
pub enum Guard {
    /// The subject's fence has not been raised above `epoch`.
    Fence { subject: String, epoch: u64 },
    /// The record exists, is not deleted and has this version.
    Version { spec: &'static Spec, id: RawId, version: u64 },
    /// The record exists and is not deleted.
    Live { spec: &'static Spec, id: RawId },
    /// A declared aggregate plus `adding` stays within `limit`.
    AtMost { spec: &'static Spec, aggregate: &'static str, group: Vec<Value>, adding: i64, limit: i64 },
}

/// What a commit did: ids, versions and places in the log, never bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub operation_id: OperationId,
    pub at: Timestamp,
    /// Logged writes in the order of stream and counter; for a commit of control rows alone, those.
    pub writes: Vec<Written>,
    /// An earlier attempt did this; the present one changed nothing.
    pub repeated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub kind: String,
    pub id: RawId,
    pub op: Op,
    pub version: u64,
    /// Its place in the log; control rows have none.
    pub dot: Option<Dot>,
}

impl Committed {
    /// The highest counter this commit took in a stream.
    #[must_use]
    pub fn last_counter(&self, stream: Stream) -> Option<u64> {
        self.writes.iter().filter_map(|write| write.dot).filter(|dot| dot.stream.stream == stream).map(|dot| dot.counter).max()
    }
}

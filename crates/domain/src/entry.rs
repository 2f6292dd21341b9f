//! One entry of the log, and the chain that ties it to all before it.
//!
//! The chain covers every field of the header and the salted hash of the body, never the body itself: a body can be erased and
//! the chain stays whole. It is unkeyed. It finds damage and clumsy edits; it does not stop somebody who can rewrite the whole
//! file and every witness of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::causality::{Domain, Dot, StreamId, VectorClock};
use crate::hash::{Digest, Hash};
use crate::id::{AgentId, EventId, HostId, OperationId, PersonId, RawId, WorkspaceId};
use crate::key::RunKey;
use crate::named::named_enum;
use crate::time::Timestamp;

named_enum! {
    /// What an entry did to its record.
    Op {
        Put = "put",
        /// The record is gone from lists and searches; its history stays.
        Tombstone = "tombstone",
        /// Bodies and salts that the entry names are destroyed; their entries stay.
        Erase = "erase",
    }
}

/// Who asked for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    Person(PersonId),
    Agent(AgentId),
    /// The controller itself: migrations, recovery, consumers.
    System,
}

impl Actor {
    /// The stored form: a tag byte and the id.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let (tag, id) = match self {
            Self::Person(id) => (b'p', Some(id.raw())),
            Self::Agent(id) => (b'a', Some(id.raw())),
            Self::System => (b's', None),
        };
        let mut bytes = vec![tag];
        bytes.extend(id.iter().flat_map(|id| id.as_bytes()));
        bytes
    }

    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (b'p', id) => RawId::from_slice(id).map(|id| Self::Person(PersonId::from_raw(id))),
            (b'a', id) => RawId::from_slice(id).map(|id| Self::Agent(AgentId::from_raw(id))),
            (b's', []) => Some(Self::System),
            _ => None,
        }
    }
}

impl Actor {
    /// Reads the text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match RawId::parse_prefixed(text) {
            Some((PersonId::PREFIX, id)) => Some(Self::Person(PersonId::from_raw(id))),
            Some((AgentId::PREFIX, id)) => Some(Self::Agent(AgentId::from_raw(id))),
            _ => (text == "system").then_some(Self::System),
        }
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("not a person, an agent or `system`"))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(id) => id.fmt(f),
            Self::Agent(id) => id.fmt(f),
            Self::System => f.write_str("system"),
        }
    }
}

/// Which fields of a mergeable record a write set; their dot is the entry's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldsSet {
    /// The record is not merged field by field.
    Whole,
    /// Every field: a creation.
    All,
    /// These, sorted.
    Some(Vec<String>),
}

impl FieldsSet {
    /// The stored form: nothing, `*`, or the names joined by commas. Field names hold neither.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::All => Some("*".to_owned()),
            Self::Some(names) => Some(names.join(",")),
        }
    }

    #[must_use]
    pub fn from_text(text: Option<&str>) -> Self {
        match text {
            None => Self::Whole,
            Some("*") => Self::All,
            Some("") => Self::Some(Vec::new()),
            Some(names) => Self::Some(names.split(',').map(str::to_owned).collect()),
        }
    }
}

/// How often each host has written a record. The sum is the record's version.
pub type Edits = BTreeMap<HostId, u64>;

/// The header of one log entry, filled in by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub dot: Dot,
    /// The commit's contiguous range in this stream.
    pub first: u64,
    pub last: u64,
    pub kind: String,
    pub schema: u32,
    pub workspace: WorkspaceId,
    pub id: RawId,
    pub op: Op,
    pub version: u64,
    pub edits: Edits,
    pub fields: FieldsSet,
    /// What the writer had seen of the other hosts' synced streams. Its own host is never in it: that part is the counter.
    pub clock: VectorClock,
    pub actor: Actor,
    pub operation_id: OperationId,
    pub run_key: Option<RunKey>,
    pub source_event: Option<EventId>,
    pub cause_depth: u8,
    pub at: Timestamp,
    /// Over salt and body; a tombstone has none.
    pub body_hash: Option<Hash>,
}

impl Entry {
    /// The chain value of this entry after `previous`.
    #[must_use]
    pub fn chain(&self, previous: &Hash) -> Hash {
        self.digest(previous).finish()
    }

    /// The canonical array that the chain is taken over.
    #[must_use]
    pub fn digest(&self, previous: &Hash) -> Digest {
        let pair = |(host, count): (&HostId, u64)| [host.to_string(), count.to_string()];
        Digest::new("verger.entry.v1")
            .shown(previous)
            .shown(&self.dot.stream.host)
            .shown(&self.dot.stream.stream)
            .number(self.dot.counter)
            .number(self.first)
            .number(self.last)
            .text(&self.kind)
            .number(self.schema.into())
            .shown(&self.workspace)
            .shown(&self.id)
            .shown(&self.op)
            .number(self.version)
            .list(self.edits.iter().flat_map(|(host, count)| pair((host, *count))))
            .optional(self.fields.to_text().as_ref())
            .list(self.clock.iter().flat_map(pair))
            .shown(&self.actor)
            .shown(&self.operation_id)
            .optional(self.run_key.as_ref())
            .optional(self.source_event.as_ref())
            .number(self.cause_depth.into())
            .shown(&self.at)
            .optional(self.body_hash.as_ref())
    }
}

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub stream: StreamId,
    pub counter: u64,
    pub chain: Hash,
    pub at: Timestamp,
}

/// Another domain's head, as it was when this domain last wrote it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    pub domain: Domain,
    pub head: Head,
}

/// The chain value before a stream's first entry.
#[must_use]
pub fn genesis(domain: Domain, stream: &StreamId) -> Hash {
    Digest::new("verger.genesis.v1").shown(&domain).shown(&stream.host).shown(&stream.stream).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causality::Stream;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(Op::ALL.iter().map(|op| op.as_str()).collect::<Vec<_>>(), ["put", "tombstone", "erase"]);
    }

    #[test]
    fn actors_read_back() {
        let id = RawId::from_bytes([3; 16]);
        for actor in [Actor::Person(PersonId::from_raw(id)), Actor::Agent(AgentId::from_raw(id)), Actor::System] {
            assert_eq!(Actor::from_slice(&actor.to_bytes()), Some(actor));
            assert_eq!(Actor::parse(&actor.to_string()), Some(actor));
        }
        assert_eq!(Actor::from_slice(b"sx"), None);
        assert_eq!(Actor::from_slice(b"p"), None);
    }

    #[test]
    fn field_sets_read_back() {
        for set in [FieldsSet::Whole, FieldsSet::All, FieldsSet::Some(vec![]), FieldsSet::Some(vec!["a".into(), "b".into()])] {
            assert_eq!(FieldsSet::from_text(set.to_text().as_deref()), set);
        }
    }

    #[test]
    fn streams_begin_at_different_places() {
        let host = HostId::from_raw(RawId::from_bytes([1; 16]));
        let synced = StreamId { host, stream: Stream::Synced };
        let local = StreamId { host, stream: Stream::Local };
        assert_ne!(genesis(Domain::Journal, &synced), genesis(Domain::Journal, &local));
        assert_ne!(genesis(Domain::Journal, &synced), genesis(Domain::Agent, &synced));
    }
}

//! Key derivations: every id and key that two devices, or two attempts, must agree on.
//!
//! Each is a hash over a canonical array that begins with a versioned tag; the function's arguments are exactly what is
//! hashed. The golden vectors in `tests/golden/keys.json` are recomputed by `tools/golden_keys.py`, which shares no code with this.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::causality::{Domain, Dot};
use crate::entry::{Actor, Entry};
use crate::hash::{Digest, Hash};
use crate::id::{AgentId, CategoryId, EventId, LabelId, OperationId, PersonId, RawId, WorkspaceId};
use crate::named::named_enum;

macro_rules! keys {
    ($($(#[$meta:meta])* $name:ident;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Hash);

        impl $name {
            #[must_use]
            pub const fn from_hash(hash: Hash) -> Self { Self(hash) }

            #[must_use]
            pub const fn hash(&self) -> &Hash { &self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    )+};
}

keys! {
    /// One reason to run: the identity of a wake.
    RunKey;
    /// One write of one host, wherever it is read.
    ChangeUnitKey;
    /// One commit of its author: what a notification batch is about.
    LogicalChangeKey;
    /// One intended action inside a run.
    ActionStableId;
}

/// Provenance of one write, as its author saw it (DESIGN 5: the hashed origin is always `local`; how it arrived is not hashed).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeUnit {
    pub dot: Dot,
    pub payload_type: String,
    pub payload_id: RawId,
}

impl ChangeUnit {
    /// The same from the author's own log and from a received copy of it.
    #[must_use]
    pub fn of_entry(entry: &Entry) -> Self {
        Self { dot: entry.dot, payload_type: entry.kind.clone(), payload_id: entry.id }
    }

    #[must_use]
    pub fn key(&self) -> ChangeUnitKey {
        ChangeUnitKey(
            Digest::new("verger.change_unit.v1")
                .text("local")
                .shown(&self.dot.stream.host)
                .number(self.dot.counter)
                .text(&self.payload_type)
                .shown(&self.payload_id)
                .finish(),
        )
    }
}

/// A batch without provenance wakes nobody: `missing_change_provenance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a change without provenance has no logical change key")]
pub struct MissingProvenance;

impl LogicalChangeKey {
    /// Over the sorted, distinct change-unit keys of one commit's synced writes: local ones never reach a receiver.
    pub fn derive(units: &[ChangeUnit]) -> Result<Self, MissingProvenance> {
        if units.is_empty() {
            return Err(MissingProvenance);
        }
        let mut keys: Vec<_> = units.iter().map(ChangeUnit::key).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(Self(Digest::new("verger.logical_change.v1").list(keys.iter().map(ToString::to_string)).finish()))
    }
}

impl RunKey {
    #[must_use]
    pub fn subscription(agent: &AgentId, subscription: &RawId, change: &LogicalChangeKey) -> Self {
        Self(Digest::new("verger.run_key.v1").text("subscription").shown(agent).shown(subscription).shown(change).finish())
    }

    /// `intended` is the intended local date-time (`2026-03-29T07:00:00`), so that devices in different zones agree.
    #[must_use]
    pub fn timer(agent: &AgentId, timer: &RawId, intended: &str, occurrence: u64) -> Self {
        Self(Digest::new("verger.run_key.v1").text("timer").shown(agent).shown(timer).text(intended).number(occurrence).finish())
    }

    #[must_use]
    pub fn session(agent: &AgentId, session: &RawId, turn: &RawId) -> Self {
        Self(Digest::new("verger.run_key.v1").text("session").shown(agent).shown(session).shown(turn).finish())
    }

    #[must_use]
    pub fn rule(rule: &RawId, triggering_event: &str) -> Self {
        Self(Digest::new("verger.run_key.v1").text("rule").shown(rule).text(triggering_event).finish())
    }

    #[must_use]
    pub fn event(agent: &AgentId, event: &EventId, route: &str) -> Self {
        Self(Digest::new("verger.run_key.v1").text("event").shown(agent).shown(event).text(route).finish())
    }

    #[must_use]
    pub fn manual(agent: &AgentId, client_key: &str) -> Self {
        Self(Digest::new("verger.run_key.v1").text("manual").shown(agent).text(client_key).finish())
    }

    #[must_use]
    pub fn recovery_catchup(agent: &AgentId, timer: &RawId, last_missed: &str, occurrence: u64) -> Self {
        Self(
            Digest::new("verger.run_key.v1")
                .text("recoveryCatchup")
                .shown(agent)
                .shown(timer)
                .text(last_missed)
                .number(occurrence)
                .finish(),
        )
    }

    /// `response` is `None` when the item expired.
    #[must_use]
    pub fn answer(agent: &AgentId, prompt_item: &RawId, response: Option<&RawId>) -> Self {
        let expired = "expired".to_owned();
        let response = response.map_or(expired, ToString::to_string);
        Self(Digest::new("verger.run_key.v1").text("answer").shown(agent).shown(prompt_item).text(&response).finish())
    }
}

/// What an action is meant to do, as far as it identifies the action.
#[derive(Debug, Clone)]
pub struct ActionIntent<'a> {
    /// Durable before the ask.
    pub cycle: u64,
    pub tool: &'a str,
    /// Over the canonical arguments without `operationId`.
    pub arguments_hash: Hash,
    pub scope_hash: Hash,
    pub targets: &'a [(RawId, u64)],
    /// Counts equal intents inside one plan; never the place in a list.
    pub k: u64,
}

impl ActionStableId {
    #[must_use]
    pub fn derive(intent: &ActionIntent<'_>) -> Self {
        let mut targets: Vec<_> = intent.targets.to_vec();
        targets.sort_unstable();
        Self(
            Digest::new("verger.action.v1")
                .number(intent.cycle)
                .text(intent.tool)
                .shown(&intent.arguments_hash)
                .shown(&intent.scope_hash)
                .list(targets.iter().flat_map(|(id, version)| [id.to_string(), version.to_string()]))
                .number(intent.k)
                .finish(),
        )
    }
}

named_enum! {
    /// The durable points of a cycle.
    Point { A = "A", B = "B", C = "C", D = "D" }
}

impl OperationId {
    fn of(digest: Digest) -> Self {
        Self::from_raw(RawId::from_hash(&digest.finish()))
    }

    /// An action of a run.
    #[must_use]
    pub fn of_action(run: &RunKey, action: &ActionStableId) -> Self {
        Self::of(Digest::new("verger.operation.v1").text("run").shown(run).shown(action))
    }

    /// A person's act; `client_key` is `--operation-id`, `Idempotency-Key` or a fresh UUID.
    #[must_use]
    pub fn of_client(actor: &Actor, client_key: &str) -> Self {
        Self::of(Digest::new("verger.operation.v1").text("person").shown(actor).text(client_key))
    }

    /// A durable point of a cycle.
    #[must_use]
    pub fn of_point(run: &RunKey, cycle: u64, point: Point) -> Self {
        Self::of(Digest::new("verger.operation.v1").text("point").shown(run).number(cycle).shown(&point))
    }

    /// A consumer's step from one cursor; `before` is the hash of the cursor it starts at.
    #[must_use]
    pub fn of_consumer(consumer: &str, before: &Hash) -> Self {
        Self::of(Digest::new("verger.operation.v1").text("consumer").text(consumer).shown(before))
    }

    /// A batch of due timers with their intended times, sorted.
    #[must_use]
    pub fn of_timer_batch(domain: Domain, due: &[(RawId, String)]) -> Self {
        let mut due = due.to_vec();
        due.sort_unstable();
        let flat = due.into_iter().flat_map(|(timer, intended)| [timer.to_string(), intended]);
        Self::of(Digest::new("verger.operation.v1").text("timers").shown(&domain).list(flat))
    }

    /// A further commit that belongs to this operation.
    #[must_use]
    pub fn part(&self, name: &str) -> Self {
        Self::of(Digest::new("verger.operation.v1").text("part").shown(self).text(name))
    }

    /// The id of the `k`-th record of `kind` that this operation creates.
    #[must_use]
    pub fn created(&self, kind: &str, k: u64) -> RawId {
        RawId::from_hash(&Digest::new("verger.created.v1").shown(self).text(kind).number(k).finish())
    }
}

/// The id of a record that has a unique key: equal keys on two devices are one record.
#[must_use]
pub fn keyed(kind: &str, scope: &str, key: &str) -> RawId {
    RawId::from_hash(&Digest::new("verger.keyed.v1").text(kind).text(scope).text(key).finish())
}

impl WorkspaceId {
    #[must_use]
    pub fn of_slug(slug: &str) -> Self {
        Self::from_raw(keyed("workspace", "", slug))
    }
}

impl CategoryId {
    #[must_use]
    pub fn of_slug(workspace: &WorkspaceId, slug: &str) -> Self {
        Self::from_raw(keyed("category", &workspace.to_string(), slug))
    }
}

impl LabelId {
    #[must_use]
    pub fn of_slug(workspace: &WorkspaceId, slug: &str) -> Self {
        Self::from_raw(keyed("label", &workspace.to_string(), slug))
    }
}

impl PersonId {
    /// The one person that every home has.
    #[must_use]
    pub fn owner() -> Self {
        Self::from_raw(keyed("person", "", "owner"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_hashed() {
        assert_eq!(Point::ALL.iter().map(|point| point.as_str()).collect::<String>(), "ABCD");
    }

    #[test]
    fn l7_no_provenance_no_key() {
        assert_eq!(LogicalChangeKey::derive(&[]), Err(MissingProvenance));
    }

    #[test]
    fn l20_the_order_of_targets_does_not_matter_but_their_versions_do() {
        let (a, b) = (RawId::from_bytes([1; 16]), RawId::from_bytes([2; 16]));
        let hash = crate::hash::plain(b"x");
        let derive = |targets: &[(RawId, u64)], k| {
            ActionStableId::derive(&ActionIntent {
                cycle: 1,
                tool: "record_update",
                arguments_hash: hash,
                scope_hash: hash,
                targets,
                k,
            })
        };
        assert_eq!(derive(&[(a, 1), (b, 2)], 0), derive(&[(b, 2), (a, 1)], 0));
        assert_ne!(derive(&[(a, 1)], 0), derive(&[(a, 2)], 0));
        assert_ne!(derive(&[(a, 1)], 0), derive(&[(a, 1)], 1));
    }
}

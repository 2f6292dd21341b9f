//! Verification: what was planned is held against what the store or the outside shows. Nobody's word counts, the model's least of all.

use crate::action::{Action, Effect, Seen};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    Holds,
    /// The store acknowledged, and does not hold what was planned.
    Differs,
}

/// Compares an action's declared effects with what was seen of them.
#[must_use]
pub fn effects(action: &Action, seen: &Seen) -> Verified {
    let holds = match (&action.effect, seen) {
        (Effect::Journal { writes, .. }, Seen::Committed { records }) => {
            records.len() == writes.len()
                && writes.iter().all(|write| {
                    let record = records.iter().find(|record| record.id == write.id);
                    record.is_some_and(|record| record.version == write.expected_version + 1 && record.body_hash == write.body_hash)
                })
        }
        (Effect::Outside { .. } | Effect::Nothing, Seen::Acknowledged) => true,
        _ => false,
    };
    if holds { Verified::Holds } else { Verified::Differs }
}

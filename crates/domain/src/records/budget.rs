//! Budgets: what an agent may use up in one local day, and what it has used (L30).
//!
//! Usage is kept per agent, day and host, so that hosts only ever add. What is reserved counts as used until it is settled.

use serde::{Deserialize, Serialize};

use crate::hash::Digest;
use crate::id::{AgentId, HostId, RawId};
use crate::key::keyed;
use crate::time::Timestamp;

/// Amounts of the four things that cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    pub tokens: i64,
    /// Millionths of the currency that the owner counts in.
    pub cost_micros: i64,
    pub runtime_ms: i64,
    pub tool_calls: i64,
}

impl Amounts {
    pub const NONE: Self = Self { tokens: 0, cost_micros: 0, runtime_ms: 0, tool_calls: 0 };

    /// With the names that rules and messages use.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, i64); 4] {
        [
            ("tokens", self.tokens),
            ("cost_micros", self.cost_micros),
            ("runtime_ms", self.runtime_ms),
            ("tool_calls", self.tool_calls),
        ]
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_micros: self.cost_micros.saturating_add(other.cost_micros),
            runtime_ms: self.runtime_ms.saturating_add(other.runtime_ms),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
        }
    }

    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            cost_micros: self.cost_micros.saturating_sub(other.cost_micros),
            runtime_ms: self.runtime_ms.saturating_sub(other.runtime_ms),
            tool_calls: self.tool_calls.saturating_sub(other.tool_calls),
        }
    }
}

/// What an agent may use in a day. One row per agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetLimit {
    pub agent_id: AgentId,
    pub limits: Amounts,
    /// From this share on a person is warned.
    pub soft_percent: u8,
    pub updated_at: Timestamp,
}

/// What an agent has used on one day through one host; the top-level numbers are the columns that sums are declared over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetUsage {
    pub agent_id: AgentId,
    /// `YYYY-MM-DD` in the agent's zone.
    pub day: String,
    pub host_id: HostId,
    /// Spent and reserved together.
    pub tokens: i64,
    pub cost_micros: i64,
    pub runtime_ms: i64,
    pub tool_calls: i64,
    /// How much of it is only reserved.
    pub reserved: Amounts,
    pub updated_at: Timestamp,
}

/// The declared sums, in the order of [`Amounts::named`].
pub const SUMS: [&str; 4] = ["tokens", "cost_micros", "runtime_ms", "tool_calls"];

impl BudgetLimit {
    #[must_use]
    pub fn id_of(agent: &AgentId) -> RawId {
        keyed("budget_limit", "", &agent.to_string())
    }
}

impl BudgetUsage {
    #[must_use]
    pub fn id_of(agent: &AgentId, day: &str, host: &HostId) -> RawId {
        RawId::from_hash(&Digest::new("verger.budget_usage.v1").shown(agent).text(day).shown(host).finish())
    }

    #[must_use]
    pub const fn charged(&self) -> Amounts {
        Amounts { tokens: self.tokens, cost_micros: self.cost_micros, runtime_ms: self.runtime_ms, tool_calls: self.tool_calls }
    }

    /// The same row with other totals.
    #[must_use]
    pub fn with_charged(self, charged: Amounts) -> Self {
        let Amounts { tokens, cost_micros, runtime_ms, tool_calls } = charged;
        Self { tokens, cost_micros, runtime_ms, tool_calls, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l30_sums_have_the_names_of_the_amounts() {
        assert_eq!(Amounts::NONE.named().map(|(name, _)| name), SUMS);
    }
}

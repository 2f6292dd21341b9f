//! Budgets as people see and set them: what an agent may use up in a day, and what of it is gone (L30).

use control::machine::{day_of, next_day};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Change, Expected, Guard, Write};
use domain::id::{AgentId, WorkspaceId};
use domain::record::{Record, Value};
use domain::records::agent::Agent;
use domain::records::budget::{Amounts, BudgetLimit, BudgetUsage};
use domain::time::Timestamp;
use serde::Serialize;
use serde_json::json;
use store::store::{Scan, Snapshot};

use crate::engine::budget;
use crate::house::{Held, House, expecting, held, put};
use crate::operation::{ClientKey, owner};
use crate::{Error, Result};

/// The share from which a person is warned, unless one was set.
const SOFT_PERCENT: u8 = 80;
/// LIMIT: an amount; as in manifests, far above any day and far below where sums overflow.
const AMOUNT_MAX: i64 = 1 << 50;

/// An agent's budget on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetState {
    pub agent_id: AgentId,
    /// The agent's name in its workspace.
    pub agent: String,
    /// `YYYY-MM-DD`, in UTC as long as agents have no zone of their own.
    pub day: String,
    pub limits: Amounts,
    /// Settled.
    pub used: Amounts,
    /// Set aside for asks that are under way, or that were lost: it counts as used until it is settled.
    pub reserved: Amounts,
    pub soft_percent: u8,
    /// A person has set it; otherwise it is the manifest's.
    pub set_by_person: bool,
    /// When the next day begins.
    pub resets_at: Timestamp,
}

/// How near an amount is to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearness {
    Within,
    /// The soft limit is reached.
    Soft,
    /// Nothing more may be spent.
    Spent,
}

/// What to set; what is left out stays as it is.
///
/// INVARIANT: its serialised form is what a repeat is compared by, so what was not given must not appear.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BudgetChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_percent: Option<u8>,
}

impl BudgetState {
    /// Each amount with its limit, what is used, what is reserved and how near that is, in the order of [`Amounts::named`].
    #[must_use]
    pub fn lines(&self) -> [(&'static str, i64, i64, i64, Nearness); 4] {
        let (limits, used, reserved) = (self.limits.named(), self.used.named(), self.reserved.named());
        [0, 1, 2, 3].map(|place| {
            let (name, limit) = limits[place];
            let (used, reserved) = (used[place].1, reserved[place].1);
            (name, limit, used, reserved, nearness(limit, used.saturating_add(reserved), self.soft_percent))
        })
    }
}

fn nearness(limit: i64, charged: i64, soft_percent: u8) -> Nearness {
    if charged >= limit {
        return Nearness::Spent;
    }
    let reached = i128::from(charged) * 100 >= i128::from(limit) * i128::from(soft_percent);
    if reached { Nearness::Soft } else { Nearness::Within }
}

impl House {
    /// Today's budget of an agent.
    pub fn budget(&mut self, agent_id: AgentId) -> Result<BudgetState> {
        let known: Option<Held<Agent>> = self.held(Domain::Agent, &agent_id.raw())?;
        let agent = known.ok_or_else(|| Error::new(ErrorCode::AgentNotFound, format!("there is no {agent_id}")))?.record;
        let manifest = self.manifest_of(&agent)?;
        let manifest = manifest.ok_or_else(|| Error::new(ErrorCode::ManifestInvalid, format!("{agent_id} has no manifest")))?;
        let now = self.now();
        let day = day_of(now);
        self.read(Domain::Agent, |snapshot| {
            let (limits, charged) = budget(snapshot, &agent_id, &manifest, &day)?;
            let reserved = reserved(snapshot, &agent_id, &day)?;
            let row = snapshot.get(BudgetLimit::SPEC, &BudgetLimit::id_of(&agent_id))?;
            let set = row.map(|row| held::<BudgetLimit>(&row)).transpose()?.flatten();
            Ok(BudgetState {
                agent_id,
                agent: agent.kind.to_string(),
                day,
                limits,
                used: charged.minus(reserved),
                reserved,
                soft_percent: set.as_ref().map_or(SOFT_PERCENT, |held| held.record.soft_percent),
                set_by_person: set.is_some(),
                resets_at: next_day(now),
            })
        })
    }

    /// Sets what an agent may use up in a day, from now on; true when it had been set before under the same key. What is used stays used.
    pub fn set_budget(&mut self, agent_id: AgentId, change: &BudgetChange, key: &ClientKey) -> Result<bool> {
        if *change == BudgetChange::default() {
            return Err(Error::argument("budget set", "nothing to set; give an amount or a soft limit"));
        }
        check(change)?;
        let request = json!({ "command": "budget.set", "agent": agent_id, "arguments": change });
        let id = BudgetLimit::id_of(&agent_id);
        if self.was_done(Domain::Agent, key)? {
            let (spec, workspace, expected, nothing) = (BudgetLimit::SPEC, WorkspaceId::NONE, Expected::Absent, Change::Tombstone);
            // The store compares the requests and never looks at this write.
            let write = Write { spec, id, workspace, expected, change: nothing };
            self.act(Domain::Agent, owner(), key.operation_id(), &request, Vec::new(), vec![write])?;
            return Ok(true);
        }
        let BudgetState { limits, soft_percent, .. } = self.budget(agent_id)?;
        let limit = BudgetLimit {
            agent_id,
            limits: Amounts {
                tokens: change.tokens.unwrap_or(limits.tokens),
                cost_micros: change.cost_micros.unwrap_or(limits.cost_micros),
                runtime_ms: change.runtime_ms.unwrap_or(limits.runtime_ms),
                tool_calls: change.tool_calls.unwrap_or(limits.tool_calls),
            },
            soft_percent: change.soft_percent.unwrap_or(soft_percent),
            updated_at: self.now(),
        };
        let version = self.row(Domain::Agent, BudgetLimit::SPEC, &id)?.map(|row| row.version);
        let write = put(&limit, id, WorkspaceId::NONE, expecting(version))?;
        let live = Guard::Live { spec: Agent::SPEC, id: agent_id.raw() };
        self.act(Domain::Agent, owner(), key.operation_id(), &request, vec![live], vec![write])?;
        Ok(false)
    }
}

fn check(change: &BudgetChange) -> Result<()> {
    let BudgetChange { tokens, cost_micros, runtime_ms, tool_calls, soft_percent } = change;
    let given = [("tokens", tokens), ("cost-micros", cost_micros), ("runtime-ms", runtime_ms), ("tool-calls", tool_calls)];
    for (name, amount) in given {
        if amount.is_some_and(|amount| !(0..=AMOUNT_MAX).contains(&amount)) {
            return Err(Error::argument(name, &format!("an amount is 0 to {AMOUNT_MAX}; 0 means that nothing may be spent")));
        }
    }
    if soft_percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
        return Err(Error::argument("soft-percent", "it is 1 to 100; at 100 nobody is warned before the limit"));
    }
    Ok(())
}

/// What the hosts have set aside on a day.
fn reserved(snapshot: &dyn Snapshot, agent: &AgentId, day: &str) -> Result<Amounts> {
    let mut scan = Scan::new(BudgetUsage::SPEC, "by_agent");
    scan.prefix = vec![Value::from(agent.raw()), Value::from(day)];
    let mut sum = Amounts::NONE;
    loop {
        let page = snapshot.scan(&scan)?;
        for row in &page.rows {
            sum = held::<BudgetUsage>(row)?.map_or(sum, |held| sum.plus(held.record.reserved));
        }
        let Some(next) = page.next else { return Ok(sum) };
        scan.after = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l30_the_soft_limit_warns_before_the_hard_one_is_reached() {
        for (limit, charged, expect) in [
            (100, 79, Nearness::Within),
            (100, 80, Nearness::Soft),
            (100, 99, Nearness::Soft),
            (100, 100, Nearness::Spent),
            (100, 130, Nearness::Spent),
            (0, 0, Nearness::Spent),
            (AMOUNT_MAX, 0, Nearness::Within),
        ] {
            assert_eq!(nearness(limit, charged, 80), expect, "{charged} of {limit}");
        }
    }

    #[test]
    fn what_was_not_given_is_not_part_of_the_request() {
        let change = BudgetChange { tokens: Some(0), ..BudgetChange::default() };
        assert_eq!(domain::json::write(&json!(change)).unwrap(), r#"{"tokens":0}"#);
    }
}

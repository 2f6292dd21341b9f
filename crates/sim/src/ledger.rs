//! The world's own ledger: what the outside has seen and what people were told. Checks compare with this, never with our tables alone.

use std::collections::{BTreeMap, BTreeSet};

use domain::causality::Domain;
use domain::hash::Hash;
use domain::id::{AgentId, OperationId, PromptItemId, RunId};
use domain::records::switch::SwitchSubject;

#[derive(Debug, Default)]
pub struct Ledger {
    /// Asks that models have seen.
    pub asks: u64,
    /// Tokens that the provider says it has used, per agent.
    pub meter: BTreeMap<AgentId, i64>,
    /// What services were asked to do: how often they acted, by operation.
    pub calls: BTreeMap<OperationId, Called>,
    /// Acts that people were told are done.
    pub acknowledged: Vec<(Domain, OperationId)>,
    /// Stops in force, as people were told.
    pub stopped: BTreeSet<SwitchSubject>,
    pub destroyed: BTreeSet<AgentId>,
    /// Agents that people were told are paused.
    pub paused: BTreeSet<AgentId>,
    /// What people approved: the question and the bytes that it showed.
    pub approved: BTreeMap<PromptItemId, Hash>,
    /// Approvals that were used, by the operation they let through.
    pub used: BTreeMap<OperationId, u64>,
    /// Runs that people were told of.
    pub runs: BTreeSet<RunId>,
    /// Faults that fired, by name.
    pub fired: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Called {
    pub acted: u64,
    pub honours_keys: bool,
}

impl Ledger {
    pub fn fire(&mut self, fault: &'static str) {
        *self.fired.entry(fault).or_default() += 1;
    }
}

/// A promise that was broken: the invariant's name and what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub what: String,
}

impl Violation {
    #[must_use]
    pub fn new(invariant: &'static str, what: impl Into<String>) -> Self {
        Self { invariant, what: what.into() }
    }
}

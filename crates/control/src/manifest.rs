//! The manifest: an agent as data. What it is for, what it may do, what it may use up, and what answers it.

use std::collections::{BTreeMap, BTreeSet};

use domain::records::budget::Amounts;
use domain::records::slug::Slug;
use policy::{Capability, Mode, Risk};
use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::tool;

/// The shape of a manifest that this build reads.
pub const MANIFEST_SCHEMA: u32 = 1;
/// LIMIT: a manifest's prompt; it is sent with every ask.
const PROMPT_BYTES_MAX: usize = 32 << 10;
/// LIMIT: replies of a script; enough for a long rehearsal.
const SCRIPT_REPLIES_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub schema: u32,
    /// Its name in the workspace; the same name is the same agent.
    pub agent: Slug,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(default = "home")]
    pub workspace: Slug,
    /// The standing rules, sent with every ask.
    pub prompt: String,
    #[serde(default = "proposal_json")]
    pub dialect: Dialect,
    #[serde(default = "reviewed")]
    pub mode: Mode,
    pub model: Model,
    #[serde(default = "capabilities")]
    pub capabilities: BTreeSet<Capability>,
    /// Kinds of record it may touch.
    #[serde(default = "kinds")]
    pub kinds: BTreeSet<Slug>,
    /// Tools it may use, by name.
    #[serde(default = "tools")]
    pub tools: BTreeSet<String>,
    /// Tools whose use the owner has approved once and for all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preapproved: BTreeSet<String>,
    /// Outside systems that `execute_tool` may reach, by tool name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, Service>,
    #[serde(default)]
    pub bounds: Bounds,
    /// What it may use up in a day, unless a person has set something else.
    #[serde(default = "budget")]
    pub budget: Amounts,
    /// What one ask may use up; reserved before it leaves.
    #[serde(default = "reservation")]
    pub reservation: Amounts,
    /// How long a question waits for a person.
    #[serde(default = "approval_ttl_ms")]
    pub approval_ttl_ms: u32,
    /// Pause between two cycles.
    #[serde(default)]
    pub loop_delay_ms: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "provider")]
pub enum Model {
    /// Answers from a list, the first cycle with the first reply.
    #[serde(rename = "scripted")]
    Scripted {
        #[serde(default, deserialize_with = "replies")]
        script: Vec<String>,
    },
}

impl Model {
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Scripted { .. } => "scripted",
        }
    }
}

/// A system outside, as far as the controller must know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub class: Slug,
    pub risk: Risk,
    /// The same operation id twice acts once. Without it a lost answer leaves the act in doubt.
    pub honours_keys: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Cycles of one run.
    pub max_iterations: u32,
    /// Time a run may be at work; waiting for a person does not count.
    pub max_wall_ms: u32,
    /// Tokens of one run.
    pub max_tokens: i64,
    /// Records that one cycle may create.
    pub max_notes_per_loop: u32,
    /// Records that one cycle may change.
    pub max_edits_per_loop: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { max_iterations: 100, max_wall_ms: 600_000, max_tokens: 200_000, max_notes_per_loop: 10, max_edits_per_loop: 20 }
    }
}

/// A reply may be written as text, or as the object that the text would hold.
fn replies<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let replies = Vec::<serde_json::Value>::deserialize(deserializer)?;
    let text = |reply| match reply {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Object(_) => Ok(reply.to_string()),
        _ => Err(serde::de::Error::custom("a reply of the script is a text or an object")),
    };
    replies.into_iter().map(text).collect()
}

fn home() -> Slug {
    Slug::parse("home").expect("a plain word")
}

const fn proposal_json() -> Dialect {
    Dialect::ProposalJson
}

const fn reviewed() -> Mode {
    Mode::Reviewed
}

fn capabilities() -> BTreeSet<Capability> {
    BTreeSet::from([Capability::Ask, Capability::TaskRead, Capability::TaskWrite, Capability::ArtifactWrite])
}

fn kinds() -> BTreeSet<Slug> {
    ["task", "artifact"].iter().filter_map(|kind| Slug::parse(kind).ok()).collect()
}

fn tools() -> BTreeSet<String> {
    tool::OURS.iter().map(|tool| tool.name.to_owned()).collect()
}

const fn budget() -> Amounts {
    Amounts { tokens: 100_000, cost_micros: 1_000_000, runtime_ms: 3_600_000, tool_calls: 500 }
}

const fn reservation() -> Amounts {
    Amounts { tokens: 4_000, cost_micros: 0, runtime_ms: 30_000, tool_calls: 1 }
}

const fn approval_ttl_ms() -> u32 {
    24 * 3_600_000
}

/// A field that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct Invalid {
    pub field: &'static str,
    pub rule: String,
}

impl Manifest {
    /// The rules that no type can hold.
    pub fn check(&self) -> Result<(), Invalid> {
        let invalid = |field, rule: String| Err(Invalid { field, rule });
        if self.schema != MANIFEST_SCHEMA {
            return invalid("schema", format!("{} is not known; this build reads {MANIFEST_SCHEMA}", self.schema));
        }
        if self.prompt.trim().is_empty() || self.prompt.len() > PROMPT_BYTES_MAX {
            return invalid("prompt", format!("it has 1 to {PROMPT_BYTES_MAX} bytes"));
        }
        let Model::Scripted { script } = &self.model;
        if script.len() > SCRIPT_REPLIES_MAX {
            return invalid("model.script", format!("it has at most {SCRIPT_REPLIES_MAX} replies"));
        }
        let known = |name: &str| tool::OURS.iter().any(|tool| tool.name == name) || self.services.contains_key(name);
        if let Some(name) = self.tools.iter().find(|name| !known(name)) {
            let ours: Vec<_> = tool::OURS.iter().map(|tool| tool.name).collect();
            return invalid("tools", format!("`{name}` is not a tool; there are {}", ours.join(", ")));
        }
        if let Some(name) = self.preapproved.iter().find(|name| !self.tools.contains(*name)) {
            return invalid("preapproved", format!("`{name}` is not among the agent's tools"));
        }
        if let Some(name) = self.services.keys().find(|name| tool::OURS.iter().any(|tool| tool.name == name.as_str())) {
            return invalid("services", format!("`{name}` is the name of a tool of the house"));
        }
        if self.bounds.max_iterations == 0 || self.bounds.max_wall_ms == 0 || self.bounds.max_tokens <= 0 {
            return invalid("bounds", "`max_iterations`, `max_wall_ms` and `max_tokens` are at least 1".to_owned());
        }
        for (field, amounts) in [("budget", &self.budget), ("reservation", &self.reservation)] {
            if amounts.named().iter().any(|(_, amount)| !(0..=1 << 50).contains(amount)) {
                return invalid(field, "amounts are not negative and at most 2^50".to_owned());
            }
        }
        if self.reservation.tokens == 0 {
            return invalid("reservation", "an ask reserves at least one token".to_owned());
        }
        if self.approval_ttl_ms == 0 {
            return invalid("approval_ttl_ms", "it is at least 1".to_owned());
        }
        Ok(())
    }

    /// Canonical JSON: what is stored and what the manifest's id is made of.
    pub fn canonical(&self) -> Result<String, domain::json::Error> {
        let value = serde_json::to_value(self).map_err(|error| domain::json::Error::Syntax(error.to_string()))?;
        domain::json::write(&value)
    }
}

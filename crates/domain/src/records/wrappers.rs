//! Typed wrappers with schema versions and closed extension maps (L3).
//!
//! An extension map exists so that a later build can add a namespaced field without a new wrapper. It is closed: a key that no
//! schema registers is refused when read and when written, so nothing can hide in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::id::{MessageId, OperationId};
use crate::named::named_enum;

/// Namespaced keys (`namespace.key`) that extension maps may hold. None is registered yet.
pub const REGISTERED_EXTENSION_KEYS: &[&str] = &[];

/// A map that only holds registered keys; so far it is always empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Extension(BTreeMap<String, serde_json::Value>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a registered extension key")]
pub struct UnregisteredKey(pub String);

impl Extension {
    pub fn new(entries: BTreeMap<String, serde_json::Value>) -> Result<Self, UnregisteredKey> {
        match entries.keys().find(|key| !REGISTERED_EXTENSION_KEYS.contains(&key.as_str())) {
            Some(key) => Err(UnregisteredKey(key.clone())),
            None => Ok(Self(entries)),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Extension {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(BTreeMap::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The shape of a wrapper that this build writes and the newest it reads.
pub const WRAPPER_SCHEMA_VERSION: u32 = 1;

/// A wrapper's `schema_version`; a newer one is refused instead of half understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SchemaVersion(u32);

impl Default for SchemaVersion {
    fn default() -> Self {
        Self(WRAPPER_SCHEMA_VERSION)
    }
}

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            version @ 1..=WRAPPER_SCHEMA_VERSION => Ok(Self(version)),
            version => Err(de::Error::custom(format!(
                "schema version {version} is not known; this build reads up to {WRAPPER_SCHEMA_VERSION}"
            ))),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    pub schema_version: SchemaVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    #[serde(default, skip_serializing_if = "Extension::is_empty")]
    pub extension: Extension,
}

/// A slot's value with the version that merging compares; no wall clock takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot<T> {
    pub value: T,
    pub slot_version: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSlots {
    pub schema_version: SchemaVersion,
    #[serde(default)]
    pub primary_goal: Slot<Option<String>>,
    #[serde(default)]
    pub active_task_id: Slot<Option<String>>,
    #[serde(default)]
    pub open_loop_ids: Slot<Vec<String>>,
    #[serde(default)]
    pub preference_by_key: Slot<BTreeMap<String, String>>,
    #[serde(default)]
    pub extension: Slot<Extension>,
}

named_enum! {
    ToolStatus { Success = "success", Error = "error", Partial = "partial" }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentMessageMetadata {
    pub schema_version: SchemaVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_ref_id: Option<MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_entity_ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_tokens: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Set on `action` messages: what the action was, in full (L23).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionEnvelope>,
    #[serde(default, skip_serializing_if = "Extension::is_empty")]
    pub extension: Extension,
}

named_enum! {
    ActionType {
        ToolCall = "tool_call",
        ProposePlan = "propose_plan",
        AskUser = "ask_user",
        LifecycleTransition = "lifecycle_transition",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionEnvelope {
    pub action_type: ActionType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    pub operation_id: OperationId,
    pub arguments_hash: crate::hash::Hash,
    /// The categories the agent was allowed into at that moment.
    pub scope_snapshot: Vec<crate::id::CategoryId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l23_names_are_what_is_stored() {
        assert_eq!(ToolStatus::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["success", "error", "partial"]);
        assert_eq!(
            ActionType::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            ["tool_call", "propose_plan", "ask_user", "lifecycle_transition"]
        );
    }

    #[test]
    fn l3_an_unregistered_extension_key_is_refused() {
        let text = r#"{"schema_version":1,"extension":{"acme.colour":"red"}}"#;
        let error = serde_json::from_str::<AgentConfig>(text).unwrap_err();
        assert!(error.to_string().contains("`acme.colour` is not a registered extension key"), "{error}");
        assert!(serde_json::from_str::<AgentConfig>(r#"{"schema_version":1,"extension":{}}"#).is_ok());
        let entries = BTreeMap::from([("x.y".to_owned(), serde_json::Value::Null)]);
        assert_eq!(Extension::new(entries), Err(UnregisteredKey("x.y".into())));
    }

    #[test]
    fn l3_a_newer_schema_version_and_a_raw_field_are_refused() {
        for text in [r#"{"schema_version":2}"#, r#"{"schema_version":0}"#, r#"{}"#, r#"{"schema_version":1,"modelId":"x"}"#] {
            assert!(serde_json::from_str::<AgentConfig>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<AgentMessageMetadata>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<AgentSlots>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn l3_wrappers_read_back() {
        let slots = AgentSlots { primary_goal: Slot { value: Some("rest".into()), slot_version: 3 }, ..AgentSlots::default() };
        let text = serde_json::to_string(&slots).unwrap();
        assert_eq!(serde_json::from_str::<AgentSlots>(&text).unwrap(), slots);
    }
}

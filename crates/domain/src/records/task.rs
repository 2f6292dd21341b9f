//! The task: work that the controller tracks. A model may propose one; only the controller and people write it (D6).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::entry::Actor;
use crate::id::{CategoryId, TaskId};
use crate::limits::{TASK_DESCRIPTION_CHARS_MAX, TASK_LINKS_MAX};
use crate::named::named_enum;
use crate::records::artifact::{self, ARTIFACT_TYPES};
use crate::records::slug::Slug;
use crate::time::Timestamp;

named_enum! {
    TaskStatus { Pending = "pending", InProgress = "in_progress", Done = "done", Blocked = "blocked" }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    pub description: String,
    pub status: TaskStatus,
    /// Tasks that must be done before this one is eligible.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preconditions: BTreeSet<TaskId>,
    /// What must be there before the controller calls it done; none means any artifact made for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_effects: Vec<RequiredEffect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<CategoryId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
    pub created_by: Actor,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// The person on whose word it is done; none when the controller has seen the required effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_by: Option<Actor>,
}

/// A side effect that the controller can check against the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "effect")]
pub enum RequiredEffect {
    /// The workspace holds the artifact with this type and key.
    #[serde(rename = "artifact")]
    Artifact { artifact_type: Slug, artifact_key: String },
}

/// A field that breaks its rule: named, with the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("the description is empty")]
    EmptyDescription,
    #[error("the description has {chars} characters; at most {TASK_DESCRIPTION_CHARS_MAX} are allowed")]
    LongDescription { chars: usize },
    #[error("the description holds a control character at byte {at}")]
    DescriptionControl { at: usize },
    #[error("a reason has 1 to {TASK_DESCRIPTION_CHARS_MAX} characters and no control characters")]
    BadReason,
    #[error("a task has at most {TASK_LINKS_MAX} preconditions and as many required effects")]
    ManyLinks,
    #[error("`{artifact_type}` is not a type of artifact; use one of {}", ARTIFACT_TYPES.join(", "))]
    UnknownArtifactType { artifact_type: String },
    #[error("an artifact's key has 1 to {} bytes and no control characters", crate::limits::ARTIFACT_KEY_BYTES_MAX)]
    BadArtifactKey,
}

impl Invalid {
    /// The field to correct.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::EmptyDescription | Self::LongDescription { .. } | Self::DescriptionControl { .. } => "description",
            Self::BadReason => "reason",
            Self::ManyLinks => "preconditions",
            Self::UnknownArtifactType { .. } | Self::BadArtifactKey => "required_effects",
        }
    }
}

impl Task {
    /// The rules at the edge; what is stored has passed them.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.description.trim().is_empty() {
            return Err(Invalid::EmptyDescription);
        }
        let chars = self.description.chars().count();
        if chars > TASK_DESCRIPTION_CHARS_MAX {
            return Err(Invalid::LongDescription { chars });
        }
        if let Some((at, _)) = self.description.char_indices().find(|(_, c)| c.is_control() && *c != '\n') {
            return Err(Invalid::DescriptionControl { at });
        }
        if self.blocked_reason.as_deref().is_some_and(|reason| !is_reason(reason)) {
            return Err(Invalid::BadReason);
        }
        if self.preconditions.len() > TASK_LINKS_MAX || self.required_effects.len() > TASK_LINKS_MAX {
            return Err(Invalid::ManyLinks);
        }
        for RequiredEffect::Artifact { artifact_type, artifact_key } in &self.required_effects {
            if !ARTIFACT_TYPES.contains(&artifact_type.as_str()) {
                return Err(Invalid::UnknownArtifactType { artifact_type: artifact_type.to_string() });
            }
            if !artifact::is_key(artifact_key) {
                return Err(Invalid::BadArtifactKey);
            }
        }
        Ok(())
    }
}

fn is_reason(text: &str) -> bool {
    !text.trim().is_empty()
        && text.chars().count() <= TASK_DESCRIPTION_CHARS_MAX
        && !text.chars().any(|character| character.is_control() && character != '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(TaskStatus::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["pending", "in_progress", "done", "blocked"]);
        let effect = RequiredEffect::Artifact { artifact_type: Slug::parse("context").unwrap(), artifact_key: "k".into() };
        let text = r#"{"effect":"artifact","artifact_type":"context","artifact_key":"k"}"#;
        assert_eq!(serde_json::to_string(&effect).unwrap(), text);
    }

    #[test]
    fn each_rule_names_its_field() {
        let task = |description: &str, effects: Vec<RequiredEffect>| Task {
            description: description.into(),
            status: TaskStatus::Pending,
            preconditions: BTreeSet::new(),
            required_effects: effects,
            category: None,
            blocked_reason: None,
            created_by: Actor::System,
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
            completed_at: None,
            completed_by: None,
        };
        let effect = |kind: &str, key: &str| {
            vec![RequiredEffect::Artifact { artifact_type: Slug::parse(kind).unwrap(), artifact_key: key.into() }]
        };
        assert_eq!(task("x", effect("context", "k")).check(), Ok(()));
        for (bad, field) in [
            (task(" ", vec![]), "description"),
            (task(&"x".repeat(501), vec![]), "description"),
            (task("a\0", vec![]), "description"),
            (task("x", effect("poem", "k")), "required_effects"),
            (task("x", effect("context", "")), "required_effects"),
            (Task { blocked_reason: Some(" ".into()), ..task("x", vec![]) }, "reason"),
            (Task { blocked_reason: Some("x".repeat(501)), ..task("x", vec![]) }, "reason"),
        ] {
            assert_eq!(bad.check().unwrap_err().field(), field);
        }
    }
}

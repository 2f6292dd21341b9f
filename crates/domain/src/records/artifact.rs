//! The artifact: the only persisted form of knowledge that a person or an agent gives (D10). Typed, attributed, addressable.

use serde::{Deserialize, Serialize};

use crate::entry::Actor;
use crate::id::{ArtifactId, TaskId, WorkspaceId};
use crate::key::keyed;
use crate::limits::{ARTIFACT_CONTENT_BYTES_MAX, ARTIFACT_KEY_BYTES_MAX};
use crate::named::named_enum;
use crate::records::slug::Slug;
use crate::time::Timestamp;

/// The controlled vocabulary, the specification's own types first.
pub const ARTIFACT_TYPES: &[&str] =
    &["context", "lead_scoring_config", "python_script", "message_draft", "analysis_result", "job_posting"];

named_enum! {
    ArtifactSource { User = "user", Agent = "agent" }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    pub artifact_type: Slug,
    /// With a key there is one per workspace and type; without, each is its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_key: Option<String>,
    pub source: ArtifactSource,
    pub content: String,
    /// The task it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Who said that it may be kept; nothing of an agent's is kept without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<Actor>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A field that breaks its rule: named, with the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("`{artifact_type}` is not a type of artifact; use one of {}", ARTIFACT_TYPES.join(", "))]
    UnknownType { artifact_type: String },
    #[error("an artifact's key has 1 to {ARTIFACT_KEY_BYTES_MAX} bytes and no control characters")]
    BadKey,
    #[error("the content has {bytes} bytes; 1 to {ARTIFACT_CONTENT_BYTES_MAX} are allowed")]
    ContentSize { bytes: usize },
    #[error("the content holds a NUL character at byte {at}")]
    ContentNul { at: usize },
}

impl Artifact {
    /// The rules at the edge; what is stored has passed them.
    pub fn check(&self) -> Result<(), Invalid> {
        if !ARTIFACT_TYPES.contains(&self.artifact_type.as_str()) {
            return Err(Invalid::UnknownType { artifact_type: self.artifact_type.to_string() });
        }
        if self.artifact_key.as_deref().is_some_and(|key| !is_key(key)) {
            return Err(Invalid::BadKey);
        }
        if self.content.is_empty() || self.content.len() > ARTIFACT_CONTENT_BYTES_MAX {
            return Err(Invalid::ContentSize { bytes: self.content.len() });
        }
        match self.content.find('\0') {
            Some(at) => Err(Invalid::ContentNul { at }),
            None => Ok(()),
        }
    }
}

/// Whether a text can be an artifact's key.
#[must_use]
pub fn is_key(text: &str) -> bool {
    !text.is_empty() && text.len() <= ARTIFACT_KEY_BYTES_MAX && !text.chars().any(char::is_control)
}

impl ArtifactId {
    /// The one artifact of a workspace with this type and key.
    #[must_use]
    pub fn of_key(workspace: &WorkspaceId, artifact_type: &Slug, artifact_key: &str) -> Self {
        Self::from_raw(keyed("artifact", &workspace.to_string(), &format!("{artifact_type}/{artifact_key}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(ArtifactSource::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["user", "agent"]);
        assert!(ARTIFACT_TYPES.iter().all(|kind| Slug::parse(kind).is_ok()));
    }
}

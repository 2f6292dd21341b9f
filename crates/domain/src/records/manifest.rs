//! The agent's manifest as it was given: content-addressed, so that a run names exactly what it was made of.

use serde::{Deserialize, Serialize};

use crate::hash::Digest;
use crate::id::{ManifestId, RawId};
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredManifest {
    /// Canonical JSON of the manifest.
    pub content: String,
    pub stored_at: Timestamp,
}

impl ManifestId {
    #[must_use]
    pub fn of_content(content: &str) -> Self {
        Self::from_raw(RawId::from_hash(&Digest::new("verger.manifest.v1").text(content).finish()))
    }
}

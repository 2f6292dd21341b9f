//! The label: how a keyword is shown. Notes name labels by slug, so a label without a record still works.

use serde::{Deserialize, Serialize};

use crate::records::slug::Slug;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    pub slug: Slug,
    pub title: String,
    /// `#rrggbb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colour: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

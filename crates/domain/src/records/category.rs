//! The category: a scope inside a workspace, which agents are allowed into by name. Its id is derived from workspace and slug.

use serde::{Deserialize, Serialize};

use crate::records::slug::Slug;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Category {
    pub slug: Slug,
    pub title: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

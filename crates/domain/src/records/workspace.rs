//! The workspace: the namespace that every other record belongs to. Its id is derived from its slug.

use serde::{Deserialize, Serialize};

use crate::named::named_enum;
use crate::records::slug::Slug;
use crate::time::Timestamp;

named_enum! {
    WorkspaceKind {
        Personal = "personal",
        /// A workspace with a lifecycle, run by the campaign controller.
        Campaign = "campaign",
    }
}

named_enum! {
    WorkspaceState { Active = "active", Archived = "archived" }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    pub slug: Slug,
    pub title: String,
    pub kind: WorkspaceKind,
    pub state: WorkspaceState,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(WorkspaceKind::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["personal", "campaign"]);
        assert_eq!(WorkspaceState::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["active", "archived"]);
    }
}

//! The fence: the epoch that a subject (an agent, a switch, a lease) has been raised to. A commit guarded by an older epoch is refused.

use serde::{Deserialize, Serialize};

use crate::id::RawId;
use crate::key::keyed;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fence {
    pub subject: String,
    #[serde(with = "crate::records::cursor::counter_text")]
    pub epoch: u64,
    pub raised_at: Timestamp,
}

impl Fence {
    #[must_use]
    pub fn id_of(subject: &str) -> RawId {
        keyed("fence", "", subject)
    }
}

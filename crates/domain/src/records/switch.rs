//! The kill switch: a stop that stays until a person releases it (L31). The fence of the same subject keeps late work out.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::entry::Actor;
use crate::id::{AgentId, RawId};
use crate::key::keyed;
use crate::records::cursor::counter_text;
use crate::records::slug::Slug;
use crate::time::Timestamp;

/// What a switch stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchSubject {
    Everything,
    Agent(AgentId),
    /// All tools of a class.
    Tools(Slug),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    pub subject: SwitchSubject,
    pub stopped: bool,
    /// Raised by every stop, together with the fence.
    #[serde(with = "counter_text")]
    pub epoch: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub changed_by: Actor,
    pub changed_at: Timestamp,
}

impl SwitchSubject {
    #[must_use]
    pub fn row_id(&self) -> RawId {
        keyed("switch", "", &self.to_string())
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('/') {
            None => (text == "everything").then_some(Self::Everything),
            Some(("agent", id)) => AgentId::parse(id).ok().map(Self::Agent),
            Some(("tools", class)) => Slug::parse(class).ok().map(Self::Tools),
            Some(_) => None,
        }
    }

    /// The fence that a stop of this subject raises.
    #[must_use]
    pub fn fence(&self) -> String {
        format!("switch/{self}")
    }
}

impl fmt::Display for SwitchSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Agent(id) => write!(f, "agent/{id}"),
            Self::Tools(class) => write!(f, "tools/{class}"),
        }
    }
}

impl Serialize for SwitchSubject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SwitchSubject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not `everything`, `agent/…` or `tools/…`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l31_a_subject_has_one_text() {
        let agent = AgentId::from_raw(RawId::from_bytes([7; 16]));
        for subject in [SwitchSubject::Everything, SwitchSubject::Agent(agent), SwitchSubject::Tools(Slug::parse("task").unwrap())]
        {
            assert_eq!(SwitchSubject::parse(&subject.to_string()), Some(subject));
        }
        assert_eq!(SwitchSubject::parse("tools/"), None);
        assert_eq!(SwitchSubject::parse("all"), None);
    }
}

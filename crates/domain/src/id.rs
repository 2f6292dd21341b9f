//! Ids: sixteen bytes on disk, a readable prefix and 26 base-32 characters in text (`note_0c9k…`).
//!
//! A typed id refuses another kind's prefix when it is read. Ids that two devices must agree on are derived (see [`crate::key`]);
//! all others come from a source that the edge injects.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::hash::Hash;

/// Crockford's alphabet in lower case: no `i`, `l`, `o`, `u`, and its order is the order of the bytes.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 26 characters of five bits hold 128 bits; the first holds three.
const TEXT_LEN: usize = 26;

/// The sixteen bytes of an id whose kind is known from elsewhere (a table, a log entry).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawId([u8; 16]);

impl RawId {
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The first half of a hash: what every derived id is.
    #[must_use]
    pub fn from_hash(hash: &Hash) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        Self(bytes)
    }

    /// Reads the 26 characters behind the prefix.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != TEXT_LEN {
            return None;
        }
        let mut value: u128 = 0;
        for (position, character) in text.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|known| *known == character)?;
            if position == 0 && digit > 7 {
                return None;
            }
            value = value << 5 | digit as u128;
        }
        Some(Self(value.to_be_bytes()))
    }

    /// Reads a text with any prefix: `note_0c9k…`.
    #[must_use]
    pub fn parse_prefixed(text: &str) -> Option<(&str, Self)> {
        let (prefix, rest) = text.rsplit_once('_')?;
        Some((prefix, Self::parse(rest)?))
    }

    /// The text form under the prefix of its kind.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> String {
        format!("{prefix}_{self}")
    }
}

impl fmt::Display for RawId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = u128::from_be_bytes(self.0);
        let mut text = [0; TEXT_LEN];
        for (position, character) in text.iter_mut().enumerate() {
            let shift = 5 * (TEXT_LEN - 1 - position);
            *character = ALPHABET[(value >> shift) as usize & 31];
        }
        f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for RawId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what} id; one looks like `{prefix}_` and 26 characters")]
pub struct ParseError {
    pub text: String,
    pub what: &'static str,
    pub prefix: &'static str,
}

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident = $prefix:literal, $what:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(RawId);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            #[must_use]
            pub const fn from_raw(raw: RawId) -> Self { Self(raw) }

            #[must_use]
            pub const fn raw(&self) -> RawId { self.0 }

            pub fn parse(text: &str) -> Result<Self, ParseError> {
                match RawId::parse_prefixed(text) {
                    Some(($prefix, raw)) => Ok(Self(raw)),
                    _ => Err(ParseError { text: shortened(text), what: $what, prefix: $prefix }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(self, f) }
        }

        impl std::str::FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> { Self::parse(text) }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    )+

    /// Every prefix with what it names, for the test that they differ.
    #[cfg(test)]
    const PREFIXES: &[(&str, &str)] = &[$(($prefix, $what)),+];
    };
}

ids! {
    /// One writer of logs: a device, or a node's slot on PostgreSQL.
    HostId = "host", "host";
    /// One log's life: a restore begins a new one.
    HistoryId = "hist", "history";
    /// What makes a repeat harmless: the name of one Commit.
    OperationId = "op", "operation";
    WorkspaceId = "ws", "workspace";
    CategoryId = "cat", "category";
    LabelId = "label", "label";
    NoteId = "note", "note";
    PersonId = "person", "person";
    AgentId = "agent", "agent";
    AgentStateId = "state", "agent state";
    MessageId = "msg", "message";
    PayloadId = "pay", "payload";
    LinkId = "link", "link";
    EventId = "event", "event";
    TaskId = "task", "task";
    ArtifactId = "art", "artifact";
    WakeId = "wake", "wake";
    RunId = "run", "run";
    CycleId = "cycle", "cycle";
    PromptItemId = "ask", "prompt item";
    PromptResponseId = "answer", "prompt response";
    ManifestId = "manifest", "manifest";
}

impl WorkspaceId {
    /// The workspace of rows that belong to none (cursors, fences).
    pub const NONE: Self = Self(RawId([0; 16]));
}

/// Error texts quote input, but never a megabyte of it.
fn shortened(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return text.to_owned();
    }
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wrong_prefix_is_refused() {
        let text = NoteId::from_raw(RawId([7; 16])).to_string();
        assert!(NoteId::parse(&text).is_ok());
        let error = AgentId::parse(&text).unwrap_err();
        assert_eq!(error.prefix, "agent");
        assert!(NoteId::parse(&text.to_uppercase()).is_err());
        assert!(NoteId::parse(&"x".repeat(10_000_000)).unwrap_err().text.len() < 300);
    }

    #[test]
    fn prefixes_differ() {
        let set: BTreeSet<_> = PREFIXES.iter().map(|(prefix, _)| prefix).collect();
        assert_eq!(set.len(), PREFIXES.len());
    }

    #[test]
    fn the_highest_id_is_the_last_text() {
        assert_eq!(RawId([255; 16]).to_string(), "7zzzzzzzzzzzzzzzzzzzzzzzzz");
        assert_eq!(RawId::parse("8zzzzzzzzzzzzzzzzzzzzzzzzz"), None);
    }

    proptest! {
        #[test]
        fn text_reads_back_and_keeps_the_order(a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
            let (a, b) = (RawId(a), RawId(b));
            prop_assert_eq!(RawId::parse(&a.to_string()), Some(a));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}

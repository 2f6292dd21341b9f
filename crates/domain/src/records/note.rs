//! The note: what people and agents write down (K13, K14, K23).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::CategoryId;
use crate::limits::{LABELS_MAX, NOTE_TEXT_BYTES_MAX, TITLE_BYTES_MAX};
use crate::records::slug::Slug;
use crate::time::Timestamp;

/// The kinds a note may have. The set is open: stored kinds that this build does not know are kept, new ones are refused at the edge.
pub const KINDS: &[&str] = &["note", "template", "document", "meeting", "summary", "settings", "media_image", "media_video"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    pub title: String,
    pub text: String,
    pub kind: Slug,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<CategoryId>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Slug>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A field that breaks its rule: named, with the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("the title is empty; leave it out to get the current date and time")]
    EmptyTitle,
    #[error("the title has {bytes} bytes; at most {TITLE_BYTES_MAX} are allowed")]
    LongTitle { bytes: usize },
    #[error("the title holds a line break or another control character at byte {at}")]
    TitleControl { at: usize },
    #[error("the text has {bytes} bytes; at most {NOTE_TEXT_BYTES_MAX} are allowed")]
    LongText { bytes: usize },
    #[error("the text holds a NUL character at byte {at}")]
    TextNul { at: usize },
    #[error("`{kind}` is not a kind of note; use one of {}", KINDS.join(", "))]
    UnknownKind { kind: String },
    #[error("a note has at most {LABELS_MAX} labels")]
    ManyLabels,
}

impl Invalid {
    /// The field to correct.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::EmptyTitle | Self::LongTitle { .. } | Self::TitleControl { .. } => "title",
            Self::LongText { .. } | Self::TextNul { .. } => "text",
            Self::UnknownKind { .. } => "kind",
            Self::ManyLabels => "labels",
        }
    }
}

impl Note {
    /// The rules at the edge; what is stored has passed them.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.title.trim().is_empty() {
            return Err(Invalid::EmptyTitle);
        }
        if self.title.len() > TITLE_BYTES_MAX {
            return Err(Invalid::LongTitle { bytes: self.title.len() });
        }
        if let Some((at, _)) = self.title.char_indices().find(|(_, character)| character.is_control()) {
            return Err(Invalid::TitleControl { at });
        }
        if self.text.len() > NOTE_TEXT_BYTES_MAX {
            return Err(Invalid::LongText { bytes: self.text.len() });
        }
        if let Some(at) = self.text.find('\0') {
            return Err(Invalid::TextNul { at });
        }
        if !KINDS.contains(&self.kind.as_str()) {
            return Err(Invalid::UnknownKind { kind: self.kind.to_string() });
        }
        if self.labels.len() > LABELS_MAX {
            return Err(Invalid::ManyLabels);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(title: &str, text: &str, kind: &str) -> Note {
        Note {
            title: title.into(),
            text: text.into(),
            kind: Slug::parse(kind).unwrap(),
            category: None,
            labels: BTreeSet::new(),
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
        }
    }

    #[test]
    fn k23_each_rule_names_its_field() {
        let check = |note: Note, field: &str| assert_eq!(note.check().unwrap_err().field(), field);
        assert_eq!(note("a", "b", "note").check(), Ok(()));
        check(note("  ", "", "note"), "title");
        check(note(&"x".repeat(10 << 20), "", "note"), "title");
        check(note("a\nb", "", "note"), "title");
        check(note("a\0b", "", "note"), "title");
        check(note("a", "x\0", "note"), "text");
        check(note("a", &"x".repeat(NOTE_TEXT_BYTES_MAX + 1), "note"), "text");
        check(note("a", "", "poem"), "kind");
    }
}

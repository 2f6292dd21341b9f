//! Dialects turn an answer into proposals. The controller does not know which one was used.
//!
//! Each is a pure function over the text, bounded in time and memory, with named faults. A fault says what and where, never what the
//! text was. Whatever a dialect tolerates it records as a repair.

pub mod proposal_json;

use domain::named_enum;
use serde::{Deserialize, Serialize};

use crate::proposal::Proposal;

named_enum! {
    Dialect { ProposalJson = "proposal_json" }
}

named_enum! {
    FaultKind {
        Empty = "empty",
        TooLarge = "too_large",
        NoProposal = "no_proposal",
        SeveralProposals = "several_proposals",
        NotJson = "not_json",
        DuplicateField = "duplicate_field",
        FloatingPoint = "floating_point",
        UnknownAction = "unknown_action",
        MissingField = "missing_field",
        UnknownField = "unknown_field",
        WrongType = "wrong_type",
        TooShort = "too_short",
        TooLong = "too_long",
        BadId = "bad_id",
        NotAllowed = "not_allowed",
    }
}

/// What is wrong with an answer: the kind and the place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub kind: FaultKind,
    /// A field of the schema, never a text of the model's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// Byte of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

impl Fault {
    #[must_use]
    pub fn of(kind: FaultKind) -> Self {
        Self { kind, field: String::new(), at: None }
    }

    #[must_use]
    pub fn in_field(kind: FaultKind, field: &str) -> Self {
        Self { kind, field: field.to_owned(), at: None }
    }

    /// For people and for the model that has to do better.
    #[must_use]
    pub fn sentence(&self) -> String {
        let place = match (self.field.as_str(), self.at) {
            ("", None) => String::new(),
            ("", Some(at)) => format!(" at byte {at}"),
            (field, _) => format!(" in `{field}`"),
        };
        let what = match self.kind {
            FaultKind::Empty => "the answer is empty",
            FaultKind::TooLarge => "the answer is too large",
            FaultKind::NoProposal => "there is no object with an `action`",
            FaultKind::SeveralProposals => "there is more than one object with an `action`",
            FaultKind::NotJson => "the JSON is broken",
            FaultKind::DuplicateField => "a field occurs twice",
            FaultKind::FloatingPoint => "floating-point numbers are not used here",
            FaultKind::UnknownAction => "the action is not one of the eight",
            FaultKind::MissingField => "a field is missing",
            FaultKind::UnknownField => "a field is not part of the schema",
            FaultKind::WrongType => "a field has the wrong type",
            FaultKind::TooShort => "a text is too short",
            FaultKind::TooLong => "a text or a list is too long",
            FaultKind::BadId => "an id does not read",
            FaultKind::NotAllowed => "a value is not one of those allowed",
        };
        format!("{what}{place}")
    }
}

/// What an answer held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decoded {
    pub proposals: Vec<Proposal>,
    /// Bytes of text around the proposal, ignored.
    pub narration_bytes: u64,
}

impl Dialect {
    /// Decodes an answer; all faults that were found, or the proposals.
    pub fn decode(self, text: &str) -> Result<Decoded, Vec<Fault>> {
        match self {
            Self::ProposalJson => proposal_json::decode(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(Dialect::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["proposal_json"]);
        assert_eq!(
            FaultKind::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            [
                "empty",
                "too_large",
                "no_proposal",
                "several_proposals",
                "not_json",
                "duplicate_field",
                "floating_point",
                "unknown_action",
                "missing_field",
                "unknown_field",
                "wrong_type",
                "too_short",
                "too_long",
                "bad_id",
                "not_allowed"
            ]
        );
    }
}

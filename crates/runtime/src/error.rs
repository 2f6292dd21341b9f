//! What a command answers when it cannot do what was asked: a code, the thing, the rule.

use domain::code::ErrorCode;
use serde_json::json;

pub type Result<T> = std::result::Result<T, Error>;

/// An answer that is not a result. The next step is in the code's table entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: ErrorCode,
    pub message: String,
    /// What a program needs to act on it; an object.
    pub details: serde_json::Value,
}

impl Error {
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: json!({}) }
    }

    #[must_use]
    pub fn argument(name: &str, message: &str) -> Self {
        Self { code: ErrorCode::InvalidArgument, message: format!("{name}: {message}"), details: json!({ "argument": name }) }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        let details = match &error {
            store::Error::VersionConflict { kind, prefix, id, expected, current, deleted } => json!({
                "kind": kind, "id": id.with_prefix(prefix), "expected_version": expected, "current_version": current, "deleted": deleted,
            }),
            store::Error::OperationIdReused { operation_id } | store::Error::CommitUnknown { operation_id, .. } => {
                json!({ "operation_id": operation_id })
            }
            store::Error::SchemaNewer { found, known, .. } => json!({ "found": found, "known": known }),
            _ => json!({}),
        };
        Self { code: error.code(), message: error.to_string(), details }
    }
}

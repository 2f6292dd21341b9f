//! What a command answers when it cannot do what was asked: a code, the thing, the rule.

use domain::code::ErrorCode;
use serde_json::json;

pub type Result<T> = std::result::Result<T, Error>;

/// An answer that is not a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: ErrorCode,
    pub message: String,
    /// What a program needs to act on it; an object.
    pub details: serde_json::Value,
    /// What to do about it, where the code's table entry does not fit this case.
    pub next: Option<&'static str>,
}

impl Error {
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: json!({}), next: None }
    }

    #[must_use]
    pub fn argument(name: &str, message: &str) -> Self {
        let details = json!({ "argument": name });
        Self { details, ..Self::new(ErrorCode::InvalidArgument, format!("{name}: {message}")) }
    }

    /// What to do about it.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        self.next.unwrap_or_else(|| self.code.next_step())
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
        Self { details, ..Self::new(error.code(), error.to_string()) }
    }
}

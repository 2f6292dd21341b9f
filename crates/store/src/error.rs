//! What a commit or a read may answer instead of a result.
//!
//! Refusals are certain: nothing was written and the caller can act on them. Failures are the store's: a backend's error with
//! what is known about the commit.

use domain::causality::{Domain, Dot};
use domain::code::ErrorCode;
use domain::id::{OperationId, RawId};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{} {}, and this was meant for {}", id.with_prefix(prefix), found_shown(*current, *deleted), version_shown(*expected))]
    VersionConflict {
        kind: &'static str,
        prefix: &'static str,
        id: RawId,
        /// `None` expected no row.
        expected: Option<u64>,
        current: Option<u64>,
        deleted: bool,
    },
    #[error("operation {operation_id} was used for a different request")]
    OperationIdReused { operation_id: OperationId },
    #[error("{} takes a key that another {kind} holds", id.with_prefix(prefix))]
    DuplicateKey { kind: &'static str, prefix: &'static str, id: RawId },
    #[error("{} is not what the commit was decided on: {found}", id.with_prefix(prefix))]
    GuardFailed { kind: &'static str, prefix: &'static str, id: RawId, found: String },
    #[error("`{subject}` is fenced at epoch {current}; the commit belongs to epoch {epoch}")]
    Fenced { subject: String, epoch: u64, current: u64 },
    #[error("{aggregate} of {kind} is {current}; adding {adding} would pass the limit of {limit}")]
    LimitReached { kind: &'static str, aggregate: &'static str, current: i64, adding: i64, limit: i64 },
    #[error("the commit is impossible: {0}")]
    InvalidCommit(String),
    #[error("the disk is full: {0}")]
    Full(String),
    #[error("the {domain} store failed: {message}")]
    Storage { domain: Domain, message: String },
    #[error("the {domain} store failed twice and is read-only until restart: {message}")]
    Failing { domain: Domain, message: String },
    #[error("operation {operation_id} may or may not be durable in the {domain} store: {message}")]
    CommitUnknown { domain: Domain, operation_id: OperationId, message: String },
    #[error("the {domain} database is damaged: {message}")]
    Damaged { domain: Domain, message: String },
    #[error("the {domain} database has schema {found}; this build knows up to {known}")]
    SchemaNewer { domain: Domain, found: u32, known: u32 },
    #[error("the {domain} database was last written by an older version: {what}")]
    SchemaOlder { domain: Domain, what: String },
    #[error("no {domain} database at {path}")]
    Missing { domain: Domain, path: String },
    #[error("consumer `{consumer}` stands at {place}, which this log does not have")]
    CursorFromOtherHistory { consumer: String, place: String },
    #[error("the snapshot is older than it may get")]
    SnapshotExpired,
    #[error("a stored row does not read: {0}")]
    Unreadable(String),
    #[error("log entry {} does not read: {message}", place(dot))]
    BadEntry { dot: Dot, message: String },
}

impl Error {
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::VersionConflict { .. } => ErrorCode::VersionConflict,
            Self::OperationIdReused { .. } => ErrorCode::OperationIdReused,
            Self::DuplicateKey { .. } => ErrorCode::DuplicateKey,
            Self::GuardFailed { .. } => ErrorCode::GuardFailed,
            Self::Fenced { .. } => ErrorCode::Fenced,
            Self::LimitReached { .. } => ErrorCode::LimitReached,
            Self::InvalidCommit(_) => ErrorCode::InvalidCommit,
            Self::Full(_) => ErrorCode::StorageFull,
            Self::Storage { .. } => ErrorCode::StorageError,
            Self::Failing { .. } => ErrorCode::StorageFailing,
            Self::CommitUnknown { .. } => ErrorCode::CommitUnknown,
            Self::BadEntry { .. } => ErrorCode::LogDamaged,
            Self::Damaged { .. } | Self::Unreadable(_) => ErrorCode::DatabaseDamaged,
            Self::SchemaNewer { .. } => ErrorCode::SchemaNewer,
            Self::SchemaOlder { .. } => ErrorCode::SchemaOlder,
            Self::Missing { .. } => ErrorCode::HomeMissing,
            Self::CursorFromOtherHistory { .. } => ErrorCode::CursorFromOtherHistory,
            Self::SnapshotExpired => ErrorCode::SnapshotExpired,
        }
    }

    /// The commit's own fault: nothing was written, and the transaction it was in goes on without it.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::VersionConflict { .. }
                | Self::OperationIdReused { .. }
                | Self::DuplicateKey { .. }
                | Self::GuardFailed { .. }
                | Self::Fenced { .. }
                | Self::LimitReached { .. }
                | Self::InvalidCommit(_)
        )
    }
}

fn version_shown(expected: Option<u64>) -> String {
    expected.map_or_else(|| "a new one".to_owned(), |version| format!("version {version}"))
}

fn found_shown(current: Option<u64>, deleted: bool) -> String {
    match (current, deleted) {
        (None, _) => "does not exist".to_owned(),
        (Some(version), false) => format!("is at version {version}"),
        (Some(version), true) => format!("was deleted at version {version}"),
    }
}

/// How people write a place in the log: `host_…/synced#12`.
#[must_use]
pub fn place(dot: &Dot) -> String {
    format!("{}/{}#{}", dot.stream.host, dot.stream.stream, dot.counter)
}

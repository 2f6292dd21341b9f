//! Everything that is kept: one write path, one log, tables that are projections of it.
//!
//! Owns: the storage trait and its backends (in memory, SQLite, PostgreSQL), the group-commit actor above them, cursors,
//! verification and rebuild of the log, migrations.
//!
//! Must not know: controller rules, who is allowed, what a record means. It stores what the catalogue declares.
//!
//! Invariants: a result leaves only after COMMIT; counters of a stream are dense; a refused commit leaves nothing; the rules of a
//! commit are in one function ([`apply`](self)), and backends only read and write rows for it.
//!
//! Start at [`store::Store`] for the trait, at `apply.rs` for what a commit does, at [`actor`] for who calls it.

pub mod actor;
mod apply;
mod committer;
pub mod cursor;
pub mod env;
mod error;
mod group;
pub mod memory;
mod platform;
mod pool;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod row;
pub mod sqlite;
pub mod store;
mod streams;
pub mod verify;

pub use committer::Committer;
pub use error::{Error, Result, place};

//! The store's contract tests: one suite for every backend, and what only SQLite or PostgreSQL can get wrong.

mod actor;
mod conformance;
mod crash;
mod damage;
mod fault_vfs;
mod files;
mod fixtures;
mod fuzzed;
mod memory;
mod model;
#[cfg(feature = "postgres")]
mod pg_server;
#[cfg(feature = "postgres")]
mod postgres;
mod saga;
mod sqlite;

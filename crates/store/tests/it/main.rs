//! The store's contract tests: one suite for every backend, and what only SQLite or PostgreSQL can get wrong.

// Says to clippy that everything in here is a test, helpers included.
#![cfg(test)]

mod actor;
mod conformance;
mod crash;
mod damage;
mod files;
mod fixtures;
mod fuzzed;
mod memory;
mod model;
#[cfg(feature = "postgres")]
mod pg_server;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

//! The vocabulary of Verger: what things are called, how they are identified and how they are hashed.
//!
//! Owns: ids and key derivations, clocks as values, canonical JSON and hashing, the log entry and its chain, records and
//! their declarations, the commit as a value, the error-code table.
//!
//! Must not know: IO, async, SQL, HTTP, time of day, randomness. Whatever is not a function of its arguments comes in as
//! an argument; the room's `clippy.toml` makes that a lint.
//!
//! Invariants: every key and chain value is a hash over one canonical JSON array that begins with a versioned tag; bodies and requests
//! are hashed with a salt; two equal values have equal bytes; ids that two devices must agree on are functions of content and
//! causes.
//!
//! Start at [`commit`] for what a write is, at [`entry`] for what the log keeps, at [`catalogue`] for the records.

pub mod catalogue;
pub mod causality;
pub mod code;
pub mod commit;
pub mod entry;
pub mod hash;
pub mod id;
pub mod json;
pub mod key;
pub mod limits;
mod named;
pub mod plant;
pub mod record;
pub mod records;
pub mod time;
pub mod token;

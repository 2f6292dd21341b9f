//! The simulator: a whole world around the real code, on one thread, drawn from one seed.
//!
//! Owns: the world (clock, disk, models, services, people, a process that dies), the faults, the checkers of the invariants, shrinking,
//! the hunt for planted bugs.
//!
//! Must not know: how the code it runs is made. It drives `runtime`'s engine and people's commands as production does, watches every commit
//! as it lands, and compares with its own ledger.
//!
//! Invariants: the same setup is the same world, bit for bit; a random value depends on seed and event alone, so that an event can be
//! left out; every violation names its invariant.
//!
//! Start at [`world::World`], then `checkers`.

pub mod checkers;
pub mod env;
pub mod hunt;
pub mod ledger;
pub mod outside;
pub mod people;
pub mod place;
#[cfg(feature = "planted")]
pub mod plants;
pub mod profile;
pub mod rng;
pub mod seeds;
pub mod stores;
pub mod world;

//! Tests of the simulator and of what it runs.

// Says to clippy that everything in here is a test, helpers included.
#![cfg(test)]

#[cfg(feature = "planted")]
mod plants;
mod scenario;
mod seeds;
mod sweep;
mod wipe;

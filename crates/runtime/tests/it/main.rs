//! The engine against stores in memory: whole runs, step by step.

// Says to clippy that everything in here is a test, helpers included.
#![cfg(test)]

mod holes;
mod house;
mod people;
mod recordings;
mod runs;
mod worker;

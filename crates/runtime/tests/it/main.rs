//! The engine against stores in memory: whole runs, step by step.

mod house;
mod people;
mod runs;
mod worker;

//! The engine against stores in memory: whole runs, step by step.

mod holes;
mod house;
mod people;
mod recordings;
mod runs;
mod worker;

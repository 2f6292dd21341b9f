//! The controller: what follows from an answer, a result, a person's word. It decides and never does.
//!
//! Owns: the run's machine and its wire types, dialects, context assembly, planning, verification, replay.
//!
//! Must not know: tokio, SQL, provider formats, files, clocks. Everything comes in with an event and goes out as a value.
//!
//! Invariants: a step is a function of state, event and instant; a plan is durable before anything of it is carried out; the model's word
//! changes nothing, only an effect that was verified does; every run ends, because every loop has a bound.
//!
//! Start at [`machine::step`], then [`run::Run`] for what is kept and [`replay`] for how it is proven.

pub mod action;
pub mod board;
pub mod context;
pub mod cycle;
pub mod dialect;
pub mod loop_state;
pub mod machine;
pub mod manifest;
mod message;
mod plan;
pub mod proposal;
pub mod replay;
pub mod run;
pub mod tool;
pub mod verify;

//! The engine: carries out what the controller's machine decides, one durable point at a time.
//!
//! Everything that matters is in the stores. A [`drive::Drive`] holds in memory only what cannot be stored yet: an answer on its way to point B,
//! observations on their way to point D. Whoever opens the stores next goes on from there.

pub mod drive;
mod facts;
pub(crate) mod fences;
mod jobs;
mod outside;
mod perform;
pub(crate) mod point;
mod recording;
pub(crate) mod wakes;

pub use drive::{Drive, Progress, Rest};
pub(crate) use facts::{agent_fence, budget, gate, task_fact};
pub use jobs::Job;
pub use outside::{Answer, Call, CallResult, Outside, Scripted};
pub use recording::Recall;

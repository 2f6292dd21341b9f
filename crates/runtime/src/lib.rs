//! The house in operation: opening a home, recovering it, and the commands that people and programs give.
//!
//! Owns: the home's layout and lock, [`Handle`] (everything that may write), [`View`] (everything that only reads), recovery on start.
//!
//! Must not know: HTML, command-line flags, SQL, what a model said.
//!
//! Invariants: one process owns a home at a time; reading never takes the lock; every command that writes has an operation id, and
//! repeating it is harmless.
//!
//! Start at [`Handle::open`], then `notes.rs` for what a command looks like.

mod agents;
mod artifacts;
mod board;
mod budgets;
pub mod engine;
mod error;
mod explanations;
mod handle;
mod home;
mod house;
mod inbox;
mod logs;
mod manifests;
mod notes;
mod operation;
mod pages;
mod people;
mod platform;
mod replays;
mod run_bench;
mod runs;
mod switches;
mod tasks;
pub mod trace;
mod view;
mod waits;
mod worker;

pub use agents::AgentRecord;
pub use artifacts::ArtifactRecord;
pub use board::{Precondition, TaskDetail, TaskPage, TaskRecord};
pub use budgets::{BudgetChange, BudgetState, Nearness};
pub use error::{Error, Result};
pub use explanations::{Explanation, Imagined};
pub use handle::{Handle, Opened};
pub use home::{Home, Initialised, copy_folder};
pub use house::House;
pub use inbox::{PromptPage, PromptRecord};
pub use logs::{Anchor, CursorState, EntryRecord, LogStatus, RebuildOutcome, rebuild};
pub use manifests::{parse_manifest, read_manifest};
pub use notes::{NoteChange, NoteDone, NoteDraft, NotePage, NoteRecord, NoteVersion};
pub use operation::ClientKey;
pub use people::Stopped;
pub use replays::{Replayed, replay_file, replay_text};
pub use run_bench::{Effort, ReplayFigure, RunFigure, RunReport, measure_runs};
pub use runs::{AskView, RunLine, RunView, WaitView};
pub use tasks::{TaskChange, TaskDone, TaskDraft};
pub use view::View;
pub use waits::{Needs, Shortfall};
pub use worker::{Watched, Worker};

pub use policy::{Decision, LayerVerdict};
pub use store::env::Env;
pub use store::sqlite::bench;
pub use store::verify::StreamReport;

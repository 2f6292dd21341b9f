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

mod error;
mod handle;
mod home;
mod logs;
mod notes;
mod operation;
mod platform;
pub mod tool;
mod view;

pub use error::{Error, Result};
pub use handle::{Handle, Opened};
pub use home::{Home, Initialised, copy_folder};
pub use logs::{Anchor, CursorState, EntryRecord, LogStatus, RebuildOutcome, rebuild};
pub use notes::{NoteChange, NoteDone, NoteDraft, NotePage, NoteRecord, NoteVersion};
pub use operation::ClientKey;
pub use view::View;

pub use store::env::Env;
pub use store::sqlite::bench;
pub use store::verify::StreamReport;

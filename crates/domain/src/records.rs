//! The typed structs behind the records, one file each. Their declarations are in [`crate::catalogue`].
//!
//! Bodies use snake case, leave absent options out, and refuse fields they do not know: a build that is too old for a body says so
//! instead of dropping half of it on the next edit.

pub mod agent;
pub mod artifact;
pub mod budget;
pub mod category;
pub mod cursor;
pub mod fence;
pub mod label;
pub mod lease;
pub mod link;
pub mod manifest;
pub mod message;
pub mod note;
pub mod payload;
pub mod prompt;
pub mod slug;
pub mod switch;
pub mod task;
pub mod wake;
pub mod workspace;
pub mod wrappers;

//! `verger bench …`.

use clap::Subcommand;
use runtime::Env;

use crate::output::{Failure, Out};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Commits side by side with a hand-written SQLite baseline, growth, space and opening
    Store,
}

pub(crate) fn run(_command: &BenchCommand, _env: &Env, _out: &mut Out) -> Result<(), Failure> {
    Ok(())
}

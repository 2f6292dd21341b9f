//! The `verger` binary: reads the command line, asks the runtime, shows the answer.
//!
//! Owns: flags and their help, output for people and for programs, exit codes, progress.
//!
//! Must not know: SQL, how anything is stored, what a command decides.
//!
//! Invariants: with `--json` there is one document on stdout and everything else is on stderr; an error names the thing, the rule and the
//! next step, and ends with the exit code of its error code.

mod commands;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;
use domain::code::{ErrorCode, exit};
use runtime::{Env, Home};

use crate::commands::{Cli, Command};
use crate::output::{Failure, Out};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, everything else is a wrong call. A closed stdout is nobody's problem here.
            error.print().ok();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    let mut out = Out::new(cli.json);
    match run(&cli, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::StdoutClosed) => ExitCode::SUCCESS,
        Err(Failure::Exit(code)) => ExitCode::from(code),
        Err(Failure::Error(error)) => {
            out.error(&error);
            ExitCode::from(error.code.exit_code())
        }
    }
}

fn run(cli: &Cli, out: &mut Out) -> Result<(), Failure> {
    let env = Env::system();
    let home = Home::locate(cli.home.as_deref())?;
    match &cli.command {
        Command::Init => commands::init::run(&home, &env, out),
        Command::Note(command) => commands::note::run(command, &home, &env, out),
        Command::Log(command) => commands::log::run(command, &home, &env, out),
        Command::Bench(command) => commands::bench::run(command, &env, out),
        Command::Demo(command) => commands::demo::run(command, &env, out),
        Command::Completions { shell } => commands::completions(*shell, out),
    }
}

/// A failure of the terminal or of a temporary file, which no table of ours foresees.
fn io_error(what: &str, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Failure::StdoutClosed;
    }
    Failure::Error(runtime::Error::new(ErrorCode::StorageError, format!("{what}: {error}")))
}

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

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use domain::code::{ErrorCode, exit};
use runtime::{Env, Home};

use crate::commands::{Cli, Command};
use crate::output::{Failure, Out};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
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

/// Help and version are answers, everything else is a wrong call, which has a code like any other error.
fn unparsed(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A closed stdout is nobody's problem here.
        error.print().ok();
        return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    output::note(&format!("error[{}]: {}", ErrorCode::InvalidArgument, output::plain(text)));
    // The flags were not understood, but whoever asked for a document waits for one.
    if std::env::args_os().any(|argument| argument == "--json") {
        let message: Vec<_> = text.split("\n\n").next().unwrap_or_default().lines().map(str::trim).collect();
        Out::new(true).error_answer(&runtime::Error::new(ErrorCode::InvalidArgument, message.join(" ")));
    }
    ExitCode::from(exit::USAGE)
}

fn run(cli: &Cli, out: &mut Out) -> Result<(), Failure> {
    let env = Env::system();
    // Only for those who need one: a completion script is there for an account without any home, too.
    let home = || {
        // An empty variable is as good as none.
        let named = std::env::var_os("VERGER_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Home::locate(cli.home.as_deref().or(named.as_deref()))
    };
    match &cli.command {
        Command::Init => commands::init::run(&home()?, cli.home.as_deref(), &env, out),
        Command::Note(command) => commands::note::run(command, &home()?, &env, out),
        Command::Task(command) => commands::task::run(command, &home()?, &env, out),
        Command::Inbox(command) => commands::inbox::run(command, &home()?, &env, out),
        Command::Agent(command) => commands::agent::run(command, &home()?, &env, out),
        Command::Stop(args) => commands::stop::run(args, &home()?, &env, out),
        Command::Budget(command) => commands::budget::run(command, &home()?, &env, out),
        Command::Run(command) => commands::run::run(command, &home, &env, out),
        Command::Policy(command) => commands::policy::run(command, &home()?, &env, out),
        Command::Log(command) => commands::log::run(command, &home()?, &env, out),
        Command::Bench(command) => commands::bench::run(command, &env, out),
        Command::Demo(command) => commands::demo::run(command, &env, out),
        Command::Completions { shell } => commands::completions(*shell, out),
    }
}

/// A failure to write an answer. The work itself is done; whoever closed the pipe has had enough of it.
fn output_error(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Failure::StdoutClosed;
    }
    Failure::Error(runtime::Error::new(ErrorCode::OutputFailed, format!("writing the answer: {error}")))
}

/// A failure of stdin, of a temporary file or of a child process.
fn io_error(what: &str, error: &std::io::Error) -> Failure {
    Failure::Error(runtime::Error::new(ErrorCode::StorageError, format!("{what}: {error}")))
}

//! `cargo xtask`: the project's own chores, so that no rule lives only in a document.
//!
//! Owns: the checks of `tidy` and the texts of the `clippy.toml` files, and how the simulator is built and started.
//! Must not know: what the product does. It reads sources and documents as text and asks cargo for the
//! crates; it links none of them.
//!
//! Start at [`tidy::run`]. Exit codes: 0 when there is nothing to say, 1 when a rule is broken, 2 when the
//! command line is wrong or the project cannot be read. `sim` ends with the simulator's own.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line chore: its findings go to stdout, everything else to stderr"
)]

mod tidy;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
the project's chores

Usage: cargo xtask tidy [--root DIR] [--fix]
       cargo xtask sim [OPTIONS]
       cargo xtask sim plants [--minutes K]

Commands:
  tidy    check the rules that neither the compiler nor clippy can check
  sim     run the simulator, built for speed with every assertion on; `cargo xtask sim --help` lists its options

Options of tidy:
  --root DIR    check the project in DIR instead of the current one
  --fix         first write the files that tidy owns (each room's clippy.toml)

Options:
  -h, --help    print this text
";

const EXIT_BROKEN_RULE: u8 = 1;
const EXIT_CANNOT_RUN: u8 = 2;

fn main() -> ExitCode {
    match parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Command::Tidy(options)) => run_tidy(&options),
        Ok(Command::Sim(args)) => run_sim(&args),
        Err(error) => {
            eprintln!("error: {error}");
            eprintln!("hint: `cargo xtask --help` lists what there is");
            ExitCode::from(EXIT_CANNOT_RUN)
        }
    }
}

fn run_tidy(options: &tidy::Options) -> ExitCode {
    let report = match tidy::run(options) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(EXIT_CANNOT_RUN);
        }
    };
    for path in &report.written {
        eprintln!("wrote {path}");
    }
    for finding in &report.findings {
        println!("{finding}");
    }
    match report.problems_count() {
        0 => {
            eprintln!("tidy: {} source files are in order", report.sources_count);
            ExitCode::SUCCESS
        }
        1 => {
            eprintln!("tidy: 1 problem");
            ExitCode::from(EXIT_BROKEN_RULE)
        }
        count => {
            eprintln!("tidy: {count} problems");
            ExitCode::from(EXIT_BROKEN_RULE)
        }
    }
}

/// Hands everything on to the simulator, a build of its own: as fast as a release, with assertions and with the planted bugs.
fn run_sim(args: &[OsString]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["run", "--quiet", "--profile", "sim", "--package", "sim", "--features", "planted", "--"];
    match std::process::Command::new(cargo).args(build).args(args).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_CANNOT_RUN)),
        Err(error) => {
            eprintln!("error: cargo does not start: {error}");
            ExitCode::from(EXIT_CANNOT_RUN)
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Tidy(tidy::Options),
    Sim(Vec<OsString>),
}

/// What can be wrong with the command line itself.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum UsageError {
    #[error("a command is missing")]
    CommandMissing,
    #[error("there is no command `{0}`")]
    CommandUnknown(String),
    #[error("`tidy` does not take `{0}`")]
    ArgumentUnknown(String),
    #[error("`--root` needs a directory")]
    RootMissing,
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let command = args.next().ok_or(UsageError::CommandMissing)?;
    match command.to_str() {
        Some("tidy") => parse_tidy(args),
        // Its options are its own, `--help` too.
        Some("sim") => Ok(Command::Sim(args.collect())),
        Some("help" | "-h" | "--help") => Ok(Command::Help),
        _ => Err(UsageError::CommandUnknown(shown(&command))),
    }
}

fn parse_tidy(mut args: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut options = tidy::Options { root: PathBuf::from("."), fix: false };
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-h" | "--help") => return Ok(Command::Help),
            Some("--fix") => options.fix = true,
            Some("--root") => {
                options.root = args.next().ok_or(UsageError::RootMissing)?.into();
            }
            _ => return Err(UsageError::ArgumentUnknown(shown(&arg))),
        }
    }
    Ok(Command::Tidy(options))
}

fn shown(arg: &OsString) -> String {
    arg.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: &Result<Command, UsageError>) {
        let command = parse(line.split_whitespace().map(OsString::from));
        assert_eq!(command, *expect, "{line}");
    }

    #[test]
    fn the_command_line_is_read_whole() {
        let tidy = |root: &str, fix| Ok(Command::Tidy(tidy::Options { root: root.into(), fix }));
        check("tidy", &tidy(".", false));
        check("tidy --fix --root elsewhere", &tidy("elsewhere", true));
        check("sim", &Ok(Command::Sim(Vec::new())));
        check("sim plants --help", &Ok(Command::Sim(vec!["plants".into(), "--help".into()])));
        check("--help", &Ok(Command::Help));
        check("tidy --help", &Ok(Command::Help));
        check("", &Err(UsageError::CommandMissing));
        check("polish", &Err(UsageError::CommandUnknown("polish".into())));
        check("tidy --root", &Err(UsageError::RootMissing));
        check("tidy now", &Err(UsageError::ArgumentUnknown("now".into())));
    }
}

//! The commands, one file each. The doc comments are the help texts.

mod acting;
pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod budget;
pub(crate) mod demo;
pub(crate) mod inbox;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod note;
mod note_lines;
pub(crate) mod policy;
pub(crate) mod run;
mod run_progress;
mod run_replay;
mod run_show;
mod run_trace;
pub(crate) mod stop;
pub(crate) mod task;
mod task_view;

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::output::{Failure, Out};

/// A local-first runtime for agents that can be left alone in the house.
#[derive(Debug, Parser)]
#[command(name = "verger", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Where everything is kept [default: $VERGER_HOME, else the platform's data folder]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub home: Option<PathBuf>,

    /// Answer with one JSON document on stdout
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a home; repeating it is harmless
    Init,
    /// Write, read, change and find notes
    #[command(subcommand)]
    Note(note::NoteCommand),
    /// Write, read and change the tasks that agents work on
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// See and answer what agents ask
    #[command(subcommand)]
    Inbox(inbox::InboxCommand),
    /// See, pause, resume and destroy agents
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Stop everything, an agent or a class of tools, until you release it
    Stop(stop::StopArgs),
    /// See and set what agents may use up in a day
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    /// Start agents' runs, look at them, go on with them, end them and replay them
    #[command(subcommand)]
    Run(run::RunCommand),
    /// Why something was, or would be, allowed
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Read and check the log that everything is built from
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Measure this machine
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// A short story of what Verger keeps safe, in a home of its own that is thrown away
    Demo(demo::DemoArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

pub(crate) fn completions(shell: clap_complete::Shell, out: &mut Out) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "verger", &mut script);
    out.text(&String::from_utf8_lossy(&script))
}

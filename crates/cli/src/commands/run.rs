//! `verger run …`: starting runs, looking at them, going on with them, ending them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use domain::code::ErrorCode;
use domain::records::budget::Amounts;
use runtime::{ClientKey, Env, Error, Handle, Home, RunLine, RunView, View, Watched, read_manifest};
use serde_json::json;

use crate::commands::acting::{naming, tell_stops};
use crate::commands::note::open;
use crate::commands::run_progress::Teller;
use crate::commands::run_show::{document, show, status};
use crate::commands::{run_replay, run_trace};
use crate::output::{Failure, Out, counted, note};

#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Start a run of a manifest's agent and drive it until it ends or waits
    Start {
        /// The agent's manifest, YAML or JSON
        #[arg(long, short, value_name = "FILE")]
        manifest: PathBuf,
        /// Names this run: starting it again with the same key goes on with it, or shows how it ended
        #[arg(long, value_name = "KEY")]
        operation_id: Option<String>,
    },
    /// List runs, those that wait for their turn first, then the newest
    List {
        /// How many to show
        #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show how a run stands and what it waits for
    Show {
        #[command(flatten)]
        run: RunArg,
    },
    /// Tell a run as a tree: asks, proposals, decisions, effects and cost
    Trace {
        #[command(flatten)]
        run: RunArg,
    },
    /// Go on with a run that waits or that a crash left behind; with all without an id
    Resume {
        /// The run's id, or its first characters
        run: Option<String>,
    },
    /// End a run
    Cancel {
        #[command(flatten)]
        run: RunArg,
        /// Names this act: repeating it with the same key changes nothing
        #[arg(long, value_name = "KEY")]
        operation_id: Option<String>,
    },
    /// Take every recorded step again, without asking anybody, and compare
    Replay {
        /// The run's id, or its first characters
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        run: Option<String>,
        /// A recording instead of a run of this home
        #[arg(long, value_name = "RECORDING")]
        file: Option<PathBuf>,
    },
    /// Write a run's recording: what it saw, what was proposed and decided
    Export {
        #[command(flatten)]
        run: RunArg,
        /// Write to a file instead of stdout
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArg {
    /// The run's id, or its first characters
    #[arg(value_name = "RUN")]
    pub run: String,
}

pub(crate) fn run(command: &RunCommand, home: &dyn Fn() -> runtime::Result<Home>, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        RunCommand::Start { manifest, operation_id } => {
            // A manifest that does not read is told without touching the home.
            let manifest = read_manifest(manifest)?;
            let key = key(operation_id.as_deref(), env)?;
            tell_reservation(&manifest.reservation, &manifest.budget);
            with_home(&home()?, env, out, Some(&key), |handle, watch| handle.worker(watch)?.start(&manifest, &key))
        }
        RunCommand::Resume { run: Some(run) } => {
            let home = home()?;
            with_home(&home, env, out, None, |handle, watch| {
                let id = handle.house().find_run(run)?;
                handle.worker(watch)?.resume(&id)
            })
        }
        RunCommand::Resume { run: None } => resume_all(&home()?, env, out),
        RunCommand::Cancel { run, operation_id } => cancel(&run.run, operation_id.as_deref(), &home()?, env, out),
        RunCommand::List { limit } => list(usize::from(*limit), &home()?, env, out),
        RunCommand::Show { run } => {
            let house = View::open(&home()?, env)?.house(env);
            tell_stops(&house);
            let view = house.run_view(&house.find_run(&run.run)?)?;
            if out.json { out.document("verger.run.v1", document(&view)) } else { show(&view, out) }
        }
        RunCommand::Trace { run } => {
            let house = View::open(&home()?, env)?.house(env);
            let trace = house.trace(&house.find_run(&run.run)?)?;
            run_trace::show(&trace, out)
        }
        RunCommand::Replay { run, file } => match (run, file) {
            (_, Some(file)) => run_replay::show(&runtime::replay_file(file)?, out),
            (run, None) => {
                let mut house = View::open(&home()?, env)?.house(env);
                let id = house.find_run(run.as_deref().unwrap_or_default())?;
                run_replay::show(&house.replay(&id)?, out)
            }
        },
        RunCommand::Export { run, out: file } => {
            let mut house = View::open(&home()?, env)?.house(env);
            let id = house.find_run(&run.run)?;
            run_replay::export(&house.export(&id)?, id, file.as_deref(), out)
        }
    }
}

fn key(given: Option<&str>, env: &Env) -> Result<ClientKey, Error> {
    given.map_or_else(|| Ok(ClientKey::fresh(env)), ClientKey::parse)
}

/// Drives one run with the home's lock, and shows how it stands afterwards.
fn with_home(
    home: &Home,
    env: &Env,
    out: &mut Out,
    key: Option<&ClientKey>,
    work: impl FnOnce(&Handle, &mut dyn FnMut(&Watched)) -> runtime::Result<RunView>,
) -> Result<(), Failure> {
    let handle = open(home, env)?;
    if let Some(key) = key {
        // Told in any case: whoever does not learn how it ended can go on with it under the same name.
        note(&format!("operation {}", key.as_str()));
    }
    tell_stops(&handle.house());
    let mut teller = Teller::new(handle.house(), false);
    let worked = work(&handle, &mut |point| teller.tell(point));
    let disappointed = std::mem::take(&mut teller.disappointed);
    drop(teller);
    close(handle);
    let view = worked.map_err(|error| naming(error, key))?;
    if out.json {
        disappointed.iter().for_each(|line| note(line));
        out.document("verger.run.v1", document(&view))?;
    } else {
        disappointed.iter().try_for_each(|line| out.line(line))?;
        show(&view, out)?;
    }
    ended(&view)
}

/// An ask that sets more aside than the day has never leaves: whoever wrote that should learn it before it waits.
fn tell_reservation(reservation: &Amounts, budget: &Amounts) {
    for ((name, reserved), (_, limit)) in reservation.named().into_iter().zip(budget.named()) {
        if reserved > limit {
            note(&format!("warning: one ask reserves {reserved} {name}, more than the manifest's budget of {limit} for a day"));
        }
    }
}

fn close(handle: Handle) {
    // What was done is durable already; a failure to close is worth a word, not the answer.
    if let Err(error) = handle.close() {
        note(&format!("warning[{}]: {error}", error.code));
    }
}

/// A run that did not succeed ends the command with its own code.
fn ended(view: &RunView) -> Result<(), Failure> {
    if !view.status.is_terminal() {
        return Ok(());
    }
    let code = view.code.as_deref().and_then(|text| ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text));
    let Some(code) = code else { return Ok(()) };
    let cycles = counted(view.cycles.into(), "cycle");
    note(&format!("error[{code}]: {} {} after {cycles}\n  next: {}", view.id, view.status, code.next_step()));
    Err(Failure::Exit(code.exit_code()))
}

fn resume_all(home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let handle = open(home, env)?;
    tell_stops(&handle.house());
    let mut teller = Teller::new(handle.house(), true);
    let worked = handle.worker(&mut |point: &Watched| teller.tell(point)).and_then(|mut worker| worker.resume_all());
    let disappointed = std::mem::take(&mut teller.disappointed);
    drop(teller);
    close(handle);
    let views = worked?;
    if out.json {
        disappointed.iter().for_each(|line| note(line));
        let runs: Vec<_> = views.iter().map(document).collect();
        out.document("verger.runs-resumed.v1", json!({ "runs": runs }))?;
    } else if views.is_empty() {
        out.line("nothing can go on now; see what waits with `verger run list`")?;
    } else {
        disappointed.iter().try_for_each(|line| out.line(line))?;
        views.iter().try_for_each(|view| show(view, out))?;
    }
    // Each is told; the first that did not succeed decides how the command ends.
    let ends: Vec<_> = views.iter().map(ended).collect();
    ends.into_iter().collect()
}

fn cancel(run: &str, operation_id: Option<&str>, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let key = key(operation_id, env)?;
    let handle = open(home, env)?;
    note(&format!("operation {}", key.as_str()));
    let house = handle.house();
    let mut teller = Teller::new(handle.house(), false);
    let mut tell = |point: &Watched| teller.tell(point);
    let worked = house.find_run(run).and_then(|id| handle.worker(&mut tell)?.cancel(&id, &key));
    drop((house, teller));
    close(handle);
    let view = worked.map_err(|error| naming(error, Some(&key)))?;
    if out.json { out.document("verger.run.v1", document(&view)) } else { show(&view, out) }
}

fn list(limit: usize, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let house = View::open(home, env)?.house(env);
    let lines = house.runs(limit)?;
    tell_stops(&house);
    if out.json {
        return out.document("verger.runs.v1", json!({ "runs": lines }));
    }
    if lines.is_empty() {
        return out.line("no runs here yet; start one with `verger run start --manifest FILE`");
    }
    let row = |line: &RunLine| {
        let counts = (line.cycles.to_string(), line.operations.to_string());
        vec![line.id.to_string(), line.agent.clone(), status(line), counts.0, counts.1, line.created_at.as_title()]
    };
    let rows: Vec<_> = lines.iter().map(row).collect();
    out.table(&["run", "agent", "status", "cycles", "done", "created (UTC)"], &rows)?;
    if lines.len() == limit {
        note(&format!("the first {limit}; there may be more, ask for them with -n"));
    }
    Ok(())
}

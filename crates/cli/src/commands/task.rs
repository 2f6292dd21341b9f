//! `verger task …`: the work that agents and people share.

use clap::{Args, Subcommand};
use domain::id::TaskId;
use domain::records::task::TaskStatus;
use runtime::{ClientKey, Env, Home, House, TaskChange, TaskDone, TaskDraft, View};
use serde_json::json;

use crate::commands::acting::{act, again, tell_stops};
use crate::commands::note::{Operation, Place};
use crate::commands::task_view;
use crate::output::{Failure, Out, note};

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Write down a task
    Add(AddArgs),
    /// Show a task: what it waits for, what it requires, what was made for it
    Show {
        /// The task's id
        task: TaskId,
    },
    /// List tasks, newest first
    List {
        #[command(flatten)]
        place: Place,
        /// Only tasks of this status: pending, in_progress, done or blocked
        #[arg(long, value_parser = status)]
        status: Option<TaskStatus>,
        /// How many to show
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: usize,
        /// The `next` of the page before
        #[arg(long, value_name = "TOKEN")]
        after: Option<String>,
    },
    /// Change a task; what is not given stays
    Edit(EditArgs),
    /// Delete a task; `restore` brings it back
    Rm {
        /// The task's id
        task: TaskId,
        /// Delete only if the task is at this version
        #[arg(long)]
        version: Option<u64>,
        #[command(flatten)]
        operation: Operation,
    },
    /// Bring a deleted task back
    Restore {
        /// The task's id
        task: TaskId,
        #[command(flatten)]
        operation: Operation,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// What is to be done, in at most 500 characters
    description: String,
    /// An artifact that must be there before the task is done; may be given several times. Without any, one made for the task will do
    #[arg(long = "requires", value_name = "TYPE/KEY")]
    requires: Vec<String>,
    /// A task that must be done before; may be given several times
    #[arg(long = "needs", value_name = "TASK")]
    needs: Vec<TaskId>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    operation: Operation,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The task's id
    task: TaskId,
    /// The new description
    #[arg(long, allow_hyphen_values = true)]
    description: Option<String>,
    /// The new status: pending, in_progress, done or blocked. `done` is then your word, and the task says so
    #[arg(long, value_parser = status)]
    status: Option<TaskStatus>,
    /// Why it is blocked
    #[arg(long, allow_hyphen_values = true)]
    reason: Option<String>,
    /// The new required artifacts, all of them; may be given several times
    #[arg(long = "requires", value_name = "TYPE/KEY")]
    requires: Vec<String>,
    /// Require no artifact in particular
    #[arg(long, conflicts_with = "requires")]
    no_requires: bool,
    /// The new tasks to wait for, all of them; may be given several times
    #[arg(long = "needs", value_name = "TASK")]
    needs: Vec<TaskId>,
    /// Wait for no other task
    #[arg(long, conflicts_with = "needs")]
    no_needs: bool,
    /// Change only if the task is at this version
    #[arg(long)]
    version: Option<u64>,
    #[command(flatten)]
    operation: Operation,
}

pub(crate) fn run(command: &TaskCommand, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        TaskCommand::Add(args) => {
            let draft = TaskDraft {
                description: args.description.clone(),
                requires: args.requires.clone(),
                preconditions: args.needs.clone(),
                workspace: args.place.workspace.clone(),
            };
            write(home, env, out, "added", &args.operation, |house, key| house.add_task(&draft, key))
        }
        TaskCommand::Edit(args) => edit(args, home, env, out),
        TaskCommand::Rm { task, version, operation } => write(home, env, out, "deleted", operation, |house, key| {
            let done = house.remove_task(*task, *version, key)?;
            tell_waiting(house, *task);
            Ok(done)
        }),
        TaskCommand::Restore { task, operation } => {
            write(home, env, out, "restored", operation, |house, key| house.restore_task(*task, key))
        }
        TaskCommand::Show { task } => {
            let house = View::open(home, env)?.house(env);
            let detail = house.task(*task)?;
            tell_stops(&house);
            task_view::show(&detail, &house, out)
        }
        TaskCommand::List { place, status, limit, after } => {
            let house = View::open(home, env)?.house(env);
            let page = house.tasks(&place.workspace, *status, *limit, after.as_deref())?;
            tell_stops(&house);
            task_view::list(&page, *status, out)
        }
    }
}

fn edit(args: &EditArgs, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let change = TaskChange {
        description: args.description.clone(),
        requires: (args.no_requires || !args.requires.is_empty()).then(|| args.requires.clone()),
        preconditions: (args.no_needs || !args.needs.is_empty()).then(|| args.needs.clone()),
        status: args.status,
        reason: args.reason.clone(),
        version: args.version,
    };
    write(home, env, out, "changed", &args.operation, |house, key| house.edit_task(args.task, &change, key))
}

fn write(
    home: &Home,
    env: &Env,
    out: &mut Out,
    verb: &str,
    operation: &Operation,
    command: impl FnOnce(&mut House, &ClientKey) -> runtime::Result<TaskDone>,
) -> Result<(), Failure> {
    let (done, key) = act(home, env, operation, |house, key| {
        let done = command(house, key)?;
        tell_stops(house);
        Ok(done)
    })?;
    if out.json {
        let content = json!({ "id": done.id, "version": done.version, "operation_id": key.as_str(), "repeated": done.repeated });
        return out.document("verger.task-written.v1", content);
    }
    out.line(&format!("{verb} {} at version {}{}", out.bold(&done.id.to_string()), done.version, again(done.repeated)))
}

/// Whoever waits for a task that is gone waits for ever.
fn tell_waiting(house: &House, task: TaskId) {
    for waiting in house.tasks_waiting_for(task).unwrap_or_default() {
        note(&format!(
            "warning: {waiting} waits for it and will not be worked on; change that with `verger task edit {waiting} --no-needs`"
        ));
    }
}

fn status(text: &str) -> Result<TaskStatus, String> {
    TaskStatus::parse(text).ok_or_else(|| "a status is pending, in_progress, done or blocked".to_owned())
}

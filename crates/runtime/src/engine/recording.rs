//! A run as a recording: every version of its row, the cycles that were written with each, and the tasks they saw.

use std::collections::BTreeSet;

use control::cycle::Cycle;
use control::replay::{RECORDING_SCHEMA, Recorded, RecordedTask, Recording};
use control::run::Run;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{RunId, TaskId};
use domain::record::Record;
use domain::records::task::Task;
use store::store::{Logged, Snapshot, Stored};

use crate::house::House;
use crate::{Error, Result};

/// LIMIT: versions of a run's row that a recording takes in: three a cycle and more cycles than any bound allows by default.
const STATES_MAX: usize = 100_000;

/// What could be read of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recall {
    Whole(Box<Recording>),
    /// A body of it was erased.
    Erased {
        what: String,
    },
}

impl House {
    /// Reads a run's recording. Nothing outside the stores is asked.
    pub fn record(&mut self, run_id: &RunId) -> Result<Recall> {
        let read = self.read(Domain::Agent, |snapshot| states(snapshot, run_id))?;
        let states = match read {
            Ok(states) => states,
            Err(what) => return Ok(Recall::Erased { what }),
        };
        let Some(first) = states.first() else {
            return Err(Error::new(ErrorCode::RunNotFound, format!("there is no {run_id}")));
        };
        let (behaviour_version, manifest_id) = (first.run.behaviour_version, first.run.manifest_id);
        let manifest = self.manifest(&manifest_id)?.as_ref().clone();
        let wanted = tasks_seen(&states);
        let mut tasks = Vec::new();
        for (id, version) in wanted {
            match self.read(Domain::Journal, |snapshot| task_at(snapshot, id, version))? {
                Some(task) => tasks.push(RecordedTask { id, version, task }),
                None => return Ok(Recall::Erased { what: format!("version {version} of {id}") }),
            }
        }
        let run_id = *run_id;
        Ok(Recall::Whole(Box::new(Recording { schema: RECORDING_SCHEMA, run_id, behaviour_version, manifest, states, tasks })))
    }
}

/// The run's states in order, or what of them was erased.
fn states(snapshot: &dyn Snapshot, run_id: &RunId) -> Result<std::result::Result<Vec<Recorded>, String>> {
    let mut states = Vec::new();
    for (logged, stored) in snapshot.history(Run::SPEC, &run_id.raw(), STATES_MAX)?.iter().rev() {
        let Some(run) = read::<Run>(stored)? else { return Ok(Err(format!("a state of {run_id}"))) };
        let mut cycles = Vec::new();
        for (entry, stored) in &beside(snapshot, logged)? {
            if entry.entry.kind == Cycle::SPEC.kind {
                match read::<Cycle>(stored)? {
                    Some(cycle) => cycles.push(cycle),
                    None => return Ok(Err(format!("a cycle of {run_id}"))),
                }
            }
        }
        cycles.sort_by_key(|cycle| cycle.number);
        states.push(Recorded { run, cycles });
    }
    Ok(Ok(states))
}

/// The entries of the same commit and stream.
fn beside(snapshot: &dyn Snapshot, logged: &Logged) -> Result<Vec<(Logged, Stored)>> {
    let entry = &logged.entry;
    let count = usize::try_from(entry.last - entry.first + 1).unwrap_or(usize::MAX);
    Ok(snapshot.entries(&entry.dot.stream, entry.first - 1, count)?)
}

fn read<R: Record>(stored: &Stored) -> Result<Option<R>> {
    let read = stored.body.as_deref().map(R::from_body).transpose();
    read.map_err(|error| Error::new(ErrorCode::DatabaseDamaged, error.to_string()))
}

fn tasks_seen(states: &[Recorded]) -> BTreeSet<(TaskId, u64)> {
    let looked = states.iter().filter_map(|state| state.run.looked.as_ref()).map(|looked| &looked.board);
    let opened = states.iter().flat_map(|state| &state.cycles).map(|cycle| &cycle.opened.board);
    looked.chain(opened).flat_map(|board| &board.tasks).map(|task| (task.id, task.version)).collect()
}

fn task_at(snapshot: &dyn Snapshot, id: TaskId, version: u64) -> Result<Option<Task>> {
    for (logged, stored) in snapshot.history(Task::SPEC, &id.raw(), STATES_MAX)? {
        if logged.entry.version == version {
            return read::<Task>(&stored);
        }
    }
    Ok(None)
}

//! Replaying runs from their home or from a file, and writing a recording to take along.

use std::io::Read;
use std::path::Path;

use control::replay::{Divergence, RECORDING_SCHEMA, Recording, Report, replay};
use control::run::{BEHAVIOUR_VERSION, RunStatus};
use domain::code::ErrorCode;
use domain::id::RunId;
use serde::Deserialize;
use serde_json::json;

use crate::engine::Recall;
use crate::house::House;
use crate::{Error, Result};

/// LIMIT: bytes of a recording; a run of the longest default bounds has a tenth of it.
const RECORDING_BYTES_MAX: u64 = 256 << 20;

/// What a replay found. Nothing outside the recording was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// `status` is how the run stands at the end of the recording: one that was cut does not end.
    Identical {
        run_id: RunId,
        steps: usize,
        cycles: u32,
        status: RunStatus,
    },
    Diverged {
        run_id: RunId,
        divergence: Divergence,
    },
    OtherBehaviour {
        recorded: u32,
        known: u32,
    },
    Erased {
        what: String,
    },
}

impl House {
    /// Takes every step of a run again and compares.
    pub fn replay(&mut self, id: &RunId) -> Result<Replayed> {
        let run = self.begun(id)?;
        if run.behaviour_version != BEHAVIOUR_VERSION {
            return Ok(Replayed::OtherBehaviour { recorded: run.behaviour_version, known: BEHAVIOUR_VERSION });
        }
        match self.record(&run.id())? {
            Recall::Whole(recording) => replayed(&recording),
            Recall::Erased { what } => Ok(Replayed::Erased { what }),
        }
    }

    /// The recording of a run as a text that [`replay_file`] reads. It holds what the run saw and proposed.
    pub fn export(&mut self, id: &RunId) -> Result<String> {
        let id = self.begun(id)?.id();
        match self.record(&id)? {
            Recall::Whole(recording) => {
                let text = serde_json::to_string_pretty(&recording);
                text.map_err(|error| Error::new(ErrorCode::Internal, format!("the recording does not become JSON: {error}")))
            }
            Recall::Erased { what } => {
                Err(Error::new(ErrorCode::ReplayUnverifiable, format!("{what} was erased: a recording would not be whole")))
            }
        }
    }
}

/// Replays a recording from a file. No home is needed.
pub fn replay_file(path: &Path) -> Result<Replayed> {
    let name = path.display().to_string();
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(RECORDING_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| damaged(&name, &error.to_string()))?;
    if text.len() as u64 > RECORDING_BYTES_MAX {
        return Err(damaged(&name, &format!("a recording has at most {RECORDING_BYTES_MAX} bytes, and this is longer")));
    }
    replay_text(&text, &name)
}

/// What every recording of every version begins with.
#[derive(Deserialize)]
struct Heading {
    schema: u32,
    behaviour_version: u32,
}

/// Replays a recording; `name` is what errors call it.
pub fn replay_text(text: &str, name: &str) -> Result<Replayed> {
    let unread = |error: serde_json::Error| damaged(name, &error.to_string());
    let heading: Heading = serde_json::from_str(text).map_err(unread)?;
    if heading.schema != RECORDING_SCHEMA {
        let rule = format!("it has shape {}; this build reads {RECORDING_SCHEMA}", heading.schema);
        return Err(damaged(name, &rule));
    }
    // The rest may have fields that only its own version knows, so it is not read at all.
    if heading.behaviour_version != BEHAVIOUR_VERSION {
        return Ok(Replayed::OtherBehaviour { recorded: heading.behaviour_version, known: BEHAVIOUR_VERSION });
    }
    let recording: Recording = serde_json::from_str(text).map_err(unread)?;
    replayed(&recording).map_err(|error| damaged(name, &error.message))
}

fn replayed(recording: &Recording) -> Result<Replayed> {
    let run_id = recording.run_id;
    let report = replay(recording).map_err(|error| Error::new(ErrorCode::RecordingDamaged, error.to_string()))?;
    Ok(match report {
        Report::Identical { steps, cycles } => {
            // A recording without states is damaged, so there is a last one.
            let status = recording.states.last().map_or(RunStatus::Running, |state| state.run.status);
            Replayed::Identical { run_id, steps, cycles, status }
        }
        Report::Diverged(divergence) => Replayed::Diverged { run_id, divergence },
        Report::OtherBehaviour { recorded, known } => Replayed::OtherBehaviour { recorded, known },
        Report::Erased { cycle, what } => Replayed::Erased { what: format!("{what} (cycle {cycle})") },
    })
}

fn damaged(file: &str, what: &str) -> Error {
    let details = json!({ "file": file });
    Error { details, ..Error::new(ErrorCode::RecordingDamaged, format!("{file}: {what}")) }
}

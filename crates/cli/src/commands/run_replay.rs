//! `verger run replay` and `verger run export`.

use std::io::{ErrorKind, Write};
use std::path::Path;

use domain::code::ErrorCode;
use domain::id::RunId;
use runtime::{Error, Replayed};
use serde_json::json;

use crate::output::{Failure, Out, counted, note};

pub(crate) fn show(found: &Replayed, out: &mut Out) -> Result<(), Failure> {
    let (document, line, code) = match found {
        Replayed::Identical { run_id, steps, cycles, status } => {
            let document = json!({ "result": "identical", "run": run_id, "steps": steps, "cycles": cycles, "status": status });
            let steps = counted(i64::try_from(*steps).unwrap_or(i64::MAX), "step");
            let cycles = counted((*cycles).into(), "cycle");
            (document, format!("identical ({steps}, {cycles}), ends {status}"), None)
        }
        Replayed::Diverged { run_id, divergence } => {
            let document = json!({
                "result": "diverged", "run": run_id, "cycle": divergence.cycle, "point": divergence.point.as_str(),
                "field": divergence.field, "expected": divergence.expected, "got": divergence.got,
            });
            let place = format!("cycle {}, point {}, {}", divergence.cycle, divergence.point, divergence.field);
            let line = format!("diverged at {place}\n  expected {}\n  got      {}", divergence.expected, divergence.got);
            (document, line, Some(ErrorCode::ReplayDiverged))
        }
        Replayed::OtherBehaviour { recorded, known } => {
            let document = json!({ "result": "other_behaviour_version", "recorded": recorded, "known": known });
            let line = format!("other behaviour version: the run was made by {recorded}, this build is {known}");
            (document, line, Some(ErrorCode::ReplayUnverifiable))
        }
        Replayed::Erased { what } => {
            let document = json!({ "result": "erased", "what": what });
            (document, format!("unverifiable: erased: {what}"), Some(ErrorCode::ReplayUnverifiable))
        }
    };
    if out.json {
        out.document("verger.run-replay.v1", document)?;
    } else {
        out.line(&line)?;
    }
    match code {
        Some(code) => {
            note(&format!("error[{code}]: the run is not shown to be what its records say\n  next: {}", code.next_step()));
            Err(Failure::Exit(code.exit_code()))
        }
        None => Ok(()),
    }
}

/// Writes a recording; what it holds belongs to the home's owner, and so does the file.
pub(crate) fn export(text: &str, run: RunId, file: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    let Some(path) = file else { return out.line(text) };
    let unfit = |error: std::io::Error| {
        let rule = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::IsADirectory => "there is something of that name, and nothing is written over",
            ErrorKind::NotFound | ErrorKind::NotADirectory => "its folder is not there",
            ErrorKind::PermissionDenied => "its folder may not be written to",
            _ => return failed(path, &error),
        };
        let next = Some("name a new file in a folder that is there; nothing was written");
        Failure::Error(Error { next, ..Error::argument("out", &format!("{}: {rule}", path.display())) })
    };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(unfit)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // A part of a recording is none, and it would be in the way of the next attempt.
        std::fs::remove_file(path).ok();
        return Err(failed(path, &error));
    }
    if out.json {
        return out
            .document("verger.run-exported.v1", json!({ "run": run, "file": path.to_string_lossy(), "bytes": text.len() + 1 }));
    }
    out.line(&format!("wrote the recording of {run} to {}", path.display()))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("writing {}: {error}", path.display());
    let next = Some("look at the disk, then repeat it; nothing was left behind");
    Failure::Error(Error { next, ..Error::new(ErrorCode::OutputFailed, message) })
}

//! `verger run replay` and `verger run export`.

use std::io::Write;
use std::path::Path;

use domain::code::ErrorCode;
use domain::id::RunId;
use runtime::{Error, Replayed};
use serde_json::json;

use crate::output::{Failure, Out, note};

pub(crate) fn show(found: &Replayed, out: &mut Out) -> Result<(), Failure> {
    let (document, line, code) = match found {
        Replayed::Identical { run_id, steps, cycles } => {
            let document = json!({ "result": "identical", "run": run_id, "steps": steps, "cycles": cycles });
            (document, format!("identical ({steps} steps, {cycles} cycles)"), None)
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
    let failed = |error: std::io::Error| {
        let message = format!("writing {}: {error}", path.display());
        Failure::Error(Error::new(ErrorCode::OutputFailed, message))
    };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).and_then(|()| file.sync_all()).map_err(failed)?;
    if out.json {
        return out
            .document("verger.run-exported.v1", json!({ "run": run, "file": path.to_string_lossy(), "bytes": text.len() + 1 }));
    }
    out.line(&format!("wrote the recording of {run} to {}", path.display()))
}

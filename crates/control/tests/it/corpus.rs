//! Recorded runs of every release: each is replayed by every build, and says the same.
//!
//! They are written by `cargo run -p runtime --example write_recordings -- crates/control/tests/corpus/v1`, once for every behaviour
//! version that is released, and never again.

use std::path::{Path, PathBuf};

use control::replay::{Recording, Report, replay};
use control::run::BEHAVIOUR_VERSION;

/// LIMIT: no released version has fewer, so an empty or moved folder is noticed.
const RECORDINGS_MIN: usize = 8;

#[expect(clippy::disallowed_methods, reason = "the corpus grows by files, and is not compiled in")]
fn recordings(version: u32) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(format!("v{version}"));
    let entries = std::fs::read_dir(&folder).expect("the corpus is in the tree");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("the corpus can be listed").path()).collect();
    paths.sort();
    assert!(paths.len() >= RECORDINGS_MIN, "only {} recordings in {}", paths.len(), folder.display());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("the corpus can be read");
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn l34_recorded_runs_of_every_release_replay() {
    for version in 1..=BEHAVIOUR_VERSION {
        for (path, text) in recordings(version) {
            let recording: Recording = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let report = replay(&recording).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let cycles = recording.states.last().expect("a recording has states").run.cycle;
            let expected = match version {
                BEHAVIOUR_VERSION => Report::Identical { steps: recording.states.len(), cycles },
                older => Report::OtherBehaviour { recorded: older, known: BEHAVIOUR_VERSION },
            };
            assert_eq!(report, expected, "{}", path.display());
        }
    }
}

#[test]
fn l34_a_recorded_run_ends_and_its_recording_reads_back_as_it_was() {
    for (path, text) in recordings(BEHAVIOUR_VERSION) {
        let recording: Recording = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(recording.states.last().is_some_and(|state| state.run.status.is_terminal()), "{}", path.display());
        let again = serde_json::to_value(&recording).expect("a recording is JSON");
        let whole: serde_json::Value = serde_json::from_str(&text).expect("a recording is JSON");
        assert_eq!(again, whole, "{}", path.display());
    }
}

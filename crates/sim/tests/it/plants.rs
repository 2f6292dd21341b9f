//! Planted bugs are found. Each day three others; all of them at once is `cargo xtask sim plants`.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::plant::Bug;
use sim::plants::{STEPS, tier};

/// LIMIT: the table in `docs/planted-bugs.md` has none that takes a third of it.
const SEEDS_MAX: u64 = 60;

/// A process of its own for each bug: the choice is of the whole process.
fn is_found(bug: Bug) {
    let (seeds, steps) = (SEEDS_MAX.to_string(), STEPS.to_string());
    let options = ["--seeds", &seeds, "--steps", &steps, "--tier", tier(bug).as_str(), "--shrink-seconds", "0"];
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(["--plant", bug.as_str()]).args(options).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{}: {text}", bug.as_str());
    assert!(output.status.success() && text.contains(" breaks "), "{} was not found in {seeds} seeds", bug.as_str());
}

fn of_today(nth: usize) {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let place = (usize::try_from(days).unwrap() * 3 + nth) % Bug::ALL.len();
    is_found(Bug::ALL[place]);
}

#[test]
fn the_first_planted_bug_of_the_day_is_found() {
    of_today(0);
}

#[test]
fn the_second_planted_bug_of_the_day_is_found() {
    of_today(1);
}

#[test]
fn the_third_planted_bug_of_the_day_is_found() {
    of_today(2);
}

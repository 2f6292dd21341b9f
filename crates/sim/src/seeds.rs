//! Running seeds: one, many, twice; and making a failing one small.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::ledger::Violation;
use crate::stores::Template;
use crate::world::{Setup, Stats, World};

/// How one seed ended.
#[derive(Debug)]
pub struct Outcome {
    pub stats: Stats,
    pub violation: Option<Violation>,
    pub story: Vec<String>,
}

/// Runs one world from its first event to its rest.
#[must_use]
pub fn run(setup: &Setup, template: &Template) -> Outcome {
    match World::new(setup.clone(), template) {
        Ok(mut world) => {
            let violation = world.run().err();
            Outcome { stats: world.stats, violation, story: world.story }
        }
        Err(violation) => Outcome { stats: Stats::default(), violation: Some(violation), story: Vec::new() },
    }
}

/// Runs a world twice: the second must be the first, bit for bit.
#[must_use]
pub fn run_twice(setup: &Setup, template: &Template) -> Outcome {
    let first = run(setup, template);
    let second = run(setup, template);
    if first.violation.is_none() && first.stats.trace != second.stats.trace {
        let what = format!("two runs of one seed differ: {:016x} and {:016x}", first.stats.trace, second.stats.trace);
        return Outcome { violation: Some(Violation::new("S32 determinism", what)), ..first };
    }
    first
}

/// A smaller world with the same violation: events are left out as long as the same invariant breaks.
#[must_use]
pub fn shrink(setup: &Setup, violation: &Violation, template: &Template, seconds_max: u64) -> Setup {
    let started = Instant::now();
    let fails = |setup: &Setup| run(setup, template).violation.is_some_and(|found| found.invariant == violation.invariant);
    let mut best = setup.clone();
    // First the end is cut off: what happened after the violation does not matter.
    let (mut low, mut high) = (0, best.steps);
    while low < high && started.elapsed().as_secs() < seconds_max {
        let middle = low + (high - low) / 2;
        if fails(&Setup { steps: middle, ..best.clone() }) { high = middle } else { low = middle + 1 }
    }
    if fails(&Setup { steps: high, ..best.clone() }) {
        best.steps = high;
    }
    // Then events in between, in ever smaller pieces.
    let mut piece = best.steps.div_ceil(2).max(1);
    while started.elapsed().as_secs() < seconds_max {
        let mut from = 1;
        while from <= best.steps && started.elapsed().as_secs() < seconds_max {
            let dropped: BTreeSet<u64> = (from..from + piece).chain(best.without.iter().copied()).collect();
            let smaller = Setup { without: dropped, ..best.clone() };
            if smaller.without.len() > best.without.len() && fails(&smaller) {
                best = smaller;
            }
            from += piece;
        }
        if piece == 1 {
            break;
        }
        piece = piece.div_ceil(2);
    }
    best
}

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
    compare(run(setup, template), &run(setup, template))
}

/// The first of two runs of one seed, with a violation if the second was another.
fn compare(first: Outcome, second: &Outcome) -> Outcome {
    let same = first.stats.trace == second.stats.trace && first.violation == second.violation;
    if first.violation.is_some() || same {
        return first;
    }
    let what = format!("two runs of one seed differ: {:016x} and {:016x}", first.stats.trace, second.stats.trace);
    Outcome { violation: Some(Violation::new("S32 determinism", what)), ..first }
}

/// A smaller world with the same violation: events are left out as long as the same invariant breaks.
#[must_use]
pub fn shrink(setup: &Setup, violation: &Violation, template: &Template, seconds_max: u64) -> Setup {
    let started = Instant::now();
    let fails = |setup: &Setup| run(setup, template).violation.is_some_and(|found| found.invariant == violation.invariant);
    smaller(setup, fails, || started.elapsed().as_secs() < seconds_max)
}

fn smaller(setup: &Setup, fails: impl Fn(&Setup) -> bool, goes_on: impl Fn() -> bool) -> Setup {
    let mut best = setup.clone();
    // First the end is cut off: what happened after the violation does not matter.
    let (mut low, mut high) = (0, best.steps);
    while low < high && goes_on() {
        let middle = low + (high - low) / 2;
        if fails(&Setup { steps: middle, ..best.clone() }) { high = middle } else { low = middle + 1 }
    }
    if fails(&Setup { steps: high, ..best.clone() }) {
        best.steps = high;
    }
    // Then events in between, in ever smaller pieces.
    let mut piece = best.steps.div_ceil(2).max(1);
    while goes_on() {
        let mut from = 1;
        while from <= best.steps && goes_on() {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::profile::Family;
    use crate::stores::Tier;

    fn setup(steps: u64) -> Setup {
        let families = Family::ALL.to_vec();
        Setup { seed: 1, steps, tier: Tier::Memory, families, without: BTreeSet::new(), tell: false }
    }

    fn happens(setup: &Setup, event: u64) -> bool {
        event <= setup.steps && !setup.without.contains(&event)
    }

    fn events(setup: &Setup) -> Vec<u64> {
        (1..=setup.steps).filter(|event| happens(setup, *event)).collect()
    }

    #[test]
    fn shrinking_leaves_the_events_that_the_violation_needs() {
        let fails = |setup: &Setup| [7, 90, 613].iter().all(|event| happens(setup, *event));
        assert_eq!(events(&smaller(&setup(1_000), fails, || true)), [7, 90, 613]);
    }

    #[test]
    fn shrinking_does_not_slip_to_another_invariant() {
        // Without event 5 another promise breaks first, and that is not the one that was found.
        let broken = |setup: &Setup| if happens(setup, 5) { "S01 intent" } else { "S09 stopped" };
        let fails = |setup: &Setup| happens(setup, 40) && broken(setup) == "S01 intent";
        let small = smaller(&setup(300), fails, || true);
        assert_eq!((events(&small), broken(&small)), (vec![5, 40], "S01 intent"));
    }

    #[test]
    fn shrinking_stops_in_time_with_a_world_that_still_fails() {
        let left = Cell::new(6);
        let goes_on = || left.replace(left.get() - 1) > 0;
        let fails = |setup: &Setup| happens(setup, 700);
        let small = smaller(&setup(1_000), fails, goes_on);
        assert!(fails(&small) && events(&small).len() > 1);
    }

    #[test]
    fn two_runs_that_differ_are_a_violation_of_their_own() {
        let outcome = |trace, violation| Outcome { stats: Stats { trace, ..Stats::default() }, violation, story: Vec::new() };
        let broken = || Some(Violation::new("S09 stopped", "a model was asked"));
        let found = |first, second: &Outcome| compare(first, second).violation.map(|violation| violation.invariant);
        assert_eq!(found(outcome(1, None), &outcome(1, None)), None);
        assert_eq!(found(outcome(1, None), &outcome(2, None)), Some("S32 determinism"));
        assert_eq!(found(outcome(1, None), &outcome(1, broken())), Some("S32 determinism"));
        assert_eq!(found(outcome(1, broken()), &outcome(2, None)), Some("S09 stopped"));
    }
}

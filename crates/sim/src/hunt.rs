//! A hunt: one seed after the other, until the time, the number or the first violation ends it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::ledger::Violation;
use crate::profile::Family;
use crate::rng::mix;
use crate::seeds::{run, run_twice};
use crate::stores::{Template, Tier};
use crate::world::{Setup, Stats};

/// What is hunted through, and how far.
#[derive(Debug, Clone)]
pub struct Hunt {
    /// The first seed; each that follows is one more.
    pub seed: u64,
    pub seeds_max: u64,
    /// Events of each world before it heals.
    pub steps: u64,
    pub families: Vec<Family>,
    /// Seeds take these in turn.
    pub tiers: Vec<Tier>,
    pub seconds_max: Option<f64>,
    /// No further seed once so many engine steps are done.
    pub machine_steps_max: Option<u64>,
    /// Every so many-th seed runs twice and is compared.
    pub twice_every: u64,
}

impl Hunt {
    /// Seeds on one tier, with every family of faults.
    #[must_use]
    pub fn of(tier: Tier, seed: u64, seeds_max: u64, steps: u64) -> Self {
        Self {
            seed,
            seeds_max,
            steps,
            families: Family::ALL.to_vec(),
            tiers: vec![tier],
            seconds_max: None,
            machine_steps_max: None,
            twice_every: 20,
        }
    }
}

/// What a hunt has seen.
#[derive(Debug, Default)]
pub struct Bag {
    pub seeds: u64,
    pub seconds: f64,
    /// The sums of all worlds; the trace is a digest of their traces.
    pub total: Stats,
    /// The first world that broke a promise.
    pub found: Option<(Setup, Violation)>,
}

impl Bag {
    /// Families that could have fired on these tiers and did not.
    pub fn never_fired<'a>(&self, hunt: &'a Hunt) -> impl Iterator<Item = Family> + use<'a, '_> {
        let on_disk = hunt.tiers.contains(&Tier::FaultDisk);
        let possible = hunt.families.iter().copied().filter(move |family| on_disk || *family != Family::Disk);
        possible.filter(|family| !self.total.fired.keys().any(|name| name.starts_with(family.as_str())))
    }
}

/// Runs the seeds.
#[must_use]
pub fn hunt(hunt: &Hunt, template: &Template) -> Bag {
    let started = Instant::now();
    let deadline = hunt.seconds_max.map(|seconds| started + Duration::from_secs_f64(seconds));
    let mut bag = Bag::default();
    while bag.found.is_none()
        && bag.seeds < hunt.seeds_max
        && deadline.is_none_or(|deadline| Instant::now() < deadline)
        && hunt.machine_steps_max.is_none_or(|most| bag.total.machine_steps < most)
    {
        let turn = usize::try_from(bag.seeds).unwrap_or(0) % hunt.tiers.len();
        let setup = Setup {
            seed: hunt.seed.wrapping_add(bag.seeds),
            steps: hunt.steps,
            tier: hunt.tiers[turn],
            families: hunt.families.clone(),
            without: BTreeSet::new(),
            tell: false,
        };
        let is_twice = bag.seeds.is_multiple_of(hunt.twice_every.max(1));
        let outcome = if is_twice { run_twice(&setup, template) } else { run(&setup, template) };
        add(&mut bag.total, &outcome.stats);
        bag.seeds += 1;
        bag.found = outcome.violation.map(|violation| (setup, violation));
    }
    bag.seconds = started.elapsed().as_secs_f64();
    bag
}

fn add(total: &mut Stats, stats: &Stats) {
    total.events += stats.events;
    total.machine_steps += stats.machine_steps;
    total.cycles += stats.cycles;
    total.runs += stats.runs;
    total.crashes += stats.crashes;
    total.commits += stats.commits;
    total.states.extend(&stats.states);
    total.trace = mix(total.trace ^ stats.trace);
    for (name, count) in &stats.fired {
        *total.fired.entry(name).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_counts_as_silent_only_where_it_could_have_fired() {
        let mut bag = Bag::default();
        for name in ["crash.between", "conflict.interrupted", "process.replaced", "time.back", "model.cut", "people.stops"] {
            bag.total.fired.insert(name, 1);
        }
        bag.total.fired.insert("service.refuses", 1);
        let silent = |tier| bag.never_fired(&Hunt::of(tier, 1, 1, 1)).collect::<Vec<_>>();
        assert_eq!(silent(Tier::Memory), [Family::Tamper]);
        assert_eq!(silent(Tier::FaultDisk), [Family::Disk, Family::Tamper]);
    }

    #[test]
    fn a_hunt_ends_at_its_number_and_sums_what_it_saw() {
        let template = Template::make();
        let bag = hunt(&Hunt { twice_every: 2, ..Hunt::of(Tier::Memory, 3, 2, 20) }, &template);
        assert!(bag.seeds == 2 && bag.found.is_none(), "{:?}", bag.found);
        assert!(bag.total.events >= 40 && bag.total.commits > 0, "{:?}", bag.total);
    }
}

//! Seeds: a fixed list with every family of faults, one list for each contract that a family is about, and some that nobody has run before.

use std::time::{SystemTime, UNIX_EPOCH};

use sim::hunt::{Bag, Hunt, hunt};
use sim::profile::Family;
use sim::stores::{Template, Tier};

/// Runs the seeds, says what it saw, and demands that nothing broke.
fn check(name: &str, what: &Hunt) -> Bag {
    println!("{name}: seeds from {} on, {} steps, {:?}", what.seed, what.steps, what.tiers);
    let bag = hunt(what, &Template::make());
    let (total, seconds) = (&bag.total, bag.seconds);
    println!("{} seeds, {} engine steps, {} crashes, {seconds:.1} s", bag.seeds, total.machine_steps, total.crashes);
    if let Some((setup, violation)) = &bag.found {
        let families: Vec<&str> = setup.families.iter().map(|family| family.as_str()).collect();
        panic!(
            "{}: {}\nagain: cargo xtask sim --seed {} --steps {} --faults {} --tier {}",
            violation.invariant,
            violation.what,
            setup.seed,
            setup.steps,
            families.join(","),
            setup.tier.as_str()
        );
    }
    bag
}

fn with(families: &[Family], hunt: Hunt) -> Hunt {
    Hunt { families: families.to_vec(), ..hunt }
}

/// How often the faults fired whose names begin like this.
fn fired(bag: &Bag, prefix: &str) -> u64 {
    bag.total.fired.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
}

#[test]
fn the_fixed_seeds_keep_every_promise_in_memory() {
    let what = Hunt { twice_every: 6, ..Hunt::of(Tier::Memory, 1, 24, 400) };
    let bag = check("fixed, memory", &what);
    assert_eq!(bag.never_fired(&what).collect::<Vec<_>>(), []);
}

#[test]
fn the_fixed_seeds_keep_every_promise_on_a_failing_disk() {
    let what = Hunt { twice_every: 4, ..Hunt::of(Tier::FaultDisk, 1, 8, 150) };
    let bag = check("fixed, disk", &what);
    assert!(fired(&bag, "disk.") > 0 && bag.total.crashes > 0, "{:?}", bag.total.fired);
}

#[test]
fn k8_killed_at_any_moment_runs_go_on_without_loss_and_without_a_second_effect() {
    let families = [Family::Crash, Family::Conflict, Family::Service];
    let bag = check("crashes", &with(&families, Hunt::of(Tier::Memory, 1_000, 12, 300)));
    for fault in ["crash.before_commit", "crash.after_commit", "crash.between"] {
        assert!(fired(&bag, fault) >= 3, "{fault}: {:?}", bag.total.fired);
    }
}

#[test]
fn l24_plan_effect_and_outcome_agree_after_power_cuts() {
    let bag = check("power cuts", &with(&[Family::Crash, Family::Disk], Hunt::of(Tier::FaultDisk, 2_000, 8, 150)));
    assert!(bag.total.crashes >= 10 && fired(&bag, "disk.power_cut") > 0, "{:?}", bag.total.fired);
}

#[test]
fn l55_a_life_that_ends_or_is_replaced_loses_nothing_that_the_next_cannot_find() {
    let bag = check("lives", &with(&[Family::Crash, Family::Process], Hunt::of(Tier::Memory, 3_000, 12, 300)));
    assert!(bag.total.crashes >= 10 && fired(&bag, "process.replaced") > 0, "{:?}", bag.total.fired);
}

#[test]
fn l31_nothing_is_asked_and_nothing_done_after_a_stop() {
    let families = [Family::People, Family::Conflict, Family::Process];
    let bag = check("stops", &with(&families, Hunt::of(Tier::Memory, 4_300, 12, 300)));
    assert!(fired(&bag, "people.stops") >= 10 && fired(&bag, "people.releases") >= 5, "{:?}", bag.total.fired);
}

#[test]
fn l11_one_run_of_an_agent_at_a_time_and_no_wake_is_answered_twice() {
    let families = [Family::People, Family::Crash, Family::Conflict];
    let bag = check("wakes", &with(&families, Hunt::of(Tier::Memory, 5_000, 12, 300)));
    assert!(fired(&bag, "people.start_again") > 0 && bag.total.runs >= 30, "{:?}", bag.total);
}

#[test]
fn d15_an_agent_that_forgets_repeats_or_lies_breaks_nothing() {
    let bag = check("models", &with(&[Family::Model, Family::Crash], Hunt::of(Tier::Memory, 6_200, 12, 300)));
    let kinds = bag.total.fired.keys().filter(|name| name.starts_with("model.")).count();
    assert!(kinds >= 10 && fired(&bag, "model.") >= 30, "{:?}", bag.total.fired);
}

/// Nobody has run these before; what they find can be repeated by its number.
#[test]
fn fresh_seeds_keep_every_promise() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = u64::try_from(now.as_millis()).unwrap();
    for (tier, seconds, steps) in [(Tier::Memory, 12.0, 400), (Tier::FaultDisk, 8.0, 150)] {
        let what = Hunt { seconds_max: Some(seconds), twice_every: 10, ..Hunt::of(tier, seed, u64::MAX, steps) };
        assert!(check("fresh", &what).seeds > 0);
    }
}

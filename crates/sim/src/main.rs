//! `cargo xtask sim`: seeds by number, by time, or until a planted bug is found.

#![expect(clippy::print_stdout, reason = "the simulator's report is its product")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use domain::plant::Bug;
use sim::profile::Family;
use sim::rng::mix;
use sim::seeds::{Outcome, run, run_twice, shrink};
use sim::stores::{Template, Tier};
use sim::world::{Setup, Stats};

/// Runs worlds around the real code and looks for broken promises.
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Args {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds; without it and without --minutes, one
    #[arg(long)]
    seeds: Option<u64>,
    /// Events of each world before it heals
    #[arg(long, default_value_t = 1_000)]
    steps: u64,
    /// Families of faults, separated by commas
    #[arg(long, default_value = "crash,conflict,process,disk,time,model,people,service,tamper")]
    faults: String,
    /// Where things are stored: memory, disk (SQLite on a disk that fails), or both in turn
    #[arg(long, default_value = "memory")]
    tier: String,
    /// Run for so many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Run until so many engine steps are done
    #[arg(long)]
    machine_steps: Option<u64>,
    /// Run every so many-th seed twice and compare
    #[arg(long, default_value_t = 20)]
    twice_every: u64,
    /// Plant a bug, and expect it to be found
    #[arg(long)]
    plant: Option<String>,
    /// Seconds for making a failing seed small
    #[arg(long, default_value_t = 60)]
    shrink_seconds: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(families) = families(&args.faults) else {
        println!("unknown family in `{}`; there are {}", args.faults, Family::ALL.map_names());
        return ExitCode::from(2);
    };
    let tiers: &[Tier] = match args.tier.as_str() {
        "memory" => &[Tier::Memory],
        "disk" => &[Tier::FaultDisk],
        "both" => &[Tier::Memory, Tier::FaultDisk],
        other => {
            println!("unknown tier `{other}`; there are memory, disk and both");
            return ExitCode::from(2);
        }
    };
    if let Err(message) = plant(args.plant.as_deref()) {
        println!("{message}");
        return ExitCode::from(2);
    }
    hunt(&args, &families, tiers)
}

trait Names {
    fn map_names(&self) -> String;
}

impl Names for [Family] {
    fn map_names(&self) -> String {
        self.iter().map(|family| family.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn families(list: &str) -> Option<Vec<Family>> {
    list.split(',').filter(|name| !name.is_empty()).map(|name| Family::parse(name.trim())).collect()
}

#[cfg(feature = "planted")]
fn plant(name: Option<&str>) -> Result<(), String> {
    let Some(name) = name else { return Ok(()) };
    let bug = Bug::parse(name).ok_or_else(|| format!("unknown bug `{name}`; there are {}", bugs()))?;
    domain::plant::choose(Some(bug));
    Ok(())
}

#[cfg(not(feature = "planted"))]
fn plant(name: Option<&str>) -> Result<(), String> {
    match name {
        None => Ok(()),
        Some(name) => Err(format!("`{name}` is not in this build; it takes `--features planted` (there are {})", bugs())),
    }
}

fn bugs() -> String {
    Bug::ALL.iter().map(|bug| bug.as_str()).collect::<Vec<_>>().join(", ")
}

/// Runs seeds until the time, the number or the first violation ends it.
fn hunt(args: &Args, families: &[Family], tiers: &[Tier]) -> ExitCode {
    let started = Instant::now();
    let deadline = args.minutes.map(|minutes| started + Duration::from_secs_f64(minutes * 60.0));
    let endless = args.minutes.is_some() || args.machine_steps.is_some();
    let seeds = args.seeds.unwrap_or(if endless { u64::MAX } else { 1 });
    let template = Template::make();
    let mut total = Stats::default();
    let mut fired: BTreeMap<&'static str, u64> = BTreeMap::new();
    for number in 0..seeds {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || args.machine_steps.is_some_and(|most| total.machine_steps >= most)
        {
            break;
        }
        let tier = tiers[usize::try_from(number).unwrap_or(0) % tiers.len()];
        let setup = Setup {
            seed: args.seed + number,
            steps: args.steps,
            tier,
            families: families.to_vec(),
            without: BTreeSet::new(),
            tell: false,
        };
        let outcome = if number % args.twice_every == 0 { run_twice(&setup, &template) } else { run(&setup, &template) };
        add(&mut total, &mut fired, &outcome);
        if let Some(violation) = &outcome.violation {
            println!("seed {} ({tier:?}, {} steps) breaks {}: {}", setup.seed, setup.steps, violation.invariant, violation.what);
            println!(
                "found after {:.1} s, {} seeds, {} engine steps",
                started.elapsed().as_secs_f64(),
                number + 1,
                total.machine_steps
            );
            tell(args, &setup, &outcome, &template);
            return ExitCode::from(if args.plant.is_some() { 0 } else { 1 });
        }
    }
    report(&total, &fired, started, families);
    if args.plant.is_some() {
        println!("the planted bug was not found");
        return ExitCode::from(1);
    }
    ExitCode::SUCCESS
}

fn add(total: &mut Stats, fired: &mut BTreeMap<&'static str, u64>, outcome: &Outcome) {
    let stats = &outcome.stats;
    total.events += stats.events;
    total.machine_steps += stats.machine_steps;
    total.cycles += stats.cycles;
    total.runs += stats.runs;
    total.crashes += stats.crashes;
    total.commits += stats.commits;
    total.states.extend(&stats.states);
    total.trace = mix(total.trace ^ stats.trace);
    for (name, count) in &stats.fired {
        *fired.entry(name).or_default() += count;
    }
}

/// The failing world made small, as a story.
fn tell(args: &Args, setup: &Setup, outcome: &Outcome, template: &Template) {
    let Some(violation) = &outcome.violation else { return };
    if violation.invariant == "S32 determinism" || args.shrink_seconds == 0 {
        return;
    }
    let small = shrink(setup, violation, template, args.shrink_seconds);
    let told = run(&Setup { tell: true, ..small.clone() }, template);
    let happened = small.steps - small.without.iter().filter(|event| **event <= small.steps).count() as u64;
    println!("\nthe same in {happened} events:");
    for line in &told.story {
        println!("  {line}");
    }
    if let Some(violation) = told.violation {
        println!("  → {}: {}", violation.invariant, violation.what);
    }
    println!(
        "\nagain: cargo xtask sim --seed {} --steps {} --faults {} --tier {}",
        setup.seed, setup.steps, args.faults, args.tier
    );
}

fn report(total: &Stats, fired: &BTreeMap<&'static str, u64>, started: Instant, families: &[Family]) {
    let seconds = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = |count: u64| count as f64 / seconds;
    println!("no violation in {seconds:.1} s");
    println!("  events         {:>12}  {:>10.0}/s", total.events, rate(total.events));
    println!("  engine steps   {:>12}  {:>10.0}/s", total.machine_steps, rate(total.machine_steps));
    println!("  cycles         {:>12}  {:>10.0}/s", total.cycles, rate(total.cycles));
    println!("  commits        {:>12}  {:>10.0}/s", total.commits, rate(total.commits));
    println!("  runs           {:>12}", total.runs);
    println!("  crashes        {:>12}  {:>10.0}/s", total.crashes, rate(total.crashes));
    println!("  distinct states{:>12}", total.states.len());
    println!("  trace          {:016x}", total.trace);
    println!("faults fired:");
    for (name, count) in fired {
        println!("  {name:<32}{count:>10}");
    }
    for family in families {
        let any = fired.keys().any(|name| name.starts_with(family.as_str()));
        if !any {
            println!("  family `{}` never fired", family.as_str());
        }
    }
}

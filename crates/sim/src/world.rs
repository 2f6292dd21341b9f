//! One world: stores, a process that may die, people, models and services, moved by one event after the other.

mod faults;
mod first_day;
mod heal;
mod life;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use domain::causality::Domain;
use domain::id::AgentId;
use fault_disk::FaultVfs;
use runtime::House;
use runtime::engine::{Drive, Progress};
use store::env::{Clock, Env};

use crate::checkers::runs;
use crate::env::{VirtualClock, environment};
use crate::ledger::Violation;
use crate::outside;
use crate::people::{Deed, GOOD, Person};
use crate::place::{Place, Stores, Watch, lock, store_of};
use crate::profile::{Family, Profile};
use crate::rng::{Draw, mix};
use crate::stores::{self, Template, Tier};

/// What a world is made from. The same setup is the same world.
#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    pub steps: u64,
    pub tier: Tier,
    pub families: Vec<Family>,
    /// Events that do not happen, for shrinking.
    pub without: BTreeSet<u64>,
    /// Tell what happens.
    pub tell: bool,
}

/// What was counted.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub events: u64,
    /// Steps of the engine: each loads, decides and does one thing.
    pub machine_steps: u64,
    pub cycles: u64,
    pub runs: u64,
    pub crashes: u64,
    pub commits: u64,
    pub fired: BTreeMap<&'static str, u64>,
    /// Abstract states that were reached.
    pub states: BTreeSet<u64>,
    /// A digest of everything that happened.
    pub trace: u64,
}

/// One life of the process.
#[derive(Debug)]
struct Life {
    house: House,
    drives: Vec<Drive>,
    alive: Arc<AtomicBool>,
}

pub struct World {
    setup: Setup,
    profile: Profile,
    clock: Arc<VirtualClock>,
    env: Env,
    stores: Stores,
    disk: Option<FaultVfs>,
    watch: Arc<Mutex<Watch>>,
    life: Life,
    /// A process that does not know that it was replaced.
    zombie: Option<Life>,
    /// Answers that arrive when nobody waits for them any more.
    late: Vec<Drive>,
    outside: outside::World,
    agents: Vec<AgentId>,
    seen: runs::Seen,
    event: u64,
    pub stats: Stats,
    pub story: Vec<String>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("setup", &self.setup).finish_non_exhaustive()
    }
}

type Checked = Result<(), Violation>;

impl World {
    /// A world at its first moment.
    pub fn new(setup: Setup, template: &Template) -> Result<Self, Violation> {
        let profile = Profile::swarm(setup.seed, &setup.families);
        let clock = Arc::new(VirtualClock::at(1_800_000_000_000));
        let env = environment(setup.seed, &clock);
        let disk = (setup.tier == Tier::FaultDisk).then(|| template.fork());
        let stores = stores::fresh(disk.as_ref(), &env);
        let watch = Arc::new(Mutex::new(Watch::default()));
        let mut outside = outside::World::new(stores.clone(), Arc::clone(&watch), setup.seed);
        outside.model_rate = 4 * profile.rate(Family::Model);
        outside.service_rate = 4 * profile.rate(Family::Service);
        let life = Life { house: house(&env, &stores, &watch, &alive(), true), drives: Vec::new(), alive: alive() };
        let mut world = Self {
            profile,
            clock,
            env,
            stores,
            disk,
            watch,
            life,
            zombie: None,
            late: Vec::new(),
            outside,
            agents: Vec::new(),
            seen: runs::Seen::new(),
            event: 0,
            stats: Stats::default(),
            story: Vec::new(),
            setup,
        };
        world.restart()?;
        world.populate()?;
        Ok(world)
    }

    /// Lets everything happen, then heals the world and demands rest.
    pub fn run(&mut self) -> Checked {
        for _ in 0..self.setup.steps {
            self.event += 1;
            if !self.setup.without.contains(&self.event) {
                self.happen()?;
                self.seen_violation()?;
            }
        }
        self.heal()?;
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        let watch = lock(&self.watch);
        self.stats.commits = watch.commits;
        self.stats.fired.clone_from(&watch.ledger.fired);
        drop(watch);
        self.stats.events = self.event;
        for domain in Domain::ALL {
            let heads = lock(store_of(&self.stores, *domain)).heads().unwrap_or_default();
            for head in heads {
                self.note_trace(u64::from_le_bytes(head.chain.as_bytes()[..8].try_into().expect("eight bytes")));
            }
        }
    }

    fn note_trace(&mut self, value: u64) {
        self.stats.trace = mix(self.stats.trace ^ value);
    }

    fn seen_violation(&mut self) -> Checked {
        let found = lock(&self.watch).violations.first().cloned();
        found.map_or(Ok(()), Err)
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.setup.tell {
            let line = format!("{:>6}  {}  {}", self.event, self.clock.now(), what());
            self.story.push(line);
        }
    }

    fn draw(&self, stream: u64) -> Draw {
        Draw::new(self.setup.seed, stream, self.event)
    }

    /// One event.
    fn happen(&mut self) -> Checked {
        self.outside.event = self.event;
        let mut draw = self.draw(2);
        for family in Family::ALL {
            // Models and services misbehave when they are asked, not by themselves.
            let rate = match family {
                Family::Model | Family::Service => 0,
                other => self.profile.rate(*other),
            };
            if draw.chance(rate) {
                return self.fault(*family);
            }
        }
        match draw.below(100) {
            0..=9 => {
                let deed = GOOD[draw.below(GOOD.len())];
                self.deed(deed);
                Ok(())
            }
            10..=15 => {
                let ms = [1, 50, 400, 5_000, 60_000][draw.below(5)];
                self.tell(|| format!("{ms} ms pass"));
                self.clock.pass(ms);
                self.expire();
                Ok(())
            }
            _ => self.work(&mut draw),
        }
    }

    fn fire(&self, fault: &'static str) {
        lock(&self.watch).ledger.fire(fault);
    }

    fn person(&self, name: &str) -> Person<'_> {
        Person {
            house: house(&self.env, &self.stores, &self.watch, &alive(), false),
            watch: Arc::clone(&self.watch),
            draw: self.draw(4),
            agents: &self.agents,
            name: format!("{name} {}", self.event),
        }
    }

    fn deed(&mut self, deed: Deed) {
        self.tell(|| format!("a person: {deed:?}"));
        self.person("deed").act(deed);
    }

    fn expire(&mut self) {
        self.person("expiry").house.expire().ok();
    }
}

fn alive() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

fn house(env: &Env, stores: &Stores, watch: &Arc<Mutex<Watch>>, alive: &Arc<AtomicBool>, is_engine: bool) -> House {
    let place = |domain| Box::new(Place::new(domain, stores, watch, alive, is_engine));
    House::new(env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger))
}

fn shown(progress: &runtime::Result<Progress>) -> String {
    match progress {
        Ok(progress) => format!("{progress:?}"),
        Err(error) => format!("{}: {error}", error.code),
    }
}

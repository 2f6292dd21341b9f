//! One world: stores, a process that may die, people, models and services, moved by one event after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use control::cycle::Cycle;
use control::manifest::Manifest;
use control::run::Run;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Cause, Change, Commit, Expected, Write};
use domain::entry::Actor;
use domain::id::{AgentId, OperationId, RunId};
use domain::record::{Record, Value};
use domain::records::prompt::{PromptItem, PromptState};
use fault_disk::{Crash, FaultVfs};
use runtime::engine::{Drive, Job, Progress};
use runtime::{ClientKey, House};
use serde_json::json;
use store::Committer;
use store::env::{Clock, Env};
use store::store::Scan;

use crate::checkers::{promises, rest, runs};
use crate::env::{VirtualClock, environment};
use crate::ledger::Violation;
use crate::outside;
use crate::people::{BAD, Deed, GOOD, Person};
use crate::place::{Place, Stores, Watch, lock};
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

    fn populate(&mut self) -> Checked {
        let broken = |error: runtime::Error| Violation::new("S00 set-up", error.to_string());
        let mut person = self.person("set-up");
        person.house.create_workspace("home", "Home").map_err(broken)?;
        let mut agents = Vec::new();
        for place in 0..self.profile.agents {
            let manifest = self.manifest(place);
            let key = ClientKey::parse(&format!("adopt {place}")).map_err(broken)?;
            agents.push(self.person("set-up").house.adopt(&manifest, &key).map_err(broken)?);
        }
        self.agents = agents;
        for deed in [Deed::AddTask, Deed::AddTask, Deed::Start] {
            self.event += 1;
            self.deed(deed);
        }
        Ok(())
    }

    fn manifest(&self, place: usize) -> Manifest {
        let services: serde_json::Map<_, _> = outside::SERVICES
            .iter()
            .map(|(name, honours)| ((*name).to_owned(), json!({ "class": "mail", "risk": "medium", "honours_keys": honours })))
            .collect();
        let reviewed = self.profile.reviewed && place == 0;
        let manifest = json!({
            "schema": 1, "agent": format!("agent-{place}"), "prompt": "do the tasks", "mode": if reviewed { "reviewed" } else { "yolo" },
            "model": { "provider": "scripted" },
            "capabilities": ["ask", "taskRead", "taskWrite", "artifactWrite", "outsideCall"],
            "tools": ["create_task", "select_next_task", "complete_task", "persist_artifact", "generate_message", "request_user_input",
                "post_office", "town_crier"],
            "preapproved": if reviewed || place == 1 { json!([]) } else { json!(["persist_artifact"]) },
            "services": services,
            "bounds": { "max_iterations": 12 + place, "max_wall_ms": 4_000_000, "max_tokens": 100_000 },
            "budget": { "tokens": 60_000, "cost_micros": 1_000_000, "runtime_ms": 36_000_000, "tool_calls": 200 },
            "reservation": { "tokens": 900, "cost_micros": 100, "runtime_ms": 1_000, "tool_calls": 1 },
            "approval_ttl_ms": 3_600_000,
        });
        serde_json::from_value(manifest).expect("the manifest is whole")
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
            let heads = lock(crate::place::store_of(&self.stores, *domain)).heads().unwrap_or_default();
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

    fn fault(&mut self, family: Family) -> Checked {
        let mut draw = self.draw(3);
        match family {
            Family::Crash => self.crash(&mut draw),
            Family::Conflict => {
                self.interrupt(&mut draw);
                Ok(())
            }
            Family::Process => self.confuse_processes(&mut draw),
            Family::Disk => {
                self.break_disk(&mut draw);
                Ok(())
            }
            Family::Time => {
                let by_ms = [-86_400_000, -3_600_000, -1_000, 3_600_000, 86_400_000, 400 * 86_400_000][draw.below(6)];
                self.fire(if by_ms < 0 { "time.back" } else { "time.forward" });
                self.tell(|| format!("the clock is set by {by_ms} ms"));
                self.clock.jump(by_ms);
                self.expire();
                Ok(())
            }
            Family::People => {
                let deed = BAD[draw.below(BAD.len())];
                self.deed(deed);
                Ok(())
            }
            Family::Tamper => {
                self.tamper(&mut draw);
                Ok(())
            }
            Family::Model | Family::Service => Ok(()),
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

    /// The engine does one thing.
    fn work(&mut self, draw: &mut Draw) -> Checked {
        if self.life.drives.is_empty() {
            return self.take_up(draw);
        }
        let place = draw.below(self.life.drives.len());
        let mut drive = self.life.drives.swap_remove(place);
        self.stats.machine_steps += 1;
        let progress = self.life.house.advance(&mut drive, &mut self.outside);
        self.tell(|| format!("{} → {}", drive.run_id(), shown(&progress)));
        let id = drive.run_id();
        match progress {
            Ok(Progress::Rests(_)) => {}
            Ok(progress) => {
                if progress == Progress::Asked && draw.chance(self.profile.rate(Family::Process) / 4) {
                    self.fire("process.late_answer");
                    self.late.push(drive.clone());
                    drive = Drive::new(id);
                }
                self.life.drives.push(drive);
            }
            Err(error) => self.failed(&error)?,
        }
        self.look_at(id)
    }

    /// Something to do for an idle process.
    fn take_up(&mut self, draw: &mut Draw) -> Checked {
        let jobs = match self.life.house.jobs() {
            Ok(jobs) => jobs,
            Err(error) => return self.failed(&error),
        };
        let Some(job) = draw.pick(&jobs).copied() else {
            self.clock.pass(20);
            return Ok(());
        };
        match job {
            Job::Continue(run) => self.life.drives.push(Drive::new(run)),
            Job::Begin(agent) => match self.life.house.begin(agent, &self.outside) {
                Ok(drive) => {
                    self.stats.runs += u64::from(drive.is_some());
                    self.life.drives.extend(drive);
                }
                Err(error) => self.failed(&error)?,
            },
        }
        Ok(())
    }

    /// An error that a process may meet, or one that nobody may.
    fn failed(&mut self, error: &runtime::Error) -> Checked {
        if !self.life.alive.load(Ordering::Relaxed) || self.disk.as_ref().is_some_and(FaultVfs::is_dead) {
            self.stats.crashes += 1;
            return self.restart();
        }
        match error.code {
            ErrorCode::StorageFull | ErrorCode::StorageError | ErrorCode::CommitUnknown => {
                self.life.drives.clear();
                self.mend_disk();
                Ok(())
            }
            ErrorCode::StorageFailing => {
                self.mend_disk();
                self.restart()
            }
            // Another life has taken over; this one is the zombie then.
            ErrorCode::Fenced => self.restart(),
            _ => Err(Violation::new("S28 no surprise", format!("{}: {error}", error.code))),
        }
    }

    fn look_at(&mut self, id: RunId) -> Checked {
        let reader = lock(crate::place::store_of(&self.stores, Domain::Agent)).reader();
        let Ok(snapshot) = reader.read() else { return Ok(()) };
        let Ok(Some(row)) = snapshot.get(Run::SPEC, &id.raw()) else { return Ok(()) };
        if self.seen.get(&id).is_some_and(|seen| seen.3 == row.version) {
            return Ok(());
        }
        let Ok(Some(run)) = row.record::<Run>() else {
            return Err(Violation::new("S00 state", format!("{id} does not read")));
        };
        let cycle = snapshot.get(Cycle::SPEC, &Cycle::id_of(&id, run.cycle).raw()).ok().flatten();
        let cycle: Option<Cycle> = cycle.and_then(|row| row.record().ok().flatten());
        let abstract_state = abstracted(&run, cycle.as_ref());
        self.stats.states.insert(abstract_state);
        self.note_trace(abstract_state ^ row.version);
        let before = self.seen.get(&id).map_or(0, |seen| seen.2);
        self.stats.cycles += u64::from(run.cycle.saturating_sub(before));
        runs::check(&mut self.seen, &run, cycle.as_ref(), row.version).map_or(Ok(()), Err)
    }

    fn crash(&mut self, draw: &mut Draw) -> Checked {
        match draw.below(4) {
            0 => {
                self.fire("crash.between");
                self.tell(|| "the process dies".to_owned());
                self.stats.crashes += 1;
                if let Some(disk) = &self.disk {
                    if draw.chance(500) {
                        disk.kill();
                    } else {
                        disk.crash_and_recover(mode(draw), draw.next());
                    }
                }
                self.restart()
            }
            _ => {
                let (after, commits) = (draw.chance(500), u32::try_from(draw.below(4)).unwrap_or(0));
                self.tell(|| format!("the process will die {} a commit", if after { "after" } else { "before" }));
                lock(&self.watch).crash = Some((commits, after));
                Ok(())
            }
        }
    }

    /// Somebody commits between what the engine reads and what it writes next.
    fn interrupt(&mut self, draw: &mut Draw) {
        let deeds =
            [Deed::Cancel, Deed::EditTask, Deed::Answer, Deed::Stop, Deed::Release, Deed::RemoveTask, Deed::Budget, Deed::Pause];
        let deed = deeds[draw.below(deeds.len())];
        self.tell(|| format!("somebody will be quicker than the next commit: {deed:?}"));
        let (env, stores, watch) = (self.env.clone(), self.stores.clone(), Arc::clone(&self.watch));
        let (draw, agents, event) = (self.draw(5), self.agents.clone(), self.event);
        let act = move || {
            lock(&watch).ledger.fire("conflict.interrupted");
            let house = house(&env, &stores, &watch, &alive(), false);
            let name = format!("interrupt {event}");
            Person { house, watch: Arc::clone(&watch), draw, agents: &agents, name }.act(deed);
        };
        lock(&self.watch).interrupt = Some(Box::new(act));
    }

    /// A second process, or an answer that comes too late or twice.
    fn confuse_processes(&mut self, draw: &mut Draw) -> Checked {
        if let Some(mut zombie) = self.zombie.take() {
            self.tell(|| "the replaced process goes on".to_owned());
            self.fire("process.zombie_acts");
            for mut drive in zombie.drives.drain(..) {
                for _ in 0..4 {
                    if !matches!(zombie.house.advance(&mut drive, &mut self.outside), Ok(Progress::Committed | Progress::Performed))
                    {
                        break;
                    }
                }
            }
            return Ok(());
        }
        if let Some(mut late) = self.late.pop() {
            self.tell(|| "an answer arrives too late".to_owned());
            self.fire("process.late_answer_arrives");
            if let Err(error) = self.life.house.advance(&mut late, &mut self.outside) {
                self.failed(&error)?;
            }
            return self.look_at(late.run_id());
        }
        if self.disk.is_none() && !self.life.drives.is_empty() && draw.chance(500) {
            self.tell(|| "a second process takes over".to_owned());
            self.fire("process.replaced");
            let next =
                Life { house: house(&self.env, &self.stores, &self.watch, &alive(), true), drives: Vec::new(), alive: alive() };
            self.zombie = Some(std::mem::replace(&mut self.life, next));
            return self.restart();
        }
        Ok(())
    }

    fn break_disk(&mut self, draw: &mut Draw) {
        let Some(disk) = &self.disk else { return };
        match draw.below(3) {
            0 => {
                self.fire("disk.sync_fails");
                let first = disk.syncs() + 1 + draw.next() % 4;
                disk.fail_syncs(first..first + 1, mode(draw));
            }
            1 => {
                self.fire("disk.full");
                disk.fail_writes_with_full(disk.bytes() + draw.next() % 20_000);
            }
            _ => {
                self.fire("disk.power_cut");
                disk.arm(disk.ops() + 1 + draw.next() % 40);
            }
        }
        self.tell(|| "the disk is about to fail".to_owned());
    }

    fn mend_disk(&self) {
        if let Some(disk) = &self.disk {
            disk.mend_syncs();
            disk.fail_writes_with_full(u64::MAX);
        }
    }

    /// A question is changed behind everybody's back: what the person sees is not what waits.
    fn tamper(&mut self, draw: &mut Draw) {
        let mut scan = Scan::new(PromptItem::SPEC, "by_status");
        scan.prefix = vec![Value::from(PromptState::Open.as_str())];
        let reader = lock(crate::place::store_of(&self.stores, Domain::Agent)).reader();
        let rows = reader.read().and_then(|snapshot| snapshot.scan(&scan)).map(|page| page.rows).unwrap_or_default();
        drop(reader);
        let Some(row) = draw.pick(&rows) else { return };
        let Ok(Some(mut item)) = row.record::<PromptItem>() else { return };
        let Some(gated) = &mut item.gates else { return };
        gated.arguments_hash = domain::hash::plain(&draw.next().to_le_bytes());
        let Ok(body) = item.to_body() else { return };
        let write = Write {
            spec: PromptItem::SPEC,
            id: row.id,
            workspace: row.workspace,
            expected: Expected::Version(row.version),
            change: Change::Put(body),
        };
        let commit = Commit {
            operation_id: OperationId::of_client(&Actor::System, &format!("tamper {}", self.event)),
            request: "[]".to_owned(),
            actor: Actor::System,
            cause: Cause::default(),
            guards: Vec::new(),
            writes: vec![write],
            witnesses: Vec::new(),
        };
        if Place::new(Domain::Agent, &self.stores, &self.watch, &alive(), false).commit(commit).is_ok() {
            self.fire("tamper.question");
            self.tell(|| "a question is changed behind everybody's back".to_owned());
        }
    }

    /// A new life: opens what is there, recovers, begins.
    fn restart(&mut self) -> Checked {
        let mut last = String::new();
        for attempt in 0..8 {
            if let Some(disk) = &self.disk
                && disk.is_dead()
            {
                let mut draw = self.draw(6 + attempt);
                disk.crash_and_recover(mode(&mut draw), draw.next());
            }
            match self.begin_life() {
                Ok(()) => return promises::kept(&self.stores, &lock(&self.watch).ledger).map_or(Ok(()), Err),
                Err(error) => last = format!("{}: {error}", error.code),
            }
            if attempt > 4 {
                // Even a bad day ends: nothing more breaks while it starts.
                lock(&self.watch).crash = None;
                self.mend_disk();
            }
        }
        Err(Violation::new("S28 no surprise", format!("the process does not start: {last}")))
    }

    fn begin_life(&mut self) -> runtime::Result<()> {
        let alive = alive();
        stores::reopen(&self.stores, self.disk.as_ref(), &self.env)?;
        let house = house(&self.env, &self.stores, &self.watch, &alive, true);
        self.life = Life { house, drives: Vec::new(), alive };
        self.life.house.level_fences()?;
        self.life.house.begin_life()?;
        lock(&self.watch).incarnation = self.life.house.incarnation();
        self.life.house.recover(&mut self.outside)?;
        Ok(())
    }

    /// Faults end, people help, and everything must come to rest.
    fn heal(&mut self) -> Checked {
        self.tell(|| "the world heals".to_owned());
        self.profile = self.profile.calm();
        (self.outside.model_rate, self.outside.service_rate, self.outside.stuck) = (0, 0, None);
        lock(&self.watch).crash = None;
        lock(&self.watch).interrupt = None;
        self.mend_disk();
        self.zombie = None;
        self.late.clear();
        if let Some(disk) = &self.disk {
            // Whatever is armed goes off now, or never.
            let mut draw = self.draw(8);
            disk.crash_and_recover(mode(&mut draw), draw.next());
            self.restart()?;
        }
        for round in 0..400_u64 {
            self.event += 1;
            self.outside.event = self.event;
            let mut person = self.person("heal");
            person.release_all();
            person.resume_all();
            person.set_budget(1 << 40);
            person.answer_all();
            self.expire();
            if !self.drain(round)? {
                return self.rests();
            }
            self.seen_violation()?;
        }
        Err(Violation::new("Q05 rest", "the world does not come to rest"))
    }

    /// Works until nothing moves; whether anything did.
    fn drain(&mut self, round: u64) -> Result<bool, Violation> {
        let mut moved = false;
        self.clock.pass(10_000);
        let jobs = self.life.house.jobs().map_err(|error| Violation::new("Q05 rest", error.to_string()))?;
        for job in jobs {
            let drive = match job {
                Job::Continue(run) => Some(Drive::new(run)),
                Job::Begin(agent) => {
                    let begun = self.life.house.begin(agent, &self.outside);
                    begun.map_err(|error| Violation::new("Q05 rest", error.to_string()))?
                }
            };
            let Some(mut drive) = drive else { continue };
            moved |= matches!(job, Job::Begin(_));
            loop {
                self.event += 1;
                self.outside.event = self.event;
                self.stats.machine_steps += 1;
                let progress = self.life.house.advance(&mut drive, &mut self.outside);
                self.tell(|| format!("{} → {}", drive.run_id(), shown(&progress)));
                match progress {
                    Ok(Progress::Rests(_)) => break,
                    Ok(_) => moved = true,
                    Err(error) => return Err(Violation::new("Q05 rest", format!("round {round}: {}: {error}", error.code))),
                }
            }
            self.look_at(drive.run_id())?;
            self.seen_violation()?;
        }
        Ok(moved)
    }

    fn rests(&mut self) -> Checked {
        if let Some(violation) = promises::kept(&self.stores, &lock(&self.watch).ledger) {
            return Err(violation);
        }
        if let Some(violation) = promises::sound(&self.stores) {
            return Err(violation);
        }
        let watch = lock(&self.watch);
        let replayed = self.setup.seed.is_multiple_of(3);
        rest::check(&self.stores, &mut self.life.house, &watch.ledger, replayed)
    }
}

fn alive() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

fn house(env: &Env, stores: &Stores, watch: &Arc<Mutex<Watch>>, alive: &Arc<AtomicBool>, is_engine: bool) -> House {
    let place = |domain| Box::new(Place::new(domain, stores, watch, alive, is_engine));
    House::new(env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger))
}

fn mode(draw: &mut Draw) -> Crash {
    [Crash::Lost, Crash::Kept, Crash::Cut, Crash::Torn][draw.below(4)]
}

fn shown(progress: &runtime::Result<Progress>) -> String {
    match progress {
        Ok(progress) => format!("{progress:?}"),
        Err(error) => format!("{}: {error}", error.code),
    }
}

/// What of a run makes a state worth counting.
fn abstracted(run: &Run, cycle: Option<&Cycle>) -> u64 {
    let mut value = mix(run.status as u64) ^ mix(100 + run.phase as u64) ^ mix(200 + u64::from(run.cycle.min(20)));
    value =
        mix(value ^ u64::from(run.attempt.min(5)) ^ (u64::from(run.faults_in_row) << 8) ^ (u64::from(run.failures_in_row) << 16));
    value = mix(value ^ run.parked.len() as u64 ^ (u64::from(run.cancel_requested) << 5) ^ ((run.denied.len().min(3) as u64) << 9));
    value = mix(value ^ run.waiting.as_ref().map_or(0, |waiting| 1 + waiting.reason as u64));
    for action in cycle.into_iter().flat_map(Cycle::actions) {
        value = mix(value ^ action.state as u64 ^ ((action.tool.len() as u64) << 7));
    }
    value
}

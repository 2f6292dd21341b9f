//! How fast runs are: whole cycles with a provider that answers at once, beside exactly the commits that they made.
//!
//! Every commit of a run is kept as it is made. The baseline applies the same commits, in the same order for each agent, to a home of its
//! own through the same writers and the same number of threads: what is left between the two is what the engine costs.

use std::path::Path;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Instant;

use control::machine::Ask;
use control::manifest::Manifest;
use control::replay::{Recording, Report, replay};
use control::run::RunStatus;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::{AgentId, HostId, RunId};
use domain::records::budget::Amounts;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::json;
use store::Committer;
use store::actor::Writer;
use store::env::Env;
use store::store::Reader;

use crate::engine::{Answer, Call, CallResult, Outside, Progress, Recall};
use crate::handle::Handle;
use crate::home::Home;
use crate::house::House;
use crate::operation::ClientKey;
use crate::{Error, Result};

/// LIMIT: cycles of one run of the measurement; its board grows by a task every second cycle, so this is a board of twenty.
const CYCLES_PER_RUN: u32 = 40;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    /// Runs one after the other, with one agent at work.
    pub runs_alone: usize,
    /// Runs of each agent, with thirty-two at work.
    pub runs_each: usize,
}

impl Effort {
    pub const FULL: Self = Self { rounds: 7, runs_alone: 12, runs_each: 2 };
    pub const QUICK: Self = Self { rounds: 1, runs_alone: 1, runs_each: 1 };
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReport {
    pub cycles_per_run: u32,
    pub rounds: usize,
    pub agents: Vec<RunFigure>,
    pub replay: ReplayFigure,
}

/// Medians over the rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunFigure {
    pub agents: usize,
    pub cycles: usize,
    pub cycles_per_second: f64,
    pub commits_per_cycle: f64,
    /// The same commits without the engine.
    pub baseline_commits_per_second: f64,
    /// Time of the bare commits by time of the run that made them; 1 would be an engine that costs nothing.
    pub ratio: f64,
    pub ratio_least: f64,
    pub ratio_most: f64,
    pub cpu_us_per_cycle: f64,
    pub baseline_cpu_us_per_cycle: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayFigure {
    pub cycles: usize,
    pub cycles_per_second: f64,
    /// By the cycles per second of one agent's run.
    pub times_faster: f64,
}

/// Measures in fresh homes under a folder.
pub fn measure_runs(folder: &Path, env: &Env, effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<RunReport> {
    let mut alone = Vec::new();
    let mut crowded = Vec::new();
    let mut replays = Vec::new();
    for round in 0..effort.rounds {
        for (agents, runs, samples) in [(1, effort.runs_alone, &mut alone), (32, effort.runs_each, &mut crowded)] {
            progress(&format!("round {} of {}, {agents} at work", round + 1, effort.rounds));
            let place = folder.join(format!("runs-{round}-{agents}"));
            let (sample, recordings) = measure(&place, env, agents, runs)?;
            if agents == 1 {
                replays.push(replay_speed(&recordings)?);
            }
            samples.push(sample);
        }
    }
    let agents = vec![figure(1, &alone), figure(32, &crowded)];
    let (cycles, speeds): (Vec<_>, Vec<_>) = replays.into_iter().unzip();
    let cycles_per_second = median(speeds);
    let times_faster = cycles_per_second / agents[0].cycles_per_second;
    let replay = ReplayFigure { cycles: cycles.iter().sum(), cycles_per_second, times_faster };
    Ok(RunReport { cycles_per_run: CYCLES_PER_RUN, rounds: effort.rounds, agents, replay })
}

struct Sample {
    cycles: usize,
    commits: usize,
    seconds: f64,
    cpu_seconds: f64,
    baseline_seconds: f64,
    baseline_cpu_seconds: f64,
}

/// One round: a home with runs, and a home that gets the same commits without the engine.
fn measure(place: &Path, env: &Env, agents: usize, runs: usize) -> Result<(Sample, Vec<Recording>)> {
    let Ran { made, recordings, time } = run_agents(&place.join("run"), env, agents, runs)?;
    // What the run left to write back belongs to the run, and not to whoever comes next.
    rustix::fs::sync();
    let baseline = apply_again(&place.join("bare"), env, &made)?;
    std::fs::remove_dir_all(place).map_err(|error| failed("clearing away", &error))?;
    let sample = Sample {
        cycles: agents * runs * CYCLES_PER_RUN as usize,
        commits: made.iter().map(|agent| agent.timed.len()).sum(),
        seconds: time.0,
        cpu_seconds: time.1,
        baseline_seconds: baseline.0,
        baseline_cpu_seconds: baseline.1,
    };
    Ok((sample, recordings))
}

/// What one agent's thread committed: before the clock ran, and while it did.
struct Made {
    prepared: Vec<(Domain, Commit)>,
    timed: Vec<(Domain, Commit)>,
}

/// What a home full of agents did, and how long it took: seconds by the clock, seconds of processors.
struct Ran {
    made: Vec<Made>,
    recordings: Vec<Recording>,
    time: (f64, f64),
}

type Kept = Arc<Mutex<Vec<(Domain, Commit)>>>;

fn run_agents(folder: &Path, env: &Env, agents: usize, runs: usize) -> Result<Ran> {
    let handle = fresh_home(folder, env)?;
    let mut workers = Vec::new();
    for agent in 0..agents {
        let kept = Kept::default();
        let mut house = keeping_house(&handle, &kept)?;
        let mut ids = Vec::new();
        for run in 0..runs {
            ids.push(prepare(&mut house, &format!("bench-{agent}-{run}"))?);
        }
        let prepared = std::mem::take(&mut *lock(&kept));
        workers.push((house, ids, prepared, kept));
    }
    let barrier = Barrier::new(agents + 1);
    let (done, time) = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|(mut house, ids, prepared, kept)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let worked: Result<Vec<RunId>> = ids.iter().map(|(agent, run)| work(&mut house, *agent, *run)).collect();
                    (worked, prepared, kept)
                })
            })
            .collect();
        barrier.wait();
        let started = (Instant::now(), cpu_seconds());
        let done: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        (done, (started.0.elapsed().as_secs_f64(), cpu_seconds() - started.1))
    });
    let mut made = Vec::new();
    let mut recordings = Vec::new();
    for joined in done {
        let (worked, prepared, kept) = joined.map_err(|_| Error::new(ErrorCode::Internal, "a thread of the measurement failed"))?;
        let timed = std::mem::take(&mut *lock(&kept));
        made.push(Made { prepared, timed });
        for run in worked?.into_iter().filter(|_| agents == 1) {
            if let Recall::Whole(recording) = handle.house().record(&run)? {
                recordings.push(*recording);
            }
        }
    }
    handle.close()?;
    Ok(Ran { made, recordings, time })
}

fn prepare(house: &mut House, name: &str) -> Result<(AgentId, RunId)> {
    house.create_workspace(name, name)?;
    let manifest = json!({
        "schema": 1, "agent": "bench", "workspace": name, "prompt": "make tasks and choose among them", "mode": "yolo",
        "model": { "provider": "scripted" },
        "budget": { "tokens": 1_i64 << 40, "cost_micros": 1, "runtime_ms": 1_i64 << 40, "tool_calls": 1_i64 << 40 },
        "bounds": { "max_iterations": 10 * CYCLES_PER_RUN, "max_tokens": 1_i64 << 40 },
    });
    let manifest: Manifest =
        serde_json::from_value(manifest).map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
    let key = ClientKey::parse(name)?;
    let agent = house.adopt(&manifest, &key)?;
    Ok((agent, house.wake_by_hand(agent, &key)?))
}

fn work(house: &mut House, agent: AgentId, run: RunId) -> Result<RunId> {
    let mut outside = AtOnce;
    let mut drive = house.begin(agent, &outside)?.ok_or_else(|| Error::new(ErrorCode::Internal, "a run does not begin"))?;
    while !matches!(house.advance(&mut drive, &mut outside)?, Progress::Rests(_)) {}
    let ended = house.run(&run)?;
    if ended.status != RunStatus::Succeeded || ended.cycle != CYCLES_PER_RUN || ended.operations + 1 != CYCLES_PER_RUN {
        let message = format!("a run ended as {} after {} cycles, {} done", ended.status, ended.cycle, ended.operations);
        return Err(Error::new(ErrorCode::Internal, message));
    }
    Ok(run)
}

/// The same commits, agent by agent on a thread each, through the writers alone.
fn apply_again(folder: &Path, env: &Env, made: &[Made]) -> Result<(f64, f64)> {
    let handle = fresh_home(folder, env)?;
    handle.working_house()?;
    for (domain, commit) in made.iter().flat_map(|agent| &agent.prepared) {
        handle.writer(*domain).commit(commit.clone())?;
    }
    let barrier = Barrier::new(made.len() + 1);
    let (done, time) = std::thread::scope(|scope| {
        let threads: Vec<_> = made
            .iter()
            .map(|agent| {
                let commits = agent.timed.clone();
                let writers: Vec<Writer> = Domain::ALL.iter().map(|domain| handle.writer(*domain).clone()).collect();
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    for (domain, commit) in commits {
                        let at = Domain::ALL.iter().position(|known| *known == domain).unwrap_or(0);
                        writers[at].commit(commit)?;
                    }
                    Ok::<(), store::Error>(())
                })
            })
            .collect();
        barrier.wait();
        let started = (Instant::now(), cpu_seconds());
        let done: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        (done, (started.0.elapsed().as_secs_f64(), cpu_seconds() - started.1))
    });
    for joined in done {
        joined.map_err(|_| Error::new(ErrorCode::Internal, "a thread of the measurement failed"))??;
    }
    handle.close()?;
    Ok(time)
}

fn replay_speed(recordings: &[Recording]) -> Result<(usize, f64)> {
    let mut cycles = 0;
    let started = Instant::now();
    for recording in recordings {
        match replay(recording) {
            Ok(Report::Identical { cycles: replayed, .. }) => cycles += replayed as usize,
            other => return Err(Error::new(ErrorCode::ReplayDiverged, format!("a measured run does not replay: {other:?}"))),
        }
    }
    Ok((cycles, cycles as f64 / started.elapsed().as_secs_f64()))
}

fn fresh_home(folder: &Path, env: &Env) -> Result<Handle> {
    let home = Home::locate(Some(folder))?;
    Handle::init(&home, env)?;
    Ok(Handle::open(&home, env)?.handle)
}

/// A house that works, and keeps a copy of every commit that was made.
fn keeping_house(handle: &Handle, kept: &Kept) -> Result<House> {
    let place = |domain: Domain| Box::new(Keeping { writer: handle.writer(domain).clone(), kept: Arc::clone(kept) });
    let mut house = House::new(handle.env().clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger));
    house.incarnation = handle.working_house()?.incarnation;
    Ok(house)
}

struct Keeping {
    writer: Writer,
    kept: Kept,
}

impl Committer for Keeping {
    fn host(&self) -> HostId {
        self.writer.host()
    }

    fn commit(&mut self, commit: Commit) -> store::Result<Committed> {
        let copy = commit.clone();
        let committed = self.writer.commit(commit)?;
        lock(&self.kept).push((self.writer.domain(), copy));
        Ok(committed)
    }

    fn heads(&mut self) -> store::Result<Vec<Head>> {
        self.writer.heads()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.writer.reader()
    }
}

/// A model that answers without delay: a new task, then the choice of it, and so on.
struct AtOnce;

impl Outside for AtOnce {
    fn ask(&mut self, _manifest: &Manifest, _run_id: &RunId, ask: &Ask) -> std::result::Result<Answer, ErrorCode> {
        let text = if ask.cycle == CYCLES_PER_RUN {
            r#"{"action":"no_op","reason":"campaign_complete","details":""}"#.to_owned()
        } else if ask.cycle % 2 == 1 {
            let description = format!("a task that the measurement made in cycle {}", ask.cycle);
            json!({ "action": "create_task", "task": { "description": description, "preconditions": [] }, "justification": "" })
                .to_string()
        } else {
            let tasks = ask.sections.iter().find(|section| section.name == "tasks").map_or("", |section| section.text.as_str());
            let pending = tasks.lines().find(|line| line.contains(r#""status":"pending""#)).unwrap_or_default();
            let id = pending.find("task_").and_then(|at| pending.get(at..at + 31)).unwrap_or_default();
            format!(r#"{{"action":"select_next_task","task_id":"{id}","reasoning":""}}"#)
        };
        Ok(Answer { text, model: "at_once".to_owned(), spent: Amounts { tokens: 100, ..Amounts::NONE } })
    }

    fn call(&mut self, _call: &Call) -> CallResult {
        CallResult::Unknown
    }

    fn reaches(&self, _service: &str) -> bool {
        false
    }
}

fn figure(agents: usize, samples: &[Sample]) -> RunFigure {
    let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
    let ratios: Vec<f64> = samples.iter().map(|sample| sample.baseline_seconds / sample.seconds).collect();
    RunFigure {
        agents,
        cycles: samples.iter().map(|sample| sample.cycles).sum(),
        cycles_per_second: of(|sample| sample.cycles as f64 / sample.seconds),
        commits_per_cycle: of(|sample| sample.commits as f64 / sample.cycles as f64),
        baseline_commits_per_second: of(|sample| sample.commits as f64 / sample.baseline_seconds),
        ratio_least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratio_most: ratios.iter().copied().fold(0.0, f64::max),
        ratio: median(ratios),
        cpu_us_per_cycle: of(|sample| sample.cpu_seconds * 1e6 / sample.cycles as f64),
        baseline_cpu_us_per_cycle: of(|sample| sample.baseline_cpu_seconds * 1e6 / sample.cycles as f64),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn lock(kept: &Kept) -> std::sync::MutexGuard<'_, Vec<(Domain, Commit)>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorCode::StorageError, format!("{what}: {error}"))
}

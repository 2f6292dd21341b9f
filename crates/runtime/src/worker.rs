//! The worker: drives runs in the foreground, until each ends or waits for something that time alone does not bring.
//!
//! Everything it does is durable point by point, so it may be killed at any moment: whoever opens the home next goes on from there.
//! Waiting is done here, at the edge; the machine only says until when.

use std::fmt;
use std::time::Duration;

use control::manifest::Manifest;
use control::run::{Phase, Run, RunStatus, WaitReason};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{AgentId, ManifestId, RunId};
use domain::key::RunKey;
use domain::record::{Record, Value};
use domain::time::Timestamp;
use store::store::Scan;

use crate::engine::{Drive, Job, Outside, Progress, Rest, Scripted};
use crate::handle::Handle;
use crate::house::{Held, House, held};
use crate::operation::ClientKey;
use crate::runs::{Found, RunView};
use crate::{Error, Result};

/// LIMIT: other runs of the same agent that are finished first, because they were left at work.
const OTHERS_FIRST_MAX: usize = 64;
/// LIMIT: the longest pause that is sat out here; a manifest may ask for longer ones, and is then resumed later.
const PAUSE_MS_MAX: i64 = 60_000;

/// A durable point, as somebody who watches sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    pub run_id: RunId,
    pub cycle: u32,
    pub attempt: u32,
    pub status: RunStatus,
    pub phase: Phase,
    pub waiting: Option<WaitReason>,
    pub operations: u32,
}

/// Drives runs, one after the other.
pub struct Worker<'a> {
    house: House,
    outside: Box<dyn Outside>,
    watch: &'a mut dyn FnMut(&Watched),
    pause: Box<dyn FnMut(Duration)>,
}

impl fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Worker")
    }
}

impl Handle {
    /// A worker on this home; each durable point is told to `watch`.
    pub fn worker<'a>(&self, watch: &'a mut dyn FnMut(&Watched)) -> Result<Worker<'a>> {
        Ok(Worker::new(self.working_house()?, watch))
    }
}

impl<'a> Worker<'a> {
    #[must_use]
    pub fn new(house: House, watch: &'a mut dyn FnMut(&Watched)) -> Self {
        Self { house, outside: Box::new(Scripted), watch, pause: Box::new(std::thread::sleep) }
    }

    /// Starts a run of a manifest's agent and drives it. The same key is the same run: it is driven on, or shown as it ended (K17).
    pub fn start(&mut self, manifest: &Manifest, key: &ClientKey) -> Result<RunView> {
        self.check_key(manifest, key)?;
        let agent = self.house.adopt(manifest, key)?;
        let run = self.house.wake_by_hand(agent, key)?;
        self.resume(&run)
    }

    /// A key that named a run of another manifest is another request's, whatever the agent has become since.
    fn check_key(&self, manifest: &Manifest, key: &ClientKey) -> Result<()> {
        let Ok(agent) = self.house.agent_by_name(manifest.workspace.as_str(), manifest.agent.as_str()) else { return Ok(()) };
        let Ok(Found::Run(run)) = self.house.found(&RunId::of_key(&RunKey::manual(&agent, key.as_str()))) else { return Ok(()) };
        let content = manifest.canonical().map_err(|error| Error::new(ErrorCode::ManifestInvalid, error.to_string()))?;
        if run.manifest_id == ManifestId::of_content(&content) {
            return Ok(());
        }
        let message = format!("operation `{}` started {}, of another manifest than this", key.as_str(), run.id());
        Err(Error::new(ErrorCode::OperationIdReused, message))
    }

    /// Drives a run until it ends or waits.
    pub fn resume(&mut self, id: &RunId) -> Result<RunView> {
        self.house.expire()?;
        for _ in 0..OTHERS_FIRST_MAX {
            let (agent, driven) = match self.house.found(id)? {
                Found::Ended(_) => break,
                Found::Run(run) if run.status.is_terminal() => break,
                Found::Run(run) => (run.agent_id, self.drive(Drive::new(run.id()))?),
                Found::Queued(wake) => match self.house.begin(wake.agent_id, self.outside.as_ref())? {
                    Some(drive) => (wake.agent_id, self.drive(drive)?),
                    None => (wake.agent_id, Rest::Busy),
                },
            };
            if driven != Rest::Busy {
                break;
            }
            // A run of the agent that was left at work comes first: there is one at a time.
            let Some(other) = self.at_work(&agent)?.filter(|other| other != id) else { break };
            if self.drive(Drive::new(other))? == Rest::Busy {
                break;
            }
        }
        self.house.run_view(id)
    }

    /// Ends a run. Nobody else is at work on it, so it ends now and not at its next point. A repeat under the same key shows how it
    /// ended.
    pub fn cancel(&mut self, id: &RunId, key: &ClientKey) -> Result<RunView> {
        let run_id = self.house.run_view(id)?.id;
        let operation_id = key.operation_id();
        let repeated = self.house.read(Domain::Agent, |snapshot| Ok(snapshot.outcome(&operation_id)?.is_some()))?;
        if !repeated {
            self.house.cancel(run_id, key)?;
        }
        self.resume(&run_id)
    }

    /// Drives everything that can go on: what a crash left behind, what was answered, what is due, what is queued. The runs that it
    /// touched, as they stand.
    pub fn resume_all(&mut self) -> Result<Vec<RunView>> {
        self.house.expire()?;
        let mut touched: Vec<RunId> = Vec::new();
        for job in self.house.jobs()? {
            let drive = match job {
                Job::Continue(run) => Some(Drive::new(run)),
                Job::Begin(agent) => self.house.begin(agent, self.outside.as_ref())?,
            };
            let Some(drive) = drive else { continue };
            let run = drive.run_id();
            let before = self.house.run(&run)?;
            self.drive(drive)?;
            if matches!(job, Job::Begin(_)) || self.house.run(&run)? != before {
                touched.push(run);
            }
        }
        touched.iter().map(|run| self.house.run_view(run)).collect()
    }

    fn drive(&mut self, mut drive: Drive) -> Result<Rest> {
        let run_id = drive.run_id();
        let mut seen: Option<Watched> = None;
        self.tell(&run_id, &mut seen)?;
        loop {
            let progress = self.house.advance(&mut drive, self.outside.as_mut())?;
            let rest = match progress {
                Progress::Asked | Progress::Performed => continue,
                Progress::Committed => None,
                Progress::Rests(rest) => Some(rest),
            };
            let run = self.tell(&run_id, &mut seen)?;
            match rest {
                Some(Rest::Waits { reason: WaitReason::Backoff, until: Some(until) }) if self.sat_out(until) => {}
                Some(rest) => return Ok(rest),
                None if run.status == RunStatus::Running && run.phase == Phase::Between => self.loop_delay(&run)?,
                None => {}
            }
        }
    }

    /// Tells whoever watches how the run stands, if that is news.
    fn tell(&mut self, run_id: &RunId, seen: &mut Option<Watched>) -> Result<Run> {
        let run = self.house.run(run_id)?;
        let watched = watched(&run);
        if seen.as_ref() != Some(&watched) {
            (self.watch)(&watched);
            *seen = Some(watched);
        }
        Ok(run)
    }

    /// Sits a short pause out; false when it is too long for that.
    fn sat_out(&mut self, until: Timestamp) -> bool {
        let pause_ms = until.as_ms().saturating_sub(self.house.now().as_ms()).max(0);
        if pause_ms > PAUSE_MS_MAX {
            return false;
        }
        (self.pause)(Duration::from_millis(u64::try_from(pause_ms).unwrap_or(0) + 1));
        true
    }

    fn loop_delay(&mut self, run: &Run) -> Result<()> {
        let delay_ms = i64::from(self.house.manifest(&run.manifest_id)?.loop_delay_ms);
        if delay_ms > 0 {
            (self.pause)(Duration::from_millis(u64::try_from(delay_ms.min(PAUSE_MS_MAX)).unwrap_or(0)));
        }
        Ok(())
    }

    /// The run of an agent that is at work, or was when its process died.
    fn at_work(&self, agent: &AgentId) -> Result<Option<RunId>> {
        let mut scan = Scan::new(Run::SPEC, "by_status");
        scan.prefix = vec![Value::from(RunStatus::Running.as_str())];
        for row in self.house.page(Domain::Agent, &scan)?.rows {
            let Some(Held { record, .. }) = held::<Run>(&row)? else { continue };
            if record.agent_id == *agent {
                return Ok(Some(record.id()));
            }
        }
        Ok(None)
    }
}

fn watched(run: &Run) -> Watched {
    Watched {
        run_id: run.id(),
        cycle: run.cycle,
        attempt: run.attempt,
        status: run.status,
        phase: run.phase,
        waiting: run.waiting.as_ref().map(|waiting| waiting.reason),
        operations: run.operations,
    }
}

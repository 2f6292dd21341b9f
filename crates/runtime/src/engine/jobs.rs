//! What there is to do: runs that a life has left behind, runs that wait, wakes that wait for a run.

use control::action::Effect;
use control::machine::{Event, State, step};
use control::run::{Origin, Phase, Run, RunStatus};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{AgentId, ManifestId, RunId};
use domain::record::{Record, Spec, Value};
use domain::records::agent::Agent;
use domain::records::wake::{Wake, WakeState};
use store::store::{Row, Scan};

use crate::engine::drive::{Drive, Progress};
use crate::engine::outside::Outside;
use crate::engine::point::{Context, lease_id};
use crate::engine::wakes;
use crate::house::{Held, House, held};
use crate::{Error, Result};
use domain::records::lease::Lease;

/// LIMIT: steps that recovery takes with one run: its effects, its outcome, and a few for rows that changed meanwhile.
const RECOVERY_STEPS_MAX: u32 = 32;

/// Errors of the disk are the home's; all others concern one run.
const fn is_storage(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::StorageError | ErrorCode::StorageFull | ErrorCode::StorageFailing | ErrorCode::CommitUnknown)
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// A run that is at work or waits.
    Continue(RunId),
    /// An agent has waiting wakes and no run at work.
    Begin(AgentId),
}

impl House {
    /// Everything that may be worked on, those that were begun first.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for status in [RunStatus::Running, RunStatus::Waiting] {
            jobs.extend(self.of_status(Run::SPEC, status.as_str())?.iter().map(|row| Job::Continue(RunId::from_raw(row.id))));
        }
        let mut agents: Vec<AgentId> = Vec::new();
        for row in self.of_status(Wake::SPEC, WakeState::Waiting.as_str())? {
            let Some(wake) = held::<Wake>(&row)? else { continue };
            // An answer belongs to its run, which is among those that wait.
            if wake.record.run_id.is_none() && !agents.contains(&wake.record.agent_id) {
                agents.push(wake.record.agent_id);
            }
        }
        jobs.extend(agents.into_iter().map(Job::Begin));
        Ok(jobs)
    }

    /// Every live row of a status, oldest first.
    fn of_status(&self, spec: &'static Spec, status: &str) -> Result<Vec<Row>> {
        self.read(Domain::Agent, |snapshot| {
            let mut scan = Scan::new(spec, "by_status");
            scan.prefix = vec![Value::from(status)];
            let mut rows = Vec::new();
            loop {
                let page = snapshot.scan(&scan)?;
                rows.extend(page.rows);
                let Some(next) = page.next else { return Ok(rows) };
                scan.after = Some(next);
            }
        })
    }

    /// Finishes what an earlier life left between an effect and its outcome. Runs go on later; nobody is asked anything here.
    pub fn recover(&mut self, outside: &mut dyn Outside) -> Result<usize> {
        let rows = self.of_status(Run::SPEC, RunStatus::Running.as_str())?;
        let mut finished = 0;
        for row in &rows {
            // A row that does not read, or a plan that reaches for a system that is not at hand here, is left to whoever goes on with it.
            let Ok(Some(run)) = held::<Run>(row) else { continue };
            if run.record.phase != Phase::Planned || !self.is_reachable(&run.record, outside)? {
                continue;
            }
            if self.incarnation == 0 {
                self.begin_life()?;
            }
            match self.recover_one(&run.record, outside) {
                Ok(()) => finished += 1,
                // A plan that does not read must not keep the home from opening; the run shows it when it is gone on with.
                Err(error) if !is_storage(error.code) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(finished)
    }

    /// Whether everything that a plan calls can be called from here.
    fn is_reachable(&self, run: &Run, outside: &dyn Outside) -> Result<bool> {
        let cycle = self.newest_cycle(run)?;
        let mut actions = cycle.iter().flat_map(control::cycle::Cycle::actions).filter(|action| action.is_to_do());
        Ok(actions.all(|action| match &action.effect {
            Effect::Outside { service, .. } => outside.reaches(service),
            _ => true,
        }))
    }

    fn recover_one(&mut self, run: &Run, outside: &mut dyn Outside) -> Result<()> {
        let mut drive = Drive::recovering(run.id());
        let mut left = RECOVERY_STEPS_MAX;
        while left > 0 && self.held::<Run>(Domain::Agent, &run.id().raw())?.is_some_and(|held| held.record.phase == Phase::Planned)
        {
            left -= 1;
            if let Progress::Rests(_) = self.advance(&mut drive, outside)? {
                break;
            }
        }
        Ok(())
    }

    /// Begins a run for an agent's waiting wakes: the oldest, and the others with it. None when another run of it is at work.
    pub fn begin(&mut self, agent_id: AgentId, outside: &dyn Outside) -> Result<Option<Drive>> {
        let now = self.now();
        let waiting = self.read(Domain::Agent, |snapshot| wakes::waiting(snapshot, &agent_id, None))?;
        let Some((first, oldest)) = waiting.first() else { return Ok(None) };
        let agent: Option<Held<Agent>> = self.held(Domain::Agent, &agent_id.raw())?;
        let agent = agent.ok_or_else(|| Error::new(ErrorCode::AgentNotFound, format!("{agent_id} is not there")))?;
        let manifest_id = agent.record.config.prompt_id.as_deref().and_then(|id| ManifestId::parse(id).ok());
        let manifest_id =
            manifest_id.ok_or_else(|| Error::new(ErrorCode::ManifestInvalid, format!("{agent_id} has no manifest")))?;
        let origin = Origin {
            agent_id,
            workspace_id: agent.workspace,
            run_key: oldest.record.run_key,
            reason: oldest.record.reason,
            wake_ids: waiting.iter().map(|(id, _)| *id).collect(),
            manifest_id,
            salt: self.env().salt(),
            cause_depth: oldest.record.cause_depth,
        };
        debug_assert_eq!(origin.wake_ids.first(), Some(first));
        let run = Run::begin(origin, now);
        if self.holds_lease(&run)? {
            return Ok(None);
        }
        let reader = self.reader(Domain::Agent);
        let agent = reader.read()?;
        let loaded = self.load(agent.as_ref(), &run, outside, now)?;
        let begun = State { run, cycle: None };
        let Ok(mut taken) = step(&begun, Event::Open(loaded.facts()), now) else { return Ok(None) };
        taken.state.run.events.splice(0..0, begun.run.events.iter().copied());
        let context = Context { version: None, before: None, gate: Some(&loaded.gate) };
        let commit = self.point(agent.as_ref(), &taken, &context)?;
        drop(agent);
        match self.place(Domain::Agent).commit(commit) {
            Ok(_) => Ok(Some(Drive::begun(&taken, loaded.board))),
            // Somebody was quicker: what it was decided on has changed.
            Err(store::Error::InvalidCommit(what)) => Err(store::Error::InvalidCommit(what).into()),
            Err(refusal) if refusal.is_refusal() => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Whether a run of the agent is at work, in this life or left by an earlier one.
    fn holds_lease(&self, run: &Run) -> Result<bool> {
        let lease: Option<Held<Lease>> = self.held(Domain::Agent, &lease_id(run))?;
        Ok(lease.is_some())
    }
}

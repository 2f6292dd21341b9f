//! One life of the process after the other: it opens what is there, recovers, works one step at a time, and meets errors.

use std::sync::atomic::Ordering;

use control::cycle::Cycle;
use control::run::Run;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::RunId;
use domain::record::Record;
use fault_disk::FaultVfs;
use runtime::engine::{Drive, Job, Progress};

use super::faults::mode;
use super::{Checked, Life, World, alive, house, shown};
use crate::checkers::{flight, promises, runs};
use crate::ledger::Violation;
use crate::place::{lock, store_of};
use crate::profile::Family;
use crate::rng::{Draw, mix};
use crate::stores;

impl World {
    /// A new life: opens what is there, recovers, begins.
    pub(super) fn restart(&mut self) -> Checked {
        let mut last = String::new();
        for attempt in 0..8 {
            if let Some(disk) = &self.disk
                && disk.is_dead()
            {
                let mut draw = self.draw(6 + attempt);
                disk.crash_and_recover(mode(&mut draw), draw.value());
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

    /// The engine does one thing.
    pub(super) fn work(&mut self, draw: &mut Draw) -> Checked {
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
    pub(super) fn failed(&mut self, error: &runtime::Error) -> Checked {
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

    pub(super) fn look_at(&mut self, id: RunId) -> Checked {
        let reader = lock(store_of(&self.stores, Domain::Agent)).reader();
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
        if self.seen.get(&id).is_none_or(|seen| seen.0 != run.status)
            && let Some(violation) = flight::alone(snapshot.as_ref(), &run)
        {
            return Err(violation);
        }
        runs::check(&mut self.seen, &run, cycle.as_ref(), row.version).map_or(Ok(()), Err)
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

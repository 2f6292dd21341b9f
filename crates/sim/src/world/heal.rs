//! The end of a world: faults stop, people help, everything must come to rest, and what rests is held against the ledger.

use runtime::engine::{Drive, Job, Progress};

use super::faults::mode;
use super::{Checked, World, shown};
use crate::checkers::{flight, promises, rest};
use crate::ledger::Violation;
use crate::place::lock;

impl World {
    /// Faults end, people help, and everything must come to rest.
    pub(super) fn heal(&mut self) -> Checked {
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
            disk.crash_and_recover(mode(&mut draw), draw.value());
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
        if let Some(violation) = promises::sound(&self.stores).or_else(|| flight::once(&self.stores)) {
            return Err(violation);
        }
        let watch = lock(&self.watch);
        let replayed = self.setup.seed.is_multiple_of(3);
        rest::check(&self.stores, &mut self.life.house, &watch.ledger, replayed)
    }
}

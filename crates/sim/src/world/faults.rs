//! What goes wrong by itself: the process dies, somebody is quicker, a second process takes over, the disk fails, a row is changed behind
//! everybody's back. Models, services and people misbehave in `outside` and `people`.

use std::sync::Arc;

use domain::causality::Domain;
use domain::commit::{Change, Expected, Write};
use domain::record::{Record, Value};
use domain::records::prompt::{PromptItem, PromptState};
use fault_disk::Crash;
use runtime::engine::Progress;
use store::Committer;
use store::store::Scan;

use super::{Checked, Life, World, alive, house};
use crate::people::{BAD, Deed, Person};
use crate::place::{Place, lock, store_of, unasked};
use crate::profile::Family;
use crate::rng::Draw;

impl World {
    pub(super) fn fault(&mut self, family: Family) -> Checked {
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
                        disk.crash_and_recover(mode(draw), draw.value());
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
                let first = disk.syncs() + 1 + draw.value() % 4;
                disk.fail_syncs(first..first + 1, mode(draw));
            }
            1 => {
                self.fire("disk.full");
                disk.fail_writes_with_full(disk.bytes() + draw.value() % 20_000);
            }
            _ => {
                self.fire("disk.power_cut");
                disk.arm(disk.ops() + 1 + draw.value() % 40);
            }
        }
        self.tell(|| "the disk is about to fail".to_owned());
    }

    pub(super) fn mend_disk(&self) {
        if let Some(disk) = &self.disk {
            disk.mend_syncs();
            disk.fail_writes_with_full(u64::MAX);
        }
    }

    /// A question is changed behind everybody's back: what the person sees is not what waits.
    fn tamper(&mut self, draw: &mut Draw) {
        let mut scan = Scan::new(PromptItem::SPEC, "by_status");
        scan.prefix = vec![Value::from(PromptState::Open.as_str())];
        let reader = lock(store_of(&self.stores, Domain::Agent)).reader();
        let rows = reader.read().and_then(|snapshot| snapshot.scan(&scan)).map(|page| page.rows).unwrap_or_default();
        drop(reader);
        let Some(row) = draw.pick(&rows) else { return };
        let Ok(Some(mut item)) = row.record::<PromptItem>() else { return };
        let Some(gated) = &mut item.gates else { return };
        gated.arguments_hash = domain::hash::plain(&draw.value().to_le_bytes());
        let Ok(body) = item.to_body() else { return };
        let write = Write {
            spec: PromptItem::SPEC,
            id: row.id,
            workspace: row.workspace,
            expected: Expected::Version(row.version),
            change: Change::Put(body),
        };
        let commit = unasked(&format!("tamper {}", self.event), write);
        if Place::new(Domain::Agent, &self.stores, &self.watch, &alive(), false).commit(commit).is_ok() {
            self.fire("tamper.question");
            self.tell(|| "a question is changed behind everybody's back".to_owned());
        }
    }
}

pub(super) fn mode(draw: &mut Draw) -> Crash {
    [Crash::Lost, Crash::Kept, Crash::Cut, Crash::Torn][draw.below(4)]
}

//! What a run that waits needs before it can go on: as it is now, not as it was when the run came to rest.

use control::machine::day_of;
use control::manifest::Manifest;
use control::run::{Run, WaitReason};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::records::agent::{Agent, AgentLifecycle};
use domain::records::budget::Amounts;
use domain::records::manifest::StoredManifest;
use domain::records::prompt::PromptState;
use domain::records::switch::SwitchSubject;
use policy::Act;
use serde::Serialize;

use crate::engine::budget;
use crate::house::{Held, House};
use crate::runs::AskView;
use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Needs {
    /// Nothing any more: it goes on when somebody resumes it.
    Resume,
    /// A person's answer.
    Answer,
    /// The release of a stop.
    Release { subject: SwitchSubject },
    /// Its agent is paused.
    Agent,
    /// More of an amount than the day has left.
    Budget(Shortfall),
}

/// An amount of the day's budget that does not suffice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    pub amount: &'static str,
    pub limit: i64,
    /// What is gone of it, or set aside.
    pub used: i64,
    /// What one more ask would set aside.
    pub wanted: i64,
}

impl Shortfall {
    /// The first amount that does not suffice, in the order in which the decision looks at them.
    pub(crate) fn of(limits: Amounts, used: Amounts, wanted: Amounts) -> Option<Self> {
        let (limits, used, wanted) = (limits.named(), used.named(), wanted.named());
        let found = (0..limits.len()).find(|place| used[*place].1.saturating_add(wanted[*place].1) > limits[*place].1)?;
        let (amount, limit) = limits[found];
        Some(Self { amount, limit, used: used[found].1, wanted: wanted[found].1 })
    }
}

impl House {
    /// What a run needs; `asks` are its questions, in the order in which they are parked.
    pub(crate) fn needs(&self, run: &Run, asks: &[AskView]) -> Result<Needs> {
        let Some(waiting) = &run.waiting else { return Ok(Needs::Resume) };
        let asks_people = waiting.reason == WaitReason::People;
        if asks_people && asks.iter().all(|ask| ask.status == PromptState::Open) {
            return Ok(Needs::Answer);
        }
        let stops: Vec<_> = self.stops()?.into_iter().map(|switch| switch.subject).collect();
        let agents = |subject: &&SwitchSubject| {
            matches!(subject, SwitchSubject::Everything) || **subject == SwitchSubject::Agent(run.agent_id)
        };
        if let Some(subject) = stops.iter().find(agents) {
            return Ok(Needs::Release { subject: subject.clone() });
        }
        let agent: Option<Held<Agent>> = self.held(Domain::Agent, &run.agent_id.raw())?;
        if agent.is_some_and(|held| held.record.lifecycle == AgentLifecycle::Dormant) {
            return Ok(Needs::Agent);
        }
        match waiting.reason {
            WaitReason::People => Ok(class_stopped(run, asks, &stops).map_or(Needs::Resume, |subject| Needs::Release { subject })),
            WaitReason::Budget => Ok(self.shortfall(run)?.map_or(Needs::Resume, Needs::Budget)),
            WaitReason::Stopped | WaitReason::Paused | WaitReason::Backoff => Ok(Needs::Resume),
        }
    }

    /// The manifest that a run began with, for those who only look.
    pub(crate) fn manifest_of_run(&self, run: &Run) -> Result<Manifest> {
        let stored: Option<Held<StoredManifest>> = self.held(Domain::Agent, &run.manifest_id.raw())?;
        let damaged = |what: &str| Error::new(ErrorCode::DatabaseDamaged, format!("{} {what}", run.manifest_id));
        let stored = stored.ok_or_else(|| damaged("is not stored"))?;
        serde_json::from_str(&stored.record.content).map_err(|_| damaged("does not read"))
    }

    fn shortfall(&self, run: &Run) -> Result<Option<Shortfall>> {
        let manifest = self.manifest_of_run(run)?;
        let today = day_of(self.now().max(run.updated_at));
        let (limits, used) = self.read(Domain::Agent, |snapshot| budget(snapshot, &run.agent_id, &manifest, &today))?;
        Ok(Shortfall::of(limits, used, manifest.reservation))
    }
}

/// The stop of a class of tools that keeps everything back that a person has answered.
fn class_stopped(run: &Run, asks: &[AskView], stops: &[SwitchSubject]) -> Option<SwitchSubject> {
    let answered = run.parked.iter().zip(asks).filter(|(_, ask)| ask.status != PromptState::Open);
    let mut stopped = answered.map(|(parked, _)| match &parked.action.act {
        Some(Act::Use { class, .. }) => stops.iter().find(|subject| **subject == SwitchSubject::Tools(class.clone())),
        Some(Act::Ask { .. }) | None => None,
    });
    let first = stopped.next().flatten();
    first.filter(|_| stopped.all(|subject| subject.is_some())).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l30_the_first_amount_that_does_not_suffice_is_named() {
        let limits = Amounts { tokens: 100, cost_micros: 0, runtime_ms: 10, tool_calls: 1 };
        let used = Amounts { tokens: 90, runtime_ms: 10, ..Amounts::NONE };
        let wanted = |tokens, runtime_ms| Amounts { tokens, runtime_ms, ..Amounts::NONE };
        assert_eq!(Shortfall::of(limits, used, wanted(10, 0)), None);
        let tokens = Shortfall { amount: "tokens", limit: 100, used: 90, wanted: 11 };
        assert_eq!(Shortfall::of(limits, used, wanted(11, 1)), Some(tokens));
        let runtime = Shortfall { amount: "runtime_ms", limit: 10, used: 10, wanted: 1 };
        assert_eq!(Shortfall::of(limits, used, wanted(10, 1)), Some(runtime));
    }
}

//! Driving one run: each call of [`House::advance`] does one thing that touches the world, and can be the last one before the end of it.

use control::action::{Action, Observation, Seen};
use control::board::Board;
use control::cycle::{Cycle, Reply};
use control::dialect::{Decoded, Fault};
use control::machine::{Ask, AskRef, BACKOFF_MS_MAX, Event, Next, Refusal, State, Step, Wish, day_of, step};
use control::manifest::Manifest;
use control::run::{Phase, Run, WaitReason};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::RunId;
use domain::plant::{self, Bug};
use domain::records::budget::Amounts;
use domain::records::lease::{INCARNATION, Lease};
use domain::time::Timestamp;

use crate::engine::facts::Loaded;
use crate::engine::outside::{Answer, Outgoing, Outside};
use crate::engine::point::{Context, due_at, lease_id};
use crate::house::{Held, House};
use crate::{Error, Result};

/// LIMIT: times that a point is computed anew because rows changed under it. Each needs another writer; people are not that quick.
const RECOMPUTED_MAX: u32 = 16;

/// One run on its way, with what is not durable yet.
#[derive(Debug, Clone)]
pub struct Drive {
    run_id: RunId,
    hand: Hand,
    /// The board that the open ask was made on.
    board: Option<Board>,
    /// The plan in the store was made by this life.
    own_plan: bool,
    /// A point A in the same commit was refused: the next D goes alone.
    alone: bool,
    recomputed: u32,
}

/// What the world has given and the store has not got yet.
#[derive(Debug, Clone, Default)]
enum Hand {
    #[default]
    Empty,
    Ask(Ask),
    Answer {
        ask: AskRef,
        answered: Answered,
    },
    Observed(Vec<Observation>),
}

#[derive(Debug, Clone)]
enum Answered {
    Reply { reply: Reply, decoded: std::result::Result<Decoded, Vec<Fault>> },
    Failed(ErrorCode),
}

/// What one call did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A durable point.
    Committed,
    /// A model was asked.
    Asked,
    /// The plan was carried out.
    Performed,
    Rests(Rest),
}

/// Why a drive has nothing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rest {
    Ended,
    Waits {
        reason: WaitReason,
        until: Option<Timestamp>,
    },
    /// Another run of the agent is at work.
    Busy,
}

impl Drive {
    #[must_use]
    pub fn new(run_id: RunId) -> Self {
        Self { run_id, hand: Hand::Empty, board: None, own_plan: false, alone: false, recomputed: 0 }
    }

    /// A drive that brings an interrupted plan to its outcome and opens nothing new.
    pub(crate) fn recovering(run_id: RunId) -> Self {
        Self { alone: true, ..Self::new(run_id) }
    }

    /// The drive of a run whose first commit has just been made.
    pub(crate) fn begun(taken: &Step, board: Board) -> Self {
        let mut drive = Self::new(taken.state.run.id());
        drive.own_plan = taken.next == Next::Perform;
        if let Next::Ask(ask) = &taken.next {
            drive.hand = Hand::Ask(ask.clone());
            drive.board = Some(board);
        }
        drive
    }

    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.run_id
    }
}

impl House {
    /// Does the next thing for a run.
    pub fn advance(&mut self, drive: &mut Drive, outside: &mut dyn Outside) -> Result<Progress> {
        if let Hand::Ask(ask) = &drive.hand {
            let ask = ask.clone();
            return self.ask(drive, ask, outside);
        }
        let Some(held) = self.held::<Run>(Domain::Agent, &drive.run_id.raw())? else {
            return Err(Error::new(ErrorCode::RunNotFound, format!("there is no {}", drive.run_id)));
        };
        if held.record.status.is_terminal() {
            return Ok(Progress::Rests(Rest::Ended));
        }
        if let Some(waiting) = held.record.waiting.as_ref().filter(|_| is_early(&held.record, self.now())) {
            return Ok(Progress::Rests(Rest::Waits { reason: waiting.reason, until: waiting.until }));
        }
        if self.is_busy(&held.record)? {
            return Ok(Progress::Rests(Rest::Busy));
        }
        let cycle = self.newest_cycle(&held.record)?;
        if held.record.phase == Phase::Planned && !matches!(drive.hand, Hand::Observed(_)) {
            let actions = cycle.as_ref().map(Cycle::actions).unwrap_or_default().to_vec();
            return self.carry_out(drive, &held.record, &actions, outside);
        }
        // The machine's time does not go back inside a run, so the day whose budget is looked at does not either.
        let now = self.now().max(held.record.updated_at);
        let loaded = self.load(&held.record, outside, now)?;
        let state = State { run: held.record.clone(), cycle };
        match self.next_step(drive, &state, &loaded, now) {
            Ok(taken) => self.settle(drive, &held, &state, &loaded, taken, outside),
            Err(Refusal::Ended) => Ok(Progress::Rests(Rest::Ended)),
            Err(Refusal::NotYet) => Ok(Progress::Rests(rest_of(&state.run))),
            // A late answer, or one to an ask that somebody else has taken up again: it counts for nothing.
            Err(Refusal::Stale | Refusal::OutOfOrder) => {
                drive.hand = Hand::Empty;
                Ok(Progress::Committed)
            }
        }
    }

    fn next_step(&self, drive: &Drive, state: &State, loaded: &Loaded, now: Timestamp) -> std::result::Result<Step, Refusal> {
        let taken = match &drive.hand {
            Hand::Answer { ask, answered: Answered::Reply { reply, decoded } } => {
                // The board is the one that was shown: what has changed since is found by its version.
                let board = drive.board.as_ref().unwrap_or(&loaded.board);
                let facts = control::machine::Facts { board, answers: &[], ..loaded.facts() };
                let event = Event::Answered { facts, ask: *ask, reply: reply.clone(), decoded: decoded.clone() };
                step(state, event, now)?
            }
            Hand::Answer { ask, answered: Answered::Failed(code) } => {
                step(state, Event::AskFailed { ask: *ask, code: *code }, now)?
            }
            Hand::Observed(observations) => step(state, Event::Performed { observations: observations.clone() }, now)?,
            Hand::Empty | Hand::Ask(_) => return step(state, Event::Open(loaded.facts()), now),
        };
        if drive.alone || loaded.manifest.loop_delay_ms > 0 {
            return Ok(taken);
        }
        // The next cycle sees the world as it will stand once this step is durable: the journal was read after the effects, and the
        // day's usage is corrected by what this step settles.
        let mut gate = loaded.gate.clone();
        gate.world.used = gate.world.used.plus(settled(&taken, &day_of(now)));
        let facts = control::machine::Facts { gate: &gate, ..loaded.facts() };
        Ok(taken.then_open(facts, now))
    }

    fn settle(
        &mut self,
        drive: &mut Drive,
        held: &Held<Run>,
        state: &State,
        loaded: &Loaded,
        taken: Step,
        outside: &mut dyn Outside,
    ) -> Result<Progress> {
        let context = Context { version: Some(held.version), before: Some(&state.run), gate: Some(&loaded.gate) };
        let commit = self.point(&taken, &context)?;
        if plant::is(Bug::SkipIntent) && taken.next == Next::Perform {
            let actions = taken.state.cycle.as_ref().map(Cycle::actions).unwrap_or_default().to_vec();
            self.perform(&taken.state.run, &actions, false, outside)?;
        }
        match self.place(Domain::Agent).commit(commit) {
            Ok(_) => {}
            Err(store::Error::Fenced { subject, epoch, current }) if subject == INCARNATION => {
                return Err(store::Error::Fenced { subject, epoch, current }.into());
            }
            // Something it was decided on has changed: everything is read again and decided anew. What is in the hand is kept.
            Err(refusal) if refusal.is_refusal() && drive.recomputed < RECOMPUTED_MAX => {
                drive.recomputed += 1;
                drive.alone = true;
                if plant::is(Bug::DropConflictingD)
                    && let Hand::Observed(observations) = &mut drive.hand
                {
                    observations.iter_mut().for_each(|observation| observation.seen = Seen::Unknown);
                }
                return Ok(Progress::Committed);
            }
            Err(error) => return Err(error.into()),
        }
        drive.recomputed = 0;
        drive.alone = false;
        drive.hand = Hand::Empty;
        drive.own_plan = taken.next == Next::Perform;
        if let Next::Ask(ask) = taken.next {
            drive.board = Some(loaded.board.clone());
            drive.hand = Hand::Ask(ask);
        }
        Ok(Progress::Committed)
    }

    fn ask(&mut self, drive: &mut Drive, ask: Ask, outside: &mut dyn Outside) -> Result<Progress> {
        let Some(held) = self.held::<Run>(Domain::Agent, &drive.run_id.raw())? else {
            return Ok(Progress::Rests(Rest::Ended));
        };
        let manifest = self.manifest(&held.record.manifest_id)?;
        let open = (held.record.phase, held.record.cycle, held.record.attempt) == (Phase::Asked, ask.cycle, ask.attempt);
        let replaced = self.fence_epoch(Domain::Agent, INCARNATION)? > self.incarnation;
        if !open || replaced || self.is_held_back(&held.record, &manifest, outside)? {
            // Stopped or replaced between the point and the ask: nothing leaves. The next look finds out what is the case.
            drive.hand = Hand::Empty;
            return Ok(Progress::Committed);
        }
        let Ask { cycle, attempt, nth, sections, tokens_max } = ask;
        let started = self.now();
        let answer = outside.ask(&manifest, &Outgoing { run_id: drive.run_id, cycle, attempt, nth, sections, tokens_max });
        let took_ms = self.now().as_ms().saturating_sub(started.as_ms()).max(0);
        let answered = match answer {
            Ok(Answer { text, model, mut spent }) => {
                spent.runtime_ms = spent.runtime_ms.saturating_add(took_ms);
                let bytes = text.len() as u64;
                Answered::Reply { reply: Reply { model, bytes, spent: sane(spent) }, decoded: manifest.dialect.decode(&text) }
            }
            Err(code) => Answered::Failed(code),
        };
        drive.hand = Hand::Answer { ask: AskRef { cycle, attempt }, answered };
        Ok(Progress::Asked)
    }

    fn carry_out(&mut self, drive: &mut Drive, run: &Run, actions: &[Action], outside: &mut dyn Outside) -> Result<Progress> {
        let recovered = !drive.own_plan;
        let observations = self.perform(run, actions, recovered, outside)?;
        drive.hand = Hand::Observed(observations);
        Ok(Progress::Performed)
    }

    /// Whether a stop, a pause or the end of the agent came after the point that let an ask leave.
    fn is_held_back(&self, run: &Run, manifest: &Manifest, outside: &dyn Outside) -> Result<bool> {
        let gate = self.gate(&run.agent_id, &run.workspace_id, manifest, outside, self.now())?;
        let act = policy::Act::Ask { model: manifest.model.name().to_owned() };
        let request = policy::Request { agent: run.agent_id, act, reservation: Amounts::NONE, approval: None };
        let decision = policy::authorize(&request, &gate.world);
        // Its budget is reserved already.
        Ok(decision.verdict != policy::Verdict::Allow && decision.code != Some(ErrorCode::BudgetExceeded))
    }

    /// Whether another run of the agent is at work. A lease goes with its run, so one that an earlier life left behind belongs to a run
    /// that has to be gone on with first; being void only lets that run take it again.
    fn is_busy(&self, run: &Run) -> Result<bool> {
        let lease: Option<Held<Lease>> = self.held(Domain::Agent, &lease_id(run))?;
        Ok(lease.is_some_and(|held| held.record.run_id != run.id()))
    }

    pub(crate) fn newest_cycle(&self, run: &Run) -> Result<Option<Cycle>> {
        let id = Cycle::id_of(&run.id(), run.cycle);
        Ok(self.held::<Cycle>(Domain::Agent, &id.raw())?.map(|held| held.record))
    }
}

/// What a step changes in a day's usage.
fn settled(taken: &Step, today: &str) -> Amounts {
    let change = |wish: &Wish| match wish {
        Wish::Settle { day, reserved, spent } if day == today => spent.minus(*reserved),
        _ => Amounts::NONE,
    };
    taken.wishes.iter().map(change).fold(Amounts::NONE, Amounts::plus)
}

/// What a provider reports is not believed blindly: nothing is negative, and nothing overflows a sum.
fn sane(spent: Amounts) -> Amounts {
    let bound = |amount: i64| amount.clamp(0, 1 << 40);
    Amounts {
        tokens: bound(spent.tokens),
        cost_micros: bound(spent.cost_micros),
        runtime_ms: bound(spent.runtime_ms),
        tool_calls: bound(spent.tool_calls),
    }
}

/// Whether a backoff still lasts. One that would last longer than any does was left behind by a clock that was set back.
fn is_early(run: &Run, now: Timestamp) -> bool {
    let left_ms = |waiting: &control::run::Waiting| waiting.until.map_or(0, |until| until.as_ms().saturating_sub(now.as_ms()));
    run.waiting
        .as_ref()
        .is_some_and(|waiting| waiting.reason == WaitReason::Backoff && (1..=BACKOFF_MS_MAX).contains(&left_ms(waiting)))
}

fn rest_of(run: &Run) -> Rest {
    match &run.waiting {
        Some(waiting) => Rest::Waits { reason: waiting.reason, until: due_at(run) },
        None => Rest::Ended,
    }
}

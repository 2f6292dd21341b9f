//! The run's machine: `step(state, event, now)` gives the next state and what is wished for, or refuses.
//!
//! | status, phase | event | leads to |
//! |---|---|---|
//! | running, between | `Open` | A: asked · a plan of the controller's own · waiting · an ending |
//! | running, asked | `Open` | A again: the ask was lost, its reservation counts as spent |
//! | running, asked | `Answered` | B: planned, or closed at once when nothing is to be carried out |
//! | running, asked | `AskFailed` | waiting (backoff), or failed |
//! | running, planned | `Performed` | D: between, waiting or an ending |
//! | waiting | `Open` | as running, if what it waited for is there |
//! | any but ended | `Cancel` | cancelled; at work, at the next point |
//!
//! Everything else is refused. The runtime commits the new state first and then carries the wishes out. A step that leads to `Open` again
//! may be chained with it in one commit: D carries the next A.

mod answer;
mod close;
mod open;

pub use answer::BACKOFF_MS_MAX;

use domain::code::ErrorCode;
use domain::id::{MessageId, PromptItemId};
use domain::records::budget::Amounts;
use domain::records::message::Message;
use domain::records::prompt::{PromptItem, PromptState};
use domain::time::Timestamp;

use crate::action::Observation;
use crate::board::Board;
use crate::context::Section;
use crate::cycle::{AnswerFact, Cycle, Gate, Reply};
use crate::dialect::{Decoded, Fault};
use crate::loop_state::LoopState;
use crate::manifest::Manifest;
use crate::run::{EventName, Run, RunStatus, WaitReason, Waiting};

/// A run and its newest cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub run: Run,
    pub cycle: Option<Cycle>,
}

/// What happens to a run. Everything that a step needs to know comes with its event.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    Open(Facts<'a>),
    Answered { facts: Facts<'a>, ask: AskRef, reply: Reply, decoded: Result<Decoded, Vec<Fault>> },
    AskFailed { ask: AskRef, code: ErrorCode },
    Performed { observations: Vec<Observation> },
    Cancel,
}

/// Which ask an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskRef {
    pub cycle: u32,
    pub attempt: u32,
}

/// The world as a point of a cycle finds it.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    pub manifest: &'a Manifest,
    pub gate: &'a Gate,
    pub board: &'a Board,
    /// Answers to what this run has parked.
    pub answers: &'a [AnswerFact],
}

/// What the runtime writes with the new state, in the same commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a step has a few wishes, most of them messages, and they are granted at once")]
pub enum Wish {
    Reserve { day: String, amounts: Amounts },
    Settle { day: String, reserved: Amounts, spent: Amounts },
    OpenPrompt { id: PromptItemId, item: PromptItem },
    ClosePrompt { id: PromptItemId, state: PromptState },
    Record { id: MessageId, message: Message },
}

/// What comes after the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Ask(Ask),
    /// Carry out the planned actions of the newest cycle.
    Perform,
    /// Open the next cycle.
    Open,
    Rest,
}

/// An ask on its way to a model. Its intent is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub cycle: u32,
    pub attempt: u32,
    /// The how-manieth ask of the run it is; cycles of the controller's own do not count.
    pub nth: u32,
    pub sections: Vec<Section>,
    pub tokens_max: i64,
}

/// The outcome of a step, or of two that share a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub state: State,
    /// The cycle before the newest one, when this step closed it and opened another.
    pub closed: Option<Cycle>,
    pub wishes: Vec<Wish>,
    pub next: Next,
}

impl Step {
    /// The next cycle is opened in the same commit: D carries the next A. What cannot be opened leaves this step as it is, and so does
    /// a second call: a commit closes one cycle and opens one.
    #[must_use]
    pub fn then_open(self, facts: Facts<'_>, now: Timestamp) -> Self {
        if self.next != Next::Open || self.closed.is_some() {
            return self;
        }
        let Ok(opened) = step(&self.state, Event::Open(facts), now) else { return self };
        let mut run = opened.state.run;
        run.events.splice(0..0, self.state.run.events);
        let another = opened.state.cycle.as_ref().map(|cycle| cycle.number) != self.state.cycle.as_ref().map(|cycle| cycle.number);
        let mut wishes = self.wishes;
        wishes.extend(opened.wishes);
        Self {
            closed: if another { self.state.cycle } else { None },
            state: State { run, cycle: opened.state.cycle },
            wishes,
            next: opened.next,
        }
    }
}

/// Why a step is not taken. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the run has ended")]
    Ended,
    #[error("what the run waits for is not there yet")]
    NotYet,
    #[error("the event belongs to an earlier moment of the run")]
    Stale,
    #[error("the event does not fit the phase that the run is in")]
    OutOfOrder,
}

/// Takes one step.
pub fn step(state: &State, event: Event<'_>, now: Timestamp) -> Result<Step, Refusal> {
    if state.run.status.is_terminal() {
        return Err(Refusal::Ended);
    }
    let name = event.name();
    // INVARIANT: time does not go back inside a run, so that what it records is in order whatever the clock does.
    let now = now.max(state.run.updated_at);
    let mut draft = Draft::of(state, now);
    draft.run.looked = None;
    match event {
        Event::Open(facts) => open::step(&mut draft, &facts)?,
        Event::Answered { facts, ask, reply, decoded } => answer::answered(&mut draft, &facts, ask, reply, decoded)?,
        Event::AskFailed { ask, code } => answer::failed(&mut draft, ask, code)?,
        Event::Performed { observations } => close::performed(&mut draft, observations)?,
        Event::Cancel => draft.cancel(),
    }
    if draft.run.running_since.is_some() {
        draft.run.active_ms = draft.run.worked_ms(now);
        draft.run.running_since = Some(now);
    }
    draft.run.events = vec![name];
    draft.run.updated_at = now;
    Ok(Step { state: State { run: draft.run, cycle: draft.cycle }, closed: None, wishes: draft.wishes, next: draft.next })
}

impl Event<'_> {
    const fn name(&self) -> EventName {
        match self {
            Self::Open(_) => EventName::Opened,
            Self::Answered { .. } => EventName::Answered,
            Self::AskFailed { .. } => EventName::AskFailed,
            Self::Performed { .. } => EventName::Performed,
            Self::Cancel => EventName::Cancelled,
        }
    }
}

/// `YYYY-MM-DD` of an instant; days are UTC until agents have zones.
#[must_use]
pub fn day_of(at: Timestamp) -> String {
    at.to_string()[..10].to_owned()
}

/// The first instant of the next day.
#[must_use]
pub fn next_day(at: Timestamp) -> Timestamp {
    const DAY_MS: i64 = 86_400_000;
    Timestamp::from_ms((at.as_ms().div_euclid(DAY_MS) + 1) * DAY_MS)
}

/// A step under construction.
struct Draft {
    run: Run,
    cycle: Option<Cycle>,
    wishes: Vec<Wish>,
    next: Next,
    now: Timestamp,
    /// What the run was waiting for when the step began.
    waited_for: Option<Waiting>,
}

impl Draft {
    fn of(state: &State, now: Timestamp) -> Self {
        let waited_for = state.run.waiting.clone();
        Self { run: state.run.clone(), cycle: state.cycle.clone(), wishes: Vec::new(), next: Next::Rest, now, waited_for }
    }

    fn label(&mut self, to: LoopState) {
        // A start enters planning whatever was before; the rest follows the table by construction.
        self.run.label = self.run.label.enter(to).unwrap_or(LoopState::Planning);
    }

    /// Ends the run. What it parked is withdrawn; what it reserved and did not settle counts as spent.
    fn end(&mut self, status: RunStatus, code: Option<ErrorCode>) {
        self.settle_all();
        self.stop_clock();
        for parked in std::mem::take(&mut self.run.parked) {
            self.wishes.push(Wish::ClosePrompt { id: parked.item, state: PromptState::Withdrawn });
        }
        self.run.status = status;
        self.run.waiting = None;
        self.run.code = code.map(|code| code.as_str().to_owned());
        self.run.ended_at = Some(self.now);
        self.next = Next::Rest;
    }

    /// Lets the run wait without a lease.
    fn rest(&mut self, reason: WaitReason, until: Option<Timestamp>) {
        self.settle_all();
        self.stop_clock();
        self.run.status = RunStatus::Waiting;
        self.run.waiting = Some(Waiting { reason, until });
        self.label(LoopState::Idle);
        self.next = Next::Rest;
    }

    fn settle_all(&mut self) {
        if let Some(reserved) = self.run.reserved.take() {
            self.run.tokens = self.run.tokens.saturating_add(reserved.amounts.tokens);
            let (day, amounts) = (reserved.day, reserved.amounts);
            self.wishes.push(Wish::Settle { day, reserved: amounts, spent: amounts });
        }
    }

    fn stop_clock(&mut self) {
        self.run.active_ms = self.run.worked_ms(self.now);
        self.run.running_since = None;
    }

    fn cancel(&mut self) {
        if self.run.status == RunStatus::Waiting {
            self.end(RunStatus::Cancelled, Some(ErrorCode::Cancelled));
        } else {
            self.run.cancel_requested = true;
        }
    }
}

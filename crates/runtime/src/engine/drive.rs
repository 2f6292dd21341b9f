//! Driving one run: each call of [`House::advance`] does one thing that touches the world, and can be the last one before the end of it.

use std::sync::Arc;

use control::action::{Action, Observation, Seen};
use control::board::Board;
use control::cycle::{Cycle, Gate, Reply};
use control::dialect::{Decoded, Fault};
use control::machine::{Ask, AskRef, BACKOFF_MS_MAX, Event, Facts, Next, Refusal, State, Step, Wish, day_of, step};
use control::manifest::Manifest;
use control::run::{BEHAVIOUR_VERSION, Phase, Run, WaitReason};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::Commit;
use domain::id::{ManifestId, RunId};
use domain::plant::{self, Bug};
use domain::record::Record;
use domain::records::budget::Amounts;
use domain::records::fence::Fence;
use domain::records::lease::{INCARNATION, Lease};
use domain::time::Timestamp;
use store::store::Snapshot;

use crate::engine::facts::{answers, gate, stands_still};
use crate::engine::outside::{Answer, Outside};
use crate::engine::point::{Context, due_at, lease_id};
use crate::house::{Held, House, get, held};
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
    /// The state that this drive has written last, with its version: a row of the same version need not be read again.
    known: Option<(u64, State)>,
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
        Self { run_id, hand: Hand::Empty, board: None, own_plan: false, known: None, alone: false, recomputed: 0 }
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

    /// The run as the store has it, with its version. The version identifies a state, so one that this drive has written itself is known.
    fn state(&mut self, agent: &dyn Snapshot) -> Result<Option<(State, u64)>> {
        let Some(row) = agent.get(Run::SPEC, &self.run_id.raw())? else { return Ok(None) };
        if let Some((version, state)) = self.known.as_ref().filter(|(version, _)| *version == row.version) {
            return Ok(Some((state.clone(), *version)));
        }
        let Some(Held { record, version, .. }) = held::<Run>(&row)? else { return Ok(None) };
        let cycle = newest_cycle(agent, &record)?;
        Ok(Some((State { run: record, cycle }, version)))
    }

    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.run_id
    }
}

/// What a look at a run leads to. It is made on one snapshot, and acted on after that is gone.
enum Look {
    Rest(Progress),
    /// The plan is durable and not carried out yet.
    Plan {
        run: Box<Run>,
        actions: Vec<Action>,
    },
    Point(Box<Point>),
}

/// A commit with what follows once it is durable.
struct Point {
    commit: Commit,
    taken: Step,
    /// The board that a chained or opened ask was made on.
    board: Option<Board>,
}

impl House {
    /// Does the next thing for a run.
    pub fn advance(&mut self, drive: &mut Drive, outside: &mut dyn Outside) -> Result<Progress> {
        match std::mem::take(&mut drive.hand) {
            // An ask that fails on its way out is lost, and is asked again: its intent is durable.
            Hand::Ask(ask) => return self.ask(drive, &ask, outside),
            hand => drive.hand = hand,
        }
        match self.look(drive, outside)? {
            Look::Rest(progress) => Ok(progress),
            Look::Plan { run, actions } => self.carry_out(drive, &run, &actions, outside),
            Look::Point(point) => self.settle(drive, *point, outside),
        }
    }

    fn look(&mut self, drive: &mut Drive, outside: &dyn Outside) -> Result<Look> {
        let reader = self.reader(Domain::Agent);
        let agent = reader.read()?;
        let agent = agent.as_ref();
        let Some((state, version)) = drive.state(agent)? else {
            return Err(Error::new(ErrorCode::RunNotFound, format!("there is no {}", drive.run_id)));
        };
        let run = &state.run;
        if run.status.is_terminal() {
            return Ok(Look::Rest(Progress::Rests(Rest::Ended)));
        }
        if is_early(run, self.now()) {
            return Ok(Look::Rest(Progress::Rests(rest_of(run))));
        }
        if is_busy(agent, run)? {
            return Ok(Look::Rest(Progress::Rests(Rest::Busy)));
        }
        if run.behaviour_version != BEHAVIOUR_VERSION {
            let message = format!(
                "{} was begun by behaviour version {}; this build has {BEHAVIOUR_VERSION}",
                run.id(),
                run.behaviour_version
            );
            return Err(Error::new(ErrorCode::SchemaNewer, message));
        }
        if run.phase == Phase::Planned && state.cycle.is_none() {
            return Err(Error::new(ErrorCode::DatabaseDamaged, format!("the plan of {} is gone", run.id())));
        }
        if run.phase == Phase::Planned && !matches!(drive.hand, Hand::Observed(_)) {
            let actions = state.cycle.as_ref().map(Cycle::actions).unwrap_or_default().to_vec();
            return Ok(Look::Plan { run: Box::new(state.run), actions });
        }
        // The machine's time does not go back inside a run, so the day whose budget is looked at does not either.
        let now = self.now().max(run.updated_at);
        let manifest = self.manifest_in(agent, &run.manifest_id)?;
        let gate = gate(agent, &run.agent_id, &run.workspace_id, &manifest, outside, now)?;
        let mut known = Facing { agent, manifest, gate, board: None };
        match self.next_step(drive, &state, &mut known, now) {
            Ok(Ok(taken)) => {
                let context = Context { version: Some(version), before: Some(&state.run), gate: Some(&known.gate) };
                let commit = self.point(agent, &taken, &context)?;
                Ok(Look::Point(Box::new(Point { commit, taken, board: known.board })))
            }
            Ok(Err(Refusal::Ended)) => Ok(Look::Rest(Progress::Rests(Rest::Ended))),
            Ok(Err(Refusal::NotYet)) => Ok(Look::Rest(Progress::Rests(rest_of(&state.run)))),
            // A late answer, or one to an ask that somebody else has taken up again: it counts for nothing.
            Ok(Err(Refusal::Stale | Refusal::OutOfOrder)) => {
                drive.hand = Hand::Empty;
                Ok(Look::Rest(Progress::Committed))
            }
            Err(error) => Err(error),
        }
    }

    /// The step that follows, with the next cycle's opening if both go into one commit. The board is read only where a cycle is opened.
    fn next_step(
        &self,
        drive: &Drive,
        state: &State,
        known: &mut Facing<'_>,
        now: Timestamp,
    ) -> Result<std::result::Result<Step, Refusal>> {
        let taken = match &drive.hand {
            Hand::Answer { ask, answered: Answered::Reply { reply, decoded } } => {
                // The board is the one that was shown: what has changed since is found by its version.
                let fresh;
                let board = match &drive.board {
                    Some(board) => board,
                    None => {
                        fresh = self.board_of(&state.run)?;
                        &fresh
                    }
                };
                let facts = Facts { manifest: &known.manifest, gate: &known.gate, board, answers: &[] };
                step(state, Event::Answered { facts, ask: *ask, reply: reply.clone(), decoded: decoded.clone() }, now)
            }
            Hand::Answer { ask, answered: Answered::Failed(code) } => step(state, Event::AskFailed { ask: *ask, code: *code }, now),
            Hand::Observed(observations) => step(state, Event::Performed { observations: observations.clone() }, now),
            Hand::Empty | Hand::Ask(_) => {
                let (board, answers) = (self.board_of(&state.run)?, answers(known.agent, &state.run)?);
                let facts = Facts { manifest: &known.manifest, gate: &known.gate, board: &board, answers: &answers };
                let taken = step(state, Event::Open(facts), now);
                known.board = Some(board);
                return Ok(taken);
            }
        };
        let taken = match taken {
            Ok(taken) if taken.next == Next::Open && !drive.alone && known.manifest.loop_delay_ms == 0 => taken,
            other => return Ok(other),
        };
        // The next cycle sees the world as it will stand once this step is durable: the journal is read after the effects, and the
        // day's usage is corrected by what this step settles.
        let mut gate = known.gate.clone();
        gate.world.used = gate.world.used.plus(settled(&taken, &day_of(now)));
        // What this step itself has parked is not in the store yet, and nobody can have answered it.
        let (board, answers) = (self.board_of(&state.run)?, answers(known.agent, &state.run)?);
        let facts = Facts { manifest: &known.manifest, gate: &gate, board: &board, answers: &answers };
        let taken = taken.then_open(facts, now);
        known.board = Some(board);
        Ok(Ok(taken))
    }

    fn settle(&mut self, drive: &mut Drive, point: Point, outside: &mut dyn Outside) -> Result<Progress> {
        let Point { commit, taken, board } = point;
        if plant::is(Bug::SkipIntent) && taken.next == Next::Perform {
            let actions = taken.state.cycle.as_ref().map(Cycle::actions).unwrap_or_default().to_vec();
            self.perform(&taken.state.run, &actions, false, outside)?;
        }
        let committed = match self.place(Domain::Agent).commit(commit) {
            Ok(committed) => committed,
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
        };
        drive.recomputed = 0;
        drive.alone = false;
        drive.hand = Hand::Empty;
        drive.own_plan = taken.next == Next::Perform;
        if let Next::Ask(ask) = taken.next {
            drive.board = board;
            drive.hand = Hand::Ask(ask);
        }
        let version = committed.writes.iter().find(|write| write.kind == Run::SPEC.kind).map(|write| write.version);
        // After a repeat the row may be further on already.
        drive.known = version.filter(|_| !committed.repeated).map(|version| (version, taken.state));
        Ok(Progress::Committed)
    }

    fn ask(&mut self, drive: &mut Drive, ask: &Ask, outside: &mut dyn Outside) -> Result<Progress> {
        let Some(manifest_id) = self.may_leave(drive, ask)? else {
            // Stopped or replaced between the point and the ask: nothing leaves. The next look finds out what is the case.
            return Ok(Progress::Committed);
        };
        let manifest = self.manifest(&manifest_id)?;
        let started = self.now();
        let answer = outside.ask(&manifest, &drive.run_id, ask);
        let took_ms = self.now().as_ms().saturating_sub(started.as_ms()).max(0);
        let answered = match answer {
            Ok(Answer { text, model, mut spent }) => {
                spent.runtime_ms = spent.runtime_ms.saturating_add(took_ms);
                let bytes = text.len() as u64;
                Answered::Reply { reply: Reply { model, bytes, spent: sane(spent) }, decoded: manifest.dialect.decode(&text) }
            }
            Err(code) => Answered::Failed(code),
        };
        drive.hand = Hand::Answer { ask: AskRef { cycle: ask.cycle, attempt: ask.attempt }, answered };
        Ok(Progress::Asked)
    }

    fn carry_out(&mut self, drive: &mut Drive, run: &Run, actions: &[Action], outside: &mut dyn Outside) -> Result<Progress> {
        let recovered = !drive.own_plan;
        // Whatever happens now, a second attempt may not be the first.
        drive.own_plan = false;
        let observations = self.perform(run, actions, recovered, outside)?;
        drive.hand = Hand::Observed(observations);
        Ok(Progress::Performed)
    }

    /// Looks once more before an ask leaves: it is still the open one, this life still is the one, and nobody has stopped the agent.
    fn may_leave(&self, drive: &mut Drive, ask: &Ask) -> Result<Option<ManifestId>> {
        let reader = self.reader(Domain::Agent);
        let agent = reader.read()?;
        let Some((state, _)) = drive.state(agent.as_ref())? else { return Ok(None) };
        let run = &state.run;
        let open = (run.phase, run.cycle, run.attempt) == (Phase::Asked, ask.cycle, ask.attempt);
        let life = get::<Fence>(agent.as_ref(), &Fence::id_of(INCARNATION))?.map_or(0, |held| held.record.epoch);
        let gate = state.cycle.as_ref().map(|cycle| &cycle.opened.gate);
        let raised =
            |(subject, epoch): (&String, &u64)| !subject.starts_with("switch/tools/") && self.fenced_in_memory(subject) > *epoch;
        let raised = gate.is_some_and(|gate| gate.fences.iter().any(raised));
        let leaves = open && life <= self.incarnation && !raised && !stands_still(agent.as_ref(), &run.agent_id)?;
        Ok(leaves.then_some(run.manifest_id))
    }

    pub(crate) fn newest_cycle(&self, run: &Run) -> Result<Option<Cycle>> {
        self.read(Domain::Agent, |snapshot| newest_cycle(snapshot, run))
    }
}

/// What a step is decided on beside the run itself.
struct Facing<'a> {
    agent: &'a dyn Snapshot,
    manifest: Arc<Manifest>,
    gate: Gate,
    /// The board of the cycle that the step opened.
    board: Option<Board>,
}

fn newest_cycle(agent: &dyn Snapshot, run: &Run) -> Result<Option<Cycle>> {
    Ok(get::<Cycle>(agent, &Cycle::id_of(&run.id(), run.cycle).raw())?.map(|held| held.record))
}

/// Whether another run of the agent is at work. A lease goes with its run, so one that an earlier life left behind belongs to a run
/// that has to be gone on with first; being void only lets that run take it again.
fn is_busy(agent: &dyn Snapshot, run: &Run) -> Result<bool> {
    Ok(get::<Lease>(agent, &lease_id(run))?.is_some_and(|held| held.record.run_id != run.id()))
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

//! Strict replay: every step of a recorded run is taken again from its recorded inputs, without IO, and compared byte for byte.
//!
//! A run's row is written by each of its points, and the log keeps every version; so a recording is the list of its states, the cycles
//! that were written with each, and the bodies of the tasks they refer to. Answers start after decoding: the text of a model is not
//! kept.

use std::collections::BTreeMap;

use domain::code::ErrorCode;
use domain::id::{ManifestId, RunId, TaskId};
use domain::key::Point;
use domain::plant::{self, Bug};
use domain::records::task::Task;
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::cycle::{AnswerFact, Cycle, Gate};
use crate::machine::{AskRef, Event, Facts, State, Step, step};
use crate::manifest::Manifest;
use crate::run::{BEHAVIOUR_VERSION, EventName, Origin, Phase, Run};

/// The shape of a recording that this build reads and writes.
pub const RECORDING_SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    pub schema: u32,
    pub run_id: RunId,
    pub behaviour_version: u32,
    pub manifest: Manifest,
    pub states: Vec<Recorded>,
    pub tasks: Vec<RecordedTask>,
}

/// One commit of the run: the state it led to, and the cycles written with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    pub run: Run,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<Cycle>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedTask {
    pub id: TaskId,
    pub version: u64,
    pub task: Task,
}

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    Identical {
        steps: usize,
        cycles: u32,
    },
    Diverged(Divergence),
    /// The run was made by another version of the rules; it is not judged by these.
    OtherBehaviour {
        recorded: u32,
        known: u32,
    },
    /// A part of what it saw was erased.
    Erased {
        cycle: u32,
        what: String,
    },
}

/// The first place where the same inputs led to something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    pub cycle: u32,
    pub point: Point,
    /// The path of the first field that differs.
    pub field: String,
    pub expected: String,
    pub got: String,
}

/// A recording that does not hold together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("state {state}: {what}")]
pub struct Damaged {
    pub state: usize,
    pub what: &'static str,
}

/// Takes every recorded step again.
pub fn replay(recording: &Recording) -> Result<Report, Damaged> {
    if recording.behaviour_version != BEHAVIOUR_VERSION {
        return Ok(Report::OtherBehaviour { recorded: recording.behaviour_version, known: BEHAVIOUR_VERSION });
    }
    let bodies: BTreeMap<_, _> = recording.tasks.iter().map(|task| ((task.id, task.version), task.task.clone())).collect();
    let first = recording.states.first().ok_or(Damaged { state: 0, what: "there are no states" })?;
    if recording.schema != RECORDING_SCHEMA || first.run.id() != recording.run_id {
        return Err(Damaged { state: 0, what: "it is not a recording of this run in this shape" });
    }
    let manifest = recording.manifest.canonical().map(|content| ManifestId::of_content(&content));
    if manifest.ok() != Some(first.run.manifest_id) {
        return Err(Damaged { state: 0, what: "the manifest is not the one that the run was made of" });
    }
    let mut state = begun(&first.run);
    for (place, recorded) in recording.states.iter().enumerate() {
        let damaged = |what| Damaged { state: place, what };
        let events = if place == 0 { recorded.run.events.get(1..) } else { Some(recorded.run.events.as_slice()) };
        let events = events.filter(|events| !events.is_empty() || place == 0).ok_or(damaged("it names no event"))?;
        for (nth, event) in events.iter().enumerate() {
            // A chained step begins where the one before has closed its cycle, and that is compared first.
            let before = nth.checked_sub(1).map(|before| point_of(events[before]));
            if let Some(divergence) = before.and_then(|point| compare_cycle(&state, recorded, point)) {
                return Ok(Report::Diverged(divergence));
            }
            let cycle = if *event == EventName::Opened { recorded.run.cycle } else { state.run.cycle };
            let input = match Input::of(*event, recorded, &state, &bodies, nth > 0) {
                Ok(input) => input,
                Err(Missing::Input(what)) => return Err(damaged(what)),
                Err(Missing::Body(what)) => return Ok(Report::Erased { cycle, what }),
            };
            let point = point_of(*event);
            let taken = match step(&state, input.event(&recording.manifest), input.now) {
                Ok(taken) => taken,
                Err(refusal) => return Ok(refused(cycle, recorded, point, &refusal.to_string())),
            };
            state = merge(&state, taken, nth > 0);
        }
        if place == 0 && !events.is_empty() {
            state.run.events.insert(0, EventName::Begun);
        }
        let point = events.last().map_or(Point::A, |event| point_of(*event));
        if let Some(divergence) = compare(&state, recorded, point) {
            return Ok(Report::Diverged(divergence));
        }
    }
    Ok(Report::Identical { steps: recording.states.len(), cycles: state.run.cycle })
}

/// Every run begins from what its first state says of its origin.
fn begun(run: &Run) -> State {
    let origin = Origin {
        agent_id: run.agent_id,
        workspace_id: run.workspace_id,
        run_key: run.run_key,
        reason: run.reason,
        wake_ids: run.wake_ids.clone(),
        manifest_id: run.manifest_id,
        salt: run.salt.0,
        cause_depth: run.cause_depth,
    };
    State { run: Run::begin(origin, run.created_at), cycle: None }
}

fn merge(before: &State, taken: Step, chained: bool) -> State {
    let mut state = taken.state;
    if chained {
        state.run.events.splice(0..0, before.run.events.iter().copied());
    }
    state
}

const fn point_of(event: EventName) -> Point {
    match event {
        EventName::Begun | EventName::Opened => Point::A,
        EventName::Answered => Point::B,
        EventName::AskFailed | EventName::Performed | EventName::Cancelled => Point::D,
    }
}

enum Missing {
    Input(&'static str),
    Body(String),
}

/// What one event was fed with.
struct Input<'a> {
    kind: EventName,
    now: Timestamp,
    cycle: Option<&'a Cycle>,
    gate: Option<&'a Gate>,
    board: Option<Board>,
    answers: &'a [AnswerFact],
}

impl<'a> Input<'a> {
    fn of(
        kind: EventName,
        recorded: &'a Recorded,
        state: &State,
        bodies: &BTreeMap<(TaskId, u64), Task>,
        chained: bool,
    ) -> Result<Self, Missing> {
        let run = &recorded.run;
        let mut input = Self { kind, now: run.updated_at, cycle: None, gate: None, board: None, answers: &[] };
        let resolve = |refs: &crate::board::BoardRefs| {
            let board = refs.resolve(run.workspace_id, bodies);
            board.ok_or_else(|| Missing::Body("a task that the cycle saw".to_owned()))
        };
        match kind {
            EventName::Opened => {
                // A cycle that was opened was written; otherwise the step has only looked.
                let next = match state.run.phase {
                    Phase::Asked => (state.run.cycle, state.run.attempt + 1),
                    Phase::Between | Phase::Planned => (state.run.cycle + 1, 1),
                };
                let opened = recorded.cycles.iter().find(|cycle| (cycle.number, cycle.attempt) == next).map(|cycle| &cycle.opened);
                let looked = || run.looked.as_ref().map(|looked| (looked.at, &looked.gate, &looked.board, &looked.answers));
                let facts = opened.map(|opened| (opened.at, &opened.gate, &opened.board, &opened.answers)).or_else(looked);
                let (at, gate, board, answers) = facts.ok_or(Missing::Input("the opened cycle is missing"))?;
                (input.now, input.gate, input.answers) = (at, Some(gate), answers);
                input.board = Some(resolve(board)?);
            }
            EventName::Answered | EventName::AskFailed | EventName::Performed => {
                let cycle = recorded.cycles.iter().find(|cycle| cycle.number == state.run.cycle);
                let cycle = cycle.ok_or(Missing::Input("the cycle is missing"))?;
                input.cycle = Some(cycle);
                let decided = cycle.decided.as_ref().map(|decided| decided.at);
                let closed = cycle.closed.as_ref().map(|closed| closed.at);
                let at = if kind == EventName::Answered { decided } else { closed };
                input.now = at.ok_or(Missing::Input("the cycle lacks the point"))?;
                if kind == EventName::Answered {
                    let gate = cycle.decided.as_ref().and_then(|decided| decided.gate.as_ref());
                    input.gate = Some(gate.ok_or(Missing::Input("the gate of point B is missing"))?);
                    input.board = Some(resolve(&cycle.opened.board)?);
                }
            }
            EventName::Cancelled if !chained => {}
            EventName::Begun | EventName::Cancelled => return Err(Missing::Input("an event that cannot stand here")),
        }
        Ok(input)
    }

    fn event(&'a self, manifest: &'a Manifest) -> Event<'a> {
        let facts = || {
            let (gate, board) = self.gate.zip(self.board.as_ref())?;
            Some(Facts { manifest, gate, board, answers: self.answers })
        };
        let decided = self.cycle.and_then(|cycle| cycle.decided.as_ref());
        let ask =
            self.cycle.map_or(AskRef { cycle: 0, attempt: 0 }, |cycle| AskRef { cycle: cycle.number, attempt: cycle.attempt });
        let closed = self.cycle.and_then(|cycle| cycle.closed.as_ref());
        let built = match self.kind {
            EventName::Opened => facts().map(Event::Open),
            // The mistake asks again, and in a replay nobody answers.
            EventName::Answered if plant::is(Bug::ReplayAsksModel) => Some(Event::AskFailed { ask, code: ErrorCode::LlmTimeout }),
            EventName::Answered => facts().zip(decided).and_then(|(facts, decided)| {
                let decoded = decided.decoded.clone().ok_or_else(|| decided.faults.clone());
                Some(Event::Answered { facts, ask, reply: decided.reply.clone()?, decoded })
            }),
            EventName::AskFailed => {
                let code = closed.and_then(|closed| closed.code.as_deref());
                let code = code.and_then(|text| ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text));
                code.map(|code| Event::AskFailed { ask, code })
            }
            EventName::Performed => closed.map(|closed| Event::Performed { observations: closed.observations.clone() }),
            EventName::Begun | EventName::Cancelled => Some(Event::Cancel),
        };
        // An input that was checked above and still lacks a part can only be a damaged record; `Cancel` then diverges at once.
        built.unwrap_or(Event::Cancel)
    }
}

fn refused(cycle: u32, recorded: &Recorded, point: Point, refusal: &str) -> Report {
    let expected = recorded.run.status.to_string();
    Report::Diverged(Divergence { cycle, point, field: "step".to_owned(), expected, got: refusal.to_owned() })
}

fn compare(state: &State, recorded: &Recorded, point: Point) -> Option<Divergence> {
    compare_cycle(state, recorded, point).or_else(|| {
        let (field, expected, got) = first_difference("run", &recorded.run, &state.run)?;
        Some(Divergence { cycle: state.run.cycle, point, field, expected, got })
    })
}

fn compare_cycle(state: &State, recorded: &Recorded, point: Point) -> Option<Divergence> {
    let found = state.cycle.as_ref()?;
    let known = recorded.cycles.iter().find(|known| known.number == found.number)?;
    let (field, expected, got) = first_difference("cycle", known, found)?;
    Some(Divergence { cycle: found.number, point, field, expected, got })
}

/// The path and the texts of the first place where two values differ.
fn first_difference<T: Serialize + PartialEq>(name: &str, expected: &T, got: &T) -> Option<(String, String, String)> {
    // Almost always; only what differs is worth taking apart.
    if expected == got {
        return None;
    }
    let (expected, got) = (serde_json::to_value(expected).ok()?, serde_json::to_value(got).ok()?);
    difference(name.to_owned(), &expected, &got)
}

fn difference(path: String, expected: &serde_json::Value, got: &serde_json::Value) -> Option<(String, String, String)> {
    use serde_json::Value;
    match (expected, got) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| {
                difference(format!("{path}.{key}"), a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null))
            })
        }
        (Value::Array(a), Value::Array(b)) => (0..a.len().max(b.len())).find_map(|place| {
            difference(format!("{path}[{place}]"), a.get(place).unwrap_or(&Value::Null), b.get(place).unwrap_or(&Value::Null))
        }),
        (a, b) if a == b => None,
        (a, b) => Some((path, shown(a), shown(b))),
    }
}

fn shown(value: &serde_json::Value) -> String {
    value.to_string().chars().take(80).collect()
}

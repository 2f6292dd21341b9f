//! A rehearsed run: the machine with a journal, a day's budget and a queue of questions around it, put together as the runtime does it,
//! without IO. Every step is taken twice and every row goes through its stored form, so that each test also proves that a step is a
//! function of its inputs and that its outcome can be kept.

use std::collections::BTreeMap;

use control::action::{Action, Observation, Seen};
use control::board::Board;
use control::cycle::{AnswerFact, AnswerVerdict, Cycle, Gate, Reply};
use control::dialect::Dialect;
use control::machine::{AskRef, Event, Facts, Next, Refusal, State, Step, Wish, day_of, step};
use control::manifest::Manifest;
use control::proposal::Proposal;
use control::replay::{RECORDING_SCHEMA, Recorded, RecordedTask, Recording};
use control::run::{BEHAVIOUR_VERSION, Origin, Reserved, Run};
use domain::code::ErrorCode;
use domain::entry::Actor;
use domain::hash::Salt;
use domain::id::{AgentId, ManifestId, MessageId, PersonId, PromptItemId, RawId, TaskId, WakeId};
use domain::key::RunKey;
use domain::record::Record;
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::message::Message;
use domain::records::prompt::{PromptItem, PromptState};
use domain::records::task::Task;
use domain::records::wake::WakeReason;
use domain::time::Timestamp;
use policy::World;
use serde_json::{Value, json};

use crate::fuzzed::wire;
use crate::journal::{Journal, workspace};

/// Ten in the morning of a Monday.
pub(crate) const BEGIN_MS: i64 = 1_767_607_200_000;
pub(crate) const DAY_MS: i64 = 86_400_000;
/// What time passes between two steps.
pub(crate) const STEP_MS: i64 = 100;
/// What every answer costs.
pub(crate) const SPENT: Amounts = Amounts { tokens: 70, cost_micros: 3, runtime_ms: 20, tool_calls: 0 };

pub(crate) struct Scene {
    pub(crate) manifest: Manifest,
    pub(crate) gate: Gate,
    pub(crate) journal: Journal,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    /// Whether D carries the next A.
    pub(crate) chained: bool,
    /// What people have said so far.
    pub(crate) answers: Vec<AnswerFact>,
    pub(crate) prompts: BTreeMap<PromptItemId, PromptItem>,
    pub(crate) messages: BTreeMap<MessageId, Message>,
    pub(crate) recorded: Vec<Recorded>,
    /// Spent and reserved, by day.
    used: BTreeMap<String, Amounts>,
    /// Reserved and not settled.
    reserved: Option<Reserved>,
    /// What the newest cycle was opened on.
    board: Board,
    bodies: BTreeMap<(TaskId, u64), Task>,
}

/// An agent that asks before every change.
pub(crate) fn reviewed() -> Scene {
    Scene::new(json!({}))
}

/// An agent that does what it may without asking, and may keep artifacts.
pub(crate) fn free() -> Scene {
    Scene::new(json!({ "mode": "yolo", "preapproved": ["persist_artifact", "generate_message"] }))
}

/// An agent that may also call a mailer, without asking.
pub(crate) fn outgoing() -> Scene {
    Scene::new(json!({
        "mode": "yolo",
        "capabilities": ["ask", "taskWrite", "artifactWrite", "outsideCall"],
        "tools": ["create_task", "select_next_task", "mailer"],
        "services": { "mailer": { "class": "mail", "risk": "medium", "honours_keys": false } },
    }))
}

impl Scene {
    /// A scene with an empty journal; `given` overrides fields of the manifest.
    pub(crate) fn new(given: Value) -> Self {
        let mut manifest = json!({ "schema": 1, "agent": "scribe", "prompt": "Work.", "model": { "provider": "scripted" } });
        let Value::Object(given) = given else { panic!("fields of a manifest") };
        manifest.as_object_mut().expect("it is one").extend(given);
        let manifest: Manifest = serde_json::from_value(manifest).expect("it reads");
        manifest.check().expect("it keeps its rules");
        let now = Timestamp::from_ms(BEGIN_MS);
        let agent_id = AgentId::from_raw(RawId::from_bytes([1; 16]));
        let run_key = RunKey::manual(&agent_id, "first");
        let origin = Origin {
            agent_id,
            workspace_id: workspace(),
            run_key,
            reason: WakeReason::Manual,
            wake_ids: vec![WakeId::of_key(&run_key)],
            manifest_id: ManifestId::of_content(&manifest.canonical().expect("it has a canonical form")),
            salt: Salt([9; 16]),
            cause_depth: 0,
        };
        let gate = Gate { world: world_of(&manifest), fences: BTreeMap::from([("switch/everything".to_owned(), 4)]) };
        let journal = Journal::default();
        let state = State { run: Run::begin(origin, now), cycle: None };
        let recorded = vec![Recorded { run: state.run.clone(), cycles: Vec::new() }];
        Self {
            manifest,
            gate,
            board: journal.board(),
            journal,
            state,
            now,
            chained: false,
            answers: Vec::new(),
            prompts: BTreeMap::new(),
            messages: BTreeMap::new(),
            recorded,
            used: BTreeMap::new(),
            reserved: None,
            bodies: BTreeMap::new(),
        }
    }

    /// The same with one task that nothing is required for.
    pub(crate) fn with_task(mut self) -> (Self, TaskId) {
        let id = self.journal.add("write the first page", &[]);
        (self, id)
    }

    pub(crate) fn run(&self) -> &Run {
        &self.state.run
    }

    pub(crate) fn cycle(&self) -> &Cycle {
        self.state.cycle.as_ref().expect("a cycle was opened")
    }

    /// The only action of the newest cycle.
    #[track_caller]
    pub(crate) fn action(&self) -> &Action {
        let [action] = self.cycle().actions() else { panic!("{} actions", self.cycle().actions().len()) };
        action
    }

    pub(crate) fn pass(&mut self, ms: i64) {
        self.now = Timestamp::from_ms(self.now.as_ms() + ms);
    }

    #[track_caller]
    pub(crate) fn open(&mut self) -> Step {
        self.try_open().expect("it opens")
    }

    pub(crate) fn try_open(&mut self) -> Result<Step, Refusal> {
        self.pass(STEP_MS);
        let (board, answers) = (self.journal.board(), self.answers_to(&self.state));
        let gate = self.gate_now();
        let facts = Facts { manifest: &self.manifest, gate: &gate, board: &board, answers: &answers };
        let step = self.take(&Event::Open(facts))?;
        self.board = board;
        Ok(self.keep(step))
    }

    /// The model answers with this proposal.
    #[track_caller]
    pub(crate) fn propose(&mut self, proposal: &Proposal) -> Step {
        self.answer(&wire(proposal).to_string())
    }

    #[track_caller]
    pub(crate) fn answer(&mut self, text: &str) -> Step {
        self.try_answer(text, self.ask()).expect("it is answered")
    }

    pub(crate) fn try_answer(&mut self, text: &str, ask: AskRef) -> Result<Step, Refusal> {
        self.pass(STEP_MS);
        let decoded = Dialect::ProposalJson.decode(text);
        let reply = Reply { model: "scripted".to_owned(), bytes: text.len() as u64, spent: SPENT };
        let (board, gate) = (self.board.clone(), self.gate_now());
        let facts = Facts { manifest: &self.manifest, gate: &gate, board: &board, answers: &[] };
        let step = self.take(&Event::Answered { facts, ask, reply, decoded })?;
        Ok(self.keep(step))
    }

    /// The ask that the run last made.
    pub(crate) fn ask(&self) -> AskRef {
        AskRef { cycle: self.run().cycle, attempt: self.run().attempt }
    }

    /// The model does not answer.
    #[track_caller]
    pub(crate) fn fail(&mut self, code: ErrorCode) -> Step {
        self.try_fail(code, self.ask()).expect("it fails")
    }

    pub(crate) fn try_fail(&mut self, code: ErrorCode, ask: AskRef) -> Result<Step, Refusal> {
        self.pass(STEP_MS);
        let step = self.take(&Event::AskFailed { ask, code })?;
        Ok(self.keep(step))
    }

    /// Carries the plan out on the journal; the mailer acknowledges.
    #[track_caller]
    pub(crate) fn perform(&mut self) -> Step {
        self.observe(Journal::carry_out).expect("it was planned")
    }

    /// Point D with whatever the world is said to show.
    pub(crate) fn observe(&mut self, mut see: impl FnMut(&mut Journal, &Action) -> Seen) -> Result<Step, Refusal> {
        let journal = &mut self.journal;
        let actions = self.state.cycle.iter().flat_map(Cycle::actions).filter(|action| action.is_to_do());
        let observe = |action: &Action| Observation { operation_id: action.operation_id, seen: see(journal, action) };
        let observations = actions.map(observe).collect();
        self.close(observations)
    }

    pub(crate) fn close(&mut self, observations: Vec<Observation>) -> Result<Step, Refusal> {
        self.pass(STEP_MS);
        let step = self.take(&Event::Performed { observations })?;
        Ok(self.keep(step))
    }

    #[track_caller]
    pub(crate) fn cancel(&mut self) -> Step {
        self.pass(STEP_MS);
        let step = self.take(&Event::Cancel).expect("it has not ended");
        self.keep(step)
    }

    /// A person answers the oldest open item, and approves what it gates.
    #[track_caller]
    pub(crate) fn say(&mut self, verdict: AnswerVerdict) -> PromptItemId {
        let item = self.run().parked.first().expect("something waits").item;
        let binds = self.prompts[&item].gates.clone();
        self.answers.push(AnswerFact { item, verdict, by: owner(), text: "as you like".to_owned(), binds });
        item
    }

    /// What a person sees who looks into the queue.
    pub(crate) fn open_items(&self) -> Vec<PromptItemId> {
        self.prompts.iter().filter(|(_, item)| item.status == PromptState::Open).map(|(id, _)| *id).collect()
    }

    pub(crate) fn recording(&self) -> Recording {
        let task = |((id, version), task): (&(TaskId, u64), &Task)| RecordedTask { id: *id, version: *version, task: task.clone() };
        Recording {
            schema: RECORDING_SCHEMA,
            run_id: self.run().id(),
            behaviour_version: BEHAVIOUR_VERSION,
            manifest: self.manifest.clone(),
            states: self.recorded.clone(),
            tasks: self.bodies.iter().map(task).collect(),
        }
    }

    fn gate_now(&self) -> Gate {
        let mut gate = self.gate.clone();
        gate.world.used = gate.world.used.plus(self.used.get(&day_of(self.now)).copied().unwrap_or_default());
        gate
    }

    /// The runtime asks for answers to what is parked, and for no others.
    fn answers_to(&self, state: &State) -> Vec<AnswerFact> {
        let parked = |answer: &&AnswerFact| state.run.parked.iter().any(|parked| parked.item == answer.item);
        self.answers.iter().filter(parked).cloned().collect()
    }

    fn take(&self, event: &Event<'_>) -> Result<Step, Refusal> {
        let taken = step(&self.state, event.clone(), self.now);
        assert_eq!(taken, step(&self.state, event.clone(), self.now), "a step is a function of its inputs");
        taken
    }

    /// Commits a step: its rows, its wishes and its record.
    fn keep(&mut self, step: Step) -> Step {
        let step = if self.chained && step.next == Next::Open { self.chain(step) } else { step };
        step.wishes.iter().for_each(|wish| self.grant(wish));
        assert_eq!(self.reserved, step.state.run.reserved, "the row says what is set aside");
        let stored = Run::from_body(step.state.run.to_body().expect("it can be stored").text()).expect("it reads");
        assert_eq!(stored, step.state.run);
        let changed = step.state.cycle.iter().filter(|cycle| Some(*cycle) != self.state.cycle.as_ref());
        let cycles: Vec<Cycle> = step.closed.iter().chain(changed).cloned().collect();
        for cycle in &cycles {
            assert_eq!(Cycle::from_body(cycle.to_body().expect("it can be stored").text()).as_ref(), Ok(cycle));
        }
        let seen = self.board.tasks.iter().map(|fact| ((fact.id, fact.version), fact.task.clone()));
        self.bodies.extend(seen);
        self.recorded.push(Recorded { run: stored, cycles });
        self.state = step.state.clone();
        step
    }

    fn chain(&mut self, step: Step) -> Step {
        let (board, gate, answers) = (self.journal.board(), self.gate_now(), self.answers_to(&step.state));
        let facts = Facts { manifest: &self.manifest, gate: &gate, board: &board, answers: &answers };
        let step = step.then_open(facts, self.now);
        self.board = board;
        step
    }

    fn grant(&mut self, wish: &Wish) {
        match wish {
            Wish::Reserve { day, amounts } => {
                let reserved = Reserved { day: day.clone(), amounts: *amounts };
                assert_eq!(self.reserved.replace(reserved), None, "one cycle is open at a time");
                let used = self.used.entry(day.clone()).or_default();
                *used = used.plus(*amounts);
            }
            Wish::Settle { day, reserved, spent } => {
                let settled = Reserved { day: day.clone(), amounts: *reserved };
                assert_eq!(self.reserved.take(), Some(settled), "what is settled was reserved");
                let used = self.used.get_mut(day).expect("it was reserved on that day");
                *used = used.minus(*reserved).plus(*spent);
            }
            Wish::OpenPrompt { id, item } => {
                assert!(self.prompts.insert(*id, item.clone()).is_none(), "an item is opened once");
            }
            Wish::ClosePrompt { id, state } => self.prompts.get_mut(id).expect("it was opened").status = *state,
            Wish::Record { id, message } => {
                assert!(
                    message.prev_message_id.is_none_or(|previous| self.messages.contains_key(&previous)),
                    "the chain has no hole"
                );
                assert!(self.messages.insert(*id, message.clone()).is_none(), "a message is written once");
            }
        }
    }
}

pub(crate) fn owner() -> Actor {
    Actor::Person(PersonId::owner())
}

fn world_of(manifest: &Manifest) -> World {
    World {
        stopped: [].into(),
        lifecycle: AgentLifecycle::Active,
        workspace: workspace(),
        categories: [].into(),
        kinds: manifest.kinds.clone(),
        capabilities: manifest.capabilities.clone(),
        tools: manifest.tools.clone(),
        mode: manifest.mode,
        limits: manifest.budget,
        used: Amounts::NONE,
        denied: [].into(),
        pending: [].into(),
    }
}

pub(crate) fn create(description: &str) -> Proposal {
    Proposal::CreateTask { description: description.to_owned(), preconditions: vec![], justification: String::new() }
}

pub(crate) fn select(task_id: TaskId) -> Proposal {
    Proposal::SelectNextTask { task_id, reasoning: String::new() }
}

pub(crate) fn persist(task_id: TaskId, key: Option<&str>, content: &str) -> Proposal {
    let artifact_key = key.map(str::to_owned);
    Proposal::PersistArtifact { task_id, artifact_type: "context".to_owned(), artifact_key, content: content.to_owned() }
}

pub(crate) fn mail(task_id: TaskId, to: &str) -> Proposal {
    let parameters = [("to".to_owned(), json!(to))].into_iter().collect();
    Proposal::ExecuteTool { task_id, tool_name: "mailer".to_owned(), parameters, expected_outcome: String::new() }
}

pub(crate) fn ask(question: &str) -> Proposal {
    Proposal::RequestUserInput { task_id: None, question: question.to_owned(), options: vec![], context: String::new() }
}

pub(crate) fn done() -> Proposal {
    Proposal::NoOp { reason: control::proposal::IdleReason::CampaignComplete, details: "all is done".to_owned() }
}

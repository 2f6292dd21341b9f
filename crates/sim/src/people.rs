//! People: they start things, answer, change their minds, come too late, and stop everything at a bad moment. What they were told is
//! written down in the world's ledger.

use std::sync::{Arc, Mutex};

use domain::causality::Domain;
use domain::entry::Actor;
use domain::id::{AgentId, OperationId, PersonId, PromptItemId, TaskId, WorkspaceId};
use domain::record::{Record, Value};
use domain::records::prompt::{PromptItem, PromptState, Verdict};
use domain::records::slug::Slug;
use domain::records::switch::SwitchSubject;
use domain::records::task::{Task, TaskStatus};
use runtime::{BudgetChange, ClientKey, House, TaskChange, TaskDraft};
use store::store::{Direction, Row, Scan};

use crate::place::{Watch, lock};
use crate::rng::Draw;

/// One person with a house of their own.
#[derive(Debug)]
pub struct Person<'a> {
    pub house: House,
    pub watch: Arc<Mutex<Watch>>,
    pub draw: Draw,
    pub agents: &'a [AgentId],
    /// Names this act, so that its parts and repeats are one.
    pub name: String,
}

/// What a person may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Start,
    StartAgain,
    AddTask,
    EditTask,
    RemoveTask,
    Answer,
    AnswerTwice,
    AnswerLate,
    Cancel,
    Pause,
    Resume,
    Destroy,
    Stop,
    Release,
    Budget,
}

/// Deeds of a good day, and those of a bad one.
pub const GOOD: [Deed; 5] = [Deed::Start, Deed::AddTask, Deed::Answer, Deed::Answer, Deed::EditTask];
pub const BAD: [Deed; 12] = [
    Deed::StartAgain,
    Deed::RemoveTask,
    Deed::AnswerTwice,
    Deed::AnswerLate,
    Deed::Cancel,
    Deed::Pause,
    Deed::Resume,
    Deed::Destroy,
    Deed::Stop,
    Deed::Release,
    Deed::Release,
    Deed::Budget,
];

/// The classes of tools that a person may stop.
const CLASSES: [&str; 3] = ["task", "artifact", "mail"];

impl Person<'_> {
    /// Does one thing; a refusal is part of life.
    pub fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Start => self.start(&self.name.clone()),
            Deed::StartAgain => {
                self.fire("people.start_again");
                self.start("the same start");
            }
            Deed::AddTask => self.add_task(),
            Deed::EditTask => self.edit_task(),
            Deed::RemoveTask => self.remove_task(),
            Deed::Answer => self.answer(1),
            Deed::AnswerTwice => {
                self.fire("people.answers_twice");
                self.answer(2);
            }
            Deed::AnswerLate => {
                self.fire("people.answers_late");
                self.answer_closed();
            }
            Deed::Cancel => self.cancel(),
            Deed::Pause | Deed::Resume | Deed::Destroy => self.lifecycle(deed),
            Deed::Stop => self.stop(),
            Deed::Release => self.release_all(),
            Deed::Budget => self.budget(),
        }
    }

    fn fire(&self, fault: &'static str) {
        lock(&self.watch).ledger.fire(fault);
    }

    fn key(&self) -> ClientKey {
        ClientKey::parse(&self.name).expect("a short name")
    }

    fn acknowledged(&self, domain: Domain) {
        let operation = OperationId::of_client(&Actor::Person(PersonId::owner()), &self.name);
        lock(&self.watch).ledger.acknowledged.push((domain, operation));
    }

    fn agent(&mut self) -> Option<AgentId> {
        self.draw.pick(self.agents).copied()
    }

    fn start(&mut self, name: &str) {
        let Some(agent) = self.agent() else { return };
        let key = ClientKey::parse(&format!("{name} of {agent}")).expect("a short name");
        if let Ok(run) = self.house.wake_by_hand(agent, &key) {
            lock(&self.watch).ledger.runs.insert(run);
        }
    }

    fn add_task(&mut self) {
        let open = self.tasks();
        let number = self.draw.below(40);
        let preconditions =
            if self.draw.chance(200) { open.iter().take(1).map(|row| TaskId::from_raw(row.id)).collect() } else { Vec::new() };
        let requires = match self.draw.below(3) {
            0 => vec![format!("context/page-{number}")],
            1 => vec![format!("context/page-{number}"), format!("context/page-{}", number + 1)],
            _ => Vec::new(),
        };
        let draft =
            TaskDraft { description: format!("task number {number}"), requires, preconditions, workspace: "home".to_owned() };
        if self.house.add_task(&draft, &self.key()).is_ok() {
            self.acknowledged(Domain::Journal);
        }
    }

    fn tasks(&self) -> Vec<Row> {
        let mut scan = Scan::new(Task::SPEC, "by_created");
        scan.prefix = vec![Value::from(WorkspaceId::of_slug("home").raw())];
        scan.direction = Direction::Backward;
        scan.limit = 8;
        self.house.read(Domain::Journal, |snapshot| Ok(snapshot.scan(&scan)?.rows)).unwrap_or_default()
    }

    fn edit_task(&mut self) {
        let tasks = self.tasks();
        let Some(row) = self.draw.pick(&tasks).cloned() else { return };
        let status = match self.draw.below(4) {
            0 => Some(TaskStatus::Blocked),
            1 => Some(TaskStatus::Pending),
            2 => Some(TaskStatus::Done),
            _ => None,
        };
        let reason = (status == Some(TaskStatus::Blocked)).then(|| "it rains".to_owned());
        let description = status.is_none().then(|| format!("another text, {}", self.draw.below(100)));
        let change = TaskChange { description, status, reason, ..TaskChange::default() };
        if self.house.edit_task(TaskId::from_raw(row.id), &change, &self.key()).is_ok() {
            self.acknowledged(Domain::Journal);
        }
    }

    fn remove_task(&mut self) {
        let tasks = self.tasks();
        let Some(row) = self.draw.pick(&tasks).cloned() else { return };
        if self.house.remove_task(TaskId::from_raw(row.id), None, &self.key()).is_ok() {
            self.fire("people.removes_task");
            self.acknowledged(Domain::Journal);
        }
    }

    fn questions(&self, state: PromptState) -> Vec<Row> {
        let mut scan = Scan::new(PromptItem::SPEC, "by_status");
        scan.prefix = vec![Value::from(state.as_str())];
        scan.limit = 16;
        self.house.read(Domain::Agent, |snapshot| Ok(snapshot.scan(&scan)?.rows)).unwrap_or_default()
    }

    fn answer(&mut self, times: usize) {
        let questions = self.questions(PromptState::Open);
        let Some(row) = self.draw.pick(&questions).cloned() else { return };
        let no = self.draw.chance(200);
        self.answer_one(&row, no);
        for again in 1..times {
            self.name = format!("{} again {again}", self.name);
            let no = self.draw.chance(500);
            self.answer_one(&row, no);
        }
    }

    /// Says yes to everything that is open.
    pub fn answer_all(&mut self) {
        let name = self.name.clone();
        for (place, row) in self.questions(PromptState::Open).iter().enumerate() {
            self.name = format!("{name} answer {place}");
            self.answer_one(row, false);
        }
    }

    fn answer_closed(&mut self) {
        let state = [PromptState::Expired, PromptState::Answered, PromptState::Withdrawn][self.draw.below(3)];
        let questions = self.questions(state);
        if let Some(row) = self.draw.pick(&questions).cloned() {
            self.answer_one(&row, false);
        }
    }

    fn answer_one(&mut self, row: &Row, no: bool) {
        let Ok(Some(item)) = row.record::<PromptItem>() else { return };
        let id = PromptItemId::from_raw(row.id);
        let verdict = match (&item.gates, no) {
            (Some(_), false) => Verdict::Approve,
            (_, true) => Verdict::Deny,
            (None, false) => Verdict::Reply,
        };
        if self.house.answer(id, verdict, "", &self.key()).is_ok() {
            self.acknowledged(Domain::Agent);
            if let (Verdict::Approve, Some(gated)) = (verdict, item.gates) {
                // What counts is what the person saw when they said yes.
                lock(&self.watch).ledger.approved.insert(id, gated.arguments_hash);
            }
        }
    }

    fn cancel(&mut self) {
        let runs = self.house.runs(12).unwrap_or_default();
        let Some(line) = self.draw.pick(&runs).cloned() else { return };
        if self.house.cancel(line.id, &self.key()).is_ok() {
            self.fire("people.cancels");
            self.acknowledged(Domain::Agent);
        }
    }

    fn lifecycle(&mut self, deed: Deed) {
        let Some(agent) = self.agent() else { return };
        let key = self.key();
        match deed {
            Deed::Pause => {
                self.fire("people.pauses");
                if self.house.pause_agent(agent, &key).is_ok() {
                    lock(&self.watch).ledger.paused.insert(agent);
                }
            }
            Deed::Destroy if self.draw.chance(100) => {
                self.fire("people.destroys");
                if self.house.destroy_agent(agent, &key).is_ok() {
                    lock(&self.watch).ledger.destroyed.insert(agent);
                }
            }
            _ => {
                self.fire("people.resumes");
                lock(&self.watch).ledger.paused.remove(&agent);
                self.house.resume_agent(agent, &key).ok();
            }
        }
    }

    fn stop(&mut self) {
        let Some(agent) = self.agent() else { return };
        let class = Slug::parse(CLASSES[self.draw.below(CLASSES.len())]).expect("a plain word");
        let subject = match self.draw.below(3) {
            0 => SwitchSubject::Everything,
            1 => SwitchSubject::Agent(agent),
            _ => SwitchSubject::Tools(class),
        };
        let key = self.key();
        if let Ok(stopped) = self.house.stop(&subject, "enough", &key)
            && stopped.only_in_memory.is_empty()
        {
            self.fire("people.stops");
            lock(&self.watch).ledger.stopped.insert(subject);
        }
    }

    /// Lets everything go on.
    pub fn release_all(&mut self) {
        // Also those that were only half thrown when the disk failed.
        let classes = CLASSES.iter().map(|class| SwitchSubject::Tools(Slug::parse(class).expect("a plain word")));
        let agents = self.agents.iter().map(|agent| SwitchSubject::Agent(*agent));
        let subjects: Vec<SwitchSubject> = classes.chain(agents).chain([SwitchSubject::Everything]).collect();
        for (place, subject) in subjects.into_iter().enumerate() {
            let key = ClientKey::parse(&format!("{} release {place}", self.name)).expect("a short name");
            // From the moment of the asking it may go on; the answer comes after.
            let known = lock(&self.watch).ledger.stopped.remove(&subject);
            match self.house.release(&subject, &key) {
                Err(_) if known => drop(lock(&self.watch).ledger.stopped.insert(subject)),
                Ok(true) => self.fire("people.releases"),
                _ => {}
            }
        }
    }

    fn budget(&mut self) {
        let limit = [0, 1_000, 20_000, 200_000][self.draw.below(4)];
        self.fire("people.sets_budget");
        self.set_budget(limit);
    }

    pub fn set_budget(&mut self, tokens: i64) {
        for agent in self.agents {
            let key = ClientKey::parse(&format!("{} {agent}", self.name)).expect("a short name");
            let most = Some(1 << 40);
            let change = BudgetChange {
                tokens: Some(tokens),
                cost_micros: most,
                runtime_ms: most,
                tool_calls: most,
                ..BudgetChange::default()
            };
            self.house.set_budget(*agent, &change, &key).ok();
        }
    }

    /// Whoever may work again is told so.
    pub fn resume_all(&mut self) {
        for agent in self.agents {
            let key = ClientKey::parse(&format!("{} resume {agent}", self.name)).expect("a short name");
            lock(&self.watch).ledger.paused.remove(agent);
            self.house.resume_agent(*agent, &key).ok();
        }
    }
}

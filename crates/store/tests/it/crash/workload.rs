//! What the fault tests run, and how they tell what became of it.
//!
//! A few operations over both domains, a group of commits with a refusal in the middle, an erasure, a checkpoint of each file. Every
//! record is put once, so one that is put twice was doubled; every answer is kept, so one without its record was lost.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::path::PathBuf;

use domain::causality::Domain;
use domain::commit::{Change, Commit, Expected, Write};
use domain::entry::Op;
use domain::id::OperationId;
use domain::record::Record;
use domain::records::note::Note;
use domain::time::Timestamp;
use fault_disk::FaultVfs;
use store::env::Env;
use store::saga::{self, Ending, Plan};
use store::sqlite::{Location, SqliteStore};
use store::store::{Store, own_streams};
use store::{Error, Result};

use crate::fixtures::{commit, host, id};
use crate::saga::{damages, note, open_sagas, plan, put_of, traces};

/// Both stores of a simulated disk.
pub(super) struct Home {
    pub(super) journal: SqliteStore,
    pub(super) agent: SqliteStore,
}

impl Home {
    /// Makes both stores, with the one note that stands in the way of a plan.
    pub(super) fn create(vfs: &FaultVfs) {
        let make = |domain, seed| SqliteStore::create(&location(vfs, domain), host(1), &Env::seeded(seed)).unwrap();
        let (mut journal, _agent) = (make(Domain::Journal, 1), make(Domain::Agent, 2));
        assert!(journal.apply_group(&[put_note("before", TAKEN)])[0].is_ok());
    }

    pub(super) fn open(vfs: &FaultVfs) -> Result<Self> {
        let journal = SqliteStore::open(&location(vfs, Domain::Journal), &Env::seeded(3))?;
        let agent = SqliteStore::open(&location(vfs, Domain::Agent), &Env::seeded(4))?;
        Ok(Self { journal, agent })
    }

    /// Opens as a start does it: what a crash left open is finished.
    pub(super) fn recover(vfs: &FaultVfs) -> Result<Self> {
        let mut home = Self::open(vfs)?;
        saga::recover(&mut home.journal, &mut home.agent)?;
        Ok(home)
    }

    /// Runs the workload until its end or until `stop` says so.
    pub(super) fn run(&mut self, stop: &dyn Fn() -> bool) -> Answers {
        let mut answers = Answers::new();
        for act in acts() {
            match act {
                Act::Saga(plan) => {
                    let ending = saga::run(&mut self.journal, &mut self.agent, &plan, Timestamp::EPOCH);
                    answers.insert(plan.operation_id, ending.map(|ending| matches!(ending, Ending::Done(_))));
                }
                Act::Group(commits) => {
                    let results = self.journal.apply_group(&commits);
                    answers.extend(commits.iter().zip(results).map(|(commit, result)| (commit.operation_id, result.map(|_| true))));
                }
                Act::Checkpoint(domain) => {
                    let store = if domain == Domain::Journal { &self.journal } else { &self.agent };
                    // Whether it succeeds or not, no answer depends on it.
                    store.checkpointer().and_then(|mut checkpointer| checkpointer.truncate()).ok();
                }
            }
            if stop() {
                break;
            }
        }
        answers
    }

    /// Holds what is there against what was answered.
    pub(super) fn compare(&self, answers: &Answers) -> Result<Findings> {
        let mut findings = Findings { doubled: self.doubled()?, ..Findings::default() };
        for act in acts() {
            match act {
                Act::Saga(plan) => self.compare_saga(&plan, answers, &mut findings)?,
                Act::Group(commits) => self.compare_group(&commits, answers, &mut findings)?,
                Act::Checkpoint(_) => {}
            }
        }
        findings.unsound = damages(&self.journal, &self.agent)?.len() + open_sagas(&self.agent)?;
        Ok(findings)
    }

    fn compare_saga(&self, plan: &Plan, answers: &Answers, findings: &mut Findings) -> Result<()> {
        let [notes, messages, refusals] = traces(&self.journal, &self.agent, plan)?;
        let answer = answers.get(&plan.operation_id).and_then(|answer| answer.as_ref().ok());
        findings.lost += usize::from(match answer {
            Some(true) => notes == 0,
            Some(false) => refusals == 0,
            None => false,
        });
        findings.parted += usize::from(if is_taken(plan) { messages > 0 } else { notes != messages || refusals > 0 });
        Ok(())
    }

    fn compare_group(&self, commits: &[Commit], answers: &Answers, findings: &mut Findings) -> Result<()> {
        let reader = self.journal.reader();
        let snapshot = reader.read()?;
        let mut done = Vec::new();
        for commit in commits.iter().filter(|commit| !is_refused(commit)) {
            let is_there = snapshot.outcome(&commit.operation_id)?.is_some();
            match answers.get(&commit.operation_id) {
                Some(Ok(_)) => findings.lost += usize::from(!is_there),
                Some(Err(Error::Storage { .. } | Error::Full(_))) => findings.denied += usize::from(is_there),
                Some(Err(_)) | None => {}
            }
            if is_there && matches!(commit.writes[0].change, Change::Erase) {
                let row = snapshot.get(Note::SPEC, &commit.writes[0].id)?;
                findings.lost += usize::from(row.is_none_or(|row| row.body.is_some()));
            }
            done.push(is_there);
        }
        findings.parted += usize::from(done.iter().any(|one| *one != done[0]));
        Ok(())
    }

    /// How many records were put more than once.
    fn doubled(&self) -> Result<usize> {
        let mut puts: BTreeMap<_, usize> = BTreeMap::new();
        for store in [&self.journal, &self.agent] {
            let reader = store.reader();
            let snapshot = reader.read()?;
            for stream in own_streams(host(1)) {
                for (logged, _) in snapshot.entries(&stream, 0, 1_000)? {
                    if logged.entry.op == Op::Put {
                        *puts.entry((logged.entry.kind, logged.entry.id)).or_default() += 1;
                    }
                }
            }
        }
        Ok(puts.values().filter(|count| **count > 1).count())
    }
}

fn location(vfs: &FaultVfs, domain: Domain) -> Location {
    let kinds = domain::catalogue::of_domain(domain).collect();
    Location { domain, path: PathBuf::from(format!("{domain}.sqlite")), kinds, vfs: Some(vfs.name().to_owned()) }
}

/// What each operation was answered; for a saga, whether the journal did it or refused.
pub(super) type Answers = BTreeMap<OperationId, Result<bool>>;

enum Act {
    Saga(Box<Plan>),
    Group(Vec<Commit>),
    Checkpoint(Domain),
}

fn acts() -> Vec<Act> {
    let saga = |key: &str| Act::Saga(Box::new(plan(key)));
    let mut wrong = put_note("wrong", 3);
    wrong.writes[0].expected = WRONG_VERSION;
    let erase = Write { expected: Expected::Version(1), change: Change::Erase, ..put_of(&note(""), id(1)) };
    let mut taken = plan("taken");
    taken.journal[0].id = id(TAKEN);
    vec![
        saga("a"),
        Act::Group(vec![put_note("one", 1), wrong, put_note("two", 2)]),
        Act::Checkpoint(Domain::Journal),
        saga("b"),
        Act::Saga(Box::new(taken)),
        Act::Group(vec![commit("erase", vec![erase])]),
        saga("c"),
        Act::Checkpoint(Domain::Agent),
    ]
}

const WRONG_VERSION: Expected = Expected::Version(5);
/// The number of the note that exists before the workload.
const TAKEN: u8 = 9;

fn put_note(key: &str, number: u8) -> Commit {
    commit(key, vec![put_of(&note(key), id(number))])
}

/// Whether the journal has to refuse it.
fn is_taken(plan: &Plan) -> bool {
    plan.journal[0].id == id(TAKEN)
}

/// Whether no store may ever accept it.
fn is_refused(commit: &Commit) -> bool {
    commit.writes[0].expected == WRONG_VERSION
}

/// Whether everything was answered as on a disk that never fails.
pub(super) fn are_all_good(answers: &Answers) -> bool {
    let good = |act: Act| match act {
        Act::Saga(plan) => answers.get(&plan.operation_id) == Some(&Ok(!is_taken(&plan))),
        Act::Group(commits) => commits.iter().all(|commit| match answers.get(&commit.operation_id) {
            Some(Err(error)) => is_refused(commit) && error.is_refusal(),
            answer => !is_refused(commit) && answer.is_some(),
        }),
        Act::Checkpoint(_) => true,
    };
    acts().into_iter().all(good)
}

/// What was found wrong. All zeroes is what the store promises.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Findings {
    /// Answered, and not there.
    pub(super) lost: usize,
    /// There more than once.
    pub(super) doubled: usize,
    /// One domain has it and the other does not, or half a group is there.
    pub(super) parted: usize,
    /// Answered with an error that says nothing was written, and there.
    pub(super) denied: usize,
    /// Damage in a log, or a saga row that was left.
    pub(super) unsound: usize,
    /// A store that cannot be opened or read.
    pub(super) unreadable: usize,
}

impl AddAssign for Findings {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.parted += other.parted;
        self.denied += other.denied;
        self.unsound += other.unsound;
        self.unreadable += other.unreadable;
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, doubled, parted, denied, unsound, unreadable } = self;
        write!(f, "lost {lost}, doubled {doubled}, parted {parted}, denied {denied}, unsound {unsound}, unreadable {unreadable}")
    }
}

//! The group-commit queue: one thread owns the store, everybody else sends it commits and waits.
//!
//! While one group is on its way to the disk the next one gathers, so the cost of an fsync is shared without anybody waiting on
//! purpose. The queue is bounded: a caller that finds it full waits. A stop acts here first: once [`Writer::fence`] has returned,
//! guarded commits of the subject are refused, whether or not the fence is durable yet. Only a group that had already been gathered
//! may still land.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::causality::Domain;
use domain::commit::{Commit, Committed, Guard};
use domain::entry::{Head, Witness};
use domain::id::HostId;
use domain::limits::{GROUP_BYTES_MAX, GROUP_COMMITS_MAX, QUEUE_COMMITS_MAX};

use crate::store::{Maintenance, Reader, Store};
use crate::{Error, Result};

/// LIMIT: about what parking and waking a thread costs here; waiting awake for longer gains nothing.
const AWAKE: Duration = Duration::from_micros(50);

/// What the writer's thread is asked for: one closed set, one loop.
enum Job {
    Commit(Commit, SyncSender<Result<Committed>>),
    Witness(Vec<Witness>, SyncSender<Result<()>>),
    Heads(SyncSender<Result<Vec<Head>>>),
}

/// Sends commits to a store's one owner. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    domain: Domain,
    host: HostId,
    jobs: SyncSender<Job>,
    reader: Arc<dyn Reader>,
    fences: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// The running thread; dropping every [`Writer`] ends it.
#[derive(Debug)]
pub struct Running {
    thread: Option<JoinHandle<Box<dyn Store>>>,
}

impl Running {
    /// Waits for the thread after the last writer is gone, and gives the store back.
    pub fn join(mut self) -> Option<Box<dyn Store>> {
        self.thread.take()?.join().ok()
    }
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.domain())
    }
}

/// Starts the owner of a store.
pub fn start(store: Box<dyn Store>) -> Result<(Writer, Running)> {
    let (jobs, queue) = sync_channel(QUEUE_COMMITS_MAX);
    let fences = Arc::<Mutex<BTreeMap<String, u64>>>::default();
    let writer = Writer { domain: store.domain(), host: store.host(), jobs, reader: store.reader(), fences: Arc::clone(&fences) };
    let domain = store.domain();
    let failed = |error: std::io::Error| Error::Storage { domain, message: error.to_string() };
    let beside = store.maintenance().map(start_maintenance).transpose().map_err(failed)?;
    let owner = Owner { store, queue, fences, beside };
    let thread = std::thread::Builder::new().name(format!("{domain} writer")).spawn(move || owner.run()).map_err(failed)?;
    Ok((writer, Running { thread: Some(thread) }))
}

/// The thread beside the writer, and the way to tell it of commits.
struct Beside {
    commits: SyncSender<()>,
    thread: JoinHandle<()>,
}

fn start_maintenance(mut maintenance: Box<dyn Maintenance>) -> std::io::Result<Beside> {
    // One place is enough: a second reminder before the first was seen says nothing new.
    let (commits, receiver) = sync_channel(1);
    let thread = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(move || {
        while receiver.recv().is_ok() {
            maintenance.after_commits();
        }
    })?;
    Ok(Beside { commits, thread })
}

impl Writer {
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    #[must_use]
    pub fn host(&self) -> HostId {
        self.host
    }

    #[must_use]
    pub fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.reader)
    }

    /// Waits until the commit is durable or refused.
    pub fn commit(&self, commit: Commit) -> Result<Committed> {
        let operation_id = commit.operation_id;
        let unknown = |message: &str| Error::CommitUnknown { domain: self.domain, operation_id, message: message.to_owned() };
        self.ask(|answer| Job::Commit(commit, answer)).unwrap_or_else(|| Err(unknown("the writer has ended")))
    }

    /// Stores other domains' heads.
    pub fn witness(&self, witnesses: Vec<Witness>) -> Result<()> {
        self.ask(|answer| Job::Witness(witnesses, answer)).unwrap_or_else(|| Err(self.ended()))
    }

    /// The own streams' heads, as durable as what was answered last.
    pub fn heads(&self) -> Result<Vec<Head>> {
        self.ask(Job::Heads).unwrap_or_else(|| Err(self.ended()))
    }

    /// Refuses guarded commits of the subject below this epoch from now on. Making it durable is a commit of its own.
    pub fn fence(&self, subject: &str, epoch: u64) {
        let mut fences = lock(&self.fences);
        let known = fences.entry(subject.to_owned()).or_insert(0);
        *known = epoch.max(*known);
    }

    /// The epoch that [`Writer::fence`] has raised a subject to in this process; 0 if it has not.
    #[must_use]
    pub fn fenced_in_memory(&self, subject: &str) -> u64 {
        lock(&self.fences).get(subject).copied().unwrap_or(0)
    }

    fn ask<T>(&self, job: impl FnOnce(SyncSender<T>) -> Job) -> Option<T> {
        let (answer, wait) = sync_channel(1);
        self.jobs.send(job(answer)).ok()?;
        wait.recv().ok()
    }

    fn ended(&self) -> Error {
        Error::Storage { domain: self.domain, message: "the writer has ended".to_owned() }
    }
}

fn lock(fences: &Mutex<BTreeMap<String, u64>>) -> MutexGuard<'_, BTreeMap<String, u64>> {
    fences.lock().expect("no thread panics while it holds the fences")
}

struct Owner {
    store: Box<dyn Store>,
    queue: Receiver<Job>,
    fences: Arc<Mutex<BTreeMap<String, u64>>>,
    beside: Option<Beside>,
}

impl Owner {
    fn run(mut self) -> Box<dyn Store> {
        let mut next = self.queue.recv().ok();
        while let Some(job) = next {
            next = match job {
                Job::Commit(commit, answer) => self.group(commit, answer),
                Job::Witness(witnesses, answer) => {
                    answer.send(self.store.witness(&witnesses)).ok();
                    None
                }
                Job::Heads(answer) => {
                    answer.send(self.store.heads()).ok();
                    None
                }
            };
            if next.is_none() {
                next = self.next();
            }
        }
        if let Some(Beside { commits, thread }) = self.beside {
            drop(commits);
            // Its connection is closed before the writer's, so that the writer's is the last and leaves no WAL behind.
            thread.join().ok();
        }
        self.store
    }

    /// The next job; a caller that was just answered often comes back before this thread could fall asleep and be woken again.
    fn next(&self) -> Option<Job> {
        let started = Instant::now();
        while started.elapsed() < AWAKE {
            if let Ok(job) = self.queue.try_recv() {
                return Some(job);
            }
            std::hint::spin_loop();
        }
        self.queue.recv().ok()
    }

    /// Takes what waits, up to the limits, and commits it as one group. Returns the job that ended the gathering.
    fn group(&mut self, commit: Commit, answer: SyncSender<Result<Committed>>) -> Option<Job> {
        let mut commits = Vec::new();
        let mut answers = Vec::new();
        let mut bytes = 0;
        let mut candidate = Some((commit, answer));
        let mut left_over = None;
        let mut taken = 0;
        while let Some((commit, answer)) = candidate.take() {
            taken += 1;
            match self.fenced(&commit) {
                // What was done before the fence was raised is still answered with its outcome.
                Some(refusal) => {
                    let known = self.store.lookup(&commit);
                    answer.send(known.and_then(|outcome| outcome.ok_or(refusal))).ok();
                }
                None => {
                    bytes += commit.body_bytes();
                    commits.push(commit);
                    answers.push(answer);
                }
            }
            // Refused ones count, too: a flood of them must not hold up those that wait for the disk.
            if taken >= GROUP_COMMITS_MAX || bytes >= GROUP_BYTES_MAX {
                break;
            }
            match self.queue.try_recv() {
                Ok(Job::Commit(commit, answer)) => candidate = Some((commit, answer)),
                Ok(other) => left_over = Some(other),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
        }
        if !commits.is_empty() {
            let results = self.store.apply_group(&commits);
            if let Some(beside) = &self.beside {
                beside.commits.try_send(()).ok();
            }
            for (answer, result) in answers.into_iter().zip(results) {
                // A caller that has gone away can ask again with the same operation id.
                answer.send(result).ok();
            }
        }
        left_over
    }

    fn fenced(&self, commit: &Commit) -> Option<Error> {
        let fences = lock(&self.fences);
        commit.guards.iter().find_map(|guard| match guard {
            Guard::Fence { subject, epoch } => {
                let current = fences.get(subject).copied().filter(|current| current > epoch)?;
                Some(Error::Fenced { subject: subject.clone(), epoch: *epoch, current })
            }
            _ => None,
        })
    }
}

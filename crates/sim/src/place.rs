//! A place to commit to, as one life of the process sees it: the store behind it is shared, the life can end in the middle of a commit.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use domain::causality::Domain;
use domain::commit::{Cause, Commit, Committed, Write};
use domain::entry::{Actor, Head};
use domain::id::{HostId, OperationId};
use store::store::{Reader, Store};
use store::{Committer, Error, Result};

use crate::checkers::effect;
use crate::ledger::{Ledger, Violation};

/// The stores of the world.
pub type Stores = [Arc<Mutex<Box<dyn Store>>>; 3];

/// What is to happen around the next commits, and what was seen of them.
#[derive(Default)]
pub struct Watch {
    /// The life dies in the commit after so many more; before it is applied, or after.
    pub crash: Option<(u32, bool)>,
    /// Somebody else commits first.
    pub interrupt: Option<Box<dyn FnOnce() + Send>>,
    pub violations: Vec<Violation>,
    pub ledger: Ledger,
    /// The life that may write.
    pub incarnation: u64,
    /// Commits that were applied.
    pub commits: u64,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("violations", &self.violations).finish_non_exhaustive()
    }
}

#[derive(Clone)]
pub struct Place {
    domain: Domain,
    stores: Stores,
    watch: Arc<Mutex<Watch>>,
    alive: Arc<AtomicBool>,
    /// Crashes and interruptions are for the engine; people come through another door.
    is_engine: bool,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("domain", &self.domain).finish_non_exhaustive()
    }
}

pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A commit of one write that nobody in the house has asked for: what tampers, and what wipes.
#[must_use]
pub fn unasked(name: &str, write: Write) -> Commit {
    Commit {
        operation_id: OperationId::of_client(&Actor::System, name),
        request: "[]".to_owned(),
        actor: Actor::System,
        cause: Cause::default(),
        guards: Vec::new(),
        writes: vec![write],
        witnesses: Vec::new(),
    }
}

#[must_use]
pub fn store_of(stores: &Stores, domain: Domain) -> &Arc<Mutex<Box<dyn Store>>> {
    match domain {
        Domain::Journal => &stores[0],
        Domain::Agent => &stores[1],
        Domain::Ledger => &stores[2],
    }
}

impl Place {
    #[must_use]
    pub fn new(domain: Domain, stores: &Stores, watch: &Arc<Mutex<Watch>>, alive: &Arc<AtomicBool>, is_engine: bool) -> Self {
        Self { domain, stores: stores.clone(), watch: Arc::clone(watch), alive: Arc::clone(alive), is_engine }
    }

    fn dead(&self) -> Error {
        Error::Storage { domain: self.domain, message: "the process is dead".to_owned() }
    }

    /// Whether the life ends in this commit; `Some(true)` after it was applied.
    fn dies(&self) -> Option<bool> {
        let mut watch = lock(&self.watch);
        let (left, after) = watch.crash?;
        if left > 0 {
            watch.crash = Some((left - 1, after));
            return None;
        }
        watch.crash = None;
        watch.ledger.fire(if after { "crash.after_commit" } else { "crash.before_commit" });
        self.alive.store(false, Ordering::Relaxed);
        Some(after)
    }

    fn apply(&self, commit: &Commit) -> Result<Committed> {
        let result = {
            let mut store = lock(store_of(&self.stores, self.domain));
            store.apply_group(std::slice::from_ref(commit)).pop().expect("a group of one has one result")
        };
        if let Ok(committed) = &result {
            lock(&self.watch).commits += 1;
            if !committed.repeated {
                effect::check(self.domain, &self.stores, &self.watch, commit);
            }
        }
        result
    }
}

impl Committer for Place {
    fn host(&self) -> HostId {
        lock(store_of(&self.stores, self.domain)).host()
    }

    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        if !self.alive.load(Ordering::Relaxed) {
            return Err(self.dead());
        }
        if self.is_engine {
            let interrupt = lock(&self.watch).interrupt.take();
            if let Some(interrupt) = interrupt {
                interrupt();
            }
            match self.dies() {
                Some(true) => {
                    self.apply(&commit).ok();
                    return Err(self.dead());
                }
                Some(false) => return Err(self.dead()),
                None => {}
            }
        }
        self.apply(&commit)
    }

    fn heads(&mut self) -> Result<Vec<Head>> {
        if !self.alive.load(Ordering::Relaxed) {
            return Err(self.dead());
        }
        lock(store_of(&self.stores, self.domain)).heads()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        lock(store_of(&self.stores, self.domain)).reader()
    }
}

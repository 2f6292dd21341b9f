//! The one way to change a home: what the command line, later the page and the socket, all go through.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::entry::Witness;
use domain::id::HostId;
use store::actor::{self, Running, Writer};
use store::env::Env;
use store::sqlite::SqliteStore;
use store::store::{Reader, Store};

use crate::engine::Scripted;
use crate::home::{Home, Initialised, Lock};
use crate::house::House;
use crate::view::View;
use crate::{Error, Result};

/// The workspace that every home has.
const FIRST_WORKSPACE: &str = "home";

/// An open home with the right to write.
pub struct Handle {
    env: Env,
    /// This life's number, once it has begun to work.
    life: Mutex<u64>,
    writers: BTreeMap<Domain, Writer>,
    running: Vec<Running>,
    view: View,
    _lock: Lock,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // INVARIANT: the files are closed before the lock is given up, so that nobody opens the home in between.
        self.view = View::default();
        self.writers.clear();
        for thread in std::mem::take(&mut self.running) {
            thread.join();
        }
    }
}

/// An open home and what opening it had to do.
#[derive(Debug)]
pub struct Opened {
    pub handle: Handle,
    /// Cycles whose effects a crash had left without an outcome.
    pub recovered: usize,
}

impl Handle {
    /// Makes a home, or completes one that a crash left half made.
    pub fn init(home: &Home, env: &Env) -> Result<Initialised> {
        let (lock, host, created) = home.create(env)?;
        let opened = Self::open_locked(home, env, lock)?;
        opened.handle.house().create_workspace(FIRST_WORKSPACE, "Home")?;
        opened.handle.close()?;
        Ok(Initialised { folder: home.folder().to_path_buf(), host, created })
    }

    /// Takes the home: opens its stores, checks them against each other, finishes what a crash interrupted.
    pub fn open(home: &Home, env: &Env) -> Result<Opened> {
        home.check()?;
        let lock = home.lock()?;
        Self::open_locked(home, env, lock)
    }

    fn open_locked(home: &Home, env: &Env, lock: Lock) -> Result<Opened> {
        let mut stores = Vec::new();
        for domain in Domain::ALL {
            stores.push(SqliteStore::open(&home.location(*domain), env)?);
        }
        check_hosts(&stores)?;
        check_witnesses(&stores)?;
        let mut writers = BTreeMap::new();
        let mut readers: BTreeMap<Domain, Arc<dyn Reader>> = BTreeMap::new();
        let mut running = Vec::new();
        for store in stores {
            let (writer, thread) = actor::start(Box::new(store))?;
            readers.insert(writer.domain(), writer.reader());
            writers.insert(writer.domain(), writer);
            running.push(thread);
        }
        let handle = Self { env: env.clone(), life: Mutex::new(0), writers, running, view: View::new(readers), _lock: lock };
        let mut house = handle.house();
        house.level_fences()?;
        let recovered = house.recover(&mut Scripted)?;
        handle.adopt_life(&house);
        handle.write_witnesses()?;
        Ok(Opened { handle, recovered })
    }

    /// The stores as the engine and people's commands see them. Cheap: each thread has its own.
    #[must_use]
    pub fn house(&self) -> House {
        let place = |domain| Box::new(self.writer(domain).clone());
        let mut house = House::new(self.env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger));
        house.incarnation = *self.life();
        house
    }

    /// A house that may run agents: the first one begins this life.
    pub fn working_house(&self) -> Result<House> {
        let mut house = self.house();
        let mut life = self.life();
        if *life == 0 {
            *life = house.begin_life()?;
        }
        house.incarnation = *life;
        drop(life);
        Ok(house)
    }

    fn adopt_life(&self, house: &House) {
        *self.life() = house.incarnation;
    }

    fn life(&self) -> MutexGuard<'_, u64> {
        self.life.lock().expect("no thread panics while it holds the life")
    }

    /// Ends cleanly: every file learns the others' heads.
    pub fn close(self) -> Result<()> {
        self.write_witnesses()
    }

    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    #[must_use]
    pub fn host(&self) -> HostId {
        self.writer(Domain::Journal).host()
    }

    pub(crate) fn writer(&self, domain: Domain) -> &Writer {
        &self.writers[&domain]
    }

    fn write_witnesses(&self) -> Result<()> {
        let mut all = Vec::new();
        for (domain, writer) in &self.writers {
            all.extend(writer.heads()?.into_iter().map(|head| Witness { domain: *domain, head }));
        }
        for (domain, writer) in &self.writers {
            writer.witness(all.iter().filter(|witness| witness.domain != *domain).copied().collect())?;
        }
        Ok(())
    }
}

fn check_hosts(stores: &[SqliteStore]) -> Result<()> {
    match stores.iter().find(|store| store.host() != stores[0].host()) {
        Some(other) => {
            let message =
                format!("the {} database belongs to another home than the {} database", other.domain(), stores[0].domain());
            Err(Error::new(ErrorCode::LogDamaged, message))
        }
        None => Ok(()),
    }
}

/// A file that another one remembers as longer, or different, was cut or replaced: writing to it would fork its history.
fn check_witnesses(stores: &[SqliteStore]) -> Result<()> {
    for witness_holder in stores {
        for witness in witness_holder.reader().read()?.witnesses()? {
            let Some(store) = stores.iter().find(|store| store.domain() == witness.domain) else { continue };
            if witness.head.counter == 0 {
                continue;
            }
            let dot = domain::causality::Dot { stream: witness.head.stream, counter: witness.head.counter };
            let found = store.reader().read()?.entry(&dot)?.map(|(logged, _)| logged.chain);
            if found != Some(witness.head.chain) {
                let message = format!(
                    "the {} database does not hold entry {} as the {} database remembers it: it was cut, or replaced by another copy",
                    witness.domain,
                    store::place(&dot),
                    witness_holder.domain()
                );
                return Err(Error::new(ErrorCode::LogDamaged, message));
            }
        }
    }
    Ok(())
}

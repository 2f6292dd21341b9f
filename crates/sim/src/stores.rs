//! The storage tiers: the in-memory reference, and SQLite on a disk that can be cut at any operation.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use domain::causality::Domain;
use domain::id::{HostId, RawId};
use fault_disk::FaultVfs;
use store::env::Env;
use store::memory::MemoryStore;
use store::sqlite::{Location, SqliteStore};
use store::store::Store;

use crate::place::{Stores, lock, store_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Memory,
    FaultDisk,
}

impl Tier {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::FaultDisk => "disk",
        }
    }
}

fn host() -> HostId {
    HostId::from_raw(RawId::from_bytes([1; 16]))
}

fn location(disk: &FaultVfs, domain: Domain) -> Location {
    let kinds = domain::catalogue::of_domain(domain).collect();
    Location { domain, path: PathBuf::from(format!("/{domain}.sqlite")), kinds, vfs: Some(disk.name().to_owned()) }
}

/// A disk with three empty stores, to be forked: making the tables costs more than most worlds.
#[derive(Debug)]
pub struct Template(FaultVfs);

impl Template {
    #[must_use]
    pub fn make() -> Self {
        let disk = FaultVfs::new(1);
        disk.silence_history(true);
        disk.promise_powersafe_overwrite();
        for domain in Domain::ALL {
            SqliteStore::create(&location(&disk, *domain), host(), &Env::seeded(9)).expect("a fresh disk takes a store");
        }
        Self(disk)
    }

    #[must_use]
    pub fn fork(&self) -> FaultVfs {
        self.0.fork()
    }
}

/// The stores of a new world.
#[must_use]
pub fn fresh(disk: Option<&FaultVfs>, env: &Env) -> Stores {
    let make = |domain: Domain| -> Arc<Mutex<Box<dyn Store>>> {
        let store: Box<dyn Store> = match disk {
            None => Box::new(MemoryStore::starting(domain, host(), env.clone(), &Env::seeded(9))),
            Some(disk) => Box::new(SqliteStore::open(&location(disk, domain), env).expect("a fresh disk opens")),
        };
        Arc::new(Mutex::new(store))
    };
    [make(Domain::Journal), make(Domain::Agent), make(Domain::Ledger)]
}

/// Opens the stores again after a crash or a restart; a store in memory is still there.
pub fn reopen(stores: &Stores, disk: Option<&FaultVfs>, env: &Env) -> store::Result<()> {
    let Some(disk) = disk else { return Ok(()) };
    for domain in Domain::ALL {
        let opened = SqliteStore::open(&location(disk, *domain), env)?;
        *lock(store_of(stores, *domain)) = Box::new(opened);
    }
    Ok(())
}

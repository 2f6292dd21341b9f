//! A house in memory with one workspace, and manifests to run in it.

use std::sync::{Arc, Mutex};

use control::manifest::Manifest;
use domain::causality::Domain;
use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::{AgentId, HostId, RawId, RunId};
use runtime::engine::{Drive, Job, Outside, Progress, Rest};
use runtime::{ClientKey, Env, House};
use serde_json::json;
use store::Committer;
use store::memory::MemoryStore;
use store::store::{Reader, Store};

/// A store that several houses share, one after the other.
#[derive(Clone)]
pub(crate) struct Shared(pub Arc<Mutex<MemoryStore>>);

impl Committer for Shared {
    fn host(&self) -> HostId {
        Store::host(&*self.0.lock().unwrap())
    }

    fn commit(&mut self, commit: Commit) -> store::Result<Committed> {
        Committer::commit(&mut *self.0.lock().unwrap(), commit)
    }

    fn heads(&mut self) -> store::Result<Vec<Head>> {
        Store::heads(&*self.0.lock().unwrap())
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Store::reader(&*self.0.lock().unwrap())
    }
}

/// Stores that outlive the process that uses them.
pub(crate) struct Stores {
    pub env: Env,
    pub places: Vec<Shared>,
}

impl Stores {
    pub(crate) fn new() -> Self {
        let env = Env::seeded(1);
        let host = HostId::from_raw(RawId::from_bytes([1; 16]));
        let place = |domain: &Domain| Shared(Arc::new(Mutex::new(MemoryStore::new(*domain, host, env.clone()))));
        let stores = Self { places: Domain::ALL.iter().map(place).collect(), env };
        stores.house().create_workspace("home", "Home").unwrap();
        stores
    }

    /// A process that has just started.
    pub(crate) fn house(&self) -> House {
        let place = |domain: Domain| {
            let at = Domain::ALL.iter().position(|known| *known == domain).unwrap();
            Box::new(self.places[at].clone())
        };
        let mut house = House::new(self.env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger));
        house.level_fences().unwrap();
        house.begin_life().unwrap();
        house
    }
}

pub(crate) fn manifest(script: &[serde_json::Value]) -> Manifest {
    let script: Vec<String> = script.iter().map(ToString::to_string).collect();
    let manifest = json!({
        "schema": 1, "agent": "tester", "prompt": "do the tasks", "mode": "yolo",
        "model": { "provider": "scripted", "script": script },
        "preapproved": ["persist_artifact"],
    });
    serde_json::from_value(manifest).unwrap()
}

pub(crate) fn key(text: &str) -> ClientKey {
    ClientKey::parse(text).unwrap()
}

pub(crate) fn start(house: &mut House, manifest: &Manifest, name: &str) -> (AgentId, RunId) {
    let agent = house.adopt(manifest, &key(&format!("adopt {name}"))).unwrap();
    let run = house.wake_by_hand(agent, &key(name)).unwrap();
    (agent, run)
}

/// Works until nothing is left to do; how often something touched the world.
pub(crate) fn work(house: &mut House, outside: &mut dyn Outside) -> usize {
    let mut steps = 0;
    loop {
        let mut moved = false;
        for job in house.jobs().unwrap() {
            let drive = match job {
                Job::Continue(run) => Some(Drive::new(run)),
                Job::Begin(agent) => house.begin(agent, outside).unwrap(),
            };
            let Some(mut drive) = drive else { continue };
            moved |= matches!(job, Job::Begin(_));
            while !matches!(
                house.advance(&mut drive, outside).unwrap(),
                Progress::Rests(Rest::Ended | Rest::Waits { .. } | Rest::Busy)
            ) {
                steps += 1;
                moved = true;
                assert!(steps < 10_000, "a run does not end");
            }
        }
        if !moved {
            return steps;
        }
    }
}

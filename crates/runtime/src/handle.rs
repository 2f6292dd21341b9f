//! The one way to change a home: what the command line, later the page and the socket, all go through.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Cause, Change, Commit, Committed, Expected, Guard, Write};
use domain::entry::{Actor, Witness};
use domain::id::{HostId, OperationId, WorkspaceId};
use domain::record::Record;
use domain::records::fence::Fence;
use domain::records::slug::Slug;
use domain::records::workspace::{Workspace, WorkspaceKind, WorkspaceState};
use store::actor::{self, Running, Writer};
use store::env::Env;
use store::saga::{self, Recovered};
use store::sqlite::SqliteStore;
use store::store::{Reader, Scan, Store};

use crate::home::{Home, Initialised, Lock};
use crate::view::View;
use crate::{Error, Result};

/// The workspace that every home has.
const FIRST_WORKSPACE: &str = "home";

/// An open home with the right to write.
pub struct Handle {
    env: Env,
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
    /// Operations that a crash had left between the two domains.
    pub recovered: Recovered,
}

impl Handle {
    /// Makes a home, or completes one that a crash left half made.
    pub fn init(home: &Home, env: &Env) -> Result<Initialised> {
        let (lock, host, created) = home.create(env)?;
        let opened = Self::open_locked(home, env, lock)?;
        opened.handle.create_first_workspace()?;
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
        let handle = Self { env: env.clone(), writers, running, view: View::new(readers), _lock: lock };
        handle.raise_fences()?;
        let (mut journal, mut agent) = (handle.writer(Domain::Journal).clone(), handle.writer(Domain::Agent).clone());
        let recovered = saga::recover(&mut journal, &mut agent)?;
        handle.write_witnesses()?;
        Ok(Opened { handle, recovered })
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

    /// Commits to one domain as an actor, without a cause of its own.
    pub(crate) fn commit(
        &self,
        domain: Domain,
        actor: Actor,
        operation_id: OperationId,
        request: &serde_json::Value,
        guards: Vec<Guard>,
        writes: Vec<Write>,
    ) -> Result<Committed> {
        let request = domain::json::write(request).map_err(|error| Error::new(ErrorCode::InvalidArgument, error.to_string()))?;
        let commit = Commit { operation_id, request, actor, cause: Cause::default(), guards, writes, witnesses: Vec::new() };
        Ok(self.writer(domain).commit(commit)?)
    }

    fn create_first_workspace(&self) -> Result<()> {
        let id = WorkspaceId::of_slug(FIRST_WORKSPACE);
        if self.view.reader(Domain::Journal).read()?.get(Workspace::SPEC, &id.raw())?.is_some() {
            return Ok(());
        }
        let now = self.env.clock.now();
        let workspace = Workspace {
            slug: Slug::parse(FIRST_WORKSPACE).map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?,
            title: "Home".to_owned(),
            kind: WorkspaceKind::Personal,
            state: WorkspaceState::Active,
            created_at: now,
            updated_at: now,
        };
        let operation_id = OperationId::of_client(&Actor::System, "init");
        let write = put(&workspace, id.raw(), id, Expected::Absent)?;
        self.commit(Domain::Journal, Actor::System, operation_id, &serde_json::json!(["init"]), Vec::new(), vec![write])?;
        Ok(())
    }

    /// Every domain's fences are raised to the highest that any domain knows, before anything guarded is written.
    fn raise_fences(&self) -> Result<()> {
        let mut known: BTreeMap<Domain, BTreeMap<String, (Fence, u64)>> = BTreeMap::new();
        let mut highest: BTreeMap<String, Fence> = BTreeMap::new();
        for domain in Domain::ALL {
            for (fence, version) in self.fences(*domain)? {
                let top = highest.entry(fence.subject.clone()).or_insert_with(|| fence.clone());
                if fence.epoch > top.epoch {
                    *top = fence.clone();
                }
                known.entry(*domain).or_default().insert(fence.subject.clone(), (fence, version));
            }
        }
        for (subject, top) in highest {
            for domain in Domain::ALL {
                let found = known.get(domain).and_then(|fences| fences.get(&subject));
                if found.is_some_and(|(fence, _)| fence.epoch >= top.epoch) {
                    continue;
                }
                let expected = found.map_or(Expected::Absent, |(_, version)| Expected::Version(*version));
                let name = format!("raise {subject} to {} in {domain}", top.epoch);
                let operation_id = OperationId::of_client(&Actor::System, &name);
                let write = put(&top, Fence::id_of(&subject), WorkspaceId::NONE, expected)?;
                self.commit(*domain, Actor::System, operation_id, &serde_json::json!([name]), Vec::new(), vec![write])?;
            }
        }
        Ok(())
    }

    fn fences(&self, domain: Domain) -> Result<Vec<(Fence, u64)>> {
        let snapshot = self.view.reader(domain).read()?;
        let mut scan = Scan::new(Fence::SPEC, "by_subject");
        let mut found = Vec::new();
        loop {
            let page = snapshot.scan(&scan)?;
            for row in &page.rows {
                found.extend(row.record::<Fence>()?.map(|fence| (fence, row.version)));
            }
            let Some(next) = page.next else { return Ok(found) };
            scan.after = Some(next);
        }
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

/// A write of a typed record.
pub(crate) fn put<R: Record>(record: &R, id: domain::id::RawId, workspace: WorkspaceId, expected: Expected) -> Result<Write> {
    let body = record.to_body().map_err(|error| Error::new(ErrorCode::InvalidArgument, error.to_string()))?;
    Ok(Write { spec: R::SPEC, id, workspace, expected, change: Change::Put(body) })
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

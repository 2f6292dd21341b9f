//! The house: the stores of one home as the engine and people's commands see them, whoever owns them.
//!
//! In production the places to commit to are the writers of three actors, and every thread has a house of its own; in the simulator they are
//! the bare stores. Nothing here knows which.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::manifest::Manifest;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Cause, Change, Commit, Committed, Expected, Guard, Write};
use domain::entry::{Actor, Witness};
use domain::id::{HostId, ManifestId, OperationId, RawId, WorkspaceId};
use domain::record::{Record, Spec};
use domain::records::slug::Slug;
use domain::records::workspace::{Workspace, WorkspaceKind, WorkspaceState};
use domain::time::Timestamp;
use store::Committer;
use store::env::Env;
use store::store::{Page, Reader, Row, Scan, Snapshot};

use crate::{Error, Result};

/// Three places to commit to, and what comes from outside.
pub struct House {
    env: Env,
    journal: Box<dyn Committer + Send>,
    agent: Box<dyn Committer + Send>,
    ledger: Box<dyn Committer + Send>,
    /// This life's number; 0 until it has begun to work.
    pub(crate) incarnation: u64,
    /// Manifests that were read before; they never change.
    pub(crate) manifests: BTreeMap<ManifestId, Arc<Manifest>>,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").field("incarnation", &self.incarnation).finish_non_exhaustive()
    }
}

/// A typed record with where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held<R> {
    pub record: R,
    pub version: u64,
    pub workspace: WorkspaceId,
}

impl House {
    #[must_use]
    pub fn new(
        env: Env,
        journal: Box<dyn Committer + Send>,
        agent: Box<dyn Committer + Send>,
        ledger: Box<dyn Committer + Send>,
    ) -> Self {
        Self { env, journal, agent, ledger, incarnation: 0, manifests: BTreeMap::new() }
    }

    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    #[must_use]
    pub fn host(&self) -> HostId {
        self.agent.host()
    }

    /// This life's number; 0 before it has begun.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(crate) fn place(&mut self, domain: Domain) -> &mut (dyn Committer + Send) {
        match domain {
            Domain::Journal => self.journal.as_mut(),
            Domain::Agent => self.agent.as_mut(),
            Domain::Ledger => self.ledger.as_mut(),
        }
    }

    fn reading(&self, domain: Domain) -> &(dyn Committer + Send) {
        match domain {
            Domain::Journal => self.journal.as_ref(),
            Domain::Agent => self.agent.as_ref(),
            Domain::Ledger => self.ledger.as_ref(),
        }
    }

    /// Opens snapshots of a domain. One snapshot for several reads is cheaper than one each.
    ///
    /// INVARIANT: whoever holds a snapshot opens no second one of the same domain. The pool is bounded, and threads that each hold one
    /// and wait for another would wait for ever.
    pub(crate) fn reader(&self, domain: Domain) -> Arc<dyn Reader> {
        self.reading(domain).reader()
    }

    /// Reads one moment of a domain.
    pub fn read<T>(&self, domain: Domain, read: impl FnOnce(&dyn Snapshot) -> Result<T>) -> Result<T> {
        let reader = self.reading(domain).reader();
        let snapshot = reader.read()?;
        read(snapshot.as_ref())
    }

    pub(crate) fn row(&self, domain: Domain, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        self.read(domain, |snapshot| Ok(snapshot.get(spec, id)?))
    }

    /// A live record with its version.
    pub(crate) fn held<R: Record>(&self, domain: Domain, id: &RawId) -> Result<Option<Held<R>>> {
        self.row(domain, R::SPEC, id)?.map(|row| held(&row)).transpose().map(Option::flatten)
    }

    pub(crate) fn page(&self, domain: Domain, scan: &Scan<'_>) -> Result<Page> {
        self.read(domain, |snapshot| Ok(snapshot.scan(scan)?))
    }

    /// Commits a person's or the system's act to one domain.
    pub(crate) fn act(
        &mut self,
        domain: Domain,
        actor: Actor,
        operation_id: OperationId,
        request: &serde_json::Value,
        guards: Vec<Guard>,
        writes: Vec<Write>,
    ) -> Result<Committed> {
        let request = canonical(request)?;
        let commit = Commit { operation_id, request, actor, cause: Cause::default(), guards, writes, witnesses: Vec::new() };
        Ok(self.place(domain).commit(commit)?)
    }

    /// What a stop has raised in this process, also where it could not be written.
    pub(crate) fn fenced_in_memory(&self, subject: &str) -> u64 {
        Domain::ALL.iter().map(|domain| self.reading(*domain).fenced_in_memory(subject)).max().unwrap_or(0)
    }

    /// The other domain's durable heads, to be written down with a commit. They are read beside the writer: what a reader sees is
    /// durable, and asking the writer would end the group that it is gathering.
    pub(crate) fn witnesses(&self, of: Domain) -> Result<Vec<Witness>> {
        let host = self.host();
        let heads = self.read(of, |snapshot| Ok(snapshot.heads()?))?;
        let own = heads.into_iter().filter(|head| head.stream.host == host);
        Ok(own.map(|head| Witness { domain: of, head }).collect())
    }

    /// Makes a workspace; one that exists is left alone.
    pub fn create_workspace(&mut self, slug: &str, title: &str) -> Result<WorkspaceId> {
        let slug = Slug::parse(slug).map_err(|error| Error::argument("workspace", &error.to_string()))?;
        let id = WorkspaceId::of_slug(slug.as_str());
        if self.row(Domain::Journal, Workspace::SPEC, &id.raw())?.is_some() {
            return Ok(id);
        }
        let now = self.now();
        let name = format!("workspace {slug}");
        let workspace = Workspace {
            slug,
            title: title.to_owned(),
            kind: WorkspaceKind::Personal,
            state: WorkspaceState::Active,
            created_at: now,
            updated_at: now,
        };
        let operation_id = OperationId::of_client(&Actor::System, &name);
        let write = put(&workspace, id.raw(), id, Expected::Absent)?;
        self.act(Domain::Journal, Actor::System, operation_id, &serde_json::json!([name]), Vec::new(), vec![write])?;
        Ok(id)
    }

    /// The id of a workspace that exists.
    pub(crate) fn workspace(&self, slug: &str) -> Result<WorkspaceId> {
        let slug = Slug::parse(slug).map_err(|error| Error::argument("workspace", &error.to_string()))?;
        let id = WorkspaceId::of_slug(slug.as_str());
        let row = self.row(Domain::Journal, Workspace::SPEC, &id.raw())?;
        let missing = || Error::new(ErrorCode::WorkspaceNotFound, format!("there is no workspace `{slug}`"));
        row.filter(|row| !row.deleted).map(|_| id).ok_or_else(missing)
    }
}

pub(crate) fn canonical(request: &serde_json::Value) -> Result<String> {
    domain::json::write(request).map_err(|error| Error::new(ErrorCode::InvalidArgument, error.to_string()))
}

/// A live record of a snapshot with its version.
pub(crate) fn get<R: Record>(snapshot: &dyn Snapshot, id: &RawId) -> Result<Option<Held<R>>> {
    snapshot.get(R::SPEC, id)?.map(|row| held(&row)).transpose().map(Option::flatten)
}

pub(crate) fn held<R: Record>(row: &Row) -> Result<Option<Held<R>>> {
    let record = if row.deleted { None } else { row.record::<R>()? };
    Ok(record.map(|record| Held { record, version: row.version, workspace: row.workspace }))
}

/// A write of a typed record.
pub(crate) fn put<R: Record>(record: &R, id: RawId, workspace: WorkspaceId, expected: Expected) -> Result<Write> {
    let body = record.to_body().map_err(|error| Error::new(ErrorCode::InvalidArgument, error.to_string()))?;
    Ok(Write { spec: R::SPEC, id, workspace, expected, change: Change::Put(body) })
}

/// The expectation for a row that may be there.
pub(crate) fn expecting(version: Option<u64>) -> Expected {
    version.map_or(Expected::Absent, Expected::Version)
}

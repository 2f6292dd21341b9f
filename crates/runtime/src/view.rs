//! Reading a home, with or without the right to write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::{HostId, RawId, WorkspaceId};
use domain::record::Record;
use domain::records::slug::Slug;
use domain::records::workspace::Workspace;
use store::Committer;
use store::env::Env;
use store::sqlite::SqliteReader;
use store::store::Reader;

use crate::home::Home;
use crate::house::House;
use crate::{Error, Result};

/// A place that is only looked at.
struct ReadOnly {
    domain: Domain,
    reader: Arc<dyn Reader>,
}

impl Committer for ReadOnly {
    fn host(&self) -> HostId {
        let heads = self.reader.read().and_then(|snapshot| snapshot.heads()).unwrap_or_default();
        heads.first().map_or(HostId::from_raw(RawId::from_bytes([0; 16])), |head| head.stream.host)
    }

    fn commit(&mut self, _commit: Commit) -> store::Result<Committed> {
        let message = format!("the {} store is open for reading only", self.domain);
        Err(store::Error::InvalidCommit(message))
    }

    fn heads(&mut self) -> store::Result<Vec<Head>> {
        self.reader.read()?.heads()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.reader)
    }
}

/// A reader per domain.
#[derive(Clone, Default)]
pub struct View {
    readers: BTreeMap<Domain, Arc<dyn Reader>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

impl View {
    /// Opens a home for reading only. It takes no lock and needs none.
    pub fn open(home: &Home, env: &Env) -> Result<Self> {
        home.check()?;
        let mut readers: BTreeMap<Domain, Arc<dyn Reader>> = BTreeMap::new();
        for domain in Domain::ALL {
            let reader = SqliteReader::open(&home.location(*domain), env)?;
            reader.check_tables()?;
            readers.insert(*domain, Arc::new(reader));
        }
        Ok(Self { readers })
    }

    pub(crate) fn new(readers: BTreeMap<Domain, Arc<dyn Reader>>) -> Self {
        Self { readers }
    }

    /// The stores as the engine's reading half sees them. Its places take no writes.
    #[must_use]
    pub fn house(&self, env: &Env) -> House {
        let place = |domain: Domain| Box::new(ReadOnly { domain, reader: Arc::clone(&self.readers[&domain]) });
        House::new(env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger))
    }

    pub(crate) fn reader(&self, domain: Domain) -> &dyn Reader {
        self.readers[&domain].as_ref()
    }

    /// The id of a workspace that exists.
    pub(crate) fn workspace(&self, slug: &str) -> Result<WorkspaceId> {
        let missing = || Error::new(ErrorCode::WorkspaceNotFound, format!("there is no workspace `{slug}`"));
        let slug = Slug::parse(slug).map_err(|error| Error::argument("workspace", &error.to_string()))?;
        let id = WorkspaceId::of_slug(slug.as_str());
        let row = self.reader(Domain::Journal).read()?.get(Workspace::SPEC, &id.raw())?;
        row.filter(|row| !row.deleted).map(|_| id).ok_or_else(missing)
    }
}

//! PostgreSQL: one schema per domain, shared by several nodes. Each node is a host of its own and has one writer connection.
//!
//! A group is one transaction at READ COMMITTED that first locks everything it will decide on (`lock.rs`). A node's counters and
//! chain are read under the lock of its own heads, so they are right after any reconnection; other nodes' heads, read after all
//! locks are held, are its vector clock. The node's slot is an advisory lock of the writer's session: two processes cannot be the
//! same host, and a new connection gets it only when the old one's server process has ended. So the connection must be the
//! writer's own: directly to the server, or through a pool that lends it for the whole session.

mod connect;
mod lock;
mod query;
mod read;
mod schema;
mod text;
mod txn;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use domain::causality::Domain;
use domain::commit::{Commit, Committed};
use domain::entry::Witness;
use domain::id::{HistoryId, HostId};
use domain::record::Spec;

pub use read::PostgresReader;
pub use schema::SCHEMA_VERSION;

use crate::apply::{self, Position};
use crate::env::Env;
use crate::postgres::connect::{Backend, Fault, Link};
use crate::postgres::lock::Locked;
use crate::postgres::query::quoted;
use crate::postgres::txn::PostgresTxn;
use crate::store::{GroupFailure, Reader, Store};
use crate::streams::Streams;
use crate::{Error, Result};

/// LIMIT: tries to connect again, and the pause between two: a server that restarts is back within seconds.
const CONNECTS_MAX: u32 = 40;
const CONNECT_PAUSE_MS: u64 = 250;
/// LIMIT: runs of one commit that collides with another node's each time; the second hardly ever does.
const COLLISIONS_MAX: u32 = 4;

/// Where a domain is and what it holds.
#[derive(Clone)]
pub struct PgLocation {
    pub domain: Domain,
    /// A connection string, as libpq understands it: `host=… user=… dbname=…` or `postgresql://…`.
    pub config: String,
    /// The kinds it stores; the product's catalogue, or a test's own.
    pub kinds: Vec<&'static Spec>,
    /// Put before the schema's name, so that several homes fit into one database: lower-case letters, digits and `_`.
    pub prefix: String,
}

/// Without the connection string, which may hold a password.
impl fmt::Debug for PgLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgLocation").field("domain", &self.domain).field("schema", &self.schema_name()).finish_non_exhaustive()
    }
}

impl PgLocation {
    /// A domain of the product's catalogue: schema `journal`, `agent` or `ledger`.
    #[must_use]
    pub fn in_database(config: &str, domain: Domain) -> Self {
        let kinds = domain::catalogue::of_domain(domain).collect();
        Self { domain, config: config.to_owned(), kinds, prefix: String::new() }
    }

    fn schema_name(&self) -> String {
        format!("{}{}", self.prefix, self.domain)
    }

    fn schema(&self) -> String {
        quoted(&self.schema_name())
    }

    fn check(&self) -> Result<()> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        // LIMIT: PostgreSQL cuts a name at 63 bytes, and two names must not become one.
        if self.prefix.bytes().all(plain) && self.schema_name().len() <= 63 {
            return Ok(());
        }
        let message = format!("`{}` cannot begin a schema's name: use lower-case letters, digits and `_`", self.prefix);
        Err(Error::Storage { domain: self.domain, message })
    }
}

/// One node's writer of one domain.
pub struct PostgresStore {
    location: PgLocation,
    env: Env,
    position: Position,
    /// `None` only between dropping the old connection and having a new one.
    link: Option<Link>,
    backend: Backend,
    streams: Streams,
    reader: PostgresReader,
    failing: Option<String>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("location", &self.location).field("position", &self.position).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Makes a new, empty domain and opens it; one that exists already is left alone and refused.
    pub fn create(location: &PgLocation, host: HostId, env: &Env) -> Result<Self> {
        location.check()?;
        let mut link = Link::open(location, &writer_name(location, host))?;
        schema::create(&mut link, location, HistoryId::from_raw(env.id()))?;
        drop(link);
        Self::open(location, host, env)
    }

    /// Opens an existing domain as one of its nodes, new or known. Refuses a newer schema, and a host that is in use.
    pub fn open(location: &PgLocation, host: HostId, env: &Env) -> Result<Self> {
        location.check()?;
        let mut link = Link::open(location, &writer_name(location, host))?;
        if !link.take_slot(location, host)? {
            return Err(Error::Storage { domain: location.domain, message: in_use(host) });
        }
        schema::open(&mut link, location, host)?;
        let backend = link.backend()?;
        let (streams, heads) = query::streams(&mut link)?;
        let position = Position::of(location.domain, host, &heads)?;
        let reader = PostgresReader::new(location.clone(), env.clone());
        let (location, env) = (location.clone(), env.clone());
        Ok(Self { location, env, position, link: Some(link), backend, streams, reader, failing: None })
    }

    #[must_use]
    pub fn location(&self) -> &PgLocation {
        &self.location
    }

    fn link(&mut self) -> Result<&mut Link> {
        let domain = self.location.domain;
        self.link.as_mut().ok_or_else(|| lost(domain))
    }

    /// Opens a transaction. A connection that was cut while it was idle is replaced: nothing was in it.
    fn begin(&mut self) -> Result<()> {
        const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
        // Once a server has been waited for in vain, each group asks for it only once.
        let tries = if self.link.is_some() { CONNECTS_MAX } else { 1 };
        if self.link().and_then(|link| link.batch(BEGIN)).is_err() {
            self.connect_again(tries)?;
            self.link()?.batch(BEGIN)?;
        }
        self.link()?.take_fault();
        Ok(())
    }

    fn run(&mut self, group: &[Commit]) -> std::result::Result<Vec<Result<Committed>>, Ending> {
        self.begin().map_err(Ending::RolledBack)?;
        let before = self.position.clone();
        let decided = self.decide(group);
        let link = self.link().map_err(Ending::Unknown)?;
        let ending = match decided {
            // INVARIANT: the statement before this one succeeded (a head, or the end of a savepoint), so the transaction is not an
            // aborted one, whose COMMIT would be a silent rollback.
            Ok(results) => match link.batch("COMMIT") {
                Ok(()) => return Ok(results),
                Err(error) => Ending::Unknown(error),
            },
            Err(error) => match (link.take_fault(), link.batch("ROLLBACK")) {
                (Some(Fault::Lost), _) | (_, Err(_)) => Ending::Unknown(error),
                (Some(Fault::Collision), Ok(())) => Ending::Collided(error),
                (Some(Fault::Statement) | None, Ok(())) => Ending::RolledBack(error),
            },
        };
        self.position = before;
        Err(ending)
    }

    /// Everything between BEGIN and COMMIT.
    fn decide(&mut self, group: &[Commit]) -> Result<Vec<Result<Committed>>> {
        let Self { location, env, position, link, streams, .. } = self;
        let link = link.as_mut().ok_or_else(|| lost(location.domain))?;
        lock::heads(link, streams, position.host)?;
        let locked = lock::group(link, location, group)?;
        // INVARIANT: read after the last lock, so that the clock covers whoever wrote a locked row last.
        let (entered, heads) = query::streams(link)?;
        *streams = entered;
        *position = Position::of(location.domain, position.host, &heads)?;
        apply::group(&mut PostgresTxn::new(link, streams, location, locked), position, env, group)
    }

    /// Replaces the connection. The slot is free only when the old server process has ended, and what that one committed is
    /// visible then; the heads' lock says the same once more. If another process has the slot now, this one is no longer the host.
    fn connect_again(&mut self, tries: u32) -> Result<()> {
        self.reader.close_idle();
        self.link = None;
        let host = self.position.host;
        let mut link = connect_patiently(&self.location, host, tries)?;
        link.end_backend(&self.backend)?;
        if !link.take_slot(&self.location, host)? {
            self.failing = Some(in_use(host));
            return Err(Error::Storage { domain: self.location.domain, message: in_use(host) });
        }
        self.backend = link.backend()?;
        link.batch("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")?;
        lock::heads(&mut link, &self.streams, host)?;
        let (streams, heads) = query::streams(&mut link)?;
        link.batch("ROLLBACK")?;
        self.position = Position::of(self.location.domain, host, &heads)?;
        self.streams = streams;
        self.link = Some(link);
        Ok(())
    }
}

/// How a group's transaction ended without results.
enum Ending {
    /// Another node was in the way; the same group can succeed.
    Collided(Error),
    RolledBack(Error),
    Unknown(Error),
}

fn writer_name(location: &PgLocation, host: HostId) -> String {
    format!("verger {} {host}", location.schema_name())
}

fn in_use(host: HostId) -> String {
    format!("another process writes as {host}")
}

fn lost(domain: Domain) -> Error {
    Error::Storage { domain, message: "the connection was lost".to_owned() }
}

fn connect_patiently(location: &PgLocation, host: HostId, tries: u32) -> Result<Link> {
    for _ in 1..tries {
        if let Ok(link) = Link::open(location, &writer_name(location, host)) {
            return Ok(link);
        }
        std::thread::sleep(Duration::from_millis(CONNECT_PAUSE_MS));
    }
    Link::open(location, &writer_name(location, host))
}

impl Store for PostgresStore {
    fn domain(&self) -> Domain {
        self.location.domain
    }

    fn host(&self) -> HostId {
        self.position.host
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.reader.clone())
    }

    fn try_group(&mut self, group: &[Commit]) -> std::result::Result<Vec<Result<Committed>>, GroupFailure> {
        for _ in 1..COLLISIONS_MAX {
            match self.run(group) {
                // A single commit runs again here; of a larger group each runs alone first.
                Err(Ending::Collided(_)) if group.len() == 1 => {}
                ended => return ended.map_err(GroupFailure::from),
            }
        }
        self.run(group).map_err(GroupFailure::from)
    }

    fn reopen(&mut self) -> Result<()> {
        self.connect_again(CONNECTS_MAX)
    }

    fn lookup(&mut self, commit: &Commit) -> Result<Option<Committed>> {
        let Self { location, link, streams, .. } = self;
        let link = link.as_mut().ok_or_else(|| lost(location.domain))?;
        let locked = Locked { operations: BTreeSet::from([commit.operation_id]), ..Locked::default() };
        apply::repeated(&mut PostgresTxn::new(link, streams, location, locked), commit)
    }

    fn witness(&mut self, witnesses: &[Witness]) -> Result<()> {
        self.begin()?;
        let link = self.link()?;
        let written = query::witnesses(link).and_then(|known| {
            let news = witnesses.iter().filter(|witness| !known.contains(witness));
            news.into_iter().try_for_each(|witness| txn::put_witness(link, witness))
        });
        match written {
            Ok(()) => link.batch("COMMIT"),
            Err(error) => {
                // A connection that cannot roll back has ended, and its transaction with it.
                link.batch("ROLLBACK").ok();
                Err(error)
            }
        }
    }

    fn failing(&mut self) -> &mut Option<String> {
        &mut self.failing
    }
}

impl From<Ending> for GroupFailure {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Collided(error) | Ending::RolledBack(error) => Self::RolledBack(error),
            Ending::Unknown(error) => Self::Unknown(error),
        }
    }
}

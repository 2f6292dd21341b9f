//! A place to commit to: the actor's handle in production, the bare store in a simulator.

use std::sync::Arc;

use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::HostId;

use crate::Result;
use crate::actor::Writer;
use crate::store::{Reader, Store};

pub trait Committer {
    fn host(&self) -> HostId;
    fn commit(&mut self, commit: Commit) -> Result<Committed>;
    fn heads(&mut self) -> Result<Vec<Head>>;
    fn reader(&self) -> Arc<dyn Reader>;
    /// Refuses guarded commits of the subject below this epoch from now on, until the process ends. Making it durable is a commit of
    /// its own; a bare store has no other caller to keep out until then.
    fn fence(&mut self, _subject: &str, _epoch: u64) {}
    /// The epoch that a subject was raised to in memory, whether or not that is durable.
    fn fenced_in_memory(&self, _subject: &str) -> u64 {
        0
    }
}

impl Committer for Writer {
    fn host(&self) -> HostId {
        Self::host(self)
    }

    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        Self::commit(self, commit)
    }

    fn heads(&mut self) -> Result<Vec<Head>> {
        Self::heads(self)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Self::reader(self)
    }

    fn fence(&mut self, subject: &str, epoch: u64) {
        Self::fence(self, subject, epoch);
    }

    fn fenced_in_memory(&self, subject: &str) -> u64 {
        Self::fenced_in_memory(self, subject)
    }
}

impl<S: Store> Committer for S {
    fn host(&self) -> HostId {
        Store::host(self)
    }

    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        let result = self.apply_group(std::slice::from_ref(&commit)).pop();
        result.expect("a group of one has one result")
    }

    fn heads(&mut self) -> Result<Vec<Head>> {
        Store::heads(self)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Store::reader(self)
    }
}

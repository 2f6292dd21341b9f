//! What happens around a group's transaction: the same for every backend.

use domain::commit::{Commit, Committed};
#[cfg(feature = "planted")]
use domain::plant::{self, Bug};

use crate::store::{GroupFailure, Store};
use crate::{Error, Result};

pub(crate) fn apply<S: Store + ?Sized>(store: &mut S, group: &[Commit]) -> Vec<Result<Committed>> {
    if let Some(message) = store.failing().clone() {
        return refuse_all(store, group, &message);
    }
    match store.try_group(group) {
        Ok(results) => results,
        #[cfg(feature = "planted")]
        Err(GroupFailure::RolledBack(_)) if group.len() == 1 && plant::is(Bug::AckBeforeCommit) => {
            vec![Ok(acknowledged(&group[0]))]
        }
        Err(GroupFailure::RolledBack(error)) if group.len() == 1 => vec![Err(error)],
        Err(GroupFailure::RolledBack(_)) => group.iter().flat_map(|commit| apply(store, std::slice::from_ref(commit))).collect(),
        Err(GroupFailure::Unknown(error)) => resolve(store, group, &error),
    }
}

#[cfg(feature = "planted")]
/// The planted mistake: the answer that left before the commit failed.
fn acknowledged(commit: &Commit) -> Committed {
    let at = domain::time::Timestamp::EPOCH;
    Committed { operation_id: commit.operation_id, at, writes: Vec::new(), repeated: false }
}

/// After an unknown commit only what a fresh connection finds durable is true.
fn resolve<S: Store + ?Sized>(store: &mut S, group: &[Commit], error: &Error) -> Vec<Result<Committed>> {
    if let Err(second) = store.reopen() {
        return give_up(store, group, &format!("{}, then on reopening: {}", cause(error), cause(&second)));
    }
    let mut results = Vec::with_capacity(group.len());
    for commit in group {
        match store.lookup(commit) {
            // Durable by this group or by an earlier one: either way the request was done, and once.
            Ok(Some(committed)) => results.push(Ok(committed)),
            Ok(None) => {
                let message = format!("{}; nothing was written", cause(error));
                results.push(Err(Error::Storage { domain: store.domain(), message }));
            }
            Err(refusal) if refusal.is_refusal() => results.push(Err(refusal)),
            Err(second) => return give_up(store, group, &format!("{}, then on looking up: {}", cause(error), cause(&second))),
        }
    }
    results
}

/// What the backend said, without our own words around it.
fn cause(error: &Error) -> String {
    match error {
        Error::Storage { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

fn give_up<S: Store + ?Sized>(store: &mut S, group: &[Commit], message: &str) -> Vec<Result<Committed>> {
    *store.failing() = Some(message.to_owned());
    let domain = store.domain();
    let unknown =
        |commit: &Commit| Err(Error::CommitUnknown { domain, operation_id: commit.operation_id, message: message.to_owned() });
    group.iter().map(unknown).collect()
}

fn refuse_all<S: Store + ?Sized>(store: &S, group: &[Commit], message: &str) -> Vec<Result<Committed>> {
    let domain = store.domain();
    group.iter().map(|_| Err(Error::Failing { domain, message: message.to_owned() })).collect()
}

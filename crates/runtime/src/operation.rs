//! Operation ids of people's acts.

use domain::causality::Domain;
use domain::entry::Actor;
use domain::id::{OperationId, PersonId};
use domain::limits::CLIENT_KEY_BYTES_MAX;
use store::env::Env;

use crate::house::House;
use crate::{Error, Result};

/// What a caller names an act by, so that repeating it is harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientKey(String);

impl ClientKey {
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > CLIENT_KEY_BYTES_MAX || text.chars().any(char::is_control) {
            let rule = format!("an operation id has 1 to {CLIENT_KEY_BYTES_MAX} bytes and no control characters");
            return Err(Error::argument("operation-id", &rule));
        }
        Ok(Self(text.to_owned()))
    }

    /// A fresh UUID.
    #[must_use]
    pub fn fresh(env: &Env) -> Self {
        let mut bytes = *env.id().as_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = domain::hash::hex(&bytes);
        Self(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the owner's act under this key.
    pub(crate) fn operation_id(&self) -> OperationId {
        OperationId::of_client(&owner(), &self.0)
    }
}

pub(crate) fn owner() -> Actor {
    Actor::Person(PersonId::owner())
}

impl House {
    /// Whether an act under this key is in a domain already; then a command must not judge the present, only repeat its answer.
    pub fn was_done(&self, domain: Domain, key: &ClientKey) -> Result<bool> {
        let operation_id = key.operation_id();
        self.read(domain, |snapshot| Ok(snapshot.outcome(&operation_id)?.is_some()))
    }
}

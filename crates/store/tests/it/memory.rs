//! The in-memory reference keeps the suite's promises.

use domain::causality::Domain;
use store::env::Env;
use store::memory::MemoryStore;

use crate::{conformance, fixtures};

#[test]
fn the_in_memory_reference_conforms() {
    conformance::all(&|_| Box::new(MemoryStore::new(Domain::Journal, fixtures::host(1), Env::seeded(1))));
}

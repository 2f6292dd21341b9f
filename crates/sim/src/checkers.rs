//! The invariants, one small file each. `effect` looks at every commit as it lands; the others look at the world between two events, or
//! when it is at rest.

pub mod effect;
pub mod flight;
pub mod promises;
pub mod rest;
pub mod runs;

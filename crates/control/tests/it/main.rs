//! `control` from the outside: what it makes of an answer, where a run goes from there, and that a recording proves it.

mod corpus;
mod dialect;
mod fuzzed;
mod journal;
mod machine;
mod replay;
mod scene;

//! Verger from the outside: the built binary, a home in a temporary folder, an empty environment, and nothing else.
//!
//! What a person or a program can see is compared whole: answers, codes, exit codes, files. How it comes about is the crates' own
//! business and tested there.

mod agents;
mod arguments;
mod budget;
mod closed;
mod crowd;
mod damage;
mod disk;
mod homes;
mod inbox;
mod kill;
mod lines;
mod logs;
mod notes;
mod runs;
mod snapshots;
mod stop;
mod support;
mod tasks;

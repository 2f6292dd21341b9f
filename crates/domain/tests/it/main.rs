//! `domain` from the outside: what it promises to other devices, other languages and hostile input.

mod fuzzed;
mod golden;
mod replay;

//! A model's answer from any bytes. The promise is in `fuzzed::proposal_json`, which the room's tests replay.
#![no_main]

#[path = "../../crates/control/tests/it/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::proposal_json(bytes));

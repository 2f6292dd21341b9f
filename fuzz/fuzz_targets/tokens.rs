//! Tokens from any bytes. The promise is in `fuzzed::tokens`, which the room's tests replay.
#![no_main]

#[expect(dead_code, reason = "the file holds the bodies of all targets of its room")]
#[path = "../../crates/domain/tests/it/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::tokens(bytes));

//! Rows of the log table from any bytes. The promise is in `fuzzed::log_rows`, which the room's tests replay.
#![no_main]

#[path = "../../crates/store/tests/it/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::log_rows(bytes));

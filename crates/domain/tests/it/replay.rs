//! The fuzzers' corpora, replayed file by file: hand-made cases and everything a fuzzer has found.

use std::path::Path;

use crate::fuzzed;

#[test]
fn canonical_json_holds_for_the_corpus() {
    replay("canonical_json", fuzzed::canonical_json);
}

#[test]
fn l6_tokens_hold_for_the_corpus() {
    replay("tokens", fuzzed::tokens);
}

/// LIMIT: no target has fewer hand-made files, so an empty or moved folder is noticed.
const FILES_MIN: usize = 30;

#[expect(clippy::disallowed_methods, reason = "the corpus is a folder that the fuzzer reads too, so it cannot be compiled in")]
fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
        let path = entry.expect("the corpus can be listed").path();
        let bytes = std::fs::read(&path).expect("the corpus can be read");
        assert!(std::panic::catch_unwind(|| body(&bytes)).is_ok(), "failed on {}", path.display());
        files += 1;
    }
    assert!(files >= FILES_MIN, "only {files} files in {}", folder.display());
}

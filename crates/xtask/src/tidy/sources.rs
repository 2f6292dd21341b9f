//! Rules that look at one source file at a time: it opens with a paragraph, it is not too long, and nothing in it
//! says "later".
//!
//! The words that mean "later" are put together from halves here, so that this file is not its own first finding.

use super::project::{Project, Source};
use super::report::{Report, Rule};

/// LIMIT: over this a file holds more than one thing; the style asks for 150 to 400.
const LINES_WARN: usize = 600;
/// LIMIT: over this nobody reads a file to its end, tests included.
const LINES_MAX: usize = 1000;

const LEFTOVERS: [&str; 7] = [
    concat!("to", "do!"),
    concat!("un", "implemented!"),
    concat!("db", "g!"),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("#[", "ignore"),
];

/// What the documentation of a crate must say about its place in the house.
const CRATE_DOC_MARKERS: [&str; 2] = ["Owns:", "Must not know:"];

pub(crate) fn check(project: &Project, report: &mut Report) {
    for source in &project.sources {
        check_module_doc(source, report);
        check_size(source, report);
        check_leftovers(source, report);
    }
    for package in &project.crates {
        check_crate_doc(project, &package.folder, report);
    }
}

fn check_module_doc(source: &Source, report: &mut Report) {
    if !source.text.starts_with("//!") {
        let message = "the file does not open with a `//!` paragraph".to_owned();
        report.problem(Rule::ModuleDocs, &source.path, 1, message);
    }
}

fn check_crate_doc(project: &Project, folder: &str, report: &mut Report) {
    let roots = ["lib.rs", "main.rs"].map(|file| format!("{folder}/src/{file}"));
    let root = roots.iter().find_map(|path| project.sources.iter().find(|source| source.path == *path));
    let Some(root) = root else {
        let message = "the crate has neither `src/lib.rs` nor `src/main.rs`".to_owned();
        report.problem(Rule::ModuleDocs, &format!("{folder}/Cargo.toml"), 1, message);
        return;
    };
    let doc = module_doc(&root.text);
    for marker in CRATE_DOC_MARKERS {
        if !doc.iter().any(|line| line.contains(marker)) {
            let message = format!("the crate's documentation lacks `{marker}`");
            report.problem(Rule::ModuleDocs, &root.path, 1, message);
        }
    }
}

fn module_doc(text: &str) -> Vec<&str> {
    text.lines().map_while(|line| line.strip_prefix("//!")).collect()
}

fn check_size(source: &Source, report: &mut Report) {
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        let message = format!("the file has {lines} lines; split it before {LINES_MAX}");
        report.problem(Rule::Sizes, &source.path, LINES_MAX + 1, message);
        return;
    }
    let lines = lines_without_tests(source);
    if lines > LINES_WARN {
        let message = format!("the file has {lines} lines without its tests; most have less than {LINES_WARN}");
        report.warning(Rule::Sizes, &source.path, LINES_WARN + 1, message);
    }
}

/// A file of tests counts nothing, any other the lines before its test module.
fn lines_without_tests(source: &Source) -> usize {
    let path = &source.path;
    if path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") {
        return 0;
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let is_test_module = |pair: &[&str]| pair == ["#[cfg(test)]", "mod tests {"];
    lines.windows(2).position(is_test_module).unwrap_or(lines.len())
}

fn check_leftovers(source: &Source, report: &mut Report) {
    for (index, line) in source.text.lines().enumerate() {
        for word in LEFTOVERS {
            if contains_word(line, word) {
                let message = format!("`{word}` was left behind");
                report.problem(Rule::Leftovers, &source.path, index + 1, message);
            }
        }
    }
}

/// Whether `word` stands in `line` and is not a part of a longer name.
fn contains_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let open = !word.starts_with(is_name) || !before.ends_with(is_name);
        let closed = !word.ends_with(is_name) || !after.starts_with(is_name);
        open && closed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_only_whole() {
        assert!(contains_word("let x = mark!(1);", "mark!"));
        assert!(contains_word("// MARK: later", "MARK"));
        assert!(contains_word("#[mark]", "#[mark"));
        assert!(contains_word("bookmark mark", "mark"));
        assert!(!contains_word("bookmark!()", "mark!"));
        assert!(!contains_word("MARKS", "MARK"));
        assert!(!contains_word("#[marked]", "#[mark"));
    }

    #[test]
    fn tests_do_not_count_towards_the_warning() {
        let source =
            |path: &str| Source { path: path.into(), text: "//! Doc.\n\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n}\n".into() };
        assert_eq!(lines_without_tests(&source("crates/a/src/lib.rs")), 4);
        assert_eq!(lines_without_tests(&source("crates/a/src/b/tests.rs")), 0);
        assert_eq!(lines_without_tests(&source("tests/main.rs")), 0);
    }
}

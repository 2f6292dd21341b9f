//! `tidy` from the outside: a small project that passes, then one broken rule at a time.
//!
//! Each test breaks one thing in a fresh project and compares all that tidy prints, so a rule that fires twice,
//! or fires for its neighbour's reason, is seen too. Cargo is the real one; the project has no dependencies but
//! its own crates, so nothing is fetched.

mod fake;

use fake::Fake;

const IN_ORDER: &str = "";

#[test]
fn a_project_that_keeps_the_rules_passes() {
    let outcome = Fake::new().tidy();
    outcome.expect(0, IN_ORDER);
    assert_eq!(outcome.stderr, "tidy: 4 source files are in order\n");
}

#[test]
fn an_edge_that_the_architecture_does_not_list_fails() {
    let fake = Fake::new();
    fake.replace("ARCHITECTURE.md", "| `store` | edge | `domain` |", "| `store` | edge | – |");
    fake.tidy().expect(1, "crates/store/Cargo.toml:6: edges: `store` uses `domain`, which ARCHITECTURE.md does not list\n");
}

#[test]
fn an_edge_or_a_room_that_exists_only_on_the_page_fails() {
    let fake = Fake::new();
    fake.replace(
        "ARCHITECTURE.md",
        "| `store` | edge | `domain` |",
        "| `store` | edge | `domain`, `cellar` |\n| `cellar` | edge | – |",
    );
    fake.tidy().expect(
        1,
        "ARCHITECTURE.md:6: edges: `store` is said to use `cellar` but does not\n\
         ARCHITECTURE.md:7: edges: there is no crate for the room `cellar`\n",
    );
}

#[test]
fn a_crate_that_is_not_a_room_fails() {
    let fake = Fake::new();
    fake.replace("ARCHITECTURE.md", "| `store` | edge | `domain` |\n", "");
    fake.tidy().expect(1, "crates/store/Cargo.toml:1: edges: the crate `store` is not a room of ARCHITECTURE.md\n");
}

#[test]
fn a_dependency_of_tests_is_free() {
    let fake = Fake::new();
    fake.append("crates/domain/Cargo.toml", "[dev-dependencies]\nstore = { path = \"../store\" }\n");
    fake.tidy().expect(0, IN_ORDER);
}

#[test]
fn a_pure_room_that_may_use_an_edge_room_fails() {
    let fake = Fake::new();
    fake.replace("ARCHITECTURE.md", "| `store` | edge | `domain` |", "| `store` | pure | `domain` |");
    fake.replace("ARCHITECTURE.md", "| `domain` | pure | – |", "| `domain` | edge | – |");
    let outcome = fake.tidy_with(&["--fix"]);
    outcome.expect(1, "ARCHITECTURE.md:6: rooms: the pure room `store` must not use the edge room `domain`\n");
}

#[test]
fn a_file_without_a_module_doc_fails() {
    let fake = Fake::new();
    fake.write("crates/store/src/shelf.rs", "pub fn shelf() {}\n");
    fake.tidy().expect(1, "crates/store/src/shelf.rs:1: module-docs: the file does not open with a `//!` paragraph\n");
}

#[test]
fn a_crate_that_does_not_say_what_it_must_not_know_fails() {
    let fake = Fake::new();
    fake.replace("crates/store/src/lib.rs", "Must not know:", "Ignores:");
    fake.tidy().expect(1, "crates/store/src/lib.rs:1: module-docs: the crate's documentation lacks `Must not know:`\n");
}

#[test]
fn a_claimed_contract_without_a_test_fails() {
    let fake = Fake::new();
    fake.append("docs/contracts.md", "| L24 | whole | nowhere |\n");
    fake.tidy().expect(1, "docs/contracts.md:6: contract-ids: `L24` is said to hold, but no test carries it in its name\n");
}

#[test]
fn a_test_whose_contract_is_not_claimed_fails() {
    let fake = Fake::new();
    fake.write("tests/more.rs", "//! More.\n\n#[test]\nfn d1_holds() {}\n\n#[test]\nfn d20_holds() {}\n");
    fake.tidy().expect(
        1,
        "tests/more.rs:4: contract-ids: a test carries `D1`, which docs/contracts.md does not list\n\
         tests/more.rs:7: contract-ids: a test carries `D20`, and there is no such contract\n",
    );
}

#[test]
fn each_kind_of_leftover_fails() {
    let words = [
        concat!("to", "do!"),
        concat!("un", "implemented!"),
        concat!("db", "g!"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("#[", "ignore"),
    ];
    let fake = Fake::new();
    for word in words {
        fake.write("tests/more.rs", &format!("//! More.\n\n// {word} ]\n"));
        let expect = format!("tests/more.rs:3: leftovers: `{word}` was left behind\n");
        fake.tidy().expect(1, &expect);
    }
}

#[test]
fn an_error_code_without_its_page_fails() {
    let fake = Fake::new();
    fake.remove("docs/errors/VERSION_CONFLICT.md");
    fake.tidy().expect(
        1,
        "crates/domain/src/code.rs:5: error-pages: the code `VERSION_CONFLICT` has no page \
         `docs/errors/VERSION_CONFLICT.md`\n",
    );
}

#[test]
fn a_page_without_its_code_or_with_another_title_fails() {
    let fake = Fake::new();
    fake.write("docs/errors/gone.md", "# gone\n");
    fake.write("docs/errors/out_of_scope.md", "# Out of scope\n");
    fake.tidy().expect(
        1,
        "docs/errors/gone.md:1: error-pages: there is no code for this page in crates/domain/src/code.rs\n\
         docs/errors/out_of_scope.md:1: error-pages: the page does not begin with `# out_of_scope`\n",
    );
}

#[test]
fn a_long_file_is_warned_about_and_a_very_long_one_fails() {
    let fake = Fake::new();
    let lines = |count: usize| "//! Long.\n".repeat(count);
    fake.write("crates/store/src/long.rs", &lines(601));
    fake.write("tests/long.rs", &lines(1000));
    fake.tidy().expect(
        0,
        "crates/store/src/long.rs:601: sizes: warning: the file has 601 lines without its tests; most have \
         less than 600\n",
    );
    fake.write("crates/store/src/long.rs", &lines(600));
    fake.write("tests/long.rs", &lines(1001));
    fake.tidy().expect(1, "tests/long.rs:1001: sizes: the file has 1001 lines; split it before 1000\n");
}

#[test]
fn a_clippy_file_that_was_changed_or_lost_fails_until_it_is_written_again() {
    let fake = Fake::new();
    fake.append("crates/domain/clippy.toml", "# softer\n");
    fake.remove("crates/store/clippy.toml");
    fake.tidy().expect(
        1,
        "crates/domain/clippy.toml:1: clippy-files: the file differs from what tidy would write; \
         `cargo xtask tidy --fix` writes it\n\
         crates/store/clippy.toml:1: clippy-files: the file is missing; `cargo xtask tidy --fix` writes it\n",
    );
    fake.tidy_with(&["--fix"]).expect(0, IN_ORDER);
    fake.tidy().expect(0, IN_ORDER);
}

#[test]
fn pure_rooms_lose_the_clock_and_edge_rooms_keep_it() {
    let fake = Fake::new();
    let clock = "std::time::SystemTime::now";
    let sqlite = "rusqlite::Connection::open";
    let (pure, edge) = (fake.read("crates/domain/clippy.toml"), fake.read("crates/store/clippy.toml"));
    assert!(pure.contains(clock) && pure.contains(sqlite) && pure.contains("HashMap"));
    assert!(!edge.contains(clock) && edge.contains(sqlite) && !edge.contains("HashMap"));
}

#[test]
fn a_wrong_command_line_and_an_unreadable_project_are_not_broken_rules() {
    let fake = Fake::new();
    let outcome = fake.xtask(&["polish"]);
    outcome.expect(2, "");
    assert_eq!(outcome.stderr, "error: there is no command `polish`\nhint: `cargo xtask --help` lists what there is\n");
    let outcome = fake.xtask(&["--help"]);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.stdout.contains("Usage: cargo xtask tidy"));

    fake.remove("Cargo.toml");
    let outcome = fake.tidy();
    outcome.expect(2, "");
    assert!(outcome.stderr.starts_with("error: `cargo metadata` failed"), "{}", outcome.stderr);
}

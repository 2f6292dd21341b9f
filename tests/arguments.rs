//! Arguments that cannot be: each gets a code and an exit code, loses nothing, and the next command works.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::support::{Home, finish};

/// A home with one note, which must be all there is after the test.
fn home() -> Home {
    let home = Home::new();
    home.add("Kept");
    home
}

fn check(arguments: &[&str], exit: i32, code: &str, says: &str) {
    let home = home();
    let answer = home.run(arguments).fails(exit, code).says(says);
    assert_eq!(answer.stdout, "", "an error is no answer");
    let with_json: Vec<_> = ["--json"].iter().chain(arguments).copied().collect();
    let error = home.run(&with_json).fails(exit, code).error();
    assert_eq!(error["code"], code, "{error:#}");
    assert!(error["message"].is_string() && error["next_step"].is_string() && error["details"].is_object(), "{error:#}");
    home.assert_works_with(&["Kept"]);
}

#[test]
fn flags_and_commands_that_do_not_exist_are_refused() {
    check(&["note", "add", "x", "--colour", "red"], 2, "invalid_argument", "--colour");
    check(&["--colour"], 2, "invalid_argument", "--colour");
    check(&["notes"], 2, "invalid_argument", "notes");
    check(&["note", "burn"], 2, "invalid_argument", "burn");
    check(&["log", "cursor", "drop"], 2, "invalid_argument", "drop");
    check(&["note", "add", "one", "two"], 2, "invalid_argument", "two");
    check(&["completions", "cmd"], 2, "invalid_argument", "cmd");
}

#[test]
fn arguments_that_are_missing_or_exclude_each_other_are_refused() {
    check(&["note", "show"], 2, "invalid_argument", "<NOTE>");
    check(&["note", "search"], 2, "invalid_argument", "<WORDS>");
    check(&["log", "cursor", "reset", "x"], 2, "invalid_argument", "--to-head");
    check(&["note", "add", "x", "--stdin"], 2, "invalid_argument", "--stdin");
    check(&["note", "add", "--text", "a", "--text-file", "b"], 2, "invalid_argument", "--text-file");
    check(&["note", "add", "--writers", "4"], 2, "invalid_argument", "--stdin");
    check(&["note", "add", "--stdin", "--writers", "0"], 2, "invalid_argument", "0");
    check(&["log", "tail", "--count", "0"], 2, "invalid_argument", "0");
    check(&["log", "tail", "--domain", "cellar"], 2, "invalid_argument", "journal, agent or ledger");
    check(&["log", "tail", "--stream", "wide"], 2, "invalid_argument", "synced or local");
}

#[test]
fn a_title_that_breaks_a_rule_is_refused() {
    check(&["note", "add", ""], 2, "invalid_argument", "the title is empty");
    check(&["note", "add", " \u{a0} "], 2, "invalid_argument", "the title is empty");
    check(&["note", "add", "two\nlines"], 2, "invalid_argument", "control character at byte 3");
    check(&["note", "add", "esc \u{1b}[2J"], 2, "invalid_argument", "control character at byte 4");
    check(&["note", "add", "del \u{7f}"], 2, "invalid_argument", "control character at byte 4");
    check(&["note", "add", "next line \u{85}"], 2, "invalid_argument", "control character");
    // Longer than an argument may be is the kernel's to refuse; this is the longest that it passes on.
    check(&["note", "add", &"x".repeat(100_000)], 2, "invalid_argument", "the title has 100000 bytes; at most 512");
    check(&["note", "add", &"ü".repeat(257)], 2, "invalid_argument", "the title has 514 bytes");
}

#[test]
fn kinds_labels_workspaces_and_operation_ids_that_break_a_rule_are_refused() {
    check(&["note", "add", "x", "--kind", "poem"], 2, "unknown_kind", "use one of note, template, document");
    check(&["note", "add", "x", "--kind", "Note"], 2, "unknown_kind", "`Note` is not a kind");
    check(&["note", "add", "x", "--kind", ""], 2, "unknown_kind", "`` is not a kind");
    check(&["note", "add", "x", "--label", "two words"], 2, "invalid_argument", "label: ");
    check(&["note", "add", "x", "--label", &"x".repeat(65)], 2, "invalid_argument", "label: ");
    check(&["note", "add", "x", "--workspace", "attic"], 3, "WORKSPACE_NOT_FOUND", "`attic`");
    check(&["note", "list", "--workspace", "../etc"], 2, "invalid_argument", "workspace: ");
    check(&["note", "add", "x", "--operation-id", ""], 2, "invalid_argument", "operation-id: ");
    check(&["note", "add", "x", "--operation-id", &"x".repeat(201)], 2, "invalid_argument", "1 to 200 bytes");
    check(&["note", "add", "x", "--operation-id", "a\tb"], 2, "invalid_argument", "no control characters");
    let many: Vec<_> = (0..65).map(|n| format!("--label=l{n}")).collect();
    let arguments: Vec<_> = ["note", "add", "x"].into_iter().chain(many.iter().map(String::as_str)).collect();
    check(&arguments, 2, "invalid_argument", "at most 64 labels");
}

#[test]
fn ids_pages_and_places_that_do_not_exist_are_refused() {
    let unknown = "note_0000000000000000000000000a";
    check(&["note", "show", unknown], 3, "NOTE_NOT_FOUND", unknown);
    check(&["note", "edit", unknown, "--title", "x"], 3, "NOTE_NOT_FOUND", unknown);
    check(&["note", "rm", unknown], 3, "NOTE_NOT_FOUND", unknown);
    check(&["note", "restore", unknown], 3, "NOTE_NOT_FOUND", unknown);
    check(&["note", "show", "12"], 2, "invalid_argument", "is not a note id");
    check(&["note", "show", "ws_0000000000000000000000000a"], 2, "invalid_argument", "is not a note id");
    check(&["note", "edit", unknown], 2, "invalid_argument", "nothing to change");
    check(&["note", "edit", unknown, "--title", "x", "--version", "-1"], 2, "invalid_argument", "-1");
    check(&["note", "list", "--limit", "0"], 2, "invalid_argument", "1 to 1000");
    check(&["note", "list", "--limit", "1001"], 2, "invalid_argument", "1 to 1000");
    check(&["note", "list", "--after", "yesterday"], 2, "invalid_argument", "after: ");
    check(&["note", "search", "?!"], 2, "invalid_argument", "at least one word");
    check(&["note", "search", &"word ".repeat(300)], 2, "invalid_argument", "at most 1024 bytes");
    check(&["log", "show", "99"], 3, "entry_not_found", "there is no entry 99");
    check(&["log", "show", "0"], 3, "entry_not_found", "there is no entry 0");
    check(&["log", "show", "18446744073709551615"], 3, "entry_not_found", "18446744073709551615");
    check(&["log", "show", "18446744073709551616"], 2, "invalid_argument", "18446744073709551616");
    check(&["log", "cursor", "reset", "nobody", "--to-head"], 3, "cursor_not_found", "`nobody`");
}

#[test]
fn texts_that_break_a_rule_are_refused() {
    let home = home();
    let check = |name: &str, content: &[u8], says: &str| {
        let file = home.file(name, content);
        home.run(&["note", "add", "x", "--text-file", &file]).fails(2, "invalid_argument").says(says);
        home.feed(&["note", "add", "x", "--text-file", "-"], content).fails(2, "invalid_argument").says(says);
    };
    check("big", &b"x".repeat(10 << 20), "a text has at most 1048576 bytes, and this is longer");
    check("nul", b"nul \0", "the text holds a NUL character at byte 4");
    check("latin-1", b"caf\xe9", "not UTF-8");
    // Cut by the limit in the middle of a character, it is still too long and not badly written.
    check("cut", "ü".repeat(10 << 20).as_bytes(), "a text has at most 1048576 bytes, and this is longer");
    let folder = home.path().display().to_string();
    home.run(&["note", "add", "x", "--text-file", &folder]).fails(2, "invalid_argument").says("Is a directory");
    home.run(&["note", "add", "x", "--text-file", "/nowhere"]).fails(2, "invalid_argument").says("No such file");
    home.assert_works_with(&["Kept"]);
}

#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    let home = home();
    let bad = OsStr::from_bytes(b"caf\xe9");
    let check = |arguments: &[&OsStr]| {
        let answer = finish(home.command().arg("--json").args(arguments), b"").fails(2, "invalid_argument");
        assert_eq!(answer.error()["code"], "invalid_argument");
    };
    let words = |words: &[&'static str]| words.iter().map(|word| OsStr::new(*word)).collect::<Vec<_>>();
    check(&[words(&["note", "add"]), vec![bad]].concat());
    check(&[words(&["note", "add", "x", "--label"]), vec![bad]].concat());
    check(&[words(&["note", "search"]), vec![bad]].concat());
    check(&[words(&["note", "show"]), vec![bad]].concat());
    check(&[bad]);
    // A file's name is the file system's business and need not be text.
    let path = home.beside("x").with_file_name(bad);
    std::fs::write(&path, "a text").expect("the test's own folder can be written");
    let id = {
        let command = &mut home.command();
        let answer = finish(command.args(["--json", "note", "add", "From a file", "--text-file"]).arg(&path), b"").ok();
        answer.document("verger.note-written.v1")["id"].as_str().expect("an id is a text").to_owned()
    };
    assert_eq!(home.json("verger.note.v1", &["note", "show", &id])["text"], "a text");
    home.assert_works_with(&["From a file", "Kept"]);
}

#[test]
fn an_error_says_who_can_put_it_right_and_how() {
    let home = home();
    let answer = home.run(&["--json", "note", "add", "x", "--kind", "poem", "--operation-id", "mine"]).fails(2, "unknown_kind");
    let message =
        "`poem` is not a kind of note; use one of note, template, document, meeting, summary, settings, media_image, media_video";
    let next_step = "use one of the kinds that the message lists";
    let expected = json!({
        "code": "unknown_kind", "message": message, "next_step": next_step, "fixer": "caller", "details": { "argument": "kind" },
    });
    assert_eq!(answer.error(), expected);
    assert_eq!(answer.stderr, format!("operation mine\nerror[unknown_kind]: {message}\n  next: {next_step}\n"));
}

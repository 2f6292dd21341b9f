//! Several processes at one home: one writes, the others wait outside or read.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use serde_json::json;

use crate::support::{Answer, Home, line, list, parsed, start, text};

/// A `note add --stdin` that holds its home until it is told to end.
struct Writer {
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    /// Starts it and waits until it has written its first note: from then on the home is its own.
    fn start(home: &Home, operation_id: &str, title: &str) -> Self {
        let mut child = start(home.command().args(["note", "add", "--stdin"]));
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut writer = Self { child, stdin, answers: BufReader::new(stdout).lines() };
        writer.add(operation_id, title);
        writer
    }

    fn add(&mut self, operation_id: &str, title: &str) {
        self.stdin.write_all(line(operation_id, title).as_bytes()).expect("the writer reads its lines");
        let answer = self.answers.next().expect("the writer answers each line").expect("the answer can be read");
        assert_eq!(parsed(&answer)["ok"], true, "{answer}");
    }

    fn end(self) -> Answer {
        drop(self.answers);
        crate::support::end(self.child, self.stdin)
    }
}

#[test]
fn a_second_writer_is_told_who_has_the_home() {
    let home = Home::new();
    let mut writer = Writer::start(&home, "a", "A");
    let pid = writer.child.id();
    let id = home.all_notes(1)[0]["id"].clone();
    let id = id.as_str().expect("an id is a text");
    let ways: [&[&str]; 7] = [
        &["note", "add", "x"],
        &["note", "add", "--stdin"],
        &["note", "edit", id, "--title", "x"],
        &["note", "rm", id],
        &["log", "rebuild"],
        &["log", "cursor", "reset", "x", "--to-head"],
        &["init"],
    ];
    for way in ways {
        home.run(way).fails(6, "home_locked").says(&format!("is in use by process {pid}"));
    }
    let error = home.run(&["--json", "note", "add", "x"]).fails(6, "home_locked").error();
    assert_eq!(error["details"], json!({ "home": home.path(), "pid": pid }));
    writer.add("b", "B");
    writer.end().ok().says("2 added, 0 refused");
    home.assert_works_with(&["B", "A"]);
}

#[test]
fn reading_needs_no_lock_and_sees_what_is_durable() {
    let home = Home::new();
    home.add("Before");
    let mut writer = Writer::start(&home, "a", "During");
    assert_eq!(home.titles(10), ["During", "Before"]);
    for n in 1..=20 {
        writer.add(&format!("n-{n}"), &format!("Number {n}"));
        let newest = home.json("verger.notes.v1", &["note", "list", "--limit", "1"]);
        assert_eq!(newest["total"], n + 2);
        assert_eq!(list(&newest, "notes")[0]["title"], format!("Number {n}"));
    }
    let newest = home.all_notes(1_000)[0].clone();
    let id = text(&newest, "id");
    assert_eq!(home.json("verger.note.v1", &["note", "show", id])["title"], "Number 20");
    let found = home.json("verger.note-search.v1", &["note", "search", "during"]);
    assert_eq!(list(&found, "notes").len(), 1);
    assert_eq!(list(&home.json("verger.note-history.v1", &["note", "history", id]), "versions").len(), 1);
    assert_eq!(list(&home.json("verger.log-entries.v1", &["log", "tail", "--count", "100"]), "entries").len(), 23);
    home.json("verger.log-entry.v1", &["log", "show", "23"]);
    home.json("verger.log-cursors.v1", &["log", "cursor", "list"]);
    home.assert_sound();
    writer.end().ok();
    home.assert_sound();
    assert_eq!(home.all_notes(1_000).len(), 22);
}

#[test]
fn a_lock_ends_with_its_process_however_that_ends() {
    let home = Home::new();
    let mut writer = Writer::start(&home, "a", "A");
    writer.child.kill().expect("our own child can be killed");
    writer.child.wait().expect("our own child can be waited for");
    let left = std::fs::read_to_string(home.path().join("run/lock")).expect("the lock can be read");
    assert_eq!(left.trim(), writer.child.id().to_string(), "the name of the dead is still on the door");
    home.assert_works_with(&["A"]);
}

//! Notes one by one: write, read, change, take away, bring back, find; for programs and for people.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::{Answer, Home, list, text};

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    i64::try_from(since.as_millis()).expect("the clock is before the year 292 million")
}

/// Milliseconds of `2026-11-15T09:30:00.000Z`.
fn ms_of(instant: &str) -> i64 {
    let number = |from: usize, to: usize| instant[from..to].parse::<i64>().unwrap_or_else(|_| panic!("`{instant}` is an instant"));
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    // Years that begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    (((days * 24 + number(11, 13)) * 60 + number(14, 16)) * 60 + number(17, 19)) * 1_000 + number(20, 23)
}

fn note(home: &Home, id: &str) -> Value {
    home.json("verger.note.v1", &["note", "show", id])
}

/// What a note says, without its instants.
fn content(note: &Value) -> Value {
    json!([note["title"], note["text"], note["kind"], note["labels"], note["version"]])
}

fn found(home: &Home, words: &[&str]) -> Vec<String> {
    let arguments: Vec<_> = ["note", "search"].iter().chain(words).copied().collect();
    let document = home.json("verger.note-search.v1", &arguments);
    assert_eq!(document["words"], words.join(" "));
    list(&document, "notes").iter().map(|note| text(note, "title").to_owned()).collect()
}

#[test]
fn k13_a_note_without_a_title_gets_the_current_datetime() {
    let home = Home::new();
    let before = now_ms();
    let written = home.json("verger.note-written.v1", &["note", "add", "--text", "no title", "--label", "inbox"]);
    let after = now_ms();
    let note = note(&home, text(&written, "id"));
    let created_at = text(&note, "created_at");
    assert!((before..=after).contains(&ms_of(created_at)), "{created_at} is not now");
    assert_eq!(note["title"], created_at[..19].replace('T', " "));
    assert_eq!(note["labels"], json!(["inbox"]));
    let line = home.feed(&["note", "add", "--stdin"], b"{\"operation_id\":\"untitled\"}\n").ok();
    let note = self::note(&home, text(&line.lines()[0], "id"));
    assert_eq!(note["title"], text(&note, "created_at")[..19].replace('T', " "));
}

#[test]
fn k23_a_note_is_written_read_changed_taken_away_and_brought_back() {
    let home = Home::new();
    let added = home.json(
        "verger.note-written.v1",
        &["note", "add", "Plan", "--text", "first", "--kind", "meeting", "--label", "b", "--label", "a", "--label", "b"],
    );
    let id = text(&added, "id");
    assert_eq!((&added["version"], &added["repeated"]), (&json!(1), &json!(false)));
    assert_eq!(content(&note(&home, id)), json!(["Plan", "first", "meeting", ["a", "b"], 1]));

    let changed = home.json("verger.note-written.v1", &["note", "edit", id, "--title", "Plan B", "--version", "1"]);
    assert_eq!((&changed["id"], &changed["version"]), (&json!(id), &json!(2)));
    assert_eq!(content(&note(&home, id)), json!(["Plan B", "first", "meeting", ["a", "b"], 2]));
    home.json("verger.note-written.v1", &["note", "edit", id, "--no-labels", "--kind", "document", "--text", ""]);
    assert_eq!(content(&note(&home, id)), json!(["Plan B", "", "document", [], 3]));

    home.json("verger.note-written.v1", &["note", "rm", id, "--version", "3"]);
    home.run(&["note", "show", id]).fails(3, "NOTE_NOT_FOUND").says("was deleted");
    home.run(&["note", "edit", id, "--title", "too late"]).fails(3, "NOTE_NOT_FOUND");
    assert_eq!(home.titles(10), [""; 0]);
    home.json("verger.note-written.v1", &["note", "restore", id]);
    assert_eq!(content(&note(&home, id)), json!(["Plan B", "", "document", [], 5]));
    home.json("verger.note-written.v1", &["note", "restore", id, "--to-version", "1"]);
    assert_eq!(content(&note(&home, id)), json!(["Plan", "first", "meeting", ["a", "b"], 6]));
    home.run(&["note", "restore", id, "--to-version", "4"]).fails(2, "invalid_argument").says("has no text to bring back");
    home.run(&["note", "restore", id, "--to-version", "99"]).fails(2, "invalid_argument");
}

#[test]
fn k23_every_version_of_a_note_is_in_its_history_newest_first() {
    let home = Home::new();
    let id = home.add("One");
    home.run(&["note", "edit", &id, "--title", "Two"]).ok();
    home.run(&["note", "rm", &id]).ok();
    home.run(&["note", "restore", &id]).ok();
    let document = home.json("verger.note-history.v1", &["note", "history", &id]);
    assert_eq!(document["id"], id);
    let versions: Vec<_> = list(&document, "versions")
        .iter()
        .map(|version| json!([version["version"], version["op"], version["note"]["title"]]))
        .collect();
    assert_eq!(json!(versions), json!([[4, "put", "Two"], [3, "tombstone", null], [2, "put", "Two"], [1, "put", "One"]]));
    let people: Vec<_> = list(&document, "versions").iter().map(|version| text(version, "actor")).collect();
    assert!(people.iter().all(|actor| actor.starts_with("person_")), "{people:?}");
    let unknown = "note_0000000000000000000000000a";
    home.run(&["note", "history", unknown]).fails(3, "NOTE_NOT_FOUND");
}

#[test]
fn k23_each_change_is_an_event_of_the_workspace() {
    let home = Home::new();
    let id = home.add("One");
    home.run(&["note", "edit", &id, "--title", "Two"]).ok();
    home.run(&["note", "rm", &id]).ok();
    let document = home.json("verger.log-entries.v1", &["log", "tail"]);
    let workspace = &list(&document, "entries")[0]["id"];
    let events: Vec<_> = list(&document, "entries")[1..]
        .iter()
        .map(|entry| {
            json!([entry["counter"], entry["workspace"], entry["id"], entry["op"], entry["version"], entry["body"]["title"]])
        })
        .collect();
    assert_eq!(
        json!(events),
        json!([[2, workspace, id, "put", 1, "One"], [3, workspace, id, "put", 2, "Two"], [4, workspace, id, "tombstone", 3, null]])
    );
}

#[test]
fn k14_a_change_of_a_version_that_was_overtaken_is_refused_and_changes_nothing() {
    let home = Home::new();
    let id = home.add("One");
    home.run(&["note", "edit", &id, "--title", "Two", "--version", "1"]).ok();
    let before = note(&home, &id);
    let check = |arguments: &[&str], expected: u64| {
        let answer = home.run(arguments).fails(4, "VERSION_CONFLICT");
        let error = answer.says("read the record again").error();
        assert_eq!(error["code"], "VERSION_CONFLICT");
        let details = json!({ "kind": "note", "id": id, "expected_version": expected, "current_version": 2, "deleted": false });
        assert_eq!(error["details"], details);
        assert_eq!(note(&home, &id), before, "nothing changed");
    };
    check(&["--json", "note", "edit", &id, "--title", "Lost", "--version", "1"], 1);
    check(&["--json", "note", "edit", &id, "--title", "Lost", "--version", "7"], 7);
    check(&["--json", "note", "rm", &id, "--version", "1"], 1);
    home.run(&["note", "edit", &id, "--title", "Lost", "--version", "1"]).fails(4, "VERSION_CONFLICT").says("is at version 2");
    home.run(&["note", "edit", &id, "--title", "Three", "--version", "2"]).ok();
    home.assert_works_with(&["Three"]);
}

#[test]
fn k14_a_change_of_a_deleted_note_says_that_it_was_deleted() {
    let home = Home::new();
    let id = home.add("One");
    home.run(&["note", "rm", &id, "--version", "1"]).ok();
    let error = home.run(&["--json", "note", "rm", &id, "--version", "1"]).fails(4, "VERSION_CONFLICT").error();
    let details = json!({ "kind": "note", "id": id, "expected_version": 1, "current_version": 2, "deleted": true });
    assert_eq!(error["details"], details);
    home.run(&["note", "restore", &id]).ok();
    home.assert_works_with(&["One"]);
}

/// Twice the same request under one operation id, then another request under it.
fn check_repeat(home: &Home, again: &[&str], other: &[&str]) -> Answer {
    let first = home.json("verger.note-written.v1", again);
    let second = home.json("verger.note-written.v1", again);
    assert_eq!(first["repeated"], false, "{again:?}");
    assert_eq!(second["repeated"], true, "{again:?}");
    for field in ["id", "version", "operation_id"] {
        assert_eq!(first[field], second[field], "{again:?}: the same answer");
    }
    let other: Vec<_> = ["--json"].iter().chain(other).copied().collect();
    home.run(&other).fails(4, "operation_id_reused").says("use a fresh operation id")
}

#[test]
fn a_repeated_operation_gives_the_first_answer_and_a_different_one_is_refused() {
    let home = Home::new();
    let id = home.add("Base");
    let id = id.as_str();
    check_repeat(&home, &["note", "add", "A", "--operation-id", "add"], &["note", "add", "B", "--operation-id", "add"]);
    // The title is the time of the first try; asking again must not compare it with the time of the second.
    check_repeat(&home, &["note", "add", "--operation-id", "now"], &["note", "add", "--text", "x", "--operation-id", "now"]);
    let edit = ["note", "edit", id, "--title", "Base 2", "--version", "1", "--operation-id", "edit"];
    check_repeat(&home, &edit, &["note", "edit", id, "--title", "Base 3", "--version", "1", "--operation-id", "edit"]);
    check_repeat(&home, &["note", "rm", id, "--operation-id", "rm"], &["note", "rm", id, "--version", "2", "--operation-id", "rm"]);
    // Both repeats find the note changed, deleted even, since they were first asked.
    assert_eq!(home.json("verger.note-written.v1", &edit)["repeated"], true);
    let restore = ["note", "restore", id, "--operation-id", "restore"];
    check_repeat(&home, &restore, &["note", "restore", id, "--to-version", "1", "--operation-id", "restore"]);
    let error =
        check_repeat(&home, &["note", "add", "C", "--operation-id", "c"], &["note", "rm", id, "--operation-id", "c"]).error();
    assert!(text(&error["details"], "operation_id").starts_with("op_"), "{error}");
    let mut titles = home.titles(10);
    titles.retain(|title| !title.starts_with("20"));
    assert_eq!(titles, ["C", "Base 2", "A"]);
    assert_eq!(home.all_notes(10).len(), 4);
}

#[test]
fn k23_pages_cover_every_note_once_newest_change_first() {
    let home = Home::new();
    let input: String = (0..25).map(|n| crate::support::line(&format!("op-{n}"), &format!("note {n:02}"))).collect();
    home.feed(&["note", "add", "--stdin"], input.as_bytes()).ok();
    let whole = home.all_notes(1_000);
    for page in [1, 4, 5, 24, 25, 26] {
        assert_eq!(home.all_notes(page), whole, "pages of {page}");
    }
    let key = |note: &Value| (text(note, "updated_at").to_owned(), text(note, "id").to_owned());
    assert!(whole.windows(2).all(|pair| key(&pair[0]) > key(&pair[1])), "newest change first, then by id");
    let mut titles = home.titles(7);
    titles.sort();
    assert_eq!(titles, (0..25).map(|n| format!("note {n:02}")).collect::<Vec<_>>());
    let oldest = text(&whole[24], "id");
    home.run(&["note", "edit", oldest, "--label", "touched"]).ok();
    assert_eq!(home.all_notes(3)[0]["id"], oldest, "a change brings a note to the front");
    home.run(&["note", "list", "--limit", "3"]).ok().says("3 of 25; more with --after ");
}

#[test]
fn k23_a_search_finds_all_words_best_first_and_always_in_the_same_order() {
    let home = Home::new();
    for n in 1..=5 {
        home.run(&["note", "add", &format!("Pear {n}"), "--text", "Birnen für den Kuchen"]).ok();
    }
    home.run(&["note", "add", "Pear pear pear", "--text", "pear"]).ok();
    home.run(&["note", "add", "Apple", "--text", "no such fruit"]).ok();
    let expected = ["Pear pear pear", "Pear 5", "Pear 4", "Pear 3", "Pear 2", "Pear 1"];
    assert_eq!(found(&home, &["pear"]), expected);
    assert_eq!(found(&home, &["pear"]), expected);
    assert_eq!(found(&home, &["PEAR", "kuchen"]), expected[1..]);
    assert_eq!(found(&home, &["fur"]), expected[1..], "marks over letters do not matter");
    assert_eq!(found(&home, &["pear", "apple"]), [""; 0]);
    let few = home.json("verger.note-search.v1", &["note", "search", "pear", "--limit", "2"]);
    let few: Vec<_> = list(&few, "notes").iter().map(|note| text(note, "title")).collect();
    assert_eq!(few, expected[..2]);
    home.run(&["log", "rebuild"]).ok();
    assert_eq!(found(&home, &["pear"]), expected, "a rebuild does not change the order");
}

#[test]
fn k23_a_search_follows_changes_and_takes_nothing_for_syntax() {
    let home = Home::new();
    let id = home.add("Quince");
    assert_eq!(found(&home, &["quince"]), ["Quince"]);
    home.run(&["note", "edit", &id, "--title", "Medlar"]).ok();
    assert_eq!(found(&home, &["quince"]), [""; 0]);
    assert_eq!(found(&home, &["medlar"]), ["Medlar"]);
    for odd in
        ["medlar*", "\"medlar", "title:medlar", "(medlar", "-medlar", "medlar OR", "medlar NOT x", "NEAR(medlar)", "medlar'; DROP"]
    {
        home.run(&["note", "search", "--", odd]).ok();
    }
    assert_eq!(found(&home, &["medlar AND medlar"]), [""; 0], "`AND` is a word");
    home.run(&["note", "rm", &id]).ok();
    assert_eq!(found(&home, &["medlar"]), [""; 0]);
    home.run(&["note", "restore", &id]).ok();
    assert_eq!(found(&home, &["medlar"]), ["Medlar"]);
    home.run(&["note", "search", "nothing"]).ok().shows("no note holds `nothing`");
}

#[test]
fn people_are_told_what_was_done_and_under_which_operation() {
    let home = Home::new();
    let answer = home.run(&["note", "add", "Hello", "--operation-id", "mine"]).ok().says("operation mine\n");
    let id = home.all_notes(1)[0]["id"].clone();
    let id = id.as_str().expect("an id is a text");
    assert_eq!(answer.stdout, format!("added {id} at version 1\n"));
    let again = home.run(&["note", "add", "Hello", "--operation-id", "mine"]).ok();
    assert_eq!(again.stdout, format!("added {id} at version 1 (it had been done before)\n"));
    assert_eq!(home.run(&["note", "edit", id, "--text", "x"]).ok().stdout, format!("changed {id} at version 2\n"));
    assert_eq!(home.run(&["note", "rm", id]).ok().stdout, format!("deleted {id} at version 3\n"));
    assert_eq!(home.run(&["note", "list"]).ok().stdout, "no notes here yet\n");
    assert_eq!(home.run(&["note", "restore", id]).ok().stdout, format!("restored {id} at version 4\n"));
}

#[test]
fn what_a_note_holds_cannot_drive_the_terminal() {
    let home = Home::new();
    let text_file = home.file("text", "red \u{1b}[31malert\u{1b}[0m \u{7}\u{202e}olleh\ttab\nline".as_bytes());
    let added = home.json("verger.note-written.v1", &["note", "add", "Esc \u{202e}", "--text-file", &text_file]);
    let id = text(&added, "id");
    for arguments in [&["note", "show", id][..], &["note", "list"], &["note", "history", id], &["log", "show", "2"]] {
        let shown = home.run(arguments).ok().stdout;
        let driven = |character: char| character == '\u{1b}' || character == '\u{7}' || character == '\u{202e}';
        assert!(!shown.contains(driven), "{arguments:?}: {shown:?}");
    }
    home.run(&["note", "show", id]).ok().shows("\ttab\nline");
    let kept = note(&home, id);
    assert_eq!(kept["text"], "red \u{1b}[31malert\u{1b}[0m \u{7}\u{202e}olleh\ttab\nline", "it is kept as it was written");
}

#[test]
fn the_longest_title_and_text_are_kept_whole() {
    let home = Home::new();
    let title = "ü".repeat(256);
    // A quote and a control character are the longest when escaped.
    let body = "\"\u{1}".repeat(1 << 19);
    let text_file = home.file("text", body.as_bytes());
    let added = home.json("verger.note-written.v1", &["note", "add", &title, "--text-file", &text_file]);
    let kept = note(&home, text(&added, "id"));
    assert_eq!(kept["title"], title);
    assert!(kept["text"] == body.as_str(), "the text is kept whole");
    let from_stdin = home.feed(&["--json", "note", "add", "From stdin", "--text-file", "-"], body.as_bytes()).ok();
    let kept = note(&home, text(&from_stdin.document("verger.note-written.v1"), "id"));
    assert!(kept["text"] == body.as_str(), "the text is kept whole");
    let line = json!({ "operation_id": "long", "title": title, "text": body }).to_string();
    home.feed(&["note", "add", "--stdin"], line.as_bytes()).ok();
    home.assert_sound();
}

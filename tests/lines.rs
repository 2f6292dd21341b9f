//! Notes line by line: `note add --stdin`, a line in and a line out when it is durable.

use serde_json::{Value, json};

use crate::support::{Answer, Home, line, text};

/// Answers come in the order in which they became durable; a test wants them in the order of the lines.
fn by_line(answer: &Answer) -> Vec<Value> {
    let mut lines = answer.lines();
    lines.sort_by_key(|line| line["line"].as_u64());
    lines
}

/// `[line, ok, operation_id, code or repeated]` of each answer.
fn summary(answer: &Answer) -> Value {
    let short = |line: &Value| {
        let verdict = if line["ok"] == true { &line["repeated"] } else { &line["error"]["code"] };
        json!([line["line"], line["ok"], line["operation_id"], verdict])
    };
    by_line(answer).iter().map(short).collect()
}

fn send(home: &Home, lines: &[&str]) -> Answer {
    home.feed(&["note", "add", "--stdin"], lines.join("\n").as_bytes())
}

#[test]
fn every_line_is_answered_once_with_its_operation_id() {
    let home = Home::new();
    let input: String = (1..=200).map(|n| line(&format!("op-{n}"), &format!("title {n}"))).collect();
    for writers in ["1", "16"] {
        let answer = home.feed(&["note", "add", "--stdin", "--writers", writers], input.as_bytes()).ok();
        let again = writers == "16";
        let expected: Vec<_> = (1..=200).map(|n| json!([n, true, format!("op-{n}"), again])).collect();
        assert_eq!(summary(&answer), json!(expected), "{writers} writers");
        let summary = if again { "0 added, 200 had been done before, 0 refused\n" } else { "200 added, 0 refused\n" };
        assert_eq!(answer.stderr, summary);
    }
    let mut titles = home.titles(1_000);
    titles.sort_by_key(|title| title[6..].parse::<u32>().ok());
    assert_eq!(titles, (1..=200).map(|n| format!("title {n}")).collect::<Vec<_>>());
}

#[test]
fn a_line_that_is_refused_says_why_and_the_others_are_kept() {
    let home = Home::new();
    let lines = [
        r#"{"operation_id":"a","title":"A","text":"t","kind":"meeting","labels":["x"]}"#,
        r#"{"operation_id":"b","title":"B""#,
        r#"{"operation_id":"c","title":"C","colour":"red"}"#,
        r#"{"operation_id":"d","title":"D","kind":"poem"}"#,
        r#"{"title":"no operation id"}"#,
        r#"{"operation_id":"","title":"E"}"#,
        r#"{"operation_id":"f","title":"  "}"#,
        r#"{"operation_id":"g","title":"G","labels":["Not A Label"]}"#,
        r#"{"operation_id":"h","title":"H","text":"nul \u0000"}"#,
        r#"{"operation_id":"i","title":"line\nbreak"}"#,
        r#"["operation_id","j"]"#,
        r#"{"operation_id":"k","title":7}"#,
        r#"{"operation_id":"l","title":"L","title":"twice"}"#,
        r#"{"operation_id":"m","title":"\ud800"}"#,
        r#"{"operation_id":"n","title":"N"}"#,
    ];
    let answer = send(&home, &lines);
    assert_eq!(answer.code, Some(5), "{answer:#?}");
    let bad = "invalid_argument";
    assert_eq!(
        summary(&answer),
        json!([
            [1, true, "a", false],
            [2, false, null, bad],
            [3, false, null, bad],
            [4, false, "d", "unknown_kind"],
            [5, false, null, bad],
            [6, false, "", bad],
            [7, false, "f", bad],
            [8, false, "g", bad],
            [9, false, "h", bad],
            [10, false, "i", bad],
            [11, false, null, bad],
            [12, false, null, bad],
            [13, false, null, bad],
            [14, false, null, bad],
            [15, true, "n", false]
        ])
    );
    assert_eq!(answer.stderr, "2 added, 13 refused\n");
    let refused = by_line(&answer);
    assert!(text(&refused[2]["error"], "message").contains("unknown field `colour`"), "{}", refused[2]);
    assert!(text(&refused[3]["error"], "message").contains("media_image"), "the kinds are listed: {}", refused[3]);
    assert_eq!(refused[6]["error"]["details"], json!({ "argument": "title" }));
    let mut titles = home.titles(10);
    titles.sort();
    assert_eq!(titles, ["A", "N"]);
    home.assert_sound();
}

#[test]
fn blank_lines_are_passed_over_and_counted() {
    let home = Home::new();
    let answer = send(&home, &["", r#"{"operation_id":"a"}"#, "  \t", "\r", r#"{"operation_id":"b"}"#]).ok();
    assert_eq!(summary(&answer), json!([[2, true, "a", false], [5, true, "b", false]]));
    let nothing = home.feed(&["note", "add", "--stdin"], b"").ok();
    assert_eq!((nothing.stdout.as_str(), nothing.stderr.as_str()), ("", "0 added, 0 refused\n"));
    assert_eq!(home.all_notes(10).len(), 2);
}

#[test]
fn an_operation_id_twice_in_one_input_is_one_note_or_a_refusal() {
    let home = Home::new();
    let same = r#"{"operation_id":"a","title":"A"}"#;
    let other = r#"{"operation_id":"a","title":"B"}"#;
    let answer = home.feed(&["note", "add", "--stdin", "--writers", "1"], [same, same, other].join("\n").as_bytes());
    assert_eq!(answer.code, Some(5), "{answer:#?}");
    assert_eq!(summary(&answer), json!([[1, true, "a", false], [2, true, "a", true], [3, false, "a", "operation_id_reused"]]));
    assert_eq!(home.titles(10), ["A"]);
    // At once from many writers: whoever is first, there is one note and one answer that is not a repeat.
    let many: String = (0..64).map(|_| line("m", "M")).collect();
    let answer = home.feed(&["note", "add", "--stdin", "--writers", "32"], many.as_bytes()).ok();
    assert_eq!(answer.lines().iter().filter(|line| line["repeated"] == false).count(), 1, "{answer:#?}");
    assert_eq!(answer.lines().len(), 64);
    assert_eq!(home.titles(10), ["M", "A"]);
}

#[test]
fn a_line_and_a_command_share_their_operation_ids() {
    let home = Home::new();
    let added = home.json("verger.note-written.v1", &["note", "add", "A", "--operation-id", "a"]);
    let answer = send(&home, &[r#"{"operation_id":"a","title":"A"}"#]).ok();
    assert_eq!(by_line(&answer)[0]["id"], added["id"]);
    assert_eq!(by_line(&answer)[0]["repeated"], true);
}

#[test]
fn a_long_title_in_a_line_is_refused_and_a_line_without_end_stops_the_reading() {
    let home = Home::new();
    let (before, after) = (line("before", "Before"), line("after", "After"));
    let long = line("long", &"x".repeat(5 << 20));
    let answer = home.feed(&["note", "add", "--stdin"], format!("{before}{long}{after}").as_bytes());
    assert_eq!(answer.code, Some(5), "{answer:#?}");
    assert_eq!(
        summary(&answer),
        json!([[1, true, "before", false], [2, false, "long", "invalid_argument"], [3, true, "after", false]])
    );
    let message = text(&by_line(&answer)[1]["error"], "message").to_owned();
    assert_eq!(message, "the title has 5242880 bytes; at most 512 are allowed");
    let endless = line("endless", &"x".repeat(10 << 20));
    let more = line("more", "More");
    let answer = home.feed(&["note", "add", "--stdin"], format!("{more}{endless}{after}").as_bytes());
    let answer = answer.fails(2, "invalid_argument").says("line 2 is longer than 8388608 bytes; nothing after it was read");
    assert_eq!(summary(&answer), json!([[1, true, "more", false]]));
    let mut titles = home.titles(10);
    titles.sort();
    assert_eq!(titles, ["After", "Before", "More"]);
    home.assert_sound();
}

#[test]
fn a_line_that_is_not_utf_8_is_refused() {
    let home = Home::new();
    let mut input = b"{\"operation_id\":\"a\",\"title\":\"\xff\xfe\"}\n\0\0\0\n".to_vec();
    input.extend_from_slice(line("b", "B").as_bytes());
    let answer = home.feed(&["note", "add", "--stdin"], &input);
    assert_eq!(answer.code, Some(5), "{answer:#?}");
    assert_eq!(
        summary(&answer),
        json!([[1, false, null, "invalid_argument"], [2, false, null, "invalid_argument"], [3, true, "b", false]])
    );
    home.assert_works_with(&["B"]);
}

#[test]
fn a_workspace_that_does_not_exist_refuses_every_line() {
    let home = Home::new();
    let answer = home.feed(&["note", "add", "--stdin", "--workspace", "attic"], line("a", "A").as_bytes());
    assert_eq!(answer.code, Some(5), "{answer:#?}");
    assert_eq!(summary(&answer), json!([[1, false, "a", "WORKSPACE_NOT_FOUND"]]));
    // A refusal is not an outcome: the same operation may be tried where it can succeed.
    let answer = home.feed(&["note", "add", "--stdin"], line("a", "A").as_bytes()).ok();
    assert_eq!(summary(&answer), json!([[1, true, "a", false]]));
}

//! The log from outside: its tail, one entry, the check with and without an anchor, the rebuild, its consumers.

use serde_json::{Value, json};

use crate::support::{Home, list, text};

/// The head of the journal's synced stream, as `verify` prints it.
pub(crate) fn head(home: &Home) -> String {
    let document = home.json("verger.log-verify.v1", &["log", "verify"]);
    let stream = list(&document, "streams").iter().find(|stream| stream["domain"] == "journal" && stream["stream"] == "synced");
    text(stream.expect("the journal has a synced stream"), "head").to_owned()
}

#[test]
fn d8_every_change_is_an_entry_that_stays() {
    let home = Home::new();
    let id = home.add("One");
    let first = home.json("verger.log-entries.v1", &["log", "tail"]);
    home.run(&["note", "edit", &id, "--title", "Two"]).ok();
    home.run(&["note", "rm", &id]).ok();
    home.run(&["note", "edit", &id, "--title", "refused"]).fails(3, "NOTE_NOT_FOUND");
    let all = home.json("verger.log-entries.v1", &["log", "tail"]);
    let (first, all) = (list(&first, "entries"), list(&all, "entries"));
    assert_eq!(first, &all[..2], "what was there is still there, as it was");
    let counters: Vec<_> = all.iter().map(|entry| entry["counter"].clone()).collect();
    assert_eq!(json!(counters), json!([1, 2, 3, 4]), "a refusal leaves no entry");
    let last = home.json("verger.log-entries.v1", &["log", "tail", "--count", "2"]);
    assert_eq!(list(&last, "entries"), &all[2..]);
    for entry in all {
        let mut shown = home.json("verger.log-entry.v1", &["log", "show", &entry["counter"].to_string()]);
        shown.as_object_mut().expect("a document is an object").remove("schema");
        assert_eq!(&shown, entry);
    }
}

#[test]
fn l1_notes_are_in_the_journal_and_nowhere_else() {
    let home = Home::new();
    home.run(&["note", "add", "Only in the journal", "--text", "so is this"]).ok();
    let entries = |domain: &str, stream: &str| {
        let document = home.json("verger.log-entries.v1", &["log", "tail", "--domain", domain, "--stream", stream]);
        list(&document, "entries").iter().map(|entry| text(entry, "kind").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(entries("journal", "synced"), ["workspace", "note"]);
    for (domain, stream) in
        [("journal", "local"), ("agent", "synced"), ("agent", "local"), ("ledger", "synced"), ("ledger", "local")]
    {
        assert_eq!(entries(domain, stream), [""; 0], "{domain}, {stream}");
    }
    let holds = |domain: &str| {
        let bytes = std::fs::read(home.database(domain)).expect("the database can be read");
        bytes.windows(19).any(|window| window == b"Only in the journal")
    };
    assert_eq!([holds("journal"), holds("agent"), holds("ledger")], [true, false, false]);
    home.run(&["log", "tail", "--domain", "agent"]).ok().shows("no entries yet");
}

#[test]
fn d8_a_healthy_home_passes_and_says_up_to_where_it_is_witnessed() {
    let home = Home::new();
    home.add("One");
    home.add("Two");
    let document = home.json("verger.log-verify.v1", &["log", "verify"]);
    assert_eq!(document["sound"], true);
    assert_eq!((&document["unreadable"], &document["anchor_mismatch"]), (&json!([]), &Value::Null));
    let short = |stream: &Value| {
        let fields = ["domain", "stream", "verified", "witnessed", "erased", "damage"];
        fields.iter().map(|field| stream[*field].clone()).collect::<Value>()
    };
    let streams: Vec<_> = list(&document, "streams").iter().map(short).collect();
    assert_eq!(
        json!(streams),
        json!([
            ["journal", "synced", 3, 3, 0, null],
            ["journal", "local", 0, 0, 0, null],
            ["agent", "synced", 0, 0, 0, null],
            ["agent", "local", 0, 0, 0, null],
            ["ledger", "synced", 0, 0, 0, null],
            ["ledger", "local", 0, 0, 0, null]
        ])
    );
}

#[test]
fn a_head_that_was_written_down_is_found_again() {
    let home = Home::new();
    home.add("One");
    let early = head(&home);
    assert!(early.starts_with("journal/host_") && early.contains("/synced#2="), "{early}");
    home.add("Two");
    let late = head(&home);
    for anchor in [&early, &late] {
        home.run(&["log", "verify", "--expect", anchor]).ok().shows("every entry is as it was written");
    }
    let shown = home.run(&["log", "verify"]).ok();
    assert!(shown.stdout.contains(&format!("head {late}\n")), "it is printed as it is expected: {shown:#?}");
}

#[test]
fn a_head_of_another_history_is_a_mismatch() {
    let home = Home::new();
    home.add("One");
    let head = head(&home);
    let check = |anchor: &str, says: &str| {
        let answer = home.run(&["--json", "log", "verify", "--expect", anchor]).fails(8, "head_mismatch").says(says);
        let document = answer.document("verger.log-verify.v1");
        assert_eq!(document["sound"], false);
        assert!(text(&document, "anchor_mismatch").contains(says), "{document:#}");
        let shown = home.run(&["log", "verify", "--expect", anchor]).fails(8, "head_mismatch");
        assert!(!shown.stdout.contains("damaged"), "the log itself is sound: {shown:#?}");
    };
    let (place, chain) = head.split_once('=').expect("a head has a chain");
    let flipped: String = chain.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    check(&format!("{place}={flipped}"), &format!("has chain {chain}"));
    check(&format!("{}={chain}", place.replace("#2", "#1")), "has chain ");
    check(&format!("{}={chain}", place.replace("#2", "#3")), "there is no entry ");
    check(&format!("{}={chain}", place.replace("journal/", "agent/")), "there is no entry ");
    let other = Home::new();
    other.add("One");
    check(&self::head(&other), "there is no entry ");
    home.assert_works_with(&["One"]);
}

#[test]
fn a_head_that_does_not_read_is_refused() {
    let home = Home::new();
    home.add("One");
    let head = head(&home);
    let cut = &head[..head.len() - 1];
    for anchor in ["", "x", "journal", cut, &head.replace('=', ""), &head.replace("journal", "cellar"), &head.replace("#2", "#two")]
    {
        home.run(&["log", "verify", "--expect", anchor]).fails(2, "invalid_argument").says("a head looks like");
    }
}

#[test]
fn d8_a_rebuild_of_a_healthy_home_finds_no_difference() {
    let home = Home::new();
    let id = home.add("One");
    home.add("Two");
    home.run(&["note", "edit", &id, "--title", "Three"]).ok();
    let gone = home.add("Gone");
    home.run(&["note", "rm", &gone]).ok();
    let before = (home.all_notes(10), head(&home));
    let document = home.json("verger.log-rebuild.v1", &["log", "rebuild"]);
    let short = |domain: &Value| {
        let fields = ["domain", "entries", "rows", "differing_rows", "differing_aggregates", "differences"];
        fields.iter().map(|field| domain[*field].clone()).collect::<Value>()
    };
    let domains: Vec<_> = list(&document, "domains").iter().map(short).collect();
    assert_eq!(json!(domains), json!([["journal", 6, 4, 0, 0, []], ["agent", 0, 0, 0, 0, []], ["ledger", 0, 0, 0, 0, []]]));
    assert_eq!((home.all_notes(10), head(&home)), before);
    home.run(&["note", "restore", &gone]).ok();
    home.assert_works_with(&["Gone", "Three", "Two"]);
}

#[test]
fn a_home_without_consumers_says_so() {
    let home = Home::new();
    assert_eq!(home.json("verger.log-cursors.v1", &["log", "cursor", "list"])["cursors"], json!([]));
    home.run(&["log", "cursor", "list"]).ok().shows("nothing consumes the log yet");
}

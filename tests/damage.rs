//! Files that were changed behind the home's back: found, named, not written to, and whole again when they are put back.

use std::path::Path;

use serde_json::json;

use crate::logs::head;
use crate::support::{Home, list};

const TITLE: &str = "Quagga 4711";

/// A home with the note in the middle, at entry 3.
fn home() -> Home {
    let home = Home::new();
    home.add("Before");
    home.add(TITLE);
    home.add("After");
    home
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn places_of(needle: &[u8], bytes: &[u8]) -> Vec<usize> {
    bytes.windows(needle.len()).enumerate().filter(|(_, window)| *window == needle).map(|(at, _)| at).collect()
}

/// Writing and rebuilding are refused, and nothing is added to the damage.
fn refuses_to_write(home: &Home, code: &str) {
    for way in [&["note", "add", "x"][..], &["log", "rebuild"]] {
        home.run(way).fails(8, code);
    }
}

#[test]
fn d8_a_changed_byte_of_a_title_is_found_in_the_log_and_put_right_in_the_tables() {
    let home = home();
    let anchor = head(&home);
    let path = home.database("journal");
    let whole = read(&path);
    let places = places_of(format!("\"title\":\"{TITLE}\"").as_bytes(), &whole);
    assert!(places.len() >= 2, "the log and the table of notes have a copy each: {places:?}");
    let (mut in_the_log, mut in_the_table) = (0, 0);
    for place in &places {
        let mut changed = whole.clone();
        // `Quagga` becomes `Puagga`.
        changed[place + "\"title\":\"".len()] ^= 1;
        write(&path, &changed);
        let answer = home.run(&["--json", "log", "verify"]);
        if answer.code == Some(0) {
            in_the_table += 1;
            let rebuilt = home.json("verger.log-rebuild.v1", &["log", "rebuild"]);
            assert_eq!(list(&rebuilt, "domains")[0]["differing_rows"], 1, "{rebuilt:#}");
            assert_eq!(home.titles(10), ["After", TITLE, "Before"], "the log was right");
        } else {
            in_the_log += 1;
            let answer = answer.fails(8, "log_damaged").says("the journal log is damaged at entry 3 (synced)");
            let document = answer.document("verger.log-verify.v1");
            assert_eq!((&document["sound"], &list(&document, "streams")[0]["damage"]["counter"]), (&json!(false), &json!(3)));
            home.run(&["log", "verify"]).fails(8, "log_damaged").shows("DAMAGED at 3").shows("the log is damaged");
            home.run(&["log", "rebuild"]).fails(8, "log_damaged").says("synced#3");
        }
        write(&path, &whole);
        home.run(&["log", "verify", "--expect", &anchor]).ok();
    }
    assert_eq!((in_the_log, in_the_table), (1, places.len() - 1));
    home.assert_works_with(&["After", TITLE, "Before"]);
}

#[test]
fn a_changed_byte_is_never_taken_for_a_healthy_log_that_says_something_else() {
    let home = home();
    let path = home.database("journal");
    let whole = read(&path);
    let entries = || home.run(&["--json", "log", "tail"]);
    let healthy = entries().ok().stdout;
    // A byte here and there over the whole file: headers, cells, indexes and free space, whatever they hit.
    let (mut found, mut harmless) = (0, 0);
    for place in (0..whole.len()).step_by(whole.len() / 160) {
        let mut changed = whole.clone();
        changed[place] ^= 0x20;
        write(&path, &changed);
        let answer = home.run(&["log", "verify"]);
        match answer.code {
            Some(0) => {
                harmless += 1;
                let read = entries();
                assert!(read.code != Some(0) || read.stdout == healthy, "byte {place} changed what the log says: {read:#?}");
            }
            Some(8) => found += 1,
            _ => panic!("byte {place}: {answer:#?}"),
        }
        for companion in ["-wal", "-shm"] {
            let mut name = path.clone().into_os_string();
            name.push(companion);
            std::fs::remove_file(name).ok();
        }
    }
    assert!(found > 0 && harmless > 0, "found {found}, harmless {harmless}");
    write(&path, &whole);
    home.assert_works_with(&["After", TITLE, "Before"]);
}

#[test]
fn a_database_that_was_cut_or_emptied_is_named_and_not_written_to() {
    let home = home();
    for domain in ["journal", "agent", "ledger"] {
        let path = home.database(domain);
        let whole = read(&path);
        for length in [0, 1, 50, 100, 4_096, 4_097, whole.len() / 2, whole.len() - 4_096] {
            write(&path, &whole[..length]);
            let said = format!("the {domain} log cannot be read: the {domain} database is damaged");
            home.run(&["log", "verify"]).fails(8, "database_damaged").says(&said).shows("the log is damaged");
            refuses_to_write(&home, "database_damaged");
            home.run(&["init"]).fails(8, "database_damaged");
            assert!(read(&path) == whole[..length], "{domain} cut to {length}: it was not touched");
        }
        write(&path, &[0x5a; 10_000]);
        home.run(&["log", "verify"]).fails(8, "database_damaged").says(&format!("the {domain} database is damaged"));
        refuses_to_write(&home, "database_damaged");
        write(&path, &whole);
        home.assert_sound();
    }
    home.assert_works_with(&["After", TITLE, "Before"]);
}

#[test]
fn a_database_that_is_older_than_the_others_remember_is_not_written_to() {
    let home = Home::new();
    home.add("Before");
    let path = home.database("journal");
    let old = read(&path);
    home.add("After");
    home.add("Last");
    let whole = read(&path);
    write(&path, &old);
    refuses_to_write(&home, "log_damaged");
    home.run(&["note", "add", "x"]).fails(8, "log_damaged").says("it was cut, or replaced by another copy");
    let said = "the journal log is damaged at entry 3 (synced): it is missing, though another file remembers it";
    home.run(&["log", "verify"]).fails(8, "log_damaged").says(said);
    assert!(read(&path) == old, "it was not touched");
    write(&path, &whole);
    home.assert_works_with(&["Last", "After", "Before"]);
}

#[test]
fn a_home_that_went_back_as_a_whole_is_told_by_the_anchor_alone() {
    let home = Home::new();
    home.add("Before");
    let domains = ["journal", "agent", "ledger"];
    let old: Vec<_> = domains.iter().map(|domain| read(&home.database(domain))).collect();
    home.add("After");
    let anchor = head(&home);
    for (domain, bytes) in domains.iter().zip(&old) {
        write(&home.database(domain), bytes);
    }
    home.assert_sound();
    home.run(&["log", "verify", "--expect", &anchor]).fails(8, "head_mismatch").says("there is no entry ");
    home.assert_works_with(&["Before"]);
}

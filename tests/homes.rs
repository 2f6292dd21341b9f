//! Homes that cannot be one: a file, missing, somebody else's, read-only, open to others, incomplete, too new.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::{Home, Nobody, everything_in, is_root, set_mode, set_writable};

/// A reading and a writing command, a check and a rebuild: one of each way into a home.
const WAYS_IN: [&[&str]; 4] = [&["note", "list"], &["note", "add", "x"], &["log", "verify"], &["log", "rebuild"]];

fn fails_every_way_in(home: &Home, exit: i32, code: &str, says: &str) {
    for way in WAYS_IN {
        home.run(way).fails(exit, code).says(says);
    }
}

#[test]
fn making_a_home_again_is_harmless() {
    let home = Home::missing();
    let first = home.json("verger.init.v1", &["init"]);
    assert_eq!((&first["created"], &first["home"]), (&json!(true), &json!(home.path())));
    home.add("Kept");
    let second = home.json("verger.init.v1", &["init"]);
    assert_eq!((&second["created"], &second["host"]), (&json!(false), &first["host"]));
    home.run(&["init"]).ok().shows("there is a home already in ");
    home.assert_works_with(&["Kept"]);
}

#[test]
fn a_home_can_be_entered_by_its_owner_only() {
    let home = Home::new();
    home.add("Private");
    home.run(&["note", "list"]).ok();
    for path in everything_in(home.path()) {
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
    }
}

#[test]
fn a_command_that_ended_leaves_no_wal_behind() {
    let home = Home::new();
    let id = home.add("One");
    let check = |what: &str| {
        let names = std::fs::read_dir(home.path().join("store")).expect("the store is a folder");
        let names = names.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["agent.sqlite", "journal.sqlite", "ledger.sqlite"], "after {what}");
        let lock = std::fs::read(home.path().join("run/lock")).expect("the lock can be read");
        assert_eq!(lock, b"", "nobody is named as the owner after {what}");
    };
    check("note add");
    home.run(&["note", "edit", &id, "--version", "9", "--title", "x"]).fails(4, "VERSION_CONFLICT");
    check("a refusal");
    home.feed(&["note", "add", "--stdin"], crate::support::line("a", "A").as_bytes()).ok();
    check("note add --stdin");
    home.run(&["log", "rebuild"]).ok();
    check("log rebuild");
    home.run(&["init"]).ok();
    check("init");
}

#[test]
fn a_home_that_is_missing_is_named_and_not_made() {
    let home = Home::missing();
    fails_every_way_in(&home, 6, "home_missing", "there is no home at ");
    assert!(!home.path().exists(), "looking for a home does not make one");
    std::fs::create_dir(home.path()).expect("the test's own folder can be written");
    set_mode(home.path(), 0o700);
    fails_every_way_in(&home, 6, "home_missing", "run `verger init`");
    home.run(&["init"]).ok();
    home.assert_works_with(&[]);
}

#[test]
fn an_empty_folder_becomes_a_home_and_is_closed_to_others() {
    let home = Home::missing();
    std::fs::create_dir(home.path()).expect("the test's own folder can be written");
    set_mode(home.path(), 0o755);
    home.run(&["init"]).ok();
    let mode = std::fs::metadata(home.path()).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "{mode:o}");
    home.assert_works_with(&[]);
}

#[test]
fn a_folder_with_something_else_in_it_is_not_made_into_a_home() {
    let home = Home::missing();
    std::fs::create_dir(home.path()).expect("the test's own folder can be written");
    std::fs::write(home.path().join("letter"), "dear").expect("the test's own folder can be written");
    home.run(&["init"]).fails(6, "home_invalid").says("it holds something else");
    assert_eq!(everything_in(home.path()), [home.path().to_path_buf(), home.path().join("letter")]);
}

#[test]
fn a_home_that_is_a_file_is_refused_and_left_alone() {
    let home = Home::missing();
    std::fs::write(home.path(), "a letter").expect("the test's own folder can be written");
    fails_every_way_in(&home, 6, "home_invalid", "it is a file, not a folder");
    home.run(&["init"]).fails(6, "home_invalid").says("it is a file, not a folder");
    let answer = home.run(&["--home", "x", "init"]).fails(2, "invalid_argument");
    assert_eq!(answer.stdout, "", "two homes are one too many");
    assert_eq!(std::fs::read(home.path()).expect("the file is there"), b"a letter");
    let below = home.path().join("below");
    let answer = crate::support::finish(crate::support::command(Path::new(env!("CARGO_BIN_EXE_verger")), &below).arg("init"), b"");
    answer.fails(6, "home_invalid").says("Not a directory");
}

#[test]
fn a_home_in_a_read_only_place_takes_no_writes_and_loses_nothing() {
    let nobody = Nobody::new();
    let home = nobody.own("home");
    nobody.run(&home, &["init"]).ok();
    nobody.run(&home, &["note", "add", "Kept"]).ok();
    set_writable(&home, false);
    for way in [&["note", "add", "x"][..], &["log", "rebuild"], &["init"]] {
        nobody.run(&home, way).fails(6, "home_invalid").says("Permission denied");
    }
    // SQLite reads a WAL database only where it can make the index of its WAL, so this may be refused; it may not be wrong.
    for way in [&["note", "list"][..], &["log", "verify"]] {
        let answer = nobody.run(&home, way);
        if answer.code != Some(0) {
            let answer = answer.fails(7, "storage_error").says("look at the disk and its permissions");
            assert!(!answer.stdout.contains("damaged"), "what cannot be read is not known to be damaged: {answer:#?}");
        }
    }
    set_mode(&home.join("run"), 0o700);
    set_mode(&home.join("run/lock"), 0o600);
    nobody.run(&home, &["note", "add", "x"]).fails(7, "storage_error").says("readonly database");
    set_writable(&home, true);
    nobody.run(&home, &["note", "list"]).ok().shows("Kept");
    nobody.run(&home, &["note", "add", "Next"]).ok();
    nobody.run(&home, &["log", "verify"]).ok().shows("every entry is as it was written");
    let unmade = nobody.own("unmade");
    set_mode(&nobody.own(""), 0o500);
    nobody.run(&unmade, &["init"]).fails(6, "home_invalid").says("cannot make ");
    set_mode(&nobody.own(""), 0o700);
}

#[test]
fn somebody_elses_home_is_not_entered_even_if_its_doors_are_open() {
    if !is_root() {
        // Without root there is one other owner to be had: the system's own folders.
        for way in WAYS_IN {
            Nobody::new().run(Path::new("/usr"), way).fails(6, "home_invalid").says("it belongs to somebody else");
        }
        return;
    }
    let nobody = Nobody::new();
    let path = nobody.foreign("home");
    let binary = Path::new(env!("CARGO_BIN_EXE_verger"));
    crate::support::finish(crate::support::command(binary, &path).arg("init"), b"").ok();
    for open in [false, true] {
        if open {
            everything_in(&path).iter().for_each(|path| set_mode(path, 0o777));
        }
        for way in WAYS_IN.into_iter().chain([&["init"][..]]) {
            nobody.run(&path, way).fails(6, "home_invalid").says("it belongs to somebody else");
        }
    }
    set_mode(&path, 0o700);
    set_mode(&path.join("store"), 0o700);
    crate::support::finish(crate::support::command(binary, &path).args(["note", "add", "mine"]), b"").ok();
}

#[test]
fn a_home_that_others_can_enter_is_refused_until_it_is_closed() {
    let home = Home::new();
    home.add("Kept");
    for folder in [home.path().to_path_buf(), home.path().join("store")] {
        for mode in [0o750, 0o705, 0o770] {
            set_mode(&folder, mode);
            let says = format!("others can enter {}; run `chmod 700` on it", folder.display());
            fails_every_way_in(&home, 6, "home_invalid", &says);
            home.run(&["init"]).fails(6, "home_invalid").says(&says);
        }
        set_mode(&folder, 0o700);
        home.assert_works_with(&["Kept"]);
    }
}

#[test]
fn a_home_that_lost_a_database_is_refused_until_it_is_back() {
    for domain in ["journal", "agent", "ledger"] {
        let home = Home::new();
        home.add("Kept");
        let (path, away) = (home.database(domain), home.beside("away"));
        std::fs::rename(&path, &away).expect("the test's own folder can be written");
        fails_every_way_in(&home, 6, "home_invalid", &format!("{domain}.sqlite is missing from its store folder"));
        if domain != "ledger" {
            // The ledger is made last: without it a home looks like one that `init` was kept from completing.
            home.run(&["init"]).fails(6, "home_invalid").says("restore it from a backup");
            assert!(!path.exists(), "a lost database is not made anew");
        }
        std::fs::rename(&away, &path).expect("the test's own folder can be written");
        home.assert_works_with(&["Kept"]);
    }
}

#[test]
fn a_database_of_another_home_is_refused() {
    let (home, other) = (Home::new(), Home::new());
    home.add("Kept");
    other.add("Other");
    for domain in ["journal", "agent", "ledger"] {
        let kept = std::fs::read(home.database(domain)).expect("the database can be read");
        std::fs::copy(other.database(domain), home.database(domain)).expect("the test's own folder can be written");
        home.run(&["note", "add", "x"]).fails(8, "log_damaged").says("belongs to another home");
        std::fs::write(home.database(domain), kept).expect("the test's own folder can be written");
        // The lookup tables of readers go with the file they were made for.
        home.assert_works_with(&["Kept"]);
    }
    std::fs::copy(home.database("agent"), home.database("journal")).expect("the test's own folder can be written");
    fails_every_way_in(&home, 8, "database_damaged", "the file holds the agent domain");
}

/// Where SQLite keeps `user_version` and `application_id`.
const SCHEMA_AT: usize = 60;
const APPLICATION_AT: usize = 68;

#[test]
fn a_database_of_a_newer_build_is_refused_untouched() {
    let home = Home::new();
    home.add("Kept");
    let path = home.database("agent");
    let kept = std::fs::read(&path).expect("the database can be read");
    let mut newer = kept.clone();
    newer[SCHEMA_AT..SCHEMA_AT + 4].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&path, &newer).expect("the test's own folder can be written");
    for way in [&["note", "list"][..], &["note", "add", "x"], &["init"]] {
        home.run(way).fails(6, "schema_newer").says("the agent database has schema 99; this build knows up to ");
    }
    let answer = home.run(&["--json", "note", "add", "x"]).fails(6, "schema_newer");
    assert_eq!(answer.error()["details"]["found"], 99);
    assert!(std::fs::read(&path).expect("the database can be read") == newer, "it was not touched");
    std::fs::write(&path, &kept).expect("the test's own folder can be written");
    home.assert_works_with(&["Kept"]);
}

#[test]
fn a_database_of_another_program_is_refused() {
    let home = Home::new();
    home.add("Kept");
    let path = home.database("journal");
    let kept = std::fs::read(&path).expect("the database can be read");
    let mut foreign = kept.clone();
    foreign[APPLICATION_AT] ^= 0xff;
    std::fs::write(&path, &foreign).expect("the test's own folder can be written");
    fails_every_way_in(&home, 8, "database_damaged", "the file is not a Verger database");
    std::fs::write(&path, &kept).expect("the test's own folder can be written");
    home.assert_works_with(&["Kept"]);
}

#[test]
fn a_home_can_be_named_by_the_environment() {
    let home = Home::new();
    home.add("Found");
    let verger = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_verger"));
        command.env_clear().args(["note", "list"]);
        command
    };
    crate::support::finish(verger().env("VERGER_HOME", home.path()), b"").ok().shows("Found");
    let data = home.beside("data");
    std::fs::create_dir(&data).expect("the test's own folder can be written");
    std::os::unix::fs::symlink(home.path(), data.join("verger")).expect("the test's own folder can be written");
    crate::support::finish(verger().env("XDG_DATA_HOME", &data), b"").ok().shows("Found");
    crate::support::finish(&mut verger(), b"").fails(6, "home_missing").says("no home is named");
}

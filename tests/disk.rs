//! A disk that runs full or fails in the middle of a write: what was acknowledged is there, what was refused is not, and with room
//! again everything goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Answer, Home, command, finish, is_root, parsed, text};

const PAGE_BYTES: usize = 4_096;

/// The failing disk at the end of this file needs no rights and is tried everywhere.
const LEFT_OUT: &str = "left out: no small disk can be mounted here";

/// A small disk of its own, in memory; gone with its owner.
struct Disk {
    folder: TempDir,
    pages: usize,
}

impl Disk {
    /// `None` where the kernel does not let us: without root, or in a container without the right to mount.
    fn mount(pages: usize) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let options = format!("size={},mode=700", pages * PAGE_BYTES);
        let mut mount = Command::new("/usr/bin/mount");
        mount.args(["-t", "tmpfs", "-o", &options, "verger-test"]).arg(folder.path());
        let mounted = is_root() && mount.status().is_ok_and(|status| status.success());
        mounted.then(|| Self { folder, pages })
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        self.feed(arguments, "")
    }

    fn feed(&self, arguments: &[&str], input: &str) -> Answer {
        finish(command(Path::new(env!("CARGO_BIN_EXE_verger")), &self.home()).args(arguments), input.as_bytes())
    }

    /// Fills the disk until so many pages are free.
    fn leave_free(&self, pages: usize) {
        self.free();
        let used: usize = crate::support::everything_in(self.folder.path()).iter().map(|path| pages_of(path)).sum();
        let fill = self.pages.checked_sub(used + pages).expect("the disk is large enough for the test");
        std::fs::write(self.ballast(), vec![1; fill * PAGE_BYTES]).expect("there is room for the ballast");
    }

    fn free(&self) {
        std::fs::remove_file(self.ballast()).ok();
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }

    fn titles(&self) -> Vec<String> {
        let document = self.run(&["--json", "note", "list", "--limit", "1000"]).ok().document("verger.notes.v1");
        crate::support::list(&document, "notes").iter().map(|note| text(note, "title").to_owned()).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("/usr/bin/umount").arg(self.folder.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking(), "the disk can be unmounted");
    }
}

fn pages_of(path: &Path) -> usize {
    let metadata = std::fs::metadata(path).expect("a file of the test can be read");
    if metadata.is_dir() { 0 } else { usize::try_from(metadata.len()).expect("a test's file is small").div_ceil(PAGE_BYTES) }
}

/// Lines of about three kilobytes: a page each, and more for what belongs to them.
fn lines(from: usize, to: usize) -> String {
    let line = |n: usize| {
        format!("{}\n", serde_json::json!({ "operation_id": n.to_string(), "title": title(n), "text": "x".repeat(3_000) }))
    };
    (from..to).map(line).collect()
}

fn title(n: usize) -> String {
    format!("note {n}")
}

/// What became of each line: `done`, or the code of its refusal.
fn outcomes(answer: &Answer) -> BTreeMap<usize, String> {
    let outcome = |line: &str| {
        let line: Value = parsed(line);
        let code = if line["ok"] == true { "done" } else { text(&line["error"], "code") };
        (text(&line, "operation_id").parse().expect("the test's ids are numbers"), code.to_owned())
    };
    answer.stdout.lines().map(outcome).collect()
}

/// Acknowledged is there, refused is not; only what was said to be unknown may be either.
fn check_outcomes(outcomes: &BTreeMap<usize, String>, titles: &[String]) {
    let stored: BTreeSet<&String> = titles.iter().collect();
    assert_eq!(stored.len(), titles.len(), "no note is there twice");
    for (n, outcome) in outcomes {
        let is_there = stored.contains(&title(*n));
        match outcome.as_str() {
            "done" => assert!(is_there, "note {n} was acknowledged and is lost"),
            "commit_unknown" => {}
            "storage_full" | "storage_error" | "storage_failing" => {
                assert!(!is_there, "note {n} was refused ({outcome}) and is there");
            }
            other => panic!("note {n}: {other}"),
        }
    }
}

#[test]
fn d8_a_full_disk_refuses_writes_loses_nothing_and_works_again_with_room() {
    let Some(disk) = Disk::mount(1_024) else { return println!("{LEFT_OUT}") };
    disk.run(&["init"]).ok();
    disk.leave_free(400);
    let answer = disk.feed(&["note", "add", "--stdin"], &lines(0, 300));
    assert_eq!(answer.code, Some(5), "{answer:#?}");
    let outcomes = outcomes(&answer);
    assert_eq!(outcomes.len(), 300, "every line is answered");
    let done = outcomes.values().filter(|outcome| *outcome == "done").count();
    assert!((10..290).contains(&done), "the disk ran full in the middle: {done}");
    assert_eq!(outcomes.values().filter(|outcome| *outcome == "storage_full").count(), 300 - done, "{outcomes:?}");
    let answer = answer.says(&format!("{done} added, {} refused", 300 - done));
    assert!(answer.stdout.contains("free some space and try again"), "{answer:#?}");

    // Reading goes on while the disk is full, and one more command says again why it cannot write.
    check_outcomes(&outcomes, &disk.titles());
    disk.run(&["log", "verify"]).ok();
    disk.run(&["note", "add", "x"]).fails(7, "storage_full");

    disk.free();
    let again = disk.feed(&["note", "add", "--stdin"], &lines(0, 100)).ok();
    let repeated = again.lines().iter().filter(|line| line["repeated"] == true).count();
    assert_eq!(repeated, outcomes.range(..100).filter(|(_, outcome)| *outcome == "done").count());
    let titles: BTreeSet<_> = disk.titles().into_iter().collect();
    let expected: BTreeSet<_> = (0..300).filter(|n| *n < 100 || outcomes[n] == "done").map(title).collect();
    assert_eq!(titles, expected);
    disk.run(&["log", "verify"]).ok();
    let rebuilt = disk.run(&["--json", "log", "rebuild"]).ok().document("verger.log-rebuild.v1");
    assert_eq!(rebuilt["domains"][0]["differing_rows"], 0);
}

/// Out of room is out of room, but SQLite calls it an I/O error when it is the WAL's index that finds none.
fn is_out_of_room(answer: &Answer) -> bool {
    let code = |code: &str| answer.stderr.contains(&format!("error[{code}]: "));
    answer.code == Some(7) && (code("storage_full") || code("storage_error"))
}

#[test]
fn a_home_that_was_half_made_on_a_full_disk_is_completed_with_room() {
    let Some(disk) = Disk::mount(512) else { return println!("{LEFT_OUT}") };
    let mut refused = 0;
    for pages in (0..240).step_by(6) {
        std::fs::remove_dir_all(disk.home()).ok();
        disk.leave_free(pages);
        for _ in 0..2 {
            let answer = disk.run(&["init"]);
            if answer.code != Some(0) {
                refused += 1;
                assert!(is_out_of_room(&answer), "{pages} pages: {answer:#?}");
            }
        }
        disk.free();
        disk.run(&["init"]).ok();
        disk.run(&["note", "add", "first"]).ok();
        disk.run(&["log", "verify"]).ok();
        assert_eq!(disk.titles(), ["first"], "{pages} pages");
    }
    assert!((20..80).contains(&refused), "both ends were tried: {refused}");
}

#[test]
fn a_write_on_a_disk_with_any_little_room_is_done_or_refused() {
    let Some(disk) = Disk::mount(1_024) else { return println!("{LEFT_OUT}") };
    disk.run(&["init"]).ok();
    let (mut done, mut refused) = (BTreeMap::new(), 0);
    for n in 0..48 {
        disk.leave_free(n);
        let answer = disk.feed(&["note", "add", "--stdin"], &lines(n, n + 1));
        if answer.stdout.is_empty() {
            assert!(is_out_of_room(&answer), "{n} pages: {answer:#?}");
            done.insert(n, "storage_full".to_owned());
        } else {
            done.extend(outcomes(&answer));
        }
        refused += usize::from(done[&n] != "done");
        disk.free();
        check_outcomes(&done, &disk.titles());
        disk.run(&["log", "verify"]).ok();
    }
    assert!((1..47).contains(&refused), "both ends were tried: {refused}");
}

#[test]
fn a_disk_that_fails_in_the_middle_stops_the_writing_and_a_new_start_goes_on() {
    let home = Home::new();
    // A file that may not grow: the kernel's EFBIG is to SQLite an I/O error like any other.
    let limited = r#"trap "" XFSZ; ulimit -f 1000; exec "$@""#;
    let mut command = Command::new("/bin/sh");
    command.env_clear().args(["-c", limited, "sh", env!("CARGO_BIN_EXE_verger"), "--home"]).arg(home.path());
    let answer = finish(command.args(["note", "add", "--stdin"]), lines(0, 200).as_bytes());
    assert_eq!(answer.code, Some(5), "{answer:#?}");
    let outcomes = outcomes(&answer);
    assert_eq!(outcomes.len(), 200, "every line is answered");
    check_outcomes(&outcomes, &home.titles(1_000));
    let count = |code: &str| outcomes.values().filter(|outcome| *outcome == code).count();
    assert!(count("done") > 0 && count("storage_failing") > 0, "{outcomes:?}");
    home.assert_sound();
    home.feed(&["note", "add", "--stdin"], lines(0, 200).as_bytes()).ok().says("had been done before, 0 refused");
    let titles: BTreeSet<_> = home.titles(1_000).into_iter().collect();
    assert_eq!(titles, (0..200).map(title).collect());
    home.assert_sound();
}

//! Whoever reads the answer may leave early, may have no room for it, and may or may not want colours.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use crate::support::{Home, finish, line, start};

/// Runs a command whose reader takes a line and leaves; gives the exit code and stderr.
fn read_one_line(command: &mut Command, input: &str) -> (Option<i32>, String, String) {
    let mut child = start(command);
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut stderr = child.stderr.take().expect("stderr is piped");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may well end before it has read everything.
            stdin.write_all(input.as_bytes()).ok();
        });
        let mut first = String::new();
        BufReader::with_capacity(64, stdout).read_line(&mut first).expect("the pipe can be read");
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("stderr is text");
        (child.wait().expect("our own child can be waited for").code(), first, said)
    })
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let home = Home::new();
    let input: String = (0..1_000).map(|n| line(&format!("op-{n}"), &"title ".repeat(60))).collect();
    home.feed(&["note", "add", "--stdin"], input.as_bytes()).ok();
    let ways: [&[&str]; 6] = [
        &["note", "list", "--limit", "1000"],
        &["--json", "note", "list", "--limit", "1000"],
        &["note", "search", "title", "--limit", "1000"],
        &["--json", "log", "tail", "--count", "1000"],
        &["completions", "bash"],
        &["note", "add", "--help"],
    ];
    for way in ways {
        let (code, first, said) = read_one_line(home.command().args(way), "");
        assert_eq!((code, said.as_str()), (Some(0), ""), "{way:?}");
        assert!(first.ends_with('\n'), "{way:?}: {first:?}");
    }
}

#[test]
fn a_writer_whose_answers_nobody_reads_ends_and_can_be_asked_again() {
    let home = Home::new();
    let input: String = (0..20_000).map(|n| line(&format!("op-{n}"), &format!("title {n}"))).collect();
    let (code, first, said) = read_one_line(home.command().args(["note", "add", "--stdin"]), &input);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(crate::support::parsed(&first)["ok"] == true, "{first}");
    let some = home.all_notes(1_000).len();
    assert!((1..20_000).contains(&some), "it stops reading soon after nobody listens: {some}");
    let few: String = input.lines().take(50).map(|line| format!("{line}\n")).collect();
    let again = home.feed(&["note", "add", "--stdin"], few.as_bytes()).ok();
    assert_eq!(again.lines().len(), 50);
    assert!(home.all_notes(1_000).len() >= some.max(50));
    home.assert_sound();
}

#[test]
fn an_answer_that_finds_no_room_is_an_error_and_not_a_success() {
    let home = Home::new();
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has /dev/full"));
    let check = |arguments: &[&str], input: &str| {
        let mut command = home.command();
        let mut child =
            command.args(arguments).stdin(Stdio::piped()).stdout(full()).stderr(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).ok();
        let output = child.wait_with_output().expect("our own child can be waited for");
        let said = String::from_utf8(output.stderr).expect("stderr is text");
        assert_eq!(output.status.code(), Some(7), "{arguments:?}: {said}");
        assert!(said.contains("error[output_failed]: writing ") && said.contains("No space left"), "{arguments:?}: {said}");
    };
    check(&["note", "list"], "");
    check(&["--json", "log", "verify"], "");
    check(&["note", "add", "--stdin"], &line("a", "A"));
    check(&["completions", "zsh"], "");
    // The note is written all the same; its answer was not, and asking again tells.
    let again = home.feed(&["note", "add", "--stdin"], line("a", "A").as_bytes()).ok();
    assert_eq!(again.lines()[0]["repeated"], true);
}

#[test]
fn pipes_get_no_colours() {
    let home = Home::new();
    let id = home.add("Plain");
    let ways: [&[&str]; 7] = [
        &["note", "list"],
        &["note", "show", &id],
        &["log", "verify"],
        &["log", "show", "1"],
        &["note", "show", "x"],
        &["note", "add", "--help"],
        &["bogus"],
    ];
    for way in ways {
        for variables in [&[][..], &[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")], &[("NO_COLOR", "1")]] {
            let answer = finish(home.command().envs(variables.iter().copied()).args(way), b"");
            assert!(!answer.stdout.contains('\u{1b}') && !answer.stderr.contains('\u{1b}'), "{way:?}: {answer:#?}");
        }
    }
}

#[test]
fn terminals_get_colours_unless_no_color_is_set() {
    // A terminal of its own comes from util-linux's `script`; where that is missing there is none to be had.
    if !std::path::Path::new("/usr/bin/script").exists() {
        return;
    }
    let home = Home::new();
    home.add("Bright");
    let on_a_terminal = |variables: &[(&str, &str)]| {
        let mut command = Command::new("/usr/bin/script");
        let verger = format!("{} --home {} note list", env!("CARGO_BIN_EXE_verger"), home.path().display());
        command.env_clear().env("TERM", "xterm").envs(variables.iter().copied()).args(["-qec", &verger, "/dev/null"]);
        finish(&mut command, b"").ok().shows("Bright").stdout.contains('\u{1b}')
    };
    assert!(on_a_terminal(&[]));
    assert!(on_a_terminal(&[("NO_COLOR", "")]), "an empty one does not count");
    assert!(!on_a_terminal(&[("NO_COLOR", "1")]));
}

#[test]
fn completion_scripts_name_the_commands_and_need_no_home() {
    for shell in ["bash", "zsh", "fish"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verger"));
        let script = finish(command.env_clear().args(["completions", shell]), b"").ok().stdout;
        for word in ["verger", "note", "history", "rebuild", "operation-id"] {
            assert!(script.contains(word), "{shell} completes `{word}`");
        }
    }
}

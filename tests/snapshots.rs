//! What people see, whole: the help of every command and the output of the reading ones, as files under `snapshots/`.
//!
//! Ids, instants and hashes differ from run to run; they are replaced by ones of the same width, so that columns stay columns.

use crate::support::{Home, finish, list, text};

/// Every command, as it is called.
const COMMANDS: [&str; 57] = [
    "",
    "init",
    "note",
    "note add",
    "note show",
    "note list",
    "note edit",
    "note rm",
    "note restore",
    "note search",
    "note history",
    "task",
    "task add",
    "task show",
    "task list",
    "task edit",
    "task rm",
    "task restore",
    "inbox",
    "inbox list",
    "inbox show",
    "inbox approve",
    "inbox deny",
    "inbox reply",
    "agent",
    "agent list",
    "agent pause",
    "agent resume",
    "agent destroy",
    "stop",
    "budget",
    "budget show",
    "budget set",
    "run",
    "run start",
    "run list",
    "run show",
    "run trace",
    "run resume",
    "run cancel",
    "run replay",
    "run export",
    "policy",
    "policy explain",
    "log",
    "log tail",
    "log show",
    "log verify",
    "log rebuild",
    "log cursor",
    "log cursor list",
    "log cursor reset",
    "bench",
    "bench store",
    "bench run",
    "demo",
    "completions",
];

#[test]
fn the_help_of_every_command_is_as_it_was_agreed() {
    let home = Home::missing();
    for command in COMMANDS {
        let arguments: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let help = finish(std::process::Command::new(env!("CARGO_BIN_EXE_verger")).env_clear().args(&arguments), b"").ok();
        assert_eq!(help.stderr, "", "{command}");
        insta::assert_snapshot!(format!("help {command}").trim().replace(' ', "-"), help.stdout);
    }
    assert!(!home.path().exists(), "asking for help makes no home");
}

#[test]
fn no_command_is_missing_from_the_snapshots() {
    // The lines under `Commands:` of each group name what it holds.
    for group in ["", "note", "task", "inbox", "agent", "budget", "run", "policy", "log", "log cursor", "bench"] {
        let arguments: Vec<_> = group.split_whitespace().chain(["--help"]).collect();
        let mut verger = std::process::Command::new(env!("CARGO_BIN_EXE_verger"));
        let help = finish(verger.env_clear().args(&arguments), b"").ok().stdout;
        let commands =
            help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a group lists its commands");
        for command in commands.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
            let whole = format!("{group} {command}");
            assert!(COMMANDS.contains(&whole.trim()), "`{whole}` has no snapshot");
        }
    }
}

#[test]
fn the_output_of_note_commands_is_as_it_was_agreed() {
    let home = Home::new();
    let plan = home.json(
        "verger.note-written.v1",
        &["note", "add", "Seeds to order", "--text", "beans\npeas", "--label", "garden", "--label", "spring"],
    );
    let plan = text(&plan, "id");
    home.run(&["note", "add", &"A title that is too long for its column ".repeat(3), "--kind", "meeting"]).ok();
    home.run(&["note", "edit", plan, "--text", "beans\npeas\nleeks"]).ok();
    home.run(&["note", "edit", plan, "--title", "Seeds that were ordered", "--no-labels"]).ok();
    home.run(&["note", "rm", plan]).ok();
    home.run(&["note", "restore", plan]).ok();
    let shown = |arguments: &[&str]| redacted(&home.run(arguments).ok().stdout);
    insta::assert_snapshot!("note-list", shown(&["note", "list"]));
    insta::assert_snapshot!("note-show", shown(&["note", "show", plan]));
    insta::assert_snapshot!("note-search", shown(&["note", "search", "leeks"]));
    insta::assert_snapshot!("note-history", shown(&["note", "history", plan]));
    insta::assert_snapshot!("note-history-json", shown(&["--json", "note", "history", plan]));
    insta::assert_snapshot!("note-list-json", shown(&["--json", "note", "list"]));
}

#[test]
fn the_output_of_task_inbox_stop_and_budget_commands_is_as_it_was_agreed() {
    let home = Home::new();
    let written = |arguments: &[&str]| text(&home.json("verger.task-written.v1", arguments), "id").to_owned();
    let collect = written(&["task", "add", "Collect the sources", "--requires", "context/sources"]);
    let page = written(&["task", "add", "Write the page", "--needs", &collect, "--requires", "context/page"]);
    written(&["task", "edit", &page, "--status", "blocked", "--reason", "the printer is out of paper"]);
    let keep = serde_json::json!({
        "action": "persist_artifact", "task_id": collect, "requires_approval": true,
        "artifact": { "type": "context", "key": "sources", "content": "beans\npeas\nleeks\nkale" },
    });
    let manifest = serde_json::json!({
        "schema": 1, "agent": "keeper", "prompt": "keep what is found",
        "model": { "provider": "scripted", "script": [keep.to_string()] },
    });
    let manifest = home.file("keeper.json", manifest.to_string().as_bytes());
    home.run(&["run", "start", "--manifest", &manifest]).ok();
    let shown = |arguments: &[&str]| redacted(&home.run(arguments).ok().stdout);
    let inbox = home.json("verger.inbox.v1", &["inbox", "list"]);
    let item = text(&list(&inbox, "items")[0], "id").to_owned();
    insta::assert_snapshot!("inbox-show", until_minutes(&shown(&["inbox", "show", &item])));
    home.run(&["inbox", "approve", &item, "--reason", "well found"]).ok();
    insta::assert_snapshot!("inbox-show-answered", until_minutes(&shown(&["inbox", "show", &item])));
    home.run(&["run", "resume"]).ok();
    insta::assert_snapshot!("task-list", shown(&["task", "list"]));
    insta::assert_snapshot!("task-show", shown(&["task", "show", &collect]));
    insta::assert_snapshot!("task-show-blocked", shown(&["task", "show", &page]));
    insta::assert_snapshot!("task-show-json", shown(&["--json", "task", "show", &collect]));
    insta::assert_snapshot!("stop", shown(&["stop", "--agent", "keeper", "--reason", "enough for today"]));
    insta::assert_snapshot!("stop-status", shown(&["stop", "--status"]));
    insta::assert_snapshot!("stop-status-json", shown(&["--json", "stop", "--status"]));
}

/// How long ago something was differs by a second or so; in a slow run by more.
fn until_minutes(output: &str) -> String {
    let words: Vec<_> = output.split(' ').collect();
    let blurred =
        |place: usize| words.get(place + 1).is_some_and(|unit| matches!(*unit, "s" | "min")) && words[place].parse::<u32>().is_ok();
    let shown = |(place, word): (usize, &&str)| if blurred(place) { "0".to_owned() } else { (*word).to_owned() };
    words.iter().enumerate().map(shown).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_output_of_log_commands_is_as_it_was_agreed() {
    let home = Home::new();
    let id = home.add("Seeds to order");
    home.run(&["note", "edit", &id, "--title", "Seeds that were ordered"]).ok();
    home.run(&["note", "rm", &id]).ok();
    let shown = |arguments: &[&str]| redacted(&home.run(arguments).ok().stdout);
    insta::assert_snapshot!("log-tail", shown(&["log", "tail"]));
    insta::assert_snapshot!("log-show", shown(&["log", "show", "3"]));
    insta::assert_snapshot!("log-verify", shown(&["log", "verify"]));
    insta::assert_snapshot!("log-verify-json", shown(&["--json", "log", "verify"]));
    insta::assert_snapshot!("log-rebuild", shown(&["log", "rebuild"]));
    insta::assert_snapshot!("log-rebuild-json", shown(&["--json", "log", "rebuild"]));
    insta::assert_snapshot!("log-cursor-list", shown(&["log", "cursor", "list"]));
}

#[test]
fn errors_are_as_they_were_agreed() {
    let home = Home::new();
    let id = home.add("One");
    let said = |arguments: &[&str]| redacted(&home.run(arguments).stderr);
    insta::assert_snapshot!("error-unknown-flag", said(&["note", "add", "--colour"]));
    insta::assert_snapshot!("error-unknown-command", said(&["notes"]));
    insta::assert_snapshot!("error-empty-title", said(&["note", "add", ""]));
    insta::assert_snapshot!("error-version-conflict", said(&["note", "edit", &id, "--title", "x", "--version", "7"]));
    let answer = home.run(&["--json", "note", "edit", &id, "--title", "x", "--version", "7"]);
    insta::assert_snapshot!("error-version-conflict-json", redacted(&answer.stdout));
}

#[test]
fn a_demonstration_ends_well_and_leaves_nothing_behind() {
    let home = Home::missing();
    let scratch = home.beside("scratch");
    std::fs::create_dir(&scratch).expect("the test's own folder can be written");
    let mut verger = std::process::Command::new(env!("CARGO_BIN_EXE_verger"));
    let answer = finish(verger.env_clear().env("TMPDIR", &scratch).args(["--json", "demo"]), b"").ok();
    let document = answer.document("verger.demo.v1");
    assert!(list(&document, "steps").len() > 3, "{document:#}");
    assert!(!answer.stdout.contains("ERROR"), "{document:#}");
    assert_eq!(std::fs::read_dir(&scratch).expect("the scratch folder can be read").count(), 0);
}

/// Replaces what differs from run to run, width for width.
pub(crate) fn redacted(output: &str) -> String {
    let mut shown = String::with_capacity(output.len());
    let mut rest = output;
    while let Some(next) = rest.chars().next() {
        let before_is_word = shown.ends_with(|character: char| character.is_ascii_alphanumeric());
        let replaced =
            if before_is_word { None } else { instant(rest).or_else(|| id(rest)).or_else(|| hash(rest)).or_else(|| uuid(rest)) };
        let taken = replaced.as_deref().map_or(next.len_utf8(), str::len);
        shown.push_str(replaced.as_deref().unwrap_or(&rest[..taken]));
        rest = &rest[taken..];
    }
    shown
}

/// `2026-11-15T09:30:00.000Z` or `2026-11-15 09:30:00` at the start of a text.
fn instant(text: &str) -> Option<String> {
    let matches = |shape: &str| {
        let bytes = text.as_bytes().get(..shape.len())?;
        let fits = |(byte, wanted): (&u8, u8)| if wanted == b'0' { byte.is_ascii_digit() } else { *byte == wanted };
        bytes.iter().zip(shape.bytes()).all(fits).then(|| shape.to_owned())
    };
    matches("0000-00-00T00:00:00.000Z").or_else(|| matches("0000-00-00 00:00:00"))
}

/// `note_` and 26 characters, of any kind of id.
fn id(text: &str) -> Option<String> {
    let (prefix, rest) = text.split_once('_')?;
    let short = (1..=12).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_lowercase());
    let length = rest.bytes().take_while(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()).count();
    (short && length == 26).then(|| format!("{prefix}_{}", "x".repeat(26)))
}

/// 64 hexadecimal digits.
fn hash(text: &str) -> Option<String> {
    let length = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    (length == 64).then(|| "f".repeat(64))
}

/// The operation id that is made when none is given.
fn uuid(text: &str) -> Option<String> {
    let shape = "00000000-0000-0000-0000-000000000000";
    let bytes = text.as_bytes().get(..shape.len())?;
    let fits = |(byte, wanted): (&u8, u8)| if wanted == b'-' { *byte == wanted } else { byte.is_ascii_hexdigit() };
    bytes.iter().zip(shape.bytes()).all(fits).then(|| shape.to_owned())
}

#[test]
fn what_differs_from_run_to_run_is_replaced_width_for_width() {
    let id = "note_2srs36v16b0y619sw3jgxxsjgs";
    let hash = "6509d00486eced581d7d8ac9cd7710ef75ba704720b3e13bc7b3d7782dec2027";
    let text = format!("{id} v1 2026-11-15 15:15:28 \"2026-11-15T15:15:28.700Z\" #2={hash} a_note – {}", &id[..20]);
    let expected = format!(
        "note_{} v1 0000-00-00 00:00:00 \"0000-00-00T00:00:00.000Z\" #2={} a_note – {}",
        "x".repeat(26),
        "f".repeat(64),
        &id[..20]
    );
    assert_eq!(redacted(&text), expected);
}

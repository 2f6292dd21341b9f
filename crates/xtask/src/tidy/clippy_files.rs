//! Owns the text of each room's `clippy.toml`, so that determinism is a lint and not a hope.
//!
//! Clippy reads the file of the package it checks and then ignores any file further up. Shared settings are
//! therefore repeated in every room, and this module is where they are written once. `--fix` writes the files,
//! the check compares them byte by byte.

use std::fmt::Write as _;

use super::project::{Error, Project};
use super::report::{Report, Rule};
use super::rooms::{Kind, Room};

const HEAD: &str = "\
# Written by `cargo xtask tidy --fix`; change crates/xtask/src/tidy/clippy_files.rs instead.
# Clippy reads only the nearest file, so the shared settings are repeated in every room.
allow-unwrap-in-tests = true
allow-expect-in-tests = true
allow-print-in-tests = true
allow-dbg-in-tests = false
too-many-lines-threshold = 70
";

/// Paths that share a reason to stay away from them.
struct Ban {
    reason: &'static str,
    /// From outside the standard library: clippy must not complain in rooms that do not depend on it.
    foreign: bool,
    paths: &'static [&'static str],
}

const EVERYWHERE: &[Ban] = &[Ban {
    reason: "SQLite is opened by one function of `store`, which sets the pragmas that durability rests on",
    foreign: true,
    paths: &[
        "rusqlite::Connection::open",
        "rusqlite::Connection::open_with_flags",
        "rusqlite::Connection::open_with_flags_and_vfs",
        "rusqlite::Connection::open_in_memory",
        "rusqlite::Connection::open_in_memory_with_flags",
        "rusqlite::Connection::open_in_memory_with_flags_and_vfs",
    ],
}];

const IN_PURE_ROOMS: &[Ban] = &[
    Ban {
        reason: "time is a value that the caller passes in",
        foreign: false,
        paths: &[
            "std::time::SystemTime::now",
            "std::time::SystemTime::elapsed",
            "std::time::Instant::now",
            "std::time::Instant::elapsed",
        ],
    },
    Ban {
        reason: "time is a value that the caller passes in",
        foreign: true,
        paths: &["jiff::Timestamp::now", "jiff::Zoned::now", "jiff::tz::TimeZone::system"],
    },
    Ban {
        reason: "randomness is a value that the caller passes in",
        foreign: true,
        paths: &[
            "getrandom::fill",
            "getrandom::u32",
            "getrandom::u64",
            "rand::rng",
            "rand::random",
            "uuid::Uuid::new_v4",
            "uuid::Uuid::now_v7",
        ],
    },
    Ban {
        reason: "a pure room does not see the environment",
        foreign: false,
        paths: &[
            "std::env::var",
            "std::env::var_os",
            "std::env::vars",
            "std::env::vars_os",
            "std::env::args",
            "std::env::args_os",
            "std::env::current_dir",
            "std::env::temp_dir",
        ],
    },
    Ban {
        reason: "a pure room does not touch files",
        foreign: false,
        paths: &[
            "std::fs::read",
            "std::fs::read_to_string",
            "std::fs::write",
            "std::fs::File::open",
            "std::fs::File::create",
            "std::fs::OpenOptions::open",
            "std::fs::create_dir",
            "std::fs::create_dir_all",
            "std::fs::remove_file",
            "std::fs::remove_dir_all",
            "std::fs::read_dir",
            "std::fs::rename",
            "std::fs::copy",
            "std::fs::metadata",
            "std::path::Path::exists",
            "std::path::Path::canonicalize",
        ],
    },
    Ban {
        reason: "a pure room does not touch the network",
        foreign: false,
        paths: &["std::net::TcpStream::connect", "std::net::TcpListener::bind", "std::net::UdpSocket::bind"],
    },
    Ban {
        reason: "a pure room starts no thread and no process, and never waits",
        foreign: false,
        paths: &["std::thread::spawn", "std::thread::scope", "std::thread::sleep", "std::process::Command::new"],
    },
];

const TYPES_IN_PURE_ROOMS: &[Ban] = &[Ban {
    reason: "its order differs from run to run; take the BTree kind",
    foreign: false,
    paths: &["std::collections::HashMap", "std::collections::HashSet"],
}];

pub(crate) fn check(project: &Project, rooms: &[Room], report: &mut Report) -> Result<(), Error> {
    for (path, expected) in files(project, rooms) {
        let message = match project.read_if_present(&path)? {
            Some(text) if text == expected => continue,
            Some(_) => "the file differs from what tidy would write; `cargo xtask tidy --fix` writes it",
            None => "the file is missing; `cargo xtask tidy --fix` writes it",
        };
        report.problem(Rule::ClippyFiles, &path, 1, message.to_owned());
    }
    Ok(())
}

pub(crate) fn write(project: &Project, rooms: &[Room], report: &mut Report) -> Result<(), Error> {
    for (path, expected) in files(project, rooms) {
        if project.read_if_present(&path)?.as_deref() != Some(expected.as_str()) {
            project.write(&path, &expected)?;
            report.written.push(path);
        }
    }
    Ok(())
}

/// Path and text for each crate that is a room; the others are reported by [`super::edges`].
fn files(project: &Project, rooms: &[Room]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for package in &project.crates {
        if let Some(room) = rooms.iter().find(|room| room.name == package.name) {
            files.push((format!("{}/clippy.toml", package.folder), text(room.kind)));
        }
    }
    files
}

fn text(kind: Kind) -> String {
    let mut text = HEAD.to_owned();
    match kind {
        Kind::Pure => {
            list(&mut text, "disallowed-methods", IN_PURE_ROOMS.iter().chain(EVERYWHERE));
            list(&mut text, "disallowed-types", TYPES_IN_PURE_ROOMS.iter());
        }
        Kind::Edge | Kind::Dev => list(&mut text, "disallowed-methods", EVERYWHERE.iter()),
    }
    text
}

fn list(text: &mut String, key: &str, bans: impl Iterator<Item = &'static Ban>) {
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        writeln!(text, "{arguments}").expect("writing to a string cannot fail");
    };
    line(format_args!("{key} = ["));
    for ban in bans {
        let foreign = if ban.foreign { "allow-invalid = true, " } else { "" };
        for path in ban.paths {
            line(format_args!("    {{ path = \"{path}\", {foreign}reason = \"{}\" }},", ban.reason));
        }
    }
    line(format_args!("]"));
}

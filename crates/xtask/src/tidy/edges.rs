//! Holds cargo's view of the crates against the rooms table, in both directions.
//!
//! A dependency that the table does not list fails, and so does a listed one that no crate has: the page is the
//! map, and a map with a door that is not there is wrong too. Dependencies of tests are free; a build script's
//! are not, since what it does ends up in the crate.

use super::project::{Crate, Error, Project};
use super::report::{Report, Rule};
use super::rooms::{self, Room};

pub(crate) fn check(project: &Project, rooms: &[Room], report: &mut Report) -> Result<(), Error> {
    for package in &project.crates {
        let manifest = Manifest::read(project, package)?;
        match rooms.iter().find(|room| room.name == package.name) {
            Some(room) => check_room(room, package, &manifest, report),
            None => {
                let message = format!("the crate `{}` is not a room of {}", package.name, rooms::PAGE);
                report.problem(Rule::Edges, &manifest.path, 1, message);
            }
        }
    }
    for room in rooms {
        if !project.crates.iter().any(|package| package.name == room.name) {
            let message = format!("there is no crate for the room `{}`", room.name);
            report.problem(Rule::Edges, rooms::PAGE, room.line, message);
        }
    }
    Ok(())
}

fn check_room(room: &Room, package: &Crate, manifest: &Manifest, report: &mut Report) {
    for used in &package.uses {
        if !room.may_use.contains(used) {
            let message = format!("`{}` uses `{used}`, which {} does not list", room.name, rooms::PAGE);
            report.problem(Rule::Edges, &manifest.path, manifest.line_of(used), message);
        }
    }
    for used in &room.may_use {
        if !package.uses.contains(used) {
            let message = format!("`{}` is said to use `{used}` but does not", room.name);
            report.problem(Rule::Edges, rooms::PAGE, room.line, message);
        }
    }
    if package.folder != format!("crates/{}", package.name) {
        let message = format!("the crate `{0}` does not live in `crates/{0}`", package.name);
        report.problem(Rule::Edges, &manifest.path, 1, message);
    }
}

/// A crate's manifest as text, to point at the line that makes an edge.
struct Manifest {
    path: String,
    text: String,
}

impl Manifest {
    fn read(project: &Project, package: &Crate) -> Result<Self, Error> {
        let path = format!("{}/Cargo.toml", package.folder);
        let text = project.read_if_present(&path)?.unwrap_or_default();
        Ok(Self { path, text })
    }

    /// The line that names a dependency; the first one when it is written in a way not foreseen here.
    fn line_of(&self, dependency: &str) -> usize {
        let names = |line: &str| {
            let rest = line.strip_prefix(dependency);
            rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        };
        self.text.lines().position(names).map_or(1, |index| index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_shown_where_the_manifest_makes_it() {
        let manifest = Manifest {
            path: "crates/cli/Cargo.toml".into(),
            text: "[dependencies]\nstorehouse = \"1\"\nstore.workspace = true\nstored = \"2\"\n".into(),
        };
        assert_eq!(manifest.line_of("store"), 3);
        assert_eq!(manifest.line_of("stored"), 4);
        assert_eq!(manifest.line_of("absent"), 1);
    }
}

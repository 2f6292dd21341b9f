//! Reads the rooms table of `ARCHITECTURE.md`: which crates there are, of what kind, and which they may use.
//!
//! The table is the promise; [`super::edges`] holds cargo's view against it and [`super::clippy_files`] takes the
//! kind from it. Here only the table itself is judged: known kinds, no room twice, and no room that uses one it
//! could not use by its kind.

use super::markdown::{self, Row};
use super::project::{Error, Project};
use super::report::{Report, Rule};

pub(crate) const PAGE: &str = "ARCHITECTURE.md";
const HEADER: [&str; 3] = ["room", "kind", "may use"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) may_use: Vec<String>,
    /// Where the page says so.
    pub(crate) line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Decides: no clock, no randomness, no environment, files, network or threads.
    Pure,
    /// Does: touches the world on behalf of a pure room's decision.
    Edge,
    /// Serves the developers and is not part of the product.
    Dev,
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "pure" => Some(Self::Pure),
            "edge" => Some(Self::Edge),
            "dev" => Some(Self::Dev),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Edge => "edge",
            Self::Dev => "dev",
        }
    }

    /// A decision may not depend on anything that acts, and the product may not depend on its tools.
    fn may_use(self, other: Self) -> bool {
        match self {
            Self::Pure => other == Self::Pure,
            Self::Edge => other != Self::Dev,
            Self::Dev => true,
        }
    }
}

pub(crate) fn read(project: &Project, report: &mut Report) -> Result<Vec<Room>, Error> {
    let text = project.read_if_present(PAGE)?.unwrap_or_default();
    let Some(rows) = markdown::table(&text, &HEADER) else {
        let message = format!("no table with the columns `{}`", HEADER.join(" | "));
        report.problem(Rule::Rooms, PAGE, 1, message);
        return Ok(Vec::new());
    };
    let mut rooms: Vec<Room> = Vec::new();
    for row in rows {
        match room(&row) {
            Ok(room) if rooms.iter().any(|other| other.name == room.name) => {
                let message = format!("the room `{}` is listed twice", room.name);
                report.problem(Rule::Rooms, PAGE, row.line, message);
            }
            Ok(room) => rooms.push(room),
            Err(message) => report.problem(Rule::Rooms, PAGE, row.line, message),
        }
    }
    check_kinds(&rooms, report);
    Ok(rooms)
}

fn room(row: &Row) -> Result<Room, String> {
    let [name, kind, may_use] = row.cells.as_slice() else {
        return Err(format!("a row has {} cells instead of 3", row.cells.len()));
    };
    let kind = Kind::parse(kind).ok_or_else(|| format!("`{kind}` is not `pure`, `edge` or `dev`"))?;
    Ok(Room { name: name.trim_matches('`').to_owned(), kind, may_use: markdown::names(may_use), line: row.line })
}

fn check_kinds(rooms: &[Room], report: &mut Report) {
    for room in rooms {
        for used in rooms.iter().filter(|other| room.may_use.contains(&other.name)) {
            if !room.kind.may_use(used.kind) {
                let message = format!(
                    "the {} room `{}` must not use the {} room `{}`",
                    room.kind.name(),
                    room.name,
                    used.kind.name(),
                    used.name
                );
                report.problem(Rule::Rooms, PAGE, room.line, message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_a_room_or_says_why_not() {
        let row = |cells: &[&str]| Row { line: 7, cells: cells.iter().map(|cell| (*cell).to_owned()).collect() };
        let store = Room { name: "store".into(), kind: Kind::Edge, may_use: vec!["domain".into()], line: 7 };
        assert_eq!(room(&row(&["`store`", "edge", "`domain`"])), Ok(store));
        assert_eq!(room(&row(&["`store`", "grey", "–"])), Err("`grey` is not `pure`, `edge` or `dev`".into()));
        assert_eq!(room(&row(&["`store`", "edge"])), Err("a row has 2 cells instead of 3".into()));
    }

    #[test]
    fn a_decision_may_not_use_an_act() {
        assert!(Kind::Edge.may_use(Kind::Pure));
        assert!(Kind::Dev.may_use(Kind::Edge));
        assert!(!Kind::Pure.may_use(Kind::Edge));
        assert!(!Kind::Edge.may_use(Kind::Dev));
    }
}

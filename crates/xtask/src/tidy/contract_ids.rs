//! Keeps `docs/contracts.md` and the tests in step, in both directions.
//!
//! The page lists the promises that are claimed to hold. A claim counts only when a test carries the id at the
//! front of its name (`k13_without_a_title_…`, or several: `k8_l24_…`), and a test that carries an id is
//! itself a claim, so its id must be on the page. A test is any function of a file that has tests at all: what
//! macros make of it cannot be seen from here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::markdown;
use super::project::{Error, Project, Source};
use super::report::{Report, Rule};

const PAGE: &str = "docs/contracts.md";
const HEADER: [&str; 3] = ["id", "what of it holds", "where it is proven"];
const TEST_MARKS: [&str; 2] = [concat!("#[", "test]"), concat!("prop", "test!")];

/// The groups of promises and how many each has.
const GROUPS: [(char, u32); 4] = [('K', 24), ('N', 22), ('L', 61), ('D', 19)];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    group: char,
    number: u32,
}

impl Id {
    /// Reads `K13`; whether there is such a promise is another question.
    fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let group = chars.next()?;
        let digits = chars.as_str();
        let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        if !plain || !GROUPS.iter().any(|(known, _)| *known == group) {
            return None;
        }
        let number = digits.parse().ok()?;
        Some(Self { group, number })
    }

    fn exists(self) -> bool {
        GROUPS.iter().any(|(group, count)| *group == self.group && (1..=*count).contains(&self.number))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.group, self.number)
    }
}

pub(crate) fn check(project: &Project, report: &mut Report) -> Result<(), Error> {
    let text = project.read_if_present(PAGE)?.unwrap_or_default();
    let claimed = claimed(&text, report);
    let mut proven = BTreeSet::new();
    for source in &project.sources {
        for (line, id) in carried(source) {
            proven.insert(id);
            if !id.exists() {
                let message = format!("a test carries `{id}`, and there is no such contract");
                report.problem(Rule::ContractIds, &source.path, line, message);
            } else if !claimed.contains_key(&id) {
                let message = format!("a test carries `{id}`, which {PAGE} does not list");
                report.problem(Rule::ContractIds, &source.path, line, message);
            }
        }
    }
    for (id, line) in claimed {
        if !proven.contains(&id) {
            let message = format!("`{id}` is said to hold, but no test carries it in its name");
            report.problem(Rule::ContractIds, PAGE, line, message);
        }
    }
    Ok(())
}

/// The ids on the page, each with its line.
fn claimed(text: &str, report: &mut Report) -> BTreeMap<Id, usize> {
    let mut claimed = BTreeMap::new();
    let Some(rows) = markdown::table(text, &HEADER) else {
        let message = format!("no table with the columns `{}`", HEADER.join(" | "));
        report.problem(Rule::ContractIds, PAGE, 1, message);
        return claimed;
    };
    for row in rows {
        let cell = row.cells.first().map_or("", String::as_str).trim_matches('`');
        let Some(id) = Id::parse(cell).filter(|id| id.exists()) else {
            let message = format!("`{cell}` is not the id of a contract");
            report.problem(Rule::ContractIds, PAGE, row.line, message);
            continue;
        };
        if row.cells.len() != HEADER.len() || row.cells.iter().any(String::is_empty) {
            let message = format!("the row of `{id}` does not say where it is proven");
            report.problem(Rule::ContractIds, PAGE, row.line, message);
        }
        if claimed.insert(id, row.line).is_some() {
            let message = format!("`{id}` is listed twice");
            report.problem(Rule::ContractIds, PAGE, row.line, message);
        }
    }
    claimed
}

/// The ids that the tests of a file carry in their names, each with its line.
fn carried(source: &Source) -> Vec<(usize, Id)> {
    if !TEST_MARKS.iter().any(|mark| source.text.contains(mark)) {
        return Vec::new();
    }
    let mut carried = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        if let Some(name) = function_name(line) {
            carried.extend(leading_ids(name).into_iter().map(|id| (index + 1, id)));
        }
    }
    carried
}

/// The name of the function that a line opens.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for qualifier in ["pub ", "pub(crate) ", "pub(super) ", "async "] {
        rest = rest.strip_prefix(qualifier).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    Some(&name[..end.unwrap_or(name.len())])
}

fn leading_ids(name: &str) -> Vec<Id> {
    let mut ids = Vec::new();
    let mut words = name.split('_').peekable();
    while let Some(word) = words.next() {
        // An id is followed by `_` and the sentence that it proves.
        let followed = words.peek().is_some();
        let lower = !word.chars().any(char::is_uppercase);
        match Id::parse(&word.to_ascii_uppercase()) {
            Some(id) if followed && lower => ids.push(id),
            _ => break,
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_name(name: &str, expect: &[&str]) {
        let ids: Vec<String> = leading_ids(name).iter().map(Id::to_string).collect();
        assert_eq!(ids, expect, "{name}");
    }

    #[test]
    fn ids_stand_at_the_front_of_a_name() {
        check_name("k13_without_a_title_it_is_the_datetime", &["K13"]);
        check_name("k8_l24_a_kill_between_the_commits_converges", &["K8", "L24"]);
        check_name("k99_is_read_and_refused_later", &["K99"]);
        check_name("k13", &[]);
        check_name("k013_no_leading_zero", &[]);
        check_name("a_note_k13_is_not_at_the_front", &[]);
        check_name("x1_no_such_group", &[]);
        check_name("k_means", &[]);
    }

    #[test]
    fn only_a_function_has_a_test_name() {
        assert_eq!(function_name("    fn d1_holds() {"), Some("d1_holds"));
        assert_eq!(function_name("pub(crate) async fn d1_holds("), Some("d1_holds"));
        assert_eq!(function_name("// fn d1_holds()"), None);
        assert_eq!(function_name("let fn_name = 1;"), None);
    }

    #[test]
    fn an_id_exists_only_within_its_group() {
        let exists = |text| Id::parse(text).is_some_and(Id::exists);
        assert!(exists("K24") && exists("N22") && exists("L61") && exists("D19"));
        assert!(!exists("K25") && !exists("D20") && !exists("K0") && !exists("M1") && !exists("K"));
    }
}

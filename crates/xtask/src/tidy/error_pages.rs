//! Every error code has a page that explains it to a person, and no page explains a code that is gone.
//!
//! The table of codes is Rust source, read here as text: one code a line, `Variant = "code_text", …`, between
//! `codes! {` and the line that closes it. Linking the crate instead would make the checker depend on what
//! it checks, and a crate that does not compile could not be tidied.

use super::project::{Error, Project};
use super::report::{Report, Rule};

const TABLE: &str = "crates/domain/src/code.rs";
const PAGES: &str = "docs/errors";
/// The one page of the folder that is not about a single code.
const INDEX: &str = "README.md";

#[derive(Debug, PartialEq, Eq)]
struct Code {
    line: usize,
    text: String,
}

pub(crate) fn check(project: &Project, report: &mut Report) -> Result<(), Error> {
    let table = project.read_if_present(TABLE)?.unwrap_or_default();
    let codes = codes(&table);
    if codes.is_empty() {
        let message = "no error codes found in a `codes! { … }` table".to_owned();
        report.problem(Rule::ErrorPages, TABLE, 1, message);
    }
    for code in &codes {
        let path = format!("{PAGES}/{}.md", code.text);
        match project.read_if_present(&path)? {
            None => {
                let message = format!("the code `{}` has no page `{path}`", code.text);
                report.problem(Rule::ErrorPages, TABLE, code.line, message);
            }
            Some(page) if page.lines().next() != Some(&format!("# {}", code.text)) => {
                let message = format!("the page does not begin with `# {}`", code.text);
                report.problem(Rule::ErrorPages, &path, 1, message);
            }
            Some(_) => {}
        }
    }
    for name in project.file_names(PAGES)? {
        let known = name.strip_suffix(".md").is_some_and(|stem| codes.iter().any(|code| code.text == stem));
        if !known && name != INDEX {
            let message = format!("there is no code for this page in {TABLE}");
            report.problem(Rule::ErrorPages, &format!("{PAGES}/{name}"), 1, message);
        }
    }
    Ok(())
}

fn codes(table: &str) -> Vec<Code> {
    table
        .lines()
        .enumerate()
        .skip_while(|(_, line)| !line.starts_with("codes! {"))
        .take_while(|(_, line)| *line != "}")
        .filter_map(|(index, line)| {
            let text = code(line)?.to_owned();
            Some(Code { line: index + 1, text })
        })
        .collect()
}

/// The code of a line such as `    OutOfScope = "out_of_scope", …`.
fn code(line: &str) -> Option<&str> {
    let entry = line.trim_start();
    if entry.len() == line.len() {
        return None;
    }
    let (variant, rest) = entry.split_once(" = \"")?;
    let (code, _) = rest.split_once('"')?;
    let is_variant = variant.starts_with(|c: char| c.is_ascii_uppercase()) && variant.bytes().all(|b| b.is_ascii_alphanumeric());
    let is_code = !code.is_empty() && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (is_variant && is_code).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_from_the_table_and_from_nowhere_else() {
        let table = "\
//! Doc with `codes! {` in it.
const NAME: &str = \"not_a_code\";
codes! {
    /// A scope was left.
    OutOfScope = \"out_of_scope\", person, 403;
    VersionConflict = \"VERSION_CONFLICT\", person, 409;
    // Spare = \"spare\"
}
fn later() {
    Variant = \"after_the_table\"
}
";
        let code = |line, text: &str| Code { line, text: text.into() };
        assert_eq!(codes(table), [code(5, "out_of_scope"), code(6, "VERSION_CONFLICT")]);
        assert_eq!(codes(""), []);
    }
}

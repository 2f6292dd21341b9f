//! Reads the tables of our own Markdown pages.
//!
//! Only as much Markdown as our pages use: a table is found by its header cells and ends at the first line that
//! is not a row. Cells are trimmed and keep their backticks; a `|` inside a cell is not supported, because none
//! of the tables that tidy reads needs one.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) cells: Vec<String>,
}

/// The rows of the first table whose header has exactly these cells, or nothing when there is no such table.
pub(crate) fn table(text: &str, header: &[&str]) -> Option<Vec<Row>> {
    let mut lines = text.lines().enumerate();
    lines.find(|(_, line)| cells(line).is_some_and(|cells| cells == header))?;
    let mut rows = Vec::new();
    for (index, line) in lines {
        let Some(cells) = cells(line) else { break };
        if !cells.iter().all(|cell| is_rule(cell)) {
            rows.push(Row { line: index + 1, cells });
        }
    }
    Some(rows)
}

/// The words of a cell that lists names: `` `domain`, `store` `` gives both, `–` gives none.
pub(crate) fn names(cell: &str) -> Vec<String> {
    cell.split(',')
        .map(|name| name.trim().trim_matches('`').to_owned())
        .filter(|name| !matches!(name.as_str(), "" | "-" | "–"))
        .collect()
}

fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// The line under a header is made of dashes, and colons that align the column.
fn is_rule(cell: &str) -> bool {
    cell.contains("---") && cell.chars().all(|c| matches!(c, '-' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Page

| other | table |
|---|---|
| a | b |

| room | kind | may use |
|:---|---|---|
| `store` | edge | `domain` |
| `domain` | pure | – |

| not | in | it |
";

    #[test]
    fn a_table_is_found_by_its_header_and_ends_with_its_last_row() {
        let row = |line, cells: [&str; 3]| Row { line, cells: cells.map(str::to_owned).to_vec() };
        let expect = vec![row(9, ["`store`", "edge", "`domain`"]), row(10, ["`domain`", "pure", "–"])];
        assert_eq!(table(PAGE, &["room", "kind", "may use"]), Some(expect));
        assert_eq!(table(PAGE, &["room", "kind"]), None);
    }

    #[test]
    fn a_cell_of_names_is_split_and_a_dash_means_none() {
        assert_eq!(names("`domain`, store"), ["domain", "store"]);
        assert_eq!(names("–"), Vec::<String>::new());
        assert_eq!(names("-"), Vec::<String>::new());
        assert_eq!(names(""), Vec::<String>::new());
    }
}

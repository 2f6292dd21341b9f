//! What goes to the terminal: aligned text for people, one document for programs.

use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use crate::output_error;

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    Error(runtime::Error),
    /// The answer was given; only the exit code is left.
    Exit(u8),
    /// Whoever read our answer has had enough.
    StdoutClosed,
}

impl From<runtime::Error> for Failure {
    fn from(error: runtime::Error) -> Self {
        Self::Error(error)
    }
}

#[derive(Debug)]
pub(crate) struct Out {
    pub json: bool,
    coloured: bool,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        let coloured = !json
            && io::stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
        Self { json, coloured }
    }

    /// Writes a text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| output_error(&error))
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// The one document of a `--json` answer; `schema` names its shape and version.
    pub(crate) fn document(&mut self, schema: &str, mut content: Value) -> Result<(), Failure> {
        if let Value::Object(fields) = &mut content {
            fields.insert("schema".to_owned(), json!(schema));
        }
        let text = serde_json::to_string_pretty(&content).unwrap_or_default();
        self.line(&text)
    }

    /// Columns of equal width; the last one is as long as it is.
    pub(crate) fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([heading[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..heading.len()).map(width).collect();
        let aligned = |cells: &[String]| {
            let padded: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            padded.join("  ").trim_end().to_owned()
        };
        let heading: Vec<_> = heading.iter().map(|name| (*name).to_owned()).collect();
        let mut text = self.dim(&aligned(&heading));
        for row in rows {
            text.push('\n');
            text.push_str(&aligned(row));
        }
        self.line(&text)
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.styled("2", text)
    }

    pub(crate) fn good(&self, text: &str) -> String {
        self.styled("32", text)
    }

    pub(crate) fn bad(&self, text: &str) -> String {
        self.styled("31", text)
    }

    fn styled(&self, style: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// An error: what, which rule, what next. With `--json` it is the document.
    pub(crate) fn error(&mut self, error: &runtime::Error) {
        let shown = format!("error[{}]: {}\n  next: {}", error.code, plain(&error.message), error.next_step());
        note(&shown);
        if self.json {
            self.error_answer(error);
        }
    }

    /// The document alone.
    pub(crate) fn error_answer(&mut self, error: &runtime::Error) {
        let content = json!({ "error": error_document(error) });
        // Nobody is left to tell if this fails.
        self.document("verger.error.v1", content).ok();
    }
}

pub(crate) fn error_document(error: &runtime::Error) -> Value {
    json!({
        "code": error.code.as_str(),
        "message": error.message,
        "next_step": error.next_step(),
        "fixer": error.code.fixer().as_str(),
        "details": error.details,
    })
}

/// A line on stderr: progress, hints, errors.
pub(crate) fn note(text: &str) {
    // A closed stderr must not stop the work.
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Text that somebody else wrote, without anything that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    let harmless = |character: char| match character {
        '\n' | '\t' => character,
        character if character.is_control() => '\u{fffd}',
        // Marks that reorder what is shown: a name could pretend to be another one.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        character => character,
    };
    text.chars().map(harmless).collect()
}

/// A number with its word: `1 cycle`, `2 cycles`.
pub(crate) fn counted(count: i64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// One line of at most `width` characters.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    let line = plain(text).replace(['\n', '\t'], " ");
    if line.chars().count() <= width {
        return line;
    }
    let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_cannot_drive_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{202e}c\nd"), "a\u{fffd}[2Jb\u{fffd}c\nd");
        assert_eq!(shortened("one\ntwo three", 7), "one tw…");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([counted(0, "cycle"), counted(1, "cycle"), counted(2, "cycle")], ["0 cycles", "1 cycle", "2 cycles"]);
    }
}

//! Manifest files: YAML, of which JSON is a part, read into the manifest's own type and checked.

use std::io::Read;
use std::path::Path;

use control::manifest::Manifest;
use domain::code::ErrorCode;
use serde_json::json;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};

use crate::{Error, Result};

/// LIMIT: bytes of a manifest file; a prompt has at most an eighth of it, and a script is a rehearsal and no library.
const FILE_BYTES_MAX: usize = 256 << 10;
/// LIMIT: nodes of a manifest: more than its longest script with an object for each reply.
const NODES_MAX: usize = 50_000;
/// LIMIT: levels of nesting; a tool's parameters have the most.
const DEPTH_MAX: usize = 48;

/// Reads a manifest from a file. What is wrong is said with the file, the line and the field or rule.
pub fn read_manifest(path: &Path) -> Result<Manifest> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    let read = std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|error| invalid(&name, None, &error.to_string()))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(invalid(&name, None, &format!("a manifest has at most {FILE_BYTES_MAX} bytes, and this is longer")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        invalid(&name, Some(line as u64), "it is not UTF-8")
    })?;
    parse_manifest(&text, &name)
}

/// Reads a manifest from a text; `name` is what errors call it.
pub fn parse_manifest(text: &str, name: &str) -> Result<Manifest> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: NODES_MAX,
            max_events: 4 * NODES_MAX,
            max_depth: DEPTH_MAX,
            max_documents: 1,
            max_aliases: 0,
            max_anchors: 0,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    let manifest: Manifest = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        let what = told(&error);
        let field = line.and_then(|line| field_at(text, line)).filter(|field| !what.contains(field));
        invalid(name, line, &field.map_or_else(|| what.clone(), |field| format!("{field}: {what}")))
    })?;
    manifest.check().map_err(|rule| {
        let mut error = invalid(name, line_of(text, rule.field), &rule.to_string());
        error.details["field"] = json!(rule.field);
        error
    })?;
    Ok(manifest)
}

fn invalid(file: &str, line: Option<u64>, what: &str) -> Error {
    let place = line.map_or_else(|| file.to_owned(), |line| format!("{file}, line {line}"));
    let details = json!({ "file": file, "line": line });
    Error { details, ..Error::new(ErrorCode::ManifestInvalid, format!("{place}: {what}")) }
}

/// The parser's message as one line, in our words where its own are for programmers.
fn told(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let text = text.split(" at line ").next().unwrap_or(&text).trim_end_matches('.');
    let text = text.split(", set DuplicateKeyPolicy").next().unwrap_or(text);
    match text {
        "invalid u32" | "invalid i64" => "a whole number is expected".to_owned(),
        text if text.starts_with("budget breached") => {
            "a manifest is one document without anchors and aliases, and neither this large nor this deep".to_owned()
        }
        text => text.to_owned(),
    }
}

/// The field that a line begins with.
fn field_at(text: &str, line: u64) -> Option<&str> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let name = line.trim_start().trim_start_matches("- ").split_once(':')?.0;
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(name).filter(|name| !name.is_empty())
}

/// The line where a field stands; of a nested one, its last name.
fn line_of(text: &str, field: &str) -> Option<u64> {
    let name = field.rsplit('.').next().unwrap_or(field);
    let is_here = |line: &str| {
        let key = line.trim_start().trim_start_matches(['"', '{', '-', ' ']);
        key.strip_prefix(name).is_some_and(|rest| rest.trim_start_matches('"').trim_start().starts_with(':'))
    };
    text.lines().position(is_here).map(|at| at as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        match parse_manifest(text, "m.yaml") {
            Ok(_) => assert_eq!("ok", expected, "{text}"),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::ManifestInvalid);
                assert_eq!(error.message, expected, "{text}");
            }
        }
    }

    const GOOD: &str = "schema: 1\nagent: gardener\nprompt: plan the garden\nmodel:\n  provider: scripted\n";

    #[test]
    fn a_reply_may_be_a_text_or_an_object() {
        let text = format!("{GOOD}  script:\n    - '{{\"action\":\"no_op\"}}'\n    - action: no_op\n      details: \"no\"\n");
        let manifest = parse_manifest(&text, "m.yaml").unwrap();
        let control::manifest::Model::Scripted { script } = &manifest.model;
        assert_eq!(script, &[r#"{"action":"no_op"}"#, r#"{"action":"no_op","details":"no"}"#]);
    }

    #[test]
    fn json_is_a_manifest_too() {
        check(r#"{"schema":1,"agent":"gardener","prompt":"plan","model":{"provider":"scripted"}}"#, "ok");
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_field() {
        check(GOOD, "ok");
        check("", "m.yaml, line 1: unexpected end of input");
        check(&format!("{GOOD}agent: other\n"), "m.yaml, line 6: duplicate mapping key: agent");
        check(&format!("{GOOD}mode: wild\n"), "m.yaml, line 6: mode: `wild` is not one of reviewed, yolo");
        check("schema: 1\nagent: a\nprompt: 'open\n", "m.yaml, line 4: invalid indentation in multiline quoted scalar");
        let bounds = "m.yaml, line 6: bounds: `max_iterations`, `max_wall_ms` and `max_tokens` are at least 1";
        check(&format!("{GOOD}bounds:\n  max_iterations: 0\n"), bounds);
        check(&GOOD.replace("schema: 1", "schema: 9"), "m.yaml, line 1: schema: 9 is not known; this build reads 1");
        let name = "a name has 1 to 64 lower-case letters, digits, `-` or `_`, and begins with a letter or digit";
        check(&GOOD.replace("agent: gardener", "agent: Big Gardener"), &format!("m.yaml, line 2: agent: {name}"));
        check(&format!("{GOOD}loop_delay_ms: soon\n"), "m.yaml, line 6: loop_delay_ms: a whole number is expected");
        let one = "a manifest is one document without anchors and aliases, and neither this large nor this deep";
        check(&format!("{GOOD}---\nschema: 1\n"), &format!("m.yaml, line 6: {one}"));
        check(&GOOD.replace("agent: gardener", "agent: &a gardener"), &format!("m.yaml, line 2: agent: {one}"));
        let mood = parse_manifest(&format!("{GOOD}mood: good\n"), "m.yaml").unwrap_err().message;
        assert!(mood.starts_with("m.yaml, line 6: unknown field `mood`, expected one of schema, agent"), "{mood}");
        let tools = parse_manifest(&format!("{GOOD}tools: [fly]\n"), "m.yaml").unwrap_err();
        assert!(tools.message.starts_with("m.yaml, line 6: tools: `fly` is not a tool; there are create_task"), "{tools}");
        assert_eq!(tools.details, json!({ "file": "m.yaml", "line": 6, "field": "tools" }));
    }

    #[test]
    fn the_example_is_a_manifest() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agents/planner.yaml");
        let manifest = read_manifest(&path).unwrap();
        assert_eq!((manifest.agent.as_str(), manifest.bounds.max_iterations), ("planner", 20));
    }
}

//! Manifest files: YAML, of which JSON is a part, read into the manifest's own type and checked.

use std::io::Read;
use std::path::Path;

use control::manifest::Manifest;
use domain::code::ErrorCode;
use serde_json::{Value, json};
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
    read.map_err(|error| unreadable(&name, &error))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(invalid(&name, None, None, &format!("a manifest has at most {FILE_BYTES_MAX} bytes, and this is longer")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        invalid(&name, Some(line as u64), None, "it is not UTF-8")
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
    let unread = |error: serde_saphyr::Error| {
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        let what = told(&error);
        let field = line.and_then(|line| field_at(text, line));
        let named = field.filter(|field| !what.contains(field)).map_or_else(|| what.clone(), |field| format!("{field}: {what}"));
        invalid(name, line, field, &named)
    };
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(invalid(name, None, None, &format!("it is empty; {}", a_mapping())));
    }
    // The shape comes first: what a missing or mistyped field leads to further on is said of the wrong place.
    let shape: Value = serde_saphyr::from_str_with_options(text, options.clone()).map_err(unread)?;
    check_shape(&shape).map_err(|(field, rule)| match field {
        Some(field) => invalid(name, line_of(text, field), Some(field), &format!("{field}: {rule}")),
        None => invalid(name, None, None, &rule),
    })?;
    let manifest: Manifest = serde_saphyr::from_str_with_options(text, options).map_err(unread)?;
    manifest.check().map_err(|rule| invalid(name, line_of(text, rule.field), Some(rule.field), &rule.to_string()))?;
    Ok(manifest)
}

/// Fields without which there is no manifest, with what each is.
const REQUIRED: [(&str, &str); 4] =
    [("schema", "a whole number"), ("agent", "a text"), ("prompt", "a text"), ("model", "a mapping")];

fn a_mapping() -> String {
    let fields: Vec<_> = REQUIRED.iter().map(|(field, _)| format!("`{field}`")).collect();
    format!("a manifest is a mapping with the fields {} and others, see docs/manifests.md", fields.join(", "))
}

/// What no default fills in, and what YAML would quietly turn into something else.
fn check_shape(manifest: &Value) -> std::result::Result<(), (Option<&'static str>, String)> {
    let Value::Object(fields) = manifest else {
        let found = match manifest {
            Value::Array(_) => "a list",
            _ => "a single value",
        };
        return Err((None, format!("it is {found}; {}", a_mapping())));
    };
    let missing = REQUIRED.iter().find(|(field, _)| !fields.contains_key(*field));
    if let Some((field, kind)) = missing {
        return Err((Some(field), format!("it is missing; it is {kind}")));
    }
    let texts = REQUIRED.iter().copied().chain([("title", "a text"), ("workspace", "a text")]);
    for (field, kind) in texts {
        let Some(value) = fields.get(field) else { continue };
        let fits = match kind {
            "a whole number" => value.is_u64(),
            "a text" => value.is_string(),
            _ => value.is_object(),
        };
        if !fits {
            let hint = if kind == "a text" { "; put it in quotes" } else { "" };
            return Err((Some(field), format!("{kind} is expected{hint}")));
        }
    }
    match fields["model"].get("provider").and_then(Value::as_str) {
        Some("scripted") if fields["model"].get("script").is_none() => {
            Err((Some("model"), "`script` is missing: the replies that the provider `scripted` gives, a list".to_owned()))
        }
        _ => Ok(()),
    }
}

fn invalid(file: &str, line: Option<u64>, field: Option<&str>, what: &str) -> Error {
    let place = line.map_or_else(|| file.to_owned(), |line| format!("{file}, line {line}"));
    let details = json!({ "file": file, "line": line, "field": field });
    Error { details, ..Error::new(ErrorCode::ManifestInvalid, format!("{place}: {what}")) }
}

/// A file that cannot be read at all has no line to correct.
fn unreadable(file: &str, error: &std::io::Error) -> Error {
    let (what, next) = match error.kind() {
        std::io::ErrorKind::NotFound => {
            ("there is no such file".to_owned(), "look at the path; a relative one begins in the present folder")
        }
        std::io::ErrorKind::IsADirectory => ("it is a folder".to_owned(), "name the manifest's file itself"),
        std::io::ErrorKind::PermissionDenied => ("it may not be read".to_owned(), "look at the file's permissions"),
        _ => (error.to_string(), "look at the file and the disk it is on"),
    };
    Error { next: Some(next), ..invalid(file, None, None, &what) }
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

    const GOOD: &str = "schema: 1\nagent: gardener\nprompt: plan the garden\nmodel:\n  { provider: scripted, script: [] }\n";

    #[test]
    fn a_reply_may_be_a_text_or_an_object() {
        let text = GOOD.replace("{ provider: scripted, script: [] }", "provider: scripted");
        let text = format!("{text}  script:\n    - '{{\"action\":\"no_op\"}}'\n    - action: no_op\n      details: \"no\"\n");
        let manifest = parse_manifest(&text, "m.yaml").unwrap();
        let control::manifest::Model::Scripted { script } = &manifest.model;
        assert_eq!(script, &[r#"{"action":"no_op"}"#, r#"{"action":"no_op","details":"no"}"#]);
    }

    #[test]
    fn json_is_a_manifest_too() {
        check(r#"{"schema":1,"agent":"gardener","prompt":"plan","model":{"provider":"scripted","script":[]}}"#, "ok");
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_field() {
        check(GOOD, "ok");
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
    fn what_is_no_manifest_at_all_is_told_what_one_is() {
        let mapping =
            "a manifest is a mapping with the fields `schema`, `agent`, `prompt`, `model` and others, see docs/manifests.md";
        check("", &format!("m.yaml: it is empty; {mapping}"));
        check("# nothing yet\n\n", &format!("m.yaml: it is empty; {mapping}"));
        check("[1, 2]", &format!("m.yaml: it is a list; {mapping}"));
        check("gardener", &format!("m.yaml: it is a single value; {mapping}"));
        check("---\n", &format!("m.yaml: it is a single value; {mapping}"));
        let without = |line: &str| GOOD.replace(line, "");
        check(&without("schema: 1\n"), "m.yaml: schema: it is missing; it is a whole number");
        check(&without("agent: gardener\n"), "m.yaml: agent: it is missing; it is a text");
        check(&without("prompt: plan the garden\n"), "m.yaml: prompt: it is missing; it is a text");
        check("schema: 1\nagent: a\nprompt: p\n", "m.yaml: model: it is missing; it is a mapping");
        check(&GOOD.replace("schema: 1", "schema: \"1\""), "m.yaml, line 1: schema: a whole number is expected");
        check(&GOOD.replace("agent: gardener", "agent: 12"), "m.yaml, line 2: agent: a text is expected; put it in quotes");
        let script = "m.yaml, line 4: model: `script` is missing: the replies that the provider `scripted` gives, a list";
        check(&GOOD.replace(", script: []", ""), script);
        let error = parse_manifest(&GOOD.replace("schema: 1", "schema: \"1\""), "m.yaml").unwrap_err();
        assert_eq!(error.details, json!({ "file": "m.yaml", "line": 1, "field": "schema" }));
    }

    #[test]
    fn a_file_that_is_not_there_has_no_line_to_correct() {
        let missing = read_manifest(Path::new("/nowhere/at/all.yaml")).unwrap_err();
        assert_eq!(missing.message, "/nowhere/at/all.yaml: there is no such file");
        assert!(missing.next_step().starts_with("look at the path"), "{}", missing.next_step());
        assert_eq!(read_manifest(Path::new("/")).unwrap_err().message, "/: it is a folder");
    }

    #[test]
    fn the_example_is_a_manifest() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agents/planner.yaml");
        let manifest = read_manifest(&path).unwrap();
        assert_eq!((manifest.agent.as_str(), manifest.bounds.max_iterations), ("planner", 20));
    }
}

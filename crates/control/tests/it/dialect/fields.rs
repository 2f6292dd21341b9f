//! Every field of every proposal: there, missing, of the wrong type, too short, too long.

use control::dialect::{Fault, FaultKind};
use control::proposal::{AnalysisType, MessageType, Proposal, VOCABULARY};
use domain::id::{NoteId, RawId};
use domain::limits::{ARTIFACT_CONTENT_BYTES_MAX, ARTIFACT_KEY_BYTES_MAX, TASK_LINKS_MAX};
use serde_json::{Map, Value, json};

use super::{IDLE, at, bad, decode, examples, good, idle, in_field, task_id};
use crate::fuzzed::{self, wire};

/// A field of the schema: where it is, what a fault calls it, and what it must be.
struct Field {
    action: usize,
    pointer: &'static str,
    place: &'static str,
    kind: Kind,
    optional: bool,
}

#[derive(PartialEq)]
enum Kind {
    /// Characters, from and to.
    Text(usize, usize),
    Named,
    Id,
    Flag,
    Texts,
    Ids,
    Map,
    Object,
}

/// Every field of every proposal.
fn fields() -> Vec<Field> {
    let field = |action, pointer, place, kind| Field { action, pointer, place, kind, optional: false };
    let optional = |action, pointer, place, kind| Field { optional: true, ..field(action, pointer, place, kind) };
    let words = || Kind::Text(0, 2_000);
    vec![
        field(0, "/task", "task", Kind::Object),
        field(0, "/task/description", "task.description", Kind::Text(10, 500)),
        optional(0, "/task/preconditions", "task.preconditions", Kind::Ids),
        optional(0, "/justification", "justification", words()),
        field(1, "/task_id", "task_id", Kind::Id),
        optional(1, "/reasoning", "reasoning", words()),
        field(2, "/task_id", "task_id", Kind::Id),
        field(2, "/tool_name", "tool_name", Kind::Text(1, 100)),
        optional(2, "/parameters", "parameters", Kind::Map),
        optional(2, "/expected_outcome", "expected_outcome", words()),
        field(3, "/task_id", "task_id", Kind::Id),
        field(3, "/message", "message", Kind::Object),
        field(3, "/message/type", "message.type", Kind::Named),
        field(3, "/message/content", "message.content", Kind::Text(20, 300)),
        optional(3, "/message/personalization_context", "message.personalization_context", words()),
        optional(3, "/requires_approval", "requires_approval", Kind::Flag),
        field(4, "/task_id", "task_id", Kind::Id),
        field(4, "/analysis_type", "analysis_type", Kind::Named),
        optional(4, "/parameters", "parameters", Kind::Map),
        optional(5, "/task_id", "task_id", Kind::Id),
        field(5, "/question", "question", Kind::Text(10, 500)),
        optional(5, "/options", "options", Kind::Texts),
        optional(5, "/context", "context", words()),
        field(6, "/task_id", "task_id", Kind::Id),
        field(6, "/artifact", "artifact", Kind::Object),
        field(6, "/artifact/type", "artifact.type", Kind::Text(1, 100)),
        optional(6, "/artifact/key", "artifact.key", Kind::Text(1, ARTIFACT_KEY_BYTES_MAX)),
        field(6, "/artifact/content", "artifact.content", Kind::Text(1, ARTIFACT_CONTENT_BYTES_MAX)),
        optional(6, "/requires_approval", "requires_approval", Kind::Flag),
        field(7, "/reason", "reason", Kind::Named),
        optional(7, "/details", "details", words()),
    ]
}

impl Field {
    /// The example with another value in this field.
    fn with(&self, value: Value) -> String {
        let mut wire = wire(&examples()[self.action]);
        *wire.pointer_mut(self.pointer).expect("the example has every field") = value;
        wire.to_string()
    }

    fn without(&self) -> String {
        let mut wire = wire(&examples()[self.action]);
        let (parent, name) = self.pointer.rsplit_once('/').expect("a pointer begins with a slash");
        let parent = wire.pointer_mut(parent).and_then(Value::as_object_mut).expect("a field stands in an object");
        assert!(parent.remove(name).is_some());
        wire.to_string()
    }
}

#[test]
fn d4_the_eight_proposals_are_read_with_every_field() {
    for (proposal, word) in examples().iter().zip(VOCABULARY) {
        assert_eq!(wire(proposal)["action"], word);
        good(&wire(proposal).to_string(), proposal, 0);
    }
    let known: Vec<_> = fields().iter().map(|field| (field.action, field.pointer)).collect();
    for (action, proposal) in examples().iter().enumerate() {
        let wire = wire(proposal);
        for (name, value) in wire.as_object().into_iter().flatten().filter(|(name, _)| *name != "action") {
            assert!(known.iter().any(|(of, pointer)| *of == action && *pointer == format!("/{name}")), "{name}");
            for inner in value.as_object().into_iter().flatten().map(|(inner, _)| inner).filter(|_| name != "parameters") {
                assert!(known.iter().any(|(of, pointer)| *of == action && *pointer == format!("/{name}/{inner}")), "{inner}");
            }
        }
    }
}

#[test]
fn d4_what_is_optional_has_an_empty_value() {
    let id = task_id();
    let long_enough = "Hello, we spoke last week.";
    let cases = [
        (
            json!({ "action": "create_task", "task": { "description": "find ten leads" } }),
            Proposal::CreateTask { description: "find ten leads".into(), preconditions: vec![], justification: String::new() },
        ),
        (
            json!({ "action": "select_next_task", "task_id": id }),
            Proposal::SelectNextTask { task_id: id, reasoning: String::new() },
        ),
        (
            json!({ "action": "execute_tool", "task_id": id, "tool_name": "x" }),
            Proposal::ExecuteTool { task_id: id, tool_name: "x".into(), parameters: Map::new(), expected_outcome: String::new() },
        ),
        (
            json!({ "action": "generate_message", "task_id": id, "message": { "type": "direct_message", "content": long_enough } }),
            Proposal::GenerateMessage {
                task_id: id,
                message_type: MessageType::DirectMessage,
                content: long_enough.into(),
                personalization_context: String::new(),
            },
        ),
        (
            json!({ "action": "analyze_leads", "task_id": id, "analysis_type": "prioritize" }),
            Proposal::AnalyzeLeads { task_id: id, analysis_type: AnalysisType::Prioritize, parameters: Map::new() },
        ),
        (
            json!({ "action": "request_user_input", "question": "Which of the two?" }),
            Proposal::RequestUserInput {
                task_id: None,
                question: "Which of the two?".into(),
                options: vec![],
                context: String::new(),
            },
        ),
        (
            json!({ "action": "persist_artifact", "task_id": id, "artifact": { "type": "context", "content": "x" } }),
            Proposal::PersistArtifact { task_id: id, artifact_type: "context".into(), artifact_key: None, content: "x".into() },
        ),
        (json!({ "action": "no_op", "reason": "campaign_complete" }), idle()),
    ];
    for (wire, proposal) in cases {
        good(&wire.to_string(), &proposal, 0);
    }
}

#[test]
fn d4_a_field_that_is_missing_is_named_and_nothing_else_is() {
    for field in fields() {
        if field.optional {
            assert!(decode(&field.without()).is_ok(), "{}", field.place);
        } else {
            bad(&field.without(), &[in_field(FaultKind::MissingField, field.place)]);
        }
    }
    bad("{}", &[Fault::of(FaultKind::NoProposal)]);
}

#[test]
fn d4_a_field_of_the_wrong_type_is_named_and_nothing_else_is() {
    let values = [json!(null), json!(true), json!(7), json!("text"), json!([]), json!([7]), json!({})];
    for field in fields() {
        for value in &values {
            let fits = match field.kind {
                Kind::Text(..) | Kind::Named | Kind::Id => value.is_string(),
                Kind::Flag => value.is_boolean(),
                Kind::Texts | Kind::Ids => *value == json!([]),
                Kind::Map | Kind::Object => value.is_object(),
            };
            if !fits {
                bad(&field.with(value.clone()), &[in_field(FaultKind::WrongType, field.place)]);
            }
        }
    }
    for value in values.iter().filter(|value| !value.is_string()) {
        bad(&json!({ "action": value }).to_string(), &[in_field(FaultKind::WrongType, "action")]);
    }
}

#[test]
fn d4_a_field_that_the_schema_does_not_have_is_told_by_its_place() {
    for (place, proposal) in examples().iter().enumerate() {
        let mut wire = wire(proposal);
        wire["importance"] = json!("high");
        bad(&wire.to_string(), &[Fault::of(FaultKind::UnknownField)]);
        let inner = [(0, "task"), (3, "message"), (6, "artifact")].into_iter().find(|(of, _)| *of == place);
        if let Some((_, inner)) = inner {
            let mut wire = fuzzed::wire(proposal);
            wire[inner]["importance"] = json!("high");
            bad(&wire.to_string(), &[in_field(FaultKind::UnknownField, &format!("{inner}.*"))]);
        }
    }
}

#[test]
fn d4_a_text_is_as_long_as_its_field_allows() {
    for field in fields() {
        let Kind::Text(chars_min, chars_max) = field.kind else { continue };
        // A character of two bytes, so that the two ways to count differ; only the largest field is too large for that.
        let letter = if chars_max < 10_000 { "é" } else { "e" };
        let of = |chars: usize| field.with(json!(letter.repeat(chars)));
        for chars in [chars_min, chars_max] {
            assert!(decode(&of(chars)).is_ok(), "{} of {chars}", field.place);
        }
        bad(&of(chars_max + 1), &[in_field(FaultKind::TooLong, field.place)]);
        if chars_min > 0 {
            bad(&of(chars_min - 1), &[in_field(FaultKind::TooShort, field.place)]);
            bad(&field.with(json!(" ".repeat(chars_min))), &[in_field(FaultKind::TooShort, field.place)]);
        }
    }
}

#[test]
fn d4_a_list_is_as_long_as_its_field_allows() {
    let option = |count: usize| json!(vec!["one"; count]);
    let link = |count: usize| json!(vec![task_id(); count]);
    for field in fields() {
        let lists = match field.kind {
            Kind::Texts => [option(TASK_LINKS_MAX), option(TASK_LINKS_MAX + 1)],
            Kind::Ids => [link(TASK_LINKS_MAX), link(TASK_LINKS_MAX + 1)],
            _ => continue,
        };
        assert!(decode(&field.with(lists[0].clone())).is_ok(), "{}", field.place);
        bad(&field.with(lists[1].clone()), &[in_field(FaultKind::TooLong, field.place)]);
        let long = json!(["one", "x".repeat(2_001)]);
        bad(&field.with(long), &[in_field(FaultKind::TooLong, field.place)]);
    }
}

#[test]
fn d4_an_id_must_be_a_tasks() {
    let raw = RawId::from_bytes([7; 16]);
    let others = ["", "task", "task_", "7", &raw.to_string(), &NoteId::from_raw(raw).to_string(), &format!(" {}", task_id())];
    let upper = task_id().to_string().to_uppercase();
    for id in others.into_iter().chain([upper.as_str()]) {
        for field in fields() {
            match field.kind {
                Kind::Id => bad(&field.with(json!(id)), &[in_field(FaultKind::BadId, field.place)]),
                Kind::Ids => bad(&field.with(json!([task_id(), id])), &[in_field(FaultKind::BadId, field.place)]),
                _ => {}
            }
        }
    }
}

#[test]
fn d4_only_named_values_are_allowed_where_names_are() {
    for field in fields().iter().filter(|field| field.kind == Kind::Named) {
        for value in ["", "other", "Follow_Up", "prioritize "] {
            bad(&field.with(json!(value)), &[in_field(FaultKind::NotAllowed, field.place)]);
        }
    }
}

#[test]
fn d4_no_text_holds_a_nul() {
    for field in fields() {
        let long_enough = "a text that is long enough\0";
        match field.kind {
            Kind::Text(..) => bad(&field.with(json!(long_enough)), &[in_field(FaultKind::NotAllowed, field.place)]),
            Kind::Texts => bad(&field.with(json!([long_enough])), &[in_field(FaultKind::NotAllowed, field.place)]),
            Kind::Named => bad(&field.with(json!("\0")), &[in_field(FaultKind::NotAllowed, field.place)]),
            Kind::Id => bad(&field.with(json!("\0")), &[in_field(FaultKind::BadId, field.place)]),
            Kind::Ids => bad(&field.with(json!(["\0"])), &[in_field(FaultKind::NotAllowed, field.place)]),
            Kind::Flag | Kind::Map | Kind::Object => {}
        }
    }
    bad("{\"action\":\"no_op\0\"}", &[at(FaultKind::NotJson, 0)]);
    good(&format!("\0{IDLE}"), &idle(), 1);
}

#[test]
fn d4_all_faults_of_an_answer_are_told_at_once() {
    let answer = json!({ "action": "generate_message", "task_id": "x", "message": { "content": "short", "to": "you" }, "cc": 1 });
    let faults = [
        in_field(FaultKind::BadId, "task_id"),
        in_field(FaultKind::MissingField, "message.type"),
        in_field(FaultKind::TooShort, "message.content"),
        in_field(FaultKind::UnknownField, "message.*"),
        Fault::of(FaultKind::UnknownField),
    ];
    bad(&answer.to_string(), &faults);
}

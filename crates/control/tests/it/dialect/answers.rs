//! Answers as a whole: what stands around a proposal, what is cut or broken, and what is only noise.

use control::dialect::{Fault, FaultKind};
use domain::limits::ANSWER_BYTES_MAX;
use serde_json::json;

use super::{IDLE, at, bad, decode, examples, good, idle, in_field, task_id};
use crate::fuzzed::wire;

#[test]
fn d4_an_answer_without_a_proposal_is_a_fault() {
    for answer in ["", " ", "\n\t \r\n"] {
        bad(answer, &[Fault::of(FaultKind::Empty)]);
    }
    for answer in ["I am done.", "null", "[]", "[{}]", "{}", "\"action\"", r#"{"thought":{"action":"no_op"}}"#, "}{", "{ } { }"] {
        bad(answer, &[Fault::of(FaultKind::NoProposal)]);
    }
    for word in ["", "delete_task", "NO_OP", "no_op ", "create_task2"] {
        bad(&json!({ "action": word }).to_string(), &[in_field(FaultKind::UnknownAction, "action")]);
    }
}

#[test]
fn d4_two_proposals_are_refused_whole() {
    let cases = [
        format!("{IDLE}{IDLE}"),
        format!("{IDLE}\n{IDLE}"),
        format!("first {IDLE} then {}", wire(&examples()[1])),
        format!("[{IDLE},{IDLE}]"),
        format!("{IDLE}{}", r#"{"action":7}"#),
        format!("{IDLE} {{\"a\":1}} {IDLE} {IDLE}"),
    ];
    for answer in cases {
        let second =
            IDLE.len() + answer[answer.find(IDLE).expect("it is there") + IDLE.len()..].find("{\"action").expect("there are two");
        let second = second + answer.find(IDLE).expect("it is there");
        bad(&answer, &[at(FaultKind::SeveralProposals, second)]);
    }
    // A second one that does not read might have been one.
    bad(&format!("{IDLE} {{\"action\":"), &[at(FaultKind::NotJson, IDLE.len() + 1)]);
    bad(&format!("{IDLE} {{\"x\" \"action\":1}}"), &[at(FaultKind::NotJson, IDLE.len() + 1)]);
    // What opens a thinking block inside a text hides nothing that follows.
    let thinking = r#"{"action":"no_op","reason":"campaign_complete","details":"<think>"}"#;
    bad(&format!("{thinking}{IDLE}"), &[at(FaultKind::SeveralProposals, thinking.len())]);
}

#[test]
fn d4_text_around_a_proposal_is_counted_and_ignored() {
    let fenced = format!("Sure! Here is my step:\n```json\n{IDLE}\n```\nShall I go on?");
    good(&fenced, &idle(), fenced.len() - IDLE.len());
    let thinking = json!({ "thought": "what next", "confidence": 9, "options": [{ "action": "create_task" }] });
    let cases = [
        format!("{thinking} {IDLE}"),
        format!("{IDLE} {thinking}"),
        // A brace in prose is prose, as long as it is closed.
        format!("use {{name}} here: {IDLE}"),
        format!("{IDLE} and then {{name}}"),
        format!(r#"{{"confidence":0.9}} {IDLE}"#),
        format!("}}}} {IDLE} {{{{"),
        format!("[{IDLE}]"),
        format!("\u{feff}é{IDLE}é"),
    ];
    for answer in cases {
        good(&answer, &idle(), answer.len() - IDLE.len());
    }
    let spaced = "{ \"reason\" : \"campaign_complete\",\n \"\\u0061ction\":\"no_op\" }";
    good(spaced, &idle(), 0);
}

#[test]
fn d4_what_a_model_thinks_is_not_what_it_proposes() {
    let other = wire(&examples()[0]);
    let cases = [
        format!("<think>{other}</think>{IDLE}"),
        format!("<think>maybe {{ {other} or</think> {IDLE}"),
        format!("<think>{{</think><think>{other}</think>\n{IDLE}"),
        format!("{IDLE}<think>{other}</think>"),
        format!("{IDLE}<think>{other}"),
        format!("</think>{IDLE}"),
    ];
    for answer in cases {
        good(&answer, &idle(), answer.len() - IDLE.len());
    }
    for answer in [format!("<think>{IDLE}"), format!("<think>{IDLE}</think>"), format!("<think></think><think>{IDLE}</think>.")] {
        bad(&answer, &[Fault::of(FaultKind::NoProposal)]);
    }
}

#[test]
fn d4_no_part_of_a_cut_answer_is_carried_out() {
    // The last field holds a whole proposal, as a tool's parameters might.
    let mut outer = wire(&examples()[2]);
    outer["parameters"]["note"] = json!({ "inner": { "action": "no_op", "reason": "campaign_complete" }, "x": "}" });
    for answer in examples().iter().map(wire).chain([outer]) {
        let answer = answer.to_string();
        for end in (1..answer.len()).filter(|end| answer.is_char_boundary(*end)) {
            let kind =
                if answer[..end].contains("\"action\"") { at(FaultKind::NotJson, 0) } else { Fault::of(FaultKind::NoProposal) };
            bad(&answer[..end], &[kind]);
        }
    }
}

#[test]
fn d4_no_part_of_a_broken_proposal_is_a_proposal() {
    let cases = [
        (format!(r#"{{"action":"execute_tool","parameters":{IDLE},"x":1.5}}"#), FaultKind::FloatingPoint),
        (format!(r#"{{"x":1.5,"parameters":{IDLE},"action":"execute_tool"}}"#), FaultKind::FloatingPoint),
        (format!(r#"{{"action":"execute_tool","action":"execute_tool","parameters":{IDLE}}}"#), FaultKind::DuplicateField),
        (format!(r#"{{"action":"execute_tool","parameters":{IDLE},}}"#), FaultKind::NotJson),
        (format!(r#"{{"action":"execute_tool","x":"}}","parameters":{IDLE}"#), FaultKind::NotJson),
        (format!("{{action:'execute_tool',parameters:{IDLE}}}"), FaultKind::NotJson),
        (format!("{{// the step\n\"action\":\"execute_tool\",\"parameters\":{IDLE}}}"), FaultKind::NotJson),
        (format!("{{\"a\":{}{IDLE}{}}}", "[".repeat(200), "]".repeat(200)), FaultKind::NotJson),
        (format!("{{{IDLE}"), FaultKind::NotJson),
    ];
    for (answer, kind) in cases {
        bad(&answer, &[at(kind, 0)]);
        // Not even when the model says something good, too.
        for more in [format!("{IDLE} {answer}"), format!("{answer} {IDLE}")] {
            assert!(decode(&more).is_err(), "{more}");
        }
    }
}

#[test]
fn d4_a_field_that_occurs_twice_is_a_fault() {
    bad(r#"{"action":"no_op","reason":"campaign_complete","action":"no_op"}"#, &[at(FaultKind::DuplicateField, 0)]);
    bad(r#"{"action":"no_op","reason":"campaign_complete","\u0061ction":"no_op"}"#, &[at(FaultKind::DuplicateField, 0)]);
    bad(r#"go: {"action":"x","parameters":{"a":{"b":1,"b":1}}}"#, &[at(FaultKind::DuplicateField, 4)]);
}

#[test]
fn d4_a_number_is_an_integer_that_every_reader_keeps() {
    let tool = |number: &str| {
        let id = task_id();
        format!(r#"{{"action":"execute_tool","task_id":"{id}","tool_name":"x","parameters":{{"n":[{number}]}}}}"#)
    };
    for number in ["1.5", "1.0", "1e2", "-0.0", "18446744073709551616"] {
        bad(&tool(number), &[at(FaultKind::FloatingPoint, 0)]);
    }
    for number in ["NaN", "Infinity", "-Infinity", "1e999", "01", "+1", ".5", "0x10"] {
        bad(&tool(number), &[at(FaultKind::NotJson, 0)]);
    }
    for number in ["9007199254740992", "-9007199254740992", "18446744073709551615"] {
        bad(&tool(number), &[in_field(FaultKind::WrongType, "parameters")]);
    }
    for number in ["0", "-1", "9007199254740991", "-9007199254740991"] {
        assert!(decode(&tool(number)).is_ok(), "{number}");
    }
}

#[test]
fn d4_parameters_are_as_deep_as_their_records_can_hold() {
    let tool = |levels: usize| {
        let (id, inner) = (task_id(), levels - 1);
        let nested = format!("{}{}", "[".repeat(inner), "]".repeat(inner));
        format!(r#"{{"action":"execute_tool","task_id":"{id}","tool_name":"x","parameters":{{"n":{nested}}}}}"#)
    };
    assert!(decode(&tool(32)).is_ok());
    for levels in [33, 64, 65, 126] {
        bad(&tool(levels), &[in_field(FaultKind::TooLong, "parameters")]);
    }
    for levels in [127, 1_000, 100_000] {
        bad(&tool(levels), &[at(FaultKind::NotJson, 0)]);
    }
}

#[test]
fn d4_an_answer_has_a_size() {
    let padded = |bytes: usize| format!("{}{IDLE}", " ".repeat(bytes - IDLE.len()));
    good(&padded(ANSWER_BYTES_MAX), &idle(), ANSWER_BYTES_MAX - IDLE.len());
    bad(&padded(ANSWER_BYTES_MAX + 1), &[Fault::of(FaultKind::TooLarge)]);
    bad(&"x".repeat(100 << 20), &[Fault::of(FaultKind::TooLarge)]);
}

/// The runner ends a test that takes minutes; each of these takes far less than a second.
#[test]
fn d4_noise_is_refused_in_bounded_time() {
    for noise in
        ["{", "}", "{}", "{\"", "{\"a\":", "[{\"a\":[", "{\"action\":", "<think>{", "<think>{</think>", "{<think>", "{\"\\"]
    {
        assert!(decode(&noise.repeat((4 << 20) / noise.len())).is_err(), "{noise}");
        let most = noise.repeat(ANSWER_BYTES_MAX / noise.len());
        assert!(decode(&most).is_err(), "{noise}");
        // With a proposal behind it everything has to be looked at, and more than a page of it is never believed.
        let behind = format!("{}{IDLE}", &most[..(ANSWER_BYTES_MAX - IDLE.len()) / noise.len() * noise.len()]);
        let thought = ["}", "<think>{</think>"].contains(&noise);
        assert_eq!(decode(&behind).is_ok(), thought, "{noise}");
    }
    let opened = "{\"a\":".repeat(127);
    let numbers = "1,".repeat((ANSWER_BYTES_MAX - opened.len() - 1) / 2);
    assert!(decode(&format!("{opened}[{numbers}")).is_err());
}

#[test]
fn d4_a_proposal_behind_too_many_objects_is_not_overlooked() {
    let objects = |count: usize| "{}".repeat(count);
    good(&format!("{IDLE}{}", objects(255)), &idle(), 510);
    good(&format!("{IDLE}{}", objects(300)), &idle(), 600);
    bad(&format!("{IDLE}{}{IDLE}", objects(254)), &[at(FaultKind::SeveralProposals, IDLE.len() + 508)]);
    bad(&format!("{IDLE}{}{IDLE}", objects(255)), &[at(FaultKind::TooLarge, IDLE.len() + 510)]);
    bad(&format!("{}{IDLE}", objects(256)), &[at(FaultKind::TooLarge, 512)]);
}

#[test]
fn k20_a_fault_has_a_sentence_for_the_model() {
    let sentences: Vec<_> = [
        Fault::of(FaultKind::Empty),
        at(FaultKind::NotJson, 17),
        in_field(FaultKind::TooShort, "task.description"),
        Fault::of(FaultKind::UnknownField),
    ]
    .iter()
    .map(Fault::sentence)
    .collect();
    let expected = [
        "the answer is empty",
        "the JSON is broken at byte 17",
        "a text is too short in `task.description`",
        "a field is not part of the schema",
    ];
    assert_eq!(sentences, expected);
}

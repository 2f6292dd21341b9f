//! Proposals and answers drawn at random.

use control::dialect::{Decoded, Fault};
use control::proposal::{AnalysisType, IdleReason, MessageType, Proposal};
use domain::id::{RawId, TaskId};
use domain::limits::TASK_LINKS_MAX;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::decode;
use crate::fuzzed::{self, wire};

fn any_text(chars_min: usize, chars_max: usize) -> impl Strategy<Value = String> {
    let letter = prop_oneof![4 => prop::char::range('a', 'z'), 1 => any::<char>(), 1 => prop::sample::select(vec!['{', '}', '"', '\\', '<'])];
    let letter = letter.prop_map(|letter| if letter == '\0' { 'x' } else { letter });
    let text = prop::collection::vec(letter, chars_min..=chars_max.min(chars_min + 40));
    text.prop_map(|letters| letters.into_iter().collect::<String>())
        .prop_filter("not blank", move |text| chars_min == 0 || !text.trim().is_empty())
}

fn any_id() -> impl Strategy<Value = TaskId> {
    any::<[u8; 16]>().prop_map(|bytes| TaskId::from_raw(RawId::from_bytes(bytes)))
}

fn any_parameters() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53) + 1..1 << 53).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 24, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let map =
            prop::collection::btree_map(any_text(0, 10), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect()));
        prop_oneof![list, map]
    });
    prop::collection::btree_map(prop_oneof![any_text(0, 10), Just("action".to_owned())], value, 0..4)
        .prop_map(|map| map.into_iter().collect())
}

fn any_proposal() -> impl Strategy<Value = Proposal> {
    let words = || any_text(0, 2_000);
    prop_oneof![
        (any_text(10, 500), prop::collection::vec(any_id(), 0..=TASK_LINKS_MAX), words()).prop_map(
            |(description, preconditions, justification)| Proposal::CreateTask { description, preconditions, justification }
        ),
        (any_id(), words()).prop_map(|(task_id, reasoning)| Proposal::SelectNextTask { task_id, reasoning }),
        (any_id(), any_text(1, 100), any_parameters(), words()).prop_map(|(task_id, tool_name, parameters, expected_outcome)| {
            Proposal::ExecuteTool { task_id, tool_name, parameters, expected_outcome }
        }),
        (any_id(), prop::sample::select(MessageType::ALL), any_text(20, 300), words()).prop_map(
            |(task_id, message_type, content, personalization_context)| {
                Proposal::GenerateMessage { task_id, message_type, content, personalization_context }
            }
        ),
        (any_id(), prop::sample::select(AnalysisType::ALL), any_parameters())
            .prop_map(|(task_id, analysis_type, parameters)| Proposal::AnalyzeLeads { task_id, analysis_type, parameters }),
        (prop::option::of(any_id()), any_text(10, 500), prop::collection::vec(words(), 0..=TASK_LINKS_MAX), words())
            .prop_map(|(task_id, question, options, context)| Proposal::RequestUserInput { task_id, question, options, context }),
        (any_id(), any_text(1, 100), prop::option::of(any_text(1, 200)), any_text(1, 2_000)).prop_map(
            |(task_id, artifact_type, artifact_key, content)| {
                Proposal::PersistArtifact { task_id, artifact_type, artifact_key, content }
            }
        ),
        (prop::sample::select(IdleReason::ALL), words()).prop_map(|(reason, details)| Proposal::NoOp { reason, details }),
    ]
}

/// Pieces that answers are made of, the hostile ones included.
fn any_answer(marker: &'static str) -> impl Strategy<Value = String> {
    let fragments = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\"action\"",
        "\"action\":\"no_op\"",
        "\"reason\":\"campaign_complete\"",
        "\"task_id\":",
        "\"task\":{",
        "\"description\":",
        "\"parameters\":{",
        "1.5",
        "7",
        "null",
        "\n",
        " ",
        "<think>",
        "</think>",
        "```json",
        "é",
        "\0",
    ];
    let fragment = prop::sample::select(fragments.map(str::to_owned).to_vec());
    let whole = any_proposal().prop_map(|proposal| wire(&proposal).to_string());
    let planted = prop::sample::select(vec![
        marker.to_owned(),
        format!("\"{marker}\""),
        format!("\"{marker}\":\"{marker}\","),
        format!("{{\"action\":\"{marker}\"}}"),
        format!("{{\"action\":\"no_op\",\"reason\":\"{marker}\",\"{marker}\":\"{marker}\"}}"),
        format!("{{\"action\":\"select_next_task\",\"task_id\":\"task_{marker}\",\"{marker}\":{{\"{marker}\":1}}}}"),
        format!("{{\"action\":\"create_task\",\"task\":{{\"{marker}\":\"{marker}\"}},\"justification\":[\"{marker}\"]}}"),
    ]);
    let piece = prop_oneof![8 => fragment, 2 => planted, 1 => whole, 1 => any::<String>()];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn d4_a_proposal_is_read_as_it_was_written(proposal in any_proposal()) {
        let text = wire(&proposal).to_string();
        prop_assert_eq!(decode(&text), Ok(Decoded { proposals: vec![proposal], narration_bytes: 0 }));
    }

    #[test]
    fn d4_any_answer_is_one_proposal_or_faults(answer in any_answer("")) {
        fuzzed::proposal_json(answer.as_bytes());
    }

    #[test]
    fn k11_a_fault_repeats_nothing_of_the_answer(answer in any_answer("zebra")) {
        if let Err(faults) = decode(&answer) {
            let stored = serde_json::to_string(&faults).unwrap();
            let told: Vec<_> = faults.iter().map(Fault::sentence).collect();
            prop_assert!(!stored.contains("zebra") && !told.concat().contains("zebra"), "{}", stored);
        }
    }
}

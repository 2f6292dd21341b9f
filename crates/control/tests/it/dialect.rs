//! `proposal_json`: the eight proposals of 004 and nothing else, whatever stands around them.

mod answers;
mod drawn;
mod fields;

use control::dialect::{Decoded, Dialect, Fault, FaultKind};
use control::proposal::{AnalysisType, IdleReason, MessageType, Proposal};
use domain::id::{RawId, TaskId};
use serde_json::{Map, Value, json};

fn decode(answer: &str) -> Result<Decoded, Vec<Fault>> {
    Dialect::ProposalJson.decode(answer)
}

#[track_caller]
fn good(answer: &str, proposal: &Proposal, narration_bytes: usize) {
    let narration_bytes = narration_bytes as u64;
    assert_eq!(decode(answer), Ok(Decoded { proposals: vec![proposal.clone()], narration_bytes }), "{answer:.200}");
}

#[track_caller]
fn bad(answer: &str, faults: &[Fault]) {
    assert_eq!(decode(answer), Err(faults.to_vec()), "{answer:.200}");
}

fn in_field(kind: FaultKind, field: &str) -> Fault {
    Fault::in_field(kind, field)
}

fn at(kind: FaultKind, at: usize) -> Fault {
    Fault { at: Some(at as u64), ..Fault::of(kind) }
}

fn task_id() -> TaskId {
    TaskId::from_raw(RawId::from_bytes([7; 16]))
}

fn idle() -> Proposal {
    Proposal::NoOp { reason: IdleReason::CampaignComplete, details: String::new() }
}

const IDLE: &str = r#"{"action":"no_op","reason":"campaign_complete"}"#;

/// One good proposal of each word, with every field, in the order of the vocabulary.
fn examples() -> [Proposal; 8] {
    let parameters: Map<String, Value> =
        [("page".to_owned(), json!({ "number": 3, "tags": ["a", null, true] }))].into_iter().collect();
    [
        Proposal::CreateTask {
            description: "find ten leads".into(),
            preconditions: vec![task_id()],
            justification: "there are none".into(),
        },
        Proposal::SelectNextTask { task_id: task_id(), reasoning: "it is the oldest".into() },
        Proposal::ExecuteTool {
            task_id: task_id(),
            tool_name: "browser".into(),
            parameters: parameters.clone(),
            expected_outcome: "a page".into(),
        },
        Proposal::GenerateMessage {
            task_id: task_id(),
            message_type: MessageType::FollowUp,
            content: "Hello, we spoke last week.".into(),
            personalization_context: "met at the fair".into(),
        },
        Proposal::AnalyzeLeads { task_id: task_id(), analysis_type: AnalysisType::ScoreUpdate, parameters },
        Proposal::RequestUserInput {
            task_id: Some(task_id()),
            question: "Which of the two?".into(),
            options: vec!["the first".into(), "the second".into()],
            context: "both are open".into(),
        },
        Proposal::PersistArtifact {
            task_id: task_id(),
            artifact_type: "context".into(),
            artifact_key: Some("campaign_context".into()),
            content: "We sell bells.".into(),
        },
        Proposal::NoOp { reason: IdleReason::AwaitingUserInput, details: "two questions are open".into() },
    ]
}

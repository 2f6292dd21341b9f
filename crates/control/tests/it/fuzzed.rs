//! What must hold for any bytes at all: the body of the fuzz target of this room.
//!
//! The fuzzer includes this file (`fuzz/fuzz_targets/proposal_json.rs`), and the test below calls the same function on the stored
//! corpus, so a find that is put there stays found. The body panics when a promise is broken.

use control::dialect::{Decoded, Dialect, Fault};
use control::proposal::Proposal;
use serde_json::{Value, json};

/// Every place that a fault may name; all else would be a text of the model's.
const PLACES: [&str; 29] = [
    "",
    "action",
    "analysis_type",
    "artifact",
    "artifact.*",
    "artifact.content",
    "artifact.key",
    "artifact.type",
    "context",
    "details",
    "expected_outcome",
    "justification",
    "message",
    "message.*",
    "message.content",
    "message.personalization_context",
    "message.type",
    "options",
    "parameters",
    "question",
    "reason",
    "reasoning",
    "requires_approval",
    "task",
    "task.*",
    "task.description",
    "task.preconditions",
    "task_id",
    "tool_name",
];

/// An answer is one proposal that can be written and read again, or faults that repeat nothing of it.
pub(crate) fn proposal_json(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Dialect::ProposalJson.decode(text) {
        Ok(decoded) => {
            let [proposal] = &decoded.proposals[..] else { panic!("{} proposals", decoded.proposals.len()) };
            assert!(decoded.narration_bytes < text.len() as u64);
            let again = Dialect::ProposalJson.decode(&wire(proposal).to_string());
            assert_eq!(again, Ok(Decoded { narration_bytes: 0, ..decoded }));
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            for Fault { kind: _, field, at } in &faults {
                assert!(PLACES.contains(&field.as_str()), "`{field}` is not a place");
                assert!(at.is_none_or(|at| at < text.len() as u64));
            }
        }
    }
}

/// A proposal as a model writes it.
pub(crate) fn wire(proposal: &Proposal) -> Value {
    let action = proposal.word();
    match proposal {
        Proposal::CreateTask { description, preconditions, justification } => {
            let task = json!({ "description": description, "preconditions": preconditions });
            json!({ "action": action, "task": task, "justification": justification })
        }
        Proposal::SelectNextTask { task_id, reasoning } => {
            json!({ "action": action, "task_id": task_id, "reasoning": reasoning })
        }
        Proposal::ExecuteTool { task_id, tool_name, parameters, expected_outcome } => json!({
            "action": action,
            "task_id": task_id,
            "tool_name": tool_name,
            "parameters": parameters,
            "expected_outcome": expected_outcome,
        }),
        Proposal::GenerateMessage { task_id, message_type, content, personalization_context } => {
            let message = json!({ "type": message_type, "content": content, "personalization_context": personalization_context });
            json!({ "action": action, "task_id": task_id, "message": message, "requires_approval": true })
        }
        Proposal::AnalyzeLeads { task_id, analysis_type, parameters } => {
            json!({ "action": action, "task_id": task_id, "analysis_type": analysis_type, "parameters": parameters })
        }
        Proposal::RequestUserInput { task_id, question, options, context } => {
            let mut wire = json!({ "action": action, "question": question, "options": options, "context": context });
            task_id.iter().for_each(|id| wire["task_id"] = json!(id));
            wire
        }
        Proposal::PersistArtifact { task_id, artifact_type, artifact_key, content } => {
            let mut artifact = json!({ "type": artifact_type, "content": content });
            artifact_key.iter().for_each(|key| artifact["key"] = json!(key));
            json!({ "action": action, "task_id": task_id, "artifact": artifact, "requires_approval": true })
        }
        Proposal::NoOp { reason, details } => json!({ "action": action, "reason": reason, "details": details }),
    }
}

#[cfg(test)]
mod replay {
    //! The fuzzer's corpus, file by file: hand-made cases and everything a fuzzer has found.

    use std::path::Path;

    use control::dialect::Dialect;

    use super::proposal_json;

    /// LIMIT: there are never fewer hand-made files, so an empty or moved folder is noticed.
    const FILES_MIN: usize = 30;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the corpus is a folder that the fuzzer reads too, so it cannot be compiled in")]
    fn d4_answers_hold_for_the_corpus() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proposal_json");
        let (mut files, mut read) = (0, 0);
        for entry in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
            let path = entry.expect("the corpus can be listed").path();
            let bytes = std::fs::read(&path).expect("the corpus can be read");
            assert!(std::panic::catch_unwind(|| proposal_json(&bytes)).is_ok(), "failed on {}", path.display());
            files += 1;
            // A file's name says whether it reads, and the first fault if it does not.
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            let Ok(text) = str::from_utf8(&bytes) else {
                assert!(name.starts_with("bytes-"), "{name}");
                continue;
            };
            match Dialect::ProposalJson.decode(text) {
                Ok(_) => {
                    read += 1;
                    assert!(name.starts_with("good-"), "{name} reads");
                }
                Err(faults) => assert!(name.starts_with(&format!("{}-", faults[0].kind)), "{name}: {faults:?}"),
            }
        }
        assert!(files >= FILES_MIN && read >= FILES_MIN / 3, "{files} files in {}, {read} read", folder.display());
    }
}

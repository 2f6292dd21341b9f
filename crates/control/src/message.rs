//! Actions and their results as messages of the agent's thread, and as a line for the person who is asked.

use domain::id::MessageId;
use domain::record::Record;
use domain::records::artifact::Artifact;
use domain::records::message::{AgentMessageKind, Message};
use domain::records::task::Task;
use domain::records::wrappers::{ActionEnvelope, ActionType, AgentMessageMetadata, ToolStatus};
use domain::time::Timestamp;
use domain::token::Token;

use crate::action::{Action, ActionState, Effect, PlannedWrite};
use crate::run::Run;

/// LIMIT: characters of a text that a preview shows.
const PREVIEW_CHARS_MAX: usize = 2_000;

/// The action message and its toolResult (L23).
pub(crate) fn pair(run: &Run, action: &Action, ids: [MessageId; 2], previous: Option<MessageId>, at: Timestamp) -> [Message; 2] {
    let envelope = ActionEnvelope {
        action_type: if matches!(action.effect, Effect::Question { .. }) { ActionType::AskUser } else { ActionType::ToolCall },
        tool_name: Some(action.tool.clone()),
        operation_id: action.operation_id,
        arguments_hash: action.arguments_hash,
        scope_snapshot: Vec::new(),
    };
    let call =
        AgentMessageMetadata { operation_id: Some(action.operation_id), action: Some(envelope), ..AgentMessageMetadata::default() };
    let done = action.state == ActionState::Done;
    let changed: Vec<String> = match &action.effect {
        Effect::Journal { writes, .. } if done => writes.iter().map(|write| write.id.clone()).collect(),
        _ => Vec::new(),
    };
    let status = match action.state {
        ActionState::Done => ToolStatus::Success,
        ActionState::Parked => ToolStatus::Partial,
        _ => ToolStatus::Error,
    };
    let result = AgentMessageMetadata {
        action_ref_id: Some(ids[0]),
        operation_id: Some(action.operation_id),
        status: Some(status),
        changed_tokens: changed.iter().filter_map(|id| Token::entity_id(id).ok()).map(|token| token.to_string()).collect(),
        changed_entity_ids: changed,
        error_code: action.code.clone(),
        ..AgentMessageMetadata::default()
    };
    [
        message(run, AgentMessageKind::Action, previous, call, at),
        message(run, AgentMessageKind::ToolResult, Some(ids[0]), result, at),
    ]
}

fn message(
    run: &Run,
    kind: AgentMessageKind,
    prev_message_id: Option<MessageId>,
    metadata: AgentMessageMetadata,
    created_at: Timestamp,
) -> Message {
    Message {
        agent_id: run.agent_id,
        thread_id: format!("{}:run:{}", run.agent_id, domain::id::WakeId::of_key(&run.run_key)),
        kind,
        created_at,
        prev_message_id,
        content_entry_id: None,
        trigger_source_id: None,
        summary_start_message_id: None,
        summary_end_message_id: None,
        summary_depth: 0,
        tokens_approx: 0,
        metadata,
    }
}

/// What a person is asked to approve, in words.
pub(crate) fn preview(action: &Action) -> String {
    let text = match &action.effect {
        // What follows from it comes first: a long content must not hide it.
        Effect::Journal { writes, .. } => {
            let (content, rest): (Vec<_>, Vec<_>) = writes.iter().partition(|write| write.kind == Artifact::SPEC.kind);
            rest.into_iter().chain(content).map(line).collect::<Vec<_>>().join("\n")
        }
        Effect::Outside { service, parameters, .. } => {
            format!("call `{service}` with {}", serde_json::Value::Object(parameters.clone()))
        }
        Effect::Question { question, .. } => question.clone(),
        Effect::Nothing => action.tool.clone(),
    };
    let mut shown: String = text.chars().take(PREVIEW_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn line(write: &PlannedWrite) -> String {
    let verb = if write.expected_version == 0 { "new" } else { "change" };
    let body = write.body.as_deref().unwrap_or_default();
    if write.kind == Task::SPEC.kind
        && let Ok(task) = Task::from_body(body)
    {
        return format!("{verb} task, {}: {}", task.status, task.description);
    }
    if let Ok(artifact) = Artifact::from_body(body) {
        let key = artifact.artifact_key.map(|key| format!(" `{key}`")).unwrap_or_default();
        // What the model wrote is set apart, so that it cannot pass for a line of ours.
        let (size, content) = (artifact.content.len(), artifact.content.replace('\n', "\n    "));
        return format!("{verb} artifact {}{key}, {size} bytes:\n    {content}", artifact.artifact_type);
    }
    format!("{verb} {}", write.kind)
}

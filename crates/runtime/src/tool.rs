//! An agent's write that leaves a trace in both domains: the note in the journal, the action and its result among the agent's messages.
//!
//! Until the run machine exists this is how the saga is used and shown (L24): by the demonstration and by tests from outside.

use std::collections::BTreeSet;

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Cause, Expected};
use domain::entry::Actor;
use domain::hash::{self, Hash};
use domain::id::{AgentId, MessageId, NoteId, OperationId, WorkspaceId};
use domain::key::{ActionIntent, ActionStableId, RunKey};
use domain::record::Record;
use domain::records::message::{AgentMessageKind, Message};
use domain::records::note::Note;
use domain::records::slug::Slug;
use domain::records::wrappers::{ActionEnvelope, ActionType, AgentMessageMetadata, ToolStatus};
use domain::time::Timestamp;
use domain::token::Token;
use serde_json::json;
use store::saga::{self, Ending, Plan};

use crate::handle::put;
use crate::{Error, Handle, Result};

/// The tool that the action names.
const TOOL: &str = "record_add";

/// A note that an agent wants to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentNote {
    pub agent: AgentId,
    /// Names the run; the same key twice is the same action.
    pub client_key: String,
    pub title: String,
    pub text: String,
}

/// Where it ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentNoteDone {
    pub note: NoteId,
    pub action: MessageId,
    pub result: MessageId,
    pub operation_id: OperationId,
}

impl Handle {
    /// Journal first, then agent, keyed by the action's operation id.
    pub fn write_agent_note(&self, workspace: &str, wanted: &AgentNote) -> Result<AgentNoteDone> {
        let workspace = self.view().workspace(workspace)?;
        let (plan, done) = self.plan_agent_note(workspace, wanted)?;
        let (mut journal, mut agent) = (self.writer(Domain::Journal).clone(), self.writer(Domain::Agent).clone());
        match saga::run(&mut journal, &mut agent, &plan, self.env().clock.now())? {
            Ending::Done(_) => Ok(done),
            Ending::Refused(code) => Err(Error::new(code, "the journal refused the note")),
            Ending::Stuck(code) => {
                let message = format!("{} is in the journal, but the agent's side could not be recorded: {code}", done.note);
                Err(Error::new(ErrorCode::CommitUnknown, message))
            }
        }
    }

    fn plan_agent_note(&self, workspace: WorkspaceId, wanted: &AgentNote) -> Result<(Plan, AgentNoteDone)> {
        let now = self.env().clock.now();
        let run_key = RunKey::manual(&wanted.agent, &wanted.client_key);
        let arguments = json!({ "title": wanted.title, "text": wanted.text });
        let request = domain::json::write(&arguments).map_err(|error| Error::new(ErrorCode::InvalidArgument, error.to_string()))?;
        let intent = ActionIntent {
            cycle: 1,
            tool: TOOL,
            arguments_hash: hash::plain(request.as_bytes()),
            scope_hash: hash::plain(workspace.to_string().as_bytes()),
            targets: &[],
            k: 0,
        };
        let operation_id = OperationId::of_action(&run_key, &ActionStableId::derive(&intent));
        let done = AgentNoteDone {
            note: NoteId::from_raw(operation_id.created(Note::SPEC.kind, 0)),
            action: MessageId::from_raw(operation_id.created(Message::SPEC.kind, 0)),
            result: MessageId::from_raw(operation_id.created(Message::SPEC.kind, 1)),
            operation_id,
        };
        let note = Note {
            title: wanted.title.clone(),
            text: wanted.text.clone(),
            kind: Slug::parse("note").map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?,
            category: None,
            labels: BTreeSet::new(),
            created_at: now,
            updated_at: now,
        };
        note.check().map_err(|error| Error::argument(error.field(), &error.to_string()))?;
        let thread = Thread { agent: wanted.agent, run_key, at: now };
        let agent_side = |result: &Message| -> Result<_> {
            Ok(vec![
                put(&thread.action(&done, intent.arguments_hash), done.action.raw(), workspace, Expected::Absent)?,
                put(result, done.result.raw(), workspace, Expected::Absent)?,
            ])
        };
        let plan = Plan {
            operation_id,
            request,
            actor: Actor::Agent(wanted.agent),
            cause: Cause { run_key: Some(run_key), source_event: None, depth: 1 },
            guards: Vec::new(),
            journal: vec![put(&note, done.note.raw(), workspace, Expected::Absent)?],
            agent: agent_side(&thread.success(&done))?,
            agent_if_refused: agent_side(&thread.refusal(&done))?,
        };
        Ok((plan, done))
    }
}

/// Where the messages of one action go.
struct Thread {
    agent: AgentId,
    run_key: RunKey,
    at: Timestamp,
}

impl Thread {
    fn action(&self, done: &AgentNoteDone, arguments_hash: Hash) -> Message {
        let envelope = ActionEnvelope {
            action_type: ActionType::ToolCall,
            tool_name: Some(TOOL.to_owned()),
            operation_id: done.operation_id,
            arguments_hash,
            scope_snapshot: Vec::new(),
        };
        let metadata = AgentMessageMetadata {
            operation_id: Some(done.operation_id),
            action: Some(envelope),
            ..AgentMessageMetadata::default()
        };
        self.message(AgentMessageKind::Action, None, metadata)
    }

    fn success(&self, done: &AgentNoteDone) -> Message {
        let changed = done.note.to_string();
        let metadata = AgentMessageMetadata {
            status: Some(ToolStatus::Success),
            changed_tokens: Token::entity_id(&changed).ok().map(|token| token.to_string()).into_iter().collect(),
            changed_entity_ids: vec![changed],
            ..self.result_of(done)
        };
        self.message(AgentMessageKind::ToolResult, Some(done.action), metadata)
    }

    /// A new note under a derived id can only be refused because the id is taken.
    fn refusal(&self, done: &AgentNoteDone) -> Message {
        let metadata = AgentMessageMetadata {
            status: Some(ToolStatus::Error),
            error_code: Some(ErrorCode::VersionConflict.as_str().to_owned()),
            ..self.result_of(done)
        };
        self.message(AgentMessageKind::ToolResult, Some(done.action), metadata)
    }

    fn result_of(&self, done: &AgentNoteDone) -> AgentMessageMetadata {
        AgentMessageMetadata {
            action_ref_id: Some(done.action),
            operation_id: Some(done.operation_id),
            ..AgentMessageMetadata::default()
        }
    }

    fn message(&self, kind: AgentMessageKind, previous: Option<MessageId>, metadata: AgentMessageMetadata) -> Message {
        Message {
            agent_id: self.agent,
            thread_id: format!("{}:run:{}", self.agent, self.run_key),
            kind,
            created_at: self.at,
            prev_message_id: previous,
            content_entry_id: None,
            trigger_source_id: None,
            summary_start_message_id: None,
            summary_end_message_id: None,
            summary_depth: 0,
            tokens_approx: 0,
            metadata,
        }
    }
}

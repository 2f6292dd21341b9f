//! `proposal_json`: exactly one JSON object of the vocabulary of 004; whatever stands around it is narration and is ignored.
//!
//! | action | fields |
//! |---|---|
//! | `create_task` | `task` {`description` 10–500, `preconditions` []}, `justification` |
//! | `select_next_task` | `task_id`, `reasoning` |
//! | `execute_tool` | `task_id`, `tool_name`, `parameters` {}, `expected_outcome` |
//! | `generate_message` | `task_id`, `message` {`type`, `content` 20–300, `personalization_context`}, `requires_approval` |
//! | `analyze_leads` | `task_id`, `analysis_type`, `parameters` {} |
//! | `request_user_input` | `question` 10–500, `options` [], `context`, `task_id` |
//! | `persist_artifact` | `task_id`, `artifact` {`type`, `key`, `content`}, `requires_approval` |
//! | `no_op` | `reason`, `details` |
//!
//! An object without `action` is narration, too: a model may think in JSON. `requires_approval` may be given, and is not believed.

use std::fmt;

use domain::id::TaskId;
use domain::limits::{ANSWER_BYTES_MAX, ARTIFACT_CONTENT_BYTES_MAX, ARTIFACT_KEY_BYTES_MAX, TASK_LINKS_MAX};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::dialect::{Decoded, Fault, FaultKind};
use crate::proposal::{AnalysisType, IdleReason, MessageType, Proposal, VOCABULARY};

/// LIMIT: places at which an object may begin; a text with more is noise.
const STARTS_MAX: usize = 256;
/// LIMIT: reasons and contexts that people read.
const TEXT_CHARS_MAX: usize = 2_000;
/// LIMIT: levels of a tool's parameters; the cycle that keeps them adds its own, and canonical JSON ends at 64.
const PARAMETERS_DEPTH_MAX: usize = 32;

pub fn decode(text: &str) -> Result<Decoded, Vec<Fault>> {
    if text.trim().is_empty() {
        return Err(vec![Fault::of(FaultKind::Empty)]);
    }
    if text.len() > ANSWER_BYTES_MAX {
        return Err(vec![Fault::of(FaultKind::TooLarge)]);
    }
    let found = objects(text);
    let mut proposals = found.objects.into_iter().filter(|object| object.fields.contains_key("action"));
    let Some(first) = proposals.next() else {
        return Err(vec![found.broken.unwrap_or_else(|| Fault::of(FaultKind::NoProposal))]);
    };
    if let Some(second) = proposals.next() {
        return Err(vec![Fault { at: Some(second.at as u64), ..Fault::of(FaultKind::SeveralProposals) }]);
    }
    // A broken object after a good one could be a second proposal, and one that the good one stands in could be the real one: it is
    // not for us to guess.
    let open = |at: usize| at > first.at || text[at..first.at].matches('{').count() > text[at..first.at].matches('}').count();
    if let Some(broken) = found.broken.filter(|fault| fault.at.is_some_and(|at| usize::try_from(at).is_ok_and(open))) {
        return Err(vec![broken]);
    }
    let narration_bytes = (text.len() - first.len) as u64;
    let mut reader = Fields { fields: first.fields, faults: Vec::new() };
    let proposal = reader.proposal();
    match proposal {
        Some(proposal) if reader.faults.is_empty() => Ok(Decoded { proposals: vec![proposal], narration_bytes }),
        _ => Err(reader.faults),
    }
}

struct Object {
    fields: Map<String, Value>,
    at: usize,
    len: usize,
}

struct Found {
    objects: Vec<Object>,
    /// The first place where an object began and did not read, though it named an action.
    broken: Option<Fault>,
}

/// The objects at the top level of the text, thinking blocks left out.
fn objects(text: &str) -> Found {
    let mut found = Found { objects: Vec::new(), broken: None };
    let mut at = 0;
    for _ in 0..STARTS_MAX {
        let Some(start) = next_start(text, at) else { return found };
        let rest = &text[start..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Strict>();
        let kind = match stream.next() {
            Some(Ok(Strict(Value::Object(fields)))) => {
                let len = stream.byte_offset();
                found.objects.push(Object { fields, at: start, len });
                at = start + len;
                continue;
            }
            Some(Err(error)) => kind_of(&error),
            Some(Ok(_)) | None => FaultKind::NotJson,
        };
        let broken = Fault { at: Some(start as u64), ..Fault::of(kind) };
        let extent = extent(rest);
        if rest[..extent.len].contains(ACTION) {
            // INVARIANT: what stands inside a broken proposal is a part of it, and never a proposal.
            return Found { objects: Vec::new(), broken: Some(broken) };
        }
        if found.broken.is_none() && rest.contains(ACTION) && !extent.whole {
            found.broken = Some(broken);
        }
        // Whatever was read on the way is a part of it; the byte that was in the way may begin another. So each byte is read about once.
        at = if extent.whole {
            start + extent.len
        } else {
            text.floor_char_boundary((start + extent.len).saturating_sub(1)).max(start + 1)
        };
    }
    match next_start(text, at).filter(|start| text[*start..].contains(ACTION)) {
        // What was not looked at could be a proposal, too.
        Some(start) => {
            let broken = Fault { at: Some(start as u64), ..Fault::of(FaultKind::TooLarge) };
            Found { objects: Vec::new(), broken: Some(broken) }
        }
        None => found,
    }
}

/// What makes an object a proposal, as long as it does not read.
const ACTION: &str = "\"action\"";

/// How far an object that breaks a rule of ours goes.
struct Extent {
    len: usize,
    /// It is JSON, and ends there; otherwise that is where it stops being JSON.
    whole: bool,
}

fn extent(text: &str) -> Extent {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match stream.next() {
        Some(Err(error)) => {
            let lines: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
            Extent { len: text.floor_char_boundary(lines + error.column()), whole: false }
        }
        _ => Extent { len: stream.byte_offset(), whole: true },
    }
}

fn kind_of(error: &serde_json::Error) -> FaultKind {
    match error.to_string() {
        message if message.starts_with(DUPLICATE) => FaultKind::DuplicateField,
        message if message.starts_with(FLOAT) => FaultKind::FloatingPoint,
        _ => FaultKind::NotJson,
    }
}

/// The next `{` that is not inside a thinking block. What was read already opens none: there it was a text in an object.
fn next_start(text: &str, from: usize) -> Option<usize> {
    let mut start = from + text[from..].find('{')?;
    let mut from = from;
    while let Some(opened) = text[from..start].rfind("<think>").filter(|opened| !text[from + *opened..start].contains("</think>")) {
        from += opened;
        from += text[from..].find("</think>")?;
        start = from + text[from..].find('{')?;
    }
    Some(start)
}

const DUPLICATE: &str = "duplicate field";
const FLOAT: &str = "floating-point number";

/// A JSON value without duplicate fields and floating-point numbers.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, _value: f64) -> Result<Value, E> {
        Err(E::custom(FLOAT))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Strict(value) = entries.next_value()?;
            if fields.insert(key, value).is_some() {
                return Err(serde::de::Error::custom(DUPLICATE));
            }
        }
        Ok(Value::Object(fields))
    }
}

/// The fields of one object, taken out one by one; what is left is unknown.
struct Fields {
    fields: Map<String, Value>,
    faults: Vec<Fault>,
}

impl Fields {
    fn proposal(&mut self) -> Option<Proposal> {
        let Some(Value::String(action)) = self.fields.remove("action") else {
            self.fault(FaultKind::WrongType, "action");
            return None;
        };
        let proposal = match VOCABULARY.iter().position(|word| *word == action) {
            Some(0) => self.create_task(),
            Some(1) => self.select_next_task(),
            Some(2) => self.execute_tool(),
            Some(3) => self.generate_message(),
            Some(4) => self.analyze_leads(),
            Some(5) => self.request_user_input(),
            Some(6) => self.persist_artifact(),
            Some(_) => self.no_op(),
            None => {
                self.fault(FaultKind::UnknownAction, "action");
                return None;
            }
        };
        self.no_more("");
        proposal
    }

    fn create_task(&mut self) -> Option<Proposal> {
        let justification = self.optional_text("justification");
        let mut task = self.object("task")?;
        let description = task.text("description", 10, 500);
        let preconditions = task.ids("preconditions");
        self.finish(task, "task");
        Some(Proposal::CreateTask { description: description?, preconditions: preconditions?, justification: justification? })
    }

    fn select_next_task(&mut self) -> Option<Proposal> {
        let (task_id, reasoning) = (self.task_id(), self.optional_text("reasoning"));
        Some(Proposal::SelectNextTask { task_id: task_id?, reasoning: reasoning? })
    }

    fn execute_tool(&mut self) -> Option<Proposal> {
        let (task_id, tool_name) = (self.task_id(), self.text("tool_name", 1, 100));
        let (parameters, expected_outcome) = (self.map("parameters"), self.optional_text("expected_outcome"));
        Some(Proposal::ExecuteTool {
            task_id: task_id?,
            tool_name: tool_name?,
            parameters: parameters?,
            expected_outcome: expected_outcome?,
        })
    }

    fn generate_message(&mut self) -> Option<Proposal> {
        let task_id = self.task_id();
        self.approval();
        let mut message = self.object("message")?;
        let message_type = message.named("type", MessageType::parse);
        let content = message.text("content", 20, 300);
        let personalization_context = message.optional_text("personalization_context");
        self.finish(message, "message");
        Some(Proposal::GenerateMessage {
            task_id: task_id?,
            message_type: message_type?,
            content: content?,
            personalization_context: personalization_context?,
        })
    }

    fn analyze_leads(&mut self) -> Option<Proposal> {
        let (task_id, analysis_type) = (self.task_id(), self.named("analysis_type", AnalysisType::parse));
        let parameters = self.map("parameters");
        Some(Proposal::AnalyzeLeads { task_id: task_id?, analysis_type: analysis_type?, parameters: parameters? })
    }

    fn request_user_input(&mut self) -> Option<Proposal> {
        let task_id = if self.fields.contains_key("task_id") { self.task_id().map(Some) } else { Some(None) };
        let (question, options) = (self.text("question", 10, 500), self.texts("options"));
        let context = self.optional_text("context");
        Some(Proposal::RequestUserInput { task_id: task_id?, question: question?, options: options?, context: context? })
    }

    fn persist_artifact(&mut self) -> Option<Proposal> {
        let task_id = self.task_id();
        self.approval();
        let mut artifact = self.object("artifact")?;
        let artifact_type = artifact.text("type", 1, 100);
        let artifact_key = if artifact.fields.contains_key("key") {
            artifact.text("key", 1, ARTIFACT_KEY_BYTES_MAX).map(Some)
        } else {
            Some(None)
        };
        let content = artifact.text("content", 1, ARTIFACT_CONTENT_BYTES_MAX);
        self.finish(artifact, "artifact");
        Some(Proposal::PersistArtifact {
            task_id: task_id?,
            artifact_type: artifact_type?,
            artifact_key: artifact_key?,
            content: content?,
        })
    }

    fn no_op(&mut self) -> Option<Proposal> {
        let (reason, details) = (self.named("reason", IdleReason::parse), self.optional_text("details"));
        Some(Proposal::NoOp { reason: reason?, details: details? })
    }

    fn fault(&mut self, kind: FaultKind, field: &str) {
        self.faults.push(Fault::in_field(kind, field));
    }

    fn take(&mut self, field: &str) -> Option<Value> {
        let value = self.fields.remove(field);
        if value.is_none() {
            self.fault(FaultKind::MissingField, field);
        }
        value
    }

    fn string(&mut self, field: &str) -> Option<String> {
        match self.take(field)? {
            Value::String(text) => Some(text),
            _ => {
                self.fault(FaultKind::WrongType, field);
                None
            }
        }
    }

    fn text(&mut self, field: &str, chars_min: usize, chars_max: usize) -> Option<String> {
        let text = self.string(field)?;
        let chars = text.chars().count();
        if chars > chars_max {
            self.fault(FaultKind::TooLong, field);
        } else if chars < chars_min || text.trim().is_empty() {
            self.fault(FaultKind::TooShort, field);
        } else if text.contains('\0') {
            self.fault(FaultKind::NotAllowed, field);
        } else {
            return Some(text);
        }
        None
    }

    fn optional_text(&mut self, field: &str) -> Option<String> {
        if !self.fields.contains_key(field) {
            return Some(String::new());
        }
        let text = self.string(field)?;
        if text.chars().count() > TEXT_CHARS_MAX {
            self.fault(FaultKind::TooLong, field);
        } else if text.contains('\0') {
            self.fault(FaultKind::NotAllowed, field);
        } else {
            return Some(text);
        }
        None
    }

    fn named<T>(&mut self, field: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
        let text = self.string(field)?;
        let value = parse(&text);
        if value.is_none() {
            self.fault(FaultKind::NotAllowed, field);
        }
        value
    }

    fn task_id(&mut self) -> Option<TaskId> {
        let text = self.string("task_id")?;
        self.id("task_id", &text)
    }

    fn id(&mut self, field: &str, text: &str) -> Option<TaskId> {
        let id = TaskId::parse(text).ok();
        if id.is_none() {
            self.fault(FaultKind::BadId, field);
        }
        id
    }

    fn texts(&mut self, field: &str) -> Option<Vec<String>> {
        let Some(value) = self.fields.remove(field) else { return Some(Vec::new()) };
        let texts = match value {
            Value::Array(items) if items.len() > TASK_LINKS_MAX => {
                self.fault(FaultKind::TooLong, field);
                return None;
            }
            Value::Array(items) => items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        match texts {
            Some(texts) if texts.iter().any(|text| text.chars().count() > TEXT_CHARS_MAX) => {
                self.fault(FaultKind::TooLong, field);
                None
            }
            Some(texts) if texts.iter().any(|text| text.contains('\0')) => {
                self.fault(FaultKind::NotAllowed, field);
                None
            }
            Some(texts) => Some(texts),
            None => {
                self.fault(FaultKind::WrongType, field);
                None
            }
        }
    }

    fn ids(&mut self, field: &str) -> Option<Vec<TaskId>> {
        let texts = self.texts(field)?;
        texts.iter().map(|text| self.id(field, text)).collect()
    }

    fn map(&mut self, field: &str) -> Option<Map<String, Value>> {
        match self.fields.remove(field) {
            None => Some(Map::new()),
            Some(value) if depth(&value) > PARAMETERS_DEPTH_MAX => {
                self.fault(FaultKind::TooLong, field);
                None
            }
            // What is stored must have a canonical form: the size of integers is its rule.
            Some(Value::Object(map)) if domain::json::write_object(&map).is_ok() => Some(map),
            Some(_) => {
                self.fault(FaultKind::WrongType, field);
                None
            }
        }
    }

    fn object(&mut self, field: &str) -> Option<Self> {
        match self.take(field)? {
            Value::Object(fields) => Some(Self { fields, faults: Vec::new() }),
            _ => {
                self.fault(FaultKind::WrongType, field);
                None
            }
        }
    }

    /// The controller decides what needs approval; the model's word on it is checked for its type and dropped.
    fn approval(&mut self) {
        if self.fields.remove("requires_approval").is_some_and(|value| !value.is_boolean()) {
            self.fault(FaultKind::WrongType, "requires_approval");
        }
    }

    fn finish(&mut self, mut inner: Self, field: &str) {
        inner.no_more(field);
        let within = |fault: Fault| Fault { field: format!("{field}.{}", fault.field), ..fault };
        self.faults.extend(inner.faults.into_iter().map(within));
    }

    /// A field that the schema does not have is told by where it is, not by the name that the model gave it.
    fn no_more(&mut self, field: &str) {
        if !self.fields.is_empty() {
            self.fault(FaultKind::UnknownField, if field.is_empty() { "" } else { "*" });
        }
    }
}

/// Levels of nesting; the reader ends at 128.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

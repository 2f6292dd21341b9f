//! Notes: write, read, change, take away, bring back, find (K13, K14, K23).

use std::collections::BTreeSet;

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Change, Committed, Expected, Guard, Write};
use domain::entry::{FieldsSet, Op};
use domain::id::{NoteId, WorkspaceId};
use domain::limits::QUERY_BYTES_MAX;
use domain::record::{Record, Value};
use domain::records::note::{Invalid, Note};
use domain::records::slug::Slug;
use domain::records::workspace::Workspace;
use domain::time::Timestamp;
use serde::Serialize;
use serde_json::json;
use store::store::{Direction, Row, Scan};

use crate::house::put;
use crate::operation::{ClientKey, owner};
use crate::pages::{self, checked_limit};
use crate::{Error, Handle, Result, View};

/// What a new note is made of, as it was given.
///
/// INVARIANT: its serialised form is what a repeat is compared by, so what was not given must not appear: a field that a later build
/// adds would otherwise make every repeat across the upgrade look like another request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NoteDraft {
    /// Left out, it becomes the current date and time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    pub workspace: String,
}

/// What to change; what is left out stays. See [`NoteDraft`] for what its serialised form is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NoteChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// The version that the change was decided on; left out, whatever is current.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub version: Option<u64>,
}

/// 64-bit numbers are strings in canonical JSON.
fn as_text<S: serde::Serializer>(version: &Option<u64>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&version.unwrap_or_default())
}

/// What a writing command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteDone {
    pub id: NoteId,
    pub version: u64,
    pub operation_id: ClientKey,
    /// It had been done before; nothing changed now.
    pub repeated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteRecord {
    pub id: NoteId,
    pub version: u64,
    pub workspace: WorkspaceId,
    pub note: Note,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotePage {
    pub notes: Vec<NoteRecord>,
    /// How many there are in the workspace.
    pub total: u64,
    /// What to pass as `after` for the next page.
    pub next: Option<String>,
}

/// One entry of a note's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteVersion {
    pub version: u64,
    pub op: Op,
    pub at: Timestamp,
    pub actor: String,
    pub place: String,
    /// Fields that this version set; `*` for all of them.
    pub fields: Vec<String>,
    /// Absent for a deletion, or when it was erased.
    pub note: Option<Note>,
}

impl Handle {
    pub fn add_note(&self, draft: &NoteDraft, key: &ClientKey) -> Result<NoteDone> {
        let operation_id = key.operation_id();
        let now = self.env().clock.now();
        let note = Note {
            title: draft.title.clone().unwrap_or_else(|| now.as_title()),
            text: draft.text.clone(),
            kind: kind_of(draft.kind.as_deref().unwrap_or("note"))?,
            category: None,
            labels: labels_of(&draft.labels)?,
            created_at: now,
            updated_at: now,
        };
        note.check().map_err(|error| invalid(&error))?;
        let workspace = self.view().workspace(&draft.workspace)?;
        let id = operation_id.created(Note::SPEC.kind, 0);
        let write = put(&note, id, workspace, Expected::Absent)?;
        let live = Guard::Live { spec: Workspace::SPEC, id: workspace.raw() };
        let request = json!({ "command": "note.add", "arguments": draft });
        let committed = self.house().act(Domain::Journal, owner(), operation_id, &request, vec![live], vec![write])?;
        done(&committed, key)
    }

    pub fn edit_note(&self, id: NoteId, change: &NoteChange, key: &ClientKey) -> Result<NoteDone> {
        if *change == (NoteChange { version: change.version, ..NoteChange::default() }) {
            return Err(Error::argument("note edit", "nothing to change; give a title, a text, a kind or labels"));
        }
        let request = json!({ "command": "note.edit", "id": id, "arguments": change });
        self.change_note(id, change.version, key, &request, |now, note| {
            let note = note.ok_or_else(|| gone(id))?;
            Ok(Note {
                title: change.title.clone().unwrap_or(note.title),
                text: change.text.clone().unwrap_or(note.text),
                kind: change.kind.as_deref().map(kind_of).transpose()?.unwrap_or(note.kind),
                labels: change.labels.as_deref().map(labels_of).transpose()?.unwrap_or(note.labels),
                updated_at: now.max(note.updated_at),
                ..note
            })
        })
    }

    /// Takes a note away; `restore_note` brings it back.
    pub fn remove_note(&self, id: NoteId, version: Option<u64>, key: &ClientKey) -> Result<NoteDone> {
        let request = json!({ "command": "note.rm", "id": id, "arguments": NoteChange { version, ..NoteChange::default() } });
        let row = self.view().note_row(id)?;
        let is_repeat = self.view().reader(Domain::Journal).read()?.outcome(&key.operation_id())?.is_some();
        if row.deleted && version.is_none() && !is_repeat {
            return Err(gone(id));
        }
        let expected = Expected::Version(version.unwrap_or(row.version));
        let write = Write { spec: Note::SPEC, id: row.id, workspace: row.workspace, expected, change: Change::Tombstone };
        self.commit_note(key, &request, write)
    }

    /// Makes an earlier version the current one again; without one, the last that was not deleted.
    pub fn restore_note(&self, id: NoteId, to_version: Option<u64>, key: &ClientKey) -> Result<NoteDone> {
        let request = json!({ "command": "note.restore", "id": id, "arguments": NoteChange { version: to_version, ..NoteChange::default() } });
        self.change_note(id, None, key, &request, |now, current| {
            let found = self.earlier(id, to_version, current.as_ref())?;
            Ok(Note { updated_at: now.max(found.updated_at), ..found })
        })
    }

    /// The wanted version, or the last one that differs from the current: the undo of a change, or of the deletion.
    fn earlier(&self, id: NoteId, to_version: Option<u64>, current: Option<&Note>) -> Result<Note> {
        let history = self.view().note_history(id)?;
        match to_version {
            Some(wanted) => {
                let rule = format!("version {wanted} has no text to bring back; see `verger note history`");
                let found = history.into_iter().find(|version| version.version == wanted).and_then(|version| version.note);
                found.ok_or_else(|| Error::argument("to-version", &rule))
            }
            None => {
                let found = history.into_iter().filter_map(|version| version.note).find(|note| !same(current, note));
                found.ok_or_else(|| Error::argument("note", "there is no earlier version to bring back; see `verger note history`"))
            }
        }
    }

    fn change_note(
        &self,
        id: NoteId,
        version: Option<u64>,
        key: &ClientKey,
        request: &serde_json::Value,
        change: impl FnOnce(Timestamp, Option<Note>) -> Result<Note>,
    ) -> Result<NoteDone> {
        let row = self.view().note_row(id)?;
        if self.view().reader(Domain::Journal).read()?.outcome(&key.operation_id())?.is_some() {
            // Done before, whatever became of the note since: the store compares the requests, answers with the first outcome and
            // never looks at this write.
            let (spec, expected, change) = (Note::SPEC, Expected::Absent, Change::Tombstone);
            return self.commit_note(key, request, Write { spec, id: row.id, workspace: row.workspace, expected, change });
        }
        let note = change(self.env().clock.now(), row.record()?)?;
        note.check().map_err(|error| invalid(&error))?;
        let expected = Expected::Version(version.unwrap_or(row.version));
        self.commit_note(key, request, put(&note, row.id, row.workspace, expected)?)
    }

    fn commit_note(&self, key: &ClientKey, request: &serde_json::Value, write: Write) -> Result<NoteDone> {
        let committed = self.house().act(Domain::Journal, owner(), key.operation_id(), request, Vec::new(), vec![write])?;
        done(&committed, key)
    }
}

fn done(committed: &Committed, key: &ClientKey) -> Result<NoteDone> {
    let written = committed.writes.iter().find(|write| write.kind == Note::SPEC.kind);
    let written = written.ok_or_else(|| {
        let message = format!("operation `{}` was used for something that is not a note", key.as_str());
        Error::new(ErrorCode::OperationIdReused, message)
    })?;
    Ok(NoteDone {
        id: NoteId::from_raw(written.id),
        version: written.version,
        operation_id: key.clone(),
        repeated: committed.repeated,
    })
}

impl View {
    pub fn note(&self, id: NoteId) -> Result<NoteRecord> {
        let row = self.note_row(id)?;
        record_of(&row)?.ok_or_else(|| gone(id))
    }

    /// A note as it was at an earlier version.
    pub fn note_at(&self, id: NoteId, version: u64) -> Result<NoteRecord> {
        let workspace = self.note_row(id)?.workspace;
        let found = self.note_history(id)?.into_iter().find(|found| found.version == version).and_then(|found| found.note);
        let note = found.ok_or_else(|| Error::argument("version", &format!("{id} has no text at version {version}")))?;
        Ok(NoteRecord { id, version, workspace, note })
    }

    /// Newest change first, page by page.
    pub fn notes(&self, workspace: &str, limit: usize, after: Option<&str>) -> Result<NotePage> {
        let workspace = self.workspace(workspace)?;
        let prefix = vec![Value::from(workspace.raw())];
        let scan = Scan {
            after: after.map(|after| pages::key(prefix.clone(), after, NoteId::PREFIX)).transpose()?,
            prefix,
            direction: Direction::Backward,
            limit: checked_limit(limit)?,
            ..Scan::new(Note::SPEC, "by_updated")
        };
        let snapshot = self.reader(Domain::Journal).read()?;
        let page = snapshot.scan(&scan)?;
        let total = snapshot.aggregate(Note::SPEC, "per_workspace", &[Value::from(workspace.raw())])?;
        let notes = page.rows.iter().map(record_of).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        Ok(NotePage { notes, total: total.unsigned_abs(), next: page.next.as_ref().map(|next| pages::token(next, NoteId::PREFIX)) })
    }

    /// Notes that hold all the words, best first.
    pub fn search_notes(&self, workspace: &str, words: &str, limit: usize) -> Result<Vec<NoteRecord>> {
        let workspace = self.workspace(workspace)?;
        if words.len() > QUERY_BYTES_MAX {
            return Err(Error::argument("words", &format!("a search has at most {QUERY_BYTES_MAX} bytes")));
        }
        if !words.chars().any(char::is_alphanumeric) {
            return Err(Error::argument("words", "a search needs at least one word"));
        }
        let rows = self.reader(Domain::Journal).search(Note::SPEC, &workspace, words, checked_limit(limit)?)?;
        Ok(rows.iter().map(record_of).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Every version of a note, newest first, deleted ones included.
    pub fn note_history(&self, id: NoteId) -> Result<Vec<NoteVersion>> {
        let entries = self.reader(Domain::Journal).read()?.history(Note::SPEC, &id.raw(), usize::MAX)?;
        if entries.is_empty() {
            return Err(unknown(id));
        }
        let version = |(logged, stored): (store::store::Logged, store::store::Stored)| {
            let entry = logged.entry;
            let note = stored.body.as_deref().filter(|_| entry.op == Op::Put).map(Note::from_body).transpose();
            Ok(NoteVersion {
                version: entry.version,
                op: entry.op,
                at: entry.at,
                actor: entry.actor.to_string(),
                place: store::place(&entry.dot),
                fields: match entry.fields {
                    FieldsSet::Some(names) => names,
                    FieldsSet::All => vec!["*".to_owned()],
                    FieldsSet::Whole => Vec::new(),
                },
                note: note.map_err(|error| Error::new(ErrorCode::DatabaseDamaged, error.to_string()))?,
            })
        };
        entries.into_iter().map(version).collect()
    }

    fn note_row(&self, id: NoteId) -> Result<Row> {
        self.reader(Domain::Journal).read()?.get(Note::SPEC, &id.raw())?.ok_or_else(|| unknown(id))
    }
}

/// Whether a person would see no difference.
fn same(current: Option<&Note>, other: &Note) -> bool {
    current.is_some_and(|current| Note { updated_at: other.updated_at, ..current.clone() } == *other)
}

fn record_of(row: &Row) -> Result<Option<NoteRecord>> {
    let note: Option<Note> = row.record()?;
    Ok(note.map(|note| NoteRecord { id: NoteId::from_raw(row.id), version: row.version, workspace: row.workspace, note }))
}

fn unknown(id: NoteId) -> Error {
    Error::new(ErrorCode::NoteNotFound, format!("there is no note {id}"))
}

fn gone(id: NoteId) -> Error {
    Error::new(ErrorCode::NoteNotFound, format!("note {id} was deleted; `verger note restore` brings it back"))
}

fn invalid(error: &Invalid) -> Error {
    let code = if matches!(error, Invalid::UnknownKind { .. }) { ErrorCode::UnknownKind } else { ErrorCode::InvalidArgument };
    Error { details: json!({ "argument": error.field() }), ..Error::new(code, error.to_string()) }
}

fn kind_of(text: &str) -> Result<Slug> {
    Slug::parse(text).map_err(|_| invalid(&Invalid::UnknownKind { kind: text.chars().take(60).collect() }))
}

fn labels_of(labels: &[String]) -> Result<BTreeSet<Slug>> {
    let parse = |label: &String| {
        let shown: String = label.chars().take(60).collect();
        Slug::parse(label).map_err(|error| Error::argument("label", &format!("`{shown}`: {error}")))
    };
    labels.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_given_is_not_part_of_the_request() {
        let text = |value: serde_json::Value| domain::json::write(&value).unwrap();
        let draft = NoteDraft { title: Some("a".into()), workspace: "home".into(), ..NoteDraft::default() };
        assert_eq!(text(json!(draft)), r#"{"title":"a","workspace":"home"}"#);
        let change = NoteChange { labels: Some(vec![]), version: Some(u64::MAX), ..NoteChange::default() };
        assert_eq!(text(json!(change)), r#"{"labels":[],"version":"18446744073709551615"}"#);
        assert_eq!(text(json!(NoteChange::default())), "{}");
    }
}

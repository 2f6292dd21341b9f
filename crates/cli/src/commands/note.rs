//! `verger note …`: for people one by one, for programs line by line.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use domain::entry::Op;
use domain::id::NoteId;
use domain::limits::NOTE_TEXT_BYTES_MAX;
use runtime::{ClientKey, Env, Error, Handle, Home, NoteChange, NoteDone, NoteDraft, NoteRecord, NoteVersion, View};
use serde_json::{Value, json};

use crate::commands::acting::naming;
use crate::commands::note_lines;
use crate::io_error;
use crate::output::{Failure, Out, counted, note, plain, shortened};

#[derive(Debug, Subcommand)]
pub(crate) enum NoteCommand {
    /// Write a note, or many from stdin
    Add(AddArgs),
    /// Show a note
    Show {
        /// The note's id
        note: NoteId,
        /// An earlier version instead of the current one
        #[arg(long)]
        version: Option<u64>,
    },
    /// List notes, newest change first
    List {
        #[command(flatten)]
        place: Place,
        /// How many to show
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: usize,
        /// The `next` of the page before
        #[arg(long, value_name = "TOKEN")]
        after: Option<String>,
    },
    /// Change a note; what is not given stays
    Edit(EditArgs),
    /// Delete a note; `restore` brings it back
    Rm {
        /// The note's id
        note: NoteId,
        /// Delete only if the note is at this version
        #[arg(long)]
        version: Option<u64>,
        #[command(flatten)]
        operation: Operation,
    },
    /// Bring a deleted note back, or undo its last change
    Restore {
        /// The note's id
        note: NoteId,
        /// The version to bring back; by default the last one before the deletion or the last change
        #[arg(long, value_name = "VERSION")]
        to_version: Option<u64>,
        #[command(flatten)]
        operation: Operation,
    },
    /// Find notes that hold all the words, best first
    Search {
        /// The words
        #[arg(required = true)]
        words: Vec<String>,
        #[command(flatten)]
        place: Place,
        /// How many to show
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: usize,
    },
    /// Show every version of a note, newest first
    History {
        /// The note's id
        note: NoteId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The workspace
    #[arg(long, short, default_value = "home")]
    pub workspace: String,
}

#[derive(Debug, Args)]
pub(crate) struct Operation {
    /// Names this act: repeating it with the same id changes nothing and gives the first answer
    #[arg(long, value_name = "KEY")]
    pub operation_id: Option<String>,
}

impl Operation {
    pub(super) fn key(&self, env: &Env) -> Result<ClientKey, Error> {
        self.operation_id.as_deref().map_or_else(|| Ok(ClientKey::fresh(env)), ClientKey::parse)
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The title; without one it is the current date and time (UTC)
    title: Option<String>,
    /// The title, as an option
    #[arg(long = "title", id = "title_option", value_name = "TITLE", conflicts_with = "title", allow_hyphen_values = true)]
    title_option: Option<String>,
    #[command(flatten)]
    text: TextArgs,
    /// The kind of note [default: note]
    #[arg(long)]
    kind: Option<String>,
    /// A keyword; may be given several times
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    operation: Operation,
    /// Read many notes from stdin, a JSON object a line: `{"operation_id":…,"title":…,"text":…,"kind":…,"labels":[…]}`, each answered by
    /// a line when it is durable
    #[arg(long, conflicts_with_all = ["title", "title_option", "text", "text_file", "kind", "labels", "operation_id"])]
    stdin: bool,
    /// With --stdin: how many notes are on their way at once
    #[arg(long, requires = "stdin", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    writers: u16,
}

#[derive(Debug, Args)]
pub(crate) struct TextArgs {
    /// The text
    #[arg(long, short, allow_hyphen_values = true)]
    text: Option<String>,
    /// Read the text from a file; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    text_file: Option<PathBuf>,
}

impl TextArgs {
    fn read(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.text_file else { return Ok(self.text.clone()) };
        let mut bytes = Vec::new();
        let limit = u64::try_from(NOTE_TEXT_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        let read = if path == Path::new("-") {
            std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
        } else {
            std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
        };
        read.map_err(|error| Error::argument("text-file", &format!("{}: {error}", path.display())))?;
        if bytes.len() > NOTE_TEXT_BYTES_MAX {
            // What was read is cut anywhere, perhaps in the middle of a character: it says nothing about the rest.
            let rule = format!("{}: a text has at most {NOTE_TEXT_BYTES_MAX} bytes, and this is longer", path.display());
            return Err(Error::argument("text-file", &rule).into());
        }
        let text = String::from_utf8(bytes);
        Ok(Some(text.map_err(|error| Error::argument("text-file", &format!("{}: not UTF-8: {error}", path.display())))?))
    }
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The note's id
    note: NoteId,
    /// The new title
    #[arg(long, allow_hyphen_values = true)]
    title: Option<String>,
    #[command(flatten)]
    text: TextArgs,
    /// The new kind
    #[arg(long)]
    kind: Option<String>,
    /// The new keywords, all of them; may be given several times
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Take all keywords away
    #[arg(long, conflicts_with = "labels")]
    no_labels: bool,
    /// Change only if the note is at this version
    #[arg(long)]
    version: Option<u64>,
    #[command(flatten)]
    operation: Operation,
}

pub(crate) fn run(command: &NoteCommand, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        NoteCommand::Add(args) => add(args, home, env, out),
        NoteCommand::Edit(args) => edit(args, home, env, out),
        NoteCommand::Rm { note, version, operation } => {
            write(home, env, out, "deleted", operation, |handle, key| handle.remove_note(*note, *version, key))
        }
        NoteCommand::Restore { note, to_version, operation } => {
            write(home, env, out, "restored", operation, |handle, key| handle.restore_note(*note, *to_version, key))
        }
        NoteCommand::Show { note, version: None } => show(&View::open(home, env)?.note(*note)?, out),
        NoteCommand::Show { note, version: Some(version) } => show(&View::open(home, env)?.note_at(*note, *version)?, out),
        NoteCommand::List { place, limit, after } => list(place, *limit, after.as_deref(), home, env, out),
        NoteCommand::Search { words, place, limit } => search(&words.join(" "), place, *limit, home, env, out),
        NoteCommand::History { note } => history(*note, &View::open(home, env)?.note_history(*note)?, out),
    }
}

/// Runs one writing command against a home that is opened for it.
fn write(
    home: &Home,
    env: &Env,
    out: &mut Out,
    verb: &str,
    operation: &Operation,
    act: impl FnOnce(&Handle, &ClientKey) -> runtime::Result<NoteDone>,
) -> Result<(), Failure> {
    let key = operation.key(env)?;
    let handle = open(home, env)?;
    let result = act(&handle, &key);
    // Told in any case: whoever does not learn how it ended can repeat it under the same name.
    note(&format!("operation {}", key.as_str()));
    // What was done is durable already; a failure to close is worth a word, not the answer.
    if let Err(error) = handle.close() {
        note(&format!("warning[{}]: {error}", error.code));
    }
    let done = result.map_err(|error| naming(error, Some(&key)))?;
    if out.json {
        let content = json!({ "id": done.id, "version": done.version, "operation_id": done.operation_id.as_str(), "repeated": done.repeated });
        return out.document("verger.note-written.v1", content);
    }
    let again = if done.repeated { " (it had been done before)" } else { "" };
    out.line(&format!("{verb} {} at version {}{again}", out.bold(&done.id.to_string()), done.version))
}

pub(super) fn open(home: &Home, env: &Env) -> Result<Handle, Failure> {
    let opened = Handle::open(home, env)?;
    if opened.recovered > 0 {
        let cycles = counted(i64::try_from(opened.recovered).unwrap_or(i64::MAX), "cycle");
        note(&format!("finished {cycles} that a crash had interrupted between an effect and its outcome"));
    }
    Ok(opened.handle)
}

fn add(args: &AddArgs, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    if args.stdin {
        return note_lines::run(&args.place.workspace, usize::from(args.writers), home, env);
    }
    let draft = NoteDraft {
        title: args.title.clone().or_else(|| args.title_option.clone()),
        text: args.text.read()?.unwrap_or_default(),
        kind: args.kind.clone(),
        labels: args.labels.clone(),
        workspace: args.place.workspace.clone(),
    };
    write(home, env, out, "added", &args.operation, |handle, key| handle.add_note(&draft, key))
}

fn edit(args: &EditArgs, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let labels = (args.no_labels || !args.labels.is_empty()).then(|| args.labels.clone());
    let change =
        NoteChange { title: args.title.clone(), text: args.text.read()?, kind: args.kind.clone(), labels, version: args.version };
    write(home, env, out, "changed", &args.operation, |handle, key| handle.edit_note(args.note, &change, key))
}

fn show(record: &NoteRecord, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        return out.document("verger.note.v1", document(record));
    }
    let note = &record.note;
    let title = out.bold(&plain(&note.title));
    out.line(&title)?;
    let labels: Vec<_> = note.labels.iter().map(|label| format!("#{label}")).collect();
    let facts =
        format!("{} · version {} · {} · changed {} {}", record.id, record.version, note.kind, note.updated_at, labels.join(" "));
    let facts = out.dim(facts.trim_end());
    out.line(&facts)?;
    if !note.text.is_empty() {
        out.line(&format!("\n{}", plain(&note.text)))?;
    }
    Ok(())
}

fn list(place: &Place, limit: usize, after: Option<&str>, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let page = View::open(home, env)?.notes(&place.workspace, limit, after)?;
    if out.json {
        let notes: Vec<_> = page.notes.iter().map(document).collect();
        return out.document("verger.notes.v1", json!({ "notes": notes, "total": page.total, "next": page.next }));
    }
    if page.notes.is_empty() {
        return out.line("no notes here yet");
    }
    table(&page.notes, out)?;
    if let Some(next) = page.next {
        note(&format!("{} of {}; more with --after {next}", page.notes.len(), page.total));
    }
    Ok(())
}

fn search(words: &str, place: &Place, limit: usize, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let found = View::open(home, env)?.search_notes(&place.workspace, words, limit)?;
    if out.json {
        let notes: Vec<_> = found.iter().map(document).collect();
        return out.document("verger.note-search.v1", json!({ "words": words, "notes": notes }));
    }
    if found.is_empty() {
        return out.line(&format!("no note holds `{}`", shortened(words, 60)));
    }
    table(&found, out)?;
    if found.len() == limit {
        note(&format!("the best {limit}; there may be more, ask for them with -n"));
    }
    Ok(())
}

fn table(notes: &[NoteRecord], out: &mut Out) -> Result<(), Failure> {
    let row = |record: &NoteRecord| {
        let changed = record.note.updated_at.as_title();
        vec![record.id.to_string(), format!("v{}", record.version), changed, shortened(&record.note.title, 60)]
    };
    let rows: Vec<_> = notes.iter().map(row).collect();
    out.table(&["note", "version", "changed (UTC)", "title"], &rows)
}

fn history(id: NoteId, versions: &[NoteVersion], out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let versions: Vec<_> = versions.iter().map(version_document).collect();
        return out.document("verger.note-history.v1", json!({ "id": id, "versions": versions }));
    }
    let row = |version: &NoteVersion| {
        let what = match (version.op, &version.note) {
            (Op::Put, Some(note)) => shortened(&note.title, 40),
            (Op::Put, None) => "(erased)".to_owned(),
            (Op::Tombstone, _) => "(deleted)".to_owned(),
            (Op::Erase, _) => "(erased)".to_owned(),
        };
        vec![format!("v{}", version.version), version.at.as_title(), version.fields.join(", "), what]
    };
    let rows: Vec<_> = versions.iter().map(row).collect();
    out.table(&["version", "at (UTC)", "set", "title"], &rows)
}

pub(super) fn document(record: &NoteRecord) -> Value {
    let note = &record.note;
    json!({
        "id": record.id, "version": record.version, "workspace": record.workspace, "title": note.title, "text": note.text,
        "kind": note.kind, "labels": note.labels, "created_at": note.created_at, "updated_at": note.updated_at,
    })
}

fn version_document(version: &NoteVersion) -> Value {
    let note = version
        .note
        .as_ref()
        .map(|note| json!({ "title": note.title, "text": note.text, "kind": note.kind, "labels": note.labels }));
    json!({
        "version": version.version, "op": version.op.as_str(), "at": version.at, "actor": version.actor, "place": version.place,
        "fields": version.fields, "note": note,
    })
}

/// An I/O failure while reading lines.
pub(super) fn reading(error: &std::io::Error) -> Failure {
    io_error("reading stdin", error)
}

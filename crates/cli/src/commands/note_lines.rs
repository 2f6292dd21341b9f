//! `verger note add --stdin`: a line in, a line out when it is durable.
//!
//! Several writers share the store's group commit. Answers come in the order they become durable, each with the line's operation id:
//! whoever was not answered before a crash sends the line again, and what had been done is not done twice.

use std::io::{BufRead, Read, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use domain::code::exit;
use runtime::{ClientKey, Env, Error, Handle, Home, NoteDraft};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commands::note::{open, reading};
use crate::output::{Failure, error_document, note};
use crate::output_error;
use crate::progress::Progress;

/// LIMIT: a line; a note's longest text with every character escaped still fits.
const LINE_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    operation_id: String,
    title: Option<String>,
    #[serde(default)]
    text: String,
    kind: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
}

pub(super) fn run(workspace: &str, writers: usize, home: &Home, env: &Env) -> Result<(), Failure> {
    let handle = open(home, env)?;
    let (sender, receiver) = sync_channel::<(u64, Vec<u8>)>(writers * 2);
    let receiver = Arc::new(Mutex::new(receiver));
    let tally = Mutex::new(Tally { progress: Progress::new("adding notes"), done: 0, repeated: 0, failed: 0, unheard: None });
    let read = std::thread::scope(|scope| {
        for _ in 0..writers {
            let (receiver, handle, tally) = (Arc::clone(&receiver), &handle, &tally);
            scope.spawn(move || answer_lines(handle, workspace, &receiver, tally));
        }
        // INVARIANT: only the writers hold the other end. When the last one has left a closed stdout, sending fails instead of waiting.
        drop(receiver);
        let read = read_lines(|line| sender.send(line).is_ok());
        drop(sender);
        read
    });
    // What was answered is durable already; a failure to close is worth a word, not the answer.
    if let Err(error) = handle.close() {
        note(&format!("warning[{}]: {error}", error.code));
    }
    read?;
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(error) = tally.unheard {
        return Err(output_error(&error));
    }
    let repeated = if tally.repeated > 0 { format!("{} had been done before, ", tally.repeated) } else { String::new() };
    note(&format!("{} added, {repeated}{} refused", tally.done - tally.repeated, tally.failed));
    if tally.failed > 0 { Err(Failure::Exit(exit::REFUSED)) } else { Ok(()) }
}

struct Tally {
    progress: Progress,
    done: u64,
    /// Of those, how many an earlier attempt had done.
    repeated: u64,
    failed: u64,
    /// Why answers no longer reach anybody.
    unheard: Option<std::io::Error>,
}

fn read_lines(mut send: impl FnMut((u64, Vec<u8>)) -> bool) -> Result<(), Failure> {
    let mut stdin = std::io::stdin().lock();
    for number in 1.. {
        let mut line = Vec::new();
        let read = stdin.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line).map_err(|error| reading(&error))?;
        if read == 0 {
            break;
        }
        if u64::try_from(line.len()).is_ok_and(|length| length > LINE_BYTES_MAX) {
            let message = format!("line {number} is longer than {LINE_BYTES_MAX} bytes; nothing after it was read");
            return Err(Error::argument("stdin", &message).into());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if !send((number, line)) {
            break;
        }
    }
    Ok(())
}

fn answer_lines(handle: &Handle, workspace: &str, lines: &Mutex<Receiver<(u64, Vec<u8>)>>, tally: &Mutex<Tally>) {
    loop {
        // One writer waits for the next line, the others for their turn to wait.
        let Some((number, line)) = lines.lock().ok().and_then(|lines| lines.recv().ok()) else { return };
        let answer = add(handle, workspace, number, &line);
        let Ok(mut tally) = tally.lock() else { return };
        let text = format!("{}\n", answer.1);
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            tally.unheard.get_or_insert(error);
            return;
        }
        if answer.0 {
            tally.done += 1;
            tally.repeated += u64::from(answer.1["repeated"] == json!(true));
        } else {
            tally.failed += 1;
        }
        let done = tally.done;
        tally.progress.at(&done.to_string());
    }
}

/// A line is an object; nothing else, though it might fit.
fn parse(line: &[u8]) -> Result<Line, String> {
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("a line is a JSON object".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

/// Adds one line's note; the answer is good or bad, and a document.
fn add(handle: &Handle, workspace: &str, number: u64, line: &[u8]) -> (bool, Value) {
    let refused = |operation_id: Option<&str>, error: &Error| {
        (false, json!({ "ok": false, "line": number, "operation_id": operation_id, "error": error_document(error) }))
    };
    let line: Line = match parse(line) {
        Ok(line) => line,
        Err(error) => return refused(None, &Error::argument("stdin", &format!("line {number}: {error}"))),
    };
    let draft =
        NoteDraft { title: line.title, text: line.text, kind: line.kind, labels: line.labels, workspace: workspace.to_owned() };
    match ClientKey::parse(&line.operation_id).and_then(|key| handle.add_note(&draft, &key)) {
        Ok(done) => {
            let answer = json!({
                "ok": true, "line": number, "operation_id": line.operation_id, "id": done.id, "version": done.version, "repeated": done.repeated,
            });
            (true, answer)
        }
        Err(error) => refused(Some(&line.operation_id), &error),
    }
}

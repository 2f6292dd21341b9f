//! `verger log …`: the log that everything is built from.

use clap::{Args, Subcommand};
use domain::causality::{Domain, Stream};
use domain::code::{ErrorCode, exit};
use domain::id::HostId;
use domain::time::Timestamp;
use runtime::{Anchor, CursorState, EntryRecord, Env, Error, Home, LogStatus, RebuildOutcome, StreamReport, View, rebuild};
use serde_json::{Value, json};

use crate::commands::note::open;
use crate::output::{Failure, Out, note, plain};
use crate::progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show the last entries
    Tail {
        #[command(flatten)]
        place: StreamArgs,
        /// How many
        #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        count: u16,
    },
    /// Show one entry whole
    Show {
        /// Its counter
        counter: u64,
        #[command(flatten)]
        place: StreamArgs,
        /// Whose stream, when the log holds several hosts'
        #[arg(long)]
        host: Option<HostId>,
    },
    /// Check every entry, body, head and witness
    Verify {
        /// A head that was written down elsewhere, as `verify` prints it
        #[arg(long, value_name = "HEAD")]
        expect: Option<String>,
    },
    /// Build the tables anew from the log, compare, swap, and say what differed
    Rebuild,
    /// Consumers of the log and where they stand
    #[command(subcommand)]
    Cursor(CursorCommand),
}

#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Which log: journal, agent or ledger
    #[arg(long, short, default_value = "journal", value_parser = parse_domain)]
    domain: Domain,
    /// Which of its streams: synced or local
    #[arg(long, short, default_value = "synced", value_parser = parse_stream)]
    stream: Stream,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CursorCommand {
    /// Show every consumer
    List,
    /// Move a consumer to the end of its source; what lies between is not read by it
    Reset {
        /// The consumer's name
        consumer: String,
        /// Say so: entries will be passed over
        #[arg(long, required = true)]
        to_head: bool,
    },
}

fn parse_domain(text: &str) -> Result<Domain, String> {
    Domain::parse(text).ok_or_else(|| "use journal, agent or ledger".to_owned())
}

fn parse_stream(text: &str) -> Result<Stream, String> {
    Stream::parse(text).ok_or_else(|| "use synced or local".to_owned())
}

pub(crate) fn run(command: &LogCommand, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        LogCommand::Tail { place, count } => {
            let entries = View::open(home, env)?.log_tail(place.domain, place.stream, usize::from(*count))?;
            tail(&entries, out)
        }
        LogCommand::Show { counter, place, host } => {
            show(&View::open(home, env)?.log_entry(place.domain, place.stream, *counter, *host)?, out)
        }
        LogCommand::Verify { expect } => verify(expect.as_deref(), home, env, out),
        LogCommand::Rebuild => {
            let mut progress = Progress::new("rebuilding");
            let outcomes = rebuild(home, env, &mut |domain, done| progress.at(&format!("{domain}, {done} entries")))?;
            drop(progress);
            rebuilt(&outcomes, out)
        }
        LogCommand::Cursor(CursorCommand::List) => cursors(&View::open(home, env)?.cursors()?, out),
        LogCommand::Cursor(CursorCommand::Reset { consumer, to_head: _ }) => {
            let handle = open(home, env)?;
            let state = handle.reset_cursor(consumer);
            handle.close()?;
            cursors(&[state?], out)
        }
    }
}

fn tail(entries: &[EntryRecord], out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let entries: Vec<_> = entries.iter().map(document).collect();
        return out.document("verger.log-entries.v1", json!({ "entries": entries }));
    }
    if entries.is_empty() {
        return out.line("no entries yet");
    }
    let row = |record: &EntryRecord| {
        let entry = &record.logged.entry;
        let id =
            domain::catalogue::find(&entry.kind).map_or_else(|| entry.id.to_string(), |spec| entry.id.with_prefix(spec.prefix));
        vec![
            entry.dot.counter.to_string(),
            entry.at.as_title(),
            entry.op.to_string(),
            plain(&entry.kind),
            format!("v{}", entry.version),
            id,
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    out.table(&["entry", "at (UTC)", "did", "kind", "version", "id"], &rows)
}

fn show(record: &EntryRecord, out: &mut Out) -> Result<(), Failure> {
    let content = document(record);
    if out.json {
        return out.document("verger.log-entry.v1", content);
    }
    let Value::Object(fields) = content else { return Ok(()) };
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name = out.dim(&format!("{name:<width$}"));
        out.line(&format!("{name}  {}", plain(&value)))?;
    }
    Ok(())
}

fn document(record: &EntryRecord) -> Value {
    let entry = &record.logged.entry;
    let prefix = domain::catalogue::find(&entry.kind).map_or("id", |spec| spec.prefix);
    let body: Option<Value> = record.stored.body.as_deref().and_then(|body| serde_json::from_str(body).ok());
    json!({
        "domain": record.domain.as_str(), "host": entry.dot.stream.host, "stream": entry.dot.stream.stream.as_str(),
        "counter": entry.dot.counter, "commit_first": entry.first, "commit_last": entry.last, "kind": entry.kind, "schema_version": entry.schema,
        "workspace": entry.workspace, "id": entry.id.with_prefix(prefix), "op": entry.op.as_str(), "version": entry.version,
        "edits": entry.edits.iter().map(|(host, count)| (host.to_string(), *count)).collect::<std::collections::BTreeMap<_, _>>(),
        "fields": entry.fields.to_text().map(|names| names.split_terminator(',').map(str::to_owned).collect::<Vec<_>>()), "clock": entry.clock.iter().map(|(host, counter)| (host.to_string(), counter)).collect::<std::collections::BTreeMap<_, _>>(),
        "actor": entry.actor, "operation_id": entry.operation_id, "run_key": entry.run_key, "source_event": entry.source_event,
        "cause_depth": entry.cause_depth, "at": entry.at, "body_hash": entry.body_hash, "chain": record.logged.chain, "body": body,
    })
}

fn verify(expect: Option<&str>, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let anchor = expect.map(Anchor::parse).transpose()?;
    let mut progress = Progress::new("verifying");
    let status = LogStatus::check(home, env, anchor.as_ref(), &mut |done| progress.at(&format!("{done} entries")))?;
    drop(progress);
    if out.json {
        out.document("verger.log-verify.v1", status_document(&status))?;
    } else {
        show_status(&status, out)?;
    }
    let error = first_error(&status);
    let Some(error) = error else { return Ok(()) };
    // The code's next step is to run this very command.
    let next = if error.code == ErrorCode::DatabaseDamaged { ErrorCode::LogDamaged.next_step() } else { error.code.next_step() };
    note(&format!("error[{}]: {}\n  next: {next}", error.code, plain(&error.message)));
    Err(Failure::Exit(error.code.exit_code()))
}

fn first_error(status: &LogStatus) -> Option<Error> {
    if let Some((domain, error)) = status.unreadable.first() {
        return Some(Error::new(error.code, format!("the {domain} log cannot be read: {error}")));
    }
    if let Some((domain, damage)) = status.first_damage() {
        let message =
            format!("the {domain} log is damaged at entry {} ({}): {}", damage.at.counter, damage.at.stream.stream, damage.what);
        return Some(Error::new(ErrorCode::LogDamaged, message));
    }
    status
        .anchor_mismatch
        .as_ref()
        .map(|what| Error::new(ErrorCode::HeadMismatch, format!("the expected head is not in this log: {what}")))
}

fn show_status(status: &LogStatus, out: &mut Out) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for report in &status.reports {
        for stream in &report.streams {
            let verdict = match &stream.damage {
                None => "sound".to_owned(),
                Some(damage) => format!("DAMAGED at {}", damage.at.counter),
            };
            rows.push(vec![
                report.domain.to_string(),
                stream.stream.stream.to_string(),
                stream.verified.to_string(),
                stream.witnessed.to_string(),
                stream.erased.to_string(),
                verdict,
            ]);
        }
    }
    out.table(&["log", "stream", "verified", "witnessed up to", "erased", "verdict"], &rows)?;
    for (report, stream) in status.reports.iter().flat_map(|report| report.streams.iter().map(move |stream| (report, stream))) {
        if stream.verified > 0 {
            let dot = domain::causality::Dot { stream: stream.stream, counter: stream.verified };
            let head = out.dim(&format!("head {}", Anchor { domain: report.domain, dot, chain: stream.chain }));
            out.line(&head)?;
        }
    }
    let verdict = match first_error(status).map(|error| error.code) {
        None => out.good("every entry is as it was written"),
        Some(ErrorCode::HeadMismatch) => out.bad("every entry is as it was written, but the expected head is not among them"),
        Some(code) if code.exit_code() == exit::DAMAGED => out.bad("the log is damaged"),
        Some(_) => out.bad("the log could not be read"),
    };
    out.line(&verdict)
}

fn status_document(status: &LogStatus) -> Value {
    let stream = |domain: Domain, stream: &StreamReport| {
        let dot = domain::causality::Dot { stream: stream.stream, counter: stream.verified };
        json!({
            "domain": domain.as_str(), "host": stream.stream.host, "stream": stream.stream.stream.as_str(), "verified": stream.verified,
            "witnessed": stream.witnessed, "erased": stream.erased,
            "head": (stream.verified > 0).then(|| Anchor { domain, dot, chain: stream.chain }.to_string()),
            "damage": stream.damage.as_ref().map(|damage| json!({ "counter": damage.at.counter, "what": damage.what })),
        })
    };
    let streams: Vec<_> =
        status.reports.iter().flat_map(|report| report.streams.iter().map(|found| stream(report.domain, found))).collect();
    let unreadable: Vec<_> = status
        .unreadable
        .iter()
        .map(|(domain, error)| json!({ "domain": domain.as_str(), "code": error.code.as_str(), "message": error.message }))
        .collect();
    json!({ "sound": status.is_sound(), "streams": streams, "unreadable": unreadable, "anchor_mismatch": status.anchor_mismatch })
}

fn rebuilt(outcomes: &[RebuildOutcome], out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let domains: Vec<_> = outcomes
            .iter()
            .map(|RebuildOutcome { domain, report }| {
                json!({
                    "domain": domain.as_str(), "entries": report.entries, "rows": report.rows, "kept_rows": report.kept_rows,
                    "differing_rows": report.differing_rows, "differing_aggregates": report.differing_aggregates, "differences": report.differences,
                })
            })
            .collect();
        return out.document("verger.log-rebuild.v1", json!({ "domains": domains }));
    }
    let row = |outcome: &RebuildOutcome| {
        let report = &outcome.report;
        vec![
            outcome.domain.to_string(),
            report.entries.to_string(),
            report.rows.to_string(),
            (report.differing_rows + report.differing_aggregates).to_string(),
        ]
    };
    let rows: Vec<_> = outcomes.iter().map(row).collect();
    out.table(&["log", "entries replayed", "rows", "differed"], &rows)?;
    for difference in outcomes.iter().flat_map(|outcome| &outcome.report.differences) {
        out.line(&format!("  {}", plain(difference)))?;
    }
    Ok(())
}

fn cursors(states: &[CursorState], out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let states: Vec<_> = states
            .iter()
            .map(|state| {
                json!({
                    "consumer": state.cursor.consumer, "kept_in": state.domain.as_str(), "reads": state.cursor.source.as_str(),
                    "behind": state.behind, "updated_at": state.cursor.updated_at, "history": state.cursor.history,
                    "stopped": state.stopped.as_ref().map(|error| json!({ "code": error.code.as_str(), "message": error.message })),
                })
            })
            .collect();
        return out.document("verger.log-cursors.v1", json!({ "cursors": states }));
    }
    if states.is_empty() {
        return out.line("nothing consumes the log yet");
    }
    let at = |at: Timestamp| at.as_title();
    let row = |state: &CursorState| {
        let verdict = state.stopped.as_ref().map_or_else(|| "ok".to_owned(), |error| error.code.to_string());
        let cursor = &state.cursor;
        vec![plain(&cursor.consumer), cursor.source.to_string(), state.behind.to_string(), at(cursor.updated_at), verdict]
    };
    let rows: Vec<_> = states.iter().map(row).collect();
    out.table(&["consumer", "reads", "behind", "moved (UTC)", "state"], &rows)
}

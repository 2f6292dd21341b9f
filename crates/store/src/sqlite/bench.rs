//! Measuring the store against a hand-written baseline of the same shape, in one run on one file system.
//!
//! The baseline writes the same rows into the same tables and indexes with prepared statements, without chain, queue, guards or outcome
//! look-up; with N committers it puts N commits into each transaction, which is what an ideal queue would do. Both sides take turns in
//! short slices, so that a noisy machine disturbs both alike; a figure is the median of the slices, a ratio the median of the
//! pairs' ratios.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::causality::Domain;
use domain::commit::{Cause, Change, Commit, Expected, Write};
use domain::entry::Actor;
use domain::id::{AgentId, HostId, MessageId, OperationId, PersonId, WorkspaceId};
use domain::key::RunKey;
use domain::record::Record;
use domain::records::message::{AgentMessageKind, Message};
use domain::records::note::Note;
use domain::records::slug::Slug;
use domain::records::wrappers::AgentMessageMetadata;
use domain::time::Timestamp;
use rusqlite::params;
use serde::Serialize;

use crate::actor::{self, Writer};
use crate::env::Env;
use crate::sqlite::connect::{self, Access};
use crate::sqlite::{Location, SqliteStore};
use crate::store::Store;
use crate::{Error, Result};

/// How much to measure.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub slices: usize,
    pub slice: Duration,
    /// Messages in the long thread.
    pub messages: u64,
    /// Samples at each end of the long thread.
    pub appends: usize,
    /// Notes written to measure space.
    pub notes: u64,
}

impl Size {
    pub const FULL: Self =
        Self { slices: 7, slice: Duration::from_millis(1_000), messages: 1_000_000, appends: 1_500, notes: 20_000 };
    pub const QUICK: Self = Self { slices: 3, slice: Duration::from_millis(150), messages: 5_000, appends: 100, notes: 1_000 };
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub body_bytes: usize,
    pub commits: Vec<CommitFigure>,
    pub one_row_inserts_per_second: f64,
    pub fsync_p50_ms: f64,
    pub append: AppendFigure,
    pub space: Vec<SpaceFigure>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CommitFigure {
    pub committers: usize,
    pub baseline_per_second: f64,
    pub verger_per_second: f64,
    /// Verger's commits per second over the baseline's.
    pub ratio: f64,
    pub verger_cpu_us_per_commit: f64,
    pub baseline_cpu_us_per_commit: f64,
    /// Commits in one transaction, on average.
    pub verger_group: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct AppendFigure {
    pub short_thread: u64,
    pub long_thread: u64,
    pub short_p50_us: f64,
    pub long_p50_us: f64,
    /// Median append to the long thread over median append to the short one.
    pub ratio: f64,
    pub cpu_ratio: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct SpaceFigure {
    pub kind: &'static str,
    pub records: u64,
    pub body_bytes: usize,
    /// Bytes of the database file after a checkpoint per byte of body.
    pub bytes_per_body_byte: f64,
}

/// LIMIT: the body that the aims are set for.
const BODY_BYTES: usize = 400;
const LARGE_BODY_BYTES: usize = 4_096;

/// Runs everything in an empty folder; `long` is the agent database that gets the long thread and stays for a look at opening it.
pub fn run(folder: &Path, long: &Location, size: Size, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let env = Env::system();
    let mut commits = Vec::new();
    for committers in [1, 16, 64] {
        progress(&format!("commits with {committers} committers"));
        commits.push(compare_commits(folder, &env, size, committers)?);
    }
    progress("bare inserts and fsync");
    let one_row_inserts_per_second = one_row_inserts(folder, size)?;
    let fsync_p50_ms = fsync_p50(folder)?;
    let append = compare_appends(folder, long, &env, size, progress)?;
    let mut space = vec![SpaceFigure {
        kind: "message",
        records: append.long_thread,
        body_bytes: BODY_BYTES,
        bytes_per_body_byte: bytes_per_body_byte(long, append.long_thread, BODY_BYTES)?,
    }];
    for (kind, body_bytes, records) in [
        ("note", BODY_BYTES, size.notes),
        ("note", LARGE_BODY_BYTES, size.notes / 4),
        ("message", LARGE_BODY_BYTES, size.notes / 4),
    ] {
        progress(&format!("space of {kind}s of {body_bytes} bytes"));
        space.push(measure_space(folder, &env, kind, body_bytes, records)?);
    }
    Ok(Report { body_bytes: BODY_BYTES, commits, one_row_inserts_per_second, fsync_p50_ms, append, space })
}

fn compare_commits(folder: &Path, env: &Env, size: Size, committers: usize) -> Result<CommitFigure> {
    let location = named(folder, Domain::Journal, &format!("verger-{committers}"));
    let baseline = Baseline::create(&named(folder, Domain::Journal, &format!("baseline-{committers}")), env)?;
    let (writer, running) =
        actor::start(Box::new(Counting::new(SqliteStore::create(&location, HostId::from_raw(env.id()), env)?)))?;
    let mut baseline_rates = Vec::new();
    let mut verger_rates = Vec::new();
    let mut baseline_cpu = Vec::new();
    let mut verger_cpu = Vec::new();
    let made = AtomicU64::new(0);
    let groups = GROUPS.load(Ordering::Relaxed);
    let mut grouped = 0;
    for _ in 0..size.slices {
        let (count, elapsed, cpu) = timed(size.slice, |running| baseline.slice(committers, running, &made))?;
        baseline_rates.push(count as f64 / elapsed);
        baseline_cpu.push(cpu / count as f64);
        let (count, elapsed, cpu) = timed(size.slice, |running| verger_slice(&writer, env, committers, running, &made))?;
        verger_rates.push(count as f64 / elapsed);
        verger_cpu.push(cpu / count as f64);
        grouped += count;
    }
    let groups = GROUPS.load(Ordering::Relaxed) - groups;
    drop(writer);
    running.join();
    let ratios = verger_rates.iter().zip(&baseline_rates).map(|(verger, baseline)| verger / baseline).collect();
    Ok(CommitFigure {
        committers,
        baseline_per_second: median(baseline_rates),
        verger_per_second: median(verger_rates),
        ratio: median(ratios),
        verger_cpu_us_per_commit: median(verger_cpu) * 1e6,
        baseline_cpu_us_per_commit: median(baseline_cpu) * 1e6,
        verger_group: grouped as f64 / groups.max(1) as f64,
    })
}

static GROUPS: AtomicU64 = AtomicU64::new(0);

/// A store that counts its transactions.
struct Counting(SqliteStore);

impl Counting {
    fn new(store: SqliteStore) -> Self {
        Self(store)
    }
}

impl Store for Counting {
    fn domain(&self) -> Domain {
        self.0.domain()
    }
    fn host(&self) -> HostId {
        self.0.host()
    }
    fn reader(&self) -> std::sync::Arc<dyn crate::store::Reader> {
        self.0.reader()
    }
    fn try_group(
        &mut self,
        group: &[Commit],
    ) -> std::result::Result<Vec<Result<domain::commit::Committed>>, crate::store::GroupFailure> {
        GROUPS.fetch_add(1, Ordering::Relaxed);
        self.0.try_group(group)
    }
    fn reopen(&mut self) -> Result<()> {
        self.0.reopen()
    }
    fn lookup(&mut self, commit: &Commit) -> Result<Option<domain::commit::Committed>> {
        self.0.lookup(commit)
    }
    fn witness(&mut self, witnesses: &[domain::entry::Witness]) -> Result<()> {
        self.0.witness(witnesses)
    }
    fn failing(&mut self) -> &mut Option<String> {
        self.0.failing()
    }
    fn maintenance(&self) -> Option<Box<dyn crate::store::Maintenance>> {
        self.0.maintenance()
    }
}

fn verger_slice(writer: &Writer, env: &Env, committers: usize, running: &AtomicBool, made: &AtomicU64) -> Result<u64> {
    let counts: Vec<Result<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..committers)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while running.load(Ordering::Relaxed) {
                        let number = made.fetch_add(1, Ordering::Relaxed);
                        writer.commit(note_commit(number, BODY_BYTES, env.clock.now())?)?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a committer does not panic")).collect()
    });
    counts.into_iter().sum()
}

/// Runs `work` for about `slice`: what it counted, the seconds it took, and the CPU seconds of the process.
fn timed(slice: Duration, work: impl FnOnce(&AtomicBool) -> Result<u64>) -> Result<(u64, f64, f64)> {
    let running = AtomicBool::new(true);
    let started = Instant::now();
    let cpu = cpu_seconds();
    let count = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(slice);
            running.store(false, Ordering::Relaxed);
        });
        work(&running)
    })?;
    Ok((count.max(1), started.elapsed().as_secs_f64(), cpu_seconds() - cpu))
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The same rows by hand.
struct Baseline {
    connection: rusqlite::Connection,
    location: Location,
}

impl Baseline {
    fn create(location: &Location, env: &Env) -> Result<Self> {
        drop(SqliteStore::create(location, HostId::from_raw(env.id()), env)?);
        let connection = connect::open(location, Access::Write)?;
        connection.pragma_update(None, "wal_autocheckpoint", 1_000).map_err(|error| connect::failure(location.domain, &error))?;
        Ok(Self { connection, location: location.clone() })
    }

    fn slice(&self, per_transaction: usize, running: &AtomicBool, made: &AtomicU64) -> Result<u64> {
        let mut count = 0;
        while running.load(Ordering::Relaxed) {
            self.transaction(per_transaction, made).map_err(|error| connect::failure(self.location.domain, &error))?;
            count += per_transaction as u64;
        }
        Ok(count)
    }

    fn transaction(&self, commits: usize, made: &AtomicU64) -> rusqlite::Result<()> {
        let connection = &self.connection;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut last = 0;
        for _ in 0..commits {
            let number = made.fetch_add(1, Ordering::Relaxed);
            let position = (1 << 40) + i64::try_from(number).unwrap_or(0);
            last = number;
            let id = domain::hash::plain(&number.to_le_bytes());
            let (id, hash) = (&id.as_bytes()[..16], id.as_bytes());
            let now = 1_800_000_000_000 + i64::try_from(number).unwrap_or(0);
            let note = note(number, BODY_BYTES, Timestamp::from_ms(now));
            let body = serde_json::to_string(&note).expect("a note is JSON");
            connection
                .prepare_cached(
                    "INSERT INTO log VALUES (?1,0,0,'note',1,?2,?3,'put',1,NULL,'*',NULL,?4,?3,NULL,NULL,0,?5,?6,?6,NULL)",
                )?
                .execute(params![position, &hash[..16], id, &hash[..17], now, hash])?;
            connection.prepare_cached("INSERT INTO bodies VALUES (?1,?2,?3,?4)")?.execute(params![
                position,
                &hash[..16],
                hash,
                body
            ])?;
            connection
                .prepare_cached(
                    "INSERT INTO notes(id,version,workspace,deleted,pos,state,body,updated_at) VALUES (?1,1,?2,0,?3,NULL,?4,?5)",
                )?
                .execute(params![id, WorkspaceId::of_slug("home").raw().as_bytes(), position, body, now])?;
            let row = connection.last_insert_rowid();
            connection
                .prepare_cached("INSERT INTO notes_text(rowid,title,text) VALUES (?1,?2,?3)")?
                .execute(params![row, note.title, note.text])?;
            connection
                .prepare_cached(
                    "INSERT INTO aggregates VALUES ('note','per_workspace','[]',1) ON CONFLICT DO UPDATE SET value = value + 1",
                )?
                .execute([])?;
        }
        connection
            .prepare_cached("UPDATE log_head SET counter = ?1 WHERE stream = 1")?
            .execute([i64::try_from(last).unwrap_or(0)])?;
        connection.execute_batch("COMMIT")
    }
}

fn one_row_inserts(folder: &Path, size: Size) -> Result<f64> {
    let location = named(folder, Domain::Ledger, "bare");
    let connection = connect::create(&location)?;
    let failed = |error: rusqlite::Error| connect::failure(location.domain, &error);
    connection.execute_batch("CREATE TABLE bare(n INTEGER PRIMARY KEY, text TEXT)").map_err(failed)?;
    let mut rates = Vec::new();
    for _ in 0..size.slices {
        let (count, elapsed, _) = timed(size.slice, |running| {
            let mut count = 0;
            while running.load(Ordering::Relaxed) {
                let mut statement = connection.prepare_cached("INSERT INTO bare(text) VALUES ('one row')").map_err(failed)?;
                statement.execute([]).map_err(failed)?;
                count += 1;
            }
            Ok(count)
        })?;
        rates.push(count as f64 / elapsed);
    }
    Ok(median(rates))
}

fn fsync_p50(folder: &Path) -> Result<f64> {
    use std::io::Write as _;
    let failed = |error: std::io::Error| Error::Storage { domain: Domain::Ledger, message: error.to_string() };
    let mut file = std::fs::File::create(folder.join("fsync")).map_err(failed)?;
    let mut samples = Vec::new();
    for _ in 0..200 {
        file.write_all(&[7; 4_096]).map_err(failed)?;
        let started = Instant::now();
        file.sync_data().map_err(failed)?;
        samples.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(samples))
}

fn compare_appends(folder: &Path, long: &Location, env: &Env, size: Size, progress: &mut dyn FnMut(&str)) -> Result<AppendFigure> {
    const SHORT: u64 = 1_000;
    let mut long_store = SqliteStore::open(long, env)?;
    let mut short_store = SqliteStore::create(&named(folder, Domain::Agent, "short-thread"), HostId::from_raw(env.id()), env)?;
    fill(&mut short_store, "message", 0, SHORT, BODY_BYTES, &mut |_| {})?;
    fill(&mut long_store, "message", 0, size.messages, BODY_BYTES, &mut |done| progress(&format!("a thread of {done} messages")))?;
    let mut samples = [Vec::new(), Vec::new()];
    let mut cpus = [0.0, 0.0];
    for sample in 0..size.appends as u64 {
        for (side, store, base) in [(0, &mut short_store, SHORT), (1, &mut long_store, size.messages)] {
            let commit = message_commit(base + sample, BODY_BYTES, env.clock.now())?;
            let (started, cpu) = (Instant::now(), cpu_seconds());
            store.apply_group(std::slice::from_ref(&commit)).remove(0)?;
            samples[side].push(started.elapsed().as_secs_f64() * 1e6);
            cpus[side] += cpu_seconds() - cpu;
        }
        // Both checkpoint at the same moments, outside the samples.
        if sample % 200 == 0 {
            short_store.checkpointer()?.truncate()?;
            long_store.checkpointer()?.truncate()?;
        }
    }
    long_store.checkpointer()?.truncate()?;
    let [short, long] = samples;
    let (short_p50_us, long_p50_us) = (median(short), median(long));
    Ok(AppendFigure {
        short_thread: SHORT,
        long_thread: size.messages + size.appends as u64,
        short_p50_us,
        long_p50_us,
        ratio: long_p50_us / short_p50_us,
        cpu_ratio: cpus[1] / cpus[0],
    })
}

fn measure_space(folder: &Path, env: &Env, kind: &'static str, body_bytes: usize, records: u64) -> Result<SpaceFigure> {
    let domain = if kind == "note" { Domain::Journal } else { Domain::Agent };
    let location = named(folder, domain, &format!("space-{kind}-{body_bytes}"));
    let mut store = SqliteStore::create(&location, HostId::from_raw(env.id()), env)?;
    fill(&mut store, kind, 0, records, body_bytes, &mut |_| {})?;
    store.checkpointer()?.truncate()?;
    let bytes_per_body_byte = bytes_per_body_byte(&location, records, body_bytes)?;
    Ok(SpaceFigure { kind, records, body_bytes, bytes_per_body_byte })
}

fn bytes_per_body_byte(location: &Location, records: u64, body_bytes: usize) -> Result<f64> {
    let metadata = std::fs::metadata(&location.path);
    let file = metadata.map_err(|error| Error::Storage { domain: location.domain, message: error.to_string() })?.len();
    Ok(file as f64 / (records as f64 * body_bytes as f64))
}

/// Commits records one by one, many to a transaction.
fn fill(
    store: &mut SqliteStore,
    kind: &str,
    from: u64,
    count: u64,
    body_bytes: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    const GROUP: u64 = 250;
    let mut number = from;
    let mut checkpointer = store.checkpointer()?;
    while number < from + count {
        let upto = (number + GROUP).min(from + count);
        let commit = |number| match kind {
            "note" => note_commit(number, body_bytes, Timestamp::from_ms(1_800_000_000_000 + number.cast_signed())),
            _ => message_commit(number, body_bytes, Timestamp::from_ms(1_800_000_000_000 + number.cast_signed())),
        };
        let group = (number..upto).map(commit).collect::<Result<Vec<_>>>()?;
        for result in store.apply_group(&group) {
            result?;
        }
        number = upto;
        if (number - from).is_multiple_of(GROUP * 40) {
            checkpointer.truncate()?;
            progress(number);
        }
    }
    Ok(())
}

fn note_commit(number: u64, body_bytes: usize, at: Timestamp) -> Result<Commit> {
    let operation_id = OperationId::of_client(&Actor::Person(PersonId::owner()), &number.to_string());
    let note = note(number, body_bytes, at);
    let workspace = WorkspaceId::of_slug("home");
    let body = note.to_body().map_err(|error| Error::InvalidCommit(error.to_string()))?;
    let id = operation_id.created(Note::SPEC.kind, 0);
    let write = Write { spec: Note::SPEC, id, workspace, expected: Expected::Absent, change: Change::Put(body) };
    Ok(commit(operation_id, Actor::Person(PersonId::owner()), Cause::default(), write))
}

fn message_commit(number: u64, body_bytes: usize, at: Timestamp) -> Result<Commit> {
    let agent = AgentId::from_raw(domain::key::keyed("agent", "", "bench"));
    let run_key = RunKey::manual(&agent, "bench");
    let operation_id = OperationId::of_client(&Actor::Agent(agent), &number.to_string());
    let previous = OperationId::of_client(&Actor::Agent(agent), &number.wrapping_sub(1).to_string());
    let id = |operation: &OperationId| MessageId::from_raw(operation.created(Message::SPEC.kind, 0));
    let mut message = Message {
        agent_id: agent,
        thread_id: format!("{agent}:session:bench"),
        kind: AgentMessageKind::Observation,
        created_at: at,
        prev_message_id: Some(id(&previous)),
        content_entry_id: None,
        trigger_source_id: Some(String::new()),
        summary_start_message_id: None,
        summary_end_message_id: None,
        summary_depth: 0,
        tokens_approx: 0,
        metadata: AgentMessageMetadata::default(),
    };
    let bare = message.to_body().map_err(|error| Error::InvalidCommit(error.to_string()))?.text().len();
    message.trigger_source_id = Some(words(number, body_bytes.saturating_sub(bare)));
    let body = message.to_body().map_err(|error| Error::InvalidCommit(error.to_string()))?;
    let workspace = WorkspaceId::of_slug("home");
    let write = Write {
        spec: Message::SPEC,
        id: id(&operation_id).raw(),
        workspace,
        expected: Expected::Absent,
        change: Change::Put(body),
    };
    let cause = Cause { run_key: Some(run_key), source_event: None, depth: 1 };
    Ok(commit(operation_id, Actor::Agent(agent), cause, write))
}

fn commit(operation_id: OperationId, actor: Actor, cause: Cause, write: Write) -> Commit {
    let request = write.change.body().map(|body| body.text().to_owned()).unwrap_or_default();
    Commit { operation_id, request, actor, cause, guards: Vec::new(), writes: vec![write], witnesses: Vec::new() }
}

/// A note whose canonical body has the wanted length.
fn note(number: u64, body_bytes: usize, at: Timestamp) -> Note {
    let mut note = Note {
        title: words(number, 30),
        text: String::new(),
        kind: Slug::parse("note").expect("a plain word is a slug"),
        category: None,
        labels: std::collections::BTreeSet::new(),
        created_at: at,
        updated_at: at,
    };
    // LIMIT: what a note's body has around title and text.
    const FRAME: usize = 120;
    note.text = words(number.wrapping_mul(31) + 7, body_bytes.saturating_sub(FRAME + 30));
    note
}

/// Text of an exact length: words from a few thousand, common ones often, as in people's notes.
fn words(seed: u64, bytes: usize) -> String {
    const SYLLABLES: [&str; 16] = ["ba", "ke", "lo", "mi", "nu", "ra", "si", "to", "va", "we", "da", "fe", "go", "hi", "ju", "pa"];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // A product of two draws makes small numbers, and so short words, common.
        let mut word = (state % 64) * ((state >> 20) % 64);
        loop {
            text.push_str(SYLLABLES[(word % 16) as usize]);
            word /= 16;
            if word == 0 {
                break;
            }
        }
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

fn named(folder: &Path, domain: Domain, name: &str) -> Location {
    Location { path: folder.join(format!("{name}.sqlite")), ..Location::in_folder(folder, domain) }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

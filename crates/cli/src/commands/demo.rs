//! `verger demo`: a short story of what is kept safe, told by doing it in a scratch home.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use domain::records::prompt::Verdict;
use runtime::{
    ClientKey, Env, Error, Handle, Home, LogStatus, NoteChange, NoteDraft, Replayed, RunView, Watched, parse_manifest, rebuild,
};
use serde_json::{Value, json};

use crate::io_error;
use crate::output::{Failure, Out, note};

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Leave the scratch home in place for a look around
    #[arg(long)]
    keep: bool,
}

/// A folder that goes away with its owner.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    pub(crate) fn make(parent: Option<&Path>, env: &Env) -> Result<Self, Failure> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("verger-{}", ClientKey::fresh(env).as_str()));
        std::fs::create_dir(&path).map_err(|error| io_error(&format!("making {}", path.display()), &error))?;
        Ok(Self { path, keep: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // Left-overs in a temporary folder are the system's to clear away.
            std::fs::remove_dir_all(&self.path).ok();
        }
    }
}

/// LIMIT: enough that the kill comes in the middle, few enough for a short story.
const LINES: usize = 400;
const KILLED_AFTER: usize = 120;

pub(crate) fn run(args: &DemoArgs, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let mut scratch = Scratch::make(None, env)?;
    scratch.keep = args.keep;
    let home = Home::locate(Some(&scratch.path().join("home")))?;
    let mut story = Story { out, told: Vec::new() };
    write_some(&home, env, &mut story)?;
    run_an_agent(&home, env, &mut story)?;
    let answered = kill_in_the_middle(&home, &mut story)?;
    send_again(&home, env, &answered, &mut story)?;
    check(&home, env, &mut story)?;
    damage_a_copy(&scratch, &home, env, &mut story)?;
    rebuild_tables(&home, env, &mut story)?;
    let told = story.told;
    if out.json {
        return out
            .document("verger.demo.v1", json!({ "steps": told, "home": args.keep.then(|| home.folder().to_string_lossy()) }));
    }
    let end = if args.keep {
        format!("the scratch home stays in {}", home.folder().display())
    } else {
        "the scratch home is gone again".to_owned()
    };
    let end = out.dim(&format!("\n{end}; make your own with `verger init`"));
    out.line(&end)
}

/// Tells each step as it happens.
struct Story<'a> {
    out: &'a mut Out,
    told: Vec<Value>,
}

impl Story<'_> {
    fn heading(&mut self, text: &str) -> Result<(), Failure> {
        self.told.push(json!({ "step": text, "facts": [] }));
        if self.out.json {
            return Ok(());
        }
        let number = self.told.len();
        let heading = self.out.bold(&format!("\n{number}. {text}"));
        self.out.line(&heading)
    }

    fn fact(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(Value::Array(facts)) = self.told.last_mut().and_then(|step| step.get_mut("facts")) {
            facts.push(json!(text));
        }
        if self.out.json { Ok(()) } else { self.out.line(&format!("   {text}")) }
    }
}

fn write_some(home: &Home, env: &Env, story: &mut Story<'_>) -> Result<(), Failure> {
    story.heading("A home, a note, and two people who edit it at once")?;
    Handle::init(home, env)?;
    let handle = Handle::open(home, env)?.handle;
    let draft = NoteDraft {
        title: Some("Seeds to order".into()),
        text: "beans, peas".into(),
        workspace: "home".into(),
        ..NoteDraft::default()
    };
    let key = ClientKey::fresh(env);
    let added = handle.add_note(&draft, &key)?;
    story.fact(&format!("added {} at version {}", added.id, added.version))?;
    let again = handle.add_note(&draft, &key)?;
    story.fact(&format!(
        "the same request again: still {}, nothing written twice",
        if again.repeated { "one note" } else { "ERROR" }
    ))?;
    let edit = |text: &str| NoteChange { text: Some(text.into()), version: Some(1), ..NoteChange::default() };
    let changed = handle.edit_note(added.id, &edit("beans, peas, leeks"), &ClientKey::fresh(env))?;
    story.fact(&format!("the first editor saves: version {}", changed.version))?;
    match handle.edit_note(added.id, &edit("only beans"), &ClientKey::fresh(env)) {
        Err(error) => story.fact(&format!("the second is refused: {}: {error}", error.code))?,
        Ok(_) => return Err(unexpected("the second editor overwrote the first")),
    }
    handle.close()?;
    Ok(())
}

/// The example manifest: an agent that makes tasks and wants to keep a plan.
const PLANNER: &str = include_str!("../../../../examples/agents/planner.yaml");

fn run_an_agent(home: &Home, env: &Env, story: &mut Story<'_>) -> Result<(), Failure> {
    story.heading("An agent proposes, the controller decides")?;
    let manifest = parse_manifest(PLANNER, "examples/agents/planner.yaml")?;
    let handle = Handle::open(home, env)?.handle;
    let mut quiet = |_: &Watched| {};
    let started = handle.worker(&mut quiet)?.start(&manifest, &ClientKey::parse("demo")?)?;
    tell_cycles(&handle, &started, 0, story)?;
    let Some(ask) = started.asks.first() else { return Err(unexpected("the agent asked for nothing")) };
    story.fact(&format!("nothing is kept without a person's word: the run waits for {}", ask.id))?;
    handle.house().answer(ask.id, Verdict::Approve, "", &ClientKey::fresh(env))?;
    let ended = handle.worker(&mut quiet)?.resume(&started.id)?;
    story.fact("a person approves exactly that, and the run goes on")?;
    tell_cycles(&handle, &ended, started.cycles, story)?;
    let again = handle.worker(&mut quiet)?.start(&manifest, &ClientKey::parse("demo")?)?;
    let same = again.id == ended.id && again.operations == ended.operations;
    story.fact(&format!("started again under the same key: {}", if same { "still that one run" } else { "ERROR" }))?;
    match handle.house().replay(&ended.id)? {
        Replayed::Identical { steps, cycles, .. } => {
            story.fact(&format!("replayed without asking anybody: identical ({steps} steps, {cycles} cycles)"))?;
        }
        _ => return Err(unexpected("the run does not replay")),
    }
    handle.close()?;
    if same { Ok(()) } else { Err(unexpected("the same key started a second run")) }
}

/// One line for each thing that a cycle did, with the layer that decided it.
fn tell_cycles(handle: &Handle, run: &RunView, after: u32, story: &mut Story<'_>) -> Result<(), Failure> {
    let trace = handle.house().trace(&run.id)?;
    for cycle in trace.cycles.iter().filter(|cycle| cycle.number > after) {
        for action in &cycle.actions {
            let layer = action.decision.layer.map_or_else(String::new, |layer| format!("layer `{layer}`: "));
            let rule = &action.decision.rule;
            story.fact(&format!("cycle {}: {} is {} ({layer}{rule})", cycle.number, action.tool, action.outcome))?;
        }
    }
    story.fact(&format!("after {} cycles and {} tokens the run is {}", run.cycles, run.tokens, run.status))
}

/// Starts this program again as a child that adds notes line by line, and kills it without warning.
fn kill_in_the_middle(home: &Home, story: &mut Story<'_>) -> Result<Vec<String>, Failure> {
    story.heading("kill -9 in the middle of the work")?;
    let mut child = writer(home)?;
    let mut input = child.stdin.take().ok_or_else(|| unexpected("the child has no stdin"))?;
    let output = child.stdout.take().ok_or_else(|| unexpected("the child has no stdout"))?;
    let feeder = std::thread::spawn(move || {
        for number in 0..LINES {
            // The child is killed while lines are on their way: a broken pipe is part of the story.
            if writeln!(input, "{}", line(number)).is_err() {
                break;
            }
        }
        input
    });
    let mut answered = Vec::new();
    for answer in BufReader::new(output).lines() {
        let Ok(answer) = answer else { break };
        answered.extend(operation_of(&answer));
        if answered.len() == KILLED_AFTER {
            child.kill().map_err(|error| io_error("killing the child", &error))?;
        }
    }
    child.wait().map_err(|error| io_error("waiting for the child", &error))?;
    drop(feeder.join());
    story.fact(&format!(
        "process {} was adding {LINES} notes with 8 writers; killed after {} answers",
        child.id(),
        answered.len()
    ))?;
    Ok(answered)
}

fn send_again(home: &Home, env: &Env, answered: &[String], story: &mut Story<'_>) -> Result<(), Failure> {
    story.heading("Start again and send what was not answered")?;
    let handle = Handle::open(home, env)?.handle;
    let mut missing = 0;
    for operation in answered {
        let number = operation.trim_start_matches("demo-").parse().unwrap_or(LINES);
        if !handle.add_note(&draft(number), &ClientKey::parse(operation)?)?.repeated {
            missing += 1;
        }
    }
    story.fact(&format!("answered before the kill: {}, lost: {missing}", answered.len()))?;
    let mut kept = 0;
    for number in (0..LINES).filter(|number| !answered.contains(&format!("demo-{number}"))) {
        if handle.add_note(&draft(number), &ClientKey::parse(&format!("demo-{number}"))?)?.repeated {
            kept += 1;
        }
    }
    let total = handle.view().notes("home", 1, None)?.total;
    story.fact(&format!("sent again: {}, of which {kept} had been durable without an answer", LINES - answered.len()))?;
    story.fact(&format!(
        "notes now: {total} = {LINES} + the one from before; doubled: {}",
        total.saturating_sub(LINES as u64 + 1)
    ))?;
    handle.close()?;
    if missing > 0 || total != LINES as u64 + 1 {
        return Err(unexpected("notes were lost or doubled"));
    }
    Ok(())
}

fn check(home: &Home, env: &Env, story: &mut Story<'_>) -> Result<(), Failure> {
    story.heading("Check every entry of the log")?;
    let status = LogStatus::check(home, env, None, &mut |_| {})?;
    for report in &status.reports {
        for stream in report.streams.iter().filter(|stream| stream.verified > 0) {
            let (verified, witnessed) = (stream.verified, stream.witnessed);
            story.fact(&format!(
                "{} {}: {verified} entries sound, {witnessed} of them vouched for by another file",
                report.domain, stream.stream.stream
            ))?;
        }
    }
    if status.is_sound() { Ok(()) } else { Err(unexpected("the log is not sound")) }
}

/// Changes one letter of one stored note in a copy, the way a bad disk or a curious hand would.
fn damage_a_copy(scratch: &Scratch, home: &Home, env: &Env, story: &mut Story<'_>) -> Result<(), Failure> {
    story.heading("Change one letter in a copy")?;
    let copy = scratch.path().join("copy");
    let failed = |error: std::io::Error| io_error("copying the home", &error);
    for folder in ["store", "run", "data"] {
        runtime::copy_folder(&home.folder().join(folder), &copy.join(folder)).map_err(failed)?;
    }
    let journal = copy.join("store").join("journal.sqlite");
    let mut bytes = std::fs::read(&journal).map_err(failed)?;
    let needle = b"beans, peas, leeks";
    let places: Vec<usize> =
        bytes.windows(needle.len()).enumerate().filter(|(_, window)| window == needle).map(|(at, _)| at).collect();
    places.iter().for_each(|at| bytes[*at] = b'B');
    std::fs::write(&journal, bytes).map_err(failed)?;
    let status = LogStatus::check(&Home::locate(Some(&copy))?, env, None, &mut |_| {})?;
    match status.first_damage() {
        Some((domain, damage)) => story.fact(&format!("found: {domain} entry {}: {}", damage.at.counter, damage.what)),
        None => Err(unexpected("the change was not found")),
    }
}

fn rebuild_tables(home: &Home, env: &Env, story: &mut Story<'_>) -> Result<(), Failure> {
    story.heading("Build the tables anew from the log")?;
    for outcome in rebuild(home, env, &mut |_, _| {})?.iter().filter(|outcome| outcome.report.entries > 0) {
        let report = &outcome.report;
        story.fact(&format!(
            "{}: {} entries replayed, {} rows, {} differed",
            outcome.domain, report.entries, report.rows, report.differing_rows
        ))?;
    }
    Ok(())
}

fn writer(home: &Home) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(|error| io_error("finding this program", &error))?;
    let mut command = Command::new(program);
    command.arg("--home").arg(home.folder()).args(["note", "add", "--stdin", "--writers", "8"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|error| io_error("starting a child", &error))
}

fn draft(number: usize) -> NoteDraft {
    NoteDraft { title: Some(format!("Row {number}")), text: "sown".into(), workspace: "home".into(), ..NoteDraft::default() }
}

fn line(number: usize) -> Value {
    json!({ "operation_id": format!("demo-{number}"), "title": format!("Row {number}"), "text": "sown" })
}

fn operation_of(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    if answer["ok"] != json!(true) {
        note(&format!("unexpected answer: {answer}"));
        return None;
    }
    answer["operation_id"].as_str().map(str::to_owned)
}

fn unexpected(what: &str) -> Failure {
    Failure::Error(Error::new(domain::code::ErrorCode::Internal, format!("the demonstration failed: {what}")))
}

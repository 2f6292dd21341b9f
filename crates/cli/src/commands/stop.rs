//! `verger stop`: the kill switches. They hold until a person releases them.

use clap::Args;
use domain::causality::Domain;
use domain::code::exit;
use domain::records::slug::Slug;
use domain::records::switch::{Switch, SwitchSubject};
use runtime::{Env, Error, Home, House, Stopped, View};
use serde_json::{Value, json};

use crate::commands::acting::{act, again, name};
use crate::commands::note::{Operation, Place};
use crate::commands::task_view::named;
use crate::output::{Failure, Out, error_document, note, shortened};

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Stop one agent, by name or id
    #[arg(long, value_name = "AGENT", conflicts_with = "tools")]
    agent: Option<String>,
    /// Stop all tools of a class, such as `task` or `artifact`
    #[arg(long, value_name = "CLASS")]
    tools: Option<String>,
    /// Why; everybody who looks will see it
    #[arg(long, value_name = "TEXT", conflicts_with = "release", allow_hyphen_values = true)]
    reason: Option<String>,
    /// Let it go on again
    #[arg(long)]
    release: bool,
    /// Only show what is stopped
    #[arg(long, conflicts_with_all = ["agent", "tools", "reason", "release", "operation_id"])]
    status: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    operation: Operation,
}

pub(crate) fn run(args: &StopArgs, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    if args.status {
        let house = View::open(home, env)?.house(env);
        return status(&house.stops()?, &house, out);
    }
    if args.release {
        return release(args, home, env, out);
    }
    let reason = args.reason.clone().unwrap_or_default();
    let ((stopped, before, name), key) = act(home, env, &args.operation, |house, key| {
        let subject = subject(args, house)?;
        // Whether it was stopped before is worth a word; not to know it must not keep a stop from happening.
        let before = house.stops().unwrap_or_default().iter().any(|switch| switch.subject == subject);
        let stopped = house.stop(&subject, &reason, key)?;
        tell_unknown_class(&subject, house);
        let name = name(&stopped.subject, house);
        Ok((stopped, before, name))
    })?;
    if out.json {
        out.document("verger.stopped.v1", stop_document(&stopped, before, key.as_str()))?;
    } else {
        picture(&stopped, before, &name, args, out)?;
    }
    // This process ends now, and with it what is only in its memory.
    if stopped.only_in_memory.is_empty() { Ok(()) } else { Err(Failure::Exit(exit::STORAGE)) }
}

fn picture(stopped: &Stopped, before: bool, name: &str, args: &StopArgs, out: &mut Out) -> Result<(), Failure> {
    let subject = out.bold(name);
    let already = if before && !stopped.repeated { " (it was stopped already)" } else { again(stopped.repeated) };
    out.line(&format!("stopped {subject}{already}"))?;
    if stopped.repeated {
        return out.line("  this answers the first request; whether it still holds is in `verger stop --status`");
    }
    out.line(&format!("  durable in  {}", names(&stopped.durable)))?;
    for (domain, error) in &stopped.only_in_memory {
        let lost = out.bad(&format!("  NOT in {domain}: it holds only until this process exits, which is now; {error}"));
        out.line(&lost)?;
    }
    let hint = out.dim(&format!("  release it with `verger stop --release{}`", flags(args)));
    out.line(&hint)
}

fn release(args: &StopArgs, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let ((subject, released, left, names), key) = act(home, env, &args.operation, |house, key| {
        let subject = subject(args, house)?;
        let released = house.release(&subject, key)?;
        let left = house.stops()?;
        let others = left.iter().map(|switch| &switch.subject).filter(|other| **other != subject);
        let names = [&subject].into_iter().chain(others).map(|subject| name(subject, house)).collect::<Vec<_>>();
        Ok((subject, released, left, names))
    })?;
    if out.json {
        let left: Vec<_> = left.iter().map(switch_document).collect();
        let content = json!({ "subject": subject, "released": released, "stopped": left, "operation_id": key.as_str() });
        return out.document("verger.stop-released.v1", content);
    }
    let name = out.bold(&names[0]);
    let holds = left.iter().any(|switch| switch.subject == subject);
    out.line(&match (released, holds) {
        (true, false) => format!("released {name}; what was under way before the stop stays out, new work is decided anew"),
        (true, true) => format!("{name} was released under this operation id before, and was stopped again since: it is stopped"),
        (false, _) => format!("nothing to release: there is no stop of {name}"),
    })?;
    if names.len() == 1 { Ok(()) } else { out.line(&format!("  still stopped: {}", names[1..].join(", "))) }
}

fn status(stops: &[Switch], house: &House, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let stops: Vec<_> = stops.iter().map(switch_document).collect();
        return out.document("verger.stops.v1", json!({ "stopped": stops }));
    }
    if stops.is_empty() {
        return out.line("nothing is stopped");
    }
    let row = |switch: &Switch| {
        let subject = match &switch.subject {
            SwitchSubject::Agent(id) => format!("{} ({id})", name(&switch.subject, house)),
            SwitchSubject::Everything | SwitchSubject::Tools(_) => name(&switch.subject, house),
        };
        vec![subject, switch.changed_at.as_title(), named(house, &switch.changed_by), shortened(&switch.reason, 60)]
    };
    let rows: Vec<_> = stops.iter().map(row).collect();
    out.table(&["stopped", "since (UTC)", "by", "reason"], &rows)
}

fn subject(args: &StopArgs, house: &House) -> runtime::Result<SwitchSubject> {
    if let Some(agent) = &args.agent {
        return house.agent_by_name(&args.place.workspace, agent).map(SwitchSubject::Agent);
    }
    let Some(class) = &args.tools else { return Ok(SwitchSubject::Everything) };
    Slug::parse(class).map(SwitchSubject::Tools).map_err(|error| Error::argument("tools", &error.to_string()))
}

/// A class that no tool has is most likely a slip of the pen, and a stop that stops nothing is worse than none.
fn tell_unknown_class(subject: &SwitchSubject, house: &mut House) {
    let SwitchSubject::Tools(class) = subject else { return };
    let Ok(known) = house.tool_classes() else { return };
    if !known.contains(class) {
        let known: Vec<_> = known.iter().map(ToString::to_string).collect();
        note(&format!("warning: no tool has the class `{class}` now; the known ones are {}", known.join(", ")));
    }
}

/// The flags that were typed, for the way back.
fn flags(args: &StopArgs) -> String {
    let place = if args.place.workspace == "home" { String::new() } else { format!(" --workspace {}", args.place.workspace) };
    match (&args.agent, &args.tools) {
        (Some(agent), _) => format!(" --agent {agent}{place}"),
        (None, Some(class)) => format!(" --tools {class}"),
        (None, None) => String::new(),
    }
}

fn names(domains: &[Domain]) -> String {
    if domains.is_empty() {
        return "none".to_owned();
    }
    domains.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn stop_document(stopped: &Stopped, before: bool, key: &str) -> Value {
    let lost = stopped.only_in_memory.iter().map(|(domain, error)| json!({ "domain": domain, "error": error_document(error) }));
    json!({
        "subject": stopped.subject, "epoch": stopped.epoch, "durable": stopped.durable, "until_exit": lost.collect::<Vec<_>>(),
        "already_stopped": before, "operation_id": key, "repeated": stopped.repeated,
    })
}

fn switch_document(switch: &Switch) -> Value {
    json!({
        "subject": switch.subject, "reason": switch.reason, "changed_by": switch.changed_by, "changed_at": switch.changed_at,
        "epoch": switch.epoch,
    })
}

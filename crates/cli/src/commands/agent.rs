//! `verger agent …`: who lives here, and the person's word over them.

use clap::{Args, Subcommand};
use domain::causality::Domain;
use domain::id::AgentId;
use domain::records::agent::AgentLifecycle;
use runtime::{AgentRecord, ClientKey, Env, Error, Home, House, View};
use serde_json::{Value, json};

use crate::commands::acting::{act, again, tell_stops};
use crate::commands::note::{Operation, Place};
use crate::output::{Failure, Out, shortened};

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the agents of a workspace, oldest first
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Let an agent rest: its runs wait and ask nobody until it is resumed
    Pause(AgentArgs),
    /// Let a paused agent go on
    Resume(AgentArgs),
    /// End an agent for good; what it made stays
    Destroy {
        #[command(flatten)]
        agent: AgentArgs,
        /// Yes: nothing brings it back, and its name is not given again
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The agent, by name or id
    agent: String,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    operation: Operation,
}

pub(crate) fn run(command: &AgentCommand, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        AgentCommand::List { place } => list(place, home, env, out),
        AgentCommand::Pause(args) => change(args, home, env, out, "paused", House::pause_agent),
        AgentCommand::Resume(args) => change(args, home, env, out, "resumed", House::resume_agent),
        AgentCommand::Destroy { yes: false, .. } => {
            Err(Error::argument("agent destroy", "nothing brings a destroyed agent back; say --yes if that is meant").into())
        }
        AgentCommand::Destroy { agent, yes: true } => change(agent, home, env, out, "destroyed", destroy),
    }
}

/// What the agent has left waiting ends with it. A repeat finds what a crash has left over.
fn destroy(house: &mut House, id: AgentId, key: &ClientKey) -> runtime::Result<()> {
    house.destroy_agent(id, key)?;
    house.end_runs_of(id).map(|_| ())
}

fn change(
    args: &AgentArgs,
    home: &Home,
    env: &Env,
    out: &mut Out,
    verb: &str,
    command: impl FnOnce(&mut House, AgentId, &ClientKey) -> runtime::Result<()>,
) -> Result<(), Failure> {
    let ((agent, before, repeated), key) = act(home, env, &args.operation, |house, key| {
        let id = house.agent_by_name(&args.place.workspace, &args.agent)?;
        let repeated = house.was_done(Domain::Agent, key)?;
        let before = house.agent(id)?.lifecycle;
        command(house, id, key)?;
        Ok((house.agent(id)?, before, repeated))
    })?;
    if out.json {
        let mut content = document(&agent);
        content["operation_id"] = json!(key.as_str());
        content["repeated"] = json!(repeated);
        return out.document("verger.agent-changed.v1", content);
    }
    let name = out.bold(agent.name.as_str());
    out.line(&if repeated {
        // The answer is to the first request; the agent may have become something else since.
        format!("{verb} {name}{}; it is {} now", again(repeated), words(agent.lifecycle))
    } else if before == agent.lifecycle {
        format!("{name} was {} already", words(before))
    } else {
        format!("{verb} {name}")
    })?;
    if agent.lifecycle == AgentLifecycle::Active {
        let hint = out.dim("next: verger run resume");
        out.line(&hint)?;
    }
    Ok(())
}

fn list(place: &Place, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let house = View::open(home, env)?.house(env);
    let agents = house.agents(&place.workspace)?;
    tell_stops(&house);
    if out.json {
        let agents: Vec<_> = agents.iter().map(document).collect();
        return out.document("verger.agents.v1", json!({ "agents": agents }));
    }
    if agents.is_empty() {
        return out.line("no agents here yet; `verger run start` makes one from its manifest");
    }
    let row = |agent: &AgentRecord| {
        let (name, state) = (agent.name.to_string(), words(agent.lifecycle).to_owned());
        vec![name, state, agent.created_at.as_title(), agent.id.to_string(), shortened(&agent.title, 60)]
    };
    let rows: Vec<_> = agents.iter().map(row).collect();
    out.table(&["agent", "state", "since (UTC)", "id", "title"], &rows)
}

fn words(lifecycle: AgentLifecycle) -> &'static str {
    match lifecycle {
        AgentLifecycle::Created => "not active yet",
        AgentLifecycle::Active => "active",
        AgentLifecycle::Dormant => "paused",
        AgentLifecycle::Destroyed => "destroyed",
    }
}

fn document(agent: &AgentRecord) -> Value {
    json!({
        "id": agent.id, "name": agent.name, "title": agent.title, "lifecycle": agent.lifecycle, "workspace": agent.workspace,
        "created_at": agent.created_at,
    })
}

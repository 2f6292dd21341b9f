//! `verger budget …`: what an agent may use up in a day, and what of it is gone.

use clap::{Args, Subcommand};
use domain::records::agent::AgentLifecycle;
use runtime::{BudgetChange, BudgetState, Env, Home, Nearness, View};
use serde_json::{Value, json};

use crate::commands::acting::{act, again, tell_stops};
use crate::commands::note::{Operation, Place};
use crate::output::{Failure, Out};

/// Characters of a bar.
const BAR: usize = 20;

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Show what agents may use up today, and what they have
    Show {
        /// Only this agent, by name or id
        #[arg(long)]
        agent: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Set what an agent may use up in a day; 0 means that nothing may be spent
    Set(SetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The agent, by name or id
    #[arg(long)]
    agent: String,
    /// Tokens
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    tokens: Option<i64>,
    /// Cost, in millionths of your currency
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    cost_micros: Option<i64>,
    /// Time that models take, in milliseconds
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    runtime_ms: Option<i64>,
    /// Calls of tools
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    tool_calls: Option<i64>,
    /// Warn from this share of a limit on
    #[arg(long, value_name = "P")]
    soft_percent: Option<u8>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    operation: Operation,
}

pub(crate) fn run(command: &BudgetCommand, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        BudgetCommand::Show { agent, place } => show(agent.as_deref(), place, home, env, out),
        BudgetCommand::Set(args) => set(args, home, env, out),
    }
}

fn show(agent: Option<&str>, place: &Place, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let mut house = View::open(home, env)?.house(env);
    let agents = match agent {
        Some(agent) => vec![house.agent_by_name(&place.workspace, agent)?],
        None => {
            let alive = house.agents(&place.workspace)?.into_iter().filter(|agent| agent.lifecycle != AgentLifecycle::Destroyed);
            alive.map(|agent| agent.id).collect()
        }
    };
    let states = agents.into_iter().map(|agent| house.budget(agent)).collect::<runtime::Result<Vec<_>>>()?;
    tell_stops(&house);
    if out.json {
        let budgets: Vec<_> = states.iter().map(document).collect();
        return out.document("verger.budgets.v1", json!({ "budgets": budgets }));
    }
    if states.is_empty() {
        return out.line("no agents here yet; `verger run start` makes one from its manifest");
    }
    for (place, state) in states.iter().enumerate() {
        if place > 0 {
            out.line("")?;
        }
        picture(state, out)?;
    }
    Ok(())
}

fn set(args: &SetArgs, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let change = BudgetChange {
        tokens: args.tokens,
        cost_micros: args.cost_micros,
        runtime_ms: args.runtime_ms,
        tool_calls: args.tool_calls,
        soft_percent: args.soft_percent,
    };
    let ((repeated, state), key) = act(home, env, &args.operation, |house, key| {
        let agent = house.agent_by_name(&args.place.workspace, &args.agent)?;
        let repeated = house.set_budget(agent, &change, key)?;
        Ok((repeated, house.budget(agent)?))
    })?;
    if out.json {
        let mut content = document(&state);
        content["operation_id"] = json!(key.as_str());
        content["repeated"] = json!(repeated);
        return out.document("verger.budget-set.v1", content);
    }
    let name = out.bold(&state.agent);
    out.line(&format!("set the budget of {name}{}", again(repeated)))?;
    picture(&state, out)
}

fn picture(state: &BudgetState, out: &mut Out) -> Result<(), Failure> {
    let set = if state.set_by_person { "set by you" } else { "the manifest's" };
    let name = out.bold(&state.agent);
    out.line(&format!("{name} · {} (UTC) · limits {set} · begins anew at {}", state.day, state.resets_at.as_title()))?;
    let row = |(name, limit, used, reserved, nearness): (&'static str, i64, i64, i64, Nearness)| {
        let word = match nearness {
            Nearness::Within => String::new(),
            Nearness::Soft => format!("over {} %", state.soft_percent),
            Nearness::Spent if limit == 0 => "nothing may be spent".to_owned(),
            Nearness::Spent => "spent".to_owned(),
        };
        let bar = bar(limit, used, reserved);
        vec![
            name.to_owned(),
            limit.to_string(),
            used.to_string(),
            reserved.to_string(),
            format!("{bar} {word}").trim_end().to_owned(),
        ]
    };
    let rows: Vec<_> = state.lines().into_iter().map(row).collect();
    out.table(&["of a day", "limit", "used", "reserved", ""], &rows)
}

/// What is used and what is reserved, as a share of the limit.
fn bar(limit: i64, used: i64, reserved: i64) -> String {
    let cells = |amount: i64| {
        let share = i128::from(amount.max(0)) * BAR as i128 / i128::from(limit.max(1));
        usize::try_from(share).unwrap_or(BAR).min(BAR)
    };
    let full = if limit == 0 { BAR } else { cells(used) };
    let held = cells(used.saturating_add(reserved)).max(full);
    format!("{}{}{}", "█".repeat(full), "▒".repeat(held - full), "░".repeat(BAR - held))
}

fn document(state: &BudgetState) -> Value {
    let near = |wanted: Nearness| state.lines().into_iter().filter(|line| line.4 == wanted).map(|line| line.0).collect::<Vec<_>>();
    json!({
        "agent_id": state.agent_id, "agent": state.agent, "day": state.day, "zone": "UTC", "resets_at": state.resets_at,
        "limits": state.limits, "used": state.used, "reserved": state.reserved, "soft_percent": state.soft_percent,
        "set_by_person": state.set_by_person, "over_soft_limit": near(Nearness::Soft), "spent": near(Nearness::Spent),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(100, 50, 25), format!("{}{}{}", "█".repeat(10), "▒".repeat(5), "░".repeat(5)));
        assert_eq!(bar(0, 0, 0), "█".repeat(BAR));
        assert_eq!(bar(1, 7, i64::MAX), "█".repeat(BAR));
    }
}

//! `verger policy …`: why something was, or would be, allowed.

use clap::{Args, Subcommand};
use runtime::{Env, Explanation, Home, Imagined, Shortfall, View};
use serde_json::{Value, json};

use crate::output::{Failure, Out};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show what every layer of the decision says of a past act, or of one that you imagine
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A run whose acts are explained
    #[arg(long, requires = "cycle", conflicts_with = "agent", required_unless_present = "agent", help_heading = "A past act")]
    run: Option<String>,
    /// The cycle of that run
    #[arg(long, requires = "run", value_name = "N", help_heading = "A past act")]
    cycle: Option<u32>,
    /// An agent, by id or name, that would act now
    #[arg(long, requires = "tool", help_heading = "An imagined act")]
    agent: Option<String>,
    /// The tool that it would use; `ask` is a call of its model
    #[arg(long, requires = "agent", help_heading = "An imagined act")]
    tool: Option<String>,
    /// The workspace in which the agent has that name
    #[arg(long, short, default_value = "home", help_heading = "An imagined act")]
    workspace: String,
    /// A workspace in which its target would be [default: the agent's own]
    #[arg(long, requires = "agent", value_name = "WORKSPACE", help_heading = "An imagined act")]
    target_workspace: Option<String>,
    /// Tokens that it would set aside [default: for `ask`, the manifest's reservation]
    #[arg(long, requires = "agent", value_parser = clap::value_parser!(i64).range(0..=1 << 50), help_heading = "An imagined act")]
    tokens: Option<i64>,
}

pub(crate) fn run(command: &PolicyCommand, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let PolicyCommand::Explain(args) = command;
    let mut house = View::open(home, env)?.house(env);
    let found = match (&args.run, &args.agent) {
        (Some(run), _) => {
            let id = house.find_run(run)?;
            house.explain_cycle(&id, args.cycle.unwrap_or_default())?
        }
        (None, agent) => {
            let imagined = Imagined {
                agent: agent.clone().unwrap_or_default(),
                workspace: args.workspace.clone(),
                tool: args.tool.clone().unwrap_or_default(),
                target_workspace: args.target_workspace.clone(),
                tokens: args.tokens,
            };
            vec![house.explain_imagined(&imagined)?]
        }
    };
    if out.json {
        let explained: Vec<_> = found.iter().map(document).collect();
        return out.document("verger.policy-explain.v1", json!({ "explained": explained }));
    }
    if found.is_empty() {
        return out.line("this cycle asked for nothing and planned nothing");
    }
    for (place, explanation) in found.iter().enumerate() {
        if place > 0 {
            out.line("")?;
        }
        show(explanation, out)?;
    }
    Ok(())
}

fn show(explanation: &Explanation, out: &mut Out) -> Result<(), Failure> {
    let decision = &explanation.decision;
    let heading = out.bold(&explanation.what);
    let place = match &explanation.past {
        Some((cycle, Some(operation))) => format!(" in cycle {cycle}, {operation}"),
        Some((cycle, None)) => format!(" in cycle {cycle}"),
        None => " now".to_owned(),
    };
    let code = decision.code.map(|code| format!(" [{code}]")).unwrap_or_default();
    out.line(&format!("{heading}{place}: {}, {}{code}", decision.verdict, decision.rule))?;
    if let Some(Shortfall { amount, limit, used, wanted }) = &explanation.shortfall {
        out.line(&format!("{amount}: limit {limit}, used {used}, wanted {wanted}"))?;
    }
    if let Some(code) = decision.code {
        let next = out.dim(&format!("next: {}", code.next_step()));
        out.line(&next)?;
    }
    if let Some(recorded) = &explanation.recorded {
        out.line(&format!("it was recorded as {}, {}: the rules have changed since", recorded.verdict, recorded.rule))?;
    }
    if explanation.layers.is_empty() {
        return out.line("it could not be planned, so no layer was asked");
    }
    let row = |(place, layer): (usize, &runtime::LayerVerdict)| {
        let code = layer.code.map(|code| code.as_str().to_owned()).unwrap_or_default();
        vec![(place + 1).to_string(), layer.layer.to_string(), layer.outcome.to_string(), code, layer.rule.to_owned()]
    };
    let rows: Vec<_> = explanation.layers.iter().enumerate().map(row).collect();
    out.table(&["", "layer", "says", "code", "because"], &rows)
}

fn document(explanation: &Explanation) -> Value {
    let decision = |decision: &runtime::Decision| {
        json!({
            "verdict": decision.verdict, "layer": decision.layer, "rule": decision.rule,
            "code": decision.code.map(|code| code.as_str()), "next_step": decision.code.map(|code| code.next_step()),
        })
    };
    let layer = |layer: &runtime::LayerVerdict| {
        json!({
            "layer": layer.layer, "outcome": layer.outcome, "rule": layer.rule, "code": layer.code.map(|code| code.as_str()),
        })
    };
    json!({
        "what": explanation.what,
        "cycle": explanation.past.as_ref().map(|(cycle, _)| cycle),
        "operation_id": explanation.past.as_ref().and_then(|(_, operation)| *operation),
        "decision": decision(&explanation.decision),
        "shortfall": explanation.shortfall,
        "recorded": explanation.recorded.as_ref().map(decision),
        "layers": explanation.layers.iter().map(layer).collect::<Vec<_>>(),
    })
}

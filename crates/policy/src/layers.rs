//! The layers, one function each. A layer looks at what concerns it and at nothing else.

use domain::code::ErrorCode;
use domain::plant::{self, Bug};
use domain::records::agent::AgentLifecycle;
use domain::records::switch::SwitchSubject;

use crate::POLICY_VERSION;
use crate::decision::{Layer, Ruling};
use crate::request::{Act, Capability, Mode, Request, Risk};
use crate::world::World;

pub(crate) fn judge(layer: Layer, request: &Request, world: &World) -> Ruling {
    match layer {
        Layer::KillSwitch => kill_switch(request, world),
        Layer::Lifecycle => lifecycle(world),
        Layer::Scope => scope(request, world),
        Layer::Capability => capability(request, world),
        Layer::Budget => budget(request, world),
        Layer::Risk => risk(request, world),
        // These have their place in the order; what they look at comes with channels, providers, secrets and trust labels.
        Layer::Access | Layer::Model | Layer::Egress | Layer::Consent | Layer::Secret | Layer::NeedToKnow | Layer::TrustFlow => {
            Ruling::Neutral
        }
    }
}

fn kill_switch(request: &Request, world: &World) -> Ruling {
    if plant::is(Bug::IgnoreSwitch) {
        return Ruling::Neutral;
    }
    let refuse = |rule| Ruling::Refuse { rule, code: ErrorCode::Stopped };
    if world.stopped.contains(&SwitchSubject::Everything) {
        return refuse("everything is stopped");
    }
    if world.stopped.contains(&SwitchSubject::Agent(request.agent)) {
        return refuse("this agent is stopped");
    }
    match &request.act {
        Act::Use { class, .. } if world.stopped.contains(&SwitchSubject::Tools(class.clone())) => {
            refuse("tools of this class are stopped")
        }
        _ => Ruling::Pass { rule: "no switch is thrown" },
    }
}

fn lifecycle(world: &World) -> Ruling {
    match world.lifecycle {
        AgentLifecycle::Active => Ruling::Pass { rule: "the agent is active" },
        AgentLifecycle::Destroyed => Ruling::Refuse { rule: "the agent is destroyed", code: ErrorCode::AgentDestroyed },
        AgentLifecycle::Created => Ruling::Refuse { rule: "the agent is not active yet", code: ErrorCode::AgentDormant },
        AgentLifecycle::Dormant => Ruling::Refuse { rule: "the agent is paused", code: ErrorCode::AgentDormant },
    }
}

fn scope(request: &Request, world: &World) -> Ruling {
    let Act::Use { targets, .. } = &request.act else {
        return Ruling::Pass { rule: "it touches no record" };
    };
    for target in targets {
        if target.workspace != world.workspace {
            return Ruling::Refuse { rule: "a target is in another workspace", code: ErrorCode::CrossWorkspaceRejected };
        }
        if !world.kinds.contains(&target.kind) {
            return Ruling::Refuse { rule: "a target is of a kind outside the agent's scope", code: ErrorCode::ScopeViolation };
        }
        if target.category.is_some_and(|category| !world.categories.contains(&category)) {
            return Ruling::Refuse { rule: "a target is in a category outside the agent's scope", code: ErrorCode::OutOfScope };
        }
    }
    Ruling::Pass { rule: "every target is in scope" }
}

fn capability(request: &Request, world: &World) -> Ruling {
    let needed = match &request.act {
        Act::Ask { .. } => Capability::Ask,
        Act::Use { tool, .. } if !world.tools.contains(tool) => {
            return Ruling::Refuse { rule: "the manifest does not name the tool", code: ErrorCode::UnknownTool };
        }
        Act::Use { capability, .. } => *capability,
    };
    if world.capabilities.contains(&needed) {
        Ruling::Pass { rule: "the agent has the capability" }
    } else {
        Ruling::Refuse { rule: "the agent lacks the capability", code: ErrorCode::CapabilityDenied }
    }
}

fn budget(request: &Request, world: &World) -> Ruling {
    let wanted = world.used.plus(request.reservation);
    let rules = ["tokens of the day", "cost of the day", "running time of the day", "tool calls of the day"];
    let over = wanted.named().iter().zip(world.limits.named()).position(|((_, wanted), (_, limit))| *wanted > limit);
    match over {
        Some(place) => Ruling::Refuse { rule: rules[place], code: ErrorCode::BudgetExceeded },
        None => Ruling::Pass { rule: "the day's budget covers it" },
    }
}

fn risk(request: &Request, world: &World) -> Ruling {
    let Act::Use { tool, risk, mutates, needs_approval, content, .. } = &request.act else {
        return Ruling::Pass { rule: "asking changes nothing" };
    };
    if let Some(approval) = &request.approval {
        let bound = approval.content == *content || plant::is(Bug::ApprovalNotBound);
        return if bound && approval.tool == *tool && approval.policy_version == POLICY_VERSION {
            Ruling::Pass { rule: "a person approved exactly this" }
        } else {
            Ruling::Ask { rule: "the approval is for something else", code: ErrorCode::ConfirmationRequired }
        };
    }
    if world.denied.contains(content) {
        return Ruling::Refuse { rule: "a person denied exactly this", code: ErrorCode::DeniedByPerson };
    }
    if world.pending.contains(content) {
        return Ruling::Refuse { rule: "the same act waits for a person", code: ErrorCode::PendingApproval };
    }
    let ask = |rule| Ruling::Ask { rule, code: ErrorCode::ConfirmationRequired };
    match (mutates, needs_approval, risk, world.mode) {
        (false, false, _, _) => Ruling::Pass { rule: "it changes nothing" },
        (_, true, _, _) => ask("keeping this takes a person's word"),
        (_, _, Risk::High, _) => ask("high risk always asks"),
        (_, _, _, Mode::Reviewed) => ask("a reviewed agent asks before it changes anything"),
        (_, _, Risk::Low | Risk::Medium, Mode::Yolo) => Ruling::Pass { rule: "low and medium risk run by themselves in this mode" },
    }
}

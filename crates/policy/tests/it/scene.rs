//! A request that every layer lets through, the world it is made in, and what may be expected of a decision.

use std::collections::BTreeSet;

use domain::code::ErrorCode;
use domain::entry::Actor;
use domain::hash::{self, Hash};
use domain::id::{AgentId, CategoryId, PersonId, RawId, WorkspaceId};
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::slug::Slug;
use policy::{Act, Approval, Capability, Decision, Layer, Mode, POLICY_VERSION, Request, Risk, Target, Verdict, World, authorize};

/// Decides the request and compares the whole decision.
#[track_caller]
pub(crate) fn check(request: &Request, world: &World, expect: &Decision) {
    assert_eq!(authorize(request, world), *expect);
}

pub(crate) fn allow() -> Decision {
    Decision { verdict: Verdict::Allow, layer: None, rule: "every layer passed".into(), code: None }
}

pub(crate) fn deny(layer: Layer, rule: &str, code: ErrorCode) -> Decision {
    Decision { verdict: Verdict::Deny, layer: Some(layer), rule: rule.into(), code: Some(code) }
}

/// Only the layer of risks asks.
pub(crate) fn ask(rule: &str) -> Decision {
    let code = Some(ErrorCode::ConfirmationRequired);
    Decision { verdict: Verdict::Ask, layer: Some(Layer::Risk), rule: rule.into(), code }
}

/// An agent in yolo mode with everything that [`request`] needs and plenty of budget.
pub(crate) fn world() -> World {
    World {
        stopped: BTreeSet::new(),
        lifecycle: AgentLifecycle::Active,
        workspace: workspace(),
        categories: BTreeSet::from([category("work")]),
        kinds: BTreeSet::from([slug("task"), slug("artifact")]),
        capabilities: BTreeSet::from([Capability::Ask, Capability::TaskWrite]),
        tools: BTreeSet::from(["create_task".to_owned()]),
        mode: Mode::Yolo,
        limits: amounts(1_000),
        used: amounts(0),
        denied: BTreeSet::new(),
        pending: BTreeSet::new(),
    }
}

/// A low-risk change of a task in the agent's own workspace.
pub(crate) fn request() -> Request {
    Request { agent: agent(), act: change(Risk::Low), reservation: amounts(1), approval: None }
}

/// A request for an answer of the model.
pub(crate) fn question() -> Request {
    Request { act: Act::Ask { model: "scripted".into() }, ..request() }
}

pub(crate) fn change(risk: Risk) -> Act {
    Act::Use {
        tool: "create_task".into(),
        class: slug("task"),
        capability: Capability::TaskWrite,
        risk,
        mutates: true,
        needs_approval: false,
        targets: vec![target("task")],
        content: content("first"),
    }
}

/// The same act with other properties than [`change`] gives it.
pub(crate) fn change_of(risk: Risk, changes: bool, needs_word: bool) -> Act {
    let mut act = change(risk);
    if let Act::Use { mutates, needs_approval, .. } = &mut act {
        (*mutates, *needs_approval) = (changes, needs_word);
    }
    act
}

pub(crate) fn touching(touched: Vec<Target>) -> Request {
    let mut act = change(Risk::Low);
    if let Act::Use { targets, .. } = &mut act {
        *targets = touched;
    }
    Request { act, ..request() }
}

pub(crate) fn target(kind: &str) -> Target {
    Target { workspace: workspace(), kind: slug(kind), category: None }
}

/// What a person said yes to: exactly [`request`].
pub(crate) fn approval() -> Approval {
    let by = Actor::Person(PersonId::owner());
    Approval { by, tool: "create_task".into(), content: content("first"), policy_version: POLICY_VERSION }
}

pub(crate) fn agent() -> AgentId {
    AgentId::from_raw(RawId::from_bytes([1; 16]))
}

pub(crate) fn workspace() -> WorkspaceId {
    WorkspaceId::of_slug("home")
}

pub(crate) fn category(name: &str) -> CategoryId {
    CategoryId::of_slug(&workspace(), name)
}

pub(crate) fn slug(text: &str) -> Slug {
    Slug::parse(text).expect("a plain word")
}

pub(crate) fn content(text: &str) -> Hash {
    hash::plain(text.as_bytes())
}

/// The same amount of everything.
pub(crate) fn amounts(each: i64) -> Amounts {
    Amounts { tokens: each, cost_micros: each, runtime_ms: each, tool_calls: each }
}

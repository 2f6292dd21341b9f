//! The layers have one order, the first refusal wins, and an explanation agrees with the decision.

use std::collections::BTreeSet;

use domain::code::ErrorCode;
use domain::id::{AgentId, CategoryId, RawId, WorkspaceId};
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::switch::SwitchSubject;
use policy::{
    Act, Approval, Capability, Decision, Layer, LayerVerdict, Mode, Outcome, POLICY_VERSION, Request, Risk, Target, Verdict, World,
    authorize, explain,
};
use proptest::prelude::*;

use crate::scene::{agent, allow, amounts, approval, ask, category, check, content, deny, request, slug, workspace, world};

/// What makes one layer refuse, and what is then decided.
type Spoilt = (fn(&mut World), Decision);

/// One for each layer that can refuse; the others cannot yet.
fn refusals() -> Vec<Spoilt> {
    vec![
        (
            |world| world.stopped.extend([SwitchSubject::Everything]),
            deny(Layer::KillSwitch, "everything is stopped", ErrorCode::Stopped),
        ),
        (|world| world.lifecycle = AgentLifecycle::Dormant, deny(Layer::Lifecycle, "the agent is paused", ErrorCode::AgentDormant)),
        (
            |world| world.kinds.clear(),
            deny(Layer::Scope, "a target is of a kind outside the agent's scope", ErrorCode::ScopeViolation),
        ),
        (
            |world| world.capabilities.clear(),
            deny(Layer::Capability, "the agent lacks the capability", ErrorCode::CapabilityDenied),
        ),
        (|world| world.limits = Amounts::NONE, deny(Layer::Budget, "tokens of the day", ErrorCode::BudgetExceeded)),
        (
            |world| world.denied.extend([content("first")]),
            deny(Layer::Risk, "a person denied exactly this", ErrorCode::DeniedByPerson),
        ),
    ]
}

#[test]
fn of_two_refusing_layers_the_earlier_one_is_heard() {
    let refusals = refusals();
    let places = refusals.iter().map(|(_, decision)| Layer::ALL.iter().position(|layer| Some(*layer) == decision.layer));
    assert!(places.clone().all(|place| place.is_some()) && places.is_sorted(), "the cases are in the order of the layers");
    for (place, (spoil, expect)) in refusals.iter().enumerate() {
        let mut once = world();
        spoil(&mut once);
        check(&request(), &once, expect);
        for (spoil_later, _) in &refusals[place + 1..] {
            let mut twice = once.clone();
            spoil_later(&mut twice);
            check(&request(), &twice, expect);
        }
    }
}

#[test]
fn a_refusal_wins_over_a_question_wherever_it_stands() {
    let reviewed = World { mode: Mode::Reviewed, ..world() };
    check(&request(), &reviewed, &ask("a reviewed agent asks before it changes anything"));
    for (spoil, expect) in refusals() {
        let mut spoilt = reviewed.clone();
        spoil(&mut spoilt);
        check(&request(), &spoilt, &expect);
    }
}

#[test]
fn an_explanation_shows_every_layer_and_those_after_the_refusing_one() {
    let mut both = world();
    both.lifecycle = AgentLifecycle::Dormant;
    both.limits = Amounts::NONE;
    both.mode = Mode::Reviewed;
    let line = |layer, outcome, rule, code| LayerVerdict { layer, outcome, rule, code };
    let pass = |layer, rule| line(layer, Outcome::Pass, rule, None);
    let neutral = |layer| line(layer, Outcome::Neutral, "nothing is set here yet", None);
    let asks = "a reviewed agent asks before it changes anything";
    assert_eq!(
        explain(&request(), &both),
        [
            pass(Layer::KillSwitch, "no switch is thrown"),
            line(Layer::Lifecycle, Outcome::Refuse, "the agent is paused", Some(ErrorCode::AgentDormant)),
            neutral(Layer::Access),
            pass(Layer::Scope, "every target is in scope"),
            pass(Layer::Capability, "the agent has the capability"),
            neutral(Layer::Model),
            neutral(Layer::Egress),
            neutral(Layer::Consent),
            neutral(Layer::Secret),
            neutral(Layer::NeedToKnow),
            line(Layer::Budget, Outcome::Refuse, "tokens of the day", Some(ErrorCode::BudgetExceeded)),
            line(Layer::Risk, Outcome::Ask, asks, Some(ErrorCode::ConfirmationRequired)),
            neutral(Layer::TrustFlow),
        ]
    );
}

/// What a person would conclude from the lines of an explanation.
fn concluded(lines: &[LayerVerdict]) -> Decision {
    let first = |outcome| lines.iter().find(|line| line.outcome == outcome);
    let of =
        |verdict, line: &LayerVerdict| Decision { verdict, layer: Some(line.layer), rule: line.rule.to_owned(), code: line.code };
    let refused = first(Outcome::Refuse).map(|line| of(Verdict::Deny, line));
    refused.or_else(|| first(Outcome::Ask).map(|line| of(Verdict::Ask, line))).unwrap_or_else(allow)
}

/// Whether the rules allow it, in one expression and without layers.
fn is_allowed(request: &Request, world: &World) -> bool {
    let within = |used: i64, more: i64, limit: i64| used.saturating_add(more) <= limit;
    let mut amounts = world.used.named().into_iter().zip(request.reservation.named()).zip(world.limits.named());
    let paid = amounts.all(|((used, more), limit)| within(used.1, more.1, limit.1));
    let stopped = |subject| world.stopped.contains(&subject);
    let runs = !stopped(SwitchSubject::Everything) && !stopped(SwitchSubject::Agent(request.agent));
    let active = world.lifecycle == AgentLifecycle::Active;
    let of_act = match &request.act {
        Act::Ask { .. } => world.capabilities.contains(&Capability::Ask),
        Act::Use { tool, class, capability, risk, mutates, needs_approval, targets, content } => {
            let in_scope = targets.iter().all(|target| {
                let open = target.category.is_none_or(|category| world.categories.contains(&category));
                target.workspace == world.workspace && world.kinds.contains(&target.kind) && open
            });
            let free = !*needs_approval && (!*mutates || (*risk != Risk::High && world.mode == Mode::Yolo));
            let word = match &request.approval {
                Some(given) => given.content == *content && given.tool == *tool && given.policy_version == POLICY_VERSION,
                None => free && !world.denied.contains(content) && !world.pending.contains(content),
            };
            let able = world.tools.contains(tool) && world.capabilities.contains(capability);
            !stopped(SwitchSubject::Tools(class.clone())) && in_scope && able && word
        }
    };
    paid && runs && active && of_act
}

fn some_of<T: Clone + Ord + std::fmt::Debug + 'static>(all: Vec<T>) -> impl Strategy<Value = BTreeSet<T>> {
    let count = all.len();
    prop::sample::subsequence(all, 0..=count).prop_map(|chosen| chosen.into_iter().collect())
}

fn one_of<T: Clone + std::fmt::Debug + 'static>(all: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(all.to_vec())
}

/// Mostly the first, now and then the other: otherwise nothing random would ever be allowed.
fn mostly<T: Clone + std::fmt::Debug + 'static>(usual: T, other: T) -> impl Strategy<Value = T> {
    prop_oneof![8 => Just(usual), 1 => Just(other)]
}

fn any_amounts() -> impl Strategy<Value = Amounts> {
    prop_oneof![6 => (0_i64..4).prop_map(amounts), 1 => Just(amounts(i64::MAX)), 1 => (0_i64..4).prop_map(|tokens| Amounts { tokens, ..Amounts::NONE })]
}

fn any_target() -> impl Strategy<Value = Target> {
    let home = mostly(workspace(), WorkspaceId::of_slug("other"));
    let kind = mostly(slug("task"), slug("note"));
    let categories: [Option<CategoryId>; 3] = [None, Some(category("work")), Some(category("private"))];
    (home, kind, one_of(&categories)).prop_map(|(workspace, kind, category)| Target { workspace, kind, category })
}

fn any_act() -> impl Strategy<Value = Act> {
    let using = (
        mostly("create_task".to_owned(), "unknown".to_owned()),
        mostly(slug("task"), slug("artifact")),
        mostly(Capability::TaskWrite, Capability::RatingWrite),
        one_of(Risk::ALL),
        any::<bool>(),
        mostly(false, true),
        prop::collection::vec(any_target(), 0..3),
        mostly(content("first"), content("second")),
    );
    let using = using.prop_map(|(tool, class, capability, risk, mutates, needs_approval, targets, content)| Act::Use {
        tool,
        class,
        capability,
        risk,
        mutates,
        needs_approval,
        targets,
        content,
    });
    prop_oneof![1 => Just(Act::Ask { model: "scripted".to_owned() }), 4 => using]
}

fn any_approval() -> impl Strategy<Value = Option<Approval>> {
    let given = (
        mostly("create_task".to_owned(), "unknown".to_owned()),
        mostly(content("first"), content("second")),
        mostly(POLICY_VERSION, 0),
    );
    let given = given.prop_map(|(tool, content, policy_version)| Approval { tool, content, policy_version, ..approval() });
    prop_oneof![2 => Just(None), 1 => given.prop_map(Some)]
}

fn any_request() -> impl Strategy<Value = Request> {
    let other = AgentId::from_raw(RawId::from_bytes([2; 16]));
    (mostly(agent(), other), any_act(), any_amounts(), any_approval()).prop_map(|(agent, act, reservation, approval)| Request {
        agent,
        act,
        reservation,
        approval,
    })
}

fn any_world() -> impl Strategy<Value = World> {
    let switches = vec![SwitchSubject::Everything, SwitchSubject::Agent(agent()), SwitchSubject::Tools(slug("task"))];
    let stopped = prop_oneof![3 => Just(BTreeSet::new()), 1 => some_of(switches)];
    let contents = || prop_oneof![3 => Just(BTreeSet::new()), 1 => some_of(vec![content("first"), content("second")])];
    let scope = (
        some_of(vec![category("work"), category("private")]),
        some_of(vec![slug("task"), slug("note")]),
        some_of(vec![Capability::Ask, Capability::TaskWrite, Capability::RatingWrite]),
    );
    let lifecycle = prop_oneof![4 => Just(AgentLifecycle::Active), 1 => one_of(AgentLifecycle::ALL)];
    let limits = prop_oneof![4 => Just(amounts(1_000)), 1 => any_amounts()];
    let modes = one_of(Mode::ALL);
    (stopped, lifecycle, scope, modes, (limits, any_amounts()), (contents(), contents())).prop_map(
        |(stopped, lifecycle, (categories, kinds, capabilities), mode, (limits, used), (denied, pending))| World {
            stopped,
            lifecycle,
            categories,
            kinds,
            capabilities,
            mode,
            limits,
            used,
            denied,
            pending,
            ..world()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn an_explanation_agrees_with_the_decision(request in any_request(), world in any_world()) {
        let lines = explain(&request, &world);
        prop_assert_eq!(lines.iter().map(|line| line.layer).collect::<Vec<_>>(), Layer::ALL);
        prop_assert_eq!(concluded(&lines), authorize(&request, &world));
    }

    #[test]
    fn a_decision_allows_what_the_rules_allow_and_nothing_else(request in any_request(), world in any_world()) {
        let decision = authorize(&request, &world);
        prop_assert_eq!(decision.verdict == Verdict::Allow, is_allowed(&request, &world), "{:?}", decision);
        prop_assert_eq!(decision.code.is_none(), decision.verdict == Verdict::Allow);
    }

    #[test]
    fn what_a_decision_was_made_on_can_be_stored(request in any_request(), world in any_world()) {
        let decision = authorize(&request, &world);
        let text = serde_json::to_string(&(&request, &world, &decision)).unwrap();
        let read: (Request, World, Decision) = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, (request, world, decision));
    }
}

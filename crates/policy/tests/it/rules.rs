//! Each layer's rules, with the code and the sentence that a person gets.

use std::collections::BTreeSet;

use domain::code::ErrorCode;
use domain::id::{AgentId, RawId, WorkspaceId};
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::switch::SwitchSubject;
use policy::{Act, Approval, Capability, Layer, Mode, POLICY_VERSION, Request, Risk, Target, World};

use crate::scene::{
    agent, allow, amounts, approval, ask, category, change, change_of, check, content, deny, question, request, slug, target,
    touching, world,
};

fn stopped(subject: SwitchSubject) -> World {
    World { stopped: BTreeSet::from([subject]), ..world() }
}

#[test]
fn what_breaks_no_rule_is_allowed() {
    check(&request(), &world(), &allow());
    check(&question(), &world(), &allow());
}

#[test]
fn l31_a_switch_stops_everything_one_agent_or_one_class_of_tools() {
    let refused = |rule| deny(Layer::KillSwitch, rule, ErrorCode::Stopped);
    for request in [request(), question()] {
        check(&request, &stopped(SwitchSubject::Everything), &refused("everything is stopped"));
        check(&request, &stopped(SwitchSubject::Agent(agent())), &refused("this agent is stopped"));
    }
    check(&request(), &stopped(SwitchSubject::Tools(slug("task"))), &refused("tools of this class are stopped"));
}

#[test]
fn l31_a_switch_for_somebody_else_stops_nobody_else() {
    let other = AgentId::from_raw(RawId::from_bytes([2; 16]));
    check(&request(), &stopped(SwitchSubject::Agent(other)), &allow());
    check(&request(), &stopped(SwitchSubject::Tools(slug("artifact"))), &allow());
    check(&question(), &stopped(SwitchSubject::Tools(slug("task"))), &allow());
}

#[test]
fn l4_only_an_active_agent_acts() {
    let cases = [
        (AgentLifecycle::Created, "the agent is not active yet", ErrorCode::AgentDormant),
        (AgentLifecycle::Dormant, "the agent is paused", ErrorCode::AgentDormant),
        (AgentLifecycle::Destroyed, "the agent is destroyed", ErrorCode::AgentDestroyed),
    ];
    for (lifecycle, rule, code) in cases {
        check(&request(), &World { lifecycle, ..world() }, &deny(Layer::Lifecycle, rule, code));
        check(&question(), &World { lifecycle, ..world() }, &deny(Layer::Lifecycle, rule, code));
    }
}

#[test]
fn k16_another_workspace_or_another_kind_is_refused() {
    let refused = |rule, code| deny(Layer::Scope, rule, code);
    let elsewhere = Target { workspace: WorkspaceId::of_slug("other"), ..target("task") };
    let cross = refused("a target is in another workspace", ErrorCode::CrossWorkspaceRejected);
    check(&touching(vec![elsewhere.clone()]), &world(), &cross);
    let kind = refused("a target is of a kind outside the agent's scope", ErrorCode::ScopeViolation);
    check(&touching(vec![target("note")]), &world(), &kind);
    // Every target counts, and of one target the workspace comes first.
    check(&touching(vec![target("task"), elsewhere.clone()]), &world(), &cross);
    check(&touching(vec![Target { kind: slug("note"), ..elsewhere }]), &world(), &cross);
    check(&touching(vec![]), &world(), &allow());
}

#[test]
fn l21_a_category_that_is_not_named_is_out_of_scope() {
    let within = |name| touching(vec![Target { category: Some(category(name)), ..target("task") }]);
    check(&within("work"), &world(), &allow());
    let refused = deny(Layer::Scope, "a target is in a category outside the agent's scope", ErrorCode::OutOfScope);
    check(&within("private"), &world(), &refused);
    check(&within("work"), &World { categories: BTreeSet::new(), ..world() }, &refused);
}

#[test]
fn l17_a_tool_must_be_named_and_its_capability_given() {
    let unknown = deny(Layer::Capability, "the manifest does not name the tool", ErrorCode::UnknownTool);
    check(&request(), &World { tools: BTreeSet::new(), ..world() }, &unknown);
    let lacking = deny(Layer::Capability, "the agent lacks the capability", ErrorCode::CapabilityDenied);
    let only = |capability| World { capabilities: BTreeSet::from([capability]), ..world() };
    check(&request(), &only(Capability::Ask), &lacking);
    check(&question(), &only(Capability::TaskWrite), &lacking);
    check(&request(), &only(Capability::TaskWrite), &allow());
    check(&question(), &only(Capability::Ask), &allow());
}

#[test]
fn l30_the_limit_itself_is_still_covered_and_one_more_is_not() {
    let only = |place: usize, amount| {
        let mut each = [0; 4];
        each[place] = amount;
        let [tokens, cost_micros, runtime_ms, tool_calls] = each;
        Amounts { tokens, cost_micros, runtime_ms, tool_calls }
    };
    let rules = ["tokens of the day", "cost of the day", "running time of the day", "tool calls of the day"];
    for (place, rule) in rules.into_iter().enumerate() {
        let refused = deny(Layer::Budget, rule, ErrorCode::BudgetExceeded);
        for request in [request(), question()] {
            let asking = |reservation| Request { reservation, ..request.clone() };
            let spent = World { used: only(place, 900), ..world() };
            check(&asking(only(place, 100)), &spent, &allow());
            check(&asking(only(place, 101)), &spent, &refused);
            check(&asking(only(place, i64::MAX)), &spent, &refused);
            let nothing = World { limits: only((place + 1) % 4, 1_000), ..world() };
            check(&asking(only(place, 1)), &nothing, &refused);
        }
    }
}

#[test]
fn l30_a_budget_of_zero_covers_nothing() {
    let nothing = World { limits: Amounts::NONE, ..world() };
    let refused = deny(Layer::Budget, "tokens of the day", ErrorCode::BudgetExceeded);
    check(&Request { reservation: amounts(1), ..question() }, &nothing, &refused);
    check(&Request { reservation: Amounts::NONE, ..question() }, &nothing, &allow());
    // What was overdrawn stays refused, even for what costs nothing.
    let overdrawn = World { limits: amounts(10), used: amounts(11), ..world() };
    check(&Request { reservation: Amounts::NONE, ..question() }, &overdrawn, &refused);
}

#[test]
fn l22_k15_a_reviewed_agent_asks_before_any_change_and_reads_freely() {
    let reviewed = World { mode: Mode::Reviewed, ..world() };
    let with = |risk, mutates| Request { act: change_of(risk, mutates, false), ..request() };
    let review = ask("a reviewed agent asks before it changes anything");
    check(&with(Risk::Low, true), &reviewed, &review);
    check(&with(Risk::Medium, true), &reviewed, &review);
    check(&with(Risk::High, true), &reviewed, &ask("high risk always asks"));
    for risk in Risk::ALL {
        check(&with(*risk, false), &reviewed, &allow());
    }
    check(&question(), &reviewed, &allow());
}

#[test]
fn l22_k15_yolo_covers_low_and_medium_risk_and_never_high() {
    let with = |risk| Request { act: change(risk), ..request() };
    check(&with(Risk::Low), &world(), &allow());
    check(&with(Risk::Medium), &world(), &allow());
    check(&with(Risk::High), &world(), &ask("high risk always asks"));
}

#[test]
fn d10_what_needs_a_persons_word_asks_in_every_mode_and_at_every_risk() {
    for mode in [Mode::Reviewed, Mode::Yolo] {
        for risk in Risk::ALL {
            for mutates in [false, true] {
                let request = Request { act: change_of(*risk, mutates, true), ..request() };
                check(&request, &World { mode, ..world() }, &ask("keeping this takes a person's word"));
            }
        }
    }
}

#[test]
fn l22_an_approval_counts_for_this_content_this_tool_and_these_rules() {
    let high = |approval| Request { act: change(Risk::High), approval: Some(approval), ..request() };
    check(&high(approval()), &world(), &allow());
    let other = ask("the approval is for something else");
    check(&high(Approval { content: content("second"), ..approval() }), &world(), &other);
    check(&high(Approval { tool: "delete_task".into(), ..approval() }), &world(), &other);
    check(&high(Approval { policy_version: POLICY_VERSION + 1, ..approval() }), &world(), &other);
    check(&high(Approval { policy_version: 0, ..approval() }), &world(), &other);
    // A person's yes covers what always asks, too, and what the run has already put into the queue.
    let kept = Request { act: change_of(Risk::Medium, true, true), approval: Some(approval()), ..request() };
    check(&kept, &world(), &allow());
    check(&kept, &World { pending: BTreeSet::from([content("first")]), ..world() }, &allow());
}

#[test]
fn l22_an_approval_opens_no_other_layer() {
    let approved = Request { act: change(Risk::High), approval: Some(approval()), ..request() };
    let everything = stopped(SwitchSubject::Everything);
    check(&approved, &everything, &deny(Layer::KillSwitch, "everything is stopped", ErrorCode::Stopped));
    let poor = World { limits: Amounts::NONE, ..world() };
    check(&approved, &poor, &deny(Layer::Budget, "tokens of the day", ErrorCode::BudgetExceeded));
    let incapable = World { capabilities: BTreeSet::new(), ..world() };
    check(&approved, &incapable, &deny(Layer::Capability, "the agent lacks the capability", ErrorCode::CapabilityDenied));
}

#[test]
fn l22_denied_content_stays_denied_and_other_content_does_not() {
    let denied = World { denied: BTreeSet::from([content("first")]), ..world() };
    let refused = deny(Layer::Risk, "a person denied exactly this", ErrorCode::DeniedByPerson);
    for risk in Risk::ALL {
        for mutates in [false, true] {
            check(&Request { act: change_of(*risk, mutates, false), ..request() }, &denied, &refused);
        }
    }
    check(&request(), &World { denied: BTreeSet::from([content("second")]), ..world() }, &allow());
    // Both denied and asked again: the person has spoken.
    let both = World { pending: BTreeSet::from([content("first")]), ..denied };
    check(&request(), &both, &refused);
}

#[test]
fn l36_content_that_waits_is_not_asked_twice() {
    let pending = World { pending: BTreeSet::from([content("first")]), ..world() };
    let refused = deny(Layer::Risk, "the same act waits for a person", ErrorCode::PendingApproval);
    check(&request(), &pending, &refused);
    check(&Request { act: change(Risk::High), ..request() }, &pending, &refused);
    check(&request(), &World { pending: BTreeSet::from([content("second")]), ..world() }, &allow());
}

#[test]
fn asking_the_model_needs_no_tool_no_scope_and_no_word() {
    let bare = World {
        tools: BTreeSet::new(),
        kinds: BTreeSet::new(),
        capabilities: BTreeSet::from([Capability::Ask]),
        mode: Mode::Reviewed,
        denied: BTreeSet::from([content("first")]),
        ..world()
    };
    check(&question(), &bare, &allow());
    let Act::Ask { model } = question().act else { panic!("a question asks") };
    assert_eq!(model, "scripted");
}

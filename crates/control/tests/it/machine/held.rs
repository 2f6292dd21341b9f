//! Why a run does not go on: switches, pauses, budgets, and a person who wants it to end.

use control::action::ActionState;
use control::cycle::AnswerVerdict;
use control::machine::{Next, Refusal, Wish};
use control::run::{Phase, RunStatus, WaitReason, Waiting};
use domain::code::ErrorCode;
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::switch::SwitchSubject;
use domain::records::task::TaskStatus;
use domain::time::Timestamp;

use crate::scene::{BEGIN_MS, DAY_MS, SPENT, Scene, create, free, persist, reviewed, select};

fn stop(scene: &mut Scene) {
    scene.gate.world.stopped = [SwitchSubject::Everything].into();
}

fn release(scene: &mut Scene) {
    scene.gate.world.stopped.clear();
}

#[track_caller]
fn check_waiting(scene: &Scene, reason: WaitReason, until: Option<Timestamp>) {
    let run = scene.run();
    assert_eq!((run.status, &run.waiting), (RunStatus::Waiting, &Some(Waiting { reason, until })));
    assert_eq!((run.running_since, &run.reserved), (None, &None));
}

#[test]
fn l31_a_stop_between_two_cycles_lets_the_run_wait_until_it_is_released() {
    let subjects = |scene: &Scene| [SwitchSubject::Everything, SwitchSubject::Agent(scene.run().agent_id)];
    for place in 0..2 {
        let (mut scene, id) = free().with_task();
        scene.gate.world.stopped = [subjects(&scene)[place].clone()].into();
        let step = scene.open();
        check_waiting(&scene, WaitReason::Stopped, None);
        assert_eq!((step.wishes, step.next, scene.run().cycle), (vec![], Next::Rest, 0));
        assert_eq!(scene.try_open(), Err(Refusal::NotYet));
        release(&mut scene);
        scene.open();
        assert_eq!((scene.run().status, scene.run().phase, scene.run().cycle), (RunStatus::Running, Phase::Asked, 1));
        scene.propose(&select(id));
        scene.perform();
        assert_eq!(scene.journal.status(id), TaskStatus::InProgress);
    }
}

#[test]
fn l31_a_stop_while_the_model_thinks_refuses_what_it_proposes() {
    let (mut scene, id) = free().with_task();
    scene.open();
    stop(&mut scene);
    scene.propose(&select(id));
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Refused, Some("stopped")));
    scene.open();
    check_waiting(&scene, WaitReason::Stopped, None);
    assert_eq!((scene.journal.status(id), scene.run().tokens), (TaskStatus::Pending, SPENT.tokens));
    release(&mut scene);
    scene.open();
    assert_eq!((scene.run().status, scene.run().cycle), (RunStatus::Running, 2));
}

#[test]
fn l31_a_class_of_tools_that_is_stopped_stops_no_other() {
    let (mut scene, id) = free().with_task();
    scene.gate.world.stopped = [SwitchSubject::Tools(crate::journal::slug("artifact"))].into();
    scene.open();
    scene.propose(&persist(id, None, "a page"));
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Refused, Some("stopped")));
    scene.open();
    scene.propose(&select(id));
    scene.perform();
    assert_eq!((scene.run().status, scene.journal.status(id)), (RunStatus::Running, TaskStatus::InProgress));
}

#[test]
fn l31_an_ask_that_a_stop_gave_up_is_not_answered_any_more() {
    let (mut scene, id) = free().with_task();
    scene.open();
    stop(&mut scene);
    let reserved = scene.manifest.reservation;
    let step = scene.open();
    check_waiting(&scene, WaitReason::Stopped, None);
    let settle = Wish::Settle { day: "2026-01-05".to_owned(), reserved, spent: reserved };
    assert_eq!(step.wishes, [settle]);
    // The answer comes to a run that holds no lease.
    let text = crate::fuzzed::wire(&select(id)).to_string();
    assert_eq!(scene.try_answer(&text, scene.ask()), Err(Refusal::Stale));
    assert_eq!(scene.try_fail(ErrorCode::LlmTimeout, scene.ask()), Err(Refusal::Stale));
    release(&mut scene);
    assert_eq!(scene.try_answer(&text, scene.ask()), Err(Refusal::Stale));
    scene.open();
    assert_eq!((scene.run().cycle, scene.run().attempt, scene.run().tokens), (1, 2, reserved.tokens));
    scene.propose(&select(id));
    scene.perform();
    assert_eq!(scene.journal.status(id), TaskStatus::InProgress);
}

#[test]
fn l4_a_paused_agent_waits_and_a_destroyed_one_fails() {
    let (mut scene, _) = free().with_task();
    scene.gate.world.lifecycle = AgentLifecycle::Dormant;
    scene.open();
    check_waiting(&scene, WaitReason::Paused, None);
    assert_eq!(scene.try_open(), Err(Refusal::NotYet));
    // One reason may follow another.
    stop(&mut scene);
    scene.open();
    check_waiting(&scene, WaitReason::Stopped, None);
    release(&mut scene);
    scene.gate.world.lifecycle = AgentLifecycle::Active;
    scene.open();
    assert_eq!(scene.run().status, RunStatus::Running);
    scene.gate.world.lifecycle = AgentLifecycle::Destroyed;
    scene.open();
    assert_eq!((scene.run().status, scene.run().code.as_deref()), (RunStatus::Failed, Some("agent_destroyed")));
}

#[test]
fn l17_an_agent_that_may_not_ask_fails() {
    let (mut scene, _) = free().with_task();
    scene.gate.world.capabilities.remove(&policy::Capability::Ask);
    scene.open();
    assert_eq!((scene.run().status, scene.run().code.as_deref()), (RunStatus::Failed, Some("capability_denied")));
}

fn midnight(days: i64) -> Option<Timestamp> {
    Some(Timestamp::from_ms((BEGIN_MS.div_euclid(DAY_MS) + days) * DAY_MS))
}

#[test]
fn l30_without_budget_the_run_waits_for_the_next_day_and_the_next() {
    let (mut scene, _) = free().with_task();
    let plenty = std::mem::replace(&mut scene.gate.world.limits, Amounts::NONE);
    let step = scene.open();
    check_waiting(&scene, WaitReason::Budget, midnight(1));
    assert_eq!((step.wishes, scene.run().cycle), (vec![], 0));
    assert_eq!(scene.try_open(), Err(Refusal::NotYet));
    scene.pass(DAY_MS);
    scene.open();
    check_waiting(&scene, WaitReason::Budget, midnight(2));
    assert_eq!(scene.try_open(), Err(Refusal::NotYet));
    // A person who gives it more does not have to wait for the day.
    scene.gate.world.limits = plenty;
    scene.open();
    assert_eq!((scene.run().status, scene.run().cycle), (RunStatus::Running, 1));
}

#[test]
fn l30_a_run_that_needs_nothing_more_ends_without_budget() {
    let (mut scene, id) = free().with_task();
    scene.gate.world.used = Amounts { tokens: 1 << 40, ..Amounts::NONE };
    scene.journal.change(id, |task| task.status = TaskStatus::Done);
    scene.open();
    assert_eq!((scene.run().status, scene.run().code.as_deref()), (RunStatus::Succeeded, None));
}

#[test]
fn l30_a_reservation_that_fits_exactly_is_made_and_the_next_one_waits() {
    let (mut scene, _) = free().with_task();
    let reserved = scene.manifest.reservation;
    scene.gate.world.limits = reserved;
    scene.open();
    assert_eq!(scene.run().phase, Phase::Asked);
    scene.propose(&create("another task to do"));
    scene.perform();
    // Some of it was spent, so a whole reservation fits no more.
    scene.open();
    check_waiting(&scene, WaitReason::Budget, midnight(1));
    scene.pass(DAY_MS);
    scene.open();
    assert_eq!((scene.run().status, scene.run().cycle), (RunStatus::Running, 2));
    let (mut scene, _) = free().with_task();
    scene.gate.world.limits = Amounts { tokens: reserved.tokens - 1, ..scene.gate.world.limits };
    scene.open();
    check_waiting(&scene, WaitReason::Budget, midnight(1));
}

#[test]
fn l32_a_run_at_work_is_cancelled_at_its_next_point() {
    // Between two cycles: when the next would be opened.
    let (mut scene, id) = free().with_task();
    scene.cancel();
    assert_eq!((scene.run().status, scene.run().cancel_requested), (RunStatus::Running, true));
    scene.open();
    check_cancelled(&scene, 0);
    // While the model thinks: its answer is recorded, and nothing of it is begun.
    scene = free().with_task().0;
    scene.open();
    scene.cancel();
    scene.propose(&select(id));
    check_cancelled(&scene, SPENT.tokens);
    assert_eq!((scene.cycle().actions(), scene.journal.status(id)), (&[][..], TaskStatus::Pending));
    let decided = scene.cycle().decided.as_ref().and_then(|decided| decided.decoded.as_ref());
    assert_eq!(decided.map(|decoded| decoded.proposals.clone()), Some(vec![select(id)]));
    // While the model is silent.
    scene = free().with_task().0;
    scene.open();
    scene.cancel();
    scene.fail(ErrorCode::LlmTimeout);
    check_cancelled(&scene, scene.manifest.reservation.tokens);
    // An ask that was lost is not asked again.
    scene = free().with_task().0;
    scene.open();
    scene.cancel();
    scene.open();
    check_cancelled(&scene, scene.manifest.reservation.tokens);
    // What is being carried out is seen to its end.
    scene = free().with_task().0;
    scene.open();
    scene.propose(&select(id));
    scene.cancel();
    assert_eq!(scene.try_open(), Err(Refusal::OutOfOrder));
    scene.perform();
    check_cancelled(&scene, SPENT.tokens);
    assert_eq!((scene.action().state, scene.journal.status(id)), (ActionState::Done, TaskStatus::InProgress));
}

#[track_caller]
fn check_cancelled(scene: &Scene, tokens: i64) {
    let run = scene.run();
    assert_eq!((run.status, run.code.as_deref(), run.ended_at), (RunStatus::Cancelled, Some("cancelled"), Some(run.updated_at)));
    assert_eq!((run.tokens, &run.reserved, &run.waiting), (tokens, &None, &None));
}

#[test]
fn l32_a_waiting_run_is_cancelled_at_once() {
    let people = || {
        let (mut scene, id) = reviewed().with_task();
        scene.open();
        scene.propose(&persist(id, None, "a page"));
        scene.open();
        (scene, SPENT.tokens)
    };
    let stopped = || {
        let (mut scene, _) = free().with_task();
        stop(&mut scene);
        scene.open();
        (scene, 0)
    };
    let backoff = || {
        let (mut scene, _) = free().with_task();
        scene.open();
        scene.fail(ErrorCode::LlmTimeout);
        let tokens = scene.manifest.reservation.tokens;
        (scene, tokens)
    };
    for (mut scene, tokens) in [people(), stopped(), backoff()] {
        assert_eq!(scene.run().status, RunStatus::Waiting);
        let step = scene.cancel();
        check_cancelled(&scene, tokens);
        assert_eq!((step.next, scene.run().status.is_terminal(), scene.open_items()), (Next::Rest, true, vec![]));
    }
}

#[test]
fn l32_an_approval_that_comes_after_the_cancel_is_not_executed() {
    let (mut scene, id) = reviewed().with_task();
    scene.open();
    scene.propose(&persist(id, None, "a page"));
    scene.cancel();
    scene.say(AnswerVerdict::Approve);
    scene.open();
    check_cancelled(&scene, SPENT.tokens);
    assert_eq!(scene.journal.artifacts.len(), 0);
    assert_eq!(scene.try_open(), Err(Refusal::Ended));
}

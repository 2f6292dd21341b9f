//! Every run ends: cycles, time at work and tokens have a bound, and so has what one cycle may write.

use control::action::ActionState;
use control::cycle::AnswerVerdict;
use control::machine::{Next, Wish};
use control::proposal::Proposal;
use control::run::RunStatus;
use domain::code::ErrorCode;
use serde_json::json;

use crate::scene::{BEGIN_MS, DAY_MS, SPENT, STEP_MS, Scene, ask, create, done, free, mail, outgoing, persist, reviewed, select};

/// The run has failed with this code, and nobody is left waiting for it.
#[track_caller]
fn check_failed(scene: &Scene, code: ErrorCode) {
    let run = scene.run();
    assert_eq!((run.status, run.code.as_deref(), run.ended_at), (RunStatus::Failed, Some(code.as_str()), Some(run.updated_at)));
    assert_eq!((&run.waiting, &run.reserved, run.running_since, run.parked.len()), (&None, &None, None, 0));
    assert_eq!(scene.open_items(), []);
}

#[test]
fn k18_a_run_has_as_many_cycles_as_its_manifest_allows() {
    let (mut scene, _) = free().with_task();
    scene.manifest.bounds.max_iterations = 3;
    for number in 1..=3 {
        scene.open();
        assert_eq!(scene.run().cycle, number);
        scene.propose(&create("another task to do"));
        scene.perform();
    }
    let step = scene.open();
    check_failed(&scene, ErrorCode::IterationLimit);
    assert_eq!((step.wishes, step.next, scene.run().cycle), (vec![], Next::Rest, 3));
}

#[test]
fn k18_a_model_that_repeats_itself_for_ever_is_ended() {
    let proposals: [fn(domain::id::TaskId) -> Proposal; 6] = [
        |_| create("the same task again"),
        select,
        |id| persist(id, Some("page"), "the same page"),
        |id| mail(id, "the same person"),
        |_| ask("What shall I do now?"),
        |id| Proposal::AnalyzeLeads {
            task_id: id,
            analysis_type: control::proposal::AnalysisType::Prioritize,
            parameters: serde_json::Map::new(),
        },
    ];
    for proposal in proposals {
        for scene in [reviewed(), free(), outgoing()] {
            let (mut scene, id) = scene.with_task();
            scene.manifest.bounds.max_iterations = 12;
            let text = crate::fuzzed::wire(&proposal(id)).to_string();
            let mut steps = 0;
            while !scene.run().status.is_terminal() && scene.run().status != RunStatus::Waiting {
                match scene.state.run.phase {
                    control::run::Phase::Between => drop(scene.open()),
                    control::run::Phase::Asked => drop(scene.answer(&text)),
                    control::run::Phase::Planned => drop(scene.perform()),
                }
                steps += 1;
                assert!(steps <= 3 * 12 + 1, "{text}");
            }
            // It has waited for a person, has failed at its bound, or the task was done.
            let code = scene.run().code.as_deref();
            assert!(code.is_none_or(|code| code == ErrorCode::IterationLimit.as_str()), "{text}: {code:?}");
        }
    }
}

#[test]
fn k18_time_at_work_is_bounded_to_the_millisecond() {
    let check = |worked_ms: i64, expect: RunStatus| {
        let (mut scene, _) = free().with_task();
        scene.manifest.bounds.max_wall_ms = 5_000;
        scene.pass(worked_ms - STEP_MS);
        scene.open();
        assert_eq!(scene.run().status, expect, "{worked_ms}");
        scene
    };
    check(4_999, RunStatus::Running);
    check_failed(&check(5_000, RunStatus::Failed), ErrorCode::WallTimeLimit);
}

#[test]
fn k18_time_spent_waiting_is_not_time_at_work() {
    let (mut scene, id) = reviewed().with_task();
    scene.manifest.bounds.max_wall_ms = 5_000;
    scene.open();
    scene.propose(&persist(id, None, "a page"));
    scene.open();
    let worked_ms = 3 * STEP_MS;
    assert_eq!((scene.run().status, scene.run().active_ms), (RunStatus::Waiting, worked_ms));
    scene.pass(DAY_MS);
    scene.say(AnswerVerdict::Approve);
    scene.open();
    scene.perform();
    assert_eq!((scene.run().status, scene.run().worked_ms(scene.now)), (RunStatus::Running, worked_ms + STEP_MS));
}

#[test]
fn k18_a_clock_that_goes_back_changes_nothing() {
    let (mut scene, id) = free().with_task();
    scene.open();
    let opened_at = scene.now;
    scene.pass(-DAY_MS);
    scene.propose(&select(id));
    scene.perform();
    assert_eq!((scene.run().updated_at, scene.run().worked_ms(scene.now)), (opened_at, STEP_MS));
    assert_eq!(opened_at.as_ms(), BEGIN_MS + STEP_MS);
}

#[test]
fn k18_tokens_are_bounded() {
    let (mut scene, _) = free().with_task();
    scene.manifest.bounds.max_tokens = 2 * SPENT.tokens;
    for _ in 0..2 {
        scene.open();
        scene.propose(&create("another task to do"));
        scene.perform();
    }
    assert_eq!(scene.run().tokens, 140);
    scene.open();
    check_failed(&scene, ErrorCode::TokenLimit);
}

#[test]
fn k18_asks_that_are_lost_for_ever_end_the_run() {
    let (mut scene, _) = free().with_task();
    let reserved = scene.manifest.reservation.tokens;
    scene.manifest.bounds.max_tokens = 3 * reserved;
    for attempt in 1..=3 {
        scene.open();
        assert_eq!((scene.run().cycle, scene.run().attempt), (1, attempt));
    }
    // The look that settles the third reservation is the last.
    scene.open();
    check_failed(&scene, ErrorCode::TokenLimit);
}

#[test]
fn k16_a_cap_of_zero_lets_nothing_be_written() {
    let capped = |cap: &str| {
        let mut bounds = json!({ "max_notes_per_loop": 10, "max_edits_per_loop": 20 });
        bounds[cap] = json!(0);
        Scene::new(json!({ "mode": "yolo", "preapproved": ["persist_artifact"], "bounds": bounds })).with_task()
    };
    let check = |cap: &str, proposal: fn(domain::id::TaskId) -> Proposal, expect: ActionState| {
        let (mut scene, id) = capped(cap);
        let before = scene.journal.clone();
        scene.open();
        scene.propose(&proposal(id));
        let code = (expect == ActionState::Refused).then_some("LOOP_LIMIT");
        assert_eq!((scene.action().state, scene.action().code.as_deref()), (expect, code));
        assert_eq!(scene.journal, before);
    };
    check("max_notes_per_loop", |_| create("another task to do"), ActionState::Refused);
    check("max_notes_per_loop", |id| persist(id, None, "a page"), ActionState::Refused);
    check("max_notes_per_loop", select, ActionState::Planned);
    check("max_edits_per_loop", select, ActionState::Refused);
    check("max_edits_per_loop", |_| create("another task to do"), ActionState::Planned);
    // The page itself is new, but its task would be changed with it.
    check("max_edits_per_loop", |id| persist(id, None, "a page"), ActionState::Refused);
}

#[test]
fn k16_a_cap_holds_for_what_a_person_approves_too() {
    let bounds = json!({ "max_notes_per_loop": 0 });
    let (mut scene, id) = Scene::new(json!({ "bounds": bounds })).with_task();
    scene.open();
    scene.propose(&persist(id, None, "a page"));
    assert_eq!(scene.action().state, ActionState::Parked);
    scene.open();
    scene.say(AnswerVerdict::Approve);
    scene.open();
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Refused, Some("LOOP_LIMIT")));
    assert_eq!(scene.journal.artifacts.len(), 0);
}

#[test]
fn k18_nothing_to_do_costs_nothing() {
    let mut scene = Scene::new(json!({ "tools": ["select_next_task"] }));
    let step = scene.open();
    assert_eq!((step.wishes, step.next), (vec![], Next::Rest));
    assert_eq!((scene.run().status, scene.run().cycle, scene.run().tokens), (RunStatus::Succeeded, 0, 0));
    assert_eq!(scene.state.cycle, None);
    // A task that cannot be worked on is nothing to do, either.
    let (mut scene, id) = free().with_task();
    scene.journal.change(id, |task| task.status = domain::records::task::TaskStatus::Blocked);
    scene.open();
    assert_eq!((scene.run().status, scene.run().cycle), (RunStatus::Succeeded, 0));
}

#[test]
fn k18_a_run_that_says_it_is_idle_succeeds() {
    let (mut scene, _) = free().with_task();
    scene.open();
    let step = scene.propose(&done());
    let settle = Wish::Settle { day: "2026-01-05".to_owned(), reserved: scene.manifest.reservation, spent: SPENT };
    assert_eq!((step.wishes, step.next), (vec![settle], Next::Rest));
    assert_eq!((scene.run().status, scene.run().code.as_deref()), (RunStatus::Succeeded, None));
}

//! Asks and answers: faults and their repair, asks that are lost, models that do not answer, events that come too late.

use control::action::{Observation, Seen};
use control::cycle::CycleKind;
use control::machine::{Ask, AskRef, Next, Refusal, Step, Wish};
use control::run::{Phase, RunStatus, WaitReason, Waiting};
use domain::code::ErrorCode;
use domain::records::budget::Amounts;
use domain::time::Timestamp;

use crate::scene::{SPENT, Scene, create, done, free, select};

const BROKEN: &str = r#"{"action":"create_task","task":{"description":"x"}"#;
const SHORT: &str = r#"{"action":"create_task","task":{"description":"x"}}"#;

/// What the model is shown under this name, if anything.
fn shown<'a>(step: &'a Step, name: &str) -> Option<&'a str> {
    let Next::Ask(Ask { sections, .. }) = &step.next else { panic!("nobody is asked: {:?}", step.next) };
    sections.iter().find(|section| section.name == name).map(|section| section.text.as_str())
}

#[test]
fn d18_an_ask_carries_its_sections_and_their_hashes_are_kept() {
    let (mut scene, _) = free().with_task();
    let step = scene.open();
    let Next::Ask(ask) = &step.next else { panic!("it asks") };
    let names: Vec<_> = ask.sections.iter().map(|section| section.name).collect();
    assert_eq!(names, ["rules", "campaign", "current_task", "tasks", "artifacts", "recent"]);
    assert_eq!((ask.cycle, ask.attempt, ask.nth, ask.tokens_max), (1, 1, 1, scene.manifest.reservation.tokens));
    let opened = &scene.cycle().opened;
    let kept = opened.context.as_ref().expect("an ask has a context");
    for (section, part) in ask.sections.iter().zip(&kept.parts) {
        assert_eq!((section.name, section.text.len() as u64), (part.name.as_str(), part.bytes));
        assert_eq!(part.hash, scene.run().content_hash(&section.text));
    }
    assert_eq!((opened.kind, opened.reserved, opened.at), (CycleKind::Ask, scene.manifest.reservation, scene.now));
    assert_eq!(step.wishes, [Wish::Reserve { day: "2026-01-05".to_owned(), amounts: scene.manifest.reservation }]);
}

#[test]
fn k20_two_repairs_that_carry_the_faults_and_then_the_run_fails() {
    let (mut scene, _) = free().with_task();
    let step = scene.open();
    assert_eq!(shown(&step, "faults"), None);
    scene.answer(BROKEN);
    assert_eq!((scene.run().status, scene.run().faults_in_row), (RunStatus::Running, 1));
    let step = scene.open();
    assert_eq!(shown(&step, "faults"), Some("the JSON is broken at byte 0"));
    scene.answer(SHORT);
    assert_eq!((scene.run().status, scene.run().faults_in_row), (RunStatus::Running, 2));
    let step = scene.open();
    assert_eq!(shown(&step, "faults"), Some("a text is too short in `task.description`"));
    scene.answer("I am done.");
    let run = scene.run();
    assert_eq!((run.status, run.code.as_deref(), run.cycle), (RunStatus::Failed, Some("proposal_invalid"), 3));
    assert_eq!((run.operations, scene.messages.len()), (0, 0));
    let results: Vec<_> = run.recent.iter().map(|recent| (recent.cycle, recent.what.as_str(), recent.result.as_str())).collect();
    assert_eq!(results, [(1, "answer", "not_json"), (2, "answer", "too_short"), (3, "answer", "no_proposal")]);
}

#[test]
fn k20_only_an_answer_that_decodes_makes_faults_forgotten() {
    let (mut scene, id) = free().with_task();
    let faulty = |scene: &mut Scene| {
        scene.open();
        scene.answer(BROKEN);
        scene.run().faults_in_row
    };
    assert_eq!((faulty(&mut scene), faulty(&mut scene)), (1, 2));
    scene.open();
    scene.propose(&select(id));
    assert_eq!(scene.run().faults_in_row, 0);
    scene.perform();
    assert_eq!((faulty(&mut scene), faulty(&mut scene)), (1, 2));
    // A model that is silent has not repaired anything.
    scene.open();
    scene.fail(ErrorCode::LlmTimeout);
    scene.pass(60_000);
    assert_eq!(scene.run().faults_in_row, 2);
    assert_eq!((faulty(&mut scene), scene.run().status), (3, RunStatus::Failed));
}

#[test]
fn k20_a_proposal_that_is_refused_is_no_fault() {
    let (mut scene, _) = free().with_task();
    for _ in 0..5 {
        scene.open();
        scene.propose(&select(domain::id::TaskId::from_raw(domain::id::RawId::from_bytes([99; 16]))));
        assert_eq!((scene.action().code.as_deref(), scene.run().faults_in_row), (Some("unsafe_target"), 0));
    }
    assert_eq!(scene.run().status, RunStatus::Running);
}

#[test]
fn l30_an_ask_that_was_lost_is_asked_again_and_counts_as_spent() {
    let (mut scene, _) = free().with_task();
    scene.open();
    let (first, reserved) = (scene.cycle().clone(), scene.manifest.reservation);
    let step = scene.open();
    let day = "2026-01-05".to_owned();
    let settle = Wish::Settle { day: day.clone(), reserved, spent: reserved };
    assert_eq!(step.wishes, [settle, Wish::Reserve { day, amounts: reserved }]);
    assert_eq!((scene.run().cycle, scene.run().attempt, scene.run().tokens), (1, 2, reserved.tokens));
    assert_eq!((scene.cycle().number, scene.cycle().attempt, scene.cycle().id()), (1, 2, first.id()));
    // The answer to the first ask comes too late; the answer to the second counts.
    let text = crate::fuzzed::wire(&create("another task to do")).to_string();
    let before = scene.state.clone();
    for ask in [AskRef { cycle: 1, attempt: 1 }, AskRef { cycle: 1, attempt: 3 }, AskRef { cycle: 2, attempt: 2 }] {
        assert_eq!(scene.try_answer(&text, ask), Err(Refusal::Stale));
        assert_eq!(scene.try_fail(ErrorCode::LlmTimeout, ask), Err(Refusal::Stale));
    }
    assert_eq!(scene.state, before);
    scene.answer(&text);
    scene.perform();
    assert_eq!((scene.run().cycle, scene.run().tokens), (1, reserved.tokens + SPENT.tokens));
    // The next cycle has a first attempt, too.
    scene.open();
    assert_eq!(scene.ask(), AskRef { cycle: 2, attempt: 1 });
    assert_eq!(scene.try_answer(&text, AskRef { cycle: 1, attempt: 1 }), Err(Refusal::Stale));
}

#[test]
fn l20_the_same_answer_to_a_repeated_ask_is_the_same_operation() {
    let planned = |asks: u32| {
        let (mut scene, _) = free().with_task();
        (0..asks).for_each(|_| drop(scene.open()));
        scene.propose(&create("another task to do"));
        scene.action().operation_id
    };
    assert_eq!(planned(1), planned(2));
}

#[test]
fn k19_a_model_that_is_silent_is_asked_three_times_more_with_growing_pauses() {
    let (mut scene, _) = free().with_task();
    for (cycle, pause_ms) in [(1, 200), (2, 400), (3, 800)] {
        scene.open();
        let reserved = scene.manifest.reservation;
        let step = scene.fail(ErrorCode::LlmTimeout);
        let until = Timestamp::from_ms(scene.now.as_ms() + pause_ms);
        let waiting = Some(Waiting { reason: WaitReason::Backoff, until: Some(until) });
        assert_eq!((scene.run().status, &scene.run().waiting, scene.run().cycle), (RunStatus::Waiting, &waiting, cycle));
        let settle = Wish::Settle { day: "2026-01-05".to_owned(), reserved, spent: reserved };
        assert_eq!((step.wishes, step.next), (vec![settle], Next::Rest));
        let closed = scene.cycle().closed.as_ref().expect("the cycle is closed");
        assert_eq!((closed.code.as_deref(), closed.spent), (Some("LLM_TIMEOUT"), reserved));
        scene.pass(pause_ms);
    }
    scene.open();
    scene.fail(ErrorCode::LlmTimeout);
    let run = scene.run();
    assert_eq!((run.status, run.code.as_deref(), run.cycle), (RunStatus::Failed, Some("LLM_TIMEOUT"), 4));
    assert_eq!(run.tokens, 4 * scene.manifest.reservation.tokens);
}

#[test]
fn k19_an_answer_ends_the_row_of_failures() {
    let (mut scene, _) = free().with_task();
    for _ in 0..3 {
        for _ in 0..3 {
            scene.open();
            scene.fail(ErrorCode::LlmTimeout);
            scene.pass(5_000);
        }
        scene.open();
        scene.answer("not a proposal");
        assert_eq!(scene.run().failures_in_row, 0);
        scene.open();
        scene.propose(&create("another task to do"));
        scene.perform();
    }
    assert_eq!(scene.run().status, RunStatus::Running);
}

#[test]
fn k19_a_script_without_another_reply_is_not_asked_again() {
    let (mut scene, _) = free().with_task();
    scene.open();
    scene.fail(ErrorCode::ScriptEnded);
    assert_eq!((scene.run().status, scene.run().code.as_deref()), (RunStatus::Failed, Some("script_ended")));
}

#[test]
fn an_event_that_does_not_fit_is_refused_and_changes_nothing() {
    let stale = || {
        vec![Observation {
            operation_id: domain::id::OperationId::from_raw(domain::id::RawId::from_bytes([0; 16])),
            seen: Seen::Unknown,
        }]
    };
    let answer = crate::fuzzed::wire(&done()).to_string();
    let check = |scene: &mut Scene, expect: [Result<(), Refusal>; 4]| {
        let before = scene.state.clone();
        let ask = scene.ask();
        let open = if expect[0].is_err() { scene.try_open().map(drop) } else { Ok(()) };
        let answered = if expect[1].is_err() { scene.try_answer(&answer, ask).map(drop) } else { Ok(()) };
        let failed = if expect[2].is_err() { scene.try_fail(ErrorCode::LlmTimeout, ask).map(drop) } else { Ok(()) };
        let performed = if expect[3].is_err() { scene.close(stale()).map(drop) } else { Ok(()) };
        assert_eq!([open, answered, failed, performed], expect);
        assert_eq!(scene.state, before);
    };
    let (out, late, ended) = (Err(Refusal::OutOfOrder), Err(Refusal::Stale), Err(Refusal::Ended));
    let (mut scene, _) = free().with_task();
    assert_eq!(scene.run().phase, Phase::Between);
    check(&mut scene, [Ok(()), out, out, out]);
    scene.open();
    assert_eq!(scene.run().phase, Phase::Asked);
    check(&mut scene, [Ok(()), Ok(()), Ok(()), out]);
    scene.propose(&create("another task to do"));
    assert_eq!(scene.run().phase, Phase::Planned);
    // What was seen of something else, or of nothing, closes no plan.
    check(&mut scene, [out, out, out, late]);
    assert_eq!(scene.close(vec![]), Err(Refusal::Stale));
    scene.perform();
    scene.open();
    scene.propose(&done());
    check(&mut scene, [ended, ended, ended, ended]);
}

#[test]
fn what_an_answer_costs_is_settled_on_the_day_it_was_reserved() {
    let (mut scene, _) = free().with_task();
    scene.manifest.bounds.max_wall_ms = u32::MAX;
    scene.open();
    scene.pass(crate::scene::DAY_MS);
    scene.propose(&create("another task to do"));
    let step = scene.perform();
    let settled = step.wishes.iter().find(|wish| matches!(wish, Wish::Settle { .. }));
    let spent = SPENT.plus(Amounts { tool_calls: 1, ..Amounts::NONE });
    let expect = Wish::Settle { day: "2026-01-05".to_owned(), reserved: scene.manifest.reservation, spent };
    assert_eq!((settled, scene.cycle().closed.as_ref().map(|closed| closed.spent)), (Some(&expect), Some(spent)));
}

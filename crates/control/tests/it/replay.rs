//! Strict replay: a recording proves its run, and what was changed in it is found where it was changed.

use control::action::Seen;
use control::cycle::{AnswerVerdict, Cycle};
use control::machine::{Facts, Next, Step};
use control::proposal::Proposal;
use control::replay::{Damaged, Divergence, Recording, Report, replay};
use control::run::{BEHAVIOUR_VERSION, EventName, RunStatus, WaitReason};
use domain::code::ErrorCode;
use domain::id::{OperationId, RawId, RunId};
use domain::key::Point;
use domain::records::budget::Amounts;
use domain::records::switch::SwitchSubject;
use policy::Verdict;

use crate::scene::{Scene, done, persist, reviewed, select};

/// A run with everything in it: work, a fault, a lost ask, a silent model, a stop, an approval, and an end.
fn story(chained: bool) -> Scene {
    let mut scene = reviewed();
    scene.chained = chained;
    let first = scene.journal.add("write the first page", &["first"]);
    let second = scene.journal.add("write the second page", &["second"]);
    // Cycle 1 is carried out, cycle 2 is a fault, cycle 3 is asked twice and parks its action.
    scene.open();
    scene.propose(&select(first));
    scene.perform();
    on(&mut scene);
    scene.answer("I have finished everything.");
    on(&mut scene);
    scene.open();
    scene.propose(&persist(first, Some("first"), "page one"));
    // Cycle 4 is not answered, and a stop comes before cycle 5.
    on(&mut scene);
    scene.fail(ErrorCode::LlmTimeout);
    scene.pass(5_000);
    scene.gate.world.stopped = [SwitchSubject::Everything].into();
    scene.open();
    scene.gate.world.stopped.clear();
    scene.open();
    scene.propose(&persist(second, Some("second"), "page two"));
    // Two questions wait; cycle 6 carries the first approval out, cycle 7 finds the other base changed.
    if !chained {
        scene.open();
    }
    assert_eq!(scene.run().waiting.as_ref().map(|waiting| waiting.reason), Some(WaitReason::People));
    scene.say(AnswerVerdict::Approve);
    scene.open();
    scene.perform();
    if !chained {
        scene.open();
    }
    scene.say(AnswerVerdict::Approve);
    scene.journal.change(second, |task| task.description = "write the last page".to_owned());
    scene.open();
    if !chained {
        scene.open();
    }
    scene.say(AnswerVerdict::Deny);
    scene.open();
    scene.propose(&done());
    assert_eq!((scene.run().status, scene.run().cycle, scene.run().operations), (RunStatus::Succeeded, 8, 2));
    scene
}

/// The next cycle is opened, unless the last point has done so.
fn on(scene: &mut Scene) {
    if !scene.chained {
        scene.open();
    }
}

/// Where a cycle's event was committed: the state, and the cycle in it.
fn find(recording: &Recording, event: EventName, number: u32) -> (usize, usize) {
    let wrote = |cycle: &Cycle| {
        cycle.number == number
            && match event {
                EventName::Opened => cycle.decided.is_none() && cycle.closed.is_none(),
                EventName::Answered => cycle.decided.is_some(),
                EventName::AskFailed | EventName::Performed => cycle.closed.is_some(),
                EventName::Begun | EventName::Cancelled => false,
            }
    };
    let states = recording.states.iter().enumerate().filter(|(_, recorded)| recorded.run.events.contains(&event));
    let mut found = states.filter_map(|(state, recorded)| Some((state, recorded.cycles.iter().position(wrote)?)));
    found.next().expect("the story has it")
}

fn cycle_at(recording: &mut Recording, event: EventName, number: u32) -> &mut Cycle {
    let (state, cycle) = find(recording, event, number);
    &mut recording.states[state].cycles[cycle]
}

/// Changes the story and compares where the first divergence is said to be, whether or not D carries the next A.
#[track_caller]
fn check(change: impl Fn(&mut Recording), cycle: u32, point: Point, field: &str) {
    for chained in [false, true] {
        let mut recording = story(chained).recording();
        change(&mut recording);
        let report = replay(&recording);
        let Ok(Report::Diverged(divergence)) = report else { panic!("chained {chained}: {report:?}") };
        assert_ne!(divergence.expected, divergence.got);
        let place = (divergence.cycle, divergence.point, divergence.field.as_str());
        assert_eq!(place, (cycle, point, field), "chained {chained}");
    }
}

#[track_caller]
fn check_damaged(change: impl Fn(&mut Recording) -> usize, what: &'static str) {
    for chained in [false, true] {
        let mut recording = story(chained).recording();
        let state = change(&mut recording);
        assert_eq!(replay(&recording), Err(Damaged { state, what }), "chained {chained}");
    }
}

fn other_operation() -> OperationId {
    OperationId::from_raw(RawId::from_bytes([99; 16]))
}

#[test]
fn l34_a_recorded_run_is_identical_to_its_replay() {
    for chained in [false, true] {
        let scene = story(chained);
        let steps = scene.recorded.len();
        assert_eq!(replay(&scene.recording()), Ok(Report::Identical { steps, cycles: 8 }));
        // A recording is a file: what it says survives being written down.
        let text = serde_json::to_string(&scene.recording()).unwrap();
        assert_eq!(serde_json::from_str::<Recording>(&text).unwrap(), scene.recording());
    }
    assert!(story(true).recorded.len() < story(false).recorded.len());
}

#[test]
fn l34_the_first_cycle_may_be_opened_with_the_run() {
    for chained in [false, true] {
        let mut recording = story(chained).recording();
        recording.states.remove(0);
        recording.states[0].run.events.insert(0, EventName::Begun);
        assert_eq!(replay(&recording), Ok(Report::Identical { steps: recording.states.len(), cycles: 8 }));
    }
}

#[test]
fn l34_a_cycle_that_was_closed_at_once_may_share_its_commit_with_the_next() {
    let mut scene = reviewed();
    scene.chained = true;
    let first = scene.journal.add("write the first page", &["first"]);
    scene.open();
    scene.propose(&persist(first, Some("first"), "page one"));
    scene.say(AnswerVerdict::Approve);
    scene.journal.change(first, |task| task.description = "write the last page".to_owned());
    scene.journal.add("write the second page", &["second"]);
    // The approved row is superseded, which carries nothing out, and then the model is asked about the other task.
    scene.open();
    let (numbers, events): (Vec<_>, _) =
        (scene.recorded[3].cycles.iter().map(|cycle| cycle.number).collect(), &scene.recorded[3].run.events);
    assert_eq!((numbers, &events[..]), (vec![2, 3], &[EventName::Opened, EventName::Opened][..]));
    assert_eq!(replay(&scene.recording()), Ok(Report::Identical { steps: 4, cycles: 3 }));
}

#[test]
fn l34_a_commit_closes_one_cycle_and_opens_one() {
    let mut scene = reviewed();
    let first = scene.journal.add("write the first page", &["first"]);
    let second = scene.journal.add("write the second page", &["second"]);
    scene.open();
    scene.propose(&persist(first, Some("first"), "page one"));
    scene.open();
    scene.propose(&select(second));
    scene.say(AnswerVerdict::Approve);
    scene.journal.change(first, |task| task.description = "write the last page".to_owned());
    scene.chained = true;
    // D of the second cycle carries the third, which is closed at once; the fourth has to wait for the next commit.
    let step = scene.perform();
    let numbers = |step: &Step| step.closed.iter().chain(&step.state.cycle).map(|cycle| cycle.number).collect::<Vec<_>>();
    assert_eq!((numbers(&step), &step.next), (vec![2, 3], &Next::Open));
    let board = scene.journal.board();
    let facts = Facts { manifest: &scene.manifest, gate: &scene.gate, board: &board, answers: &[] };
    assert_eq!(step.clone().then_open(facts, scene.now), step);
    scene.open();
    assert_eq!(replay(&scene.recording()), Ok(Report::Identical { steps: scene.recorded.len(), cycles: 4 }));
}

#[test]
fn l34_every_beginning_of_a_recording_is_one() {
    let recording = story(false).recording();
    for steps in 1..=recording.states.len() {
        let states = recording.states[..steps].to_vec();
        let cycles = states[steps - 1].run.cycle;
        assert_eq!(replay(&Recording { states, ..recording.clone() }), Ok(Report::Identical { steps, cycles }));
    }
}

#[test]
fn l34_another_decision_is_found() {
    let rule = |recording: &mut Recording| {
        let decided = cycle_at(recording, EventName::Answered, 1).decided.as_mut().unwrap();
        decided.actions[0].decision.rule = "because".to_owned();
    };
    check(rule, 1, Point::B, "cycle.decided.actions[0].decision.rule");
    let verdict = |recording: &mut Recording| {
        cycle_at(recording, EventName::Opened, 2).opened.decision.as_mut().unwrap().verdict = Verdict::Deny;
    };
    check(verdict, 2, Point::A, "cycle.opened.decision.verdict");
}

#[test]
fn l34_another_operation_id_is_found() {
    let planned = |recording: &mut Recording| {
        cycle_at(recording, EventName::Answered, 1).decided.as_mut().unwrap().actions[0].operation_id = other_operation();
    };
    check(planned, 1, Point::B, "cycle.decided.actions[0].operation_id");
    let performed = |recording: &mut Recording| {
        cycle_at(recording, EventName::Performed, 1).decided.as_mut().unwrap().actions[0].operation_id = other_operation();
    };
    check(performed, 1, Point::D, "cycle.decided.actions[0].operation_id");
    let parked = |recording: &mut Recording| {
        let (state, _) = find(recording, EventName::Answered, 3);
        recording.states[state].run.parked[0].action.operation_id = other_operation();
    };
    for chained in [false, true] {
        let mut recording = story(chained).recording();
        parked(&mut recording);
        let Ok(Report::Diverged(divergence)) = replay(&recording) else { panic!("it differs") };
        // The row of the run is compared when its commit is complete, and that has opened the next cycle already.
        let (cycle, point) = if chained { (4, Point::A) } else { (3, Point::B) };
        let (expected, got) = (format!("\"{}\"", other_operation()), divergence.got.clone());
        let field = "run.parked[0].action.operation_id".to_owned();
        assert_eq!(divergence, Divergence { cycle, point, field, expected, got });
    }
}

#[test]
fn l34_another_state_is_found() {
    let tokens = |recording: &mut Recording| {
        let (state, _) = find(recording, EventName::Answered, 1);
        recording.states[state].run.tokens += 1;
    };
    check(tokens, 1, Point::B, "run.tokens");
    let status = |recording: &mut Recording| recording.states.last_mut().unwrap().run.status = RunStatus::Failed;
    check(status, 8, Point::B, "run.status");
    let begun = |recording: &mut Recording| recording.states[0].run.cycle = 1;
    check(begun, 0, Point::A, "run.cycle");
    let closed = |recording: &mut Recording| {
        cycle_at(recording, EventName::Performed, 1).closed.as_mut().unwrap().spent = Amounts::NONE;
    };
    check(closed, 1, Point::D, "cycle.closed.spent.cost_micros");
}

#[test]
fn l34_another_observation_is_found() {
    let first = |recording: &mut Recording, change: fn(&mut Seen)| {
        let closed = cycle_at(recording, EventName::Performed, 1).closed.as_mut().unwrap();
        change(&mut closed.observations[0].seen);
    };
    let version = |seen: &mut Seen| {
        let Seen::Committed { records } = seen else { panic!("it was committed") };
        records[0].version += 1;
    };
    check(|recording| first(recording, version), 1, Point::D, "cycle.decided.actions[0].code");
    check(|recording| first(recording, |seen| *seen = Seen::Unknown), 1, Point::D, "cycle.decided.actions[0].code");
    let elsewhere = |recording: &mut Recording| {
        cycle_at(recording, EventName::Performed, 1).closed.as_mut().unwrap().observations[0].operation_id = other_operation();
    };
    check(elsewhere, 1, Point::D, "step");
    let failure = |recording: &mut Recording| {
        cycle_at(recording, EventName::AskFailed, 4).closed.as_mut().unwrap().code = Some("script_ended".to_owned());
    };
    check(failure, 4, Point::D, "run.code");
}

#[test]
fn l34_another_input_leads_elsewhere_and_is_found_there() {
    let proposal = |recording: &mut Recording| {
        let decided = cycle_at(recording, EventName::Answered, 3).decided.as_mut().unwrap();
        let [Proposal::PersistArtifact { content, .. }] = &mut decided.decoded.as_mut().unwrap().proposals[..] else {
            panic!("one page")
        };
        content.push('!');
    };
    check(proposal, 3, Point::B, "cycle.decided.actions[0].act.content");
    let gate = |recording: &mut Recording| {
        let gate = cycle_at(recording, EventName::Answered, 1).decided.as_mut().unwrap().gate.as_mut().unwrap();
        gate.world.stopped.insert(SwitchSubject::Everything);
    };
    check(gate, 1, Point::B, "cycle.closed");
    let prompt = |recording: &mut Recording| {
        recording.manifest.prompt.push('!');
        0
    };
    check_damaged(prompt, "the manifest is not the one that the run was made of");
    let task = |recording: &mut Recording| recording.tasks[0].task.description.push('!');
    check(task, 1, Point::A, "cycle.opened.context.parts[3].bytes");
    let looked = |recording: &mut Recording| {
        let states = recording.states.iter_mut().filter_map(|recorded| recorded.run.looked.as_mut());
        states.filter(|looked| !looked.gate.world.stopped.is_empty()).for_each(|looked| looked.gate.world.stopped.clear());
    };
    check(looked, 5, Point::A, "run.asks");
    // The sixth cycle is the controller's own: what was approved is carried out, and what was not is put anew.
    let approval = |recording: &mut Recording| {
        let recorded = recording.states.iter_mut().find(|recorded| recorded.run.cycle == 6).unwrap();
        recorded.cycles[0].opened.answers[0].binds.as_mut().unwrap().policy_version = 0;
    };
    check(approval, 6, Point::A, "cycle.closed");
}

#[test]
fn l34_the_first_of_two_divergences_is_told() {
    let both = |recording: &mut Recording| {
        recording.states.last_mut().unwrap().run.tokens = 0;
        cycle_at(recording, EventName::Opened, 2).opened.reserved.tokens = 1;
    };
    check(both, 2, Point::A, "cycle.opened.reserved.tokens");
}

#[test]
fn l34_what_was_erased_is_not_judged() {
    for chained in [false, true] {
        let recording = story(chained).recording();
        let erased = |cycle| Ok(Report::Erased { cycle, what: "a task that the cycle saw".to_owned() });
        assert_eq!(replay(&Recording { tasks: vec![], ..recording.clone() }), erased(1));
        // The first task's second version was written by cycle 1 and seen by cycle 2.
        let kept = recording.tasks.iter().filter(|task| task.version == 1).cloned().collect();
        assert_eq!(replay(&Recording { tasks: kept, ..recording }), erased(2));
    }
}

#[test]
fn l34_a_run_of_other_rules_is_not_judged() {
    let mut recording = story(false).recording();
    recording.behaviour_version = BEHAVIOUR_VERSION + 1;
    recording.states.clear();
    assert_eq!(replay(&recording), Ok(Report::OtherBehaviour { recorded: BEHAVIOUR_VERSION + 1, known: BEHAVIOUR_VERSION }));
    // A run that says so itself differs from what these rules begin with.
    check(|recording| recording.states[0].run.behaviour_version += 1, 0, Point::A, "run.behaviour_version");
}

#[test]
fn l34_a_recording_that_does_not_hold_together_is_damaged() {
    check_damaged(
        |recording| {
            recording.states.clear();
            0
        },
        "there are no states",
    );
    let other = "it is not a recording of this run in this shape";
    check_damaged(
        |recording| {
            recording.schema += 1;
            0
        },
        other,
    );
    check_damaged(
        |recording| {
            recording.run_id = RunId::from_raw(RawId::from_bytes([99; 16]));
            0
        },
        other,
    );
    let without_cycles = |event, number| {
        move |recording: &mut Recording| {
            let (state, _) = find(recording, event, number);
            recording.states[state].cycles.clear();
            state
        }
    };
    check_damaged(without_cycles(EventName::Opened, 1), "the opened cycle is missing");
    check_damaged(without_cycles(EventName::Answered, 1), "the cycle is missing");
    check_damaged(without_cycles(EventName::Performed, 1), "the cycle is missing");
    check_damaged(without_cycles(EventName::AskFailed, 4), "the cycle is missing");
    let events = |place: usize, events: Vec<EventName>| {
        move |recording: &mut Recording| {
            recording.states[place].run.events = events.clone();
            place
        }
    };
    check_damaged(events(0, vec![]), "it names no event");
    check_damaged(events(2, vec![]), "it names no event");
    check_damaged(events(2, vec![EventName::Begun]), "an event that cannot stand here");
    check_damaged(events(2, vec![EventName::Answered, EventName::Cancelled]), "an event that cannot stand here");
    let without = |event, change: fn(&mut Cycle)| {
        move |recording: &mut Recording| {
            let (state, cycle) = find(recording, event, 1);
            change(&mut recording.states[state].cycles[cycle]);
            state
        }
    };
    check_damaged(without(EventName::Answered, |cycle| cycle.decided = None), "the cycle lacks the point");
    check_damaged(
        without(EventName::Answered, |cycle| cycle.decided.as_mut().unwrap().gate = None),
        "the gate of point B is missing",
    );
    check_damaged(without(EventName::Performed, |cycle| cycle.closed = None), "the cycle lacks the point");
}

#[test]
fn l34_a_point_that_is_left_out_is_found() {
    for chained in [false, true] {
        let recording = story(chained).recording();
        // A look that led to waiting leaves nothing behind that a later state would have to show.
        let wrote = |place: &usize| !recording.states[*place].cycles.is_empty();
        for left_out in (1..recording.states.len() - 1).filter(wrote) {
            let mut states = recording.states.clone();
            states.remove(left_out);
            let report = replay(&Recording { states, ..recording.clone() });
            assert!(!matches!(report, Ok(Report::Identical { .. })), "chained {chained}, without {left_out}");
        }
    }
}

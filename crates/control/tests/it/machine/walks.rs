//! Random walks: whatever happens in whatever order, a run keeps to its table, and its recording replays.

use std::collections::BTreeSet;

use control::action::Seen;
use control::cycle::AnswerVerdict;
use control::loop_state::LoopState;
use control::machine::{AskRef, Refusal, State};
use control::replay::{Report, replay};
use control::run::{EventName, Phase, RECENT_MAX, RunStatus};
use domain::code::ErrorCode;
use domain::limits::PARKED_MAX;
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::switch::SwitchSubject;
use domain::records::task::TaskStatus;
use proptest::prelude::*;

use crate::fuzzed::wire;
use crate::scene::{DAY_MS, Scene, ask, create, done, free, mail, outgoing, persist, reviewed, select};

/// Something that happens to a run or around it.
#[derive(Debug, Clone)]
enum Move {
    /// What comes next by the table: open, answer with the given text, or carry out.
    On(usize),
    Open,
    Answer {
        text: usize,
        back: (u32, u32),
    },
    Fail {
        code: ErrorCode,
        back: (u32, u32),
    },
    Perform,
    /// The world shows something else than what was done.
    Lie(usize),
    Cancel,
    Say(AnswerVerdict),
    Stop(bool),
    Pause(bool),
    Destroy,
    Spend(bool),
    Pass(i64),
    Edit {
        task: usize,
        status: TaskStatus,
    },
    Keep,
}

fn any_move() -> impl Strategy<Value = Move> {
    let code = prop::sample::select(vec![ErrorCode::LlmTimeout, ErrorCode::ScriptEnded]);
    let status = prop::sample::select(TaskStatus::ALL);
    prop_oneof![
        40 => (0..20_usize).prop_map(Move::On),
        4 => Just(Move::Open),
        2 => (0..20_usize, (0..2_u32, 0..2_u32)).prop_map(|(text, back)| Move::Answer { text, back }),
        2 => (code, (0..2_u32, 0..2_u32)).prop_map(|(code, back)| Move::Fail { code, back }),
        1 => Just(Move::Perform),
        2 => (0..3_usize).prop_map(Move::Lie),
        1 => Just(Move::Cancel),
        10 => prop::sample::select(AnswerVerdict::ALL).prop_map(Move::Say),
        3 => any::<bool>().prop_map(Move::Stop),
        2 => any::<bool>().prop_map(Move::Pause),
        1 => Just(Move::Destroy),
        3 => any::<bool>().prop_map(Move::Spend),
        4 => prop::sample::select(vec![1, 1_000, 60_000, DAY_MS, -DAY_MS]).prop_map(Move::Pass),
        4 => (0..3_usize, status).prop_map(|(task, status)| Move::Edit { task, status }),
        2 => Just(Move::Keep),
    ]
}

/// A model's answers, the useless ones included.
fn text(scene: &Scene, number: usize) -> String {
    let tasks: Vec<_> = scene.journal.tasks.keys().copied().collect();
    let task = tasks[number % tasks.len()];
    let proposal = match number % 10 {
        0 => create("another task to do"),
        1 => select(task),
        2 | 3 => persist(task, Some("page"), "a page"),
        4 => persist(task, None, "another page"),
        5 => mail(task, "you"),
        6 => ask("What shall I do now?"),
        7 if number > 10 => done(),
        7 => create("one more task to do"),
        8 => return "I have finished everything.".to_owned(),
        _ => return format!("{}{}", wire(&done()), wire(&done())),
    };
    wire(&proposal).to_string()
}

/// The phases that an event may lead to.
const fn leads(phase: Phase, event: EventName) -> &'static [Phase] {
    match (phase, event) {
        (Phase::Between | Phase::Asked, EventName::Opened) => &[Phase::Between, Phase::Asked, Phase::Planned],
        (Phase::Asked, EventName::Answered) => &[Phase::Between, Phase::Planned],
        (Phase::Asked, EventName::AskFailed) | (Phase::Planned, EventName::Performed) => &[Phase::Between],
        (Phase::Between, EventName::Cancelled) => &[Phase::Between],
        (Phase::Asked, EventName::Cancelled) => &[Phase::Asked],
        (Phase::Planned, EventName::Cancelled) => &[Phase::Planned],
        (_, EventName::Begun)
        | (Phase::Planned, EventName::Opened | EventName::Answered | EventName::AskFailed)
        | (Phase::Between, EventName::Answered | EventName::AskFailed | EventName::Performed)
        | (Phase::Asked, EventName::Performed) => &[],
    }
}

/// What holds from one state to the next, and in each.
fn check(before: &State, after: &State) -> Result<(), TestCaseError> {
    let (old, new) = (&before.run, &after.run);
    prop_assert!(!old.status.is_terminal(), "nothing follows an end");
    let reachable = new.events.iter().fold(BTreeSet::from([old.phase]), |phases, event| {
        phases.into_iter().flat_map(|phase| leads(phase, *event).iter().copied()).collect()
    });
    prop_assert!(reachable.contains(&new.phase), "{} to {} by {:?}", old.phase, new.phase, new.events);
    let opened = new.events.iter().filter(|event| **event == EventName::Opened).count();
    prop_assert!((old.cycle..=old.cycle + u32::try_from(opened).expect("a few")).contains(&new.cycle) && new.tokens >= old.tokens);
    prop_assert!(new.asks >= old.asks && new.asks <= new.cycle);
    prop_assert!(new.operations >= old.operations && new.active_ms >= old.active_ms && new.updated_at >= old.updated_at);
    prop_assert_eq!(new.waiting.is_some(), new.status == RunStatus::Waiting);
    prop_assert_eq!(new.running_since.is_some(), new.status == RunStatus::Running);
    prop_assert_eq!(new.ended_at.is_some(), new.status.is_terminal());
    prop_assert_eq!(new.reserved.is_some(), new.status == RunStatus::Running && new.phase != Phase::Between);
    prop_assert!(new.status != RunStatus::Waiting || new.phase != Phase::Planned);
    let labels: &[LoopState] = match (new.status, new.phase) {
        (RunStatus::Waiting, _) => &[LoopState::Idle],
        (_, Phase::Planned) => &[LoopState::Executing],
        // What ends a run that waits need not wake it first.
        _ if old.status == RunStatus::Waiting && new.status.is_terminal() => &[LoopState::Idle, LoopState::Planning],
        _ => &[LoopState::Planning],
    };
    prop_assert!(labels.contains(&new.label), "{} by {:?}", new.label, new.events);
    prop_assert!(new.code.is_some() == matches!(new.status, RunStatus::Failed | RunStatus::Cancelled));
    prop_assert!(!new.status.is_terminal() || new.parked.is_empty());
    prop_assert!(new.parked.len() <= PARKED_MAX && new.recent.len() <= RECENT_MAX);
    let looked =
        new.events.last() == Some(&EventName::Opened) && (opened > 1 || (old.cycle, old.attempt) == (new.cycle, new.attempt));
    prop_assert!(looked || new.looked.is_none(), "what a step saw is kept only if it opened nothing");
    let (number, attempt) = after.cycle.as_ref().map_or((0, 0), |cycle| (cycle.number, cycle.attempt));
    prop_assert_eq!((number, attempt), (new.cycle, new.attempt));
    Ok(())
}

impl Move {
    /// What the machine said, if it was asked.
    fn make(&self, scene: &mut Scene) -> Option<Result<(), Refusal>> {
        // The ask that is open, or an earlier one.
        let earlier = |back: &(u32, u32), AskRef { cycle, attempt }| AskRef {
            cycle: cycle.saturating_sub(back.0),
            attempt: attempt.saturating_sub(back.1),
        };
        match self {
            Self::On(number) => Some(match scene.run().phase {
                Phase::Between => scene.try_open().map(drop),
                Phase::Asked => scene.try_answer(&text(scene, *number), scene.ask()).map(drop),
                Phase::Planned => scene.observe(crate::journal::Journal::carry_out).map(drop),
            }),
            Self::Open => Some(scene.try_open().map(drop)),
            Self::Answer { text: number, back } => {
                Some(scene.try_answer(&text(scene, *number), earlier(back, scene.ask())).map(drop))
            }
            Self::Fail { code, back } => Some(scene.try_fail(*code, earlier(back, scene.ask())).map(drop)),
            Self::Perform => Some(scene.observe(crate::journal::Journal::carry_out).map(drop)),
            Self::Lie(number) => {
                let lies = [Seen::Unknown, Seen::Refused { code: "VERSION_CONFLICT".to_owned() }, Seen::Acknowledged];
                Some(scene.observe(|_, _| lies[*number].clone()).map(drop))
            }
            Self::Cancel if scene.run().status.is_terminal() => None,
            Self::Cancel => {
                scene.cancel();
                Some(Ok(()))
            }
            other => {
                other.happen(scene);
                None
            }
        }
    }

    /// What happens around the run.
    fn happen(&self, scene: &mut Scene) {
        let waits = !scene.run().parked.is_empty();
        let world = &mut scene.gate.world;
        match self {
            Self::Say(verdict) if waits => drop(scene.say(*verdict)),
            Self::Stop(true) => drop(world.stopped.insert(SwitchSubject::Everything)),
            Self::Stop(false) => world.stopped.clear(),
            Self::Pause(paused) => world.lifecycle = if *paused { AgentLifecycle::Dormant } else { AgentLifecycle::Active },
            Self::Destroy => world.lifecycle = AgentLifecycle::Destroyed,
            Self::Spend(true) => world.limits = Amounts::NONE,
            Self::Spend(false) => world.limits = scene.manifest.budget,
            Self::Pass(ms) => scene.pass(*ms),
            Self::Edit { task, status } => {
                let id = *scene.journal.tasks.keys().nth(*task % scene.journal.tasks.len()).expect("there are tasks");
                scene.journal.change(id, |task| task.status = *status);
            }
            Self::Keep => scene.journal.keep("page"),
            _ => {}
        }
    }
}

fn walk(mut scene: Scene, chained: bool, moves: &[Move]) -> Result<Scene, TestCaseError> {
    scene.chained = chained;
    for task_keys in [&[][..], &["page"], &["page", "other"]] {
        scene.journal.add("write a page or two", task_keys);
    }
    for step in moves {
        let before = scene.state.clone();
        match step.make(&mut scene) {
            Some(Ok(())) => check(&before, &scene.state)?,
            Some(Err(refusal)) => {
                prop_assert_eq!(&scene.state, &before, "a refusal changes nothing");
                prop_assert_eq!(refusal == Refusal::Ended, before.run.status.is_terminal());
            }
            None => prop_assert_eq!(&scene.state, &before),
        }
    }
    Ok(scene)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn k18_l34_whatever_happens_a_run_keeps_to_its_table_and_replays(
        kind in 0..3_usize,
        chained in any::<bool>(),
        moves in prop::collection::vec(any_move(), 1..60),
    ) {
        let scene = match kind {
            0 => reviewed(),
            1 => free(),
            _ => outgoing(),
        };
        let scene = walk(scene, chained, &moves)?;
        let report = Report::Identical { steps: scene.recorded.len(), cycles: scene.run().cycle };
        prop_assert_eq!(replay(&scene.recording()), Ok(report));
    }
}

/// That the walks above go somewhere: each ending, each reason to wait and each event occurs in them.
#[test]
fn the_walks_reach_every_part_of_the_table() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngSeed, TestRunner};

    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() });
    let mut seen = BTreeSet::new();
    for number in 0..300 {
        let scene = if number % 2 == 0 { reviewed() } else { free() };
        let moves = prop::collection::vec(any_move(), 1..60).new_tree(&mut runner).expect("it can be drawn").current();
        let scene = walk(scene, number % 4 < 2, &moves).expect("it keeps to its table");
        for recorded in &scene.recorded {
            let waiting = recorded.run.waiting.as_ref().map_or("", |waiting| waiting.reason.as_str());
            let events: Vec<_> = recorded.run.events.iter().map(|event| event.as_str()).collect();
            seen.extend([recorded.run.status.as_str().to_owned(), waiting.to_owned(), events.join("+")]);
            seen.extend(recorded.cycles.iter().flat_map(control::cycle::Cycle::actions).map(|action| action.state.to_string()));
        }
    }
    let expected = [
        "running",
        "waiting",
        "succeeded",
        "failed",
        "cancelled",
        "people",
        "budget",
        "stopped",
        "paused",
        "backoff",
        "begun",
        "opened",
        "answered",
        "ask_failed",
        "performed",
        "cancelled",
        "answered+opened",
        "performed+opened",
        "planned",
        "parked",
        "refused",
        "done",
        "in_doubt",
        "superseded",
    ];
    let missing: Vec<_> = expected.iter().filter(|name| !seen.contains(**name)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

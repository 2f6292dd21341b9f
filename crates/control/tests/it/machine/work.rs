//! What becomes of proposals: plans, evidence, verification, and that nobody's word makes a task done.

use control::action::{Action, ActionState, Effect, Seen};
use control::board::Evidence;
use control::cycle::CycleKind;
use control::machine::{Ask, Next, Wish};
use control::proposal::Proposal;
use control::run::{RunStatus, WaitReason};
use domain::code::ErrorCode;
use domain::entry::Actor;
use domain::id::{MessageId, RawId, TaskId};
use domain::record::Record;
use domain::records::artifact::{Artifact, ArtifactSource};
use domain::records::budget::Amounts;
use domain::records::message::{AgentMessageKind, Message};
use domain::records::task::{Task, TaskStatus};
use domain::records::wrappers::{ActionEnvelope, ActionType, AgentMessageMetadata, ToolStatus};
use policy::{Layer, Verdict};

use crate::journal::{Journal, context};
use crate::scene::{Scene, create, done, free, mail, outgoing, owner, persist, select};

/// The kinds, versions and bodies of the only action's writes, and its evidence.
fn writes(action: &Action) -> (Vec<(&str, u64)>, &[Evidence]) {
    let Effect::Journal { writes, evidence } = &action.effect else { panic!("not for the journal: {:?}", action.effect) };
    (writes.iter().map(|write| (write.kind.as_str(), write.expected_version)).collect(), evidence)
}

/// One cycle that is answered with this proposal, up to its plan.
fn plan(scene: &mut Scene, proposal: &Proposal) {
    scene.open();
    scene.propose(proposal);
}

/// The only action was refused for this reason, and nothing was done.
#[track_caller]
fn check_refused(scene: &mut Scene, proposal: &Proposal, code: ErrorCode) {
    let before = scene.journal.clone();
    plan(scene, proposal);
    let action = scene.action();
    assert_eq!((action.state, action.code.as_deref()), (ActionState::Refused, Some(code.as_str())), "{proposal:?}");
    assert_eq!((action.decision.verdict, action.decision.code), (Verdict::Deny, Some(code)));
    assert_eq!((&scene.journal, scene.run().status, scene.open_items().len()), (&before, RunStatus::Running, 0));
}

#[test]
fn d15_a_model_that_says_it_is_done_has_done_nothing() {
    let (mut scene, id) = free().with_task();
    let before = scene.journal.clone();
    scene.open();
    scene.propose(&done());
    assert_eq!((scene.run().status, scene.run().operations), (RunStatus::Succeeded, 0));
    assert_eq!((scene.journal.status(id), &scene.journal), (TaskStatus::Pending, &before));
}

#[test]
fn d6_a_created_task_is_pending_and_the_agents() {
    let mut scene = free();
    plan(&mut scene, &create("another task to do"));
    assert_eq!(writes(scene.action()), (vec![("task", 0)], &[][..]));
    let (planned_at, operation) = (scene.action().planned_at, scene.action().operation_id);
    scene.perform();
    let id = TaskId::from_raw(operation.created("task", 0));
    let expect = Task {
        description: "another task to do".to_owned(),
        status: TaskStatus::Pending,
        preconditions: [].into(),
        required_effects: vec![],
        category: None,
        blocked_reason: None,
        created_by: Actor::Agent(scene.run().agent_id),
        created_at: planned_at,
        updated_at: planned_at,
        completed_at: None,
        completed_by: None,
    };
    assert_eq!(scene.journal.tasks, [(id, (1, expect))].into());
    assert_eq!((scene.action().state, scene.run().operations), (ActionState::Done, 1));
}

#[test]
fn d6_a_task_is_done_only_with_all_its_effects_and_their_evidence() {
    let mut scene = free();
    let id = scene.journal.add("write two pages", &["first", "second"]);
    plan(&mut scene, &persist(id, Some("first"), "page one"));
    assert_eq!(writes(scene.action()), (vec![("artifact", 0), ("task", 1)], &[][..]));
    scene.perform();
    assert_eq!(scene.journal.status(id), TaskStatus::InProgress);
    // The same page again changes the page and leaves the task where it is.
    plan(&mut scene, &persist(id, Some("first"), "page one, better"));
    assert_eq!(writes(scene.action()), (vec![("artifact", 1)], &[][..]));
    scene.perform();
    assert_eq!(scene.journal.status(id), TaskStatus::InProgress);
    // A page that nobody asked for does not count.
    plan(&mut scene, &persist(id, Some("third"), "page three"));
    assert_eq!(writes(scene.action()), (vec![("artifact", 0)], &[][..]));
    scene.perform();
    assert_eq!(scene.journal.status(id), TaskStatus::InProgress);
    plan(&mut scene, &persist(id, Some("second"), "page two"));
    let evidence = [Evidence { artifact_id: context("first"), version: 2 }];
    assert_eq!(writes(scene.action()), (vec![("artifact", 0), ("task", 2)], &evidence[..]));
    scene.perform();
    assert_eq!(scene.journal.status(id), TaskStatus::Done);
    assert_eq!(scene.journal.tasks[&id].1.completed_at, Some(scene.action().planned_at));
    scene.open();
    assert_eq!((scene.run().status, scene.run().operations), (RunStatus::Succeeded, 4));
}

#[test]
fn d6_a_task_that_requires_nothing_is_done_with_its_first_artifact() {
    let (mut scene, id) = free().with_task();
    plan(&mut scene, &persist(id, None, "a page"));
    assert_eq!(writes(scene.action()), (vec![("artifact", 0), ("task", 1)], &[][..]));
    scene.perform();
    assert_eq!(scene.journal.status(id), TaskStatus::Done);
}

#[test]
fn d10_an_artifact_says_whose_it_is_and_who_allowed_it() {
    let (mut scene, id) = free().with_task();
    plan(&mut scene, &persist(id, Some("page"), "a page"));
    let at = scene.action().planned_at;
    scene.perform();
    let expect = Artifact {
        artifact_type: crate::journal::slug("context"),
        artifact_key: Some("page".to_owned()),
        source: ArtifactSource::Agent,
        content: "a page".to_owned(),
        task_id: Some(id),
        approved_by: Some(owner()),
        created_at: at,
        updated_at: at,
    };
    assert_eq!(scene.journal.artifacts, [(context("page"), (1, expect))].into());
}

#[test]
fn d6_evidence_that_has_gone_keeps_the_task_open() {
    let mut scene = free();
    let id = scene.journal.add("write two pages", &["first", "second"]);
    scene.journal.keep("first");
    plan(&mut scene, &persist(id, Some("second"), "page two"));
    scene.journal.artifacts.remove(&context("first"));
    scene.perform();
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Failed, Some("guard_failed")));
    assert_eq!((scene.journal.status(id), scene.journal.artifacts.len()), (TaskStatus::Pending, 0));
    assert_eq!((scene.run().status, scene.run().operations), (RunStatus::Running, 0));
}

#[test]
fn d6_the_controller_completes_what_people_have_fulfilled_without_asking_a_model() {
    let mut scene = free();
    let id = scene.journal.add("write two pages", &["first", "second"]);
    scene.journal.keep("first");
    scene.journal.keep("second");
    let step = scene.open();
    assert_eq!((step.next, scene.cycle().opened.kind), (Next::Perform, CycleKind::Controller));
    let evidence = ["first", "second"].map(|key| Evidence { artifact_id: context(key), version: 1 });
    assert_eq!((scene.action().tool.as_str(), writes(scene.action())), ("complete_task", (vec![("task", 1)], &evidence[..])));
    let reserved = Amounts { tool_calls: 1, ..Amounts::NONE };
    assert_eq!(step.wishes, [Wish::Reserve { day: "2026-01-05".to_owned(), amounts: reserved }]);
    scene.perform();
    assert_eq!((scene.journal.status(id), scene.run().tokens), (TaskStatus::Done, 0));
    scene.open();
    assert_eq!((scene.run().status, scene.run().cycle), (RunStatus::Succeeded, 1));
}

#[test]
fn d6_a_task_without_any_evidence_is_not_fulfilled() {
    let (scene, _) = free().with_task();
    let fact = scene.journal.board().tasks.remove(0);
    assert_eq!((fact.evidence.as_slice(), fact.is_fulfilled()), (&[None][..], false));
    assert!(!control::board::TaskFact { evidence: vec![], ..fact }.is_fulfilled());
}

#[test]
fn d6_half_of_the_effects_complete_nothing() {
    let mut scene = free();
    scene.journal.add("write two pages", &["first", "second"]);
    scene.journal.keep("second");
    scene.open();
    assert_eq!((scene.cycle().opened.kind, scene.cycle().actions().len()), (CycleKind::Ask, 0));
}

#[test]
fn d6_a_task_that_waits_for_another_is_not_completed_before_it() {
    let mut scene = free();
    let first = scene.journal.add("the first of two", &["first"]);
    let second = scene.journal.add("the second of two", &["second"]);
    scene.journal.change(second, |task| task.preconditions = [first].into());
    scene.journal.keep("second");
    scene.open();
    assert_eq!(scene.cycle().opened.kind, CycleKind::Ask);
    scene.propose(&persist(first, Some("first"), "page one"));
    scene.perform();
    scene.open();
    assert_eq!((scene.cycle().opened.kind, scene.action().task_id), (CycleKind::Controller, Some(second)));
}

#[test]
fn d6_only_an_eligible_task_is_worked_on() {
    let mut scene = free();
    let first = scene.journal.add("the first of two", &[]);
    let second = scene.journal.add("the second of two", &[]);
    scene.journal.change(second, |task| task.preconditions = [first].into());
    for proposal in [select(second), persist(second, None, "a page")] {
        check_refused(&mut scene, &proposal, ErrorCode::TaskNotEligible);
    }
    scene.journal.change(second, |task| {
        task.preconditions.clear();
        task.status = TaskStatus::Blocked;
    });
    check_refused(&mut scene, &select(second), ErrorCode::TaskNotEligible);
}

#[test]
fn d6_a_run_goes_on_with_a_task_that_another_one_has_begun() {
    let (mut scene, id) = free().with_task();
    scene.journal.change(id, |task| task.status = TaskStatus::InProgress);
    let current =
        |ask: &Ask| ask.sections.iter().find(|section| section.name == "current_task").map(|section| section.text.clone());
    let step = scene.open();
    let Next::Ask(ask) = &step.next else { panic!("{:?}", step.next) };
    // It is listed, but it is not this run's task until this run has chosen it.
    assert_eq!(current(ask).as_deref(), Some("null"));
    scene.propose(&select(id));
    assert_eq!((scene.action().state, &scene.action().effect), (ActionState::Planned, &Effect::Nothing));
    scene.perform();
    assert_eq!((scene.run().task_id, scene.run().operations), (Some(id), 1));
    let step = scene.open();
    let Next::Ask(ask) = &step.next else { panic!("{:?}", step.next) };
    assert!(current(ask).is_some_and(|text| text.contains(&id.to_string())));
}

#[test]
fn l22_an_uncertain_target_is_refused() {
    let (mut scene, id) = free().with_task();
    let nobody = TaskId::from_raw(RawId::from_bytes([99; 16]));
    for proposal in [select(nobody), persist(nobody, None, "a page"), mail(nobody, "you")] {
        check_refused(&mut scene, &proposal, ErrorCode::UnsafeTarget);
    }
    let after = Proposal::CreateTask {
        description: "after what is not there".to_owned(),
        preconditions: vec![id, nobody],
        justification: String::new(),
    };
    check_refused(&mut scene, &after, ErrorCode::UnsafeTarget);
    // A task that is done is no longer open.
    let other = scene.journal.add("another one", &[]);
    scene.journal.change(other, |task| task.status = TaskStatus::Done);
    check_refused(&mut scene, &select(other), ErrorCode::UnsafeTarget);
}

#[test]
fn d4_what_there_is_no_tool_for_is_refused() {
    let (mut scene, id) = free().with_task();
    check_refused(&mut scene, &mail(id, "you"), ErrorCode::UnknownTool);
    let analysis = Proposal::AnalyzeLeads {
        task_id: id,
        analysis_type: control::proposal::AnalysisType::Prioritize,
        parameters: serde_json::Map::new(),
    };
    check_refused(&mut scene, &analysis, ErrorCode::UnknownTool);
    let poem = Proposal::PersistArtifact {
        task_id: id,
        artifact_type: "poem".to_owned(),
        artifact_key: None,
        content: "roses".to_owned(),
    };
    check_refused(&mut scene, &poem, ErrorCode::ProposalInvalid);
    // The manifest does not name it, the world does not either.
    scene.manifest.tools.remove("select_next_task");
    scene.gate.world.tools.remove("select_next_task");
    check_refused(&mut scene, &select(id), ErrorCode::UnknownTool);
    assert_eq!(scene.action().decision.layer, Some(Layer::Capability));
}

#[test]
fn k16_another_workspace_is_refused() {
    let (mut scene, id) = free().with_task();
    scene.gate.world.workspace = domain::id::WorkspaceId::of_slug("other");
    check_refused(&mut scene, &select(id), ErrorCode::CrossWorkspaceRejected);
    let (mut scene, id) = free().with_task();
    scene.gate.world.kinds.remove(&crate::journal::slug("artifact"));
    check_refused(&mut scene, &persist(id, None, "a page"), ErrorCode::ScopeViolation);
}

#[test]
fn d3_what_the_store_does_not_hold_was_not_done() {
    let lies: [fn(Seen) -> Seen; 5] = [
        |seen| with_records(seen, |records| records[0].body_hash = domain::hash::plain(b"something else")),
        |seen| with_records(seen, |records| records[1].version += 1),
        |seen| with_records(seen, |records| drop(records.pop())),
        |seen| with_records(seen, |records| records.extend(records.clone())),
        |_| Seen::Acknowledged,
    ];
    for lie in lies {
        let (mut scene, id) = free().with_task();
        plan(&mut scene, &persist(id, Some("page"), "a page"));
        scene.observe(|journal, action| lie(journal.carry_out(action))).unwrap();
        let run = scene.run();
        assert_eq!((run.status, run.code.as_deref(), run.operations), (RunStatus::Failed, Some("verification_failed"), 0));
        assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Failed, Some("verification_failed")));
    }
}

fn with_records(seen: Seen, change: impl FnOnce(&mut Vec<control::action::SeenRecord>)) -> Seen {
    let Seen::Committed { mut records } = seen else { panic!("it was committed") };
    change(&mut records);
    Seen::Committed { records }
}

#[test]
fn k14_a_task_that_changed_meanwhile_is_not_overwritten() {
    let (mut scene, id) = free().with_task();
    plan(&mut scene, &select(id));
    scene.journal.change(id, |task| task.description = "write the second page".to_owned());
    let before = scene.journal.clone();
    scene.perform();
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Failed, Some("VERSION_CONFLICT")));
    assert_eq!((&scene.journal, scene.run().status), (&before, RunStatus::Running));
    // The next cycle sees the new version and may try again, under another name.
    let first = scene.action().operation_id;
    plan(&mut scene, &select(id));
    assert_ne!(scene.action().operation_id, first);
    scene.perform();
    assert_eq!(scene.journal.status(id), TaskStatus::InProgress);
}

#[test]
fn l20_each_cycle_names_its_operations_anew_and_always_the_same() {
    let names = || {
        let mut scene = free();
        let mut named = || {
            plan(&mut scene, &create("the same task again"));
            scene.perform();
            scene.action().operation_id
        };
        [named(), named(), named()]
    };
    let [first, second, third] = names();
    assert!(first != second && second != third && first != third);
    assert_eq!(names(), [first, second, third]);
}

#[test]
fn l24_what_the_outside_says_decides_what_became_of_a_call() {
    let check = |seen: Seen, state: ActionState, code: Option<&str>, operations: u32| {
        let (mut scene, id) = outgoing().with_task();
        scene.manifest.mode = policy::Mode::Yolo;
        plan(&mut scene, &mail(id, "you"));
        let parameters = [("to".to_owned(), serde_json::json!("you"))].into_iter().collect();
        let expect = Effect::Outside { service: "mailer".to_owned(), parameters, honours_keys: false };
        assert_eq!((scene.action().state, &scene.action().effect), (ActionState::Planned, &expect));
        scene.observe(|_, _| seen.clone()).unwrap();
        assert_eq!((scene.action().state, scene.action().code.as_deref()), (state, code));
        assert_eq!((scene.run().operations, scene.run().status), (operations, RunStatus::Running));
        assert_eq!(scene.run().recent.last().map(|recent| recent.result.as_str()), Some(code.unwrap_or("done")));
    };
    check(Seen::Acknowledged, ActionState::Done, None, 1);
    check(Seen::Refused { code: "LLM_TIMEOUT".to_owned() }, ActionState::Failed, Some("LLM_TIMEOUT"), 0);
    check(Seen::Unknown, ActionState::InDoubt, Some("in_doubt"), 0);
}

#[test]
fn l23_every_action_leaves_a_call_and_its_result_in_the_thread() {
    let (mut scene, id) = free().with_task();
    plan(&mut scene, &select(id));
    scene.perform();
    let task = &scene.journal.tasks[&id].1;
    assert_eq!((task.status, task.completed_at, task.completed_by), (TaskStatus::InProgress, None, None));
    let (action, run) = (scene.action(), scene.run());
    let ids = [0, 1].map(|k| MessageId::from_raw(action.operation_id.created(Message::SPEC.kind, k)));
    let message = |kind, prev_message_id, metadata| Message {
        agent_id: run.agent_id,
        thread_id: format!("{}:run:{}", run.agent_id, run.wake_ids[0]),
        kind,
        created_at: scene.now,
        prev_message_id,
        content_entry_id: None,
        trigger_source_id: None,
        summary_start_message_id: None,
        summary_end_message_id: None,
        summary_depth: 0,
        tokens_approx: 0,
        metadata,
    };
    let call = AgentMessageMetadata {
        operation_id: Some(action.operation_id),
        action: Some(ActionEnvelope {
            action_type: ActionType::ToolCall,
            tool_name: Some("select_next_task".to_owned()),
            operation_id: action.operation_id,
            arguments_hash: action.arguments_hash,
            scope_snapshot: vec![],
        }),
        ..AgentMessageMetadata::default()
    };
    let result = AgentMessageMetadata {
        action_ref_id: Some(ids[0]),
        operation_id: Some(action.operation_id),
        status: Some(ToolStatus::Success),
        changed_entity_ids: vec![id.to_string()],
        changed_tokens: vec![domain::token::Token::entity_id(&id.to_string()).unwrap().to_string()],
        ..AgentMessageMetadata::default()
    };
    let expect = [
        (ids[0], message(AgentMessageKind::Action, None, call)),
        (ids[1], message(AgentMessageKind::ToolResult, Some(ids[0]), result)),
    ];
    assert_eq!(scene.messages, expect.into());
    assert_eq!(run.last_message, Some(ids[1]));
}

#[test]
fn k11_bodies_are_dropped_once_the_journal_has_them() {
    let (mut scene, id) = free().with_task();
    plan(&mut scene, &persist(id, Some("page"), "a page"));
    let bodies = |scene: &Scene| match &scene.action().effect {
        Effect::Journal { writes, .. } => writes.iter().map(|write| write.body.is_some()).collect::<Vec<_>>(),
        other => panic!("not for the journal: {other:?}"),
    };
    assert_eq!(bodies(&scene), [true, true]);
    scene.perform();
    assert_eq!(bodies(&scene), [false, false]);
}

#[test]
fn l31_an_action_carries_the_fences_that_it_was_decided_under() {
    let (mut scene, id) = free().with_task();
    scene.open();
    scene.gate.fences = [("switch/everything".to_owned(), 5), ("switch/tools/task".to_owned(), 2)].into();
    scene.propose(&select(id));
    let fences: Vec<_> = scene.action().fences.iter().map(|fence| (fence.subject.as_str(), fence.epoch)).collect();
    assert_eq!(fences, [("switch/everything", 5), ("switch/tools/task", 2)]);
    let decided = scene.cycle().decided.as_ref().and_then(|decided| decided.gate.as_ref());
    assert_eq!(decided.map(|gate| &gate.fences), Some(&scene.gate.fences));
}

#[test]
fn d15_a_model_that_names_a_finished_task_finds_it_gone() {
    let (mut scene, id) = free().with_task();
    scene.journal.add("another one", &["page"]);
    plan(&mut scene, &persist(id, None, "a page"));
    scene.perform();
    check_refused(&mut scene, &persist(id, None, "the page once more"), ErrorCode::UnsafeTarget);
}

#[test]
fn d9_the_next_ask_is_made_of_the_store_alone() {
    let shown = |rehydrate: bool| {
        let (mut scene, id) = free().with_task();
        scene.journal.add("another one", &["page"]);
        plan(&mut scene, &select(id));
        scene.perform();
        if rehydrate {
            // Whatever the process remembered is gone; rows and journal are read again.
            let run = control::run::Run::from_body(scene.run().to_body().unwrap().text()).unwrap();
            scene.state = control::machine::State { run, cycle: scene.state.cycle.clone() };
            scene.journal = Journal { tasks: scene.journal.tasks.clone(), artifacts: scene.journal.artifacts.clone() };
        }
        scene.open()
    };
    assert_eq!(shown(false), shown(true));
}

#[test]
fn d6_a_run_whose_only_task_waits_for_a_person_waits_with_it() {
    let (mut scene, id) = crate::scene::reviewed().with_task();
    plan(&mut scene, &persist(id, None, "a page"));
    scene.open();
    let waiting = scene.run().waiting.as_ref().map(|waiting| (waiting.reason, waiting.until));
    assert_eq!((scene.run().status, waiting), (RunStatus::Waiting, Some((WaitReason::People, None))));
}

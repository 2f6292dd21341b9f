//! Actions that need a person: parked, approved, denied, expired, superseded.

use control::action::{Action, ActionState, Effect, Observation, Seen};
use control::cycle::{AnswerFact, AnswerVerdict, CycleKind};
use control::machine::{Next, Refusal, Wish};
use control::proposal::Proposal;
use control::run::{RunStatus, WaitReason};
use domain::id::{PromptItemId, RawId, TaskId};
use domain::limits::PARKED_MAX;
use domain::record::Record;
use domain::records::artifact::Artifact;
use domain::records::budget::Amounts;
use domain::records::prompt::{Gated, InteractionType, PromptItem, PromptState};
use domain::records::switch::SwitchSubject;
use domain::records::task::TaskStatus;
use domain::time::Timestamp;
use policy::POLICY_VERSION;

use crate::journal::context;
use crate::scene::{DAY_MS, STEP_MS, Scene, ask, create, done, owner, persist, reviewed, select};

/// A run that has asked to keep a page, and waits.
fn waiting() -> (Scene, TaskId, Action) {
    let (mut scene, id) = reviewed().with_task();
    scene.open();
    scene.propose(&persist(id, Some("page"), "a page"));
    let action = scene.run().parked[0].action.clone();
    scene.open();
    assert_eq!(scene.run().waiting.as_ref().map(|waiting| waiting.reason), Some(WaitReason::People));
    (scene, id, action)
}

/// What the next asks are told, without the cycle.
fn told(scene: &Scene) -> Vec<(&str, &str, &str)> {
    scene.run().recent.iter().map(|recent| (recent.what.as_str(), recent.result.as_str(), recent.words.as_str())).collect()
}

#[test]
fn l36_what_needs_a_person_is_parked_with_a_preview_and_what_it_gates() {
    let (mut scene, id) = reviewed().with_task();
    scene.open();
    let step = scene.propose(&persist(id, Some("page"), "a page"));
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Parked, Some("confirmation_required")));
    let parked = &scene.run().parked[0];
    assert_eq!((parked.item, parked.cycle), (PromptItemId::of_operation(&scene.action().operation_id), 1));
    // The run keeps what it may have to plan again; the cycle's record does not need it.
    assert_eq!((&parked.action.proposal, &scene.action().proposal), (&Some(persist(id, Some("page"), "a page")), &None));
    let item = PromptItem {
        agent_id: scene.run().agent_id,
        run_id: scene.run().id(),
        run_key: scene.run().run_key,
        interaction_type: InteractionType::YesNo,
        prompt_text: "change task, done: write the first page\nnew artifact context `page`, 6 bytes:\n    a page".to_owned(),
        options: vec![],
        gates: Some(Gated {
            operation_id: scene.action().operation_id,
            tool: "persist_artifact".to_owned(),
            arguments_hash: parked.action.content().unwrap(),
            policy_version: POLICY_VERSION,
        }),
        status: PromptState::Open,
        created_at: scene.now,
        required_by: Timestamp::from_ms(scene.now.as_ms() + DAY_MS),
        resolved_at: None,
    };
    assert_eq!(step.wishes[0], Wish::OpenPrompt { id: parked.item, item });
    assert_eq!(
        (step.next, scene.run().status, told(&scene)),
        (Next::Open, RunStatus::Running, vec![("persist_artifact", "pending_approval", "")])
    );
    assert_eq!(scene.journal.artifacts.len(), 0);
}

#[test]
fn l22_an_approval_executes_the_stored_row_under_its_first_operation_id() {
    let (mut scene, id, parked) = waiting();
    scene.say(AnswerVerdict::Approve);
    let step = scene.open();
    assert_eq!((step.next, scene.cycle().opened.kind, scene.cycle().number), (Next::Perform, CycleKind::Controller, 2));
    let action = scene.action().clone();
    assert_eq!((action.state, action.approved_by, action.operation_id), (ActionState::Planned, Some(owner()), parked.operation_id));
    assert_eq!(
        (action.arguments_hash, &action.targets, action.planned_at),
        (parked.arguments_hash, &parked.targets, parked.planned_at)
    );
    scene.perform();
    let artifact = &scene.journal.artifacts[&context("page")];
    let kept = (artifact.0, artifact.1.content.as_str(), artifact.1.approved_by, artifact.1.created_at);
    assert_eq!(kept, (1, "a page", Some(owner()), parked.planned_at));
    assert_eq!((scene.journal.status(id), scene.run().operations, scene.run().parked.len()), (TaskStatus::Done, 1, 0));
    // No model was asked, and nobody is asked again.
    assert_eq!((scene.run().tokens, scene.prompts.len()), (crate::scene::SPENT.tokens, 1));
    scene.open();
    assert_eq!(scene.run().status, RunStatus::Succeeded);
}

#[test]
fn l22_an_approval_of_something_else_executes_nothing_and_asks_anew() {
    let changes: [fn(&mut Gated); 3] = [
        |binds| binds.arguments_hash = domain::hash::plain(b"something else"),
        |binds| binds.tool = "generate_message".to_owned(),
        |binds| binds.policy_version = POLICY_VERSION + 1,
    ];
    let spoilt = changes.map(|change| {
        let spoil = move |answer: &mut AnswerFact| change(answer.binds.as_mut().unwrap());
        Box::new(spoil) as Box<dyn Fn(&mut AnswerFact)>
    });
    for spoil in spoilt.into_iter().chain([Box::new(|answer: &mut AnswerFact| answer.binds = None) as Box<dyn Fn(&mut AnswerFact)>])
    {
        let (mut scene, _, parked) = waiting();
        let first = scene.say(AnswerVerdict::Approve);
        spoil(&mut scene.answers[0]);
        scene.open();
        let states: Vec<_> = scene.cycle().actions().iter().map(|action| (action.operation_id, action.state)).collect();
        let again = scene.run().parked[0].clone();
        assert_eq!(states, [(parked.operation_id, ActionState::Superseded), (again.action.operation_id, ActionState::Parked)]);
        assert_ne!((again.item, again.action.operation_id), (first, parked.operation_id));
        assert_eq!((scene.journal.artifacts.len(), scene.run().operations), (0, 0));
        // The new question is a question like any other.
        scene.open();
        scene.say(AnswerVerdict::Approve);
        scene.open();
        scene.perform();
        assert_eq!((scene.journal.artifacts.len(), scene.run().operations), (1, 1));
    }
}

#[test]
fn l22_a_row_whose_base_went_stale_is_superseded_by_a_new_one() {
    let (mut scene, id, parked) = waiting();
    let first = scene.say(AnswerVerdict::Approve);
    scene.journal.change(id, |task| task.description = "write the second page".to_owned());
    let step = scene.open();
    let [old, new] = scene.cycle().actions() else { panic!("two rows") };
    assert_eq!(
        (old.operation_id, old.state, old.code.as_deref()),
        (parked.operation_id, ActionState::Superseded, Some("superseded"))
    );
    assert_eq!((new.state, new.arguments_hash, new.targets[0].version), (ActionState::Parked, parked.arguments_hash, 2));
    assert_ne!(new.operation_id, old.operation_id);
    let second = PromptItemId::of_operation(&new.operation_id);
    let opened: Vec<_> =
        step.wishes.iter().filter_map(|wish| if let Wish::OpenPrompt { id, .. } = wish { Some(*id) } else { None }).collect();
    assert_eq!((opened, scene.run().parked[0].item), (vec![second], second));
    assert!(scene.prompts[&second].prompt_text.starts_with("change task, done: write the second page\n"));
    assert_ne!(first, second);
    // Nothing was carried out, so nothing was spent, and the new row is executed when it is approved.
    assert_eq!(scene.cycle().closed.as_ref().map(|closed| closed.spent), Some(Amounts::NONE));
    scene.open();
    scene.say(AnswerVerdict::Approve);
    scene.open();
    assert_eq!(scene.action().operation_id, scene.prompts[&second].gates.as_ref().unwrap().operation_id);
    scene.perform();
    assert_eq!((scene.journal.status(id), scene.journal.artifacts.len()), (TaskStatus::Done, 1));
}

#[test]
fn l22_a_row_whose_task_is_gone_is_superseded_by_nothing() {
    let (mut scene, id, parked) = waiting();
    scene.say(AnswerVerdict::Approve);
    scene.journal.change(id, |task| task.status = TaskStatus::Done);
    scene.open();
    let states: Vec<_> = scene.cycle().actions().iter().map(|action| (action.state, action.code.as_deref())).collect();
    assert_eq!(states, [(ActionState::Superseded, Some("superseded")), (ActionState::Refused, Some("unsafe_target"))]);
    assert_eq!((scene.cycle().actions()[0].operation_id, scene.prompts.len()), (parked.operation_id, 1));
    scene.open();
    assert_eq!(scene.run().status, RunStatus::Succeeded);
}

#[test]
fn l22_what_a_person_denied_is_not_asked_again() {
    let (mut scene, id, parked) = waiting();
    scene.say(AnswerVerdict::Deny);
    let step = scene.open();
    assert!(matches!(step.next, Next::Ask(_)), "the model is told, and asked for something else");
    assert_eq!(told(&scene).last(), Some(&("persist_artifact", "denied_by_person", "as you like")));
    assert_eq!(scene.run().denied, parked.content().into_iter().collect());
    scene.propose(&persist(id, Some("page"), "a page"));
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Refused, Some("denied_by_person")));
    assert_eq!((scene.prompts.len(), scene.run().parked.len()), (1, 0));
    // Something else may be asked, and so may the same on another state of the task.
    scene.open();
    scene.propose(&persist(id, Some("page"), "a better page"));
    assert_eq!((scene.action().state, scene.prompts.len()), (ActionState::Parked, 2));
    scene.open();
    scene.say(AnswerVerdict::Deny);
    scene.journal.change(id, |task| task.description = "write the second page".to_owned());
    scene.open();
    scene.propose(&persist(id, Some("page"), "a page"));
    assert_eq!((scene.action().state, scene.prompts.len()), (ActionState::Parked, 3));
}

#[test]
fn l36_what_waits_already_is_not_asked_twice() {
    let (mut scene, id) = reviewed().with_task();
    scene.journal.add("another one", &["other"]);
    scene.open();
    scene.propose(&persist(id, Some("page"), "a page"));
    scene.open();
    scene.propose(&persist(id, Some("page"), "a page"));
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Refused, Some("pending_approval")));
    assert_eq!((scene.prompts.len(), scene.run().parked.len()), (1, 1));
}

#[test]
fn l36_an_item_that_expired_is_told_and_gone() {
    let (mut scene, id, _) = waiting();
    scene.say(AnswerVerdict::Expired);
    scene.open();
    assert_eq!(told(&scene).last(), Some(&("persist_artifact", "prompt_expired", "as you like")));
    assert_eq!((scene.run().parked.len(), scene.run().denied.len(), scene.journal.artifacts.len()), (0, 0, 0));
    // Nobody has said no: it may be asked once more.
    scene.propose(&persist(id, Some("page"), "a page"));
    assert_eq!((scene.action().state, scene.prompts.len()), (ActionState::Parked, 2));
}

#[test]
fn l36_a_question_is_put_once_and_its_answer_is_told() {
    let (mut scene, _) = reviewed().with_task();
    let options = vec!["red".to_owned(), "blue".to_owned()];
    let question = Proposal::RequestUserInput {
        task_id: None,
        question: "Which colour shall it be?".to_owned(),
        options: options.clone(),
        context: String::new(),
    };
    scene.open();
    scene.propose(&question);
    let item = scene.run().parked[0].item;
    let put = &scene.prompts[&item];
    assert_eq!(
        (put.interaction_type, put.prompt_text.as_str(), &put.options),
        (InteractionType::MultiChoice, "Which colour shall it be?", &options)
    );
    assert_eq!((&put.gates, scene.action().state), (&None, ActionState::Parked));
    scene.open();
    scene.propose(&question);
    assert_eq!((scene.action().code.as_deref(), scene.prompts.len()), (Some("pending_approval"), 1));
    scene.open();
    scene.propose(&done());
    assert_eq!(scene.run().waiting.as_ref().map(|waiting| waiting.reason), Some(WaitReason::People));
    scene.say(AnswerVerdict::Reply);
    let step = scene.open();
    assert_eq!(told(&scene).last(), Some(&("request_user_input", "answered", "as you like")));
    let Next::Ask(ask) = step.next else { panic!("it goes on") };
    let recent = ask.sections.iter().find(|section| section.name == "recent").unwrap();
    assert!(recent.text.contains("as you like"), "{}", recent.text);
}

#[test]
fn l36_a_yes_to_a_plain_question_lets_nothing_happen() {
    let (mut scene, _) = reviewed().with_task();
    scene.open();
    scene.propose(&ask("May I do what I like?"));
    scene.say(AnswerVerdict::Approve);
    scene.open();
    assert_eq!(
        (scene.action().state, &scene.action().effect.clone()),
        (ActionState::Superseded, &question("May I do what I like?"))
    );
    assert_eq!((scene.run().parked.len(), scene.run().operations), (0, 0));
}

fn question(text: &str) -> Effect {
    Effect::Question { question: text.to_owned(), options: vec![] }
}

#[test]
fn l36_a_run_goes_on_while_something_waits() {
    let (mut scene, id) = reviewed().with_task();
    let other = scene.journal.add("another one", &["other"]);
    scene.open();
    scene.propose(&persist(id, Some("page"), "a page"));
    assert!(matches!(scene.open().next, Next::Ask(_)));
    scene.propose(&select(other));
    scene.perform();
    assert_eq!((scene.journal.status(other), scene.run().parked.len()), (TaskStatus::InProgress, 1));
}

#[test]
fn l36_several_answers_resume_a_run_once() {
    let (mut scene, first) = reviewed().with_task();
    let second = scene.journal.add("another one", &[]);
    let mut items = Vec::new();
    for (id, key) in [(first, "page"), (second, "other")] {
        scene.open();
        scene.propose(&persist(id, Some(key), "a page"));
        items.push(scene.run().parked.last().unwrap().item);
    }
    scene.open();
    for (item, verdict) in items.iter().zip([AnswerVerdict::Approve, AnswerVerdict::Approve]) {
        let binds = scene.prompts[item].gates.clone();
        scene.answers.push(AnswerFact { item: *item, verdict, by: owner(), text: String::new(), binds });
    }
    scene.open();
    let states: Vec<_> = scene.cycle().actions().iter().map(|action| action.state).collect();
    assert_eq!((states, scene.cycle().opened.reserved.tool_calls), (vec![ActionState::Planned, ActionState::Planned], 2));
    // Half of what was carried out closes no plan.
    let operation_id = scene.cycle().actions()[0].operation_id;
    let half = vec![Observation { operation_id, seen: Seen::Unknown }];
    assert_eq!(scene.close(half), Err(Refusal::Stale));
    scene.perform();
    assert_eq!((scene.journal.artifacts.len(), scene.run().operations, scene.run().parked.len()), (2, 2, 0));
    // They were used: the run has nothing left to do, whatever is delivered again.
    scene.open();
    assert_eq!(scene.run().status, RunStatus::Succeeded);
}

#[test]
fn l36_an_answer_to_somebody_else_wakes_nobody() {
    let (mut scene, _, _) = waiting();
    let before = scene.state.clone();
    assert_eq!(scene.try_open(), Err(Refusal::NotYet));
    let board = scene.journal.board();
    let item = PromptItemId::from_raw(RawId::from_bytes([77; 16]));
    let stranger = AnswerFact { item, verdict: AnswerVerdict::Approve, by: owner(), text: String::new(), binds: None };
    let facts = control::machine::Facts { manifest: &scene.manifest, gate: &scene.gate, board: &board, answers: &[stranger] };
    let taken = control::machine::step(&scene.state, control::machine::Event::Open(facts), scene.now);
    assert_eq!((taken, &scene.state), (Err(Refusal::NotYet), &before));
}

#[test]
fn l36_a_person_is_asked_only_so_much() {
    let mut scene = reviewed();
    for number in 0..PARKED_MAX {
        // With an empty board only the first ask is made while something waits.
        scene.journal.add(&format!("page number {number}"), &["nothing"]);
    }
    let last = scene.journal.add("one page too many", &["nothing"]);
    scene.journal.add("something to work on", &["nothing"]);
    for number in 0..=PARKED_MAX {
        scene.open();
        scene.propose(&create(&format!("task number {number}")));
    }
    assert_eq!((scene.action().state, scene.action().code.as_deref()), (ActionState::Refused, Some("LOOP_LIMIT")));
    assert_eq!((scene.run().parked.len(), scene.prompts.len()), (PARKED_MAX, PARKED_MAX));
    assert_eq!(scene.journal.status(last), TaskStatus::Pending);
}

#[test]
fn l30_an_approved_action_waits_for_the_budget_and_is_not_lost() {
    for limits in [Amounts::NONE, Amounts { tool_calls: 0, ..reviewed().manifest.budget }] {
        let (mut scene, id, parked) = waiting();
        scene.say(AnswerVerdict::Approve);
        let plenty = std::mem::replace(&mut scene.gate.world.limits, limits);
        scene.open();
        assert_eq!(scene.run().waiting.as_ref().map(|waiting| waiting.reason), Some(WaitReason::Budget));
        assert_eq!((scene.run().parked.len(), scene.run().cycle, scene.run().operations), (1, 1, 0));
        scene.gate.world.limits = plenty;
        scene.open();
        assert_eq!((scene.action().operation_id, scene.action().state), (parked.operation_id, ActionState::Planned));
        scene.perform();
        assert_eq!(scene.journal.status(id), TaskStatus::Done);
    }
}

#[test]
fn l31_an_approval_under_a_stop_executes_nothing_until_it_is_released() {
    let (mut scene, id, parked) = waiting();
    scene.say(AnswerVerdict::Approve);
    let before = scene.state.clone();
    scene.gate.world.stopped = [SwitchSubject::Tools(crate::journal::slug("artifact"))].into();
    // The switch stops this class of tools and not the agent: the row is decided again by every layer, and keeps its yes.
    assert_eq!(scene.try_open(), Err(Refusal::NotYet));
    assert_eq!((&scene.state, scene.journal.artifacts.len()), (&before, 0));
    scene.gate.world.stopped.clear();
    scene.open();
    assert_eq!((scene.action().operation_id, scene.action().state), (parked.operation_id, ActionState::Planned));
    scene.perform();
    assert_eq!((scene.journal.status(id), scene.journal.artifacts.len()), (TaskStatus::Done, 1));
}

#[test]
fn d6_one_plan_moves_a_task_once() {
    let mut scene = reviewed();
    let id = scene.journal.add("write a page", &["page"]);
    scene.open();
    scene.propose(&persist(id, Some("page"), "a page"));
    scene.open();
    // While it waits, a person writes the page, and then approves the agent's.
    scene.journal.keep("page");
    scene.say(AnswerVerdict::Approve);
    scene.open();
    // The yes was for a page that was not there: the question is put again, and meanwhile the person's page is what the task required.
    let states: Vec<_> = scene.cycle().actions().iter().map(|action| (action.tool.as_str(), action.state)).collect();
    let (persist, complete) = ("persist_artifact", "complete_task");
    let expected = [(persist, ActionState::Superseded), (persist, ActionState::Parked), (complete, ActionState::Planned)];
    assert_eq!(states, expected);
    scene.perform();
    assert_eq!(
        (scene.journal.status(id), scene.journal.artifacts[&context("page")].1.content.as_str()),
        (TaskStatus::Done, "by hand")
    );
}

#[test]
fn l36_what_a_run_leaves_open_is_withdrawn_when_it_ends() {
    let (mut scene, _, _) = waiting();
    let item = scene.run().parked[0].item;
    let step = scene.cancel();
    assert_eq!(step.wishes, [Wish::ClosePrompt { id: item, state: PromptState::Withdrawn }]);
    assert_eq!((scene.run().status, scene.run().parked.len()), (RunStatus::Cancelled, 0));
}

#[test]
fn l22_the_stored_row_keeps_its_bytes_while_it_waits() {
    let (mut scene, _, parked) = waiting();
    scene.pass(DAY_MS - 10 * STEP_MS);
    scene.say(AnswerVerdict::Approve);
    scene.open();
    let bodies = |action: &Action| match &action.effect {
        Effect::Journal { writes, .. } => writes.iter().map(|write| write.body.clone().unwrap()).collect::<Vec<_>>(),
        other => panic!("not for the journal: {other:?}"),
    };
    let (stored, planned) = (bodies(&parked), bodies(scene.action()));
    // Only who allowed it has been added.
    let artifact = Artifact { approved_by: Some(owner()), ..Artifact::from_body(&stored[0]).unwrap() };
    assert_eq!(planned, [artifact.to_body().unwrap().text().to_owned(), stored[1].clone()]);
}

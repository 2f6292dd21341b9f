//! What people say to runs: answers to their questions, a cancel, a stop and its release.

use control::cycle::Cycle;
use control::machine::{Event, State, step};
use control::run::{Run, RunStatus};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Expected, Write};
use domain::entry::Actor;
use domain::id::{OperationId, PromptItemId, PromptResponseId, RunId, WakeId, WorkspaceId};
use domain::key::RunKey;
use domain::limits::PERSON_TEXT_BYTES_MAX;
use domain::plant::{self, Bug};
use domain::record::{Record, Value};
use domain::records::fence::Fence;
use domain::records::lease::Lease;
use domain::records::prompt::{PromptItem, PromptResponse, PromptState, Verdict};
use domain::records::switch::{Switch, SwitchSubject};
use domain::records::wake::{Wake, WakeReason, WakeState};
use domain::time::Timestamp;
use serde_json::json;
use store::store::Scan;

use crate::engine::point::Context;
use crate::house::{Held, House, expecting, held, put};
use crate::operation::{ClientKey, owner};
use crate::{Error, Result};

/// LIMIT: characters of an earlier answer that a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// Where a stop is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    pub subject: SwitchSubject,
    pub epoch: u64,
    /// Domains in which it is on disk.
    pub durable: Vec<Domain>,
    /// Domains in which it holds until this process ends, and why it could not be written there.
    pub only_in_memory: Vec<(Domain, Error)>,
    /// It had been done before under the same key, and nothing was done now: it may have been released since.
    pub repeated: bool,
}

impl House {
    /// A person's answer to a question. The first one counts.
    pub fn answer(&mut self, id: PromptItemId, verdict: Verdict, text: &str, key: &ClientKey) -> Result<()> {
        check_text("text", text)?;
        let operation_id = key.operation_id();
        let request = json!({ "command": "inbox.answer", "id": id, "verdict": verdict, "text": text });
        let known: Option<Held<PromptItem>> = self.held(Domain::Agent, &id.raw())?;
        let item = known.ok_or_else(|| Error::new(ErrorCode::PromptNotFound, format!("there is no {id}")))?;
        let repeat = self.read(Domain::Agent, |snapshot| Ok(snapshot.outcome(&operation_id)?.is_some()))?;
        let now = self.now();
        let response_id = PromptResponseId::of_item(&id);
        if !repeat {
            let first: Option<Held<PromptResponse>> = self.held(Domain::Agent, &response_id.raw())?;
            answerable(&item.record, first.map(|held| held.record).as_ref(), verdict, id, now)?;
        }
        let PromptItem { agent_id, run_id, run_key, gates, .. } = item.record.clone();
        let response = PromptResponse {
            prompt_item_id: id,
            agent_id,
            run_key,
            verdict,
            text: text.to_owned(),
            binds: gates.filter(|_| verdict == Verdict::Approve),
            responded_by: owner(),
            responded_at: now,
        };
        let answered = PromptItem { status: PromptState::Answered, resolved_at: Some(now), ..item.record };
        let wake_key = RunKey::answer(&agent_id, &id.raw(), Some(&response_id.raw()));
        let writes = vec![
            put(&answered, id.raw(), item.workspace, Expected::Version(item.version))?,
            put(&response, response_id.raw(), item.workspace, Expected::Absent)?,
            answer_wake(wake_key, agent_id, run_id, now)?,
        ];
        self.act(Domain::Agent, owner(), operation_id, &request, Vec::new(), writes)?;
        Ok(())
    }

    /// Closes every question that nobody answered in time; each expiry wakes its run.
    pub fn expire(&mut self) -> Result<usize> {
        let now = self.now();
        let mut scan = Scan::new(PromptItem::SPEC, "by_status");
        scan.prefix = vec![Value::from(PromptState::Open.as_str())];
        scan.to = Some(Value::Integer(now.as_ms().saturating_add(1)));
        let rows = self.page(Domain::Agent, &scan)?.rows;
        for row in &rows {
            let Some(Held { record, version, workspace }) = held::<PromptItem>(row)? else { continue };
            let id = PromptItemId::from_raw(row.id);
            let (agent_id, run_id) = (record.agent_id, record.run_id);
            let expired = PromptItem { status: PromptState::Expired, resolved_at: Some(now), ..record };
            let key = RunKey::answer(&agent_id, &row.id, None);
            let writes =
                vec![put(&expired, row.id, workspace, Expected::Version(version))?, answer_wake(key, agent_id, run_id, now)?];
            let operation_id = OperationId::of_client(&Actor::System, &format!("expire {id}"));
            self.act(Domain::Agent, Actor::System, operation_id, &json!(["expire", id]), Vec::new(), writes)?;
        }
        Ok(rows.len())
    }

    /// Ends a run: at once if it waits, at its next point if it is at work, before it begins if it is queued.
    pub fn cancel(&mut self, run_id: RunId, key: &ClientKey) -> Result<RunStatus> {
        let request = json!({ "command": "run.cancel", "id": run_id });
        let operation_id = key.operation_id();
        let Some(held) = self.held::<Run>(Domain::Agent, &run_id.raw())? else {
            return self.cancel_queued(run_id, operation_id, &request);
        };
        let cycle: Option<Cycle> = self.newest_cycle(&held.record)?;
        let state = State { run: held.record.clone(), cycle };
        let Ok(taken) = step(&state, Event::Cancel, self.now()) else {
            let message = format!("{run_id} has ended: {}", held.record.status);
            return Err(Error::new(ErrorCode::RunEnded, message));
        };
        let context = Context { version: Some(held.version), before: Some(&state.run), gate: None };
        let reader = self.reader(Domain::Agent);
        let agent = reader.read()?;
        let mut commit = self.point(agent.as_ref(), &taken, &context)?;
        drop(agent);
        // A person's act belongs to no life of the process, and is named by the person.
        commit.guards.clear();
        commit.cause.depth = 0;
        if !taken.state.run.status.is_terminal() {
            commit.writes.retain(|write| write.spec != Lease::SPEC);
        }
        commit.operation_id = operation_id;
        commit.request = crate::house::canonical(&request)?;
        commit.actor = owner();
        self.place(Domain::Agent).commit(commit)?;
        Ok(taken.state.run.status)
    }

    fn cancel_queued(&mut self, run_id: RunId, operation_id: OperationId, request: &serde_json::Value) -> Result<RunStatus> {
        let missing = || Error::new(ErrorCode::RunNotFound, format!("there is no {run_id}"));
        let id = WakeId::from_raw(run_id.raw());
        let wake: Option<Held<Wake>> = self.held(Domain::Agent, &id.raw())?;
        let wake = wake.ok_or_else(missing)?;
        if wake.record.status != WakeState::Waiting {
            return Err(Error::new(ErrorCode::RunEnded, format!("{run_id} is not queued any more: {}", wake.record.status)));
        }
        let code = Some(ErrorCode::Cancelled.as_str().to_owned());
        let ended = Wake { status: WakeState::FailedTerminal, code, ended_at: Some(self.now()), ..wake.record };
        let write = put(&ended, id.raw(), wake.workspace, Expected::Version(wake.version))?;
        self.act(Domain::Agent, owner(), operation_id, request, Vec::new(), vec![write])?;
        Ok(RunStatus::Cancelled)
    }

    /// Throws a switch. It acts in memory first, then in each domain; what could not be written is said.
    pub fn stop(&mut self, subject: &SwitchSubject, reason: &str, key: &ClientKey) -> Result<Stopped> {
        check_text("reason", reason)?;
        let repeated = self.was_done(Domain::Agent, key)?;
        let known: Option<Held<Switch>> = self.held(Domain::Agent, &subject.row_id())?;
        let is_stopped = known.as_ref().is_some_and(|held| held.record.stopped);
        if repeated {
            // The store compares the requests and never looks at this write.
            let write = switch_write(subject, true, 0, reason, known.as_ref(), self.now())?;
            self.act(Domain::Agent, owner(), key.operation_id(), &stop_request(subject, reason), Vec::new(), vec![write])?;
        }
        if repeated && !is_stopped {
            // Released since. No fence is raised: one without its switch would keep out work that nobody has stopped.
            return Ok(Stopped { subject: subject.clone(), epoch: 0, durable: Vec::new(), only_in_memory: Vec::new(), repeated });
        }
        let fence = subject.fence();
        let mut epoch = 0;
        for domain in Domain::ALL {
            epoch = epoch.max(self.fence_epoch(*domain, &fence)?);
        }
        let epoch = if is_stopped { epoch } else { epoch + 1 };
        let mut stopped = Stopped { subject: subject.clone(), epoch, durable: Vec::new(), only_in_memory: Vec::new(), repeated };
        for domain in Domain::ALL {
            self.place(*domain).fence(&fence, epoch);
        }
        for domain in Domain::ALL {
            if plant::is(Bug::FenceMissingInJournal) && *domain == Domain::Journal {
                continue;
            }
            let written = match domain {
                Domain::Agent => self.write_stop(subject, epoch, reason, known.as_ref(), key),
                Domain::Journal | Domain::Ledger => self.raise_fence(*domain, &fence, epoch),
            };
            match written {
                Ok(()) => stopped.durable.push(*domain),
                Err(error) => stopped.only_in_memory.push((*domain, error)),
            }
        }
        Ok(stopped)
    }

    /// The switch and its fence in one commit of the agent domain.
    fn write_stop(
        &mut self,
        subject: &SwitchSubject,
        epoch: u64,
        reason: &str,
        known: Option<&Held<Switch>>,
        key: &ClientKey,
    ) -> Result<()> {
        if known.is_some_and(|held| held.record.stopped) {
            return self.raise_fence(Domain::Agent, &subject.fence(), epoch);
        }
        let now = self.now();
        let mut writes = vec![switch_write(subject, true, epoch, reason, known, now)?];
        let fence: Option<Held<Fence>> = self.held(Domain::Agent, &Fence::id_of(&subject.fence()))?;
        if fence.as_ref().is_none_or(|held| held.record.epoch < epoch) {
            let raised = Fence { subject: subject.fence(), epoch, raised_at: now };
            let expected = expecting(fence.map(|held| held.version));
            writes.push(put(&raised, Fence::id_of(&subject.fence()), WorkspaceId::NONE, expected)?);
        }
        self.act(Domain::Agent, owner(), key.operation_id(), &stop_request(subject, reason), Vec::new(), writes)?;
        Ok(())
    }

    /// Releases a switch. Work that was decided before the stop stays out; new work is decided anew.
    pub fn release(&mut self, subject: &SwitchSubject, key: &ClientKey) -> Result<bool> {
        let known: Option<Held<Switch>> = self.held(Domain::Agent, &subject.row_id())?;
        let repeat = self.was_done(Domain::Agent, key)?;
        let Some(held) = known.filter(|held| held.record.stopped || repeat) else { return Ok(false) };
        let write = switch_write(subject, false, held.record.epoch, "", Some(&held), self.now())?;
        let request = json!({ "command": "stop.release", "subject": subject });
        self.act(Domain::Agent, owner(), key.operation_id(), &request, Vec::new(), vec![write])?;
        Ok(true)
    }
}

fn stop_request(subject: &SwitchSubject, reason: &str) -> serde_json::Value {
    json!({ "command": "stop", "subject": subject, "reason": reason })
}

/// What a person says to a run has a bound and cannot drive a terminal.
fn check_text(name: &str, text: &str) -> Result<()> {
    let control = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if text.len() > PERSON_TEXT_BYTES_MAX || text.chars().any(control) {
        let rule = format!("it has at most {PERSON_TEXT_BYTES_MAX} bytes and no control characters");
        return Err(Error::argument(name, &rule));
    }
    Ok(())
}

fn switch_write(
    subject: &SwitchSubject,
    stopped: bool,
    epoch: u64,
    reason: &str,
    known: Option<&Held<Switch>>,
    changed_at: Timestamp,
) -> Result<Write> {
    let (reason, changed_by) = (reason.to_owned(), owner());
    let switch = Switch { subject: subject.clone(), stopped, epoch, reason, changed_by, changed_at };
    put(&switch, subject.row_id(), WorkspaceId::NONE, expecting(known.map(|held| held.version)))
}

fn answerable(item: &PromptItem, first: Option<&PromptResponse>, verdict: Verdict, id: PromptItemId, now: Timestamp) -> Result<()> {
    if item.status == PromptState::Expired || (item.status == PromptState::Open && item.required_by <= now) {
        return Err(Error::new(ErrorCode::PromptExpired, format!("{id} expired at {}", item.required_by)));
    }
    if item.status != PromptState::Open {
        return Err(Error::new(ErrorCode::PromptClosed, format!("{id} takes no answer any more: {}", closed(item, first))));
    }
    let fits = match verdict {
        Verdict::Approve => item.gates.is_some(),
        Verdict::Reply => item.gates.is_none(),
        Verdict::Deny => true,
    };
    if fits {
        return Ok(());
    }
    let rule =
        if item.gates.is_some() { "an act waits for it: approve or deny it" } else { "it is a question: reply to it, or deny it" };
    Err(Error::argument(verdict.as_str(), &format!("{id}: {rule}")))
}

/// How and when an item came to its end.
fn closed(item: &PromptItem, first: Option<&PromptResponse>) -> String {
    let how = match first.map(|response| (response.verdict, response.text.as_str())) {
        Some((Verdict::Approve, _)) => "it was approved".to_owned(),
        Some((Verdict::Deny, _)) => "it was denied".to_owned(),
        Some((Verdict::Reply, text)) => format!("it was answered with `{}`", shortened(text)),
        None => format!("it is {}", item.status),
    };
    item.resolved_at.map_or_else(|| how.clone(), |at| format!("{how} at {at}"))
}

/// The beginning of a text, on one line.
fn shortened(text: &str) -> String {
    let line: String = text.chars().take(SHOWN_CHARS_MAX).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() { format!("{line}…") } else { line }
}

/// An answer is a wake addressed to the run that asked.
fn answer_wake(run_key: RunKey, agent_id: domain::id::AgentId, run_id: RunId, created_at: Timestamp) -> Result<Write> {
    let wake = Wake {
        agent_id,
        run_key,
        reason: WakeReason::Answer,
        status: WakeState::Waiting,
        run_id: Some(run_id),
        cause_depth: 0,
        code: None,
        created_at,
        ended_at: None,
    };
    put(&wake, WakeId::of_key(&run_key).raw(), WorkspaceId::NONE, Expected::Absent)
}

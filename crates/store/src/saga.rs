//! Operations that touch the journal and the agent domain: journal first, then agent, and the same answer after any crash.
//!
//! Three commits under one operation id: the intent in the agent domain (a saga row that holds both sides' writes), the effect in the
//! journal, the outcome in the agent domain (which also removes the saga row). Whoever opens the stores finishes what is left:
//! if the journal has the operation, the outcome is written; if not, the effect is ours and is repeated. Each commit names the
//! other domain's durable head, so a cut in either file is found.

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Cause, Change, Commit, Committed, Expected, Guard, Write};
use domain::entry::{Actor, Head, Witness};
use domain::id::{OperationId, RawId, WorkspaceId};
use domain::record::{Body, Record, Spec};
use domain::records::saga::{PlannedGuard, PlannedWrite, Saga, SagaPhase};
use domain::time::Timestamp;

use crate::store::{Reader, Row, Scan};
use crate::{Error, Result};

/// A place to commit to: the actor's handle in production, the bare store in a simulator.
pub trait Committer {
    fn commit(&mut self, commit: Commit) -> Result<Committed>;
    fn heads(&mut self) -> Result<Vec<Head>>;
    fn with_reader(&self, read: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()>;
}

impl Committer for crate::actor::Writer {
    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        Self::commit(self, commit)
    }

    fn heads(&mut self) -> Result<Vec<Head>> {
        Self::heads(self)
    }

    fn with_reader(&self, read: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        read(self.reader().as_ref())
    }
}

impl<S: crate::store::Store> Committer for S {
    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        let result = self.apply_group(std::slice::from_ref(&commit)).pop();
        result.expect("a group of one has one result")
    }

    fn heads(&mut self) -> Result<Vec<Head>> {
        crate::store::Store::heads(self)
    }

    fn with_reader(&self, read: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        read(self.reader().as_ref())
    }
}

/// Both sides of an operation, decided before anything is written.
#[derive(Debug, Clone)]
pub struct Plan {
    pub operation_id: OperationId,
    pub request: String,
    pub actor: Actor,
    pub cause: Cause,
    /// Checked with the intent and with the effect, each guard where its record lives. What already happened is recorded even if
    /// they no longer hold.
    pub guards: Vec<Guard>,
    pub journal: Vec<Write>,
    /// Written when the journal has committed.
    pub agent: Vec<Write>,
    /// Written instead when the journal has refused.
    pub agent_if_refused: Vec<Write>,
}

/// How an operation ended, in both domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Done(Committed),
    /// The journal's refusal, recorded in the agent domain.
    Refused(ErrorCode),
    /// The journal has answered, but the agent domain refuses to record it, with this code. The saga row stays for a person.
    Stuck(ErrorCode),
}

/// What a recovery found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Operations that it finished.
    pub finished: usize,
    /// Operations that the journal has, but the agent domain refuses to record. They stay for a person to look at.
    pub stuck: usize,
}

/// A saga row with the version that the next write to it expects.
struct Open {
    saga: Saga,
    version: u64,
}

/// Carries out an operation. Repeating it with the same plan is harmless.
pub fn run(journal: &mut dyn Committer, agent: &mut dyn Committer, plan: &Plan, now: Timestamp) -> Result<Ending> {
    let row_id = Saga::row_id(&plan.operation_id);
    let saga = Saga {
        operation_id: plan.operation_id,
        phase: SagaPhase::JournalPending,
        last_error: None,
        actor: plan.actor,
        run_key: plan.cause.run_key,
        source_event: plan.cause.source_event,
        cause_depth: plan.cause.depth,
        request: plan.request.clone(),
        guards: guards_in(Domain::Journal, &plan.guards).iter().map(planned_guard).collect::<Result<_>>()?,
        journal: plan.journal.iter().map(planned).collect::<Result<_>>()?,
        agent: plan.agent.iter().map(planned).collect::<Result<_>>()?,
        agent_if_refused: plan.agent_if_refused.iter().map(planned).collect::<Result<_>>()?,
        updated_at: now,
    };
    let write = saga_write(&saga, Expected::Absent)?;
    let guards = guards_in(Domain::Agent, &plan.guards);
    let intent = agent.commit(agent_commit(&saga, plan.operation_id.part("intent"), vec![write], guards, Vec::new()))?;
    if !intent.repeated {
        return advance(journal, agent, &Open { saga, version: 1 });
    }
    match stored(agent, &row_id)? {
        Some(open) if open.saga.request != plan.request => Err(Error::OperationIdReused { operation_id: plan.operation_id }),
        // What was decided first is carried out, even if the same request has led to another plan since.
        Some(open) => advance(journal, agent, &open),
        None => finished(journal, agent, &saga),
    }
}

/// Finishes every operation that a crash left open.
pub fn recover(journal: &mut dyn Committer, agent: &mut dyn Committer) -> Result<Recovered> {
    let mut found = Vec::new();
    agent.with_reader(&mut |reader| {
        let snapshot = reader.read()?;
        let mut scan = Scan::new(Saga::SPEC, "by_updated");
        loop {
            let page = snapshot.scan(&scan)?;
            for row in &page.rows {
                found.extend(open_row(row)?);
            }
            let Some(next) = page.next else { return Ok(()) };
            scan.after = Some(next);
        }
    })?;
    let mut recovered = Recovered::default();
    for open in &found {
        match advance(journal, agent, open)? {
            Ending::Done(_) | Ending::Refused(_) => recovered.finished += 1,
            // One operation that cannot be finished must not keep the home from opening.
            Ending::Stuck(_) => recovered.stuck += 1,
        }
    }
    Ok(recovered)
}

/// From the durable intent to the durable outcome. An effect that the journal has already is found by its id whatever the guards
/// say; one that it has not is carried out only if they still hold.
fn advance(journal: &mut dyn Committer, agent: &mut dyn Committer, open: &Open) -> Result<Ending> {
    let saga = &open.saga;
    // From here on something is durable, so a failure never means that nothing was written.
    let unknown = |error: Error| match error {
        refusal if refusal.is_refusal() => refusal,
        failure => Error::CommitUnknown { domain: Domain::Journal, operation_id: saga.operation_id, message: failure.to_string() },
    };
    let heads = witnesses(Domain::Agent, agent.heads().map_err(unknown)?);
    let guards = saga.guards.iter().map(guard_of).collect::<Result<_>>()?;
    let effect = match journal.commit(commit_of(saga, saga.operation_id, writes_of(&saga.journal)?, guards, heads)) {
        Err(failure) if !failure.is_refusal() => return Err(unknown(failure)),
        answered => answered,
    };
    let mut outcome = writes_of(if effect.is_ok() { &saga.agent } else { &saga.agent_if_refused })?;
    outcome.push(Write {
        spec: Saga::SPEC,
        id: Saga::row_id(&saga.operation_id),
        workspace: WorkspaceId::NONE,
        expected: Expected::Version(open.version),
        change: Change::Tombstone,
    });
    let heads = witnesses(Domain::Journal, journal.heads().map_err(unknown)?);
    let ended_id = match &effect {
        Ok(_) => outcome_id(&saga.operation_id),
        Err(refusal) => refusal_id(&saga.operation_id, refusal.code()),
    };
    match agent.commit(agent_commit(saga, ended_id, outcome, Vec::new(), heads)) {
        Ok(_) => {}
        // Another attempt at the same operation was quicker; its ending is the ending.
        Err(Error::VersionConflict { kind, .. }) if kind == Saga::SPEC.kind => return finished(journal, agent, saga),
        Err(refusal) if refusal.is_refusal() => {
            mark_stuck(agent, open, &refusal).map_err(unknown)?;
            return Ok(Ending::Stuck(refusal.code()));
        }
        Err(failure) => return Err(unknown(failure)),
    }
    match effect {
        Ok(committed) => Ok(Ending::Done(committed)),
        Err(refusal) => Ok(Ending::Refused(refusal.code())),
    }
}

/// Writes down that the outcome could not be recorded, once.
fn mark_stuck(agent: &mut dyn Committer, open: &Open, refusal: &Error) -> Result<()> {
    if open.saga.phase == SagaPhase::AgentRefused {
        return Ok(());
    }
    let last_error = Some(refusal.code().as_str().to_owned());
    let saga = Saga { phase: SagaPhase::AgentRefused, last_error, ..open.saga.clone() };
    let write = saga_write(&saga, Expected::Version(open.version))?;
    agent.commit(agent_commit(&saga, saga.operation_id.part("stuck"), vec![write], Vec::new(), Vec::new())).map(|_| ())
}

/// How an operation ended that is no longer open: the same answer as the first time.
fn finished(journal: &mut dyn Committer, agent: &dyn Committer, saga: &Saga) -> Result<Ending> {
    let operation_id = &saga.operation_id;
    if outcome_of(agent, &outcome_id(operation_id))?.is_some() {
        // The journal has it: it compares the requests and answers with the first outcome.
        let writes = writes_of(&saga.journal)?;
        return journal.commit(commit_of(saga, *operation_id, writes, Vec::new(), Vec::new())).map(Ending::Done);
    }
    for code in ErrorCode::ALL {
        if outcome_of(agent, &refusal_id(operation_id, *code))?.is_some() {
            return Ok(Ending::Refused(*code));
        }
    }
    Err(Error::Unreadable(format!("operation {operation_id} has an intent, but neither a saga row nor an outcome")))
}

fn outcome_id(operation_id: &OperationId) -> OperationId {
    operation_id.part("outcome")
}

/// An outcome holds no text, so its id says which refusal it was.
fn refusal_id(operation_id: &OperationId, code: ErrorCode) -> OperationId {
    operation_id.part(&format!("refusal {code}"))
}

fn outcome_of(committer: &dyn Committer, operation_id: &OperationId) -> Result<Option<Committed>> {
    let mut found = None;
    committer.with_reader(&mut |reader| {
        found = reader.read()?.outcome(operation_id)?;
        Ok(())
    })?;
    Ok(found)
}

/// A guard about a record is checked where the record lives; a fence stands in every domain.
fn guards_in(domain: Domain, guards: &[Guard]) -> Vec<Guard> {
    let belongs = |guard: &&Guard| match guard {
        Guard::Fence { .. } => true,
        Guard::Version { spec, .. } | Guard::Live { spec, .. } | Guard::AtMost { spec, .. } => spec.domains.contains(&domain),
    };
    guards.iter().filter(belongs).cloned().collect()
}

fn stored(agent: &dyn Committer, row_id: &RawId) -> Result<Option<Open>> {
    let mut found = None;
    agent.with_reader(&mut |reader| {
        found = reader.read()?.get(Saga::SPEC, row_id)?.as_ref().map(open_row).transpose()?.flatten();
        Ok(())
    })?;
    Ok(found)
}

fn open_row(row: &Row) -> Result<Option<Open>> {
    Ok(row.record()?.map(|saga| Open { saga, version: row.version }))
}

fn commit_of(saga: &Saga, operation_id: OperationId, writes: Vec<Write>, guards: Vec<Guard>, witnesses: Vec<Witness>) -> Commit {
    let cause = Cause { run_key: saga.run_key, source_event: saga.source_event, depth: saga.cause_depth };
    Commit { operation_id, request: saga.request.clone(), actor: saga.actor, cause, guards, writes, witnesses }
}

/// The agent's side names the operation and keeps nothing of its content: erasing the journal's record erases the request, too.
fn agent_commit(saga: &Saga, operation_id: OperationId, writes: Vec<Write>, guards: Vec<Guard>, witnesses: Vec<Witness>) -> Commit {
    let request = format!("[\"saga\",\"{}\"]", saga.operation_id);
    Commit { request, ..commit_of(saga, operation_id, writes, guards, witnesses) }
}

fn planned_guard(guard: &Guard) -> Result<PlannedGuard> {
    match guard {
        Guard::Fence { subject, epoch } => Ok(PlannedGuard::Fence { subject: subject.clone(), epoch: *epoch }),
        Guard::Version { spec, id, version } => {
            Ok(PlannedGuard::Version { kind: spec.kind.to_owned(), id: id.with_prefix(spec.prefix), version: *version })
        }
        Guard::Live { spec, id } => Ok(PlannedGuard::Live { kind: spec.kind.to_owned(), id: id.with_prefix(spec.prefix) }),
        Guard::AtMost { spec, .. } => Err(Error::InvalidCommit(format!("a limit on {} cannot guard a saga", spec.kind))),
    }
}

fn guard_of(planned: &PlannedGuard) -> Result<Guard> {
    match planned {
        PlannedGuard::Fence { subject, epoch } => Ok(Guard::Fence { subject: subject.clone(), epoch: *epoch }),
        PlannedGuard::Version { kind, id, version } => {
            let (spec, id) = record_of(kind, id)?;
            Ok(Guard::Version { spec, id, version: *version })
        }
        PlannedGuard::Live { kind, id } => {
            let (spec, id) = record_of(kind, id)?;
            Ok(Guard::Live { spec, id })
        }
    }
}

fn record_of(kind: &str, id: &str) -> Result<(&'static Spec, RawId)> {
    let bad = |what: &str| Error::Unreadable(format!("what a saga names: {what}"));
    let spec = domain::catalogue::find(kind).ok_or_else(|| bad(kind))?;
    let (_, id) = RawId::parse_prefixed(id).ok_or_else(|| bad(id))?;
    Ok((spec, id))
}

fn witnesses(domain: Domain, heads: Vec<Head>) -> Vec<Witness> {
    heads.into_iter().map(|head| Witness { domain, head }).collect()
}

fn saga_write(saga: &Saga, expected: Expected) -> Result<Write> {
    let body = saga.to_body().map_err(|error| Error::InvalidCommit(error.to_string()))?;
    let id = Saga::row_id(&saga.operation_id);
    Ok(Write { spec: Saga::SPEC, id, workspace: WorkspaceId::NONE, expected, change: Change::Put(body) })
}

fn planned(write: &Write) -> Result<PlannedWrite> {
    if matches!(write.change, Change::Erase) {
        return Err(Error::InvalidCommit(format!("the erasure of a {} cannot be part of a saga", write.spec.kind)));
    }
    Ok(PlannedWrite {
        kind: write.spec.kind.to_owned(),
        id: write.id.with_prefix(write.spec.prefix),
        workspace: write.workspace,
        expected_version: match write.expected {
            Expected::Absent => 0,
            Expected::Version(version) => version,
        },
        body: write.change.body().map(|body| body.text().to_owned()),
    })
}

fn writes_of(planned: &[PlannedWrite]) -> Result<Vec<Write>> {
    planned.iter().map(write_of).collect()
}

fn write_of(planned: &PlannedWrite) -> Result<Write> {
    let (spec, id) = record_of(&planned.kind, &planned.id)?;
    let change = match &planned.body {
        Some(text) => Change::Put(Body::parse(text).map_err(|error| Error::Unreadable(format!("a planned write: {error}")))?),
        None => Change::Tombstone,
    };
    let expected = if planned.expected_version == 0 { Expected::Absent } else { Expected::Version(planned.expected_version) };
    Ok(Write { spec, id, workspace: planned.workspace, expected, change })
}

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
use domain::records::saga::{PlannedWrite, Saga, SagaPhase};
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
        journal: plan.journal.iter().map(planned).collect::<Result<_>>()?,
        agent: plan.agent.iter().map(planned).collect::<Result<_>>()?,
        agent_if_refused: plan.agent_if_refused.iter().map(planned).collect::<Result<_>>()?,
        updated_at: now,
    };
    let write = saga_write(&saga, Expected::Absent)?;
    let guards = guards_in(Domain::Agent, &plan.guards);
    let intent = agent.commit(commit_of(&saga, plan.operation_id.part("intent"), vec![write], guards, Vec::new()))?;
    let guards = guards_in(Domain::Journal, &plan.guards);
    if !intent.repeated {
        return advance(journal, agent, &Open { saga, version: 1 }, guards);
    }
    match stored(agent, &row_id)? {
        // What was decided first is carried out, even if the same request has led to another plan since.
        Some(open) => advance(journal, agent, &open, guards),
        None => finished(journal, agent, &plan.operation_id),
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
        // No guards here: the intent was decided and made durable before the crash, and its guards held then.
        match advance(journal, agent, open, Vec::new()) {
            Ok(_) => recovered.finished += 1,
            // One operation that cannot be finished must not keep the home from opening.
            Err(refusal) if refusal.is_refusal() => recovered.stuck += 1,
            Err(failure) => return Err(failure),
        }
    }
    Ok(recovered)
}

/// From the durable intent to the durable outcome.
fn advance(journal: &mut dyn Committer, agent: &mut dyn Committer, open: &Open, guards: Vec<Guard>) -> Result<Ending> {
    let saga = &open.saga;
    let writes = writes_of(&saga.journal)?;
    let heads = witnesses(Domain::Agent, agent.heads()?);
    let effect = match journal.commit(commit_of(saga, saga.operation_id, writes, guards, heads)) {
        Ok(committed) => Ok(committed),
        Err(refusal) if refusal.is_refusal() => Err(refusal),
        Err(failure) => return Err(failure),
    };
    let mut outcome = writes_of(if effect.is_ok() { &saga.agent } else { &saga.agent_if_refused })?;
    outcome.push(Write {
        spec: Saga::SPEC,
        id: Saga::row_id(&saga.operation_id),
        workspace: WorkspaceId::NONE,
        expected: Expected::Version(open.version),
        change: Change::Tombstone,
    });
    let heads = witnesses(Domain::Journal, journal.heads()?);
    let ended_id = match &effect {
        Ok(_) => outcome_id(&saga.operation_id),
        Err(refusal) => refusal_id(&saga.operation_id, refusal.code()),
    };
    match agent.commit(commit_of(saga, ended_id, outcome, Vec::new(), heads)) {
        Ok(_) => {}
        Err(refusal) if refusal.is_refusal() => {
            mark_stuck(agent, open, &refusal)?;
            return Err(refusal);
        }
        Err(failure) => return Err(failure),
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
    agent.commit(commit_of(&saga, saga.operation_id.part("stuck"), vec![write], Vec::new(), Vec::new())).map(|_| ())
}

/// How an operation ended that is no longer open: the same answer as the first time.
fn finished(journal: &dyn Committer, agent: &dyn Committer, operation_id: &OperationId) -> Result<Ending> {
    let unreadable = |what: &str| Error::Unreadable(format!("operation {operation_id} {what}"));
    if outcome_of(agent, &outcome_id(operation_id))?.is_some() {
        let effect = outcome_of(journal, operation_id)?;
        let effect = effect.ok_or_else(|| unreadable("is done for the agent domain, but the journal does not have it"))?;
        return Ok(Ending::Done(Committed { repeated: true, ..effect }));
    }
    for code in ErrorCode::ALL {
        if outcome_of(agent, &refusal_id(operation_id, *code))?.is_some() {
            return Ok(Ending::Refused(*code));
        }
    }
    Err(unreadable("has an intent, but neither a saga row nor an outcome"))
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
    let bad = |what: &str| Error::Unreadable(format!("a planned write: {what}"));
    let spec: &'static Spec = domain::catalogue::find(&planned.kind).ok_or_else(|| bad(&planned.kind))?;
    let (_, id) = RawId::parse_prefixed(&planned.id).ok_or_else(|| bad(&planned.id))?;
    let change = match &planned.body {
        Some(text) => Change::Put(Body::parse(text).map_err(|error| bad(&error.to_string()))?),
        None => Change::Tombstone,
    };
    let expected = if planned.expected_version == 0 { Expected::Absent } else { Expected::Version(planned.expected_version) };
    Ok(Write { spec, id, workspace: planned.workspace, expected, change })
}

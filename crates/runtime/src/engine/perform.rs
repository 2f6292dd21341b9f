//! Point C: the actions of a plan are carried out, and what the journal then holds is read back.

use control::action::{Action, Effect, Observation, PlannedWrite, Seen, SeenRecord};
use control::run::Run;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Cause, Change, Commit, Expected, Guard, Write};
use domain::entry::Actor;
use domain::id::{OperationId, RawId};
use domain::plant::{self, Bug};
use domain::record::{Body, Record};
use domain::records::artifact::Artifact;
use domain::records::lease::INCARNATION;
use domain::records::workspace::Workspace;
use serde_json::json;

use crate::engine::outside::{Call, CallResult, Outside};
use crate::house::{House, canonical};
use crate::{Error, Result};

/// LIMIT: calls of one operation in one go; a system that stays silent so often leaves the act in doubt.
const CALLS_MAX: usize = 3;

impl House {
    /// Carries out a plan. `recovered` says that an earlier life may have begun with it.
    pub(crate) fn perform(
        &mut self,
        run: &Run,
        actions: &[Action],
        recovered: bool,
        outside: &mut dyn Outside,
    ) -> Result<Vec<Observation>> {
        let mut observations = Vec::new();
        for action in actions.iter().filter(|action| action.is_to_do()) {
            let seen = match &action.effect {
                Effect::Journal { .. } => {
                    let commit = self.journal_commit(run, action)?;
                    #[cfg(feature = "planted")]
                    let commit =
                        if plant::is(Bug::DoubleEffect) && recovered { renamed(commit, &action.operation_id) } else { commit };
                    self.journal_effect(run, commit)?
                }
                Effect::Outside { service, parameters, honours_keys } => {
                    let raised = self.raised(action)?;
                    // An earlier life may have made the call. Without a key a second one could act twice, and after a stop not even
                    // a first one may leave: nobody knows, and nobody says that it was certainly not done.
                    if recovered && (!honours_keys || raised.is_some()) {
                        Seen::Unknown
                    } else if let Some(code) = raised {
                        Seen::Refused { code: code.as_str().to_owned() }
                    } else {
                        let call =
                            Call { operation_id: action.operation_id, service: service.clone(), parameters: parameters.clone() };
                        let mut result = outside.call(&call);
                        // A system that honours keys can be asked again whether it is done; another one cannot.
                        let mut asked_before = false;
                        for _ in 1..CALLS_MAX {
                            if result != CallResult::Unknown || !honours_keys {
                                break;
                            }
                            asked_before = true;
                            result = outside.call(&call);
                        }
                        match result {
                            // A refusal after a call that may have been done says nothing about that one.
                            CallResult::Refused(_) if recovered || asked_before => Seen::Unknown,
                            CallResult::Done => Seen::Acknowledged,
                            CallResult::Refused(code) => Seen::Refused { code: code.as_str().to_owned() },
                            CallResult::Unknown => Seen::Unknown,
                        }
                    }
                }
                Effect::Question { .. } | Effect::Nothing => Seen::Acknowledged,
            };
            observations.push(Observation { operation_id: action.operation_id, seen });
        }
        Ok(observations)
    }

    /// What leaves the process has no transaction to guard it: its fences are looked at right before it goes.
    fn raised(&self, action: &Action) -> Result<Option<ErrorCode>> {
        for at in &action.fences {
            if self.fence_epoch(Domain::Agent, &at.subject)?.max(self.fenced_in_memory(&at.subject)) > at.epoch {
                return Ok(Some(ErrorCode::Fenced));
            }
        }
        let life = self.fence_epoch(Domain::Agent, INCARNATION)?;
        Ok((life > self.incarnation).then_some(ErrorCode::Fenced))
    }

    fn journal_effect(&mut self, run: &Run, commit: Commit) -> Result<Seen> {
        let operation_id = commit.operation_id;
        match self.place(Domain::Journal).commit(commit) {
            Ok(_) => Ok(Seen::Committed { records: self.seen(run, &operation_id)? }),
            Err(refusal) if refusal.is_refusal() => Ok(Seen::Refused { code: refusal.code().as_str().to_owned() }),
            Err(failure) => Err(failure.into()),
        }
    }

    fn journal_commit(&mut self, run: &Run, action: &Action) -> Result<Commit> {
        let Effect::Journal { writes, evidence } = &action.effect else {
            return Err(Error::new(ErrorCode::Internal, "only journal effects are committed"));
        };
        let mut guards = vec![self.life_guard(), Guard::Live { spec: Workspace::SPEC, id: run.workspace_id.raw() }];
        if !plant::is(Bug::IgnoreSwitch) {
            let fence = |at: &control::action::FenceAt| Guard::Fence { subject: at.subject.clone(), epoch: at.epoch };
            guards.extend(action.fences.iter().map(fence));
        }
        guards.extend(evidence.iter().map(|evidence| Guard::Live { spec: Artifact::SPEC, id: evidence.artifact_id.raw() }));
        let request = canonical(&json!(["action", action.operation_id, action.arguments_hash]))?;
        Ok(Commit {
            operation_id: action.operation_id,
            request,
            actor: Actor::Agent(run.agent_id),
            cause: Cause { run_key: Some(run.run_key), source_event: None, depth: run.cause_depth.saturating_add(1) },
            guards,
            writes: writes.iter().map(|write| write_of(run, write)).collect::<Result<_>>()?,
            witnesses: self.witnesses(Domain::Agent)?,
        })
    }

    /// What the journal's log holds for an operation, read back and not taken on trust.
    fn seen(&self, run: &Run, operation_id: &OperationId) -> Result<Vec<SeenRecord>> {
        self.read(Domain::Journal, |snapshot| {
            let mut records = Vec::new();
            let Some(outcome) = snapshot.outcome(operation_id)? else { return Ok(records) };
            for write in &outcome.writes {
                let stored = write.dot.map(|dot| snapshot.entry(&dot)).transpose()?.flatten();
                let body = stored.and_then(|(_, stored)| stored.body);
                let Some((body, spec)) = body.zip(domain::catalogue::find(&write.kind)) else { continue };
                let id = write.id.with_prefix(spec.prefix);
                records.push(SeenRecord { id, version: write.version, body_hash: run.content_hash(&body) });
            }
            Ok(records)
        })
    }
}

#[cfg(feature = "planted")]
/// The planted double: the same writes under another name, with new ids where records are made.
fn renamed(commit: Commit, operation_id: &OperationId) -> Commit {
    let operation_id = operation_id.part("again");
    let writes = commit.writes.into_iter().map(|write| match write.expected {
        Expected::Absent => Write { id: operation_id.created(write.spec.kind, 0), ..write },
        Expected::Version(_) => write,
    });
    Commit { operation_id, writes: writes.collect(), ..commit }
}

fn write_of(run: &Run, planned: &PlannedWrite) -> Result<Write> {
    let damaged = |what: &str| Error::new(ErrorCode::DatabaseDamaged, format!("a planned write does not read: {what}"));
    let spec = domain::catalogue::find(&planned.kind).ok_or_else(|| damaged(&planned.kind))?;
    let (_, id) = RawId::parse_prefixed(&planned.id).ok_or_else(|| damaged(&planned.id))?;
    let body = planned.body.as_deref().ok_or_else(|| damaged("its body is gone"))?;
    let change = Change::Put(Body::parse(body).map_err(|error| damaged(&error.to_string()))?);
    let expected = if planned.expected_version == 0 { Expected::Absent } else { Expected::Version(planned.expected_version) };
    Ok(Write { spec, id, workspace: run.workspace_id, expected, change })
}

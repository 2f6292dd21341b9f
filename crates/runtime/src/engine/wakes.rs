//! Wakes: one row per reason to run.

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Expected, Guard};
use domain::entry::Actor;
use domain::id::{AgentId, OperationId, RunId, WakeId, WorkspaceId};
use domain::key::RunKey;
use domain::limits::{CAUSE_DEPTH_MAX, WAKES_PER_RUN_MAX};
use domain::record::{Record, Value};
use domain::records::agent::Agent;
use domain::records::wake::{Wake, WakeReason, WakeState};
use serde_json::json;
use store::store::{Scan, Snapshot};

use crate::house::{Held, House, held, put};
use crate::{Error, Result};

/// A wake with its id and version.
pub(crate) type HeldWake = (WakeId, Held<Wake>);

impl House {
    /// Puts a wake into the queue. The same key again changes nothing: there is one run for it (K17).
    pub fn enqueue(&mut self, agent_id: AgentId, run_key: RunKey, reason: WakeReason, cause_depth: u8) -> Result<RunId> {
        let run_id = RunId::of_key(&run_key);
        let id = WakeId::of_key(&run_key);
        // What its run commits is one link further.
        if cause_depth >= CAUSE_DEPTH_MAX {
            let message = format!("the wake is link {cause_depth} of a chain of agents; at most {CAUSE_DEPTH_MAX} are allowed");
            return Err(Error::new(ErrorCode::CauseDepthExceeded, message));
        }
        if self.row(Domain::Agent, Wake::SPEC, &id.raw())?.is_some() {
            return Ok(run_id);
        }
        let (created_at, run) = (self.now(), None);
        let status = WakeState::Waiting;
        let wake = Wake { agent_id, run_key, reason, status, run_id: run, cause_depth, code: None, created_at, ended_at: None };
        let write = put(&wake, id.raw(), WorkspaceId::NONE, Expected::Absent)?;
        let operation_id = OperationId::of_client(&Actor::System, &format!("wake {id}"));
        let live = Guard::Live { spec: Agent::SPEC, id: agent_id.raw() };
        self.act(Domain::Agent, Actor::System, operation_id, &json!(["wake", id]), vec![live], vec![write])?;
        Ok(run_id)
    }
}

/// The agent's waiting wakes, oldest first: those that may start a run, or those addressed to one.
pub(crate) fn waiting(snapshot: &dyn Snapshot, agent: &AgentId, addressed_to: Option<&RunId>) -> Result<Vec<HeldWake>> {
    let mut scan = Scan::new(Wake::SPEC, "by_agent");
    scan.prefix = vec![Value::from(agent.raw()), Value::from(WakeState::Waiting.as_str())];
    let mut found = Vec::new();
    loop {
        let page = snapshot.scan(&scan)?;
        for row in &page.rows {
            let Some(wake) = held::<Wake>(row)? else { continue };
            if wake.record.run_id.as_ref() == addressed_to {
                found.push((WakeId::from_raw(row.id), wake));
            }
            if found.len() == WAKES_PER_RUN_MAX {
                return Ok(found);
            }
        }
        let Some(next) = page.next else { return Ok(found) };
        scan.after = Some(next);
    }
}

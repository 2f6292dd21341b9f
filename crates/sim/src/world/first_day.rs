//! The first day of a world: a workspace, the agents with their manifests, two tasks and a start.

use control::manifest::Manifest;
use runtime::ClientKey;
use serde_json::json;

use super::{Checked, World};
use crate::ledger::Violation;
use crate::outside;
use crate::people::Deed;

impl World {
    pub(super) fn populate(&mut self) -> Checked {
        let broken = |error: runtime::Error| Violation::new("S00 set-up", error.to_string());
        let mut person = self.person("set-up");
        person.house.create_workspace("home", "Home").map_err(broken)?;
        let mut agents = Vec::new();
        for place in 0..self.profile.agents {
            let manifest = self.manifest(place);
            let key = ClientKey::parse(&format!("adopt {place}")).map_err(broken)?;
            agents.push(self.person("set-up").house.adopt(&manifest, &key).map_err(broken)?);
        }
        self.agents = agents;
        for deed in [Deed::AddTask, Deed::AddTask, Deed::Start] {
            self.event += 1;
            self.deed(deed);
        }
        Ok(())
    }

    fn manifest(&self, place: usize) -> Manifest {
        let services: serde_json::Map<_, _> = outside::SERVICES
            .iter()
            .map(|(name, honours)| ((*name).to_owned(), json!({ "class": "mail", "risk": "medium", "honours_keys": honours })))
            .collect();
        let reviewed = self.profile.reviewed && place == 0;
        let manifest = json!({
            "schema": 1, "agent": format!("agent-{place}"), "prompt": "do the tasks", "mode": if reviewed { "reviewed" } else { "yolo" },
            "model": { "provider": "scripted" },
            "capabilities": ["ask", "taskRead", "taskWrite", "artifactWrite", "outsideCall"],
            "tools": ["create_task", "select_next_task", "complete_task", "persist_artifact", "generate_message", "request_user_input",
                "post_office", "town_crier"],
            "preapproved": if reviewed || place == 1 { json!([]) } else { json!(["persist_artifact"]) },
            "services": services,
            "bounds": { "max_iterations": 12 + place, "max_wall_ms": 4_000_000, "max_tokens": 100_000 },
            "budget": { "tokens": 60_000, "cost_micros": 1_000_000, "runtime_ms": 36_000_000, "tool_calls": 200 },
            "reservation": { "tokens": 900, "cost_micros": 100, "runtime_ms": 1_000, "tool_calls": 1 },
            "approval_ttl_ms": 3_600_000,
        });
        serde_json::from_value(manifest).expect("the manifest is whole")
    }
}

//! Kill switches as people look at them: what is stopped, since when, by whom and why (L31).

use std::collections::BTreeSet;

use control::tool;
use domain::causality::Domain;
use domain::record::Record;
use domain::records::agent::Agent;
use domain::records::slug::Slug;
use domain::records::switch::Switch;
use store::store::{Scan, Snapshot};

use crate::Result;
use crate::house::{House, held};

impl House {
    /// What is stopped now, the oldest stop first.
    pub fn stops(&self) -> Result<Vec<Switch>> {
        self.read(Domain::Agent, thrown)
    }

    /// Classes that a tool of the house or of a known agent has. A stop may name another one; it then stops nothing yet.
    pub fn tool_classes(&mut self) -> Result<BTreeSet<Slug>> {
        let mut classes: BTreeSet<Slug> = tool::OURS.iter().filter_map(|tool| Slug::parse(tool.class).ok()).collect();
        let mut scan = Scan::new(Agent::SPEC, "by_created");
        loop {
            let page = self.page(Domain::Agent, &scan)?;
            for row in &page.rows {
                let Some(agent) = held::<Agent>(row)? else { continue };
                let Some(manifest) = self.manifest_of(&agent.record)? else { continue };
                classes.extend(manifest.services.values().map(|service| service.class.clone()));
            }
            let Some(next) = page.next else { return Ok(classes) };
            scan.after = Some(next);
        }
    }
}

/// Every switch that is thrown.
// INVARIANT: all pages are read. A stop that lies beyond the first one must not be overlooked.
pub(crate) fn thrown(snapshot: &dyn Snapshot) -> Result<Vec<Switch>> {
    let mut scan = Scan::new(Switch::SPEC, "by_changed");
    let mut found = Vec::new();
    loop {
        let page = snapshot.scan(&scan)?;
        for row in &page.rows {
            found.extend(held::<Switch>(row)?.map(|held| held.record).filter(|switch| switch.stopped));
        }
        let Some(next) = page.next else { return Ok(found) };
        scan.after = Some(next);
    }
}

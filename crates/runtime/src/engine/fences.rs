//! Fences in every domain, and the life of a process as one of them.

use std::collections::BTreeMap;

use domain::causality::Domain;
use domain::commit::Guard;
use domain::entry::Actor;
use domain::id::{OperationId, WorkspaceId};
use domain::records::fence::Fence;
use domain::records::lease::INCARNATION;
use serde_json::json;
use store::store::Scan;

use crate::Result;
use crate::house::{Held, House, expecting, held, put};
use domain::record::Record;

impl House {
    /// Begins a life: every lease of an earlier one is void from here on.
    pub fn begin_life(&mut self) -> Result<u64> {
        let mut highest = 0;
        for domain in Domain::ALL {
            highest = highest.max(self.fence_epoch(*domain, INCARNATION)?);
        }
        let epoch = highest + 1;
        for domain in Domain::ALL {
            self.raise_fence(*domain, INCARNATION, epoch)?;
        }
        self.incarnation = epoch;
        Ok(epoch)
    }

    /// Every domain's fences are raised to the highest that any domain knows, before anything guarded is written.
    pub fn level_fences(&mut self) -> Result<()> {
        let mut highest: BTreeMap<String, u64> = BTreeMap::new();
        for domain in Domain::ALL {
            for (subject, epoch) in self.fences(*domain)? {
                let top = highest.entry(subject).or_insert(epoch);
                *top = epoch.max(*top);
            }
        }
        for (subject, epoch) in highest {
            for domain in Domain::ALL {
                self.raise_fence(*domain, &subject, epoch)?;
            }
        }
        Ok(())
    }

    /// Raises a subject's fence in one domain; a fence that stands there already is left alone.
    pub(crate) fn raise_fence(&mut self, domain: Domain, subject: &str, epoch: u64) -> Result<()> {
        let id = Fence::id_of(subject);
        let known: Option<Held<Fence>> = self.held(domain, &id)?;
        if known.as_ref().is_some_and(|held| held.record.epoch >= epoch) {
            return Ok(());
        }
        let fence = Fence { subject: subject.to_owned(), epoch, raised_at: self.now() };
        let write = put(&fence, id, WorkspaceId::NONE, expecting(known.map(|held| held.version)))?;
        let name = format!("raise {subject} to {epoch} in {domain}");
        let operation_id = OperationId::of_client(&Actor::System, &name);
        self.act(domain, Actor::System, operation_id, &json!([name]), Vec::new(), vec![write])?;
        Ok(())
    }

    pub(crate) fn fence_epoch(&self, domain: Domain, subject: &str) -> Result<u64> {
        let known: Option<Held<Fence>> = self.held(domain, &Fence::id_of(subject))?;
        Ok(known.map_or(0, |held| held.record.epoch))
    }

    /// What keeps the work of an earlier life out.
    pub(crate) fn life_guard(&self) -> Guard {
        Guard::Fence { subject: INCARNATION.to_owned(), epoch: self.incarnation }
    }

    fn fences(&self, domain: Domain) -> Result<Vec<(String, u64)>> {
        self.read(domain, |snapshot| {
            let mut scan = Scan::new(Fence::SPEC, "by_subject");
            let mut found = Vec::new();
            loop {
                let page = snapshot.scan(&scan)?;
                for row in &page.rows {
                    found.extend(held::<Fence>(row)?.map(|held| (held.record.subject, held.record.epoch)));
                }
                let Some(next) = page.next else { return Ok(found) };
                scan.after = Some(next);
            }
        })
    }
}

//! Artifacts as people look at them: what was kept, for which task, and on whose word (D10).

use domain::causality::Domain;
use domain::id::{ArtifactId, TaskId, WorkspaceId};
use domain::record::{Record, Value};
use domain::records::artifact::Artifact;
use store::store::Scan;

use crate::Result;
use crate::house::{Held, House, held};
use crate::pages::checked_limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRecord {
    pub id: ArtifactId,
    pub version: u64,
    pub workspace: WorkspaceId,
    pub artifact: Artifact,
}

impl House {
    /// What was made for a task, oldest first, and whether there is more than the limit.
    pub fn artifacts_of_task(&self, task: TaskId, limit: usize) -> Result<(Vec<ArtifactRecord>, bool)> {
        let mut scan = Scan::new(Artifact::SPEC, "by_task");
        scan.prefix = vec![Value::from(task.raw())];
        scan.limit = checked_limit(limit)?;
        let page = self.page(Domain::Journal, &scan)?;
        let mut found = Vec::new();
        for row in &page.rows {
            let Some(Held { record, version, workspace }) = held::<Artifact>(row)? else { continue };
            found.push(ArtifactRecord { id: ArtifactId::from_raw(row.id), version, workspace, artifact: record });
        }
        Ok((found, page.next.is_some()))
    }
}

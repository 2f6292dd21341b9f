//! Everything that a store holds as lines of JSON, so that a stored fixture can be compared whole.
//!
//! The fixture's writer (`examples/write_fixture.rs`) includes this file, too. The lines are part of every stored fixture: their form
//! must not change.

use std::collections::{BTreeMap, BTreeSet};

use domain::causality::Domain;
use domain::record::{Class, Spec};
use serde_json::{Value, json};
use store::store::{Row, Scan, Snapshot};

/// One line for each record, deleted ones included, then one for each head and each witness.
pub(crate) fn lines(domain: Domain, kinds: &[&'static Spec], snapshot: &dyn Snapshot) -> store::Result<Vec<String>> {
    let mut shown = Vec::new();
    for row in rows(kinds, snapshot)? {
        shown.push(line(domain, &row));
    }
    for head in snapshot.heads()? {
        let place = json!({ "domain": domain.as_str(), "head": format!("{:?}", head.stream), "counter": head.counter, "chain": head.chain.to_string() });
        shown.push(place.to_string());
    }
    for witness in snapshot.witnesses()? {
        let head = witness.head;
        let of = format!("{} {:?}", witness.domain, head.stream);
        shown.push(
            json!({ "domain": domain.as_str(), "witness": of, "counter": head.counter, "chain": head.chain.to_string() })
                .to_string(),
        );
    }
    Ok(shown)
}

/// Every record: logged ones by their entries, control rows by an index.
pub(crate) fn rows(kinds: &[&'static Spec], snapshot: &dyn Snapshot) -> store::Result<Vec<Row>> {
    let mut found = BTreeMap::new();
    let mut logged = BTreeSet::new();
    for head in snapshot.heads()? {
        let entries = snapshot.entries(&head.stream, 0, 100_000)?;
        logged.extend(entries.into_iter().map(|(logged, _)| (logged.entry.kind, logged.entry.id)));
    }
    for spec in kinds.iter().copied() {
        if spec.class == Class::Control {
            let index = spec.indexes.first().map_or("", |index| index.name);
            found.extend(snapshot.scan(&Scan::new(spec, index))?.rows.into_iter().map(|row| ((spec.kind, row.id), row)));
        } else {
            for (_, id) in logged.iter().filter(|(kind, _)| kind == spec.kind) {
                found.extend(snapshot.get(spec, id)?.map(|row| ((spec.kind, row.id), row)));
            }
        }
    }
    Ok(found.into_values().collect())
}

fn line(domain: Domain, row: &Row) -> String {
    let edits: BTreeMap<String, u64> = row.state.edits.iter().map(|(host, count)| (host.to_string(), *count)).collect();
    let older: BTreeMap<&str, String> =
        row.state.older_fields.iter().map(|(name, dot)| (name.as_str(), store::place(dot))).collect();
    let body: Option<Value> = row.body.as_deref().and_then(|body| serde_json::from_str(body).ok());
    json!({
        "domain": domain.as_str(),
        "kind": row.spec.kind,
        "id": row.id.with_prefix(row.spec.prefix),
        "workspace": row.workspace.to_string(),
        "version": row.version,
        "deleted": row.deleted,
        "entry": row.dot.as_ref().map(store::place),
        "edits": edits,
        "older_fields": older,
        "body": body,
    })
    .to_string()
}

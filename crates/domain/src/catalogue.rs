//! The declarations of all records. Adding a record is one struct in `records/` and one declaration here. A struct that belongs to one
//! room lives there; its declaration stands here, under `elsewhere`.

use crate::causality::Domain;
use crate::record::{Aggregate, Class, Column, Index, Record, Spec, ValueType};
use crate::records::{
    agent, artifact, budget, category, cursor, fence, label, lease, link, manifest, message, note, payload, prompt, switch, task,
    wake, workspace,
};

macro_rules! catalogue {
    (elsewhere { $($(#[$meta:meta])* $name:ident => $foreign:expr;)+ } $($record:ty => $spec:expr;)+) => {
        $(impl Record for $record { const SPEC: &'static Spec = &$spec; })+

        $($(#[$meta])* pub static $name: Spec = $foreign;)+

        /// Every kind of record that this build knows.
        pub static ALL: &[&Spec] = &[$(<$record as Record>::SPEC),+, $(&$name),+];
    };
}

const fn column(name: &'static str, value_type: ValueType) -> Column {
    Column { name, value_type }
}

const fn index(name: &'static str, columns: &'static [&'static str]) -> Index {
    Index { name, columns, unique: false }
}

catalogue! {
    elsewhere {
        /// A run as its machine keeps it; the struct is `control::run::Run`. Local: traces do not travel (L33).
        RUN => Spec {
            kind: "run", table: "runs", prefix: "run", domains: &[Domain::Agent], class: Class::Local,
            columns: &[
                column("agent_id", ValueType::Id), column("status", ValueType::Text), column("created_at", ValueType::Time),
            ],
            indexes: &[
                index("by_created", &["created_at"]),
                index("by_status", &["status", "created_at"]),
                index("by_agent", &["agent_id", "created_at"]),
            ],
            ..Spec::DEFAULT
        };
        /// One cycle of a run; the struct is `control::cycle::Cycle`.
        CYCLE => Spec {
            kind: "cycle", table: "cycles", prefix: "cycle", domains: &[Domain::Agent], class: Class::Local,
            columns: &[column("run_id", ValueType::Id), column("number", ValueType::Integer)],
            indexes: &[index("by_run", &["run_id", "number"])],
            ..Spec::DEFAULT
        };
    }
    workspace::Workspace => Spec {
        kind: "workspace", table: "workspaces", prefix: "ws", domains: &[Domain::Journal], mergeable: true,
        columns: &[column("slug", ValueType::Text)],
        indexes: &[index("by_slug", &["slug"])],
        ..Spec::DEFAULT
    };
    category::Category => Spec {
        kind: "category", table: "categories", prefix: "cat", domains: &[Domain::Journal], mergeable: true,
        columns: &[column("slug", ValueType::Text)],
        indexes: &[index("by_slug", &["workspace", "slug"])],
        ..Spec::DEFAULT
    };
    label::Label => Spec {
        kind: "label", table: "labels", prefix: "label", domains: &[Domain::Journal], mergeable: true,
        columns: &[column("slug", ValueType::Text)],
        indexes: &[index("by_slug", &["workspace", "slug"])],
        ..Spec::DEFAULT
    };
    note::Note => Spec {
        kind: "note", table: "notes", prefix: "note", domains: &[Domain::Journal], mergeable: true,
        columns: &[column("updated_at", ValueType::Time)],
        indexes: &[index("by_updated", &["workspace", "updated_at"])],
        aggregates: &[Aggregate { name: "per_workspace", group: &["workspace"], sum: None }],
        full_text: &["title", "text"],
        ..Spec::DEFAULT
    };
    agent::Agent => Spec {
        kind: "agent", table: "agents", prefix: "agent", domains: &[Domain::Agent], mergeable: true,
        columns: &[column("created_at", ValueType::Time)],
        indexes: &[index("by_created", &["workspace", "created_at"])],
        ..Spec::DEFAULT
    };
    message::Message => Spec {
        kind: "message", table: "agent_messages", prefix: "msg", domains: &[Domain::Agent], immutable: true,
        columns: &[
            column("agent_id", ValueType::Id), column("thread_id", ValueType::Digest), column("created_at", ValueType::Time),
        ],
        indexes: &[index("by_agent", &["agent_id", "created_at"]), index("by_thread", &["thread_id", "created_at"])],
        ..Spec::DEFAULT
    };
    payload::Payload => Spec {
        kind: "payload", table: "agent_message_payloads", prefix: "pay", domains: &[Domain::Agent], immutable: true,
        columns: &[column("agent_id", ValueType::Id), column("created_at", ValueType::Time)],
        indexes: &[index("by_agent", &["agent_id", "created_at"])],
        ..Spec::DEFAULT
    };
    link::Link => Spec {
        kind: "link", table: "agent_links", prefix: "link", domains: &[Domain::Agent],
        columns: &[
            column("relation", ValueType::Text), column("from_id", ValueType::Id), column("to_id", ValueType::Id),
            column("hidden", ValueType::Boolean), column("created_at", ValueType::Time),
        ],
        indexes: &[
            index("by_from", &["relation", "from_id", "hidden", "created_at"]),
            index("by_to", &["relation", "to_id", "hidden", "created_at"]),
        ],
        ..Spec::DEFAULT
    };
    cursor::Cursor => Spec {
        kind: "cursor", table: "cursors", prefix: "cursor",
        domains: &[Domain::Journal, Domain::Agent, Domain::Ledger], class: Class::Control,
        columns: &[column("consumer", ValueType::Text)],
        indexes: &[Index { name: "by_consumer", columns: &["consumer"], unique: true }],
        ..Spec::DEFAULT
    };
    fence::Fence => Spec {
        kind: "fence", table: "fences", prefix: "fence",
        domains: &[Domain::Journal, Domain::Agent, Domain::Ledger], class: Class::Control,
        columns: &[column("subject", ValueType::Text)],
        indexes: &[Index { name: "by_subject", columns: &["subject"], unique: true }],
        ..Spec::DEFAULT
    };
    task::Task => Spec {
        kind: "task", table: "tasks", prefix: "task", domains: &[Domain::Journal], mergeable: true,
        columns: &[column("status", ValueType::Text), column("created_at", ValueType::Time)],
        indexes: &[
            index("by_created", &["workspace", "created_at"]),
            index("by_status", &["workspace", "status", "created_at"]),
        ],
        aggregates: &[
            Aggregate { name: "per_workspace", group: &["workspace"], sum: None },
            Aggregate { name: "per_status", group: &["workspace", "status"], sum: None },
        ],
        ..Spec::DEFAULT
    };
    artifact::Artifact => Spec {
        kind: "artifact", table: "artifacts", prefix: "art", domains: &[Domain::Journal], mergeable: true,
        columns: &[column("task_id", ValueType::Id), column("created_at", ValueType::Time)],
        indexes: &[
            index("by_created", &["workspace", "created_at"]),
            index("by_task", &["task_id", "created_at"]),
        ],
        ..Spec::DEFAULT
    };
    manifest::StoredManifest => Spec {
        kind: "agent_manifest", table: "agent_manifests", prefix: "manifest", domains: &[Domain::Agent], immutable: true,
        ..Spec::DEFAULT
    };
    wake::Wake => Spec {
        kind: "wake", table: "wakes", prefix: "wake", domains: &[Domain::Agent],
        columns: &[
            column("agent_id", ValueType::Id), column("status", ValueType::Text), column("created_at", ValueType::Time),
        ],
        indexes: &[
            index("by_status", &["status", "created_at"]),
            index("by_agent", &["agent_id", "status", "created_at"]),
        ],
        ..Spec::DEFAULT
    };
    prompt::PromptItem => Spec {
        kind: "prompt_item", table: "agent_prompt_items", prefix: "ask", domains: &[Domain::Agent],
        columns: &[column("status", ValueType::Text), column("required_by", ValueType::Time)],
        indexes: &[index("by_status", &["status", "required_by"])],
        ..Spec::DEFAULT
    };
    prompt::PromptResponse => Spec {
        kind: "prompt_response", table: "agent_prompt_responses", prefix: "answer", domains: &[Domain::Agent], immutable: true,
        // Authority does not travel unsigned.
        class: Class::Local,
        ..Spec::DEFAULT
    };
    budget::BudgetLimit => Spec {
        kind: "budget_limit", table: "agent_budget_limits", prefix: "budget", domains: &[Domain::Agent],
        ..Spec::DEFAULT
    };
    budget::BudgetUsage => Spec {
        kind: "budget_usage", table: "agent_budget_windows", prefix: "usage", domains: &[Domain::Agent],
        columns: &[
            column("agent_id", ValueType::Id), column("day", ValueType::Text), column("tokens", ValueType::Integer),
            column("cost_micros", ValueType::Integer), column("runtime_ms", ValueType::Integer),
            column("tool_calls", ValueType::Integer),
        ],
        indexes: &[index("by_agent", &["agent_id", "day"])],
        aggregates: &[
            Aggregate { name: "tokens", group: &["agent_id", "day"], sum: Some("tokens") },
            Aggregate { name: "cost_micros", group: &["agent_id", "day"], sum: Some("cost_micros") },
            Aggregate { name: "runtime_ms", group: &["agent_id", "day"], sum: Some("runtime_ms") },
            Aggregate { name: "tool_calls", group: &["agent_id", "day"], sum: Some("tool_calls") },
        ],
        ..Spec::DEFAULT
    };
    switch::Switch => Spec {
        kind: "switch", table: "switches", prefix: "switch", domains: &[Domain::Agent], class: Class::Local,
        columns: &[column("changed_at", ValueType::Time)],
        indexes: &[index("by_changed", &["changed_at"])],
        ..Spec::DEFAULT
    };
    lease::Lease => Spec {
        kind: "lease", table: "leases", prefix: "lease", domains: &[Domain::Agent], class: Class::Control,
        columns: &[column("agent_id", ValueType::Id)],
        indexes: &[Index { name: "by_agent", columns: &["agent_id"], unique: true }],
        ..Spec::DEFAULT
    };
}

/// The kinds that a domain stores.
pub fn of_domain(domain: Domain) -> impl Iterator<Item = &'static Spec> {
    ALL.iter().copied().filter(move |spec| spec.domains.contains(&domain))
}

/// Finds a kind by its name in the log.
#[must_use]
pub fn find(kind: &str) -> Option<&'static Spec> {
    ALL.iter().copied().find(|spec| spec.kind == kind)
}

/// What every record's table has beside the declared columns.
const OWN_COLUMNS: &[&str] = &["n", "id", "version", "workspace", "deleted", "pos", "state", "body"];

/// What is wrong with a declaration, if anything: the rules that no type can hold.
#[must_use]
pub fn defect(spec: &Spec) -> Option<String> {
    let plain = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let known = |name: &str| name == "workspace" || spec.column(name).is_some();
    let logged_synced = matches!(spec.class, Class::Synced | Class::HashLogged);
    let rules = [
        (!plain(spec.kind) || !plain(spec.table), "kind and table are lower-case words"),
        (spec.domains.is_empty(), "it belongs to no domain"),
        (spec.columns.iter().any(|column| !plain(column.name)), "a column is a lower-case word"),
        (spec.columns.iter().any(|column| OWN_COLUMNS.contains(&column.name)), "a column has a name that every table has already"),
        (
            spec.indexes.iter().any(|index| !index.columns.iter().all(|name| known(name))),
            "an index names a column that is not declared",
        ),
        (
            spec.aggregates.iter().any(|aggregate| !aggregate.group.iter().all(|name| known(name))),
            "an aggregate groups by a column that is not declared",
        ),
        (
            spec.aggregates
                .iter()
                .filter_map(|aggregate| aggregate.sum)
                .any(|name| spec.column(name).is_none_or(|column| column.value_type != ValueType::Integer)),
            "an aggregate sums an integer column",
        ),
        (logged_synced && spec.indexes.iter().any(|index| index.unique), "a synced kind's unique key is its id"),
        (spec.immutable && (spec.mergeable || !spec.full_text.is_empty()), "an immutable kind is neither merged nor searched"),
        (spec.immutable && !matches!(spec.class, Class::Synced | Class::Local), "an immutable kind keeps its body beside the log"),
        (spec.mergeable && spec.class != Class::Synced, "only synced kinds are merged"),
        (spec.domains.len() > 1 && spec.class != Class::Control, "only control kinds live in several domains"),
    ];
    rules.into_iter().find(|(broken, _)| *broken).map(|(_, rule)| format!("{}: {rule}", spec.kind))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn declarations_keep_the_rules() {
        for spec in ALL {
            assert_eq!(defect(spec), None);
        }
        for names in [ALL.iter().map(|spec| spec.kind).collect::<Vec<_>>(), ALL.iter().map(|spec| spec.table).collect()] {
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), ALL.len());
        }
    }

    #[test]
    fn broken_declarations_are_found() {
        let unique = Spec {
            kind: "x",
            table: "x",
            domains: &[Domain::Journal],
            indexes: &[Index { name: "by", columns: &["workspace"], unique: true }],
            ..Spec::DEFAULT
        };
        assert_eq!(defect(&unique).as_deref(), Some("x: a synced kind's unique key is its id"));
        let undeclared = Spec { indexes: &[Index { name: "by", columns: &["colour"], unique: false }], ..unique };
        assert_eq!(defect(&undeclared).as_deref(), Some("x: an index names a column that is not declared"));
        const STATE: &[Column] = &[column("state", ValueType::Text)];
        let taken = Spec { columns: STATE, indexes: &[], ..undeclared };
        assert_eq!(defect(&taken).as_deref(), Some("x: a column has a name that every table has already"));
    }

    #[test]
    fn l1_no_agent_record_is_declared_for_the_journal() {
        let journal: Vec<_> = of_domain(Domain::Journal).map(|spec| spec.kind).collect();
        assert_eq!(journal, ["workspace", "category", "label", "note", "cursor", "fence", "task", "artifact"]);
    }
}

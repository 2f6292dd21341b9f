//! Scans: a page of a declared index costs the same wherever it lies.
//!
//! "Everything after this key" over several columns is not one range of an index: it is the rest of the key's own group, then what
//! follows within the group around it, and so on outwards. Each of these is a [`Stretch`], which SQLite seeks to directly; a page takes
//! rows from one after the other until it is full. Written as one condition with OR, SQLite would read every page before it.

use domain::record::{Value, ValueType};
use rusqlite::{ToSql, params_from_iter};

use crate::Result;
use crate::sqlite::connect::failure;
use crate::sqlite::query::{Bound, Queries, row_columns, value_of};
use crate::store::{Direction, Page, PageKey, Scan};

pub(crate) fn run(queries: &Queries<'_>, scan: &Scan<'_>) -> Result<Page> {
    let columns = scan.checked()?.columns;
    let wanted = scan.limit.saturating_add(1);
    let mut found = Vec::new();
    for stretch in stretches(scan, columns) {
        if found.len() < wanted {
            read(queries, scan, columns, &stretch, wanted - found.len(), &mut found)?;
        }
    }
    let next = scan.limit.checked_sub(1).filter(|_| found.len() == wanted).map(|last| found[last].0.clone());
    Ok(Page { rows: found.into_iter().take(scan.limit).map(|(_, row)| row).collect(), next })
}

fn read(
    queries: &Queries<'_>,
    scan: &Scan<'_>,
    columns: &[&str],
    stretch: &Stretch,
    limit: usize,
    found: &mut Vec<(PageKey, crate::store::Row)>,
) -> Result<()> {
    let failed = |error: rusqlite::Error| failure(queries.domain, &error);
    let (sql, mut values) = statement(scan, columns, stretch);
    values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
    let mut statement = queries.connection.prepare_cached(&sql).map_err(failed)?;
    let bound: Vec<_> = values.iter().map(Bound).collect();
    let mut rows = statement.query(params_from_iter(bound.iter().map(|value| value as &dyn ToSql))).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let read = queries.read_row(scan.spec, row)?;
        let key = (7..7 + columns.len()).map(|column| row.get_ref(column).map(value_of)).collect::<std::result::Result<_, _>>();
        found.push((PageKey { values: key.map_err(failed)?, id: read.id }, read));
    }
    Ok(())
}

/// A part of an index that one seek leads to: equal first columns, then at most one bounded column.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    equal: Vec<Value>,
    next: Next,
}

/// What the column after the equal ones must be; after all columns comes the id.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Any,
    Null,
    Between { from: Option<(&'static str, Value)>, to: Option<(&'static str, Value)> },
}

/// The stretches of a scan in its order.
fn stretches(scan: &Scan<'_>, columns: &[&str]) -> Vec<Stretch> {
    let width = scan.prefix.len();
    let Some(after) = &scan.after else {
        let next = if scan.from.is_none() && scan.to.is_none() { Next::Any } else { between(scan, None) };
        return vec![Stretch { equal: scan.prefix.clone(), next }];
    };
    let mut found = Vec::new();
    let bounded = scan.from.is_some() || scan.to.is_some();
    let within = after.values.get(width).is_none_or(|value| in_bounds(scan, value));
    for level in (width..=columns.len()).rev() {
        // Deeper groups share the key's value in the bounded column.
        if level > width && !within {
            continue;
        }
        let equal = after.values[..level].to_vec();
        let id = Value::from(after.id);
        let value = after.values.get(level).unwrap_or(&id);
        let bounds_here = bounded && level == width;
        let beyond = match (scan.direction, value) {
            (Direction::Forward, Value::Null) => Some((">=", least(scan, columns[level]))),
            (Direction::Forward, value) => Some((">", value.clone())),
            (Direction::Backward, Value::Null) => None,
            (Direction::Backward, value) => Some(("<", value.clone())),
        };
        let Some(beyond) = beyond else { continue };
        let next = match scan.direction {
            _ if bounds_here => between(scan, Some(beyond)),
            Direction::Forward => Next::Between { from: Some(beyond), to: None },
            Direction::Backward => Next::Between { from: None, to: Some(beyond) },
        };
        found.push(Stretch { equal: equal.clone(), next });
        // Rows without a value sort first, so they come last in this direction. Every row has a workspace and an id.
        let nullable = columns.get(level).is_some_and(|name| scan.spec.column(name).is_some());
        if scan.direction == Direction::Backward && nullable && !bounds_here {
            found.push(Stretch { equal, next: Next::Null });
        }
    }
    found
}

/// The scan's own bounds, with the page's edge in place of the one it lies within: SQLite seeks to one bound a side.
fn between(scan: &Scan<'_>, edge: Option<(&'static str, Value)>) -> Next {
    let mut from = scan.from.clone().map(|value| (">=", value));
    let mut to = scan.to.clone().map(|value| ("<", value));
    match (edge, scan.direction) {
        (None, _) => {}
        (Some(edge), Direction::Forward) if from.as_ref().is_none_or(|(_, from)| edge.1 >= *from) => from = Some(edge),
        (Some(edge), Direction::Backward) if to.as_ref().is_none_or(|(_, to)| edge.1 <= *to) => to = Some(edge),
        (Some(_), _) => {}
    }
    Next::Between { from, to }
}

fn in_bounds(scan: &Scan<'_>, value: &Value) -> bool {
    let bounded = scan.from.is_some() || scan.to.is_some();
    !(bounded && *value == Value::Null)
        && scan.from.as_ref().is_none_or(|from| value >= from)
        && scan.to.as_ref().is_none_or(|to| value < to)
}

/// The least value of a column that is not NULL.
fn least(scan: &Scan<'_>, column: &str) -> Value {
    match scan.spec.column(column).map(|column| column.value_type) {
        Some(ValueType::Text) => Value::from(""),
        Some(ValueType::Integer | ValueType::Boolean | ValueType::Time) => Value::Integer(i64::MIN),
        Some(ValueType::Id | ValueType::Digest) | None => Value::Bytes(Vec::new()),
    }
}

/// The statement of a stretch and its values; the limit is the last parameter.
fn statement(scan: &Scan<'_>, columns: &[&str], stretch: &Stretch) -> (String, Vec<Value>) {
    let spec = scan.spec;
    let mut values = stretch.equal.clone();
    // `IS` and not `=`, because an index may hold NULLs.
    let mut terms: Vec<String> = columns.iter().take(values.len()).zip(1..).map(|(name, n)| format!("t.{name} IS ?{n}")).collect();
    let name = columns.get(stretch.equal.len()).copied().unwrap_or("id");
    match &stretch.next {
        Next::Any => {}
        Next::Null => terms.push(format!("t.{name} IS NULL")),
        Next::Between { from, to } => {
            for (sign, value) in from.iter().chain(to) {
                values.push(value.clone());
                terms.push(format!("t.{name} {sign} ?{}", values.len()));
            }
        }
    }
    let order = if scan.direction == Direction::Forward { "ASC" } else { "DESC" };
    let named: String = columns.iter().map(|name| format!(", t.{name}")).collect();
    let ordered: Vec<_> = columns.iter().chain(&["id"]).map(|name| format!("t.{name} {order}")).collect();
    let filter: String = terms.iter().map(|term| format!(" AND {term}")).collect();
    let sql = format!(
        "SELECT {}{named} FROM {table} t INDEXED BY {table}_{} WHERE t.deleted = 0{filter} ORDER BY {} LIMIT ?{}",
        row_columns(spec),
        scan.index,
        ordered.join(", "),
        values.len() + 1,
        table = spec.table,
    );
    (sql, values)
}

#[cfg(test)]
mod tests {
    use domain::causality::Domain;
    use domain::commit::{Cause, Change, Commit, Expected, Write};
    use domain::entry::Actor;
    use domain::id::{HostId, OperationId, PersonId, RawId, WorkspaceId};
    use domain::record::{Body, Record};
    use domain::records::link::Link;
    use domain::records::message::Message;
    use domain::records::note::Note;
    use domain::time::Timestamp;

    use super::*;
    use crate::env::Env;
    use crate::memory::MemoryStore;
    use crate::sqlite::{Location, SqliteStore};
    use crate::store::Store;

    fn id(number: u8) -> RawId {
        RawId::from_bytes([number; 16])
    }

    fn store(folder: &std::path::Path, domain: Domain) -> SqliteStore {
        SqliteStore::create(&Location::in_folder(folder, domain), HostId::from_raw(id(1)), &Env::seeded(1)).unwrap()
    }

    /// How SQLite would run each statement of a scan.
    fn plans(store: &SqliteStore, scan: &Scan<'_>) -> Vec<String> {
        let columns = scan.checked().unwrap().columns;
        let plan = |stretch: &Stretch| {
            let sql = format!("EXPLAIN QUERY PLAN {}", statement(scan, columns, stretch).0);
            let mut statement = store.writer().unwrap().prepare(&sql).unwrap();
            let unbound = vec![rusqlite::types::Null; statement.parameter_count()];
            let steps = statement.query_map(params_from_iter(unbound), |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
            steps
                .into_iter()
                .filter(|step| !step.starts_with("CORRELATED") && !step.contains("bodies"))
                .collect::<Vec<_>>()
                .join("; ")
        };
        stretches(scan, columns).iter().map(plan).collect()
    }

    fn note_scan(direction: Direction, after: Option<PageKey>) -> Scan<'static> {
        Scan { prefix: vec![Value::from(id(7))], direction, after, ..Scan::new(Note::SPEC, "by_updated") }
    }

    #[test]
    fn a_page_is_found_by_seeking_in_both_directions() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), Domain::Journal);
        let search = |terms: &str| format!("SEARCH t USING INDEX notes_by_updated ({terms})");
        let after = || Some(PageKey { values: vec![Value::from(id(7)), Value::Integer(5)], id: id(1) });
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(plans(&store, &note_scan(direction, None)), [search("workspace=?")]);
        }
        assert_eq!(
            plans(&store, &note_scan(Direction::Forward, after())),
            [search("workspace=? AND updated_at=? AND id>?"), search("workspace=? AND updated_at>?")]
        );
        assert_eq!(
            plans(&store, &note_scan(Direction::Backward, after())),
            [
                search("workspace=? AND updated_at=? AND id<?"),
                search("workspace=? AND updated_at<?"),
                search("workspace=? AND updated_at=?"),
            ]
        );
        let ranged = |direction| {
            let bounds = (Some(Value::Integer(1)), Some(Value::Integer(9)));
            Scan { from: bounds.0, to: bounds.1, ..note_scan(direction, after()) }
        };
        assert_eq!(plans(&store, &ranged(Direction::Forward))[1..], [search("workspace=? AND updated_at>? AND updated_at<?")]);
        assert_eq!(plans(&store, &ranged(Direction::Backward))[1..], [search("workspace=? AND updated_at>? AND updated_at<?")]);
    }

    #[test]
    fn no_page_of_any_declared_index_is_sorted_or_reads_what_comes_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut checked = 0;
        for domain in Domain::ALL {
            let store = store(folder.path(), *domain);
            for spec in domain::catalogue::of_domain(*domain) {
                for index in spec.indexes.iter().filter(|index| !index.unique) {
                    for width in 0..=index.columns.len() {
                        for direction in [Direction::Forward, Direction::Backward] {
                            let values = vec![Value::Integer(3); index.columns.len()];
                            let after = PageKey { values: values.clone(), id: id(3) };
                            let scan = Scan {
                                prefix: values[..width].to_vec(),
                                direction,
                                after: Some(after),
                                ..Scan::new(spec, index.name)
                            };
                            for plan in plans(&store, &scan) {
                                let seeks = plan.starts_with(&format!("SEARCH t USING INDEX {}_{} (", spec.table, index.name));
                                assert!(seeks && !plan.contains("TEMP B-TREE"), "{} {}: {plan}", spec.kind, index.name);
                                checked += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(checked > 100, "{checked}");
    }

    #[test]
    fn what_follows_a_key_is_its_group_then_the_groups_around_it() {
        let key = PageKey { values: vec![Value::Integer(1), Value::Null], id: id(2) };
        let scan = |direction| Scan {
            prefix: vec![Value::Integer(1)],
            direction,
            after: Some(key.clone()),
            ..Scan::new(Message::SPEC, "by_thread")
        };
        let columns = &["thread_id", "created_at"];
        let from = |equal: Vec<Value>, sign, value| Stretch { equal, next: Next::Between { from: Some((sign, value)), to: None } };
        assert_eq!(
            stretches(&scan(Direction::Forward), columns),
            [from(key.values.clone(), ">", Value::from(id(2))), from(vec![Value::Integer(1)], ">=", Value::Integer(i64::MIN))]
        );
        let to = |equal: Vec<Value>, value| Stretch { equal, next: Next::Between { from: None, to: Some(("<", value)) } };
        assert_eq!(stretches(&scan(Direction::Backward), columns), [to(key.values.clone(), Value::from(id(2)))]);
    }

    /// Links with few different values, some of them absent: many ties on every level.
    fn fill(store: &mut dyn Store) {
        let mut writes = Vec::new();
        for number in 0..90u8 {
            let mut fields = serde_json::Map::new();
            for (name, step, value) in [
                ("from_id", 5, RawId::from_bytes([number % 3; 16]).with_prefix("note")),
                ("relation", 7, format!("r{}", number % 2)),
            ] {
                if number % step != 0 {
                    fields.insert(name.to_owned(), value.into());
                }
            }
            if number % 4 != 0 {
                fields.insert("hidden".to_owned(), (number % 8 < 4).into());
                fields.insert("created_at".to_owned(), Timestamp::from_ms(i64::from(number % 6)).to_string().into());
            }
            let change = Change::Put(Body::from_fields(fields).unwrap());
            writes.push(Write {
                spec: Link::SPEC,
                id: id(number),
                workspace: WorkspaceId::NONE,
                expected: Expected::Absent,
                change,
            });
        }
        let actor = Actor::Person(PersonId::from_raw(id(1)));
        let operation_id = OperationId::from_raw(id(1));
        let (cause, guards, witnesses) = (Cause::default(), Vec::new(), Vec::new());
        store
            .apply_group(&[Commit { operation_id, request: "{}".to_owned(), actor, cause, guards, writes, witnesses }])
            .pop()
            .unwrap()
            .unwrap();
    }

    fn walk(store: &dyn Store, mut scan: Scan<'_>) -> Vec<RawId> {
        let reader = store.reader();
        let mut found = Vec::new();
        loop {
            let page = reader.read().unwrap().scan(&scan).unwrap();
            assert!(page.rows.len() <= scan.limit && (page.next.is_none() || page.rows.len() == scan.limit));
            found.extend(page.rows.iter().map(|row| row.id));
            let Some(next) = page.next else { return found };
            scan.after = Some(next);
        }
    }

    #[test]
    fn pages_are_those_of_the_reference_whatever_the_ties_bounds_and_gaps() {
        let folder = tempfile::tempdir().unwrap();
        let mut sqlite = store(folder.path(), Domain::Agent);
        let mut memory = MemoryStore::new(Domain::Agent, HostId::from_raw(id(1)), Env::seeded(1));
        fill(&mut sqlite);
        fill(&mut memory);
        let prefixes: Vec<Vec<Value>> = vec![
            vec![],
            vec![Value::Null],
            vec![Value::from("r0")],
            vec![Value::from("r1"), Value::from(id(1))],
            vec![Value::from("r1"), Value::Null, Value::Integer(1)],
        ];
        let bounds = [(None, None), (Some(1), None), (None, Some(2)), (Some(0), Some(2)), (Some(2), Some(1))];
        for prefix in &prefixes {
            for (from, to) in bounds {
                for direction in [Direction::Forward, Direction::Backward] {
                    for limit in [1, 2, 7, 200] {
                        let bound = |number: u8| match prefix.len() {
                            0 => Value::from(format!("r{number}").as_str()),
                            1 => Value::from(id(number)),
                            _ => Value::Integer(number.into()),
                        };
                        let (from, to) = (from.map(bound), to.map(bound));
                        let scan = Scan { prefix: prefix.clone(), from, to, direction, limit, ..Scan::new(Link::SPEC, "by_from") };
                        assert_eq!(walk(&sqlite, scan.clone()), walk(&memory, scan.clone()), "{scan:?}");
                    }
                }
            }
        }
    }
}

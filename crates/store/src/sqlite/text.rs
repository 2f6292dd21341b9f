//! Full text over declared fields, by FTS5. The index holds no copy of the text; removing a row's words needs the words, which the
//! writer has at hand, and they are removed for good.

use domain::causality::Domain;
use domain::id::{RawId, WorkspaceId};
use domain::record::{Body, Spec};
use rusqlite::{Connection, ToSql, params, params_from_iter};

use crate::Result;
use crate::sqlite::connect::failure;
use crate::sqlite::query::{Queries, row_columns};
use crate::store::Row;

/// Makes the index of a kind anew from its table; a kind that is not searched has none.
pub(crate) fn make(connection: &Connection, domain: Domain, spec: &'static Spec) -> Result<()> {
    let failed = |error: rusqlite::Error| failure(domain, &error);
    let index = format!("{}_text", spec.table);
    if spec.full_text.is_empty() {
        return connection.execute_batch(&format!("DROP TABLE IF EXISTS {index}")).map_err(failed);
    }
    let fields = spec.full_text.join(", ");
    let extracted: String = spec.full_text.iter().map(|field| format!(", body ->> '$.{field}'")).collect();
    connection
        .execute_batch(&format!(
            "DROP TABLE IF EXISTS {index};
             CREATE VIRTUAL TABLE {index} USING fts5({fields}, content='', tokenize='unicode61 remove_diacritics 2');
             INSERT INTO {index}({index}, rank) VALUES ('secure-delete', 1);
             INSERT INTO {index}(rowid, {fields}) SELECT n{extracted} FROM {} WHERE deleted = 0;",
            spec.table
        ))
        .map_err(failed)
}

/// A row's words before and after a write.
pub(crate) struct TextChange {
    spec: &'static Spec,
    id: RawId,
    before: Option<Vec<String>>,
    after: Option<Vec<String>>,
}

impl TextChange {
    /// `None` when no word changes.
    pub(crate) fn of(row: &Row, before: Option<&Body>, after: Option<&Body>) -> Option<Self> {
        let words = |body: &Body| row.spec.full_text.iter().map(|field| body.text_of(field).to_owned()).collect::<Vec<_>>();
        let (before, after) = (before.map(words), after.map(words));
        (before != after).then_some(Self { spec: row.spec, id: row.id, before, after })
    }

    /// Brings the index up to date. The row itself has been written already.
    pub(crate) fn apply(&self, connection: &Connection, domain: Domain) -> Result<()> {
        let spec = self.spec;
        let failed = |error: rusqlite::Error| failure(domain, &error);
        let number: i64 = connection
            .prepare_cached(&format!("SELECT n FROM {} WHERE id = ?1", spec.table))
            .and_then(|mut statement| statement.query_row([self.id.as_bytes()], |row| row.get(0)))
            .map_err(failed)?;
        let index = format!("{}_text", spec.table);
        let fields = spec.full_text.join(", ");
        let places: String = (2..2 + spec.full_text.len()).map(|place| format!(", ?{place}")).collect();
        let write = |sql: String, words: &[String]| {
            let all = std::iter::once(&number as &dyn ToSql).chain(words.iter().map(|value| value as &dyn ToSql));
            connection.prepare_cached(&sql).and_then(|mut statement| statement.execute(params_from_iter(all))).map_err(failed)
        };
        if let Some(before) = &self.before {
            write(format!("INSERT INTO {index}({index}, rowid, {fields}) VALUES ('delete', ?1{places})"), before)?;
        }
        if let Some(after) = &self.after {
            write(format!("INSERT INTO {index}(rowid, {fields}) VALUES (?1{places})"), after)?;
        }
        Ok(())
    }
}

/// Rows that hold all the words: best first, then newest, then by id, so that the order is always the same.
pub(crate) fn search(
    queries: &Queries<'_>,
    spec: &'static Spec,
    workspace: &WorkspaceId,
    words: &str,
    limit: usize,
) -> Result<Vec<Row>> {
    let failed = |error: rusqlite::Error| failure(queries.domain, &error);
    let Some(query) = query_of(words) else { return Ok(Vec::new()) };
    let newest = if spec.column("updated_at").is_some() { "t.updated_at DESC, " } else { "" };
    // Ranks are rounded: their last bits depend on the order in which words were added.
    let sql = format!(
        "SELECT {} FROM {table}_text x JOIN {table} t ON t.n = x.rowid
         WHERE {table}_text MATCH ?1 AND t.workspace = ?2 AND t.deleted = 0
         ORDER BY round(x.rank, 6), {newest}t.id LIMIT ?3",
        row_columns(spec),
        table = spec.table
    );
    let mut statement = queries.connection.prepare_cached(&sql).map_err(failed)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![query, workspace.raw().as_bytes(), limit]).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        found.push(queries.read_row(spec, row)?);
    }
    Ok(found)
}

/// Every word quoted, so that nothing a person types is taken for query syntax.
fn query_of(words: &str) -> Option<String> {
    let quoted: Vec<_> = words
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| format!("\"{word}\""))
        .collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

//! Full text over declared fields: a column of the row's words, cut the same way as by the in-memory reference, so that every
//! backend finds the same rows whatever language the server was set up for.

use std::collections::BTreeSet;

use domain::id::WorkspaceId;
use domain::record::{Body, Spec};

use crate::Result;
use crate::postgres::query::{Queries, bytes, quoted, row_columns, signed};
use crate::store::Row;

/// The column that holds the words; no declared field has an underscore in front.
pub(crate) const COLUMN: &str = "_words";

/// LIMIT: a lexeme's length has eleven bits in a tsvector; a longer word is found by its beginning.
const WORD_BYTES_MAX: usize = 2_000;
/// LIMIT: a lexeme's place has twenty bits in a tsvector; words beyond that are not found.
const WORDS_BYTES_MAX: usize = 1 << 20;

/// The words of a body's searched fields, sorted.
pub(crate) fn words_of(spec: &Spec, body: &Body) -> Vec<String> {
    let words: BTreeSet<String> = spec.full_text.iter().flat_map(|field| split(body.text_of(field))).collect();
    let mut bytes = 0;
    let fits = |word: &String| {
        bytes += word.len();
        bytes < WORDS_BYTES_MAX
    };
    words.into_iter().take_while(fits).collect()
}

fn split(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| {
        let mut word = word.to_lowercase();
        word.truncate(word.floor_char_boundary(WORD_BYTES_MAX));
        word
    })
}

/// Rows that hold all the words: newest first, then by id. The words have no places, so there is no rank to sort by.
pub(crate) fn search(
    queries: &mut Queries<'_>,
    spec: &'static Spec,
    workspace: &WorkspaceId,
    words: &str,
    limit: usize,
) -> Result<Vec<Row>> {
    // Words are letters and digits, so quoting them leaves nothing that is query syntax.
    let quoted_words: BTreeSet<String> = split(words).map(|word| format!("'{word}'")).collect();
    if quoted_words.is_empty() || spec.full_text.is_empty() {
        return Ok(Vec::new());
    }
    let query = quoted_words.into_iter().collect::<Vec<_>>().join(" & ");
    let newest = if spec.column("updated_at").is_some() { "t.updated_at DESC NULLS LAST, " } else { "" };
    let sql = format!(
        "SELECT {} FROM {} t WHERE t.{COLUMN} @@ $1::text::tsquery AND t.workspace = $2 AND t.deleted = 0 \
         ORDER BY {newest}t.id LIMIT $3",
        row_columns(spec),
        quoted(spec.table)
    );
    let rows = queries.link.query(&sql, &[&query, &bytes(&workspace.raw()), &signed(limit)])?;
    rows.iter().map(|row| queries.read_row(spec, row)).collect()
}

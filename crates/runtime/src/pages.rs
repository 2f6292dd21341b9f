//! Pages of lists that are ordered by an instant: how long one is, and where the next begins.

use domain::id::RawId;
use domain::limits::PAGE_ROWS_MAX;
use domain::record::Value;
use store::store::PageKey;

use crate::{Error, Result};

pub(crate) fn checked_limit(limit: usize) -> Result<usize> {
    if (1..=PAGE_ROWS_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::argument("limit", &format!("a page has 1 to {PAGE_ROWS_MAX} rows")))
}

/// The instant in milliseconds and the id: where a page ended.
pub(crate) fn token(key: &PageKey, prefix: &str) -> String {
    let at = match key.values.last() {
        Some(Value::Integer(ms)) => *ms,
        _ => 0,
    };
    format!("{at}.{}", key.id.with_prefix(prefix))
}

/// The place that a token names in an index whose first columns are these and whose last is the instant.
pub(crate) fn key(mut columns: Vec<Value>, token: &str, prefix: &str) -> Result<PageKey> {
    let parse = || {
        let (at, id) = token.split_once('.')?;
        let (found, id) = RawId::parse_prefixed(id)?;
        (found == prefix).then_some(())?;
        Some((Value::Integer(at.parse().ok()?), id))
    };
    let (at, id) = parse().ok_or_else(|| Error::argument("after", "it is not the `next` of an earlier page"))?;
    columns.push(at);
    Ok(PageKey { values: columns, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_the_place_it_was_made_from() {
        let id = RawId::from_bytes([7; 16]);
        let place = PageKey { values: vec![Value::from("open"), Value::Integer(12)], id };
        assert_eq!(key(vec![Value::from("open")], &token(&place, "ask"), "ask").unwrap(), place);
        for bad in ["", "12", "x.ask_", "12.task_00000000000000000000000000", "9999999999999999999.ask_00000000000000000000000000"]
        {
            assert_eq!(key(Vec::new(), bad, "ask").unwrap_err().code, domain::code::ErrorCode::InvalidArgument, "{bad}");
        }
    }
}

//! Canonical JSON: one text for one value (RFC 8785, without floating-point numbers).
//!
//! Keys are sorted by their UTF-16 code units, there is no white space, strings are escaped only where JSON demands it, and
//! numbers are integers that every reader represents exactly (at most 2^53 − 1 in size; larger ones travel as strings).
//! Reading is strict: a text that is not byte for byte what the writer would produce is refused, which also refuses
//! duplicate keys, stray white space and alternative escapes.

use serde_json::{Map, Value};

/// LIMIT: 2^53 − 1, the largest integer that a double-based JSON reader keeps exactly.
const INTEGER_MAX: i64 = (1 << 53) - 1;

/// LIMIT: levels of nesting; the reader under [`parse`] gives up at 128, and what is written must be readable inside something else.
const DEPTH_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("not JSON: {0}")]
    Syntax(String),
    #[error("field `{0}` holds a floating-point number; use a scaled integer")]
    Float(String),
    #[error("field `{0}` holds an integer beyond 2^53; write it as a string")]
    TooLarge(String),
    #[error("not in canonical form: the text differs from its canonical form at byte {at}")]
    NotCanonical { at: usize },
    #[error("not an object")]
    NotAnObject,
    #[error("field `{0}` is nested deeper than {DEPTH_MAX} levels")]
    TooDeep(String),
}

/// Writes a value in canonical form.
pub fn write(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_value(&mut out, value, "", 0)?;
    Ok(out)
}

/// Writes an object in canonical form.
pub fn write_object(fields: &Map<String, Value>) -> Result<String, Error> {
    let mut out = String::new();
    write_map(&mut out, fields, "", 0)?;
    Ok(out)
}

/// Reads a text that must be in canonical form.
pub fn parse(text: &str) -> Result<Value, Error> {
    let value: Value = serde_json::from_str(text).map_err(|error| Error::Syntax(error.to_string()))?;
    let canonical = write(&value)?;
    if canonical != text {
        let at = canonical.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        return Err(Error::NotCanonical { at });
    }
    Ok(value)
}

/// Reads a canonical text that must be an object.
pub fn parse_object(text: &str) -> Result<Map<String, Value>, Error> {
    match parse(text)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Error::NotAnObject),
    }
}

fn write_value(out: &mut String, value: &Value, field: &str, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::TooDeep(field.to_owned()));
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => {
            let Some(integer) = number.as_i64() else {
                return Err(if number.is_u64() { Error::TooLarge(field.to_owned()) } else { Error::Float(field.to_owned()) });
            };
            if !(-INTEGER_MAX..=INTEGER_MAX).contains(&integer) {
                return Err(Error::TooLarge(field.to_owned()));
            }
            out.push_str(&integer.to_string());
        }
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_value(out, item, field, depth + 1)?;
            }
            out.push(']');
        }
        Value::Object(fields) => write_map(out, fields, field, depth)?,
    }
    Ok(())
}

fn write_map(out: &mut String, fields: &Map<String, Value>, parent: &str, depth: usize) -> Result<(), Error> {
    // Sorted here and not by the map: another crate in the build may turn on insertion order.
    let mut names: Vec<&String> = fields.keys().collect();
    names.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    out.push('{');
    for (position, name) in names.into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write_value(out, &fields[name], if parent.is_empty() { name } else { parent }, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

/// Writes a JSON string with the fewest escapes that JSON allows.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            0x08 => "\\b",
            0x09 => "\\t",
            0x0a => "\\n",
            0x0c => "\\f",
            0x0d => "\\r",
            0x00..=0x1f => "",
            _ => continue,
        };
        // Every byte matched above is ASCII, so both cuts are character boundaries.
        out.push_str(&text[plain_from..at]);
        if escape.is_empty() {
            out.push_str(&format!("\\u{byte:04x}"));
        } else {
            out.push_str(escape);
        }
        plain_from = at + 1;
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_by_utf16_units_and_strings_escaped_least() {
        let value = json!({"b": 1, "a": [true, null, "x\u{1}\n\"\\/é€"], "\u{1F600}": 2, "\u{FFFD}": 3});
        assert_eq!(write(&value).unwrap(), "{\"a\":[true,null,\"x\\u0001\\n\\\"\\\\/é€\"],\"b\":1,\"\u{1F600}\":2,\"\u{FFFD}\":3}");
    }

    #[test]
    fn numbers_that_readers_disagree_on_are_refused() {
        assert_eq!(write(&json!({"x": 1.5})), Err(Error::Float("x".into())));
        assert_eq!(write(&json!({"x": [9_007_199_254_740_992_i64]})), Err(Error::TooLarge("x".into())));
        assert_eq!(write(&json!({"x": u64::MAX})), Err(Error::TooLarge("x".into())));
        assert_eq!(write(&json!(-9_007_199_254_740_991_i64)).unwrap(), "-9007199254740991");
    }

    #[test]
    fn reading_refuses_every_other_spelling() {
        for text in ["{\"a\":1,\"a\":1}", "{ \"a\":1}", "{\"b\":1,\"a\":2}", "\"\\u0041\"", "1.0", "-0", "[1,]", "\u{feff}1", "1e2"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(parse(&deep), Err(Error::Syntax(_))));
    }

    #[test]
    fn nothing_is_written_that_is_too_deep_to_read() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let written = write(&nested(64)).unwrap();
        assert!(parse(&written).is_ok());
        assert!(matches!(write(&nested(65)), Err(Error::TooDeep(_))));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-INTEGER_MAX..=INTEGER_MAX).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn writing_then_reading_gives_the_value_back(value in any_value()) {
            let text = write(&value).unwrap();
            prop_assert_eq!(&parse(&text).unwrap(), &value);
            // serde_json agrees that it is the same JSON value.
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}

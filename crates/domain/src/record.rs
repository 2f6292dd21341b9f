//! What a record is to the store: a declaration and a canonical body.
//!
//! A typed struct is declared once ([`Spec`]: table, class, columns, indexes, aggregates) and everything else follows: tables on
//! every backend, scans, counts, full text, the rebuild. Columns are copies of top-level body fields and can always be made again.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Map;

use crate::causality::{Domain, Stream};
use crate::hash;
use crate::id::RawId;
use crate::json;
use crate::limits::BODY_BYTES_MAX;
use crate::named::named_enum;
use crate::time::Timestamp;

named_enum! {
    /// How a kind of record is kept (DESIGN 4).
    Class {
        /// Logged in the host's synced stream.
        Synced = "synced",
        /// Logged in `host/local`.
        Local = "local",
        /// The body only in the table, its hash in the log.
        HashLogged = "hash_logged",
        /// In the same transaction, without a log entry; not rebuilt, not compared.
        Control = "control",
    }
}

impl Class {
    /// The stream its entries go to; `None` for control rows.
    #[must_use]
    pub const fn stream(self) -> Option<Stream> {
        match self {
            Self::Synced | Self::HashLogged => Some(Stream::Synced),
            Self::Local => Some(Stream::Local),
            Self::Control => None,
        }
    }
}

/// The declaration of one kind of record.
#[derive(Debug)]
pub struct Spec {
    /// Its name in the log, for ever.
    pub kind: &'static str,
    /// The table it is projected into.
    pub table: &'static str,
    /// Prefix of its ids.
    pub prefix: &'static str,
    /// Where it may be stored; control kinds exist in several domains.
    pub domains: &'static [Domain],
    pub class: Class,
    /// Version of the body's shape.
    pub schema: u32,
    /// Written once; the body is kept only beside the log.
    pub immutable: bool,
    /// Merged field by field: carries a dot per field.
    pub mergeable: bool,
    pub columns: &'static [Column],
    pub indexes: &'static [Index],
    pub aggregates: &'static [Aggregate],
    /// Body fields that full-text search covers; empty for none.
    pub full_text: &'static [&'static str],
}

impl Spec {
    /// What most records are; a declaration overrides the rest.
    pub const DEFAULT: Self = Self {
        kind: "",
        table: "",
        prefix: "",
        domains: &[],
        class: Class::Synced,
        schema: 1,
        immutable: false,
        mergeable: false,
        columns: &[],
        indexes: &[],
        aggregates: &[],
        full_text: &[],
    };

    #[must_use]
    pub fn index(&self, name: &str) -> Option<&Index> {
        self.indexes.iter().find(|index| index.name == name)
    }

    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    #[must_use]
    pub fn aggregate(&self, name: &str) -> Option<&Aggregate> {
        self.aggregates.iter().find(|aggregate| aggregate.name == name)
    }

    /// The column values of a body, in the order of `columns`.
    pub fn project(&self, body: &Body) -> Result<Vec<Value>, Error> {
        self.columns.iter().map(|column| column.read(body)).collect()
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Spec {}

/// A copy of a body field that can be searched.
#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    pub value_type: ValueType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    Text,
    Integer,
    Boolean,
    /// RFC 3339 in the body, milliseconds in the column.
    Time,
    /// Prefixed text in the body, sixteen bytes in the column.
    Id,
    /// Text in the body, sixteen bytes of its hash in the column: found when equal, without an order of its own.
    Digest,
}

/// What a [`ValueType::Digest`] column holds for a text.
#[must_use]
pub fn text_digest(text: &str) -> Value {
    Value::from(RawId::from_hash(&hash::plain(text.as_bytes())))
}

/// Scans walk declared indexes only. Every index ends with the record's id, so that its order is total.
#[derive(Debug)]
pub struct Index {
    pub name: &'static str,
    /// `workspace` may be named beside the declared columns.
    pub columns: &'static [&'static str],
    /// Only on local and control kinds: a synced kind's unique key is its id.
    pub unique: bool,
}

/// A count or a sum over the live rows of each group, kept up to date by every write.
#[derive(Debug)]
pub struct Aggregate {
    pub name: &'static str,
    pub group: &'static [&'static str],
    /// An integer column; `None` counts rows.
    pub sum: Option<&'static str>,
}

/// A column's value. The order is the order of every backend's indexes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<RawId> for Value {
    fn from(id: RawId) -> Self {
        Self::Bytes(id.as_bytes().to_vec())
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        Self::Integer(at.as_ms())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Json(#[from] json::Error),
    #[error("a record's body has {bytes} bytes; at most {BODY_BYTES_MAX} are allowed")]
    TooLarge { bytes: usize },
    #[error("field `{field}` is not a {expected}")]
    BadColumn { field: &'static str, expected: &'static str },
    #[error("the stored `{kind}` does not read: {message}")]
    Unreadable { kind: &'static str, message: String },
}

impl Column {
    fn read(&self, body: &Body) -> Result<Value, Error> {
        let Some(field) = body.fields.get(self.name).filter(|field| !field.is_null()) else {
            return Ok(Value::Null);
        };
        let (value, expected) = match self.value_type {
            ValueType::Text => (field.as_str().map(Value::from), "text"),
            ValueType::Integer => {
                // 64-bit numbers travel as strings, small ones as numbers.
                (field.as_i64().or_else(|| field.as_str()?.parse().ok()).map(Value::Integer), "number")
            }
            ValueType::Boolean => (field.as_bool().map(|flag| Value::Integer(flag.into())), "boolean"),
            ValueType::Time => (field.as_str().and_then(Timestamp::parse).map(Value::from), "time"),
            ValueType::Id => (field.as_str().and_then(RawId::parse_prefixed).map(|(_, id)| Value::from(id)), "prefixed id"),
            ValueType::Digest => (field.as_str().map(text_digest), "text"),
        };
        value.ok_or(Error::BadColumn { field: self.name, expected })
    }
}

/// A typed struct with its declaration.
pub trait Record: Serialize + DeserializeOwned {
    const SPEC: &'static Spec;

    fn to_body(&self) -> Result<Body, Error> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(fields)) => Body::from_fields(fields),
            _ => Err(json::Error::NotAnObject.into()),
        }
    }

    fn from_body(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|error| Error::Unreadable { kind: Self::SPEC.kind, message: error.to_string() })
    }
}

/// A record's content: an object and its canonical text, which always agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    fields: Map<String, serde_json::Value>,
    text: String,
}

impl Body {
    pub fn from_fields(fields: Map<String, serde_json::Value>) -> Result<Self, Error> {
        let text = json::write_object(&fields)?;
        if text.len() > BODY_BYTES_MAX {
            return Err(Error::TooLarge { bytes: text.len() });
        }
        Ok(Self { fields, text })
    }

    /// Reads a stored body; anything but the canonical text is refused.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self { fields: json::parse_object(text)?, text: text.to_owned() })
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn fields(&self) -> &Map<String, serde_json::Value> {
        &self.fields
    }

    /// The text of a field, empty when it is absent or not text: what full-text search indexes.
    #[must_use]
    pub fn text_of(&self, field: &str) -> &str {
        self.fields.get(field).and_then(serde_json::Value::as_str).unwrap_or_default()
    }

    /// Names of the fields in which two bodies differ, sorted.
    #[must_use]
    pub fn changed_fields(&self, before: &Self) -> Vec<String> {
        let mut names: Vec<String> = self
            .fields
            .iter()
            .filter(|(name, value)| before.fields.get(*name) != Some(value))
            .map(|(name, _)| name.clone())
            .chain(before.fields.keys().filter(|name| !self.fields.contains_key(*name)).cloned())
            .collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_what_is_declared() {
        assert_eq!(Class::ALL.iter().map(|c| c.as_str()).collect::<Vec<_>>(), ["synced", "local", "hash_logged", "control"]);
    }

    #[test]
    fn l44_only_synced_kinds_enter_the_stream_that_travels() {
        let travelling: Vec<_> =
            Class::ALL.iter().filter(|class| class.stream() == Some(Stream::Synced)).map(|c| c.as_str()).collect();
        assert_eq!(travelling, ["synced", "hash_logged"]);
        assert_eq!((Class::Local.stream(), Class::Control.stream()), (Some(Stream::Local), None));
    }

    fn body(value: &serde_json::Value) -> Body {
        Body::parse(&json::write(value).unwrap()).unwrap()
    }

    #[test]
    fn columns_are_read_by_type() {
        let spec = Spec {
            columns: &[
                Column { name: "a", value_type: ValueType::Text },
                Column { name: "b", value_type: ValueType::Integer },
                Column { name: "c", value_type: ValueType::Time },
                Column { name: "d", value_type: ValueType::Id },
                Column { name: "e", value_type: ValueType::Boolean },
            ],
            ..Spec::DEFAULT
        };
        let id = RawId::from_bytes([9; 16]);
        let values = spec
            .project(&body(&json!({"a": "x", "b": "9223372036854775807", "c": "1970-01-01T00:00:00.005Z", "d": id.with_prefix("note"), "e": true})))
            .unwrap();
        assert_eq!(values, [Value::from("x"), Value::Integer(i64::MAX), Value::Integer(5), Value::from(id), Value::Integer(1)]);
        assert_eq!(spec.project(&body(&json!({}))).unwrap(), vec![Value::Null; 5]);
        assert_eq!(spec.project(&body(&json!({"c": "soon"}))), Err(Error::BadColumn { field: "c", expected: "time" }));
    }

    #[test]
    fn changed_fields_are_those_set_altered_or_removed() {
        let before = body(&json!({"a": 1, "b": 2, "c": 3}));
        let after = body(&json!({"a": 1, "b": 5, "d": 4}));
        assert_eq!(after.changed_fields(&before), ["b", "c", "d"]);
    }
}

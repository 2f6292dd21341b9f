//! The cursor: how far a consumer has read another domain's log. It lives where the consumer's product lives and moves in the
//! product's transaction, so a crash between a change and what follows from it can neither lose nor double it.

use serde::{Deserialize, Serialize};

use crate::causality::{Domain, Stream};
use crate::hash::{Digest, Hash};
use crate::id::{HistoryId, HostId, RawId};
use crate::key::keyed;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    pub consumer: String,
    /// The domain whose log is read.
    pub source: Domain,
    /// The log's life; another one means that the file was restored or replaced.
    pub history: HistoryId,
    /// Sorted by host and stream; a stream that is absent is read from its beginning.
    pub places: Vec<Place>,
    pub updated_at: Timestamp,
}

/// The last entry that was read of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub host: HostId,
    pub stream: Stream,
    #[serde(with = "crate::records::cursor::counter_text")]
    pub counter: u64,
    pub chain: Hash,
}

impl Cursor {
    #[must_use]
    pub fn id_of(consumer: &str) -> RawId {
        keyed("cursor", "", consumer)
    }

    /// What a consumer's next `operationId` is derived from.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let mut sorted = self.places.clone();
        sorted.sort_by_key(|place| (place.host, place.stream));
        let places = sorted.iter().flat_map(|place| {
            [place.host.to_string(), place.stream.to_string(), place.counter.to_string(), place.chain.to_string()]
        });
        Digest::new("verger.cursor.v1").text(&self.consumer).shown(&self.source).shown(&self.history).list(places).finish()
    }
}

/// 64-bit numbers are strings in canonical JSON.
pub mod counter_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(counter: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(counter)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let counter: u64 = text.parse().map_err(de::Error::custom)?;
        if counter.to_string() != text {
            return Err(de::Error::custom("a counter is written without sign or leading zeros"));
        }
        Ok(counter)
    }
}

//! Instants as values. Nothing here reads a clock.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since 1970-01-01T00:00:00Z; an integer on disk, RFC 3339 with milliseconds and `Z` in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// LIMIT: from 0001-01-01 to the last instant every zone can show in the year 9999, so that the text form always has the same width and sorts like the number.
const MS_MIN: i64 = -62_135_596_800_000;
const MS_MAX: i64 = 253_402_207_200_000;

impl Timestamp {
    pub const EPOCH: Self = Self(0);

    /// An instant outside the years 1 to 9999 is moved to the nearest one inside.
    #[must_use]
    pub fn from_ms(ms: i64) -> Self {
        Self(ms.clamp(MS_MIN, MS_MAX))
    }

    #[must_use]
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// Reads exactly the form that `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let instant: jiff::Timestamp = text.parse().ok()?;
        let timestamp = Self::from_ms(instant.as_millisecond());
        (timestamp.to_string() == text).then_some(timestamp)
    }

    /// `YYYY-MM-DD HH:MM:SS` in UTC: the title of a record that was given none (K13).
    #[must_use]
    pub fn as_title(self) -> String {
        let text = self.to_string();
        format!("{} {}", &text[..10], &text[11..19])
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = jiff::Timestamp::from_millisecond(self.0).expect("the constructor keeps the range of years 1 to 9999");
        write!(f, "{instant:.3}")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("a time is written like 2026-11-15T09:30:00.000Z"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_fixed_width_and_reads_back() {
        for ms in [MS_MIN, -1, 0, 1, 1_794_753_000_123, MS_MAX] {
            let timestamp = Timestamp::from_ms(ms);
            assert_eq!(timestamp.to_string().len(), 24, "{timestamp}");
            assert_eq!(Timestamp::parse(&timestamp.to_string()), Some(timestamp));
        }
        assert_eq!(Timestamp::from_ms(i64::MAX).to_string(), "9999-12-30T22:00:00.000Z");
        assert_eq!(Timestamp::parse("2026-11-15T09:30:00Z"), None);
        assert_eq!(Timestamp::parse("2026-11-15T09:30:00.000+01:00"), None);
    }

    #[test]
    fn k13_a_title_can_be_made_of_the_current_datetime() {
        assert_eq!(Timestamp::from_ms(0).as_title(), "1970-01-01 00:00:00");
    }
}

//! Slugs: the short lower-case names that people type and ids are derived from.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

/// LIMIT: long enough for any name, short enough for a column.
const SLUG_BYTES_MAX: usize = 64;

/// Lower-case letters, digits, `-` and `_`, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Slug(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {SLUG_BYTES_MAX} lower-case letters, digits, `-` or `_`, and begins with a letter or digit")]
pub struct BadSlug;

impl Slug {
    pub fn parse(text: &str) -> Result<Self, BadSlug> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let begins_well = text.bytes().next().is_some_and(allowed);
        let rest_is_fine = text.bytes().all(|byte| allowed(byte) || byte == b'-' || byte == b'_');
        if text.len() > SLUG_BYTES_MAX || !begins_well || !rest_is_fine {
            return Err(BadSlug);
        }
        Ok(Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Slug {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_slugs() {
        for good in ["home", "a", "2026-plans", "read_later"] {
            assert!(Slug::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "Home", "-x", "a b", "é", "a/b", "..", &"x".repeat(65)] {
            assert_eq!(Slug::parse(bad), Err(BadSlug), "{bad}");
        }
    }
}

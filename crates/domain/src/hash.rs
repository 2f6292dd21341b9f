//! SHA-256, plain and salted, and the one way to feed it structured input.
//!
//! [`Digest`] writes a canonical JSON array as it goes, so that a key derivation reads like the list of its inputs and cannot
//! be ambiguous: `["verger.run_key.v1","…",…]`. Counters and other 64-bit numbers are written as strings, as everywhere in
//! canonical JSON.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Digest as _;

use crate::json;

/// A SHA-256 value: 32 bytes on disk, 64 lower-case hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads a stored hash; `None` when it does not have 32 bytes.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the text form; upper case is refused so that one value has one text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Lower-case hexadecimal, the text form of bytes that have no prefix.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("a hash is 64 lower-case hexadecimal digits"))
    }
}

/// SHA-256 of bytes as they are.
#[must_use]
pub fn plain(bytes: &[u8]) -> Hash {
    Hash(sha2::Sha256::digest(bytes).into())
}

/// SHA-256 over salt and bytes. Without the salt the hash confirms no guess of the content, so erasing the salt erases that too.
#[must_use]
pub fn salted(salt: &Salt, bytes: &[u8]) -> Hash {
    let mut hasher = sha2::Sha256::new();
    hasher.update(salt.0);
    hasher.update(bytes);
    Hash(hasher.finalize().into())
}

/// Sixteen random bytes that are stored beside a body and erased with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

/// A canonical JSON array under construction, hashed when finished.
#[derive(Debug)]
pub struct Digest {
    json: String,
}

impl Digest {
    /// `tag` names what is derived and its version, e.g. `verger.run_key.v1`.
    #[must_use]
    pub fn new(tag: &'static str) -> Self {
        let mut json = String::with_capacity(512);
        json.push('[');
        json::write_string(&mut json, tag);
        Self { json }
    }

    #[must_use]
    pub fn text(mut self, value: &str) -> Self {
        self.json.push(',');
        json::write_string(&mut self.json, value);
        self
    }

    /// An id, a hash, a timestamp: anything with one text form.
    #[must_use]
    pub fn shown(self, value: &impl fmt::Display) -> Self {
        self.text(&value.to_string())
    }

    #[must_use]
    pub fn optional(mut self, value: Option<&impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.shown(value),
            None => {
                self.json.push_str(",null");
                self
            }
        }
    }

    /// A 64-bit number, as a string.
    #[must_use]
    pub fn number(self, value: u64) -> Self {
        self.shown(&value)
    }

    /// A nested array of texts.
    #[must_use]
    pub fn list(mut self, values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.json.push_str(",[");
        for (position, value) in values.into_iter().enumerate() {
            if position > 0 {
                self.json.push(',');
            }
            json::write_string(&mut self.json, value.as_ref());
        }
        self.json.push(']');
        self
    }

    /// The array's text so far, closed: what the hash is taken over.
    #[must_use]
    pub fn input(&self) -> String {
        format!("{}]", self.json)
    }

    #[must_use]
    pub fn finish(mut self) -> Hash {
        self.json.push(']');
        plain(self.json.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_hash_of_a_canonical_array() {
        let digest = Digest::new("verger.test.v1").text("a\"b").number(u64::MAX).optional(None::<&Hash>).list(["x", "y"]);
        let input = digest.input();
        assert_eq!(input, r#"["verger.test.v1","a\"b","18446744073709551615",null,["x","y"]]"#);
        assert_eq!(digest.finish(), plain(input.as_bytes()));
    }

    #[test]
    fn the_text_form_has_one_spelling() {
        let hash = plain(b"");
        assert_eq!(hash.to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
        assert_eq!(Hash::parse(&hash.to_string().to_uppercase()), None);
        assert_eq!(Hash::parse("e3"), None);
    }

    #[test]
    fn a_salt_changes_the_hash_and_is_never_shown() {
        assert_ne!(salted(&Salt([1; 16]), b"x"), salted(&Salt([2; 16]), b"x"));
        assert_eq!(format!("{:?}", Salt([7; 16])), "Salt(..)");
    }
}

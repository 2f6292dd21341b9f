//! What must hold for any bytes at all: the bodies of the fuzz targets of this room.
//!
//! The fuzzer includes this file (`fuzz/fuzz_targets`), and [`crate::replay`] calls the same functions on the stored corpus, so a
//! find that is put there stays found. A body panics when a promise is broken.

use domain::json;
use domain::token::Token;
use serde_json::Value;

/// One value has one text, and only that text is read.
pub(crate) fn canonical_json(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(value) = json::parse(text)
    {
        assert_eq!(json::write(&value).as_deref(), Ok(text));
    }
    if let Ok(value) = serde_json::from_slice::<Value>(bytes)
        && let Ok(text) = json::write(&value)
    {
        assert_eq!(json::parse(&text), Ok(value));
    }
}

/// A token has one key and one legacy form, each of which reads back, and nothing else reads as that token.
pub(crate) fn tokens(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(token) = Token::parse_legacy(text) {
        assert_eq!(token.to_legacy(), text);
        assert_eq!(Token::parse_key(&token.to_string()), Ok(token));
    }
    if let Ok(token) = Token::parse_key(text) {
        assert_eq!(token.to_string(), text);
        assert_eq!(Token::parse_legacy(&token.to_legacy()), Ok(token));
    }
}

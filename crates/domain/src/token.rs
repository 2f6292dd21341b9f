//! Typed tokens: what a change announces and a subscription listens for (L6).
//!
//! Three classes, never guessed from free text. Only subtype tokens have a namespace, and they must. The canonical
//! `tokenKey` is `class|namespace or -|value`. Legacy strings are read in exactly three prefixed forms (`k:`, `id:`, `sub:ns:value`);
//! anything else is refused with what is wrong with it.

use std::fmt;

use crate::limits::TOKEN_BYTES_MAX;
use crate::named::named_enum;

named_enum! {
    TokenClass {
        SemanticKey = "semanticKey",
        SubtypeToken = "subtypeToken",
        EntityId = "entityId",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a {class} token has no value")]
    EmptyValue { class: TokenClass },
    #[error("a subtypeToken needs a namespace")]
    NamespaceMissing,
    #[error("a {class} token takes no namespace")]
    NamespaceUnexpected { class: TokenClass },
    #[error("a token's {part} has {bytes} bytes; at most {TOKEN_BYTES_MAX} are allowed")]
    TooLong { part: &'static str, bytes: usize },
    #[error("a token's {part} holds a control character or a reserved one at byte {at}")]
    BadCharacter { part: &'static str, at: usize },
    #[error("a legacy token begins with `k:`, `id:` or `sub:`, and `sub:` is followed by `namespace:value`")]
    UnknownForm,
    #[error("a token key has the form `class|namespace or -|value`")]
    BadKey,
}

/// A token that keeps the rules of its class. Two tokens are the same when their keys are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    class: TokenClass,
    namespace: Option<String>,
    value: String,
}

impl Token {
    pub fn semantic_key(value: &str) -> Result<Self, Error> {
        Self::new(TokenClass::SemanticKey, None, value)
    }

    pub fn subtype(namespace: &str, value: &str) -> Result<Self, Error> {
        Self::new(TokenClass::SubtypeToken, Some(namespace), value)
    }

    pub fn entity_id(value: &str) -> Result<Self, Error> {
        Self::new(TokenClass::EntityId, None, value)
    }

    /// The one constructor: every rule is here.
    pub fn new(class: TokenClass, namespace: Option<&str>, value: &str) -> Result<Self, Error> {
        match (class, namespace) {
            (TokenClass::SubtypeToken, None) => return Err(Error::NamespaceMissing),
            (TokenClass::SubtypeToken, Some(namespace)) => {
                if namespace.is_empty() || namespace == "-" {
                    return Err(Error::NamespaceMissing);
                }
                // `|` ends the namespace in a key and `:` in the legacy form.
                check_part("namespace", namespace, &['|', ':'])?;
            }
            (TokenClass::SemanticKey | TokenClass::EntityId, Some(_)) => return Err(Error::NamespaceUnexpected { class }),
            (TokenClass::SemanticKey | TokenClass::EntityId, None) => {}
        }
        if value.is_empty() {
            return Err(Error::EmptyValue { class });
        }
        check_part("value", value, &[])?;
        Ok(Self { class, namespace: namespace.map(str::to_owned), value: value.to_owned() })
    }

    /// Reads one of the three legacy forms.
    pub fn parse_legacy(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("k", value)) => Self::semantic_key(value),
            Some(("id", value)) => Self::entity_id(value),
            Some(("sub", rest)) => {
                let (namespace, value) = rest.split_once(':').ok_or(Error::UnknownForm)?;
                Self::subtype(namespace, value)
            }
            _ => Err(Error::UnknownForm),
        }
    }

    /// Reads a canonical `tokenKey`.
    pub fn parse_key(key: &str) -> Result<Self, Error> {
        let mut parts = key.splitn(3, '|');
        let (Some(class), Some(namespace), Some(value)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Error::BadKey);
        };
        let class = TokenClass::parse(class).ok_or(Error::BadKey)?;
        Self::new(class, (namespace != "-").then_some(namespace), value)
    }

    #[must_use]
    pub fn class(&self) -> TokenClass {
        self.class
    }

    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The legacy mirror of this token.
    #[must_use]
    pub fn to_legacy(&self) -> String {
        match (self.class, &self.namespace) {
            (TokenClass::SemanticKey, _) => format!("k:{}", self.value),
            (TokenClass::EntityId, _) => format!("id:{}", self.value),
            (TokenClass::SubtypeToken, namespace) => format!("sub:{}:{}", namespace.as_deref().unwrap_or_default(), self.value),
        }
    }
}

/// Shows the canonical `tokenKey`.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}|{}", self.class, self.namespace.as_deref().unwrap_or("-"), self.value)
    }
}

fn check_part(part: &'static str, text: &str, reserved: &[char]) -> Result<(), Error> {
    if text.len() > TOKEN_BYTES_MAX {
        return Err(Error::TooLong { part, bytes: text.len() });
    }
    match text.char_indices().find(|(_, character)| character.is_control() || reserved.contains(character)) {
        Some((at, _)) => Err(Error::BadCharacter { part, at }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn l6_each_class_has_its_canonical_key() {
        let check = |token: Result<Token, Error>, key: &str, legacy: &str| {
            let token = token.unwrap();
            assert_eq!(token.to_string(), key);
            assert_eq!(token.to_legacy(), legacy);
            assert_eq!(Token::parse_legacy(legacy).unwrap(), token);
            assert_eq!(Token::parse_key(key).unwrap(), token);
        };
        check(Token::semantic_key("TASK"), "semanticKey|-|TASK", "k:TASK");
        check(Token::entity_id("note_1"), "entityId|-|note_1", "id:note_1");
        check(Token::subtype("workout", "run:5k|easy"), "subtypeToken|workout|run:5k|easy", "sub:workout:run:5k|easy");
    }

    #[test]
    fn l6_malformed_tokens_are_refused_with_what_is_wrong() {
        let check = |text: &str, expected: Error| assert_eq!(Token::parse_legacy(text), Err(expected), "{text:?}");
        check("TASK", Error::UnknownForm);
        check("", Error::UnknownForm);
        check("key:TASK", Error::UnknownForm);
        check("K:TASK", Error::UnknownForm);
        check("sub:workout", Error::UnknownForm);
        check("sub::run", Error::NamespaceMissing);
        check("sub:-:run", Error::NamespaceMissing);
        check("k:", Error::EmptyValue { class: TokenClass::SemanticKey });
        check("id:a\nb", Error::BadCharacter { part: "value", at: 1 });
        check(&format!("k:{}", "x".repeat(257)), Error::TooLong { part: "value", bytes: 257 });
        assert_eq!(Token::new(TokenClass::SubtypeToken, None, "x"), Err(Error::NamespaceMissing));
        assert_eq!(
            Token::new(TokenClass::EntityId, Some("ns"), "x"),
            Err(Error::NamespaceUnexpected { class: TokenClass::EntityId })
        );
        assert_eq!(Token::parse_key("semanticKey|TASK"), Err(Error::BadKey));
        assert_eq!(Token::parse_key("thing|-|TASK"), Err(Error::BadKey));
    }

    proptest! {
        #[test]
        fn l6_whatever_parses_has_one_key_that_reads_back(text in "(k|id|sub|x):[a-z|:é-]{0,12}") {
            if let Ok(token) = Token::parse_legacy(&text) {
                prop_assert_eq!(&token.to_legacy(), &text);
                prop_assert_eq!(Token::parse_key(&token.to_string()).unwrap(), token);
            }
        }
    }
}

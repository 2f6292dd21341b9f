//! A decision is data: the verdict, the layer that made it, the rule and the code.

use domain::code::ErrorCode;
use domain::named_enum;
use serde::{Deserialize, Serialize};

named_enum! {
    /// The layers in the order in which they are asked (DESIGN 7).
    Layer {
        KillSwitch = "kill_switch",
        Lifecycle = "lifecycle",
        Access = "access",
        Scope = "scope",
        Capability = "capability",
        Model = "model",
        Egress = "egress",
        Consent = "consent",
        Secret = "secret",
        NeedToKnow = "need_to_know",
        Budget = "budget",
        Risk = "risk",
        TrustFlow = "trust_flow",
    }
}

named_enum! {
    Verdict { Allow = "allow", Ask = "ask", Deny = "deny" }
}

named_enum! {
    /// What one layer says.
    Outcome { Pass = "pass", Neutral = "neutral", Ask = "ask", Refuse = "refuse" }
}

/// The verdict on a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub verdict: Verdict,
    /// The layer that refused or asks; none when all passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    pub rule: String,
    #[serde(skip_serializing_if = "Option::is_none", with = "code_text", default)]
    pub code: Option<ErrorCode>,
}

/// What a layer's function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    Pass {
        rule: &'static str,
    },
    /// The layer has nothing to look at yet.
    Neutral,
    Ask {
        rule: &'static str,
        code: ErrorCode,
    },
    Refuse {
        rule: &'static str,
        code: ErrorCode,
    },
}

/// One line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerVerdict {
    pub layer: Layer,
    pub outcome: Outcome,
    pub rule: &'static str,
    pub code: Option<ErrorCode>,
}

impl LayerVerdict {
    pub(crate) fn of(layer: Layer, ruling: &Ruling) -> Self {
        let (outcome, rule, code) = match *ruling {
            Ruling::Pass { rule } => (Outcome::Pass, rule, None),
            Ruling::Neutral => (Outcome::Neutral, "nothing is set here yet", None),
            Ruling::Ask { rule, code } => (Outcome::Ask, rule, Some(code)),
            Ruling::Refuse { rule, code } => (Outcome::Refuse, rule, Some(code)),
        };
        Self { layer, outcome, rule, code }
    }
}

mod code_text {
    use domain::code::ErrorCode;
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
    pub(super) fn serialize<S: Serializer>(code: &Option<ErrorCode>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(code.map_or("", ErrorCode::as_str))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ErrorCode>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let found = ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text);
        found.map(Some).ok_or_else(|| de::Error::custom(format!("`{text}` is not a known code")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(
            Layer::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            [
                "kill_switch",
                "lifecycle",
                "access",
                "scope",
                "capability",
                "model",
                "egress",
                "consent",
                "secret",
                "need_to_know",
                "budget",
                "risk",
                "trust_flow"
            ]
        );
        assert_eq!(Verdict::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["allow", "ask", "deny"]);
        assert_eq!(Outcome::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["pass", "neutral", "ask", "refuse"]);
        let decision = Decision {
            verdict: Verdict::Deny,
            layer: Some(Layer::Budget),
            rule: "x".into(),
            code: Some(ErrorCode::BudgetExceeded),
        };
        let text = r#"{"verdict":"deny","layer":"budget","rule":"x","code":"budget_exceeded"}"#;
        assert_eq!(serde_json::to_string(&decision).unwrap(), text);
        assert_eq!(serde_json::from_str::<Decision>(text).unwrap(), decision);
    }
}

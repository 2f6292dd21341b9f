//! The one decision: may this happen, and if not, which layer says so and why.
//!
//! Owns: [`authorize`], its fixed layers, their rules and the sentences for people.
//!
//! Must not know: stores, loops, providers, who asks. It sees a [`Request`] and a [`World`] as values and answers with a value.
//!
//! Invariants: the layers have one order and the first refusal wins; every layer is looked at for every request, so that
//! [`explain`] and [`authorize`] cannot disagree; a layer that has nothing to say yet says so and is neutral; nothing that is not named
//! is allowed.
//!
//! Start at [`authorize`], then `layers.rs`.

mod decision;
mod layers;
mod request;
mod world;

pub use decision::{Decision, Layer, LayerVerdict, Outcome, Ruling, Verdict};
pub use request::{Act, Approval, Capability, Mode, Request, Risk, Target};
pub use world::World;

/// The version of the rules below. An approval given under another version does not count.
pub const POLICY_VERSION: u32 = 1;

/// Decides a request. The only place in the house that says yes.
#[must_use]
pub fn authorize(request: &Request, world: &World) -> Decision {
    let mut asks: Option<Decision> = None;
    for layer in Layer::ALL {
        match layers::judge(*layer, request, world) {
            Ruling::Pass { .. } | Ruling::Neutral => {}
            Ruling::Refuse { rule, code } => {
                return Decision { verdict: Verdict::Deny, layer: Some(*layer), rule: rule.to_owned(), code: Some(code) };
            }
            Ruling::Ask { rule, code } => {
                asks.get_or_insert(Decision {
                    verdict: Verdict::Ask,
                    layer: Some(*layer),
                    rule: rule.to_owned(),
                    code: Some(code),
                });
            }
        }
    }
    asks.unwrap_or_else(|| Decision { verdict: Verdict::Allow, layer: None, rule: "every layer passed".to_owned(), code: None })
}

/// What every layer says of a request, the refusing ones and those after them included.
#[must_use]
pub fn explain(request: &Request, world: &World) -> Vec<LayerVerdict> {
    Layer::ALL.iter().map(|layer| LayerVerdict::of(*layer, &layers::judge(*layer, request, world))).collect()
}

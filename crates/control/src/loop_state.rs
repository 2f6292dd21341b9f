//! The labels of an agent's loop (K7): which part of the prompt applies, and what a person sees.
//!
//! | from | may enter |
//! |---|---|
//! | planning | executing, record_organizing, paging, idle |
//! | executing | evaluating |
//! | evaluating | planning |
//! | record_organizing, paging | planning |
//! | idle | planning |
//!
//! A start enters planning whatever was before. Deleting the current state falls back to planning, or to idle when no step is left.

use domain::named_enum;

named_enum! {
    LoopState {
        Planning = "planning",
        Executing = "executing",
        Evaluating = "evaluating",
        RecordOrganizing = "record_organizing",
        Paging = "paging",
        Idle = "idle",
    }
}

/// A change of label that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the loop does not go from {from} to {to}")]
pub struct Illegal {
    pub from: LoopState,
    pub to: LoopState,
}

impl LoopState {
    /// The label after `to` was asked for; entering the present one changes nothing.
    pub const fn enter(self, to: Self) -> Result<Self, Illegal> {
        let legal = match self {
            Self::Planning => matches!(to, Self::Planning | Self::Executing | Self::RecordOrganizing | Self::Paging | Self::Idle),
            Self::Executing => matches!(to, Self::Executing | Self::Evaluating),
            Self::Evaluating => matches!(to, Self::Evaluating | Self::Planning),
            Self::RecordOrganizing => matches!(to, Self::RecordOrganizing | Self::Planning),
            Self::Paging => matches!(to, Self::Paging | Self::Planning),
            Self::Idle => matches!(to, Self::Idle | Self::Planning),
        };
        if legal { Ok(to) } else { Err(Illegal { from: self, to }) }
    }

    /// The label after the current one was deleted.
    #[must_use]
    pub const fn after_delete(steps_left: bool) -> Self {
        if steps_left { Self::Planning } else { Self::Idle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k7_the_loop_goes_where_the_table_says_and_nowhere_else() {
        use LoopState::{Evaluating, Executing, Idle, Paging, Planning, RecordOrganizing};
        let legal = [
            (Planning, Executing),
            (Planning, RecordOrganizing),
            (Planning, Paging),
            (Planning, Idle),
            (Executing, Evaluating),
            (Evaluating, Planning),
            (RecordOrganizing, Planning),
            (Paging, Planning),
            (Idle, Planning),
        ];
        for from in LoopState::ALL {
            for to in LoopState::ALL {
                let expected = from == to || legal.contains(&(*from, *to));
                assert_eq!(from.enter(*to).is_ok(), expected, "{from} to {to}");
            }
        }
    }

    #[test]
    fn k7_a_deleted_state_falls_back() {
        assert_eq!((LoopState::after_delete(true), LoopState::after_delete(false)), (LoopState::Planning, LoopState::Idle));
    }

    #[test]
    fn names_are_what_is_stored() {
        let names: Vec<_> = LoopState::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(names, ["planning", "executing", "evaluating", "record_organizing", "paging", "idle"]);
    }
}

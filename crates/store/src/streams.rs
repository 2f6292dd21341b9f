//! A database's own numbers for streams, so that one integer is a place in the log (`row::position`).

use std::collections::BTreeMap;

use domain::causality::{Dot, StreamId};

use crate::{Error, Result, row};

/// Numbers and streams, both ways.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams {
    by_number: BTreeMap<i64, StreamId>,
    numbers: BTreeMap<StreamId, i64>,
}

impl Streams {
    pub(crate) fn insert(&mut self, number: i64, stream: StreamId) {
        self.by_number.insert(number, stream);
        self.numbers.insert(stream, number);
    }

    pub(crate) fn position(&self, dot: &Dot) -> Result<i64> {
        let number = self.numbers.get(&dot.stream);
        number.and_then(|number| row::position(*number, dot.counter)).ok_or_else(|| Error::Unreadable(crate::error::place(dot)))
    }

    pub(crate) fn dot(&self, position: i64) -> Result<Dot> {
        let (number, counter) = row::split_position(position);
        let stream = self.by_number.get(&number).filter(|_| counter > 0);
        stream
            .map(|stream| Dot { stream: *stream, counter })
            .ok_or_else(|| Error::Unreadable(format!("place {position} in the log")))
    }

    pub(crate) fn number(&self, stream: &StreamId) -> Option<i64> {
        self.numbers.get(stream).copied()
    }

    pub(crate) fn stream(&self, number: i64) -> Option<StreamId> {
        self.by_number.get(&number).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StreamId> {
        self.by_number.values()
    }
}

//! Who wrote what after what: hosts, streams, dots and vector clocks.
//!
//! No wall clock takes part. A dot names one log entry; a vector clock says how much of each host's synced stream a writer had
//! seen; comparing two clocks tells whether one write knew of the other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::HostId;
use crate::named::named_enum;

named_enum! {
    /// Which of a host's two logs in a domain an entry belongs to.
    Stream {
        /// Travels to the owner's other devices.
        Synced = "synced",
        /// Stays on this host: `host/local`.
        Local = "local",
    }
}

named_enum! {
    /// The stores that are kept apart so that the person's record stays clean.
    Domain {
        Journal = "journal",
        Agent = "agent",
        Ledger = "ledger",
    }
}

/// One log of one host in one domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId {
    pub host: HostId,
    pub stream: Stream,
}

/// One log entry: the unit of causality. Counters of a stream begin at 1 and have no gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    pub stream: StreamId,
    pub counter: u64,
}

/// What one vector clock is to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Before,
    After,
    Concurrent,
}

/// For each host, the highest counter of its synced stream that is known. A host that is absent counts as 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VectorClock(BTreeMap<HostId, u64>);

impl VectorClock {
    #[must_use]
    pub fn get(&self, host: &HostId) -> u64 {
        self.0.get(host).copied().unwrap_or(0)
    }

    /// Raises one host's counter; a lower value changes nothing, since clocks only grow.
    pub fn advance(&mut self, host: HostId, counter: u64) {
        if counter > self.get(&host) {
            self.0.insert(host, counter);
        }
    }

    /// The least clock that dominates both.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        for (host, counter) in &other.0 {
            merged.advance(*host, *counter);
        }
        merged
    }

    #[must_use]
    pub fn compare(&self, other: &Self) -> Relation {
        match (self.covers(other), other.covers(self)) {
            (true, true) => Relation::Equal,
            (true, false) => Relation::After,
            (false, true) => Relation::Before,
            (false, false) => Relation::Concurrent,
        }
    }

    /// Strictly after: knows everything the other knows, and more.
    #[must_use]
    pub fn dominates(&self, other: &Self) -> bool {
        self.compare(other) == Relation::After
    }

    #[must_use]
    pub fn concurrent(&self, other: &Self) -> bool {
        self.compare(other) == Relation::Concurrent
    }

    pub fn iter(&self) -> impl Iterator<Item = (&HostId, u64)> {
        self.0.iter().map(|(host, counter)| (host, *counter))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(host, counter)| self.get(host) >= *counter)
    }
}

impl FromIterator<(HostId, u64)> for VectorClock {
    fn from_iter<I: IntoIterator<Item = (HostId, u64)>>(pairs: I) -> Self {
        let mut clock = Self::default();
        for (host, counter) in pairs {
            clock.advance(host, counter);
        }
        clock
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::RawId;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(Stream::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>(), ["synced", "local"]);
        assert_eq!(Domain::ALL.iter().map(|d| d.as_str()).collect::<Vec<_>>(), ["journal", "agent", "ledger"]);
    }

    fn clock(counters: [u64; 3]) -> VectorClock {
        (0..).zip(counters).map(|(n, counter)| (HostId::from_raw(RawId::from_bytes([n; 16])), counter)).collect()
    }

    #[test]
    fn the_four_relations() {
        assert_eq!(clock([1, 0, 0]).compare(&clock([1, 0, 0])), Relation::Equal);
        assert_eq!(clock([1, 0, 0]).compare(&clock([1, 1, 0])), Relation::Before);
        assert_eq!(clock([2, 1, 0]).compare(&clock([1, 1, 0])), Relation::After);
        assert_eq!(clock([2, 0, 0]).compare(&clock([1, 1, 0])), Relation::Concurrent);
        assert!(clock([2, 1, 0]).dominates(&clock([1, 1, 0])) && !clock([1, 1, 0]).dominates(&clock([1, 1, 0])));
        assert!(clock([2, 0, 0]).concurrent(&clock([1, 1, 0])));
        assert!(clock([0, 0, 0]).is_empty(), "a counter of 0 is the same as an unknown host");
    }

    fn any_clock() -> impl Strategy<Value = VectorClock> {
        any::<[u8; 3]>().prop_map(|counters| clock(counters.map(|counter| u64::from(counter % 4))))
    }

    proptest! {
        #[test]
        fn merge_is_a_semilattice_and_bounds_both(a in any_clock(), b in any_clock(), c in any_clock()) {
            prop_assert_eq!(a.merge(&b), b.merge(&a));
            prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
            prop_assert_eq!(&a.merge(&a), &a);
            for side in [&a, &b] {
                prop_assert!(matches!(a.merge(&b).compare(side), Relation::Equal | Relation::After));
            }
        }

        #[test]
        fn comparing_backwards_gives_the_mirrored_relation(a in any_clock(), b in any_clock()) {
            let mirrored = match b.compare(&a) {
                Relation::Before => Relation::After,
                Relation::After => Relation::Before,
                same => same,
            };
            prop_assert_eq!(a.compare(&b), mirrored);
        }
    }
}

//! S03: what people were told is done survives every crash. S05: the logs verify.

use domain::causality::Domain;

use crate::ledger::{Ledger, Violation};
use crate::place::{Stores, lock, store_of};

/// Every acknowledged act is in its store.
pub fn kept(stores: &Stores, ledger: &Ledger) -> Option<Violation> {
    for domain in Domain::ALL {
        let reader = lock(store_of(stores, *domain)).reader();
        let snapshot = match reader.read() {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(Violation::new("S03 acknowledged", format!("{domain} does not open: {error}"))),
        };
        for (_, operation) in ledger.acknowledged.iter().filter(|(of, _)| of == domain) {
            if !matches!(snapshot.outcome(operation), Ok(Some(_))) {
                return Some(Violation::new(
                    "S03 acknowledged",
                    format!("{operation} was acknowledged and is gone from the {domain}"),
                ));
            }
        }
    }
    None
}

/// Every log is sound from its first entry to its head.
pub fn sound(stores: &Stores) -> Option<Violation> {
    for domain in Domain::ALL {
        let reader = lock(store_of(stores, *domain)).reader();
        let kinds: Vec<_> = domain::catalogue::of_domain(*domain).collect();
        let report = store::verify::domain(reader.as_ref(), *domain, &kinds, &[], &mut |_| {});
        match report {
            Ok(report) if report.is_sound() => {}
            Ok(report) => return Some(Violation::new("S05 log", format!("{domain}: {report:?}"))),
            Err(error) => return Some(Violation::new("S05 log", format!("{domain}: {error}"))),
        }
    }
    None
}

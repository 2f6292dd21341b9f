//! Random histories on PostgreSQL and in memory: the same answers, the same bytes, the same pages.

use domain::causality::{Domain, StreamId};
use domain::commit::{Change, Commit};
use domain::record::Value;
use store::env::Env;
use store::memory::MemoryStore;
use store::postgres::PostgresStore;
use store::store::{Direction, Reader, Scan, Store, own_streams};

use super::location;
use crate::fixtures::{
    CHECKPOINT, LEASE, MEMO, PING, THING, assert_sound, commit, dump, host, id, operation, put, workspace, write,
};
use crate::pg_server;

/// A small generator, so that a history is the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

/// Texts whose order a server's language would change, and those that PostgreSQL's text cannot hold as they are.
const NAMES: [&str; 12] = ["", "a", "B", "b", "ä", "Z", "a b", "a-b", "\0", "\u{1}", "a\0", "\u{10ffff}"];

fn random_commit(dice: &mut Dice, number: u64) -> Commit {
    let writes = (0..=dice.roll(2))
        .map(|_| {
            let spec = dice.pick(&[&THING, &THING, &THING, &PING, &CHECKPOINT, &MEMO, &LEASE]);
            let mut fields = serde_json::Map::new();
            let mut set = |name: &str, value: serde_json::Value, odds: u64| {
                if odds > 0 {
                    fields.insert(name.to_owned(), value);
                }
            };
            set("name", dice.pick(&NAMES).into(), dice.roll(4));
            set("size", i64::try_from(dice.roll(4)).unwrap().into(), dice.roll(4));
            set("parent", id(u8::try_from(dice.roll(2)).unwrap()).with_prefix("thing").into(), dice.roll(3));
            set("text", "Two words".into(), dice.roll(2));
            let text = serde_json::Value::Object(fields).to_string();
            let (number, expected) = (u8::try_from(dice.roll(12)).unwrap(), dice.pick(&[0, 0, 1, 1, 2, 3]));
            match dice.roll(12) {
                0 => write(spec, number, expected, Change::Tombstone),
                1 if !std::ptr::eq(spec, &LEASE) => write(spec, number, expected, Change::Erase),
                _ => put(spec, number, expected, &text),
            }
        })
        .collect();
    // Sometimes an operation comes again.
    commit(&dice.pick(&[number, number, number, number / 2]).to_string(), writes)
}

fn random_scan(dice: &mut Dice) -> Scan<'static> {
    let (index, values): (_, [Vec<Value>; 2]) = if dice.roll(2) == 0 {
        let sizes = (0..4).map(Value::Integer).chain([Value::Null]).collect();
        ("by_size", [vec![Value::from(workspace().raw())], sizes])
    } else {
        let names = NAMES.iter().map(|name| Value::from(*name)).chain([Value::Null]).collect();
        ("by_parent", [vec![Value::Null, Value::from(id(0)), Value::from(id(1))], names])
    };
    let any = |dice: &mut Dice, from: &[Value]| from[usize::try_from(dice.roll(from.len() as u64)).unwrap()].clone();
    let width = usize::try_from(dice.roll(3)).unwrap();
    let prefix = values[..width].iter().map(|from| any(dice, from)).collect();
    let bound = |dice: &mut Dice| values.get(width).filter(|_| dice.roll(2) == 0).map(|from| any(dice, from));
    let (from, to) = (bound(dice), bound(dice));
    let limit = usize::try_from(1 + dice.roll(4)).unwrap();
    Scan { prefix, from, to, limit, direction: dice.pick(&[Direction::Forward, Direction::Backward]), ..Scan::new(&THING, index) }
}

#[test]
fn random_histories_leave_the_same_as_in_memory() {
    let location = location(pg_server::shared(), "random");
    let seed = 20_260_802;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut memory = MemoryStore::new(Domain::Journal, host(1), Env::seeded(5));
    let mut store = PostgresStore::create(&location, host(1), &Env::seeded(5)).unwrap();
    for round in 0..120 {
        let group: Vec<_> = (0..=dice.roll(4)).map(|place| random_commit(&mut dice, round * 5 + place)).collect();
        assert_eq!(store.apply_group(&group), memory.apply_group(&group), "round {round}: {group:#?}");
    }
    let streams: Vec<StreamId> = own_streams(host(1)).to_vec();
    assert_eq!(dump(store.reader().as_ref(), &streams), dump(memory.reader().as_ref(), &streams));
    let (reader, reference) = (store.reader(), memory.reader());
    for _ in 0..400 {
        let mut scan = random_scan(&mut dice);
        loop {
            let page = reader.read().unwrap().scan(&scan).unwrap();
            assert_eq!(page, reference.read().unwrap().scan(&scan).unwrap(), "{scan:?}");
            scan.after = page.next;
            if scan.after.is_none() {
                break;
            }
        }
    }
    for words in ["two", "words two", "a", "ä", "Z b"] {
        let ids = |reader: &dyn Reader| {
            let mut found: Vec<_> = reader.search(&THING, &workspace(), words, 99).unwrap().iter().map(|row| row.id).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(ids(reader.as_ref()), ids(reference.as_ref()), "{words}");
    }
    assert!(store.reader().read().unwrap().outcome(&operation("0")).unwrap().is_some());
    assert_sound(&store);
}

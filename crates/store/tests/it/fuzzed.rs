//! What must hold for any bytes at all: the bodies of the fuzz targets of this room.
//!
//! The fuzzer includes this file (`fuzz/fuzz_targets/log_rows.rs`), and the test below calls the same function on the stored corpus, so
//! a find that is put there stays found. A body panics when a promise is broken.

use domain::causality::{Dot, Stream, StreamId};
use domain::entry::{Actor, Entry, FieldsSet, Op};
use domain::hash::Hash;
use domain::id::{AgentId, EventId, HostId, OperationId, PersonId, RawId, WorkspaceId};
use domain::key::RunKey;
use domain::time::Timestamp;
use store::row::LogRow;
use store::store::Logged;

/// A row of the log table reads as one entry or not at all; an entry is written in one form, which reads back as the same entry.
pub(crate) fn log_rows(bytes: &[u8]) {
    let mut split = Splitter { bytes };
    let (dot, previous, row) = (split.dot(), split.optional(Splitter::dot), split.row());
    if let Ok(logged) = row.decode(dot, previous) {
        let written = LogRow::encode(&logged);
        assert_eq!(written.decode(dot, previous).as_ref(), Ok(&logged));
        // Whatever is in the row can be checked and shown.
        assert_eq!(logged.entry.chain(&logged.chain), logged.entry.chain(&logged.chain));
        assert!(!store::place(&logged.entry.dot).is_empty());
    }
    let logged = Splitter { bytes }.logged();
    let written = LogRow::encode(&logged);
    assert_eq!(written.decode(logged.entry.dot, logged.previous).as_ref(), Ok(&logged));
    assert_eq!(written.decode(logged.entry.dot, logged.previous).map(|logged| LogRow::encode(&logged)), Ok(written));
}

/// Takes bytes apart into columns. Numbers and texts begin with their length; what is missing at the end is zero or empty.
struct Splitter<'a> {
    bytes: &'a [u8],
}

impl Splitter<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken.to_vec()
    }

    /// So many bytes, filled up with zeros.
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(&taken);
        array
    }

    /// Up to eight bytes, the last one the lowest.
    fn number(&mut self) -> i64 {
        let length = usize::from(self.byte() % 9);
        self.take(length).iter().fold(0, |number, byte| number << 8 | i64::from(*byte))
    }

    fn blob(&mut self) -> Vec<u8> {
        let length = self.byte().into();
        self.take(length)
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.blob()).into_owned()
    }

    fn optional<T>(&mut self, read: fn(&mut Self) -> T) -> Option<T> {
        (self.byte() % 2 == 1).then(|| read(self))
    }

    fn dot(&mut self) -> Dot {
        let host = HostId::from_raw(RawId::from_bytes(self.array()));
        let stream = if self.byte().is_multiple_of(2) { Stream::Synced } else { Stream::Local };
        Dot { stream: StreamId { host, stream }, counter: self.number().cast_unsigned() }
    }

    fn row(&mut self) -> LogRow {
        LogRow {
            before: self.number(),
            after: self.number(),
            kind: self.text(),
            schema: self.number(),
            workspace: self.blob(),
            id: self.blob(),
            op: self.text(),
            version: self.number(),
            edits: self.optional(Self::text),
            fields: self.optional(Self::text),
            clock: self.optional(Self::text),
            actor: self.blob(),
            operation: self.blob(),
            run_key: self.optional(Self::blob),
            source_event: self.optional(Self::blob),
            cause_depth: self.number(),
            at: self.number(),
            body_hash: self.optional(Self::blob),
            chain: self.blob(),
        }
    }

    /// An entry that a store could have made: a range around its counter, plain field names, numbers that a column can hold.
    fn logged(&mut self) -> Logged {
        let positive = |number: i64| number.unsigned_abs() >> 1;
        let mut dot = self.dot();
        dot.counter = positive(dot.counter.cast_signed()).max(1);
        let id = |split: &mut Self| RawId::from_bytes(split.array());
        let pairs = |split: &mut Self| -> Vec<(HostId, u64)> {
            (0..split.byte() % 4).map(|_| (HostId::from_raw(id(split)), positive(split.number()))).collect()
        };
        let version = positive(self.number());
        let edits = match self.byte() % 2 {
            0 => [(dot.stream.host, version)].into(),
            _ => pairs(self).into_iter().collect(),
        };
        let entry = Entry {
            dot,
            first: dot.counter - positive(self.number()) % dot.counter,
            last: dot.counter + positive(self.number()),
            kind: self.text(),
            schema: u32::from_be_bytes(self.array()),
            workspace: WorkspaceId::from_raw(id(self)),
            id: id(self),
            op: Op::ALL[usize::from(self.byte()) % Op::ALL.len()],
            version,
            edits,
            fields: self.fields(),
            clock: pairs(self).into_iter().collect(),
            actor: match self.byte() % 3 {
                0 => Actor::Person(PersonId::from_raw(id(self))),
                1 => Actor::Agent(AgentId::from_raw(id(self))),
                _ => Actor::System,
            },
            operation_id: OperationId::from_raw(id(self)),
            run_key: self.optional(|split| RunKey::from_hash(Hash::from_bytes(split.array()))),
            source_event: self.optional(|split| EventId::from_raw(RawId::from_bytes(split.array()))),
            cause_depth: self.byte(),
            at: Timestamp::from_ms(self.number()),
            body_hash: self.optional(|split| Hash::from_bytes(split.array())),
        };
        Logged { entry, chain: Hash::from_bytes(self.array()), previous: self.optional(Self::dot) }
    }

    /// A commit refuses names that are not plain words (`apply.rs`).
    fn fields(&mut self) -> FieldsSet {
        match self.byte() % 3 {
            0 => FieldsSet::Whole,
            1 => FieldsSet::All,
            _ => {
                let plain = |byte: u8| {
                    char::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"[usize::from(byte % 63)])
                };
                let name = |split: &mut Self| -> String { (0..=split.byte() % 8).map(|_| plain(split.byte())).collect() };
                FieldsSet::Some((0..self.byte() % 5).map(|_| name(self)).collect())
            }
        }
    }
}

#[cfg(test)]
mod replay {
    //! The fuzzer's corpus, file by file: hand-made cases and everything a fuzzer has found.

    use std::path::Path;

    use domain::hash;

    use super::{Splitter, log_rows};

    /// LIMIT: no target has fewer hand-made files, so an empty or moved folder is noticed.
    const FILES_MIN: usize = 30;

    #[test]
    fn log_rows_hold_for_the_corpus() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/log_rows");
        let (mut files, mut read) = (0, 0);
        for entry in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
            let path = entry.expect("the corpus can be listed").path();
            let bytes = std::fs::read(&path).expect("the corpus can be read");
            assert!(std::panic::catch_unwind(|| log_rows(&bytes)).is_ok(), "failed on {}", path.display());
            let mut split = Splitter { bytes: &bytes };
            let (dot, previous, row) = (split.dot(), split.optional(Splitter::dot), split.row());
            // A file's name says whether it reads, and the column that does not.
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            match row.decode(dot, previous) {
                Ok(_) => read += 1,
                Err(column) => assert!(name.starts_with(&format!("bad_{column}")), "{name}: `{column}` does not read"),
            }
            files += 1;
        }
        assert!(files >= FILES_MIN && read >= FILES_MIN / 3, "{files} files in {}, {read} read", folder.display());
    }

    #[test]
    fn log_rows_hold_for_bytes_without_meaning() {
        for seed in 0..2_000u32 {
            let blocks = seed % 16;
            let bytes: Vec<u8> =
                (0..blocks).flat_map(|block| *hash::plain(format!("{seed} {block}").as_bytes()).as_bytes()).collect();
            log_rows(&bytes);
        }
    }
}

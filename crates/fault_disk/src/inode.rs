//! One file: what it holds, what of that is durable, and who has locked it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rusqlite::ffi;

use crate::crash::Crash;
use crate::image::Image;
use crate::random::Random;

/// What a write can be torn at.
pub(crate) const SECTOR_BYTES: usize = 512;

/// The name of every temporary file, which no path of SQLite's can be.
pub(crate) const TEMPORARY: &str = "";

/// A piece of a WAL index. Atomics, because SQLite writes to it through the address it was given.
pub(crate) type Region = Arc<[AtomicU64]>;

/// One file's content, wherever its name points, and what the running process does with it.
pub(crate) struct Inode {
    pub(crate) name: Arc<str>,
    pub(crate) current: Image,
    pub(crate) synced: Image,
    pub(crate) unsynced: Vec<Change>,
    /// A sync has failed, so `current` holds changes that `synced` never gets.
    pub(crate) has_dropped: bool,
    pub(crate) files_open: usize,
    pub(crate) locks: BTreeMap<u64, c_int>,
    pub(crate) shm: Shm,
}

impl Inode {
    pub(crate) fn new(name: &str) -> Self {
        Self::durable(name.into(), Image::default())
    }

    /// A file that nobody has open, all of it durable.
    pub(crate) fn durable(name: Arc<str>, image: Image) -> Self {
        Self {
            name,
            synced: image.clone(),
            current: image,
            unsynced: Vec::new(),
            has_dropped: false,
            files_open: 0,
            locks: BTreeMap::new(),
            shm: Shm::default(),
        }
    }

    /// The same file after whoever used it is gone.
    pub(crate) fn abandoned(self) -> Self {
        Self { files_open: 0, locks: BTreeMap::new(), shm: Shm::default(), ..self }
    }

    pub(crate) fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    pub(crate) fn sync(&mut self) {
        if self.has_dropped {
            for change in self.unsynced.drain(..) {
                change.apply(&mut self.synced);
            }
        } else {
            // Until a sync fails, the durable image and its changes are the current content.
            self.synced.clone_from(&self.current);
            self.unsynced.clear();
        }
    }

    pub(crate) fn drop_unsynced(&mut self, kept: Crash, seed: u64) {
        for change in kept.survivors(std::mem::take(&mut self.unsynced), &mut Random(seed)) {
            change.apply(&mut self.synced);
        }
        self.has_dropped = true;
    }

    /// What a crash leaves of it.
    pub(crate) fn survivor(self, mode: Crash, random: &mut Random) -> Image {
        let mut image = self.synced;
        for change in mode.survivors(self.unsynced, random) {
            change.apply(&mut image);
        }
        image
    }

    /// Of the bytes about to be written, with the parts that differ between equal runs blanked.
    pub(crate) fn checksum(&self, at: usize, bytes: &[u8]) -> u64 {
        let mut bytes = bytes.to_vec();
        for nonce in nonces(&self.name, &self.current, at..at + bytes.len()) {
            bytes[nonce.start - at..nonce.end - at].fill(0);
        }
        checksum(&bytes)
    }
}

/// Of eight bytes at a time, as a debug build goes through every page a second time for it.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = Random(bytes.len() as u64);
    for word in words {
        sum.0 ^= u64::from_le_bytes(*word);
        sum.0 = sum.next();
    }
    for byte in rest {
        sum.0 ^= u64::from(*byte);
        sum.0 = sum.next();
    }
    sum.next()
}

/// The parts of `range` that depend on a number SQLite drew: salts and checksums in a WAL; nonce and checksums in a
/// rollback journal, where headers and page numbers are blanked along with them.
///
/// SQLite draws from one generator per process, seeded by the default VFS. Seeding that would reach into tests on other
/// threads, and blanking loses nothing: recovery asks only whether salts agree, and pages are in the history themselves.
fn nonces(name: &str, image: &Image, range: Range<usize>) -> Vec<Range<usize>> {
    const WAL_HEADER_BYTES: usize = 32;
    const FRAME_HEADER_BYTES: usize = 24;
    if name.ends_with("-journal") && matches!(range.len(), 4 | SECTOR_BYTES) {
        return vec![range];
    }
    if !name.ends_with("-wal") {
        return Vec::new();
    }
    let mut page_bytes = [0; 4];
    image.read(8, &mut page_bytes);
    let page_bytes = page_bytes.iter().fold(0, |size, byte| size << 8 | usize::from(*byte));
    let frame_bytes = FRAME_HEADER_BYTES + page_bytes;
    let frame_at = |at: usize| at.saturating_sub(WAL_HEADER_BYTES) / frame_bytes;
    let frames = (frame_at(range.start)..=frame_at(range.end)).map(|frame| WAL_HEADER_BYTES + frame * frame_bytes);
    let in_frames = frames.map(|start| start + 8..start + FRAME_HEADER_BYTES);
    let within = |nonce: Range<usize>| nonce.start.max(range.start)..nonce.end.min(range.end);
    iter::once(16..WAL_HEADER_BYTES).chain(in_frames).map(within).filter(|nonce| !nonce.is_empty()).collect()
}

/// The WAL index of a database and its lock slots: who holds each, and whether exclusively.
#[derive(Default)]
pub(crate) struct Shm {
    pub(crate) users: BTreeSet<u64>,
    pub(crate) regions: Vec<Region>,
    pub(crate) slots: [BTreeMap<u64, bool>; SHM_SLOTS],
}

const SHM_SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

pub(crate) enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

impl Change {
    fn apply(&self, image: &mut Image) {
        match self {
            Self::Write { at, bytes } => image.write(*at, bytes),
            Self::Truncate { len } => image.resize(*len),
        }
    }

    /// The part before or after one of the sector boundaries inside a write; what has none is kept whole.
    pub(crate) fn torn(self, random: &mut Random) -> Self {
        let Self::Write { at, mut bytes } = self else { return self };
        let first = at / SECTOR_BYTES + 1;
        let boundaries = (at + bytes.len()).div_ceil(SECTOR_BYTES).saturating_sub(first);
        if boundaries == 0 {
            return Self::Write { at, bytes };
        }
        let split = (first + random.below(boundaries)) * SECTOR_BYTES - at;
        let tail = bytes.split_off(split);
        if random.coin() { Self::Write { at, bytes } } else { Self::Write { at: at + split, bytes: tail } }
    }
}

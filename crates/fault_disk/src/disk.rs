//! The disk behind the fault VFS: what a file holds, what of it is durable, and what a crash may keep.
//!
//! The model, in the order in which a crash test leans on it:
//! - Every file has a durable image and the changes made since; a sync moves the changes into the image.
//! - Creations and deletions become durable when their directory is synced: by the first sync of a new file in it, as
//!   the Unix VFS does, and by a delete that asks for it. Until then a crash may leave a name as it was before, so that
//!   a deleted file comes back with its durable image.
//! - A crash treats each file by itself, so writes to two files may reach the disk in either order.
//! - Creating a file, reading and locking are not operations: a crash there is the crash before the next operation.
//! - Temporary files have no entry: they never survive and are outside the limit on bytes.

#![forbid(unsafe_code, reason = "the model needs none; only the C glue does")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::io::Write as _;
use std::iter;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rusqlite::ffi;

/// What a write can be torn at.
pub(super) const SECTOR_BYTES: usize = 512;

/// What the crash does to the changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// None has reached the disk.
    Lost,
    /// All have, except the one the process died in.
    Kept,
    /// The first few of each file have.
    Cut,
    /// Any of them have, the one the process died in included, each perhaps only up to or from a sector boundary.
    Torn,
}

impl Crash {
    fn keeps_entry(self, random: &mut Random) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::Cut | Self::Torn => random.coin(),
        }
    }

    fn survivors(self, changes: Vec<Change>, random: &mut Random) -> Vec<Change> {
        match self {
            Self::Lost => Vec::new(),
            Self::Kept => changes,
            Self::Cut => {
                let kept = random.below(changes.len() + 1);
                changes.into_iter().take(kept).collect()
            }
            Self::Torn => {
                let mut survivor = |change: Change| match (random.coin(), random.coin()) {
                    (false, _) => None,
                    (true, false) => Some(change),
                    (true, true) => Some(change.torn(random)),
                };
                changes.into_iter().filter_map(&mut survivor).collect()
            }
        }
    }
}

/// The value, or the SQLite result code to return instead.
pub(super) type Outcome<T> = Result<T, c_int>;

/// A piece of a WAL index. Atomics, because SQLite writes to it through the address it was given.
pub(super) type Region = Arc<[AtomicU64]>;

/// An open file. Ids are never used twice, so one from before a crash finds nothing after it.
pub(super) struct Descriptor {
    id: u64,
    inode: u64,
}

/// See the module's text for what it promises, and `FaultVfs` for the meaning of its fields.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) ops: u64,
    pub(super) syncs: u64,
    pub(super) history: Vec<u8>,
    pub(super) dead: bool,
    pub(super) crash_at: Option<u64>,
    pub(super) failing_syncs: Option<(Range<u64>, Crash)>,
    pub(super) lie_about_sync: bool,
    /// 0 promises nothing, so SQLite takes the most careful path.
    pub(super) device_characteristics: c_int,
    pub(super) bytes_max: Option<u64>,
    inodes: BTreeMap<u64, Inode>,
    directory: BTreeMap<String, u64>,
    durable_directory: BTreeMap<String, u64>,
    in_flight: Option<(u64, Change)>,
    last_id: u64,
    random: Random,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random(seed), ..Self::default() }
    }

    pub(super) fn fork(&self) -> Self {
        assert!(!self.dead, "a dead disk is recovered before it is copied");
        let mut fork =
            Self { random: Random(self.random.0), device_characteristics: self.device_characteristics, ..Self::default() };
        for (name, inode) in &self.directory {
            let image = self.inodes[inode].current.clone();
            let id = fork.next_id();
            fork.inodes.insert(id, Inode { current: image.clone(), synced: image, ..Inode::new(name) });
            fork.directory.insert(name.clone(), id);
        }
        fork.durable_directory = fork.directory.clone();
        fork
    }

    pub(super) fn bytes(&self) -> u64 {
        self.directory.values().map(|id| self.inodes[id].current.len() as u64).sum()
    }

    pub(super) fn random_byte(&mut self) -> u8 {
        self.random.next().to_le_bytes()[0]
    }

    pub(super) fn recover(&mut self, mode: Crash, seed: u64) {
        self.note(&format!("recover {mode:?} {seed}"));
        if let Some((inode, change)) = self.in_flight.take()
            && mode == Crash::Torn
            && let Some(inode) = self.inodes.get_mut(&inode)
        {
            inode.unsynced.push(change);
        }
        let mut random = Random(seed);
        let mut before = std::mem::take(&mut self.inodes);
        let current = std::mem::take(&mut self.directory);
        let durable = std::mem::take(&mut self.durable_directory);
        let names: BTreeSet<&String> = current.keys().chain(durable.keys()).collect();
        for name in names {
            let entries = if mode.keeps_entry(&mut random) { &current } else { &durable };
            let Some(inode) = entries.get(name).and_then(|id| before.remove(id)) else { continue };
            let mut image = inode.synced;
            for change in mode.survivors(inode.unsynced, &mut random) {
                change.apply(&mut image);
            }
            self.note(&format!("recovered {name} {}", image.len()));
            let id = self.next_id();
            self.inodes.insert(id, Inode { current: image.clone(), synced: image, ..Inode::new(name) });
            self.directory.insert(name.clone(), id);
        }
        self.durable_directory = self.directory.clone();
        self.dead = false;
        self.crash_at = None;
    }

    /// Every file stays as it is, and as unsynced as it is; whoever had it open has lost it.
    pub(super) fn kill(&mut self) {
        self.note("kill");
        self.in_flight = None;
        for (name, old) in std::mem::take(&mut self.directory) {
            let id = self.next_id();
            if let Some(inode) = self.inodes.remove(&old) {
                self.inodes.insert(
                    id,
                    Inode { current: inode.current, synced: inode.synced, unsynced: inode.unsynced, ..Inode::new(&name) },
                );
            }
            if let Some(durable) = self.durable_directory.get_mut(&name).filter(|durable| **durable == old) {
                *durable = id;
            }
            self.directory.insert(name, id);
        }
        self.dead = false;
        self.crash_at = None;
    }

    pub(super) fn open(&mut self, name: Option<&str>, create: bool, exclusive: bool) -> Outcome<Descriptor> {
        self.alive()?;
        let found = name.and_then(|name| self.directory.get(name)).copied();
        let inode = match (found, name) {
            (Some(_), _) if exclusive => return Err(ffi::SQLITE_CANTOPEN),
            (Some(inode), _) => inode,
            (None, Some(_)) if !create => return Err(ffi::SQLITE_CANTOPEN),
            (None, _) => {
                let inode = self.next_id();
                self.inodes.insert(inode, Inode::new(name.unwrap_or(TEMPORARY)));
                self.directory.extend(name.map(|name| (name.to_owned(), inode)));
                inode
            }
        };
        Ok(Descriptor { id: self.next_id(), inode })
    }

    pub(super) fn close(&mut self, file: &Descriptor) {
        self.unlock(file, ffi::SQLITE_LOCK_NONE);
        self.shm_unmap(file);
        if self.inodes.get(&file.inode).is_some_and(|inode| inode.name == TEMPORARY) {
            self.inodes.remove(&file.inode);
        }
    }

    pub(super) fn delete(&mut self, name: &str, sync_directory: bool) -> Outcome<()> {
        self.alive()?;
        if !self.directory.contains_key(name) {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        }
        self.step(&format!("delete {name}"))?;
        self.directory.remove(name);
        if sync_directory && !self.lie_about_sync {
            self.sync_directory_of(name);
        }
        Ok(())
    }

    /// As in the Unix VFS, an empty file does not count as existing, though it can be read and written.
    pub(super) fn access(&self, name: &str, existence: bool) -> Outcome<bool> {
        self.alive()?;
        let inode = self.directory.get(name).and_then(|id| self.inodes.get(id));
        Ok(inode.is_some_and(|inode| !existence || !inode.current.is_empty()))
    }

    pub(super) fn len(&mut self, file: &Descriptor) -> Outcome<usize> {
        Ok(self.inode(file)?.current.len())
    }

    /// Fills the front of `buffer`, which the caller has zeroed, as a short read must leave zeroes behind.
    pub(super) fn read(&mut self, file: &Descriptor, at: usize, buffer: &mut [u8]) -> Outcome<()> {
        let image = &self.inode(file)?.current;
        let available = image.get(at..).unwrap_or_default();
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        if count == buffer.len() { Ok(()) } else { Err(ffi::SQLITE_IOERR_SHORT_READ) }
    }

    pub(super) fn write(&mut self, file: &Descriptor, at: usize, bytes: &[u8]) -> Outcome<()> {
        let inode = self.inode(file)?;
        let line = format!("write {} {at}+{} {:016x}", inode.name, bytes.len(), inode.checksum(at, bytes));
        let growth = (at + bytes.len()).saturating_sub(inode.current.len());
        self.change(file, &line, growth, Change::Write { at, bytes: bytes.to_vec() })
    }

    pub(super) fn truncate(&mut self, file: &Descriptor, len: usize) -> Outcome<()> {
        let line = format!("truncate {} {len}", self.inode(file)?.name);
        self.change(file, &line, 0, Change::Truncate { len })
    }

    pub(super) fn sync(&mut self, file: &Descriptor) -> Outcome<()> {
        let name = self.inode(file)?.name.clone();
        self.syncs += 1;
        self.step(&format!("sync {name}"))?;
        let number = self.syncs;
        if let Some((_, kept)) = self.failing_syncs.as_ref().filter(|(numbers, _)| numbers.contains(&number)) {
            let kept = *kept;
            self.note("sync failed");
            self.inode(file)?.drop_unsynced(kept, number);
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }
        if !self.lie_about_sync {
            self.inode(file)?.sync();
            let entry = |directory: &BTreeMap<_, _>| directory.get(&name) == Some(&file.inode);
            if entry(&self.directory) && !entry(&self.durable_directory) {
                self.sync_directory_of(&name);
            }
        }
        Ok(())
    }

    /// The five levels of a database file, one connection at a time above shared; as in the Unix VFS, a connection that
    /// fails to become exclusive stays pending and so keeps new readers out.
    pub(super) fn lock(&mut self, file: &Descriptor, level: c_int) -> Outcome<()> {
        let locks = &mut self.inode(file)?.locks;
        let others = locks.iter().filter(|(id, _)| **id != file.id).map(|(_, level)| *level).max();
        let others = others.unwrap_or(ffi::SQLITE_LOCK_NONE);
        let barred_from = match level {
            ffi::SQLITE_LOCK_SHARED => ffi::SQLITE_LOCK_PENDING,
            _ => ffi::SQLITE_LOCK_RESERVED,
        };
        if others >= barred_from {
            return Err(ffi::SQLITE_BUSY);
        }
        if level == ffi::SQLITE_LOCK_EXCLUSIVE && others >= ffi::SQLITE_LOCK_SHARED {
            locks.insert(file.id, ffi::SQLITE_LOCK_PENDING);
            return Err(ffi::SQLITE_BUSY);
        }
        let held = locks.entry(file.id).or_insert(level);
        *held = level.max(*held);
        Ok(())
    }

    /// Works on a dead disk too: giving up a lock touches nothing that a crash could keep.
    pub(super) fn unlock(&mut self, file: &Descriptor, level: c_int) {
        let Some(inode) = self.inodes.get_mut(&file.inode) else { return };
        if level == ffi::SQLITE_LOCK_NONE {
            inode.locks.remove(&file.id);
        } else if let Some(held) = inode.locks.get_mut(&file.id) {
            *held = level.min(*held);
        }
    }

    pub(super) fn is_reserved(&mut self, file: &Descriptor) -> Outcome<bool> {
        Ok(self.inode(file)?.locks.values().any(|level| *level >= ffi::SQLITE_LOCK_RESERVED))
    }

    pub(super) fn shm_map(&mut self, file: &Descriptor, index: usize, bytes: usize, extend: bool) -> Outcome<Option<Region>> {
        let shm = &mut self.inode(file)?.shm;
        shm.users.insert(file.id);
        while extend && shm.regions.len() <= index {
            shm.regions.push((0..bytes / size_of::<AtomicU64>()).map(|_| AtomicU64::new(0)).collect());
        }
        Ok(shm.regions.get(index).cloned())
    }

    pub(super) fn shm_lock(&mut self, file: &Descriptor, slots: Range<usize>, exclusive: bool) -> Outcome<()> {
        let slots = &mut self.inode(file)?.shm.slots[slots];
        let conflicts = |(id, held): (&u64, &bool)| *id != file.id && (exclusive || *held);
        if slots.iter().flatten().any(conflicts) {
            return Err(ffi::SQLITE_BUSY);
        }
        for slot in slots {
            slot.insert(file.id, exclusive);
        }
        Ok(())
    }

    /// Works on a dead disk too, like `unlock`.
    pub(super) fn shm_unlock(&mut self, file: &Descriptor, slots: Range<usize>) -> Outcome<()> {
        if let Some(inode) = self.inodes.get_mut(&file.inode) {
            for slot in &mut inode.shm.slots[slots] {
                slot.remove(&file.id);
            }
        }
        Ok(())
    }

    /// The last connection to leave takes the shared memory with it.
    pub(super) fn shm_unmap(&mut self, file: &Descriptor) {
        let Some(inode) = self.inodes.get_mut(&file.inode) else { return };
        for slot in &mut inode.shm.slots {
            slot.remove(&file.id);
        }
        inode.shm.users.remove(&file.id);
        if inode.shm.users.is_empty() {
            inode.shm.regions.clear();
        }
    }

    fn change(&mut self, file: &Descriptor, line: &str, growth: usize, change: Change) -> Outcome<()> {
        if let Err(code) = self.step(line) {
            self.in_flight = Some((file.inode, change));
            return Err(code);
        }
        if growth > 0 && self.bytes_max.is_some_and(|max| self.bytes() + growth as u64 > max) {
            self.note("full");
            return Err(ffi::SQLITE_FULL);
        }
        let inode = self.inode(file)?;
        change.apply(&mut inode.current);
        inode.unsynced.push(change);
        Ok(())
    }

    fn sync_directory_of(&mut self, name: &str) {
        let is_beside = |other: &str| Path::new(other).parent() == Path::new(name).parent();
        self.durable_directory.retain(|other, _| !is_beside(other));
        let beside = self.directory.iter().filter(|(other, _)| is_beside(other));
        self.durable_directory.extend(beside.map(|(other, inode)| (other.clone(), *inode)));
    }

    /// Counts and records an operation that is about to happen; an error if the process dies in it.
    fn step(&mut self, line: &str) -> Outcome<()> {
        self.ops += 1;
        self.note(&format!("{} {line}", self.ops));
        if self.crash_at == Some(self.ops) {
            self.note("crash");
            self.dead = true;
        }
        self.alive()
    }

    fn note(&mut self, line: &str) {
        writeln!(self.history, "{line}").expect("writing to a vector cannot fail");
    }

    fn alive(&self) -> Outcome<()> {
        if self.dead { Err(ffi::SQLITE_IOERR) } else { Ok(()) }
    }

    fn inode(&mut self, file: &Descriptor) -> Outcome<&mut Inode> {
        self.alive()?;
        self.inodes.get_mut(&file.inode).ok_or(ffi::SQLITE_IOERR)
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// The name of every temporary file, which no path of SQLite's can be.
const TEMPORARY: &str = "";

/// One file's content, wherever its name points.
#[derive(Default)]
struct Inode {
    name: String,
    current: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    /// A sync has failed, so `current` holds changes that `synced` never gets.
    has_dropped: bool,
    locks: BTreeMap<u64, c_int>,
    shm: Shm,
}

impl Inode {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.synced);
        }
        // INVARIANT: the durable image and its changes are the current content, unless a failed sync came between.
        assert!(self.has_dropped || self.synced == self.current, "{} lost a change", self.name);
    }

    fn drop_unsynced(&mut self, kept: Crash, seed: u64) {
        for change in kept.survivors(std::mem::take(&mut self.unsynced), &mut Random(seed)) {
            change.apply(&mut self.synced);
        }
        self.has_dropped = true;
    }

    /// Of the bytes about to be written, with the parts that differ between equal runs blanked.
    fn checksum(&self, at: usize, bytes: &[u8]) -> u64 {
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
fn nonces(name: &str, image: &[u8], range: Range<usize>) -> Vec<Range<usize>> {
    const WAL_HEADER_BYTES: usize = 32;
    const FRAME_HEADER_BYTES: usize = 24;
    if name.ends_with("-journal") && matches!(range.len(), 4 | SECTOR_BYTES) {
        return vec![range];
    }
    if !name.ends_with("-wal") {
        return Vec::new();
    }
    let page_bytes = image.get(8..12).map_or(0, |field| field.iter().fold(0, |size, byte| size << 8 | usize::from(*byte)));
    let frame_bytes = FRAME_HEADER_BYTES + page_bytes;
    let frame_at = |at: usize| at.saturating_sub(WAL_HEADER_BYTES) / frame_bytes;
    let frames = (frame_at(range.start)..=frame_at(range.end)).map(|frame| WAL_HEADER_BYTES + frame * frame_bytes);
    let in_frames = frames.map(|start| start + 8..start + FRAME_HEADER_BYTES);
    let within = |nonce: Range<usize>| nonce.start.max(range.start)..nonce.end.min(range.end);
    iter::once(16..WAL_HEADER_BYTES).chain(in_frames).map(within).filter(|nonce| !nonce.is_empty()).collect()
}

/// The WAL index of a database and its lock slots: who holds each, and whether exclusively.
#[derive(Default)]
struct Shm {
    users: BTreeSet<u64>,
    regions: Vec<Region>,
    slots: [BTreeMap<u64, bool>; SHM_SLOTS],
}

const SHM_SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => {
                image.resize(image.len().max(*at), 0);
                let over = (image.len() - at).min(bytes.len());
                image[*at..at + over].copy_from_slice(&bytes[..over]);
                image.extend_from_slice(&bytes[over..]);
            }
            Self::Truncate { len } => image.resize(*len, 0),
        }
    }

    /// The part before or after one of the sector boundaries inside a write; what has none is kept whole.
    fn torn(self, random: &mut Random) -> Self {
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

/// Splitmix64: a counter, mixed.
#[derive(Default)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("less than a usize")
    }
}

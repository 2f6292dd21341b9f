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
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rusqlite::ffi;

use crate::crash::Crash;
use crate::inode::{Change, Inode, Region, TEMPORARY};
use crate::random::Random;

/// The value, or the SQLite result code to return instead.
pub(crate) type Outcome<T> = Result<T, c_int>;

/// An open file. Ids are never used twice, so one from before a crash finds nothing after it.
pub(crate) struct Descriptor {
    id: u64,
    inode: u64,
}

/// See the module's text for what it promises, and `FaultVfs` for the meaning of its fields.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) ops: u64,
    pub(crate) syncs: u64,
    pub(crate) history: Vec<u8>,
    pub(crate) is_history_silent: bool,
    pub(crate) dead: bool,
    pub(crate) crash_at: Option<u64>,
    pub(crate) failing_syncs: Option<(Range<u64>, Crash)>,
    pub(crate) lie_about_sync: bool,
    /// 0 promises nothing, so SQLite takes the most careful path.
    pub(crate) device_characteristics: c_int,
    pub(crate) bytes_max: Option<u64>,
    inodes: BTreeMap<u64, Inode>,
    directory: BTreeMap<String, u64>,
    durable_directory: BTreeMap<String, u64>,
    in_flight: Option<(u64, Change)>,
    /// Those of dead processes included, until SQLite closes them.
    files_open: usize,
    /// Its owner has dropped it, so it stays dead.
    is_unplugged: bool,
    last_id: u64,
    random: Random,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random(seed), ..Self::default() }
    }

    pub(crate) fn fork(&self) -> Self {
        assert!(!self.dead, "a dead disk is recovered before it is copied");
        let mut fork = Self {
            random: Random(self.random.0),
            device_characteristics: self.device_characteristics,
            is_history_silent: self.is_history_silent,
            ..Self::default()
        };
        for (name, inode) in &self.directory {
            let inode = &self.inodes[inode];
            let id = fork.next_id();
            fork.inodes.insert(id, Inode::durable(Arc::clone(&inode.name), inode.current.clone()));
            fork.directory.insert(name.clone(), id);
        }
        fork.durable_directory = fork.directory.clone();
        fork
    }

    /// Frees the files, for whoever still has one open, too.
    pub(crate) fn unplug(&mut self) {
        *self = Self { dead: true, is_unplugged: true, files_open: self.files_open, ..Self::default() };
    }

    /// Whether nobody can reach it any more: neither an owner nor an open file.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_unplugged && self.files_open == 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.directory.values().map(|id| self.inodes[id].current.len() as u64).sum()
    }

    pub(crate) fn random_byte(&mut self) -> u8 {
        self.random.next().to_le_bytes()[0]
    }

    pub(crate) fn recover(&mut self, mode: Crash, seed: u64) {
        self.note(format_args!("recover {mode:?} {seed}"));
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
            let entry = Arc::clone(&inode.name);
            let image = inode.survivor(mode, &mut random);
            self.note(format_args!("recovered {name} {}", image.len()));
            let id = self.next_id();
            self.inodes.insert(id, Inode::durable(entry, image));
            self.directory.insert(name.clone(), id);
        }
        self.durable_directory = self.directory.clone();
        self.dead = false;
        self.crash_at = None;
    }

    /// Every file stays as it is, and as unsynced as it is; whoever had it open has lost it.
    pub(crate) fn kill(&mut self) {
        self.note(format_args!("kill"));
        self.in_flight = None;
        let mut before = std::mem::take(&mut self.inodes);
        let mut ids = BTreeMap::new();
        for id in self.directory.values_mut().chain(self.durable_directory.values_mut()) {
            *id = *ids.entry(*id).or_insert_with(|| {
                self.last_id += 1;
                self.last_id
            });
        }
        for (old, new) in ids {
            let inode = before.remove(&old).expect("a name points at a file");
            self.inodes.insert(new, inode.abandoned());
        }
        self.dead = false;
        self.crash_at = None;
    }

    pub(crate) fn open(&mut self, name: Option<&str>, create: bool, exclusive: bool) -> Outcome<Descriptor> {
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
        self.inodes.get_mut(&inode).expect("found or made above").files_open += 1;
        self.files_open += 1;
        Ok(Descriptor { id: self.next_id(), inode })
    }

    pub(crate) fn close(&mut self, file: &Descriptor) {
        self.unlock(file, ffi::SQLITE_LOCK_NONE);
        self.shm_unmap(file);
        if let Some(inode) = self.inodes.get_mut(&file.inode) {
            inode.files_open -= 1;
        }
        self.files_open -= 1;
        self.forget_unreachable();
    }

    pub(crate) fn delete(&mut self, name: &str, sync_directory: bool) -> Outcome<()> {
        self.alive()?;
        if !self.directory.contains_key(name) {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        }
        self.step(format_args!("delete {name}"))?;
        self.directory.remove(name);
        if sync_directory && !self.lie_about_sync {
            self.sync_directory_of(name);
        }
        self.forget_unreachable();
        Ok(())
    }

    /// As in the Unix VFS, an empty file does not count as existing, though it can be read and written.
    pub(crate) fn access(&self, name: &str, existence: bool) -> Outcome<bool> {
        self.alive()?;
        let inode = self.directory.get(name).and_then(|id| self.inodes.get(id));
        Ok(inode.is_some_and(|inode| !existence || inode.current.len() > 0))
    }

    pub(crate) fn len(&mut self, file: &Descriptor) -> Outcome<usize> {
        Ok(self.inode(file)?.current.len())
    }

    /// Fills the front of `buffer`, which the caller has zeroed, as a short read must leave zeroes behind.
    pub(crate) fn read(&mut self, file: &Descriptor, at: usize, buffer: &mut [u8]) -> Outcome<()> {
        let image = &self.inode(file)?.current;
        if image.read(at, buffer) == buffer.len() { Ok(()) } else { Err(ffi::SQLITE_IOERR_SHORT_READ) }
    }

    pub(crate) fn write(&mut self, file: &Descriptor, at: usize, bytes: &[u8]) -> Outcome<()> {
        let is_silent = self.is_history_silent;
        let inode = self.inode(file)?;
        let name = Arc::clone(&inode.name);
        // The checksum costs more than the write, and only the history needs it.
        let checksum = if is_silent { 0 } else { inode.checksum(at, bytes) };
        let growth = (at + bytes.len()).saturating_sub(inode.current.len());
        let line = format_args!("write {name} {at}+{} {checksum:016x}", bytes.len());
        self.change(file, line, growth, Change::Write { at, bytes: bytes.to_vec() })
    }

    pub(crate) fn truncate(&mut self, file: &Descriptor, len: usize) -> Outcome<()> {
        let name = Arc::clone(&self.inode(file)?.name);
        self.change(file, format_args!("truncate {name} {len}"), 0, Change::Truncate { len })
    }

    pub(crate) fn sync(&mut self, file: &Descriptor) -> Outcome<()> {
        let name = Arc::clone(&self.inode(file)?.name);
        self.syncs += 1;
        self.step(format_args!("sync {name}"))?;
        let number = self.syncs;
        if let Some((_, kept)) = self.failing_syncs.as_ref().filter(|(numbers, _)| numbers.contains(&number)) {
            let kept = *kept;
            self.note(format_args!("sync failed"));
            self.inode(file)?.drop_unsynced(kept, number);
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }
        if !self.lie_about_sync {
            self.inode(file)?.sync();
            let entry = |directory: &BTreeMap<String, u64>| directory.get(&*name) == Some(&file.inode);
            if entry(&self.directory) && !entry(&self.durable_directory) {
                self.sync_directory_of(&name);
                self.forget_unreachable();
            }
        }
        Ok(())
    }

    /// The five levels of a database file, one connection at a time above shared; as in the Unix VFS, a connection that
    /// fails to become exclusive stays pending and so keeps new readers out.
    pub(crate) fn lock(&mut self, file: &Descriptor, level: c_int) -> Outcome<()> {
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
    pub(crate) fn unlock(&mut self, file: &Descriptor, level: c_int) {
        let Some(inode) = self.inodes.get_mut(&file.inode) else { return };
        if level == ffi::SQLITE_LOCK_NONE {
            inode.locks.remove(&file.id);
        } else if let Some(held) = inode.locks.get_mut(&file.id) {
            *held = level.min(*held);
        }
    }

    pub(crate) fn is_reserved(&mut self, file: &Descriptor) -> Outcome<bool> {
        Ok(self.inode(file)?.locks.values().any(|level| *level >= ffi::SQLITE_LOCK_RESERVED))
    }

    pub(crate) fn shm_map(&mut self, file: &Descriptor, index: usize, bytes: usize, extend: bool) -> Outcome<Option<Region>> {
        let shm = &mut self.inode(file)?.shm;
        shm.users.insert(file.id);
        while extend && shm.regions.len() <= index {
            shm.regions.push((0..bytes / size_of::<AtomicU64>()).map(|_| AtomicU64::new(0)).collect());
        }
        Ok(shm.regions.get(index).cloned())
    }

    pub(crate) fn shm_lock(&mut self, file: &Descriptor, slots: Range<usize>, exclusive: bool) -> Outcome<()> {
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
    pub(crate) fn shm_unlock(&mut self, file: &Descriptor, slots: Range<usize>) -> Outcome<()> {
        if let Some(inode) = self.inodes.get_mut(&file.inode) {
            for slot in &mut inode.shm.slots[slots] {
                slot.remove(&file.id);
            }
        }
        Ok(())
    }

    /// The last connection to leave takes the shared memory with it.
    pub(crate) fn shm_unmap(&mut self, file: &Descriptor) {
        let Some(inode) = self.inodes.get_mut(&file.inode) else { return };
        for slot in &mut inode.shm.slots {
            slot.remove(&file.id);
        }
        inode.shm.users.remove(&file.id);
        if inode.shm.users.is_empty() {
            inode.shm.regions.clear();
        }
    }

    fn change(&mut self, file: &Descriptor, line: fmt::Arguments<'_>, growth: usize, change: Change) -> Outcome<()> {
        if let Err(code) = self.step(line) {
            self.in_flight = Some((file.inode, change));
            return Err(code);
        }
        if growth > 0 && self.bytes_max.is_some_and(|max| self.bytes() + growth as u64 > max) {
            self.note(format_args!("full"));
            return Err(ffi::SQLITE_FULL);
        }
        self.inode(file)?.change(change);
        Ok(())
    }

    fn sync_directory_of(&mut self, name: &str) {
        let is_beside = |other: &str| Path::new(other).parent() == Path::new(name).parent();
        self.durable_directory.retain(|other, _| !is_beside(other));
        let beside = self.directory.iter().filter(|(other, _)| is_beside(other));
        self.durable_directory.extend(beside.map(|(other, inode)| (other.clone(), *inode)));
    }

    /// Counts and records an operation that is about to happen; an error if the process dies in it.
    fn step(&mut self, line: fmt::Arguments<'_>) -> Outcome<()> {
        let number = self.ops + 1;
        self.ops = number;
        self.note(format_args!("{number} {line}"));
        if self.crash_at == Some(number) {
            self.note(format_args!("crash"));
            self.dead = true;
        }
        self.alive()
    }

    fn note(&mut self, line: fmt::Arguments<'_>) {
        if !self.is_history_silent {
            writeln!(self.history, "{line}").expect("writing to a vector cannot fail");
        }
    }

    /// Without it every log that SQLite deletes would be kept until the next crash.
    fn forget_unreachable(&mut self) {
        let directories = [&self.directory, &self.durable_directory];
        let is_named = |id: &u64, inode: &Inode| directories.iter().any(|names| names.get(&*inode.name) == Some(id));
        self.inodes.retain(|id, inode| inode.files_open > 0 || is_named(id, inode));
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

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Crash; 4] = [Crash::Lost, Crash::Kept, Crash::Cut, Crash::Torn];

    fn file(disk: &mut Disk, name: &str) -> Descriptor {
        disk.open(Some(name), true, false).unwrap()
    }

    fn content(disk: &mut Disk, name: &str) -> Option<Vec<u8>> {
        let file = disk.open(Some(name), false, false).ok()?;
        let mut bytes = vec![0; disk.len(&file).unwrap()];
        disk.read(&file, 0, &mut bytes).unwrap();
        disk.close(&file);
        Some(bytes)
    }

    /// A disk with one file, synced as `old` and written over with `new`.
    fn half_synced() -> (Disk, Descriptor) {
        let mut disk = Disk::new(0);
        let a = file(&mut disk, "a");
        disk.write(&a, 0, b"old").unwrap();
        disk.sync(&a).unwrap();
        disk.write(&a, 0, b"new").unwrap();
        (disk, a)
    }

    #[test]
    fn what_was_synced_survives_every_crash() {
        for mode in MODES {
            for seed in 0..20 {
                let (mut disk, a) = half_synced();
                disk.sync(&a).unwrap();
                disk.recover(mode, seed);
                assert_eq!(content(&mut disk, "a"), Some(b"new".to_vec()), "{mode:?} {seed}");
                assert_eq!(disk.write(&a, 0, b"x"), Err(ffi::SQLITE_IOERR), "a file from before the crash stays lost");
            }
        }
    }

    #[test]
    fn what_was_not_synced_survives_as_the_mode_says() {
        for (mode, expect) in [(Crash::Lost, b"old"), (Crash::Kept, b"new")] {
            let (mut disk, _) = half_synced();
            disk.recover(mode, 1);
            assert_eq!(content(&mut disk, "a"), Some(expect.to_vec()));
        }
    }

    #[test]
    fn a_deleted_file_comes_back_unless_its_directory_was_synced() {
        for (sync_directory, expect) in [(false, Some(b"old".to_vec())), (true, None)] {
            let (mut disk, a) = half_synced();
            disk.close(&a);
            disk.delete("a", sync_directory).unwrap();
            disk.recover(Crash::Lost, 1);
            assert_eq!(content(&mut disk, "a"), expect);
        }
    }

    #[test]
    fn a_killed_process_leaves_what_it_wrote_and_no_more_durable_than_it_was() {
        let (mut disk, a) = half_synced();
        disk.kill();
        assert_eq!(disk.len(&a), Err(ffi::SQLITE_IOERR));
        assert_eq!(content(&mut disk, "a"), Some(b"new".to_vec()));
        disk.recover(Crash::Lost, 1);
        assert_eq!(content(&mut disk, "a"), Some(b"old".to_vec()));
    }

    #[test]
    fn what_a_failed_sync_dropped_never_becomes_durable() {
        for is_killed in [false, true] {
            let (mut disk, mut a) = half_synced();
            disk.failing_syncs = Some((2..3, Crash::Lost));
            assert_eq!(disk.sync(&a), Err(ffi::SQLITE_IOERR_FSYNC));
            if is_killed {
                disk.kill();
                a = file(&mut disk, "a");
            }
            disk.write(&a, 3, b"er").unwrap();
            disk.sync(&a).unwrap();
            assert_eq!(content(&mut disk, "a"), Some(b"newer".to_vec()));
            disk.recover(Crash::Kept, 1);
            assert_eq!(content(&mut disk, "a"), Some(b"older".to_vec()));
        }
    }

    #[test]
    fn a_fork_and_its_origin_go_apart() {
        let (mut disk, a) = half_synced();
        let mut fork = disk.fork();
        let forked = file(&mut fork, "a");
        fork.write(&forked, 0, b"fork").unwrap();
        disk.write(&a, 0, b"disk").unwrap();
        assert_eq!((content(&mut fork, "a"), content(&mut disk, "a")), (Some(b"fork".to_vec()), Some(b"disk".to_vec())));
        fork.recover(Crash::Lost, 1);
        assert_eq!(content(&mut fork, "a"), Some(b"new".to_vec()), "all of a fork is durable");
    }

    #[test]
    fn a_file_that_nobody_can_reach_is_forgotten() {
        let mut disk = Disk::new(0);
        for round in 0..100 {
            let (log, temporary) = (file(&mut disk, "log"), disk.open(None, true, true).unwrap());
            disk.write(&log, 0, b"log").unwrap();
            disk.write(&temporary, 0, b"temporary").unwrap();
            disk.sync(&log).unwrap();
            // Open files outlive their names, and a deletion that is not durable keeps its file.
            disk.delete("log", round % 2 == 0).unwrap();
            assert_eq!(disk.len(&log), Ok(3));
            disk.close(&log);
            disk.close(&temporary);
            assert_eq!(disk.inodes.len(), round % 2, "round {round}");
        }
        assert_eq!(disk.files_open, 0);
    }

    #[test]
    fn a_silent_disk_does_the_same_and_writes_no_history() {
        let run = |is_silent| {
            let mut disk = Disk { is_history_silent: is_silent, ..Disk::new(0) };
            let a = file(&mut disk, "a");
            for at in 0..50 {
                disk.write(&a, at * 100, &[7; 1_500]).unwrap();
            }
            disk.recover(Crash::Torn, 3);
            (content(&mut disk, "a"), disk.ops, disk.history.is_empty())
        };
        let (loud, silent) = (run(false), run(true));
        assert_eq!((loud.0, loud.1), (silent.0, silent.1));
        assert_eq!((loud.2, silent.2), (false, true));
        assert!(Disk { is_history_silent: true, ..Disk::new(0) }.fork().is_history_silent);
    }
}

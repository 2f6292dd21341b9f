//! The handle that tests and simulations hold: one disk, its faults and its counts.

use std::fmt;
use std::ops::Range;
use std::sync::MutexGuard;

use rusqlite::ffi;

use crate::crash::Crash;
use crate::disk::Disk;
use crate::glue::Slot;

/// One simulated disk, registered with SQLite under a name of its own.
///
/// Dropping it unregisters the name and frees the files. Connections may outlive it: each finds a dead disk.
pub struct FaultVfs {
    name: String,
    slot: &'static Slot,
}

impl FaultVfs {
    /// `seed` feeds `xRandomness` only; what a crash keeps is drawn from the seed given to `crash_and_recover`.
    pub fn new(seed: u64) -> Self {
        Self::register(Disk::new(seed))
    }

    /// Another disk with the same files and the same promises, all of it durable; the counts start at 0. It shares what neither
    /// writes, and is as silent as this one.
    pub fn fork(&self) -> Self {
        let disk = self.disk().fork();
        Self::register(disk)
    }

    fn register(disk: Disk) -> Self {
        let (slot, name) = Slot::register(disk);
        Self { name, slot }
    }

    /// The name for `Connection::open_with_flags_and_vfs`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes, truncations, syncs and deletes so far, the failed ones included; never reset.
    pub fn ops(&self) -> u64 {
        self.disk().ops
    }

    /// Syncs so far, the failed and the pretended ones included; never reset.
    pub fn syncs(&self) -> u64 {
        self.disk().syncs
    }

    /// What the named files hold together.
    pub fn bytes(&self) -> u64 {
        self.disk().bytes()
    }

    /// One line per operation, fault and recovery: two runs of one scenario with the same seeds have equal histories.
    pub fn history(&self) -> Vec<u8> {
        self.disk().history.clone()
    }

    /// While set, operations leave no line in the history, which otherwise grows for as long as the disk is used, and cost no checksum.
    /// Nothing else changes.
    pub fn silence_history(&self, silent: bool) {
        self.disk().is_history_silent = silent;
    }

    /// Whether the armed operation has been reached and `crash_and_recover` not yet called.
    pub fn is_dead(&self) -> bool {
        self.disk().dead
    }

    /// The process dies in operation number `crash_at` (as counted by `ops`, so `ops() + 1` is the next one).
    pub fn arm(&self, crash_at: u64) {
        let mut disk = self.disk();
        assert!(crash_at > disk.ops, "operation {crash_at} has already happened");
        disk.crash_at = Some(crash_at);
    }

    /// Cuts the power, decides by `mode` and `seed` what the disk has kept, and starts again, disarmed.
    ///
    /// Shared memory and locks are gone. Connections from before stay dead for good; drop them, before or after.
    pub fn crash_and_recover(&self, mode: Crash, seed: u64) {
        self.disk().recover(mode, seed);
    }

    /// Kills the process and leaves the machine running: what was written but not synced is still there, in the kernel's memory.
    pub fn kill(&self) {
        self.disk().kill();
    }

    /// While set, a sync reports success and makes nothing durable: the disk that lies, or the fsync that was removed.
    pub fn lie_about_sync(&self, lie: bool) {
        self.disk().lie_about_sync = lie;
    }

    /// Promises powersafe overwrite, as the Unix VFS does: SQLite then pads no WAL to the end of a sector.
    pub fn promise_powersafe_overwrite(&self) {
        self.disk().device_characteristics = ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE;
    }

    /// The syncs with these numbers (as counted by `syncs`) fail with `SQLITE_IOERR_FSYNC`.
    ///
    /// As on Linux, what they should have synced is then marked clean: it can still be read, and what of it did not reach the disk,
    /// which `kept` decides as for a crash, never becomes durable.
    pub fn fail_syncs(&self, numbers: Range<u64>, kept: Crash) {
        let mut disk = self.disk();
        assert!(numbers.start > disk.syncs, "sync {} has already happened", numbers.start);
        disk.failing_syncs = Some((numbers, kept));
    }

    /// Every sync from now on works.
    pub fn mend_syncs(&self) {
        self.disk().failing_syncs = None;
    }

    /// A write that would grow the named files to more than `after_bytes` in total fails with `SQLITE_FULL`.
    /// `u64::MAX` makes room again.
    pub fn fail_writes_with_full(&self, after_bytes: u64) {
        self.disk().bytes_max = Some(after_bytes);
    }

    fn disk(&self) -> MutexGuard<'static, Disk> {
        self.slot.disk()
    }
}

impl fmt::Debug for FaultVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultVfs").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for FaultVfs {
    fn drop(&mut self) {
        self.slot.unregister();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ptr;

    use rusqlite::{Connection, OpenFlags};

    use super::*;

    /// In WAL mode, so that logs, shared memory and deletions are met too.
    fn open(vfs: &FaultVfs) -> Connection {
        #[expect(clippy::disallowed_methods, reason = "the disk is under test here, without the store above it")]
        let connection = Connection::open_with_flags_and_vfs("a.sqlite", OpenFlags::default(), vfs.name()).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection
    }

    fn rows_count(connection: &Connection) -> rusqlite::Result<u32> {
        connection.query_row("select count(*) from t", [], |row| row.get(0))
    }

    fn with_one_row() -> FaultVfs {
        let vfs = FaultVfs::new(1);
        open(&vfs).execute_batch("create table t (a); insert into t values (1)").unwrap();
        vfs
    }

    #[test]
    fn slots_are_used_again_and_names_are_not() {
        let disk = with_one_row();
        let (mut slots, mut names) = (BTreeSet::new(), BTreeSet::new());
        for round in 0..500 {
            let vfs = disk.fork();
            let connection = open(&vfs);
            connection.execute("insert into t values (2)", []).unwrap();
            assert_eq!(rows_count(&connection), Ok(2));
            slots.insert(ptr::from_ref(vfs.slot).addr());
            names.insert(vfs.name().to_owned());
            // Whichever goes last gives the slot back.
            if round % 2 == 0 {
                drop(vfs);
            }
        }
        // Tests beside this one take slots from the same place.
        assert!(slots.len() < 50, "{} slots", slots.len());
        assert_eq!(names.len(), 500);
    }

    #[test]
    fn a_connection_that_outlives_its_disk_finds_it_dead() {
        let disk = with_one_row();
        let fork = disk.fork();
        let connection = open(&fork);
        drop(fork);
        for _ in 0..10 {
            let fork = disk.fork();
            assert_eq!(rows_count(&open(&fork)), Ok(1));
            assert!(rows_count(&connection).is_err());
        }
    }

    #[test]
    fn a_disk_is_found_by_its_name_for_as_long_as_it_is_held() {
        let vfs = with_one_row();
        assert_eq!(rows_count(&open(&vfs)), Ok(1));
        let name = vfs.name().to_owned();
        drop(vfs);
        #[expect(clippy::disallowed_methods, reason = "the disk is under test here, without the store above it")]
        let opened = Connection::open_with_flags_and_vfs("a.sqlite", OpenFlags::default(), name.as_str());
        assert!(opened.is_err());
    }

    #[test]
    fn an_armed_disk_dies_and_recovers_with_what_was_committed() {
        let vfs = with_one_row();
        vfs.silence_history(true);
        let connection = open(&vfs);
        vfs.arm(vfs.ops() + 1);
        assert!(connection.execute("insert into t values (2)", []).is_err() && vfs.is_dead());
        vfs.crash_and_recover(Crash::Torn, 1);
        assert_eq!(rows_count(&open(&vfs)), Ok(1));
    }
}

//! A SQLite VFS in memory whose disk can be cut at any operation, for crash tests and simulations.
//!
//! Owns: the model of a disk (what is durable, and what a crash may keep of the rest), and the VFS that puts SQLite on it.
//!
//! Must not know: what is stored. It sees files, bytes and syncs; the one thing it knows of SQLite's formats is where a log holds
//! numbers that SQLite drew.
//!
//! Invariants: what was synced survives every crash, unless the disk was told to lie; equal runs with equal seeds have equal
//! histories; nothing that SQLite holds an address of is freed under it.
//!
//! Start at [`FaultVfs`]. A test opens its connections through [`FaultVfs::name`], runs a workload once to learn how many operations
//! it costs ([`FaultVfs::ops`]), then runs it again for every operation with [`FaultVfs::arm`], each time on a [`FaultVfs::fork`] of
//! the disk it starts from. From the armed operation on the process counts as dead: everything fails until
//! [`FaultVfs::crash_and_recover`] decides what the disk has kept. What a crash may keep is the model in `disk`, which is safe
//! code; this file holds the handle for tests and the C glue.
//!
//! It is not a model of several processes: all connections share one heap and one lock.

#![expect(unsafe_code, reason = "a SQLite VFS is a table of C functions over raw pointers")]

mod disk;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::ffi;

pub use disk::Crash;
use disk::{Descriptor, Disk, Outcome, Region, SECTOR_BYTES};

/// One simulated disk, registered with SQLite under a name of its own.
///
/// Dropping it unregisters the name and frees the files. Connections may outlive it: each finds a dead disk.
pub struct FaultVfs {
    name: CString,
    disk: &'static Mutex<Disk>,
}

impl FaultVfs {
    /// `seed` feeds `xRandomness` only; what a crash keeps is drawn from the seed given to `crash_and_recover`.
    pub fn new(seed: u64) -> Self {
        Self::register(Disk::new(seed))
    }

    /// Another disk with the same files and the same promises, all of it durable; the counts start at 0.
    pub fn fork(&self) -> Self {
        Self::register(self.disk().fork())
    }

    fn register(disk: Disk) -> Self {
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        let name = CString::new(format!("fault-{}", INSTANCES.fetch_add(1, Ordering::Relaxed))).expect("the name has no NUL");
        // Leaked, since SQLite keeps the pointers of a connection's VFS for as long as the connection lives.
        let disk: &'static Mutex<Disk> = Box::leak(Box::new(Mutex::new(disk)));
        let vfs = Box::leak(Box::new(methods(name.clone().into_raw(), disk)));
        // SAFETY: the VFS, its name and its disk are leaked above, so they stay valid after registration.
        let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        assert_eq!(code, ffi::SQLITE_OK, "registering a VFS cannot fail once SQLite is initialised");
        Self { name, disk }
    }

    /// The name for `Connection::open_with_flags_and_vfs`.
    pub fn name(&self) -> &str {
        self.name.to_str().expect("the name is ASCII")
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
        lock(self.disk)
    }
}

impl fmt::Debug for FaultVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultVfs").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for FaultVfs {
    fn drop(&mut self) {
        // SAFETY: the name is a valid C string, and the VFS it finds is the leaked one registered by `new`.
        let code = unsafe { ffi::sqlite3_vfs_unregister(ffi::sqlite3_vfs_find(self.name.as_ptr())) };
        debug_assert_eq!(code, ffi::SQLITE_OK, "only this handle unregisters the name");
        let mut disk = self.disk();
        *disk = Disk::new(0);
        disk.dead = true;
    }
}

fn methods(name: *const c_char, disk: &'static Mutex<Disk>) -> ffi::sqlite3_vfs {
    ffi::sqlite3_vfs {
        iVersion: 1,
        szOsFile: c_int::try_from(size_of::<File>()).expect("a file handle is a few words"),
        mxPathname: 512,
        pNext: ptr::null_mut(),
        zName: name,
        pAppData: ptr::from_ref(disk).cast_mut().cast(),
        xOpen: Some(x_open),
        xDelete: Some(x_delete),
        xAccess: Some(x_access),
        xFullPathname: Some(x_full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(x_randomness),
        xSleep: Some(x_sleep),
        xCurrentTime: Some(x_current_time),
        xGetLastError: None,
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }
}

static IO_METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(x_close),
    xRead: Some(x_read),
    xWrite: Some(x_write),
    xTruncate: Some(x_truncate),
    xSync: Some(x_sync),
    xFileSize: Some(x_file_size),
    xLock: Some(x_lock),
    xUnlock: Some(x_unlock),
    xCheckReservedLock: Some(x_check_reserved_lock),
    xFileControl: Some(x_file_control),
    xSectorSize: Some(x_sector_size),
    xDeviceCharacteristics: Some(x_device_characteristics),
    xShmMap: Some(x_shm_map),
    xShmLock: Some(x_shm_lock),
    xShmBarrier: Some(x_shm_barrier),
    xShmUnmap: Some(x_shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// What lies in the `szOsFile` bytes that SQLite allocates; `base` first, as it sees only that.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    open: Option<Box<Open>>,
}

struct Open {
    disk: &'static Mutex<Disk>,
    descriptor: Descriptor,
    /// INVARIANT: holds every region whose address SQLite was given, so that a crash cannot free it under a connection.
    regions: Vec<Region>,
}

/// Poison is ignored: only a refused `arm` or `fail_syncs` leaves any, and `drop` must not panic over it.
fn lock(disk: &'static Mutex<Disk>) -> MutexGuard<'static, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn code(outcome: Outcome<()>) -> c_int {
    outcome.err().unwrap_or(ffi::SQLITE_OK)
}

fn size(n: impl TryInto<usize>) -> usize {
    n.try_into().ok().expect("SQLite passes no negative offset or length")
}

/// # Safety
/// `vfs` is one that `FaultVfs::new` registered.
unsafe fn disk_of(vfs: *mut ffi::sqlite3_vfs) -> MutexGuard<'static, Disk> {
    // SAFETY: `pAppData` was set from a leaked `&'static Mutex<Disk>` and never changed.
    lock(unsafe { &*(*vfs).pAppData.cast::<Mutex<Disk>>() })
}

/// # Safety
/// `name` is a C string that outlives the call.
unsafe fn text<'a>(name: *const c_char) -> &'a str {
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(name) }.to_str().expect("paths in tests are UTF-8")
}

/// # Safety
/// `file` was opened by `x_open` and is not closed; SQLite uses a file from one thread at a time.
unsafe fn with<T>(file: *mut ffi::sqlite3_file, call: impl FnOnce(&mut Disk, &mut Open) -> T) -> T {
    // SAFETY: promised by the caller, and `x_open` wrote a `File` there.
    let open = unsafe { (*file.cast::<File>()).open.as_mut() }.expect("SQLite does not use a closed file");
    call(&mut lock(open.disk), open)
}

unsafe extern "C" fn x_open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes its own VFS, and null or a C string as the name.
    let (disk, name) = unsafe { (&*(*vfs).pAppData.cast::<Mutex<Disk>>(), (!name.is_null()).then(|| text(name))) };
    let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
    let exclusive = flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0;
    let opened = lock(disk).open(name, create, exclusive);
    // INVARIANT: no methods after a failure, as SQLite closes whatever has them.
    let (methods, open, code) = match opened {
        Ok(descriptor) => {
            let open = Open { disk, descriptor, regions: Vec::new() };
            (&raw const IO_METHODS, Some(Box::new(open)), ffi::SQLITE_OK)
        }
        Err(code) => (ptr::null(), None, code),
    };
    let base = ffi::sqlite3_file { pMethods: methods };
    // SAFETY: `file` has `szOsFile` aligned bytes to be initialised.
    unsafe { file.cast::<File>().write(File { base, open }) };
    if !out_flags.is_null() {
        // SAFETY: not null, so SQLite wants the flags.
        unsafe { out_flags.write(flags) };
    }
    code
}

unsafe extern "C" fn x_delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: SQLite passes its own VFS and a C string.
    code(unsafe { disk_of(vfs).delete(text(name), sync_dir != 0) })
}

unsafe extern "C" fn x_access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, flags: c_int, found: *mut c_int) -> c_int {
    // SAFETY: SQLite passes its own VFS and a C string.
    let answer = unsafe { disk_of(vfs).access(text(name), flags == ffi::SQLITE_ACCESS_EXISTS) };
    // SAFETY: `found` is an out parameter.
    code(answer.map(|yes| unsafe { found.write(c_int::from(yes)) }))
}

unsafe extern "C" fn x_full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    out_bytes: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if name.len() > size(out_bytes) {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has `out_bytes` bytes, which was checked to be enough.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), name.len()) };
    ffi::SQLITE_OK
}

/// SQLite asks only the default VFS for its seed, so this serves whoever asks the VFS itself (see `disk::nonces`).
unsafe extern "C" fn x_randomness(vfs: *mut ffi::sqlite3_vfs, bytes: c_int, out: *mut c_char) -> c_int {
    for at in 0..size(bytes) {
        // SAFETY: SQLite passes its own VFS and `bytes` bytes to fill.
        unsafe { out.add(at).cast::<u8>().write(disk_of(vfs).random_byte()) };
    }
    bytes
}

/// Says that it slept: nobody else makes progress while the only thread sleeps.
unsafe extern "C" fn x_sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

/// Stands still at noon on 2026-01-01.
unsafe extern "C" fn x_current_time(_vfs: *mut ffi::sqlite3_vfs, julian_day: *mut f64) -> c_int {
    // SAFETY: `julian_day` is an out parameter.
    unsafe { julian_day.write(2_461_042.0) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and `take` drops what `x_open` put there.
    if let Some(open) = unsafe { (*file.cast::<File>()).open.take() } {
        lock(open.disk).close(&open.descriptor);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_read(file: *mut ffi::sqlite3_file, to: *mut c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: `to` has `bytes` writable bytes, zeroed before they are borrowed.
    let buffer = unsafe {
        to.write_bytes(0, size(bytes));
        slice::from_raw_parts_mut(to.cast(), size(bytes))
    };
    // SAFETY: the file is open.
    code(unsafe { with(file, |disk, open| disk.read(&open.descriptor, size(at), buffer)) })
}

unsafe extern "C" fn x_write(file: *mut ffi::sqlite3_file, from: *const c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: `from` has `bytes` readable bytes.
    let data = unsafe { slice::from_raw_parts(from.cast::<u8>(), size(bytes)) };
    // SAFETY: the file is open.
    code(unsafe { with(file, |disk, open| disk.write(&open.descriptor, size(at), data)) })
}

unsafe extern "C" fn x_truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: the file is open.
    code(unsafe { with(file, |disk, open| disk.truncate(&open.descriptor, size(len))) })
}

unsafe extern "C" fn x_sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: the file is open.
    code(unsafe { with(file, |disk, open| disk.sync(&open.descriptor)) })
}

unsafe extern "C" fn x_file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: the file is open.
    let len = unsafe { with(file, |disk, open| disk.len(&open.descriptor)) };
    // SAFETY: `out` is an out parameter.
    code(len.map(|len| unsafe { out.write(i64::try_from(len).expect("a file fits in memory")) }))
}

unsafe extern "C" fn x_lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    code(unsafe { with(file, |disk, open| disk.lock(&open.descriptor, level)) })
}

unsafe extern "C" fn x_unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { with(file, |disk, open| disk.unlock(&open.descriptor, level)) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: the file is open.
    let reserved = unsafe { with(file, |disk, open| disk.is_reserved(&open.descriptor)) };
    // SAFETY: `out` is an out parameter.
    code(reserved.map(|yes| unsafe { out.write(c_int::from(yes)) }))
}

unsafe extern "C" fn x_file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _arg: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn x_sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    c_int::try_from(SECTOR_BYTES).expect("a sector is small")
}

unsafe extern "C" fn x_device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file is open.
    unsafe { with(file, |disk, _| disk.device_characteristics) }
}

unsafe extern "C" fn x_shm_map(
    file: *mut ffi::sqlite3_file,
    index: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let map = |disk: &mut Disk, open: &mut Open| {
        let region = disk.shm_map(&open.descriptor, size(index), size(bytes), extend != 0)?;
        let address = region.as_ref().map_or(ptr::null_mut(), |region| region.as_ptr().cast_mut().cast());
        open.regions.extend(region);
        Ok(address)
    };
    // SAFETY: the file is open; the address stays valid while `open.regions` holds the region of atomics behind it.
    code(unsafe { with(file, map).map(|address| out.write(address)) })
}

unsafe extern "C" fn x_shm_lock(file: *mut ffi::sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    let slots = size(first)..size(first) + size(count);
    let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
    let call = |disk: &mut Disk, open: &mut Open| match flags & ffi::SQLITE_SHM_LOCK {
        0 => disk.shm_unlock(&open.descriptor, slots),
        _ => disk.shm_lock(&open.descriptor, slots, exclusive),
    };
    // SAFETY: the file is open.
    code(unsafe { with(file, call) })
}

unsafe extern "C" fn x_shm_barrier(_file: *mut ffi::sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn x_shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    let unmap = |disk: &mut Disk, open: &mut Open| {
        disk.shm_unmap(&open.descriptor);
        open.regions.clear();
    };
    // SAFETY: the file is open, and SQLite does not use a region after unmapping.
    unsafe { with(file, unmap) };
    ffi::SQLITE_OK
}

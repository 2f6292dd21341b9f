//! The C side: the table of functions that SQLite calls, and the addresses it may hold on to.

#![expect(unsafe_code, reason = "a SQLite VFS is a table of C functions over raw pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::ffi;

use crate::disk::{Descriptor, Disk, Outcome};
use crate::inode::{Region, SECTOR_BYTES};

/// A VFS that SQLite may know, and the disk behind it.
///
/// INVARIANT: a slot is never freed, as SQLite keeps the pointer of a connection's VFS for as long as the connection lives, and nothing
/// says when that is. It is used again once its disk has neither an owner nor an open file, so there are only as many as there were
/// disks at one time. A connection that still holds on to it then, one to a database in memory, finds another disk, never freed memory.
pub(crate) struct Slot {
    disk: Mutex<Disk>,
    /// Atomics, because such a connection can read it while the next disk writes its own.
    name: [AtomicU8; NAME_BYTES],
    vfs: AtomicPtr<ffi::sqlite3_vfs>,
}

/// LIMIT: `fault-`, sixteen digits and the NUL, so that names differ for ever and a new one fits where the old one was.
const NAME_BYTES: usize = 23;

static UNUSED: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

impl Slot {
    /// Makes a disk known to SQLite, under a name that no other had before.
    pub(crate) fn register(disk: Disk) -> (&'static Self, String) {
        static DISKS: AtomicU64 = AtomicU64::new(0);
        let name = format!("fault-{:016x}", DISKS.fetch_add(1, Ordering::Relaxed));
        let unused = lock(&UNUSED).pop();
        let slot = unused.unwrap_or_else(Self::leak);
        *slot.disk() = disk;
        for (to, byte) in slot.name.iter().zip(name.bytes()) {
            to.store(byte, Ordering::Relaxed);
        }
        // SAFETY: the VFS, its name and its disk are never freed, and SQLite does not know the VFS at present.
        let code = unsafe { ffi::sqlite3_vfs_register(slot.vfs.load(Ordering::Relaxed), 0) };
        assert_eq!(code, ffi::SQLITE_OK, "registering a VFS cannot fail once SQLite is initialised");
        (slot, name)
    }

    pub(crate) fn unregister(&'static self) {
        // SAFETY: the VFS was registered by `register`, and only its one owner calls this, once.
        let code = unsafe { ffi::sqlite3_vfs_unregister(self.vfs.load(Ordering::Relaxed)) };
        debug_assert_eq!(code, ffi::SQLITE_OK, "SQLite has nothing to say against it");
        self.leave(Disk::unplug);
    }

    /// Poison is ignored: only a refused `arm` or `fail_syncs` leaves any, and `drop` must not panic over it.
    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    /// Takes away an owner or an open file, and keeps the slot for another disk if that was the last of them.
    fn leave(&'static self, leave: impl FnOnce(&mut Disk)) {
        let mut disk = self.disk();
        leave(&mut disk);
        let is_abandoned = disk.is_abandoned();
        drop(disk);
        if is_abandoned {
            lock(&UNUSED).push(self);
        }
    }

    fn leak() -> &'static Self {
        let slot: &'static Self = Box::leak(Box::new(Self {
            disk: Mutex::default(),
            name: [const { AtomicU8::new(0) }; NAME_BYTES],
            vfs: AtomicPtr::default(),
        }));
        slot.vfs.store(Box::leak(Box::new(methods(slot))), Ordering::Relaxed);
        slot
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn methods(slot: &'static Slot) -> ffi::sqlite3_vfs {
    ffi::sqlite3_vfs {
        iVersion: 1,
        szOsFile: c_int::try_from(size_of::<File>()).expect("a file handle is a few words"),
        mxPathname: 512,
        pNext: ptr::null_mut(),
        zName: slot.name.as_ptr().cast(),
        pAppData: ptr::from_ref(slot).cast_mut().cast(),
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
    slot: &'static Slot,
    descriptor: Descriptor,
    /// INVARIANT: holds every region whose address SQLite was given, so that a crash cannot free it under a connection.
    regions: Vec<Region>,
}

fn code(outcome: Outcome<()>) -> c_int {
    outcome.err().unwrap_or(ffi::SQLITE_OK)
}

fn size(n: impl TryInto<usize>) -> usize {
    n.try_into().ok().expect("SQLite passes no negative offset or length")
}

/// # Safety
/// `vfs` is the one of a slot.
unsafe fn slot_of(vfs: *mut ffi::sqlite3_vfs) -> &'static Slot {
    // SAFETY: `pAppData` was set from a leaked `&'static Slot` and never changed.
    unsafe { &*(*vfs).pAppData.cast::<Slot>() }
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
    call(&mut open.slot.disk(), open)
}

unsafe extern "C" fn x_open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes its own VFS, and null or a C string as the name.
    let (slot, name) = unsafe { (slot_of(vfs), (!name.is_null()).then(|| text(name))) };
    let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
    let exclusive = flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0;
    let opened = slot.disk().open(name, create, exclusive);
    // INVARIANT: no methods after a failure, as SQLite closes whatever has them.
    let (methods, open, code) = match opened {
        Ok(descriptor) => {
            let open = Open { slot, descriptor, regions: Vec::new() };
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
    code(unsafe { slot_of(vfs).disk().delete(text(name), sync_dir != 0) })
}

unsafe extern "C" fn x_access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, flags: c_int, found: *mut c_int) -> c_int {
    // SAFETY: SQLite passes its own VFS and a C string.
    let answer = unsafe { slot_of(vfs).disk().access(text(name), flags == ffi::SQLITE_ACCESS_EXISTS) };
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

/// SQLite asks only the default VFS for its seed, so this serves whoever asks the VFS itself (see `inode::nonces`).
unsafe extern "C" fn x_randomness(vfs: *mut ffi::sqlite3_vfs, bytes: c_int, out: *mut c_char) -> c_int {
    for at in 0..size(bytes) {
        // SAFETY: SQLite passes its own VFS and `bytes` bytes to fill.
        unsafe { out.add(at).cast::<u8>().write(slot_of(vfs).disk().random_byte()) };
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
        open.slot.leave(|disk| disk.close(&open.descriptor));
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

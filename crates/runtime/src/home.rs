//! The home: one folder that holds everything, owned by one process at a time.
//!
//! The lock is the kernel's (it ends with the process, however that ends); the pid in the lock file is only text for people.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::HostId;
use store::env::Env;
use store::sqlite::{Location, SqliteStore};

use crate::{Error, Result, platform};

/// LIMIT: far longer than a command for one note takes, short enough for a person who waits.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// A home's place on disk. Nothing is read until it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    folder: PathBuf,
}

/// What `init` found or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    pub folder: PathBuf,
    pub host: HostId,
    /// False when the home was there already.
    pub created: bool,
}

/// The right to write; ends when dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The text is for people; a stale one would only confuse.
        self.file.set_len(0).ok();
    }
}

impl Home {
    /// `explicit`, else `$VERGER_HOME` (which the caller reads), else the platform's data folder.
    pub fn locate(explicit: Option<&Path>) -> Result<Self> {
        let missing = || Error::new(ErrorCode::HomeMissing, "no home is named, and this account has no home folder of its own");
        let folder = explicit.map(Path::to_path_buf).or_else(platform::data_folder).ok_or_else(missing)?;
        Ok(Self { folder: std::path::absolute(&folder).unwrap_or(folder) })
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn location(&self, domain: Domain) -> Location {
        Location::in_folder(&self.folder.join("store"), domain)
    }

    /// Where the agent domain is kept: what a benchmark fills with a long thread.
    #[must_use]
    pub fn bench_location(&self) -> Location {
        self.location(Domain::Agent)
    }

    /// Makes the folders and the databases. Repeating it is harmless; a half-made home is completed.
    pub(crate) fn create(&self, env: &Env) -> Result<(Lock, HostId, bool)> {
        self.adopt_folder()?;
        for folder in [self.folder.clone(), self.folder.join("store"), self.folder.join("run"), self.folder.join("data")] {
            platform::create_private_folder(&folder)
                .map_err(|error| self.invalid(&format!("cannot make {}: {error}", folder.display())))?;
        }
        self.check_folder()?;
        let lock = self.lock()?;
        let stray = |domain: &Domain| !self.location(*domain).path.exists();
        let missing: Vec<Domain> = Domain::ALL.iter().copied().filter(stray).collect();
        let made_before = Domain::ALL.iter().find(|domain| !missing.contains(domain));
        if !missing.is_empty() && self.is_complete(&missing, env)? {
            return Err(self.incomplete(&missing));
        }
        let host = match made_before {
            // INVARIANT: all files of a home belong to one host.
            Some(domain) => store::store::Store::host(&SqliteStore::open(&self.location(*domain), env)?),
            None => HostId::from_raw(env.id()),
        };
        for domain in &missing {
            self.create_database(*domain, host, env)?;
        }
        Ok((lock, host, !missing.is_empty()))
    }

    /// A folder that exists is made into a home only if it is one already or holds nothing.
    fn adopt_folder(&self) -> Result<()> {
        if !self.folder.exists() {
            return Ok(());
        }
        self.check_owner()?;
        let unreadable = |error: std::io::Error| self.invalid(&error.to_string());
        let is_empty = std::fs::read_dir(&self.folder).map_err(unreadable)?.next().is_none();
        if is_empty {
            return platform::make_private(&self.folder).map_err(unreadable);
        }
        if !self.folder.join("store").is_dir() {
            return Err(self.invalid("it holds something else; name an empty or a new folder"));
        }
        Ok(())
    }

    /// Whether a home that misses files was whole once. The first entry is written after the last file is made, and files are made in
    /// order, so a gap before an existing one is no half-made home either.
    fn is_complete(&self, missing: &[Domain], env: &Env) -> Result<bool> {
        if missing.contains(&Domain::Journal) {
            return Ok(missing.len() < Domain::ALL.len());
        }
        let store = SqliteStore::open(&self.location(Domain::Journal), env)?;
        let has_entries = store::store::Store::heads(&store)?.iter().any(|head| head.counter > 0);
        Ok(has_entries || (missing.contains(&Domain::Agent) && !missing.contains(&Domain::Ledger)))
    }

    fn incomplete(&self, missing: &[Domain]) -> Error {
        let names: Vec<_> = missing.iter().map(|domain| format!("{domain}.sqlite")).collect();
        self.invalid(&format!("{} is missing from its store folder; restore it from a backup", names.join(", ")))
    }

    /// A database is made under another name first: a crash in the middle leaves nothing that looks like one.
    fn create_database(&self, domain: Domain, host: HostId, env: &Env) -> Result<()> {
        let location = self.location(domain);
        let partial = Location { path: location.path.with_extension("partial"), ..location.clone() };
        for leftover in ["", "-wal", "-shm"] {
            let mut path = partial.path.clone().into_os_string();
            path.push(leftover);
            std::fs::remove_file(path).ok();
        }
        let store = SqliteStore::create(&partial, host, env)?;
        // INVARIANT: only the file itself is renamed, so nothing may be left in its WAL; closing alone would not say if it was.
        store.checkpointer()?.truncate()?;
        drop(store);
        std::fs::rename(&partial.path, &location.path)
            .map_err(|error| self.invalid(&format!("cannot make {}: {error}", location.path.display())))
    }

    /// Checks that the folder is one that we may use.
    pub(crate) fn check_folder(&self) -> Result<()> {
        self.check_owner()?;
        let unreadable = |error: std::io::Error| self.invalid(&error.to_string());
        for folder in [self.folder.clone(), self.folder.join("store")] {
            if folder.is_dir() && platform::is_open_to_others(&folder).map_err(unreadable)? {
                return Err(self.invalid(&format!("others can enter {}; run `chmod 700` on it", folder.display())));
            }
        }
        Ok(())
    }

    /// Checks that it is a folder, and ours.
    fn check_owner(&self) -> Result<()> {
        let unreadable = |error: std::io::Error| self.invalid(&error.to_string());
        match std::fs::metadata(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(self.missing()),
            Err(error) => return Err(unreadable(error)),
            Ok(metadata) if !metadata.is_dir() => return Err(self.invalid("it is a file, not a folder")),
            Ok(_) => {}
        }
        if !platform::is_ours(&self.folder).map_err(unreadable)? {
            return Err(self.invalid("it belongs to somebody else"));
        }
        Ok(())
    }

    /// Checks that there is a whole home.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_folder()?;
        let missing: Vec<Domain> = Domain::ALL.iter().copied().filter(|domain| !self.location(*domain).path.is_file()).collect();
        if missing.len() == Domain::ALL.len() {
            return Err(self.missing());
        }
        if !missing.is_empty() {
            return Err(self.incomplete(&missing));
        }
        Ok(())
    }

    /// Takes the home, or names who has it.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let path = self.folder.join("run").join("lock");
        let open = || {
            platform::create_private_folder(&self.folder.join("run"))?;
            platform::open_private_file(&path)
        };
        let mut file = open().map_err(|error| self.invalid(&format!("cannot open {}: {error}", path.display())))?;
        // A short command of another process is soon done; a long one is worth a word.
        let started = std::time::Instant::now();
        let mut tried = file.try_lock();
        while matches!(tried, Err(TryLockError::WouldBlock)) && started.elapsed() < LOCK_WAIT {
            std::thread::sleep(LOCK_RETRY);
            tried = file.try_lock();
        }
        match tried {
            Ok(()) => {
                let note = format!("{}\n", std::process::id());
                let noted = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes()));
                noted.map_err(|error| self.unwritable(&path, &error))?;
                Ok(Lock { file })
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // LIMIT: a pid is short; anything longer is not ours to repeat.
                (&file).take(20).read_to_string(&mut holder).ok();
                let holder = holder.trim();
                let by = if holder.is_empty() { "another process".to_owned() } else { format!("process {holder}") };
                Err(Error {
                    details: serde_json::json!({ "home": self.folder, "pid": holder.parse::<u32>().ok() }),
                    ..Error::new(ErrorCode::HomeLocked, format!("{} is in use by {by}", self.folder.display()))
                })
            }
            Err(TryLockError::Error(error)) => Err(self.invalid(&format!("cannot lock {}: {error}", path.display()))),
        }
    }

    fn unwritable(&self, path: &Path, error: &std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::StorageFull {
            return Error::new(ErrorCode::StorageFull, format!("the disk is full: cannot write {}", path.display()));
        }
        self.invalid(&format!("cannot write {}: {error}", path.display()))
    }

    fn missing(&self) -> Error {
        Error::new(ErrorCode::HomeMissing, format!("there is no home at {}", self.folder.display()))
    }

    fn invalid(&self, what: &str) -> Error {
        Error::new(ErrorCode::HomeInvalid, format!("the home {} cannot be used: {what}", self.folder.display()))
    }
}

/// Copies a folder of plain files, one level deep, with the same care for permissions as a home.
pub fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    platform::create_private_folder(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

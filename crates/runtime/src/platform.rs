//! What differs between operating systems: owners, permissions, where data lives. Linux first.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Makes a folder (and those above it) that only its owner can enter.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Shuts everybody else out of a folder.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

/// Opens a file that only its owner can read, making it when it is not there.
pub(crate) fn open_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether the file belongs to whoever runs this process.
pub(crate) fn is_ours(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.uid() == rustix::process::geteuid().as_raw())
}

/// Whether others may enter or read it.
pub(crate) fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.mode() & 0o077 != 0)
}

/// Where the platform keeps an application's data: `$XDG_DATA_HOME/verger`, else `~/.local/share/verger`.
pub(crate) fn data_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(base.join("verger"))
}

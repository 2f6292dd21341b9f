//! What differs between operating systems. Linux first; another system adds its own version of these functions.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Makes a file that only its owner can read; one that exists is an error.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Gives a finished file its name: after a power cut there is the whole file under that name, or none.
pub(crate) fn publish_file(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    std::fs::rename(from, to)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

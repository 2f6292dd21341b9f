//! What differs between operating systems. Linux first; another system adds its own version of these functions.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Makes a file that only its owner can read; one that exists is an error.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

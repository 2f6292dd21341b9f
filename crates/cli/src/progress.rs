//! Progress of long work, on stderr, only where somebody watches.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// LIMIT: work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(400);
const BETWEEN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    started: Instant,
    shown: Option<Instant>,
    watched: bool,
}

impl Progress {
    pub(crate) fn new(what: &str) -> Self {
        Self { what: what.to_owned(), started: Instant::now(), shown: None, watched: io::stderr().is_terminal() }
    }

    pub(crate) fn at(&mut self, done: &str) {
        let due = self.shown.map_or_else(|| self.started.elapsed() > QUIET, |shown| shown.elapsed() > BETWEEN);
        if self.watched && due {
            self.shown = Some(Instant::now());
            // A closed stderr must not stop the work.
            write!(io::stderr().lock(), "\r\x1b[K{}: {done}", self.what).ok();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            write!(io::stderr().lock(), "\r\x1b[K").ok();
        }
    }
}

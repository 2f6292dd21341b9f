//! A bounded pool of connections for readers: each is lent for one snapshot, and the next reader waits.

use std::sync::{Condvar, Mutex, MutexGuard};

use domain::limits::READERS_MAX;

pub(crate) struct Pool<C> {
    state: Mutex<State<C>>,
    returned: Condvar,
}

struct State<C> {
    idle: Vec<C>,
    lent: usize,
}

impl<C> Default for Pool<C> {
    fn default() -> Self {
        Self { state: Mutex::new(State { idle: Vec::new(), lent: 0 }), returned: Condvar::new() }
    }
}

impl<C> Pool<C> {
    /// Takes a place, with an idle connection if there is one. Whoever has the place gives it back, with a connection or without.
    pub(crate) fn borrow(&self) -> Option<C> {
        let mut state = self.lock();
        while state.lent >= READERS_MAX {
            state = self.returned.wait(state).expect("no thread panics while it holds the pool");
        }
        state.lent += 1;
        state.idle.pop()
    }

    pub(crate) fn give_back(&self, connection: Option<C>) {
        let mut state = self.lock();
        state.lent -= 1;
        state.idle.extend(connection);
        drop(state);
        self.returned.notify_one();
    }

    /// Drops connections that nobody uses: after a failure none of them is trusted.
    pub(crate) fn close_idle(&self) {
        let dropped = std::mem::take(&mut self.lock().idle);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().expect("no thread panics while it holds the pool")
    }
}

//! What Python's interpreter does between instructions, for loops that execute none: signals are
//! handled, and other threads get their turn.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long a thread keeps the interpreter's lock: as long as Python lets it.
const TURN: Duration = Duration::from_millis(5);

thread_local! {
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// To be called often. Fails with what a signal's handler raises.
pub fn pause(py: Python<'_>) -> PyResult<()> {
    py.check_signals()?;
    let now = Instant::now();
    match SINCE.get() {
        Some(since) if now - since < TURN => {}
        _ => {
            py.detach(|| ());
            SINCE.set(Some(Instant::now()));
        }
    }
    Ok(())
}

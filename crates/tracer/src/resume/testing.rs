//! Graph breaks where nothing asks for one: `stator._testing.break_everywhere()` and `break_at()`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stator_cpython::shortcut;

use pyo3::prelude::*;

/// Before which instructions of a recording traces end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaks {
    /// Only where they must.
    None,
    /// Before every second instruction: those with an even or with an odd number.
    Everywhere(u64),
    /// Before the instruction with this number, of a recording that begins at a call.
    At(u64),
}

const EVERYWHERE: u64 = 1 << 32;

static BREAKS: AtomicU64 = AtomicU64::new(0);
/// Instructions before which a break was asked for.
static ASKED: AtomicU64 = AtomicU64::new(0);

impl Breaks {
    /// What tests ask for now.
    #[must_use]
    pub fn now() -> Self {
        match BREAKS.load(Relaxed) {
            0 => Self::None,
            number if number >= EVERYWHERE => Self::Everywhere(number - EVERYWHERE),
            number => Self::At(number),
        }
    }

    /// Whether the trace is to end before the instruction with this number.
    #[must_use]
    pub fn applies(self, number: u64) -> bool {
        let applies = match self {
            Self::None => false,
            Self::Everywhere(parity) => number % 2 == parity % 2,
            Self::At(at) => number == at,
        };
        if applies {
            ASKED.fetch_add(1, Relaxed);
        }
        applies
    }
}

/// Ends traces before every second instruction; `parity` says before which.
#[pyfunction(name = "_break_everywhere")]
fn break_everywhere(parity: u64) {
    shortcut::close_all();
    BREAKS.store(EVERYWHERE + parity % 2, Relaxed);
}

/// Ends traces that begin at a call before their instruction with this number (from 1); 0: nowhere.
#[pyfunction(name = "_break_at")]
fn break_at(number: u32) {
    shortcut::close_all();
    BREAKS.store(u64::from(number), Relaxed);
}

/// How many breaks tests have asked for.
#[pyfunction(name = "_breaks_asked")]
fn breaks_asked() -> u64 {
    ASKED.load(Relaxed)
}

/// Adds the functions to `_stator`.
///
/// # Errors
/// What Python raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(break_everywhere, module)?)?;
    module.add_function(wrap_pyfunction!(break_at, module)?)?;
    module.add_function(wrap_pyfunction!(breaks_asked, module)?)
}

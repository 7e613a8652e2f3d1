//! Why a check failed.

use pyo3::prelude::*;

/// The guard that didn't hold, and what was met.
#[derive(Debug)]
pub struct Failure {
    /// Index of the guard; `None` where the trace as a whole is void: an object that it knows by
    /// identity has died, or a wanted object without a guard can't be reached.
    pub guard: Option<usize>,
    /// What was met.
    pub found: Found,
}

/// What was met instead of what a guard says.
#[derive(Debug)]
pub enum Found {
    /// This object.
    Object(Py<PyAny>),
    /// Nothing: the path ends before the guarded slot.
    Missing,
    /// An object known by identity has died.
    Dead,
    /// A class was registered with an abstract class since.
    Registered,
    /// Another global state.
    GlobalState,
    /// Something else is selected of an accelerator: what, if it can be read.
    Accelerator(String),
    /// `torch.compiler.is_compiling()` would answer this.
    Answer(bool),
    /// Numbers for which a symbolic fact doesn't hold, printed with their sources.
    Numbers(String),
}

impl Failure {
    pub(super) fn dead() -> Self {
        Failure { guard: None, found: Found::Dead }
    }

    /// The guards can't be checked at all.
    pub(super) fn void() -> Self {
        Failure { guard: None, found: Found::Missing }
    }
}

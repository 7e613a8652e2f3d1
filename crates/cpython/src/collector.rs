//! CPython's collector of cyclic garbage.

use std::marker::PhantomData;

use pyo3::ffi;
use pyo3::prelude::*;

/// While it lives no collection starts, in any thread. For calls that allocate Python objects while
/// they hold a lock of their own: a collection there may run finalizers and callbacks, those let other
/// threads in, and a thread that wants the lock would wait for it with the GIL held.
///
/// Nobody notices as long as the GIL is kept.
#[must_use]
pub struct Paused<'py> {
    was_enabled: bool,
    py: PhantomData<Python<'py>>,
}

impl<'py> Paused<'py> {
    /// Pauses the collector, unless the program has done so already.
    pub fn new(_py: Python<'py>) -> Self {
        // SAFETY: called with the GIL held.
        let was_enabled = unsafe { ffi::PyGC_Disable() } != 0;
        Paused { was_enabled, py: PhantomData }
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: the GIL is held as long as `'py` lasts.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

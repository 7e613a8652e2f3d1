//! How many classes were registered with abstract base classes (`abc.get_cache_token()`).

use crate::modules;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

unsafe extern "C" {
    fn PyModule_GetState(module: *mut ffi::PyObject) -> *mut std::ffi::c_void;
}

/// `abc_invalidation_counter` is the second word of the `_abc` module's state.
const COUNTER: usize = 1;

/// Where the count is: the module keeps it, and lives as long as the process.
struct Counter {
    word: *const u64,
    _module: Py<PyAny>,
}

// SAFETY: the word is read under the GIL only.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

/// The count: it grows with each registration. `None` if it can't be read.
#[inline]
#[must_use]
pub fn registrations(py: Python<'_>) -> Option<u64> {
    static COUNTER_AT: PyOnceLock<Option<Counter>> = PyOnceLock::new();
    let counter = COUNTER_AT.get_or_init(py, || find(py).ok().flatten()).as_ref()?;
    // SAFETY: a word of the state of a module that is kept alive.
    Some(unsafe { counter.word.read() })
}

/// Locates the count, and looks whether it's the one that Python code sees.
fn find(py: Python<'_>) -> PyResult<Option<Counter>> {
    let module = modules::import(py, "_abc")?;
    let said: u64 = module.call_method0("get_cache_token")?.extract()?;
    // SAFETY: a live module.
    let state = unsafe { PyModule_GetState(module.as_ptr()) }.cast::<u64>().cast_const();
    if state.is_null() {
        return Ok(None);
    }
    // SAFETY: the state is a pointer to a type, and then the count.
    let (word, now) = unsafe { (state.add(COUNTER), state.add(COUNTER).read()) };
    Ok((said == now).then(|| Counter { word, _module: module.into_any().unbind() }))
}

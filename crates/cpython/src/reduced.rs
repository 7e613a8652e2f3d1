//! What `__reduce__` says of a builtin iterator, and `__setstate__`, without the deprecation that CPython 3.12 warns of for
//! those of `itertools`: the program hasn't asked.

use pyo3::prelude::*;

use crate::object::{Borrowed, Object};

/// How an iterator can be made again: a callable, its arguments, and perhaps a state.
///
/// # Errors
/// What CPython raises.
pub fn of_iterator<'py>(iterator: Borrowed<'_, 'py>) -> PyResult<Object<'py>> {
    let _quiet = quiet::Quiet::new(iterator)?;
    iterator.call_method0(pyo3::intern!(iterator.py(), "__reduce__"))
}

/// Gives an iterator that was made again its state: `__setstate__`.
///
/// # Errors
/// What CPython raises.
pub fn set_state(iterator: Borrowed<'_, '_>, state: &Object<'_>) -> PyResult<()> {
    let _quiet = quiet::Quiet::new(iterator)?;
    iterator.call_method1(pyo3::intern!(iterator.py(), "__setstate__"), (state,)).map(drop)
}

#[cfg(not(Py_3_12))]
mod quiet {
    use super::{Borrowed, PyResult};

    /// Nothing is warned of before 3.12.
    pub(super) struct Quiet;

    impl Quiet {
        pub(super) fn new(_iterator: Borrowed<'_, '_>) -> PyResult<Self> {
            Ok(Quiet)
        }
    }
}

#[cfg(Py_3_12)]
mod quiet {
    use pyo3::exceptions::PyDeprecationWarning;
    use pyo3::ffi;
    use pyo3::prelude::*;
    use pyo3::types::{PyDict, PyList};

    use super::Borrowed;
    use crate::modules;

    /// While it lives, a filter in front of all others ignores deprecations. Nobody is told that the
    /// filters changed, so what was warned of once stays so; no Python code runs, so nobody else warns.
    pub(super) struct Quiet<'py>(Option<Changed<'py>>);

    struct Changed<'py> {
        filters: Bound<'py, PyList>,
        filter: Bound<'py, PyAny>,
        /// The globals into which CPython puts what it remembers of warnings, if there was nothing.
        unregistered: Option<Bound<'py, PyDict>>,
    }

    const REGISTRY: &str = "__warningregistry__";

    impl<'py> Quiet<'py> {
        pub(super) fn new(iterator: Borrowed<'_, 'py>) -> PyResult<Self> {
            let py = iterator.py();
            if iterator.get_type().module()? != "itertools" {
                return Ok(Quiet(None));
            }
            let filters = modules::import(py, "warnings")?.getattr("filters")?;
            let filters = filters.cast_into::<PyList>()?;
            let ignore = ("ignore", py.None(), py.get_type::<PyDeprecationWarning>(), py.None(), 0);
            let filter = ignore.into_pyobject(py)?.into_any();
            // SAFETY: the GIL is held; the globals of the frame that runs, borrowed, or null.
            let globals = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetGlobals()) };
            let globals = globals.and_then(|globals| globals.cast_into::<PyDict>().ok());
            let unregistered = match globals {
                Some(globals) if !globals.contains(REGISTRY)? => Some(globals),
                _ => None,
            };
            filters.insert(0, &filter)?;
            Ok(Quiet(Some(Changed { filters, filter, unregistered })))
        }
    }

    impl Drop for Quiet<'_> {
        fn drop(&mut self) {
            let Some(Changed { filters, filter, unregistered }) = &self.0 else { return };
            let at = filters.iter().position(|found| found.is(filter));
            // Nothing else runs: the filter is there, and so may be the registry.
            if let Some(at) = at {
                let _ = filters.del_item(at);
            }
            if let Some(globals) = unregistered
                && globals.contains(REGISTRY).unwrap_or(false)
            {
                let _ = globals.del_item(REGISTRY);
            }
        }
    }
}

//! Objects known by identity, held weakly: their deaths are noticed by a native callback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use super::address::AddressMap;
use super::{Any, constant, types};

/// A set of objects of which none has died.
///
/// Objects without weak reference support are held strongly, as are constants and types that
/// aren't heap types: none of these is what "an entry must not keep models alive" speaks of,
/// but a list or dictionary known by identity is, so callers shouldn't add those.
pub struct Liveness {
    alive: Arc<AtomicBool>,
    callback: Option<Py<PyAny>>,
    /// By address. An entry names the object added, as long as `alive` is true.
    held: AddressMap<Hold>,
}

enum Hold {
    Weak(Py<PyAny>),
    Strong(Py<PyAny>),
}

impl Liveness {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Liveness {
            alive: Arc::new(AtomicBool::new(true)),
            callback: None,
            held: AddressMap::default(),
        }
    }

    /// Whether every object added is still alive.
    #[inline(always)]
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Adds an object. Allocates, so a garbage collection may run.
    pub fn add(&mut self, object: Any<'_, '_>) -> PyResult<()> {
        let address = object.as_ptr() as usize;
        if self.held.contains_key(&address) {
            return Ok(());
        }
        let hold = self.hold(object)?;
        self.held.insert(address, hold);
        Ok(())
    }

    fn hold(&mut self, object: Any<'_, '_>) -> PyResult<Hold> {
        let py = object.py();
        let is_static = object.cast::<pyo3::types::PyType>().is_ok_and(|ty| !types::is_heap(ty));
        if is_static || constant::is_constant(object) {
            return Ok(Hold::Strong(object.to_owned().unbind()));
        }
        let callback = self.callback(py)?.as_ptr();
        // SAFETY: both are live; the result is a new reference or null with an error set.
        let weak = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyWeakref_NewRef(object.as_ptr(), callback))
        };
        match weak {
            Ok(weak) => Ok(Hold::Weak(weak.unbind())),
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                Ok(Hold::Strong(object.to_owned().unbind()))
            }
            Err(error) => Err(error),
        }
    }

    fn callback<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(callback) = &self.callback {
            return Ok(callback.bind(py).clone());
        }
        let alive = Arc::clone(&self.alive);
        let callback = PyCFunction::new_closure(py, None, None, move |_args, _kwargs| {
            alive.store(false, Ordering::Relaxed);
        })?;
        self.callback = Some(callback.clone().into_any().unbind());
        Ok(callback.into_any())
    }

    /// Whether this object was added (and no object has died since).
    #[inline]
    #[must_use]
    pub fn holds(&self, object: Any<'_, '_>) -> bool {
        self.holds_address(object.as_ptr() as usize)
    }

    pub(super) fn holds_address(&self, address: usize) -> bool {
        self.is_alive() && self.held.contains_key(&address)
    }

    /// The object added at this address; `None` if it wasn't, or has died.
    pub fn get<'py>(&self, py: Python<'py>, address: usize) -> Option<Bound<'py, PyAny>> {
        match self.held.get(&address)? {
            Hold::Strong(object) => Some(object.bind(py).clone()),
            Hold::Weak(weak) => {
                // SAFETY: a weak reference object; the result is borrowed from nobody, and counted
                // before anything else can run.
                let object = unsafe {
                    Bound::from_borrowed_ptr(py, ffi::PyWeakref_GetObject(weak.as_ptr()))
                };
                (!object.is_none()).then_some(object)
            }
        }
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no object was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl Default for Liveness {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Liveness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Liveness")
            .field("alive", &self.is_alive())
            .field("objects", &self.held.len())
            .finish()
    }
}

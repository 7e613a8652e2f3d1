//! Objects known by identity, held weakly: their deaths are noticed by a native callback.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyCFunction, PyString, PyStringMethods, PyTupleMethods, PyWeakrefMethods, PyWeakrefReference,
};

use super::address::AddressMap;
use super::function::{self, Field};
use super::{Any, constant, types, words};
use crate::ffi as shim;

/// A set of objects of which none has died.
///
/// Objects without weak reference support are held strongly, as are constants and types that
/// aren't heap types: none of these is what "an entry must not keep models alive" speaks of,
/// but a list or dictionary known by identity is, so callers shouldn't add those.
pub struct Liveness {
    alive: Arc<AtomicBool>,
    /// By address. An entry names the object added, as long as `alive` is true.
    held: AddressMap<Hold>,
}

/// The weak references of the process, one for each watched object: a second trace of a model makes
/// none, so it leaves nothing behind for the garbage collector to look at.
#[derive(Default)]
struct Watched {
    /// By the object's address; removed by the callback, before the address can be taken again.
    objects: AddressMap<Watch>,
    /// The object's address by its weak reference's.
    addresses: AddressMap<usize>,
}

struct Watch {
    weak: Py<PyAny>,
    /// Who is to be told of the object's death.
    flags: Vec<Weak<AtomicBool>>,
}

static WATCHED: LazyLock<Mutex<Watched>> = LazyLock::new(Mutex::default);

fn watched() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A weak reference to `object`, whose death sets `flag` to false.
fn watch(object: Any<'_, '_>, flag: &Arc<AtomicBool>) -> PyResult<Py<PyAny>> {
    let py = object.py();
    let address = object.as_ptr() as usize;
    if let Some(watch) = watched().objects.get_mut(&address) {
        return Ok(watch.tell(py, flag));
    }
    let callback = callback(py)?.as_ptr();
    // SAFETY: both are live; the result is a new reference or null with an error set. No lock is
    // held: the allocation may run a garbage collection, and that the callback.
    let weak = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyWeakref_NewRef(object.as_ptr(), callback))?
    };
    let mut watched = watched();
    if let Some(watch) = watched.objects.get_mut(&address) {
        // What ran meanwhile watches it too; the reference that nobody knows dies unheard.
        return Ok(watch.tell(py, flag));
    }
    watched.addresses.insert(weak.as_ptr() as usize, address);
    // The least that an allocation gives.
    let mut flags = Vec::with_capacity(3);
    flags.push(Arc::downgrade(flag));
    watched.objects.insert(address, Watch { weak: weak.clone().unbind(), flags });
    Ok(weak.unbind())
}

impl Watch {
    /// From now on `flag` is told of the object's death too. Returns the weak reference.
    fn tell(&mut self, py: Python<'_>, flag: &Arc<AtomicBool>) -> Py<PyAny> {
        if self.flags.len() == self.flags.capacity() {
            self.flags.retain(|flag| flag.strong_count() > 0);
        }
        self.flags.push(Arc::downgrade(flag));
        self.weak.clone_ref(py)
    }
}

/// Drops the weak references to objects whose death nobody waits for any more.
pub fn forget_unwatched(_py: Python<'_>) {
    let dropped: Vec<Watch> = {
        let mut watched = watched();
        let is_unwatched = |watch: &Watch| watch.flags.iter().all(|flag| flag.strong_count() == 0);
        let all = watched.objects.iter();
        let found = all.filter(|(_, watch)| is_unwatched(watch)).map(|(address, _)| *address);
        let found: Vec<usize> = found.collect();
        let dropped = found.iter().filter_map(|address| watched.objects.remove(address)).collect();
        for watch in &dropped as &Vec<Watch> {
            watched.addresses.remove(&(watch.weak.as_ptr() as usize));
        }
        dropped
    };
    // The lock is free.
    drop(dropped);
}

/// Whether anybody refers to an object weakly who may notice its death. The watch over objects known by identity doesn't,
/// nor does [TorchDynamo's list of modules][is_of_dynamo].
pub(super) fn is_referenced(object: Any<'_, '_>) -> bool {
    let py = object.py();
    let mut noticing = 0_usize;
    // SAFETY: where a type has an offset, its instances have a list of weak references there: since
    // CPython 3.12 in front of an instance of a Python class, so the offset may be negative. Nothing runs while the list is
    // gone through, so its references and what they call are alive.
    unsafe {
        let offset = (*words::type_of(object.as_ptr())).tp_weaklistoffset;
        if offset == 0 {
            return false;
        }
        let mut reference = *object.as_ptr().byte_offset(offset).cast::<*mut ffi::PyObject>();
        while !reference.is_null() {
            let mut callback = std::ptr::null_mut();
            reference = shim::stator_next_weakref(reference, &raw mut callback);
            let callback = (!callback.is_null()).then(|| pyo3::Borrowed::from_ptr(py, callback));
            noticing += usize::from(!callback.is_some_and(is_of_dynamo));
        }
    }
    noticing > 0
        && noticing > usize::from(watched().objects.contains_key(&(object.as_ptr() as usize)))
}

/// Whether a weak reference's callback is that of TorchDynamo's dictionaries of modules and such by `id`. Once TorchDynamo
/// has compiled anything, each module that is made gets into one. All the callback does is to take the dead one out: when
/// it does so shows nowhere else, as long as that is before another object has the `id`.
fn is_of_dynamo(callback: Any<'_, '_>) -> bool {
    let is = |field, test: fn(&str) -> bool| {
        let value = function::value(callback, field);
        let text = value.as_ref().and_then(|value| value.cast_exact::<PyString>().ok());
        text.and_then(|text| text.to_str().ok()).is_some_and(test)
    };
    is(Field::Module, |module| module == "torch._dynamo.utils")
        && is(Field::Qualname, |name| name.starts_with("ExactWeakKeyDictionary."))
}

/// The callback of all weak references: it is given the reference whose object is dying.
fn callback(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    static CALLBACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CALLBACK.get_or_try_init(py, || {
        let callback = PyCFunction::new_closure(py, None, None, |args, _kwargs| {
            let Ok(weak) = args.get_item(0) else { return };
            let dead = {
                let mut watched = watched();
                let address = watched.addresses.remove(&(weak.as_ptr() as usize));
                address.and_then(|address| watched.objects.remove(&address))
            };
            for flag in dead.iter().flat_map(|watch| &watch.flags) {
                if let Some(flag) = flag.upgrade() {
                    flag.store(false, Ordering::Relaxed);
                }
            }
        })?;
        Ok(callback.into_any().unbind())
    })
}

enum Hold {
    Weak(Py<PyAny>),
    Strong(Py<PyAny>),
}

impl Liveness {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Liveness { alive: Arc::new(AtomicBool::new(true)), held: AddressMap::default() }
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
        // SAFETY: a live object's type.
        if unsafe { (*words::type_of(object.as_ptr())).tp_weaklistoffset } == 0 {
            return Ok(Hold::Strong(object.to_owned().unbind()));
        }
        match watch(object, &self.alive) {
            Ok(weak) => Ok(Hold::Weak(weak)),
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                Ok(Hold::Strong(object.to_owned().unbind()))
            }
            Err(error) => Err(error),
        }
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
            Hold::Weak(weak) => weak.bind(py).cast::<PyWeakrefReference>().ok()?.upgrade(),
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

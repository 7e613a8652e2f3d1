//! Calls of an object that go straight on to a function, so many at a time.
//!
//! PyO3's way into a method takes some thousand instructions of code that is seldom in the processor's
//! caches. Where calls are only passed on, this takes a few dozen: whoever calls the object calls [`Shortcut`]'s function,
//! which counts down, sees that nothing has changed since, and calls on.

use std::ffi::c_ulong;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::ffi as shim;
use crate::heap::dict;
use crate::object::Borrowed;
use crate::thread::Thread;

/// What calls are passed on to, and how many.
///
/// Stands in the object that is called, at the place that its type's `tp_vectorcall_offset` says.
#[repr(C)]
pub struct Shortcut {
    call: ffi::vectorcallfunc,
    function: Py<PyAny>,
    left: AtomicU32,
    epoch: AtomicU64,
    taken: AtomicU64,
}

/// What may have changed for all objects at once.
#[repr(C, align(64))]
struct Switches {
    epoch: AtomicU64,
    /// A dictionary that lives for ever, and its version.
    watched: AtomicPtr<PyObject>,
    version: AtomicU64,
}

static SWITCHES: Switches = Switches {
    epoch: AtomicU64::new(1),
    watched: AtomicPtr::new(ptr::null_mut()),
    version: AtomicU64::new(0),
};

/// No shortcut is taken from now on, until it's opened again.
pub fn close_all() {
    SWITCHES.epoch.fetch_add(1, Relaxed);
}

impl Shortcut {
    /// One to this function, closed.
    #[must_use]
    pub fn new(function: Py<PyAny>) -> Self {
        let (left, epoch) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { call: call_on, function, left, epoch, taken: AtomicU64::new(0) }
    }

    /// Has calls of an object take the shortcut that stands in it, for all objects of its type.
    pub fn install(&self, object: Borrowed<'_, '_>) {
        let (begin, place) = (object.as_ptr() as usize, ptr::from_ref(self) as usize);
        // SAFETY: the object is alive, and so is its type.
        let ty = unsafe { &mut *ffi::Py_TYPE(object.as_ptr()) };
        let offset = place.wrapping_sub(begin).cast_signed();
        assert!(offset > 0 && offset < ty.tp_basicsize, "the shortcut stands in the object");
        if ty.tp_vectorcall_offset == 0 {
            ty.tp_vectorcall_offset = offset;
            ty.tp_flags |= FLAG;
            // SAFETY: the type is alive, and the GIL held.
            unsafe { ffi::PyType_Modified(ty) };
        }
        assert_eq!(ty.tp_vectorcall_offset, offset, "it stands at the same place in all of them");
    }

    /// For the garbage collector.
    ///
    /// # Errors
    /// As the visitor's.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }

    /// How many of the next calls are passed on.
    #[inline]
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }

    /// So many of the next calls are passed on; by the shortcut only once it's open.
    #[inline]
    pub fn set_left(&self, calls: u32) {
        self.left.store(calls, Relaxed);
    }

    /// Opens it: until [`close_all`], and as long as the dictionary stays as it is, which must never die.
    pub fn open(&self, watched: &Bound<'_, PyAny>) {
        SWITCHES.version.store(dict::version(watched.as_borrowed()), Relaxed);
        SWITCHES.watched.store(watched.as_ptr(), Relaxed);
        self.epoch.store(SWITCHES.epoch.load(Relaxed), Relaxed);
    }

    /// How many calls have taken it.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Closes it, and counts anew.
    pub fn reset(&self) {
        self.left.store(0, Relaxed);
        self.taken.store(0, Relaxed);
    }

    /// Whether this call takes it; counts it.
    #[inline(always)]
    fn takes(&self, py: Python<'_>) -> bool {
        let left = self.left.load(Relaxed);
        if left == 0 || self.epoch.load(Relaxed) != SWITCHES.epoch.load(Relaxed) {
            return false;
        }
        // SAFETY: it was opened, so this is a dictionary that lives for ever.
        let watched = unsafe { Borrowed::from_ptr(py, SWITCHES.watched.load(Relaxed)) };
        let version = dict::version(watched);
        if version != SWITCHES.version.load(Relaxed) || Thread::current(py).is_traced() {
            return false;
        }
        self.left.store(left - 1, Relaxed);
        self.taken.store(self.taken.load(Relaxed) + 1, Relaxed);
        true
    }
}

const FLAG: c_ulong = ffi::Py_TPFLAGS_HAVE_VECTORCALL;

/// The object is called.
unsafe extern "C" fn call_on(
    object: *mut PyObject,
    args: *const *mut PyObject,
    count: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: CPython calls it with the GIL held, as the vectorcall of a live object, which its caller holds:
    // so there is a shortcut at the type's offset, and its function lives as long. The arguments are passed
    // on as they came.
    unsafe {
        let offset = (*ffi::Py_TYPE(object)).tp_vectorcall_offset;
        let shortcut = &*object.cast::<u8>().offset(offset).cast::<Shortcut>();
        let py = Python::assume_attached();
        if shortcut.takes(py) {
            return ffi::PyObject_Vectorcall(shortcut.function.as_ptr(), args, count, names);
        }
        let positional = ffi::PyVectorcall_NARGS(count);
        shim::_PyObject_MakeTpCall(ffi::PyThreadState_Get(), object, args, positional, names)
    }
}

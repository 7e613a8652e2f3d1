//! Iterators of builtin types: what they go over, and how far they have come. Nothing is advanced, and no code runs.
//!
//! The structs aren't public. `tests/guards` compares what is read here with what `__reduce__` says.

use std::ffi::{c_int, c_long};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::{Any, types};
use crate::modules;

/// How far an iterator has come, in numbers that depend on its type. Two iterators of one type over the same objects
/// give the same from here on if these are equal.
pub type Position = [i64; 3];

/// Those of lists and tuples, and `reversed` of them.
#[repr(C)]
struct OverSequence {
    head: ffi::PyObject,
    index: ffi::Py_ssize_t,
    /// Null behind the last item.
    sequence: *mut ffi::PyObject,
}

#[repr(C)]
struct OverRange {
    head: ffi::PyObject,
    #[cfg(not(Py_3_12))]
    index: c_long,
    start: c_long,
    step: c_long,
    length: c_long,
}

#[repr(C)]
struct OverDict {
    head: ffi::PyObject,
    /// Null behind the last entry.
    dict: *mut ffi::PyObject,
    /// How many entries the dictionary had; -1 once it was found to have others.
    used: ffi::Py_ssize_t,
    position: ffi::Py_ssize_t,
    result: *mut ffi::PyObject,
    left: ffi::Py_ssize_t,
}

#[repr(C)]
struct Repeated {
    head: ffi::PyObject,
    element: *mut ffi::PyObject,
    /// How often it still comes; -1: for ever.
    count: ffi::Py_ssize_t,
}

#[repr(C)]
struct Enumerated {
    head: ffi::PyObject,
    count: ffi::Py_ssize_t,
    iterator: *mut ffi::PyObject,
}

/// `itertools.islice`. What follows are numbers.
#[repr(C)]
struct Sliced {
    head: ffi::PyObject,
    /// Null behind the last item.
    iterator: *mut ffi::PyObject,
}

#[repr(C)]
struct Zipped {
    head: ffi::PyObject,
    size: ffi::Py_ssize_t,
    /// A tuple.
    iterators: *mut ffi::PyObject,
    result: *mut ffi::PyObject,
    strict: c_int,
}

/// The layouts.
#[derive(Clone, Copy)]
enum Layout {
    Sequence,
    Range,
    Dict,
    Enumerate,
    Zip,
    Repeat,
}

impl Layout {
    /// By the exact type.
    fn of(iterator: Any<'_, '_>) -> Option<Self> {
        let ty = types::address_of(iterator);
        let is = |known: *mut ffi::PyTypeObject| ty == known as usize;
        let is_any = |known: &[*mut ffi::PyTypeObject]| known.iter().any(|known| is(*known));
        let sequences = [
            &raw mut ffi::PyListIter_Type,
            &raw mut ffi::PyTupleIter_Type,
            &raw mut ffi::PyListRevIter_Type,
            &raw mut ffi::PyReversed_Type,
        ];
        let dicts = [
            &raw mut ffi::PyDictIterKey_Type,
            &raw mut ffi::PyDictIterValue_Type,
            &raw mut ffi::PyDictIterItem_Type,
        ];
        Some(if is_any(&sequences) {
            Self::Sequence
        } else if is(&raw mut ffi::PyRangeIter_Type) {
            Self::Range
        } else if is_any(&dicts) {
            Self::Dict
        } else if is(&raw mut ffi::PyEnum_Type) {
            Self::Enumerate
        } else if is(&raw mut ffi::PyZip_Type) {
            Self::Zip
        } else if Itertools::get(iterator.py()).is_repeat(ty) {
            Self::Repeat
        } else {
            return None;
        })
    }
}

/// Types of `itertools`, which no header names.
struct Itertools {
    repeat: Option<Py<PyAny>>,
    islice: Option<Py<PyAny>>,
}

impl Itertools {
    fn get(py: Python<'_>) -> &'static Self {
        static TYPES: PyOnceLock<Itertools> = PyOnceLock::new();
        let find = |name| Some(modules::import(py, "itertools").ok()?.getattr(name).ok()?.unbind());
        TYPES.get_or_init(py, || Self { repeat: find("repeat"), islice: find("islice") })
    }

    fn is_repeat(&self, ty: usize) -> bool {
        self.repeat.as_ref().is_some_and(|repeat| repeat.as_ptr() as usize == ty)
    }

    fn is_islice(&self, ty: usize) -> bool {
        self.islice.as_ref().is_some_and(|islice| islice.as_ptr() as usize == ty)
    }
}

/// Learns what is learned once for a process, by an import.
pub fn warm_up(py: Python<'_>) {
    Itertools::get(py);
}

/// How far an iterator has come; `None`: it's of another type, has ended, or can't go on.
#[must_use]
pub fn position(iterator: Any<'_, '_>) -> Option<Position> {
    let at = iterator.as_ptr();
    let layout = Layout::of(iterator)?;
    // SAFETY: a live object of the exact type that the layout is for; what it points to lives as long as it does.
    unsafe {
        match layout {
            Layout::Sequence => {
                let over = &*at.cast::<OverSequence>();
                (!over.sequence.is_null()).then_some([over.index as i64, 0, 0])
            }
            Layout::Range => {
                let over = &*at.cast::<OverRange>();
                #[cfg(not(Py_3_12))]
                let passed = over.index;
                #[cfg(Py_3_12)]
                let passed: c_long = 0;
                let next = over.start.wrapping_add(passed.wrapping_mul(over.step));
                Some([next, over.step, over.length - passed])
            }
            Layout::Dict => {
                let over = &*at.cast::<OverDict>();
                let left = entries_left(over)?;
                Some([left as i64, 0, 0])
            }
            Layout::Enumerate => {
                let over = &*at.cast::<Enumerated>();
                // Beyond that it counts with an object.
                let is_small = over.count != ffi::Py_ssize_t::MAX && !over.iterator.is_null();
                is_small.then_some([over.count as i64, 0, 0])
            }
            Layout::Zip => {
                let over = &*at.cast::<Zipped>();
                let is_known = over.size > 0 && !over.iterators.is_null() && over.strict == 0;
                is_known.then_some([over.size as i64, 0, 0])
            }
            Layout::Repeat => Some([(*at.cast::<Repeated>()).count as i64, 0, 0]),
        }
    }
}

/// How many entries are left to an iterator over a dictionary; `None`: it will raise, or has ended.
///
/// # Safety
/// `over` is a live iterator.
unsafe fn entries_left(over: &OverDict) -> Option<usize> {
    if over.dict.is_null() {
        return None;
    }
    let mut position = over.position;
    let mut left = 0;
    // SAFETY: a dictionary that the iterator keeps alive; nothing is asked of what it holds.
    unsafe {
        if ffi::PyDict_Size(over.dict) != over.used {
            return None;
        }
        while ffi::PyDict_Next(
            over.dict,
            &raw mut position,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        ) != 0
        {
            left += 1;
        }
    }
    (left as ffi::Py_ssize_t == over.left).then_some(left)
}

/// What an iterator goes over: a list, tuple or dictionary, one of the iterators of `enumerate` and `zip`, or what `repeat`
/// gives again and again. `None`: there is nothing with this number. A range gives only numbers.
#[must_use]
pub fn over<'py>(iterator: Any<'_, 'py>, number: usize) -> Option<Bound<'py, PyAny>> {
    let py = iterator.py();
    let at = iterator.as_ptr();
    let layout = Layout::of(iterator)?;
    // SAFETY: as above; pointers are null or to live objects, and `zip` keeps a tuple of `size` iterators.
    unsafe {
        let found = match layout {
            Layout::Sequence if number == 0 => (*at.cast::<OverSequence>()).sequence,
            Layout::Dict if number == 0 => (*at.cast::<OverDict>()).dict,
            Layout::Enumerate if number == 0 => (*at.cast::<Enumerated>()).iterator,
            Layout::Repeat if number == 0 => (*at.cast::<Repeated>()).element,
            Layout::Zip => {
                let over = &*at.cast::<Zipped>();
                let size = usize::try_from(over.size).ok()?;
                if over.iterators.is_null() || number >= size {
                    return None;
                }
                ffi::PyTuple_GetItem(over.iterators, number as ffi::Py_ssize_t)
            }
            _ => return None,
        };
        Bound::from_borrowed_ptr_or_opt(py, found)
    }
}

/// Whether an iterator is one of `itertools.repeat`: it goes over nothing, but gives the same object.
#[must_use]
pub fn repeats(iterator: Any<'_, '_>) -> bool {
    matches!(Layout::of(iterator), Some(Layout::Repeat))
}

/// Whether an object is `enumerate` itself.
#[must_use]
pub fn is_enumerate(object: Any<'_, '_>) -> bool {
    std::ptr::eq(object.as_ptr().cast(), &raw mut ffi::PyEnum_Type)
}

/// Whether C code that advances an iterator only hands on what it gives: a generator, an object of a Python class, an
/// iterator over a builtin container, and `enumerate`, `zip` and `itertools.islice` over such.
#[must_use]
pub fn hands_on(iterator: Any<'_, '_>) -> bool {
    let py = iterator.py();
    if types::address_of(iterator) == &raw mut ffi::PyGen_Type as usize {
        return true;
    }
    if Itertools::get(py).is_islice(types::address_of(iterator)) {
        let at = iterator.as_ptr();
        // SAFETY: a live object of the exact type that the layout is for; the pointer is null or to a live object.
        let over = unsafe { Bound::from_borrowed_ptr_or_opt(py, (*at.cast::<Sliced>()).iterator) };
        return over.is_some_and(|over| hands_on(over.as_borrowed()));
    }
    let Some(layout) = Layout::of(iterator) else {
        let ty = iterator.get_type();
        return types::is_heap(ty.as_borrowed()) && !types::has_native_state(ty.as_borrowed());
    };
    match layout {
        Layout::Enumerate | Layout::Zip => {
            let mut parts = (0..).map_while(|number| over(iterator, number));
            parts.all(|part| hands_on(part.as_borrowed()))
        }
        _ => true,
    }
}

/// Whether an iterator is of a type whose state is read here.
#[must_use]
pub fn is_known(iterator: Any<'_, '_>) -> bool {
    Layout::of(iterator).is_some()
}

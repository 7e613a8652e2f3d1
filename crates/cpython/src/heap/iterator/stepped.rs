//! `itertools.accumulate`, `pairwise` and `zip_longest`: what they go over, and what they keep from one item to the next.
//!
//! A step is made of these functions as their own C code makes it, so that either can go on where the other has stopped.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::heap::{Any, types};
use crate::modules;

/// Which one an iterator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// It keeps a total.
    Accumulate,
    /// It keeps the item before.
    Pairwise,
    /// It keeps which of them have ended.
    ZipLongest,
}

#[repr(C)]
struct Accumulated {
    head: ffi::PyObject,
    /// Null before the first item.
    total: *mut ffi::PyObject,
    iterator: *mut ffi::PyObject,
    /// Null: items are added.
    function: *mut ffi::PyObject,
    /// `None` once it is the total, or if there was none.
    initial: *mut ffi::PyObject,
}

#[repr(C)]
struct Paired {
    head: ffi::PyObject,
    /// Null behind the last item.
    iterator: *mut ffi::PyObject,
    /// Null before the first item.
    before: *mut ffi::PyObject,
}

#[repr(C)]
struct Longest {
    head: ffi::PyObject,
    size: ffi::Py_ssize_t,
    /// How many haven't ended.
    active: ffi::Py_ssize_t,
    /// A tuple, with null in the place of one that has ended.
    iterators: *mut ffi::PyObject,
    result: *mut ffi::PyObject,
    fill: *mut ffi::PyObject,
}

/// What an `accumulate` keeps.
pub struct Accumulation<'py> {
    /// What it gave last.
    pub total: Option<Bound<'py, PyAny>>,
    /// What makes a total of that and an item; `None`: their sum.
    pub function: Option<Bound<'py, PyAny>>,
    /// What it gives first, if that is still to come.
    pub initial: Option<Bound<'py, PyAny>>,
}

/// By the exact type.
#[must_use]
pub fn stepped(iterator: Any<'_, '_>) -> Option<Stepped> {
    static TYPES: PyOnceLock<Vec<(Py<PyAny>, Stepped)>> = PyOnceLock::new();
    if !super::is_one(iterator) {
        return None;
    }
    let py = iterator.py();
    let found = TYPES.get_or_init(py, || {
        let all = [
            ("accumulate", Stepped::Accumulate),
            ("pairwise", Stepped::Pairwise),
            ("zip_longest", Stepped::ZipLongest),
        ];
        let of_itertools = |name| modules::import(py, "itertools").ok()?.getattr(name).ok();
        let all = all.into_iter();
        all.filter_map(|(name, which)| Some((of_itertools(name)?.unbind(), which))).collect()
    });
    let ty = types::address_of(iterator);
    found.iter().find(|(known, _)| known.as_ptr() as usize == ty).map(|(_, which)| *which)
}

/// The iterators that it still goes over, in their order.
#[must_use]
pub fn parts<'py>(iterator: Any<'_, 'py>) -> Vec<Bound<'py, PyAny>> {
    match stepped(iterator) {
        Some(Stepped::Accumulate) => accumulated(iterator)
            .and_then(|over| owned(iterator.py(), over.iterator))
            .into_iter()
            .collect(),
        Some(Stepped::Pairwise) => paired(iterator)
            .and_then(|over| owned(iterator.py(), over.iterator))
            .into_iter()
            .collect(),
        Some(Stepped::ZipLongest) => {
            (0..).map_while(|place| slot(iterator, place)).flatten().collect()
        }
        None => Vec::new(),
    }
}

/// What an `accumulate` keeps; `None`: it is something else.
#[must_use]
pub fn accumulation<'py>(iterator: Any<'_, 'py>) -> Option<Accumulation<'py>> {
    let (py, over) = (iterator.py(), accumulated(iterator)?);
    Some(Accumulation {
        total: owned(py, over.total),
        function: owned(py, over.function),
        initial: owned(py, over.initial).filter(|initial| !initial.is_none()),
    })
}

/// Gives an `accumulate` its total, behind which nothing is to come first.
pub fn set_total(iterator: Any<'_, '_>, total: Bound<'_, PyAny>) {
    if accumulated(iterator).is_none() {
        return;
    }
    let (py, over) = (iterator.py(), iterator.as_ptr().cast::<Accumulated>());
    // SAFETY: a live object of that exact type, and the GIL is held. References are taken over, and what they were is
    // dropped when the iterator is whole again.
    let before = unsafe {
        let total = std::mem::replace(&mut (*over).total, total.into_ptr());
        let initial = std::mem::replace(&mut (*over).initial, py.None().into_ptr());
        [total, initial].map(|it| Bound::from_owned_ptr_or_opt(py, it))
    };
    drop(before);
}

/// What a `pairwise` gave last, as the second of a pair.
#[must_use]
pub fn before<'py>(iterator: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    owned(iterator.py(), paired(iterator)?.before)
}

/// A `pairwise` has taken an item, or has ended.
pub fn set_before(iterator: Any<'_, '_>, item: Option<Bound<'_, PyAny>>) {
    if paired(iterator).is_none() {
        return;
    }
    let (py, over) = (iterator.py(), iterator.as_ptr().cast::<Paired>());
    let null = std::ptr::null_mut();
    // SAFETY: as above.
    let before = unsafe {
        let ended = match item {
            Some(_) => null,
            None => std::mem::replace(&mut (*over).iterator, null),
        };
        let before = std::mem::replace(&mut (*over).before, item.map_or(null, Bound::into_ptr));
        [ended, before].map(|it| Bound::from_owned_ptr_or_opt(py, it))
    };
    drop(before);
}

/// The iterator of a `zip_longest` at a place; `None` inside: it has ended. `None`: there is no such place.
#[must_use]
pub fn slot<'py>(iterator: Any<'_, 'py>, place: usize) -> Option<Option<Bound<'py, PyAny>>> {
    let over = longest(iterator)?;
    let place = ffi::Py_ssize_t::try_from(place).ok().filter(|place| *place < over.size)?;
    // SAFETY: a tuple of that many items, of which some may be null.
    let found = unsafe { ffi::PyTuple_GetItem(over.iterators, place) };
    Some(owned(iterator.py(), found))
}

/// Whether an iterator of a `zip_longest` hasn't ended.
#[must_use]
pub fn is_active(iterator: Any<'_, '_>) -> bool {
    longest(iterator).is_some_and(|over| over.active > 0)
}

/// What a `zip_longest` gives in the place of what has ended.
#[must_use]
pub fn fill<'py>(iterator: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    let py = iterator.py();
    longest(iterator).map(|over| owned(py, over.fill).unwrap_or_else(|| py.None().into_bound(py)))
}

/// The iterator of a `zip_longest` at a place has ended; whether another one goes on. The last one is kept, as C code
/// keeps it.
pub fn end_slot(iterator: Any<'_, '_>, place: usize) -> bool {
    let (py, Some(Some(_))) = (iterator.py(), slot(iterator, place)) else { return false };
    let over = iterator.as_ptr().cast::<Longest>();
    // SAFETY: as above; the place is one of the tuple's, which the iterator alone holds. Its reference is taken over.
    let ended = unsafe {
        (*over).active -= 1;
        if (*over).active == 0 {
            return false;
        }
        let (iterators, place) = ((*over).iterators, place.cast_signed());
        let ended = ffi::PyTuple_GET_ITEM(iterators, place);
        ffi::PyTuple_SET_ITEM(iterators, place, std::ptr::null_mut());
        Bound::from_owned_ptr_or_opt(py, ended)
    };
    drop(ended);
    true
}

/// A `zip_longest` has ended, though its iterators haven't: one has raised.
pub fn end_all(iterator: Any<'_, '_>) {
    if longest(iterator).is_some() {
        // SAFETY: a live object of that exact type, and the GIL is held.
        unsafe { (*iterator.as_ptr().cast::<Longest>()).active = 0 };
    }
}

fn accumulated<'a>(iterator: Any<'a, '_>) -> Option<&'a Accumulated> {
    let is_one = stepped(iterator) == Some(Stepped::Accumulate);
    // SAFETY: a live object of the exact type that has this layout.
    is_one.then(|| unsafe { &*iterator.as_ptr().cast() })
}

fn paired<'a>(iterator: Any<'a, '_>) -> Option<&'a Paired> {
    let is_one = stepped(iterator) == Some(Stepped::Pairwise);
    // SAFETY: as above.
    is_one.then(|| unsafe { &*iterator.as_ptr().cast() })
}

fn longest<'a>(iterator: Any<'a, '_>) -> Option<&'a Longest> {
    let is_one = stepped(iterator) == Some(Stepped::ZipLongest);
    // SAFETY: as above.
    is_one.then(|| unsafe { &*iterator.as_ptr().cast() })
}

fn owned<'py>(py: Python<'py>, object: *mut ffi::PyObject) -> Option<Bound<'py, PyAny>> {
    // SAFETY: null or a pointer to a live object, read from one that keeps it alive.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, object) }
}

//! Lists, tuples, sets and deques, read by their storage: subclasses' overrides aren't asked.

use crate::modules;
use pyo3::Borrowed;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PySlice, PyType};

use super::{Any, constant, layout, set_table, types, words};

/// Length of a list's storage; `None` if it isn't a list.
#[inline]
pub fn list_length(list: Any<'_, '_>) -> Option<usize> {
    // SAFETY: a live object; the flag says it has a list's layout.
    unsafe {
        words::has_flag(list.as_ptr(), ffi::Py_TPFLAGS_LIST_SUBCLASS)
            .then(|| words::word(list.as_ptr(), layout::SIZE) as usize)
    }
}

/// An element of a list.
#[inline]
pub fn list_item<'py>(list: Any<'_, 'py>, index: usize) -> Option<Bound<'py, PyAny>> {
    if index >= list_length(list)? {
        return None;
    }
    // SAFETY: a list with more than `index` elements, each non-null.
    unsafe {
        let items = words::pointer(list.as_ptr(), layout::LIST_ITEMS);
        let item = words::pointer(items, index * size_of::<usize>());
        Bound::from_borrowed_ptr_or_opt(list.py(), item)
    }
}

/// An element of a list or deque, counted from its end: the last one is 1.
pub fn last_item<'py>(object: Any<'_, 'py>, index: usize) -> Option<Bound<'py, PyAny>> {
    match list_length(object) {
        // Beyond the end where the place is 0.
        Some(length) => list_item(object, length.checked_sub(index)?),
        None => deque_item(object, deque_length(object)?.checked_sub(index)?),
    }
}

/// Length of a tuple; `None` if it isn't a tuple.
#[inline]
pub fn tuple_length(tuple: Any<'_, '_>) -> Option<usize> {
    // SAFETY: a live object; the flag says it has a tuple's layout.
    unsafe {
        words::has_flag(tuple.as_ptr(), ffi::Py_TPFLAGS_TUPLE_SUBCLASS)
            .then(|| words::word(tuple.as_ptr(), layout::SIZE) as usize)
    }
}

/// An element of a tuple.
#[inline]
pub fn tuple_item<'py>(tuple: Any<'_, 'py>, index: usize) -> Option<Bound<'py, PyAny>> {
    if index >= tuple_length(tuple)? {
        return None;
    }
    // SAFETY: a tuple with more than `index` elements; one still being filled has nulls.
    unsafe {
        let item = words::pointer(tuple.as_ptr(), layout::TUPLE_ITEMS + index * size_of::<usize>());
        Bound::from_borrowed_ptr_or_opt(tuple.py(), item)
    }
}

/// Puts an object that equals an element of a tuple, and has its type, in its place.
pub fn exchange_tuple_item(tuple: Any<'_, '_>, index: usize, item: Bound<'_, PyAny>) {
    let Some(_old) = tuple_item(tuple, index) else { return };
    // SAFETY: a tuple with more than `index` elements. It owns a reference to the old one, which is dropped; the macro
    // takes over the reference to the new one. An equal object of a builtin type changes neither hash nor order.
    unsafe {
        let old = ffi::PyTuple_GET_ITEM(tuple.as_ptr(), index as ffi::Py_ssize_t);
        ffi::PyTuple_SET_ITEM(tuple.as_ptr(), index as ffi::Py_ssize_t, item.into_ptr());
        ffi::Py_DECREF(old);
    }
}

/// `start`, `stop` and `step` of a slice.
#[inline]
pub fn slice_parts<'py>(slice: Borrowed<'_, 'py, PySlice>) -> [Bound<'py, PyAny>; 3] {
    // SAFETY: a slice; its three object pointers are never null.
    layout::SLICE.map(|offset| unsafe {
        Bound::from_borrowed_ptr(slice.py(), words::pointer(slice.as_ptr(), offset))
    })
}

/// Whether the object is a set or frozenset, or an instance of a subclass.
#[inline]
pub fn is_set(object: Any<'_, '_>) -> bool {
    // SAFETY: macros over the type's chain of bases; no Python code runs.
    unsafe { ffi::PyAnySet_Check(object.as_ptr()) != 0 }
}

/// The elements of a list; none of any other object.
#[must_use]
pub fn list_items<'py>(list: Any<'_, 'py>) -> Vec<Bound<'py, PyAny>> {
    let length = list_length(list).unwrap_or(0);
    let mut items = Vec::with_capacity(length);
    items.extend((0..length).filter_map(|index| list_item(list, index)));
    items
}

/// Whether the elements of a list are the objects at these addresses.
#[must_use]
pub fn list_holds(list: Any<'_, '_>, addresses: &[usize]) -> bool {
    if list_length(list) != Some(addresses.len()) {
        return false;
    }
    if addresses.is_empty() {
        return true;
    }
    // SAFETY: a list's storage holds as many pointers as the list is long, and no code runs meanwhile.
    unsafe {
        let items = words::pointer(list.as_ptr(), layout::LIST_ITEMS);
        std::slice::from_raw_parts(items.cast::<usize>(), addresses.len()) == addresses
    }
}

/// The elements of a set in iteration order; `None` if it isn't a set.
pub fn set_items<'py>(set: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    if !is_set(set) {
        return None;
    }
    // SAFETY: a set, whose keys are objects; no code runs meanwhile.
    unsafe {
        let mut items = Vec::with_capacity(words::word(set.as_ptr(), layout::SET_USED) as usize);
        let entries = set_table::entries(set).filter(|entry| !entry.is_removed());
        items.extend(entries.map(|entry| Bound::from_borrowed_ptr(set.py(), entry.key)));
        Some(items)
    }
}

/// Whether a set holds an element, by the element's value if it is a constant, else by identity; `None` if
/// it isn't a set, or if only code of somebody's own can tell.
pub fn set_holds(set: Any<'_, '_>, element: Any<'_, '_>) -> Option<bool> {
    let constant = constant::is_constant(element);
    if !is_set(set) || !(constant || types::compares_by_identity(element)) {
        return None;
    }
    // SAFETY: a live object that the type itself hashes: a constant by value, others by address.
    let hash = unsafe { ffi::PyObject_Hash(element.as_ptr()) };
    if hash == -1 {
        // SAFETY: the error of an element that can't be hashed, such as a slice.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    // SAFETY: a set, and nothing changes its table: comparing constants runs no code either.
    let met = unsafe { Probes::new(set, hash) };
    for key in met {
        if key.is(&*element) {
            return Some(true);
        }
        if constant && constant::is_constant(key) {
            if constant::compared_equal(key, element) {
                return Some(true);
            }
        } else if !types::compares_by_identity(key) {
            return None;
        }
    }
    Some(false)
}

/// The elements of a set whose hash is a given one, in the order in which CPython's lookup
/// (`set_lookkey` of `Objects/setobject.c`) meets them.
struct Probes<'a, 'py> {
    set: Any<'a, 'py>,
    hash: ffi::Py_hash_t,
    mask: usize,
    perturb: usize,
    /// Where a run of neighbours began.
    start: usize,
    /// How many of the run have been looked at.
    run: usize,
}

impl<'a, 'py> Probes<'a, 'py> {
    /// How many neighbours of an entry are looked at before the next jump.
    const LINEAR: usize = 9;
    /// How far the rest of the hash is shifted at each jump.
    const SHIFT: u32 = 5;

    /// # Safety
    /// It is a set or frozenset, and stays unchanged as long as this is asked.
    unsafe fn new(set: Any<'a, 'py>, hash: ffi::Py_hash_t) -> Self {
        // SAFETY: a set, the caller says.
        let mask = unsafe { words::word(set.as_ptr(), layout::SET_MASK) as usize };
        let perturb = hash.cast_unsigned();
        Self { set, hash, mask, perturb, start: perturb & mask, run: 0 }
    }

    /// Goes on to the next entry that CPython looks at.
    fn step(&mut self) {
        let has_neighbours = self.start + Self::LINEAR <= self.mask;
        if has_neighbours && self.run < Self::LINEAR {
            self.run += 1;
            return;
        }
        self.perturb >>= Self::SHIFT;
        let next = self.start.wrapping_mul(5).wrapping_add(1).wrapping_add(self.perturb);
        (self.start, self.run) = (next & self.mask, 0);
    }
}

impl<'a, 'py> Iterator for Probes<'a, 'py> {
    type Item = Any<'a, 'py>;

    fn next(&mut self) -> Option<Any<'a, 'py>> {
        loop {
            let at = (self.start + self.run) * 16;
            // SAFETY: a set's table has `mask + 1` pairs (key, hash), and this is one of them: a run stays within
            // the table. Of an unused pair the key is null; one at least is unused, and each jump
            // comes to it in the end. Where an element was removed the hash is -1, which none has.
            let (key, hash) = unsafe {
                let table = words::pointer(self.set.as_ptr(), layout::SET_TABLE);
                (words::pointer(table, at), words::word(table, at + 8) as ffi::Py_hash_t)
            };
            if key.is_null() {
                return None;
            }
            self.step();
            if hash == self.hash {
                // SAFETY: an element of the set, which owns it and isn't changed.
                return Some(unsafe { Any::from_ptr(self.set.py(), key) });
            }
        }
    }
}

/// `collections.deque`. The first call imports it.
fn deque_type(py: Python<'_>) -> Option<&Bound<'_, PyType>> {
    static DEQUE: PyOnceLock<Option<Py<PyType>>> = PyOnceLock::new();
    let find = || -> PyResult<Py<PyType>> {
        Ok(modules::import(py, "_collections")?.getattr("deque")?.cast_into::<PyType>()?.unbind())
    };
    DEQUE.get_or_init(py, || find().ok()).as_ref().map(|ty| ty.bind(py))
}

/// Finds `collections.deque`, which runs Python code.
pub(super) fn prepare(py: Python<'_>) {
    deque_type(py);
}

/// Whether an object is a `collections.deque`, not an instance of a subclass.
#[inline]
pub fn is_deque(object: Any<'_, '_>) -> bool {
    deque_type(object.py()).is_some_and(|ty| object.get_type().is(ty))
}

/// Length of a deque; `None` for anything else.
pub fn deque_length(object: Any<'_, '_>) -> Option<usize> {
    // SAFETY: a deque's length is computed by C code of CPython.
    is_deque(object).then(|| unsafe { ffi::PySequence_Size(object.as_ptr()) as usize })
}

/// An element of a deque.
pub fn deque_item<'py>(object: Any<'_, 'py>, index: usize) -> Option<Bound<'py, PyAny>> {
    if index >= deque_length(object)? {
        return None;
    }
    // SAFETY: the index is within a deque; indexing it runs no Python code.
    unsafe {
        let item = ffi::PySequence_GetItem(object.as_ptr(), index as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_opt(object.py(), item)
    }
}

/// The elements of a deque; `None` for anything else.
pub fn deque_items<'py>(object: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    Some((0..deque_length(object)?).filter_map(|index| deque_item(object, index)).collect())
}

/// `maxlen` of a deque; `None` for anything else.
pub fn deque_max_length<'py>(object: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    // A computed attribute of a C type: no Python code runs.
    is_deque(object).then(|| object.getattr("maxlen").ok()).flatten()
}

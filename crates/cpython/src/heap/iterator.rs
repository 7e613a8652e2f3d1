//! Iterators of builtin types: what they go over, and how far they have come. Nothing is advanced, and no code runs.
//!
//! The structs aren't public. `tests/guards` compares what is read here with what `__reduce__` says.

use std::ffi::{c_int, c_long};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

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
            Layout::Range => Some(range(at)),
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

/// How an iterator goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// It gives an item.
    Item,
    /// It ends.
    End,
    /// It would raise, run code, or is of another type.
    Unknown,
}

/// What an iterator would do when it's advanced, `passed` items further on: nobody changes what it goes over until then.
#[must_use]
pub fn ahead(iterator: Any<'_, '_>, passed: usize) -> Ahead {
    let at = iterator.as_ptr();
    let Some(layout) = Layout::of(iterator) else { return Ahead::Unknown };
    let gives = |gives| if gives { Ahead::Item } else { Ahead::End };
    // SAFETY: a live object of the exact type that the layout is for; what it points to lives as long as it does.
    unsafe {
        match layout {
            Layout::Sequence => match sequence(iterator) {
                Some(_) => gives(place(iterator, passed).is_some()),
                None if (*at.cast::<OverSequence>()).sequence.is_null() => Ahead::End,
                None => Ahead::Unknown,
            },
            Layout::Range => {
                let [_, _, left] = range(at);
                gives(usize::try_from(left).is_ok_and(|left| passed < left))
            }
            Layout::Dict => {
                let over = &*at.cast::<OverDict>();
                if over.dict.is_null() {
                    return Ahead::End;
                }
                if ffi::PyDict_Size(over.dict) != over.used {
                    return Ahead::Unknown;
                }
                match entry(over, passed) {
                    None => Ahead::End,
                    // One that wasn't there when the iterator was made: CPython raises.
                    Some(_) if usize::try_from(over.left).is_ok_and(|left| passed >= left) => {
                        Ahead::Unknown
                    }
                    Some(_) => Ahead::Item,
                }
            }
            Layout::Enumerate => {
                let over = &*at.cast::<Enumerated>();
                match inner(iterator, 0) {
                    Some(inner) if has_room(over, passed) => ahead(inner.as_borrowed(), passed),
                    _ => Ahead::Unknown,
                }
            }
            Layout::Zip => zip_ahead(iterator, (*at.cast::<Zipped>()).strict != 0, passed),
            Layout::Repeat => {
                let count = (*at.cast::<Repeated>()).count;
                gives(count < 0 || usize::try_from(count).is_ok_and(|count| passed < count))
            }
        }
    }
}

/// As [`ahead`], of a `zip`. It asks its iterators in order; a strict one raises unless all of them end at once.
fn zip_ahead(iterator: Any<'_, '_>, is_strict: bool, passed: usize) -> Ahead {
    let mut found = (0..).map_while(|number| inner(iterator, number));
    let first = found.by_ref().enumerate().find_map(|(number, inner)| {
        let ahead = ahead(inner.as_borrowed(), passed);
        (ahead != Ahead::Item).then_some((number, ahead))
    });
    match first {
        Some((0, Ahead::End)) if is_strict => {
            let ends = |inner: Bound<'_, PyAny>| ahead(inner.as_borrowed(), passed) == Ahead::End;
            if found.all(ends) { Ahead::End } else { Ahead::Unknown }
        }
        Some((_, Ahead::End)) if is_strict => Ahead::Unknown,
        Some((_, ahead)) => ahead,
        None if inner(iterator, 0).is_some() => Ahead::Item,
        // Of nothing.
        None => Ahead::End,
    }
}

/// Whether an iterator gives so many items from here on, and ends behind them, if that's asked.
#[must_use]
pub fn gives(iterator: Any<'_, '_>, items: usize, ends: bool) -> bool {
    let last = items.checked_sub(1);
    last.is_none_or(|last| ahead(iterator, last) == Ahead::Item)
        && (!ends || ahead(iterator, items) == Ahead::End)
}

/// How many things an iterator goes over: a container, unless it has ended, or other iterators.
#[must_use]
pub fn parts(iterator: Any<'_, '_>) -> usize {
    (0..).map_while(|number| over(iterator, number)).count()
}

/// The item that an iterator gives behind `passed` others: an element, a number of a range, a dictionary's value or, if it goes
/// over keys alone, its key, the number that `enumerate` counts with, what `repeat` gives. Nothing is advanced.
#[must_use]
pub fn upcoming<'py>(iterator: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    let py = iterator.py();
    let at = iterator.as_ptr();
    let layout = Layout::of(iterator)?;
    if matches!(layout, Layout::Zip) || ahead(iterator, passed) != Ahead::Item {
        return None;
    }
    let number = |number: i64| Some(number.into_pyobject(py).ok()?.into_any());
    // SAFETY: as above. The place is one of the sequence's, which is a list or a tuple; items are borrowed from it.
    unsafe {
        match layout {
            Layout::Sequence => {
                let (sequence, place) = (sequence(iterator)?, place(iterator, passed)?);
                super::container::list_item(sequence.as_borrowed(), place)
                    .or_else(|| super::container::tuple_item(sequence.as_borrowed(), place))
            }
            Layout::Range => {
                let [next, step, _] = range(at);
                number(next.wrapping_add(step.wrapping_mul(i64::try_from(passed).ok()?)))
            }
            Layout::Dict => {
                let (key, value) = entry(&*at.cast::<OverDict>(), passed)?;
                let is_keys =
                    types::address_of(iterator) == &raw mut ffi::PyDictIterKey_Type as usize;
                Bound::from_borrowed_ptr_or_opt(py, if is_keys { key } else { value })
            }
            Layout::Enumerate => {
                let count = i64::try_from((*at.cast::<Enumerated>()).count).ok()?;
                number(count.checked_add(i64::try_from(passed).ok()?)?)
            }
            Layout::Repeat => over(iterator, 0),
            Layout::Zip => None,
        }
    }
}

/// The key of a dictionary's entry that an iterator over entries gives behind `passed` others.
#[must_use]
pub fn upcoming_key<'py>(iterator: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    if !gives_entries(iterator) || ahead(iterator, passed) != Ahead::Item {
        return None;
    }
    // SAFETY: a live object of the exact type that the layout is for; the dictionary keeps its keys.
    unsafe {
        let (key, _) = entry(&*iterator.as_ptr().cast::<OverDict>(), passed)?;
        Bound::from_borrowed_ptr_or_opt(iterator.py(), key)
    }
}

/// Whether an iterator gives a dictionary's entries, as tuples of key and value.
#[must_use]
pub fn gives_entries(iterator: Any<'_, '_>) -> bool {
    types::address_of(iterator) == &raw mut ffi::PyDictIterItem_Type as usize
}

/// Whether an iterator gives numbers that it counts: a range does, and `enumerate`, with other items.
#[must_use]
pub fn counts(iterator: Any<'_, '_>) -> bool {
    matches!(Layout::of(iterator), Some(Layout::Range | Layout::Enumerate))
}

/// Whether an iterator gives tuples of what others give: `zip` and, with a number before it, `enumerate`.
#[must_use]
pub fn combines(iterator: Any<'_, '_>) -> bool {
    matches!(Layout::of(iterator), Some(Layout::Zip | Layout::Enumerate))
}

/// One of the iterators that `enumerate` or `zip` goes over.
fn inner<'py>(iterator: Any<'_, 'py>, number: usize) -> Option<Bound<'py, PyAny>> {
    over(iterator, number).filter(|_| combines(iterator))
}

/// Whether `enumerate` still counts with a machine's number, so many items further on.
fn has_room(over: &Enumerated, passed: usize) -> bool {
    let passed = ffi::Py_ssize_t::try_from(passed).ok();
    passed
        .and_then(|passed| over.count.checked_add(passed))
        .is_some_and(|count| count < ffi::Py_ssize_t::MAX)
}

/// What an iterator over a sequence goes over, if that's a list or a tuple: no code runs where it's asked for items.
fn sequence<'py>(iterator: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    let sequence = over(iterator, 0)?;
    let asks = types::address_of(iterator) == &raw mut ffi::PyReversed_Type as usize;
    // It asks by methods, which others may have of their own.
    (!asks || sequence.is_exact_instance_of::<PyTuple>()).then_some(sequence)
}

/// Where the item lies that an iterator over a list or tuple gives behind `passed` others; `None`: it ends before.
fn place(iterator: Any<'_, '_>, passed: usize) -> Option<usize> {
    let sequence = sequence(iterator)?;
    let length = super::container::list_length(sequence.as_borrowed())
        .or_else(|| super::container::tuple_length(sequence.as_borrowed()))?;
    let ty = types::address_of(iterator);
    let goes_back = ty == &raw mut ffi::PyListRevIter_Type as usize
        || ty == &raw mut ffi::PyReversed_Type as usize;
    // SAFETY: an iterator with a sequence is one of that layout.
    let index = unsafe { (*iterator.as_ptr().cast::<OverSequence>()).index };
    let index = usize::try_from(index).ok().filter(|index| *index < length)?;
    if goes_back {
        index.checked_sub(passed)
    } else {
        index.checked_add(passed).filter(|place| *place < length)
    }
}

/// The next number of a range, its step, and how many are left.
///
/// # Safety
/// A live iterator of a range.
unsafe fn range(at: *mut ffi::PyObject) -> Position {
    // SAFETY: the caller says so.
    let over = unsafe { &*at.cast::<OverRange>() };
    #[cfg(not(Py_3_12))]
    let passed = over.index;
    #[cfg(Py_3_12)]
    let passed: c_long = 0;
    let next = over.start.wrapping_add(passed.wrapping_mul(over.step));
    [next, over.step, over.length - passed]
}

/// The entry that an iterator over a dictionary comes to behind `passed` others.
///
/// # Safety
/// A live iterator with a dictionary.
unsafe fn entry(
    over: &OverDict,
    passed: usize,
) -> Option<(*mut ffi::PyObject, *mut ffi::PyObject)> {
    let (mut position, mut key, mut value) =
        (over.position, std::ptr::null_mut(), std::ptr::null_mut());
    for _ in 0..=passed {
        // SAFETY: the iterator keeps the dictionary alive; nothing is asked of what it holds.
        let found =
            unsafe { ffi::PyDict_Next(over.dict, &raw mut position, &raw mut key, &raw mut value) };
        if found == 0 {
            return None;
        }
    }
    Some((key, value))
}

/// Whether an iterator is one of `itertools.repeat`: it goes over nothing, but gives the same object.
#[must_use]
pub fn repeats(iterator: Any<'_, '_>) -> bool {
    matches!(Layout::of(iterator), Some(Layout::Repeat))
}

/// Whether an iterator is a `zip`.
#[must_use]
pub fn is_zip(iterator: Any<'_, '_>) -> bool {
    matches!(Layout::of(iterator), Some(Layout::Zip))
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

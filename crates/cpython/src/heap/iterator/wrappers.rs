//! `itertools.chain`, `islice`, `cycle` and `count`: what they would give is known from what they go over.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};

use super::containers::{self, Ahead};
use super::{Layout, is_known, makes_tuples};
use crate::heap::{Any, container};

/// So many things a `chain` goes over at most, and so many items `islice` passes over before it gives one.
const MOST: usize = 32;

#[repr(C)]
pub(super) struct Chained {
    head: ffi::PyObject,
    /// Over what comes behind `active`; null behind the last.
    source: *mut ffi::PyObject,
    /// Null between two.
    active: *mut ffi::PyObject,
}

#[repr(C)]
pub(super) struct Sliced {
    head: ffi::PyObject,
    /// Null behind the last item.
    pub(super) iterator: *mut ffi::PyObject,
    next: ffi::Py_ssize_t,
    /// -1: there's none.
    stop: ffi::Py_ssize_t,
    step: ffi::Py_ssize_t,
    taken: ffi::Py_ssize_t,
}

impl Sliced {
    /// Whether another item is taken: one that is passed over, or the next one.
    pub(super) fn passes(&self) -> bool {
        self.taken < self.next || self.stop == -1 || self.taken < self.stop
    }
}

#[repr(C)]
pub(super) struct Cycled {
    head: ffi::PyObject,
    /// Null behind the first round.
    iterator: *mut ffi::PyObject,
    /// A list of what it has given so far.
    saved: *mut ffi::PyObject,
    index: ffi::Py_ssize_t,
    /// Whether nothing is saved any more.
    is_saved: std::ffi::c_int,
}

#[repr(C)]
pub(super) struct Counted {
    head: ffi::PyObject,
    count: ffi::Py_ssize_t,
    /// Null as long as `count` counts.
    long_count: *mut ffi::PyObject,
    step: *mut ffi::PyObject,
}

#[repr(C)]
struct Mapped {
    head: ffi::PyObject,
    /// A tuple.
    iterators: *mut ffi::PyObject,
    function: *mut ffi::PyObject,
}

/// `filter` and `itertools.starmap`.
#[repr(C)]
struct Called {
    head: ffi::PyObject,
    function: *mut ffi::PyObject,
    iterator: *mut ffi::PyObject,
}

/// What gives an item: a container or an iterator, and how many it gives before.
pub(super) type Found<'py> = Option<(Bound<'py, PyAny>, usize)>;

fn owned<'py>(py: Python<'py>, object: *mut ffi::PyObject) -> Option<Bound<'py, PyAny>> {
    // SAFETY: null or a pointer to a live object, read from one that keeps it alive.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, object) }
}

/// What such an iterator goes over, in an order that stays until it's advanced.
pub(super) fn parts<'py>(iterator: Any<'_, 'py>, layout: Layout) -> Vec<Bound<'py, PyAny>> {
    let (py, at) = (iterator.py(), iterator.as_ptr());
    // SAFETY: a live object of the exact type that the layout is for.
    let found = unsafe {
        match layout {
            Layout::Chain => return chained(iterator).unwrap_or_default(),
            Layout::Slice => [(*at.cast::<Sliced>()).iterator, std::ptr::null_mut()],
            Layout::Cycle => [(*at.cast::<Cycled>()).saved, (*at.cast::<Cycled>()).iterator],
            Layout::Filter | Layout::Starmap => {
                [(*at.cast::<Called>()).function, (*at.cast::<Called>()).iterator]
            }
            Layout::Map => {
                let over = &*at.cast::<Mapped>();
                let iterators = owned(py, over.iterators);
                let iterators = iterators.as_ref().map(|iterators| iterators.as_borrowed());
                let length = iterators.and_then(container::tuple_length).unwrap_or(0);
                let iterator = |place| container::tuple_item(iterators?, place);
                let all = (0..length).filter_map(iterator);
                return owned(py, over.function).into_iter().chain(all).collect();
            }
            _ => return Vec::new(),
        }
    };
    found.into_iter().filter_map(|part| owned(py, part)).collect()
}

/// The iterator over the rest, then the one that's active and the rest. `None`: it isn't known, or too much.
fn chained<'py>(iterator: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    let py = iterator.py();
    // SAFETY: a live object of that type.
    let (source, active) = unsafe {
        let over = &*iterator.as_ptr().cast::<Chained>();
        (owned(py, over.source), owned(py, over.active))
    };
    // It ends with its source.
    let Some(source) = source else { return Some(Vec::new()) };
    let mut parts = vec![source.clone()];
    parts.extend(active);
    let source = source.as_borrowed();
    if !is_known(source) || makes_tuples(source) {
        return None;
    }
    for passed in 0.. {
        match super::ahead(source, passed) {
            Ahead::Item if passed < MOST => parts.push(super::upcoming(source, passed)?),
            Ahead::End => break,
            _ => return None,
        }
    }
    Some(parts)
}

/// How such an iterator goes on behind `passed` items, and what gives the item.
pub(super) fn ahead<'py>(
    iterator: Any<'_, 'py>,
    layout: Layout,
    passed: usize,
) -> (Ahead, Found<'py>) {
    let unknown = (Ahead::Unknown, None);
    if parts(iterator, layout).iter().any(|part| makes_tuples(part.as_borrowed())) {
        return unknown;
    }
    match layout {
        Layout::Chain => chain_ahead(iterator, passed),
        Layout::Slice => slice_ahead(iterator, passed),
        Layout::Cycle => cycle_ahead(iterator, passed),
        Layout::Count if counted(iterator, passed).is_some() => (Ahead::Item, None),
        _ => unknown,
    }
}

fn chain_ahead<'py>(iterator: Any<'_, 'py>, passed: usize) -> (Ahead, Found<'py>) {
    let Some(parts) = chained(iterator) else { return (Ahead::Unknown, None) };
    let mut left = passed;
    // The first is the one over the others.
    for part in parts.into_iter().skip(1) {
        let ahead = |passed| containers::ahead(part.as_borrowed(), passed);
        if ahead(left) == Ahead::Item {
            return (Ahead::Item, Some((part, left)));
        }
        let (given, end) = first_other(left, ahead);
        if end == Ahead::Unknown {
            return (Ahead::Unknown, None);
        }
        left -= given;
    }
    (Ahead::End, None)
}

/// How many items come before something else does, among `limit` and one more, and what that is.
fn first_other(limit: usize, ahead: impl Fn(usize) -> Ahead) -> (usize, Ahead) {
    let other = (0..=limit).map(|passed| (passed, ahead(passed)));
    other.into_iter().find(|(_, ahead)| *ahead != Ahead::Item).unwrap_or((limit + 1, Ahead::Item))
}

fn slice_ahead<'py>(iterator: Any<'_, 'py>, passed: usize) -> (Ahead, Found<'py>) {
    // SAFETY: a live object of that type.
    let over = unsafe { &*iterator.as_ptr().cast::<Sliced>() };
    let Some(inner) = owned(iterator.py(), over.iterator) else { return (Ahead::End, None) };
    let (mut next, mut taken, mut at) = (over.next, over.taken, 0);
    for number in 0..=passed {
        let skipped = usize::try_from(next - taken).unwrap_or(0);
        if skipped > MOST {
            return (Ahead::Unknown, None);
        }
        for _ in 0..skipped {
            match super::ahead(inner.as_borrowed(), at) {
                Ahead::Item => at += 1,
                other => return (other, None),
            }
        }
        taken = taken.max(next);
        if over.stop != -1 && taken >= over.stop {
            return (Ahead::End, None);
        }
        match super::ahead(inner.as_borrowed(), at) {
            Ahead::Item if number == passed => break,
            Ahead::Item => at += 1,
            other => return (other, None),
        }
        taken += 1;
        next = match next.checked_add(over.step) {
            Some(next) if over.stop == -1 || next <= over.stop => next,
            _ => over.stop,
        };
    }
    (Ahead::Item, Some((inner, at)))
}

/// The state of an `islice` that hasn't ended.
pub(super) fn slice<'a>(iterator: Any<'a, '_>) -> Option<&'a Sliced> {
    if Layout::of(iterator) != Some(Layout::Slice) {
        return None;
    }
    // SAFETY: a live object of that exact type.
    let over = unsafe { &*iterator.as_ptr().cast::<Sliced>() };
    (!over.iterator.is_null()).then_some(over)
}

/// As `islice` itself counts.
pub(super) fn slice_taken(iterator: Any<'_, '_>) -> bool {
    if slice(iterator).is_none() {
        return false;
    }
    // SAFETY: a live object of that exact type, and the GIL is held: nobody else looks at it.
    let over = unsafe { &mut *iterator.as_ptr().cast::<Sliced>() };
    let is_given = over.taken >= over.next;
    over.taken += 1;
    if is_given {
        over.next = match over.next.checked_add(over.step) {
            Some(next) if over.stop == -1 || next <= over.stop => next,
            _ => over.stop,
        };
    }
    is_given
}

pub(super) fn end_slice(iterator: Any<'_, '_>) {
    if slice(iterator).is_none() {
        return;
    }
    let over = iterator.as_ptr().cast::<Sliced>();
    // SAFETY: a live object of that exact type; its reference is taken over, and dropped when it has none any more.
    let inner = unsafe {
        let inner = std::mem::replace(&mut (*over).iterator, std::ptr::null_mut());
        Bound::from_owned_ptr_or_opt(iterator.py(), inner)
    };
    drop(inner);
}

fn cycle_ahead<'py>(iterator: Any<'_, 'py>, passed: usize) -> (Ahead, Found<'py>) {
    let (py, unknown) = (iterator.py(), (Ahead::Unknown, None));
    // SAFETY: a live object of that type.
    let over = unsafe { &*iterator.as_ptr().cast::<Cycled>() };
    let Some(saved) = owned(py, over.saved) else { return unknown };
    let Some(length) = container::list_length(saved.as_borrowed()) else { return unknown };
    let Ok(index) = usize::try_from(over.index) else { return unknown };
    let mut given = 0;
    let inner = owned(py, over.iterator);
    if let Some(inner) = &inner {
        if over.is_saved != 0 || index != 0 {
            return unknown;
        }
        let (before, end) = first_other(passed, |at| super::ahead(inner.as_borrowed(), at));
        match end {
            Ahead::Item => return (Ahead::Item, Some((inner.clone(), passed))),
            Ahead::Unknown => return unknown,
            Ahead::End => given = before,
        }
    }
    // Those of the first round are saved as they are given.
    let all = length + given;
    if all == 0 {
        return (Ahead::End, None);
    }
    let place = (index + (passed - given)) % all;
    match (place.checked_sub(length), inner) {
        (None, _) => (Ahead::Item, Some((saved, place))),
        (Some(place), Some(inner)) => (Ahead::Item, Some((inner, place))),
        _ => unknown,
    }
}

/// The number that `count` gives behind `passed` others, if it's computed as `count` does.
pub(super) fn counted<'py>(iterator: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    let py = iterator.py();
    // SAFETY: a live object of that type.
    let over = unsafe { &*iterator.as_ptr().cast::<Counted>() };
    let Some(long) = owned(py, over.long_count) else {
        let count = over.count.checked_add(isize::try_from(passed).ok()?)?;
        // From there on it counts with objects.
        let is_small = over.count < ffi::Py_ssize_t::MAX && count < ffi::Py_ssize_t::MAX;
        return is_small.then(|| count.into_pyobject(py).ok()).flatten().map(Bound::into_any);
    };
    let step = owned(py, over.step)?;
    if long.is_exact_instance_of::<PyInt>() && step.is_exact_instance_of::<PyInt>() {
        let (first, step): (i64, i64) = (long.extract().ok()?, step.extract().ok()?);
        let count = first.checked_add(step.checked_mul(i64::try_from(passed).ok()?)?)?;
        return Some(count.into_pyobject(py).ok()?.into_any());
    }
    if long.is_exact_instance_of::<PyFloat>() {
        let first: f64 = long.extract().ok()?;
        let step = if step.is_exact_instance_of::<PyFloat>() {
            step.extract().ok()?
        } else if step.is_exact_instance_of::<PyInt>() {
            f64::from(step.extract::<i32>().ok()?)
        } else {
            return None;
        };
        let count = (0..passed).fold(first, |count, _| count + step);
        return Some(PyFloat::new(py, count).into_any());
    }
    None
}

/// Whether `count` gives integers.
pub(super) fn counts_integers(iterator: Any<'_, '_>) -> bool {
    counted(iterator, 0).is_some_and(|count| count.is_exact_instance_of::<PyInt>())
}

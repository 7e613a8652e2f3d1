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

mod containers;
mod entries;
pub mod stepped;
mod wrappers;

pub use containers::Ahead;
use entries::{OverDict, entries_left, entry};
pub use entries::{Shown, over_ordered};
use stepped::Stepped;
use wrappers::Sliced;

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
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Sequence,
    /// As a sequence's, over a text or bytes.
    Text,
    Range,
    Dict,
    /// As a dictionary's, from its end.
    Backwards,
    /// As a dictionary's, in the order that an `OrderedDict` keeps.
    Ordered,
    Set,
    Enumerate,
    Zip,
    Repeat,
    Chain,
    Slice,
    Cycle,
    Count,
    Map,
    Filter,
    Starmap,
}

impl Layout {
    /// By the exact type.
    fn of(iterator: Any<'_, '_>) -> Option<Self> {
        if !is_one(iterator) {
            return None;
        }
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
        let backwards = [
            &raw mut ffi::PyDictRevIterKey_Type,
            &raw mut ffi::PyDictRevIterValue_Type,
            &raw mut ffi::PyDictRevIterItem_Type,
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
        } else if is(&raw mut ffi::PySetIter_Type) {
            Self::Set
        } else if is_any(&backwards) {
            Self::Backwards
        } else if entries::is_over_ordered(iterator) {
            Self::Ordered
        } else if is(&raw mut ffi::PyMap_Type) {
            Self::Map
        } else if is(&raw mut ffi::PyFilter_Type) {
            Self::Filter
        } else {
            return Unnamed::get(iterator.py()).layout(ty);
        })
    }
}

/// Types that no header names.
struct Unnamed(Vec<(Py<PyAny>, Layout)>);

impl Unnamed {
    fn get(py: Python<'_>) -> &'static Self {
        static TYPES: PyOnceLock<Unnamed> = PyOnceLock::new();
        let itertools = [
            ("repeat", Layout::Repeat),
            ("chain", Layout::Chain),
            ("islice", Layout::Slice),
            ("cycle", Layout::Cycle),
            ("count", Layout::Count),
            ("starmap", Layout::Starmap),
        ];
        let of_itertools = |name| modules::import(py, "itertools").ok()?.getattr(name).ok();
        // There's one for texts of ASCII alone.
        let texts = [c"type(iter(''))", c"type(iter('é'))", c"type(iter(b''))"];
        TYPES.get_or_init(py, || {
            let itertools = itertools.into_iter();
            let itertools = itertools.map(|(name, layout)| Some((of_itertools(name)?, layout)));
            let texts = texts.into_iter();
            let texts = texts.map(|text| Some((py.eval(text, None, None).ok()?, Layout::Text)));
            let all = itertools.chain(texts).flatten();
            Self(all.map(|(ty, layout)| (ty.unbind(), layout)).collect())
        })
    }

    fn layout(&self, ty: usize) -> Option<Layout> {
        let found = self.0.iter().find(|(known, _)| known.as_ptr() as usize == ty);
        found.map(|(_, layout)| *layout)
    }
}

/// Learns what is learned once for a process, by an import.
pub fn warm_up(py: Python<'_>) {
    Unnamed::get(py);
}

/// How far an iterator has come; `None`: it's of another type or one whose next items alone are read, has ended, or can't
/// go on.
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
            Layout::Ordered => {
                let left = entries::keys_left(iterator)?;
                Some([left.len() as i64, entries::shown(iterator)? as i64, 0])
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
            Layout::Text
            | Layout::Backwards
            | Layout::Set
            | Layout::Chain
            | Layout::Slice
            | Layout::Cycle
            | Layout::Count
            | Layout::Map
            | Layout::Filter
            | Layout::Starmap => None,
        }
    }
}

/// What an iterator goes over: a container, one of the iterators of `enumerate` and `zip`, what `itertools` goes over, or
/// what `repeat` gives again and again; of `map` and the like the function comes first. `None`: there is nothing with this
/// number. A range and `count` give only numbers.
#[must_use]
pub fn over<'py>(iterator: Any<'_, 'py>, number: usize) -> Option<Bound<'py, PyAny>> {
    let py = iterator.py();
    let at = iterator.as_ptr();
    let layout = Layout::of(iterator)?;
    // SAFETY: as above; pointers are null or to live objects, and `zip` keeps a tuple of `size` iterators.
    unsafe {
        let found = match layout {
            Layout::Sequence | Layout::Text if number == 0 => (*at.cast::<OverSequence>()).sequence,
            Layout::Dict | Layout::Backwards if number == 0 => (*at.cast::<OverDict>()).dict,
            Layout::Set if number == 0 => containers::set_of(at),
            Layout::Ordered if number == 0 => entries::dict_of(at),
            Layout::Chain
            | Layout::Slice
            | Layout::Cycle
            | Layout::Map
            | Layout::Filter
            | Layout::Starmap => {
                return wrappers::parts(iterator, layout).into_iter().nth(number);
            }
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

/// What an iterator would do when it's advanced, `passed` items further on: nobody changes what it goes over until then.
#[must_use]
pub fn ahead(iterator: Any<'_, '_>, passed: usize) -> Ahead {
    let at = iterator.as_ptr();
    let Some(layout) = Layout::of(iterator) else { return Ahead::Unknown };
    // SAFETY: a live object of the exact type that the layout is for; what it points to lives as long as it does.
    unsafe {
        match layout {
            Layout::Sequence => match sequence(iterator) {
                Some(_) => Ahead::gives(place(iterator, passed).is_some()),
                None if (*at.cast::<OverSequence>()).sequence.is_null() => Ahead::End,
                None => Ahead::Unknown,
            },
            Layout::Range => {
                let [_, _, left] = range(at);
                Ahead::gives(usize::try_from(left).is_ok_and(|left| passed < left))
            }
            Layout::Text => {
                let is_over = !(*at.cast::<OverSequence>()).sequence.is_null();
                Ahead::gives(is_over && letter(iterator, passed).is_some())
            }
            Layout::Set => containers::element(iterator, passed).0,
            Layout::Chain | Layout::Slice | Layout::Cycle | Layout::Count => {
                wrappers::ahead(iterator, layout, passed).0
            }
            Layout::Map | Layout::Filter | Layout::Starmap => Ahead::Unknown,
            Layout::Ordered => entries::ordered_ahead(iterator, passed),
            Layout::Backwards => {
                let over = &*at.cast::<OverDict>();
                if over.dict.is_null() {
                    return Ahead::End;
                }
                if ffi::PyDict_Size(over.dict) != over.used || entries::is_out_of_order(over) {
                    return Ahead::Unknown;
                }
                Ahead::gives(containers::entry_backwards(iterator.py(), over, passed).is_some())
            }
            Layout::Dict => {
                let over = &*at.cast::<OverDict>();
                if over.dict.is_null() {
                    return Ahead::End;
                }
                if ffi::PyDict_Size(over.dict) != over.used || entries::is_out_of_order(over) {
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
                Ahead::gives(count < 0 || usize::try_from(count).is_ok_and(|count| passed < count))
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

/// Whether an iterator gives so many items from here on, and ends behind them, if that's asked; or one that would be made
/// of a set, list or deque.
#[must_use]
pub fn gives(iterator: Any<'_, '_>, items: usize, ends: bool) -> bool {
    let holds = super::container::list_length(iterator)
        .or_else(|| super::container::deque_length(iterator));
    if let Some(holds) = holds {
        return holds == items || holds > items && !ends;
    }
    let ahead = |passed| {
        if containers::is_set(iterator) {
            containers::ahead(iterator, passed)
        } else {
            ahead(iterator, passed)
        }
    };
    let last = items.checked_sub(1);
    last.is_none_or(|last| ahead(last) == Ahead::Item) && (!ends || ahead(items) == Ahead::End)
}

/// How many things an iterator goes over: a container, unless it has ended, or other iterators. One over the entries of an
/// `OrderedDict` is of the type that those over its values are of, so it goes over two: keys and values.
#[must_use]
pub fn parts(iterator: Any<'_, '_>) -> usize {
    if entries::shown(iterator) == Some(Shown::Entries) {
        return 2;
    }
    (0..).map_while(|number| over(iterator, number)).count()
}

/// The item that an iterator gives behind `passed` others: an element, a number of a range, a dictionary's value or, if it goes
/// over keys alone, its key, the number that `enumerate` counts with, what `repeat` gives. Nothing is advanced. Of a set: what
/// an iterator over it would give.
#[must_use]
pub fn upcoming<'py>(iterator: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    let py = iterator.py();
    let at = iterator.as_ptr();
    let Some(layout) = Layout::of(iterator) else {
        return containers::element_of(iterator, passed);
    };
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
            Layout::Text => letter(iterator, passed),
            Layout::Set => containers::element(iterator, passed).1,
            Layout::Count => wrappers::counted(iterator, passed),
            Layout::Chain | Layout::Slice | Layout::Cycle => {
                let (part, place) = wrappers::ahead(iterator, layout, passed).1?;
                containers::item(part.as_borrowed(), place)
            }
            Layout::Backwards => {
                let over = &*at.cast::<OverDict>();
                let (key, value) = containers::entry_backwards(py, over, passed)?;
                let is_keys =
                    types::address_of(iterator) == &raw mut ffi::PyDictRevIterKey_Type as usize;
                Some(if is_keys { key } else { value })
            }
            Layout::Dict => {
                let (key, value) = entry(&*at.cast::<OverDict>(), passed)?;
                let is_keys =
                    types::address_of(iterator) == &raw mut ffi::PyDictIterKey_Type as usize;
                Bound::from_borrowed_ptr_or_opt(py, if is_keys { key } else { value })
            }
            Layout::Ordered => {
                let (key, value) = entries::ordered_entry(iterator, passed)?;
                let gives_keys = entries::shown(iterator) == Some(Shown::Keys);
                Some(if gives_keys { key } else { value })
            }
            Layout::Enumerate => {
                let count = i64::try_from((*at.cast::<Enumerated>()).count).ok()?;
                number(count.checked_add(i64::try_from(passed).ok()?)?)
            }
            Layout::Repeat => over(iterator, 0),
            Layout::Zip | Layout::Map | Layout::Filter | Layout::Starmap => None,
        }
    }
}

/// The key of a dictionary's entry that an iterator over entries gives behind `passed` others.
#[must_use]
pub fn upcoming_key<'py>(iterator: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    if !gives_entries(iterator) || ahead(iterator, passed) != Ahead::Item {
        return None;
    }
    if Layout::of(iterator) == Some(Layout::Ordered) {
        return entries::ordered_entry(iterator, passed).map(|(key, _)| key);
    }
    // SAFETY: a live object of the exact type that the layout is for; the dictionary keeps its keys.
    unsafe {
        if Layout::of(iterator) == Some(Layout::Backwards) {
            let over = &*iterator.as_ptr().cast::<OverDict>();
            return containers::entry_backwards(iterator.py(), over, passed).map(|(key, _)| key);
        }
        let (key, _) = entry(&*iterator.as_ptr().cast::<OverDict>(), passed)?;
        Bound::from_borrowed_ptr_or_opt(iterator.py(), key)
    }
}

/// Whether an iterator gives a dictionary's entries, as tuples of key and value.
#[must_use]
pub fn gives_entries(iterator: Any<'_, '_>) -> bool {
    let ty = types::address_of(iterator);
    ty == &raw mut ffi::PyDictIterItem_Type as usize
        || ty == &raw mut ffi::PyDictRevIterItem_Type as usize
        || entries::shown(iterator) == Some(Shown::Entries)
}

/// Whether the items of an iterator are tuples that it makes.
fn makes_tuples(iterator: Any<'_, '_>) -> bool {
    gives_entries(iterator) || combines(iterator)
}

/// Whether an iterator gives numbers that it counts: a range does, `count`, and `enumerate`, with other items.
#[must_use]
pub fn counts(iterator: Any<'_, '_>) -> bool {
    match Layout::of(iterator) {
        Some(Layout::Range | Layout::Enumerate) => true,
        Some(Layout::Count) => wrappers::counts_integers(iterator),
        _ => false,
    }
}

/// Whether an iterator is one of `itertools` that goes over others, or over containers which aren't gone over so far.
#[must_use]
pub fn wraps(iterator: Any<'_, '_>) -> bool {
    matches!(Layout::of(iterator), Some(Layout::Chain | Layout::Slice | Layout::Cycle))
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

/// The part of a text or of bytes that an iterator gives behind `passed` others.
fn letter<'py>(iterator: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    let text = over(iterator, 0)?;
    // SAFETY: a live iterator of that layout.
    let index = unsafe { (*iterator.as_ptr().cast::<OverSequence>()).index };
    containers::part_of_text(text.as_borrowed(), usize::try_from(index).ok()?.checked_add(passed)?)
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

/// Whether an iterator is one of `itertools.repeat`: it goes over nothing, but gives the same object.
#[must_use]
pub fn repeats(iterator: Any<'_, '_>) -> bool {
    matches!(Layout::of(iterator), Some(Layout::Repeat))
}

/// What an iterator that makes something of others goes over: see [`over`].
#[must_use]
pub fn all_over<'py>(iterator: Any<'_, 'py>) -> Vec<Bound<'py, PyAny>> {
    match stepped::stepped(iterator) {
        Some(_) => stepped::parts(iterator),
        None => (0..).map_while(|number| over(iterator, number)).collect(),
    }
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
    if Layout::of(iterator) == Some(Layout::Slice) {
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
        // It hashes its keys.
        Layout::Ordered
        | Layout::Text
        | Layout::Chain
        | Layout::Cycle
        | Layout::Count
        | Layout::Map
        | Layout::Filter
        | Layout::Starmap => false,
        _ => true,
    }
}

/// Whether an iterator is of a type whose state is read here, and all of it: advancing it calls nothing.
#[must_use]
pub fn is_known(iterator: Any<'_, '_>) -> bool {
    Layout::of(iterator).is_some() && calling(iterator).is_none()
}

/// Whether an object's type can be advanced. Each argument of a C function is asked, and hardly any can.
#[inline]
#[must_use]
pub fn is_one(object: Any<'_, '_>) -> bool {
    // SAFETY: a live object, whose type is ready.
    unsafe { (*ffi::Py_TYPE(object.as_ptr())).tp_iternext.is_some() }
}

/// As [`is_known`], with those that are [`Calling`].
#[must_use]
pub fn is_of_c(iterator: Any<'_, '_>) -> bool {
    Layout::of(iterator).is_some()
}

/// Iterators that call a function for each item. They hold nothing else that changes than the iterators they go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calling {
    /// It gives what the function returns for an item of each.
    Map,
    /// It gives the items for which the function says yes; without one, or with `bool`, those that are true.
    Filter,
    /// It gives what the function returns for the parts of an item.
    Starmap,
}

/// Whether an iterator is one of these.
#[must_use]
pub fn calling(iterator: Any<'_, '_>) -> Option<Calling> {
    match Layout::of(iterator)? {
        Layout::Map => Some(Calling::Map),
        Layout::Filter => Some(Calling::Filter),
        Layout::Starmap => Some(Calling::Starmap),
        _ => None,
    }
}

/// Iterators that give, of what others give, tuples or a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combining {
    /// With numbers.
    Enumerate,
    /// One of each. A strict one raises unless all of them end at once.
    Zip {
        /// Whether it raises there.
        is_strict: bool,
    },
    /// `itertools.islice`.
    Slice,
    /// Those that keep something from one item to the next.
    Stepped(Stepped),
}

/// Whether an iterator is one of these.
#[must_use]
pub fn combining(iterator: Any<'_, '_>) -> Option<Combining> {
    if let Some(stepped) = stepped::stepped(iterator) {
        return Some(Combining::Stepped(stepped));
    }
    match Layout::of(iterator)? {
        Layout::Enumerate => position(iterator).map(|_| Combining::Enumerate),
        Layout::Zip => {
            // SAFETY: a live object of the exact type that the layout is for.
            let over = unsafe { &*iterator.as_ptr().cast::<Zipped>() };
            let is_known = over.size > 0 && !over.iterators.is_null();
            is_known.then_some(Combining::Zip { is_strict: over.strict != 0 })
        }
        Layout::Slice => Some(Combining::Slice),
        _ => None,
    }
}

/// The number that an `enumerate` gives next, which is counted as given.
///
/// # Panics
/// If it is something else: see [`combining`].
#[must_use]
pub fn count_up(iterator: Any<'_, '_>) -> isize {
    assert_eq!(combining(iterator), Some(Combining::Enumerate));
    let over = iterator.as_ptr().cast::<Enumerated>();
    // SAFETY: a live object of that exact type, and the GIL is held. The count is no largest one, as `position` knows it.
    unsafe {
        let count = (*over).count;
        (*over).count += 1;
        count
    }
}

/// Whether an `islice` takes another item from what it goes over.
#[must_use]
pub fn slice_passes(iterator: Any<'_, '_>) -> bool {
    wrappers::slice(iterator).is_some_and(Sliced::passes)
}

/// An `islice` has taken an item: whether it gives this one.
#[must_use]
pub fn slice_taken(iterator: Any<'_, '_>) -> bool {
    wrappers::slice_taken(iterator)
}

/// An `islice` lets go of what it goes over, as behind its last item.
pub fn end_slice(iterator: Any<'_, '_>) {
    wrappers::end_slice(iterator);
}

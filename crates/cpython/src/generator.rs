//! Generators that stand still: their frames, and how such a one is made again.

use std::ffi::c_int;

use pyo3::exceptions::PySystemError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::ffi as shim;
use crate::frame::{Frame, call_anew};
use crate::heap::function::{Field, value};
use crate::hook::Suspended;
use crate::object::{Borrowed, Object};
use crate::ops;

/// Where a generator stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The unit of its last instruction.
    pub unit: usize,
    /// Whether any of its body has run.
    pub started: bool,
}

/// Lets `look` see the frame of a generator that stands still and handles no exception; `None` for
/// everything else. The frame must not be kept.
pub fn look<'py, R>(
    generator: Borrowed<'_, 'py>,
    look: impl FnOnce(Frame<'py>, Place) -> R,
) -> Option<R> {
    let mut started: c_int = 0;
    // SAFETY: a live object; the shim checks its type.
    let pointer = unsafe { shim::stator_generator_frame(generator.as_ptr(), &raw mut started) };
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the frame is complete, and the generator, which is alive, owns it.
    let frame = unsafe { Frame::from_raw(generator.py(), pointer) };
    Some(look(frame, Place { unit: frame.rested_unit(), started: started != 0 }))
}

/// The frame of a generator, coroutine or asynchronous generator that is being made: it lives as long as that.
pub fn frame_of<'py>(generator: Borrowed<'_, 'py>) -> Option<Frame<'py>> {
    let pointer = generator.as_ptr();
    // SAFETY: type checks of a live object, then the frame inside it.
    unsafe {
        let is_one = ffi::PyGen_CheckExact(pointer) != 0
            || ffi::PyCoro_CheckExact(pointer) != 0
            || ffi::PyAsyncGen_CheckExact(pointer) != 0;
        is_one.then(|| Frame::from_raw(generator.py(), shim::stator_own_frame(pointer)))
    }
}

/// A generator of a function's, which hasn't begun; it is to be moved by [`restore`].
///
/// # Errors
/// What the call raises; `SystemError` if the function makes no generator.
pub fn make<'py>(function: Borrowed<'_, 'py>) -> PyResult<Object<'py>> {
    let py = function.py();
    let made = call_anew(function).map_err(|raised| raised.take(py))?;
    if !ops::is_generator(made.as_borrowed()) {
        return Err(PySystemError::new_err("Stator has a bug: a generator is made of a function"));
    }
    Ok(made)
}

/// Puts a generator that hasn't begun somewhere else in its code: fast locals and stack are the given
/// ones (`None`: unbound, or a `NULL` of the stack).
///
/// # Errors
/// `SystemError` if it has begun, or its code has no room for the values.
pub fn restore<'py>(
    generator: &Object<'py>,
    place: Place,
    slots: impl IntoIterator<Item = Option<Object<'py>>>,
) -> PyResult<()> {
    let py = generator.py();
    if look(generator.as_borrowed(), |_, place| place.started) != Some(false) {
        return Err(unmovable());
    }
    let null = std::ptr::null_mut();
    let mut slots: Vec<*mut PyObject> =
        slots.into_iter().map(|slot| slot.map_or(null, Bound::into_ptr)).collect();
    let unit = c_int::try_from(place.unit).map_err(|_| unmovable())?;
    let count = c_int::try_from(slots.len()).map_err(|_| unmovable())?;
    // SAFETY: an exact generator (`look`), and as many owned references as are said, or nulls.
    let moved = unsafe {
        shim::stator_generator_restore(
            generator.as_ptr(),
            unit,
            c_int::from(place.started),
            slots.as_mut_ptr(),
            count,
        )
    };
    // The old locals, or what wasn't taken.
    for slot in slots {
        // SAFETY: null, or a reference that is owned here.
        drop(unsafe { Bound::from_owned_ptr_or_opt(py, slot) });
    }
    if moved == 0 { Err(unmovable()) } else { Ok(()) }
}

/// Where a generator stands that isn't Stator's, and which of its slots hold something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rested {
    /// The unit of its last instruction.
    pub unit: usize,
    /// Whether any of its body has run.
    pub started: bool,
    /// How many slots it has: fast locals, then its stack.
    pub slots: usize,
    /// Those that hold something.
    pub bound: u64,
}

/// So many slots a generator has at most that [`rested`] tells of.
const MOST_SLOTS: usize = 64;

/// Where a generator stands. `None`: it doesn't stand still, its function has other code by now, or it has too many slots.
#[must_use]
pub fn rested(generator: Borrowed<'_, '_>) -> Option<Rested> {
    look(generator, |frame, place| {
        let code = frame.code();
        let own = value(frame.function(), Field::Code)?;
        let slots = count_slots(&frame);
        if own.as_ptr() != code.object().as_ptr() || slots > MOST_SLOTS {
            return None;
        }
        let is_bound = |slot: &usize| held(&frame, *slot).is_some();
        let bound = (0..slots).filter(is_bound).fold(0, |bits, slot| bits | 1 << slot);
        Some(Rested { unit: place.unit, started: place.started, slots, bound })
    })?
}

/// What one of the slots of a generator that stands still holds.
#[must_use]
pub fn slot<'py>(generator: Borrowed<'_, 'py>, slot: usize) -> Option<Object<'py>> {
    look(generator, |frame, _| held(&frame, slot).map(|found| found.to_owned()))?
}

/// How many slots a generator's frame has: fast locals, then its stack.
fn count_slots(frame: &Frame<'_>) -> usize {
    frame.code().nlocalsplus() + frame.stack().len()
}

fn held<'a, 'py>(frame: &'a Frame<'py>, slot: usize) -> Option<Borrowed<'a, 'py>> {
    match slot.checked_sub(frame.code().nlocalsplus()) {
        None => frame.local(slot),
        Some(at) => frame.stack().get(at).copied().flatten(),
    }
}

/// The function of a generator that stands still.
#[must_use]
pub fn function<'py>(generator: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    look(generator, |frame, _| frame.function().to_owned())
}

/// Whether an object is a generator that has ended.
#[must_use]
pub fn has_ended(generator: Borrowed<'_, '_>) -> bool {
    // SAFETY: a live object; the shim checks its type.
    unsafe { shim::stator_generator_has_ended(generator.as_ptr()) != 0 }
}

/// Whether a generator's code handles exceptions anywhere: some of it runs when a generator that has begun dies.
#[must_use]
pub fn handles(generator: Borrowed<'_, '_>) -> bool {
    look(generator, |frame, _| !frame.code().exception_table().is_empty()).unwrap_or(false)
}

/// Moves a generator to where another one of the same code stands, which is used up by that.
///
/// # Errors
/// `SystemError` if one of them doesn't stand still, or their code differs.
pub fn move_to<'py>(generator: Borrowed<'_, 'py>, other: &Object<'py>) -> PyResult<()> {
    // SAFETY: live objects; the shim checks their types.
    let moved = unsafe { shim::stator_generator_swap(generator.as_ptr(), other.as_ptr()) };
    if moved == 0 { Err(unmovable()) } else { empty(other.as_borrowed()) }
}

/// Ends a generator that stands still. None of its code runs.
///
/// # Errors
/// `SystemError` if it doesn't stand still.
pub fn end(generator: Borrowed<'_, '_>) -> PyResult<()> {
    empty(generator)?;
    let _native = Suspended::new(generator.py());
    generator.call_method0(pyo3::intern!(generator.py(), "close")).map(drop)
}

/// Lets go of all that a generator holds: it's one that hasn't begun.
fn empty(generator: Borrowed<'_, '_>) -> PyResult<()> {
    let py = generator.py();
    let room = look(generator, |frame, _| count_slots(&frame));
    let mut slots = vec![std::ptr::null_mut::<PyObject>(); room.ok_or_else(unmovable)?];
    let room = c_int::try_from(slots.len()).map_err(|_| unmovable())?;
    // SAFETY: a live object, whose type the shim checks, and so many places.
    let emptied =
        unsafe { shim::stator_generator_empty(generator.as_ptr(), slots.as_mut_ptr(), room) };
    for slot in slots {
        // SAFETY: null, or a reference that the generator has given away.
        drop(unsafe { Bound::from_owned_ptr_or_opt(py, slot) });
    }
    if emptied == 0 { Err(unmovable()) } else { Ok(()) }
}

fn unmovable() -> PyErr {
    PySystemError::new_err("Stator has a bug: a generator that can't be moved")
}

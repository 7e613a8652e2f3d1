//! Generators that stand still: their frames, and how such a one is made again.

use std::ffi::c_int;

use pyo3::exceptions::PySystemError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::ffi as shim;
use crate::frame::{Frame, call_anew};
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
    if !ops::is_generator(&made) {
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
    let refuse = || PySystemError::new_err("Stator has a bug: a generator that can't be moved");
    if look(generator.as_borrowed(), |_, place| place.started) != Some(false) {
        return Err(refuse());
    }
    let null = std::ptr::null_mut();
    let mut slots: Vec<*mut PyObject> =
        slots.into_iter().map(|slot| slot.map_or(null, Bound::into_ptr)).collect();
    let unit = c_int::try_from(place.unit).map_err(|_| refuse())?;
    let count = c_int::try_from(slots.len()).map_err(|_| refuse())?;
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
    if moved == 0 { Err(refuse()) } else { Ok(()) }
}

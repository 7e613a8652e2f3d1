//! Whose death is noticed: by a finalizer, a weak reference, the `finally` of a generator.
//!
//! Nothing here runs code or allocates Python objects.

use std::ffi::{c_int, c_void};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::function::Field;
use super::{Any, tensor, types, weak};
use crate::object::Object;
use crate::{generator, ops};

/// Objects with more references than that are taken to be somebody else's.
const SHARED: isize = 3;

/// As [`SHARED`], of what a frame holds: evaluating it takes a few.
const SHARED_ROOT: isize = 6;

/// As [`SHARED`], of what is noticed itself: one that was handed through calls has some owners for a while.
const HANDED_ON: isize = 12;

/// As [`SHARED`], of what is found outside: a trace has taken hold of it, and so has whoever shows it.
const ALONE: isize = 4;

/// How many objects below one are looked at.
const MOST: usize = 64;

/// Whether anybody would notice the death of this very object.
fn is_noticed(object: Any<'_, '_>) -> bool {
    types::has_finalizer(object.get_type().as_borrowed())
        || ops::is_generator(object) && is_suspended(object)
        || weak::is_referenced(object)
}

/// An object and those that die with it, if the death of one of them would be noticed; else nothing.
///
/// What has several owners, or is far below, isn't looked at.
#[must_use]
pub fn noticed_with<'py>(object: Any<'_, 'py>) -> Vec<Object<'py>> {
    if refcount(object.as_ptr()) > SHARED_ROOT || is_lasting(object.as_ptr()) {
        return Vec::new();
    }
    let (found, is_due) = dying_with(object, SHARED);
    if !is_due {
        return Vec::new();
    }
    // SAFETY: `object` keeps what it reaches alive, and nothing has run since; from here on they are owned.
    found.iter().map(|one| unsafe { Bound::from_borrowed_ptr(object.py(), *one) }).collect()
}

/// Whether the death of a watched object may be noticed: because of itself, or of what it is an owner of. Those may have a
/// few more owners than for [`noticed_with`], for some of them may die with it; and where there are too many to look at,
/// one may be noticed.
#[must_use]
pub fn may_be_noticed(object: Any<'_, '_>) -> bool {
    let (found, is_noticed) = dying_with(object, HANDED_ON);
    is_noticed || found.len() >= MOST
}

/// An object and what it owns, at most [`MOST`] in all, and whether the death of one of them would be noticed.
fn dying_with(object: Any<'_, '_>, owners: isize) -> (Vec<*mut PyObject>, bool) {
    let mut is_due = false;
    let mut found = vec![object.as_ptr()];
    let mut at = 0;
    while at < found.len() && at < MOST {
        // SAFETY: `object` keeps what it reaches alive, and nothing runs here.
        let next = unsafe { pyo3::Borrowed::from_ptr(object.py(), found[at]) };
        is_due |= is_noticed(next);
        at += 1;
        // What a tensor refers to is PyTorch's.
        if !tensor::is_tensor(next) {
            children(found[at - 1], owners, &mut found);
        }
    }
    found.truncate(at);
    (found, is_due)
}

/// Whether the death of this very object would be noticed, although it has several owners yet.
#[must_use]
pub fn is_noticed_later(object: Any<'_, '_>) -> bool {
    refcount(object.as_ptr()) <= HANDED_ON && !is_lasting(object.as_ptr()) && is_noticed(object)
}

/// As [`is_noticed_later`], of an object that has one owner, or two; beside these whoever hands it on.
#[must_use]
pub fn is_noticed_soon(object: Any<'_, '_>) -> bool {
    refcount(object.as_ptr()) <= ALONE && !is_lasting(object.as_ptr()) && is_noticed(object)
}

/// Whether a generator has begun and not ended, and may have `finally` blocks: they are yet to come. What it delegates to
/// is among what it alone owns.
fn is_suspended(generator: Any<'_, '_>) -> bool {
    generator::handles(generator)
        && generator::look(generator, |_, place| place.started).unwrap_or(false)
}

/// Whether nobody notices any more that an object dies: a generator that has ended.
#[must_use]
pub fn is_past_notice(object: Any<'_, '_>) -> bool {
    generator::has_ended(object) && !weak::is_referenced(object)
}

/// Whether nobody notices the death of this very object because it is a bound method, whose parts may go on without it.
#[must_use]
pub fn is_taken_apart(object: Any<'_, '_>) -> bool {
    Field::MethodFunc.applies(object) && !is_noticed(object)
}

/// Whether there is another reference to an object than its one owner's: it isn't new.
#[must_use]
pub fn is_shared(object: Any<'_, '_>) -> bool {
    refcount(object.as_ptr()) > 1
}

fn refcount(object: *mut PyObject) -> isize {
    // SAFETY: a live object.
    unsafe { ffi::Py_REFCNT(object) }
}

/// Whether an object outlives calls, or has parts that do. A code object outlives the generators that run it, because
/// functions have it; who refers to one weakly is a tool, such as TorchDynamo.
fn is_lasting(object: *mut PyObject) -> bool {
    // SAFETY: a live object.
    unsafe {
        ffi::PyType_Check(object) != 0
            || ffi::PyModule_Check(object) != 0
            || ffi::PyCode_Check(object) != 0
    }
}

/// Adds the objects that have few `owners` besides `object`, and those that are noticed: it may be their last owner but one.
fn children(object: *mut PyObject, owners: isize, found: &mut Vec<*mut PyObject>) {
    extern "C" fn visit(child: *mut PyObject, walk: *mut c_void) -> c_int {
        // SAFETY: what `children` hands to `tp_traverse`.
        let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
        let is_own = !child.is_null()
            && (refcount(child) <= walk.owners && !is_lasting(child)
                // SAFETY: a live object, which its owner keeps; whoever walks the heap has the GIL.
                || is_noticed_later(unsafe {
                    pyo3::Borrowed::from_ptr(Python::assume_attached(), child)
                }));
        if is_own && !walk.found.contains(&child) {
            walk.found.push(child);
        }
        c_int::from(walk.found.len() >= MOST)
    }
    let mut walk = Walk { owners, found };
    // SAFETY: a type's `tp_traverse` only tells what its instance holds; it's called as the garbage
    // collector calls it, with the GIL held.
    unsafe {
        if ffi::PyObject_IS_GC(object) != 0
            && let Some(traverse) = (*ffi::Py_TYPE(object)).tp_traverse
        {
            traverse(object, visit, (&raw mut walk).cast());
        }
    }
}

/// What [`children`] hands to `tp_traverse`.
struct Walk<'a> {
    owners: isize,
    found: &'a mut Vec<*mut PyObject>,
}

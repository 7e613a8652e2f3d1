//! What opcodes do beyond their frame, with CPython's semantics and error messages.
//!
//! Free functions, one file per family. They are the defaults of the tracer's `Sites`. A function
//! that fails leaves the exception set and returns [`Raised`](crate::Raised).

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::object::Object;
use crate::raised::{Raised, Result};

mod asynchronous;
mod attributes;
mod calls;
mod containers;
mod exceptions;
mod functions;
mod hashes;
mod imports;
mod iteration;
mod matching;
mod names;
mod operators;
mod results;
mod special;

pub use asynchronous::{before_async_with, get_aiter, get_anext, get_awaitable};
pub use attributes::{Method, before_with, get_attr, get_method, set_attr};
pub use calls::{call, call_ex, initialized, merge_kwargs, to_args_tuple, to_kwargs_dict};
pub use containers::{
    build_const_key_map, build_map, build_set, build_slice, build_string, dict_update, list_append,
    list_extend, list_to_tuple, map_add, set_add, set_update,
};
pub use exceptions::{
    Raise, check_except_star_type, check_except_type, is_stop_async_iteration, lacks, match_group,
    matches_exception, prepare_reraise_star, raise, traceback_of,
};
#[cfg(Py_3_12)]
pub use exceptions::{stop_iteration_error, stop_iteration_value};
#[cfg(Py_3_13)]
pub use functions::set_function_part;
pub use functions::{bare_function, load_build_class, make_function, print_expr, split_method};
pub use hashes::{get_hashed, hash, hash_of_tuple};
pub use imports::{import_from, import_name, import_star, setup_annotations};
pub use iteration::{Sent, get_iter, get_yield_from_iter, is_generator, next, send};
pub use matching::{get_len, is_mapping, is_sequence, match_class, match_keys, matches_itself};
#[cfg(not(Py_3_12))]
pub use names::load_from_locals;
pub use names::{
    load_cell, load_global, load_name, make_cell, raise_unbound_cell, raise_unbound_local,
    store_cell, store_global, store_name,
};
#[cfg(Py_3_12)]
pub use names::{load_from, load_from_or_globals, load_locals};
pub use operators::{
    BinaryOp, CompareOp, SUM_COMPENSATES, UnaryOp, binary, compare, contains, convert, format,
    get_item, plain_truth, set_item, truth, unary,
};
pub use results::Conversion;
pub use special::{
    Asked, asks_right_first, binary_rest, checked_bool, checked_iterator, checked_length,
    compare_rest, getattr_hook, is_exhausted, is_not_implemented, is_sequence_operand,
};

thread_local! {
    static EXECUTED: Cell<u64> = const { Cell::new(0) };
    static REFUSAL: RefCell<Option<Refusal>> = const { RefCell::new(None) };
}

/// The bit of [`EXECUTED`] that says that nothing may be done.
const REFUSING: u64 = 1 << 63;

/// What is raised instead.
struct Refusal {
    exception: Py<PyAny>,
    raised: bool,
}

/// How often this thread has done something here that may run code or change an object. Who knows
/// the number before an instruction knows whether any of it was executed.
#[inline]
pub fn executed() -> u64 {
    EXECUTED.get()
}

/// [`executed`] of the thread that made it, for who asks at each instruction: the number has moved to no other place.
#[derive(Clone, Copy, Debug)]
pub struct Executed(NonNull<Cell<u64>>);

impl Executed {
    /// This thread's.
    #[must_use]
    pub fn here() -> Self {
        EXECUTED.with(|executed| Self(NonNull::from(executed)))
    }

    /// [`executed`].
    #[inline(always)]
    #[must_use]
    pub fn get(self) -> u64 {
        // SAFETY: a pointer is neither sent to other threads nor shared with them, and this thread's number, which
        // nothing drops, lies where it is until the thread has ended.
        unsafe { self.0.as_ref() }.get()
    }
}

/// Counts something that was done elsewhere; see [`executed`].
#[inline(always)]
pub fn count() {
    EXECUTED.set(EXECUTED.get() + 1);
}

/// Takes back what was counted since [`executed`] gave `before`: it has changed nothing, and may be done again.
#[inline(always)]
pub fn uncount_since(before: u64) {
    EXECUTED.set(before & !REFUSING | EXECUTED.get() & REFUSING);
}

/// As [`count`], of something that is about to be done. An error where it is [refused](refuse).
#[inline(always)]
pub(crate) fn begin() -> Result<()> {
    // SAFETY: operations begin with the GIL held.
    debug_assert!(unsafe { ffi::PyErr_Occurred() }.is_null(), "an exception was left behind");
    let before = EXECUTED.get();
    EXECUTED.set(before + 1);
    if before & REFUSING == 0 { Ok(()) } else { refused() }
}

#[cold]
#[inline(never)]
fn refused() -> Result<()> {
    Python::attach(|py| {
        let exception = REFUSAL.with_borrow_mut(|refusal| {
            let Refusal { exception, raised } = refusal.as_mut()?;
            *raised = true;
            Some(exception.clone_ref(py))
        });
        match exception {
            Some(exception) => Err(Raised::set(py, PyErr::from_value(exception.into_bound(py)))),
            None => Ok(()),
        }
    })
}

/// From now on everything that this thread would do here raises this exception instead, until it is
/// allowed again: the rest of an instruction that must not be executed.
pub fn refuse(exception: Object<'_>) {
    EXECUTED.set(EXECUTED.get() | REFUSING);
    REFUSAL.set(Some(Refusal { exception: exception.unbind(), raised: false }));
}

/// What came of a refusal.
#[derive(Debug)]
pub enum Refused<'py> {
    /// There was none.
    No,
    /// Something was refused, by raising the exception.
    Raised,
    /// Nothing was: the exception.
    Unraised(Object<'py>),
}

/// Ends [`refuse`].
pub fn allow(py: Python<'_>) -> Refused<'_> {
    EXECUTED.set(EXECUTED.get() & !REFUSING);
    match REFUSAL.take() {
        None => Refused::No,
        Some(refusal) if refusal.raised => Refused::Raised,
        Some(refusal) => Refused::Unraised(refusal.exception.into_bound(py)),
    }
}

//! How the call of a builtin function ends that has called a Python method: `len(x)` behind
//! `x.__len__()`, `getattr(x, name)` behind a property.
//!
//! While the method runs, the function's arguments wait on the caller's stack.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, Asked, BinaryOp, CompareOp, Conversion};
use stator_cpython::{Raised, Result, generic};

/// What a builtin function makes of the result of a method that it has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It hands it on: `abs`, `round`, `next`.
    Value,
    /// It returns `None`: `setattr`.
    Nothing,
    /// It makes a value of a builtin type of it: `len`, `str`.
    Convert(Conversion),
    /// The truth value of any result: `isinstance`.
    Truth,
    /// `__bool__`'s result.
    Bool {
        /// `operator.not_`.
        inverted: bool,
    },
    /// `__len__`'s result, as a truth value.
    LengthTruth {
        /// `operator.not_`.
        inverted: bool,
    },
    /// An iterator: `iter`.
    Iterator,
    /// The next item, or the default behind the last one.
    NextOr,
    /// An attribute.
    Attribute {
        /// Whether `__getattr__` is asked next.
        next: bool,
    },
    /// An attribute, or the default.
    AttributeOr {
        /// Whether `__getattr__` is asked next.
        next: bool,
    },
    /// Whether there is such an attribute.
    HasAttribute {
        /// Whether `__getattr__` is asked next.
        next: bool,
    },
    /// A binary operator's result: `operator.add`.
    Binary(BinaryOp, Asked),
    /// A comparison's: `operator.lt`.
    Compare(CompareOp, Asked),
}

impl End {
    /// The function's result. `interrupts` is told before anything else is done, if anything is.
    ///
    /// # Errors
    /// What the function raises.
    pub fn finish<'py>(
        self,
        args: &[Borrowed<'_, 'py>],
        result: Result<Object<'py>>,
        interrupts: impl Fn(&'static str),
    ) -> Result<Object<'py>> {
        let py = args[0].py();
        let truth = |value: bool| PyBool::new(py, value).to_owned().into_any();
        match self {
            End::Value => result,
            End::Nothing => result.map(|_| py.None().into_bound(py)),
            End::Convert(conversion) => {
                let result = result?;
                if !conversion.is_plain(result.as_borrowed()) {
                    interrupts("a result of another type than a builtin function asks for");
                }
                conversion.apply(args[0], result)
            }
            End::Truth => {
                let result = result?;
                if !result.is_exact_instance_of::<PyBool>() && !result.is_none() {
                    interrupts("the truth value of what a method gives");
                }
                ops::truth(result.as_borrowed()).map(truth)
            }
            End::Bool { inverted } => {
                Ok(truth(ops::checked_bool(result?.as_borrowed())? ^ inverted))
            }
            End::LengthTruth { inverted } => {
                let result = result?;
                if !Conversion::Length.is_plain(result.as_borrowed()) {
                    interrupts("a length that isn't an int");
                }
                Ok(truth((ops::checked_length(result.as_borrowed())? > 0) ^ inverted))
            }
            End::Iterator => ops::checked_iterator(result?),
            End::NextOr => match result {
                Err(Raised) if ops::is_exhausted(py) => Ok(args[1].to_owned()),
                result => result,
            },
            End::Attribute { next } => or_getattr(args, next, result, interrupts)
                .map_err(|raised| ops::lacks(args[0], args[1], raised)),
            End::AttributeOr { next } => {
                or_missing(py, or_getattr(args, next, result, interrupts), || args[2].to_owned())
            }
            End::HasAttribute { next } => {
                let found = or_getattr(args, next, result, interrupts);
                or_missing(py, found.map(|_| truth(true)), || truth(false))
            }
            End::Binary(op, asked) => {
                let result = result?;
                if !is_refused(&result, asked) {
                    return Ok(result);
                }
                interrupts("an operator whose first operand refuses it");
                ops::binary_rest(op, asked, args[0], args[1])
            }
            End::Compare(op, asked) => {
                let result = result?;
                if !is_refused(&result, asked) {
                    return Ok(result);
                }
                interrupts("an operator whose first operand refuses it");
                ops::compare_rest(op, asked, args[0], args[1])
            }
        }
    }
}

fn is_refused(result: &Object<'_>, asked: Asked) -> bool {
    ops::is_not_implemented(result) && asked != Asked::Only
}

fn is_missing(py: Python<'_>) -> bool {
    generic::exception_matches::<PyAttributeError>(py)
}

/// `__getattr__`'s answer, where what was asked first has raised `AttributeError`.
fn or_getattr<'py>(
    args: &[Borrowed<'_, 'py>],
    next: bool,
    result: Result<Object<'py>>,
    interrupts: impl Fn(&'static str),
) -> Result<Object<'py>> {
    if result.is_ok() || !next || !is_missing(args[0].py()) {
        return result;
    }
    interrupts("an attribute that __getattr__ gives");
    ops::getattr_hook(args[0], args[1]).unwrap_or(Err(Raised))
}

fn or_missing<'py>(
    py: Python<'py>,
    found: Result<Object<'py>>,
    default: impl FnOnce() -> Object<'py>,
) -> Result<Object<'py>> {
    if found.is_ok() || !is_missing(py) {
        return found;
    }
    generic::clear_exception(py);
    Ok(default())
}

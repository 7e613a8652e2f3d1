//! Warnings and log records as a replay gives them: the call that gave one while recording is made again,
//! from frames that look like those it was made from.
//!
//! Only calls stand here whose arguments are plain values, and only as long as those who are told are
//! known code (see [`crate::listeners`]): so it doesn't matter that a replay makes them when its graph has
//! run and its writes are done.

use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use stator_cpython::object::Borrowed;
use stator_guards::ObjectId;

use crate::listeners::{self, Kept};
use crate::recipe::RecipeId;

/// One call of `warnings.warn`, `warnings.warn_explicit` or `Logger._log`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Emission {
    /// Functions and units of the frames, outermost first.
    pub frames: Box<[(RecipeId, u32)]>,
    /// What is called.
    pub callable: RecipeId,
    /// Its arguments: positional, then those named by `names`.
    pub args: Box<[RecipeId]>,
    /// A tuple of names.
    pub names: Option<ObjectId>,
    /// Who is told of what.
    pub told: Told<RecipeId>,
    /// How many of the trace's writes came before it.
    pub after: usize,
    /// As the `side_effects` log prints it.
    pub text: Box<str>,
    /// Where it was: code object and unit.
    pub place: (u32, u32),
}

/// What is given.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Told<T> {
    /// A warning.
    Warning {
        /// Its text.
        text: T,
        /// Its class, `UserWarning` if there is none.
        category: Option<T>,
    },
    /// A record of this logger.
    Record {
        /// The logger.
        logger: T,
    },
}

impl Told<Borrowed<'_, '_>> {
    /// The lists that keep it; `None`: who is told may do anything, or a filter may raise.
    pub fn kept(self, py: Python<'_>) -> Option<Kept> {
        match self {
            Told::Record { logger } => listeners::of_logger(logger),
            Told::Warning { text, category } => {
                let plain = py.get_type::<PyUserWarning>().into_any();
                let category = category.unwrap_or(plain.as_borrowed());
                if !listeners::is_plain_category(category) || listeners::may_raise(text, category) {
                    return None;
                }
                listeners::of_warnings(py)
            }
        }
    }
}

impl Emission {
    /// The recipes that a replay needs, in a fixed order.
    pub fn roots(&self) -> impl Iterator<Item = RecipeId> {
        let functions = self.frames.iter().map(|(function, _)| *function);
        functions.chain([self.callable]).chain(self.args.iter().copied())
    }
}

//! What a replay does when its graph has run: parts of outside objects that were written, warnings and log records.
//! `written` keeps them in order.

use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::member::{Member, Read};
use stator_cpython::object::Object;
use stator_guards::SourceId;

use super::heap;
use super::state::Slot;
use crate::emission::Told;
use crate::listeners::Kept;
use crate::resume::point::Spot;

/// What stands for a key in the slot of a container's elements as a whole. (Keys are addresses,
/// offsets of members multiples of a word.)
pub const CONTENTS: usize = 1;
/// As [`CONTENTS`], for the keys of a dictionary.
pub const KEYS: usize = 3;
/// As [`CONTENTS`], for what a cell holds.
pub const CELL: usize = 5;
/// As [`CONTENTS`], for the value of a context variable.
pub const CONTEXT: usize = 7;
/// As [`CONTENTS`], for how far an iterator has come.
pub const POSITION: usize = 9;
/// As [`CONTENTS`], for how often the results of a cached function were found, and which was used last.
pub const HITS: usize = 11;
/// As [`CONTENTS`], for the objects whose text a wrapper is making.
pub const RUNNING: usize = 13;

/// A part of an outside object that was written.
pub struct Effect {
    /// The object.
    pub object: Py<PyAny>,
    /// Its source.
    pub source: SourceId,
    /// The part.
    pub part: Part,
    /// What stands for the part in slots.
    pub(in crate::recorder) slot: usize,
    /// Where the last write was: code object and unit.
    pub place: (u32, u32),
}

/// A part of an object, by what it takes to read it.
pub enum Part {
    /// The value at a key of a dictionary.
    Item {
        /// The key.
        key: Py<PyAny>,
        /// Whether the entry was deleted in between and so moved to the end.
        moves: bool,
    },
    /// The contents of a cell.
    Cell,
    /// The value of a context variable.
    Context,
    /// A context variable that was reset with a token from before the trace.
    Reset(Py<PyAny>),
    /// A `__slots__` member, by name.
    Member(Py<PyAny>),
    /// An attribute of a class, by name.
    ClassAttribute(Py<PyAny>),
    /// The elements of a list.
    Elements,
    /// The elements of a list behind the first so many.
    Added {
        /// How many it has kept of those that it held before.
        kept: usize,
        /// How many were taken out in front.
        dropped: usize,
    },
    /// A set or a deque: the methods that changed it, which a replay calls again, because the order of a
    /// set depends on its history. Or a cached function: the calls that found a result.
    Calls(Vec<MethodCall>),
    /// How often an iterator was advanced.
    Advanced(usize),
    /// Where a generator stands.
    Generator,
}

/// A call of a method of a C container.
#[derive(Debug)]
pub struct MethodCall {
    /// The method's name.
    pub method: Box<str>,
    /// Its arguments; of an iterable, a copy.
    pub args: Vec<Py<PyAny>>,
}

impl MethodCall {
    pub(in crate::recorder) fn clone_ref(&self, py: Python<'_>) -> Self {
        let args = self.args.iter().map(|arg| arg.clone_ref(py)).collect();
        Self { method: self.method.clone(), args }
    }
}

/// What a written part holds at the end of the call.
pub enum Last<'a, 'py> {
    /// An object.
    Value(Object<'py>),
    /// Nothing: it was deleted.
    Nothing,
    /// Several elements, in order.
    Elements(Vec<Object<'py>>),
    /// What the calls made of it.
    Calls(&'a [MethodCall]),
    /// What a generator of its code would hold that stands there.
    Rested,
}

impl Effect {
    pub(in crate::recorder) fn clone_ref(&self, py: Python<'_>) -> Self {
        let part = match &self.part {
            Part::Item { key, moves } => Part::Item { key: key.clone_ref(py), moves: *moves },
            Part::Cell => Part::Cell,
            Part::Context => Part::Context,
            Part::Reset(token) => Part::Reset(token.clone_ref(py)),
            Part::Member(name) => Part::Member(name.clone_ref(py)),
            Part::ClassAttribute(name) => Part::ClassAttribute(name.clone_ref(py)),
            Part::Elements => Part::Elements,
            Part::Added { kept, dropped } => Part::Added { kept: *kept, dropped: *dropped },
            Part::Calls(calls) => {
                Part::Calls(calls.iter().map(|call| call.clone_ref(py)).collect())
            }
            Part::Advanced(times) => Part::Advanced(*times),
            Part::Generator => Part::Generator,
        };
        let object = self.object.clone_ref(py);
        Self { object, source: self.source, part, slot: self.slot, place: self.place }
    }

    /// The part as a slot.
    pub fn slot(&self) -> Slot {
        (self.object.as_ptr() as usize, self.slot)
    }

    /// What the part holds now.
    pub fn last<'py>(&self, py: Python<'py>) -> Last<'_, 'py> {
        let object = self.object.bind_borrowed(py);
        let found = match &self.part {
            Part::Item { key, .. } => heap::dict_get(object, key.bind_borrowed(py)),
            Part::Cell => value(object, Field::CellContents),
            Part::Context => stator_cpython::heap::context::own_value(object),
            Part::Reset(token) => Some(token.bind(py).clone()),
            Part::Member(_) => match Member::new(self.slot).read(object) {
                Read::Value(value) => Some(value),
                Read::Unset | Read::NoMember => None,
            },
            Part::ClassAttribute(name) => {
                let class = object.cast::<PyType>().expect("a class was written");
                stator_cpython::generic::class_value(&class, name.bind_borrowed(py))
            }
            Part::Elements => return Last::Elements(heap::list_items(object)),
            Part::Added { kept, .. } => {
                return Last::Elements(heap::list_items(object).split_off(*kept));
            }
            Part::Calls(calls) => return Last::Calls(calls),
            Part::Advanced(_) => None,
            Part::Generator => return Last::Rested,
        };
        found.map_or(Last::Nothing, Last::Value)
    }
}

/// A warning or log record that the trace gave.
pub struct Emitted {
    /// Functions and units of the frames, outermost first.
    pub(in crate::recorder) frames: Vec<(Py<PyAny>, u32)>,
    pub(in crate::recorder) callable: Py<PyAny>,
    pub(in crate::recorder) args: Vec<Py<PyAny>>,
    pub(in crate::recorder) names: Option<Py<PyAny>>,
    pub(in crate::recorder) told: Told<usize>,
    /// How many parts of outside objects were written before.
    pub after: usize,
    pub(in crate::recorder) text: Box<str>,
    pub(in crate::recorder) place: (u32, u32),
    pub(in crate::recorder) kept: Kept,
    /// What says who is told of it: dictionaries and lists, by address.
    pub(in crate::recorder) asked: Vec<usize>,
    /// Containers among the arguments, with what they held.
    pub(in crate::recorder) contents: Vec<(Py<PyAny>, Vec<Py<PyAny>>)>,
    /// How many nodes came before it, if tensors are among its arguments: a replay gives it when its graph has run.
    pub(in crate::recorder) tensors_at: Option<usize>,
    /// Where the next trace ends, should this one turn out wrong.
    pub spot: Option<Spot>,
}

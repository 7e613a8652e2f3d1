//! Objects that must be different ones.
//!
//! C code compares them: elements of sets, keys of dictionaries, what a list is searched for.
//!
//! C code takes one object for itself before it asks anything else. So what it found depends on which
//! outside objects are the same: those that are the same at entry are guarded as such when they are
//! found, and those that aren't, here. Constants are guarded by value, which settles what C code finds of
//! them; a NaN, which is found only as the object that it is, by identity as well.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyTuple};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{Guard, GuardKind, SourceId};

use super::identity::is_nan;
use crate::functions::{Functions, Traits};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};

impl State {
    /// Takes note of an object that is hashed, or of the members of a container that are.
    pub fn note_hashed(&mut self, object: Borrowed<'_, '_>) {
        self.note_compared(object, false);
    }

    /// Takes note of an object that is compared with others, deeply.
    pub fn note_equated(&mut self, object: Borrowed<'_, '_>) {
        self.note_compared(object, true);
    }

    /// Takes note of what a C function that hands objects on compares with one another.
    pub fn note_searched(
        &mut self,
        functions: &Functions,
        callable: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) {
        let traits = functions.traits(callable);
        let compares = traits.has(Traits::SEARCHES)
            || args.iter().any(|arg| {
                self.kind_alone(*arg) == Kind::Builtin
                    && functions.traits(*arg).has(Traits::COMPARES)
            });
        if compares {
            args.iter().for_each(|arg| self.note_equated(*arg));
        } else if traits.has(Traits::ORDERS) {
            // Tuples are ordered by the first elements that aren't the same or equal.
            for item in args.iter().flat_map(|arg| heap::children(*arg)) {
                if matches!(self.kind_alone(item.as_borrowed()), Kind::Tuple | Kind::List) {
                    self.note_equated(item.as_borrowed());
                }
            }
        }
    }

    /// Fails if an object is or holds one that decides what it equals by a state that nothing guards.
    pub fn refuse_own_equality(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        let parts = match self.kind_alone(object) {
            Kind::Opaque | Kind::Object => return self.refuse_own_answers(object, &["__eq__"]),
            Kind::List | Kind::Tuple => heap::children(object),
            Kind::Dict => heap::dict_items(object).into_iter().map(|(_, value)| value).collect(),
            _ => return Ok(()),
        };
        let mut parts = parts.iter();
        self.once(object, Ok(()), |state| {
            parts.try_for_each(|part| state.refuse_own_equality(part.as_borrowed()))
        })
    }

    /// Whether to compare a tuple asks an object in it: its class says in Python which one is less, or equal.
    pub fn asks_objects(&mut self, tuple: Borrowed<'_, '_>) -> bool {
        self.kind_alone(tuple) == Kind::Tuple
            && heap::children(tuple).iter().map(Bound::as_borrowed).any(|held| {
                self.kind_alone(held) == Kind::Object
                    && (heap::is_ordered_in_python(held) || heap::is_equated_in_python(held))
            })
    }

    fn note_compared(&mut self, object: Borrowed<'_, '_>, values: bool) {
        let items = match self.kind_alone(object) {
            Kind::Constant if is_nan(object) => return self.guard_one_constant(object),
            // By value, or by an identity that is guarded.
            Kind::Constant
            | Kind::Type
            | Kind::Module
            | Kind::Singleton
            | Kind::TorchCallable
            | Kind::Code
            | Kind::Iterator => return,
            // Methods of one object are equal.
            Kind::Builtin | Kind::Method => {
                if let Some((receiver, function)) = heap::bound_parts(object) {
                    self.note_identified(receiver.as_borrowed());
                    self.note_identified(function.as_borrowed());
                }
                return;
            }
            Kind::Tuple => heap::tuple_items(object),
            Kind::List => heap::list_items(object),
            Kind::Set | Kind::FrozenSet => heap::set_items(object),
            // The keywords of most calls.
            Kind::Dict if heap::dict_length(object) == 0 => return,
            Kind::Dict => {
                let items = heap::dict_items(object).into_iter();
                items
                    .flat_map(|(key, value)| [Some(key), values.then_some(value)])
                    .flatten()
                    .collect()
            }
            _ => return self.note_identified(object),
        };
        let is_value = |item: &Object<'_>| {
            self.kind_alone(item.as_borrowed()) == Kind::Constant && !is_nan(item.as_borrowed())
        };
        if items.iter().all(is_value) {
            return;
        }
        self.once(object, (), |state| {
            items.iter().for_each(|item| state.note_compared(item.as_borrowed(), values));
        });
    }

    /// Takes note of an object that is compared as the object that it is.
    fn note_identified(&mut self, object: Borrowed<'_, '_>) {
        if let Some(source) = self.source(object)
            && !self.is_identity_guarded(object)
        {
            self.distinct.compare(source);
        }
    }

    /// Guards that the objects which were compared are different ones.
    pub fn guard_compared_distinct(&mut self) {
        let mut sources: Vec<_> = self.distinct.compared().collect();
        sources.sort_unstable();
        if let [first, rest @ ..] = sources.as_slice()
            && !rest.is_empty()
        {
            self.guard(*first, GuardKind::Distinct(rest.into()));
        }
    }

    /// Guards that a constant is the same object in each call: an equal one may stand at one of the places
    /// where it was read, which `is` tells, or C code of a NaN.
    pub fn guard_one_constant(&mut self, constant: Borrowed<'_, '_>) {
        if heap::is_shared_constant(constant) {
            return;
        }
        let places = self.places_read(constant);
        if heap::is_interned(constant) || constant.is_exact_instance_of::<PyFloat>() {
            // The other one may be written in the code, or found where nothing is read.
            let id = self.object(constant);
            places.into_iter().for_each(|place| self.guard(place, GuardKind::Is(id)));
        } else if let Some((&first, rest)) = places.split_first() {
            rest.iter().for_each(|place| self.guard(*place, GuardKind::SameAs(first)));
        }
    }

    /// Guards that equal constants are two objects, as they were found; whether that can be: both were read outside.
    pub fn guard_two_constants(&mut self, left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
        let [lefts, rights] = [left, right].map(|constant| self.places_read(constant));
        let are_read = !lefts.is_empty() && !rights.is_empty();
        for place in lefts.into_iter().filter(|_| are_read) {
            for other in &rights {
                self.guard(place, GuardKind::Distinct(Box::new([*other])));
            }
        }
        are_read
    }

    /// Whether a set from outside holds a constant, of which an equal one may be there in the next call.
    pub fn is_known_by_value(&mut self, constant: Borrowed<'_, '_>) -> bool {
        !self.by_value.is_empty() && {
            let id = self.object(constant);
            self.by_value.contains(&id)
        }
    }

    /// The outside places where a constant was read.
    fn places_read(&mut self, constant: Borrowed<'_, '_>) -> Vec<SourceId> {
        let id = self.object(constant);
        let is_read = |guard: &&Guard| matches!(guard.kind, GuardKind::Equals(read) if read == id);
        let mut places: Vec<_> =
            self.guards.iter().filter(is_read).map(|guard| guard.source).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Whether a NaN is neither read outside nor written in the code: the next call makes another.
    pub fn is_new_nan(&mut self, nan: Borrowed<'_, '_>) -> bool {
        let py = nan.py();
        self.places_read(nan).is_empty()
            && !self.frames.codes().iter().any(|code| {
                let constants = code.bind(py).getattr("co_consts");
                constants.is_ok_and(|constants| holds(constants.as_borrowed(), nan))
            })
    }

    /// Whether a tuple of constants holds such a NaN.
    pub fn holds_new_nan(&mut self, tuple: Borrowed<'_, '_>) -> bool {
        heap::tuple_items(tuple).iter().any(|item| match self.kind_alone(item.as_borrowed()) {
            Kind::Constant if is_nan(item.as_borrowed()) => self.is_new_nan(item.as_borrowed()),
            Kind::Tuple => self.holds_new_nan(item.as_borrowed()),
            _ => false,
        })
    }

    /// Guards that two outside objects aren't the same.
    pub fn guard_distinct(&mut self, left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) {
        let (Some(a), Some(b)) = (self.source(left), self.source(right)) else { return };
        if self.is_identity_guarded(left) && self.is_identity_guarded(right) {
            return;
        }
        if self.kind(left) != self.kind(right) || !left.get_type().is(right.get_type()) {
            return;
        }
        let key = (a.index().min(b.index()), a.index().max(b.index()));
        if self.distinct.first_pair(key) {
            self.guard(a, GuardKind::Distinct(Box::new([b])));
        }
    }

    /// Guards that the graph's inputs are different tensors: each has one placeholder.
    pub fn guard_tensors_distinct(&mut self) {
        let tensors: Vec<_> = self
            .inputs
            .sources()
            .iter()
            .copied()
            .filter(|input| !self.is_outside_number(*input))
            .collect();
        if let Some((&first, rest)) = tensors.split_first()
            && !rest.is_empty()
        {
            self.guards.push(Guard {
                source: first,
                kind: GuardKind::Distinct(rest.into()),
                location: None,
            });
        }
    }
}

/// Whether a code object's constants hold this object.
fn holds(constants: Borrowed<'_, '_>, object: Borrowed<'_, '_>) -> bool {
    heap::children(constants).iter().any(|constant| {
        constant.is(object)
            || (constant.is_exact_instance_of::<PyTuple>() && holds(constant.as_borrowed(), object))
    })
}

//! Containers as a whole: guarding what C code is about to read, vouching for what it made.

use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use stator_cpython::heap::iterator;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops;

use super::getters;
use crate::breaks::Reason;
use crate::recorder::notes::effects::POSITION;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::numbers::lazy_readers::referents;
use crate::within;

/// So many iterators are looked through, one within the other.
const REACH: usize = 16;

/// So many objects of a container are looked at that may stand where another one stood.
const KNOWN: usize = 64;

impl State {
    /// As [`Looks::adopt_deep`]; who `hands_on` what it finds doesn't look at what weak references refer to.
    pub fn adopt_whole(&mut self, object: Borrowed<'_, '_>, hands_on: bool) -> Result<(), Stop> {
        let container = matches!(self.kind(object), Kind::Dict | Kind::List | Kind::Tuple);
        if !container && !heap::is_deque(object) {
            return self.adopt_parts(object, hands_on);
        }
        self.guard_readers(object)?;
        self.once(object, Ok(()), |state| state.adopt_parts(object, hands_on))
    }

    fn adopt_parts(&mut self, object: Borrowed<'_, '_>, hands_on: bool) -> Result<(), Stop> {
        match self.kind(object) {
            Kind::Dict => {
                self.adopt_dict(object)?;
                heap::dict_items(object)
                    .iter()
                    .try_for_each(|(_, value)| self.adopt_whole(value.as_borrowed(), hands_on))
            }
            Kind::List | Kind::Tuple => heap::sequence_items(object).iter().try_for_each(|item| {
                // Who gets a container out of it reads what it reads: a dictionary slot by slot, a list that nobody
                // has read maybe not at all.
                let item = item.as_borrowed();
                let is_passed = hands_on
                    && self.source(item).is_some()
                    && (self.kind_alone(item) == Kind::Dict || heap::is_exact_list(item));
                if is_passed { Ok(()) } else { self.adopt_whole(item, hands_on) }
            }),
            // What one refers to is guarded when it is called.
            Kind::Object if hands_on && heap::is_weak_reference(object) => Ok(()),
            // Nobody looks at what it says.
            Kind::Object if hands_on && self.is_plain_value(object) => Ok(()),
            Kind::Object if heap::is_deque(object) && !hands_on => {
                self.refuse_native_state(object)?;
                let elements = heap::elements(object);
                elements.iter().try_for_each(|item| self.adopt_whole(item.as_borrowed(), false))
            }
            Kind::Object => self.refuse_native_state(object),
            Kind::Iterator if self.is_others_iterator(object) => {
                Err((Reason::OutsideIterator, heap::type_name(object)))
            }
            Kind::Iterator if !hands_on => self.adopt_within_reach(object, 0),
            // No guard speaks of its bytes.
            Kind::Opaque if !hands_on && object.is_exact_instance_of::<PyByteArray>() => {
                Err((Reason::Unsupported, heap::type_name(object)))
            }
            _ => Ok(()),
        }
    }

    /// As [`State::adopt_whole`], of what an iterator of C code's goes over. What a frame gives is looked at when it does.
    pub(super) fn adopt_within_reach(
        &mut self,
        iterator: Borrowed<'_, '_>,
        depth: usize,
    ) -> Result<(), Stop> {
        if ops::is_generator(iterator) || self.is_others_iterator(iterator) {
            return Ok(());
        }
        if depth > REACH {
            return Err((Reason::OutsideIterator, "iterators within iterators".into()));
        }
        for part in referents(iterator) {
            let part = part.as_borrowed();
            match self.kind_alone(part) {
                Kind::Dict | Kind::List | Kind::Tuple | Kind::Set | Kind::FrozenSet => {
                    self.adopt_whole(part, false)?;
                }
                Kind::Object if heap::is_deque(part) => self.adopt_whole(part, false)?,
                Kind::Iterator => self.adopt_within_reach(part, depth + 1)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Vouches for objects that C code made: what's known or constant stays as it is, containers
    /// and iterators are fresh, deeply. Fails for tensors and objects nobody recorded.
    pub fn register(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        let kind = self.kind_alone(object);
        let is_known = match self.origin(object) {
            // Another container of this trace may have stood there: what that held is known.
            Some(Origin::Fresh) if kind == Kind::Tuple => self.knows_items(object),
            Some(Origin::Fresh) if matches!(kind, Kind::Dict | Kind::List) => {
                !self.holds_unknown_container(object, &mut { KNOWN })
            }
            origin => origin.is_some(),
        };
        if kind == Kind::Constant || is_known {
            return Ok(());
        }
        match kind {
            Kind::Tensor if self.enclosed.is_on() => {
                self.enclose_tensor(object);
                return Ok(());
            }
            Kind::Tensor => {
                return Err((
                    Reason::UnknownOrigin,
                    "a tensor made by a call that isn't recorded".into(),
                ));
            }
            Kind::Builtin if let Some((receiver, _)) = heap::bound_parts(object) => {
                self.set_fresh(object);
                return self.register(receiver.as_borrowed());
            }
            Kind::Type
            | Kind::Builtin
            | Kind::Singleton
            | Kind::TorchCallable
            | Kind::Module
            | Kind::Code => {
                self.anchor(object);
                return Ok(());
            }
            Kind::Opaque => return Err((Reason::Unsupported, heap::type_name(object))),
            _ => self.set_fresh(object),
        }
        match kind {
            Kind::List => heap::list_items(object)
                .iter()
                .try_for_each(|item| self.register(item.as_borrowed())),
            Kind::Tuple => heap::tuple_items(object)
                .iter()
                .try_for_each(|item| self.register(item.as_borrowed())),
            Kind::Dict => heap::dict_items(object).iter().try_for_each(|(key, value)| {
                self.note_hashed(key.as_borrowed());
                self.register(key.as_borrowed())?;
                self.register(value.as_borrowed())
            }),
            Kind::Set | Kind::FrozenSet => {
                self.note_hashed(object);
                Ok(())
            }
            Kind::Method => {
                let (function, receiver) = heap::method_parts(object);
                self.register_function(function.as_borrowed())?;
                self.register(receiver.as_borrowed())
            }
            _ => Ok(()),
        }
    }

    /// Whether all that a tuple holds is known.
    pub(in crate::recorder) fn knows_items(&mut self, tuple: Borrowed<'_, '_>) -> bool {
        heap::tuple_items(tuple).iter().all(|item| {
            let item = item.as_borrowed();
            self.origin(item).is_some() || self.kind_alone(item) == Kind::Constant
        })
    }

    /// Whether a container holds lists, tuples or dictionaries that nobody knows, among so many objects of it.
    fn holds_unknown_container(&mut self, container: Borrowed<'_, '_>, most: &mut usize) -> bool {
        heap::children(container).iter().any(|item| {
            let Some(left) = most.checked_sub(1) else { return false };
            *most = left;
            let item = item.as_borrowed();
            let is_container =
                matches!(self.kind_alone(item), Kind::Dict | Kind::List | Kind::Tuple);
            match self.origin(item) {
                _ if !is_container => false,
                Some(Origin::Fresh) => self.holds_unknown_container(item, most),
                origin => origin.is_none(),
            }
        })
    }

    /// As [`State::register`] for what `__reduce_ex__` returns: functions in it are the library's,
    /// and a dictionary may be the object's own.
    pub fn register_parts(&mut self, parts: Borrowed<'_, '_>) -> Result<(), Stop> {
        for part in heap::tuple_items(parts) {
            self.register_function(part.as_borrowed())?;
        }
        self.set_fresh(parts);
        Ok(())
    }

    /// Vouches for a function that C code handed out (through a type that's guarded).
    pub fn register_function(&mut self, function: Borrowed<'_, '_>) -> Result<(), Stop> {
        if self.origin(function).is_none() && self.kind(function) == Kind::Function {
            self.anchor(function);
            return Ok(());
        }
        self.register(function)
    }
}

/// Constants, and containers of builtin types that hold only such (functions, their code and classes pass: they
/// are known by identity).
pub(in crate::recorder) fn is_plain(state: &mut State, object: Borrowed<'_, '_>) -> bool {
    state.once(object, true, |state| has_plain_parts(state, object))
}

fn has_plain_parts(state: &mut State, object: Borrowed<'_, '_>) -> bool {
    match state.kind(object) {
        Kind::Builtin => !state.is_own_method(object),
        Kind::Constant | Kind::Type | Kind::Singleton | Kind::Function | Kind::Code => true,
        Kind::List => {
            heap::list_items(object).iter().all(|item| is_plain(state, item.as_borrowed()))
        }
        Kind::Tuple => {
            heap::tuple_items(object).iter().all(|item| is_plain(state, item.as_borrowed()))
        }
        Kind::Set | Kind::FrozenSet => {
            heap::set_items(object).iter().all(|item| is_plain(state, item.as_borrowed()))
        }
        Kind::Dict => heap::dict_items(object).iter().all(|(key, value)| {
            is_plain(state, key.as_borrowed()) && is_plain(state, value.as_borrowed())
        }),
        // Generators made by this trace: their frames are traced.
        Kind::Iterator => {
            state.origin(object) == Some(Origin::Fresh) || state.has_gone_on_in(object)
        }
        _ => false,
    }
}

impl State {
    /// Whether the trace has gone on in a generator from outside, or in those that a `zip` goes over.
    pub(in crate::recorder) fn has_gone_on_in(&self, object: Borrowed<'_, '_>) -> bool {
        let is_first_part = |part: Object<'_>| self.has_gone_on_in(part.as_borrowed());
        self.written.has(&(object.as_ptr() as usize, POSITION))
            && (ops::is_generator(object) || iterator::over(object, 0).is_some_and(is_first_part))
    }

    /// Whether an object is an iterator from outside that the trace can't advance as it likes.
    pub(in crate::recorder) fn is_others_iterator(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.is_made_over(object)
            || self.kind(object) == Kind::Iterator
                && self.source(object).is_some()
                && !self.has_gone_on_in(object)
    }

    /// Fails for an outside object whose state C code would read: nothing guards it.
    pub fn refuse_native_state(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        let outside =
            self.kind(object) == Kind::Object && self.origin(object) != Some(Origin::Fresh);
        if outside && heap::is_deque(object) {
            return self.read_deque(object);
        }
        if outside && getters::is_constant(object) {
            return self.know_for_good(object);
        }
        // A number or a text of a class of its own never becomes another one.
        if outside && heap::is_of_value_class(object) && self.source(object).is_some() {
            return self.know_value(object);
        }
        if outside && self.has_native_state(object) && !within::is_function_like(object) {
            return Err((
                Reason::Unsupported,
                format!("the state of a {}", heap::type_name(object)),
            ));
        }
        Ok(())
    }
}

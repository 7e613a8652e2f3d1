//! Special methods that C code looks up by itself: their lookups are guarded before it does.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::BinaryOp;
use stator_evaluator::Role;
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::functions::Class;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::effects::KEYS;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};

/// The methods by which C code may read, show, compare or replace a container.
const READERS: &[&str] = &[
    "__len__",
    "__getitem__",
    "__iter__",
    "__contains__",
    "__bool__",
    "__index__",
    "__float__",
    "__eq__",
    "__lt__",
    "__hash__",
    "__str__",
    "__repr__",
    "__format__",
    "__bytes__",
    "__array__",
    "__torch_function__",
    "keys",
    "items",
];

/// The special methods that C functions of the table's transparent class call back.
pub(in crate::recorder) const CALLED_BACK: &[&str] = &[
    "__iter__",
    "__next__",
    "__len__",
    "__length_hint__",
    "__lt__",
    "__gt__",
    "__eq__",
    "__bool__",
    "__getitem__",
    "__hash__",
    "__reversed__",
    "__add__",
    "__radd__",
    "__call__",
    "keys",
];

/// So deep in lists and tuples C code looks for such containers.
const DEPTH: usize = 4;

impl Recorder {
    /// C code is given these: see [`State::guard_readers`].
    #[inline]
    pub(in crate::recorder) fn guard_readers(
        &self,
        frame: &Frame<'_>,
        class: &Class,
        given: &[Borrowed<'_, '_>],
    ) {
        // Functions of values say which containers they look into, and others don't look: a list may be long.
        let depth = if matches!(class, Class::Operation(_)) { DEPTH } else { 0 };
        given.iter().for_each(|object| self.guard_readers_within(frame, *object, depth));
    }

    fn guard_readers_within(&self, frame: &Frame<'_>, object: Borrowed<'_, '_>, depth: usize) {
        if types::is_container_of_a_class(object) {
            self.note(frame, |state| state.guard_readers(object));
        } else if depth > 0 && (heap::is_exact_list(object) || heap::is_plain_tuple(object)) {
            for item in heap::sequence_items(object) {
                self.guard_readers_within(frame, item.as_borrowed(), depth - 1);
            }
        }
    }

    /// A frame returns or yields a value. If C code has called it and does more than keep what it gives, that is guarded as if
    /// the C code had been given it.
    pub(in crate::recorder) fn read_handed(&self, frame: &Frame<'_>, value: Borrowed<'_, '_>) {
        if self.is_stopped() || !self.is_called_by_c(frame) {
            return;
        }
        let waiting = |caller: Frame<'_>| self.collecting.borrow().contains(&caller.id());
        let is_read = matches!(
            self.state.borrow_mut().kind_alone(value),
            Kind::Dict
                | Kind::List
                | Kind::Tuple
                | Kind::Set
                | Kind::FrozenSet
                | Kind::Iterator
                | Kind::Object
                | Kind::Opaque
                | Kind::Partial
        );
        if is_read && !frame.previous().is_some_and(waiting) {
            let spells = |caller: Frame<'_>| caller.id() == self.speller.get();
            let is_spelt = self.speller.get() != 0 && frame.previous().is_some_and(spells);
            self.note(frame, |state| {
                state.adopt_deep(value)?;
                if is_spelt { state.know_text(value) } else { Ok(()) }
            });
            self.guard_protocol(frame, value, CALLED_BACK);
        }
    }

    /// Guards what C code finds on the type of a user's object before it calls it back.
    pub(in crate::recorder) fn guard_protocol(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, '_>,
        names: &[&'static str],
    ) {
        let has_methods = || {
            matches!(
                self.kind(object),
                Kind::Object | Kind::List | Kind::Dict | Kind::Tuple | Kind::Singleton
            )
        };
        if !self.is_stopped() && has_methods() {
            self.guard_protocol_of(frame, object, names);
        }
    }

    /// As `guard_protocol`, where the result depends on what the object answers: an opaque one answers by a state that
    /// nothing guards.
    pub(in crate::recorder) fn guard_answers(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, '_>,
        names: &[&'static str],
    ) {
        self.note(frame, |state| state.refuse_own_answers(object, names));
        self.guard_protocol(frame, object, names);
    }

    /// Whether a special method of a type is asked for the first time in this trace.
    pub(in crate::recorder) fn first_asks(
        &self,
        ty: &Bound<'_, PyType>,
        name: &'static str,
    ) -> bool {
        let name = name.as_ptr() as usize ^ name.len() << 48;
        self.state.borrow_mut().lookups.first_protocol((ty.as_ptr() as usize, name))
    }

    /// Guards what the length and the truth value of a container depend on.
    pub(in crate::recorder) fn guard_length(&self, frame: &Frame<'_>, object: Borrowed<'_, '_>) {
        self.note(frame, |state| match state.kind(object) {
            // Lists, tuples and sets are guarded as a whole when they are found.
            Kind::Constant
            | Kind::Tensor
            | Kind::List
            | Kind::Tuple
            | Kind::Set
            | Kind::FrozenSet => Ok(()),
            Kind::Dict => {
                if state.written.dict(object.as_ptr() as usize) {
                    // Which of the counted keys this trace made depends on all of them.
                    return state.know_keys(object);
                }
                if let Some(source) = state.objects.first_sized(object) {
                    state.reads.first((object.as_ptr() as usize, KEYS));
                    state.guard(source, GuardKind::DictLength(heap::dict_length(object)));
                }
                Ok(())
            }
            Kind::Iterator if state.origin(object) == Some(Origin::Fresh) => Ok(()),
            Kind::Object if state.origin(object).is_some() => state.refuse_native_state(object),
            Kind::Singleton if object.is_instance_of::<PyString>() => Ok(()),
            _ => Err((Reason::Unsupported, format!("len() of a {}", heap::type_name(object)))),
        });
        self.guard_protocol(frame, object, &["__len__"]);
    }

    /// Guards by which methods keys are found.
    pub(in crate::recorder) fn guard_key(&self, frame: &Frame<'_>, keys: &[Borrowed<'_, '_>]) {
        for key in keys {
            self.guard_answers(frame, *key, &["__hash__", "__eq__"]);
        }
    }

    /// As `guard_protocol`, for instances of subclasses of containers too.
    #[inline]
    pub(in crate::recorder) fn guard_protocol_of(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, '_>,
        names: &[&'static str],
    ) {
        let ty = object.get_type();
        if stator_cpython::heap::types::is_immutable(ty.as_borrowed()) {
            return;
        }
        self.guard_methods(frame, &ty, names);
    }

    /// C code calls a special method of which no site has heard, as `chain` does with what a generator gives it: that the
    /// receiver's class has it is guarded, if the trace knows the receiver.
    pub(in crate::recorder) fn know_special(&self, frame: &Frame<'_>) {
        let (function, own) = (frame.function(), frame.code());
        let receiver = (own.nlocalsplus() > 0).then(|| frame.local(0)).flatten();
        let Some(receiver) = receiver else { return };
        let is_asked = self.state.try_borrow().is_ok_and(|state| {
            let knows = state.origin(receiver).is_some_and(|origin| {
                matches!(origin, Origin::Source(_) | Origin::Node(_) | Origin::Fresh)
            });
            state.origin(function).is_none() && knows
        });
        if !is_asked {
            return;
        }
        let ty = receiver.get_type();
        for name in special_names(&ty, function) {
            self.lookup(frame, &ty, name.as_borrowed());
        }
    }

    fn guard_methods(&self, frame: &Frame<'_>, ty: &Bound<'_, PyType>, names: &[&'static str]) {
        for name in names {
            if !self.first_asks(ty, name) {
                continue;
            }
            let name = pyo3::types::PyString::intern(frame.py(), name);
            self.lookup(frame, ty, name.as_any().as_borrowed());
        }
    }

    /// A special method of an object's class, if it is a Python function; its lookup is guarded.
    pub(in crate::recorder) fn special<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        name: &'static str,
    ) -> Option<Object<'py>> {
        if self.is_stopped() || self.kind(object) != Kind::Object {
            return None;
        }
        let method = self.special_of_any(frame, object, &PyString::intern(frame.py(), name))?;
        (!self.is_stopped()).then_some(method)
    }

    /// As [`Recorder::special`], of an object of any kind.
    pub(in crate::recorder) fn special_of_any<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        name: &Bound<'py, PyString>,
    ) -> Option<Object<'py>> {
        let ty = object.get_type();
        if types::is_immutable(ty.as_borrowed()) {
            return None;
        }
        let method = self.lookup(frame, &ty, name.as_any().as_borrowed())?;
        (self.kind(method.as_borrowed()) == Kind::Function).then_some(method)
    }

    /// The role of what gives an attribute of a type's instances, before `__getattr__` does.
    pub(in crate::recorder) fn getter(&self, ty: &Bound<'_, PyType>) -> Role {
        let hook = pyo3::intern!(ty.py(), "__getattr__").as_any().as_borrowed();
        Role::Getter { next: types::lookup(ty.as_borrowed(), hook).is_some() }
    }
}

impl State {
    /// C code is about to read a container: if its class can get other methods, those by which it may be read are guarded.
    #[inline]
    pub fn guard_readers(&mut self, container: Borrowed<'_, '_>) -> Result<(), Stop> {
        if types::is_container_of_a_class(container) {
            return self.guard_readers_of(&container.get_type());
        }
        Ok(())
    }

    #[cold]
    fn guard_readers_of(&mut self, ty: &Bound<'_, PyType>) -> Result<(), Stop> {
        if !self.lookups.first_protocol((ty.as_ptr() as usize, READERS.as_ptr() as usize)) {
            return Ok(());
        }
        for name in READERS {
            let name = PyString::intern(ty.py(), name);
            let name = name.as_any().as_borrowed();
            let found = types::lookup(ty.as_borrowed(), name);
            let found = found.as_ref().map(|found| found.as_borrowed());
            self.guard_lookup(ty, name, found, Use::default())?;
        }
        Ok(())
    }

    /// Fails if an object answers one of these by a state that nothing guards.
    pub fn refuse_own_answers(
        &mut self,
        object: Borrowed<'_, '_>,
        names: &[&'static str],
    ) -> Result<(), Stop> {
        let kind = self.kind(object);
        if !matches!(kind, Kind::Opaque | Kind::Object) {
            return Ok(());
        }
        let ty = object.get_type();
        match names.iter().find(|name| answers_by_itself(&ty, name)) {
            Some(name) if kind == Kind::Opaque => {
                Err((Reason::Unsupported, format!("{name} of a {}", heap::type_name(object))))
            }
            Some(_) => self.refuse_native_state(object),
            None => Ok(()),
        }
    }
}

/// Whether a type has a special method that isn't `object`'s.
pub(in crate::recorder) fn answers_by_itself(ty: &Bound<'_, PyType>, name: &str) -> bool {
    let default = types::lookup_named(&ty.py().get_type::<PyAny>(), name);
    types::lookup_named(ty, name)
        .is_some_and(|own| !default.is_some_and(|default| own.is(&default)))
}

/// The names of special methods under which a type has a function. Which of them C code has asked for isn't known, and the
/// function's own name need not be one of them.
fn special_names<'py>(ty: &Bound<'py, PyType>, function: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    let Some(classes) = types::mro(ty.as_borrowed()) else { return Vec::new() };
    let mut names: Vec<Object<'py>> = Vec::new();
    for class in heap::tuple_items(classes.as_borrowed()) {
        let Ok(class) = class.cast::<PyType>() else { continue };
        let Some(dict) = types::class_dict(class.as_borrowed()) else { continue };
        for (name, found) in heap::dict_items(dict.as_borrowed()) {
            let text = heap::text(name.as_borrowed());
            let is_special = text.starts_with("__") && text.ends_with("__");
            let finds = |found: Object<'py>| found.is(function);
            if is_special
                && found.is(function)
                && types::lookup(ty.as_borrowed(), name.as_borrowed()).is_some_and(finds)
            {
                names.push(name);
            }
        }
    }
    names
}

/// Whether an operator of an object only hands a container to that object's method: lists and tuples have no methods of
/// operators but those that join and repeat.
pub(in crate::recorder) fn is_handed(op: BinaryOp, right: Borrowed<'_, '_>) -> bool {
    !matches!(op, BinaryOp::Multiply | BinaryOp::InPlaceMultiply)
        && (heap::is_exact_list(right) || heap::is_plain_tuple(right))
}

//! `operator.itemgetter`, `attrgetter` and `methodcaller` objects that the trace made: their calls are
//! the reads that they stand for. A replay makes them as they were made.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, ops};

use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::state::Origin;

/// What such an object was made of.
pub(in crate::recorder) struct Getter<'py> {
    /// What makes another one of the last arguments: the class, or a `partial` of it with the others.
    pub(in crate::recorder) maker: Object<'py>,
    /// The arguments that the maker is to be given.
    pub(in crate::recorder) last: Vec<Object<'py>>,
    /// All arguments without names.
    args: Vec<Object<'py>>,
    /// The arguments with names: those of a method.
    keywords: Vec<(Object<'py>, Object<'py>)>,
}

impl<'py> Getter<'py> {
    /// `None`: the object is none of these.
    pub(in crate::recorder) fn of(object: Borrowed<'_, 'py>) -> Option<Self> {
        if !heap::is_getter(object) {
            return None;
        }
        let class = object.get_type();
        // C code.
        let reduced = object.call_method0("__reduce__").ok()?;
        let reduced = heap::tuple_items(reduced.as_borrowed());
        let [maker, last] = reduced.as_slice() else { return None };
        let last = heap::tuple_items(last.as_borrowed());
        if maker.is(&class) {
            let args = last.clone();
            return Some(Self { maker: maker.clone(), last, args, keywords: Vec::new() });
        }
        if heap::type_name(maker.as_borrowed()) != "partial" {
            return None;
        }
        let (function, first, keywords) = heap::partial_parts(maker.as_borrowed());
        if !function.is(&class) {
            return None;
        }
        let mut args = heap::tuple_items(first.as_borrowed());
        args.extend(last.iter().cloned());
        let keywords = heap::dict_items(keywords.as_borrowed());
        Some(Self { maker: maker.clone(), last, args, keywords })
    }

    /// What the maker holds of the arguments.
    pub(in crate::recorder) fn held(&self) -> impl Iterator<Item = Borrowed<'_, 'py>> {
        self.keywords.iter().map(|(_, value)| value.as_borrowed())
    }

    /// Whether nothing that it was made of can change.
    fn is_constant(&self) -> bool {
        self.args.iter().map(|arg| arg.as_borrowed()).chain(self.held()).all(heap::is_constant)
    }
}

/// Whether an object is such a one, of which nothing can change.
pub(in crate::recorder) fn is_constant(object: Borrowed<'_, '_>) -> bool {
    heap::is_getter(object) && Getter::of(object).is_some_and(|getter| getter.is_constant())
}

impl Recorder {
    /// Whether an object is a getter that [`Self::call_getter`] calls.
    pub(in crate::recorder) fn is_known_getter(&self, object: Borrowed<'_, '_>) -> bool {
        match (self.origin(object), Getter::of(object)) {
            (Some(Origin::Fresh), Some(_)) => true,
            (Some(Origin::Source(_)), Some(getter)) => getter.is_constant(),
            _ => false,
        }
    }

    /// Calls such an object; `None` if it is none, or one whose parts nobody guards.
    pub(in crate::recorder) fn call_getter<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let [object] = args else { return None };
        let getter = Getter::of(callable)?;
        match self.origin(callable)? {
            Origin::Fresh => {}
            Origin::Source(_) if getter.is_constant() => {
                self.note(frame, |state| state.know_for_good(callable))?;
            }
            _ => return None,
        }
        let parts = &getter.args;
        Some(match heap::type_name(callable).as_str() {
            "methodcaller" => self.call_named(frame, *object, &getter),
            "itemgetter" => self.get_each(frame, parts, |key| self.get_item(frame, *object, key)),
            _ => self.get_each(frame, parts, |path| self.get_path(frame, *object, path)),
        })
    }

    fn get_each<'py>(
        &self,
        frame: &Frame<'py>,
        parts: &[Object<'py>],
        mut get: impl FnMut(Borrowed<'_, 'py>) -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        if let [only] = parts {
            return get(only.as_borrowed());
        }
        let found = parts.iter().map(|part| get(part.as_borrowed())).collect::<Result<Vec<_>>>()?;
        let py = frame.py();
        let tuple = PyTuple::new(py, found).map_err(|error| Raised::set(py, error))?.into_any();
        self.note(frame, |state| {
            state.set_fresh(tuple.as_borrowed());
            Ok(())
        });
        Ok(tuple)
    }

    /// `a.b.c` of an object.
    fn get_path<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        path: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let mut found = object.to_owned();
        for name in heap::text(path).split('.') {
            let name = PyString::intern(frame.py(), name);
            found = self.get_attr(frame, found.as_borrowed(), name.as_any().as_borrowed())?;
        }
        Ok(found)
    }

    /// A method called by its name, which is the first argument.
    fn call_named<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        caller: &Getter<'py>,
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let (name, args) = caller.args.split_first().expect("a method has a name");
        let name = heap::interned(name.as_borrowed());
        let names = caller.keywords.iter().map(|(name, _)| name);
        let names = PyTuple::new(py, names).map_err(|error| Raised::set(py, error))?.into_any();
        let names = (!caller.keywords.is_empty()).then(|| names.as_borrowed());
        let given = args.iter().chain(caller.keywords.iter().map(|(_, value)| value));
        let given = given.map(|arg| arg.as_borrowed());
        let method = self.get_method(frame, object, name.as_borrowed())?;
        let (callable, args): (_, Args<'_, 'py>) = match &method {
            ops::Method::Function(function) => {
                (function, [object].into_iter().chain(given).collect())
            }
            ops::Method::Attribute(method) => (method, given.collect()),
        };
        self.call_object(Call { names, ..Call::new(frame, callable.as_borrowed(), &args) })
    }
}

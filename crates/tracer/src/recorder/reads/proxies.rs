//! `types.MappingProxyType` from outside (tables of constants, `inspect.Signature.parameters`): who asks it asks the
//! dictionary that it shows.

use pyo3::prelude::*;
use pyo3::types::PyMappingProxy;
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::Source;

use crate::functions::{Class, Model};
use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::Origin;

/// The methods that a proxy hands on.
const HANDED_ON: &[&str] = &[
    "__contains__",
    "__getitem__",
    "__iter__",
    "__len__",
    "copy",
    "get",
    "items",
    "keys",
    "values",
];

/// Whether a dictionary may be a class's own, which is written as attributes.
fn may_be_of_class(dict: Borrowed<'_, '_>) -> bool {
    let names = [pyo3::intern!(dict.py(), "__doc__"), pyo3::intern!(dict.py(), "__module__")];
    names.iter().any(|name| heap::dict_get(dict, name.as_any().as_borrowed()).is_some())
}

impl Recorder {
    /// The dictionary behind a proxy, if this is one from outside.
    pub(in crate::recorder) fn shown_by<'py>(
        &self,
        frame: &Frame<'_>,
        proxy: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !proxy.is_exact_instance_of::<PyMappingProxy>() || self.is_stopped() {
            return None;
        }
        let shown = value(proxy, Field::ProxyMapping)?;
        let dict = shown.as_borrowed();
        let is_plain = heap::is_exact_dict(dict) || heap::is_ordered_dict(dict);
        if self.is_own_dict(dict) {
            return Some(shown);
        }
        if !is_plain || may_be_of_class(dict) {
            return None;
        }
        let source = self.state.borrow_mut().source(proxy)?;
        self.note(frame, |state| {
            let source = state.sources.intern(Source::ProxyMapping(source));
            state.adopt(source, dict)
        })?;
        Some(shown)
    }

    /// `vars(cls)` and `cls.__dict__` of a class from outside: a new proxy of its own dictionary, of which what is asked is
    /// guarded. `None`: it's a class that the trace has made or written to.
    pub(in crate::recorder) fn class_proxy<'py>(
        &self,
        frame: &Frame<'py>,
        class: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() || self.writes_classes() {
            return None;
        }
        let proxy = class.getattr(pyo3::intern!(class.py(), "__dict__")).ok()?;
        let dict = value(
            proxy.cast_exact::<PyMappingProxy>().ok()?.as_any().as_borrowed(),
            Field::ProxyMapping,
        )?;
        if self.origin(class) == Some(Origin::Fresh) || !heap::is_exact_dict(dict.as_borrowed()) {
            return None;
        }
        self.note(frame, |state| {
            let parent = state.anchor(class);
            let source = state.sources.intern(Source::Dict(parent));
            state.adopt(source, dict.as_borrowed())?;
            state.set_fresh(proxy.as_borrowed());
            Ok(())
        })?;
        Some(proxy)
    }

    /// Whether a dictionary is that of an object or class of which it's known, and is as it was when the trace began, or
    /// as the trace has left it.
    fn is_own_dict(&self, dict: Borrowed<'_, '_>) -> bool {
        let state = self.state.borrow();
        let source = state.source(dict);
        let is_own =
            source.is_some_and(|source| matches!(state.sources.get(source), Source::Dict(_)));
        is_own && state.written.classes().is_empty()
    }

    fn writes_classes(&self) -> bool {
        !self.state.borrow().written.classes().is_empty()
    }

    /// A call of a proxy's method, or of `len`: the dictionary behind it is asked.
    pub(in crate::recorder) fn call_shown<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let (proxy, given) = call.args.split_first()?;
        if !proxy.is_exact_instance_of::<PyMappingProxy>() {
            return None;
        }
        if let Some(Class::Model(Model::Len)) = self.functions.class(call.callable)
            && given.is_empty()
        {
            let shown = self.shown_by(call.frame, *proxy)?;
            return Some(self.call_object(call.with(call.callable, &[shown.as_borrowed()])));
        }
        if !heap::is_named(call.callable, HANDED_ON) {
            return None;
        }
        let owner = call.callable.getattr("__objclass__").ok()?;
        if !owner.is(call.frame.py().get_type::<PyMappingProxy>()) {
            return None;
        }
        let shown = self.shown_by(call.frame, *proxy)?;
        let method = types::lookup_named(&shown.get_type(), &heap::callable_name(call.callable))?;
        let args: SmallVec<[_; 4]> =
            [shown.as_borrowed()].into_iter().chain(given.iter().copied()).collect();
        Some(self.call_object(call.with(method.as_borrowed(), &args)))
    }
}

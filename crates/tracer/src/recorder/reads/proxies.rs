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

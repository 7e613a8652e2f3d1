//! What shows a dictionary, from outside: a `types.MappingProxyType` (tables of constants, `inspect.Signature.parameters`), of
//! which who asks it asks the dictionary; a view (`self.names = table.keys()`), in place of which the trace makes its own.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMappingProxy};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::{dict, types};
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::Source;

use crate::functions::{Class, Model, Traits};
use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
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

/// What goes over its one argument.
const TAKING_ONE: &[&str] = &[
    "all",
    "any",
    "bool",
    "dict",
    "fromkeys",
    "frozenset",
    "len",
    "max",
    "min",
    "set",
    "sorted",
    "sum",
];

/// Methods and functions that go over what they are given with others. (Of several, `max` returns one.)
const TAKING_SEVERAL: &[&str] = &[
    "difference",
    "filter",
    "fromkeys",
    "intersection",
    "isdisjoint",
    "issubset",
    "issuperset",
    "join",
    "symmetric_difference",
    "union",
    "update",
];

/// Whether a dictionary may be a class's own, which is written as attributes.
fn may_be_of_class(dict: Borrowed<'_, '_>) -> bool {
    let names = [pyo3::intern!(dict.py(), "__doc__"), pyo3::intern!(dict.py(), "__module__")];
    names.iter().any(|name| heap::dict_get(dict, name.as_any().as_borrowed()).is_some())
}

impl Recorder {
    /// The dictionary behind a proxy from outside, and a view of the trace's own for one from outside.
    pub(in crate::recorder) fn shown_by<'py>(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() {
            return None;
        }
        if object.is_exact_instance_of::<PyMappingProxy>() {
            return self.shown_mapping(frame, object);
        }
        self.own_view(frame, object)
    }

    /// For a view from outside one of the trace's own, of the same dictionary, which is read whole.
    pub(in crate::recorder) fn own_view<'py>(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let name = dict::view_method(object)?;
        if self.is_stopped() {
            return None;
        }
        self.state.borrow_mut().source(object)?;
        let shown = self.shown_mapping(frame, object)?;
        let is_ordered = dict::is_ordered_view(object);
        if heap::is_ordered_dict(shown.as_borrowed()) != is_ordered {
            return None;
        }
        self.note(frame, |state| state.adopt_dict_of(name, shown.as_borrowed()))?;
        // A subclass's own `keys` isn't what the view was made by.
        static ORDERED: Named = Named::new("collections", "OrderedDict");
        let class = match is_ordered {
            true => ORDERED.get(shown.py()).ok()?.to_owned(),
            false => shown.py().get_type::<PyDict>().into_any(),
        };
        let view = class.call_method1(name, (shown,)).ok()?;
        self.note(frame, |state| {
            state.set_fresh(view.as_borrowed());
            Ok(())
        });
        Some(view)
    }

    /// The dictionary that an object shows: an outside one from now on shows it in every replay.
    fn shown_mapping<'py>(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let shown = value(object, Field::ShownMapping)?;
        let dict = shown.as_borrowed();
        let is_own = self.is_own_dict(dict);
        let Some(source) = self.state.borrow_mut().source(object) else {
            // The trace has made it.
            return is_own.then_some(shown);
        };
        // Any dictionary has C code's views; a proxy asks a subclass's own methods.
        let is_plain = match dict::view_method(object) {
            Some(_) => self.kind(dict) == Kind::Dict,
            None => heap::is_exact_dict(dict) || heap::is_ordered_dict(dict),
        };
        if !is_own && (!is_plain || may_be_of_class(dict)) {
            return None;
        }
        self.note(frame, |state| {
            let source = state.sources.intern(Source::ShownMapping(source));
            state.adopt(source, dict)
        })?;
        Some(shown)
    }

    /// Two operands, with views of the trace's own in place of those from outside. `None`: there are none.
    pub(in crate::recorder) fn shown_operands<'py>(
        &self,
        frame: &Frame<'_>,
        operands: [Borrowed<'_, 'py>; 2],
    ) -> Option<[Object<'py>; 2]> {
        let shown = operands.map(|operand| self.own_view(frame, operand));
        if shown.iter().all(Option::is_none) {
            return None;
        }
        let [left, right] = shown;
        let [first, second] = operands;
        let or = |shown: Option<_>, own: Borrowed<'_, 'py>| shown.unwrap_or_else(|| own.to_owned());
        Some([or(left, first), or(right, second)])
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
            Field::ShownMapping,
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

    /// A call that takes the elements of views and proxies from outside, or their number: it's given views of the trace's
    /// own, and the dictionaries behind the proxies.
    pub(in crate::recorder) fn call_with_views<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let shows = |arg: &Borrowed<'_, '_>| {
            arg.is_exact_instance_of::<PyMappingProxy>() || dict::view_method(*arg).is_some()
        };
        if !args.iter().any(shows) || !self.takes_elements(call) {
            return None;
        }
        let shown: SmallVec<[_; 4]> = args.iter().map(|arg| self.shown_by(frame, *arg)).collect();
        if shown.iter().all(Option::is_none) {
            return None;
        }
        let given: SmallVec<[_; 4]> = shown
            .iter()
            .zip(args)
            .map(|(shown, arg)| shown.as_ref().map_or(*arg, Bound::as_borrowed))
            .collect();
        Some(self.call_object(call.with(callable, &given)))
    }

    /// Whether all that a C function does with its arguments is to go over them, count them or search them.
    fn takes_elements(&self, call: Call<'_, '_>) -> bool {
        let Call { callable, args, names, .. } = call;
        if self.functions.traits(callable).has(Traits::ITERATES) {
            return true;
        }
        let given_by_name = names.and_then(|names| names.len().ok()).unwrap_or(0);
        let of_several = args.len() - given_by_name > 1;
        heap::is_named(callable, if of_several { TAKING_SEVERAL } else { TAKING_ONE })
    }

    /// A call of a proxy's method, or of `len`: the dictionary behind it is asked.
    pub(in crate::recorder) fn call_shown<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let (proxy, given) = call.args.split_first()?;
        if !proxy.is_exact_instance_of::<PyMappingProxy>() {
            return self.call_with_views(call);
        }
        if let Some(Class::Model(Model::Len)) = self.functions.class(call.callable)
            && given.is_empty()
        {
            let shown = self.shown_by(call.frame, *proxy)?;
            return Some(self.call_object(call.with(call.callable, &[shown.as_borrowed()])));
        }
        if !heap::is_named(call.callable, HANDED_ON) {
            return self.call_with_views(call);
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

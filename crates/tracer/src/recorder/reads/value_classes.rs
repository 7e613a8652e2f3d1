//! Numbers, texts and bytes of classes of their own (`class Milliseconds(float)`). The value never changes, so an outside one is
//! known by its class and that value. Where the class leaves all special methods to the builtin type, C code that is given such an
//! object does what it does with the plain value, and is recorded with that.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCFunction, PyComplex, PyFloat, PyInt, PyModule, PyRange, PyString};
use stator_cpython::frame::Frame;
use stator_cpython::heap::{constant, types};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::GuardKind;

use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Noted, State};

/// By these C code asks an object for its value, or does something with it.
const ASKED: &[&str] = &[
    "__abs__",
    "__add__",
    "__and__",
    "__array__",
    "__array_ufunc__",
    "__bool__",
    "__bytes__",
    "__ceil__",
    "__complex__",
    "__contains__",
    "__divmod__",
    "__eq__",
    "__float__",
    "__floor__",
    "__floordiv__",
    "__ge__",
    "__getattribute__",
    "__getitem__",
    "__gt__",
    "__hash__",
    "__iadd__",
    "__iand__",
    "__ifloordiv__",
    "__ilshift__",
    "__imatmul__",
    "__imod__",
    "__imul__",
    "__index__",
    "__int__",
    "__invert__",
    "__ior__",
    "__ipow__",
    "__irshift__",
    "__isub__",
    "__iter__",
    "__itruediv__",
    "__ixor__",
    "__le__",
    "__len__",
    "__lshift__",
    "__lt__",
    "__matmul__",
    "__mod__",
    "__mul__",
    "__ne__",
    "__neg__",
    "__or__",
    "__pos__",
    "__pow__",
    "__radd__",
    "__rand__",
    "__rdivmod__",
    "__rfloordiv__",
    "__rlshift__",
    "__rmatmul__",
    "__rmod__",
    "__rmul__",
    "__ror__",
    "__round__",
    "__rpow__",
    "__rrshift__",
    "__rshift__",
    "__rsub__",
    "__rtruediv__",
    "__rxor__",
    "__sub__",
    "__torch_function__",
    "__truediv__",
    "__trunc__",
    "__xor__",
];

/// By these it asks for a text.
const SPELT: &[&str] = &["__format__", "__repr__", "__str__"];

/// What C code does with such an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::recorder) enum Purpose {
    /// It takes the value.
    Value,
    /// It may make a text of it.
    Text,
}

impl Recorder {
    /// The value of such an object as a plain number or text, for C code that takes it; `None`: it's none, or its class answers
    /// otherwise.
    pub(in crate::recorder) fn plain_value<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() || !heap::is_of_value_class(object) {
            return None;
        }
        self.note(frame, |state| state.plain_value(object, Purpose::Value)).flatten()
    }
}

impl State {
    /// As [`Recorder::plain_value`].
    pub(in crate::recorder) fn plain_value<'py>(
        &mut self,
        object: Borrowed<'_, 'py>,
        purpose: Purpose,
    ) -> Noted<Option<Object<'py>>> {
        if !heap::is_of_value_class(object)
            || self.kind(object) != Kind::Object
            || self.source(object).is_none()
        {
            return Ok(None);
        }
        let Some((base, _)) = constant::base_of(object) else { return Ok(None) };
        let ty = object.get_type();
        let py = object.py();
        let spelt = if purpose == Purpose::Text { SPELT } else { &[] };
        let mut lookups = Vec::with_capacity(ASKED.len() + spelt.len());
        for name in ASKED.iter().chain(spelt) {
            let name = PyString::intern(py, name).into_any();
            let found = types::lookup(ty.as_borrowed(), name.as_borrowed());
            let inherited = types::lookup(base.as_borrowed(), name.as_borrowed());
            if found.as_ref().map(Bound::as_ptr) != inherited.as_ref().map(Bound::as_ptr) {
                return Ok(None);
            }
            lookups.push((name, found));
        }
        for (name, found) in &lookups {
            let found = found.as_ref().map(Bound::as_borrowed);
            self.guard_lookup(&ty, name.as_borrowed(), found, Use::default())?;
        }
        self.know_value(object)?;
        Ok(constant::plain(object))
    }

    /// Guards the value of such an object from outside.
    pub(in crate::recorder) fn know_value(&mut self, object: Borrowed<'_, '_>) -> Noted<()> {
        if let Some(source) = self.source(object)
            && let Some(plain) = constant::plain(object)
        {
            let class = self.object(object.get_type().as_any().as_borrowed());
            self.guard(source, GuardKind::TypeIs(class));
            let value = self.objects.intern(plain.as_borrowed());
            self.guard(source, GuardKind::Holds(value));
        }
        Ok(())
    }
}

/// What a C function does with such objects that it is given, if it asks them for nothing but their values: not for the class,
/// nor for attributes, and gives nothing of them back.
pub(in crate::recorder) fn purpose_of(callable: Borrowed<'_, '_>) -> Option<Purpose> {
    if !reads_values_alone(callable) {
        return None;
    }
    let spells = heap::is_named(callable, &["ascii", "format", "format_map", "str"])
        || heap::name_of(callable).starts_with("__");
    Some(if spells { Purpose::Text } else { Purpose::Value })
}

fn reads_values_alone(callable: Borrowed<'_, '_>) -> bool {
    let py = callable.py();
    if heap::is_named(callable, &["partition", "rpartition"]) {
        return false;
    }
    let is_of_values = |ty: &Bound<'_, PyAny>| {
        [
            py.get_type::<PyInt>(),
            py.get_type::<PyFloat>(),
            py.get_type::<PyComplex>(),
            py.get_type::<PyString>(),
            py.get_type::<PyBytes>(),
        ]
        .iter()
        .any(|own| own.is(ty))
    };
    if heap::is_method_descriptor(callable) {
        return callable
            .getattr(pyo3::intern!(py, "__objclass__"))
            .is_ok_and(|of| is_of_values(&of));
    }
    if callable.is_instance_of::<PyCFunction>() {
        let own = callable.getattr(pyo3::intern!(py, "__self__"));
        return own.is_ok_and(|own| match own.cast::<PyModule>() {
            Ok(module) => module.name().is_ok_and(|name| {
                name == "math" || name == "builtins" && heap::is_named(callable, BUILTINS)
            }),
            Err(_) => is_of_values(own.get_type().as_any()),
        });
    }
    callable.is(py.get_type::<PyRange>()) || is_of_values(&callable.to_owned())
}

/// The builtin functions that do so.
const BUILTINS: &[&str] = &["ascii", "bin", "chr", "divmod", "format", "hex", "oct", "ord", "pow"];

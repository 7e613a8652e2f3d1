//! Class patterns: `case Point(x=0)` reads the class's `__match_args__` and attributes of the subject. And what
//! mapping patterns ask of classes.
//!
//! Attributes are read one after the other by one instruction, so nothing may run code of a user's: what would, ends
//! the trace before it.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple, PyType};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types::{self, Slot, SlotName};
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, generic, ops};

use super::abstract_classes::is_library_metaclass;
use super::members::containers;
use super::protocols::answers_by_itself;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Descriptor, Kind};

/// What a pattern asks of a subject that is of its class.
struct Pattern<'py> {
    /// Whether the subject itself is the one positional part: `case int(n)`.
    itself: bool,
    /// The attributes to read, in order.
    names: Vec<Object<'py>>,
}

impl Recorder {
    /// `MATCH_CLASS`.
    pub(in crate::recorder) fn class_pattern<'py>(
        &self,
        frame: &Frame<'py>,
        subject: Borrowed<'_, 'py>,
        class: Borrowed<'_, 'py>,
        count: usize,
        names: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        let native = || ops::match_class(subject, class, count, names);
        if self.is_stopped() {
            return native();
        }
        let pattern = self.guarded(frame.py(), || {
            let class = class.cast::<PyType>().ok()?.to_owned();
            self.plain_pattern(frame, subject, &class, count, &heap::tuple_items(names))
        });
        let Some(pattern) = pattern.flatten() else {
            self.stop(frame, Reason::Instruction, "a class pattern");
            return native();
        };
        if !self.is_of_class(frame, subject, class)? {
            return Ok(None);
        }
        let mut values: SmallVec<[Object<'py>; 4]> = SmallVec::new();
        if pattern.itself {
            values.push(subject.to_owned());
        }
        for name in &pattern.names {
            match self.get_attr(frame, subject, name.as_borrowed()) {
                Ok(value) => values.push(value),
                Err(raised) => {
                    if !generic::exception_matches::<pyo3::exceptions::PyAttributeError>(frame.py())
                    {
                        return Err(raised);
                    }
                    generic::clear_exception(frame.py());
                    return Ok(None);
                }
            }
        }
        let tuple = PyTuple::new(frame.py(), values);
        Ok(Some(tuple.map_err(|error| Raised::set(frame.py(), error))?.into_any()))
    }

    /// What a pattern asks, if finding out runs no code of a user's.
    fn plain_pattern<'py>(
        &self,
        frame: &Frame<'py>,
        subject: Borrowed<'_, 'py>,
        class: &Bound<'py, PyType>,
        count: usize,
        named: &[Object<'py>],
    ) -> Option<Pattern<'py>> {
        let py = frame.py();
        let meta = class.get_type();
        let is_plain = meta.is(py.get_type::<PyType>());
        if !is_plain && !is_library_metaclass(&meta) {
            return None;
        }
        self.vouch(frame, class.as_any().as_borrowed());
        let mut pattern = Pattern { itself: false, names: Vec::new() };
        if count > 0 {
            let name = pyo3::intern!(py, "__match_args__").as_any().as_borrowed();
            if types::lookup(meta.as_borrowed(), name).is_some() {
                return None;
            }
            match self.lookup(frame, class, name) {
                Some(found) => {
                    let found = found.cast_exact::<PyTuple>().ok()?;
                    pattern.names.extend(found.iter().take(count));
                    if pattern.names.len() < count {
                        return None;
                    }
                }
                None if count == 1 && ops::matches_itself(class) => pattern.itself = true,
                None => return None,
            }
        }
        pattern.names.extend(named.iter().cloned());
        for (at, name) in pattern.names.iter().enumerate() {
            let text = name.cast_exact::<PyString>().ok()?;
            if pattern.names[..at].iter().any(|other| other.eq(text).unwrap_or(true)) {
                return None;
            }
        }
        let names = pattern.names.iter().map(|name| heap::interned(name.as_borrowed()));
        pattern.names = names.collect();
        let is_below = generic::is_subtype(&subject.get_type(), class);
        if !is_below && !self.says_its_class(subject) {
            return None;
        }
        let may_match = is_below || !is_plain;
        let mut names = pattern.names.iter();
        if may_match && !names.all(|name| self.is_plainly_read(subject, name.as_borrowed())) {
            return None;
        }
        Some(pattern)
    }

    /// `MATCH_KEYS` calls the subject's `get`, which may be a class's or an instance's own.
    pub(in crate::recorder) fn keys_pattern<'py>(
        &self,
        frame: &Frame<'py>,
        subject: Borrowed<'_, 'py>,
    ) {
        if self.is_stopped() || subject.is_exact_instance_of::<PyDict>() {
            return;
        }
        let py = frame.py();
        let get = pyo3::intern!(py, "get").as_any().as_borrowed();
        let reads = pyo3::intern!(py, "__getattribute__").as_any().as_borrowed();
        let ty = subject.get_type();
        let is_plain = self.guarded(py, || {
            let ours = types::lookup(py.get_type::<PyDict>().as_borrowed(), get)?;
            self.lookup(frame, &ty, reads)?;
            let found = self.lookup(frame, &ty, get)?;
            let is_read_plainly =
                types::slot(ty.as_borrowed(), SlotName::GetAttribute) == Slot::Default;
            let has_own = self.instance_value(frame, subject, get).is_some();
            Some(found.is(&ours) && is_read_plainly && !has_own)
        });
        if is_plain.flatten() != Some(true) {
            self.stop(frame, Reason::Instruction, "a mapping pattern");
        }
    }

    /// Whether an object's `__class__` is its type, without code that says otherwise.
    fn says_its_class(&self, subject: Borrowed<'_, '_>) -> bool {
        let ty = subject.get_type();
        let name = pyo3::intern!(subject.py(), "__class__").as_any().as_borrowed();
        // With a `__getattr__` alone what is there is read as by others.
        (types::slot(ty.as_borrowed(), SlotName::GetAttribute) != Slot::Python
            || !answers_by_itself(&ty, "__getattribute__"))
            && types::lookup(ty.as_borrowed(), name)
                .is_some_and(|found| self.descriptor(found.as_borrowed()) == Descriptor::GetSet)
    }

    /// Whether reading an attribute runs no code of a user's, whether it is there or not.
    fn is_plainly_read(&self, subject: Borrowed<'_, '_>, name: Borrowed<'_, '_>) -> bool {
        let ty = subject.get_type();
        match self.kind(subject) {
            Kind::Object | Kind::Tuple => {}
            Kind::Tensor => {
                return matches!(heap::text(name).as_str(), "shape" | "dtype" | "ndim" | "device");
            }
            _ => return false,
        }
        let getattr = pyo3::intern!(subject.py(), "__getattr__").as_any().as_borrowed();
        let found = types::lookup(ty.as_borrowed(), name);
        let is_plain = match types::lookup(ty.as_borrowed(), getattr) {
            None => types::slot(ty.as_borrowed(), SlotName::GetAttribute) == Slot::Default,
            Some(getter) => {
                self.functions.is_module_member(getter.as_borrowed())
                    && !answers_by_itself(&ty, "__getattribute__")
                    && (found.is_some() || has_of_its_own(subject, name))
            }
        };
        if !is_plain {
            return false;
        }
        found.is_none_or(|found| {
            use Descriptor::{Function, Member, TupleGetter, Value};
            matches!(self.descriptor(found.as_borrowed()), Function | Member | TupleGetter | Value)
        })
    }

    /// `isinstance`, as a pattern asks it.
    fn is_of_class<'py>(
        &self,
        frame: &Frame<'py>,
        subject: Borrowed<'_, 'py>,
        class: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        let py = frame.py();
        let none = PyTuple::empty(py);
        let native = || {
            let found = ops::match_class(subject, class, 0, none.as_any().as_borrowed())?;
            Ok(PyBool::new(py, found.is_some()).to_owned().into_any())
        };
        static ISINSTANCE: Named = Named::new("builtins", "isinstance");
        let isinstance = ISINSTANCE.get(py).map_err(|error| Raised::set(py, error))?;
        let args = [subject, class];
        let call = Call::new(frame, isinstance.as_borrowed(), &args);
        let found = self.is_instance(call, native)?;
        Ok(found.is(PyBool::new(py, true)))
    }
}

/// Whether a module of PyTorch's has an attribute, a parameter, a buffer or a module of this name: then its `__getattr__`
/// needn't be evaluated.
fn has_of_its_own(module: Borrowed<'_, '_>, name: Borrowed<'_, '_>) -> bool {
    let Some(dict) = heap::instance_dict(module) else { return false };
    let holds = |dict: Borrowed<'_, '_>| heap::dict_get(dict, name).is_some();
    holds(dict.as_borrowed())
        || containers(module.py()).into_iter().any(|container| {
            heap::dict_get(dict.as_borrowed(), container)
                .is_some_and(|container| holds(container.as_borrowed()))
        })
}

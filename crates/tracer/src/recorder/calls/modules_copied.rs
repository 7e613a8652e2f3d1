//! Modules of `torch.nn` that `copy.deepcopy` copies like any other object: their class reads members and sets state by
//! PyTorch's own methods. In a module that has all its attributes these do no more than `object`'s would.

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};

use super::copies::{ASKED, overrides_any};
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;

/// The dictionaries in which a module looks for what it lacks itself.
const MEMBERS: [&str; 3] = ["_parameters", "_buffers", "_modules"];

/// PyTorch's methods that take part.
const METHODS: [&str; 3] = ["__getattr__", "__getstate__", "__setstate__"];

/// What a class may have of its own nevertheless.
const STATE: [&str; 2] = ["__getstate__", "__setstate__"];

/// What the state of a module is made without: the method that `Module.compile` makes.
const LEFT_OUT: &str = "_compiled_call_impl";

impl Recorder {
    /// Whether an object is a module that is copied by its dictionary.
    pub(super) fn is_copied_module(&self, object: Borrowed<'_, '_>) -> bool {
        let Some(copying) = self.functions.module_copying() else { return false };
        let Some(own) = heap::instance_dict(object) else { return false };
        let members: Vec<_> =
            MEMBERS.iter().filter_map(|name| get(own.as_borrowed(), name)).collect();
        let is_member =
            |name: &str| members.iter().any(|dict| get(dict.as_borrowed(), name).is_some());
        let is_there = |name: &str| get(own.as_borrowed(), name).is_some() || is_member(name);
        let ty = object.get_type();
        let method = |name: &str| types::lookup_named(&ty, name);
        let is_known = |name: &&str| {
            method(name).is_some_and(|method| copying.has(method.as_borrowed(), is_there))
        };
        let others: Vec<_> = ASKED.iter().copied().filter(|name| !STATE.contains(name)).collect();
        members.len() == MEMBERS.len()
            && members.iter().all(|dict| heap::is_exact_dict(dict.as_borrowed()))
            && method("__getattr__")
                .is_some_and(|getter| self.functions.is_module_member(getter.as_borrowed()))
            && !overrides_any(object, &["__getattribute__"])
            && STATE.iter().all(is_known)
            && !overrides_any(object, &others)
            && !ASKED.iter().any(|name| is_there(name))
            && !is_there(LEFT_OUT)
    }

    /// Guards the code of the methods that take part.
    pub(super) fn guard_copied_module(&self, frame: &Frame<'_>, object: Borrowed<'_, '_>) {
        let ty = object.get_type();
        for name in METHODS {
            let name = PyString::intern(object.py(), name);
            let Some(method) = self.lookup(frame, &ty, name.as_any().as_borrowed()) else {
                continue;
            };
            self.note(frame, |state| {
                let is_known = state.enter_known(method.as_borrowed())?;
                is_known
                    .then_some(())
                    .ok_or((Reason::Unsupported, "a copy that a class makes".into()))
            });
        }
    }
}

fn get<'py>(dict: Borrowed<'_, 'py>, name: &str) -> Option<Object<'py>> {
    let name = PyString::intern(dict.py(), name);
    heap::dict_get(dict, name.as_any().as_borrowed())
}

//! Missing keys of an outside `defaultdict`: its factory is called, and what that gives is put there.
//!
//! An optimizer's state begins so: `self.state[p]` is a new dictionary at the first step.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};

use crate::recipe::Storage;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;

impl Recorder {
    /// The item at a missing key; `None`: nothing was done, and the trace can't go on behind it.
    pub(super) fn fill_missing<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let ty = dict.get_type();
        // A subclass may have a `__missing__` of its own.
        if self.is_stopped()
            || !types::is_immutable(ty.as_borrowed())
            || !matches!(Storage::of(&ty), Ok(Some(Storage::DefaultDict)))
        {
            return None;
        }
        let name = pyo3::intern!(frame.py(), "default_factory").as_any().as_borrowed();
        let factory = match self.get_attr(frame, dict, name) {
            Ok(factory) => factory,
            Err(raised) => return Some(Err(raised)),
        };
        if factory.is_none() {
            return Some(ops::get_item(dict, key));
        }
        let is_writable = self.note(frame, |state| Ok(state.is_writable_dict(dict)));
        if is_writable != Some(true) || !self.writes_slot(frame, dict, key, false) {
            return None;
        }
        let made = self.call_object(Call::new(frame, factory.as_borrowed(), &[]));
        Some(made.and_then(|value| {
            ops::set_item(dict, key, Some(value.as_borrowed()))?;
            Ok(value)
        }))
    }
}

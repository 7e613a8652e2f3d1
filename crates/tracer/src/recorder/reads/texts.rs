//! Texts of objects: `repr`, `str`, `format` and f-strings, where they follow from what is guarded.

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;
use crate::recorder::numbers::tensors::holds_tensor;

impl Recorder {
    /// `repr`, `str`, `format` and f-strings.
    pub(in crate::recorder) fn text_of<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.note(frame, |state| {
            if state.holds_read(object) {
                let detail = "the text of a number that was read from one";
                return Err((Reason::DataRead, detail.into()));
            }
            if holds_tensor(state, object) {
                return Err((Reason::DataRead, "the text of a tensor".into()));
            }
            state.adopt_deep(object)?;
            if state.has_text(object) {
                Ok(())
            } else {
                Err((Reason::Unsupported, format!("the text of a {}", heap::type_name(object))))
            }
        });
        self.guard_protocol(frame, object, &["__str__", "__repr__", "__format__"]);
        native()
    }
}

impl State {
    /// Whether an object's text is a function of guarded values.
    fn has_text(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.once(object, true, |state| state.parts_have_text(object))
    }

    fn parts_have_text(&mut self, object: Borrowed<'_, '_>) -> bool {
        match self.kind(object) {
            Kind::Constant | Kind::Type | Kind::Singleton => true,
            Kind::List => {
                heap::list_items(object).iter().all(|item| self.has_text(item.as_borrowed()))
            }
            Kind::Tuple => {
                heap::tuple_items(object).iter().all(|item| self.has_text(item.as_borrowed()))
            }
            Kind::Dict => heap::dict_items(object).iter().all(|(key, value)| {
                self.has_text(key.as_borrowed()) && self.has_text(value.as_borrowed())
            }),
            Kind::Set | Kind::FrozenSet => true,
            Kind::Object => {
                let ty = object.get_type();
                let py = object.py();
                // A class with its own text in Python: its frames are traced. The default one holds
                // an address.
                ["__str__", "__repr__"].iter().any(|name| {
                    let name = PyString::intern(py, name);
                    stator_cpython::heap::types::lookup(
                        ty.as_borrowed(),
                        name.as_any().as_borrowed(),
                    )
                    .is_some_and(|found| self.kind(found.as_borrowed()) == Kind::Function)
                }) || ty.is_subclass_of::<pyo3::exceptions::PyBaseException>().unwrap_or(false)
            }
            _ => false,
        }
    }
}

//! Texts of objects: `repr`, `str`, `format` and f-strings, where they follow from what is guarded.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Looks, Texts};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::numbers::tensors::holds_tensor;
use crate::recorder::reads::value_classes::Purpose;

impl Recorder {
    /// `repr`, `str`, `format` and f-strings.
    pub(in crate::recorder) fn text_of<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        native: impl FnOnce() -> stator_cpython::Result<Object<'py>>,
    ) -> stator_cpython::Result<Object<'py>> {
        self.note(frame, |state| {
            if state.holds_read(object) {
                let detail = "the text of a number that was read from one";
                return Err((Reason::DataRead, detail.into()));
            }
            if holds_tensor(state, object) {
                return Err((Reason::DataRead, "the text of a tensor".into()));
            }
            state.adopt_deep(object)?;
            state.knows_text(object)
        });
        self.guard_protocol(frame, object, &["__str__", "__repr__", "__format__"]);
        native()
    }

    /// What an exception of the trace's own says: its only argument, of which C code makes its text, and which varies from call
    /// to call.
    pub(in crate::recorder) fn said_by<'py>(
        &self,
        frame: &Frame<'py>,
        exception: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() || !self.has_symbols() {
            return None;
        }
        let args = heap::exception_args(exception)?;
        let mut said = heap::tuple_items(args.as_borrowed());
        let (py, ty) = (frame.py(), exception.get_type());
        let is_from = |class: Bound<'_, PyType>, name: &str| {
            let own = types::lookup_named(&ty, name);
            own.is_some_and(|own| class.getattr(name).is_ok_and(|theirs| theirs.is(&own)))
        };
        let is_plain = said.len() == 1
            && self.origin(exception) == Some(Origin::Fresh)
            && is_from(py.get_type::<PyBaseException>(), "__str__")
            && is_from(py.get_type::<PyAny>(), "__format__")
            && self.state.borrow_mut().holds_numbers(args.as_borrowed());
        if !is_plain {
            return None;
        }
        self.guard_protocol(frame, exception, &["__str__", "__format__"]);
        said.pop()
    }
}

impl Texts for Recorder {
    fn has_text_of_pytorch<'py>(&self, frame: &Frame<'py>, tensor: Borrowed<'_, 'py>) -> bool {
        let class = tensor.get_type();
        if !matches!(&*heap::type_name(tensor), "Tensor" | "Parameter") {
            return false;
        }
        let py = frame.py();
        let found = |method| {
            self.lookup(frame, &class, PyString::intern(py, method).as_any().as_borrowed())
        };
        let is_of_pytorch = |method| {
            let file = found(method)
                .and_then(|method| method.getattr("__code__").ok())
                .and_then(|code| code.getattr("co_filename").ok());
            file.is_some_and(|file| {
                let file = heap::text(file.as_borrowed());
                ["torch/_tensor.py", "torch/nn/parameter.py"].iter().any(|own| file.ends_with(own))
            })
        };
        let is_default = || {
            let default = py.get_type::<PyAny>().getattr("__str__").ok();
            found("__str__").zip(default).is_some_and(|(own, default)| own.is(&default))
        };
        is_default() && is_of_pytorch("__repr__") && is_of_pytorch("__format__")
    }
}

impl State {
    /// Fails if an object's text is no function of guarded values.
    pub(super) fn knows_text(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        if self.has_text(object) || self.plain_value(object, Purpose::Text)?.is_some() {
            return Ok(());
        }
        Err((Reason::Unsupported, format!("the text of a {}", heap::type_name(object))))
    }

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
                    types::lookup(ty.as_borrowed(), name.as_any().as_borrowed())
                        .is_some_and(|found| self.kind(found.as_borrowed()) == Kind::Function)
                }) || ty.is_subclass_of::<PyBaseException>().unwrap_or(false)
            }
            _ => false,
        }
    }
}

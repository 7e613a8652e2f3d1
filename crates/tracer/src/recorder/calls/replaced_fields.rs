//! `_replace` of a named tuple with numbers that the trace carries. The library's code has C code go over the tuple
//! (`map(kwds.pop, field_names, self)`), which would fix them. So the fields are put together here, and handed to `_make`.
//!
//! A break in `_make` is one at the instruction that calls `_replace`: its frame isn't made.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyList, PyTuple};
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, modules};

use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;

/// The code of `_replace` and of `_make`, which all named tuples share.
fn known(py: Python<'_>) -> Option<&'static [Py<PyAny>; 2]> {
    static KNOWN: PyOnceLock<Option<[Py<PyAny>; 2]>> = PyOnceLock::new();
    let find = || {
        let maker = modules::import(py, "collections").ok()?.getattr("namedtuple").ok()?;
        let code = value(maker.as_borrowed(), Field::Code)?;
        let constants = heap::tuple_items(code.getattr("co_consts").ok()?.as_borrowed());
        let named = |name: &str| {
            let is_named = |constant: &&Object<'_>| {
                let own = constant.getattr("co_name").and_then(|own| own.extract::<String>());
                own.is_ok_and(|own| own == name)
            };
            constants.iter().find(is_named).map(|code| code.clone().unbind())
        };
        Some([named("_replace")?, named("_make")?])
    };
    KNOWN.get_or_init(py, find).as_ref()
}

/// Whether a function runs this code.
fn runs(function: Borrowed<'_, '_>, code: &Py<PyAny>) -> bool {
    value(function, Field::Code).is_some_and(|own| own.as_ptr() == code.as_ptr())
}

/// What a function's closure holds under a name.
fn enclosed<'py>(function: Borrowed<'_, 'py>, name: &str) -> Option<Object<'py>> {
    let names = value(function, Field::Code)?.getattr("co_freevars").ok()?;
    let names = heap::tuple_items(names.as_borrowed());
    let at = names.iter().position(|own| heap::text(own.as_borrowed()) == name)?;
    let cells = heap::tuple_items(value(function, Field::Closure)?.as_borrowed());
    value(cells.get(at)?.as_borrowed(), Field::CellContents)
}

impl Recorder {
    /// Calls `_replace` of a named tuple; `None`: it's another function, or its own code does.
    pub(super) fn replaced_fields<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        if !self.has_symbols() || self.is_stopped() {
            return None;
        }
        let py = frame.py();
        let [replace, make] = known(py)?;
        let names = names.map(heap::tuple_items).unwrap_or_default();
        let tuple = *args.first()?;
        if !runs(callable, replace) || args.len() != names.len() + 1 || !is_read_as_tuple(tuple) {
            return None;
        }
        let ty = tuple.get_type();
        let maker = types::lookup_named(&ty, "_make")?;
        let maker = value(maker.as_borrowed(), Field::ClassFunc)?;
        let fields = enclosed(callable, "field_names")?;
        let fields = heap::tuple_items(fields.as_borrowed());
        let place = |name: &Object<'py>| {
            fields.iter().position(|field| field.is(name) || field.eq(name).unwrap_or(false))
        };
        let places: Vec<usize> = names.iter().map(place).collect::<Option<_>>()?;
        let is_carried = |value: Borrowed<'_, '_>| self.state.borrow_mut().number(value).is_some();
        let held = heap::tuple_items(tuple);
        if !runs(maker.as_borrowed(), make)
            || held.len() != fields.len()
            || !held.iter().any(|item| is_carried(item.as_borrowed()))
                && !args.iter().any(|arg| is_carried(*arg))
        {
            return None;
        }
        self.vouch(frame, callable);
        self.guard_protocol(frame, tuple, &["__iter__"]);
        Some(self.put_together(frame, tuple, &args[1..], &places))
    }

    fn put_together<'py>(
        &self,
        frame: &Frame<'py>,
        tuple: Borrowed<'_, 'py>,
        given: &[Borrowed<'_, 'py>],
        places: &[usize],
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let count = heap::tuple_items(tuple).len();
        let parts = (0..count).map(|index| match places.iter().position(|place| *place == index) {
            Some(at) => Ok(given[at].to_owned()),
            None => {
                let index = PyInt::new(py, index).into_any();
                self.get_item(frame, tuple, index.as_borrowed())
            }
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let parts = PyList::new(py, parts).map_err(|error| Raised::set(py, error))?.into_any();
        self.note(frame, |state| {
            state.set_fresh(parts.as_borrowed());
            Ok(())
        });
        let make =
            self.get_attr(frame, tuple, pyo3::intern!(py, "_make").as_any().as_borrowed())?;
        self.links.clear();
        self.call_object(Call::new(frame, make.as_borrowed(), &[parts.as_borrowed()]))
    }
}

/// Whether an object is a tuple that is gone over as tuples are, whose elements are found by their places.
fn is_read_as_tuple(object: Borrowed<'_, '_>) -> bool {
    let (ty, plain) = (object.get_type(), object.py().get_type::<PyTuple>());
    object.is_instance_of::<PyTuple>()
        && ["__iter__", "__getitem__", "__len__", "__getattribute__"].into_iter().all(|name| {
            let of = |ty| types::lookup_named(ty, name);
            of(&ty).zip(of(&plain)).is_some_and(|(own, theirs)| own.is(&theirs))
        })
}

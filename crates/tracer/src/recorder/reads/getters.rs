//! `operator.itemgetter`, `attrgetter` and `methodcaller` objects that the trace made: their calls are
//! the reads that they stand for.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, ops};

use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::state::Origin;

impl Recorder {
    /// Calls such an object; `None` if it is none, or one whose parts nobody guards.
    pub(in crate::recorder) fn call_getter<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let [object] = args else { return None };
        let ty = callable.get_type();
        if self.origin(callable) != Some(Origin::Fresh)
            || !heap::is_builtin_type(ty.as_any().as_borrowed())
        {
            return None;
        }
        let kind = heap::type_name(callable);
        if !matches!(kind.as_str(), "itemgetter" | "attrgetter" | "methodcaller") {
            return None;
        }
        // C code: the class and what the object was made of.
        let parts = callable.call_method0("__reduce__").ok()?;
        let parts = heap::tuple_items(parts.as_borrowed());
        let [class, parts] = parts.as_slice() else { return None };
        if !class.is(&ty) {
            // A method with keyword arguments.
            return None;
        }
        let parts = heap::tuple_items(parts.as_borrowed());
        Some(match kind.as_str() {
            "methodcaller" => self.call_named(frame, *object, &parts),
            "itemgetter" => self.get_each(frame, &parts, |key| self.get_item(frame, *object, key)),
            _ => self.get_each(frame, &parts, |path| self.get_path(frame, *object, path)),
        })
    }

    fn get_each<'py>(
        &self,
        frame: &Frame<'py>,
        parts: &[Object<'py>],
        mut get: impl FnMut(Borrowed<'_, 'py>) -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        if let [only] = parts {
            return get(only.as_borrowed());
        }
        let found = parts.iter().map(|part| get(part.as_borrowed())).collect::<Result<Vec<_>>>()?;
        let py = frame.py();
        let tuple = PyTuple::new(py, found).map_err(|error| Raised::set(py, error))?.into_any();
        self.note(frame, |state| {
            state.set_fresh(tuple.as_borrowed());
            Ok(())
        });
        Ok(tuple)
    }

    /// `a.b.c` of an object.
    fn get_path<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        path: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let mut found = object.to_owned();
        for name in heap::text(path).split('.') {
            let name = PyString::intern(frame.py(), name);
            found = self.get_attr(frame, found.as_borrowed(), name.as_any().as_borrowed())?;
        }
        Ok(found)
    }

    /// A method called by its name; `parts` are the name and the arguments.
    fn call_named<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        parts: &[Object<'py>],
    ) -> Result<Object<'py>> {
        let (name, args) = parts.split_first().expect("a method has a name");
        let name = heap::interned(name.as_borrowed());
        match self.get_method(frame, object, name.as_borrowed())? {
            ops::Method::Function(function) => {
                let mut all = Args::from_slice(&[object]);
                all.extend(args.iter().map(|arg| arg.as_borrowed()));
                self.call_object(Call::new(frame, function.as_borrowed(), &all))
            }
            ops::Method::Attribute(method) => {
                let args: Args<'_, 'py> = args.iter().map(|arg| arg.as_borrowed()).collect();
                self.call_object(Call::new(frame, method.as_borrowed(), &args))
            }
        }
    }
}

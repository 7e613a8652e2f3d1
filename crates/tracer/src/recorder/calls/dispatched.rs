//! `functools.singledispatch`: which function is called for a class.
//!
//! The library keeps what it has found under weak references, which a trace doesn't follow. So the recorder looks for itself: in
//! the functions that are registered, for the class and then for its bases. That is what the library does as long as no
//! abstract class is registered, which it says by a variable.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, modules};
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;

/// The code of the function `dispatch` that `singledispatch` makes, if it is the library's.
fn code_of_dispatch(py: Python<'_>) -> Option<&Py<PyAny>> {
    static CODE: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let find = || -> PyResult<Option<Py<PyAny>>> {
        let code =
            modules::import(py, "functools")?.getattr("singledispatch")?.getattr("__code__")?;
        for constant in code.getattr("co_consts")?.try_iter()? {
            let constant = constant?;
            let Ok(free) = constant.getattr("co_freevars") else { continue };
            let names = constant.getattr("co_names")?.extract::<Vec<String>>()?;
            let is_known = free.extract::<Vec<String>>()? == FREE && names == NAMES;
            if is_known {
                return Ok(Some(constant.unbind()));
            }
        }
        Ok(None)
    };
    CODE.get_or_init(py, || find().ok().flatten()).as_ref()
}

/// Its variables of the function around it.
const FREE: [&str; 3] = ["cache_token", "dispatch_cache", "registry"];

/// What a class of classes says of the classes below its own.
const ASKED: &str = "__subclasscheck__";

/// What else it asks.
const NAMES: [&str; 4] = ["get_cache_token", "clear", "KeyError", "_find_impl"];

impl Recorder {
    /// A call of `dispatch(cls)` of a generic function from outside. `None`: it's another one, or an abstract class is registered.
    pub(super) fn call_dispatch<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let code = value(callable, Field::Code)?;
        if !code_of_dispatch(frame.py())?.bind(frame.py()).is(&code) || self.is_stopped() {
            return None;
        }
        let [class] = *args else { return None };
        if names.is_some()
            || self.kind(class) != Kind::Type
            || self.kind(callable) != Kind::Function
        {
            return None;
        }
        let [token, _, registry] = self.cells_of(frame, callable)?;
        // The class of classes doesn't say what is below them.
        let own = types::lookup_named(&frame.py().get_type::<PyType>(), ASKED)?;
        let is_plain = |key: &Object<'py>| {
            types::lookup_named(&key.get_type(), ASKED).is_some_and(|asked| asked.is(&own))
        };
        let registry = registry.as_borrowed();
        if !token.is_none() || !heap::is_exact_dict(registry) {
            return None;
        }
        if !heap::dict_items(registry).iter().all(|(key, _)| is_plain(key)) {
            return None;
        }
        self.note(frame, |state| state.adopt_keys(registry))?;
        let found = match self.registered_for(frame, registry, class) {
            Ok(found) => found,
            Err(raised) => return Some(Err(raised)),
        };
        // It keeps what it has found.
        let kept = {
            let _native = Suspended::new(frame.py());
            call.natively()
        };
        if kept.as_ref().is_ok_and(|kept| !found.is(kept)) {
            self.stop(frame, Reason::Unsupported, "another function than the registered one");
        }
        Some(kept)
    }

    /// What the cells of such a function hold, which is read.
    fn cells_of<'py>(
        &self,
        frame: &Frame<'py>,
        function: Borrowed<'_, 'py>,
    ) -> Option<[Object<'py>; 3]> {
        let cells = heap::tuple_items(value(function, Field::Closure)?.as_borrowed());
        let held = |cell: &Object<'py>| value(cell.as_borrowed(), Field::CellContents);
        let held: [Object<'py>; 3] =
            cells.iter().map(held).collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let parent = self.state.borrow().source(function)?;
        self.note(frame, |state| {
            let id = state.object(function);
            state.guard(parent, GuardKind::Is(id));
            for (index, (cell, held)) in cells.iter().zip(&held).enumerate() {
                if FREE[index] == "dispatch_cache" {
                    continue;
                }
                let source = state.sources.intern(Source::ClosureCell { parent, index });
                if state.origin(cell.as_borrowed()).is_none() {
                    state.objects.adopt(cell.as_borrowed(), source);
                }
                state.read_cell(cell.as_borrowed(), source, Some(held.as_borrowed()))?;
            }
            Ok(())
        })?;
        Some(held)
    }

    /// The function that is registered for a class, or for the first of its bases that has one.
    fn registered_for<'py>(
        &self,
        frame: &Frame<'py>,
        registry: Borrowed<'_, 'py>,
        class: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.contains_item(frame, registry, class)? {
            return self.get_item(frame, registry, class);
        }
        let name = pyo3::intern!(frame.py(), "__mro__").as_any().as_borrowed();
        self.class_attr(frame, class, name)?;
        let order = class.cast::<PyType>().ok().and_then(|class| types::mro(class));
        let order = order.map_or_else(Vec::new, |order| heap::tuple_items(order.as_borrowed()));
        for base in order.iter().skip(1) {
            if self.contains_item(frame, registry, base.as_borrowed())? {
                return self.get_item(frame, registry, base.as_borrowed());
            }
        }
        Ok(frame.py().None().into_bound(frame.py()))
    }
}

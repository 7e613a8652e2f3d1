//! What is put in order, or found to be the largest, of numbers that were read from tensors: nodes that call the same C
//! functions again, whatever the order is.
//!
//! All numbers of a row have the same type, so that this is known of each result too. Of a NaN it matters which object it is,
//! so where there is one in the recorded call the numbers are asked for their values.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyRange};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_graph::{Arg, TextId, Value};

use super::arithmetic::Term;
use super::number_functions;
use super::read_numbers::{are_read, own};
use super::read_tensors::LONGEST;
use crate::functions::{Class, Model, Numeric};
use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};

/// Numbers of one type, of which one was read.
struct Row<'py> {
    items: Vec<Object<'py>>,
    terms: SmallVec<[Term; 2]>,
}

/// Whether numbers are of one type, and none is a NaN.
pub(super) fn are_alike(numbers: &[Borrowed<'_, '_>]) -> bool {
    let is_float = |number: &Borrowed<'_, '_>| {
        number.cast_exact::<PyFloat>().is_ok_and(|number| !number.value().is_nan())
    };
    numbers.iter().all(|number| number.is_exact_instance_of::<PyInt>())
        || numbers.iter().all(is_float)
}

impl Recorder {
    /// A call that orders numbers of which one was read. `None`: it's none, or not for nodes; nothing was executed.
    pub(in crate::recorder) fn ordered_numbers<'py>(
        &self,
        class: &Class,
        numeric: Option<Numeric>,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.has_symbols() || !self.session.takes_steps() {
            return None;
        }
        let Call { frame, callable, args, names } = call;
        let name = single_name(names)?;
        match (numeric, class, args, name) {
            (Some(Numeric::Sorted), _, [sequence], "") => self.sorted_row(frame, *sequence, None),
            (Some(Numeric::Sorted), _, [sequence, reverse], "reverse") => {
                self.sorted_row(frame, *sequence, Some(*reverse))
            }
            (Some(Numeric::Least | Numeric::Greatest), _, [places, key], "key") => {
                let is_max = numeric == Some(Numeric::Greatest);
                self.place_of_extreme(frame, is_max, *places, *key)
            }
            (_, Class::Model(Model::ContainerWrite), [list], "") => {
                self.sort_list(frame, callable, *list, None)
            }
            (_, Class::Model(Model::ContainerWrite), [list, reverse], "reverse") => {
                self.sort_list(frame, callable, *list, Some(*reverse))
            }
            _ => None,
        }
    }

    fn row<'py>(&self, sequence: Borrowed<'_, 'py>) -> Option<Row<'py>> {
        let items = self.elements(sequence)?;
        if items.len() < 2 || items.len() > LONGEST as usize {
            return None;
        }
        let terms = {
            let borrowed: Vec<_> = items.iter().map(Bound::as_borrowed).collect();
            if !are_alike(&borrowed) {
                return None;
            }
            self.state.borrow_mut().terms(&borrowed)?
        };
        are_read(&terms).then_some(Row { items, terms })
    }

    /// `sorted(numbers)`: a new list.
    fn sorted_row<'py>(
        &self,
        frame: &Frame<'py>,
        sequence: Borrowed<'_, 'py>,
        reverse: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        let py = frame.py();
        let Row { items, terms } = self.row(sequence)?;
        let is_reverse = reverse.map_or(Some(false), known_flag)?;
        let list = PyList::new(py, &items).ok()?;
        // Equal ones stay in their order, also in reverse: zeros have signs.
        if is_reverse {
            list.reverse().ok()?;
        }
        list.sort().ok()?;
        if is_reverse {
            list.reverse().ok()?;
        }
        static SORTED: Named = Named::new("builtins", "sorted");
        let function = SORTED.get(py).ok()?;
        let ordered: Vec<Object<'py>> =
            list.iter().map(|item| own(&item)).collect::<Option<_>>()?;
        let ordered_list = PyList::new(py, &ordered).ok()?.into_any();
        self.note(frame, |state| {
            let target = state.function_target(function.as_borrowed(), "builtins.sorted".into());
            let stack = state.place(frame);
            let row = state.row_arg(&terms);
            let node = if is_reverse {
                let names: [TextId; 1] = [state.graph.intern("reverse")];
                state.graph.call_with_keywords(target, &[row, Arg::bool(true)], &names, stack)
            } else {
                state.graph.call(target, &[row], stack)
            };
            state.carry_row(node, &ordered);
            state.set_fresh(ordered_list.as_borrowed());
            Ok(())
        })?;
        Some(Ok(ordered_list))
    }

    /// `numbers.sort()` of a list that the trace made.
    fn sort_list<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        list: Borrowed<'_, 'py>,
        reverse: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        let plain = list.cast_exact::<PyList>().ok()?;
        let sort = frame.py().get_type::<PyList>().getattr("sort").ok()?;
        if !sort.is(callable) || self.origin(list) != Some(Origin::Fresh) {
            return None;
        }
        self.note(frame, |state| state.write_own(list))?;
        let sorted = match self.sorted_row(frame, list, reverse)? {
            Ok(sorted) => sorted,
            Err(raised) => return Some(Err(raised)),
        };
        // The list is changed.
        ops::count();
        plain.set_slice(0, plain.len(), &sorted).ok()?;
        Some(Ok(frame.py().None().into_bound(frame.py())))
    }

    /// `max(range(len(numbers)), key=numbers.__getitem__)`: the place of the first of the largest. It's found as
    /// `numbers.index(max(numbers))`.
    fn place_of_extreme<'py>(
        &self,
        frame: &Frame<'py>,
        is_max: bool,
        places: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let py = frame.py();
        if self.kind(key) != Kind::Builtin {
            return None;
        }
        let (list, method) = heap::bound_parts(key)?;
        let class = py.get_type::<PyList>();
        let is_items = class.getattr("__getitem__").ok()?.is(&method)
            && list.is_exact_instance_of::<PyList>()
            && self.origin(list.as_borrowed()) == Some(Origin::Fresh);
        if !is_items {
            return None;
        }
        let Row { items, terms } = self.row(list.as_borrowed())?;
        let all = py.get_type::<PyRange>().call1((items.len(),)).ok()?;
        if !places.is_exact_instance_of::<PyRange>() || !all.eq(places).ok()? {
            return None;
        }
        let name = if is_max { "max" } else { "min" };
        let extreme = number_functions::extreme(is_max).get(py).ok()?;
        let index = class.getattr("index").ok()?;
        let plain = PyList::new(py, &items).ok()?;
        let best = extreme.call1((&plain,)).ok()?;
        let place = own(&index.call1((&plain, best)).ok()?)?;
        self.note(frame, |state| {
            let is_float = items[0].is_exact_instance_of::<PyFloat>();
            let row = state.row_arg(&terms);
            let function = extreme.as_borrowed();
            let best = state.called(frame, function, format!("builtins.{name}"), &[row]);
            state.graph.set_value(best, if is_float { Value::Float } else { Value::Integer });
            let (function, name) = (index.as_borrowed(), "builtins.list.index".into());
            let node = state.called(frame, function, name, &[row, Arg::Node(best)]);
            state.carry_read(&place, node, None);
            Ok(())
        })?;
        Some(Ok(place))
    }
}

impl State {
    /// Numbers as a list in the graph.
    fn row_arg(&mut self, terms: &[Term]) -> Arg {
        let args = self.term_args(terms);
        self.graph.list(&args)
    }
}

/// The name of the one argument that has a name; an empty text: none has. `None`: there are more.
fn single_name(names: Option<Borrowed<'_, '_>>) -> Option<&'static str> {
    let names = names.map_or_else(Vec::new, heap::tuple_items);
    match names.as_slice() {
        [] => Some(""),
        [name] => match &*heap::text(name.as_borrowed()) {
            "reverse" => Some("reverse"),
            "key" => Some("key"),
            _ => None,
        },
        _ => None,
    }
}

/// `True` or `False`.
pub(in crate::recorder) fn known_flag(flag: Borrowed<'_, '_>) -> Option<bool> {
    flag.cast_exact::<PyBool>().ok().map(|flag| flag.is_true())
}

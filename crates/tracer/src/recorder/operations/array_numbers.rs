//! Scalars of NumPy's where C code asks for numbers: they are taken as Python's, which are carried or decided.
//!
//! PyTorch takes `np.float64(0.5)` as it takes `0.5` (where a scalar says the type of a new tensor, it's handed over as it is), and
//! so do `math`, `range` and places in lists. What `bool`, `if` and `while` ask is a decision.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyList, PySlice, PyTuple};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, ops};
use stator_graph::{Arg, Value};

use super::array_values::{is_number, is_scalar};
use crate::functions::{Class, Model, Numeric, Traits};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, ArrayValues, Decides};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap::{self, array_kind};
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};
use crate::recorder::numbers::number_functions::boolean;
use crate::recorder::numbers::read_numbers::own;
use crate::recorder::numbers::read_tensors::{LONGEST, own_rows};

/// Whether an array or a scalar holds integers of 64 bits without a sign.
fn is_wide(array: Borrowed<'_, '_>) -> bool {
    let size = || array.getattr("itemsize").and_then(|size| size.extract::<usize>());
    array_kind(array) == Some('u') && size().is_ok_and(|size| size == 8)
}

/// Arguments that stand in others' place.
pub(in crate::recorder) type Given<'py> = SmallVec<[Object<'py>; 8]>;

/// Functions of PyTorch's to which a scalar of NumPy's says its type.
const TYPED: [&str; 6] =
    ["tensor", "as_tensor", "asarray", "from_numpy", "new_tensor", "scalar_tensor"];

/// Whether such a scalar says the type of what an operation gives.
pub(super) fn is_typed(operation: &str) -> bool {
    TYPED.contains(&stator_operators::torch::last_part(operation))
}

/// How deep containers are looked into before it's taken for granted that they hold arrays.
const DEPTH: usize = 16;

/// Whether an object is an array or a scalar of NumPy's, or may hold one. Nothing is read by asking. A container that
/// others hold often is gone into once.
fn may_hold_arrays(object: Borrowed<'_, '_>, depth: usize) -> bool {
    let is_one = |object: Borrowed<'_, '_>| array_kind(object).is_some();
    if !holds_parts(object) {
        return is_one(object);
    }
    if depth == 0 {
        return true;
    }
    let mut seen = FxHashSet::default();
    let mut parts = heap::plain_parts(object);
    for _ in 1..depth {
        let mut below = Vec::new();
        for part in &parts {
            let part = part.as_borrowed();
            if !holds_parts(part) {
                if is_one(part) {
                    return true;
                }
            } else if seen.insert(part.as_ptr() as usize) {
                below.extend(heap::plain_parts(part));
            }
        }
        if below.is_empty() {
            return false;
        }
        parts = below;
    }
    parts.iter().any(|part| holds_parts(part.as_borrowed()) || is_one(part.as_borrowed()))
}

fn holds_parts(object: Borrowed<'_, '_>) -> bool {
    heap::is_plain_tuple(object)
        || heap::is_exact_list(object)
        || object.is_exact_instance_of::<PySlice>()
}

impl Recorder {
    /// The arguments of a call that iterates them, with the rows of arrays in place of these.
    pub(in crate::recorder) fn arguments_as_rows<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Given<'py>>> {
        let Call { frame, callable, args, .. } = call;
        if !self.functions.traits(callable).has(Traits::ITERATES)
            // Nobody looks at what a list holds.
            || !args.iter().any(|arg| self.state.borrow_mut().kind_alone(*arg) == Kind::Opaque)
        {
            return None;
        }
        let mut rows: SmallVec<[Option<Object<'py>>; 8]> = SmallVec::new();
        for arg in args {
            match self.rows_of_array(frame, *arg) {
                Some(Err(raised)) => return Some(Err(raised)),
                found => rows.push(found.and_then(std::result::Result::ok)),
            }
        }
        if rows.iter().all(Option::is_none) {
            return None;
        }
        let given = args.iter().zip(rows);
        Some(Ok(given.map(|(arg, rows)| rows.unwrap_or_else(|| (*arg).to_owned())).collect()))
    }

    /// The truth of an array with one element, or of a scalar: a decision.
    pub(in crate::recorder) fn truth_of_array(
        &self,
        frame: &Frame<'_>,
        array: Borrowed<'_, '_>,
    ) -> Option<Result<bool>> {
        let is_one = self.holds_array(array)
            && (is_scalar(array) || array.len().is_ok_and(|length| length == 1));
        if !is_one || !self.may_compute_arrays(frame) || !self.knows_array(frame, array) {
            return None;
        }
        self.decided_by_array(frame, array, |state| state.graph_arg(array))
    }

    /// The truth of something of NumPy's, decided by what stands for it in the graph.
    pub(super) fn decided_by_array(
        &self,
        frame: &Frame<'_>,
        value: Borrowed<'_, '_>,
        given: impl FnOnce(&mut State) -> Noted<Arg>,
    ) -> Option<Result<bool>> {
        let class = frame.py().get_type::<PyBool>().into_any();
        let asked = |state: &mut State| {
            let given = [given(state)?];
            let node = state.called(frame, class.as_borrowed(), "builtins.bool".into(), &given);
            Ok(Arg::Node(node))
        };
        self.decided(frame, Asks::Program, asked, || ops::truth(value))
    }

    /// Python's number of a scalar, or of an array with one element: a number that is carried; a truth value is decided.
    /// `None`: it can't be.
    pub(in crate::recorder) fn number_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !self.holds_array(array)
            || !self.may_compute_arrays(frame)
            || !self.knows_array(frame, array)
        {
            return None;
        }
        let py = frame.py();
        // One of 64 bits without a sign may be beyond what is carried.
        if is_wide(array) {
            return None;
        }
        if array_kind(array) == Some('b') {
            let answer = Raised::unless(py, self.truth_of_array(frame, array)?)?;
            return Some(boolean(py, answer));
        }
        let value = array.call_method0("item").ok()?;
        let number = own(&value)?;
        let name = pyo3::intern!(py, "item").as_any().as_borrowed();
        let method = stator_cpython::heap::types::lookup(array.get_type().as_borrowed(), name)?;
        self.state.borrow_mut().repeated.see();
        self.carries(frame, &number, |state| {
            let array = state.graph_arg(array)?;
            let node = state.called(frame, method.as_borrowed(), "builtins.item".into(), &[array]);
            let is_float = number.is_exact_instance_of::<PyFloat>();
            state.graph.set_value(node, if is_float { Value::Float } else { Value::Integer });
            Ok(node)
        })?;
        self.baseline.set(ops::executed());
        Some(number)
    }

    /// `array.tolist()` of a few numbers: lists of numbers that are carried. `None`: not all can be, or there are truth values, of
    /// which each would be decided.
    pub(super) fn list_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !self.holds_array(array) || is_wide(array) || !self.may_compute_arrays(frame) {
            return None;
        }
        let count = |name: &str| array.getattr(name).and_then(|count| count.extract::<usize>());
        let (dimensions, size) = (count("ndim").ok()?, count("size").ok()?);
        if dimensions == 0 {
            return self.number_of_array(frame, array);
        }
        if size > LONGEST as usize || !self.knows_array(frame, array) {
            return None;
        }
        let name = pyo3::intern!(frame.py(), "tolist").as_any().as_borrowed();
        let method = stator_cpython::heap::types::lookup(array.get_type().as_borrowed(), name)?;
        let list = array.call_method0("tolist").ok()?;
        let carried = own_rows(&list, dimensions)?;
        self.state.borrow_mut().repeated.see();
        self.note(frame, |state| {
            let array = state.graph_arg(array)?;
            let node =
                state.called(frame, method.as_borrowed(), "builtins.tolist".into(), &[array]);
            state.carry_rows(node, &carried, dimensions);
            Ok(())
        })?;
        self.baseline.set(ops::executed());
        Some(carried)
    }

    /// As [`Recorder::number_of_array`], of a scalar.
    pub(in crate::recorder) fn number_of_scalar<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let is_scalar = self.holds_array(object) && is_scalar(object);
        if is_scalar { self.number_of_array(frame, object) } else { None }
    }

    /// `max(a, b)` and `min(a, b)` of numbers of which some are scalars of NumPy's: which one it is, is decided. `None`: it's
    /// another call.
    pub(in crate::recorder) fn extreme_of_scalars<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let (mut best, rest) = args.split_first()?;
        if rest.is_empty() || !args.iter().any(|arg| array_kind(*arg).is_some()) {
            return None;
        }
        let op = self.functions.numeric(callable).and_then(Numeric::extreme)?;
        let is_known = |arg: &Borrowed<'_, '_>| {
            let is_ordered = array_kind(*arg).is_some_and(|kind| matches!(kind, 'i' | 'u' | 'f'));
            is_number(*arg) || is_ordered && is_scalar(*arg) && self.holds_array(*arg)
        };
        if self.is_stopped() || !args.iter().all(is_known) {
            return None;
        }
        for item in rest {
            let is_better = self.compare_op(frame, op, *item, *best).and_then(|answer| {
                if answer.is_exact_instance_of::<PyBool>() {
                    return ops::truth(answer.as_borrowed());
                }
                self.truth_of(frame, answer.as_borrowed())
            });
            match is_better {
                Ok(true) => best = item,
                Ok(false) => {}
                Err(raised) => return Some(Err(raised)),
            }
        }
        Some(Ok((*best).to_owned()))
    }

    /// As [`Recorder::plain_numbers`], of an index: other scalars than integers are none, and errors name their types.
    pub(super) fn plain_places<'py>(
        &self,
        frame: &Frame<'py>,
        index: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !may_hold_arrays(index, DEPTH) {
            return None;
        }
        let are_places = {
            let mut state = self.state.borrow_mut();
            let leaves = state.leaves_of(&[index]);
            leaves
                .iter()
                .all(|leaf| matches!(array_kind(leaf.as_borrowed()), None | Some('i' | 'u')))
        };
        if are_places { self.plain_numbers(frame, index) } else { None }
    }

    /// An object with Python's numbers where this one has scalars of NumPy's. `None`: it has none, or not all can be read.
    pub(super) fn plain_numbers<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let py = frame.py();
        if self.holds_array(object) {
            return if is_scalar(object) { self.number_of_array(frame, object) } else { None };
        }
        let holds = |part: Borrowed<'_, 'py>| {
            let mut state = self.state.borrow_mut();
            let leaves = state.leaves_of(&[part]);
            leaves.iter().any(|leaf| {
                state.is_array_value(leaf.as_borrowed()) && is_scalar(leaf.as_borrowed())
            })
        };
        let changed = |parts: &[Object<'py>]| -> Option<Vec<Object<'py>>> {
            let change = |part: &Object<'py>| match holds(part.as_borrowed()) {
                true => self.plain_numbers(frame, part.as_borrowed()),
                false => Some(part.clone()),
            };
            parts.iter().map(change).collect()
        };
        let is_slice = object.is_exact_instance_of::<PySlice>();
        let is_tuple = object.is_exact_instance_of::<PyTuple>();
        if !is_slice && !is_tuple && !heap::is_exact_list(object) || !holds(object) {
            return None;
        }
        let parts = changed(&heap::plain_parts(object))?;
        if is_slice {
            let [start, stop, step] = <[_; 3]>::try_from(parts).ok()?;
            return py.get_type::<PySlice>().call1((start, stop, step)).ok();
        }
        if is_tuple {
            return Some(PyTuple::new(py, parts).ok()?.into_any());
        }
        Some(PyList::new(py, parts).ok()?.into_any())
    }

    /// The arguments of a call of C code that takes scalars of NumPy's as Python's numbers, as those. `None`: it's given none.
    pub(in crate::recorder) fn arguments_as_numbers<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Option<Given<'py>> {
        let Call { frame, callable, args, .. } = call;
        let may_hold = |depth| args.iter().any(|arg| may_hold_arrays(*arg, depth));
        let takes = match class {
            Class::Operation(operation) => may_hold(DEPTH) && !is_typed(&operation.name),
            // Functions such as `len` don't look into what they are given.
            Class::Pure if !may_hold(0) => false,
            Class::Pure => {
                let is_whole = heap::is_named(callable, &["floor", "ceil", "trunc"]);
                let is_of = |module: &str| heap::qualified_name_of(callable).starts_with(module);
                let are_floats =
                    || args.iter().all(|arg| array_kind(*arg).is_none_or(|kind| kind == 'f'));
                // It gives a number of the type that it is given.
                let is_product = heap::is_named(callable, &["prod", "sumprod"]);
                is_of("math.") && !is_product && (!is_whole || are_floats())
                    || heap::is_named(callable, &["range", "slice"])
            }
            Class::Model(Model::Scalar) => {
                heap::is_named(callable, &["int", "float", "bool"])
                    || heap::is_named(callable, &["round"]) && args.len() == 1
            }
            _ => false,
        };
        if !takes || self.is_stopped() {
            return None;
        }
        let plain: SmallVec<[Option<Object<'py>>; 8]> =
            args.iter().map(|arg| self.plain_numbers(frame, *arg)).collect();
        if plain.iter().all(Option::is_none) {
            return None;
        }
        let given = args.iter().zip(plain);
        Some(given.map(|(arg, plain)| plain.unwrap_or_else(|| (*arg).to_owned())).collect())
    }
}

//! NumPy's arrays and scalars as values of the graph: what functions, methods and operators make of them are nodes.
//!
//! An array is what a node gives, or an object from outside, which is an input of the graph. Its data is never looked at: of
//! an array from outside a decision says that it is of the same type, sizes and strides as the recorded one. So all that
//! follows from these is the same in each replay: the type and the sizes of what the functions of the table give. A number
//! that is taken out is carried, and a truth value decided.
//!
//! What writes to an array is a node at its place. Nobody can take that back, so it counts as code of the program's own
//! (`raises::ARRAY_WRITES`): what raises behind it leaves by an exit, or the trace ends before it.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PySlice, PyTuple};
use rustc_hash::FxHashSet;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_cpython::{Result, ops};
use stator_graph::{Arg, NodeId, Target, Value};

use crate::breaks::Reason;
use crate::functions::{ArrayUse, Class, Model, numpy};
use crate::held::{self, Held};
use crate::raises::{ARRAY_WRITES, ARRAYS};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, ArrayValues, Decides, Ends, Operations};
use crate::recorder::notes::call::{Call, RecordedArgs, argument, library};
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap::{self, array_kind};
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};

/// Arrays of more rows aren't iterated.
const MOST_ROWS: usize = 64;

impl State {
    /// What stands in an object or is it: the parts of tuples, lists and slices, each of which is gone into once. One that
    /// holds itself is a part, too: nobody knows what to do with such.
    fn array_leaves<'py>(
        &mut self,
        object: Borrowed<'_, 'py>,
        seen: &mut FxHashSet<usize>,
        found: &mut Vec<Object<'py>>,
    ) {
        let has_parts = heap::is_plain_tuple(object)
            || heap::is_exact_list(object)
            || object.is_exact_instance_of::<PySlice>();
        let is_leaf = !has_parts
            || self.once(object, true, |state| {
                if seen.insert(object.as_ptr() as usize) {
                    state.kind(object);
                    for part in heap::plain_parts(object) {
                        state.array_leaves(part.as_borrowed(), seen, found);
                    }
                }
                false
            });
        if is_leaf {
            found.push(object.to_owned());
        }
    }

    pub(super) fn leaves_of<'py>(&mut self, objects: &[Borrowed<'_, 'py>]) -> Vec<Object<'py>> {
        let (mut seen, mut found) = (FxHashSet::default(), Vec::new());
        for object in objects {
            self.array_leaves(*object, &mut seen, &mut found);
        }
        found
    }

    /// Whether a function of NumPy's may be given this.
    fn may_be_given(&mut self, leaf: Borrowed<'_, '_>, is_index: bool) -> bool {
        match self.kind(leaf) {
            Kind::Constant => true,
            Kind::Singleton => heap::is_truth_of_numpy(leaf),
            Kind::Type => stator_cpython::heap::types::is_immutable(
                leaf.cast::<pyo3::types::PyType>().expect("the kind says so"),
            ),
            Kind::Tensor => {
                // `c10::ScalarType`: integers.
                let info = tensor::info(leaf);
                let is_place = |info: &tensor::TensorInfo| {
                    info.sizes.is_empty() && matches!(info.dtype, 1..=4) && !info.requires_grad
                };
                is_index && info.as_ref().is_some_and(is_place)
            }
            _ => self.is_array_value(leaf) || self.is_universal(leaf),
        }
    }

    /// Whether an object is a universal function: `np.add` of `np.add.at`.
    fn is_universal(&self, object: Borrowed<'_, '_>) -> bool {
        heap::type_name(object) == "ufunc"
            && self.arrays.universal.contains(&(object.as_ptr() as usize))
    }
}

/// Whether an object is a scalar of NumPy's, rather than an array.
pub(super) fn is_scalar(object: Borrowed<'_, '_>) -> bool {
    object.get_type().name().is_ok_and(|name| name != "ndarray")
}

pub(super) fn is_number(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>()
}

impl Recorder {
    /// As [`State::is_array_value`].
    pub(in crate::recorder) fn holds_array(&self, object: Borrowed<'_, '_>) -> bool {
        self.kind(object) == Kind::Opaque && self.state.borrow_mut().is_array_value(object)
    }

    /// Whether the facts of an array are those of the recorded call: a decision, if it's from outside.
    pub(super) fn knows_array(&self, frame: &Frame<'_>, array: Borrowed<'_, '_>) -> bool {
        let Some(Origin::Source(source)) = self.origin(array) else { return true };
        let is_known = self.state.borrow().arrays.known.contains(&source);
        if is_known || is_scalar(array) {
            let node = |state: &mut State| {
                state.object_node(source);
                Ok(())
            };
            return self.note(frame, node).is_some();
        }
        let Ok([dtype, shape, strides, is_writable]) = held::array_facts(&array) else {
            return false;
        };
        let py = frame.py();
        // `str` of a type is code in Python.
        let text = dtype.getattr("str").map_or_else(|_| "dtype".into(), |text| text.to_string());
        let asked = |state: &mut State| {
            let array = Arg::Node(state.object_node(source));
            let dtype = Arg::Object(state.graph_object(dtype.as_borrowed(), || text));
            let shape = state.graph_arg(shape.as_borrowed())?;
            let strides = state.graph_arg(strides.as_borrowed())?;
            let is_writable = state.graph_arg(is_writable.as_borrowed())?;
            let function = Held::Array
                .function(py)
                .map_err(|error| (Reason::Unsupported, error.to_string()))?;
            let args = [array, dtype, shape, strides, is_writable];
            let node = state.called(frame, function.as_borrowed(), Held::Array.name(), &args);
            Ok(Arg::Node(node))
        };
        let decided = self.decided(frame, Asks::Operation, asked, || Ok(true));
        if !matches!(decided, Some(Ok(true))) || self.is_stopped() {
            return false;
        }
        self.state.borrow_mut().arrays.known.insert(source);
        true
    }

    /// Whether arrays may be computed with here.
    pub(super) fn may_compute_arrays(&self, frame: &Frame<'_>) -> bool {
        if self.is_stopped() || !self.session.is_replayed() || !self.may_read(frame) {
            return false;
        }
        let state = self.state.borrow();
        // A replay sets context variables at its end.
        let asks_written = state.context.is_written()
            && numpy::error_variable(frame.py())
                .is_none_or(|variable| state.context.is_written_at(variable.as_ptr() as usize));
        !state.enclosed.is_on() && !asks_written && state.program.is_none()
    }

    /// Calls a function or a method of NumPy's of the table.
    pub(in crate::recorder) fn call_arrays<'py>(
        &self,
        what: ArrayUse,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let name = heap::callable_name(callable).into_owned();
        if what == ArrayUse::Number
            && let ([array], None) = (args, names)
            && let Some(number) = self.number_of_array(frame, *array)
        {
            return Ok(number);
        }
        if what == ArrayUse::List
            && let ([array], None) = (args, names)
            && let Some(list) = self.list_of_array(frame, *array)
        {
            return Ok(list);
        }
        let of_universal = args.first().filter(|_| name == "at");
        if let Some(function) = of_universal
            && self.functions.class(*function).is_some()
        {
            self.note(frame, |state| {
                state.arrays.universal.insert(function.as_ptr() as usize);
                state.know_for_good(*function)
            });
        }
        let refused = self.refuses_arrays(what, &name, call);
        if let Some(detail) = refused {
            self.stop(frame, Reason::OpaqueCall, detail);
            return call.natively();
        }
        let writes = what == ArrayUse::Writes;
        if !writes {
            self.settle_given(what, &name, call);
        }
        self.array_node(call, &name, writes)
    }

    /// Why a call of such a function can't be a node.
    fn refuses_arrays(&self, what: ArrayUse, name: &str, call: Call<'_, '_>) -> Option<String> {
        let Call { frame, callable, args, names } = call;
        // These ask a tensor for its array.
        let is_read = matches!(name, "array" | "asarray" | "linear_sum_assignment")
            && args.first().is_some_and(|first| {
                self.kind(*first) == Kind::Tensor && self.becomes_array(frame, *first)
            });
        let mut state = self.state.borrow_mut();
        let refused = |detail: &str| Some(format!("{name} {detail}"));
        for keyword in ["out", "where", "like", "casting", "order", "subok", "signature"] {
            let given = argument(args, names, usize::MAX, keyword);
            if given.is_some_and(|given| !given.is_none()) {
                return refused(&format!("with {keyword}="));
            }
        }
        let is_universal = heap::type_name(callable) == "ufunc";
        if is_universal {
            let arity = callable.getattr("nin").and_then(|nin| nin.extract::<usize>());
            if arity.is_ok_and(|arity| call.positional().len() != arity) {
                return refused("into an array");
            }
        }
        if matches!(what, ArrayUse::Number | ArrayUse::List) {
            return refused("of an array");
        }
        if name == "where" && args.len() != 3 {
            return refused("without values");
        }
        let leaves = state.leaves_of(&args[usize::from(is_read)..]);
        let is_index = what == ArrayUse::Writes;
        if let Some(leaf) =
            leaves.iter().find(|leaf| !state.may_be_given(leaf.as_borrowed(), is_index))
        {
            return refused(&format!("of a {}", heap::type_name(leaf.as_borrowed())));
        }
        // Where an array may be written into, or says which elements count.
        let takes_more = is_universal
            || matches!(what, ArrayUse::Elements | ArrayUse::Floats | ArrayUse::Writes)
            || matches!(
                name,
                "dot"
                    | "inner"
                    | "outer"
                    | "concatenate"
                    | "stack"
                    | "vstack"
                    | "hstack"
                    | "column_stack"
                    | "take"
                    | "searchsorted"
            );
        let more = state.leaves_of(args.get(1..).unwrap_or_default());
        if !takes_more && more.iter().any(|leaf| state.is_array_value(leaf.as_borrowed())) {
            return refused("into an array");
        }
        if what == ArrayUse::Writes && call.positional().is_empty() {
            // Which one is written has no place then.
            return refused("with names alone");
        }
        if what == ArrayUse::Writes && !state.is_own_memory(args, name) {
            return refused("to the memory of a tensor");
        }
        None
    }

    /// Integers that say sizes are decided as a whole.
    fn settle_given(&self, what: ArrayUse, name: &str, call: Call<'_, '_>) {
        let Call { frame, args, .. } = call;
        let leaves = self.state.borrow_mut().leaves_of(args);
        let mut state = self.state.borrow_mut();
        let has_array = leaves.iter().any(|leaf| state.is_array_value(leaf.as_borrowed()));
        drop(state);
        let says_sizes = match what {
            ArrayUse::Floats => false,
            // With a float among them floats come of them, too.
            ArrayUse::Elements => {
                let has_float = || leaves.iter().any(|leaf| leaf.is_exact_instance_of::<PyFloat>());
                !has_array && !has_float() || matches!(name, "round" | "around")
            }
            _ => true,
        };
        if !says_sizes && !matches!(name, "array" | "asarray") {
            return;
        }
        let is_settled = |leaf: &&Object<'_>| {
            leaf.is_exact_instance_of::<PyInt>() || matches!(name, "arange" | "linspace")
        };
        let settled: Vec<_> = leaves.iter().filter(is_settled).map(Bound::as_borrowed).collect();
        self.concrete(frame, &settled, "read by NumPy");
    }

    /// Executes a call of NumPy's, and appends its node.
    pub(in crate::recorder) fn array_node<'py>(
        &self,
        call: Call<'_, 'py>,
        name: &str,
        writes: bool,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        self.state.borrow_mut().repeated.see();
        let leaves = self.state.borrow_mut().leaves_of(args);
        let is_fine = self.may_compute_arrays(frame)
            && leaves.iter().all(|leaf| {
                !self.holds_array(leaf.as_borrowed()) || self.knows_array(frame, leaf.as_borrowed())
            });
        if !is_fine {
            self.stop(frame, Reason::OpaqueCall, format!("{name}, of arrays"));
            return call.natively();
        }
        // Its name isn't that of an operation on tensors.
        let prefix = if writes { ARRAY_WRITES } else { ARRAYS };
        let recorded = |state: &mut State| {
            let mut recorded = RecordedArgs::default();
            for arg in args {
                let arg = match state.is_universal(*arg) {
                    true => Arg::Object(state.graph_object(*arg, || heap::name_of(*arg))),
                    false => state.graph_arg(*arg)?,
                };
                recorded.args.push(arg);
            }
            recorded.names = RecordedArgs::of(state, &[], names)?.names;
            Ok((state.function_target(callable, format!("{prefix}{name}")), recorded))
        };
        let bind =
            |state: &mut State, node, value: &Object<'py>| state.bind_array(node, value, name);
        let (value, node) = self.node_at_risk(call, name, recorded, bind)?;
        if let Some(node) = node
            && heap::is_truth_of_numpy(value.as_borrowed())
        {
            self.decide_truth(frame, node, &value);
        }
        Ok(value)
    }

    /// Executes a function that may raise, and appends its node, with a way out where a replay needs one. `recorded` says what the
    /// node calls, `bind` what it gives. The node is `None` where the trace has ended.
    pub(super) fn node_at_risk<'py>(
        &self,
        call: Call<'_, 'py>,
        name: &str,
        recorded: impl FnOnce(&mut State) -> Noted<(Target, RecordedArgs)>,
        bind: impl FnOnce(&mut State, NodeId, &Object<'py>) -> Noted<()>,
    ) -> Result<(Object<'py>, Option<NodeId>)> {
        let frame = call.frame;
        let mut noted = self.note(frame, |state| {
            let (target, recorded) = recorded(state)?;
            let risk = self.risk(state, frame, target, &recorded.args, &recorded.names, false);
            Ok((target, recorded, risk))
        });
        let risk = noted.as_mut().and_then(|(.., risk)| risk.take());
        let way_out = risk.as_ref().and_then(|_| self.catch(frame));
        if way_out.is_none()
            && let Some((reason, detail)) = risk.and_then(|risk| self.runs_risk(risk))
        {
            self.stop(frame, reason, detail);
            noted = None;
        }
        let value = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()
        };
        if value.is_err() {
            self.stop(frame, Reason::OperationRaised, name.to_owned());
        }
        let value = value?;
        let Some((target, recorded, _)) = noted else { return Ok((value, None)) };
        let node = self.note(frame, |state| {
            let stack = state.place(frame);
            let node =
                state.graph.call_with_keywords(target, &recorded.args, &recorded.names, stack);
            bind(state, node, &value)?;
            if let Some(way_out) = way_out {
                state.add_catch(way_out, stack);
            }
            Ok(node)
        });
        Ok((value, node))
    }

    /// A truth value of NumPy's: which of the two objects it is, is decided where it's made, as nothing else tells them from
    /// those of other nodes.
    fn decide_truth<'py>(&self, frame: &Frame<'py>, node: NodeId, value: &Object<'py>) {
        // What was computed can be again.
        self.baseline.set(ops::executed());
        let decided = self.decided_by_array(frame, value.as_borrowed(), |_| Ok(Arg::Node(node)));
        if !matches!(decided, Some(Ok(_))) {
            self.stop(frame, Reason::DataRead, "a truth value of NumPy's");
        }
    }

    /// An operator of which an operand is an array or a scalar of NumPy's. `None`: it's something else.
    pub(in crate::recorder) fn array_operator<'py>(
        &self,
        frame: &Frame<'py>,
        names: &[&'static str],
        operands: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        let may_be = |operand: &Borrowed<'_, '_>| match self.kind(*operand) {
            Kind::Opaque => self.holds_array(*operand),
            Kind::Singleton => heap::is_truth_of_numpy(*operand),
            _ => false,
        };
        let is_fine = |operand: &Borrowed<'_, '_>| may_be(operand) || is_number(*operand);
        if !operands.iter().any(may_be) || !operands.iter().all(is_fine) {
            return None;
        }
        // In place: scalars have no such operators.
        let writes = names.len() == 3 && self.holds_array(operands[0]) && !is_scalar(operands[0]);
        let name = if writes || names.len() < 3 { names[0] } else { names[1] };
        let function = library(frame.py(), "operator", name).ok()?;
        let call = Call::new(frame, function.as_borrowed(), operands);
        if writes && !self.state.borrow_mut().is_own_memory(operands, name) {
            return None;
        }
        Some(self.array_node(call, name.trim_matches('_'), writes))
    }

    /// The length of an array.
    pub(in crate::recorder) fn length_of_array(
        &self,
        frame: &Frame<'_>,
        array: Borrowed<'_, '_>,
    ) -> bool {
        self.holds_array(array)
            && !is_scalar(array)
            && self.may_compute_arrays(frame)
            && self.knows_array(frame, array)
    }

    /// The array over a tensor's memory. `None`: it isn't wholly described, or its sizes vary.
    pub(in crate::recorder) fn array_of_tensor<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let ([tensor], None) = (call.args, call.names) else { return None };
        if !self.becomes_array(call.frame, *tensor) {
            return None;
        }
        Some(self.array_node(call, "numpy", false))
    }

    /// Whether an array can be made of what is in a tensor. Its sizes are then those of the recorded call.
    fn becomes_array(&self, frame: &Frame<'_>, tensor: Borrowed<'_, '_>) -> bool {
        // `c10::ScalarType`: what NumPy has, too.
        let is_plain = tensor::info(tensor)
            .is_some_and(|info| matches!(info.dtype, 0..=7 | 11) && !info.requires_grad);
        if !is_plain || !self.may_compute_arrays(frame) || self.are_data_sized(&[tensor]) {
            return false;
        }
        self.note(frame, |state| {
            if let Some(given) = state.given(&[tensor], None, false) {
                state.fix_given(&given, "read by NumPy");
            }
            Ok(())
        })
        .is_some()
    }

    /// A tensor over the memory of an array that isn't the trace's own alone: who writes to it writes to that. `None`: it's
    /// something else.
    pub(in crate::recorder) fn tensor_of_outside_array<'py>(
        &self,
        name: &str,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let name = stator_operators::torch::last_part(name);
        let Call { frame, callable, args, .. } = call;
        let array = *args.first()?;
        if !matches!(name, "from_numpy" | "as_tensor" | "asarray") || !self.holds_array(array) {
            return None;
        }
        if !self.may_compute_arrays(frame) || !self.knows_array(frame, array) {
            return None;
        }
        let is_own = !matches!(self.origin(array), Some(Origin::Source(_)))
            && array.getattr("base").is_ok_and(|base| base.is_none());
        if is_own {
            return None;
        }
        let target =
            |state: &mut State| state.function_target(callable, format!("{ARRAY_WRITES}{name}"));
        Some(self.operation(frame, target, args, call.names, || call.natively()))
    }
}

impl ArrayValues for Recorder {
    fn item_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.holds_array(array) || is_scalar(array) {
            return None;
        }
        let (leaves, bounds) = {
            let mut state = self.state.borrow_mut();
            let leaves = state.leaves_of(&[key]);
            let parts = if heap::is_plain_tuple(key) {
                heap::plain_parts(key)
            } else {
                vec![key.to_owned()]
            };
            let slices: Vec<_> =
                parts.into_iter().filter(|part| part.is_exact_instance_of::<PySlice>()).collect();
            let slices: Vec<_> = slices.iter().map(Bound::as_borrowed).collect();
            (leaves, state.leaves_of(&slices))
        };
        let is_fine = |leaf: &Object<'py>| {
            let leaf = leaf.as_borrowed();
            self.state.borrow_mut().may_be_given(leaf, true)
                && array_kind(leaf).is_none_or(|kind| kind != 'b')
        };
        if !leaves.iter().all(is_fine) {
            return None;
        }
        if bounds.iter().any(|bound| self.kind(bound.as_borrowed()) != Kind::Constant) {
            return None;
        }
        let bounds: Vec<_> = bounds.iter().map(Bound::as_borrowed).collect();
        self.concrete(frame, &bounds, "a bound of an array's slice");
        let function = library(frame.py(), "operator", "getitem").ok()?;
        let args = [array, key];
        let call = Call::new(frame, function.as_borrowed(), &args);
        Some(self.array_node(call, "getitem", false))
    }

    fn rows_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.holds_array(array) || is_scalar(array) {
            return None;
        }
        let length = array.len().ok().filter(|length| *length <= MOST_ROWS)?;
        let py = frame.py();
        let own = match self.own_array(frame, array).transpose() {
            Ok(own) => own,
            Err(raised) => return Some(Err(raised)),
        };
        let mut rows = Vec::with_capacity(length);
        for row in 0..length {
            let key = PyInt::new(py, row).into_any();
            let item = match &own {
                Some(own) => self.get_item(frame, own.as_borrowed(), key.as_borrowed()),
                None => self.item_of_array(frame, array, key.as_borrowed())?,
            };
            match item {
                Ok(row) => rows.push(row),
                Err(raised) => return Some(Err(raised)),
            }
            if self.is_stopped() {
                return None;
            }
            self.baseline.set(ops::executed());
        }
        let rows = PyTuple::new(py, rows).ok()?.into_any();
        self.note(frame, |state| {
            state.set_fresh(rows.as_borrowed());
            Ok(())
        });
        Some(Ok(rows))
    }

    fn know_arrays(&self, frame: &Frame<'_>, objects: &[Borrowed<'_, '_>]) {
        let found: Vec<_> = {
            let mut state = self.state.borrow_mut();
            let leaves = state.leaves_of(objects);
            leaves.into_iter().filter(|leaf| state.is_array_value(leaf.as_borrowed())).collect()
        };
        for array in found {
            if !self.may_compute_arrays(frame) || !self.knows_array(frame, array.as_borrowed()) {
                self.stop(frame, Reason::Unsupported, "an array of NumPy's among its arguments");
            }
        }
    }

    fn attribute_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.holds_array(array) {
            return None;
        }
        match &*heap::text(name) {
            "shape" | "ndim" | "size" | "itemsize" | "nbytes" | "strides" => {
                (self.may_compute_arrays(frame) && self.knows_array(frame, array))
                    .then(|| ops::get_attr(array, name))
            }
            "T" if !is_scalar(array) => {
                let numpy = library(frame.py(), "numpy", "transpose").ok()?;
                Some(self.array_node(
                    Call::new(frame, numpy.as_borrowed(), &[array]),
                    "transpose",
                    false,
                ))
            }
            _ => None,
        }
    }

    fn method_of_array<'py>(
        &self,
        array: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !self.holds_array(array) {
            return None;
        }
        let found = stator_cpython::heap::types::lookup(array.get_type().as_borrowed(), name)?;
        let class = self.functions.class(found.as_borrowed());
        matches!(class, Some(Class::Model(Model::Arrays(_)))).then_some(found)
    }

    fn set_item_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Result<()>> {
        if !self.holds_array(array) || is_scalar(array) {
            return None;
        }
        {
            let mut state = self.state.borrow_mut();
            let keys = state.leaves_of(&[key]);
            let values = state.leaves_of(&[value]);
            let is_fine = keys.iter().all(|leaf| state.may_be_given(leaf.as_borrowed(), true))
                && values.iter().all(|leaf| state.may_be_given(leaf.as_borrowed(), false))
                && state.is_own_memory(&[array], "setitem");
            if !is_fine {
                return None;
            }
        }
        let function = library(frame.py(), "operator", "setitem").ok()?;
        let args = [array, key, value];
        let call = Call::new(frame, function.as_borrowed(), &args);
        Some(self.array_node(call, "setitem", true).map(drop))
    }

    fn with_plain_numbers<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        self.plain_numbers(frame, object)
    }

    fn with_plain_places<'py>(
        &self,
        frame: &Frame<'py>,
        index: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        self.plain_places(frame, index)
    }
}

impl State {
    /// Says that an object is the value of a node, if it's an array or a scalar.
    pub(in crate::recorder) fn bind_array(
        &mut self,
        node: NodeId,
        value: &Object<'_>,
        name: &str,
    ) -> Noted<()> {
        if value.is_none() {
            self.graph.set_value(node, Value::Nothing);
            return Ok(());
        }
        let array = value.as_borrowed();
        if heap::is_truth_of_numpy(array) {
            return Ok(());
        }
        // What writes in place gives its array back.
        if self.is_array_value(array) && self.arrays.kept.iter().any(|kept| kept.is(value))
            || matches!(self.origin(array), Some(Origin::Source(_)))
        {
            return Ok(());
        }
        let is_row = heap::is_exact_list(array) || heap::is_plain_tuple(array);
        let parts = if is_row { heap::plain_parts(array) } else { Vec::new() };
        if !parts.is_empty() && parts.iter().all(|part| heap::is_array(part.as_borrowed())) {
            let length = u32::try_from(parts.len()).expect("fewer than 2^32 parts");
            self.graph.set_value(node, Value::Structure(length));
            self.set_fresh(array);
            return (0..length).zip(&parts).try_for_each(|(index, part)| {
                let part_node = self.graph.get_item(node, index);
                self.bind_array(part_node, part, name)
            });
        }
        if !heap::is_array(array) {
            let of = heap::type_name(array);
            return Err((Reason::OpaqueCall, format!("{name} that gives a {of}")));
        }
        self.arrays.kept.push(value.clone().unbind());
        self.set_origin(array, Origin::Handle(node));
        Ok(())
    }

    /// Whether the memory of an array isn't that of a tensor of the trace's own: what is known of a tensor's data stays so.
    fn is_own_memory(&mut self, args: &[Borrowed<'_, '_>], name: &str) -> bool {
        let at = usize::from(name == "at");
        let Some(array) = args.get(at) else { return false };
        if is_scalar(*array) || !self.is_array_value(*array) {
            return false;
        }
        let mut base: Object<'_> = (**array).clone();
        loop {
            match base.getattr("base") {
                Ok(next) if next.is_none() => return true,
                Ok(next) if !heap::is_array(next.as_borrowed()) => {
                    return matches!(
                        self.origin(next.as_borrowed()),
                        None | Some(Origin::Source(_))
                    ) && self.source(*array).is_some();
                }
                Ok(next) => base = next,
                Err(_) => return false,
            }
        }
    }
}

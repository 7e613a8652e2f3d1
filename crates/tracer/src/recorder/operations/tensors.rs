//! Tensor operations: executed for real, then appended to the graph.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PySlice, PyString};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor::{info, is_sparse, is_tensor};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_graph::{Arg, Constant, NodeId, Operator, Target, Value};
use stator_guards::SourceId;
use stator_operators::torch::bare;
use stator_operators::{Use, is_numbered};

use super::array_numbers::is_typed;
use crate::breaks::Reason;
use crate::compiling::Native;
use crate::functions::{Determined, Operation};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, ArrayValues, Ends, Operations};
use crate::recorder::notes::call::{Args, Call, RecordedArgs, argument};
use crate::recorder::notes::heap;
use crate::recorder::notes::inputs::graph_meta;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::passing::pulls_back;
use crate::recorder::notes::state::{Noted, Origin, State, Stop};
use crate::recorder::numbers::read_tensors::TensorRead;
use crate::recorder::numbers::tensors::holds_tensor;
use crate::recorder::reads::tensor_items::index_depends_on_data;
use crate::recorder::reads::value_classes::Purpose;

impl Arguments for State {
    fn graph_arg(&mut self, object: Borrowed<'_, '_>) -> std::result::Result<Arg, Stop> {
        if let Some(number) = self.number(object) {
            return Ok(Arg::Node(self.number_node(number)));
        }
        if let Some(node) = self.given.node(object) {
            self.look_enclosed(object.as_ptr() as usize);
            return Ok(Arg::Node(node));
        }
        match self.kind(object) {
            Kind::Tensor => self.tensor_node(object).map(Arg::Node),
            Kind::Constant => {
                self.settle_text(object)?;
                self.constant_arg(object)
            }
            Kind::List => self.nested(object, |state| {
                let items = state.graph_args(&heap::list_items(object))?;
                Ok(state.graph.list(&items))
            }),
            Kind::Tuple => self.nested(object, |state| {
                let items = state.graph_args(&heap::tuple_items(object))?;
                Ok(state.graph.tuple(&items))
            }),
            Kind::Dict => self.nested(object, |state| {
                state.adopt_dict(object)?;
                let mut items = SmallVec::<[(Arg, Arg); 4]>::new();
                for (key, value) in heap::dict_items(object) {
                    let key = state.graph_arg(key.as_borrowed())?;
                    items.push((key, state.graph_arg(value.as_borrowed())?));
                }
                Ok(state.graph.dict(&items))
            }),
            Kind::Opaque if is_sparse(object) => self.sparse_arg(object),
            _ if let Some(Origin::Handle(node)) = self.origin(object) => Ok(Arg::Node(node)),
            // PyTorch takes its elements as it takes a list's.
            Kind::Object
                if self.origin(object) == Some(Origin::Fresh) && heap::is_deque(object) =>
            {
                self.nested(object, |state| {
                    let items = state.graph_args(&heap::elements(object))?;
                    Ok(state.graph.list(&items))
                })
            }
            Kind::Type | Kind::Builtin | Kind::Singleton | Kind::TorchCallable | Kind::Module
                if !self.is_own_method(object) =>
            {
                Ok(Arg::Object(self.graph_object(object, || heap::name_of(object))))
            }
            Kind::Object if let Some(plain) = self.plain_value(object, Purpose::Value)? => {
                self.graph_arg(plain.as_borrowed())
            }
            _ => {
                // An object is an input of the graph where a marked function is given it.
                let input = self.source(object).and_then(|source| self.inputs.node(source));
                input.map(Arg::Node).ok_or_else(|| {
                    let what = heap::type_name(object);
                    (Reason::Unsupported, format!("a {what} as argument of a tensor operation"))
                })
            }
        }
    }

    fn take_left(
        &mut self,
        container: Borrowed<'_, '_>,
        source: SourceId,
        key: Borrowed<'_, '_>,
        value: Borrowed<'_, '_>,
    ) -> std::result::Result<bool, Stop> {
        match key.extract() {
            Ok(index) if heap::is_exact_list(container) => {
                self.take_element(container, source, index, value)
            }
            _ => self.take_entry(container, source, key, value),
        }
    }
}

/// So many nodes a trace may have: some 100 MB.
const MOST: usize = 1 << 17;

impl State {
    /// A loop that goes on for hours is no trace.
    fn check_length(&self) -> Noted<()> {
        if self.graph.len() < MOST {
            return Ok(());
        }
        Err((Reason::Length, format!("more than {MOST} operations")))
    }

    /// A container among arguments, with what it holds. One that holds itself is no argument of an operation.
    fn nested(
        &mut self,
        container: Borrowed<'_, '_>,
        parts: impl FnOnce(&mut Self) -> std::result::Result<Arg, Stop>,
    ) -> std::result::Result<Arg, Stop> {
        let address = container.as_ptr() as usize;
        if self.reads.given.contains(&address) {
            let what = heap::type_name(container);
            let detail = format!("a {what} that holds itself as argument of a tensor operation");
            return Err((Reason::Unsupported, detail));
        }
        self.reads.given.push(address);
        let made = parts(self);
        self.reads.given.pop();
        made
    }

    fn graph_args(
        &mut self,
        items: &[Object<'_>],
    ) -> std::result::Result<SmallVec<[Arg; 8]>, Stop> {
        items.iter().map(|item| self.graph_arg(item.as_borrowed())).collect()
    }

    fn constant_arg(&mut self, object: Borrowed<'_, '_>) -> std::result::Result<Arg, Stop> {
        if object.is_none() {
            return Ok(Arg::NONE);
        }
        if let Ok(value) = object.cast_exact::<PyBool>() {
            return Ok(Arg::bool(value.is_true()));
        }
        if object.is_exact_instance_of::<PyInt>() {
            return Ok(match object.extract::<i64>() {
                Ok(value) => Arg::int(value),
                // Python refuses the digits of very large integers: those stay objects.
                Err(_) => match object.repr() {
                    Ok(digits) => self.graph.big_int(&digits.to_string_lossy()),
                    Err(_) => Arg::Object(self.graph_object(object, || "int".into())),
                },
            });
        }
        if let Ok(value) = object.cast_exact::<PyFloat>() {
            return Ok(Arg::float(value.value()));
        }
        if let Ok(value) = object.cast_exact::<PyString>()
            && let Ok(text) = value.to_str()
        {
            return Ok(self.graph.str(text));
        }
        if let Ok(value) = object.cast_exact::<PyComplex>() {
            use pyo3::types::PyComplexMethods;
            return Ok(Arg::Constant(Constant::Complex(value.real(), value.imag())));
        }
        if object.is(object.py().Ellipsis()) {
            return Ok(Arg::Constant(Constant::Ellipsis));
        }
        if let Ok(slice) = object.cast_exact::<PySlice>() {
            let [start, stop, step] = heap::slice_parts(slice);
            let start = self.graph_arg(start.as_borrowed())?;
            let stop = self.graph_arg(stop.as_borrowed())?;
            let step = self.graph_arg(step.as_borrowed())?;
            return Ok(self.graph.slice(start, stop, step));
        }
        Ok(Arg::Object(self.graph_object(object, || heap::short_repr(object))))
    }

    /// An operation on several tensors may give one of them back, as `torch._foreach_add_` does. What is known of its sizes
    /// holds of the node that stands for it from here on.
    fn keep_layout(&mut self, node: NodeId, tensor: Borrowed<'_, '_>, args: &[Borrowed<'_, '_>]) {
        let is_among = |arg: &Borrowed<'_, '_>| {
            arg.is(tensor) || heap::sequence_items(*arg).iter().any(|item| item.is(tensor))
        };
        if is_tensor(tensor)
            && let Some(sizes) = self.symbolic_sizes(tensor)
            && args.iter().any(is_among)
        {
            let strides = self.symbolic_strides(tensor);
            self.set_layout(node, sizes, strides);
        }
    }

    /// Notes that `object` is the result of `node`: a tensor, or a structure of tensors. An argument
    /// that comes back (in-place operations, `contiguous()`) keeps its origin.
    pub(in crate::recorder) fn bind_result(
        &mut self,
        node: NodeId,
        object: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        match self.kind(object) {
            Kind::Tensor => {
                if let Some(info) = info(object) {
                    let value = graph_meta(self, &info);
                    self.graph.set_value(node, value);
                }
                let is_given_back = self.enclosed.given_back.contains(&(object.as_ptr() as usize));
                if !is_given_back && !args.iter().any(|arg| arg.is(object)) {
                    self.set_origin(object, Origin::Node(node));
                }
                Ok(())
            }
            Kind::Tuple | Kind::List if self.source(object).is_none() => {
                let items = if self.kind(object) == Kind::List {
                    heap::list_items(object)
                } else {
                    heap::tuple_items(object)
                };
                let len = u32::try_from(items.len()).expect("fewer than 2^32 results");
                self.graph.set_value(node, Value::Structure(len));
                self.set_fresh(object);
                for (index, item) in (0..len).zip(&items) {
                    if self.kind(item.as_borrowed()) == Kind::Constant {
                        if item.is_none() {
                            continue;
                        }
                        return Err((
                            Reason::DataRead,
                            "an operation that returns a number".into(),
                        ));
                    }
                    let element = self.graph.get_item(node, index);
                    self.keep_layout(element, item.as_borrowed(), args);
                    self.bind_result(element, item.as_borrowed(), args)?;
                }
                Ok(())
            }
            Kind::Dict if self.source(object).is_none() => self.bind_dict(node, object, args),
            // What works in place on a list gives that list back.
            Kind::List | Kind::Tuple if args.iter().any(|arg| arg.is(object)) => Ok(()),
            Kind::Constant if object.is_none() => {
                self.graph.set_value(node, Value::Nothing);
                Ok(())
            }
            Kind::Function if pulls_back(object) => {
                self.set_origin(object, Origin::Handle(node));
                Ok(())
            }
            Kind::Opaque if is_tensor(object) => self.bind_sparse(node, object),
            _ => Err((
                Reason::DataRead,
                format!("an operation that returns a {}", heap::type_name(object)),
            )),
        }
    }
}

impl Operations for Recorder {
    fn operation<'py>(
        &self,
        frame: &Frame<'py>,
        target: impl FnOnce(&mut State) -> Target,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        execute: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let sized = self.sized.take();
        let numbered = self.numbered.take();
        let mut target = Some(target);
        let mut made_before = None;
        let is_data_sized = sized.is_none() && (numbered || self.are_data_sized(args));
        let is_assumed = is_data_sized && self.session.program.is_none();
        if is_assumed {
            let target = target.take().expect("it wasn't asked");
            made_before = self.note(frame, |state| Ok(target(state)));
            if let Some(target) = made_before {
                self.decide_sizes(frame, target, args, names, numbered);
            }
        }
        let mut known = None;
        let mut risk = None;
        let mut recorded = RecordedArgs::default();
        let mut before = self.note(frame, |state| {
            let made = match (made_before, target) {
                (Some(made), _) => made,
                (None, Some(target)) => target(state),
                (None, None) => unreachable!("nothing is noted when making it has ended the trace"),
            };
            recorded = state.taken_by(made, args, names)?;
            state.refuse_sparse(is_data_sized || sized.is_some())?;
            state.refuse_users_node(made)?;
            state.check_length()?;
            known = Some(made);
            if !state.enclosed.is_on() {
                state.guard_places(frame.py(), made, &recorded)?;
                let refuses = is_assumed && (numbered || state.refuses_sizes(made));
                risk = self.risk(state, frame, made, &recorded.args, &recorded.names, refuses);
            }
            Ok(state.given(args, names, numbered))
        });
        let way_out = risk.as_ref().and_then(|_| self.catch(frame));
        if way_out.is_none()
            && let Some((reason, detail)) = risk.and_then(|risk| self.runs_risk(risk))
        {
            self.stop(frame, reason, detail);
            before = None;
        }
        if self.session.program.is_some()
            && let Some(known) = known
        {
            self.refuses_operation(frame, known, args, &recorded.names);
        }
        let result = if before.is_some() {
            let _native = Suspended::new(frame.py());
            execute()
        } else {
            // It is no node: what it calls back is the program's own code.
            let _native = Native::new(frame.py());
            execute()
        };
        let Ok(object) = result else {
            let target = known.filter(|_| before.is_some());
            self.behind(frame, || match self.goes_on(frame, target, args) {
                true => {}
                false if self.session.program.is_some() => self.leaves_to_handlers(frame),
                false => self.stop(frame, Reason::OperationRaised, ""),
            });
            return result;
        };
        if self.kept.take() {
            return Ok(object);
        }
        self.behind(frame, || self.refuse_written(frame));
        if let Some(given) = before {
            self.note(frame, |state| {
                let target = known.expect("it was made with the arguments");
                let stack = state.place(frame);
                if state.has_symbols()
                    && let Some(changed) = args.first()
                {
                    state.settle_sizes(*changed);
                }
                let node =
                    state.graph.call_with_keywords(target, &recorded.args, &recorded.names, stack);
                state.bind_result(node, object.as_borrowed(), args)?;
                state.refuse_sparse(is_data_sized || sized.is_some())?;
                let asks_again = (is_assumed || !is_data_sized)
                    && state.keep_laid_out(node, target, args, names, object.as_borrowed());
                if !asks_again {
                    state.keep_idle(node, target, args, names, object.as_borrowed());
                }
                if let Some(way_out) = way_out {
                    state.add_catch(way_out, stack);
                }
                if let Some(sized) = sized {
                    state.begin_data_sizes(sized, args, object.as_borrowed())?;
                } else if is_data_sized
                    && !is_assumed
                    && let Some(given) = &given
                {
                    let name = state.operation_name(target);
                    state.infer_in_program(&name, given, object.as_borrowed())?;
                } else if let Some(given) = &given
                    && state.sparse_tensors.is_met
                {
                    state.fix_given(given, "beside a sparse tensor");
                } else if let Some(given) = &given
                    && state.is_transforming()
                    && state.enclosed.is_on()
                {
                    state.fix_transformed(given);
                } else if let Some(given) = &given
                    && !state.take_sizes(object.as_borrowed())
                {
                    let name = state.operation_name(target);
                    // PyTorch's compilers keep the numbers that they see in a list.
                    if !self.session.is_eager && is_for_each(&name) {
                        state.fix_given(given, &format!("{name} for this backend"));
                    } else {
                        state.infer(&name, given, object.as_borrowed());
                    }
                    state.keep_returned(target, given, object.as_borrowed());
                }
                Ok(())
            });
        }
        Ok(object)
    }
}

impl Recorder {
    /// A call of a function or method that the function table knows as a tensor operation.
    pub(in crate::recorder) fn tensor_call<'py>(
        &self,
        operation: &Operation,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        if matches!(&*operation.name, "item" | "__bool__" | "__int__" | "__float__" | "__index__")
            && let ([tensor], None) = (args, names)
            && self.is_constant_data(*tensor)
        {
            return call.natively();
        }
        if operation.is_method && &*operation.name == "type" && args.len() == 1 && names.is_none() {
            // The name of its type, as its metadata says.
            let _native = Suspended::new(frame.py());
            return call.natively();
        }
        if operation.is_method
            && let ([tensor], None) = (args, names)
            && let Some(read) = TensorRead::by_method(&operation.name)
            && let Some(found) = self.converted(frame, read, *tensor, || call.natively())
        {
            return found;
        }
        if operation.is_method
            && matches!(&*operation.name, "data_ptr" | "storage_offset")
            && let ([tensor], None) = (args, names)
            && let Some(place) = self.told(frame, &operation.name, *tensor, || call.natively())
        {
            return place;
        }
        if &*operation.name == "tolist"
            && let ([tensor], None) = (args, names)
            && let Some(list) = self.read_list(frame, *tensor, || call.natively())
        {
            return list;
        }
        if operation.determined == Determined::ReadsData
            && operation.is_method
            && &*operation.name == "register_hook"
            && let Some(result) = self.register_hook(call)
        {
            return result;
        }
        if operation.is_method
            && &*operation.name == "numpy"
            && let Some(array) = self.array_of_tensor(call)
        {
            return array;
        }
        if is_typed(&operation.name) {
            self.know_arrays(frame, args);
        }
        if let Some(tensor) = self.tensor_of_outside_array(&operation.name, call) {
            return tensor;
        }
        if operation.determined == Determined::Answer
            && let Some(answer) = self.answered(operation, call)
        {
            return answer;
        }
        let mut tensors = Use::Data;
        let is_held = self.fills_with_held(operation, call);
        let mut problem = || {
            self.depends_on_data(operation, args, names, is_held).or_else(|| {
                tensors = self.use_of_tensors(operation, call);
                (tensors == Use::Read).then(|| {
                    let detail = format!("a tensor as a number that {} is given", operation.name);
                    (Reason::DataRead, detail)
                })
            })
        };
        let problem = if self.takes_read(operation, call, is_held, &mut problem) {
            None
        } else {
            self.problem_of(frame, args, problem)
        };
        if problem.is_some()
            && let Some(settled) = self.settled_call(operation, call, tensors)
        {
            let args: Args<'_, 'py> = settled.iter().map(Bound::as_borrowed).collect();
            return self.tensor_call(operation, Call { args: &args, ..call });
        }
        if let Some(problem) = problem
            // Numbers that are tensors may say more than sizes; counts, of which one may be for all, don't.
            && ((operation.determined != Determined::Counts
                && self.use_of_tensors(operation, call) == Use::Read)
                || !self.call_goes_on(frame, &problem, operation))
        {
            self.stop(frame, problem.0, problem.1);
        } else if let Some(detail) = self.calls_back(args) {
            self.stop(frame, Reason::OpaqueCall, detail);
        }
        self.guard_called(frame, operation, callable);
        let target = |state: &mut State| operation.target(state, callable);
        let result = self.operation(frame, target, args, names, || {
            // What it raises is taken for what its arguments make it raise.
            let _deferred = Deferred::new(frame.py());
            let rules = self.session.program.as_ref().filter(|_| tensors == Use::Scalar);
            let _computing = rules.map(|rules| rules.computing(frame.py()));
            call.natively()
        })?;
        if tensors == Use::Scalar {
            self.returned_by_number(frame, operation, args, &result);
        }
        Ok(result)
    }

    /// Arguments of a call with numbers for the tensors that stand where integers belong; `tensors`: what it makes of these.
    /// `None`: there are none, or not all can be read.
    fn settled_call<'py>(
        &self,
        operation: &Operation,
        call: Call<'_, 'py>,
        tensors: Use,
    ) -> Option<SmallVec<[Object<'py>; 8]>> {
        let Call { frame, callable, args, names } = call;
        // Operators of `torch.ops` take fewer tensors for integers than functions in C and their kin do.
        if !matches!(self.kind(callable), Kind::Builtin | Kind::Function) {
            return None;
        }
        let by_row = match operation.determined {
            Determined::UnlessTensorBeyond(first)
                if argument(args, names, args.len(), "out").is_none() =>
            {
                self.settled_args(frame, args, first)
            }
            _ => None,
        };
        let in_sequences = || match tensors {
            Use::Read => self.settled_sequences(frame, operation, args),
            _ => None,
        };
        by_row.or_else(in_sequences).or_else(|| self.settled_integers(operation, call))
    }

    /// Arguments of an operation that takes sizes from one of them on, with numbers for the tensors among those.
    fn settled_args<'py>(
        &self,
        frame: &Frame<'py>,
        args: &[Borrowed<'_, 'py>],
        first: usize,
    ) -> Option<SmallVec<[Object<'py>; 8]>> {
        let (data, sizes) = args.split_at_checked(first)?;
        if !sizes.iter().any(|arg| self.holds_own_tensor(*arg)) {
            return None;
        }
        let data = data.iter().map(|arg| Some((*arg).to_owned()));
        data.chain(sizes.iter().map(|arg| self.settled(frame, *arg))).collect()
    }

    /// Arguments with numbers for the tensors in lists and tuples of an operation that takes rows of integers alone:
    /// `F.pad(x, (0, n))`. `None`: it's another one, or not all can be read.
    fn settled_sequences<'py>(
        &self,
        frame: &Frame<'py>,
        operation: &Operation,
        args: &[Borrowed<'_, 'py>],
    ) -> Option<SmallVec<[Object<'py>; 8]>> {
        let holds_tensors = |arg: Borrowed<'_, 'py>| {
            let is_row = heap::is_exact_list(arg) || heap::is_plain_tuple(arg);
            is_row && self.holds_own_tensor(arg)
        };
        if !is_numbered(bare(&operation.name)) || !args.iter().any(|arg| holds_tensors(*arg)) {
            return None;
        }
        let settled = |arg: &Borrowed<'_, 'py>| match holds_tensors(*arg) {
            true => self.settled(frame, *arg),
            false => Some((*arg).to_owned()),
        };
        args.iter().map(settled).collect()
    }

    /// Why the operation's result is not determined by its inputs' metadata, if so.
    fn depends_on_data(
        &self,
        operation: &Operation,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
        is_held: bool,
    ) -> Option<Stop> {
        let for_eager = || {
            (!self.session.is_eager)
                .then(|| (Reason::Unsupported, format!("{} for this backend", operation.name)))
        };
        let mut determined = operation.determined;
        if let Determined::EagerIf(inner) = determined {
            if let Some(stop) = for_eager() {
                return Some(stop);
            }
            determined = *inner;
        }
        let mut state = self.state.borrow_mut();
        match determined {
            Determined::Always | Determined::EagerIf(_) => None,
            Determined::EagerOnly => for_eager(),
            Determined::UnlessNamed(name) => argument(args, names, args.len(), name)
                .map(|_| (Reason::DynamicOutput, operation.name.to_string())),
            Determined::OfNumbers(first) => {
                let mut is_number = |arg: Borrowed<'_, '_>| state.kind(arg) == Kind::Constant;
                let are_numbers = |arg: &Borrowed<'_, '_>| match heap::is_exact_list(*arg)
                    || arg.is_instance_of::<pyo3::types::PyTuple>()
                {
                    true => {
                        heap::sequence_items(*arg).iter().all(|item| is_number(item.as_borrowed()))
                    }
                    false => is_number(*arg),
                };
                (!args.iter().skip(first).all(are_numbers))
                    .then(|| (Reason::DataRead, format!("what {} is given", operation.name)))
            }
            Determined::Never
                if &*operation.name == "torch.from_numpy"
                    && let Some(array) = args.first()
                    && heap::is_array(*array)
                    && matches!(state.origin(*array), Some(Origin::Handle(_))) =>
            {
                None
            }
            Determined::Never | Determined::Sized => {
                Some((Reason::DynamicOutput, operation.name.to_string()))
            }
            Determined::Unusual => Some((Reason::Unsupported, operation.name.to_string())),
            Determined::ReadsData | Determined::Answer => {
                Some((Reason::DataRead, operation.name.to_string()))
            }
            Determined::UnlessTensorBeyond(first) => {
                // What it writes into is no size.
                let out = argument(args, names, args.len(), "out");
                let sizes =
                    args.iter().skip(first).filter(|arg| out.is_none_or(|out| !out.is(**arg)));
                let mut sizes = sizes.into_iter();
                sizes.any(|arg| holds_tensor(&mut state, *arg)).then(|| {
                    (Reason::DataRead, format!("a tensor as size argument of {}", operation.name))
                })
            }
            Determined::Filled(..) => {
                drop(state);
                self.unfit_number(operation, args, names, is_held)
            }
            Determined::AtLeast(count) => {
                (args.len() < count).then(|| (Reason::DynamicOutput, operation.name.to_string()))
            }
            Determined::IfGiven(position, name) => {
                let given = argument(args, names, position, name);
                let says_all = given.is_some_and(|given| says_sizes(&mut state, given));
                (!says_all).then(|| (Reason::DynamicOutput, operation.name.to_string()))
            }
            Determined::Counts => {
                let is_read = args.iter().skip(1).any(|arg| holds_tensor(&mut state, *arg));
                (args.len() < 2 || is_read)
                    .then(|| (Reason::DynamicOutput, operation.name.to_string()))
            }
            Determined::Indexing => {
                let index = args.get(1).copied()?;
                index_depends_on_data(&mut state, index)
            }
        }
    }

    /// Whether an operation is given a user's function: then it isn't a leaf.
    fn calls_back(&self, args: &[Borrowed<'_, '_>]) -> Option<String> {
        let mut state = self.state.borrow_mut();
        args.iter()
            .find(|arg| match state.kind(**arg) {
                Kind::Function | Kind::Method | Kind::Partial => true,
                _ => state.is_own_method(**arg),
            })
            .map(|arg| heap::name_of(*arg))
    }
}

impl Operation {
    /// The target of this operation's nodes. `callable` is what was called.
    pub(in crate::recorder) fn target(
        &self,
        state: &mut State,
        callable: Borrowed<'_, '_>,
    ) -> Target {
        let name = state.graph.intern(&self.name);
        if self.is_method {
            let object = state.graph_object(callable, || self.name.to_string());
            return Target::Method { name, object: Some(object) };
        }
        Target::Function { name, object: state.graph_object(callable, || self.name.to_string()) }
    }
}

/// Whether an operation is one on lists of tensors, of PyTorch's optimizers.
fn is_for_each(name: &str) -> bool {
    name.contains("._foreach_") || name.contains("._fused_")
}

/// Whether an argument says sizes by itself: integers, none of them a -1 that asks for what is in the data.
fn says_sizes(state: &mut State, object: Borrowed<'_, '_>) -> bool {
    match state.kind(object) {
        Kind::Constant => object.extract::<i64>().is_ok_and(|size| size >= 0),
        Kind::List | Kind::Tuple => {
            heap::plain_parts(object).iter().all(|part| says_sizes(state, part.as_borrowed()))
        }
        _ => false,
    }
}

impl State {
    /// Binds the values of a dictionary that a node returned.
    pub(in crate::recorder) fn bind_dict(
        &mut self,
        node: NodeId,
        dict: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> Noted<()> {
        self.set_fresh(dict);
        for (key, value) in heap::dict_items(dict) {
            if self.kind(key.as_borrowed()) != Kind::Constant {
                return Err((Reason::Unsupported, "a dictionary with objects as keys".into()));
            }
            let key = self.graph_arg(key.as_borrowed())?;
            let stack = self.graph.node(node).stack;
            let target = Target::Operator(Operator::GetItem);
            let element = self.graph.call(target, &[Arg::Node(node), key], stack);
            self.bind_result(element, value.as_borrowed(), args)?;
        }
        Ok(())
    }
}

//! NumPy's generators, and the arrays that they fill: nodes.
//!
//! What `np.random.rand()` gives is a number that is read, as from a tensor. An array is the value of a node that
//! others are given ([`array_values`](super::array_values)). Constants say how large it is and of what type.
//!
//! Where a replay is undone, the states of NumPy's generators are put back with those of PyTorch's (`rollback`).

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::CompareOp;
use stator_cpython::thread::Deferred;
use stator_graph::{Arg, Value};

use crate::breaks::Reason;
use crate::functions::{ArrayUse, REDUCTIONS};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends};
use crate::recorder::notes::call::{Call, RecordedArgs, argument};
use crate::recorder::notes::heap::{self, array_kind, is_array, is_generator};
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};
use crate::recorder::numbers::read_numbers::own;

impl Recorder {
    /// Calls a function of NumPy's that draws numbers, seeds a generator or makes an array of constants.
    pub(in crate::recorder) fn call_numpy<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let is_seed = self.is_seed(frame, call);
        let numbers = self.reduced_numbers(call).transpose()?;
        if numbers.is_none() && heap::is_named(callable, &REDUCTIONS) {
            return self.call_arrays(ArrayUse::Sizes, call);
        }
        let bounds = if self.draws_between(frame, call) { 3 } else { 0 };
        if !is_seed && numbers.is_none() {
            self.concrete(frame, args.get(bounds..).unwrap_or_default(), "read by NumPy");
        }
        // Other backends would draw while they compile.
        let may_read = self.session.is_replayed() && self.may_read(frame);
        let given = self.note(frame, |state| {
            if !may_read || state.enclosed.is_on() {
                return Err((Reason::OpaqueCall, heap::name_of(callable)));
            }
            if let Some(numbers) = numbers {
                let mut given = RecordedArgs::of(state, &args[1..], names)?;
                given.args.insert(0, numbers);
                return Ok(given);
            }
            if is_seed {
                return RecordedArgs::of(state, args, names);
            }
            state.given_to_numpy(call, bounds)
        });
        let value = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()
        };
        let Some(given) = given else { return value };
        if value.is_err() {
            self.stop(frame, Reason::OperationRaised, heap::name_of(callable));
        }
        let value = value?;
        let node = |state: &mut State| {
            let name = format!("numpy.{}", heap::name_of(callable));
            let target = state.function_target(callable, name);
            let stack = state.place(frame);
            state.graph.call_with_keywords(target, &given.args, &given.names, stack)
        };
        if let Some(number) = own(&value) {
            self.carries(frame, &number, |state| Ok(node(state)));
            return Ok(number);
        }
        self.note(frame, |state| {
            let node = node(state);
            if value.is_none() {
                state.graph.set_value(node, Value::Nothing);
                return Ok(());
            }
            if !is_array(value.as_borrowed()) && !is_generator(value.as_borrowed()) {
                let of = heap::type_name(value.as_borrowed());
                return Err((
                    Reason::OpaqueCall,
                    format!("{} that gives a {of}", heap::name_of(callable)),
                ));
            }
            state.arrays.kept.push(value.clone().unbind());
            state.set_origin(value.as_borrowed(), Origin::Handle(node));
            Ok(())
        });
        Ok(value)
    }

    /// The list that a function makes one number of, as the graph has it: floats of the trace's own, or those of a list
    /// that nobody has read. `None`: it's something else.
    fn reduced_numbers(&self, call: Call<'_, '_>) -> Option<Result<Arg>> {
        let Call { frame, callable, args, names } = call;
        let named = names.map_or(0, |names| heap::tuple_items(names).len());
        let (list, others) = args.split_first().filter(|_| args.len() > named)?;
        let is_plain = |arg: &Borrowed<'_, '_>| {
            self.kind(*arg) == Kind::Constant && self.state.borrow_mut().number(*arg).is_none()
        };
        if !heap::is_named(callable, &REDUCTIONS)
            || !self.session.is_replayed()
            || !others.iter().all(is_plain)
        {
            return None;
        }
        if let Some(numbers) = self.numbers_of_history(frame, *list, true) {
            return Some(numbers);
        }
        let is_list = self.kind(*list) == Kind::List && heap::is_exact_list(*list);
        let items = if is_list { heap::list_items(*list) } else { Vec::new() };
        let is_float = |item: &Object<'_>| item.is_exact_instance_of::<PyFloat>();
        if items.is_empty() || !items.iter().all(is_float) {
            return None;
        }
        let numbers = self.note(frame, |state| state.graph_arg(*list));
        numbers.map(Ok)
    }

    /// `float` of a scalar of NumPy's that a node gives: a number that is carried.
    pub(in crate::recorder) fn float_of_scalar<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        scalar: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let Some(Origin::Handle(node)) = self.origin(scalar) else { return None };
        if array_kind(scalar) != Some('f')
            || !scalar.is_instance_of::<PyFloat>()
            || !self.may_read(frame)
        {
            return None;
        }
        let value: f64 = scalar.extract().ok()?;
        let number = PyFloat::new(frame.py(), value).into_any();
        self.carries(frame, &number, |state| {
            Ok(state.called(frame, callable, "builtins.float".into(), &[Arg::Node(node)]))
        })?;
        Some(number)
    }

    /// Whether a call draws integers between two bounds that vary, the lower one below the other: else it raises.
    fn draws_between(&self, frame: &Frame<'_>, call: Call<'_, '_>) -> bool {
        let Call { callable, .. } = call;
        let [_, low, high, ..] = *call.positional() else { return false };
        let bounds = [low, high];
        if !heap::is_named(callable, &["randint", "integers"])
            || !bounds.iter().all(|bound| bound.is_exact_instance_of::<PyInt>())
            || !bounds.iter().any(|bound| self.state.borrow_mut().number(*bound).is_some())
        {
            return false;
        }
        let found = self.symbolic_compare(frame, CompareOp::Lt, low, high);
        found.is_some_and(|found| found.is_ok_and(|it| it.is_truthy().unwrap_or(false)))
    }

    /// Whether a call seeds NumPy's generator with a number that varies, within the bounds that NumPy asks for.
    fn is_seed(&self, frame: &Frame<'_>, call: Call<'_, '_>) -> bool {
        let Call { callable, args, names, .. } = call;
        let ([seed], None) = (args, names) else { return false };
        if !heap::is_named(callable, &["seed"]) || self.state.borrow_mut().number(*seed).is_none() {
            return false;
        }
        let bounds = [(CompareOp::Ge, 0), (CompareOp::Lt, 1_i64 << 32)];
        bounds.into_iter().all(|(op, bound)| {
            let bound = PyInt::new(frame.py(), bound).into_any();
            let found = self.symbolic_compare(frame, op, *seed, bound.as_borrowed());
            found.is_some_and(|found| found.is_ok_and(|it| it.is_truthy().unwrap_or(false)))
        })
    }
}

impl State {
    /// What a function of NumPy's is given, if it's nothing but a generator, constants and arrays of the trace's own.
    /// `bounds`: so many in front are its generator and integers that may vary.
    fn given_to_numpy(&mut self, call: Call<'_, '_>, bounds: usize) -> Noted<RecordedArgs> {
        let Call { callable, args, names, .. } = call;
        let name = heap::name_of(callable);
        let writes = name == "shuffle";
        if argument(args, names, usize::MAX, "out").is_some() {
            return Err((Reason::OpaqueCall, format!("{name} with out=")));
        }
        for (at, arg) in args.iter().enumerate() {
            if (1..bounds).contains(&at) {
                continue;
            }
            let is_own = matches!(self.origin(*arg), Some(Origin::Handle(_)));
            let is_generator = is_generator(*arg);
            if is_own && name == "__getitem__" && array_kind(*arg) == Some('b') {
                return Err((Reason::DynamicOutput, "indexing with a boolean mask".into()));
            }
            // It may be a part of an array from outside, or of a tensor.
            let is_part = || arg.getattr("base").is_ok_and(|base| !base.is_none());
            if writes && is_own && !is_generator && is_part() {
                return Err((Reason::OpaqueCall, format!("{name} of a part of an array")));
            }
            if !(is_own && (is_generator || is_array(*arg))
                || is_generator && self.source(*arg).is_some()
                || !writes && self.is_plain_given(*arg))
            {
                let of = heap::type_name(*arg);
                return Err((Reason::OpaqueCall, format!("{name} of a {of}")));
            }
        }
        RecordedArgs::of(self, args, names)
    }

    /// Whether an object is a constant, or a list or tuple of constants.
    fn is_plain_given(&mut self, object: Borrowed<'_, '_>) -> bool {
        match self.kind(object) {
            Kind::Constant => !self.holds_read(object),
            Kind::List | Kind::Tuple => {
                let parts = heap::plain_parts(object);
                parts.iter().all(|part| self.is_plain_given(part.as_borrowed()))
            }
            _ => false,
        }
    }
}

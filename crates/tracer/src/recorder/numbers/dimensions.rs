//! Sizes of tensors as symbolic numbers: reading them, and what operations make of them; and who is
//! waiting for numbers.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::{iterator, tensor, types};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp};
use stator_cpython::thread::Deferred;
use stator_graph::Operator;
use stator_operators::torch::last_part;
use stator_shapes::ExprId;
use stator_shapes::rules::{self, Arg, Element};

use super::data_sizes::has_no_result;
use super::special_frames::{CONVERTED, LENGTH, TEXTS, is_named_so, is_special};
use crate::breaks::Reason;
use crate::functions::Traits;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;
use crate::recorder::notes::symbols::{Made, Number, Operand, Sizes};
use crate::recorder::notes::text_wrappers::is_in_wrapper;

/// The operation that gives gradients.
const GRADIENT: &str = "torch.autograd.grad";

/// Takes a frame from [`Recorder::collecting`] when dropped.
pub(in crate::recorder) struct Collecting<'a>(&'a RefCell<Vec<usize>>);

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().pop();
    }
}

/// Resets [`Recorder::consumer`] or [`Recorder::speller`] when dropped.
pub(in crate::recorder) struct Consuming<'a> {
    consumer: &'a Cell<usize>,
    before: usize,
}

impl Drop for Consuming<'_> {
    fn drop(&mut self) {
        self.consumer.set(self.before);
    }
}

impl Recorder {
    /// C code that `frame` waits for keeps what a generator yields, and does nothing else with it.
    pub(in crate::recorder) fn collecting(&self, frame: &Frame<'_>) -> Collecting<'_> {
        self.collecting.borrow_mut().push(frame.id());
        Collecting(&self.collecting)
    }

    /// As [`Recorder::collecting`], if what `iterator` gives is only handed on.
    pub(in crate::recorder) fn collecting_from(
        &self,
        frame: &Frame<'_>,
        iterator: Borrowed<'_, '_>,
    ) -> Option<Collecting<'_>> {
        iterator::hands_on(iterator).then(|| self.collecting(frame))
    }

    /// As [`Recorder::collecting_from`], of C code that asks `iterable` for an iterator first: who knows what an object
    /// gives.
    pub(in crate::recorder) fn collecting_all(
        &self,
        frame: &Frame<'_>,
        iterable: Borrowed<'_, '_>,
    ) -> Option<Collecting<'_>> {
        let ty = iterable.get_type();
        // From CPython 3.12 on `itertools` makes its types as classes are made; nobody changes them.
        let is_object = types::is_heap(ty.as_borrowed()) && !types::is_immutable(ty.as_borrowed());
        if is_object { None } else { self.collecting_from(frame, iterable) }
    }

    /// Whether the frames around one wait for it, or for C code that only keeps what those that it calls give.
    pub(in crate::recorder) fn is_collected(&self, frame: &Frame<'_>) -> bool {
        let waiting = self.collecting.borrow();
        if waiting.is_empty() || ops::executed() != self.baseline.get() {
            return false;
        }
        let Ok(state) = self.state.try_borrow() else { return false };
        let active = state.frames.active();
        let mut frames = std::iter::successors(Some(*frame), Frame::previous);
        let mut is_next = |id: usize| frames.next().is_some_and(|frame| frame.id() == id);
        active.iter().rev().all(|active| is_next(active.id))
            && active.windows(2).all(|pair| pair[1].is_direct || waiting.contains(&pair[0].id))
    }

    pub(in crate::recorder) fn consuming(&self, frame: &Frame<'_>) -> Consuming<'_> {
        Consuming { consumer: &self.consumer, before: self.consumer.replace(frame.id()) }
    }

    /// While `__len__` is called for a length that is looked at here, not by C code.
    pub(in crate::recorder) fn measuring(&self, frame: &Frame<'_>) -> [Consuming<'_>; 2] {
        let consuming = |consumer, id| {
            let before = Cell::replace(consumer, id);
            Consuming { consumer, before }
        };
        [consuming(&self.consumer, 0), consuming(&self.measurer, frame.id())]
    }

    /// As [`Recorder::consuming`], of C code that makes texts of what it takes.
    pub(super) fn spelling(&self, frame: &Frame<'_>) -> Consuming<'_> {
        Consuming { consumer: &self.speller, before: self.speller.replace(frame.id()) }
    }

    /// While `frame` waits for a wrapper that makes an object's text, and takes what that gives as it is.
    pub(in crate::recorder) fn waiting_for_text(&self, frame: &Frame<'_>) -> Consuming<'_> {
        Consuming { consumer: &self.text_taker, before: self.text_taker.replace(frame.id()) }
    }

    /// A frame returns or yields a value. If C code is going to read it, it's fixed; of NumPy's numbers no guard speaks.
    pub(in crate::recorder) fn handed_back(&self, frame: &Frame<'_>, value: Borrowed<'_, '_>) {
        if self.is_stopped() {
            return;
        }
        let reads = |caller: Frame<'_>| caller.id() == self.consumer.get();
        let is_read = self.consumer.get() != 0 && frame.previous().is_some_and(reads);
        if is_read
            && (heap::is_array(value) || self.state.borrow_mut().array_within(value).is_some())
        {
            let detail = format!("a {} that is returned to C code", heap::type_name(value));
            return self.stop(frame, Reason::Unsupported, detail);
        }
        if !self.has_symbols() {
            return;
        }
        // Texts that C code puts together: `repr([self])`.
        let takes = |caller: Frame<'_>| caller.id() == self.text_taker.get();
        let is_taken = || is_in_wrapper(frame) && frame.previous().is_some_and(takes);
        let is_text = || {
            value.is_exact_instance_of::<PyString>() && self.is_called_by_c(frame) && !is_taken()
        };
        let is_measured = || {
            let measures = |caller: Frame<'_>| caller.id() == self.measurer.get();
            frame.previous().is_some_and(measures) && is_special(frame, LENGTH)
        };
        let is_converted = || {
            let is_carried = || self.state.borrow_mut().number(value).is_some();
            let is_given =
                is_named_so(frame, CONVERTED) || is_carried() && is_special(frame, CONVERTED);
            heap::is_number(value) && is_given && !is_measured()
                || is_text() && is_special(frame, TEXTS)
        };
        if is_read || is_converted() {
            self.concrete(frame, &[value], "returned to C code");
        }
    }

    /// Whether C code has called a frame, and takes what it gives.
    pub(in crate::recorder) fn is_called_by_c(&self, frame: &Frame<'_>) -> bool {
        let state = self.state.borrow();
        let innermost = state.frames.innermost();
        innermost.is_some_and(|active| active.id == frame.id() && !active.is_direct)
    }

    /// `len(tensor)`.
    pub(in crate::recorder) fn symbolic_length<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let sizes = self.state.borrow_mut().symbolic_sizes(object)?;
        self.dimension(frame, object, *sizes.first()?, "size", 0).map(Ok)
    }

    /// One size or stride as a number.
    pub(in crate::recorder) fn dimension<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        expr: ExprId,
        method: &'static str,
        index: usize,
    ) -> Option<Object<'py>> {
        self.note(frame, |state| {
            let node = state.tensor_node(tensor)?;
            let symbols = state.symbols.as_ref().expect("sizes are symbolic");
            let value = PyInt::new(frame.py(), symbols.context.hint(expr));
            let made = Made::Element { tensor: node, method, index: index as u32 };
            Ok(state.own_number(value.as_any().as_borrowed(), Number::Integer(expr), made))
        })
    }

    /// All sizes or strides, as `torch.Size` or a tuple.
    pub(in crate::recorder) fn dimensions<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        exprs: &Sizes,
        method: &'static str,
    ) -> Option<Result<Object<'py>>> {
        let py = frame.py();
        let items: Option<Vec<_>> = exprs
            .iter()
            .enumerate()
            .map(|(index, expr)| self.dimension(frame, tensor, *expr, method, index))
            .collect();
        let _native = Suspended::new(py);
        let _deferred = Deferred::new(py);
        let tuple = PyTuple::new(py, items?).ok()?;
        let all = if method == "size" {
            let class = heap::loaded_module(py, "torch")?.getattr("Size").ok()?;
            class.call1((tuple,)).ok()?
        } else {
            tuple.into_any()
        };
        self.note(frame, |state| {
            state.set_fresh(all.as_borrowed());
            Ok(())
        })?;
        Some(Ok(all))
    }

    /// An attribute of a tensor that depends on its sizes.
    pub(in crate::recorder) fn symbolic_attr<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        name: &str,
    ) -> Option<Object<'py>> {
        let sizes = self.state.borrow_mut().symbolic_sizes(tensor)?;
        match name {
            "shape" => self.dimensions(frame, tensor, &sizes, "size")?.ok(),
            "nbytes" => {
                let bytes = tensor::info(tensor).and_then(|info| item_size(info.dtype));
                let Some(bytes) = bytes else {
                    self.fix_sizes(frame, &[tensor], "nbytes");
                    return None;
                };
                let bytes = PyInt::new(frame.py(), bytes).into_any();
                let count = self.element_count(frame, tensor, &sizes)?.ok()?;
                let operands = [count.as_borrowed(), bytes.as_borrowed()];
                self.symbolic_binary(frame, BinaryOp::Multiply, Operator::Mul, &operands)?.ok()
            }
            _ => None,
        }
    }

    /// A call that reads the metadata of tensors.
    pub(in crate::recorder) fn symbolic_metadata<'py>(
        &self,
        traits: Traits,
        name: &str,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, args, names, .. } = call;
        if traits.has(Traits::SIZELESS) {
            return None;
        }
        if matches!(name, "stride" | "is_contiguous" | "dim_order") {
            return self.symbolic_layout(name, call);
        }
        let sizes = args.first().and_then(|first| self.state.borrow_mut().symbolic_sizes(*first));
        let (Some(sizes), None) = (sizes, names) else {
            self.fix_sizes(frame, args, name);
            self.concrete(frame, args, name);
            return None;
        };
        let tensor = args[0];
        let all = match name {
            "size" => sizes,
            "numel" | "nelement" => return self.element_count(frame, tensor, &sizes),
            _ => {
                self.fix_sizes(frame, args, name);
                return None;
            }
        };
        match args {
            [_] => self.dimensions(frame, tensor, &all, "size"),
            [_, index] => {
                self.concrete(frame, &[*index], "the number of a dimension");
                let index: i64 = index.extract().ok()?;
                let rank = all.len() as i64;
                let at = usize::try_from(if index < 0 { index + rank } else { index }).ok()?;
                self.dimension(frame, tensor, *all.get(at)?, "size", at).map(Ok)
            }
            _ => None,
        }
    }

    fn element_count<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        sizes: &Sizes,
    ) -> Option<Result<Object<'py>>> {
        let py = frame.py();
        let count = self.note(frame, |state| {
            let node = state.tensor_node(tensor)?;
            let symbols = state.symbols.as_mut().expect("sizes are symbolic");
            let Ok(product) = symbols.context.product(sizes) else { return Ok(None) };
            let value = PyInt::new(py, symbols.context.hint(product));
            let name = state.graph.intern("numel");
            let made = Made::Call {
                target: stator_graph::Target::Method { name, object: None },
                operands: SmallVec::from_iter([Operand::Other(stator_graph::Arg::Node(node))]),
            };
            Ok(Some(state.own_number(value.as_any().as_borrowed(), Number::Integer(product), made)))
        });
        match count.flatten() {
            Some(count) => Some(Ok(count)),
            None => {
                self.fix_sizes(frame, &[tensor], "the number of elements");
                None
            }
        }
    }

    /// From here on the trace is for the sizes that tensors among these have now.
    pub(in crate::recorder) fn fix_sizes(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
        why: &str,
    ) {
        if !self.has_symbols() {
            return;
        }
        self.settle_sizes(frame, objects);
        let mut state = self.state.borrow_mut();
        state.frames.locate(frame);
        for object in objects {
            state.fix_sizes_in(*object, why);
        }
    }
}

/// What an operation is given, as far as symbols are in it.
pub struct Given<'py> {
    /// Its arguments.
    pub(in crate::recorder) args: SmallVec<[Object<'py>; 8]>,
    /// Names of the last of them.
    pub(in crate::recorder) names: SmallVec<[String; 4]>,
    /// Whether it takes integers among them as they come that were read.
    numbered: bool,
}

impl State {
    /// Gradients have the sizes of what they are asked for.
    fn gradient_sizes(
        &mut self,
        inputs: Borrowed<'_, '_>,
        result: Borrowed<'_, '_>,
    ) -> Option<Vec<Sizes>> {
        let inputs = match self.kind(inputs) {
            Kind::Tensor => vec![(*inputs).clone()],
            Kind::List | Kind::Tuple => heap::children(inputs),
            _ => return None,
        };
        let results = heap::tuple_items(result);
        let mut all = Vec::with_capacity(inputs.len());
        for (input, result) in inputs.iter().zip(&results) {
            if result.is_none() {
                continue;
            }
            let info = tensor::info(input.as_borrowed())?;
            let sizes = match self.symbolic_sizes(input.as_borrowed()) {
                Some(sizes) => sizes,
                None => {
                    let context = &mut self.symbols.as_mut()?.context;
                    info.sizes.iter().map(|size| context.constant(*size)).collect()
                }
            };
            all.push(sizes);
        }
        Some(all)
    }

    /// Notes what an operation is given, if symbols are in it. It's `numbered` if integers that were read are among them.
    pub fn given<'py>(
        &mut self,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        numbered: bool,
    ) -> Option<Given<'py>> {
        if !self.has_symbols() || !numbered && !args.iter().any(|arg| self.is_symbolic(*arg)) {
            return None;
        }
        let names = names.map_or_else(Vec::new, heap::tuple_items);
        Some(Given {
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            names: names.iter().map(|name| heap::text(name.as_borrowed())).collect(),
            numbered,
        })
    }

    /// Gives the results of an operation their sizes; where no rule says them, the sizes that went
    /// in are fixed.
    pub fn infer(&mut self, name: &str, given: &Given<'_>, result: Borrowed<'_, '_>) {
        let py = result.py();
        let base = last_part(name);
        if has_no_result(base)
            && (given.numbered
                || given.args.iter().any(|arg| self.is_data_sized(arg.as_borrowed())))
        {
            return;
        }
        // A program's operation says itself what it wants of sizes, in each run.
        let refuses = self.program.is_some() && has_no_result(base);
        let before = self.symbols.as_ref().filter(|_| refuses).map(|all| all.context.clone());
        let results = self.result_tensors(result);
        let inferred = self.inferred(name, given, result, &results);
        let why = match inferred {
            Some(Ok(sizes)) if self.fits(&sizes, &results) => {
                for (sizes, tensor) in sizes.into_iter().zip(&results) {
                    if let Some(key) = self.tensor_key(tensor.as_borrowed()) {
                        self.set_sizes(key, sizes);
                    }
                }
                self.log_facts(py);
                return;
            }
            Some(Ok(_)) => format!("the shape rule of {name} doesn't agree"),
            Some(Err(why)) => format!("{name}: {why}"),
            None => format!("{name} has no shape rule"),
        };
        if let (Some(symbols), Some(before)) = (self.symbols.as_mut(), before) {
            symbols.context = before;
            return;
        }
        self.log_facts(py);
        self.fix_given(given, &why);
    }

    /// The sizes of an operation's results, by its shape rule.
    pub(super) fn inferred(
        &mut self,
        name: &str,
        given: &Given<'_>,
        result: Borrowed<'_, '_>,
        results: &[Object<'_>],
    ) -> Option<std::result::Result<Vec<Sizes>, String>> {
        match given.args.get(1) {
            Some(inputs) if self.program.is_some() && name == GRADIENT => {
                self.gradient_sizes(inputs.as_borrowed(), result).map(Ok)
            }
            Some(dtype)
                if name == "Tensor.view" && heap::type_name(dtype.as_borrowed()) == "dtype" =>
            {
                self.reinterpreted(&given.args, results).map(Ok)
            }
            _ => self.infer_sizes(name, given),
        }
    }

    /// What an operation was given is fixed.
    pub fn fix_given(&mut self, given: &Given<'_>, why: &str) {
        for arg in &given.args {
            self.fix_sizes_in(arg.as_borrowed(), why);
            self.fix(arg.as_borrowed(), why);
        }
    }

    /// The sizes of `tensor.view(dtype)`: the last one holds as many bytes.
    fn reinterpreted(&mut self, args: &[Object<'_>], results: &[Object<'_>]) -> Option<Vec<Sizes>> {
        let bytes = |tensor: &Object<'_>| item_size(tensor::info(tensor.as_borrowed())?.dtype);
        let (before, after) = (bytes(args.first()?)?, bytes(results.first()?)?);
        let mut sizes = self.symbolic_sizes(args[0].as_borrowed())?;
        if before != after {
            let context = &mut self.symbols.as_mut()?.context;
            let last = sizes.last_mut()?;
            let (before, after) = (context.constant(before), context.constant(after));
            let held = context.mul(*last, before).ok()?;
            let rest = context.modulus(held, after).ok()?;
            let zero = context.constant(0);
            let divisible = context.eq(rest, zero);
            if !context.evaluate(divisible).value() {
                return None;
            }
            *last = context.floordiv(held, after).ok()?;
        }
        Some(vec![sizes])
    }

    /// An operation that is about to join the graph has changed a tensor's sizes in place: what was read of
    /// them before has to be read before in the graph too.
    pub fn settle_sizes(&mut self, tensor: Borrowed<'_, '_>) {
        let sizes = self.symbolic_sizes(tensor);
        let is_resized = sizes.is_some_and(|sizes| !self.has_sizes(tensor, &sizes));
        if !is_resized && !self.is_restrided(tensor) {
            return;
        }
        if let Ok(node) = self.tensor_node(tensor) {
            self.settle_elements(node);
        }
    }

    /// The name of what a node calls, as shape rules know it.
    pub fn operation_name(&self, target: stator_graph::Target) -> String {
        use stator_graph::Target;
        match target {
            Target::Function { name, .. } => match self.graph.text(name) {
                name @ ("abs" | "pow") => name.to_string(),
                name if name.contains('.') => name.to_string(),
                // A user's function, whatever its name.
                name => format!("({name})"),
            },
            Target::Method { name, .. } | Target::GetAttr { name } => {
                format!("Tensor.{}", self.graph.text(name))
            }
            Target::Operator(operator) if operator.is_in_place() => {
                format!("Tensor.__{}__", operator.name().trim_end_matches('_'))
            }
            Target::Operator(operator) => format!("operator.{}", operator.name()),
            Target::Decide => "decide".to_owned(),
            Target::Catch => "catch".to_owned(),
        }
    }

    /// The tensors among an operation's results, in order.
    pub(super) fn result_tensors<'py>(&mut self, result: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
        if tensor::is_tensor(result) {
            return vec![result.to_owned()];
        }
        let parts = heap::plain_parts(result);
        parts.iter().flat_map(|part| self.result_tensors(part.as_borrowed())).collect()
    }

    /// Whether sizes are those of these tensors in this call.
    pub(super) fn fits(&self, sizes: &[Sizes], tensors: &[Object<'_>]) -> bool {
        let mut pairs = sizes.iter().zip(tensors);
        sizes.len() == tensors.len()
            && pairs.all(|(sizes, tensor)| self.has_sizes(tensor.as_borrowed(), sizes))
    }

    fn has_sizes(&self, tensor: Borrowed<'_, '_>, sizes: &Sizes) -> bool {
        let (Some(symbols), Some(info)) = (self.symbols.as_ref(), tensor::info(tensor)) else {
            return false;
        };
        let hints = sizes.iter().map(|size| symbols.context.hint(*size));
        info.sizes.iter().copied().eq(hints)
    }

    pub(super) fn infer_sizes(
        &mut self,
        name: &str,
        given: &Given<'_>,
    ) -> Option<std::result::Result<Vec<Sizes>, String>> {
        let mut args: Vec<Arg> =
            given.args.iter().map(|arg| self.shape_arg(arg.as_borrowed())).collect();
        if let ([.., value], [.., written]) = (&mut args[..], &given.args[..])
            && has_no_result(last_part(name))
            && heap::is_number(written.as_borrowed())
        {
            // Whichever it is, it has no dimensions.
            *value = Arg::Bool(false);
        }
        let (positional, named) = args.split_at(args.len() - given.names.len());
        let names = given.names.iter().map(String::as_str);
        let named: Vec<_> = names.zip(named.iter().cloned()).collect();
        let context = &mut self.symbols.as_mut()?.context;
        let outcome = rules::infer(context, name, positional, &named)?;
        Some(
            outcome
                .map_err(|refused| refused.to_string())
                .map(|all| all.into_iter().map(|sizes| sizes.into_iter().collect()).collect()),
        )
    }

    /// An argument as shape rules take it.
    fn shape_arg(&mut self, object: Borrowed<'_, '_>) -> Arg {
        if let Some(id) = self.number(object) {
            return match self.number_of(id) {
                Number::Integer(expr) => Arg::Int(expr),
                Number::Float(float) => Arg::Float(float),
                // Otherwise it decides no size: operations whose sizes it could decide aren't given it.
                Number::Read(_) => {
                    let symbols = self.symbols.as_ref();
                    symbols.and_then(|all| all.read_expr(id)).map_or(Arg::Number, Arg::Int)
                }
            };
        }
        if let Some(info) = tensor::info(object) {
            let symbolic = self.symbolic_sizes(object);
            let Some(symbols) = self.symbols.as_mut() else { return Arg::Opaque };
            let constant = |size: &i64| symbols.context.constant(*size);
            let sizes = match symbolic {
                Some(sizes) => sizes.into_iter().collect(),
                None => info.sizes.iter().map(constant).collect(),
            };
            // c10::ScalarType: 0 is uint8 and 11 is bool, both masks; 1 to 4 are integers.
            let element = match info.dtype {
                0 | 11 => Element::Mask,
                1..=4 => Element::Integer,
                _ => Element::Number,
            };
            return Arg::Tensor { sizes, element };
        }
        let Some(symbols) = self.symbols.as_mut() else { return Arg::Opaque };
        if object.is_none() {
            return Arg::None;
        }
        if let Ok(value) = object.cast_exact::<PyBool>() {
            return Arg::Bool(value.is_true());
        }
        if object.is_exact_instance_of::<PyInt>() {
            let value = object.extract::<i64>();
            return value.map_or(Arg::Opaque, |value| Arg::Int(symbols.context.constant(value)));
        }
        if let Ok(value) = object.cast_exact::<PyFloat>() {
            return Arg::Float(symbols.context.float_constant(value.value()));
        }
        if let Ok(text) = object.cast_exact::<PyString>() {
            return Arg::Text(text.to_string_lossy().into_owned());
        }
        if object.is(object.py().Ellipsis()) {
            return Arg::Ellipsis;
        }
        let mut parts = || -> Vec<Arg> {
            let parts = heap::plain_parts(object);
            parts.iter().map(|part| self.shape_arg(part.as_borrowed())).collect()
        };
        if object.is_exact_instance_of::<PySlice>() {
            let parts = parts().try_into().ok();
            return parts.map_or(Arg::Opaque, |parts: [Arg; 3]| Arg::Slice(Box::new(parts)));
        }
        if object.is_exact_instance_of::<PyList>() {
            return Arg::List(parts());
        }
        if object.is_instance_of::<PyTuple>() {
            return Arg::Tuple(parts());
        }
        Arg::Opaque
    }

    /// What an operation was given that is part of a transform: nobody follows the sizes of what stands for a tensor there.
    pub fn fix_transformed(&mut self, given: &Given<'_>) {
        let why = "a transform's function";
        for arg in &given.args {
            self.fix_sizes_in(arg.as_borrowed(), why);
            if !arg.is_instance_of::<PyFloat>() {
                self.fix(arg.as_borrowed(), why);
            }
        }
    }

    /// Fixes the sizes of every tensor in an object.
    fn fix_sizes_in(&mut self, object: Borrowed<'_, '_>, why: &str) {
        heap::any_within(object, super::arithmetic::DEPTH, &mut |part| {
            for size in self.symbolic_sizes(part).into_iter().flatten() {
                self.specialise_expr(part.py(), size, why);
            }
            false
        });
    }
}

/// The bytes of an element of a `c10::ScalarType`.
const fn item_size(dtype: i32) -> Option<i64> {
    Some(match dtype {
        0 | 1 | 11 | 23..=26 => 1,
        2 | 5 | 15 | 27 => 2,
        3 | 6 | 8 | 28 => 4,
        4 | 7 | 9 | 29 => 8,
        10 => 16,
        _ => return None,
    })
}

//! Operators, comparisons, truth values and identity.

use pyo3::exceptions::{
    PyArithmeticError, PyLookupError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, Asked, BinaryOp, CompareOp, UnaryOp};
use stator_cpython::raised::Raised;
use stator_graph::{Operator, Target};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{
    Conversions, Decides, Ends, Looks, Operations, PlainValues, Protocols,
};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};
use crate::recorder::numbers::dimensions::Consuming;
use crate::recorder::numbers::tensors::holds_tensor;
use crate::recorder::numbers::texts::STR;
use crate::recorder::reads::protocols::is_handed;

/// Special methods of a binary operator: in place (if it is), plain, reflected; and the graph's operator.
fn binary_names(op: BinaryOp) -> (&'static [&'static str], Operator) {
    use BinaryOp as B;
    use Operator as O;
    match op {
        B::Add => (&["__add__", "__radd__"], O::Add),
        B::And => (&["__and__", "__rand__"], O::And),
        B::FloorDivide => (&["__floordiv__", "__rfloordiv__"], O::FloorDiv),
        B::Lshift => (&["__lshift__", "__rlshift__"], O::LShift),
        B::MatrixMultiply => (&["__matmul__", "__rmatmul__"], O::MatMul),
        B::Multiply => (&["__mul__", "__rmul__"], O::Mul),
        B::Remainder => (&["__mod__", "__rmod__"], O::Mod),
        B::Or => (&["__or__", "__ror__"], O::Or),
        B::Power => (&["__pow__", "__rpow__"], O::Pow),
        B::Rshift => (&["__rshift__", "__rrshift__"], O::RShift),
        B::Subtract => (&["__sub__", "__rsub__"], O::Sub),
        B::TrueDivide => (&["__truediv__", "__rtruediv__"], O::TrueDiv),
        B::Xor => (&["__xor__", "__rxor__"], O::Xor),
        B::InPlaceAdd => (&["__iadd__", "__add__", "__radd__"], O::IAdd),
        B::InPlaceAnd => (&["__iand__", "__and__", "__rand__"], O::IAnd),
        B::InPlaceFloorDivide => {
            (&["__ifloordiv__", "__floordiv__", "__rfloordiv__"], O::IFloorDiv)
        }
        B::InPlaceLshift => (&["__ilshift__", "__lshift__", "__rlshift__"], O::ILShift),
        B::InPlaceMatrixMultiply => (&["__imatmul__", "__matmul__", "__rmatmul__"], O::IMatMul),
        B::InPlaceMultiply => (&["__imul__", "__mul__", "__rmul__"], O::IMul),
        B::InPlaceRemainder => (&["__imod__", "__mod__", "__rmod__"], O::IMod),
        B::InPlaceOr => (&["__ior__", "__or__", "__ror__"], O::IOr),
        B::InPlacePower => (&["__ipow__", "__pow__", "__rpow__"], O::IPow),
        B::InPlaceRshift => (&["__irshift__", "__rshift__", "__rrshift__"], O::IRShift),
        B::InPlaceSubtract => (&["__isub__", "__sub__", "__rsub__"], O::ISub),
        B::InPlaceTrueDivide => (&["__itruediv__", "__truediv__", "__rtruediv__"], O::ITrueDiv),
        B::InPlaceXor => (&["__ixor__", "__xor__", "__rxor__"], O::IXor),
    }
}

/// The operator that isn't in place.
fn plain(names: &[&'static str], operator: Operator) -> Operator {
    let [_, plain, _] = names else { return operator };
    let name = plain.trim_matches('_');
    Operator::from_name(name)
        .or_else(|| Operator::from_name(&format!("{name}_")))
        .unwrap_or(operator)
}

/// What an operator's operands make of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// Values alone: pure.
    Constants,
    /// A tensor is among them.
    Tensors,
    /// Containers or instances.
    Others,
}

impl Recorder {
    fn operands(&self, operands: &[Borrowed<'_, '_>]) -> Operands {
        let mut state = self.state.borrow_mut();
        let mut result = Operands::Constants;
        for operand in operands {
            match state.kind(*operand) {
                Kind::Tensor => return Operands::Tensors,
                Kind::Constant => {}
                _ => result = Operands::Others,
            }
        }
        result
    }

    /// `BINARY_OP`.
    pub(in crate::recorder) fn binary_op<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::binary(op, left, right);
        }
        let (names, operator) = binary_names(op);
        if let Some(text) = self.carried_percent(frame, op, [left, right]) {
            return text;
        }
        if let Some(text) = self.carried_times(frame, op, [left, right]) {
            return text;
        }
        if let Some(operands) = self.operands_in_program(frame, [left, right]) {
            let [left, right] = operands?;
            return self.binary_op(frame, op, left.as_borrowed(), right.as_borrowed());
        }
        let of_arrays = self.array_operator(frame, names, &[left, right]);
        let of_values = || self.value_operator(frame, names, &[left, right]);
        if let Some(result) = of_arrays.or_else(of_values) {
            return result;
        }
        if let Some(result) =
            self.symbolic_binary(frame, op, plain(names, operator), &[left, right])
        {
            return result;
        }
        match self.operands(&[left, right]) {
            Operands::Constants => {
                let is_text =
                    |operand: Borrowed<'_, '_>| operand.is_exact_instance_of::<PyString>();
                if matches!(op, BinaryOp::Add | BinaryOp::InPlaceAdd)
                    && is_text(left)
                    && is_text(right)
                {
                    if let Some(text) = self.carried_sum(frame, op, [left, right]) {
                        return text;
                    }
                    let text = ops::binary(op, left, right)?;
                    self.spells(frame, &[left, right], text.as_borrowed());
                    return Ok(text);
                }
                self.concrete(frame, &[left, right], "an operator");
                ops::binary(op, left, right)
            }
            Operands::Tensors => self.tensor_binary(frame, op, left, right),
            Operands::Others => {
                if let Some([left, right]) = self.shown_operands(frame, [left, right]) {
                    return self.binary_op(frame, op, left.as_borrowed(), right.as_borrowed());
                }
                // Sequences are joined as they are; numbers that repeat them are read.
                let repeats = matches!(op, BinaryOp::Multiply | BinaryOp::InPlaceMultiply);
                let read: SmallVec<[_; 2]> = [left, right]
                    .into_iter()
                    .filter(|operand| {
                        !repeats || !matches!(self.kind(*operand), Kind::List | Kind::Tuple)
                    })
                    .collect();
                let adds = matches!(op, BinaryOp::Add | BinaryOp::InPlaceAdd);
                // Values are moved, and no key is a number that varies.
                let merges = matches!(op, BinaryOp::Or | BinaryOp::InPlaceOr)
                    && heap::is_exact_dict(left)
                    && heap::is_exact_dict(right);
                let is_handed = self.kind(left) == Kind::Object && is_handed(op, right);
                if !adds && !merges && !is_handed && !self.is_of_arrays(&[left, right]) {
                    self.concrete(frame, &read, "an operator of containers");
                }
                self.guard_operands(frame, &[left, right], names);
                // What a method in Python writes (`Counter.__iadd__`), its frame says. Behind one of a list's class that
                // doesn't know the operand C code adds to the list.
                let says_itself = matches!(self.kind(left), Kind::Dict | Kind::Set)
                    && self.is_in_python(frame, left, names[0]);
                let in_place = names.len() == 3 && !says_itself;
                self.note(frame, |state| {
                    let mutable = matches!(state.kind(left), Kind::List | Kind::Dict | Kind::Set)
                        || heap::is_deque(left);
                    state.adopt_operands(adds, [left, right])?;
                    if in_place && mutable {
                        return state.write_in_place(op, left, right);
                    }
                    Ok(())
                });
                if let Some(result) = self.python_binary(frame, op, names, [left, right]) {
                    return result;
                }
                // Where no sequences are joined, C code adds a number to something: to a member of an `IntEnum`, say.
                let is_joined = |operand| {
                    matches!(self.kind(operand), Kind::List | Kind::Tuple)
                        || heap::is_deque(operand)
                };
                if adds && (!is_joined(left) || !is_joined(right)) || is_handed {
                    self.concrete(frame, &[left, right], "an operator of objects");
                }
                let _reading = self.reads_on(frame, &[right]);
                // `"%(name)d" % mapping` reads what the mapping's code gives.
                let reads = matches!(op, BinaryOp::Remainder | BinaryOp::InPlaceRemainder);
                let _consuming = reads.then(|| self.formatting(frame, right));
                let result = self.with_mode(frame, || ops::binary(op, left, right))?;
                self.note(frame, |state| state.register(result.as_borrowed()));
                Ok(result)
            }
        }
    }

    /// A binary operator of which an operand is a tensor.
    fn tensor_binary<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let (names, operator) = binary_names(op);
        let other = if self.kind(left) == Kind::Tensor { right } else { left };
        if let Some(number) = self.number_beside_tensor(frame, other) {
            let operands = with_number([left, right], other, &number);
            let result = self.binary_op(frame, op, operands[0], operands[1]);
            return self.or_natively(frame, result, beside_tensor, || ops::binary(op, left, right));
        }
        if self.kind(other) == Kind::Object {
            self.guard_operands(frame, &[left, right], names);
            let result = self
                .python_binary(frame, op, names, [left, right])
                .or_else(|| self.right_takes_over(frame, op, names, [left, right]));
            if let Some(result) = result {
                return result;
            }
        }
        if matches!(self.kind(other), Kind::Object | Kind::Opaque)
            && !self.is_sparse_operand(names[0], other)
        {
            self.stop(
                frame,
                Reason::Unsupported,
                format!("an operator of a tensor and a {}", heap::type_name(other)),
            );
        }
        // `[x] * t` is as long as the tensor's data says.
        if matches!(self.kind(other), Kind::List | Kind::Tuple | Kind::Dict) {
            self.stop(
                frame,
                Reason::DataRead,
                format!("an operator of a tensor and a {}", heap::type_name(other)),
            );
        }
        // Numbers have no in-place operators: `n += t` is `n = n + t`.
        let is_number = self.kind(left) != Kind::Tensor;
        let operator = if is_number { plain(names, operator) } else { operator };
        let target = |_: &mut State| Target::Operator(operator);
        self.operation(frame, target, &[left, right], None, || ops::binary(op, left, right))
    }

    /// The number that an operand beside a tensor is to PyTorch: a scalar of NumPy's, or one of a class of its own.
    fn number_beside_tensor<'py>(
        &self,
        frame: &Frame<'py>,
        other: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        self.number_of_scalar(frame, other).or_else(|| {
            self.plain_value(frame, other).filter(|plain| heap::is_number(plain.as_borrowed()))
        })
    }

    /// What was given plain numbers in place of others. What it raises may name their classes, so it's done as it is written.
    pub(in crate::recorder) fn or_natively<'py>(
        &self,
        frame: &Frame<'py>,
        result: Result<Object<'py>>,
        what: impl FnOnce() -> String,
        natively: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        result.or_else(|raised| {
            let py = frame.py();
            let error = raised.take(py);
            let is_of_operations = error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyValueError>(py)
                || error.is_instance_of::<PyRuntimeError>(py)
                || error.is_instance_of::<PyLookupError>(py)
                || error.is_instance_of::<PyArithmeticError>(py);
            if !is_of_operations {
                // A signal's handler has raised it.
                return Err(Raised::set(py, error));
            }
            self.stop(frame, Reason::OperationRaised, what());
            natively()
        })
    }

    /// An operator of a tensor that the right operand takes over by its `__torch_function__`.
    fn right_takes_over<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        names: &[&'static str],
        [left, right]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        if self.kind(left) != Kind::Tensor {
            return None;
        }
        let name = PyString::intern(frame.py(), names[0]);
        let method = types::lookup(left.get_type().as_borrowed(), name.as_any().as_borrowed())?;
        let result = self.overridden(Call::new(frame, method.as_borrowed(), &[left, right]))?;
        Some(result.and_then(|result| {
            if !ops::is_not_implemented(&result) {
                return Ok(result);
            }
            let what = format!("an operator of a tensor and a {}", heap::type_name(right));
            self.stop(frame, Reason::Unsupported, what);
            let asked = if names.len() == 3 { Asked::InPlace } else { Asked::Left };
            ops::binary_rest(op, asked, left, right)
        }))
    }

    /// A text formats these by `%`: how they become numbers is guarded.
    fn formatting(&self, frame: &Frame<'_>, right: Borrowed<'_, '_>) -> Consuming<'_> {
        const AS_NUMBER: &[&str] = &["__index__", "__int__", "__float__"];
        self.guard_protocol(frame, right, AS_NUMBER);
        if self.kind(right) == Kind::Tuple {
            for item in heap::tuple_items(right) {
                self.guard_protocol(frame, item.as_borrowed(), AS_NUMBER);
            }
        }
        self.consuming(frame)
    }

    /// Whether a method of an object's class is a Python function.
    fn is_in_python(&self, frame: &Frame<'_>, object: Borrowed<'_, '_>, method: &str) -> bool {
        let name = PyString::intern(frame.py(), method);
        let found = types::lookup(object.get_type().as_borrowed(), name.as_any().as_borrowed());
        found.is_some_and(|found| self.kind(found.as_borrowed()) == Kind::Function)
    }

    /// `UNARY_NEGATIVE` and such.
    pub(in crate::recorder) fn unary_op<'py>(
        &self,
        frame: &Frame<'py>,
        op: UnaryOp,
        operand: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::unary(op, operand);
        }
        let (name, operator) = match op {
            UnaryOp::Negative => ("__neg__", Operator::Neg),
            UnaryOp::Positive => ("__pos__", Operator::Pos),
            UnaryOp::Invert => ("__invert__", Operator::Invert),
        };
        if let Some(own) = self.own_array(frame, operand) {
            return self.unary_op(frame, op, own?.as_borrowed());
        }
        if let Some(result) = self.array_operator(frame, &[name], &[operand]) {
            return result;
        }
        if let Some(result) = self.value_operator(frame, &[name], &[operand]) {
            return result;
        }
        if let Some(result) = self.symbolic_unary(frame, op, operator, operand) {
            return result;
        }
        match self.operands(&[operand]) {
            Operands::Constants => ops::unary(op, operand),
            Operands::Tensors => {
                let target = |_: &mut State| Target::Operator(operator);
                self.operation(frame, target, &[operand], None, || ops::unary(op, operand))
            }
            Operands::Others => {
                self.guard_operands(frame, &[operand], &[name]);
                if let Some(result) = self.python_unary(frame, name, operand) {
                    return result;
                }
                let result = ops::unary(op, operand)?;
                self.note(frame, |state| state.register(result.as_borrowed()));
                Ok(result)
            }
        }
    }

    /// `COMPARE_OP`.
    pub(in crate::recorder) fn compare_op<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::compare(op, left, right);
        }
        let (names, operator): (&[&'static str], _) = match op {
            CompareOp::Lt => (&["__lt__", "__gt__"], Operator::Lt),
            CompareOp::Le => (&["__le__", "__ge__"], Operator::Le),
            CompareOp::Eq => (&["__eq__"], Operator::Eq),
            CompareOp::Ne => (&["__ne__", "__eq__"], Operator::Ne),
            CompareOp::Gt => (&["__gt__", "__lt__"], Operator::Gt),
            CompareOp::Ge => (&["__ge__", "__le__"], Operator::Ge),
        };
        if let Some(operands) = self.operands_in_program(frame, [left, right]) {
            let [left, right] = operands?;
            return self.compare_op(frame, op, left.as_borrowed(), right.as_borrowed());
        }
        if let Some(result) = self.array_operator(frame, &names[..1], &[left, right]) {
            return result;
        }
        if let Some(result) = self.value_operator(frame, &names[..1], &[left, right]) {
            return result;
        }
        if let Some(result) = self.symbolic_compare(frame, op, left, right) {
            return result;
        }
        match self.operands(&[left, right]) {
            Operands::Constants => {
                self.concrete(frame, &[left, right], "a comparison");
                ops::compare(op, left, right)
            }
            Operands::Tensors => {
                let other = if self.kind(left) == Kind::Tensor { right } else { left };
                if let Some(number) = self.number_beside_tensor(frame, other) {
                    let operands = with_number([left, right], other, &number);
                    let result = self.compare_op(frame, op, operands[0], operands[1]);
                    return self.or_natively(frame, result, beside_tensor, || {
                        ops::compare(op, left, right)
                    });
                }
                let number = self.kind(other) == Kind::Tensor || heap::is_number(other);
                if !number
                    && self.kind(other) == Kind::Constant
                    && matches!(op, CompareOp::Eq | CompareOp::Ne)
                {
                    // `t == None` and `t == "x"` are settled by the types alone.
                    let _native = Suspended::new(frame.py());
                    return ops::compare(op, left, right);
                }
                if self.kind(left) == Kind::Object {
                    self.guard_operands(frame, &[left], names);
                    if let Some(result) = self.python_compare(frame, op, names, [left, right]) {
                        return result;
                    }
                }
                if !matches!(self.kind(other), Kind::Tensor | Kind::Constant) {
                    self.stop(
                        frame,
                        Reason::Unsupported,
                        format!("comparison of a tensor with a {}", heap::type_name(other)),
                    );
                }
                let target = |_: &mut State| Target::Operator(operator);
                self.operation(frame, target, &[left, right], None, || {
                    ops::compare(op, left, right)
                })
            }
            Operands::Others => {
                if let Some([left, right]) = self.shown_operands(frame, [left, right]) {
                    return self.compare_op(frame, op, left.as_borrowed(), right.as_borrowed());
                }
                if let Some(result) = self.compared_rows(frame, op, left, right) {
                    return result;
                }
                let is_equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
                if is_equality && are_of_other_kinds(left, right) {
                    return ops::compare(op, left, right);
                }
                let looks = !is_equality || !are_of_other_lengths(left, right);
                if looks && !self.is_of_arrays(&[left, right]) {
                    self.concrete(frame, &[left, right], "a comparison of containers");
                }
                self.guard_operands(frame, &[left, right], names);
                self.note(frame, |state| {
                    if holds_tensor(state, left) || holds_tensor(state, right) {
                        return Err((
                            Reason::DataRead,
                            "comparison of containers of tensors".into(),
                        ));
                    }
                    state.refuse_own_equality(left)?;
                    state.refuse_own_equality(right)?;
                    state.adopt_deep(left)?;
                    state.adopt_deep(right)?;
                    // The default equality is identity.
                    if matches!(state.kind(left), Kind::Object)
                        && state.kind(right) == state.kind(left)
                    {
                        state.guard_distinct(left, right);
                    } else if state.kind(left) == state.kind(right) {
                        state.note_equated(left);
                        state.note_equated(right);
                    }
                    Ok(())
                });
                if let Some(result) = self.python_compare(frame, op, names, [left, right]) {
                    return result;
                }
                let result = self.compared_by_what_is_held(frame, op, left, right)?;
                self.note(frame, |state| state.register(result.as_borrowed()));
                Ok(result)
            }
        }
    }

    /// Compares as CPython does. A way out is made before rows whose objects may ask what data decides.
    fn compared_by_what_is_held<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let compare = || self.with_mode(frame, || ops::compare(op, left, right));
        let asks = self.session.takes_steps()
            && self.state.try_borrow_mut().is_ok_and(|mut state| state.asks_objects(left));
        if !asks {
            return compare();
        }
        self.with_way_around(frame, || {
            let _consuming = self.consuming(frame);
            compare()
        })
    }

    /// Guards the special methods that an operator looks up, and refuses what can't be read.
    pub(in crate::recorder) fn guard_operands(
        &self,
        frame: &Frame<'_>,
        operands: &[Borrowed<'_, '_>],
        names: &[&'static str],
    ) {
        for operand in operands {
            match self.kind(*operand) {
                Kind::Opaque => {
                    self.stop(
                        frame,
                        Reason::Unsupported,
                        format!("an operator of a {}", heap::type_name(*operand)),
                    );
                }
                // Views and mapping proxies.
                Kind::Iterator if self.origin(*operand) != Some(Origin::Fresh) => {
                    self.stop(frame, Reason::OutsideIterator, heap::type_name(*operand));
                }
                Kind::Constant => {}
                Kind::Type => {
                    let meta = operand.get_type();
                    if !stator_cpython::heap::types::is_immutable(meta.as_borrowed()) {
                        for name in names {
                            let name = PyString::intern(operand.py(), name);
                            self.lookup(frame, &meta, name.as_any().as_borrowed());
                        }
                    }
                }
                _ => {
                    // A deque compares what it holds.
                    self.note(frame, |state| match heap::is_deque(*operand) {
                        true => state.adopt_whole(*operand, false),
                        false => state.refuse_native_state(*operand),
                    });
                    self.guard_protocol_of(frame, *operand, names);
                }
            }
        }
    }

    /// Whether an operator of these runs no code but PyTorch's and CPython's own.
    pub(in crate::recorder) fn are_plain_operands(&self, operands: &[Borrowed<'_, '_>]) -> bool {
        let is_plain = |operand| matches!(self.kind(operand), Kind::Tensor | Kind::Constant);
        operands.iter().copied().all(is_plain)
    }

    /// Truth value of anything but `True`, `False` and `None`.
    pub(in crate::recorder) fn truth_of<'py>(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        if self.is_stopped() {
            return ops::truth(operand);
        }
        if let Some(answer) = self.symbolic_truth(frame, operand) {
            return Ok(answer);
        }
        if let Some(answer) = self.truth_of_history(frame, operand) {
            return Ok(answer);
        }
        if let Some(answer) = self.truth_of_array(frame, operand) {
            return answer;
        }
        if let Some(answer) = self.truth_of_value(frame, operand) {
            return answer;
        }
        // That of a container is a question of its length.
        if !matches!(
            self.kind(operand),
            Kind::List | Kind::Tuple | Kind::Dict | Kind::Set | Kind::FrozenSet
        ) {
            self.concrete(frame, &[operand], "a truth value");
        }
        match self.kind(operand) {
            Kind::Constant => {}
            Kind::Tensor if self.is_constant_data(operand) => {}
            Kind::Tensor => match self.decided_truth(frame, operand, || ops::truth(operand)) {
                Some(answer) => return answer,
                None => self.stop(frame, Reason::DataRead, "the truth value of a tensor"),
            },
            Kind::List | Kind::Tuple | Kind::Dict | Kind::Set | Kind::FrozenSet => {
                self.guard_length(frame, operand);
                self.guard_protocol_of(frame, operand, &["__bool__", "__len__"]);
            }
            Kind::Object => {
                let ty = operand.get_type();
                let empty = |slot| types::slot(ty.as_borrowed(), slot) == types::Slot::Empty;
                if !empty(types::SlotName::Bool) || !empty(types::SlotName::Length) {
                    self.note(frame, |state| state.refuse_native_state(operand));
                }
                self.guard_protocol_of(frame, operand, &["__bool__", "__len__"]);
                if let Some(truth) = self.python_truth(frame, operand) {
                    return truth;
                }
            }
            Kind::Opaque => self.stop(
                frame,
                Reason::Unsupported,
                format!("the truth value of a {}", heap::type_name(operand)),
            ),
            Kind::Iterator if let Some(shown) = self.shown_by(frame, operand) => {
                return self.truth_of(frame, shown.as_borrowed());
            }
            Kind::Type | Kind::Iterator => {
                self.guard_operands(frame, &[operand], &["__bool__", "__len__"])
            }
            _ => {}
        }
        ops::truth(operand)
    }

    /// `IS_OP`.
    pub(in crate::recorder) fn same<'py>(
        &self,
        frame: &Frame<'py>,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> bool {
        if let Some(same) = self.same_number(frame, left, right) {
            return same;
        }
        // What a trace before this one made of a small int is, to the program, the one that CPython has.
        let mut same = left.is(right) || heap::are_one_small_int(left, right);
        if !same && self.are_one_number(frame, left, right) {
            return true;
        }
        if self.has_symbols() && !same {
            let is_text = |operand: Borrowed<'_, '_>| {
                operand.is_exact_instance_of::<PyString>()
                    || operand.is_exact_instance_of::<PyBytes>()
            };
            if !same && is_text(left) && is_text(right) {
                self.concrete(frame, &[left, right], "identity of texts");
            }
            // What stands for an outside tuple is that tuple.
            let state = self.state.borrow();
            same = state.stands_for(left) == state.stands_for(right);
        }
        self.note(frame, |state| {
            state.settle_identity(left, right);
            if same && state.is_known_by_value(left) {
                return Err((Reason::Identity, "identity of what a set holds".into()));
            }
            let kinds = (state.kind(left), state.kind(right));
            if kinds == (Kind::Constant, Kind::Constant) {
                if same {
                    state.guard_one_constant(left);
                    return Ok(());
                }
                return if !left.get_type().is(right.get_type())
                    || heap::is_identity_stable(left, right)
                    || state.guard_two_constants(left, right)
                {
                    Ok(())
                } else {
                    Err((Reason::Identity, "identity of equal values".into()))
                };
            }
            if !same {
                state.guard_distinct(left, right);
            }
            Ok(())
        });
        same
    }

    /// An f-string's field.
    pub(in crate::recorder) fn convert_value<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
    ) -> Result<Object<'py>> {
        if let Some(text) = self.python_text(frame, value, conversion, None) {
            return text;
        }
        if conversion == STR
            && let Some(said) = self.said_by(frame, value)
        {
            return self.convert_value(frame, said.as_borrowed(), STR);
        }
        if conversion != 0
            && let Some(text) = self.carried_format(frame, value, conversion, None)
        {
            return text;
        }
        let text = self.text_of(frame, value, || ops::convert(value, conversion))?;
        self.spells(frame, &[value], text.as_borrowed());
        Ok(text)
    }

    pub(in crate::recorder) fn format_value<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        if let Some(text) = self.python_format(frame, value, conversion, spec) {
            return text;
        }
        // Other formats are refused.
        let is_plain = conversion == 0 && spec.is_none_or(|spec| heap::text(spec).is_empty());
        if (is_plain || conversion == STR)
            && let Some(said) = self.said_by(frame, value)
        {
            return self.format_value(frame, said.as_borrowed(), STR, spec);
        }
        if let Some(text) = self.carried_format(frame, value, conversion, spec) {
            return text;
        }
        let text = self.text_of(frame, value, || ops::format(value, conversion, spec))?;
        match spec {
            Some(spec) => self.spells(frame, &[value, spec], text.as_borrowed()),
            None => self.spells(frame, &[value], text.as_borrowed()),
        }
        Ok(text)
    }
}

impl State {
    /// Guards operands that C code is about to read. Joined sequences are only moved.
    fn adopt_operands(&mut self, adds: bool, operands: [Borrowed<'_, '_>; 2]) -> Noted<()> {
        let is_sequence = |operand: &Borrowed<'_, '_>| {
            heap::is_exact_list(*operand) || heap::is_plain_tuple(*operand)
        };
        let joins = adds && operands.iter().all(is_sequence);
        operands.into_iter().try_for_each(|operand| self.adopt_whole(operand, joins))
    }
}

/// Whether a list, tuple or dictionary is compared with something that is never equal to one, whatever is in it: `sizes == "all"`.
fn are_of_other_kinds(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    let is_container = |object: Borrowed<'_, '_>| {
        object.is_exact_instance_of::<PyList>()
            || object.is_exact_instance_of::<PyTuple>()
            || object.is_exact_instance_of::<PyDict>()
    };
    let is_plain = |object: Borrowed<'_, '_>| {
        is_container(object)
            || object.is_none()
            || object.is_exact_instance_of::<PyString>()
            || heap::is_number(object)
    };
    (is_container(left) || is_container(right))
        && is_plain(left)
        && is_plain(right)
        && !left.get_type().is(right.get_type())
}

/// Whether both are lists, one longer than the other: CPython looks at no item then.
fn are_of_other_lengths(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    heap::is_exact_list(left)
        && heap::is_exact_list(right)
        && heap::list_items(left).len() != heap::list_items(right).len()
}

fn beside_tensor() -> String {
    "an operator of a tensor and a number".into()
}

/// The operands, with a number in place of one of them.
fn with_number<'a, 'py>(
    operands: [Borrowed<'a, 'py>; 2],
    other: Borrowed<'_, 'py>,
    number: &'a Object<'py>,
) -> [Borrowed<'a, 'py>; 2] {
    operands.map(|operand| if operand.is(&*other) { number.as_borrowed() } else { operand })
}

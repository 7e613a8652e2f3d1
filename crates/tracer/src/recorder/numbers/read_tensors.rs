//! What a program asks a tensor with one element: `loss.item()`, `float(t)`, `int(t)`, `bool(t)`.
//!
//! A number is carried (`read_numbers.rs`); whether it's true is a decision (`ending/deciding.rs`).

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PySlice, PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor::{self, TensorInfo};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, ops};
use stator_graph::{Arg, NodeId, Target, Value};
use stator_operators::Numeric;
use stator_shapes::Rounding;

use super::number_functions::{boolean, is_in_math};
use super::read_numbers::own;
use crate::breaks::Reason;
use crate::functions::Operation;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Decides, Ends};
use crate::recorder::notes::call::{Call, RecordedArgs, library};
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};

/// Longer lists aren't carried number by number.
pub(in crate::recorder) const LONGEST: i64 = 64;

/// Of longer lists of truth values each call has others.
const MOST_ANSWERS: i64 = 16;

/// `c10::ScalarType::Bool`.
const BOOL: i32 = 11;

/// What Python asks a tensor for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recorder) enum TensorRead {
    Item,
    Float,
    Integer,
    Truth,
}

impl TensorRead {
    /// By the name of a tensor's method.
    pub fn by_method(name: &str) -> Option<Self> {
        Some(match name {
            "item" => Self::Item,
            "__float__" => Self::Float,
            "__int__" => Self::Integer,
            "__bool__" => Self::Truth,
            _ => return None,
        })
    }

    /// By the name of a builtin type.
    pub fn by_type(name: &str) -> Option<Self> {
        Some(match name {
            "float" => Self::Float,
            "int" => Self::Integer,
            "bool" => Self::Truth,
            _ => return None,
        })
    }

    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::Float => "__float__",
            Self::Integer => "__int__",
            Self::Truth => "__bool__",
        }
    }
}

impl Recorder {
    /// What a tensor gives for it, if the trace can go on behind it.
    pub(in crate::recorder) fn converted<'py>(
        &self,
        frame: &Frame<'py>,
        read: TensorRead,
        tensor: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let info = self.one_element(tensor)?;
        // `c10::ScalarType`: signed integers and `uint8`; floating-point numbers; `bool`.
        let (is_integer, is_float) =
            (matches!(info.dtype, 0..=4), matches!(info.dtype, 5..=7 | 15));
        let is_number = match read {
            TensorRead::Truth => false,
            TensorRead::Item => is_integer || is_float,
            // Those of a truth value are no truth values.
            TensorRead::Float => is_integer || is_float || info.dtype == BOOL,
            TensorRead::Integer => is_integer || info.dtype == BOOL,
        };
        if is_number {
            return self.read_number(frame, read.method(), tensor, native);
        }
        if read == TensorRead::Integer && is_float {
            return self.read_rounded(frame, tensor);
        }
        // `item()` of other dtypes (complex, unsigned, eight bits) gives a number that isn't carried.
        let is_truth = match read {
            TensorRead::Truth => true,
            TensorRead::Item => info.dtype == BOOL,
            TensorRead::Float | TensorRead::Integer => false,
        };
        if !is_truth {
            return None;
        }
        let truth = || native().map(|it| it.is_truthy().unwrap_or(false));
        let decided = self.decided_by(frame, read.method(), tensor, truth)?;
        Some(decided.map(|answer| boolean(frame.py(), answer)))
    }

    /// The truth of a tensor, if the trace can go on behind it.
    pub(in crate::recorder) fn decided_truth<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<bool>,
    ) -> Option<Result<bool>> {
        single(tensor)?;
        self.decided_by(frame, TensorRead::Truth.method(), tensor, native)
    }

    fn decided_by<'py>(
        &self,
        frame: &Frame<'py>,
        method: &str,
        tensor: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<bool>,
    ) -> Option<Result<bool>> {
        let asked = |state: &mut State| state.asked_of(frame, method, tensor).map(Arg::Node);
        self.decided(frame, Asks::Program, asked, native)
    }

    /// `t.tolist()` of a few numbers: lists of numbers that are carried.
    pub(in crate::recorder) fn read_list<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let info = tensor::info(tensor)?;
        let is_number = matches!(info.dtype, 0..=7 | 15);
        let dimensions = info.sizes.len();
        let few = info.sizes.iter().try_fold(1i64, |all, size| all.checked_mul(*size));
        let are_few = dimensions > 0 && few.is_some_and(|few| few <= LONGEST);
        let are_answers = info.dtype == BOOL
            && dimensions == 1
            && few.is_some_and(|few| (1..=MOST_ANSWERS).contains(&few));
        if !(is_number || are_answers) || !are_few || !info.is_plain() || !self.may_read(frame) {
            return None;
        }
        // How many there are is in the record.
        if !self.settle_sizes(frame, &[tensor]) {
            return None;
        }
        self.fix_sizes(frame, &[tensor], "tolist");
        if are_answers {
            return self.decided_list(frame, tensor, few?, native);
        }
        let list = match native() {
            Ok(list) => list,
            Err(raised) => return Some(Err(self.refused_to_tell(frame, raised))),
        };
        let carried = own_rows(&list, dimensions)?;
        self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
        self.note(frame, |state| {
            let node = state.asked_of(frame, "tolist", tensor)?;
            state.carry_rows(node, &carried, dimensions);
            Ok(())
        });
        Some(Ok(carried))
    }

    /// `t.tolist()` of a few truth values: each is a decision, and all leave by one exit.
    fn decided_list<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        count: i64,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let count = u32::try_from(count).ok()?;
        let mut native = Some(native);
        let mut list: Option<Object<'py>> = None;
        let mut answers: SmallVec<[NodeId; 16]> = SmallVec::new();
        for index in 0..count {
            let asked = |state: &mut State| {
                if answers.is_empty() {
                    let node = state.asked_of(frame, "tolist", tensor)?;
                    state.graph.set_value(node, Value::Structure(count));
                    answers = (0..count).map(|index| state.graph.get_item(node, index)).collect();
                }
                Ok(Arg::Node(answers[index as usize]))
            };
            let answer = || {
                if let Some(native) = native.take() {
                    list = Some(native()?);
                }
                let item = list.as_ref().and_then(|list| list.get_item(index).ok());
                Ok(item.is_some_and(|item| item.is_truthy().unwrap_or(false)))
            };
            match self.decided(frame, Asks::Program, asked, answer) {
                Some(Ok(_)) => {}
                Some(Err(raised)) => return Some(Err(raised)),
                None if index == 0 => return None,
                None => self.stop(frame, Reason::DataRead, "tolist"),
            }
        }
        let list = list?;
        self.note(frame, |state| {
            state.set_fresh(list.as_borrowed());
            Ok(())
        });
        Some(Ok(list))
    }

    /// Whether numbers can be carried from here on. C code that waits for these frames, or asks itself
    /// (`max(..., key=float)`), reads them.
    pub(in crate::recorder) fn may_read(&self, frame: &Frame<'_>) -> bool {
        self.session.takes_steps()
            && (self.is_untouched(frame)
                || self.is_collected(frame)
                || self.is_enclosed(frame)
                || self.is_called_around(frame))
    }

    /// An object that has integers where this one has tensors with one: numbers that are carried. `None`: not all can be,
    /// or it holds something else.
    pub(in crate::recorder) fn settled<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let py = frame.py();
        if self.kind(object) == Kind::Tensor {
            return self.settled_tensor(frame, object);
        }
        if !self.holds_own_tensor(object) {
            return Some(object.to_owned());
        }
        let parts = |parts: Vec<Object<'py>>| {
            let settled = parts.iter().map(|part| self.settled(frame, part.as_borrowed()));
            settled.collect::<Option<Vec<_>>>()
        };
        if let Ok(slice) = object.cast_exact::<PySlice>() {
            let [start, stop, step] =
                <[_; 3]>::try_from(parts(heap::slice_parts(slice).to_vec())?).ok()?;
            return py.get_type::<PySlice>().call1((start, stop, step)).ok();
        }
        if heap::is_plain_tuple(object) {
            return Some(PyTuple::new(py, parts(heap::tuple_items(object))?).ok()?.into_any());
        }
        heap::is_exact_list(object)
            .then(|| Some(PyList::new(py, parts(heap::list_items(object))?).ok()?.into_any()))?
    }

    fn settled_tensor<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let info = single(tensor)?;
        if !matches!(info.dtype, 0..=4) || !self.may_read(frame) {
            return None;
        }
        let method = TensorRead::Integer.method();
        let native = || {
            let _native = Suspended::new(frame.py());
            ops::get_attr(tensor, PyString::intern(frame.py(), method).as_any().as_borrowed())
                .and_then(|method| ops::call(method.as_borrowed(), &[], None))
        };
        let number = match self.is_constant_data(tensor) {
            true => native(),
            false => self.read_number(frame, method, tensor, native)?,
        };
        let number = Raised::unless(frame.py(), number)?;
        // To read changes nothing: the instruction is as before.
        self.baseline.set(ops::executed());
        Some(number)
    }

    /// What an operation says of data (`torch.equal`), if the trace can go on behind it: a decision.
    pub(in crate::recorder) fn answered<'py>(
        &self,
        operation: &Operation,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let is_plain = |arg: &Borrowed<'_, '_>| match self.kind(*arg) {
            Kind::Tensor => tensor::info(*arg).is_some_and(|info| info.is_plain()),
            kind => kind == Kind::Constant,
        };
        if !args.iter().all(is_plain) {
            return None;
        }
        let asked = |state: &mut State| {
            let target = operation.target(state, callable);
            let RecordedArgs { args, names } = RecordedArgs::of(state, args, names)?;
            let stack = state.place(frame);
            Ok(Arg::Node(state.graph.call_with_keywords(target, &args, &names, stack)))
        };
        let native = || {
            let _native = Suspended::new(frame.py());
            call.natively().map(|answer| answer.is_truthy().unwrap_or(false))
        };
        let answer = self.decided(frame, Asks::Program, asked, native)?;
        Some(answer.map(|answer| boolean(frame.py(), answer)))
    }

    /// What a function of `math` computes with in place of tensors: it asks each for its `__float__`. `None`: it's given
    /// no tensor, or another function, or one of them isn't carried.
    pub(in crate::recorder) fn floats_of_tensors<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<SmallVec<[Object<'py>; 2]>> {
        let Call { frame, callable, args, names } = call;
        let is_tensor = |arg: &Borrowed<'_, '_>| self.kind(*arg) == Kind::Tensor;
        let takes_floats = || {
            let numeric = self.functions.numeric(callable);
            numeric.is_some_and(Numeric::takes_floats) && is_in_math(callable)
        };
        if names.is_some() || !args.iter().any(is_tensor) || !takes_floats() {
            return None;
        }
        let read = TensorRead::Float;
        let floats = args.iter().map(|arg| -> Option<Object<'py>> {
            if !is_tensor(arg) {
                return Some((*arg).to_owned());
            }
            let method = pyo3::intern!(frame.py(), "__float__").as_any().as_borrowed();
            let native = || {
                ops::get_attr(*arg, method).and_then(|it| ops::call(it.as_borrowed(), &[], None))
            };
            let float = self.converted(frame, read, *arg, native)?;
            let float = Raised::unless(frame.py(), float)?;
            // To read changes nothing: the instruction is as before.
            self.baseline.set(ops::executed());
            Some(float)
        });
        floats.collect()
    }

    /// `int(t)` of a float, in two steps: the float, and what it's rounded to.
    fn read_rounded<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let item = pyo3::intern!(frame.py(), "item").as_any().as_borrowed();
        let native =
            || ops::get_attr(tensor, item).and_then(|it| ops::call(it.as_borrowed(), &[], None));
        let float = match self.read_number(frame, TensorRead::Item.method(), tensor, native)? {
            Ok(float) => float,
            Err(raised) => return Some(Err(raised)),
        };
        // To read changes nothing: the instruction is as before.
        self.baseline.set(ops::executed());
        let int = frame.py().get_type::<PyInt>();
        let rounding = Numeric::Rounded(Rounding::Trunc);
        let args = [float.as_borrowed()];
        self.symbolic_function(rounding, Call::new(frame, int.as_any().as_borrowed(), &args))
    }

    /// A number that is carried. `None`: the instruction is to end the trace.
    fn read_number<'py>(
        &self,
        frame: &Frame<'py>,
        method: &str,
        tensor: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let number = if self.session.program.is_some() {
            self.stand_in_for_read(frame.py(), method, tensor)?
        } else if self.may_read(frame) {
            match native() {
                Ok(number) => number,
                Err(raised) => return Some(Err(self.refused_to_tell(frame, raised))),
            }
        } else {
            return None;
        };
        let own = own(&number)?;
        self.carries(frame, &own, |state| state.asked_of(frame, method, tensor));
        Some(Ok(own))
    }

    /// What a tensor says of itself that no guard can: how often it was written, where its memory is. A number that is
    /// carried. `None`: it can't be.
    pub(in crate::recorder) fn told<'py>(
        &self,
        frame: &Frame<'py>,
        what: &str,
        tensor: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        // Other backends may write into other memory, and once.
        let is_known = self.session.is_replayed() && tensor::info(tensor)?.is_plain();
        if !is_known || !self.may_read(frame) {
            return None;
        }
        let number = match native() {
            Ok(number) => number,
            Err(raised) => return Some(Err(self.refused_to_tell(frame, raised))),
        };
        let own = own(&number)?;
        let get = library(frame.py(), "builtins", "getattr").ok()?;
        let name = PyString::intern(frame.py(), what).into_any();
        self.carries(frame, &own, |state| match what {
            "data_ptr" | "storage_offset" => state.asked_of(frame, what, tensor),
            _ => {
                let args = [state.graph_arg(tensor)?, state.graph_arg(name.as_borrowed())?];
                Ok(state.called(frame, get.as_borrowed(), "builtins.getattr".into(), &args))
            }
        });
        Some(Ok(own))
    }

    /// A tensor can't be read (its device has failed, or a CUDA graph is captured): the trace ends, and the program
    /// gets the exception. It isn't asked again.
    fn refused_to_tell(&self, frame: &Frame<'_>, raised: Raised) -> Raised {
        self.stop(frame, Reason::OperationRaised, "a tensor that is read");
        raised
    }
}

impl State {
    /// The node that asks a tensor by one of its methods.
    fn asked_of(
        &mut self,
        frame: &Frame<'_>,
        method: &str,
        tensor: Borrowed<'_, '_>,
    ) -> Noted<NodeId> {
        let asked = self.graph_arg(tensor)?;
        let stack = self.place(frame);
        let descriptor = tensor.get_type().getattr(method).ok();
        let object = descriptor.map(|descriptor| {
            self.graph_object(descriptor.as_borrowed(), || format!("torch.Tensor.{method}"))
        });
        let target = Target::Method { name: self.graph.intern(method), object };
        Ok(self.graph.call(target, &[asked], stack))
    }
}

/// The same lists with numbers of their own, so many deep; `None`: one is no number that is carried.
pub(in crate::recorder) fn own_rows<'py>(list: &Object<'py>, depth: usize) -> Option<Object<'py>> {
    let items = heap::list_items(list.as_borrowed());
    let row = |item: &Object<'py>| if depth > 1 { own_rows(item, depth - 1) } else { own(item) };
    let items: Vec<_> = items.iter().map(row).collect::<Option<_>>()?;
    Some(PyList::new(list.py(), items).ok()?.into_any())
}

/// What is known of a tensor that PyTorch itself computes with, and that has one element.
pub(in crate::recorder) fn single(tensor: Borrowed<'_, '_>) -> Option<TensorInfo> {
    let info = tensor::info(tensor)?;
    (info.is_plain() && info.sizes.iter().all(|size| *size == 1)).then_some(info)
}

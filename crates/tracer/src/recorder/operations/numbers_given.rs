//! Tensors that are given to an operation where numbers belong: `torch.sum(x, dim=t)`.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_operators::{
    Determined, Filled, Given, Raising, Use, fits, largest, raises_no_more_for_scalars, raising,
    torch as operators, type_of_number,
};

use crate::breaks::Reason;
use crate::functions::{Operation, Reading};
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::{Call, argument};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::numbers::tensors::holds_tensor;

impl Recorder {
    /// What an operation makes of those tensors among its arguments that may stand for numbers.
    pub(in crate::recorder) fn use_of_tensors(
        &self,
        operation: &Operation,
        call: Call<'_, '_>,
    ) -> Use {
        let Call { callable, args, names, .. } = call;
        let mut state = self.state.borrow_mut();
        // A method's receiver is a tensor.
        let first = usize::from(operation.is_method);
        if !args.iter().skip(first).any(|arg| bears_single(&mut state, *arg)) {
            return Use::Data;
        }
        // Python functions are traced where a tensor isn't given for one, and classes read none.
        if matches!(state.kind(callable), Kind::Function | Kind::Type) {
            return Use::Data;
        }
        let given: SmallVec<[Given; 8]> =
            args.iter().map(|arg| described(&mut state, *arg)).collect();
        let takes_each = takes_each(&mut state, operation, args);
        drop(state);
        let names = texts(names);
        let names: SmallVec<[&str; 8]> = names.iter().map(String::as_str).collect();
        let found = match Reading::of_operator(callable.py(), &operation.name) {
            Reading::Data => Use::Data,
            Reading::Literal if matches!(given.get(first), Some(Given::Tensor { .. })) => Use::Data,
            Reading::Literal if operation.is_method => Use::Read,
            // A type of integers that is asked for may not hold the number.
            Reading::Literal
                if !argument(args, call.names, args.len(), "dtype").is_none_or(takes_all) =>
            {
                Use::Read
            }
            Reading::Literal => Use::Scalar,
            Reading::Schemas(schemas) => match schemas.tensors(&given, &names) {
                // The row has been asked.
                Use::Scalar if matches!(operation.determined, Determined::Filled(..)) => {
                    Use::Scalar
                }
                // No guard says that the number won't make the operation raise.
                Use::Scalar if !takes_each && !may_take_any(operation, &given) => Use::Read,
                found => found,
            },
            Reading::Parameters(_) => Use::Read,
        };
        match found {
            // Inputs of programs have no data to read: PyTorch says so itself.
            Use::Read if self.session.program.is_some() => Use::Data,
            // Called again, the operation reads a tensor again. Another backend's code can't. What is given a number that
            // was read is a step between the parts of a graph.
            Use::Scalar if !self.session.is_eager => {
                let mut state = self.state.borrow_mut();
                let fixed: SmallVec<[Given; 8]> =
                    args.iter().map(|arg| if_fixed(&mut state, *arg)).collect();
                drop(state);
                match Reading::of_operator(callable.py(), &operation.name) {
                    Reading::Schemas(schemas) if schemas.tensors(&fixed, &names) == Use::Data => {
                        Use::Scalar
                    }
                    _ => Use::Read,
                }
            }
            found => found,
        }
    }

    /// Arguments with numbers for the tensors that stand where an operator of PyTorch's takes integers alone:
    /// `torch.histc(x, bins=n)`. `None`: there are none, or not all can be read.
    pub(in crate::recorder) fn settled_integers<'py>(
        &self,
        operation: &Operation,
        call: Call<'_, 'py>,
    ) -> Option<SmallVec<[Object<'py>; 8]>> {
        let Call { frame, callable, args, names } = call;
        let first = usize::from(operation.is_method);
        let state = &self.state;
        if state.borrow_mut().kind(callable) != Kind::Builtin {
            return None;
        }
        let Reading::Schemas(schemas) = Reading::of_operator(callable.py(), &operation.name) else {
            return None;
        };
        let given: SmallVec<[Given; 8]> =
            args.iter().map(|arg| described(&mut state.borrow_mut(), *arg)).collect();
        let integers: SmallVec<[Option<Given>; 8]> = (0..)
            .zip(args.iter().zip(&given))
            .map(|(at, (arg, given))| {
                as_integers(&mut state.borrow_mut(), *arg, given).filter(|_| at >= first)
            })
            .collect();
        let names = texts(names);
        let names: SmallVec<[&str; 8]> = names.iter().map(String::as_str).collect();
        // Whether this one of them is read though the others are numbers.
        let is_read = |at: usize| {
            let all = given.iter().zip(&integers).enumerate();
            let other = |(place, (given, integer)): (usize, (&Given, &Option<Given>))| {
                if place == at { *given } else { integer.unwrap_or(*given) }
            };
            let given: SmallVec<[Given; 8]> = all.map(other).collect();
            integers[at].is_some() && schemas.only_read(&given, &names)
        };
        let read: SmallVec<[bool; 8]> = (0..args.len()).map(is_read).collect();
        if !read.contains(&true) {
            return None;
        }
        let settled = args.iter().zip(&read).map(|(arg, is_read)| match is_read {
            true => self.settled(frame, *arg),
            false => Some((*arg).to_owned()),
        });
        settled.collect()
    }

    /// Why a tensor that is given to an operation that fills its result with numbers is read. `is_held`: the result's type
    /// holds a number that was read.
    pub(in crate::recorder) fn unfit_number(
        &self,
        operation: &Operation,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
        is_held: bool,
    ) -> Option<Stop> {
        let Determined::Filled(filled, places) = operation.determined else { return None };
        let mut state = self.state.borrow_mut();
        let own = names.map_or_else(Vec::new, heap::tuple_items);
        let positional = args.len() - own.len();
        let name = |at: usize| own.get(at.checked_sub(positional)?).map(Bound::as_borrowed);
        let refuse = |what: &str| Some((Reason::DataRead, format!("{what} {}", operation.name)));
        for (at, arg) in args.iter().enumerate() {
            if !holds_tensor(&mut state, *arg) {
                continue;
            }
            let name = name(at).map(heap::text);
            let is_first = at == 0 && (filled == Filled::First);
            // What it writes into is no number.
            if is_first || name.as_deref() == Some("out") {
                continue;
            }
            let is_number = |(place, called): &(usize, &str)| match &name {
                Some(name) => name == called,
                None => at == *place,
            };
            let is_place = places.iter().any(is_number);
            if is_held && is_place && heap::is_number(*arg) {
                continue;
            }
            let has_out = || own.iter().any(|name| heap::text(name.as_borrowed()) == "out");
            if !is_place || state.kind(*arg) != Kind::Tensor || has_out() {
                return refuse("a tensor as size argument of");
            }
            let number = dtype_of(*arg).unwrap_or_default();
            let result = type_of_filled(filled, args, names, &number);
            if !result.is_some_and(|dtype| fits(&number, &dtype)) {
                return refuse("a number that the result's type may not hold, given to");
            }
        }
        None
    }

    /// Whether an operation fills its result with a number that was read, and the result's type holds it: each replay asks,
    /// where that doesn't follow from the types.
    pub(in crate::recorder) fn fills_with_held(
        &self,
        operation: &Operation,
        call: Call<'_, '_>,
    ) -> bool {
        let Determined::Filled(filled, [(place, name)]) = operation.determined else {
            return false;
        };
        let Call { frame, args, names, .. } = call;
        let Some(number) = argument(args, names, *place, name) else { return false };
        let own = match number.is_exact_instance_of::<PyFloat>() {
            true => "float64",
            false if number.is_exact_instance_of::<PyInt>() => "int64",
            false => return false,
        };
        self.state.borrow_mut().holds_read(number)
            && type_of_filled(filled, args, names, own).is_some_and(|dtype| {
                fits(own, &dtype)
                    || own == "float64"
                        && largest(&dtype)
                            .is_some_and(|most| self.is_no_larger(frame, number, most))
            })
    }

    /// Ends the trace if an operation has returned one of its arguments, and a number that is a tensor may
    /// have decided that: `dropout` by 0 returns its input.
    pub(in crate::recorder) fn returned_by_number(
        &self,
        frame: &Frame<'_>,
        operation: &Operation,
        args: &[Borrowed<'_, '_>],
        result: &Object<'_>,
    ) {
        if !operation.name.ends_with('_') && args.iter().any(|arg| arg.is(result)) {
            self.note(frame, |_| {
                let detail = format!("which argument {} returns", operation.name);
                Err::<(), Stop>((Reason::DataRead, detail))
            });
        }
    }

    /// Ends the trace before a read of metadata that is told by a tensor what to read: `x.size(t)`.
    pub(in crate::recorder) fn refuse_numbers_of_state(&self, call: Call<'_, '_>) {
        let Call { frame, callable, args, .. } = call;
        let mut state = self.state.borrow_mut();
        let is_read = args.iter().enumerate().any(|(place, arg)| {
            (place > 0 || state.kind(*arg) != Kind::Tensor) && holds_tensor(&mut state, *arg)
        });
        drop(state);
        if is_read {
            let name = heap::callable_name(callable);
            let asks_types = name.contains("has_torch_function")
                || matches!(
                    &*name,
                    "is_tensor"
                        | "is_storage"
                        | "is_tensor_like"
                        | "_has_compatible_shallow_copy_type"
                );
            if !asks_types && name != "result_type" {
                let detail = format!("a tensor as a number that {name} is given");
                self.stop(frame, Reason::DataRead, detail);
            }
        }
    }

    /// Whether a Python function that counts as one operation is traced like any other, because a tensor
    /// stands where its code wants something else.
    pub(in crate::recorder) fn is_looked_into(
        &self,
        operation: &Operation,
        call: Call<'_, '_>,
    ) -> bool {
        let Call { callable, args, names, .. } = call;
        if self.session.program.is_some()
            || self.kind(callable) != Kind::Function
            // Those are read, or made, as a whole.
            || matches!(
                operation.determined,
                Determined::Never
                    | Determined::Sized
                    | Determined::ReadsData
                    | Determined::Answer
                    | Determined::EagerOnly
                    | Determined::EagerIf(_)
            )
        {
            return false;
        }
        let given = names.map_or(0, |names| names.len().unwrap_or(0));
        let (positional, named) = args.split_at(args.len() - given);
        // The first of those functions' parameters is a tensor.
        let first = usize::from(!positional.is_empty());
        let holds = |arg: Borrowed<'_, '_>| holds_tensor(&mut self.state.borrow_mut(), arg);
        if !args.iter().skip(first).any(|arg| holds(*arg)) {
            return false;
        }
        let parameters = match Reading::of_function(callable, &operation.name) {
            Reading::Parameters(parameters) => parameters,
            Reading::Data => return false,
            Reading::Literal | Reading::Schemas(_) => return true,
        };
        let names = names.map_or_else(Vec::new, heap::tuple_items);
        let mut positional = positional.iter().enumerate();
        let mut named = names.iter().zip(named);
        positional.any(|(place, arg)| !parameters.takes_tensor_at(place) && holds(*arg))
            || named.any(|(name, arg)| {
                !parameters.takes_tensor_named(&heap::text(name.as_borrowed())) && holds(*arg)
            })
    }
}

/// The texts of keywords.
fn texts(names: Option<Borrowed<'_, '_>>) -> SmallVec<[String; 8]> {
    let names = names.map_or_else(Vec::new, heap::tuple_items);
    names.iter().map(|name| heap::text(name.as_borrowed())).collect()
}

/// What an argument would be if the integers that its tensors hold stood there; `None`: it has no tensors, or others.
fn as_integers(state: &mut State, object: Borrowed<'_, '_>, given: &Given) -> Option<Given> {
    match state.kind(object) {
        // What has dimensions is refused by some.
        Kind::Tensor => tensor::info(object)
            .is_some_and(|info| info.sizes.is_empty() && matches!(info.dtype, 0..=4))
            .then_some(Given::Integer),
        Kind::List | Kind::Tuple => match given {
            Given::Sequence { holds_single: true, .. } => {
                Some(Given::Sequence { is_tensors: false, holds_single: false })
            }
            _ => None,
        },
        _ => None,
    }
}

/// The type of a tensor's elements.
fn dtype_of(tensor: Borrowed<'_, '_>) -> Option<String> {
    let dtype = i8::try_from(tensor::info(tensor)?.dtype).ok()?;
    Some(stator_graph::Dtype(dtype).name().to_owned())
}

/// The type of the result of an operation that fills it with a number of this type.
fn type_of_filled(
    filled: Filled,
    args: &[Borrowed<'_, '_>],
    names: Option<Borrowed<'_, '_>>,
    number: &str,
) -> Option<String> {
    let default = || text_of_default(args.first()?.py());
    let result = match argument(args, names, args.len(), "dtype") {
        Some(dtype) if !dtype.is_none() => Some(heap::short_repr(dtype)),
        _ => match filled {
            Filled::First => args.first().and_then(|first| dtype_of(*first)),
            Filled::Number => type_of_number(number).map(str::to_owned).or_else(default),
            Filled::Default => default(),
        },
    };
    result.map(|dtype| dtype.strip_prefix("torch.").unwrap_or(&dtype).to_owned())
}

/// The default type of floats.
fn text_of_default(py: Python<'_>) -> Option<String> {
    let torch = modules::import(py, "torch").ok()?;
    Some(torch.call_method0("get_default_dtype").ok()?.str().ok()?.to_string())
}

/// Whether an operation raises for no value of a number that it computes with, as far as it is known not to
/// raise for data at all.
fn may_take_any(operation: &Operation, given: &[Given]) -> bool {
    let name = operators::bare(&operation.name);
    let is_inexact = matches!(given.first(), Some(Given::Tensor { is_inexact: true, .. }));
    let is_unlisted = matches!(raising(name), Raising::Unknown | Raising::Fresh);
    is_unlisted || (is_inexact && raises_no_more_for_scalars(name))
}

/// As [`may_take_any`], of an operation on each of a list of tensors.
fn takes_each(state: &mut State, operation: &Operation, args: &[Borrowed<'_, '_>]) -> bool {
    const SCALARS: [&str; 9] =
        ["add", "sub", "mul", "div", "addcdiv", "addcmul", "lerp", "clamp_max", "clamp_min"];
    let name = operators::bare(&operation.name).trim_matches('_');
    let is_one = name.strip_prefix("foreach_").is_some_and(|each| SCALARS.contains(&each));
    let tensors = args.first().filter(|_| is_one).map(|first| heap::plain_parts(*first));
    tensors.is_some_and(|tensors| {
        tensors.iter().all(|tensor| {
            state.kind(tensor.as_borrowed()) == Kind::Tensor
                && tensor::info(tensor.as_borrowed()).is_some_and(|info| is_inexact(info.dtype))
        })
    })
}

/// As [`described`], were the numbers that were read constants.
fn if_fixed(state: &mut State, object: Borrowed<'_, '_>) -> Given {
    match described(state, object) {
        Given::Tensor { is_inexact: true, .. } if heap::is_number(object) => Given::Number,
        Given::Tensor { .. } if heap::is_number(object) => Given::Integer,
        Given::Sequence { is_tensors, .. }
            if heap::plain_parts(object).iter().all(|item| heap::is_number(item.as_borrowed())) =>
        {
            Given::Sequence { is_tensors, holds_single: false }
        }
        given => given,
    }
}

/// Whether an argument is or holds a tensor of one element, or a number that was read from one.
fn bears_single(state: &mut State, object: Borrowed<'_, '_>) -> bool {
    match state.kind(object) {
        Kind::Tensor => is_single(object),
        Kind::List | Kind::Tuple | Kind::Dict => {
            state.once(object, false, |state| any_item(state, object))
        }
        Kind::Slice => any_item(state, object),
        Kind::Constant => state.holds_read(object),
        _ => false,
    }
}

fn any_item(state: &mut State, object: Borrowed<'_, '_>) -> bool {
    match state.kind(object) {
        Kind::List => {
            heap::list_items(object).iter().any(|item| bears_single(state, item.as_borrowed()))
        }
        Kind::Tuple => {
            heap::tuple_items(object).iter().any(|item| bears_single(state, item.as_borrowed()))
        }
        Kind::Dict => heap::dict_items(object)
            .iter()
            .any(|(_, value)| bears_single(state, value.as_borrowed())),
        Kind::Slice => {
            heap::plain_parts(object).iter().any(|part| bears_single(state, part.as_borrowed()))
        }
        _ => false,
    }
}

/// Whether a tensor has one element, as those must that are taken for numbers.
fn is_single(object: Borrowed<'_, '_>) -> bool {
    match tensor::size(object, 0) {
        Some(1) | None => {
            tensor::info(object).is_none_or(|info| info.sizes.iter().all(|size| *size == 1))
        }
        Some(_) => false,
    }
}

fn described(state: &mut State, object: Borrowed<'_, '_>) -> Given {
    match state.kind(object) {
        Kind::Tensor => Given::Tensor {
            is_single: is_single(object),
            is_inexact: tensor::info(object).is_some_and(|info| is_inexact(info.dtype)),
        },
        Kind::Constant if object.is_none() => Given::Nothing,
        Kind::Constant if heap::is_number(object) && state.holds_read(object) => {
            let is_inexact = object.is_exact_instance_of::<PyFloat>();
            Given::Tensor { is_single: true, is_inexact }
        }
        Kind::Constant
            if object.is_exact_instance_of::<PyInt>()
                || object.is_exact_instance_of::<PyBool>() =>
        {
            Given::Integer
        }
        Kind::Constant if heap::is_number(object) => Given::Number,
        Kind::List | Kind::Tuple => {
            let items = heap::sequence_items(object);
            Given::Sequence {
                is_tensors: items
                    .iter()
                    .all(|item| item.is_none() || state.kind(item.as_borrowed()) == Kind::Tensor),
                holds_single: bears_single(state, object),
            }
        }
        _ if bears_single(state, object) => Given::Holder,
        _ => Given::Other,
    }
}

/// Whether `torch.tensor` makes elements of this type of all numbers, or of no particular one.
fn takes_all(dtype: Borrowed<'_, '_>) -> bool {
    let name = heap::short_repr(dtype);
    let name = name.strip_prefix("torch.").unwrap_or_default();
    dtype.is_none()
        || ["float", "bfloat", "complex", "bool"].iter().any(|kind| name.starts_with(kind))
}

/// `c10::ScalarType`: integers and `bool` are 0 to 4 and 11, and 27 to 29 (unsigned); floating-point and
/// complex types that anybody computes in are these.
fn is_inexact(dtype: i32) -> bool {
    matches!(dtype, 5..=10 | 15)
}

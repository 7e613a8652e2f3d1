//! Which calls of a graph are calls of one operator of PyTorch's, so that a replay needs no Python function for them.
//!
//! What a call in Python ends in is said by the operators' schemas (`stator_operators::direct`), if one overload alone takes
//! its arguments. Arguments that aren't constants are looked at in each call: where one is something else than the operator
//! takes, the Python function is called, as without this.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyCFunction, PyDict, PyEllipsis, PyFunction, PyInt, PyList, PySlice, PyString, PyTuple,
};
use smallvec::SmallVec;
use stator_cpython::aten::{self, By, Constant, Given, Indexed, Number, Seen};
use stator_cpython::heap::tensor::is_tensor;
use stator_cpython::modules;
use stator_graph::{Graph, NodeKind, Target};
use stator_operators::direct::{self, Default, Kind, Overload, Parameter};
use stator_operators::functional::{self, Function, Take};

/// A callable of PyTorch's.
pub(super) struct Named {
    name: String,
    is_method: bool,
    /// It is found in the types of the operands, which may change.
    by_type: bool,
}

/// What `operator.name` does to a tensor.
fn of_operator(name: &str) -> Option<&str> {
    Some(match name {
        "add" | "sub" | "mul" | "matmul" | "eq" | "ne" | "lt" | "gt" | "le" | "ge" | "neg" => name,
        "truediv" => "div",
        "mod" => "remainder",
        "pow" => "pow",
        "invert" => "bitwise_not",
        "and_" => "__and__",
        "or_" => "__or__",
        "xor" => "__xor__",
        "iadd" => "add_",
        "isub" => "sub_",
        "imul" => "mul_",
        "itruediv" => "div_",
        _ => return None,
    })
}

/// How many calls of a graph are probably calls of one operator: by their names alone.
pub fn count(graph: &Graph) -> usize {
    if !aten::IS_KNOWN {
        return 0;
    }
    let is_direct = |target: Target| match target {
        Target::Operator(operator) => of_operator(operator.name()).is_some(),
        Target::Function { name, .. } | Target::Method { name, .. } => {
            let name = graph.text(name);
            let name = name.rsplit_once('.').map_or(name, |(_, last)| last);
            direct::find(name).is_some() || name == "__bool__"
        }
        _ => false,
    };
    let nodes = graph.nodes().filter(|(_, node)| match node.kind {
        NodeKind::Call { target, .. } => is_direct(target),
        _ => false,
    });
    nodes.count()
}

impl Named {
    /// What `operator.name` does to a tensor.
    pub(super) fn of_operator(name: &str) -> Option<Self> {
        let name = of_operator(name)?.to_owned();
        Some(Self { name, is_method: true, by_type: true })
    }

    /// The operator that a C function or method of PyTorch's is for.
    pub(super) fn of_callable(callable: &pyo3::Bound<'_, PyAny>) -> Option<Self> {
        let py = callable.py();
        let text = |name| -> Option<String> { callable.getattr(name).ok()?.extract().ok() };
        let owner = callable.getattr("__objclass__").ok();
        let torch = stator_cpython::modules::import(py, "torch").ok()?.getattr("_C").ok()?;
        let name = text("__name__")?;
        let is_method = owner.is_some();
        let is_known = match owner {
            Some(owner) => owner.is(&torch.getattr("TensorBase").ok()?),
            None => {
                ["_VariableFunctions", "_nn", "_linalg", "_special", "_fft"].iter().any(|space| {
                    let known =
                        torch.getattr(*space).and_then(|space| space.getattr(name.as_str()));
                    known.is_ok_and(|known| known.is(callable))
                })
            }
        };
        // What asks a tensor whether it's true.
        let name = if name == "__bool__" { "is_nonzero".to_owned() } else { name };
        is_known.then_some(Self { name, is_method, by_type: false })
    }
}

/// The function of `torch.nn.functional` that an object is, if it only calls one operator.
pub(super) fn of_function(callable: &pyo3::Bound<'_, PyAny>) -> Option<&'static Function> {
    let function = callable.cast_exact::<PyFunction>().ok()?;
    let name: String = function.getattr("__name__").ok()?.extract().ok()?;
    let found = functional::find(&name)?;
    let module = modules::import(callable.py(), "torch.nn.functional").ok()?;
    let file = function.getattr("__code__").ok()?.getattr("co_filename").ok()?;
    let is_known = module.getattr(name.as_str()).ok()?.is(callable)
        && module.getattr("__file__").ok()?.eq(file).ok()?
        && (found.owner.is_empty() || calls_operator(callable.py(), found).is_some());
    is_known.then_some(found)
}

/// Whether a program has left alone what the function calls; guards hold that.
fn calls_operator(py: Python<'_>, function: &Function) -> Option<()> {
    let called = modules::import(py, function.owner).ok()?.getattr(function.operator).ok()?;
    let name: String =
        called.cast_exact::<PyCFunction>().ok()?.getattr("__name__").ok()?.extract().ok()?;
    (name == function.operator).then_some(())
}

/// The call of the operator that a function of `torch.nn.functional` ends in. The last arguments are those of these keywords.
pub(super) fn of_call(
    py: Python<'_>,
    function: &Function,
    arguments: &[Argument<'_>],
    keywords: &[&str],
) -> Option<aten::Call> {
    let (positional, named_ones) = arguments.split_at(arguments.len().checked_sub(keywords.len())?);
    let argument = |number: usize| -> Option<Argument<'_>> {
        let (name, default) = function.parameters[number];
        let named = || keywords.iter().zip(named_ones).find(|(keyword, _)| **keyword == name);
        match positional.get(number).or_else(|| named().map(|(_, argument)| argument)) {
            Some(Argument::Constant(constant)) => Some(Argument::Constant(constant.clone())),
            Some(Argument::Operand(operand)) => Some(Argument::Operand(*operand)),
            None => default_object(py, default).map(Argument::Constant),
        }
    };
    let is_known = |keyword: &&str| function.parameters.iter().any(|(name, _)| name == keyword);
    if positional.len() > function.parameters.len() || !keywords.iter().all(is_known) {
        return None;
    }
    for &number in function.left {
        let Argument::Constant(given) = argument(number)? else { return None };
        let left = default_object(py, function.parameters[number].1)?;
        if !left.get_type().is(given.get_type()) || !left.eq(given).ok()? {
            return None;
        }
    }
    let mut taken: SmallVec<[Argument<'_>; 8]> = SmallVec::new();
    for take in function.takes {
        taken.push(match *take {
            Take::Argument(number) => argument(number)?,
            Take::Place(number) => match argument(number)? {
                Argument::Constant(place) if place.is_none() => {
                    Argument::Constant((-1_i64).into_bound_py_any(py).ok()?)
                }
                Argument::Constant(place) => {
                    let is_place = |place: &i64| *place >= 0;
                    place.cast_exact::<PyInt>().ok()?.extract().ok().filter(is_place)?;
                    Argument::Constant(place)
                }
                Argument::Operand(_) => return None,
            },
            Take::Truth(value) => Argument::Constant(value.into_bound_py_any(py).ok()?),
        });
    }
    let name = function.operator.to_owned();
    of(&Named { name, is_method: false, by_type: false }, &taken, &[])
}

fn default_object(py: Python<'_>, default: Default) -> Option<pyo3::Bound<'_, PyAny>> {
    Some(match default {
        Default::Nothing => py.None().into_bound(py),
        Default::Bool(value) => value.into_bound_py_any(py).ok()?,
        Default::Int(value) => value.into_bound_py_any(py).ok()?,
        Default::Float(value) => value.into_bound_py_any(py).ok()?,
        Default::Required | Default::Ints(_) | Default::Text(_) => return None,
    })
}

/// An argument of a call.
pub(super) enum Argument<'py> {
    /// Always this.
    Constant(pyo3::Bound<'py, PyAny>),
    /// What stands here among the operands.
    Operand(usize),
}

/// What a call in Python gives if a replay makes it without Python; `None`: it wouldn't. For tests.
///
/// # Errors
/// What the operator raises.
pub fn call<'py>(
    callable: &pyo3::Bound<'py, PyAny>,
    args: &pyo3::Bound<'py, PyTuple>,
    kwargs: &pyo3::Bound<'py, PyDict>,
) -> PyResult<Option<pyo3::Bound<'py, PyAny>>> {
    let given: Vec<_> = args.iter().chain(kwargs.values()).collect();
    let names: Vec<String> = kwargs.keys().extract()?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let arguments: Vec<_> = (0..)
        .zip(&given)
        .map(|(number, object)| {
            let holds = |item: &pyo3::Bound<'py, PyAny>| is_tensor(item.as_borrowed());
            let items = object.cast::<PyTuple>().map(|tuple| tuple.iter().any(|item| holds(&item)));
            let items = items.or_else(|_| {
                object.cast::<PyList>().map(|list| list.iter().any(|item| holds(&item)))
            });
            if holds(object) || items.unwrap_or(false) {
                Argument::Operand(number)
            } else {
                Argument::Constant(object.clone())
            }
        })
        .collect();
    let getitem = stator_cpython::modules::import(callable.py(), "operator")?.getattr("getitem")?;
    let call = if callable.is(&getitem) {
        of_item(&arguments)
    } else if let Some(function) = of_function(callable) {
        of_call(callable.py(), function, &arguments, &names)
    } else {
        Named::of_callable(callable).and_then(|named| of(&named, &arguments, &names))
    };
    let Some(call) = call else { return Ok(None) };
    let given: Vec<_> = given.iter().map(|object| Seen::Object(object.as_borrowed())).collect();
    let made = call.run(callable.py(), &given).transpose()?;
    made.map(|made| made.into_object(callable.py())).transpose()
}

/// How surely an overload takes what it's given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// If operands are numbers.
    Perhaps,
    Surely,
}

/// The call of an operator that a call in Python ends in, if one is known. The last arguments are those of these keywords.
pub(super) fn of(
    named: &Named,
    arguments: &[Argument<'_>],
    keywords: &[&str],
) -> Option<aten::Call> {
    let of_number = match arguments {
        [Argument::Constant(number), Argument::Operand(operand)] if named.by_type => {
            let turned = turned(&named.name).filter(|_| Number::of(number.as_borrowed()).is_some());
            let arguments = [Argument::Operand(*operand), Argument::Constant(number.clone())];
            Some((turned?, arguments))
        }
        [Argument::Constant(_), ..] if named.by_type => return None,
        _ => None,
    };
    let (name, arguments) = match &of_number {
        Some((name, arguments)) => (*name, &arguments[..]),
        None => (named.name.as_str(), arguments),
    };
    let mut found: Option<(Fit, &Overload, Bound)> = None;
    let mut is_double = false;
    let (name, overloads) = direct::find(name)?;
    for overload in overloads {
        if direct::takes_numbers(name) && overload.name.starts_with("Scalar") {
            // Python's functions make tensors of numbers rather than to call these.
            continue;
        }
        let Some((fit, bound)) = bind(named.is_method, name, overload, arguments, keywords) else {
            continue;
        };
        let best = found.as_ref().map(|(best, ..)| *best);
        is_double = best == Some(fit) || is_double && best > Some(fit);
        if best < Some(fit) {
            found = Some((fit, overload, bound));
        }
    }
    let (_, overload, bound) = found.filter(|_| !is_double)?;
    aten::Call::new(&operator(name, overload), &bound, named.by_type)
}

fn operator(name: &'static str, overload: &Overload) -> aten::Operator {
    aten::Operator {
        name,
        overload: overload.name,
        symbol: overload.symbol,
        takes_numbers: direct::takes_numbers(name),
        gives: match overload.gives {
            direct::Gives::Tensor => aten::Gives::Tensor,
            direct::Gives::Itself => aten::Gives::Itself,
            direct::Gives::Truth => aten::Gives::Truth,
            direct::Gives::Number => aten::Gives::Number,
        },
    }
}

/// The call of an operator that indexing a tensor ends in, if it is by one thing, and all else are whole dimensions.
pub(super) fn of_item(arguments: &[Argument<'_>]) -> Option<aten::Call> {
    let [Argument::Operand(tensor), Argument::Constant(index)] = arguments else { return None };
    let (indexed, mut rest) = indexed(index)?;
    let name = match indexed.by {
        By::Place(_) => "select",
        By::Slice { .. } => "slice",
        By::New => "unsqueeze",
    };
    let (name, [overload]) = direct::find(name)? else { return None };
    let mut bound: Bound = smallvec::smallvec![
        (aten::Kind::Tensor, Given::Operand(*tensor)),
        (aten::Kind::Int, Given::Dimension(indexed)),
    ];
    let parameters = overload.parameters.get(bound.len()..)?;
    for parameter in parameters {
        bound.push((kind(parameter.kind), Given::Constant(Constant::Int(rest.pop()?))));
    }
    aten::Call::new(&operator(name, overload), &bound, true)
}

/// What an index does, and the arguments behind the dimension, the last one in front.
fn indexed(index: &pyo3::Bound<'_, PyAny>) -> Option<(Indexed, SmallVec<[i64; 3]>)> {
    let items: SmallVec<[_; 4]> = match index.cast_exact::<PyTuple>() {
        Ok(items) => items.iter().collect(),
        Err(_) => smallvec::smallvec![index.clone()],
    };
    let is_ellipsis = |item: &pyo3::Bound<'_, PyAny>| item.is_exact_instance_of::<PyEllipsis>();
    let is_idle = |item: &pyo3::Bound<'_, PyAny>| is_ellipsis(item) || is_whole(item);
    let mut others = items.iter().enumerate().filter(|(_, item)| !is_idle(item));
    let (Some((at, item)), None) = (others.next(), others.next()) else { return None };
    let ellipses = items.iter().filter(|item| is_ellipsis(item)).count();
    let from_end = items[..at].iter().any(is_ellipsis);
    let beside = if from_end { items.len() - at - 1 } else { at };
    let (by, rest) = if item.is_none() {
        (By::New, SmallVec::new())
    } else if let Ok(slice) = item.cast_exact::<PySlice>() {
        let [start, stop, step] = bounds(slice)?;
        (By::Slice { start, stop, is_dense: step == 1 }, smallvec::smallvec![step, stop, start])
    } else {
        let place = item.cast_exact::<PyInt>().ok()?.extract().ok()?;
        (By::Place(place), smallvec::smallvec![place])
    };
    let speaks_of = items.len() - ellipses - usize::from(by == By::New);
    (ellipses < 2).then_some((Indexed { by, beside, from_end, speaks_of }, rest))
}

/// Whether an item of an index is `:`.
fn is_whole(item: &pyo3::Bound<'_, PyAny>) -> bool {
    item.cast_exact::<PySlice>().is_ok_and(|slice| {
        ["start", "stop", "step"]
            .iter()
            .all(|name| slice.getattr(*name).is_ok_and(|bound| bound.is_none()))
    })
}

/// A slice's first place, the one behind its last and the step, as CPython takes them where nobody knows how long what is
/// sliced is. `None`: they are no small whole numbers, or it goes backwards.
fn bounds(slice: &pyo3::Bound<'_, PySlice>) -> Option<[i64; 3]> {
    let bound = |name: &str, default: i64| {
        let bound = slice.getattr(name).ok()?;
        if bound.is_none() {
            return Some(default);
        }
        let bound: i64 = bound.cast_exact::<PyInt>().ok()?.extract().ok()?;
        i32::try_from(bound).is_ok().then_some(bound)
    };
    let step = bound("step", 1)?;
    (step > 0).then_some([bound("start", 0)?, bound("stop", i64::MAX)?, step])
}

type Bound = SmallVec<[(aten::Kind, Given); 8]>;

/// What an operator is called for a number and a tensor behind it, given the tensor first: `1 - x` is `rsub(x, 1)`.
fn turned(name: &str) -> Option<&'static str> {
    match name {
        "add" => Some("add"),
        "mul" => Some("mul"),
        "sub" => Some("rsub"),
        _ => None,
    }
}

/// What each parameter of an overload is given; `None`: it doesn't take these arguments.
fn bind(
    is_method: bool,
    name: &str,
    overload: &Overload,
    arguments: &[Argument<'_>],
    keywords: &[&str],
) -> Option<(Fit, Bound)> {
    let parameters = overload.parameters;
    if is_method && parameters.first()?.name != "self" {
        return None;
    }
    let (positional, named_ones) = arguments.split_at(arguments.len().checked_sub(keywords.len())?);
    let mut given: SmallVec<[Option<&[Argument<'_>]>; 8]> =
        SmallVec::from_elem(None, parameters.len());
    for (index, argument) in positional.iter().enumerate() {
        // `x.view(2, 3)`: the rest is a list.
        let rest = &positional[index..];
        let is_list = index == 1 && overload.positional == 2 && rest.len() > 1;
        let parameter = parameters[..overload.positional].get(index)?;
        if is_list && matches!(parameter.kind, Kind::Ints | Kind::OptionalInts) {
            given[index] = Some(rest);
            break;
        }
        given[index] = Some(std::slice::from_ref(argument));
    }
    for (keyword, argument) in keywords.iter().zip(named_ones) {
        let is_it = |parameter: &Parameter| {
            parameter.name == *keyword || parameter.name == "self" && *keyword == "input"
        };
        let index = parameters.iter().position(is_it)?;
        if given[index].replace(std::slice::from_ref(argument)).is_some() {
            return None;
        }
    }
    let mut bound = Bound::new();
    let mut fit = Fit::Surely;
    for (parameter, given) in parameters.iter().zip(given) {
        let (one, value) = match given {
            None => (Fit::Surely, left_out(parameter)?),
            Some([Argument::Operand(operand)]) => operand_for(parameter, *operand)?,
            Some([Argument::Constant(constant)]) => {
                (Fit::Surely, constant_for(name, parameter, constant)?)
            }
            Some(items) => (Fit::Perhaps, ints(items)?),
        };
        fit = fit.min(one);
        bound.push((kind(parameter.kind), value));
    }
    Some((fit, bound))
}

/// What is taken where nothing is given.
fn left_out(parameter: &Parameter) -> Option<Given> {
    let is_number = matches!(parameter.kind, Kind::Scalar | Kind::OptionalScalar);
    Some(Given::Constant(match parameter.default {
        Default::Required => return None,
        Default::Nothing => Constant::Nothing,
        Default::Int(value) if is_number => Constant::Number(Number::Int(value)),
        Default::Int(value) => Constant::Int(value),
        Default::Ints(values) => Constant::Ints(values.to_vec()),
        Default::Bool(value) => Constant::Bool(value),
        Default::Float(value) if is_number => Constant::Number(Number::Float(value)),
        Default::Float(value) => Constant::Float(value),
        Default::Text(text) => Constant::Text(text.to_owned()),
    }))
}

/// What comes from an operand. A tensor is expected rather than a number.
fn operand_for(parameter: &Parameter, operand: usize) -> Option<(Fit, Given)> {
    let fit = match parameter.kind {
        Kind::Tensor | Kind::OptionalTensor | Kind::Tensors | Kind::TensorList => Fit::Surely,
        Kind::Scalar | Kind::Int | Kind::Size | Kind::OptionalSize | Kind::Ints => Fit::Perhaps,
        _ => return None,
    };
    Some((fit, Given::Operand(operand)))
}

fn constant_for(
    name: &str,
    parameter: &Parameter,
    constant: &pyo3::Bound<'_, PyAny>,
) -> Option<Given> {
    let int = || constant.cast_exact::<PyInt>().ok()?.extract::<i64>().ok();
    let number = || Number::of(constant.as_borrowed());
    if parameter.kind == Kind::Tensor {
        return number().filter(|_| direct::takes_numbers(name)).map(Given::Wrapped);
    }
    let is_optional = matches!(
        parameter.kind,
        Kind::OptionalTensor
            | Kind::OptionalScalar
            | Kind::OptionalInt
            | Kind::OptionalSize
            | Kind::OptionalInts
            | Kind::OptionalBool
            | Kind::OptionalFloat
            | Kind::OptionalCode
    );
    if constant.is_none() {
        return is_optional.then_some(Given::Constant(Constant::Nothing));
    }
    Some(Given::Constant(match parameter.kind {
        Kind::Scalar | Kind::OptionalScalar => Constant::Number(number()?),
        Kind::Int | Kind::OptionalInt | Kind::Size | Kind::OptionalSize => Constant::Int(int()?),
        Kind::Bool | Kind::OptionalBool => {
            Constant::Bool(constant.cast_exact::<PyBool>().ok()?.is_true())
        }
        Kind::Float | Kind::OptionalFloat => match number()? {
            Number::Float(value) => Constant::Float(value),
            Number::Int(value) => Constant::Int(value),
            Number::Bool(_) => return None,
        },
        Kind::Ints | Kind::OptionalInts => match int() {
            Some(value) if parameter.size > 0 => Constant::Ints(vec![value; parameter.size.into()]),
            Some(value) => Constant::Ints(vec![value]),
            None => Constant::Ints(whole_numbers(constant)?),
        },
        Kind::Text => {
            Constant::Text(constant.cast_exact::<PyString>().ok()?.to_str().ok()?.to_owned())
        }
        _ => return None,
    }))
}

/// The exact integers in an exact tuple or list, or in a `torch.Size`.
fn whole_numbers(constant: &pyo3::Bound<'_, PyAny>) -> Option<Vec<i64>> {
    let int = |item: pyo3::Bound<'_, PyAny>| item.cast_exact::<PyInt>().ok()?.extract().ok();
    if let Ok(list) = constant.cast_exact::<PyList>() {
        return list.iter().map(int).collect();
    }
    constant.cast::<PyTuple>().ok()?.iter().map(int).collect()
}

/// Integers that are arguments of their own.
fn ints(items: &[Argument<'_>]) -> Option<Given> {
    let item = |item: &Argument<'_>| {
        Some(match item {
            Argument::Operand(operand) => Err(*operand),
            Argument::Constant(constant) => {
                Ok(constant.cast_exact::<PyInt>().ok()?.extract().ok()?)
            }
        })
    };
    items.iter().map(item).collect::<Option<_>>().map(Given::Ints)
}

fn kind(kind: Kind) -> aten::Kind {
    match kind {
        Kind::Tensor => aten::Kind::Tensor,
        Kind::OptionalTensor => aten::Kind::OptionalTensor,
        Kind::Tensors => aten::Kind::Tensors,
        Kind::TensorList => aten::Kind::TensorList,
        Kind::Scalar => aten::Kind::Scalar,
        Kind::OptionalScalar => aten::Kind::OptionalScalar,
        Kind::Int => aten::Kind::Int,
        Kind::OptionalInt => aten::Kind::OptionalInt,
        Kind::Size => aten::Kind::Size,
        Kind::OptionalSize => aten::Kind::OptionalSize,
        Kind::Ints => aten::Kind::Ints,
        Kind::OptionalInts => aten::Kind::OptionalInts,
        Kind::Bool => aten::Kind::Bool,
        Kind::OptionalBool => aten::Kind::OptionalBool,
        Kind::Float => aten::Kind::Float,
        Kind::OptionalFloat => aten::Kind::OptionalFloat,
        Kind::OptionalCode => aten::Kind::OptionalCode,
        Kind::Text => aten::Kind::Text,
    }
}

//! Tensor programs: traced from functions, and run.
//!
//! `rules` is what tracing knows of functions; the recorder's part is `recorder/programs.rs`; `build` turns
//! its notes into a [`stator_graph::program::Program`]; `link` makes that run.
//!
//! What PyTorch offers for tensors without data is the business of the Python side
//! (`stator/_program_tracing/tracing.py`). It is handed to [`trace`] as an object with these attributes:
//! `function`, `args`, `kwargs` (what is called), `inputs` (a list of the tensors in it), `names` (how they are printed),
//! `containers` (a list of what they stand in), `takes` (their
//! structure, see [`tree`]), `default_dtype`; those that [`crate::program_rules::Rules`] reads; and methods `enter`, `leave`,
//! `flatten` (a result to a list of leaves and their structure), `name` (an object's name in the text, or
//! `None`), `method` (whether a method's name means this function), `clean` (an exception without Stator's
//! frames), `asks_for_data` (whether an exception says that an operation needs data, and where) and `error` (the exception
//! for a break).

mod build;
mod link;

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use stator_cpython::modules;
use stator_graph::Dtype;
use stator_graph::program::{Program, Shape, Tree};

pub use build::{Built, place_of_requirement};
pub use link::{Linked, names};

use crate::breaks::{Break, Place, Reason};
use crate::check::{foreign_mode, read_global_state};
use crate::locate::Places;
use crate::program_rules::Rules;
use crate::recorder::{self, GraphBreak, Recorded, record_program};
use crate::resume::session::Session;

/// Fails where modes are active that a program would bypass.
///
/// # Errors
/// That of a break.
pub fn check_modes(py: Python<'_>) -> PyResult<()> {
    if recorder::is_recording() || foreign_mode(&*read_global_state(py)?).is_some() {
        let class = modules::import(py, "stator.errors")?.getattr("ProgramError")?;
        let stop = Break::new(Reason::ForeignMode);
        return Err(PyErr::from_value(class.call1(stop.arguments())?));
    }
    Ok(())
}

/// Traces the call that `tracing` describes: the program, and the tensors that are its constants.
///
/// # Errors
/// What the function raises, without frames of Stator's; or the error of a break, at the user's line.
pub fn trace<'py>(tracing: &Bound<'py, PyAny>) -> PyResult<Built> {
    let py = tracing.py();
    let refuse = |stop: &Break| PyErr::from_value(error(tracing, stop));
    let session = Rc::new(Session::for_program(Rules::read(tracing)?));
    let recorded = {
        let function = tracing.getattr("function")?;
        let args = tracing.getattr("args")?.cast_into::<PyTuple>()?;
        let kwargs = tracing.getattr("kwargs")?.cast_into::<PyDict>()?;
        tracing.call_method0("enter")?;
        let recorded = record_program(
            function.as_borrowed(),
            args.as_any().as_borrowed(),
            Some(kwargs.as_any().as_borrowed()),
            session.clone(),
        );
        tracing.call_method0("leave")?;
        recorded?
    };
    let Recorded { result, state } = recorded;
    let changed = state.take_back(py)?;
    if let Some(fault) = session.take_fault() {
        return Err(fault.error(py));
    }
    let broke = session.finish().breaks.into_iter().next();
    let result = match result {
        Ok(result) => result,
        Err(raised) => {
            let error = match &broke {
                Some(stop) if raised.is_instance_of::<GraphBreak>(py) => refuse(stop),
                _ => raised.clone_ref(py),
            };
            let trace = tracing.call_method1("clean", (error.value(py), raised.traceback(py)))?;
            let error = match asks_for_data(tracing, &error, &trace)? {
                Some(stop) => refuse(&stop),
                None => error,
            };
            error.set_traceback(py, trace.cast_into().ok());
            return Err(error);
        }
    };
    if let Some(stop) = broke {
        return Err(refuse(&stop));
    }
    let at = |(code, unit)| {
        let place = Places { py, codes: state.frames.codes() }.place(code, unit);
        let place = place.map(|(file, line, function)| Place { file, line, function });
        place.into_iter().collect()
    };
    if let Some((reason, detail)) = &state.failure {
        // The last instructions have met it, and nothing was recorded since.
        let stop =
            Break { reason: *reason, detail: detail.clone(), stack: at(state.frames.here()) };
        return Err(refuse(&stop));
    }
    if let Some((place, key)) = changed {
        let detail = format!("{key} in a dictionary from outside");
        return Err(refuse(&Break { reason: Reason::Impure, detail, stack: at(place) }));
    }
    let flat = tracing.call_method1("flatten", (&result,));
    let flat = flat.inspect_err(|error| error.set_traceback(py, None))?;
    let (leaves, gives): (Bound<'py, PyList>, Bound<'py, PyAny>) = flat.extract()?;
    let built = build::build(tracing, state, &leaves, tree(&gives)?);
    // The result's tensors are known by their addresses until here.
    drop(result);
    built.map_err(|failed| match failed {
        build::Failed::Break(stop) => refuse(&stop),
        build::Failed::Raised(error) => error,
    })
}

/// The break, if an exception is that of an operation which needs the data of tensors without data.
fn asks_for_data<'py>(
    tracing: &Bound<'py, PyAny>,
    error: &PyErr,
    trace: &Bound<'py, PyAny>,
) -> PyResult<Option<Break>> {
    type Asked = (bool, String, Vec<(String, u32, String)>);
    let asked = tracing.call_method1("asks_for_data", (error.value(tracing.py()), trace))?;
    let asked: Option<Asked> = asked.extract()?;
    Ok(asked.map(|(for_shape, detail, stack)| {
        let reason = if for_shape { Reason::DynamicOutput } else { Reason::DataRead };
        let place = |(file, line, function)| Place { file, line, function };
        Break { reason, detail, stack: stack.into_iter().map(place).collect() }
    }))
}

/// The exception for a break.
fn error<'py>(tracing: &Bound<'py, PyAny>, stop: &Break) -> Bound<'py, PyAny> {
    let made = tracing.call_method1("error", stop.arguments());
    made.unwrap_or_else(|error| error.into_value(tracing.py()).into_bound(tracing.py()).into_any())
}

/// A structure from Python: `None` for a leaf, otherwise the kind, a type's name or `None`, and a list of
/// names (or `None`) and structures.
///
/// # Errors
/// If it is none.
pub fn tree(object: &Bound<'_, PyAny>) -> PyResult<Tree> {
    type Parts<'py> = (String, Option<String>, Vec<(Option<String>, Bound<'py, PyAny>)>);
    if object.is_none() {
        return Ok(Tree::Leaf);
    }
    let (kind, name, fields): Parts<'_> = object.extract()?;
    let shape = match kind.as_str() {
        "arguments" => Shape::Arguments,
        "tuple" => Shape::Tuple,
        "list" => Shape::List,
        "dict" => Shape::Dict,
        "ordered_dict" => Shape::OrderedDict,
        "struct" => Shape::Struct,
        _ => Shape::NamedTuple(name.unwrap_or_default()),
    };
    let field = |(name, child): (Option<String>, Bound<'_, PyAny>)| Ok((name, tree(&child)?));
    Ok(Tree::Node { shape, fields: fields.into_iter().map(field).collect::<PyResult<_>>()? })
}

/// A structure as Python gets it: see [`tree`].
///
/// # Errors
/// If memory is short.
pub fn describe<'py>(py: Python<'py>, tree: &Tree) -> PyResult<Bound<'py, PyAny>> {
    let Tree::Node { shape, fields } = tree else { return Ok(py.None().into_bound(py)) };
    let (kind, name) = match shape {
        Shape::Arguments => ("arguments", None),
        Shape::Tuple => ("tuple", None),
        Shape::List => ("list", None),
        Shape::Dict => ("dict", None),
        Shape::OrderedDict => ("ordered_dict", None),
        Shape::Struct => ("struct", None),
        Shape::NamedTuple(name) => ("named_tuple", Some(name)),
    };
    let field = |(name, child): &(Option<String>, Tree)| Ok((name.clone(), describe(py, child)?));
    let fields = fields.iter().map(field).collect::<PyResult<Vec<_>>>()?;
    Ok((kind, name, fields).into_pyobject(py)?.into_any())
}

/// An element type by its name.
fn dtype(name: &str) -> PyResult<Dtype> {
    Dtype::from_name(name)
        .ok_or_else(|| pyo3::exceptions::PyValueError::new_err(format!("no element type {name}")))
}

/// The line of a program's text in which a node stands.
fn line(program: &Program, node: stator_graph::NodeId) -> String {
    let start = format!("{node} = ");
    let text = program.print();
    text.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_string()
}

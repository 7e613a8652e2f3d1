//! `local_computation`: PyTorch code becomes tensor programs, which travel with the computation. A
//! function whose result is declared stays what it is: it runs here, whatever it is written with.

use pyo3::exceptions::{
    PyAttributeError, PyException, PyModuleNotFoundError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use stator_federated::ast::Data;
use stator_federated::types::Type;
use stator_federated::{Class, Error, Name};

use super::errors::raise;
use super::execution::hidden::is_ours;
use super::execution::payload::{embedded_function, register_loader};
use super::tracing::computation::{ConcreteComputation, Origin};
use super::tracing::signature::{Signature, declared, name};
use super::tracing::unpack::{check_takes_nothing, is_spread};
use super::tracing::wrapper::{Arrays, ComputationWrapper, Said};
use super::types;
use crate::programs;

/// What tensor programs are in messages.
const TYPE_URL: &str = "type.googleapis.com/stator.TensorProgram";

/// The part that knows PyTorch; imported where it is needed.
const HELPER: &str = "stator._local_computations";

/// Makes a computation of a function that works on tensors, at one client or at the server.
///
/// Its parameters' types are given as for `federated_computation`:
///
///     @local_computation(TensorType(np.float32, [None, 64]))
///     def mean(x):
///         return x.mean(0)
///
/// The function is PyTorch code, or NumPy code. It is traced into a tensor program, on tensors of
/// these types that have no data, or arrays; the result's type follows. Sizes that are `None` vary.
/// `arrays="numpy"` or `arrays="torch"` says what it is written for, where `x.std()` could be either.
///
/// With `result=` the type of the result is declared, and the function isn't traced: it is called
/// when the computation runs, in this process, with NumPy's arrays. Such a computation can't be
/// serialized.
#[pyclass(module = "stator.federated", frozen, weakref)]
struct LocalComputation;

#[pymethods]
impl LocalComputation {
    #[pyo3(signature = (*args, result=None, arrays=None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        result: Option<&Bound<'py, PyAny>>,
        arrays: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let result = result.map(|result| types::to_type_or_err(result, "result")).transpose()?;
        let arrays = arrays.map(arrays_or_err).transpose()?;
        if result.is_some() && arrays == Some(Arrays::Torch) {
            return Err(PyTypeError::new_err(
                "with `result=` the function is called with NumPy's arrays: `arrays=\"torch\"` can't be",
            ));
        }
        let said = Said { result, arrays };
        let wrapper = Bound::new(slf.py(), ComputationWrapper::native(make, said))?;
        wrapper.call1(args.clone())
    }

    fn __repr__(&self) -> &'static str {
        "<local_computation>"
    }
}

fn arrays_or_err(arrays: &Bound<'_, PyAny>) -> PyResult<Arrays> {
    match arrays.extract::<&str>() {
        Ok("numpy") => Ok(Arrays::NumPy),
        Ok("torch") => Ok(Arrays::Torch),
        Ok(_) => Err(PyValueError::new_err(format!(
            "`arrays` is \"numpy\" or \"torch\", not {}",
            arrays.repr()?
        ))),
        Err(_) => Err(PyTypeError::new_err(format!(
            "`arrays` is \"numpy\" or \"torch\", not {}",
            arrays.repr()?
        ))),
    }
}

fn make<'py>(
    function: &Bound<'py, PyAny>,
    parameter: Option<&Type>,
    unpack: Option<bool>,
    said: &Said,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let declared = declared(function);
    let spread = match parameter {
        Some(parameter) => {
            let signature = Signature::of(function)?.with_any_default();
            is_spread(function, &signature, parameter, unpack)?
        }
        None => {
            check_takes_nothing(function)?;
            false
        }
    };
    let Body { callable, unpack, result, program } = match &said.result {
        Some(result) => Body {
            callable: function.clone().unbind(),
            unpack: spread,
            result: result.clone(),
            program: None,
        },
        None => trace(function, parameter, spread, &declared, said.arrays)?,
    };
    let ty = Type::function(parameter.cloned(), result);
    let name = name(function).unwrap_or_else(|| "local".to_owned());
    let block = embedded_function(callable, ty.clone(), &name, &declared, unpack, program);
    let doc = function.getattr_opt("__doc__")?.map(Bound::unbind);
    let origin = Origin { declared: Some(declared), doc, scope: None };
    Ok(ConcreteComputation::create(py, block, ty, origin)?.into_any())
}

/// What a local computation runs.
struct Body {
    callable: Py<PyAny>,
    /// Whether it takes the fields of its argument one by one.
    unpack: bool,
    result: Type,
    program: Option<Data>,
}

fn helper<'py>(py: Python<'py>, declared: Option<&Name>) -> PyResult<Bound<'py, PyModule>> {
    py.import(HELPER).map_err(|error| {
        if !error.is_instance_of::<PyModuleNotFoundError>(py) {
            return error;
        }
        let what = "local computations are PyTorch code, and PyTorch isn't installed";
        let error = Error::new(Class::NotImplemented, what)
            .hint("with `result=` the function is called as it is, whatever it is written with");
        raise(&match declared {
            Some(declared) => error.declared(declared),
            None => error,
        })
    })
}

fn trace(
    function: &Bound<'_, PyAny>,
    parameter: Option<&Type>,
    spread: bool,
    declared: &Name,
    arrays: Option<Arrays>,
) -> PyResult<Body> {
    let py = function.py();
    let without_frames = |error: &PyErr| error.set_traceback(py, None);
    let helper = helper(py, Some(declared))?;
    let parameter = parameter.map(|parameter| types::wrap(py, parameter)).transpose()?;
    let specs = helper.call_method1("specs", (parameter, spread, &**declared));
    let specs = specs.inspect_err(without_frames)?;
    let (specs, kwargs): (Bound<'_, PyAny>, Bound<'_, PyAny>) = specs.extract()?;
    let asked = Asked { function, helper: &helper, specs, kwargs };
    let (program, tracing) = match asked.traced(arrays, declared) {
        Ok(traced) => traced,
        Err(error) => {
            // Nobody can say `result=` of a function of ours.
            if !is_ours(function).unwrap_or(false) {
                let is_refused = is_program_error(&error, py);
                let mut raised = error;
                if is_refused {
                    match by_sizes(&asked, arrays, declared, raised)? {
                        Ok(body) => return Ok(body),
                        Err(error) => raised = error,
                    }
                }
                add_hint(py, &raised, &helper, declared);
                return Err(raised);
            }
            return Err(error);
        }
    };
    let Asked { specs, kwargs, .. } = &asked;
    let anew = Some(function).filter(|function| !is_ours(function).unwrap_or(true));
    let finished = helper.call_method1("finished", (anew, specs, kwargs, program, tracing));
    let finished = finished.inspect_err(without_frames)?;
    let (result, callable, bytes): (Bound<'_, PyAny>, Py<PyAny>, Bound<'_, PyBytes>) =
        finished.extract()?;
    let result = types::expect_type(&result, "the result's type")?;
    let value = bytes.as_bytes().into();
    let program = Some(Data { type_url: TYPE_URL.into(), value });
    Ok(Body { callable, unpack: false, result, program })
}

/// A function that is to be traced, and the specifications of its arguments.
struct Asked<'a, 'py> {
    function: &'a Bound<'py, PyAny>,
    helper: &'a Bound<'py, PyModule>,
    specs: Bound<'py, PyAny>,
    kwargs: Bound<'py, PyAny>,
}

/// A program, and the Python side's object of its trace.
type Traced<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

impl<'py> Asked<'_, 'py> {
    /// Traces it as what is said that it is.
    fn traced(&self, arrays: Option<Arrays>, declared: &str) -> PyResult<Traced<'py>> {
        match arrays {
            Some(Arrays::Torch) => {
                let torch = self.as_torch();
                self.of_both(&torch).map_or(torch, Ok)
            }
            Some(Arrays::NumPy) => self.as_numpy(declared),
            None => self.as_it_is(declared),
        }
    }

    /// Traces it as PyTorch code.
    fn as_torch(&self) -> PyResult<Traced<'py>> {
        programs::trace(self.function, Some(&self.specs), Some(&self.kwargs), false)
    }

    /// The specifications of NumPy code; `None` where NumPy has no such elements.
    fn of_arrays(&self) -> PyResult<Option<Traced<'py>>> {
        self.helper.call_method1("as_arrays", (&self.specs, &self.kwargs))?.extract()
    }

    /// Traces it as NumPy code.
    fn as_numpy(&self, declared: &str) -> PyResult<Traced<'py>> {
        match self.of_arrays()? {
            Some((specs, kwargs)) => {
                programs::trace(self.function, Some(&specs), Some(&kwargs), true)
            }
            None => {
                let error = self.helper.call_method1("no_arrays", (declared,))?;
                Err(PyErr::from_value(error))
            }
        }
    }

    /// Traces what can't be PyTorch code alone as PyTorch code that calls NumPy's functions, of constants.
    fn of_both(&self, torch: &PyResult<Traced<'py>>) -> Option<Traced<'py>> {
        let py = self.function.py();
        torch.as_ref().err().filter(|error| error.is_instance_of::<PyException>(py))?;
        programs::trace(self.function, Some(&self.specs), Some(&self.kwargs), true).ok()
    }

    /// Traces it as what it is. Where both can be, and differ, something in the function has to say
    /// which is meant.
    fn as_it_is(&self, declared: &str) -> PyResult<Traced<'py>> {
        let py = self.function.py();
        let without_frames = |error: &PyErr| error.set_traceback(py, None);
        let torch = self.as_torch();
        if let Err(error) = &torch
            && !error.is_instance_of::<PyException>(py)
        {
            return torch;
        }
        let meant = self.helper.call_method1("meant", (self.function,))?;
        let Some((specs, kwargs)) = self.of_arrays()? else { return torch };
        if let Ok((program, _)) = &torch
            && self.helper.call_method1("is_torch", (&meant, program))?.extract()?
        {
            return torch;
        }
        let numpy = programs::trace(self.function, Some(&specs), Some(&kwargs), true);
        let (torch, numpy) = match (torch, numpy) {
            (Err(torch), numpy) => {
                let noted: bool = self.helper.call_method0("is_numpy")?.extract()?;
                let says_torch = meant.extract::<&str>().is_ok_and(|meant| meant == "torch");
                let torch = Err(torch);
                if noted
                    && says_torch
                    && let Some(found) = self.of_both(&torch)
                {
                    return Ok(found);
                }
                // Of what it doesn't say it is, only what programs refuse is told: tensors fail beside arrays.
                let is_refused = |error: &PyErr| {
                    error.is_instance_of::<PyTypeError>(py) || is_program_error(error, py)
                };
                if says_torch && numpy.as_ref().is_err_and(|error| !is_refused(error)) {
                    return torch;
                }
                let Err(torch) = torch else { return torch };
                if noted
                    || numpy.is_ok() && {
                        let failed = (&meant, torch.value(py));
                        self.helper.call_method1("fails_as_torch", failed)?.extract()?
                    }
                {
                    return numpy;
                }
                if numpy.is_ok() {
                    let note =
                        "As NumPy code it can be traced: `arrays=\"numpy\"` says that it is.";
                    torch.value(py).call_method1("add_note", (note,))?;
                }
                return Err(torch);
            }
            (Ok(torch), Err(numpy)) if numpy.is_instance_of::<PyException>(py) => {
                (torch, numpy.into_value(py).into_bound(py).into_any())
            }
            (Ok(_), Err(numpy)) => return Err(numpy),
            (Ok(torch), Ok(numpy)) => (torch, PyTuple::new(py, [numpy.0, numpy.1])?.into_any()),
        };
        let chosen =
            self.helper.call_method1("chosen", (self.function, meant, torch, numpy, declared));
        chosen.inspect_err(without_frames)?.extract()
    }
}

/// Whether something can't be part of a program.
fn is_program_error(error: &PyErr, py: Python<'_>) -> bool {
    is_error(error, py, "ProgramError")
}

/// Whether an error is of a class of ours.
fn is_error(error: &PyErr, py: Python<'_>, class: &str) -> bool {
    let errors = py.import("stator.errors");
    let class = errors.and_then(|errors| errors.getattr(class));
    class.is_ok_and(|class| error.is_instance(py, &class))
}

/// What runs a function that is no program for all sizes, but one for each: a loop over rows, say. `refused`: why it is
/// none for all. An error within is what users are told: for a size that is known, if it fails for each.
fn by_sizes(
    asked: &Asked<'_, '_>,
    arrays: Option<Arrays>,
    declared: &Name,
    refused: PyErr,
) -> PyResult<Result<Body, PyErr>> {
    let py = asked.function.py();
    let Asked { function, helper, specs, kwargs } = asked;
    let mut of_size = None;
    for attempt in helper.call_method1("attempts", (specs, kwargs))?.try_iter()? {
        let (specs, kwargs) = attempt?.extract()?;
        let sized = Asked { function, helper, specs, kwargs };
        let made = sized.traced(arrays, declared).and_then(|(program, tracing)| {
            helper
                .call_method1("by_sizes", (function, &asked.specs, &asked.kwargs, program, tracing))
        });
        match made {
            Ok(made) if made.is_none() => {
                let note = "With other sizes it gives more results, or fewer: what a loop makes for \
                            each row or batch can be one tensor (`torch.stack`).";
                refused.value(py).call_method1("add_note", (note,))?;
                return Ok(Err(refused));
            }
            Ok(made) => {
                let (result, callable): (Bound<'_, PyAny>, Py<PyAny>) = made.extract()?;
                let result = types::expect_type(&result, "the result's type")?;
                return Ok(Ok(Body { callable, unpack: false, result, program: None }));
            }
            // It's said what it could be, rather than what it can't.
            Err(error) if is_error(&error, py, "AmbiguousArraysError") => return Err(error),
            Err(error) if error.is_instance_of::<PyException>(py) => {
                of_size.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Err(match of_size {
        Some(error) => {
            let note = "It isn't one program for all sizes, so it was traced for some.";
            error.value(py).call_method1("add_note", (note,))?;
            error
        }
        None => refused,
    }))
}

/// Says to what can't be traced what can be done.
fn add_hint(py: Python<'_>, error: &PyErr, helper: &Bound<'_, PyModule>, declared: &Name) {
    let is_numpy = helper.call_method0("is_numpy").and_then(|found| found.extract());
    // Arrays of programs lack some of what NumPy's have.
    let lacks = error.is_instance_of::<PyAttributeError>(py) && is_numpy.unwrap_or(false);
    if lacks || is_program_error(error, py) {
        let note = format!(
            "The local computation {declared} was traced. With `result=` the function is called as \
             it is, whatever it is written with."
        );
        let _ = error.value(py).call_method1("add_note", (note,));
    }
}

/// What a program that was read runs as.
#[pyfunction]
fn _load_tensor_program<'py>(data: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    helper(data.py(), None)?.call_method1("load", (data,))
}

/// Adds `local_computation`, and says how tensor programs are read.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let loader = wrap_pyfunction!(_load_tensor_program, module)?;
    register_loader(TYPE_URL.to_owned(), loader.into_any().unbind());
    module.add("local_computation", Bound::new(module.py(), LocalComputation)?)
}

//! The context in which calling a computation runs it, in this process.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stator_federated::ast::BuildingBlock;
use stator_federated::execution::{Interpreter, Value};
use stator_federated::types::Type;
use stator_federated::{Class, Error};

use super::arguments::Conversion;
use super::kernels::{Python as PythonKernels, Raised};
use super::leaf::Leaf;
use super::results::{Tensors, to_python};
use crate::federated::errors::raise;
use crate::federated::tracing::computation::ConcreteComputation;
use crate::federated::tracing::contexts;
use crate::federated::types::describe;
use crate::federated::{blocks, types};

/// Runs computations in this process.
///
/// The number of clients is that of the values in client arguments. `clients` says it for
/// computations without such. The work of clients runs in up to `threads` threads: as many as
/// there are cores, unless it says otherwise. A tensor program runs for many clients at once where it
/// can; with `exact` for one after the other, so that results don't differ from that by rounding.
#[pyclass(module = "stator.federated.execution", frozen, subclass, weakref)]
pub struct LocalContext {
    clients: Option<usize>,
    /// None: as many as there are cores.
    threads: Option<usize>,
    exact: bool,
}

#[pymethods]
impl LocalContext {
    #[new]
    #[pyo3(signature = (clients=None, *, threads=None, exact=false))]
    fn new(clients: Option<i64>, threads: Option<i64>, exact: bool) -> PyResult<Self> {
        let clients = clients.map(usize::try_from).transpose().map_err(|_| {
            PyValueError::new_err("`clients` must be 0 or more, or None to see from the arguments")
        })?;
        let threads = match threads.map(usize::try_from) {
            None => None,
            Some(Ok(threads)) if threads > 0 => Some(threads),
            Some(_) => {
                return Err(PyValueError::new_err(
                    "`threads` must be 1 or more, or None for as many as there are cores",
                ));
            }
        };
        Ok(Self { clients, threads, exact })
    }

    /// How many clients there are, where arguments don't say.
    #[getter]
    fn clients(&self) -> Option<usize> {
        self.clients
    }

    /// In how many threads clients work at most.
    #[getter]
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(cores)
    }

    /// Whether a tensor program runs for one client after the other, though it could for many at once.
    #[getter]
    fn exact(&self) -> bool {
        self.exact
    }

    fn __repr__(&self) -> String {
        let clients = self.clients.map_or("None".to_owned(), |clients| clients.to_string());
        let exact = if self.exact { ", exact=True" } else { "" };
        format!("LocalContext({clients}, threads={}{exact})", self.threads())
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((Option<usize>,), Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("threads", self.threads)?;
        named.set_item("exact", self.exact)?;
        Ok(((self.clients,), named))
    }

    /// Runs a computation: the result, in the containers that its type says, with NumPy's scalars
    /// and arrays; a list for what differs between clients, and for sequences.
    #[pyo3(signature = (comp, arg=None))]
    fn invoke<'py>(
        &self,
        py: Python<'py>,
        comp: &Bound<'py, PyAny>,
        arg: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (block, ty) = computation(comp)?;
        let threads = self.threads();
        let kernels = Arc::new(PythonKernels::new(py, self.exact, None)?);
        let (argument, clients) = given_argument(&kernels, &ty, arg, self.clients, threads)?;
        let interpreter = Interpreter::new(&kernels).clients(clients).threads(threads);
        let run = || -> Result<Value<Leaf>, Raised> {
            let Value::Function(function) = interpreter.evaluate(&block)? else {
                let error = Error::new(Class::Type, "the computation is no function");
                return Err(error.found(block.ty()).into());
            };
            interpreter.call(function, argument)
        };
        let made = run().map_err(|Raised(error)| error);
        let ended = kernels.end_draws(py);
        let value = made?;
        ended?;
        kernels.forget();
        let of = ty.as_function().expect("it was called");
        to_python(py, value, &of.result, Tensors::Numpy)
    }
}

/// The argument of a computation of this type, and how many clients there are: `clients`, or as many as the
/// argument says.
pub fn given_argument(
    kernels: &Arc<PythonKernels>,
    ty: &Type,
    arg: Option<&Bound<'_, PyAny>>,
    clients: Option<usize>,
    threads: usize,
) -> PyResult<(Option<Value<Leaf>>, Option<usize>)> {
    let Some(function) = ty.as_function() else {
        let error = Error::new(Class::Value, "only a computation of a function type can be run");
        return Err(raise(&error.expected("a function").found(ty)));
    };
    let evaluate = |block: &BuildingBlock| {
        let interpreter = Interpreter::new(kernels).clients(clients).threads(threads);
        interpreter.evaluate(block).map_err(|Raised(error)| error)
    };
    let known = clients.map(|clients| (clients, "this context".to_owned()));
    let mut conversion = Conversion::new("the argument", &evaluate, known);
    let argument = match (&function.parameter, arg) {
        (Some(parameter), Some(arg)) => Some(conversion.convert(arg, parameter)?),
        (None, None) => None,
        (Some(parameter), None) => {
            let error = Error::new(Class::Type, "the computation needs an argument");
            return Err(raise(&error.expected(parameter).found("no argument")));
        }
        (None, Some(_)) => {
            let error = Error::new(Class::Type, "the computation takes no argument");
            return Err(raise(&error.expected("no argument").found("an argument")));
        }
    };
    Ok((argument, conversion.clients()))
}

/// The tree and the type of a computation.
pub fn computation(comp: &Bound<'_, PyAny>) -> PyResult<(BuildingBlock, Type)> {
    let ty = types::expect_type(&comp.getattr("type_signature")?, "comp.type_signature")?;
    match tree(comp)? {
        Some(block) => Ok((block, ty)),
        None => {
            let error = Error::new(Class::Type, "`comp` must be a computation");
            Err(raise(
                &error.expected("an object with `to_building_block()`").found(describe(comp)),
            ))
        }
    }
}

/// The tree of a computation, if the object is one.
pub fn tree(comp: &Bound<'_, PyAny>) -> PyResult<Option<BuildingBlock>> {
    // As it was traced: a user's function in it gets the containers that its types say.
    if let Ok(comp) = comp.cast::<ConcreteComputation>() {
        return Ok(Some(comp.get().state()?.block.clone()));
    }
    match comp.getattr_opt("to_building_block")? {
        Some(method) => Ok(blocks::unwrap(&method.call0()?)),
        None => Ok(None),
    }
}

/// How many threads can run at the same time.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Adds `LocalContext`, and makes one the context in which calls run unless others are installed.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LocalContext>()?;
    let py = module.py();
    let context = Py::new(py, LocalContext { clients: None, threads: None, exact: false })?;
    contexts::set_initial(py, context.into_any());
    Ok(())
}

//! Computations that are finished.

use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use stator_federated::ast::BuildingBlock;
use stator_federated::tracing::{Open, finished};
use stator_federated::types::Type;
use stator_federated::{Class, Error, Name, wire};

use super::contexts::{self, ContextStack};
use super::scope::{FederatedComputationContext, over};
use super::{Reduced, calls, raise_here};
use crate::federated::errors::{IntoPython, raise};
use crate::federated::wire::decode;
use crate::federated::{blocks, types};

/// A computation: a typed tree, which can be called, embedded in others, and serialized.
#[pyclass(module = "stator.federated.framework", subclass, frozen, weakref)]
pub struct ConcreteComputation {
    /// Set by `__init__`, which classes derived from this one call.
    state: OnceLock<State>,
}

/// What a computation is.
pub struct State {
    /// The tree as it was traced: its types say the Python classes of structs.
    pub block: BuildingBlock,
    /// The type with the Python classes of structs.
    pub ty: Type,
    /// Whose current context a call runs in.
    stack: Py<PyAny>,
    /// Names the function that it was made from, and where that is.
    pub declared: Option<Name>,
    doc: Option<Py<PyAny>>,
    /// The function being traced whose values it uses.
    pub scope: Option<Open>,
    /// The tree without Python classes, with fields selected by position.
    finished: OnceLock<BuildingBlock>,
    bytes: OnceLock<Vec<u8>>,
}

impl State {
    /// The tree as messages have it.
    fn finished(&self) -> PyResult<&BuildingBlock> {
        if let Some(done) = self.finished.get() {
            return Ok(done);
        }
        let done = finished(&self.block).py()?;
        Ok(self.finished.get_or_init(|| done))
    }

    /// The message.
    fn bytes(&self) -> stator_federated::Result<&[u8]> {
        if let Some(done) = self.bytes.get() {
            return Ok(done);
        }
        let declared = |error: Error| match &self.declared {
            Some(what) => error.declared(what),
            None => error,
        };
        let done = wire::encode_block(&self.block).map_err(declared)?;
        Ok(self.bytes.get_or_init(|| done))
    }
}

/// Where a computation comes from.
#[derive(Default)]
pub struct Origin {
    /// Names the function that it was made from, and where that is.
    pub declared: Option<Name>,
    /// The function's docstring.
    pub doc: Option<Py<PyAny>>,
    /// The function being traced whose values it uses.
    pub scope: Option<Open>,
}

impl ConcreteComputation {
    /// A computation of this tree, of function type `ty` (the tree's own, but for Python classes).
    pub fn create(
        py: Python<'_>,
        block: BuildingBlock,
        ty: Type,
        origin: Origin,
    ) -> PyResult<Bound<'_, Self>> {
        let stack = contexts::global(py).clone().into_any().unbind();
        Bound::new(py, Self { state: OnceLock::from(Self::made(block, ty, stack, origin)?) })
    }

    fn made(block: BuildingBlock, ty: Type, stack: Py<PyAny>, origin: Origin) -> PyResult<State> {
        if ty.as_function().is_none() {
            let error = Error::new(Class::Type, "a computation is of a function type");
            return Err(raise(&error.expected("a function").found(&ty)));
        }
        let Origin { declared, doc, scope } = origin;
        let (finished, bytes) = Default::default();
        Ok(State { block, ty, stack, declared, doc, scope, finished, bytes })
    }

    /// What it is.
    pub fn state(&self) -> PyResult<&State> {
        self.state.get().ok_or_else(|| {
            PyRuntimeError::new_err(
                "the computation isn't initialized\n  hint:     `super().__init__(computation_proto=..., \
                 context_stack=...)` does it",
            )
        })
    }
}

/// The tree in what Python calls a message: bytes, an object that serializes to them, or the tree.
fn to_block(object: &Bound<'_, PyAny>, name: &str) -> PyResult<BuildingBlock> {
    if let Some(block) = blocks::unwrap(object) {
        return Ok(block);
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return decode(object.py(), bytes.as_bytes());
    }
    if let Some(serialize) = object.getattr_opt("SerializeToString")? {
        let bytes = serialize.call0()?;
        return decode(object.py(), bytes.cast::<PyBytes>()?.as_bytes());
    }
    Err(PyTypeError::new_err(format!(
        "`{name}` must be a message\n  expected: bytes, an object with `SerializeToString()`, or a \
         building block\n  found:    {}",
        types::describe(object)
    )))
}

#[pymethods]
impl ConcreteComputation {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { state: OnceLock::new() }
    }

    #[pyo3(signature = (*, computation_proto, context_stack, annotated_type=None))]
    fn __init__(
        &self,
        computation_proto: &Bound<'_, PyAny>,
        context_stack: Py<PyAny>,
        annotated_type: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let block = to_block(computation_proto, "computation_proto")?;
        let annotated = annotated_type.filter(|object| !object.is_none());
        let ty = match annotated {
            None => block.ty().clone(),
            Some(object) => {
                let ty = types::expect_type(object, "annotated_type")?;
                if !block.ty().is_assignable_from(&ty).py()? {
                    let message = "`annotated_type` doesn't fit the computation's type";
                    let error = Error::new(Class::Type, message).expected(block.ty()).found(&ty);
                    return Err(raise(&error));
                }
                ty
            }
        };
        let state = Self::made(block, ty, context_stack, Origin::default())?;
        self.state
            .set(state)
            .map_err(|_| PyRuntimeError::new_err("the computation is initialized already"))
    }

    /// A computation of a building block of function type.
    #[staticmethod]
    fn from_building_block<'py>(building_block: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let block = blocks::unwrap_or_err(building_block, "building_block")?;
        let ty = block.ty().clone();
        Self::create(building_block.py(), block, ty, Origin::default())
    }

    /// The computation in a message.
    #[staticmethod]
    fn from_proto<'py>(computation_pb: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let block = to_block(computation_pb, "computation_pb")?;
        let ty = block.ty().clone();
        Self::create(computation_pb.py(), block, ty, Origin::default())
    }

    /// The computation in the bytes of a message.
    #[staticmethod]
    fn from_bytes<'py>(data: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, Self>> {
        Self::from_proto(data.as_any())
    }

    /// The message, as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.state()?.bytes().py()?))
    }

    /// The message, as bytes.
    fn to_proto<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.to_bytes(py)
    }

    /// The tree, as messages have it: fields are selected by position.
    fn to_building_block<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        blocks::wrap(py, self.state()?.finished()?)
    }

    /// The tree, with the Python classes of structs in its types.
    fn to_compiled_building_block<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        blocks::wrap(py, &self.state()?.block)
    }

    /// The type, a FunctionType.
    #[getter]
    fn type_signature<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        types::wrap(py, &self.state()?.ty)
    }

    /// The stack in whose current context a call runs.
    #[getter]
    fn context_stack<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.state()?.stack.bind(py).clone())
    }

    #[getter]
    fn _doc(slf: &Bound<'_, Self>) -> Option<Py<PyAny>> {
        let py = slf.py();
        let doc = slf.get().state.get().and_then(|state| state.doc.as_ref());
        doc.map(|doc| doc.clone_ref(py))
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let state = slf.get().state()?;
        let parameter =
            state.ty.as_function().expect("checked when it was made").parameter.as_ref();
        let args: Vec<_> = args.iter().collect();
        let kwargs = calls::keywords(kwargs)?;
        let argument =
            calls::pack(py, parameter, &args, &kwargs).map_err(|error| {
                match &state.declared {
                    Some(what) => raise(&error.declared(what)),
                    None => raise_here(py, error),
                }
            })??;
        let stack = state.stack.bind(py);
        let context = match stack.cast::<ContextStack>() {
            Ok(stack) => stack.get().top(py),
            Err(_) => stack.getattr("current")?,
        };
        if context.cast::<FederatedComputationContext>().is_ok() {
            return Ok(calls::invoke_computation(slf, argument.as_ref())?.into_any());
        }
        if let Some(scope) = &state.scope {
            return Err(raise(&over(scope)));
        }
        context.call_method1("invoke", (slf, argument))
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let Ok(other) = other.cast::<Self>() else { return Ok(py.NotImplemented()) };
        let same = slf.is(other) || {
            let (a, b) = (slf.get().state()?, other.get().state()?);
            match (a.bytes(), b.bytes()) {
                (Ok(a), Ok(b)) => a == b,
                _ => a.block == b.block,
            }
        };
        Ok(pyo3::types::PyBool::new(py, same).to_owned().into_any().unbind())
    }

    fn __hash__(&self) -> PyResult<u64> {
        use std::hash::{Hash, Hasher};
        let state = self.state()?;
        let mut hasher = rustc_hash::FxHasher::default();
        match state.bytes() {
            Ok(bytes) => bytes.hash(&mut hasher),
            Err(_) => state.block.hash(&mut hasher),
        }
        Ok(hasher.finish())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let state = slf.get().state()?;
        let class = slf.get_type();
        let declared = state.declared.as_deref().unwrap_or("a computation");
        Ok(format!("<{} {declared}: {}>", class.name()?, state.ty))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let py = slf.py();
        let class: Bound<'_, PyType> = slf.get_type();
        if !class.is(py.get_type::<Self>()) {
            return Err(PyValueError::new_err(format!(
                "objects of `{}` can't be pickled: only computations of its base class can",
                class.name()?
            )));
        }
        let state = slf.get().state()?;
        // Says so of the whole computation, if something in it can't leave the process.
        state.bytes().py()?;
        let make = py.import("stator._stator")?.getattr("federated")?;
        let arguments = (blocks::wrap(py, &state.block)?, types::wrap(py, &state.ty)?);
        Ok((make.getattr("_computation_of_block")?, arguments))
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }
}

/// The computation of a block, of function type `ty`: what `pickle` calls.
#[pyfunction]
fn _computation_of_block<'py>(
    block: &Bound<'py, PyAny>,
    ty: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, ConcreteComputation>> {
    let py = ty.py();
    let ty = types::expect_type(ty, "ty")?;
    let block = blocks::unwrap_or_err(block, "block")?;
    ConcreteComputation::create(py, block, ty, Origin::default())
}

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_computation_of_block, module)?)?;
    super::add_documented::<ConcreteComputation>(module)
}

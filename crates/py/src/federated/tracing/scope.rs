//! The context in which a function is traced.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;
use stator_federated::ast::BuildingBlock;
use stator_federated::tracing::{Open, Scope};
use stator_federated::{Class, Error, Name};

use super::computation::ConcreteComputation;
use super::value::Value;
use super::{abstracts, calls, contexts};
use crate::federated::blocks;
use crate::federated::errors::raise;

/// The context in which the body of a federated computation runs: it gives names to the values
/// that are computed.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct FederatedComputationContext {
    name: Name,
    open: Open,
    /// Gone when the function has returned.
    scope: Mutex<Option<Scope>>,
    parent: Option<Py<Self>>,
}

impl FederatedComputationContext {
    /// A context for a function named `suggested`; `what` names it in errors.
    pub fn create(
        py: Python<'_>,
        suggested: Option<&str>,
        parent: Option<Bound<'_, Self>>,
        what: Option<Name>,
    ) -> Self {
        let suggested = suggested.filter(|name| !name.is_empty()).unwrap_or("FEDERATED");
        let mut around = Vec::new();
        let mut next = parent.clone();
        while let Some(context) = next {
            around.push(context.get().name.clone());
            next = context.get().parent.as_ref().map(|parent| parent.bind(py).clone());
        }
        let what = what.unwrap_or_else(|| format!("`{suggested}`").into());
        let scope = Scope::new(suggested, &around, what);
        Self {
            name: scope.name().clone(),
            open: scope.open().clone(),
            scope: Mutex::new(Some(scope)),
            parent: parent.map(Bound::unbind),
        }
    }

    fn scope(&self) -> MutexGuard<'_, Option<Scope>> {
        self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is being traced, to name it in errors.
    pub fn what(&self) -> &str {
        self.open.what()
    }

    /// To ask whether it is still being traced.
    pub fn open(&self) -> &Open {
        &self.open
    }

    /// Notes that a value of `scope` is used here.
    pub fn uses(&self, scope: &Open) {
        if let Some(own) = self.scope().as_mut() {
            own.uses(scope);
        }
    }

    /// The scope, which ends.
    pub fn take(&self) -> Option<Scope> {
        self.scope().take()
    }

    fn bind(&self, block: BuildingBlock) -> PyResult<BuildingBlock> {
        match self.scope().as_mut() {
            Some(scope) => Ok(scope.bind(block)),
            None => Err(raise(&over(&self.open))),
        }
    }
}

/// The error of using what belongs to a function that was traced.
pub fn over(scope: &Open) -> Error {
    Error::new(
        Class::Context,
        "a value was used outside the function in which it was made: it means nothing there",
    )
    .declared(scope.what())
    .hint("pass the value as an argument, or return it from the function")
}

/// Gives a value a name in the function that is being traced. `doing` is what for.
pub fn bind(py: Python<'_>, block: BuildingBlock, doing: &str) -> PyResult<Value> {
    let context = contexts::current(py);
    if let Ok(tracing) = context.cast::<FederatedComputationContext>() {
        let context = tracing.get();
        return Ok(Value::create(context.bind(block)?, Some(context.open.clone())));
    }
    if !context.is_instance(abstracts::symbol_binding_context(py)?)? {
        let error =
            Error::new(Class::Context, format!("{doing} needs a computation to be part of"))
                .expected("a call inside a function that `federated_computation` traces")
                .found(format_args!("a {} as context", context.get_type().name()?))
                .hint("decorate the function around it with `@federated_computation(...)`");
        return Err(raise(&error));
    }
    let block = blocks::wrap(py, &block)?;
    let reference = context.call_method1("bind_computation_to_reference", (block,))?;
    Ok(Value::create(blocks::unwrap_or_err(&reference, "reference")?, None))
}

#[pymethods]
impl FederatedComputationContext {
    #[new]
    #[pyo3(signature = (context_stack, suggested_name=None, parent=None))]
    fn new(
        py: Python<'_>,
        context_stack: &Bound<'_, PyAny>,
        suggested_name: Option<&str>,
        parent: Option<Bound<'_, Self>>,
    ) -> Self {
        let _ = context_stack;
        Self::create(py, suggested_name, parent, None)
    }

    /// Its name, different from those of the contexts around it.
    #[getter]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The context of the function around the one that is traced.
    #[getter]
    fn parent<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Self>> {
        self.parent.as_ref().map(|parent| parent.bind(py).clone())
    }

    /// The names given so far, with the building blocks that they stand for.
    #[getter]
    fn symbol_bindings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let symbols = self.scope().as_ref().map_or_else(Vec::new, |scope| scope.symbols().to_vec());
        let symbol = |(name, block): (Name, BuildingBlock)| {
            Ok((name.to_string(), blocks::wrap(py, &block)?))
        };
        PyList::new(py, symbols.into_iter().map(symbol).collect::<PyResult<Vec<_>>>()?)
    }

    /// Gives a building block a name.
    fn bind_computation_to_reference<'py>(
        &self,
        comp: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let block = blocks::unwrap_or_err(comp, "comp")?;
        blocks::wrap(comp.py(), &self.bind(block)?)
    }

    /// Traces a call of `comp` with `arg`.
    fn invoke<'py>(
        slf: &Bound<'py, Self>,
        comp: &Bound<'py, PyAny>,
        arg: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Value>> {
        let py = slf.py();
        let arg = (!arg.is_none()).then_some(arg);
        match comp.cast::<ConcreteComputation>() {
            Ok(computation) => calls::invoke_computation(computation, arg),
            Err(_) => {
                let function = super::convert::to_value(comp, &Default::default())?;
                calls::invoke(py, function, arg, None)
            }
        }
    }
}

/// The name under which errors speak of the function that is being traced.
pub fn declared(py: Python<'_>) -> Option<String> {
    Some(contexts::tracing(py)?.get().what().to_owned())
}

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<FederatedComputationContext>()
}

//! Running a function with a stand-in for its argument, and making a tree of what it did.

use pyo3::prelude::*;
use stator_federated::ast::BuildingBlock;
use stator_federated::tracing::Open;
use stator_federated::types::Type;
use stator_federated::{Class, Error, Name};

use super::computation::{ConcreteComputation, Origin};
use super::contexts::{self, ContextStack};
use super::convert::{Wanted, to_value};
use super::infer::infer_type;
use super::scope::FederatedComputationContext;
use super::signature;
use super::unpack;
use super::value::Value;
use crate::federated::errors::raise;

/// What a function did.
pub struct Traced {
    /// The function as a lambda.
    pub lambda: BuildingBlock,
    /// Its type, with the Python classes of structs.
    pub ty: Type,
    /// The function around it whose values it uses.
    pub scope: Option<Open>,
}

/// The function that is traced.
pub struct Subject<'a> {
    /// Whose current context is that of the function.
    pub stack: &'a ContextStack,
    /// The name of its context.
    pub name: Option<&'a str>,
    /// Names it in errors.
    pub declared: Name,
    /// The last part of the parameter's name, and its type.
    pub parameter: Option<(&'a str, &'a Type)>,
}

/// Traces a function, which `call` calls with the stand-in for its argument.
pub fn trace<'py>(
    py: Python<'py>,
    subject: &Subject<'_>,
    call: impl FnOnce(Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Traced> {
    let declared = &subject.declared;
    let parent = subject.stack.top(py).cast_into::<FederatedComputationContext>().ok();
    let context = FederatedComputationContext::create(
        py,
        subject.name,
        parent.clone(),
        Some(declared.clone()),
    );
    let context = Bound::new(py, context)?;
    let parameter = subject.parameter.map(|(suffix, ty)| {
        BuildingBlock::reference(format!("{}_{suffix}", context.get().name()), ty.clone())
    });
    let argument = match &parameter {
        Some(block) => {
            let value = Value::create(block.clone(), Some(context.get().open().clone()));
            Some(Bound::new(py, value)?.into_any())
        }
        None => None,
    };
    // Taken off on every path, and the scope closed with it: its values mean nothing outside.
    let guard = subject.stack.push(context.as_any());
    let closing = Closing(context.get());
    let result = call(argument)?;
    if result.is_none() {
        let error = Error::new(Class::ReturnedNone, "the function of a computation returned None")
            .expected("the value that the computation computes")
            .declared(declared)
            .hint("end the function with `return value`");
        return Err(raise(&error));
    }
    let wanted = Wanted { what: Some("the result"), result: true, ..Wanted::default() };
    let made = to_value(&result, &wanted)?;
    // A list of pairs is typed as one of names.
    let result_type = match result.cast::<Value>() {
        Ok(_) => made.block.ty().clone(),
        Err(_) => infer_type(&result)?.unwrap_or_else(|| made.block.ty().clone()),
    };
    let ty = Type::function(subject.parameter.map(|(_, ty)| ty.clone()), result_type);
    let scope = closing.0.take();
    drop(guard);
    let Some(scope) = scope else {
        let error = Error::new(Class::Context, "the function's context was finished already");
        return Err(raise(&error.declared(declared)));
    };
    let (lambda, outer) = scope.finish(parameter.as_ref(), made.block);
    if let (Some(outer), Some(parent)) = (&outer, &parent)
        && !outer.is(parent.get().open())
    {
        parent.get().uses(outer);
    }
    Ok(Traced { lambda, ty, scope: outer })
}

/// Ends a scope, whatever happens.
struct Closing<'a>(&'a FederatedComputationContext);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// A computation of a function: for a parameter of type `parameter`, passed as `unpack` says.
pub fn computation<'py>(
    function: &Bound<'py, PyAny>,
    parameter: Option<&Type>,
    unpack: Option<bool>,
    name: Option<&str>,
) -> PyResult<Bound<'py, ConcreteComputation>> {
    let py = function.py();
    let declared = signature::declared(function);
    if parameter.is_none() {
        unpack::check_takes_nothing(function)?;
    }
    let subject = Subject {
        stack: contexts::global(py).get(),
        name,
        declared: declared.clone(),
        parameter: parameter.map(|ty| ("arg", ty)),
    };
    let traced = trace(py, &subject, |argument| match (argument, parameter) {
        (Some(argument), Some(parameter)) => {
            unpack::unpack(function, parameter, &argument, unpack)?.call(function)
        }
        _ => function.call0(),
    })?;
    let doc = function.getattr_opt("__doc__")?.filter(|doc| !doc.is_none()).map(Bound::unbind);
    let origin = Origin { declared: Some(declared), doc, scope: traced.scope };
    ConcreteComputation::create(py, traced.lambda, traced.ty, origin)
}

/// The lambda that `fn` is, of a parameter named `<context>_<parameter_name>`, and its type.
#[pyfunction]
#[pyo3(signature = (r#fn, parameter_name, parameter_type, context_stack, suggested_name=None))]
pub fn zero_or_one_arg_fn_to_building_block<'py>(
    r#fn: &Bound<'py, PyAny>,
    parameter_name: Option<&str>,
    parameter_type: Option<&Bound<'py, PyAny>>,
    context_stack: &Bound<'py, ContextStack>,
    suggested_name: Option<&str>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = r#fn.py();
    let ty = super::convert::optional_type(parameter_type, "parameter_type")?;
    let parameter = ty.as_ref().map(|ty| (parameter_name.unwrap_or("arg"), ty));
    let stack = context_stack.get();
    let declared = signature::declared(r#fn);
    let subject = Subject { stack, name: suggested_name, declared, parameter };
    let traced = trace(py, &subject, |argument| match argument {
        Some(argument) => r#fn.call1((argument,)),
        None => r#fn.call0(),
    })?;
    let block = crate::federated::blocks::wrap(py, &traced.lambda)?;
    Ok((block, crate::federated::types::wrap(py, &traced.ty)?))
}

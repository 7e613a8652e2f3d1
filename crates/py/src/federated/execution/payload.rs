//! Compiled computations that Python runs.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::exceptions::PyNotImplementedError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use rustc_hash::FxHashMap;
use stator_federated::ast::{BuildingBlock, Compiled, Data, Payload, WirePayload};
use stator_federated::execution::{Value, embed, embedded};
use stator_federated::types::Type;
use stator_federated::{Class, Error, Name};

use super::arguments::{Conversion, no_functions};
use super::kernels::in_context;
use super::leaf::Leaf;
use super::owned::settle;
use super::program::{Drawn, Flat};
use super::results::{Tensors, to_python};
use crate::federated::errors::IntoPython;
use crate::federated::{blocks, types};

/// A Python function as a compiled computation.
#[derive(Debug)]
pub struct Callable {
    function: Py<PyAny>,
    /// Whether the fields of the argument are passed one by one.
    unpack: bool,
    /// Names the function, and where it is.
    declared: Option<Name>,
    /// The program that it runs, where it is one that can leave this process.
    program: Option<Data>,
}

impl Payload for Callable {
    fn to_wire(&self) -> stator_federated::Result<WirePayload> {
        if let Some(program) = &self.program {
            return Ok(embed(program));
        }
        let mut error = Error::new(Class::Type, "a Python function can't be serialized")
            .expected("a computation that is made of operations, or a tensor program");
        if Python::attach(|py| has_variants(self.function.bind(py)).unwrap_or(false)) {
            error = error.hint(
                "it is another program for other numbers of rows: what it does has to be one for \
                 all of them, or their number known",
            );
        }
        Err(match &self.declared {
            Some(declared) => error.declared(declared),
            None => error,
        })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Whether a function has a program for each of some sizes.
fn has_variants(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    function.hasattr(intern!(function.py(), "has_variants"))
}

/// How programs of some type, by its address, are made into functions; the functions made so far.
#[derive(Default)]
struct Loaders {
    loaders: FxHashMap<String, Py<PyAny>>,
    loaded: OfContents,
    /// Where programs that came from another process are from, for messages.
    origins: OfContents,
}

/// Objects by the address of a program's content, for as long as something else holds that.
#[derive(Default)]
struct OfContents(FxHashMap<usize, (Weak<[u8]>, Py<PyAny>)>);

impl OfContents {
    fn get(&self, py: Python<'_>, bytes: &Arc<[u8]>) -> Option<Py<PyAny>> {
        let (content, object) = self.0.get(&address(bytes))?;
        // An entry whose content is gone isn't that of the content which has its address now.
        (content.strong_count() > 0).then(|| object.clone_ref(py))
    }

    /// Keeps an object; the ones that go are the caller's to drop.
    fn insert(&mut self, bytes: &Arc<[u8]>, object: Py<PyAny>) -> Vec<Py<PyAny>> {
        let dead = self.0.extract_if(|_, (content, _)| content.strong_count() == 0);
        let mut dead: Vec<_> = dead.map(|(_, (_, object))| object).collect();
        let old = self.0.insert(address(bytes), (Arc::downgrade(bytes), object));
        dead.extend(old.map(|(_, object)| object));
        dead
    }
}

fn address(bytes: &Arc<[u8]>) -> usize {
    Arc::as_ptr(bytes).cast::<u8>() as usize
}

static LOADERS: Mutex<Option<Loaders>> = Mutex::new(None);

fn with_loaders<R>(f: impl FnOnce(&mut Loaders) -> R) -> R {
    f(LOADERS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The loader of programs of this type.
fn loader(py: Python<'_>, type_url: &str) -> Option<Py<PyAny>> {
    with_loaders(|of| of.loaders.get(type_url).map(|loader| loader.clone_ref(py)))
}

/// What a program's loader made of it, once for as long as the program lives.
fn load(py: Python<'_>, bytes: &Arc<[u8]>, program: &Data) -> PyResult<Option<Py<PyAny>>> {
    let found = with_loaders(|of| of.loaded.get(py, bytes));
    if found.is_some() {
        return Ok(found);
    }
    let Some(loader) = loader(py, &program.type_url) else { return Ok(None) };
    let made = loader.call1(py, (PyBytes::new(py, &program.value),))?;
    if let Some(origins) = with_loaders(|of| of.origins.get(py, bytes))
        && let Some(remember) = made.bind(py).getattr_opt("remember")?
    {
        remember.call1((origins,))?;
    }
    let dead = with_loaders(|of| of.loaded.insert(bytes, made.clone_ref(py)));
    drop(dead);
    Ok(Some(made))
}

/// Where a program is from, for messages: what its bytes don't say.
///
/// # Errors
/// What asking its function raises.
pub fn origins(py: Python<'_>, compiled: &Compiled) -> PyResult<Option<Py<PyAny>>> {
    let payload = compiled.payload.as_any();
    if let Some(Callable { function, program: Some(_), .. }) = payload.downcast_ref() {
        let known = function.bind(py).getattr_opt("origins")?;
        return known.map(|known| known.call0().map(Bound::unbind)).transpose();
    }
    let Some(payload) = payload.downcast_ref::<WirePayload>() else { return Ok(None) };
    Ok(with_loaders(|of| of.origins.get(py, &payload.bytes)))
}

/// Says where a program is from that came from another process.
pub fn remember(compiled: &Compiled, origins: Py<PyAny>) {
    if let Some(payload) = compiled.payload.as_any().downcast_ref::<WirePayload>() {
        let dead = with_loaders(|of| of.origins.insert(&payload.bytes, origins));
        drop(dead);
    }
}

/// How a compiled computation is run.
pub struct Runnable {
    function: Py<PyAny>,
    how: How,
    /// Where it is a program that is run on tensors alone.
    flat: Option<Flat>,
}

/// How a compiled computation of function type `ty` is run.
///
/// # Errors
/// Nothing here can run it; what looking for its function raises.
pub fn runnable(py: Python<'_>, compiled: &Compiled, ty: &Type) -> PyResult<Runnable> {
    let (function, how) = callable(py, compiled, ty)?;
    let flat = match how.tensors {
        Tensors::Kept => Flat::of(&function, ty)?,
        _ => None,
    };
    Ok(Runnable { function: function.unbind(), how, flat })
}

impl Runnable {
    /// Runs it, a computation of function type `ty`.
    ///
    /// # Errors
    /// What it raises, and what converting arguments and results does.
    pub fn run(
        &self,
        py: Python<'_>,
        ty: &Type,
        argument: Option<Value<Leaf>>,
    ) -> PyResult<Value<Leaf>> {
        if let Some(flat) = &self.flat
            && let Some(value) = flat.run(py, argument.as_ref())?
        {
            return Ok(value);
        }
        call(self.function.bind(py), &self.how, ty, argument)
    }

    /// Whether running it surely has no effects.
    pub fn is_pure(&self) -> bool {
        self.flat.as_ref().is_some_and(Flat::is_pure)
    }

    /// Whether it is a program that may draw random numbers.
    pub fn draws(&self) -> bool {
        self.flat.as_ref().is_some_and(|flat| !flat.is_pure())
    }

    /// For how many clients it runs at once.
    ///
    /// # Errors
    /// What asking its function raises.
    pub fn clients_at_once(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.flat {
            Some(_) => self.function.bind(py).getattr("clients_at_once")?.extract(),
            None => Ok(1),
        }
    }

    /// Runs it for several clients at once; `None`: it has to run for one after the other.
    ///
    /// # Errors
    /// What isn't the program's.
    pub fn run_together(
        &self,
        py: Python<'_>,
        arguments: &[Value<Leaf>],
        drawn: Option<&Drawn<'_>>,
    ) -> PyResult<Option<Vec<Value<Leaf>>>> {
        match &self.flat {
            Some(flat) => flat.run_together(py, arguments, drawn),
            None => Ok(None),
        }
    }
}

/// The function that a compiled computation runs, and how it is called.
fn callable<'py>(
    py: Python<'py>,
    compiled: &Compiled,
    ty: &Type,
) -> PyResult<(Bound<'py, PyAny>, How)> {
    let payload = compiled.payload.as_any();
    if let Some(callable) = payload.downcast_ref::<Callable>() {
        let what = match &callable.declared {
            Some(declared) => format!("the result of {declared}"),
            None => format!("the result of `{}`", compiled.name),
        };
        // A program doesn't write to what it gets. Those for some sizes each aren't in messages.
        let is_program = callable.program.is_some() || has_variants(callable.function.bind(py))?;
        let tensors = if is_program { Tensors::Kept } else { Tensors::ReadOnly };
        let how = How { unpack: callable.unpack, tensors, what };
        return Ok((callable.function.bind(py).clone(), how));
    }
    if let Some(payload) = payload.downcast_ref::<WirePayload>()
        && let Some(program) = embedded(payload)
    {
        if let Some(function) = load(py, &payload.bytes, &program)? {
            let what = format!("the result of program `{}`", compiled.name);
            let how = How { unpack: can_be_arguments(ty), tensors: Tensors::Kept, what };
            return Ok((function.into_bound(py), how));
        }
        return Err(PyNotImplementedError::new_err(format!(
            "`{}` is a program of a type that nothing here can run\n  found:    {}",
            compiled.name, program.type_url
        )));
    }
    Err(PyNotImplementedError::new_err(format!(
        "`{}` is a compiled computation that nothing here can run\n  expected: a Python function \
         or a tensor program",
        compiled.name
    )))
}

/// Whether the parameter's fields, passed one by one, keep their order: those without names come first.
fn can_be_arguments(ty: &Type) -> bool {
    let parameter = ty.as_function().and_then(|of| of.parameter.as_ref());
    let Some(of) = parameter.and_then(Type::as_struct) else { return false };
    of.fields().is_sorted_by_key(|field| field.name.is_some())
}

/// How a function is called.
struct How {
    /// Whether it gets the fields of its argument one by one.
    unpack: bool,
    tensors: Tensors,
    /// What its result is, for messages.
    what: String,
}

/// What a function is given for an argument: by position, and by name.
fn given<'py>(
    py: Python<'py>,
    how: &How,
    ty: &Type,
    argument: Option<Value<Leaf>>,
) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
    let of = ty.as_function().expect("a compiled computation is of a function type");
    let mut positional = Vec::new();
    let named = PyDict::new(py);
    if let (Some(argument), Some(parameter)) = (argument, &of.parameter) {
        match (how.unpack, argument, parameter.as_struct()) {
            (true, Value::Struct(values), Some(structure)) => {
                for (value, field) in values.into_values().into_iter().zip(structure.fields()) {
                    let object = to_python(py, value, &field.ty, how.tensors)?;
                    match &field.name {
                        None => positional.push(object),
                        Some(name) => named.set_item(&**name, object)?,
                    }
                }
            }
            (_, argument, _) => positional.push(to_python(py, argument, parameter, how.tensors)?),
        }
    }
    Ok((PyTuple::new(py, positional)?, named))
}

/// Calls a function with its argument, and checks what it returns.
fn call(
    function: &Bound<'_, PyAny>,
    how: &How,
    ty: &Type,
    argument: Option<Value<Leaf>>,
) -> PyResult<Value<Leaf>> {
    let py = function.py();
    let of = ty.as_function().expect("a compiled computation is of a function type");
    let (positional, named) = given(py, how, ty, argument)?;
    let result = in_context(function, positional, Some(&named).filter(|named| !named.is_empty()));
    // A program runs no code of the user's: all frames are the library's.
    let result = result.inspect_err(|error| {
        if how.tensors == Tensors::Kept {
            error.set_traceback(py, None);
        }
    })?;
    settled(result, &how.what, &of.result)
}

/// The value of what a function returned, `what` in messages.
pub fn settled(result: Bound<'_, PyAny>, what: &str, ty: &Type) -> PyResult<Value<Leaf>> {
    let py = result.py();
    let value = Conversion::new(what, &no_functions, None).convert(&result, ty)?;
    // Containers that nobody keeps go, and only then can it be told whether somebody keeps tensors.
    drop(result);
    settle(py, value)
}

/// The value of data, by the loader of its type.
pub fn data(py: Python<'_>, data: &Data, ty: &Type) -> PyResult<Value<Leaf>> {
    let Some(loader) = loader(py, &data.type_url) else {
        return Err(PyNotImplementedError::new_err(format!(
            "nothing here knows data of this type\n  found:    {}",
            data.type_url
        )));
    };
    let object = loader.call1(py, (PyBytes::new(py, &data.value),))?;
    let what = format!("the data `{}`", data.type_url);
    settled(object.into_bound(py), &what, ty)
}

/// A compiled computation of function type `type_signature` that runs `function`: with the fields
/// of its argument one by one if `unpack`, with its one argument otherwise. `program` is the type's
/// address and the content of a program that does the same, which is what is serialized.
#[pyfunction]
#[pyo3(signature = (function, type_signature, name, declared=None, unpack=false, program=None))]
fn callable_computation<'py>(
    function: Py<PyAny>,
    type_signature: &Bound<'py, PyAny>,
    name: &str,
    declared: Option<&str>,
    unpack: bool,
    program: Option<(String, Vec<u8>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let ty = types::expect_type(type_signature, "type_signature")?;
    if ty.as_function().is_none() {
        let error = Error::new(Class::Type, "a computation is of a function type");
        return Err(error.expected("a function").found(&ty)).py();
    }
    let declared = declared.map(Name::from);
    let program =
        program.map(|(type_url, value)| Data { type_url: type_url.into(), value: value.into() });
    let payload = Arc::new(Callable { function, unpack, declared, program });
    let compiled = Compiled { name: name.into(), payload };
    blocks::wrap(type_signature.py(), &BuildingBlock::compiled(compiled, ty))
}

/// What [`callable_computation`] makes a compiled computation of in another process, if it runs a Python function:
/// a program goes as its bytes, unless there are others for other sizes.
pub fn python_function<'py>(
    py: Python<'py>,
    compiled: &Compiled,
    ty: &Type,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some(Callable { function, unpack, declared, program }) =
        compiled.payload.as_any().downcast_ref()
    else {
        return Ok(None);
    };
    let function = function.bind(py);
    if program.is_some() && !has_variants(function)? {
        return Ok(None);
    }
    let of = types::wrap(py, ty)?;
    (function, of, &*compiled.name, declared.as_deref(), *unpack).into_pyobject(py).map(Some)
}

/// A Python function as a computation; see [`callable_computation`].
pub fn embedded_function(
    function: Py<PyAny>,
    ty: Type,
    name: &str,
    declared: &Name,
    unpack: bool,
    program: Option<Data>,
) -> BuildingBlock {
    let payload =
        Arc::new(Callable { function, unpack, declared: Some(declared.clone()), program });
    BuildingBlock::compiled(Compiled { name: name.into(), payload }, ty)
}

/// Says how programs and data of a type, by its address, become functions and values: `loader`
/// gets the content. A program's function gets the fields of its argument one by one, if those without
/// names come first.
#[pyfunction]
pub fn register_loader(type_url: String, loader: Py<PyAny>) {
    let old = with_loaders(|of| of.loaders.insert(type_url, loader));
    drop(old);
}

/// Adds what those use who bring programs.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(callable_computation, module)?)?;
    module.add_function(wrap_pyfunction!(register_loader, module)?)
}

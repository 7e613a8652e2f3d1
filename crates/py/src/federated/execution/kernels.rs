//! What is done with tensors: NumPy's operators, and PyTorch's for its tensors.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pyo3::exceptions::{PyException, PyNotImplementedError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use rustc_hash::FxHashMap;
use stator_federated::array::Array;
use stator_federated::ast::{Compiled, Data};
use stator_federated::dtype::{DType, Kind};
use stator_federated::execution::{Bound as End, Combine, Draw, Kernels, Value};
use stator_federated::types::{TensorType, Type};
use stator_federated::{Class, Error};

use super::leaf::{Leaf, by_batches, numpy, scalar_or_array, to_leaf};
use super::pause::pause;
use super::payload::{self, Runnable};
use super::program::Drawn;
use super::sums::{self, Sums};
use super::threads::{self, Working};
use super::torch::{is_torch, torch, torch_to_numpy};
use crate::federated::blocks::literals;
use crate::federated::errors::raise;
use crate::federated::types::dtypes;

/// An exception, ours or the user's.
pub struct Raised(pub PyErr);

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        Self(raise(&error))
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

/// Kernels for one call of a computation.
pub struct Python {
    /// The caller's context variables, for the threads that work for it.
    context: Py<PyAny>,
    /// Whether the caller records gradients, which PyTorch remembers for each thread.
    gradients: Option<bool>,
    /// Those threads.
    working: Working,
    /// Whether clients are run one by one, though they could be run together.
    is_exact: bool,
    /// How the computations are run that this call has met, by the addresses of their payloads.
    runnable: Mutex<FxHashMap<usize, Met>>,
    /// What clients' random numbers come from, where another process says it.
    key: Option<Vec<u8>>,
    /// What makes them, where a program that may draw was met.
    draws: PyOnceLock<Py<PyAny>>,
}

/// A computation, which lives on so that its address stays its own; its type, and how it's run.
type Met = (Compiled, Type, Arc<Runnable>);

thread_local! {
    /// In a thread that works for a call: its copy of the caller's context variables.
    static CONTEXT: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };
}

/// Calls a user's function, with the caller's context variables where this thread works for it.
pub fn in_context<'py>(
    function: &Bound<'py, PyAny>,
    arguments: Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let context = CONTEXT.with_borrow(|of| of.as_ref().map(|of| of.bind(py).clone()));
    let Some(context) = context else { return function.call(arguments, named) };
    let function = PyTuple::new(py, [function])?;
    let arguments = function.add(arguments)?.cast_into::<PyTuple>()?;
    context.getattr("run")?.call(arguments, named)
}

impl Python {
    pub fn new(py: pyo3::Python<'_>, is_exact: bool, key: Option<Vec<u8>>) -> PyResult<Self> {
        static COPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let context = COPY.import(py, "contextvars", "copy_context")?.call0()?.unbind();
        let gradients = match torch(py)? {
            Some(torch) => Some(torch.call_method0("is_grad_enabled")?.extract()?),
            None => None,
        };
        let runnable = Mutex::default();
        let (working, draws) = (Working::default(), PyOnceLock::new());
        Ok(Self { context, gradients, working, is_exact, runnable, key, draws })
    }

    /// The call is over: what was kept for more of the same goes.
    pub fn forget(&self) {
        let old =
            std::mem::take(&mut *self.runnable.lock().unwrap_or_else(PoisonError::into_inner));
        drop(old);
    }

    /// What makes the random numbers of clients. They come from where PyTorch's generator is when this is asked first.
    fn numbers<'py>(&self, py: pyo3::Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static DRAWS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let made = self.draws.get_or_try_init(py, || {
            let class = DRAWS.import(py, "stator._program_tracing.drawing", "Draws")?;
            let key = self.key.as_ref().map(|key| PyBytes::new(py, key));
            class.call1((key,)).map(Bound::unbind)
        })?;
        Ok(made.bind(py).clone())
    }

    /// What clients' random numbers come from, for other processes.
    pub fn key<'py>(&self, py: pyo3::Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.numbers(py)?.getattr("key")
    }

    /// The call is over: who draws next draws other numbers than its clients did.
    pub fn end_draws(&self, py: pyo3::Python<'_>) -> PyResult<()> {
        match self.draws.get(py) {
            Some(draws) => draws.call_method0(py, "end").map(drop),
            None => Ok(()),
        }
    }

    /// How a compiled computation is run: found out once in a call.
    fn runnable(
        &self,
        py: pyo3::Python<'_>,
        compiled: &Compiled,
        ty: &Type,
    ) -> PyResult<Arc<Runnable>> {
        let known = || self.runnable.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::as_ptr(&compiled.payload).cast::<()>() as usize;
        if let Some((_, of, found)) = known().get(&key)
            && of == ty
        {
            return Ok(Arc::clone(found));
        }
        let found = Arc::new(payload::runnable(py, compiled, ty)?);
        let met = (compiled.clone(), ty.clone(), Arc::clone(&found));
        let old = known().insert(key, met);
        drop(old);
        Ok(found)
    }

    /// Makes the current thread like the caller's.
    fn enter(&self, py: pyo3::Python<'_>) -> PyResult<()> {
        let copy = self.context.call_method0(py, "copy")?;
        CONTEXT.set(Some(copy));
        if let (Some(gradients), Some(torch)) = (self.gradients, torch(py)?) {
            torch.call_method1("set_grad_enabled", (gradients,))?;
        }
        Ok(())
    }
}

/// The size of each dimension of a tensor that is made from nothing.
pub fn dims(ty: &TensorType) -> Result<Vec<u64>, Error> {
    let sizes = ty.shape.dims().and_then(|dims| dims.iter().copied().collect());
    sizes.ok_or_else(|| {
        Error::new(Class::Value, "a tensor of unknown size can't be made from nothing")
            .expected("a shape that is known")
            .found(Type::tensor(ty.dtype, ty.shape.clone()))
    })
}

/// A tensor of one number.
fn full(py: pyo3::Python<'_>, value: &Bound<'_, PyAny>, ty: &TensorType) -> PyResult<Leaf> {
    let dims = PyTuple::new(py, dims(ty).map_err(|error| raise(&error))?)?;
    let dtype = dtypes::to_numpy(py, ty.dtype)?;
    let made = numpy(py)?.call_method1("full", (dims, value, dtype))?;
    Ok(Leaf::new(scalar_or_array(made)?))
}

/// Whether sums of tensors are rounded to their type.
fn is_rounded(ty: &TensorType) -> bool {
    matches!(ty.dtype.kind(), Kind::Float | Kind::Complex)
}

/// Two tensors of the same library.
fn alike<'py>(
    left: &Bound<'py, PyAny>,
    right: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>, bool)> {
    let numpy = |tensor: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
        torch_to_numpy(tensor)?.ok_or_else(|| {
            PyNotImplementedError::new_err(
                "bfloat16 tensors of PyTorch can't be combined with NumPy's without ml_dtypes",
            )
        })
    };
    Ok(match (is_torch(left)?, is_torch(right)?) {
        (true, true) => (left.clone(), right.clone(), true),
        (false, false) => (left.clone(), right.clone(), false),
        (true, false) => (numpy(left)?, right.clone(), false),
        (false, true) => (left.clone(), numpy(right)?, false),
    })
}

/// Runs work on Python's objects, unless the user has interrupted the program.
fn attached<R>(work: impl FnOnce(pyo3::Python<'_>) -> Result<R, Raised>) -> Result<R, Raised> {
    pyo3::Python::attach(|py| {
        pause(py)?;
        work(py)
    })
}

/// Has others draw again when it goes, whatever came of clients' work.
struct Leaving<'a>(&'a Python);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        pyo3::Python::attach(|py| {
            // Putting a generator back where it was doesn't fail.
            let _ = self.0.numbers(py).and_then(|numbers| numbers.call_method0("leave"));
        });
    }
}

impl Kernels for Python {
    type Leaf = Leaf;
    type Sums = Sums;
    type Error = Raised;

    fn literal(&self, array: &Array, _: &Type) -> Result<Leaf, Raised> {
        attached(|py| {
            let ty = array.tensor_type();
            let ty = ty.as_tensor().expect("an array's type is a tensor type");
            let object = literals::from_array(py, array)?;
            Ok(to_leaf(&object, ty).map_err(|misfit| misfit.raise("the literal"))?)
        })
    }

    fn data(&self, data: &Data, ty: &Type) -> Result<Value<Leaf>, Raised> {
        attached(|py| Ok(payload::data(py, data, ty)?))
    }

    fn compiled(
        &self,
        compiled: &Compiled,
        ty: &Type,
        argument: Option<Value<Leaf>>,
    ) -> Result<Value<Leaf>, Raised> {
        attached(|py| {
            let runnable = self.runnable(py, compiled, ty)?;
            if runnable.draws() {
                // What clients draw comes from where the generator is before the server draws.
                self.numbers(py)?;
            }
            Ok(runnable.run(py, ty, argument)?)
        })
    }

    fn is_pure(&self, compiled: &Compiled, ty: &Type) -> bool {
        let asked = pyo3::Python::attach(|py| self.runnable(py, compiled, ty));
        asked.is_ok_and(|runnable| runnable.is_pure())
    }

    fn draws(&self, compiled: &Compiled, ty: &Type) -> bool {
        let asked = pyo3::Python::attach(|py| self.runnable(py, compiled, ty));
        asked.is_ok_and(|runnable| runnable.draws())
    }

    fn clients_at_once(&self, compiled: &Compiled, ty: &Type) -> usize {
        if self.is_exact {
            return 1;
        }
        pyo3::Python::attach(|py| self.runnable(py, compiled, ty)?.clients_at_once(py)).unwrap_or(1)
    }

    fn drawing<R>(&self, work: impl FnOnce() -> Result<R, Raised>) -> Result<R, Raised> {
        attached(|py| Ok(self.numbers(py)?.call_method0("enter").map(drop)?))?;
        let _leaving = Leaving(self);
        work()
    }

    fn draw_for(&self, draw: Draw) -> Result<(), Raised> {
        attached(|py| {
            let numbers = self.numbers(py)?;
            numbers.call_method1(intern!(py, "become"), (draw.map, draw.client))?;
            Ok(())
        })
    }

    fn together(
        &self,
        compiled: &Compiled,
        ty: &Type,
        arguments: &[Value<Leaf>],
        draw: Option<Draw>,
    ) -> Result<Option<Vec<Value<Leaf>>>, Raised> {
        attached(|py| {
            let drawn = match draw {
                Some(first) => Some(Drawn { numbers: self.numbers(py)?, first }),
                None => None,
            };
            Ok(self.runnable(py, compiled, ty)?.run_together(py, arguments, drawn.as_ref())?)
        })
    }

    fn zero(&self, ty: &TensorType) -> Result<Leaf, Raised> {
        attached(|py| {
            let zero = match ty.dtype {
                DType::Str => pyo3::types::PyBytes::new(py, b"").into_any(),
                _ => 0i64.into_pyobject(py).expect("ints are objects").into_any(),
            };
            Ok(full(py, &zero, ty)?)
        })
    }

    fn bound(&self, bound: End, ty: &TensorType) -> Result<Leaf, Raised> {
        attached(|py| {
            let value = match ty.dtype.kind() {
                Kind::Float => {
                    let end = if bound == End::Most { f64::INFINITY } else { f64::NEG_INFINITY };
                    pyo3::types::PyFloat::new(py, end).into_any()
                }
                _ => {
                    let dtype = dtypes::to_numpy(py, ty.dtype)?;
                    let info = numpy(py)?.call_method1("iinfo", (dtype,))?;
                    info.getattr(if bound == End::Most { "max" } else { "min" })?
                }
            };
            Ok(full(py, &value, ty)?)
        })
    }

    fn combine(
        &self,
        how: Combine,
        left: &Leaf,
        right: &Leaf,
        ty: &TensorType,
    ) -> Result<Leaf, Raised> {
        attached(|py| {
            let (left, right, in_torch) = alike(left.bind(py)?, right.bind(py)?)?;
            let of_two = |name| -> PyResult<_> {
                match torch(py)? {
                    Some(torch) if in_torch => torch.call_method1(name, (&left, &right)),
                    _ => numpy(py)?.call_method1(name, (&left, &right)),
                }
            };
            let made = match how {
                Combine::Add => left.add(&right)?,
                Combine::Multiply => left.mul(&right)?,
                Combine::Divide if ty.dtype.is_integer() => left.floor_div(&right)?,
                Combine::Divide => left.div(&right)?,
                Combine::Min => of_two("minimum")?,
                Combine::Max => of_two("maximum")?,
            };
            if in_torch {
                return Ok(Leaf::new(made));
            }
            // Integers divide to floats of another size, and operators turn arrays of one element
            // without dimensions into scalars.
            let dtype = dtypes::to_numpy(py, ty.dtype)?;
            Ok(Leaf::new(match made.getattr("dtype")?.eq(&dtype)? {
                true => made,
                false => made.call_method1("astype", (dtype,))?,
            }))
        })
    }

    fn begin_sum(&self, _: &TensorType) -> Result<Sums, Raised> {
        Ok(Sums::default())
    }

    fn add_to_sum(
        &self,
        sum: &mut Sums,
        leaves: &[&Leaf],
        weights: Option<&[f64]>,
        ty: &TensorType,
    ) -> Result<(), Raised> {
        // No order makes a difference: sums are exact, or wrap around.
        if let Some(order) = by_batches(leaves) {
            let leaves: Vec<&Leaf> = order.iter().map(|&at| leaves[at]).collect();
            let weights: Option<Vec<f64>> =
                weights.map(|weights| order.iter().map(|&at| weights[at]).collect());
            return self.add_to_sum(sum, &leaves, weights.as_deref(), ty);
        }
        if is_rounded(ty) {
            return attached(|py| Ok(sum.add(py, leaves, weights, ty)?));
        }
        let mut left = leaves;
        while let Some(leaf) = left.first() {
            let together = attached(|py| Ok(sums::integers_in_one(py, left, ty)?))?;
            let (next, count) = together.unwrap_or_else(|| ((*leaf).clone(), 1));
            left = &left[count..];
            sum.integers = Some(match sum.integers.take() {
                None => next,
                Some(so_far) => self.combine(Combine::Add, &so_far, &next, ty)?,
            });
        }
        Ok(())
    }

    fn finish_sum(
        &self,
        sum: Sums,
        divided_by: Option<f64>,
        ty: &TensorType,
    ) -> Result<Leaf, Raised> {
        if is_rounded(ty) {
            return attached(|py| Ok(Leaf::new(sum.finish(py, divided_by, ty)?)));
        }
        match sum.integers {
            Some(sum) => Ok(sum),
            None => self.zero(ty),
        }
    }

    fn unrounded(&self, sum: Sums, ty: &TensorType) -> Result<Leaf, Raised> {
        if is_rounded(ty) {
            return attached(|py| Ok(Leaf::new(sum.unrounded(py, ty)?)));
        }
        self.finish_sum(sum, None, ty)
    }

    fn merge_sums(&self, left: &Leaf, right: &Leaf, ty: &TensorType) -> Result<Leaf, Raised> {
        if is_rounded(ty) {
            return attached(|py| Ok(Leaf::new(sums::merge(py, left, right, ty)?)));
        }
        self.combine(Combine::Add, left, right, ty)
    }

    fn round(&self, sum: &Leaf, by: Option<f64>, ty: &TensorType) -> Result<Leaf, Raised> {
        if is_rounded(ty) {
            return attached(|py| Ok(Leaf::new(sums::round(py, sum, by, ty)?)));
        }
        Ok(sum.clone())
    }

    fn number(&self, leaf: &Leaf) -> Result<f64, Raised> {
        attached(|py| Ok(sums::number(py, leaf)?))
    }

    fn integer(&self, leaf: &Leaf) -> Result<i128, Raised> {
        attached(|py| Ok(leaf.bind(py)?.call_method0("__int__")?.extract()?))
    }

    fn range(&self, leaf: &Leaf) -> Result<Option<(i128, i128)>, Raised> {
        attached(|py| {
            let leaf = leaf.bind(py)?;
            let count: u64 = match is_torch(leaf)? {
                true => leaf.call_method0("numel")?.extract()?,
                false => leaf.getattr("size")?.extract()?,
            };
            if count == 0 {
                return Ok(None);
            }
            let end = |name| -> PyResult<i128> {
                leaf.call_method0(name)?.call_method0("__int__")?.extract()
            };
            Ok(Some((end("min")?, end("max")?)))
        })
    }

    fn scalars(&self, leaf: &Leaf) -> Result<Vec<Leaf>, Raised> {
        attached(|py| {
            let items = leaf.bind(py)?.try_iter()?;
            Ok(items.map(|item| item.map(Leaf::new)).collect::<PyResult<_>>()?)
        })
    }

    fn ends_all(&self, error: &Raised) -> bool {
        pyo3::Python::attach(|py| !error.0.is_instance_of::<PyException>(py))
    }

    fn at_client(&self, error: Raised, client: usize) -> Raised {
        pyo3::Python::attach(|py| {
            // An interrupt has nothing to do with the client.
            if !error.0.is_instance_of::<PyException>(py) {
                return;
            }
            let note = format!("at client {client}");
            // An exception that takes no notes is still the user's.
            let _ = error.0.value(py).call_method1("add_note", (note,));
        });
        error
    }

    fn waiting<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R {
        pyo3::Python::attach(|py| py.detach(wait))
    }

    fn working(&self, work: &mut (dyn FnMut() + Send)) {
        pyo3::Python::attach(|py| {
            self.working.begin(py);
            // Without the caller's settings the work is still the work.
            let _ = self.enter(py);
            work();
            drop(CONTEXT.take());
            self.working.end(py);
        });
    }

    fn interrupted(&self) -> Result<(), Raised> {
        attached(|_| Ok(()))
    }

    fn give_up(&self) {
        pyo3::Python::attach(|py| self.working.interrupt(py));
    }

    fn leave(&self, thread: JoinHandle<()>) {
        pyo3::Python::attach(|py| threads::leave(py, thread));
    }
}

//! Going back through tensors whose history began before the trace: what that leads to is asked by nodes.
//!
//! PyTorch's own notes say it (`grad_fn.next_functions`). A history is *plain* where no code of Python's and no hook is
//! among them: hooks of gradients, and those of saved tensors (offloading, checkpoints). Those of leaves may be known.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::{Active, Evaluated};
use stator_cpython::modules;
use stator_cpython::object::Object;

use crate::compiling;

/// So many of PyTorch's notes are looked at.
pub const LOOKED_AT: usize = 1 << 16;

/// Names of attributes.
type Names = Rc<[Py<PyString>]>;

thread_local! {
    /// Whether Python code ran while this thread went back.
    static RAN: Cell<bool> = const { Cell::new(false) };
    /// For each type of PyTorch's notes, by address: how it names the tensors that were saved. `None`: it doesn't say.
    static SAVED: RefCell<FxHashMap<usize, Option<Names>>> = RefCell::default();
}

/// CPython's evaluator, which tells that it is asked.
fn telling<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    RAN.set(true);
    compiling::pass_on(py, frame, throw)
}

/// Goes back; whether Python code ran on the way.
pub fn told<T>(py: Python<'_>, back: impl FnOnce() -> T) -> (T, bool) {
    let outer = RAN.replace(false);
    let result = {
        let _telling = Active::new(py, telling);
        back()
    };
    (result, RAN.replace(outer))
}

/// What going back through some tensors leads to.
#[pyclass(frozen, module = "stator._stator")]
pub struct Past {
    /// Whether nothing but PyTorch's own code runs on the way, as far as its notes say, and hooks of the leaves.
    pub is_plain: bool,
    /// The tensors that get gradients.
    pub leaves: Vec<Py<PyAny>>,
    /// Those of them that have hooks, which aren't PyTorch's own code.
    pub hooked: Vec<Py<PyAny>>,
    /// Their addresses.
    addresses: FxHashSet<usize>,
}

impl Past {
    /// Looks at what going back through these tensors leads to.
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn of<'py>(py: Python<'py>, tensors: &[Object<'py>]) -> PyResult<Self> {
        let mut past = Self {
            is_plain: !may_be_elsewhere(py),
            leaves: Vec::new(),
            hooked: Vec::new(),
            addresses: FxHashSet::default(),
        };
        let python = modules::import(py, "torch._C")?.getattr("_FunctionBase")?;
        let mut waiting = Vec::new();
        for tensor in tensors {
            waiting.push(tensor.getattr(pyo3::intern!(py, "grad_fn"))?);
        }
        past.is_plain &= waiting.iter().all(|function| !function.is_none());
        // They are kept: PyTorch's objects for its notes live as long as somebody has them.
        let mut met: FxHashMap<usize, Object<'py>> = FxHashMap::default();
        while let Some(function) = waiting.pop() {
            let address = function.as_ptr() as usize;
            if function.is_none() || !past.is_plain || met.contains_key(&address) {
                continue;
            }
            let is_known = met.len() < LOOKED_AT
                && !function.is_instance(&python)?
                && tensor::has_node_hooks(function.as_borrowed()) == Some(false)
                && match tensor::writes_plainly(function.as_borrowed()) {
                    Some(is_plain) => is_plain,
                    None => saves_plainly(&function)?,
                }
                && !is_sparse(&function)?;
            if !is_known {
                past.is_plain = false;
                break;
            }
            if let Some(leaf) = function.getattr_opt(pyo3::intern!(py, "variable"))? {
                past.is_plain &= tensor::is_ordinary(leaf.as_borrowed(), false);
                match tensor::has_hooks(leaf.as_borrowed()) {
                    Some(false) => {}
                    Some(true) => past.hooked.push(leaf.clone().unbind()),
                    None => past.is_plain = false,
                }
                past.addresses.insert(leaf.as_ptr() as usize);
                past.leaves.push(leaf.unbind());
            }
            for next in function.getattr(pyo3::intern!(py, "next_functions"))?.try_iter()? {
                waiting.push(next?.get_item(0)?);
            }
            met.insert(address, function);
        }
        Ok(past)
    }

    /// Whether it leads to this leaf.
    pub fn leads_to(&self, leaf: &Object<'_>) -> bool {
        self.addresses.contains(&(leaf.as_ptr() as usize))
    }
}

/// Whether the engine may go back in threads of its own: something has used a device.
fn may_be_elsewhere(py: Python<'_>) -> bool {
    ["torch.cuda", "torch.xpu"].into_iter().any(|name| {
        let is_begun = modules::import(py, name)
            .and_then(|module| module.getattr("_initialized")?.is_truthy());
        is_begun.unwrap_or(true)
    })
}

/// The names of the tensors that a type of PyTorch's notes has saved; `None`: it may have others.
fn saved_names(ty: &Bound<'_, PyType>) -> PyResult<Option<Names>> {
    let address = ty.as_ptr() as usize;
    if let Some(known) = SAVED.with_borrow(|saved| saved.get(&address).cloned()) {
        return Ok(known);
    }
    // Those that PyTorch generates are numbered, and say all.
    let name = ty.name()?.to_string();
    let is_generated = name.trim_end_matches(|it: char| it.is_ascii_digit()).ends_with("Backward");
    let is_other = matches!(&*name, "AccumulateGrad" | "CopyBackwards");
    let found = if is_generated && !name.ends_with("Backward") || is_other {
        let mut names = Vec::new();
        for name in ty.dir()? {
            let name = name.cast_into::<PyString>()?;
            if name.to_string_lossy().starts_with("_raw_saved_") {
                names.push(name.unbind());
            }
        }
        Some(names.into())
    } else {
        None
    };
    // PyTorch's types for its notes live as long as it does.
    SAVED.with_borrow_mut(|saved| saved.insert(address, found.clone()));
    Ok(found)
}

/// Whether no tensor that a function of PyTorch's has saved is packed by a hook.
fn saves_plainly(function: &Object<'_>) -> PyResult<bool> {
    let py = function.py();
    let Some(names) = saved_names(&function.get_type())? else { return Ok(false) };
    let is_plain = |saved: &Object<'_>| {
        saved.getattr(pyo3::intern!(py, "unpack_hook")).map(|hook| hook.is_none())
    };
    for name in &*names {
        let saved = function.getattr(name)?;
        let is_plain = match saved.cast::<PyTuple>() {
            Ok(all) => {
                all.iter().try_fold(true, |plain, it| Ok::<_, PyErr>(plain && is_plain(&it)?))?
            }
            Err(_) => is_plain(&saved)?,
        };
        if !is_plain {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a function of PyTorch's gives gradients of another layout than what they are for.
fn is_sparse(function: &Object<'_>) -> PyResult<bool> {
    let py = function.py();
    for name in [pyo3::intern!(py, "_saved_sparse"), pyo3::intern!(py, "_saved_sparse_grad")] {
        if let Some(said) = function.getattr_opt(name)?
            && said.is_truthy()?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// [`Held::Past`](crate::held::Held::Past).
///
/// `hooked`: the leaves whose hooks are known.
#[pyfunction]
pub fn past(
    py: Python<'_>,
    tensors: &Bound<'_, PyTuple>,
    hooked: &Bound<'_, PyTuple>,
) -> PyResult<Past> {
    let mut past = Past::of(py, &tensors.iter().collect::<Vec<_>>())?;
    let is_known = |leaf: &Py<PyAny>| hooked.iter().any(|known| leaf.is(&known));
    past.is_plain &= past.hooked.iter().all(is_known);
    Ok(past)
}

/// [`Held::IsPast`](crate::held::Held::IsPast).
#[pyfunction]
pub fn is_past(past: &Past, reached: &Bound<'_, PyTuple>, others: &Bound<'_, PyTuple>) -> bool {
    let leads_to = |leaf: Object<'_>| past.leads_to(&leaf);
    past.is_plain && reached.iter().all(leads_to) && !others.iter().any(leads_to)
}

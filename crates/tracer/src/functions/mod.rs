//! The table of C functions (and of PyTorch's Python functions that count as one operation).
//!
//! Every callable the evaluator calls and doesn't enter falls in one [`Class`], by identity: a C
//! function by its `PyMethodDef` (so that `x.add` and `torch.Tensor.add` are one row), anything
//! else by its address. What isn't in the table is opaque: it ends the trace.
//!
//! Rows are data: `rows` holds those of the standard library, `torch` those of PyTorch, `numpy` NumPy's; `python` holds
//! what is known of PyTorch's own Python code.

mod copying;
mod json;
mod module_call;
pub mod numpy;
mod orders;
mod parameters;
mod python;
mod reading;
mod rows;
mod signature;
mod static_attributes;
mod torch;
pub mod values;

use std::collections::hash_map::Entry;
use std::sync::Arc;

pub use numpy::REDUCTIONS;
pub use python::KnownFunction;
pub use reading::Reading;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rustc_hash::FxHashMap;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
use stator_operators::Row;

pub use copying::{Copying, ModuleCopying};
pub use module_call::{ModuleCall, Passes};
pub use signature::Signatures;
pub use stator_operators::{ArrayUse, Determined, Emitter, Model, Numeric, Range, Traits, Writes};
pub use torch::aten_operation;

use crate::breaks::Reason;

/// What a callable does, as far as a trace is concerned.
#[derive(Clone, Debug)]
pub enum Class {
    /// Executed and recorded as one node.
    Operation(Operation),
    /// The result depends on argument values alone; only for constants and containers of them.
    Pure,
    /// Moves references or calls its arguments back; reads containers whole.
    Transparent,
    /// Reads or writes what guards and side effects must know of.
    Model(Model),
    /// An instance of a C class that holds nothing but its arguments (exceptions, `object`, ...).
    Constructor,
    /// `torch.compiler.is_compiling()` and its relatives.
    IsCompiling,
    /// `stator.graph_break()`.
    GraphBreak,
    /// Reads process or thread state that is guarded at entry or switched by recorded nodes.
    StateRead,
    /// Gives a warning or a log record.
    Emitter(Emitter),
    /// Another function does the same, and can be traced; its own result is what is used.
    Instead(Arc<KnownFunction>),
    /// Another function does the same, and is run and traced in its place.
    Replaced(Arc<KnownFunction>),
    /// Known to be untraceable, with the reason for the user.
    Untraceable(Reason),
}

/// A tensor operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// As it prints: `torch.relu`, or a method's bare name.
    pub name: Box<str>,
    /// Whether it is a method of `torch.Tensor`.
    pub is_method: bool,
    /// Whether its result's shape follows from its inputs' metadata.
    pub determined: Determined,
}

impl Operation {
    fn described(&self) -> String {
        format!("Operation {}: {:?}", self.name, self.determined)
    }
}

impl Class {
    /// What a row says of callables that are no operations.
    fn of_row(row: &Row) -> Self {
        use stator_operators::{Class as Said, Why};
        match row.class {
            Said::Operation(_) => unreachable!("operations are added with their names"),
            Said::Pure => Class::Pure,
            Said::Transparent => Class::Transparent,
            Said::Model(model) => Class::Model(model),
            Said::Constructor => Class::Constructor,
            Said::IsCompiling => Class::IsCompiling,
            Said::GraphBreak => Class::GraphBreak,
            Said::StateRead => Class::StateRead,
            Said::Emitter(emitter) => Class::Emitter(emitter),
            Said::Untraceable(why) => Class::Untraceable(match why {
                Why::Unsupported => Reason::Unsupported,
                Why::Identity => Reason::Identity,
                Why::Frames => Reason::Instruction,
                Why::Opaque => Reason::OpaqueCall,
            }),
        }
    }
}

/// The table.
pub struct Functions {
    classes: FxHashMap<usize, Class>,
    /// What is in the table by its address, which another object would have if it died: a module may make a function anew
    /// each time that it is asked for it.
    held: Vec<Py<PyAny>>,
    traits: FxHashMap<usize, Traits>,
    numeric: FxHashMap<usize, Numeric>,
    writes: FxHashMap<usize, Writes>,
    module_member: Option<python::KnownFunction>,
    tensor_hash: Option<python::KnownFunction>,
    module_call: Option<ModuleCall>,
    signatures: Option<Signatures>,
    copying: Option<Copying>,
    module_copying: Option<ModuleCopying>,
}

impl Functions {
    /// The table of this process, built at the first use.
    ///
    /// # Errors
    /// If a module of the standard library lacks a function that a row names.
    pub fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static TABLE: PyOnceLock<Functions> = PyOnceLock::new();
        TABLE
            .get_or_try_init(py, || {
                let mut table = Functions {
                    classes: FxHashMap::default(),
                    traits: FxHashMap::default(),
                    held: Vec::new(),
                    numeric: FxHashMap::default(),
                    writes: FxHashMap::default(),
                    module_member: None,
                    tensor_hash: None,
                    module_call: None,
                    signatures: Signatures::find(py)?,
                    copying: Copying::find(py)?,
                    module_copying: None,
                };
                rows::add(py, &mut table)?;
                numpy::add(py, &mut table)?;
                if let Some(known) = KnownFunction::is_enabled_for(py)? {
                    table.classes.insert(known.address(), Class::Instead(Arc::new(known)));
                }
                if let Some(known) = json::encode(py)? {
                    table.replace(known);
                }
                orders::add(py, &mut table)?;
                static_attributes::add(py, &mut table)?;
                if let Ok(torch) = modules::import(py, "torch") {
                    torch::add(&torch, &mut table)?;
                    for known in KnownFunction::inference_mode(&torch)? {
                        table.replace(known);
                    }
                    table.module_member = python::KnownFunction::module_member(&torch)?;
                    table.tensor_hash = python::KnownFunction::tensor_hash(&torch)?;
                    table.module_call = ModuleCall::find(&torch)?;
                    table.module_copying = Some(ModuleCopying::find(&torch)?);
                }
                Ok(table)
            })
            // The table is never dropped while the process lives.
            .map(|table| -> &'static Self { table })
    }

    /// The class of a callable; `None`: opaque.
    #[must_use]
    pub fn class(&self, callable: Borrowed<'_, '_>) -> Option<&Class> {
        self.classes.get(&key(callable))
    }

    /// As [`Functions::class`], of a modelled callable.
    #[must_use]
    pub fn model(&self, callable: Borrowed<'_, '_>) -> Option<Model> {
        match self.class(callable)? {
            Class::Model(model) => Some(*model),
            _ => None,
        }
    }

    /// What else is known of a callable.
    #[must_use]
    pub fn traits(&self, callable: Borrowed<'_, '_>) -> Traits {
        self.traits.get(&key(callable)).copied().unwrap_or(Traits::NONE)
    }

    /// What a callable makes of symbolic numbers; `None`: of constants alone.
    #[must_use]
    pub fn numeric(&self, callable: Borrowed<'_, '_>) -> Option<Numeric> {
        self.numeric.get(&key(callable)).copied()
    }

    /// What a replay gives a method that changes a set or a deque; `None`: a trace can't follow it.
    #[must_use]
    pub fn writes(&self, callable: Borrowed<'_, '_>) -> Option<Writes> {
        self.writes.get(&key(callable)).copied()
    }

    /// Whether this is `torch.nn.Module.__getattr__`, and does what the recorder thinks it does.
    #[must_use]
    pub fn is_module_member(&self, function: Borrowed<'_, '_>) -> bool {
        self.module_member.as_ref().is_some_and(|known| known.is(function))
    }

    /// Whether this is `torch.Tensor.__hash__`, and does no more than give the tensor's address: C code
    /// that asks for it looks for the tensor itself among others.
    #[must_use]
    pub fn is_tensor_hash(&self, function: Borrowed<'_, '_>) -> bool {
        self.tensor_hash.as_ref().is_some_and(|known| known.is(function))
    }

    /// How `torch.nn.Module` calls `forward`, if it does so in the known way.
    #[must_use]
    pub fn module_call(&self) -> Option<&ModuleCall> {
        self.module_call.as_ref()
    }

    /// `inspect.signature`, if it is the standard library's.
    #[must_use]
    pub fn signatures(&self) -> Option<&Signatures> {
        self.signatures.as_ref()
    }

    /// The functions of `copy.deepcopy`, if they are the standard library's.
    #[must_use]
    pub fn copying(&self) -> Option<&Copying> {
        self.copying.as_ref()
    }

    /// The methods by which PyTorch's modules are copied.
    #[must_use]
    pub fn module_copying(&self) -> Option<&ModuleCopying> {
        self.module_copying.as_ref()
    }

    fn insert(&mut self, callable: &Bound<'_, PyAny>, class: Class) {
        self.held.push(callable.clone().unbind());
        self.classes.insert(key(callable.as_borrowed()), class);
    }

    /// Another function is traced in place of this one.
    fn replace(&mut self, known: KnownFunction) {
        self.classes.insert(known.address(), Class::Replaced(Arc::new(known)));
    }

    fn insert_row(&mut self, callable: &Bound<'_, PyAny>, row: &Row) {
        self.insert(callable, Class::of_row(row));
        self.traits.insert(key(callable.as_borrowed()), row.traits);
        if let Some(numeric) = row.numeric {
            self.numeric.insert(key(callable.as_borrowed()), numeric);
        }
        if let Some(writes) = row.writes {
            self.writes.insert(key(callable.as_borrowed()), writes);
        }
    }

    fn insert_new(&mut self, callable: &Bound<'_, PyAny>, class: Class) {
        if let Entry::Vacant(place) = self.classes.entry(key(callable.as_borrowed())) {
            self.held.push(callable.clone().unbind());
            place.insert(class);
        }
    }
}

/// What the table says of a callable, in words; `None`: it's opaque.
///
/// # Errors
/// If a module of the standard library lacks a function that a row names.
pub fn known(callable: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let functions = Functions::get(callable.py())?;
    if let Some(class) = functions.class(callable.as_borrowed()) {
        return Ok(Some(match class {
            Class::Operation(operation) => operation.described(),
            Class::Instead(_) | Class::Replaced(_) => "Instead".to_string(),
            class => format!("{class:?}"),
        }));
    }
    let operation = torch::aten_operation(callable.as_borrowed());
    Ok(operation.map(|operation| operation.described()))
}

fn key(callable: Borrowed<'_, '_>) -> usize {
    stator_cpython::generic::method_def(callable).unwrap_or(callable.as_ptr() as usize)
}

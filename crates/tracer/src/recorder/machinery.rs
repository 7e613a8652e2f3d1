//! PyTorch's machinery: functions that trace, transform or differentiate what they are given.
//!
//! Their frames do nothing that belongs into a graph, and call dozens of things that end a trace. So a
//! call of one is one break, at the user's own instruction; what it calls runs natively.

use std::cell::RefCell;

use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use stator_cpython::code::Code;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::Borrowed;

use crate::locate::text;

/// Where machinery stands: folders and files of PyTorch.
const PLACES: &[&str] = &[
    "torch/_export/",
    "torch/_functorch/apis.py",
    "torch/_functorch/autograd_function.py",
    "torch/_functorch/eager_transforms.py",
    "torch/_functorch/predispatch.py",
    "torch/_functorch/vmap.py",
    "torch/_higher_order_ops/",
    "torch/_library/",
    "torch/autograd/forward_ad.py",
    "torch/autograd/function.py",
    "torch/autograd/functional.py",
    "torch/autograd/gradcheck.py",
    "torch/autograd/graph.py",
    "torch/autograd/profiler.py",
    "torch/export/",
    "torch/fx/_symbolic_trace.py",
    "torch/fx/experimental/",
    "torch/nn/attention/flex_attention.py",
    "torch/onnx/",
    "torch/utils/checkpoint.py",
];

/// Which files are machinery. Looked up by the address of the name, which all code of a file shares.
#[derive(Default)]
pub(super) struct Machinery(RefCell<FxHashMap<usize, (Py<PyAny>, bool)>>);

impl Machinery {
    /// What a Python function is called, if it is machinery.
    pub(super) fn name(&self, function: Borrowed<'_, '_>) -> Option<String> {
        let code = value(function, Field::Code)?;
        let code = Code::of(code.as_borrowed())?;
        let file = code.filename();
        // What only stores its arguments needn't be one.
        if code.name().is(pyo3::intern!(function.py(), "__init__")) {
            return None;
        }
        let key = file.as_ptr() as usize;
        let known = self.0.borrow().get(&key).map(|(_, is_machinery)| *is_machinery);
        let is_machinery = known.unwrap_or_else(|| {
            let is_machinery = is_place(&text(file));
            self.0.borrow_mut().insert(key, (file.to_owned().unbind(), is_machinery));
            is_machinery
        });
        is_machinery.then(|| text(code.qualname()))
    }
}

fn is_place(file: &str) -> bool {
    let Some(at) = file.rfind("/torch/") else { return false };
    PLACES.iter().any(|place| file[at + 1..].starts_with(place))
}

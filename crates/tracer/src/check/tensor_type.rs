//! Whether what operators, conversions and metadata of tensors run is PyTorch's own.
//!
//! The recorder and replays take these for granted: nobody looks `__iadd__` or `shape` up. So they are a
//! fact of the process, like a mode that is on.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use stator_cpython::heap::{torch, types};
use stator_cpython::object::Object;

/// The name of the fact: its value is the names that were replaced, or [`NONE`].
pub const FACT: &str = "torch.Tensor's replaced methods";

/// Nothing was replaced.
pub const NONE: &str = "none";

/// What a trace takes for granted. Operators have forms in place (`__iadd__`) and reflected ones.
const OPERATORS: &str = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift";
const SPECIAL: &str = "eq ne lt le gt ge neg pos invert abs bool len iter next contains getitem setitem delitem \
    float int index complex hash format getattribute getattr setattr delattr torch_function";
const METADATA: &str = "shape dtype device ndim layout is_cuda is_cpu is_sparse is_sparse_csr is_quantized is_meta \
    is_mps is_xpu is_nested is_mkldnn is_ipu is_xla is_vulkan is_maia is_mtia requires_grad itemsize nbytes \
    __class__ T mT H mH real imag data";

/// What a class gave for a name when it was first asked.
struct First {
    name: Py<PyString>,
    found: [Option<Py<PyAny>>; 2],
}

/// The names that PyTorch's tensors have other methods for than PyTorch gives them.
pub fn replaced(py: Python<'_>) -> String {
    static FIRST: PyOnceLock<Vec<First>> = PyOnceLock::new();
    let Some(types) = torch::get(py).and_then(|torch| torch.types(py)) else {
        return NONE.to_owned();
    };
    let first =
        FIRST.get_or_init(py, || names().map(|name| First::ask(py, &types, &name)).collect());
    let replaced = first.iter().filter(|first| !first.holds(py, &types));
    let replaced: Vec<_> = replaced.map(|first| first.name.bind(py).to_string()).collect();
    if replaced.is_empty() { NONE.to_owned() } else { replaced.join(", ") }
}

fn names() -> impl Iterator<Item = String> {
    let operators = OPERATORS.split_whitespace();
    let forms = operators.flat_map(|name| ["", "i", "r"].map(|form| format!("__{form}{name}__")));
    let special = SPECIAL.split_whitespace().map(|name| format!("__{name}__"));
    forms.chain(special).chain(METADATA.split_whitespace().map(str::to_owned))
}

impl First {
    fn ask(py: Python<'_>, types: &[Bound<'_, PyType>; 2], name: &str) -> Self {
        let name = PyString::intern(py, name);
        let found = types.each_ref().map(|ty| Some(lookup(ty, &name)?.unbind()));
        Self { name: name.unbind(), found }
    }

    /// Whether both classes give what they gave, and that is PyTorch's.
    fn holds(&self, py: Python<'_>, types: &[Bound<'_, PyType>; 2]) -> bool {
        let name = self.name.bind(py);
        types.iter().zip(&self.found).all(|(ty, first)| match (lookup(ty, name), first) {
            (Some(found), Some(first)) => found.is(first) && is_own(&found),
            (None, None) => true,
            _ => false,
        })
    }
}

fn lookup<'py>(ty: &Bound<'py, PyType>, name: &Bound<'py, PyString>) -> Option<Object<'py>> {
    types::lookup(ty.as_borrowed(), name.as_any().as_borrowed())
}

/// Whether this is C code's, or a function in one of PyTorch's modules.
fn is_own(found: &Object<'_>) -> bool {
    let function = found.getattr("__func__").or_else(|_| found.getattr("fget"));
    let function = function.as_ref().unwrap_or(found);
    match function.getattr("__globals__").and_then(|globals| globals.get_item("__name__")) {
        Ok(module) => module.extract::<&str>().is_ok_and(|name| name.starts_with("torch.")),
        Err(_) => true,
    }
}

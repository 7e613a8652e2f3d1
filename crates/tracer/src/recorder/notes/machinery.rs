//! Python functions that aren't followed. PyTorch's machinery traces, transforms or differentiates what it is given. Its
//! functions that write and read files, and libraries that compute with NumPy's arrays, are Python around C code that no
//! trace has a place for.
//!
//! Their frames do nothing that belongs into a graph, and call dozens of things that end a trace. So a
//! call of one is one break, at the user's own instruction; what it calls runs natively.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;
use stator_cpython::code::Code;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::Borrowed;

use super::heap;
use super::kinds::Kind;
use crate::breaks::Reason;
use crate::locate::{text, within_packages, within_torch};
use crate::marks;
use crate::recorder::Recorder;

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
    "torch/_vmap_internals.py",
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

/// Functions that are machinery, in files that aren't: what makes and runs the functions and modules
/// of PyTorch's own tracer.
const FUNCTIONS: &[(&str, &[(&str, Name)])] = &[
    ("torch/__init__.py", &[("compile", Name::Fixed("torch.compile"))]),
    (
        "torch/_dynamo/eval_frame.py",
        &[
            ("_TorchDynamoContext.__call__.<locals>.compile_wrapper", Name::Wrapped),
            ("OptimizedModule.__call__", Name::Fixed("a module under torch.compile")),
        ],
    ),
];

/// Functions that write files and read them.
const FILES: (&str, &[(&str, Name)]) = (
    "torch/serialization.py",
    &[("load", Name::Fixed("torch.load")), ("save", Name::Fixed("torch.save"))],
);

/// Libraries of which no function is followed: their folders among the installed packages.
const LIBRARIES: &[&str] = &["scipy/", "sklearn/"];

/// Functions in such places that are followed all the same.
const PLAIN: &[(&str, &[&str])] = &[
    // They only ask a truth value what it is (`torch._check` calls them), or compare sizes.
    (
        "torch/fx/experimental/symbolic_shapes.py",
        &[
            "_advise_is_size",
            "_guard_or",
            "expect_true",
            "guard_or_false",
            "guard_or_true",
            "guard_size_oblivious",
            "statically_known_true",
            "sym_eq",
        ],
    ),
    // They only keep what they are given.
    (
        "torch/autograd/function.py",
        &[
            "BackwardCFunction._get_user_fn",
            "BackwardCFunction.apply",
            "FunctionCtx.mark_dirty",
            "FunctionCtx.mark_non_differentiable",
            "FunctionCtx.save_for_backward",
            "FunctionCtx.save_for_forward",
            "FunctionCtx.set_materialize_grads",
            "once_differentiable.<locals>.wrapper",
        ],
    ),
    // They call the program's function, and PyTorch's engine.
    (
        "torch/autograd/functional.py",
        &[
            "_as_tuple",
            "_as_tuple_nocheck",
            "_autograd_grad",
            "_check_requires_grad",
            "_fill_in_zeros",
            "_grad_postprocess",
            "_grad_preprocess",
            "_tuple_postprocess",
            "_validate_v",
            "hessian",
            "hessian.<locals>.ensure_single_output_function",
            "hessian.<locals>.jac_func",
            "hvp",
            "jacobian",
            "jvp",
            "vhp",
            "vjp",
        ],
    ),
    // They make a function of another one.
    (
        "torch/_functorch/apis.py",
        &[
            "_wraps_without_dynamo_attrs",
            "_wraps_without_dynamo_attrs.<locals>.inner",
            "grad",
            "grad_and_value",
            "vmap",
        ],
    ),
    ("torch/_functorch/eager_transforms.py", &["hessian", "jacfwd", "jacrev"]),
    ("torch/_functorch/vmap.py", &["_check_randomness_arg"]),
    // It makes functions that it checkpoints.
    (
        "torch/utils/checkpoint.py",
        &[
            "checkpoint_sequential",
            "checkpoint_sequential.<locals>.run_function",
            "checkpoint_sequential.<locals>.run_function.<locals>.forward",
        ],
    ),
    // It calls PyTorch's engine, which the table knows.
    ("torch/autograd/graph.py", &["_engine_run_backward"]),
    // They read flags.
    ("torch/onnx/__init__.py", &["is_in_onnx_export"]),
    ("torch/onnx/_internal/torchscript_exporter/_globals.py", &["_InternalGlobals.in_onnx_export"]),
];

/// What a function of [`FUNCTIONS`] is called to the user.
#[derive(Clone, Copy)]
enum Name {
    /// This.
    Fixed(&'static str),
    /// As the function that it runs, whose name it bears.
    Wrapped,
}

/// What isn't followed in a file.
#[derive(Clone, Copy)]
enum Part {
    Nothing,
    Everything(Reason),
    Functions(Reason, &'static [(&'static str, Name)]),
}

/// What is known of code objects and files, which are kept alive.
#[derive(Default)]
pub(in crate::recorder) struct Machinery {
    /// By the addresses of code objects.
    codes: RefCell<FxHashMap<usize, (Py<PyAny>, Known)>>,
    /// By the address of the file's name, which all code of a file shares.
    files: RefCell<FxHashMap<usize, (Py<PyAny>, Part)>>,
}

/// What a function's code says of it.
#[derive(Clone, Copy)]
pub(in crate::recorder) struct Known {
    /// Why it isn't followed, if so.
    pub unfollowed: Option<Reason>,
    /// It has a mark of PyTorch's: see [`marks::of_torch`].
    pub is_marked: bool,
}

impl Machinery {
    /// What a Python function's code says of it.
    pub(in crate::recorder) fn known(&self, function: Borrowed<'_, '_>) -> Option<Known> {
        let code = value(function, Field::Code)?;
        let key = code.as_ptr() as usize;
        if let Some((_, known)) = self.codes.borrow().get(&key) {
            return Some(*known);
        }
        let is_marked = marks::of_torch(function).is_some();
        let known = Known { unfollowed: self.unfollowed(code.as_borrowed()), is_marked };
        self.codes.borrow_mut().insert(key, (code.unbind(), known));
        Some(known)
    }

    fn unfollowed(&self, code: Borrowed<'_, '_>) -> Option<Reason> {
        let code = Code::of(code)?;
        // What only stores its arguments needn't be one.
        if code.name().is(pyo3::intern!(code.name().py(), "__init__")) {
            return None;
        }
        let file = code.filename();
        let key = file.as_ptr() as usize;
        let known = self.files.borrow().get(&key).map(|(_, part)| *part);
        let part = known.unwrap_or_else(|| {
            let part = part_of(&text(file));
            self.files.borrow_mut().insert(key, (file.to_owned().unbind(), part));
            part
        });
        match part {
            Part::Nothing => None,
            Part::Everything(why) => {
                (!is_plain(&text(file), &text(code.qualname()))).then_some(why)
            }
            Part::Functions(why, names) => named_in(names, &text(code.qualname())).map(|_| why),
        }
    }
}

/// What a C function that is machinery is called: from PyTorch 2.15 on, `apply` of custom functions.
pub(in crate::recorder) fn native_name(callable: Borrowed<'_, '_>) -> Option<&'static str> {
    let (_, descriptor) = heap::bound_class_method(callable)?;
    let py = callable.py();
    let owner = descriptor.getattr(pyo3::intern!(py, "__objclass__")).ok()?;
    let name = descriptor.getattr(pyo3::intern!(py, "__name__")).ok()?;
    let is_apply = owner.cast::<PyType>().ok()?.name().ok()? == "_FunctionBase"
        && name.extract::<&str>().ok()? == "apply";
    is_apply.then_some("Function.apply")
}

/// What a function that isn't followed is called.
pub(in crate::recorder) fn name(function: Borrowed<'_, '_>) -> String {
    let code = value(function, Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    let Some(code) = code else { return "a function of PyTorch's".into() };
    let own = text(code.qualname());
    let shown = || value(function, Field::Qualname).map(|shown| text(shown.as_borrowed()));
    match part_of(&text(code.filename())) {
        // Decorators of the library's stand around its functions.
        Part::Everything(Reason::OpaqueCall) => shown().unwrap_or(own),
        Part::Functions(_, names) => match named_in(names, &own) {
            Some(Name::Fixed(name)) => name.to_string(),
            Some(Name::Wrapped) => format!("{} under torch.compile", shown().unwrap_or(own)),
            None => own,
        },
        _ => own,
    }
}

fn named_in(names: &[(&str, Name)], qualname: &str) -> Option<Name> {
    names.iter().find(|(known, _)| *known == qualname).map(|(_, name)| *name)
}

fn is_plain(file: &str, qualname: &str) -> bool {
    let place = PLAIN.iter().find(|(place, _)| within_torch(file) == Some(*place));
    // What a function makes its results with is as plain as that: `f.<locals>.<genexpr>`.
    let made = qualname.rsplit_once(".<locals>.<").filter(|(_, of)| !of.contains('.'));
    let name = made.map_or(qualname, |(name, _)| name);
    place.is_some_and(|(_, names)| names.contains(&name))
}

fn part_of(path: &str) -> Part {
    let library = within_packages(path);
    if library.is_some_and(|file| LIBRARIES.iter().any(|folder| file.starts_with(folder))) {
        return Part::Everything(Reason::OpaqueCall);
    }
    let Some(file) = within_torch(path) else { return Part::Nothing };
    if PLACES.iter().any(|place| file.starts_with(place)) {
        return Part::Everything(Reason::Machinery);
    }
    if file == FILES.0 {
        return Part::Functions(Reason::OpaqueCall, FILES.1);
    }
    let functions = FUNCTIONS.iter().find(|(place, _)| file == *place);
    functions.map_or(Part::Nothing, |(_, names)| Part::Functions(Reason::Machinery, names))
}

impl Recorder {
    /// Whether a call is taken as a mark says, wherever it comes from: C code that calls such a
    /// function back would have its frame traced instead.
    pub(in crate::recorder) fn is_marked(&self, callable: Borrowed<'_, '_>) -> bool {
        match self.kind(callable) {
            Kind::Function => {
                marks::of(callable).is_some()
                    || self.is_allowed_by_torch(callable)
                    || self
                        .machinery
                        .known(callable)
                        .is_some_and(|known| known.unfollowed.is_some())
            }
            _ => marks::registered(callable).is_some(),
        }
    }

    pub(in crate::recorder) fn is_allowed_by_torch(&self, callable: Borrowed<'_, '_>) -> bool {
        self.allowed_by_torch.contains(&(callable.as_ptr() as usize))
    }
}

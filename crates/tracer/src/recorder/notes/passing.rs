//! Code of PyTorch's own that stands between a node and the program's code within it: nobody takes notes of it, as nothing
//! that the rest of the trace relies on is decided there. What the program's own code does in it is looked at.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
use stator_cpython::thread::Thread;

use super::enclosed::is_way_back;
use crate::locate::{text, within_torch};
use crate::recorder::Recorder;

/// Files whose functions are such code, wherever they are called from.
const BETWEEN: &[&str] = &["utils/checkpoint.py", "utils/hooks.py"];

/// Files and folders of PyTorch whose functions such code calls for the program: modules, operations written in Python.
const FOLLOWED: &[&str] = &["nn/", OPERATIONS];

/// Operations written in Python, of `torch` itself.
const OPERATIONS: &str = "functional.py";

/// What stands in such a folder, and is PyTorch's own: the function that module hooks are set on.
const OWN: &str = "nn/modules/_functions.py";

/// Folders of operations written in Python, which PyTorch's C code calls where it has none of its own.
const DECOMPOSED: &[&str] = &["_decomp/", "_prims/", "_prims_common/", "_refs/"];

/// What `torch.func` gives, and what it is given a function with: such a function runs the program's own.
const TRANSFORMS: &[(&str, &[&str])] = &[
    (
        "_functorch/apis.py",
        &["grad.<locals>.wrapper", "grad_and_value.<locals>.wrapper", "vmap.<locals>.wrapped"],
    ),
    (
        "_functorch/eager_transforms.py",
        &["jacfwd.<locals>.wrapper_fn", "jacrev.<locals>.wrapper_fn", "jvp", "vjp", PULLS_BACK],
    ),
];

/// What `vjp` gives beside its function's result.
const PULLS_BACK: &str = "_vjp_with_argnums.<locals>.wrapper";

/// A file, as far as this tells.
enum Place<'a> {
    /// One of PyTorch's, by its path in there.
    Torch(&'a str),
    /// One of the standard library's.
    Standard,
    /// Any other.
    Elsewhere,
}

fn place<'a>(py: Python<'_>, file: &'a str) -> Place<'a> {
    static STANDARD: PyOnceLock<Option<String>> = PyOnceLock::new();
    if let Some(file) = within_torch(file).and_then(|file| file.strip_prefix("torch/")) {
        return Place::Torch(file);
    }
    let find = || {
        let file = modules::import(py, "os").and_then(|os| os.getattr("__file__"));
        let file: String = file.and_then(|file| file.extract()).ok()?;
        file.strip_suffix("os.py").map(str::to_owned)
    };
    let standard = STANDARD.get_or_init(py, find).as_deref();
    let is_standard = standard
        .and_then(|folder| file.strip_prefix(folder))
        .is_some_and(|rest| !rest.starts_with("site-packages"));
    if is_standard || file.starts_with("<frozen ") { Place::Standard } else { Place::Elsewhere }
}

impl Recorder {
    /// Whether a frame that begins is one of such code.
    pub(in crate::recorder) fn is_between(&self, frame: &Frame<'_>) -> bool {
        if !self.state.try_borrow().is_ok_and(|state| state.enclosed.is_on()) {
            return false;
        }
        let is_between = self.is_between_nodes(frame);
        if is_between && let Ok(mut state) = self.state.try_borrow_mut() {
            state.enclosed.unnoted += 1;
        }
        is_between
    }

    fn is_between_nodes(&self, frame: &Frame<'_>) -> bool {
        let caller = Thread::current(frame.py()).frame(frame.py()).map(|caller| caller.id());
        let is_called = || caller.is_some() && self.between.borrow().last().copied() == caller;
        match place(frame.py(), &text(frame.code().filename())) {
            Place::Torch(_) if is_way_back(frame) => is_own_way_back(frame),
            Place::Torch(file) => {
                BETWEEN.contains(&file) && !is_sequential(&frame.code())
                    || is_listed(file, &text(frame.code().qualname()))
                    || DECOMPOSED.iter().any(|folder| file.starts_with(folder))
                    || (!is_followed(file) || self.is_librarys(frame, file)) && is_called()
            }
            Place::Standard => is_called(),
            Place::Elsewhere => is_named_tuples(frame) && is_called(),
        }
    }

    /// Whether PyTorch's code calls an operation written in Python for itself: nobody has handed it the function.
    fn is_librarys(&self, frame: &Frame<'_>, file: &str) -> bool {
        let function = frame.function();
        file == OPERATIONS
            && self.state.try_borrow().is_ok_and(|state| state.origin(function).is_none())
    }
}

fn is_listed(file: &str, qualname: &str) -> bool {
    let listed = TRANSFORMS.iter().find(|(known, _)| *known == file);
    listed.is_some_and(|(_, names)| names.contains(&qualname))
}

/// Whether a function of this file and name is one of [`TRANSFORMS`].
pub fn is_transform(file: &str, qualname: &str) -> bool {
    let within = within_torch(file).and_then(|file| file.strip_prefix("torch/"));
    within.is_some_and(|file| is_listed(file, qualname))
}

/// Whether a function is one that `vjp` gives: a node has made it, and it runs no function of the program's.
pub fn pulls_back(function: Borrowed<'_, '_>) -> bool {
    let code = value(function, Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    code.is_some_and(|code| {
        let name = text(code.qualname());
        name == PULLS_BACK && is_transform(&text(code.filename()), &name)
    })
}

fn is_followed(file: &str) -> bool {
    file != OWN && FOLLOWED.iter().any(|followed| file.starts_with(followed))
}

/// Whether code is looked at that such code calls: nobody would see what else does.
pub fn is_looked_at(code: &Code<'_>) -> bool {
    match place(code.name().py(), &text(code.filename())) {
        Place::Torch(file) => is_followed(file) || is_sequential(code),
        Place::Standard => false,
        Place::Elsewhere => true,
    }
}

/// Whether a frame is that of `__new__` of a named tuple, which the standard library makes of a text.
fn is_named_tuples(frame: &Frame<'_>) -> bool {
    let name = || frame.globals().get_item(pyo3::intern!(frame.py(), "__name__")).ok();
    text(frame.code().filename()) == "<string>"
        && name().is_some_and(|name| text(name.as_borrowed()).starts_with("namedtuple_"))
}

/// Whether code is that of `checkpoint_sequential`, which makes functions that it checkpoints.
fn is_sequential(code: &Code<'_>) -> bool {
    text(code.qualname()).starts_with("checkpoint_sequential")
}

/// Whether the custom function that such a frame goes back through is one of PyTorch's own.
fn is_own_way_back(frame: &Frame<'_>) -> bool {
    let class = frame.local(0).and_then(|own| own.getattr("_forward_cls").ok());
    let module = class.and_then(|class| class.getattr("__module__").ok());
    module.is_some_and(|module| {
        matches!(
            text(module.as_borrowed()).as_str(),
            "torch.utils.checkpoint" | "torch.nn.modules._functions"
        )
    })
}

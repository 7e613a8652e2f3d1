//! `stator.set_stance`: what the process's compiled functions do with calls that no trace fits.
//!
//! `torch.compiler.set_stance` says the same; where both say something, Stator's own holds.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use stator_cpython::heap::dict;
use stator_cpython::shortcut;

use crate::locate::text;

/// A stance, as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stance {
    /// A call that no trace fits is recorded.
    Default,
    /// Every call runs natively.
    ForceEager,
    /// Traces serve; other calls run natively.
    EagerOnRecompile,
    /// Traces serve; other calls are errors.
    FailOnRecompile,
}

static STANCE: AtomicU8 = AtomicU8::new(Stance::Default as u8);

impl Stance {
    /// Every stance; its place is its number.
    pub const ALL: [Self; 4] =
        [Self::Default, Self::ForceEager, Self::EagerOnRecompile, Self::FailOnRecompile];

    /// The name users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ForceEager => "force_eager",
            Self::EagerOnRecompile => "eager_on_recompile",
            Self::FailOnRecompile => "fail_on_recompile",
        }
    }

    /// The stance of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stance| stance.name() == name)
    }
}

/// The stance of the process.
#[inline]
#[must_use]
pub fn get(py: Python<'_>) -> Stance {
    match Stance::ALL[usize::from(STANCE.load(Ordering::Relaxed))] {
        Stance::Default => of_torch(py),
        own => own,
    }
}

/// The stance that `torch.compiler.set_stance` set, which its module keeps in a variable. Each call
/// asks, so it's read where that module's variables, or before it's loaded the modules, have changed.
#[inline]
fn of_torch(py: Python<'_>) -> Stance {
    /// Versions of these dictionaries when they were looked at.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    static FOUND: AtomicU8 = AtomicU8::new(Stance::Default as u8);
    let watched = watched(py);
    let version = dict::version(watched.as_borrowed());
    if SEEN.load(Ordering::Relaxed) != version {
        let found = match VARIABLES.get(py) {
            Some(variables) => read(variables.bind(py)),
            None => load(&watched).map_or(Stance::Default, |variables| {
                let found = read(&variables);
                VARIABLES.get_or_init(py, || variables.unbind());
                found
            }),
        };
        FOUND.store(found as u8, Ordering::Relaxed);
        SEEN.store(version, Ordering::Relaxed);
    }
    Stance::ALL[usize::from(FOUND.load(Ordering::Relaxed))]
}

static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static VARIABLES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The dictionary that PyTorch's stance follows from. It lives for ever.
pub fn watched(py: Python<'_>) -> Borrowed<'_, '_, PyAny> {
    let modules = || dict::modules(py).unwrap_or_else(|| PyDict::new(py).into_any()).unbind();
    let watched = VARIABLES.get(py).unwrap_or_else(|| MODULES.get_or_init(py, modules));
    watched.bind_borrowed(py)
}

/// The variables of PyTorch's module, if it is loaded.
fn load<'py>(modules: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let module = modules.cast::<PyDict>().ok()?.get_item("torch._dynamo.eval_frame").ok()??;
    let variables = module.cast_exact::<PyModule>().ok()?.dict();
    // While the module is being executed it isn't there yet.
    variables.contains("_stance").ok()?.then(|| variables.into_any())
}

/// The stance in PyTorch's variable. Those that Stator doesn't have are the default.
fn read(variables: &Bound<'_, PyAny>) -> Stance {
    let found = || {
        let stance = variables.cast::<PyDict>().ok()?.get_item("_stance").ok()??;
        let name = stance.getattr("stance").ok()?;
        Stance::of_name(&text(name.cast::<PyString>().ok()?.as_any().as_borrowed()))
    };
    found().unwrap_or(Stance::Default)
}

/// Takes a stance; returns the one before.
pub fn set(stance: Stance) -> Stance {
    shortcut::close_all();
    Stance::ALL[usize::from(STANCE.swap(stance as u8, Ordering::Relaxed))]
}

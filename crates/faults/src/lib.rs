//! Errors of Stator's own: caught, told, and asked for by tests.
//!
//! Whatever goes wrong here that isn't the user's program, a panic included, ends as a [`Fault`]: the call
//! ends as plain Python ends it, the function runs natively from then on, and one warning says what to
//! report (`stator.config.strict` raises it). [`contain`] runs a part of Stator so;
//! [`at`] is where tests let one fail.

#![deny(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering::Relaxed};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::thread::{self, Deferred};

thread_local! {
    /// Where the last panic was.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Has panics noted instead of printed: whoever catches one says what came of it.
pub fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        // A panic must not lead to another one here.
        let _ = PLACE.try_with(|known| {
            if let Ok(mut known) = known.try_borrow_mut() {
                *known = place;
            }
        });
    }));
}

/// An error of Stator's own.
#[derive(Clone, Debug)]
pub struct Fault(String);

impl Fault {
    /// Says what can't be.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// What a panic has left.
    #[must_use]
    pub fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("a panic without a message");
        let place = PLACE.with_borrow_mut(std::mem::take);
        Self(if place.is_empty() { text.to_owned() } else { format!("{text}\n  at {place}") })
    }

    /// What it says.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0
    }

    /// The fault as a `stator.InternalError`.
    #[must_use]
    pub fn error(&self, py: Python<'_>) -> PyErr {
        let _deferred = Deferred::new(py);
        let error = modules::import(py, "stator.errors")
            .and_then(|errors| errors.getattr("InternalError"))
            .and_then(|class| class.call1((self.what(),)));
        error.map_or_else(|error| error, PyErr::from_value)
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        Python::attach(|py| fault.error(py))
    }
}

/// Why a part of Stator didn't come to its end.
pub enum Escape {
    /// It is Stator's own error.
    Fault(Fault),
    /// It isn't: an interrupt, memory that is used up, an error that a user is to see.
    Raised(PyErr),
}

impl Escape {
    /// Whose error this is.
    #[must_use]
    pub fn of(py: Python<'_>, error: PyErr) -> Self {
        let _deferred = Deferred::new(py);
        // `into_value`: with its traceback, which tells who has raised it.
        let described = modules::import(py, "stator._internal")
            .and_then(|module| module.getattr("own_error"))
            .and_then(|own_error| own_error.call1((error.clone_ref(py).into_value(py),)))
            .and_then(|described| described.extract::<Option<String>>());
        match described {
            Ok(Some(what)) => Self::Fault(Fault(what)),
            Ok(None) => Self::Raised(error),
            Err(other) => {
                Self::Fault(Fault(format!("{error}, and while that was looked at {other}")))
            }
        }
    }
}

/// Runs a part of Stator that runs no code of the user's. Signals wait: what their handlers raise is never
/// taken for an error here.
///
/// # Errors
/// Whose error it was.
pub fn contain<T>(py: Python<'_>, run: impl FnOnce() -> PyResult<T>) -> Result<T, Escape> {
    let _deferred = Deferred::new(py);
    contain_call(py, run)
}

/// As [`contain`], where code of the user's runs whose errors are told apart. Whoever does Stator's own work in
/// it lets signals wait meanwhile.
///
/// # Errors
/// Whose error it was.
pub fn contain_call<T>(py: Python<'_>, run: impl FnOnce() -> PyResult<T>) -> Result<T, Escape> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Escape::of(py, error)),
        Err(payload) => Err(Escape::Fault(Fault::of_panic(&*payload))),
    }
}

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident $name:literal)*) => {
        /// A part of Stator's work that a test can let fail.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        /// The names that tests know the stages by.
        const STAGES: &[(&str, Stage)] = &[$(($name, Stage::$stage)),*];
    };
}

stages! {
    /// A call's arguments are bound, its entries searched.
    Lookup "lookup"
    /// A recording is about to begin.
    Begin "begin"
    /// A frame is entered.
    Frame "frame"
    /// Something is written down about an instruction.
    Note "note"
    /// A call or an operation was executed, and the recorder looks at what came of it.
    Executed "executed"
    /// The recorder is about to look at something, or has just done so.
    Look "look"
    /// An instruction is about to be recorded.
    Step "step"
    /// A function of PyTorch's that C code calls is recorded.
    Mode "mode"
    /// A trace is taken apart.
    Finish "finish"
    /// Its guards are compiled.
    Guards "guards"
    /// A recorded call's traces are taken over.
    Settle "settle"
    /// A replay begins.
    Replay "replay"
    /// A graph is compiled for the replay.
    Program "program"
    /// A graph is described to a backend.
    Export "export"
    /// A graph is about to run.
    Run "run"
    /// A node of the graph is about to run.
    Operation "operation"
    /// A node of the graph has run, and its result is kept.
    Kept "kept"
    /// Results are made.
    Build "build"
    /// Something outside is about to be written.
    Effect "effect"
    /// A frame was made again behind a break, and is about to go on.
    Made "made"
    /// A frame that was made again looks for what comes next.
    Behind "behind"
    /// A replay behind a break has ended, and the frames are to go where it ended.
    Taken "taken"
}

/// The stage that fails, from 1 on; 0: none.
static ARMED: AtomicU8 = AtomicU8::new(0);
static PANICS: AtomicU8 = AtomicU8::new(0);
/// Whether it fails each time from then on.
static ALWAYS: AtomicU8 = AtomicU8::new(0);
/// How often the stage is passed until it fails.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The signal that comes instead of a failure; 0: none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// How often it was passed since it was armed.
static PASSED: AtomicU64 = AtomicU64::new(0);

/// Fails where a test wants it to.
///
/// # Errors
/// As the test asked.
#[inline(always)]
pub fn at(stage: Stage) -> Result<(), Fault> {
    if ARMED.load(Relaxed) == 0 { Ok(()) } else { pass(stage) }
}

/// As [`at`], where nothing but a panic can fail.
#[inline(always)]
pub fn look() {
    if ARMED.load(Relaxed) != 0 {
        pass(Stage::Look).expect("a look failed");
    }
}

/// Whether a test lets something fail.
#[must_use]
pub fn is_armed() -> bool {
    ARMED.load(Relaxed) != 0
}

#[cold]
#[inline(never)]
fn pass(stage: Stage) -> Result<(), Fault> {
    if ARMED.load(Relaxed) != stage as u8 + 1 {
        return Ok(());
    }
    let number = PASSED.fetch_add(1, Relaxed) + 1;
    let wanted = LEFT.load(Relaxed);
    if number != wanted && (ALWAYS.load(Relaxed) == 0 || number < wanted) {
        return Ok(());
    }
    let signal = SIGNAL.load(Relaxed);
    if signal != 0 {
        thread::trip(signal);
        return Ok(());
    }
    assert!(PANICS.load(Relaxed) == 0, "injected panic at {stage:?}");
    Err(Fault(format!("injected error at {stage:?}")))
}

/// Lets a stage fail when it is passed for the `number`th time (0: never, it is only counted), and each time
/// from then on if `always`. With a `signal`, that comes there instead.
#[pyfunction(name = "_inject")]
fn inject(stage: &str, number: u64, panics: bool, always: bool, signal: i32) -> PyResult<()> {
    let known = STAGES.iter().find(|(name, _)| *name == stage);
    let Some((_, stage)) = known else {
        return Err(PyRuntimeError::new_err(format!("no stage {stage}")));
    };
    PASSED.store(0, Relaxed);
    LEFT.store(number, Relaxed);
    SIGNAL.store(signal, Relaxed);
    PANICS.store(u8::from(panics), Relaxed);
    ALWAYS.store(u8::from(always), Relaxed);
    ARMED.store(*stage as u8 + 1, Relaxed);
    Ok(())
}

/// No stage fails any more; how often the stage was passed.
#[pyfunction(name = "_inject_nothing")]
fn inject_nothing() -> u64 {
    ARMED.store(0, Relaxed);
    PASSED.load(Relaxed)
}

/// The names of all stages.
#[pyfunction(name = "_stages")]
fn stages() -> Vec<&'static str> {
    STAGES.iter().map(|(name, _)| *name).collect()
}

/// Adds the functions to `_stator`.
///
/// # Errors
/// What Python raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inject, module)?)?;
    module.add_function(wrap_pyfunction!(inject_nothing, module)?)?;
    module.add_function(wrap_pyfunction!(stages, module)?)
}

//! A recording before the first one, for the sake of the caches.
//!
//! A process's first recording runs code that the processor has yet to read, and fills tables that are made when they
//! are first asked. So the first function that is compiled where PyTorch is loaded has a small program recorded
//! (`stator._rehearsal`) and the record thrown away. Nobody is to notice: it isn't done where anybody hears of
//! operations, calls or modules, or where Stator itself tells of what it does. Whatever goes wrong with it is let go of: the
//! call that comes may meet the same, and tells the user then.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::generic::WithoutGc;
use stator_cpython::heap::weak;
use stator_cpython::modules;
use stator_cpython::thread::{Deferred, Thread};
use stator_faults::{self as faults, Escape, contain_call};

use super::refusing::state_at_entry;
use crate::compiling::Answering;
use crate::entries::Entries;
use crate::logs;
use crate::recorder::{self, record};
use crate::resume::session::Session;
use crate::resume::testing::Breaks;

/// What has come of it, for tests.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Outcome {
    /// Nobody has begun with it.
    None,
    /// It has begun; or it was left out, as somebody would have noticed.
    LeftOut,
    /// Stator itself has failed.
    Failed,
    /// The record has breaks: the program shows less than it could.
    Broken,
    /// There was a record.
    Recorded,
}

/// Threads that come while it goes on don't wait for it.
static OUTCOME: AtomicU8 = AtomicU8::new(Outcome::None as u8);

/// What has come of it, in a word.
pub fn outcome() -> &'static str {
    ["none", "left out", "failed", "broken", "recorded"][OUTCOME.load(Relaxed) as usize]
}

/// Rehearses, once in a process.
///
/// # Errors
/// What isn't an `Exception`: somebody wants the program to end.
pub(super) fn rehearse(py: Python<'_>) -> PyResult<()> {
    if OUTCOME.load(Relaxed) != Outcome::None as u8 || !is_torch_loaded(py) {
        return Ok(());
    }
    let begun = OUTCOME.swap(Outcome::LeftOut as u8, Relaxed) != Outcome::None as u8;
    if begun || is_watched(py) {
        return Ok(());
    }
    let _deferred = Deferred::new(py);
    let _gc = WithoutGc::new(py);
    let _plain = Answering::new(false);
    let outcome = match contain_call(py, || play(py)) {
        Ok(outcome) => outcome,
        Err(Escape::Raised(error)) if !error.is_instance_of::<PyException>(py) => {
            return Err(error);
        }
        Err(_) => Outcome::Failed,
    };
    weak::forget_unwatched(py);
    OUTCOME.store(outcome as u8, Relaxed);
    Ok(())
}

fn is_torch_loaded(py: Python<'_>) -> bool {
    modules::loaded(py).is_some_and(|modules| modules.contains("torch.nn").unwrap_or(false))
}

/// Whether somebody would hear of what is run or recorded here.
fn is_watched(py: Python<'_>) -> bool {
    Thread::current(py).is_traced()
        || recorder::current().is_some()
        || logs::is_any_on()
        || faults::is_armed()
        || Breaks::now() != Breaks::None
}

fn play(py: Python<'_>) -> PyResult<Outcome> {
    let program = modules::import(py, "stator._rehearsal")?.call_method0("program")?;
    let Ok((function, args, kwargs)) =
        program.extract::<(Bound<'_, PyAny>, Bound<'_, PyTuple>, Bound<'_, PyDict>)>()
    else {
        return Ok(Outcome::LeftOut);
    };
    let Ok((global, generators)) = state_at_entry(py)? else { return Ok(Outcome::LeftOut) };
    let session = Rc::new(Session::new(Arc::default(), 1, false, None, true));
    let policy = Entries::default().policy(py, None);
    let result = record(
        function.as_borrowed(),
        args.as_any().as_borrowed(),
        Some(kwargs.as_any().as_borrowed()),
        global,
        generators,
        session.clone(),
        policy,
    )?;
    let is_returned = result.map_err(|raised| raised.take(py)).is_ok();
    let brought = session.finish();
    Ok(match (session.take_fault(), is_returned && brought.entry().is_some()) {
        (None, true) if brought.breaks.is_empty() => Outcome::Recorded,
        (None, _) => Outcome::Broken,
        (Some(_), _) => Outcome::Failed,
    })
}

//! Tracebacks of exceptions that are made again: they speak of frames that are made again too.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stator_cpython::modules;
use stator_cpython::object::Object;

use crate::recorder::TracebackEntry;

/// An exception, and its traceback with frames as numbers, the outermost one first.
pub type Raised = (Py<PyAny>, Box<[TracebackEntry]>);

/// Gives exceptions their tracebacks; `innermost` is the object of the last of `count` frames.
///
/// # Errors
/// What making a traceback raises.
pub fn attach(innermost: &Object<'_>, count: usize, raised: &[Raised]) -> PyResult<()> {
    let py = innermost.py();
    let mut frames = vec![innermost.clone()];
    for _ in 1..count {
        let outer = frames[frames.len() - 1].getattr("f_back")?;
        frames.push(outer);
    }
    frames.reverse();
    static PARTS: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    let (class, field) = PARTS.get_or_try_init(py, || {
        let class = modules::import(py, "types")?.getattr("TracebackType")?.unbind();
        let fields = py.get_type::<PyBaseException>().getattr("__dict__")?;
        PyResult::Ok((class, fields.get_item("__traceback__")?.unbind()))
    })?;
    for (exception, entries) in raised {
        let mut traceback = py.None().into_bound(py);
        for entry in entries.iter().rev() {
            let frame = &frames[entry.frame as usize];
            traceback = class.bind(py).call1((traceback, frame, entry.last, entry.line))?;
        }
        field.bind(py).call_method1("__set__", (exception, traceback))?;
    }
    Ok(())
}

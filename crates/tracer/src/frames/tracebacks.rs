//! Tracebacks of exceptions that are made again: they speak of frames that are made again too. And tracebacks of
//! what leaves a replay: they speak of the frames that plain Python would have had.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stator_cpython::frame::stand_in;
use stator_cpython::modules;
use stator_cpython::object::Object;
use stator_graph::{Graph, NodeId};

use crate::callers::Callers;
use crate::trace::TracebackEntry;

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

/// Whether an exception was raised by an operation that a `torch.fx.GraphModule` called: it runs one after the other.
pub fn ends_in_graph_module(py: Python<'_>, error: &PyErr) -> bool {
    let ends = || -> PyResult<bool> {
        let mut last = error.traceback(py).map(Bound::into_any);
        while let Some(next) = last.as_ref().map(|entry| entry.getattr("tb_next")).transpose()?
            && !next.is_none()
        {
            last = Some(next);
        }
        let Some(last) = last else { return Ok(false) };
        let file = last.getattr("tb_frame")?.getattr("f_code")?.getattr("co_filename")?;
        Ok(file.extract::<String>()?.starts_with("<eval_with_key>"))
    };
    ends().unwrap_or(false)
}

/// Puts the frames that the node was recorded in before those that an exception's traceback has. Nothing of them
/// is left but where they stood. Best effort: without it the exception is the same.
pub fn lead_in(py: Python<'_>, error: &PyErr, graph: &Graph, callers: &Callers, node: NodeId) {
    let lead = || -> PyResult<()> {
        let Some(stack) = graph.node(node).stack else { return Ok(()) };
        let class = modules::import(py, "types")?.getattr("TracebackType")?;
        let own = error.traceback(py).map(Bound::into_any);
        let mut traceback = own.unwrap_or_else(|| py.None().into_bound(py));
        for place in graph.stacks().walk(stack) {
            let Some((code, globals)) = callers.code(py, place.code) else { return Ok(()) };
            let unit = place.instruction as usize;
            let frame = stand_in(&code, globals, unit);
            let frame = frame.map_err(|raised| raised.take(py))?;
            let line = code.line_of(unit).unwrap_or(0);
            traceback = class.call1((traceback, frame, 2 * unit, line))?;
        }
        error.set_traceback(py, Some(traceback.cast_into()?));
        Ok(())
    };
    let _ = lead();
}

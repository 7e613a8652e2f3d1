//! Tracebacks of exceptions that are made again: they speak of frames that are made again too. And tracebacks of
//! what leaves a replay: they speak of the frames that plain Python would have had.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use stator_cpython::code::Code;
use stator_cpython::frame::stand_in;
use stator_cpython::modules;
use stator_cpython::object::Object;
use stator_graph::{Graph, NodeId};

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

/// Puts the frames that the node was recorded in before those that an exception's traceback has. Nothing of them
/// is left but where they stood. Best effort: without it the exception is the same.
pub fn lead_in(py: Python<'_>, error: &PyErr, graph: &Graph, codes: &[Py<PyAny>], node: NodeId) {
    let lead = || -> PyResult<()> {
        let Some(stack) = graph.node(node).stack else { return Ok(()) };
        let class = modules::import(py, "types")?.getattr("TracebackType")?;
        let own = error.traceback(py).map(Bound::into_any);
        let mut traceback = own.unwrap_or_else(|| py.None().into_bound(py));
        for place in graph.stacks().walk(stack) {
            let code = codes.get(place.code as usize).map(|code| code.bind_borrowed(py));
            let Some(code) = code.and_then(Code::of) else { return Ok(()) };
            let unit = place.instruction as usize;
            let frame = stand_in(&code, &globals_of(&code, py)?, unit);
            let frame = frame.map_err(|raised| raised.take(py))?;
            let line = code.line_of(unit).unwrap_or(0);
            traceback = class.call1((traceback, frame, 2 * unit, line))?;
        }
        error.set_traceback(py, Some(traceback.cast_into()?));
        Ok(())
    };
    let _ = lead();
}

/// The variables of the module that the code's file is of; none if that can't be found.
fn globals_of<'py>(code: &Code<'py>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    let file = code.filename();
    let modules = modules::import(py, "sys")?.getattr("modules")?;
    for module in modules.cast::<PyDict>()?.values() {
        let Ok(module) = module.cast_into_exact::<PyModule>() else { continue };
        if module.dict().get_item("__file__")?.is_some_and(|known| known.eq(file).unwrap_or(false))
        {
            return Ok(module.dict());
        }
    }
    Ok(PyDict::new(py))
}

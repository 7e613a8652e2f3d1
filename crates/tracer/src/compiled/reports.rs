//! What a compiled function tells its user: the records of the logs, and errors.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyFunction;
use stator_cpython::code::Code;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::modules;

use super::Compiled;
use crate::breaks::Break;
use crate::check::Failure;
use crate::entry::Entry;
use crate::locate::{shown_path, source_line, text};
use crate::lock;
use crate::logs::Log;

/// The function's qualified name.
pub(super) fn name(this: &Bound<'_, Compiled>) -> String {
    this.getattr("__qualname__").map_or_else(|_| "?".into(), |name| name.to_string())
}

/// Where the function is that the user wrote: that of a module's `forward`, as for [`name`].
pub(super) fn location(this: &Bound<'_, Compiled>) -> (String, u32) {
    let own = this.get().function.bind(this.py());
    let named = this.getattr_opt("_named_after").ok().flatten();
    match named.as_ref().and_then(|named| named.cast::<PyFunction>().ok()) {
        Some(named) => location_of(named),
        None => location_of(own),
    }
}

/// File and line of a function's first decorator or `def`.
fn location_of(function: &Bound<'_, PyFunction>) -> (String, u32) {
    let code = value(function.as_any().as_borrowed(), Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    code.map_or_else(
        || ("?".into(), 0),
        |code| (text(code.filename()), u32::try_from(code.firstlineno()).unwrap_or(0)),
    )
}

/// The record of the `graph_breaks` log.
pub(super) fn break_report(this: &Bound<'_, Compiled>, stop: &Break, what: &str) -> String {
    let py = this.py();
    let (file, line) = location(this);
    let head = format!("{what} {} ({}:{line})", name(this), shown_path(&file));
    format!("{head}\n{}", stop.report(&|place| source_line(py, &place.file, place.line)))
}

/// The record of the `recompiles` log.
pub(super) fn recompile_report(
    this: &Bound<'_, Compiled>,
    failures: &[(&Arc<Entry>, Failure)],
) -> String {
    let py = this.py();
    let (file, line) = location(this);
    let mut text = format!(
        "Recompiling function {} in {}:{line}\ntriggered by the following guard failure(s):",
        name(this),
        shown_path(&file)
    );
    for line in failure_lines(py, failures) {
        text += &format!("\n     - {line}");
    }
    text
}

/// The guards that failed, each with what was met and where it was read.
fn failure_lines(py: Python<'_>, failures: &[(&Arc<Entry>, Failure)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (entry, failure) in failures {
        let explained = entry.explain(py, failure);
        let place = explained.place.map_or_else(String::new, |place| format!(", read at {place}"));
        for (guard, found) in explained.facts {
            lines.push(format!("{guard}  # {found}{place}"));
        }
    }
    lines
}

/// The error of a call that no trace fits, under the stance `fail_on_recompile`.
pub(super) fn recompile_error(
    this: &Bound<'_, Compiled>,
    failures: &[(&Arc<Entry>, Failure)],
) -> PyErr {
    let py = this.py();
    let (file, line) = location(this);
    let error = modules::import(py, "stator.errors")
        .and_then(|errors| errors.getattr("RecompileError"))
        .and_then(|class| class.call1((name(this), file, line, failure_lines(py, failures))));
    error.map_or_else(|error| error, PyErr::from_value)
}

/// The error of a mark that a trace couldn't keep.
pub(super) fn mark_error(py: Python<'_>, dimension: &str, reason: &str) -> PyErr {
    let error = modules::import(py, "stator.errors")
        .and_then(|errors| errors.getattr("DynamicDimensionError"))
        .and_then(|class| class.call1((dimension, reason)));
    error.map_or_else(|error| error, PyErr::from_value)
}

/// The error of a break under `fullgraph`.
pub(crate) fn graph_break_error(py: Python<'_>, stop: &Break) -> PyErr {
    let error = modules::import(py, "stator.errors")
        .and_then(|errors| errors.getattr("GraphBreakError"))
        .and_then(|class| class.call1(stop.arguments()));
    error.map_or_else(|error| error, PyErr::from_value)
}

/// The records of a new entry.
pub(super) fn log_entry(this: &Bound<'_, Compiled>, entry: &Entry) {
    let py = this.py();
    if Log::GraphCode.is_on() {
        Log::GraphCode.emit(py, &entry.graph_code(py));
    }
    if Log::Graph.is_on() {
        Log::Graph.emit(py, &entry.graph_table());
    }
    if Log::GraphSizes.is_on() {
        Log::GraphSizes.emit(py, &entry.graph_sizes(&name(this)));
    }
    if Log::Guards.is_on() {
        let lines =
            if Log::Guards.is_verbose() { entry.guards_with_places(py) } else { entry.guards(py) };
        Log::Guards.emit(py, &lines.join("\n"));
    }
    if Log::Dynamic.is_on() {
        entry.dynamic_log().iter().for_each(|line| Log::Dynamic.emit(py, line));
    }
    if Log::SideEffects.is_on() {
        let lines = entry.side_effects(py);
        if !lines.is_empty() {
            Log::SideEffects.emit(py, &lines.join("\n"));
        }
    }
}

/// The records of the `bytecode` log: the function's own bytecode once, then the program of each
/// new trace.
pub(super) fn log_bytecode(this: &Bound<'_, Compiled>, made: &[Arc<Entry>]) {
    let py = this.py();
    let function = this.get().function.bind(py);
    let (file, line) = location_of(function);
    let name = function.getattr("__name__").map_or_else(|_| "?".into(), |name| name.to_string());
    let head = |what: &str, name: &str, file: &str, line: u32| {
        format!("{what} BYTECODE {name} {} line {line}", shown_path(file))
    };
    for entry in made {
        let number = {
            let mut state = lock(&this.get().state);
            let used = if entry.breaks() { 2 } else { 1 };
            state.listed += used;
            state.listed - used
        };
        let title = match entry.begins() {
            Some(place) => {
                let name = place.function.rsplit('.').next().unwrap_or(&place.function);
                head("MODIFIED", &format!("resume_in_{name}"), &place.file, place.line)
            }
            None => {
                let dis = modules::import(py, "dis").and_then(|dis| {
                    dis.call_method1("Bytecode", (function,))?.call_method0("dis")?.extract()
                });
                let dis: String = dis.unwrap_or_default();
                let title = head("ORIGINAL", &name, &file, line);
                Log::Bytecode.emit(py, &format!("{title}\n{}", dis.trim_end()));
                head("MODIFIED", &name, &file, line)
            }
        };
        let program = entry.bytecode(py, number);
        Log::Bytecode.emit(py, &format!("{title}\n{}", program.trim_end()));
    }
}

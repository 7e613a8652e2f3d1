//! The `_stator` extension module: exposes the crates below, owns no algorithm.

mod background;
mod bytecode;
mod federated;
mod operators;
mod programs;
mod steering;
mod storing;
mod testing;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::thread::Heard;
use stator_tracer::breaks::{self, Reason};
use stator_tracer::compiled::{self, Compiled, Stats};
use stator_tracer::logs;

/// Bit `i` switches the `i`-th log on.
#[pyfunction]
fn _set_log_mask(mask: u32) {
    logs::set_mask(mask);
}

/// Drops every trace of every compiled function.
#[pyfunction]
fn reset_all(py: Python<'_>) {
    compiled::reset_all(py);
}

/// The table of break reasons as a page, for `docs/breaks.md`.
#[pyfunction]
fn _breaks_page() -> String {
    breaks::page()
}

/// The table of break reasons: id, what, why and hint of each.
#[pyfunction]
fn _breaks() -> Vec<[&'static str; 4]> {
    let rows = Reason::ALL.iter();
    rows.map(|row| [row.id(), row.what(), row.why(), row.hint()]).collect()
}

/// Graphs with fewer operations run natively.
#[pyfunction]
fn _set_min_graph_ops(operations: u64) {
    stator_tracer::config::set_min_graph_ops(operations);
}

/// Whether calls of traces that gain nothing run natively.
#[pyfunction]
fn _set_skip_unprofitable(skips: bool) {
    stator_tracer::config::set_skip_unprofitable(skips);
}

/// Whether errors of Stator's own are raised.
#[pyfunction]
fn _set_strict(strict: bool) {
    stator_tracer::config::set_strict(strict);
}

/// When backends are asked for code, by number; `None`: their kind says so.
#[pyfunction]
fn _set_when(number: Option<u32>) {
    stator_tracer::config::set_when(number);
}

/// Calls a function of others within one of Stator's own: signal handlers run meanwhile.
#[pyfunction]
#[pyo3(signature = (function, *args, **kwargs))]
fn _while_signals_come<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _heard = Heard::new(function.py());
    function.call(args, kwargs)
}

#[pymodule]
fn _stator(module: &Bound<'_, PyModule>) -> PyResult<()> {
    stator_faults::note_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Compiled>()?;
    module.add_class::<Stats>()?;
    module.add_function(wrap_pyfunction!(_set_log_mask, module)?)?;
    module.add_function(wrap_pyfunction!(reset_all, module)?)?;
    module.add_function(wrap_pyfunction!(_set_min_graph_ops, module)?)?;
    module.add_function(wrap_pyfunction!(_set_skip_unprofitable, module)?)?;
    module.add_function(wrap_pyfunction!(_set_strict, module)?)?;
    module.add_function(wrap_pyfunction!(_set_when, module)?)?;
    module.add_function(wrap_pyfunction!(_breaks, module)?)?;
    module.add_function(wrap_pyfunction!(_breaks_page, module)?)?;
    module.add_function(wrap_pyfunction!(_while_signals_come, module)?)?;
    background::register(module)?;
    bytecode::register(module)?;
    operators::register(module)?;
    programs::register(module)?;
    federated::register(module)?;
    steering::register(module)?;
    storing::register(module)?;
    stator_tracer::check::testing::register(module)?;
    stator_faults::register(module)?;
    stator_tracer::accelerator::register(module)?;
    stator_tracer::resume::testing::register(module)?;
    testing::register(module)
}

//! Tells the user once of a PyTorch whose insides weren't found: calls are as right, but slower.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use stator_cpython::heap::torch::{self, Unfound};
use stator_cpython::modules;

use super::Compiled;
use super::reports::location;

/// Warns if something of this PyTorch has to be asked of its functions, the first time.
pub(super) fn tell(this: &Bound<'_, Compiled>) -> PyResult<()> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let py = this.py();
    let unfound = torch::unfound(py);
    if unfound.is_empty() {
        return Ok(());
    }
    TOLD.store(true, Ordering::Relaxed);
    let (file, line) = location(this);
    let warnings = modules::import(py, "stator._warnings")?;
    let is_native = unfound.contains(&Unfound::Tensors);
    let words: Vec<_> = unfound.into_iter().map(Unfound::word).collect();
    warnings.call_method1("unknown_torch", (file, line, words, is_native)).map(drop)
}

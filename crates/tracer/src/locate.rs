//! Places of instructions in the user's source, found when somebody asks.

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_cpython::code::Code;
use stator_graph::{Locate, Location};

/// Resolves code objects and units.
pub struct Places<'a, 'py> {
    /// GIL token.
    pub py: Python<'py>,
    /// Code objects by their index in the trace.
    pub codes: &'a [Py<PyAny>],
}

impl Places<'_, '_> {
    /// File, line and qualified name of an instruction.
    #[must_use]
    pub fn place(&self, code: u32, unit: u32) -> Option<(String, u32, String)> {
        let object = self.codes.get(code as usize)?.bind_borrowed(self.py);
        let code = Code::of(object)?;
        let line = code.line_of(unit as usize).unwrap_or(0);
        Some((string(&code.filename()), line, string(&code.qualname())))
    }
}

fn string(object: &Bound<'_, PyAny>) -> String {
    object
        .cast::<PyString>()
        .map_or_else(|_| "?".into(), |text| text.to_string_lossy().into_owned())
}

/// A line of a source file, stripped; empty if it can't be found.
#[must_use]
pub fn source_line(py: Python<'_>, file: &str, line: u32) -> String {
    let found = py
        .import("linecache")
        .and_then(|linecache| linecache.call_method1("getline", (file, line)))
        .and_then(|text| text.extract::<String>());
    found.map_or_else(|_| String::new(), |text| text.trim().to_string())
}

impl Locate for Places<'_, '_> {
    fn locate(&self, code: u32, instruction: u32) -> Option<Location> {
        let (file, line, function) = self.place(code, instruction)?;
        let code = source_line(self.py, &file, line);
        let is_library = file.contains("/torch/nn/modules/");
        Some(Location { file, line, function, code, is_library })
    }
}

//! Places of instructions in the user's source, found when somebody asks.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyString;
use rustc_hash::FxHashMap;
use stator_cpython::code::Code;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
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
        Some((text(code.filename()), line, text(code.qualname())))
    }
}

/// A string's text.
#[must_use]
pub fn text(object: Borrowed<'_, '_>) -> String {
    object
        .cast::<PyString>()
        .map_or_else(|_| "?".into(), |text| text.to_string_lossy().into_owned())
}

/// The path of a file of PyTorch's, from the package on.
#[must_use]
pub fn within_torch(file: &str) -> Option<&str> {
    file.rfind("/torch/").map(|at| &file[at + 1..])
}

/// The path of a file of an installed package, from the folder of all packages on.
#[must_use]
pub fn within_packages(file: &str) -> Option<&str> {
    ["/site-packages/", "/dist-packages/"]
        .into_iter()
        .find_map(|folder| file.rfind(folder).map(|at| &file[at + folder.len()..]))
}

/// A path as it is shown: relative to the current folder, if it lies in it.
#[must_use]
pub fn shown_path(file: &str) -> String {
    let folder = std::env::current_dir();
    let relative =
        folder.as_ref().ok().and_then(|folder| Path::new(file).strip_prefix(folder).ok());
    relative.and_then(Path::to_str).unwrap_or(file).to_owned()
}

/// A line of a source file, stripped; empty if it can't be found.
#[must_use]
pub fn source_line(py: Python<'_>, file: &str, line: u32) -> String {
    let found = modules::import(py, "linecache")
        .and_then(|linecache| linecache.call_method1("getline", (file, line)))
        .and_then(|text| text.extract::<String>());
    found.map_or_else(|_| String::new(), |text| text.trim().to_string())
}

/// Places that are found once: the nodes of a graph have most of their callers in common.
pub struct Remembered<'a, 'py> {
    places: Places<'a, 'py>,
    found: RefCell<FxHashMap<(u32, u32), Found>>,
}

type Found = Option<Rc<Location>>;

impl<'a, 'py> Remembered<'a, 'py> {
    /// None is found yet.
    #[must_use]
    pub fn new(places: Places<'a, 'py>) -> Self {
        Self { places, found: RefCell::default() }
    }
}

impl Locate for Remembered<'_, '_> {
    fn locate(&self, code: u32, instruction: u32) -> Option<Rc<Location>> {
        let place = (code, instruction);
        if let Some(known) = self.found.borrow().get(&place) {
            return known.clone();
        }
        let found = self.places.locate(code, instruction);
        self.found.borrow_mut().insert(place, found.clone());
        found
    }
}

/// Places as logs show them.
pub struct ShownPlaces<'a, 'py>(pub Places<'a, 'py>);

impl Locate for ShownPlaces<'_, '_> {
    fn locate(&self, code: u32, instruction: u32) -> Option<Rc<Location>> {
        let location = self.0.locate(code, instruction)?;
        let file = shown_path(&location.file);
        Some(Rc::new(Location { file, ..Rc::unwrap_or_clone(location) }))
    }
}

impl Locate for Places<'_, '_> {
    fn locate(&self, code: u32, instruction: u32) -> Option<Rc<Location>> {
        let (file, line, function) = self.place(code, instruction)?;
        let code = source_line(self.py, &file, line);
        let is_library = file.contains("/torch/nn/modules/");
        Some(Rc::new(Location { file, line, function, code, is_library }))
    }
}

//! What a trace knows of calls that it has made before.

use std::sync::Arc;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_guards::Vacancy;

/// What a trace knows of calls of modules.
#[derive(Default)]
pub struct ModuleCalls {
    /// The versions of classes whose modules are called in the plain way, by address.
    pub(in crate::recorder) classes: FxHashMap<usize, u32>,
    /// What has to hold of each module's instance dictionary.
    pub(in crate::recorder) vacancy: Option<Arc<Vacancy>>,
    /// [`State::writes`] when none was found to be of the keys that it speaks of.
    pub(in crate::recorder) unwritten: u64,
    /// Instance dictionaries for which it is guarded.
    pub(in crate::recorder) vacant: FxHashSet<usize>,
    pub(in crate::recorder) globals: Option<Globals>,
}

/// The namespaces that the second frame reads, as they were when it was evaluated.
pub(in crate::recorder) struct Globals {
    /// Each dictionary with its version.
    pub(in crate::recorder) namespaces: [(Py<PyAny>, u64); 3],
    pub(in crate::recorder) hooks: Vec<Py<PyAny>>,
}

/// What is asked for: a function's address, and whether by way of a bound method.
pub type Asked = (usize, bool);

/// The signatures that a trace knows.
#[derive(Default)]
pub struct Signatures {
    /// Those of which everything was read, with [`State::writes`] since then.
    known: FxHashMap<Asked, u64>,
}

impl Signatures {
    /// It is known, since so many writes.
    pub fn know(&mut self, asked: Asked, writes: u64) {
        self.known.insert(asked, writes);
    }

    /// Whether it is known, and nothing was written since.
    pub fn knows(&self, asked: Asked, writes: u64) -> bool {
        self.known.get(&asked) == Some(&writes)
    }
}

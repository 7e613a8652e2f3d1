//! The traces that begin at one place: at the call of a compiled function, or at a resume point.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use stator_cpython::object::Borrowed;

use crate::check::{Failure, Resolved};
use crate::entry::Entry;
use crate::policy::{History, Policy};

/// Why no entry fits.
pub type Failures<'a> = Vec<(&'a Arc<Entry>, Failure)>;

/// Entries, the most recently used first.
///
/// They are searched in a copy of the list: no lock may be held while guards are checked or a trace
/// runs.
#[derive(Clone, Default)]
pub struct Entries(Vec<Arc<Entry>>);

impl Entries {
    /// The entry that was used last.
    #[must_use]
    pub fn first(&self) -> Option<&Arc<Entry>> {
        self.0.first()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Entry>> {
        self.0.iter()
    }

    /// Which sizes and numbers another trace takes as symbols.
    pub fn policy(&self, py: Python<'_>, dynamic: Option<bool>) -> Policy {
        let mut history = History::default();
        if dynamic != Some(false) {
            self.iter().for_each(|entry| entry.tell(py, &mut history));
        }
        Policy::new(dynamic, history)
    }

    /// Adds one, which is tried first from now on.
    pub fn add(&mut self, entry: Arc<Entry>) {
        self.0.insert(0, entry);
    }

    /// The entry whose guards hold for these values. States that passed before are asked first, of
    /// all entries: that's quick.
    ///
    /// # Errors
    /// The first guard of each that doesn't hold.
    pub fn fitting<'py>(
        &self,
        py: Python<'py>,
        roots: &[Borrowed<'_, 'py>],
    ) -> Result<(&Arc<Entry>, Resolved<'py>), Failures<'_>> {
        let fast = self.0.iter().find_map(|entry| Some((entry, entry.check_fast(py, roots)?)));
        let mut failures = Failures::new();
        let passed = fast.or_else(|| {
            self.0.iter().find_map(|entry| match entry.check(py, roots) {
                Ok(resolved) => Some((entry, resolved)),
                Err(failure) => {
                    failures.push((entry, failure));
                    None
                }
            })
        });
        passed.ok_or(failures)
    }

    /// Takes one out.
    #[must_use]
    pub fn remove(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let at = self.0.iter().position(|known| Arc::ptr_eq(known, entry))?;
        Some(self.0.remove(at))
    }

    /// The entry was used.
    pub fn use_first(&mut self, entry: &Arc<Entry>) {
        if let Some(at) = self.0.iter().position(|known| Arc::ptr_eq(known, entry)) {
            self.0[..=at].rotate_right(1);
        }
    }

    /// Takes out one of those that no other call has fitted among so many: the first steps of a training, say.
    #[must_use]
    pub fn take_idle(&mut self, call: u64, most: u64) -> Option<Arc<Entry>> {
        let at = self.0.iter().rposition(|entry| entry.waits_in_vain(call, most))?;
        Some(self.0.remove(at))
    }

    /// Takes those out that can't fit any more. Who drops them must hold no lock: what dies with
    /// them may call the compiled function.
    #[must_use]
    pub fn take_dead(&mut self) -> Vec<Arc<Entry>> {
        let (alive, dead) = std::mem::take(&mut self.0).into_iter().partition(|e| e.is_alive());
        self.0 = alive;
        dead
    }

    /// Shows the garbage collector what only this list holds: an entry that a call holds too isn't
    /// its alone.
    ///
    /// # Errors
    /// What `visit` says.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut own = self.0.iter().filter(|entry| Arc::strong_count(entry) == 1);
        own.try_for_each(|entry| entry.traverse(visit))
    }
}

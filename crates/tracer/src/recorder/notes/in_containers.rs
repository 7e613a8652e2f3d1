//! Numbers that outside containers hold, taken as symbols.
//!
//! A symbolic number is an object of its own, so who takes it out of a container must find that object
//! there. Lists and dictionaries hold it while the trace goes on, and get back what they held. A tuple
//! may be a constant of anybody's code: another tuple stands for it.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use stator_cpython::object::{Borrowed, Object};

use super::heap;
use super::state::State;

/// What outside containers hold for the time of a trace.
#[derive(Default)]
pub struct Lending(Vec<Lent>);

struct Lent {
    container: Py<PyAny>,
    place: Place,
    own: Py<PyAny>,
    plain: Py<PyAny>,
}

/// Where a container holds it.
pub(in crate::recorder) enum Place {
    Index(usize),
    Key(Py<PyAny>),
}

impl Lending {
    /// Puts `own` where the container holds `plain`.
    pub(in crate::recorder) fn lend(
        &mut self,
        container: Borrowed<'_, '_>,
        place: Place,
        own: &Object<'_>,
        plain: Borrowed<'_, '_>,
    ) {
        let lent = Lent {
            container: container.to_owned().unbind(),
            place,
            own: own.clone().unbind(),
            plain: plain.to_owned().unbind(),
        };
        match (container.cast::<PyList>(), &lent.place) {
            (Ok(list), Place::Index(index)) => drop(list.set_item(*index, own)),
            _ => lent.exchange(container.py(), &lent.plain, &lent.own),
        }
        self.0.push(lent);
    }

    fn holds(&self, container: Borrowed<'_, '_>, key: Borrowed<'_, '_>) -> bool {
        self.0.iter().any(|lent| {
            let is_there = |place: &Place| matches!(place, Place::Key(known) if known.is(key));
            lent.container.is(container) && is_there(&lent.place)
        })
    }
}

impl Lent {
    /// Replaces an element by another, wherever it is by now; a dictionary's where it was.
    fn exchange(&self, py: Python<'_>, from: &Py<PyAny>, to: &Py<PyAny>) {
        let container = self.container.bind(py);
        if let (Ok(dict), Place::Key(key)) = (container.cast::<PyDict>(), &self.place) {
            let held = heap::dict_get(dict.as_any().as_borrowed(), key.bind_borrowed(py));
            if held.is_some_and(|held| held.is(from)) {
                // The key is a string that is there: nothing is compared by user code, and no order changes.
                let _ = dict.set_item(key, to);
            }
        } else if let Ok(list) = container.cast::<PyList>() {
            for (index, item) in heap::list_items(list.as_any().as_borrowed()).iter().enumerate() {
                if item.is(from) {
                    let _ = list.set_item(index, to);
                }
            }
        }
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        Python::attach(|py| {
            for lent in self.0.drain(..) {
                lent.exchange(py, &lent.own, &lent.plain);
            }
        });
    }
}

impl State {
    /// Whether a dictionary's slot holds the stand-in itself.
    pub fn is_lent(&self, dict: Borrowed<'_, '_>, key: Borrowed<'_, '_>) -> bool {
        self.symbols.as_ref().is_some_and(|symbols| symbols.lending.holds(dict, key))
    }
}

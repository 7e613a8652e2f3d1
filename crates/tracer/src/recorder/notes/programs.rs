//! What the trace of a tensor program notes beside the rest: what its call may write, and what it has to put back.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashSet;
use stator_cpython::object::Borrowed;
use stator_graph::StackId;
use stator_shapes::CondId;

use super::effects::Part;
use super::heap;
use super::state::State;
use crate::breaks::Reason;

/// What a program's trace notes beside the rest.
#[derive(Default)]
pub struct Notes {
    dicts: Vec<SavedDict>,
    /// The containers of the call's arguments, by their addresses: made for it, they are its own.
    pub(in crate::recorder) own: FxHashSet<usize>,
    /// Whether hardly any other sizes may be admitted than those of the traced call.
    pub(in crate::recorder) is_sized: bool,
    /// Facts about sizes that were assumed, and where.
    assumed: Vec<(CondId, StackId)>,
}

/// A dictionary before its first write.
struct SavedDict {
    dict: Py<PyAny>,
    before: Vec<(Py<PyAny>, Py<PyAny>)>,
    place: (u32, u32),
}

impl State {
    /// Whether an argument belongs to a program's call, so that nothing has to be found out about it.
    pub(in crate::recorder) fn is_own_argument(&self, value: Borrowed<'_, '_>) -> bool {
        self.program.as_ref().is_some_and(|notes| notes.own.contains(&(value.as_ptr() as usize)))
    }

    /// Takes note of where facts about sizes are assumed, in a program's trace.
    pub(in crate::recorder) fn assumed_in_program(&mut self, facts: &[CondId]) {
        if self.program.is_none() {
            return;
        }
        let here = self.frames.stack_here(&mut self.graph);
        if let (Some(here), Some(notes)) = (here, self.program.as_mut()) {
            notes.assumed.extend(facts.iter().map(|fact| (*fact, here)));
        }
    }

    /// Where a fact about sizes was assumed, by what it says.
    pub fn assumed_at(&self, says: impl Fn(CondId) -> bool) -> Option<StackId> {
        let assumed = &self.program.as_ref()?.assumed;
        assumed.iter().find(|(fact, _)| says(*fact)).map(|(_, stack)| *stack)
    }

    /// Takes note of a write in a program's trace: it must be one that can be taken back.
    pub(in crate::recorder) fn wrote_in_program(&mut self, object: Borrowed<'_, '_>, part: &Part) {
        let Some(notes) = self.program.as_mut() else { return };
        let is_known = |saved: &SavedDict| saved.dict.as_ptr() == object.as_ptr();
        match part {
            Part::Item { .. } if heap::is_exact_dict(object) => {
                if notes.dicts.iter().any(is_known) {
                    return;
                }
                let items = heap::dict_items(object).into_iter();
                let before = items.map(|(key, value)| (key.unbind(), value.unbind())).collect();
                let dict = object.to_owned().unbind();
                notes.dicts.push(SavedDict { dict, before, place: self.frames.here() });
            }
            _ => {
                let what = match part {
                    Part::Cell => "a variable of an enclosing function".to_string(),
                    Part::Context | Part::Reset(_) => "a context variable".to_string(),
                    Part::ClassAttribute(_) => "an attribute of a class".to_string(),
                    _ => format!("a {} from outside", heap::type_name(object)),
                };
                self.failure.get_or_insert((Reason::Impure, what));
            }
        }
    }

    /// Puts back what dictionaries held before the call. The place of the first write to one that had
    /// to be put back, and a key whose value had changed.
    ///
    /// # Errors
    /// What writing to a dictionary raises.
    pub fn take_back(&self, py: Python<'_>) -> PyResult<Option<((u32, u32), String)>> {
        let mut changed = None;
        let dicts = self.program.iter().flat_map(|notes| &notes.dicts);
        for SavedDict { dict, before, place } in dicts {
            let dict = dict.bind_borrowed(py);
            let now = heap::dict_items(dict);
            let is_same = now.len() == before.len()
                && now.iter().zip(before).all(|((key, value), (old_key, old))| {
                    heap::same_key(key.as_borrowed(), old_key.bind_borrowed(py)) && value.is(old)
                });
            if is_same {
                continue;
            }
            let same_keys = now.len() == before.len()
                && before
                    .iter()
                    .all(|(key, _)| heap::dict_get(dict, key.bind_borrowed(py)).is_some());
            let same_values = same_keys
                && before.iter().all(|(key, old)| {
                    heap::dict_get(dict, key.bind_borrowed(py)).is_some_and(|now| now.is(old))
                });
            // Where only the order differs, the program can hardly be said to have changed it: but it is
            // put back.
            if !same_values && changed.is_none() {
                let old = |key: Borrowed<'_, '_>| {
                    let mut old = before.iter();
                    old.find(|(old, _)| heap::same_key(old.bind_borrowed(py), key))
                };
                let differs = now.iter().find(|(key, value)| {
                    !old(key.as_borrowed()).is_some_and(|(_, old)| value.is(old))
                });
                let gone = || {
                    let gone = before
                        .iter()
                        .find(|(key, _)| heap::dict_get(dict, key.bind_borrowed(py)).is_none());
                    gone.map(|(key, _)| key.bind(py).clone())
                };
                let key = differs.map(|(key, _)| key.clone()).or_else(gone);
                let key = key.map_or_else(String::new, |key| heap::short_repr(key.as_borrowed()));
                changed = Some((*place, key));
            }
            let dict = dict.cast::<PyDict>()?;
            dict.clear();
            for (key, value) in before {
                dict.set_item(key, value)?;
            }
        }
        Ok(changed)
    }
}

//! Side effects: writes to outside dictionaries (attributes, globals, items), replayed at the end.
//!
//! A write is executed at once, as everything is. What a replay has to repeat is the last value of
//! each slot that was written. From its first write on, a slot is no outside read any more, and the
//! dictionary's keys are guarded as they were before it.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::object::Borrowed;
use stator_guards::{GuardKind, SourceId};

use super::Recorder;
use super::kinds::Kind;
use super::look as heap;
use super::objects::canonical_key;
use super::state::{State, Stop};

/// A slot that was written.
pub struct Effect {
    /// The dictionary.
    pub dict: Py<PyAny>,
    /// Its source.
    pub source: SourceId,
    /// The key.
    pub key: Py<PyAny>,
}

impl State {
    /// Takes note of a write (or deletion) of an outside dictionary's slot, before it happens.
    fn write_slot(
        &mut self,
        dict: Borrowed<'_, '_>,
        source: SourceId,
        key: Borrowed<'_, '_>,
        deletes: bool,
    ) -> Result<(), Stop> {
        let key = canonical_key(key);
        if self.kind(key.as_borrowed()) != Kind::Constant {
            let detail = format!("an item of a {}", heap::type_name(dict));
            return Err((crate::breaks::Reason::OutsideWrite, detail));
        }
        let slot = (dict.as_ptr() as usize, key.as_ptr() as usize);
        let present = heap::dict_get(dict, key.as_borrowed()).is_some();
        if !present || deletes {
            // The set of keys changes: what it was is read now or never.
            self.adopt_keys(dict)?;
        }
        if self.written.insert(slot) {
            self.objects.intern(key.as_borrowed());
            self.effects.push(Effect { dict: dict.to_owned().unbind(), source, key: key.unbind() });
        }
        Ok(())
    }

    /// Guards that a written dictionary isn't another one of which the same key was read.
    pub fn guard_written_distinct(&mut self) {
        let mut pairs = Vec::new();
        for effect in &self.effects {
            let address = effect.dict.as_ptr() as usize;
            let key = effect.key.as_ptr() as usize;
            for &(other, read) in &self.read_slots {
                if read == key
                    && other != address
                    && let Some(source) = self.source_at(other)
                {
                    pairs.push((effect.source, source));
                }
            }
        }
        for (written, read) in pairs {
            self.guard(written, GuardKind::Distinct(Box::new([read])));
        }
    }
}

impl Recorder {
    /// Notes a write to an outside dictionary; false: the dictionary is none, or the trace ended.
    pub(super) fn writes_slot(
        &self,
        frame: &Frame<'_>,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        deletes: bool,
    ) -> bool {
        let noted = self.note(frame, |state| match state.source(dict) {
            Some(source) => state.write_slot(dict, source, key, deletes).map(|()| true),
            None => Ok(false),
        });
        noted == Some(true)
    }
}

//! `copy.deepcopy`, done in one piece where nothing of the user's takes part: its memo is keyed by
//! addresses, so followed step by step it would end the trace at its first object.

use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, Peek};
use stator_cpython::heap::types::{Slot, SlotName};
use stator_cpython::hook::Suspended;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};

use super::Recorder;
use super::kinds::Kind;
use super::look as heap;
use super::state::{State, Stop};
use crate::functions::{Determined, Operation};

/// What of a class `object.__reduce_ex__` asks.
pub(super) const REDUCED: &[&str] =
    &["__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__"];

/// What of a class `copy.deepcopy` asks.
const ASKED: &[&str] = &[
    "__deepcopy__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
    "__setstate__",
    "__new__",
    "__getattribute__",
    "__getattr__",
    "__setattr__",
];

/// About how many instructions `copy.deepcopy` spends on an object.
const COPYING: u64 = 60;

impl Recorder {
    /// Whether a call of `copy.deepcopy` runs none of the user's code.
    pub(super) fn copies_plainly(
        &self,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
    ) -> bool {
        let ([object], None) = (args, names) else { return false };
        let mut seen = Vec::new();
        match self.kind(*object) {
            Kind::Tensor => !has_attributes(*object),
            _ => self.is_plain_to_copy(*object, &mut seen),
        }
    }

    fn is_plain_to_copy(&self, object: Borrowed<'_, '_>, seen: &mut Vec<usize>) -> bool {
        let kind = self.kind(object);
        let exact = heap::is_builtin_type(object.get_type().as_any().as_borrowed());
        let parts = match kind {
            Kind::Constant | Kind::Function | Kind::Type => return true,
            _ if seen.contains(&(object.as_ptr() as usize)) => return true,
            Kind::List | Kind::Tuple if exact => heap::children(object),
            Kind::Dict if exact => {
                let items = heap::dict_items(object).into_iter();
                items.flat_map(|(key, value)| [key, value]).collect()
            }
            Kind::Set if exact => heap::set_items(object),
            Kind::Object if is_plain_instance(object) => match dict::peek_instance_dict(object) {
                Peek::Dict(dict) => heap::children(dict.as_borrowed()),
                Peek::NotYet | Peek::NoPlace => Vec::new(),
            },
            _ => return false,
        };
        seen.push(object.as_ptr() as usize);
        parts.iter().all(|part| self.is_plain_to_copy(part.as_borrowed(), seen))
    }

    /// `copy.deepcopy` of what [`Recorder::copies_plainly`] allows.
    pub(super) fn deep_copy<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        object: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let args = [object];
        if self.kind(object) == Kind::Tensor {
            // What a program adds to a tensor is copied with it.
            self.note(frame, |state| match state.instance_dict(object) {
                Some(dict) => state.adopt_keys(dict.as_borrowed()),
                None => Ok(()),
            });
            let name = "copy.deepcopy".into();
            let operation = Operation { name, is_method: false, determined: Determined::EagerOnly };
            return self.tensor_call(frame, &operation, callable, &args, None);
        }
        let mut copied = Vec::new();
        self.guard_copied(frame, object, &mut copied);
        self.tally.instructions(COPYING * copied.len() as u64);
        let copy = {
            let _native = Suspended::new(frame.py());
            ops::call(callable, &args, None)?
        };
        self.note(frame, |state| state.register_copy(copy.as_borrowed()));
        Ok(copy)
    }

    /// Guards that nobody says elsewhere how a class is copied.
    fn guard_registered_copier(&self, frame: &Frame<'_>, class: &Bound<'_, PyType>) {
        let py = frame.py();
        let Ok(module) = modules::import(py, "copyreg") else { return };
        self.vouch(frame, module.as_any().as_borrowed());
        let name = pyo3::intern!(py, "dispatch_table").as_any().as_borrowed();
        if let Some(table) = self.instance_value(frame, module.as_any().as_borrowed(), name) {
            let class = class.as_any().as_borrowed();
            let found = heap::dict_get(table.as_borrowed(), class);
            self.note(frame, |state| state.read_key(table.as_borrowed(), class, found));
        }
    }

    /// Guards what a copy is made of, deeply, and how its classes are copied.
    fn guard_copied(&self, frame: &Frame<'_>, object: Borrowed<'_, '_>, seen: &mut Vec<usize>) {
        if seen.contains(&(object.as_ptr() as usize)) {
            return;
        }
        seen.push(object.as_ptr() as usize);
        self.guard_protocol(frame, object, ASKED);
        if self.kind(object) == Kind::Object {
            self.guard_registered_copier(frame, &object.get_type());
        }
        let parts = self.note(frame, |state| match state.kind(object) {
            Kind::List | Kind::Tuple => Ok(heap::children(object)),
            Kind::Dict => {
                state.adopt_dict(object)?;
                Ok(heap::children(object))
            }
            Kind::Object => match state.instance_dict(object) {
                Some(dict) => {
                    state.adopt_dict(dict.as_borrowed())?;
                    Ok(heap::children(dict.as_borrowed()))
                }
                None => Ok(Vec::new()),
            },
            _ => Ok(Vec::new()),
        });
        for part in parts.iter().flatten() {
            self.guard_copied(frame, part.as_borrowed(), seen);
        }
    }
}

impl State {
    /// Vouches for a copy: all of it is new, but for what copies share.
    fn register_copy(&mut self, object: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        let known = self.origin(object).is_some();
        self.register(object)?;
        if known {
            return Ok(());
        }
        let parts = match self.kind(object) {
            Kind::List | Kind::Tuple | Kind::Dict => heap::children(object),
            Kind::Object => self
                .instance_dict(object)
                .map_or_else(Vec::new, |d| heap::children(d.as_borrowed())),
            _ => return Ok(()),
        };
        parts.iter().try_for_each(|part| self.register_copy(part.as_borrowed()))
    }
}

/// Whether `copy.deepcopy` makes an instance by `object.__new__` and copies its dictionary.
fn is_plain_instance(object: Borrowed<'_, '_>) -> bool {
    let ty = object.get_type();
    stator_cpython::heap::types::is_heap(ty.as_borrowed())
        && stator_cpython::heap::types::slot(ty.as_borrowed(), SlotName::GetAttribute)
            == Slot::Default
        && !stator_cpython::heap::types::has_native_state(ty.as_borrowed())
        && heap::slot_values(object).is_empty()
        && !has_registered_copier(&ty)
        && !overrides_any(object, ASKED)
}

/// Whether the class of an object has one of these methods of its own.
pub(super) fn overrides_any(object: Borrowed<'_, '_>, names: &[&str]) -> bool {
    let ty = object.get_type();
    let own = |name: &&str| {
        let name = pyo3::types::PyString::intern(object.py(), name);
        let name = name.as_any().as_borrowed();
        let found = stator_cpython::heap::types::lookup(ty.as_borrowed(), name);
        let object = object.py().get_type::<PyAny>();
        let default = stator_cpython::heap::types::lookup(object.as_borrowed(), name);
        match (found, default) {
            (Some(found), Some(default)) => !found.is(&default),
            (found, None) => found.is_some(),
            (None, Some(_)) => true,
        }
    };
    names.iter().any(own)
}

fn has_registered_copier(class: &Bound<'_, PyType>) -> bool {
    let table =
        modules::import(class.py(), "copyreg").and_then(|module| module.getattr("dispatch_table"));
    table.map_or(true, |table| {
        heap::dict_get(table.as_borrowed(), class.as_any().as_borrowed()).is_some()
    })
}

fn has_attributes(object: Borrowed<'_, '_>) -> bool {
    match dict::peek_instance_dict(object) {
        Peek::Dict(dict) => heap::dict_length(dict.as_borrowed()) > 0,
        Peek::NotYet | Peek::NoPlace => false,
    }
}

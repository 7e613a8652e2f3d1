//! Parameters, buffers and submodules of an `nn.Module`: what `torch.nn.Module.__getattr__` reads, read
//! and guarded here without evaluating its frame.

use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, Lookup};
use stator_cpython::object::{Borrowed, Object};

use super::Recorder;
use super::attributes::Descriptor;
use super::kinds::Kind;
use super::look as heap;
use super::state::{State, Stop};
use crate::marks;

impl Recorder {
    /// What `getter`, the class's `__getattr__`, returns, if it is that of `nn.Module` and finds
    /// something; `None`: it's to be called.
    pub(super) fn module_member<'py>(
        &self,
        frame: &Frame<'py>,
        getter: Borrowed<'_, 'py>,
        owner: Borrowed<'_, 'py>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped()
            || !self.functions.is_module_member(getter)
            || self.kind(name) != Kind::Constant
            || self.is_marked(getter)
            || marks::registered(getter).is_some()
        {
            return None;
        }
        let py = frame.py();
        let dict_name = pyo3::intern!(py, "__dict__").as_any().as_borrowed();
        let descriptor = self.lookup(frame, ty, dict_name)?;
        if self.binding(frame, ty, dict_name, descriptor.as_borrowed()) != Descriptor::GetSet {
            return None;
        }
        let members = heap::instance_dict(owner)?;
        let containers = [
            pyo3::intern!(py, "_parameters"),
            pyo3::intern!(py, "_buffers"),
            pyo3::intern!(py, "_modules"),
        ];
        self.note(frame, |state| {
            state.know_instance_dict(owner, members.as_borrowed());
            if !state.enter_known(getter)? {
                return Ok(None);
            }
            for container in containers {
                let container = container.as_any().as_borrowed();
                let found = state.read_plain(members.as_borrowed(), container)?;
                let Some(found) = found else { return Ok(None) };
                let Some(container) = found else { continue };
                let found = state.read_plain(container.as_borrowed(), name)?;
                let Some(found) = found else { return Ok(None) };
                if let Some(member) = found {
                    state.register(member.as_borrowed())?;
                    return Ok(Some(member));
                }
            }
            Ok(None)
        })
        .flatten()
    }
}

impl State {
    /// Reads a slot of a plain dictionary, guarded. The outer `None`: it isn't one, or the lookup might
    /// run code.
    fn read_plain<'py>(
        &mut self,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Option<Option<Object<'py>>>, Stop> {
        if !heap::is_exact_dict(dict) {
            return Ok(None);
        }
        let value = match dict::get(dict, key) {
            Lookup::Found(value) => Some(value),
            Lookup::Absent => None,
            Lookup::Refused => return Ok(None),
        };
        self.read_key(dict, key, value.clone())?;
        Ok(Some(value))
    }
}

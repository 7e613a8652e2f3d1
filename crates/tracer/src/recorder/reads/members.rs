//! Attributes of instances whose class reads them in the plain way, and parameters, buffers and submodules
//! of an `nn.Module`: what `torch.nn.Module.__getattr__` reads, read and guarded here without evaluating
//! its frame.
//!
//! What a class has to do with it is found, and guarded, once in a trace: while the class stays as it is
//! (its version says so), the next read begins with the instance.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, Lookup};
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Holders};

use crate::marks;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Descriptor, Kind};
use crate::recorder::notes::members::Reads;
use crate::recorder::notes::state::{Origin, State, Stop};

/// What stands for a key among the slots that were read where holders of its dictionary lack it as well:
/// no object has an odd address.
const WITHIN: usize = 1;

/// The dictionaries that hold a module's members, in the order in which they are searched.
pub(super) fn containers(py: Python<'_>) -> [Borrowed<'_, '_>; 3] {
    [
        pyo3::intern!(py, "_parameters").as_any().as_borrowed(),
        pyo3::intern!(py, "_buffers").as_any().as_borrowed(),
        pyo3::intern!(py, "_modules").as_any().as_borrowed(),
    ]
}

impl Recorder {
    /// How a class reads attributes, if that is known and guarded.
    #[inline]
    pub(in crate::recorder) fn known_reads(&self, ty: &Bound<'_, PyType>) -> Option<Reads> {
        let state = self.state.borrow();
        let version = types::version_tag(ty.as_borrowed());
        let reads = state.members.reads(ty.as_ptr() as usize, version)?;
        // Once the trace has written a class, what a lookup finds may be its own.
        state.written.classes().is_empty().then_some(reads)
    }

    /// Remembers how a class reads attributes, where the lookups that say so are guarded.
    pub(in crate::recorder) fn remember_reads(&self, ty: &Bound<'_, PyType>, reads: Reads) {
        if self.is_stopped() || !types::assign_version(ty.as_borrowed()) {
            return;
        }
        let mut state = self.state.borrow_mut();
        if state.written.classes().is_empty() {
            let version = types::version_tag(ty.as_borrowed());
            state.members.set_reads(ty.as_ptr() as usize, version, reads);
        }
    }

    /// A member of a module whose class is known to have such, and to lack the name, as the module's own
    /// `dict` does. `None`: it has none, or what it has says nothing of the state at entry.
    pub(in crate::recorder) fn known_member<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        dict: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() || self.kind(name) != Kind::Constant {
            return None;
        }
        let member = self.note(frame, |state| state.find_member(owner, dict, name)).flatten()?;
        self.tally.member();
        Some(member)
    }

    /// What `getter`, the class's `__getattr__`, returns, if it is that of `nn.Module` and finds
    /// something; `None`: it's to be called.
    pub(in crate::recorder) fn module_member<'py>(
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
        self.tally.member();
        let found = self.note(frame, |state| {
            state.know_instance_dict(owner, members.as_borrowed());
            if !state.enter_known(getter)? {
                return Ok(None);
            }
            for container in containers(py) {
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
        });
        let member = found.flatten()?;
        if self.known_reads(ty) == Some(Reads::Plainly) {
            self.remember_reads(ty, Reads::Members);
        }
        Some(member)
    }
}

impl State {
    /// See [`Recorder::known_member`]. Looks first, then guards all that was looked at as one fact.
    fn find_member<'py>(
        &mut self,
        owner: Borrowed<'_, 'py>,
        dict: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>, Stop> {
        if !self.unread.is_empty()
            || !matches!(self.origin(owner), Some(Origin::Source(_)))
            || !heap::is_exact_dict(dict)
            || self.is_written_dict(dict)
        {
            return Ok(None);
        }
        let containers = containers(name.py());
        let key = name.as_ptr() as usize;
        let read = containers.iter().map(|name| name.as_ptr() as usize);
        if self.written.any_at(read.chain([key])) {
            return Ok(None);
        }
        let mut lacking = 0;
        let (container, holder, member) = loop {
            let Some(container) = containers.get(lacking).copied() else {
                return Ok(None);
            };
            let Lookup::Found(holder) = dict::get(dict, container) else { return Ok(None) };
            if !heap::is_exact_dict(holder.as_borrowed())
                || self.is_written_dict(holder.as_borrowed())
            {
                return Ok(None);
            }
            if dict::length(holder.as_borrowed()) != Some(0) {
                match dict::get(holder.as_borrowed(), name) {
                    Lookup::Found(member) => break (container, holder, member),
                    Lookup::Absent => {}
                    Lookup::Refused => return Ok(None),
                }
            }
            lacking += 1;
        };
        self.know_instance_dict(owner, dict);
        let Some(source) = self.source(dict) else { return Ok(None) };
        match self.holders(name.py(), lacking) {
            None => self.read_dict_slot(dict, name, None)?,
            Some(holders) => {
                if self.reads.first((dict.as_ptr() as usize, key | WITHIN)) {
                    let key = self.objects.intern(name);
                    let text = self.objects.repr(key, name);
                    self.guard(source, GuardKind::AbsentWithin { key, text, holders });
                }
            }
        }
        self.read_dict_slot(dict, container, Some(holder.as_borrowed()))?;
        self.read_dict_slot(holder.as_borrowed(), name, Some(member.as_borrowed()))?;
        Ok(Some(member))
    }

    fn is_written_dict(&self, dict: Borrowed<'_, '_>) -> bool {
        self.written.any_dict() && self.written.dict(dict.as_ptr() as usize)
    }

    /// The first so many dictionaries of members, as guards name them.
    fn holders(&mut self, py: Python<'_>, count: usize) -> Option<Arc<Holders>> {
        let place = count.checked_sub(1)?;
        if let Some(known) = self.members.holders(place) {
            return Some(known.clone());
        }
        let keys = containers(py).into_iter().take(count).map(|name| {
            let id = self.objects.intern(name);
            (id, self.objects.repr(id, name))
        });
        let holders = Arc::new(Holders(keys.collect()));
        *self.members.holders(place) = Some(holders.clone());
        Some(holders)
    }

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

//! What a trace knows of the values it began with: the slots of frames at a call or behind a graph
//! break.

use stator_cpython::frame::Frame;
use stator_cpython::object::Borrowed;
use stator_guards::SourceId;

use super::kinds::Kind;
use super::state::{Origin, State, Stop};
use crate::breaks::Reason;

impl State {
    /// A fast local holds `value` as the trace begins.
    pub fn hold(&mut self, slot: (usize, usize), source: SourceId, value: Borrowed<'_, '_>) {
        self.unchanged.insert(slot, (source, value.as_ptr() as usize));
        if self.holders.last() != Some(&slot.0) {
            self.holders.push(slot.0);
        }
    }

    /// A fast local was written.
    #[inline]
    pub fn release(&mut self, slot: (usize, usize)) {
        if self.holders.contains(&slot.0) {
            self.unchanged.remove(&slot);
        }
    }

    /// The source of what a fast local has held since the trace began.
    pub fn held(&self, slot: (usize, usize), value: Borrowed<'_, '_>) -> Option<SourceId> {
        let &(source, address) = self.unchanged.get(&slot)?;
        (address == value.as_ptr() as usize).then_some(source)
    }

    /// The root that holds this very constant.
    pub fn constant_root(&self, constant: Borrowed<'_, '_>) -> Option<SourceId> {
        self.constants.get(&(constant.as_ptr() as usize)).copied()
    }

    /// A frame leaves: another may take its address.
    pub fn forget_frame(&mut self, frame: &Frame<'_>, index: Option<usize>) {
        let id = frame.id();
        if index.is_some_and(|index| index + 1 == self.begun) {
            self.begun -= 1;
            let has_kept = |slot: &u32| {
                let slot = *slot as usize;
                frame.local(slot).is_some_and(|value| self.held((id, slot), value).is_some())
            };
            let kept = (0..frame.code().nlocalsplus() as u32).filter(has_kept).collect();
            self.left.push(kept);
        }
        if self.holders.contains(&id) {
            self.unchanged.retain(|(frame, _), _| *frame != id);
        }
    }

    /// A container under construction is about to change. Behind a graph break it's an outside
    /// object, but only the stack holds it: it may as well be made anew.
    pub fn own_container(&mut self, container: Borrowed<'_, '_>) -> Result<(), Stop> {
        match self.origin(container) {
            Some(Origin::Fresh) => Ok(()),
            Some(Origin::Source(_)) if self.on_stack.contains(&(container.as_ptr() as usize)) => {
                if self.kind(container) == Kind::Dict {
                    self.adopt_dict(container)?;
                }
                self.set_fresh(container);
                Ok(())
            }
            _ => Err((Reason::OutsideWrite, "a container under construction".into())),
        }
    }

    /// Takes note of an outside object that no guard can speak of.
    pub fn carry(&mut self, source: SourceId, object: Borrowed<'_, '_>) {
        self.objects.intern(object);
        self.carried.insert(object.as_ptr() as usize, source);
    }

    /// The source of an object that can only be passed on.
    pub fn carried(&self, object: Borrowed<'_, '_>) -> Option<SourceId> {
        self.carried.get(&(object.as_ptr() as usize)).copied()
    }
}

//! What a trace knows of the values it began with: the slots of frames at a call or behind a graph
//! break.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::object::Borrowed;
use stator_guards::{GuardKind, SourceId};

use super::heap;
use super::state::State;
use crate::breaks::Place;

/// What a trace began with.
///
/// Invariant: a frame that has left holds nothing here, because another may take its address.
#[derive(Default)]
pub struct Roots {
    /// Where the trace begins, if that isn't a call.
    pub place: Option<Place>,
    /// Fast locals (frame and slot) that hold what they held when the trace began.
    unchanged: FxHashMap<(usize, usize), (SourceId, usize)>,
    /// The frames of these locals.
    holders: Vec<usize>,
    /// How many of the frames the trace began in haven't left.
    frames: usize,
    /// Of those that have, innermost first: the fast locals that held to the end what they held when the
    /// trace began.
    left: Vec<Box<[u32]>>,
    /// Constants that fast locals or the stack held when the trace began, by address. Guards say
    /// that a replay's are equal; passing those on keeps their identity.
    constants: FxHashMap<usize, SourceId>,
    /// Values of the stack at a resume point, by address.
    on_stack: FxHashSet<usize>,
    /// Objects from outside that can only be passed on, by address.
    carried: FxHashMap<usize, SourceId>,
    /// The sources of `*args` and `**kwargs`.
    variadic: SmallVec<[SourceId; 2]>,
}

impl Roots {
    /// The trace begins behind a break, in so many frames.
    pub fn begin_in(&mut self, frames: usize) {
        self.frames = frames;
    }

    /// Whether the trace began behind a break, in frames of which some haven't left.
    pub fn are_behind_break(&self) -> bool {
        self.frames > 0
    }

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
    pub fn constant(&self, constant: Borrowed<'_, '_>) -> Option<SourceId> {
        self.constants.get(&(constant.as_ptr() as usize)).copied()
    }

    /// A constant is held at `source`: the first root that holds it.
    pub fn first_with(&mut self, constant: Borrowed<'_, '_>, source: SourceId) -> SourceId {
        *self.constants.entry(constant.as_ptr() as usize).or_insert(source)
    }

    /// The stack holds `value` as the trace begins.
    pub fn hold_on_stack(&mut self, value: Borrowed<'_, '_>) {
        self.on_stack.insert(value.as_ptr() as usize);
    }

    /// Whether the stack held an object as the trace began.
    pub fn is_on_stack(&self, object: Borrowed<'_, '_>) -> bool {
        self.on_stack.contains(&(object.as_ptr() as usize))
    }

    /// `*args` or `**kwargs` are found at `source`.
    pub fn hold_variadic(&mut self, source: SourceId) {
        self.variadic.push(source);
    }

    /// Whether `*args` or `**kwargs` are found at `source`.
    pub fn is_variadic(&self, source: SourceId) -> bool {
        self.variadic.contains(&source)
    }

    /// Whether all objects from outside can be looked at.
    #[inline]
    pub fn carry_nothing(&self) -> bool {
        self.carried.is_empty()
    }

    /// The source of an object that can only be passed on.
    pub fn carried(&self, object: Borrowed<'_, '_>) -> Option<SourceId> {
        self.carried.get(&(object.as_ptr() as usize)).copied()
    }

    /// A frame leaves, so another may take its address; `around` is how many active ones it was in.
    pub fn forget(&mut self, frame: &Frame<'_>, around: Option<usize>) {
        let id = frame.id();
        if around.is_some_and(|around| around + 1 == self.frames) {
            self.frames -= 1;
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

    /// The fast locals that frames kept to their end which have left so far, innermost first.
    pub fn left(&self) -> &[Box<[u32]>] {
        &self.left
    }

    /// The fast locals that frames which have left kept to their end, innermost first; where the trace began.
    pub fn into_parts(self) -> (Vec<Box<[u32]>>, Option<Place>) {
        (self.left, self.place)
    }
}

impl State {
    /// Takes note of an outside object that is only passed on, as no guard speaks of its parts. One that can't change, such as
    /// a frozenset of tuples, is guarded by its value: who meets it takes it for a constant.
    pub fn carry(&mut self, source: SourceId, object: Borrowed<'_, '_>) {
        let id = self.objects.intern(object);
        if heap::is_constant(object) {
            let is_none = object.is_none();
            self.guard(source, if is_none { GuardKind::IsNone } else { GuardKind::Equals(id) });
            return;
        }
        self.roots.carried.insert(object.as_ptr() as usize, source);
    }
}

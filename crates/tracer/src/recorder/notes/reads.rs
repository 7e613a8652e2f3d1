//! What a trace has read: sources that it looked at, and slots of objects that are guarded.
//!
//! Invariant: a slot is among these once it's guarded, or needs no guard; so each is guarded once.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use stator_cpython::object::Borrowed;
use stator_guards::SourceId;

use super::addresses::AddressSet;
use super::state::{Slot, State};

/// The reads of a trace.
pub struct Reads {
    /// Whether what was found at a source is guarded already, by source.
    seen: Vec<bool>,
    slots: AddressSet<Slot>,
    /// Containers that are being looked into.
    visited: FxHashSet<usize>,
    /// Containers that an operation is being given, each in the one before it.
    pub(in crate::recorder) given: SmallVec<[usize; 8]>,
    /// Cells found a second time, which are guarded to be the first.
    cells: FxHashSet<SourceId>,
}

impl Reads {
    /// None yet, and room for so many.
    pub fn with_room(sources: usize, slots: usize) -> Self {
        Self {
            seen: Vec::with_capacity(sources),
            slots: AddressSet::of_room(slots),
            visited: FxHashSet::default(),
            given: SmallVec::new(),
            cells: FxHashSet::default(),
        }
    }

    /// Whether nothing was found yet at a source, one of so many.
    pub fn first_at(&mut self, source: SourceId, sources: usize) -> bool {
        if self.seen.len() <= source.index() {
            self.seen.resize(sources, false);
        }
        !std::mem::replace(&mut self.seen[source.index()], true)
    }

    /// Whether a slot is read for the first time: owner, and what stands for the key (see `effects`).
    pub fn first(&mut self, slot: Slot) -> bool {
        self.slots.insert(slot)
    }

    /// Whether a slot was read before.
    pub fn has(&self, slot: &Slot) -> bool {
        self.slots.contains(*slot)
    }

    /// The slots that were read.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().map(|(slot, ())| slot)
    }

    /// How many slots were read.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// A container is looked into; not if it is already.
    pub fn enter(&mut self, container: usize) -> bool {
        self.visited.insert(container)
    }

    /// It has been looked into.
    pub fn leave(&mut self, container: usize) {
        self.visited.remove(&container);
    }

    /// Whether a cell is found a second time by this source, for the first time.
    pub fn first_shared(&mut self, cell: SourceId) -> bool {
        self.cells.insert(cell)
    }
}

/// A container whose contents aren't guarded.
pub struct Unread {
    pub(in crate::recorder) source: SourceId,
    /// A tuple of what it held when it was found.
    pub before: Py<PyTuple>,
    /// What who found it does with it.
    pub used: Use,
    /// How many of these the trace has taken out in front, of a list.
    pub dropped: usize,
    /// How many it held when a node added to it, if one did.
    pub early: Option<usize>,
    /// Whether nodes ask what it holds.
    pub is_asked: bool,
}

/// A part of an unread list that a node has taken, and whose contents nobody has looked at either.
pub struct PartOf {
    /// The part.
    pub part: Py<PyAny>,
    /// The list that it was taken from, or a part of it.
    pub of: Py<PyAny>,
}

/// An iterator from outside whose next items a trace reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Foreseen {
    /// How many items it has given.
    pub(in crate::recorder) items: usize,
    /// Whether it has ended.
    pub(in crate::recorder) ended: bool,
    /// Where its guard stands among those of the trace.
    pub(in crate::recorder) guard: usize,
    /// How many things it went over at first.
    pub(in crate::recorder) parts: usize,
}

/// What who finds an object does with it.
#[derive(Clone, Copy, Default)]
pub struct Use {
    /// It only moves what the object holds: numbers in it may be symbols.
    pub moves: bool,
    /// It only adds to the object.
    pub only_adds: bool,
}

impl State {
    /// Who only moves what it finds.
    pub fn moving(&self) -> Use {
        Use { moves: !self.policy.is_static(), only_adds: false }
    }

    /// Looks into a container, unless it is being looked into already: it may hold itself.
    pub fn once<T>(
        &mut self,
        container: Borrowed<'_, '_>,
        again: T,
        look: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let address = container.as_ptr() as usize;
        if !self.reads.enter(address) {
            return again;
        }
        let result = look(self);
        self.reads.leave(address);
        result
    }
}

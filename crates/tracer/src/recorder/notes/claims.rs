//! What a replay takes at its beginning: locks, random numbers, a device.

use pyo3::prelude::*;
use stator_cpython::object::Borrowed;
use stator_graph::NodeId;
use stator_guards::SourceId;

use super::heap;
use super::state::{Origin, State};
use crate::accelerator::Asked;
use crate::draws::Draws;
use crate::resume::point::Spot;

/// What a replay takes at its beginning, and blocks that need nothing of it.
#[derive(Default)]
pub struct Claims {
    /// Locks that the trace has taken.
    pub locks: Vec<Taken>,
    /// Where the blocks with a device began that the trace is in.
    pub devices: Vec<Option<Spot>>,
    /// The random generator that the trace draws from, and what it draws.
    pub draws: Option<(Py<PyAny>, Draws)>,
    /// Random generators of Python's that nodes have seeded: what they give is drawn by nodes, too.
    pub seeded: Vec<Py<PyAny>>,
    /// Nodes that give states of PyTorch's generators.
    pub states: Vec<NodeId>,
    /// Whether nodes say which warnings are shown.
    pub has_filters: bool,
    /// What it has asked of the accelerator.
    pub asked: Asked,
}

impl Claims {
    /// Whether the trace holds a lock that it has taken, or is in a block with a device.
    pub fn is_in_block(&self) -> bool {
        self.locks.iter().any(|taken| taken.depth > 0) || !self.devices.is_empty()
    }
}

/// What nodes change in `warnings`: a trace that has such nodes doesn't look at it.
const FILTERED: [&str; 4] = ["filters", "showwarning", "_showwarnmsg_impl", "onceregistry"];

impl State {
    /// Whether an attribute of a module is one that nodes have changed.
    pub(in crate::recorder) fn is_filtered(
        &self,
        owner: Borrowed<'_, '_>,
        name: Borrowed<'_, '_>,
    ) -> bool {
        self.claims.has_filters
            && FILTERED.contains(&&*heap::text(name))
            && heap::name_of(owner) == "warnings"
    }

    /// Whether a node has seeded a generator of Python's.
    pub(in crate::recorder) fn is_seeded(&self, generator: Borrowed<'_, '_>) -> bool {
        self.claims.seeded.iter().any(|seeded| generator.is(seeded))
    }

    /// Whether a node has made it: it goes with the call.
    pub(in crate::recorder) fn is_own_random(&self, generator: Borrowed<'_, '_>) -> bool {
        matches!(self.origin(generator), Some(Origin::Handle(_))) && self.is_seeded(generator)
    }
}

/// A lock from outside that the trace has taken.
pub struct Taken {
    pub(in crate::recorder) lock: Py<PyAny>,
    pub(in crate::recorder) source: SourceId,
    /// How often it is held.
    pub(in crate::recorder) depth: usize,
    /// Where it was taken from being free, or from being held before.
    pub(in crate::recorder) spot: Option<Spot>,
}

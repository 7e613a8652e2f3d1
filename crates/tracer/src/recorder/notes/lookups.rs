//! Lookups on types that are guarded already.

use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use stator_guards::Holders;

use super::kinds::Descriptor;
use super::state::Slot;

/// A guarded type lookup.
#[derive(Clone, Copy)]
pub(in crate::recorder) struct RecentLookup {
    pub(in crate::recorder) ty: usize,
    pub(in crate::recorder) name: usize,
    /// What was found; 0 for nothing.
    pub(in crate::recorder) found: usize,
    pub(in crate::recorder) binding: Option<Descriptor>,
}

/// The lookups of a trace that were guarded last.
pub(in crate::recorder) struct RecentLookups {
    /// As many as a power of two; none before the first lookup.
    pub(in crate::recorder) table: Vec<RecentLookup>,
    pub(in crate::recorder) room: usize,
}

impl RecentLookups {
    /// An empty table that will have room for about so many.
    pub(in crate::recorder) fn with_room(room: usize) -> Self {
        Self { table: Vec::new(), room: room.next_power_of_two().min(MOST) }
    }

    pub(in crate::recorder) fn place(&self, ty: usize, name: usize) -> usize {
        (ty >> 4 ^ name >> 4 ^ name >> 13) & (self.room - 1)
    }

    pub(in crate::recorder) fn get(
        &self,
        ty: usize,
        name: usize,
        found: usize,
    ) -> Option<&RecentLookup> {
        let recent = self.table.get(self.place(ty, name))?;
        (recent.ty == ty && recent.name == name && recent.found == found).then_some(recent)
    }
}

/// The type lookups that are guarded.
pub struct Lookups {
    /// All of them: type and name.
    pub(in crate::recorder) guarded: FxHashSet<Slot>,
    pub(in crate::recorder) recent: RecentLookups,
    /// Special methods that are guarded: type and name.
    protocols: FxHashSet<Slot>,
    /// Whether registrations with abstract classes are guarded.
    abstract_classes: bool,
}

impl Lookups {
    /// None yet, and room for so many.
    pub fn with_room(room: usize) -> Self {
        Self {
            guarded: FxHashSet::with_capacity_and_hasher(room, FxBuildHasher),
            recent: RecentLookups::with_room(2 * room),
            protocols: FxHashSet::default(),
            abstract_classes: false,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.guarded.len()
    }

    /// Whether a name is looked up on a type for the first time.
    pub fn first(&mut self, lookup: Slot) -> bool {
        self.guarded.insert(lookup)
    }

    /// Whether a special method of a type is asked for the first time.
    pub fn first_protocol(&mut self, protocol: Slot) -> bool {
        self.protocols.insert(protocol)
    }

    /// Whether it matters for the first time what was registered with abstract classes.
    pub fn first_abstract(&mut self) -> bool {
        !std::mem::replace(&mut self.abstract_classes, true)
    }
}

/// How the attributes of a class's instances are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// By the ordinary rules: it has no `__getattribute__` of its own.
    Plainly,
    /// Likewise; what isn't there is a member, as `nn.Module` has them.
    Members,
}

/// What a trace knows of classes, and the keys of the dictionaries of members.
#[derive(Default)]
pub struct Members {
    /// Each class's version when it was looked at, by its address. (No two classes ever share one.)
    pub(in crate::recorder) classes: FxHashMap<usize, (u32, Reads)>,
    /// The first of the dictionaries, and the first two.
    pub(in crate::recorder) holders: [Option<Arc<Holders>>; 2],
}

/// Room for the traces of most models; more would not fit the processor's caches. A power of two.
pub(in crate::recorder) const MOST: usize = 512;

//! Type lookups that are likely asked again: those of a few names on the classes of a model's modules.
//!
//! A small table without chains: a lookup that meets another one's place takes it. Nothing but time is
//! lost then, because [`Lookups`] knows all that are guarded.

use rustc_hash::FxHashSet;
use stator_cpython::object::Borrowed;

use super::addresses::AddressSet;
use super::kinds::Descriptor;
use super::state::{Slot, State};

/// Room for the traces of most models; more would not fit the processor's caches. A power of two.
const MOST: usize = 512;

/// A guarded type lookup.
#[derive(Clone, Copy)]
struct RecentLookup {
    ty: usize,
    name: usize,
    /// What was found; 0 for nothing.
    found: usize,
    binding: Option<Descriptor>,
}

const NO_LOOKUP: RecentLookup = RecentLookup { ty: 0, name: 0, found: 0, binding: None };

/// The lookups of a trace that were guarded last.
struct RecentLookups {
    /// As many as a power of two; none before the first lookup.
    table: Vec<RecentLookup>,
    room: usize,
}

impl RecentLookups {
    /// An empty table that will have room for about so many.
    fn with_room(room: usize) -> Self {
        Self { table: Vec::new(), room: room.next_power_of_two().min(MOST) }
    }

    fn place(&self, ty: usize, name: usize) -> usize {
        (ty >> 4 ^ name >> 4 ^ name >> 13) & (self.room - 1)
    }

    fn get(&self, ty: usize, name: usize, found: usize) -> Option<&RecentLookup> {
        let recent = self.table.get(self.place(ty, name))?;
        (recent.ty == ty && recent.name == name && recent.found == found).then_some(recent)
    }
}

/// The type lookups that are guarded.
pub struct Lookups {
    /// All of them: type and name.
    guarded: AddressSet<Slot>,
    recent: RecentLookups,
    /// Special methods that are guarded: type and name.
    protocols: AddressSet<Slot>,
    /// Types and names that the classes before one that was written are guarded to lack.
    lacking: FxHashSet<Slot>,
    /// Whether registrations with abstract classes are guarded.
    abstract_classes: bool,
}

impl Lookups {
    /// None yet, and room for so many.
    pub fn with_room(room: usize) -> Self {
        Self {
            guarded: AddressSet::of_room(room),
            recent: RecentLookups::with_room(2 * room),
            protocols: AddressSet::of_room(room),
            lacking: FxHashSet::default(),
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

    /// Whether it's found for the first time that a write to a base class is what a lookup finds.
    pub fn first_lacking(&mut self, lookup: Slot) -> bool {
        self.lacking.insert(lookup)
    }

    /// Whether it matters for the first time what was registered with abstract classes.
    pub fn first_abstract(&mut self) -> bool {
        !std::mem::replace(&mut self.abstract_classes, true)
    }
}

impl State {
    /// Whether a type lookup is known to be guarded, with this result. Once the trace has written a
    /// class, what a lookup finds may be its own.
    pub fn is_recent_lookup(&self, ty: usize, name: usize, found: usize) -> bool {
        self.written.classes().is_empty() && self.lookups.recent.get(ty, name, found).is_some()
    }

    /// Remembers that a type lookup is guarded. The table of objects keeps all three alive.
    pub fn remember_lookup(
        &mut self,
        ty: Borrowed<'_, '_>,
        name: Borrowed<'_, '_>,
        found: Option<Borrowed<'_, '_>>,
    ) {
        if !self.written.classes().is_empty() {
            return;
        }
        self.objects.intern_type(ty);
        self.objects.intern(name);
        if let Some(found) = found {
            self.objects.intern(found);
        }
        let (ty, name) = (ty.as_ptr() as usize, name.as_ptr() as usize);
        let found = found.map_or(0, |found| found.as_ptr() as usize);
        let Lookups { guarded, recent, .. } = &mut self.lookups;
        if recent.room < MOST && 2 * guarded.len() > recent.room {
            // A larger trace than it seemed: what is forgotten here is looked up once more.
            recent.room = MOST;
            recent.table.clear();
        }
        if recent.table.is_empty() {
            recent.table.resize(recent.room, NO_LOOKUP);
        }
        let place = recent.place(ty, name);
        recent.table[place] = RecentLookup { ty, name, found, binding: None };
    }

    /// How the result of a recent lookup binds.
    pub fn recent_binding(&self, ty: usize, name: usize, found: usize) -> Option<Descriptor> {
        self.lookups.recent.get(ty, name, found)?.binding
    }

    /// Remembers how the result of a recent lookup binds.
    pub fn remember_binding(&mut self, ty: usize, name: usize, found: usize, binding: Descriptor) {
        let recent = &mut self.lookups.recent;
        let place = recent.place(ty, name);
        if let Some(recent) = recent.table.get_mut(place)
            && (recent.ty, recent.name, recent.found) == (ty, name, found)
        {
            recent.binding = Some(binding);
        }
    }
}

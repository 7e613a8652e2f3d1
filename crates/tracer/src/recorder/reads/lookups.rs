//! Type lookups that are likely asked again: those of a few names on the classes of a model's modules.
//!
//! A small table without chains: a lookup that meets another one's place takes it. Nothing but time is
//! lost then, because [`Lookups`] knows all that are guarded.

use stator_cpython::object::Borrowed;

use crate::recorder::notes::kinds::Descriptor;
use crate::recorder::notes::lookups::{Lookups, MOST, RecentLookup};
use crate::recorder::notes::state::State;

const NO_LOOKUP: RecentLookup = RecentLookup { ty: 0, name: 0, found: 0, binding: None };

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

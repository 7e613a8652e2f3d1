//! How much room the tables of a trace take from the start.
//!
//! A model's tables would grow again and again: each time they move all that they hold, into memory that is in no cache.
//! So they begin as large as those of a usual model, and a thread remembers how large the tables of its last traces
//! were, by the code they began with: the next trace of that code (sizes have changed, or it's another module of the
//! class) is about as large. Nothing but time is lost where it isn't.

use std::cell::Cell;

use super::state::State;

/// Room for so many entries in each of the tables.
#[derive(Clone, Copy)]
pub struct Room {
    pub objects: usize,
    pub known: usize,
    pub sources: usize,
    pub indexed: usize,
    pub guards: usize,
    pub locations: usize,
    pub read_slots: usize,
    pub lookups: usize,
    pub inputs: usize,
    pub graph: stator_graph::Room,
}

/// How many codes are remembered. A power of two.
const CODES: usize = 8;

/// No table is larger than this from the start.
const MOST: usize = 1 << 16;

thread_local! {
    /// By some bits of the code's address: the address, and the tables. A code that has died since leaves
    /// its room to the one that has taken its address.
    static LAST: [Cell<(usize, Room)>; CODES] = const { [const { Cell::new((0, Room::USUAL)) }; CODES] };
}

fn place(code: usize) -> usize {
    (code >> 4 ^ code >> 9) & (CODES - 1)
}

impl Room {
    /// For a state that takes no notes.
    pub const NONE: Self = Self::of_size(0);

    /// What a trace behind a break needs.
    pub const SMALL: Self = Self::of_size(1 << 7);

    /// What a model of some dozen layers needs (measured on eight: 1,800 to 3,600 objects). A function that needs less
    /// touches no more of it.
    pub const USUAL: Self = Self::of_size(1 << 12);

    /// What is in hash tables is spread over all of one, so these have no room to spare. Tables by address are written
    /// in full when they are made: they begin small.
    const fn of_size(size: usize) -> Self {
        let hashed = size / 8 * 7;
        Self {
            objects: size,
            known: size / 4,
            sources: size,
            indexed: hashed / 2,
            guards: size / 2 * 3,
            locations: size,
            read_slots: size / 4,
            lookups: hashed / 8,
            inputs: size / 8,
            graph: stator_graph::Room::of_nodes(size / 2),
        }
    }

    /// What the last trace of this thread needed that began with this code.
    pub fn of_last(code: usize) -> Self {
        let (known, room) = LAST.with(|last| last[place(code)].get());
        if known == code { room } else { Self::USUAL }
    }

    /// Remembers how large the tables of a trace became that began with this code.
    pub fn remember(code: usize, state: &State) {
        // A table that is full grows when it is asked, not only when it's added to.
        let roomy = |len: usize| (len + len / 8).clamp(8, MOST);
        let (objects, known) = state.objects.room();
        let room = Self {
            objects: roomy(objects),
            known: roomy(known),
            sources: roomy(state.sources.len()),
            indexed: roomy(state.sources.indexed()),
            guards: roomy(state.guards.len()),
            locations: roomy(state.frames.places()),
            read_slots: roomy(state.reads.slot_count()),
            lookups: roomy(state.lookups.len()),
            inputs: roomy(state.inputs.sources().len()),
            graph: state.graph.room().map(roomy),
        };
        LAST.with(|last| last[place(code)].set((code, room)));
    }
}

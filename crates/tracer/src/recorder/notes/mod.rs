//! The notes of one trace: what is known of each object, where it came from, what the graph has so far.
//!
//! `state` holds them together, and each part owns its fields: `objects` knows each object once, by identity, and
//! `kinds` what it is; `roots` are the slots that the trace began with; `frames` are those being evaluated; `inputs`
//! are the graph's; `reads` and `written` are what it has read and written; `capacity` remembers how large the tables
//! become; `enclosed` is what
//! is known of code within one node, `given` the functions of the trace that it is given; `heap` reads objects without running anybody's code.
//!
//! Nothing here executes anything of the program's: the other rooms do, and note here what they did.

pub(super) mod capacity;
pub(super) mod enclosed;
pub(super) mod frames;
pub(super) mod given;
pub(super) mod heap;
pub(super) mod inputs;
pub(super) mod kinds;
pub(super) mod objects;
pub(super) mod reads;
pub(super) mod roots;
pub(super) mod state;
pub(super) mod written;

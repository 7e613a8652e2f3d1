//! The notes of one trace: what is known of each object, where it came from, what the graph has so far.
//!
//! `state` holds them together, and each part owns its fields: `objects` knows each object once, by identity, and
//! `kinds` what it is; `roots` are the slots that the trace began with; `frames` are those being evaluated; `inputs`
//! are the graph's; `reads` and `written` are what it has read and written, the latter by `effects`; `context` and `claims` are what
//! it has done to context variables, locks and generators; `gradients` what it knows of them; `exits` the ways out of its middle;
//! `symbols` are the numbers that may differ from call to call, `in_containers` lends outside containers what stands for them;
//! `programs` is what only traces of tensor programs note; `capacity` remembers how large the tables become.
//! `lookups`, `members`, `recent_globals`, `compared`, `calls` and `repeated` are what needn't be asked twice. `enclosed` is what
//! is known of code within one node, `given` the functions of the trace that it is given, `passing` which code of PyTorch's stands
//! between; `machinery` knows code that isn't followed, `copies` the frames of `copy.deepcopy`.
//! `addresses` and `sparse` are tables by address. `heap` reads objects without running anybody's code, `plain_values` knows decimals, dates and such. `call` is a call as the rooms hand it on.
//!
//! `above` are the interfaces by which a room asks one above it for something. There is no other way up.
//!
//! Nothing here executes anything of the program's: the other rooms do, and note here what they did.

pub(super) mod above;
mod addresses;
pub(super) mod arrays;
pub(super) mod call;
pub(super) mod calls;
pub(super) mod capacity;
pub(super) mod claims;
pub(super) mod compared;
pub(super) mod context;
pub(super) mod copies;
pub(super) mod effects;
pub(super) mod enclosed;
pub(super) mod exits;
pub(super) mod frames;
pub(super) mod given;
pub(super) mod gradients;
pub(super) mod heap;
pub(super) mod in_containers;
pub(super) mod inputs;
pub(super) mod kinds;
pub(super) mod lookups;
pub(super) mod machinery;
pub(super) mod members;
pub(super) mod objects;
pub(super) mod passing;
pub(super) mod plain_values;
pub(super) mod programs;
pub(super) mod reads;
pub(super) mod recent_globals;
pub(super) mod repeated;
pub(super) mod roots;
pub(super) mod sparse;
pub(super) mod sparse_tensors;
pub(super) mod state;
pub(super) mod symbols;
pub(super) mod text_wrappers;
pub(super) mod type_hints;
pub(super) mod written;

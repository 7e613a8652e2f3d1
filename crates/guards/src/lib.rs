//! Sources (paths to objects from a call's entry state) and guards on them.
//!
//! A *source* names a concrete slot that a trace read: an argument, an entry of an instance
//! dictionary, an element of a list. A *guard* is a fact about what that slot held. Both are plain
//! data here: Python objects appear only as [`ObjectId`]s, indices into a table that the tracer
//! owns, so this crate builds and tests without an interpreter. Checking guards is the tracer's
//! job.
//!
//! Invariants:
//! * a source's parent has a smaller id than the source ([`Sources`] is in topological order);
//! * equal slots have equal ids ([`Sources::intern`] is hash-consing), as long as the tracer's
//!   table of objects holds one id per object (and one per exact type and value of constants).

#![forbid(unsafe_code)]

mod accelerator;
mod global_state;
mod guard;
mod id;
mod print;
pub mod refused;
mod source;
mod tensor;

pub use accelerator::{Accelerator, Stream};
pub use global_state::{Fact, GlobalState, Value};
pub use guard::{Gives, Guard, GuardKind, Holders, Rests, Vacancy};
pub use id::{ObjectId, SourceId};
pub use print::{NoObjects, Objects, Printed};
pub use source::{ClassField, FunctionField, Source, Sources, Text, grow_in_leaps};
pub use tensor::TensorGuard;

#[cfg(test)]
mod tests;

//! The table of global variables that were read before.

use stator_guards::ObjectId;

/// How many names are known. A power of two.
pub(in crate::recorder) const ROOM: usize = 256;

/// A name that was read, and is guarded.
#[derive(Clone, Copy)]
pub(in crate::recorder) struct RecentGlobal {
    pub(in crate::recorder) globals: usize,
    pub(in crate::recorder) name: usize,
    pub(in crate::recorder) version: u64,
    /// The version of the builtins, if the name was found there.
    pub(in crate::recorder) builtins: Option<u64>,
    /// What was found. The table of objects keeps it alive.
    pub(in crate::recorder) value: ObjectId,
}

/// The names that a trace has read more than once.
#[derive(Default)]
pub struct RecentGlobals(pub(in crate::recorder) Vec<Option<RecentGlobal>>);

pub(in crate::recorder) fn place(globals: usize, name: usize) -> usize {
    (globals >> 4 ^ name >> 4 ^ name >> 12) & (ROOM - 1)
}

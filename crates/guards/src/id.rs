//! Typed indices.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Index of a source in its [`Sources`](crate::Sources); a parent's is smaller than its child's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct SourceId(u32);

/// Index of a Python object in the trace's table of objects, which the tracer owns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId(u32);

impl SourceId {
    /// The id of the `index`-th source.
    pub(crate) fn new(index: usize) -> Self {
        SourceId(u32::try_from(index).expect("fewer than 2^32 sources"))
    }

    /// The position of the source in its `Sources`.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn raw(self) -> u32 {
        self.0
    }
}

impl ObjectId {
    /// The id of the `index`-th object of the tracer's table.
    ///
    /// # Panics
    /// If `index` doesn't fit in 32 bits.
    #[must_use]
    pub fn new(index: usize) -> Self {
        ObjectId(u32::try_from(index).expect("fewer than 2^32 objects"))
    }

    /// The position of the object in the tracer's table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn raw(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}", self.0)
    }
}

//! What PyTorch says of its operators: their schemas, tags and kernels, over all their overloads.

/// A set of facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts(u16);

impl Facts {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Each overload has a kernel that works without data and gives tensors only, and no tag says
    /// that shapes or values depend on data.
    pub const SHAPED_WITHOUT_DATA: Self = Self(1);
    /// Made of other operators, whose tags aren't its own.
    pub const COMPOSITE: Self = Self(1 << 1);
    /// Tagged `dynamic_output_shape`.
    pub const DYNAMIC_SHAPE: Self = Self(1 << 2);
    /// Tagged `data_dependent_output`.
    pub const READS_DATA: Self = Self(1 << 3);
    /// Tagged `nondeterministic_seeded`.
    pub const RANDOM: Self = Self(1 << 4);
    /// Writes to an argument.
    pub const WRITES: Self = Self(1 << 5);
    /// Gives an argument, or a view of one.
    pub const ALIASES: Self = Self(1 << 6);
    /// Gives something else than tensors.
    pub const GIVES_OTHERS: Self = Self(1 << 7);

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

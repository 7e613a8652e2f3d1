//! What a row says.

/// When the shapes and types of an operation's results follow from its inputs' metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determined {
    /// Always.
    Always,
    /// Never: its result's shape depends on data.
    Never,
    /// Never: its result holds more than its metadata says (sparse, quantized tensors).
    Unusual,
    /// Never: its result is data, or it does what a graph can't say.
    ReadsData,
    /// Unless there is a tensor among the arguments from this one on (sizes given as tensors).
    UnlessTensorBeyond(usize),
    /// If it's given at least so many arguments.
    AtLeast(usize),
    /// If this argument is given, and says all: no `None`, no tensor, no -1.
    IfGiven(usize, &'static str),
    /// If it's given two arguments or more, no tensor among the further ones (counts given as tensors).
    Counts,
    /// Always, but only a replay of the trace as it is does what it does.
    EagerOnly,
    /// Indexing: unless the index (second argument) holds a mask or a slice with tensors.
    Indexing,
}

/// What else a row says: a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits(u32);

impl Traits {
    /// Nothing else.
    pub const NONE: Self = Self(0);
    /// Writes to arguments without counting the write in their versions.
    pub const WRITES_SILENTLY: Self = Self(1);
    /// Gives an argument itself where a number among the arguments is zero.
    pub const RETURNS_ARGUMENT: Self = Self(1 << 1);

    const NAMES: &[(Self, &str)] = &[
        (Self::WRITES_SILENTLY, "writes silently"),
        (Self::RETURNS_ARGUMENT, "returns an argument"),
    ];

    /// The traits in words.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(one, _)| self.has(*one)).map(|(_, name)| *name)
    }

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

/// What is known of some callables.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Whose: a module, or what Python finds from one. Empty: wherever PyTorch has the name, as a function,
    /// a method, or an operator of `torch.ops.aten`.
    pub owner: &'static str,
    /// Their names, with spaces between them.
    pub names: &'static str,
    /// When their results' metadata follows from their inputs'.
    pub determined: Determined,
    /// What else.
    pub traits: Traits,
}

impl Row {
    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split_whitespace()
    }
}

//! Typed ids: small integers that can't be mixed up and that print with a prefix.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(u32);

        impl $name {
            /// The id with this index.
            ///
            /// # Panics
            /// If the index doesn't fit into 32 bits.
            #[inline]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("more than u32::MAX entries in one graph"))
            }

            /// The place in the table that the id speaks of.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A node of a graph, in the order of recording: `%3`.
    NodeId,
    "%"
);
id!(
    /// A frame in a graph's table of call stacks: `stack#4`.
    StackId,
    "stack#"
);
id!(
    /// A Python object in the table that the tracer keeps beside a graph: `obj#2`.
    ObjectId,
    "obj#"
);
id!(
    /// A string interned in one graph: `text#7`.
    TextId,
    "text#"
);

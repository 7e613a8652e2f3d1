//! Typed ids of what a context holds.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u32);

        impl $name {
            pub(crate) fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("more than u32::MAX entries in one trace"))
            }

            /// The place in the context's table that the id speaks of.
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
    /// A symbol: an integer or a float that the trace doesn't fix. Prints as `s0`.
    SymbolId, "s"
);
id!(
    /// An integer expression in normal form: equal polynomials have equal ids.
    ExprId, "e"
);
id!(
    /// A float expression.
    FloatId, "f"
);
id!(
    /// A condition over expressions.
    CondId, "c"
);

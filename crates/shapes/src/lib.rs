//! Symbolic integers: expressions over them, facts about them, guards, shape rules.
//!
//! A trace that is to serve many sizes computes with *symbols*: integers (and floats) that are known
//! by their value in the recorded call, their *hint*, and by a range. A [`Context`] holds the
//! symbols and expressions of one trace and what the trace has assumed of them.
//!
//! Where the program asks something of an expression ([`Context::evaluate`]), the answer follows
//! from what is known, or it is the answer that the hints give and becomes a *fact*: a guard that
//! later calls must pass. [`Context::facts`] is the list of guards that is left at the end, and
//! [`Context::compile`] makes it a [`Program`] that checks them in nanoseconds.
//!
//! Invariants:
//! * what is decided holds for *all* values that pass the facts' program, mathematically, so also
//!   where 64 bits don't suffice;
//! * nothing wraps: an expression whose hint leaves 64 bits isn't built, and a program that leaves
//!   them when it runs says no;
//! * equal polynomials have equal ids;
//! * all operations are linear in the size of their operands, which is bounded ([`MAX_SIZE`]), so
//!   recursion is bounded too.
//!
//! Integer operations have Python's meaning: division rounds down.

#![forbid(unsafe_code)]

mod arith;
mod assume;
mod condition;
mod congruence;
mod context;
mod decide;
mod divide;
mod error;
mod extremes;
mod facts;
mod float;
mod ids;
mod integer;
mod interval;
mod knowledge;
mod poly;
mod print;
mod program;
pub mod rules;
mod tree;

pub use condition::{Cmp, Verdict};
pub use context::{Context, Duck, MAX_DEPTH, MAX_SIZE, SIZE_LIMIT, Symbol};
pub use error::Error;
pub use facts::{Fact, FactKind};
pub use float::{FloatOp, FloatUnary, LARGEST_EXPONENT, Rounding, extreme_base, extreme_exponent};
pub use ids::{CondId, ExprId, FloatId, SymbolId};
pub use interval::Interval;
pub use print::Style;
pub use program::{ExprProgram, FloatProgram, Program};
pub use tree::Tree;

/// What building an expression gives.
pub type Result<T> = std::result::Result<T, Error>;

const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Context>();
    crosses_threads::<Program>();
    crosses_threads::<ExprProgram>();
};

//! From functions to trees: what happens while a function runs over stand-ins for its arguments.
//!
//! A [`Scope`] collects the calls that the function makes; [`fields`] and [`intrinsics`] say what
//! the stand-ins' operations mean; [`packing`] says which argument goes to which field of a
//! parameter, and [`parameters`] which type a function's parameters have together. Calling the
//! function, and everything else that needs its language, is the caller's.

pub mod fields;
mod finished;
pub mod intrinsics;
pub mod packing;
pub mod parameters;
mod scope;
#[cfg(test)]
mod tests;

pub use finished::finished;
pub use scope::{Open, Scope};

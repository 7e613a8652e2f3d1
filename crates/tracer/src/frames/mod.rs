//! Frames that stand still: what their code says of them, how they are made to look as if they stood somewhere.

pub mod anatomy;
pub mod questions;
pub mod settle;
pub mod stage;
pub mod tracebacks;

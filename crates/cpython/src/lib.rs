//! The one crate that knows CPython's internal layouts: frames, code, dict and type versions.
//!
//! Everything above it is safe Rust. What is C struct, macro or static inline function in CPython
//! is reached in one of two ways: layouts that the evaluator touches at every instruction are
//! repeated in Rust (`frame/v311.rs`, `thread/v311.rs`) and compared with the headers'
//! `offsetof` by [`layout::check`]; the rest goes through the C shim in `shim/`, one file per
//! CPython version.

pub mod aten;
pub mod code;
mod ffi;
pub mod frame;
pub mod generator;
pub mod generic;
pub mod heap;
pub mod hook;
pub mod layout;
pub mod modules;
pub mod object;
pub mod opcode;
pub mod ops;
pub mod own_code;
pub mod raised;
pub mod reduced;
pub mod shortcut;
pub mod stack;
pub mod thread;
pub mod vectorcall;

pub use raised::{Raised, Result};

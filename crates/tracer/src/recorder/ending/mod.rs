//! How a trace ends: at the call's end, at a break, by an exception.
//!
//! `breaking` and `abandoning` end it at an instruction, `deciding` lets it go on behind one with a way out, `outcome` at the end of the call; `effects` are what a replay does beside its writes; `recipes` say how
//! what is left over is made again, `suspended` does so for generators, `matches` for what regular expressions find, `raising` and `exceptions` for what was
//! raised. `drawn` keeps random numbers for compilers, `shared_numbers` puts into all that the objects that CPython has for numbers. `risks` and `unrepeatable` find, before it happens, what couldn't be made again.
//!
//! The room takes the notes and leaves a [`Traced`](crate::trace::Traced).

pub(super) mod abandoning;
pub(super) mod breaking;
pub(super) mod deciding;
mod drawn;
pub(super) mod effects;
pub(super) mod exceptions;
mod matches;
pub(super) mod outcome;
pub(super) mod raising;
pub(super) mod recipes;
pub(super) mod risks;
mod shared_numbers;
pub(super) mod suspended;
pub(super) mod unrepeatable;

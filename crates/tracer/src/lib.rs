//! Recorder, provenance, cache and replay.
//!
//! A call of a [`compiled::Compiled`] function goes down this list until something fits:
//! `bind` its arguments, `check` the guards of its entries, `replay` an [`entry`]; or record it:
//! the `recorder` observes the evaluator ([`stator_evaluator`]), asks the table of `functions` about what it meets, and
//! leaves a trace that becomes an entry.

#![deny(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod accelerator;
mod assumptions;
mod bind;
pub mod breaks;
mod budget;
mod callers;
pub mod check;
pub mod clock;
mod codes;
pub mod compiled;
pub mod compiling;
pub mod config;
mod constant_data;
pub mod declined;
pub mod disabled;
mod draws;
mod drive;
mod effects;
mod emission;
mod entries;
pub mod entry;
mod floor;
mod frames;
mod functions;
mod gauge;
mod handlers;
mod held;
mod inference;
pub mod jobs;
mod known_ranges;
mod list_handlers;
mod listeners;
mod locate;
mod locks;
pub mod logs;
pub mod looks;
pub mod marks;
mod memory;
mod pace;
pub mod parking;
pub mod past;
mod policy;
mod profit;
pub mod program;
mod program_rules;
mod raises;
pub mod recipe;
pub mod recorder;
pub mod replay;
pub mod resume;
mod rollback;
mod sharing;
pub mod stance;
pub mod stored;
mod symbolic;
pub mod trace;
mod undo;
mod within;
mod writes;

pub use functions::known;

/// Takes a lock. A panic elsewhere leaves nothing behind that would have to be mistrusted: what locks
/// guard here is changed in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

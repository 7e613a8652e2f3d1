//! The dictionaries of whose changes CPython tells: which of them a check looks into all the same.

use pyo3::ffi;
use pyo3::prelude::*;

use super::Snapshot;
use crate::heap::{Any, dict, types, witness};

/// After so many changes a watched dictionary is let go.
const LOUD: u8 = 8;
/// It is watched again after so many checks that found it unchanged.
const CALM: u8 = 64;

/// A dictionary of whose changes CPython tells.
pub(super) struct Told {
    pub(super) object: *mut ffi::PyObject,
    pub(super) object_type: usize,
    /// How many words come before it.
    pub(super) before: usize,
    /// What is looked up in it; `None`: it must be empty.
    pub(super) watch: Option<usize>,
    /// Its version when it was looked into last.
    pub(super) version: u64,
    /// Whether the next change will be told.
    pub(super) is_subscribed: bool,
    /// How many were, up to [`LOUD`].
    pub(super) changes: u8,
    /// Checks that found a loud one unchanged.
    pub(super) calm: u8,
}

impl Snapshot {
    /// Looks into the dictionaries that may have changed, each behind the words before it; the number of
    /// words compared.
    #[cold]
    pub(super) fn ask(&mut self, py: Python<'_>) -> Option<usize> {
        for number in self.changes.take() {
            let told = &mut self.told[number as usize];
            told.is_subscribed = false;
            told.changes = (told.changes + 1).min(LOUD);
            told.calm = 0;
            self.asked.push(number);
        }
        self.asked.sort_unstable();
        self.asked.dedup();
        let asked = std::mem::take(&mut self.asked);
        let mut from = 0;
        for (position, &number) in asked.iter().enumerate() {
            let before = self.told[number as usize].before;
            if !self.words_between(py, from, before) || !self.told_holds(py, number) {
                self.asked.extend(&asked[position..]);
                return None;
            }
            from = before;
            if !self.is_quiet(py, number) {
                self.asked.push(number);
            }
        }
        Some(from)
    }

    /// Whether what is guarded of a watched dictionary holds, which the words before it prove alive.
    fn told_holds(&mut self, py: Python<'_>, number: u32) -> bool {
        let told = &mut self.told[number as usize];
        // SAFETY: the words before it prove the object alive.
        let object = unsafe { Any::from_ptr(py, told.object) };
        if types::address_of(object) != told.object_type {
            return false;
        }
        let version = dict::version(object);
        if version != dict::UNTOLD && version == told.version {
            return true;
        }
        let holds = match told.watch {
            Some(watch) => self.watches[watch].dict_holds(object, &self.liveness),
            None => dict::length(object) == Some(0),
        };
        if holds {
            told.version = version;
        }
        holds
    }

    /// Whether a watched dictionary, just found to hold, need not be looked into at the next check.
    fn is_quiet(&mut self, py: Python<'_>, number: u32) -> bool {
        let told = &mut self.told[number as usize];
        if told.is_subscribed {
            return true;
        }
        // SAFETY: as in `told_holds`, which has just been; no Python code has run since.
        let object = unsafe { Any::from_ptr(py, told.object) };
        if told.changes == LOUD {
            if told.calm == 0 {
                witness::let_go(object);
            }
            told.calm += 1;
            if told.calm < CALM {
                return false;
            }
            told.changes -= 1;
        }
        told.is_subscribed = witness::watch(object, &self.changes, number);
        false
    }
}

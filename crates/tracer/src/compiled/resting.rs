//! Rests: calls that run natively without any guard being asked, because those before them ran natively
//! in a row.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use pyo3::prelude::*;

use super::Compiled;
use crate::entry::Entry;
use crate::{compiling, stance};

/// After so many native calls in a row there are rests.
const AWAKE: u32 = 16;
/// A rest lasts 1, 2, 4, ... and at most two to this power calls.
const LONGEST: u32 = 5;

/// What a compiled function knows of its next calls.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Native calls in a row of which somebody said that they had better be so.
    tired: AtomicU32,
    /// Whether an entry is being measured: the calls' starts are timed.
    timing: AtomicBool,
}

impl Rest {
    /// A call had better run natively, says this entry; none: no entry fits, and for at most so many calls
    /// none may be added. How many calls rest now.
    fn tire(&self, entry: Option<&Entry>, most: u32) -> u32 {
        let tired = self.tired.load(Relaxed);
        if tired < AWAKE {
            self.tired.store(tired + 1, Relaxed);
            return 0;
        }
        let exponent = tired - AWAKE;
        self.tired.store(AWAKE + (exponent + 1).min(LONGEST), Relaxed);
        let longest = most.min(1 << exponent);
        let calls = entry.map_or(longest, |entry| entry.natives_left().min(longest));
        if let Some(entry) = entry {
            entry.pass(calls);
        }
        calls
    }

    /// A call was replayed.
    pub(super) fn end(&self) {
        self.tired.store(0, Relaxed);
    }

    /// Whether calls' starts are timed.
    #[inline]
    pub(super) fn is_timing(&self) -> bool {
        self.timing.load(Relaxed)
    }

    /// Has calls' starts timed, or not.
    pub(super) fn time(&self, on: bool) {
        self.timing.store(on, Relaxed);
    }
}

impl Compiled {
    /// As [`Rest::tire`], where calls may rest at all.
    pub(super) fn tire(&self, entry: Option<&Entry>, most: u32) -> u32 {
        if !self.may_skip() {
            return 0;
        }
        let calls = self.rest.tire(entry, most);
        self.shortcut.set_left(calls);
        calls
    }

    /// A call was replayed.
    pub(super) fn end_rest(&self) {
        self.rest.end();
        self.shortcut.set_left(0);
    }

    /// Whether this call runs natively without a look; counts it. If so, those after it take the shortcut.
    #[inline]
    pub(super) fn rests(&self, py: Python<'_>) -> bool {
        let left = self.shortcut.left();
        if left == 0 || !self.may_skip() {
            return false;
        }
        self.shortcut.set_left(left - 1);
        if !compiling::is_anyone_told() {
            self.shortcut.open(&stance::watched(py));
        }
        true
    }

    /// Calls that ran natively.
    pub(super) fn natives(&self) -> u64 {
        self.native.load(Relaxed) + self.shortcut.taken()
    }
}

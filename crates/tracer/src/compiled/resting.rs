//! Rests: calls that run natively without any guard being asked, because those before them ran natively
//! in a row.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::Compiled;
use crate::entry::Entry;

/// After so many native calls in a row there are rests.
const AWAKE: u32 = 16;
/// A rest lasts 1, 2, 4, ... and at most two to this power calls.
const LONGEST: u32 = 5;

/// What a compiled function knows of its next calls.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Native calls in a row of which somebody said that they had better be so.
    tired: AtomicU32,
    /// Calls up to the end of the rest.
    left: AtomicU32,
    /// Whether an entry is being measured: the calls' starts are timed.
    timing: AtomicBool,
}

impl Rest {
    /// A call had better run natively, says this entry; none: no entry fits, and none may be added.
    pub(super) fn tire(&self, entry: Option<&Entry>) {
        let tired = self.tired.load(Relaxed);
        if tired < AWAKE {
            self.tired.store(tired + 1, Relaxed);
            return;
        }
        let exponent = tired - AWAKE;
        self.tired.store(AWAKE + (exponent + 1).min(LONGEST), Relaxed);
        let longest = 1 << exponent;
        let calls = entry.map_or(longest, |entry| entry.natives_left().min(longest));
        if let Some(entry) = entry {
            entry.pass(calls);
        }
        self.left.store(calls, Relaxed);
    }

    /// A call was replayed.
    pub(super) fn end(&self) {
        self.tired.store(0, Relaxed);
        self.left.store(0, Relaxed);
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
    /// Whether this call runs natively without a look; counts it.
    #[inline]
    pub(super) fn rests(&self) -> bool {
        let left = self.rest.left.load(Relaxed);
        if left == 0 || !self.may_skip() {
            return false;
        }
        self.rest.left.store(left - 1, Relaxed);
        true
    }
}

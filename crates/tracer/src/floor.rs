//! The profitability floor: an entry whose chain of traces gains nothing lets its calls run natively, once
//! its guards have said that they are its.
//!
//! What a call does behind a graph break depends on more than the entry's guards. So now and then a call
//! is a trial: it is replayed, and recorded where it goes new ways, and estimated again. Trials are further
//! and further apart, by counting, not by a clock.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::clock::Span;
use crate::gauge::SHARE;
use crate::lock;
use crate::profit::Estimate;

/// The calls between trials double up to this many.
const FURTHEST: u32 = 256;
/// Trials that are further apart than so many calls are put off by what the costliest one has taken, not by
/// what the last one has: the next may be as costly.
const EARLY: u32 = 16;
/// So many native calls are timed.
const TIMED: u32 = 8;

/// The entry is replayed.
const REPLAYS: u32 = 0;
/// The entry is replayed, and has been found to pay: what else it leads to doesn't matter any more.
const PAYS: u32 = u32::MAX;
/// The calls run natively, all of them.
const NEVER_TRIED: u32 = u32::MAX - 1;

/// Whether the calls of one entry run natively.
#[derive(Debug, Default)]
pub struct Floor {
    /// One more than the native calls up to the next trial, or one of the constants above.
    state: AtomicU32,
    /// How many native calls stood before the last trial.
    distance: AtomicU32,
    /// The estimate that calls run natively by; taken by the first of them.
    reason: Mutex<Option<Estimate>>,
    is_steered: AtomicBool,
    /// Nanoseconds of a native call, the quickest that was timed; 0: none was.
    native: AtomicU64,
    /// Native calls that were timed.
    timed: AtomicU32,
    /// Nanoseconds of the costliest recording or trial.
    costliest: AtomicU64,
}

/// What is done with a call that the entry fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is replayed.
    Replay,
    /// It runs natively.
    Native,
    /// It is replayed, then estimated again.
    Trial,
    /// It is replayed or run natively, and timed.
    Timed(Span),
}

/// What a call has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It was replayed all through.
    None,
    /// Something was recorded.
    Recorded,
    /// Something was, and the next such call has to record more.
    Unfinished,
}

/// A new decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Calls run natively.
    Native,
    /// Calls are replayed again.
    Replayed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "runs natively:",
            Self::Replayed => "is replayed again:",
        })
    }
}

impl Verdict {
    /// Why, for the `graph_breaks` log.
    #[must_use]
    pub fn report(self, estimate: Estimate) -> String {
        match self {
            Self::Native => format!(
                "  Why: {estimate}\n  Hint: stator.config.skip_unprofitable = False has it replayed"
            ),
            Self::Replayed => format!("  Why: {estimate}"),
        }
    }
}

impl Floor {
    /// Whether calls run natively, most of them.
    #[inline]
    #[must_use]
    pub fn is_under(&self) -> bool {
        !matches!(self.state.load(Relaxed), REPLAYS | PAYS)
    }

    /// What is done with the next call; counts it.
    pub fn turn(&self) -> Turn {
        match self.state.load(Relaxed) {
            REPLAYS | PAYS => Turn::Replay,
            NEVER_TRIED => Turn::Native,
            1 => {
                // Calls that come before this one has ended are none.
                self.state.store(self.distance.load(Relaxed) + 1, Relaxed);
                Turn::Trial
            }
            left => {
                self.state.store(left - 1, Relaxed);
                Turn::Native
            }
        }
    }

    /// Decides by the estimate of a call, from the entry to the call's end. `leads_on`: the entry ends at
    /// a graph break or has a way out, so not all its calls do the same. Says so if the decision is a new one.
    pub fn weigh(&self, estimate: Estimate, news: News, leads_on: bool) -> Option<Verdict> {
        if estimate.is_steered() {
            self.is_steered.store(true, Relaxed);
        }
        if news == News::Unfinished {
            if self.is_under() {
                self.state.store(REPLAYS, Relaxed);
            }
            return None;
        }
        if estimate.pays() {
            let before = self.state.swap(PAYS, Relaxed);
            return (!matches!(before, REPLAYS | PAYS)).then_some(Verdict::Replayed);
        }
        let state = self.state.load(Relaxed);
        if state == PAYS {
            return None;
        }
        let distance = match news {
            News::None => (self.distance.load(Relaxed) * 2).clamp(1, FURTHEST),
            // What comes next may lead further.
            _ => 1,
        };
        self.distance.store(distance, Relaxed);
        self.state.store(if leads_on { distance + 1 } else { NEVER_TRIED }, Relaxed);
        *lock(&self.reason) = Some(estimate);
        (state == REPLAYS).then_some(Verdict::Native)
    }

    /// Whether native calls are to be timed.
    #[must_use]
    pub fn wants_time(&self) -> bool {
        self.timed.load(Relaxed) < TIMED
    }

    /// A native call was timed.
    pub fn timed(&self, nanos: u64) {
        let known = self.native.load(Relaxed);
        self.native.store(if known == 0 { nanos } else { known.min(nanos) }, Relaxed);
        self.timed.store(self.timed.load(Relaxed) + 1, Relaxed);
    }

    /// A recording took so long.
    pub fn recorded(&self, nanos: u64) {
        self.costliest.fetch_max(nanos, Relaxed);
    }

    /// A trial took so long: the next one is so far that they cost little on average.
    pub fn tried(&self, nanos: u64) {
        let native = self.native.load(Relaxed);
        let state = self.state.load(Relaxed);
        let costliest = self.costliest.fetch_max(nanos, Relaxed).max(nanos);
        let is_early = self.distance.load(Relaxed) <= EARLY;
        if native == 0 || matches!(state, REPLAYS | PAYS | NEVER_TRIED) {
            return;
        }
        if is_early && nanos < 2 * native {
            return;
        }
        let nanos = if is_early { nanos } else { costliest };
        let calls = SHARE.saturating_mul(nanos.saturating_sub(native)) / native;
        let left = u32::try_from(calls).unwrap_or(NEVER_TRIED - 1);
        self.state.store(state.max(left.min(NEVER_TRIED - 1)), Relaxed);
    }

    /// Whether plain Python would do something else than a replay.
    #[must_use]
    pub fn is_steered(&self) -> bool {
        self.is_steered.load(Relaxed)
    }

    /// Calls that run natively up to the next trial.
    #[must_use]
    pub fn left(&self) -> u32 {
        match self.state.load(Relaxed) {
            REPLAYS | PAYS => 0,
            NEVER_TRIED => u32::MAX,
            left => left - 1,
        }
    }

    /// So many calls will run natively without being counted, at most [`Floor::left`].
    pub fn pass(&self, calls: u32) {
        match self.state.load(Relaxed) {
            REPLAYS | PAYS | NEVER_TRIED => {}
            left => self.state.store(left.saturating_sub(calls).max(1), Relaxed),
        }
    }

    /// Why calls run natively, if that is new.
    pub fn reason(&self) -> Option<Estimate> {
        lock(&self.reason).take()
    }
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Floor, News, Turn, Verdict};
    use crate::profit::Tally;

    fn loss() -> Estimate {
        Estimate::of_call()
    }

    fn gain() -> Estimate {
        let tally = Tally::default();
        (0..100).for_each(|_| tally.module());
        Estimate::of_trace(tally.take(), 1, None)
    }

    fn trials(floor: &Floor, calls: u32) -> Vec<u32> {
        let mut tried = Vec::new();
        for call in 0..calls {
            if floor.turn() == Turn::Trial {
                tried.push(call);
                assert_eq!(floor.weigh(loss(), News::None, true), None);
            }
        }
        tried
    }

    #[test]
    fn trials_are_further_and_further_apart() {
        let floor = Floor::default();
        assert_eq!(floor.turn(), Turn::Replay);
        assert_eq!(floor.weigh(loss(), News::Recorded, true), Some(Verdict::Native));
        assert!(floor.is_under());
        assert_eq!(trials(&floor, 40), [1, 4, 9, 18, 35]);
        trials(&floor, 10_000);
        let far = trials(&floor, 1000);
        assert!(far.windows(2).all(|pair| pair[1] - pair[0] == 257), "{far:?}");
    }

    #[test]
    fn trials_that_take_long_are_rare() {
        let floor = Floor::default();
        floor.weigh(loss(), News::Recorded, true);
        floor.timed(1000);
        floor.timed(3000);
        floor.tried(1500);
        assert_eq!(floor.left(), 1);
        floor.tried(20_000);
        assert_eq!(u64::from(floor.left()), super::SHARE * 19 - 1);
        floor.pass(super::SHARE as u32);
        assert_eq!(u64::from(floor.left()), super::SHARE * 18 - 1);
    }

    #[test]
    fn late_trials_are_put_off_by_the_costliest() {
        let floor = Floor::default();
        floor.recorded(100_000);
        floor.weigh(loss(), News::Recorded, true);
        floor.timed(1000);
        for _ in 0..5 {
            while floor.turn() != Turn::Trial {}
            floor.weigh(loss(), News::None, true);
            floor.tried(1500);
        }
        assert_eq!(u64::from(floor.left()), super::SHARE * 99 - 1);
    }

    #[test]
    fn what_is_new_brings_trials_nearer() {
        let floor = Floor::default();
        floor.weigh(loss(), News::Recorded, true);
        trials(&floor, 30);
        assert_eq!(floor.weigh(loss(), News::Recorded, true), None);
        assert_eq!(trials(&floor, 5), [1, 4]);
    }

    #[test]
    fn what_is_unfinished_goes_on_at_the_next_call() {
        let floor = Floor::default();
        floor.weigh(loss(), News::Recorded, true);
        assert_eq!(floor.weigh(loss(), News::Unfinished, true), None);
        assert_eq!(floor.turn(), Turn::Replay);
    }

    #[test]
    fn without_a_break_there_is_nothing_to_try() {
        let floor = Floor::default();
        assert_eq!(floor.weigh(loss(), News::Recorded, false), Some(Verdict::Native));
        assert!(trials(&floor, 1000).is_empty());
    }

    #[test]
    fn what_has_paid_once_is_replayed() {
        let floor = Floor::default();
        floor.weigh(loss(), News::Recorded, true);
        assert_eq!(floor.weigh(gain(), News::None, true), Some(Verdict::Replayed));
        assert_eq!(floor.weigh(gain(), News::None, true), None);
        assert_eq!(floor.weigh(loss(), News::Recorded, true), None);
        assert!(!floor.is_under());
        assert_eq!(floor.turn(), Turn::Replay);
    }
}

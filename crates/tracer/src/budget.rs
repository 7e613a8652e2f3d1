//! How much time a function may spend on recordings before any of its replays has been shown to gain.
//!
//! A program that goes new ways at each call would be recorded for ever. Its first takes are free, and they are a few:
//! a first call makes the state that later ones find (an optimizer's, a cache), and so goes another way; what has
//! changed in the second is a symbol in the third. What further ones cost beyond a plain call is added up, and one that
//! costs as much as the costliest before it, or as a first take, has to fit. One that doesn't after all is abandoned on
//! the way. After the first calls, so many must have been plain since the last take that on average they cost next to
//! nothing.

use crate::clock::Span;
use crate::gauge::{Measured, SHARE};

/// Nanoseconds that are always granted.
const LEAST: u64 = 5_000_000;
/// So many plain calls are granted where that is more.
const CALLS: u64 = 3;
/// A recording takes about so many times what a plain call takes, at least.
const RECORDING: u64 = 3;
/// So many recordings are first takes.
const FIRST: u32 = 3;
/// So many calls of a function are its first ones.
const EARLY: u64 = 64;
/// At most so many calls follow one another of which one isn't at rest.
const RESTING: u64 = 33;
/// After so many recordings in a row that brought no trace, because the program raised, the next ones wait, whatever
/// replays gain: those calls raise again.
const FRUITLESS: u32 = 4;
/// Of what is left for a recording, its end may take one part of so many.
const END: u64 = 4;

/// The account of one function.
#[derive(Debug, Default)]
pub struct Budget {
    takes: u32,
    /// Nanoseconds of the costliest first take.
    first: u64,
    /// Nanoseconds spent since.
    spent: u64,
    /// Nanoseconds of the costliest recording that was counted.
    costliest: u64,
    /// Nanoseconds of plain calls since the last recording, up to the call that `counted` is the number of.
    plain: u64,
    counted: u64,
    /// Nanoseconds of a plain call, the quickest that was timed; 0: none was.
    native: u64,
    gains: bool,
    /// Recordings without a trace since the last one that brought one.
    fruitless: u32,
    /// Whether plain calls would do something else, and so aren't made.
    is_steered: bool,
    /// How much slower replays were found to be, if they were.
    loses: Option<Measured>,
    is_hurried: bool,
    is_told: bool,
}

impl Budget {
    /// Whether another call may be recorded, now or later.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.has_room() || self.is_unknown()
    }

    /// Whether that has to wait, after so many calls of the function.
    #[must_use]
    pub fn waits(&self, calls: u64) -> bool {
        if self.gains && self.fruitless < FRUITLESS {
            return false;
        }
        let since = self.plain.saturating_add(calls.saturating_sub(self.counted) * self.native);
        let is_late = calls >= EARLY && self.native > 0;
        (is_late && since < SHARE.saturating_mul(self.likely()))
            || (self.is_unknown() && !self.has_room())
    }

    /// Nanoseconds after which a recording that begins now is abandoned, if there is such a bound.
    #[must_use]
    pub fn allowance(&self) -> Option<u64> {
        if self.gains || self.is_first() {
            return None;
        }
        let left = self.left();
        let left = left - left / END;
        // What of it costs so much; see `cost`.
        Some(left.saturating_add(self.native).min(left.saturating_add(left / (RECORDING - 1))))
    }

    /// Nanoseconds that recordings may still cost.
    fn left(&self) -> u64 {
        LEAST.max(CALLS * self.usual()).saturating_sub(self.spent)
    }

    /// Whether another recording fits that costs what is likely.
    fn has_room(&self) -> bool {
        self.gains || self.is_first() || self.likely() <= self.left()
    }

    /// What another recording costs: as much as the costliest one, or the first take.
    fn likely(&self) -> u64 {
        if self.costliest > 0 { self.costliest } else { self.cost(self.first) }
    }

    /// What a recording costs beyond a plain call. A part of a call takes less than all of it.
    fn cost(&self, nanos: u64) -> u64 {
        nanos - self.native.min(nanos / RECORDING)
    }

    /// Whether a plain call is yet to be timed.
    fn is_unknown(&self) -> bool {
        self.native == 0 && !self.is_steered
    }

    /// Whether the next recording is a first take.
    fn is_first(&self) -> bool {
        self.takes < FIRST
    }

    /// A call that waits for that ran natively, the last one of so many. Those that have rested before it
    /// took as long, about; others were the quickest there are.
    pub fn waited(&mut self, calls: u64, nanos: u64) {
        let since = calls.saturating_sub(self.counted);
        let alike = since.min(RESTING);
        let nanos = alike * nanos + (since - alike) * self.native;
        self.plain = self.plain.saturating_add(nanos);
        self.counted = calls;
    }

    /// A plain call, about; 0: nothing is known of it.
    fn usual(&self) -> u64 {
        if self.is_steered { self.first / RECORDING } else { self.native }
    }

    /// Plain calls would do something else.
    pub fn steer(&mut self) {
        self.is_steered = true;
    }

    /// A call was recorded, or a part of it, after so many. `brings`: there is a trace now, or may be.
    pub fn recorded(&mut self, nanos: u64, calls: u64, brings: bool) {
        let is_first = self.is_first();
        self.takes += 1;
        self.fruitless = if brings { 0 } else { self.fruitless + 1 };
        (self.plain, self.counted) = (0, calls);
        if is_first {
            self.first = self.first.max(nanos);
        } else {
            let cost = self.cost(nanos);
            self.spent += cost;
            self.costliest = self.costliest.max(cost);
        }
    }

    /// A call was timed.
    pub fn timed(&mut self, span: Span, nanos: u64) {
        if span == Span::Native {
            self.native = if self.native == 0 { nanos } else { self.native.min(nanos) };
        }
    }

    /// Whether no plain call was timed.
    #[must_use]
    pub fn wants_native(&self) -> bool {
        self.native == 0
    }

    /// How often something was recorded.
    #[must_use]
    pub fn takes(&self) -> u32 {
        self.takes
    }

    /// Whether it was said that nothing more is recorded.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.is_told
    }

    /// A replay has been shown to gain: recordings are granted.
    pub fn gains(&mut self) {
        self.gains = true;
    }

    /// Replays were found to be slower.
    pub fn loses(&mut self, measured: Measured) {
        self.loses = (!self.gains).then_some(measured);
    }

    /// How much slower they are, as far as is known, if none gains.
    #[must_use]
    pub fn doubts(&self) -> Option<Measured> {
        self.loses.filter(|_| !self.gains)
    }

    /// Whether the traces there are have to show now what they gain, which is asked for once.
    pub fn hurries(&mut self) -> bool {
        !std::mem::replace(&mut self.is_hurried, true)
    }

    /// Why nothing is recorded; said once.
    pub fn tell(&mut self) -> Option<String> {
        let is_new = !std::mem::replace(&mut self.is_told, true);
        is_new.then(|| {
            let millis = |nanos: u64| format!("{}.{} ms", nanos / 1_000_000, nanos / 100_000 % 10);
            format!(
                "recording has cost {} beyond the first calls, another one would cost some {} of the {} that are left, \
                 and no replay has been found to gain",
                millis(self.spent),
                millis(self.likely()),
                millis(self.left())
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, EARLY, END, FIRST, FRUITLESS, LEAST, SHARE};
    use crate::clock::Span;
    use crate::gauge::Measured;

    /// A function behind its first takes, each of which took so long.
    fn behind_first(nanos: u64) -> Budget {
        let mut budget = Budget::default();
        (1..=u64::from(FIRST)).for_each(|call| budget.recorded(nanos, call, true));
        budget
    }

    #[test]
    fn first_takes_are_free_and_others_are_counted() {
        let mut budget = Budget::default();
        for call in 1..u64::from(FIRST) {
            budget.recorded(LEAST * 100, call, true);
            budget.timed(Span::Native, 1000);
            assert!(budget.allows() && !budget.waits(call));
        }
        let mut budget = behind_first(LEAST / 8);
        budget.timed(Span::Native, 1000);
        budget.recorded(LEAST / 4, 4, true);
        budget.recorded(LEAST / 2, 5, true);
        // Another one like that would be too much.
        assert!(!budget.allows());
        let told = budget.tell().expect("it is new");
        assert!(told.starts_with("recording has cost 3.7 ms beyond"), "{told}");
        assert_eq!(budget.tell(), None);
        budget.gains();
        assert!(budget.allows());
    }

    #[test]
    fn slow_programs_may_spend_three_calls() {
        let mut budget = behind_first(LEAST * 30);
        // Nothing is known of a plain call yet.
        assert!(budget.waits(3) && budget.allows());
        budget.timed(Span::Native, LEAST * 10);
        assert!(!budget.waits(4) && budget.allows());
        budget.recorded(LEAST * 22, 4, true);
        assert!(budget.allows());
        budget.recorded(LEAST * 22, 5, true);
        assert!(!budget.allows());
    }

    #[test]
    fn what_a_first_take_has_cost_has_to_fit() {
        let mut budget = behind_first(LEAST * 2);
        budget.timed(Span::Native, 1000);
        assert!(!budget.allows());
        let mut budget = behind_first(LEAST / 2);
        budget.timed(Span::Native, 1000);
        assert!(budget.allows());
    }

    #[test]
    fn what_costs_more_than_is_left_is_abandoned() {
        assert_eq!(Budget::default().allowance(), None);
        let mut budget = behind_first(LEAST * 6);
        budget.timed(Span::Native, LEAST * 2);
        let allowance = budget.allowance().expect("the next one isn't a first take");
        budget.recorded(allowance, 4, true);
        // It has cost three quarters of three plain calls.
        assert_eq!(budget.left(), LEAST * 6 / END);
        assert!(!budget.allows());
        budget.gains();
        assert_eq!(budget.allowance(), None);
    }

    #[test]
    fn steered_programs_have_no_plain_calls() {
        let mut budget = behind_first(LEAST * 30);
        budget.steer();
        assert!(!budget.waits(3) && budget.allows());
    }

    #[test]
    fn late_takes_wait_for_plain_calls() {
        let mut budget = behind_first(100_000);
        budget.recorded(60_000, 2, true);
        budget.timed(Span::Native, 10_000);
        assert!(!budget.waits(EARLY - 1) && budget.allows());
        // It has cost six calls.
        assert!(budget.waits(6 * SHARE + 1) && !budget.waits(6 * SHARE + 2));
        budget.recorded(60_000, 2000, true);
        assert!(budget.waits(3000));
        // Others may be slower, of which one was timed.
        budget.waited(3001, 50_000);
        assert!(budget.waits(3001));
        for call in 1..=4 {
            budget.waited(3001 + 33 * call, 50_000);
        }
        assert!(!budget.waits(3001 + 33 * 4));
        budget.gains();
        assert!(!budget.waits(3001));
    }

    #[test]
    fn what_loses_is_doubted_until_something_gains() {
        let mut budget = Budget::default();
        assert_eq!(budget.doubts(), None);
        let measured = Measured { replay: 3, native: 1 };
        budget.loses(measured);
        assert_eq!(budget.doubts(), Some(measured));
        budget.gains();
        assert_eq!(budget.doubts(), None);
    }

    #[test]
    fn recordings_that_raise_wait_though_replays_gain() {
        let mut budget = behind_first(300_000);
        budget.timed(Span::Native, 100_000);
        budget.gains();
        for call in EARLY..EARLY + u64::from(FRUITLESS) {
            assert!(!budget.waits(call));
            budget.recorded(300_000, call, false);
        }
        let last = EARLY + u64::from(FRUITLESS) - 1;
        assert!(budget.waits(last + 1));
        assert!(!budget.waits(last + 3 * SHARE));
        budget.recorded(300_000, last + 3 * SHARE, true);
        assert!(!budget.waits(last + 3 * SHARE + 1));
    }
}

//! How much time a function may spend on recordings before any of its replays has been shown to gain.
//!
//! A program that goes new ways at each call would be recorded for ever. Its first takes are free; what
//! further ones cost beyond a plain call is added up.

use crate::clock::Span;

/// Nanoseconds that are always granted.
const LEAST: u64 = 5_000_000;
/// So many plain calls are granted where that is more.
const CALLS: u64 = 3;
/// A recording takes about so many times what a plain call takes, as long as none was timed.
const RECORDING: u64 = 3;
/// So many recordings that came to nothing are first takes.
const FIRST: u32 = 3;

/// The account of one function.
#[derive(Debug, Default)]
pub struct Budget {
    takes: u32,
    /// Whether a first take has come to something.
    is_traced: bool,
    /// Nanoseconds of the first take.
    first: u64,
    /// Nanoseconds spent since.
    spent: u64,
    /// Nanoseconds of a plain call; 0: none was timed.
    native: u64,
    gains: bool,
    is_told: bool,
}

impl Budget {
    /// Whether another call may be recorded.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.gains || self.spent <= LEAST.max(CALLS * self.plain())
    }

    /// A plain call, about.
    fn plain(&self) -> u64 {
        if self.native > 0 { self.native } else { self.first / RECORDING }
    }

    /// A call was recorded, or a part of it. `traced`: a trace has come of it.
    pub fn recorded(&mut self, nanos: u64, traced: bool) {
        let is_first = !self.is_traced && self.takes < FIRST;
        self.takes += 1;
        self.is_traced |= traced;
        if is_first {
            self.first = self.first.max(nanos);
        } else {
            self.spent += nanos.saturating_sub(self.plain().min(nanos / RECORDING));
        }
    }

    /// A call was timed.
    pub fn timed(&mut self, span: Span, nanos: u64) {
        if span == Span::Native {
            self.native = nanos;
        }
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

    /// Why nothing is recorded; said once.
    pub fn tell(&mut self) -> Option<String> {
        let is_new = !std::mem::replace(&mut self.is_told, true);
        is_new.then(|| {
            let millis = |nanos: u64| format!("{}.{} ms", nanos / 1_000_000, nanos / 100_000 % 10);
            format!(
                "recording has cost {} beyond the first call, and no replay has been found to gain",
                millis(self.spent)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, LEAST};
    use crate::clock::Span;

    #[test]
    fn first_takes_are_free_and_others_are_counted() {
        let mut budget = Budget::default();
        budget.recorded(LEAST * 100, false);
        budget.recorded(LEAST * 100, true);
        assert!(budget.allows());
        budget.timed(Span::Native, 1000);
        budget.recorded(LEAST / 2, true);
        assert!(budget.allows());
        budget.recorded(LEAST, true);
        assert!(!budget.allows());
        let told = budget.tell().expect("it is new");
        assert!(told.starts_with("recording has cost 7.4 ms beyond"), "{told}");
        assert_eq!(budget.tell(), None);
        budget.gains();
        assert!(budget.allows());
    }

    #[test]
    fn slow_programs_may_spend_three_calls() {
        let mut budget = Budget::default();
        budget.recorded(LEAST * 30, true);
        // A plain call takes about ten times the least.
        budget.recorded(LEAST * 30, true);
        assert!(budget.allows());
        budget.recorded(LEAST * 30, true);
        assert!(!budget.allows());
    }
}

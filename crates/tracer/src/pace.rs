//! What is measured of a backend's code: whether it runs a graph quicker than the replay does.
//!
//! Some calls that the code could serve are timed, the graph alone: a run of them by the code, a run by the replay,
//! and so on. The first call of a run finds the processor's caches as the other kind has left them and isn't counted.
//! The medians of the rest decide. Where the code isn't quicker, something else on the machine may have been in its
//! way: the replay serves for a while, then a second look decides for good.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::clock::Span;
use crate::gauge::{Micros, median};
use crate::lock;

/// So many calls of one kind make a run.
const RUN: usize = 3;
/// A look takes so many runs of each kind.
const RUNS: usize = 3;
/// So many calls are replayed before the second look.
const DISTANCE: u32 = 32;

/// Who runs the graph in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The code.
    Code,
    /// The replay.
    Replay,
    /// The one or the other, and it is timed.
    Timed(Span),
    /// The replay, from now on: the code isn't quicker.
    Slower(Measured),
}

/// Medians, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Of a run of the code.
    pub code: u64,
    /// Of a run of the replay.
    pub replay: u64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, replay } = *self;
        write!(f, "measured: the code takes {}, the replay {}", Micros(code), Micros(replay))
    }
}

/// The measurements of one piece of code.
#[derive(Debug, Default)]
pub struct Pace {
    /// Whether nothing is timed any more.
    is_decided: AtomicBool,
    /// Calls up to the second look.
    left: AtomicU32,
    look: Mutex<Look>,
    /// What has decided, in words.
    why: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Look {
    /// Whether it's the second one.
    is_second: bool,
    /// Calls that were timed.
    timed: usize,
    codes: Vec<u64>,
    replays: Vec<u64>,
}

impl Pace {
    /// Who runs the graph in the next call; counts it.
    pub fn turn(&self) -> Turn {
        if self.is_decided() {
            return Turn::Code;
        }
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
            return Turn::Replay;
        }
        let mut look = lock(&self.look);
        if look.timed < 2 * RUN * RUNS {
            return Turn::Timed(look.span());
        }
        let measured =
            Measured { code: median(&mut look.codes), replay: median(&mut look.replays) };
        let is_second = look.is_second;
        *look = Look { is_second: true, ..Look::default() };
        drop(look);
        if measured.code < measured.replay {
            self.decide(measured.to_string());
            return Turn::Code;
        }
        if is_second {
            self.decide(measured.to_string());
            return Turn::Slower(measured);
        }
        self.left.store(DISTANCE - 1, Relaxed);
        Turn::Replay
    }

    /// A run of the graph was timed. True: it was the first one of the code.
    pub fn add(&self, span: Span, nanos: u64) -> bool {
        let mut look = lock(&self.look);
        if span != look.span() || look.timed == 2 * RUN * RUNS {
            // Another thread's call was first.
            return false;
        }
        if !look.timed.is_multiple_of(RUN) {
            let runs = if span == Span::Code { &mut look.codes } else { &mut look.replays };
            runs.push(nanos);
        }
        look.timed += 1;
        look.timed == 1
    }

    /// Nothing is timed any more: the code serves, or nobody does as it's slower.
    pub fn decide(&self, why: String) {
        let _ = self.why.set(why);
        self.is_decided.store(true, Relaxed);
    }

    /// Whether nothing is timed any more.
    #[inline]
    pub fn is_decided(&self) -> bool {
        self.is_decided.load(Relaxed)
    }

    /// What has decided, in words.
    pub fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }
}

impl Look {
    /// Of which kind the next call is that is timed.
    fn span(&self) -> Span {
        if (self.timed / RUN).is_multiple_of(2) { Span::Code } else { Span::Graph }
    }
}

#[cfg(test)]
mod tests {
    use super::{DISTANCE, Measured, Pace, RUN, RUNS, Span, Turn};

    const LOOK: usize = 2 * RUN * RUNS;

    /// The turns of so many calls, which take so long.
    fn turns(pace: &Pace, calls: usize, nanos: impl Fn(usize, Span) -> u64) -> Vec<Turn> {
        let call = |number| {
            let turn = pace.turn();
            if let Turn::Timed(span) = turn {
                pace.add(span, nanos(number, span));
            }
            turn
        };
        (0..calls).map(call).collect()
    }

    fn count(turns: &[Turn], turn: Turn) -> usize {
        turns.iter().filter(|other| **other == turn).count()
    }

    const fn steady(code: u64, replay: u64) -> impl Fn(usize, Span) -> u64 {
        move |_, span| if matches!(span, Span::Code) { code } else { replay }
    }

    #[test]
    fn quicker_code_is_kept_after_one_look() {
        let pace = Pace::default();
        let turns = turns(&pace, LOOK + 5, steady(3_000, 5_000));
        assert_eq!(count(&turns, Turn::Timed(Span::Code)), RUN * RUNS);
        assert_eq!(count(&turns, Turn::Timed(Span::Graph)), RUN * RUNS);
        assert_eq!(turns[LOOK..], [Turn::Code; 5]);
        assert_eq!(pace.why(), Some("measured: the code takes 3.0 µs, the replay 5.0 µs"));
    }

    #[test]
    fn code_that_is_as_quick_is_slower() {
        let pace = Pace::default();
        let turns = turns(&pace, 2 * LOOK + DISTANCE as usize + 1, steady(5_000, 5_000));
        assert_eq!(count(&turns, Turn::Replay), DISTANCE as usize);
        let measured = Measured { code: 5_000, replay: 5_000 };
        assert_eq!(turns.last(), Some(&Turn::Slower(measured)));
        assert!(pace.is_decided());
    }

    #[test]
    fn what_was_in_the_way_of_the_first_look_decides_nothing() {
        let pace = Pace::default();
        let late = |call, span| match (span, call) {
            (Span::Code, ..LOOK) => 9_000,
            (Span::Code, _) => 1_000,
            _ => 5_000,
        };
        let turns = turns(&pace, 2 * LOOK + DISTANCE as usize + 3, late);
        assert_eq!(turns[turns.len() - 3..], [Turn::Code; 3]);
    }

    #[test]
    fn slow_calls_now_and_then_decide_nothing() {
        let pace = Pace::default();
        // The first of each run of the code, and one more.
        let some = |call: usize, span| match span {
            Span::Code if call.is_multiple_of(RUN) || call == 1 => 1_000_000,
            Span::Code => 1_000,
            _ => 5_000,
        };
        assert_eq!(turns(&pace, LOOK + 1, some).last(), Some(&Turn::Code));
    }

    #[test]
    fn calls_of_another_thread_count_once() {
        let pace = Pace::default();
        assert_eq!(pace.turn(), Turn::Timed(Span::Code));
        assert!(!pace.add(Span::Graph, 1));
        assert!(pace.add(Span::Code, 1));
        assert!(!pace.add(Span::Code, 1));
    }
}

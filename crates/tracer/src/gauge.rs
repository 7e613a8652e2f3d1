//! What is measured of one entry: whether its replays gain anything.
//!
//! The estimate (`profit.rs`) doesn't know what guards cost that no snapshot answers, nor what a program
//! does behind a break. So once an entry has been replayed for a while, some of its calls are timed: a
//! replay, a native call, a replay, and so on. The medians decide. Later looks are shorter, and further
//! and further apart, by counting calls.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::clock::Span;
use crate::lock;

/// So many calls are replayed before the first look.
const WARM: u32 = 20;
/// A look takes so many calls of each kind: the first one, and later ones.
const PAIRS: [usize; 2] = [7, 3];
/// So many calls lie between the first look and the second where replays gain, and where they don't.
const DISTANCE: u32 = 256;
/// The distances double up to this many.
const FURTHEST: u32 = 1 << 16;
/// Nanoseconds that a native call takes which aren't measured with it: the way through Stator.
const WAY: u64 = 300;

/// What is done with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// What the measurements say.
    Usual,
    /// It is replayed or run natively, and timed.
    Timed(Span),
}

/// Medians, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Of a replay.
    pub replay: u64,
    /// Of a native call.
    pub native: u64,
}

/// What the measurements say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finding {
    /// Nothing yet.
    #[default]
    Unknown,
    /// Replays are quicker than native calls, or as quick.
    Gains,
    /// They are slower.
    Loses,
}

/// The measurements of an entry.
#[derive(Debug)]
pub struct Gauge {
    /// Calls up to the next look; 0: one goes on.
    left: AtomicU32,
    loses: AtomicBool,
    look: Mutex<Look>,
}

#[derive(Debug, Default)]
struct Look {
    replays: Vec<u64>,
    natives: Vec<u64>,
    finding: Finding,
    distance: u32,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { left: AtomicU32::new(WARM), loses: AtomicBool::new(false), look: Mutex::default() }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| format!("{}.{} µs", nanos / 1000, nanos % 1000 / 100);
        let (replay, native) = (micros(self.replay), micros(self.native));
        write!(f, "measured: a replay takes {replay}, plain Python {native}")
    }
}

impl Measured {
    /// Whether a replay is quicker beyond doubt.
    #[must_use]
    pub fn gains(self) -> bool {
        self.replay + self.native / 20 < self.native
    }
}

impl Gauge {
    /// What is done with the next call; counts it.
    pub fn step(&self) -> Step {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
            return Step::Usual;
        }
        let look = lock(&self.look);
        let span =
            if look.replays.len() <= look.natives.len() { Span::Replay } else { Span::Native };
        Step::Timed(span)
    }

    /// Whether replays have been found to be slower.
    #[inline]
    #[must_use]
    pub fn loses(&self) -> bool {
        self.loses.load(Relaxed)
    }

    /// So many calls were none of those that are counted.
    pub fn pass(&self, calls: u32) {
        self.left.store(self.left.load(Relaxed).saturating_sub(calls), Relaxed);
    }

    /// Calls up to the next look.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }

    /// The first look begins with the next call.
    pub fn hurry(&self) {
        if lock(&self.look).finding == Finding::Unknown {
            self.left.store(0, Relaxed);
        }
    }

    /// A call was timed. What is found at the end of a look, and whether it's something new.
    pub fn add(&self, span: Span, nanos: u64) -> Option<(Finding, Measured, bool)> {
        let mut look = lock(&self.look);
        let pairs = PAIRS[usize::from(look.finding != Finding::Unknown)];
        let calls = if span == Span::Replay { &mut look.replays } else { &mut look.natives };
        if calls.len() < pairs {
            calls.push(nanos);
        }
        if look.replays.len() < pairs || look.natives.len() < pairs {
            return None;
        }
        let measured =
            Measured { replay: median(&mut look.replays), native: median(&mut look.natives) };
        (look.replays, look.natives) = Default::default();
        let before = look.finding;
        look.finding = before.then(measured);
        self.loses.store(look.finding == Finding::Loses, Relaxed);
        look.distance = match look.distance {
            _ if look.finding != before => DISTANCE,
            distance => (distance * 2).min(FURTHEST),
        };
        // A look at what loses costs more, the more it loses.
        let factor = measured.replay / measured.native.max(1);
        let factor = u32::try_from(factor).unwrap_or(FURTHEST).clamp(1, FURTHEST);
        self.left.store(look.distance.saturating_mul(factor).min(FURTHEST), Relaxed);
        Some((look.finding, measured, look.finding != before))
    }
}

impl Finding {
    /// What is found next. What isn't clear leaves it as it is.
    fn then(self, measured: Measured) -> Self {
        let Measured { replay, native } = measured;
        let slack = native / 20;
        match self {
            Self::Unknown if replay <= native + WAY => Self::Gains,
            Self::Unknown => Self::Loses,
            Self::Gains if replay > native + slack + WAY => Self::Loses,
            Self::Loses if replay + slack < native => Self::Gains,
            known => known,
        }
    }
}

fn median(all: &mut [u64]) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::{DISTANCE, Finding, Gauge, Measured, PAIRS, Span, Step, WARM};

    /// Calls until the next finding: how many there were, how many of them timed, and it.
    fn look(gauge: &Gauge, replay: u64, native: u64) -> (u32, u32, Finding) {
        let mut timed = 0;
        for call in 1.. {
            let Step::Timed(span) = gauge.step() else { continue };
            timed += 1;
            let nanos = if span == Span::Replay { replay } else { native };
            if let Some((finding, measured, _)) = gauge.add(span, nanos) {
                assert_eq!(measured, Measured { replay, native });
                return (call, timed, finding);
            }
        }
        unreachable!("there is no last call")
    }

    #[test]
    fn looks_are_rarer_and_rarer() {
        let gauge = Gauge::default();
        let first = 2 * PAIRS[0] as u32;
        let later = 2 * PAIRS[1] as u32;
        assert_eq!(look(&gauge, 5_000, 9_000), (WARM + first, first, Finding::Gains));
        assert_eq!(look(&gauge, 5_000, 9_000), (DISTANCE + later, later, Finding::Gains));
        assert_eq!(look(&gauge, 5_000, 9_000), (2 * DISTANCE + later, later, Finding::Gains));
        assert_eq!(look(&gauge, 50_000, 9_000).2, Finding::Loses);
        // Five times as slow: looked at five times as rarely.
        assert_eq!(look(&gauge, 50_000, 9_000).0, 5 * DISTANCE + later);
        assert_eq!(look(&gauge, 8_900, 9_000).2, Finding::Loses);
        assert_eq!(look(&gauge, 8_000, 9_000).2, Finding::Gains);
        assert_eq!(look(&gauge, 9_500, 9_000).2, Finding::Gains);
    }

    #[test]
    fn one_slow_call_decides_nothing() {
        let gauge = Gauge::default();
        gauge.hurry();
        let mut found = None;
        for call in 0..2 * PAIRS[0] {
            let Step::Timed(span) = gauge.step() else { panic!("a look goes on") };
            let nanos = if span == Span::Replay { 4_000 } else { 6_000 };
            found = gauge.add(span, if call == 2 { 1_000_000 } else { nanos });
        }
        let measured = Measured { replay: 4_000, native: 6_000 };
        assert_eq!(found, Some((Finding::Gains, measured, true)));
        assert_eq!(measured.to_string(), "measured: a replay takes 4.0 µs, plain Python 6.0 µs");
    }
}

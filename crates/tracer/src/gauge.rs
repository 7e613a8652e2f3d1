//! What is measured of one entry: whether its replays gain anything.
//!
//! The estimate (`profit.rs`) doesn't know what guards cost that no snapshot answers, nor what a program
//! does behind a break. So once an entry has been replayed for a while, some of its calls are timed: a run of
//! replays, a run of native calls, and so on. The first call of a run finds the processor's caches as the
//! other kind has left them and isn't counted. The medians of the rest decide; that replays gain has to show in the
//! quickest calls as well, because something else on the machine may have slowed down one kind. Later looks are
//! shorter, and further and further apart, by counting calls.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::clock::Span;
use crate::lock;

/// What is spent on finding out what to do (a look, a late recording) is at most this part of the plain calls since
/// the last time.
pub const SHARE: u64 = 256;
/// So many calls are replayed before the first look.
const WARM: u32 = 20;
/// So many calls of one kind make a run. What a program does in turns (every second or fourth call) is the
/// same share of all runs.
const RUN: usize = 4;
/// A look takes so many runs of each kind: the first one, and later ones.
const RUNS: [usize; 2] = [3, 1];
/// So many calls lie between the look that has found replays to be slower and the next one.
const DISTANCE: u32 = 256;
/// So many where replays have been found to gain, since a mistake costs something at each call; and where the first
/// look has found that the two are close. The second one is as long then.
const CLOSE_DISTANCE: u32 = 32;
/// The distances double up to this many.
const FURTHEST: u32 = 1 << 16;
/// Nanoseconds that a native call takes which aren't measured with it: the way through Stator.
const WAY: u64 = 100;
/// Native calls between replays are slower than those that are alone: replays and guards have taken the processor's
/// caches. It's at most so much: nanoseconds, and a part of the call.
const CACHES: (u64, u64) = (20_000, 10);

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
    /// Of a native call, without what the replays around it have cost it.
    pub native: u64,
}

/// What the measurements say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finding {
    /// Nothing yet.
    #[default]
    Unknown,
    /// Replays are quicker than native calls.
    Gains,
    /// They are slower, or as quick.
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
    /// Calls that were timed.
    timed: usize,
    replays: Vec<u64>,
    natives: Vec<u64>,
    finding: Finding,
    distance: u32,
    /// Whether the next look is as long as the first one: there is doubt.
    is_close: bool,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { left: AtomicU32::new(WARM), loses: AtomicBool::new(false), look: Mutex::default() }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (replay, native) = (Micros(self.replay), Micros(self.native));
        write!(f, "measured: a replay takes {replay}, plain Python {native}")
    }
}

/// Nanoseconds, printed as microseconds.
pub struct Micros(pub u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} µs", self.0 / 1000, self.0 % 1000 / 100)
    }
}

impl Measured {
    /// Of what was timed in one look.
    fn of(replay: u64, native: u64) -> Self {
        let (most, part) = CACHES;
        Self { replay, native: native - (native / part).min(most) }
    }

    /// Whether a replay is quicker beyond doubt.
    #[must_use]
    pub fn gains(self) -> bool {
        self.replay + self.native / 20 < self.native
    }

    /// Whether the difference is small enough to be a mistake.
    fn is_close(self) -> bool {
        self.replay.abs_diff(self.native) < self.native / 8
    }

    /// How many calls have to lie before a look with so many runs of replays, so that it costs next to nothing.
    fn distance(self, runs: usize) -> u32 {
        let lost = (RUN * runs) as u64 * self.replay.saturating_sub(self.native);
        let calls = SHARE.saturating_mul(lost) / self.native.max(1);
        u32::try_from(calls).unwrap_or(FURTHEST).min(FURTHEST)
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
        Step::Timed(lock(&self.look).span())
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
        if lock(&self.look).finding == Finding::Unknown && !self.loses() {
            self.left.store(0, Relaxed);
        }
    }

    /// Replays of another entry of the same function were found to be slower by so much: these count as
    /// slower, too, until they are looked at.
    pub fn doubt(&self, measured: Measured) {
        if lock(&self.look).finding == Finding::Unknown && !self.loses() {
            self.loses.store(true, Relaxed);
            self.left.store(measured.distance(RUNS[0]).max(DISTANCE), Relaxed);
        }
    }

    /// A call was timed. What is found at the end of a look, and whether it's something new.
    pub fn add(&self, span: Span, nanos: u64) -> Option<(Finding, Measured, bool)> {
        let mut look = lock(&self.look);
        if span != look.span() {
            // Another thread's call was first.
            return None;
        }
        if !look.timed.is_multiple_of(RUN) {
            let calls = if span == Span::Replay { &mut look.replays } else { &mut look.natives };
            calls.push(nanos);
        }
        look.timed += 1;
        let is_long = look.finding == Finding::Unknown || look.is_close;
        if look.timed < 2 * RUN * RUNS[usize::from(!is_long)] {
            return None;
        }
        let measured = Measured::of(median(&mut look.replays), median(&mut look.natives));
        let quickest = Measured::of(look.replays[0], look.natives[0]);
        (look.timed, look.replays, look.natives) = Default::default();
        let before = look.finding;
        let finding = before.then(measured, quickest);
        if !is_long && finding != before {
            // A long look follows at once and decides: something else may have been in the way of a short one.
            look.is_close = true;
            return None;
        }
        look.finding = finding;
        self.loses.store(look.finding == Finding::Loses, Relaxed);
        look.is_close = before == Finding::Unknown && measured.is_close();
        look.distance = match look.distance {
            _ if look.is_close => CLOSE_DISTANCE,
            _ if look.finding != before && look.finding == Finding::Gains => CLOSE_DISTANCE,
            _ if look.finding != before => DISTANCE,
            distance => (distance * 2).min(FURTHEST),
        };
        let runs = RUNS[usize::from(!look.is_close)];
        let least = if look.is_close { 0 } else { measured.distance(runs) };
        self.left.store(look.distance.max(least), Relaxed);
        Some((look.finding, measured, look.finding != before))
    }
}

impl Look {
    /// Of which kind the next call is that is timed.
    fn span(&self) -> Span {
        if (self.timed / RUN).is_multiple_of(2) { Span::Replay } else { Span::Native }
    }
}

impl Finding {
    /// What is found next: by the medians, and by the quickest calls. What isn't clear leaves it as it is.
    fn then(self, measured: Measured, quickest: Measured) -> Self {
        let Measured { replay, native } = measured;
        let gains = |Measured { replay, native }| replay + native / 40 < native;
        match self {
            // What hasn't been shown to gain isn't replayed: a mistake costs nothing then.
            Self::Unknown | Self::Loses if gains(measured) && gains(quickest) => Self::Gains,
            Self::Unknown => Self::Loses,
            Self::Gains if replay > native + native / 40 + WAY => Self::Loses,
            known => known,
        }
    }
}

/// The one in the middle; what it's given is in order then.
pub fn median(all: &mut [u64]) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::{
        CLOSE_DISTANCE, DISTANCE, Finding, Gauge, Measured, RUN, RUNS, SHARE, Span, Step, WARM,
    };

    const FIRST: u32 = (2 * RUN * RUNS[0]) as u32;
    const LATER: u32 = (2 * RUN * RUNS[1]) as u32;

    /// Calls until the next finding: how many there were, how many of them timed, and it.
    fn look(gauge: &Gauge, replay: u64, native: u64) -> (u32, u32, Finding) {
        let mut timed = 0;
        for call in 1.. {
            let Step::Timed(span) = gauge.step() else { continue };
            timed += 1;
            let nanos = if span == Span::Replay { replay } else { native };
            if let Some((finding, measured, _)) = gauge.add(span, nanos) {
                assert_eq!(measured, Measured::of(replay, native));
                return (call, timed, finding);
            }
        }
        unreachable!("there is no last call")
    }

    #[test]
    fn looks_are_rarer_and_rarer() {
        let gauge = Gauge::default();
        assert_eq!(look(&gauge, 5_000, 9_000), (WARM + FIRST, FIRST, Finding::Gains));
        assert_eq!(look(&gauge, 5_000, 9_000), (CLOSE_DISTANCE + LATER, LATER, Finding::Gains));
        assert_eq!(look(&gauge, 5_000, 9_000), (2 * CLOSE_DISTANCE + LATER, LATER, Finding::Gains));
        // Where a short look contradicts, a long one decides.
        assert_eq!(
            look(&gauge, 50_000, 9_000),
            (4 * CLOSE_DISTANCE + LATER + FIRST, LATER + FIRST, Finding::Loses)
        );
        // A look costs as much as eighteen calls.
        let lost = 4 * (50_000 - 8_100);
        assert_eq!(look(&gauge, 50_000, 9_000).0, SHARE as u32 * lost / 8_100 + LATER);
        // Between two replays a native call of 8.1 µs takes 9 µs.
        assert_eq!(look(&gauge, 8_000, 9_000).2, Finding::Loses);
        assert_eq!(look(&gauge, 7_800, 9_000).2, Finding::Gains);
        assert_eq!(look(&gauge, 8_300, 9_000).2, Finding::Gains);
    }

    #[test]
    fn what_is_close_at_first_is_soon_looked_at_again() {
        let gauge = Gauge::default();
        assert_eq!(look(&gauge, 7_800, 9_000).2, Finding::Gains);
        assert_eq!(look(&gauge, 9_000, 9_000), (CLOSE_DISTANCE + FIRST, FIRST, Finding::Loses));
        assert_eq!(look(&gauge, 9_000, 9_000).0, DISTANCE + LATER);
    }

    #[test]
    fn what_is_doubted_is_looked_at_later() {
        let gauge = Gauge::default();
        let measured = Measured { replay: 3000, native: 1000 };
        gauge.doubt(measured);
        assert!(gauge.loses());
        let distance = SHARE as u32 * 12 * 2;
        assert_eq!(look(&gauge, 5_000, 9_000), (distance + FIRST, FIRST, Finding::Gains));
        gauge.doubt(measured);
        assert!(!gauge.loses());
    }

    #[test]
    fn slow_calls_now_and_then_decide_nothing() {
        let gauge = Gauge::default();
        gauge.hurry();
        let mut found = None;
        for call in 0..FIRST as usize {
            let Step::Timed(span) = gauge.step() else { panic!("a look goes on") };
            let nanos = if span == Span::Replay { 4_000 } else { 6_000 };
            // The first of each run, and one more.
            let is_slow = call % RUN == 0 || call == 2;
            found = gauge.add(span, if is_slow { 1_000_000 } else { nanos });
        }
        let measured = Measured { replay: 4_000, native: 5_400 };
        assert_eq!(found, Some((Finding::Gains, measured, true)));
        assert_eq!(measured.to_string(), "measured: a replay takes 4.0 µs, plain Python 5.4 µs");
    }

    #[test]
    fn something_else_that_slows_down_native_calls_is_no_gain() {
        let gauge = Gauge::default();
        gauge.hurry();
        let mut found = None;
        for call in 0..FIRST as usize {
            let Step::Timed(span) = gauge.step() else { panic!("a look goes on") };
            // It comes behind the first run of native calls.
            let is_slow = span == Span::Native && call >= 2 * RUN;
            found = gauge.add(span, if is_slow { 9_000 } else { 5_000 });
        }
        let measured = Measured { replay: 5_000, native: 8_100 };
        assert_eq!(found, Some((Finding::Loses, measured, true)));
    }

    #[test]
    fn long_calls_lose_little_in_the_caches() {
        let gauge = Gauge::default();
        assert_eq!(look(&gauge, 9_500_000, 10_000_000).2, Finding::Gains);
    }
}

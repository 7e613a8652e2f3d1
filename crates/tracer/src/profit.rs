//! Whether a replay gains anything over CPython: what a trace saves, and what its replay costs.
//!
//! Here nothing is timed: what a trace saves is counted while it is recorded, and the counts are weighed
//! with [`Prices`], which `python -m bench.profit` measures. Where they are wrong, `gauge.rs` finds out. See
//! "When a graph is too small" in `docs/graph_breaks.md`.

use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::ops::{Add, AddAssign};

/// Nanoseconds.
struct Prices {
    /// Saved: an instruction evaluated. The simplest take half of it; what makes objects takes more.
    instruction: u64,
    /// Saved: a call of a Python function.
    frame: u64,
    /// Saved: the way from `module(x)` to `forward`, its two frames aside.
    module: u64,
    /// Saved: a parameter or submodule found by `nn.Module.__getattr__`.
    member: u64,
    /// Saved: a call of a C function that is no operation.
    call: u64,
    /// Saved: Python's function for one of PyTorch's operators.
    direct: u64,
    /// Paid once for each call, the check of the guards aside: that's paid to run natively, too.
    replay: u64,
    /// Paid for each operation.
    operation: u64,
    /// Paid for each graph break: frames are made or moved, and what's behind it is looked up.
    graph_break: u64,
    /// Paid instead where there is no operation before it.
    idle: u64,
    /// Paid at a break for each frame that waits for another one.
    waiting: u64,
}

const PRICES: Prices = Prices {
    instruction: 5,
    frame: 60,
    module: 1350,
    member: 680,
    call: 20,
    direct: 200,
    replay: 250,
    operation: 20,
    graph_break: 1900,
    idle: 850,
    waiting: 700,
};

/// What CPython does in a part of a call, and a replay doesn't: counted while recording.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    instructions: Cell<u64>,
    frames: Cell<u64>,
    modules: Cell<u64>,
    members: Cell<u64>,
    calls: Cell<u64>,
    is_steered: Cell<bool>,
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl Tally {
    /// An instruction is evaluated.
    #[inline]
    pub fn instruction(&self) {
        count(&self.instructions);
    }

    /// Instructions so far.
    pub fn counted(&self) -> u64 {
        self.instructions.get()
    }

    /// So many are spared that aren't evaluated one by one.
    pub fn instructions(&self, count: u64) {
        self.instructions.set(self.instructions.get() + count);
    }

    /// A Python function is called.
    pub fn frame(&self) {
        count(&self.frames);
    }

    /// A module is called whose class and hooks need no code of their own.
    pub fn module(&self) {
        count(&self.modules);
    }

    /// A module's member is found.
    pub fn member(&self) {
        count(&self.members);
    }

    /// A C function is called that is no operation.
    pub fn call(&self) {
        count(&self.calls);
    }

    /// What the program does depends on being traced: `is_compiling()`, `assume_constant_result`.
    pub fn steer(&self) {
        self.is_steered.set(true);
    }

    /// What was counted since isn't spared.
    pub fn reset(&self, before: &Self) {
        self.instructions.set(before.instructions.get());
        self.frames.set(before.frames.get());
        self.modules.set(before.modules.get());
        self.members.set(before.members.get());
        self.calls.set(before.calls.get());
    }

    /// What was counted so far.
    pub fn so_far(&self) -> Work {
        self.clone().take()
    }

    /// What was counted since then.
    pub fn since(&self, before: Work) -> Work {
        let now = self.so_far();
        let more = u64::saturating_sub;
        Work {
            instructions: more(now.instructions, before.instructions),
            frames: more(now.frames, before.frames),
            modules: more(now.modules, before.modules),
            members: more(now.members, before.members),
            calls: more(now.calls, before.calls),
            is_steered: false,
        }
    }

    /// As much is done once more.
    pub fn repeat(&self, work: Work) {
        let add = |cell: &Cell<u64>, more: u64| cell.set(cell.get() + more);
        add(&self.instructions, work.instructions);
        add(&self.frames, work.frames);
        add(&self.modules, work.modules);
        add(&self.members, work.members);
        add(&self.calls, work.calls);
    }

    /// What was counted, which begins anew.
    pub fn take(&self) -> Work {
        Work {
            instructions: self.instructions.take(),
            frames: self.frames.take(),
            modules: self.modules.take(),
            members: self.members.take(),
            calls: self.calls.take(),
            is_steered: self.is_steered.take(),
        }
    }
}

/// What CPython does where a trace is replayed; see [`Tally`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    instructions: u64,
    frames: u64,
    modules: u64,
    members: u64,
    calls: u64,
    is_steered: bool,
}

impl Work {
    fn price(&self) -> u64 {
        let prices = PRICES;
        self.instructions * prices.instruction
            + self.frames * prices.frame
            + self.modules * prices.module
            + self.members * prices.member
            + self.calls * prices.call
    }

    /// The counts, in the order of [`Tally`]'s methods.
    #[must_use]
    pub fn counts(&self) -> [u64; 5] {
        [self.instructions, self.frames, self.modules, self.members, self.calls]
    }
}

/// What replays save and cost, for one trace or for a chain of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Nanoseconds of CPython.
    saved: u64,
    /// Nanoseconds of Stator.
    cost: u64,
    operations: u64,
    breaks: u64,
    /// Whether plain Python would do something else.
    is_steered: bool,
}

impl Estimate {
    /// What comes with every call that is replayed.
    #[must_use]
    pub fn of_call() -> Self {
        Self { cost: PRICES.replay, ..Self::default() }
    }

    /// The estimate of one trace: what it saves, how many operations its graph has, and if it ends at a
    /// break how many frames stand there.
    #[must_use]
    pub fn of_trace(work: Work, operations: usize, standing: Option<usize>) -> Self {
        let operations = operations as u64;
        let graph_break = match standing {
            None => 0,
            Some(_) if operations == 0 => PRICES.idle,
            Some(frames) => PRICES.graph_break + PRICES.waiting * (frames as u64).saturating_sub(1),
        };
        Self {
            saved: work.price(),
            cost: PRICES.operation * operations + graph_break,
            operations,
            breaks: u64::from(standing.is_some()),
            is_steered: work.is_steered,
        }
    }

    /// So many of the operations are called without Python.
    #[must_use]
    pub fn with_direct(self, operations: usize) -> Self {
        Self { saved: self.saved + PRICES.direct * operations as u64, ..self }
    }

    /// Whether plain Python would do something else.
    #[must_use]
    pub fn is_steered(&self) -> bool {
        self.is_steered
    }

    /// Whether calls had better be replayed than run natively.
    #[must_use]
    pub fn pays(&self) -> bool {
        self.is_steered || self.saved >= self.cost
    }
}

impl Add for Estimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            saved: self.saved + other.saved,
            cost: self.cost + other.cost,
            operations: self.operations + other.operations,
            breaks: self.breaks + other.breaks,
            is_steered: self.is_steered || other.is_steered,
        }
    }
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted =
            |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let micros = |nanos: u64| format!("{}.{} µs", nanos / 1000, nanos % 1000 / 100);
        write!(
            f,
            "a replay saves {} of Python and costs {} ({}, {})",
            micros(self.saved),
            micros(self.cost),
            counted(self.operations, "operation"),
            counted(self.breaks, "graph break")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Tally};

    #[test]
    fn operators_alone_do_not_pay_and_modules_do() {
        let tally = Tally::default();
        (0..8).for_each(|_| tally.instruction());
        let operators = Estimate::of_call() + Estimate::of_trace(tally.take(), 2, None);
        assert!(!operators.pays());
        (0..30).for_each(|_| tally.instruction());
        tally.module();
        assert!((Estimate::of_call() + Estimate::of_trace(tally.take(), 1, None)).pays());
        assert_eq!(tally.take().counts(), [0; 5]);
    }

    #[test]
    fn a_chain_costs_what_its_traces_cost() {
        let trace = Estimate::of_trace(Tally::default().take(), 2, Some(1));
        let text = (trace + trace).to_string();
        assert_eq!(
            text,
            "a replay saves 0.0 µs of Python and costs 3.8 µs (4 operations, 2 graph breaks)"
        );
    }
}

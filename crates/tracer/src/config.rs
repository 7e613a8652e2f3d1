//! Settings that are asked at every call: copies of those in `stator.config`.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use stator_cpython::shortcut;

use crate::logs::Log;

static MIN_GRAPH_OPS: AtomicU64 = AtomicU64::new(0);
static STRICT: AtomicBool = AtomicBool::new(false);
static WHEN: AtomicI64 = AtomicI64::new(UNSAID);
static SKIP_UNPROFITABLE: AtomicBool = AtomicBool::new(true);

/// Graphs with fewer operations run natively; 0 while a log of graphs is on, so that it shows them.
#[must_use]
pub fn min_graph_ops() -> u64 {
    let least = MIN_GRAPH_OPS.load(Relaxed);
    if least > 0 && shows_graphs() { 0 } else { least }
}

/// Sets [`min_graph_ops`].
pub fn set_min_graph_ops(operations: u64) {
    MIN_GRAPH_OPS.store(operations, Relaxed);
}

/// Whether what gains nothing runs natively; not while a log shows what replays do.
#[must_use]
pub fn skips_unprofitable() -> bool {
    SKIP_UNPROFITABLE.load(Relaxed) && !shows_graphs() && !Log::Bytecode.is_on()
}

/// Sets [`skips_unprofitable`].
pub fn set_skip_unprofitable(skips: bool) {
    shortcut::close_all();
    SKIP_UNPROFITABLE.store(skips, Relaxed);
}

/// Whether errors of Stator's own are raised.
#[must_use]
pub fn is_strict() -> bool {
    STRICT.load(Relaxed)
}

/// Sets [`is_strict`].
pub fn set_strict(strict: bool) {
    STRICT.store(strict, Relaxed);
}

/// When a backend is asked for the code of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this one of the calls that the graph serves; the recorded one is the first. That call waits.
    Call(u32),
    /// Beside the program: no call waits.
    Background,
}

const UNSAID: i64 = -1;

impl When {
    /// As Python says it: the number of the call, 0 for the background.
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        match number {
            0 => Self::Background,
            call => Self::Call(call),
        }
    }
}

/// When backends are asked whose functions don't say it.
#[must_use]
pub fn when() -> Option<When> {
    u32::try_from(WHEN.load(Relaxed)).ok().map(When::of_number)
}

/// Sets [`when`], by number.
pub fn set_when(number: Option<u32>) {
    WHEN.store(number.map_or(UNSAID, i64::from), Relaxed);
}

/// Whether a log of graphs is on.
fn shows_graphs() -> bool {
    [Log::GraphCode, Log::Graph, Log::GraphSizes].iter().any(|log| log.is_on())
}

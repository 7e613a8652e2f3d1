//! Settings that are asked at every call: copies of those in `stator.config`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use stator_cpython::shortcut;

use crate::logs::Log;

static MIN_GRAPH_OPS: AtomicU64 = AtomicU64::new(0);
static STRICT: AtomicBool = AtomicBool::new(false);
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

/// Whether a log of graphs is on.
fn shows_graphs() -> bool {
    [Log::GraphCode, Log::Graph, Log::GraphSizes].iter().any(|log| log.is_on())
}

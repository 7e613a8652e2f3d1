//! The one clock that decisions are made by: the processor time of the thread, in which nothing is that
//! other programs do meanwhile. Tests say how long things take, and so decide the same on every machine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stator_cpython::ops;
use stator_cpython::thread::processor_nanos;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// A call that is replayed.
    Replay,
    /// A call that runs natively.
    Native,
    /// A call that is recorded, all of it or the rest from some graph break on.
    Recording,
}

/// The clock is asked.
const REAL: u64 = u64::MAX;

static SAID: [AtomicU64; 3] = [const { AtomicU64::new(REAL) }; 3];
/// So much is added to what a recording takes for each thing that it executes.
static STEP: AtomicU64 = AtomicU64::new(0);

/// A moment.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    nanos: u64,
    /// What the thread had executed.
    executed: u64,
}

/// Now.
#[must_use]
pub fn start() -> Start {
    Start { nanos: processor_nanos(), executed: ops::executed() }
}

impl Start {
    /// Nanoseconds since then, of a moment on the same thread.
    #[must_use]
    pub fn took(self, span: Span) -> u64 {
        match SAID[span as usize].load(Relaxed) {
            REAL => processor_nanos().saturating_sub(self.nanos),
            said if span == Span::Recording => {
                let executed = ops::executed().wrapping_sub(self.executed);
                said.saturating_add(STEP.load(Relaxed).saturating_mul(executed))
            }
            said => said,
        }
    }
}

/// Whether a test wants nothing to be measured.
#[must_use]
pub fn is_still() -> bool {
    SAID[Span::Replay as usize].load(Relaxed) == 0
}

/// From now on a replay, a native call and a recording take so many nanoseconds, and the last one so many more
/// for each thing that it executes; none: what they take.
pub fn say(spans: Option<[u64; 4]>) {
    let [replay, native, recording, step] = spans.unwrap_or([REAL, REAL, REAL, 0]);
    for (said, span) in SAID.iter().zip([replay, native, recording]) {
        said.store(span, Relaxed);
    }
    STEP.store(step, Relaxed);
}

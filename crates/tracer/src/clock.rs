//! The one clock that decisions are made by: the processor time of the thread, in which nothing is that
//! other programs do meanwhile. Runs of a graph are timed by the wall clock: a backend's code may work on other threads.
//! Tests say how long things take, and so decide the same on every machine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

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
    /// A graph that is run by the replay, without what is around it.
    Graph,
    /// A graph that is run by a backend's code.
    Code,
}

/// The clock is asked.
const REAL: u64 = u64::MAX;

static SAID: [AtomicU64; 5] = [const { AtomicU64::new(REAL) }; 5];
/// So much is added to what a recording takes for each thing that it executes.
static STEP: AtomicU64 = AtomicU64::new(0);

/// A moment.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    nanos: u64,
    moment: Instant,
    /// What the thread had executed.
    executed: u64,
}

/// Now.
#[must_use]
pub fn start() -> Start {
    Start { nanos: processor_nanos(), moment: Instant::now(), executed: ops::executed() }
}

impl Start {
    /// Nanoseconds since then, of a moment on the same thread.
    #[must_use]
    pub fn took(self, span: Span) -> u64 {
        match SAID[span as usize].load(Relaxed) {
            REAL if matches!(span, Span::Graph | Span::Code) => {
                u64::try_from(self.moment.elapsed().as_nanos()).unwrap_or(REAL)
            }
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

/// From now on a graph takes so many nanoseconds in the replay and in code; none: what it takes.
pub fn say_graphs(spans: Option<[u64; 2]>) {
    let spans = spans.unwrap_or([REAL; 2]);
    for (span, nanos) in [Span::Graph, Span::Code].into_iter().zip(spans) {
        SAID[span as usize].store(nanos, Relaxed);
    }
}

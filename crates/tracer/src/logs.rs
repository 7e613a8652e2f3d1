//! Logs: which are on, and how their records reach Python's `logging`.
//!
//! Off, a log costs one load of an atomic.

use std::sync::atomic::{AtomicU32, Ordering};

use stator_cpython::shortcut;

use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::thread::Deferred;

/// The logs, in the order of `stator._logs`: the discriminant is the bit in the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Log {
    /// Graphs as code.
    GraphCode,
    /// Graphs as tables.
    Graph,
    /// Sizes of the graph's tensors.
    GraphSizes,
    /// Guards of each trace.
    Guards,
    /// Why a function was traced again.
    Recompiles,
    /// What couldn't be traced.
    GraphBreaks,
    /// Rewritten bytecode.
    Bytecode,
    /// Each instruction while recording.
    Trace,
    /// Writes to outside objects.
    SideEffects,
    /// Symbolic shapes.
    Dynamic,
}

impl Log {
    /// The name users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GraphCode => "graph_code",
            Self::Graph => "graph",
            Self::GraphSizes => "graph_sizes",
            Self::Guards => "guards",
            Self::Recompiles => "recompiles",
            Self::GraphBreaks => "graph_breaks",
            Self::Bytecode => "bytecode",
            Self::Trace => "trace",
            Self::SideEffects => "side_effects",
            Self::Dynamic => "dynamic",
        }
    }

    /// Whether the log is on.
    #[inline]
    #[must_use]
    pub fn is_on(self) -> bool {
        MASK.load(Ordering::Relaxed) & (1 << self as u8) != 0
    }

    /// Whether the log is on and asked for more detail.
    #[must_use]
    pub fn is_verbose(self) -> bool {
        MASK.load(Ordering::Relaxed) & (1 << (self as u8 + VERBOSE_SHIFT)) != 0
    }

    /// Hands a record to `stator._logs.emit`. The program must not fail because a log does, so an
    /// exception is reported as unraisable.
    pub fn emit(self, py: Python<'_>, text: &str) {
        let _deferred = Deferred::new(py);
        let emitted = modules::import(py, "stator._logs")
            .and_then(|logs| logs.call_method1("emit", (self.name(), text)));
        if let Err(error) = emitted {
            error.write_unraisable(py, None);
        }
    }
}

/// How much higher than a log's own bit the one stands that asks it for more detail.
const VERBOSE_SHIFT: u8 = 16;

static MASK: AtomicU32 = AtomicU32::new(0);

/// Whether any log is on.
#[must_use]
pub fn is_any_on() -> bool {
    MASK.load(Ordering::Relaxed) != 0
}

/// Switches logs on and off: bit `i` is the log whose discriminant is `i`, bit `16 + i` its detail.
pub fn set_mask(mask: u32) {
    shortcut::close_all();
    MASK.store(mask, Ordering::Relaxed);
}

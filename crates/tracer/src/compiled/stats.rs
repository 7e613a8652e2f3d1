//! The counters of compiled functions, for users.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::Compiled;
use crate::lock;

/// Counters of one compiled function.
#[pyclass(frozen, get_all, module = "stator._stator")]
pub struct Stats {
    /// Calls that were recorded.
    traces: u64,
    /// Calls that were replayed.
    hits: u64,
    /// Calls that ran natively.
    native: u64,
    /// Cache entries, those behind graph breaks not counted.
    entries: usize,
    /// Graph breaks that were met while recording.
    breaks: u64,
    /// Traces in the cache, those behind graph breaks counted.
    graphs: usize,
    /// Why the last call that was recorded broke, or the last native one ran natively.
    reason: Option<String>,
    /// What runs each graph: `"replay"`, or what became of the code that a backend was asked for.
    tiers: Vec<String>,
    /// What is known of why, for each graph.
    why: Vec<Option<String>>,
    /// Operations in the graph used last.
    graph_nodes: usize,
    /// Guards of the entry used last.
    guards: usize,
}

impl Stats {
    pub(super) fn of(compiled: &Compiled) -> Self {
        let entries = compiled.entries();
        let tiers = entries.iter().map(|entry| entry.tier());
        let (tiers, why) = tiers.map(|(tier, why)| (tier.into(), why)).unzip();
        let state = lock(&compiled.state);
        let last = state.entries.first();
        Self {
            traces: state.traces,
            hits: compiled.hits.load(Ordering::Relaxed),
            native: compiled.natives(),
            entries: state.entries.len(),
            breaks: state.breaks,
            graphs: state.entries.len() + compiled.points.entries().len(),
            tiers,
            why,
            reason: state.reason.clone(),
            graph_nodes: last.map_or(0, |entry| entry.graph_nodes()),
            guards: last.map_or(0, |entry| entry.guard_count()),
        }
    }
}

#[pymethods]
impl Stats {
    /// All of them by name, as a dataclass prints.
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        const NAMES: [&str; 11] = [
            "traces",
            "hits",
            "native",
            "entries",
            "breaks",
            "graphs",
            "reason",
            "tiers",
            "why",
            "graph_nodes",
            "guards",
        ];
        let field = |name| Ok(format!("{name}={}", slf.getattr(name)?.repr()?));
        let fields: PyResult<Vec<_>> = NAMES.into_iter().map(field).collect();
        Ok(format!("Stats({})", fields?.join(", ")))
    }
}

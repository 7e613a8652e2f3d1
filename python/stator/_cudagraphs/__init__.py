"""CUDA graphs of what a replay does, without a compiler: `stator.compile(backend="cudagraphs")`.

A trace is given to this backend in runs of tensor operations (`crates/tracer/src/replay/cut.rs`).
Such a run is first executed under a watch (`watching`), which finds out whether a CUDA graph can
hold it, and what it writes. Then it is captured (`captures`): each later call copies the tensors
that move into buffers, launches the graph, and copies the results out of the graph's memory
(`results`), so that a result is never overwritten by a later call. `device` is what is asked of
CUDA. What can't be captured is replayed by the native side, and `Declined` says why.
"""

//! Replay: running a recorded graph again on new inputs, and handing it to other backends.
//!
//! * `program`: a graph compiled to steps over registers, with every name and constant resolved;
//! * `compile`: makes a [`Program`] from a graph and the tracer's table of Python objects;
//! * `run`: runs it (`backend="eager"`); no Python bytecode of Stator's is involved;
//! * `export`: describes a graph to Python, which builds a `torch.fx.GraphModule` from it.
//!
//! See `docs/replay.md`. A program owns its constants and callables, and no input.

mod compile;
mod constant;
pub mod export;
mod program;
mod run;

#[cfg(test)]
mod tests;

pub use program::Program;
pub use run::{Early, Failure, Outputs, Pass, Running};

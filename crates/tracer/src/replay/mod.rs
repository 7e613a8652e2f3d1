//! Replay: running a recorded graph again on new inputs, and handing it to other backends.
//!
//! * `program`: a graph compiled to steps over registers, with every name and constant resolved;
//! * `compile`: makes a [`Program`] from a graph and the tracer's table of Python objects;
//! * `direct`: which calls of it are calls of one operator of PyTorch's;
//! * `run`: runs it (`backend="eager"`); no Python bytecode of Stator's is involved;
//! * `refused`: which operations PyTorch's compilers don't take;
//! * `cut`: where a graph is cut that holds steps of Stator's own, so that other backends get the parts between them;
//! * `gradients`: what such parts mustn't change where a trace goes back through gradients;
//! * `export`: describes a graph to Python, which builds a `torch.fx.GraphModule` from it.
//!
//! See `docs/replay.md`. A program owns its constants and callables, and no input.

mod compile;
mod constant;
mod cut;
pub mod direct;
pub mod export;
mod gradients;
mod program;
mod refused;
mod run;

#[cfg(test)]
mod tests;

pub use cut::{Cut, Part};
pub use program::Program;
pub use refused::Compiler;
pub use run::{Care, Early, Failure, Outputs, Parts, Pass, Running, Unrun};

//! Linear graphs of tensor operations: data, verifier, passes, printed forms.
//!
//! A [`Graph`] is what one trace recorded: placeholders (tensors read from outside), calls in the
//! order they were executed, and the values handed back. It holds no Python object. Python objects
//! that the graph speaks of (functions, dtypes, devices) stand in a table the tracer keeps beside
//! the graph; here they are an [`ObjectId`] and the text they print as.
//!
//! ```
//! use stator_graph::{Arg, Graph, NoSource, Operator, StackId, Target, Value, print};
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("L['x']", Value::Unknown);
//! let sub = graph.call(Target::Operator(Operator::Sub), &[Arg::Node(x), Arg::int(1)], None);
//! let z = graph.call(Target::Operator(Operator::Pow), &[Arg::Node(sub), Arg::int(2)], None);
//! graph.set_local_name(z, "z");
//! graph.set_outputs(&[Arg::Node(z)]);
//! graph.verify().unwrap();
//! assert_eq!(
//!     print::graph_code(&graph, &NoSource),
//!     "def forward(l_x_: torch.Tensor):\n    sub = l_x_ - 1\n    z = sub ** 2\n    return (z,)\n",
//! );
//! ```
//!
//! Modules, each using only those above it: `ids`, `text`, `arg`, `operator`, `tensor`, `stack`,
//! `graph`; on top of the graph and apart from each other `names`, `passes`, `verify`; then
//! `part`, `print`, and `program`.

#![forbid(unsafe_code)]

mod arg;
mod graph;
mod ids;
pub mod names;
mod operator;
mod part;
mod passes;
pub mod print;
pub mod program;
mod stack;
mod tensor;
mod text;
mod verify;

pub use arg::{Arg, ArgList, Constant};
pub use graph::{Graph, KeywordList, Node, NodeKind, Room, Target};
pub use ids::{NodeId, ObjectId, StackId, TextId};
pub use operator::Operator;
pub use passes::{LastUse, LastUses};
pub use stack::{Frame, Locate, Location, NoSource, StackTable};
pub use tensor::{Device, DimList, Dtype, TensorMeta, Value};
pub use verify::{Problem, VerifyError};

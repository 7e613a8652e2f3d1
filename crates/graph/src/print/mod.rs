//! Printed forms of graphs. Each has one function; [`crate::names`] names the nodes for all.
//!
//! * [`graph_code`]: the graph as a Python function (`STATOR_LOGS=graph_code`);
//! * [`graph_table`]: one row per node (`STATOR_LOGS=graph`);
//! * [`graph_sizes`]: the sizes of its tensors (`STATOR_LOGS=graph_sizes`);
//! * [`stack_trace`]: where a node comes from, as Python's tracebacks say it;
//! * `raw`: nodes by id, for messages about graphs that may be broken.

mod code;
mod constant;
mod sizes;
mod table;
mod trace;

pub(crate) mod raw;

pub use code::graph_code;
pub(crate) use constant::repr as constant_text;
pub use constant::{repr_bytes, repr_float, repr_str};
pub use sizes::graph_sizes;
pub use table::graph_table;
pub use trace::stack_trace;

use crate::arg::Arg;
use crate::graph::Graph;
use crate::names::Names;

/// An argument as Python source.
pub(crate) fn arg_text(graph: &Graph, names: &Names, arg: Arg) -> String {
    let text = |arg: &Arg| arg_text(graph, names, *arg);
    match arg {
        Arg::Node(node) => names.get(node).to_owned(),
        Arg::Constant(constant) => constant::repr(graph, constant),
        Arg::Object(object) => graph.object_text(object).to_owned(),
        Arg::List(items) => {
            format!("[{}]", graph.args(items).iter().map(text).collect::<Vec<_>>().join(", "))
        }
        Arg::Tuple(items) => tuple_text(graph.args(items).iter().map(text)),
        Arg::Dict(items) => {
            let pairs = graph.args(items).chunks(2);
            let pair = |pair: &[Arg]| pair.iter().map(text).collect::<Vec<_>>().join(": ");
            format!("{{{}}}", pairs.map(pair).collect::<Vec<_>>().join(", "))
        }
        Arg::Slice(parts) => {
            format!("slice({})", graph.args(parts).iter().map(text).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A tuple as Python prints it: `()`, `(a,)`, `(a, b)`.
pub(crate) fn tuple_text(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match items.as_slice() {
        [only] => format!("({only},)"),
        items => format!("({})", items.join(", ")),
    }
}

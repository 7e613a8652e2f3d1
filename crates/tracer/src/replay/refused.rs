//! Operations that run in plain PyTorch and that its compilers refuse: a graph is cut around them, as around steps of
//! Stator's own. Else one of them would keep all of the graph from being compiled.

use stator_graph::{Graph, NodeId, NodeKind, TensorMeta, Value};

use crate::raises::NodeCall;

/// Whose compilers a backend's are.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Compiler {
    /// The program's own.
    #[default]
    Other,
    /// PyTorch's, which traces a graph with tensors that have no data.
    Torch,
    /// Inductor, which is one of these.
    Inductor,
}

impl Compiler {
    /// As Python calls it.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "torch" => Self::Torch,
            "inductor" => Self::Inductor,
            _ => Self::Other,
        }
    }

    /// Whether it refuses a node.
    #[must_use]
    pub fn refuses(self, graph: &Graph, id: NodeId) -> bool {
        if self == Self::Other {
            return false;
        }
        let Some(call) = NodeCall::of(graph, id) else { return false };
        match call.operation() {
            // Without data it is known for one type of numbers.
            "_grouped_mm" | "grouped_mm" => {
                first_tensor(call).is_none_or(|meta| meta.dtype.name() != "bfloat16")
            }
            // What oneDNN's kernel saves for the gradients has a size that is known with data alone. It runs where no
            // gradient of the sequence is asked for.
            "lstm" => {
                self == Self::Inductor
                    && first_tensor(call)
                        .is_some_and(|meta| !meta.requires_grad && meta.device.kind == CPU)
                    && gives_gradients(graph, id)
            }
            _ => false,
        }
    }
}

/// The code of `c10::DeviceType::CPU`.
const CPU: i8 = 0;

/// The first tensor that a call is given.
fn first_tensor(call: NodeCall<'_>) -> Option<TensorMeta> {
    let mut found = None;
    for &arg in call.args {
        call.graph.visit_nodes(arg, &mut |id| {
            if let Value::Tensor(meta) = call.graph.node(id).value {
                found.get_or_insert(meta);
            }
        });
    }
    found
}

/// Whether a part of what a node gives asks for gradients.
fn gives_gradients(graph: &Graph, id: NodeId) -> bool {
    graph.nodes().any(|(_, node)| {
        matches!(node.kind, NodeKind::GetItem { of, .. } if of == id)
            && matches!(node.value, Value::Tensor(meta) if meta.requires_grad)
    })
}

//! Calls in graphs: what they may raise for, and whose memory they give.

use stator_graph::{Arg, Constant, Graph, NodeId, NodeKind, Target, TensorMeta, TextId, Value};
use stator_operators::{Raising, raising};

/// What the names of nodes begin with that run Python code of the program's own within them.
pub const THROUGH_PYTHON: &str = "through_python.";

/// The name of the node that checks all elements of a tensor.
pub const CHECK: &str = "torch._check_tensor_all";

/// The names of nodes that go back through code of the program's own.
pub const BACKWARD: &str = "through_python.backward";
/// As [`BACKWARD`], for `torch.autograd.grad`.
pub const GRAD: &str = "through_python.grad";

/// The name of nodes that are checkpoints.
pub const CHECKPOINT: &str = "through_python.checkpoint";

/// The name of nodes that are transforms of `torch.func`.
pub const TRANSFORM: &str = "through_python.transform";

/// The name of nodes that print (`recorder/operations/prints.rs`).
pub const PRINT: &str = "builtins.print";

/// The name of nodes that write what the trace has written, before code that looks at it.
pub const EARLY: &str = "early.write";

/// The name of nodes that give another tensor with the memory of their argument.
pub const COPY: &str = "copy.copy";

/// The name of nodes that end a label of profilers.
pub const LABEL_END: &str = "torch.record_function_exit";

/// What the names of functions begin with that ask what a list or deque from outside holds.
pub const HELD: &str = "held.";

/// What the names of NumPy's functions begin with that compute arrays and scalars (`recorder/operations/array_values.rs`).
pub const ARRAYS: &str = "np.";

/// As [`ARRAYS`], of functions of decimals, dates and such (`recorder/operations/plain_values.rs`).
pub const VALUES: &str = "value.";

/// The modules of the library whose code such functions run, and whose exceptions they raise.
pub const LIBRARY: [&str; 3] = ["decimal", "statistics", "fractions"];

/// As [`ARRAYS`], of those that write to an array: they aren't called again, as code of the program's own isn't.
pub const ARRAY_WRITES: &str = "array.put_";

/// What PyTorch's engine gives its threads, from 2.15 on.
const COPY_CONTEXT: &str = "_contextvars.copy_context";

/// What the names of nodes begin with that make objects which others are given: functions, cells, handles.
pub const MADE: &str = "made.";

/// What follows [`MADE`] where a `torch.Size` is made.
pub const SIZE: &str = "Size";

/// A call in a graph, or one that may become a node of it.
#[derive(Clone, Copy)]
pub struct NodeCall<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// What is called.
    pub target: Target,
    /// Positional arguments, then one for each keyword.
    pub args: &'a [Arg],
    /// The keywords' names.
    pub keywords: &'a [TextId],
    /// What [`Self::class`] has found.
    pub class: Option<Raising>,
}

impl<'a> NodeCall<'a> {
    /// A node that is a call.
    pub fn of(graph: &'a Graph, node: NodeId) -> Option<Self> {
        let NodeKind::Call { target, args, keywords } = &graph.node(node).kind else { return None };
        let (args, keywords) = (graph.args(*args), graph.keywords(*keywords));
        Some(Self { graph, target: *target, args, keywords, class: None })
    }

    /// Whether what a call raises leaves the trace by an exit: that stands behind it, and behind the parts of what it
    /// gives.
    pub fn is_caught(graph: &Graph, node: NodeId) -> bool {
        let mut behind = graph.nodes().skip(node.index() + 1);
        let next = behind.find(|(_, node)| !matches!(node.kind, NodeKind::GetItem { .. }));
        next.is_some_and(|(_, node)| {
            matches!(node.kind, NodeKind::Call { target: Target::Catch, .. })
        })
    }

    /// What is called, as the graph prints it.
    pub fn name(&self) -> &'a str {
        match self.target {
            Target::Operator(operator) => operator.name(),
            Target::Function { name, .. }
            | Target::Method { name, .. }
            | Target::GetAttr { name } => self.graph.text(name),
            Target::Decide => "decide",
            Target::Catch => "catch",
        }
    }

    /// The operation's name, without modules and overloads: `add_` of `torch.ops.aten.add_.Tensor`.
    pub fn operation(&self) -> &'a str {
        let name = self.name();
        match name.strip_prefix("torch.ops.") {
            Some(name) => name.split('.').nth(1).unwrap_or(name),
            // Each recorded operation comes by, and a search by characters costs ten times as much.
            None => {
                let dot = name.bytes().rposition(|byte| byte == b'.');
                dot.map_or(name, |dot| &name[dot + 1..])
            }
        }
    }

    /// Whether it's a C function of Python's that makes a text of values (`recorder/numbers/texts.rs`), a clock, or asks
    /// what a list holds.
    fn is_of_values(&self) -> bool {
        let Target::Function { name, .. } = self.target else { return false };
        let name = self.graph.text(name);
        name != PRINT
            && ["builtins.", "sys.", "time.", HELD].iter().any(|known| name.starts_with(known))
    }

    /// Whether it's a C function of Python's that computes a number or a text of such: it reads nothing else.
    pub fn is_of_numbers(&self) -> bool {
        let Target::Function { name, .. } = self.target else { return false };
        let name = self.graph.text(name);
        (name.starts_with("builtins.") && name != PRINT) || name.starts_with("math.")
    }

    /// Whether it prints: what it has done is there for all to see, as with code of the program's own.
    pub fn is_print(&self) -> bool {
        matches!(self.target, Target::Function { name, .. } if self.graph.text(name) == PRINT)
    }

    /// Whether it's a function of NumPy's (`recorder/operations/arrays.rs`), or draws from a generator of Python's.
    pub fn is_of_arrays(&self) -> bool {
        let Target::Function { name, .. } = self.target else { return false };
        let name = self.graph.text(name);
        name.starts_with("numpy.") || name.starts_with("random.")
    }

    /// Whether it computes arrays or scalars of NumPy's, or decimals, dates and such.
    pub fn is_of_array_values(&self) -> bool {
        let Target::Function { name, .. } = self.target else { return false };
        let name = self.graph.text(name);
        name.starts_with(ARRAYS) || name.starts_with(VALUES)
    }

    /// Whether it may be code of the program's own: a function that the user had taken as one node, an
    /// operator that a library added.
    pub fn is_users(&self) -> bool {
        let Target::Function { name, .. } = self.target else { return false };
        let name = self.graph.text(name);
        match name.strip_prefix("torch.ops.") {
            Some(name) => !name.starts_with("aten.") && !name.starts_with("prims."),
            None => {
                !name.starts_with("torch.")
                    && !name.starts_with(MADE)
                    && !matches!(name, "abs" | "pow" | COPY_CONTEXT)
                    && !self.is_of_values()
                    && !self.is_of_arrays()
                    && !self.is_of_array_values()
            }
        }
    }

    /// What its name says of it, but for `norm`, where an argument decides.
    pub fn class(&self) -> Raising {
        if let Some(class) = self.class {
            return class;
        }
        if let Target::GetAttr { name } = self.target {
            // Of gradients only those are read by nodes that the trace has computed: they have memory of their own.
            let is_gradient = self.graph.text(name) == "grad";
            return if is_gradient { Raising::Made } else { Raising::View };
        }
        if matches!(self.target, Target::Decide | Target::Catch) {
            return Raising::Switch;
        }
        if self.name() == COPY {
            return Raising::View;
        }
        if self.is_of_values() {
            return Raising::Steady;
        }
        if self.is_of_arrays() {
            // It draws; what it may refuse is an index or weights that were drawn.
            return Raising::Random;
        }
        if self.is_of_array_values() {
            return Raising::Refusing;
        }
        if self.name().starts_with(MADE) {
            // It holds what it is given.
            return Raising::Switch;
        }
        if self.is_print() {
            // Its stream may refuse a text.
            return Raising::Refusing;
        }
        if self.is_users() {
            return Raising::Unknown;
        }
        let operation = self.operation();
        let is_norm = operation == "norm" && !self.name().contains("linalg");
        if is_norm && !self.args.iter().any(|arg| matches!(arg, Arg::Constant(Constant::Str(_)))) {
            return Raising::Steady;
        }
        raising(operation)
    }

    /// Whether it switches state, sets a part of a tensor, or gives no tensor.
    pub fn is_switch(&self) -> bool {
        self.class() == Raising::Switch
    }

    /// Whether what it gives is new memory.
    pub fn makes_memory(&self) -> bool {
        !matches!(
            self.class(),
            Raising::View | Raising::Unknown | Raising::Refusing | Raising::Switch
        ) && self.operation().trim_matches('_') != "getitem"
    }

    /// Whether what it gives shares memory with its first argument at most.
    pub fn is_view(&self) -> bool {
        self.class() == Raising::View || self.operation().trim_matches('_') == "getitem"
    }

    /// Whether it may raise for what is in its inputs. `is_known` says of a tensor that its data is the
    /// same in all replays.
    pub fn may_raise(&self, is_known: &dyn Fn(NodeId) -> bool) -> bool {
        match self.class() {
            Raising::Steady | Raising::View | Raising::Made | Raising::Random | Raising::Switch => {
                false
            }
            Raising::Indexed => {
                // A mask only says how many numbers it takes.
                let takes = self.args.last().is_some_and(|value| matches!(value, Arg::Node(_)));
                self.any_tensor(&|id, data| match data {
                    Data::Inexact => false,
                    Data::Bool => takes && !is_known(id),
                    Data::Other => !is_known(id),
                })
            }
            Raising::Division => {
                self.any_tensor(&|_, data| data != Data::Inexact)
                    && !self.any_tensor(&|_, data| data == Data::Inexact)
            }
            Raising::Unknown | Raising::Refusing | Raising::Fresh => true,
        }
    }

    /// Whether it may write to its arguments without saying so by its name.
    pub fn may_write(&self) -> bool {
        self.class() == Raising::Unknown
    }

    /// Whether it is given indices, and raises for these alone.
    pub fn is_indexed(&self) -> bool {
        self.class() == Raising::Indexed
    }

    /// Whether it computes the gradients of all that it is made of, and puts them there.
    pub fn sets_gradients(&self) -> bool {
        let Target::Function { name, .. } = self.target else { return false };
        matches!(self.graph.text(name), "torch.autograd.backward" | BACKWARD)
    }

    /// Whether what it raises isn't what the program's instruction raises: that has a message of its own. It only
    /// looks at its argument.
    pub fn is_check(&self) -> bool {
        matches!(self.target, Target::Function { name, .. } if self.graph.text(name) == CHECK)
    }

    /// Whether it writes the same again if it is done again.
    pub fn is_repeatable(&self) -> bool {
        matches!(self.operation(), "setitem" | "__setitem__" | "index_copy_" | "index_fill_")
    }

    /// Whether its result follows from its arguments alone.
    pub fn is_determined(&self) -> bool {
        matches!(
            self.class(),
            Raising::Steady | Raising::View | Raising::Made | Raising::Indexed | Raising::Division
        ) && !matches!(
            self.operation(),
            "rand"
                | "rrelu"
                | "empty"
                | "empty_like"
                | "empty_strided"
                | "new_empty"
                | "new_empty_strided"
        ) && !self.operation().contains("dropout")
    }

    /// Visits the tensors among the arguments whose data may be looked at: those of integers.
    pub fn any_tensor(&self, wanted: &dyn Fn(NodeId, Data) -> bool) -> bool {
        let mut found = false;
        for &arg in self.args {
            self.graph.visit_nodes(arg, &mut |id| {
                found |= match self.graph.node(id).value {
                    Value::Tensor(meta) => wanted(id, Data::of(&meta)),
                    Value::Integer | Value::Float | Value::Text => false,
                    _ => wanted(id, Data::Other),
                };
            });
        }
        found
    }
}

/// What a tensor holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Floats, complex numbers.
    Inexact,
    /// Truth values.
    Bool,
    /// Integers, or what isn't known.
    Other,
}

impl Data {
    /// What the tensor holds that this says.
    pub fn of(meta: &TensorMeta) -> Self {
        let inexact = ["float", "bfloat", "complex"];
        match meta.dtype.name() {
            "bool" => Self::Bool,
            name if inexact.iter().any(|prefix| name.starts_with(prefix)) => Self::Inexact,
            _ => Self::Other,
        }
    }
}

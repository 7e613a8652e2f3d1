//! The graph itself and how a recorder fills it.
//!
//! Everything of variable length lies in pools of the graph (arguments, keyword names, sizes), so
//! that appending a node is a few pushes: no allocation of its own, no name, no text.
//! Nodes are only ever appended; a [`NodeId`] stays valid for the life of the graph.
//! Placeholders may be recorded at any time (an outside tensor is found when it is first used);
//! listings and replay take them first, in the order of [`Graph::placeholders`].
//! What must hold of a finished graph stands in the header of `verify`.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::arg::{Arg, ArgList, Constant};
use crate::ids::{NodeId, ObjectId, StackId, TextId};
use crate::operator::Operator;
use crate::stack::{Frame, StackTable};
use crate::tensor::{Device, DimList, Dtype, TensorMeta, Value};
use crate::text::Texts;

/// What a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A function, by its qualified name (`torch.nn.functional.linear`) and itself.
    Function {
        /// The printed name.
        name: TextId,
        /// The function.
        object: ObjectId,
    },
    /// A method of the first argument.
    Method {
        /// The method's name.
        name: TextId,
        /// What the class held under that name when the call was recorded (a method descriptor or a
        /// function), to be called with the first argument in front; `None`: look it up each time.
        object: Option<ObjectId>,
    },
    /// A Python operator.
    Operator(Operator),
    /// An attribute read of the one argument.
    GetAttr {
        /// The attribute's name.
        name: TextId,
    },
    /// A decision: the first argument is what the second says, or the program is left here, with the others. If the one
    /// other is a decision, it's left as there, with the arguments of that one.
    Decide,
    /// The program is left before the call that stands before it, with the arguments, if that call raises.
    Catch,
}

/// A run of keyword names in a graph's pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeywordList {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl KeywordList {
    /// The number of names.
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(crate) const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeKind {
    /// Takes a value from outside.
    Placeholder {
        /// Where from, as guards print it: `L['x']`. Empty until somebody wants to read it.
        source: TextId,
    },
    /// Calls something.
    Call {
        /// What is called.
        target: Target,
        /// Positional arguments, then one for each keyword.
        args: ArgList,
        /// The keywords' names.
        keywords: KeywordList,
    },
    /// Takes an element out of another node's structured result.
    GetItem {
        /// The node with the structure.
        of: NodeId,
        /// Which element.
        index: u32,
    },
}

/// One step of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it does.
    pub kind: NodeKind,
    /// What it made.
    pub value: Value,
    /// Where in the program; `None` for placeholders.
    pub stack: Option<StackId>,
    /// The local variable that the result was first stored to.
    pub local: Option<TextId>,
}

/// A linear graph of tensor operations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// How many of them are calls: asked at each call of a compiled function.
    pub(crate) calls: usize,
    pub(crate) placeholders: Vec<NodeId>,
    pub(crate) outputs: ArgList,
    pub(crate) args: Vec<Arg>,
    pub(crate) keywords: Vec<TextId>,
    pub(crate) dims: Vec<i64>,
    pub(crate) objects: Vec<TextId>,
    pub(crate) texts: Texts,
    pub(crate) stacks: StackTable,
    pub(crate) symbolic_sizes: FxHashMap<NodeId, Box<[Option<TextId>]>>,
    /// Whether any node was taken out.
    pub(crate) has_withdrawn: bool,
    /// Calls that do nothing, in their order.
    pub(crate) idle: Vec<NodeId>,
}

/// How large the pools of a graph are, or how much room they have from the start.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    nodes: usize,
    placeholders: usize,
    args: usize,
    keywords: usize,
    dims: usize,
    stacks: usize,
}

impl Room {
    /// What a graph with so many nodes needs.
    #[must_use]
    pub const fn of_nodes(nodes: usize) -> Self {
        Self {
            nodes,
            placeholders: nodes / 4,
            args: nodes * 3,
            keywords: nodes / 4,
            dims: nodes * 8,
            stacks: nodes * 2,
        }
    }

    /// Another size for each.
    #[must_use]
    pub fn map(self, size: impl Fn(usize) -> usize) -> Self {
        Self {
            nodes: size(self.nodes),
            placeholders: size(self.placeholders),
            args: size(self.args),
            keywords: size(self.keywords),
            dims: size(self.dims),
            stacks: size(self.stacks),
        }
    }
}

/// Recording.
impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty graph with room for what a graph like another one holds.
    pub fn with_room(room: &Room) -> Self {
        Self {
            nodes: Vec::with_capacity(room.nodes),
            placeholders: Vec::with_capacity(room.placeholders),
            args: Vec::with_capacity(room.args),
            keywords: Vec::with_capacity(room.keywords),
            dims: Vec::with_capacity(room.dims),
            stacks: StackTable::with_room(room.stacks),
            ..Self::default()
        }
    }

    /// How much room a graph like this one takes.
    pub fn room(&self) -> Room {
        Room {
            nodes: self.nodes.len(),
            placeholders: self.placeholders.len(),
            args: self.args.len(),
            keywords: self.keywords.len(),
            dims: self.dims.len(),
            stacks: self.stacks.len(),
        }
    }

    /// Interns a string.
    #[inline]
    pub fn intern(&mut self, text: &str) -> TextId {
        self.texts.intern(text)
    }

    /// Gives the next Python object of the tracer's table its id and its printed text.
    pub fn add_object(&mut self, printed: &str) -> ObjectId {
        let text = self.intern(printed);
        self.objects.push(text);
        ObjectId::new(self.objects.len() - 1)
    }

    /// The table entry for a frame at an instruction.
    #[inline]
    pub fn stack(&mut self, parent: Option<StackId>, code: u32, instruction: u32) -> StackId {
        self.stacks.push(Frame { parent, code, instruction })
    }

    /// Appends a value from outside, printed as `source`. The caller sees to it that no source is
    /// taken twice.
    pub fn placeholder(&mut self, source: &str, value: Value) -> NodeId {
        let source = self.intern(source);
        let node = self.push(NodeKind::Placeholder { source }, value, None);
        self.placeholders.push(node);
        node
    }

    /// As [`Graph::placeholder`] of a source that is printed when somebody reads the graph: see
    /// [`Graph::named`].
    #[inline]
    pub fn unnamed_placeholder(&mut self, value: Value) -> NodeId {
        self.placeholder("", value)
    }

    /// The graph with all its placeholders printed; `names` gives the texts of those that aren't yet, in
    /// their order. Sources below two objects of one name may have one text: they are numbered.
    #[must_use]
    pub fn named(&self, names: impl IntoIterator<Item = String>) -> Self {
        let mut named = self.clone();
        let mut taken: FxHashSet<TextId> = self
            .placeholders
            .iter()
            .filter_map(|id| match self.node(*id).kind {
                NodeKind::Placeholder { source } => Some(source),
                _ => None,
            })
            .collect();
        let unnamed = self.placeholders.iter().filter(|id| {
            matches!(self.node(**id).kind, NodeKind::Placeholder { source } if self.text(source).is_empty())
        });
        for (id, name) in unnamed.zip(names) {
            let mut source = named.intern(&name);
            let mut number = 1;
            while !taken.insert(source) {
                number += 1;
                source = named.intern(&format!("{name} #{number}"));
            }
            named.nodes[id.index()].kind = NodeKind::Placeholder { source };
        }
        named
    }

    /// Appends a call without keywords.
    #[inline]
    pub fn call(&mut self, target: Target, args: &[Arg], stack: Option<StackId>) -> NodeId {
        let args = self.arg_list(args);
        let keywords = KeywordList::default();
        self.push(NodeKind::Call { target, args, keywords }, Value::Unknown, stack)
    }

    /// Appends a call whose last arguments are handed over by keyword, as in a vectorcall.
    ///
    /// # Panics
    /// If there are more keywords than arguments.
    #[inline]
    pub fn call_with_keywords(
        &mut self,
        target: Target,
        args: &[Arg],
        keywords: &[TextId],
        stack: Option<StackId>,
    ) -> NodeId {
        assert!(keywords.len() <= args.len(), "each keyword names one of the last arguments");
        let args = self.arg_list(args);
        let start = pool_index(self.keywords.len());
        self.keywords.extend_from_slice(keywords);
        let keywords = KeywordList { start, len: pool_index(keywords.len()) };
        self.push(NodeKind::Call { target, args, keywords }, Value::Unknown, stack)
    }

    /// Appends the reading of one element of a structured result, at the place of the call that
    /// made it.
    #[inline]
    pub fn get_item(&mut self, of: NodeId, index: u32) -> NodeId {
        let stack = self.nodes[of.index()].stack;
        self.push(NodeKind::GetItem { of, index }, Value::Unknown, stack)
    }

    /// Takes out the calls from the node with this index on: another node does what they do. Their ids stay, like
    /// those of placeholders that were taken out, but nothing may read them.
    pub fn withdraw(&mut self, from: usize) {
        let source = self.intern("");
        for node in &mut self.nodes[from..] {
            if let NodeKind::Placeholder { .. } = node.kind {
                continue;
            }
            self.calls -= usize::from(matches!(node.kind, NodeKind::Call { .. }));
            self.has_withdrawn = true;
            node.kind = NodeKind::Placeholder { source };
        }
    }

    /// A value that nothing may read: code that runs within one call has it.
    pub fn withdrawn(&mut self, value: Value) -> NodeId {
        let source = self.intern("");
        self.has_withdrawn = true;
        self.push(NodeKind::Placeholder { source }, value, None)
    }

    /// Says that a call gives an argument back and does nothing else, in each run.
    pub fn set_idle(&mut self, node: NodeId) {
        self.idle.push(node);
    }

    /// Whether a call was said to do nothing.
    #[must_use]
    pub fn is_idle(&self, node: NodeId) -> bool {
        self.idle.binary_search_by_key(&node.index(), |idle| idle.index()).is_ok()
    }

    /// Says what a node made.
    #[inline]
    pub fn set_value(&mut self, node: NodeId, value: Value) {
        self.nodes[node.index()].value = value;
    }

    /// Says that a node made a tensor.
    #[inline]
    pub fn set_tensor(&mut self, node: NodeId, meta: TensorMeta) {
        self.set_value(node, Value::Tensor(meta));
    }

    /// Names a node after the local variable its result was stored to. The first name stays.
    #[inline]
    pub fn set_local_name(&mut self, node: NodeId, name: &str) {
        let name = self.intern(name);
        self.nodes[node.index()].local.get_or_insert(name);
    }

    /// Says which values the graph hands back.
    pub fn set_outputs(&mut self, outputs: &[Arg]) {
        self.outputs = self.arg_list(outputs);
    }

    /// Says how the sizes of a tensor print where they are symbolic (`s0`); `None` for a dimension
    /// that is a plain number.
    pub fn set_symbolic_sizes(&mut self, node: NodeId, sizes: &[Option<&str>]) {
        let sizes = sizes.iter().map(|size| size.map(|text| self.texts.intern(text))).collect();
        self.symbolic_sizes.insert(node, sizes);
    }

    /// Sizes print as those of any tensor.
    pub fn forget_symbolic_sizes(&mut self) {
        self.symbolic_sizes.clear();
    }

    #[inline]
    fn push(&mut self, kind: NodeKind, value: Value, stack: Option<StackId>) -> NodeId {
        let id = NodeId::new(self.nodes.len());
        self.calls += usize::from(matches!(kind, NodeKind::Call { .. }));
        self.nodes.push(Node { kind, value, stack, local: None });
        id
    }
}

/// Making arguments.
impl Graph {
    /// Stores a run of arguments.
    #[inline]
    pub fn arg_list(&mut self, args: &[Arg]) -> ArgList {
        let start = pool_index(self.args.len());
        self.args.extend_from_slice(args);
        ArgList { start, len: pool_index(args.len()) }
    }

    /// A list argument.
    pub fn list(&mut self, items: &[Arg]) -> Arg {
        Arg::List(self.arg_list(items))
    }

    /// A tuple argument.
    pub fn tuple(&mut self, items: &[Arg]) -> Arg {
        Arg::Tuple(self.arg_list(items))
    }

    /// A dict argument.
    pub fn dict(&mut self, items: &[(Arg, Arg)]) -> Arg {
        let start = pool_index(self.args.len());
        self.args.extend(items.iter().flat_map(|&(key, value)| [key, value]));
        Arg::Dict(ArgList { start, len: pool_index(2 * items.len()) })
    }

    /// A slice argument.
    pub fn slice(&mut self, start: Arg, stop: Arg, step: Arg) -> Arg {
        Arg::Slice(self.arg_list(&[start, stop, step]))
    }

    /// A str argument.
    pub fn str(&mut self, text: &str) -> Arg {
        Arg::Constant(Constant::Str(self.intern(text)))
    }

    /// A bytes argument.
    pub fn bytes(&mut self, bytes: &[u8]) -> Arg {
        let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
        Arg::Constant(Constant::Bytes(self.intern(&text)))
    }

    /// An int argument that needs more than 64 bits, from its decimal digits.
    pub fn big_int(&mut self, decimal: &str) -> Arg {
        Arg::Constant(Constant::BigInt(self.intern(decimal)))
    }

    /// A tensor's metadata. Tensors without strides hand in an empty slice.
    ///
    /// # Panics
    /// If there are strides, but not one for each size.
    #[inline]
    pub fn tensor_meta(
        &mut self,
        dtype: Dtype,
        device: Device,
        sizes: &[i64],
        strides: &[i64],
        requires_grad: bool,
    ) -> TensorMeta {
        assert!(strides.is_empty() || strides.len() == sizes.len(), "one stride for each size");
        let start = pool_index(self.dims.len());
        self.dims.extend_from_slice(sizes);
        self.dims.extend_from_slice(strides);
        let has_strides = strides.len() == sizes.len();
        let dims = DimList { start, rank: pool_index(sizes.len()), has_strides };
        TensorMeta { dtype, device, dims, requires_grad }
    }
}

/// Reading.
impl Graph {
    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of calls: what a reader counts as the graph's operations.
    pub fn call_count(&self) -> usize {
        self.calls
    }

    /// A node.
    ///
    /// # Panics
    /// If the id is another graph's.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All nodes with their ids, in the order of recording.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> + '_ {
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId::new(index), node))
    }

    /// The first device of its tensors that isn't the CPU.
    #[must_use]
    pub fn accelerator(&self) -> Option<Device> {
        let mut devices = self.nodes.iter().filter_map(|node| match node.value {
            Value::Tensor(meta) => Some(meta.device),
            _ => None,
        });
        devices.find(|device| device.kind != Device::CPU.kind)
    }

    /// Whether a node is no part of the graph any more.
    pub fn is_withdrawn(&self, id: NodeId) -> bool {
        self.has_withdrawn
            && matches!(self.node(id).kind, NodeKind::Placeholder { .. })
            && self.placeholders.binary_search(&id).is_err()
    }

    /// Whether a node or an output reads one that was taken out.
    pub fn reads_withdrawn(&self) -> bool {
        if !self.has_withdrawn {
            return false;
        }
        let mut is_read = false;
        let mut visit = |id: NodeId| is_read |= self.is_withdrawn(id);
        for (id, _) in self.nodes() {
            self.visit_inputs(id, &mut visit);
        }
        self.outputs().iter().for_each(|&output| self.visit_nodes(output, &mut visit));
        is_read
    }

    /// The placeholders, in the order in which replay takes the inputs.
    pub fn placeholders(&self) -> &[NodeId] {
        &self.placeholders
    }

    /// The values the graph hands back.
    pub fn outputs(&self) -> &[Arg] {
        self.args(self.outputs)
    }

    /// The arguments of a run.
    ///
    /// # Panics
    /// If the run is another graph's.
    pub fn args(&self, list: ArgList) -> &[Arg] {
        &self.args[list.range()]
    }

    /// The decision that one with these arguments leaves as; `None`: it has an exit of its own.
    pub fn earlier_decision(&self, args: &[Arg]) -> Option<NodeId> {
        let &[_, _, Arg::Node(earlier)] = args else { return None };
        let kind = self.node(earlier).kind;
        matches!(kind, NodeKind::Call { target: Target::Decide, .. }).then_some(earlier)
    }

    /// The names of a run of keywords.
    ///
    /// # Panics
    /// If the run is another graph's.
    pub fn keywords(&self, list: KeywordList) -> &[TextId] {
        &self.keywords[list.range()]
    }

    /// An interned string.
    ///
    /// # Panics
    /// If the id is another graph's.
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id).expect("a text of this graph")
    }

    /// The printed text of a Python object.
    ///
    /// # Panics
    /// If the id is another graph's.
    pub fn object_text(&self, id: ObjectId) -> &str {
        self.text(self.objects[id.index()])
    }

    /// The printed texts of all Python objects, in the order of their ids.
    pub fn object_texts(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.objects.iter().map(|&text| self.text(text))
    }

    /// The frames that nodes were recorded in.
    pub fn stacks(&self) -> &StackTable {
        &self.stacks
    }

    /// A tensor's sizes.
    pub fn sizes(&self, meta: &TensorMeta) -> &[i64] {
        let start = meta.dims.start as usize;
        &self.dims[start..start + meta.dims.rank()]
    }

    /// A tensor's strides, where it has them.
    pub fn strides(&self, meta: &TensorMeta) -> Option<&[i64]> {
        let start = meta.dims.start as usize + meta.dims.rank();
        meta.dims.has_strides.then(|| &self.dims[start..start + meta.dims.rank()])
    }

    /// How a tensor's sizes print where some are symbolic.
    pub fn symbolic_sizes(&self, node: NodeId) -> Option<&[Option<TextId>]> {
        self.symbolic_sizes.get(&node).map(|sizes| &**sizes)
    }

    /// Visits the nodes that an argument mentions, in order, each as often as it is mentioned.
    pub fn visit_nodes(&self, arg: Arg, visit: &mut dyn FnMut(NodeId)) {
        if let Arg::Node(node) = arg {
            visit(node);
        } else if let Some(elements) = arg.elements() {
            for &element in self.args(elements) {
                self.visit_nodes(element, visit);
            }
        }
    }

    /// Visits the nodes that a node reads.
    pub fn visit_inputs(&self, node: NodeId, visit: &mut dyn FnMut(NodeId)) {
        match self.node(node).kind {
            NodeKind::Placeholder { .. } => {}
            NodeKind::GetItem { of, .. } => visit(of),
            NodeKind::Call { args, .. } => {
                for &arg in self.args(args) {
                    self.visit_nodes(arg, visit);
                }
            }
        }
    }
}

#[inline]
fn pool_index(index: usize) -> u32 {
    u32::try_from(index).expect("more than u32::MAX arguments in one graph")
}

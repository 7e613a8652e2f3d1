//! Which inputs the nodes of a graph write, and behind which of these writes an operation may raise:
//! that is what a replay has to be able to take back.
//!
//! A tensor that the trace made is its own. So each node is asked whose memory its result may share:
//! the inputs that a chain of views leads to.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use stator_graph::{Arg, Graph, NodeId, NodeKind, Target, TextId, Value};
use stator_operators::Raising;

use crate::raises::{ARRAY_WRITES, Data, NodeCall};
use crate::rollback;

/// What of an input is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The data that it had.
    pub data: bool,
    /// Sizes, strides, or which memory it has.
    pub layout: bool,
    /// Its gradient: another tensor.
    pub gradient: bool,
}

impl Written {
    /// The data, and nothing else.
    pub const DATA: Self = Self { data: true, layout: false, gradient: false };
    const LAYOUT: Self = Self { data: false, layout: true, gradient: false };
    const GRADIENT: Self = Self { data: false, layout: false, gradient: true };
    /// Its place in a gradient's graph, which is always put back.
    const PLACE: Self = Self { data: false, layout: false, gradient: false };

    /// Whether this is all that the other one is.
    pub fn covers(self, other: Self) -> bool {
        (self.data || !other.data)
            && (self.layout || !other.layout)
            && (self.gradient || !other.gradient)
    }

    /// Adds what the other one is.
    pub fn add(&mut self, other: Self) {
        self.data |= other.data;
        self.layout |= other.layout;
        self.gradient |= other.gradient;
    }
}

/// When an operation in place asks where a tensor stands in gradients' graphs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// In any case.
    Always,
    /// Where gradients are recorded, and one of its tensors requires them.
    Recording,
}

/// Inputs by their positions, each once. What shares the same ones as something else has the same object: an operation
/// on a thousand tensors gives a thousand that share a thousand.
type Inputs = Rc<[u32]>;

/// What several nodes share, gathered before it is put together.
type Gathered = SmallVec<[Inputs; 4]>;

/// A walk along the nodes of a graph, in their order.
#[derive(Default)]
pub struct Writes {
    /// The inputs whose memory a node's result may share.
    shared: Vec<Inputs>,
    /// Whether a node's data is the same in all replays.
    known: Vec<bool>,
    /// What stands where an input's own data stood.
    replaced: FxHashMap<u32, Vec<u32>>,
    /// Operations that would have raised already.
    passed: FxHashSet<String>,
    /// The inputs that were written so far.
    pub written: FxHashMap<u32, Written>,
    /// Those of them behind whose writes an operation may raise for what is in its inputs.
    pub at_risk: FxHashMap<u32, Written>,
    /// Those behind whose writes the program may handle what an operation raises for want of memory.
    pub handled: FxHashMap<u32, Written>,
    /// Whether an operation was met that may raise.
    pub may_raise: bool,
    /// An input that required gradients and was detached.
    pub detached: bool,
    /// Whether code of the program's own was called.
    pub has_called: bool,
    placeholders: u32,
    names: Names,
}

/// What the names of operations say of them, whatever they are given. A model calls few operations often, and each reading
/// of a name compares many texts.
#[derive(Default)]
struct Names {
    classes: FxHashMap<(TextId, bool), Raising>,
    /// They write nothing.
    steady: FxHashSet<TextId>,
}

impl Names {
    /// The call with its class.
    fn classified<'a>(&mut self, call: NodeCall<'a>) -> NodeCall<'a> {
        if call.class.is_some() {
            return call;
        }
        let key = match call.target {
            Target::Function { name, .. } => (name, false),
            Target::Method { name, .. } => (name, true),
            _ => return call,
        };
        let known = self.classes.get(&key).copied();
        let class = known.or_else(|| {
            let class = (call.operation() != "norm").then(|| call.class())?;
            self.classes.insert(key, class);
            Some(class)
        });
        NodeCall { class, ..call }
    }

    /// As [`write_of`].
    fn write_of(&mut self, call: NodeCall<'_>) -> Option<(Written, SmallVec<[Arg; 4]>)> {
        let (Target::Function { name, .. } | Target::Method { name, .. }) = call.target else {
            return write_of(call);
        };
        let decides = |name: &TextId| matches!(call.graph.text(*name), "out" | "inplace");
        if call.keywords.iter().any(decides) {
            return write_of(call);
        }
        if self.steady.contains(&name) {
            return None;
        }
        let write = write_of(call);
        if write.is_none() && !rollback::is_silent(call.operation()) {
            self.steady.insert(name);
        }
        write
    }
}

/// In-place operations that change what a tensor looks like.
const RESHAPING: &[&str] = &[
    "t_",
    "transpose_",
    "swapaxes_",
    "swapdims_",
    "squeeze_",
    "unsqueeze_",
    "as_strided_",
    "resize_",
    "resize_as_",
];

impl Writes {
    /// A call with what its name says of it.
    pub fn classified<'a>(&mut self, call: NodeCall<'a>) -> NodeCall<'a> {
        self.names.classified(call)
    }

    /// Goes on to the graph's last node. `is_handled` says whether the program may handle what a node
    /// raises.
    pub fn advance(&mut self, graph: &Graph, is_handled: &dyn Fn(NodeId) -> bool) {
        self.advance_to(graph, usize::MAX, is_handled);
    }

    fn advance_to(&mut self, graph: &Graph, end: usize, is_handled: &dyn Fn(NodeId) -> bool) {
        for (id, node) in graph.nodes().skip(self.shared.len()) {
            if id.index() >= end {
                break;
            }
            let (shared, known) = match &node.kind {
                NodeKind::Placeholder { .. } if graph.is_withdrawn(id) => {
                    (Inputs::default(), false)
                }
                NodeKind::Placeholder { .. } => {
                    let position = self.placeholders;
                    self.placeholders += 1;
                    (Inputs::from([position]), false)
                }
                NodeKind::GetItem { of, .. } => {
                    (self.shared[of.index()].clone(), self.known[of.index()])
                }
                NodeKind::Call { .. } => {
                    let call = NodeCall::of(graph, id).expect("it is a call");
                    let call = self.names.classified(call);
                    self.call(call, id, is_handled)
                }
            };
            self.shared.push(shared);
            self.known.push(known);
        }
    }

    fn call(
        &mut self,
        call: NodeCall<'_>,
        id: NodeId,
        is_handled: &dyn Fn(NodeId) -> bool,
    ) -> (Inputs, bool) {
        // What a number is computed by has been guarded: that it raises nothing is a fact.
        let is_number = matches!(call.graph.node(id).value, Value::Integer | Value::Float);
        let is_of_numbers = is_number && call.is_users();
        let may_raise = !is_of_numbers && self.may_raise(call);
        // Where only want of memory may raise, a handler decides.
        // What leaves by an exit takes nothing back.
        let is_caught = NodeCall::is_caught(call.graph, id);
        let is_handled = !may_raise
            && !is_of_numbers
            && !is_caught
            && !self.written.is_empty()
            && is_handled(id);
        let behind = if is_handled { &mut self.handled } else { &mut self.at_risk };
        if (may_raise && !is_caught) || is_handled {
            for (position, what) in &self.written {
                behind.entry(*position).or_default().add(*what);
            }
        }
        if may_raise {
            self.may_raise |= !is_caught;
            if call.is_indexed() {
                self.passed.insert(key(call));
            }
        }
        let write = self.names.write_of(call);
        let is_write = write.is_some();
        for (position, what) in
            write.map_or_else(Vec::new, |write| self.inputs_written(call, write))
        {
            self.written.entry(position).or_default().add(what);
            // It may have written a part when it raises.
            if may_raise && !is_caught && !call.is_repeatable() {
                self.at_risk.entry(position).or_default().add(what);
            }
        }
        self.has_called |= !is_of_numbers && call.is_users();
        if is_write {
            // Where the written tensor's data went, nobody has followed.
            self.known.fill(false);
            if !self.passed.is_empty() && writes_integers(call) {
                self.passed.clear();
            }
        }
        if call.name().starts_with(ARRAY_WRITES) {
            // It may be a tensor's memory.
            self.known.fill(false);
            self.passed.clear();
        }
        let shared = if is_write || call.is_view() {
            self.inputs_of(call.graph, &call.args[..call.args.len().min(1)])
        } else if !call.makes_memory() {
            self.inputs_of(call.graph, call.args)
        } else {
            Inputs::default()
        };
        let mut known = !is_write && call.is_determined();
        if known {
            call.graph.visit_inputs(id, &mut |input| known &= self.known[input.index()]);
        }
        (shared, known)
    }

    /// Whether an operation may raise for what is in its inputs, and no earlier one has looked at the same.
    pub fn may_raise(&self, call: NodeCall<'_>) -> bool {
        let is_known = |id: NodeId| self.known.get(id.index()).copied().unwrap_or(false);
        call.may_raise(&is_known) && !(call.is_indexed() && self.passed.contains(&key(call)))
    }

    /// Whether an operation asks, before it writes, where what it writes stands in gradients' graphs; if gradients are
    /// recorded, or in any case.
    pub fn asks_place(&mut self, call: NodeCall<'_>) -> Option<Asks> {
        let (what, _) = self.names.write_of(call)?;
        if what == Written::PLACE {
            return Some(Asks::Always);
        }
        let is_asked = what.data && !rollback::is_silent(call.operation());
        is_asked.then_some(Asks::Recording)
    }

    /// The inputs that an operation writes.
    pub fn written_by(&mut self, call: NodeCall<'_>) -> Vec<(u32, Written)> {
        write_of(call).map_or_else(Vec::new, |write| self.inputs_written(call, write))
    }

    /// The inputs that what an operation writes leads to.
    fn inputs_written(
        &mut self,
        call: NodeCall<'_>,
        (what, targets): (Written, SmallVec<[Arg; 4]>),
    ) -> Vec<(u32, Written)> {
        if call.sets_gradients() {
            let graph = call.graph;
            let requires = |node: NodeId| matches!(graph.node(node).value, Value::Tensor(meta) if meta.requires_grad);
            let inputs = (0..).zip(graph.placeholders().iter());
            return inputs.filter(|(_, node)| requires(**node)).map(|(at, _)| (at, what)).collect();
        }
        let inputs = self.inputs_of(call.graph, &targets);
        if what == Written::PLACE && call.operation() == "detach_" {
            let requires = |position: &u32| {
                let node = call.graph.placeholders()[*position as usize];
                matches!(call.graph.node(node).value, Value::Tensor(meta) if meta.requires_grad)
            };
            self.detached |= inputs.iter().any(requires);
        }
        if call.name().contains(".data.__") {
            let data = self.inputs_of(call.graph, call.args.get(1..).unwrap_or_default());
            for input in &*inputs {
                self.replaced.entry(*input).or_default().extend(&*data);
            }
        }
        inputs.iter().map(|position| (*position, what)).collect()
    }

    /// The inputs whose memory arguments may share.
    fn inputs_of(&self, graph: &Graph, args: &[Arg]) -> Inputs {
        let mut gathered = Gathered::new();
        for arg in args {
            graph.visit_nodes(*arg, &mut |id| {
                let shared = &self.shared[id.index()];
                let is_repeated = gathered.last().is_some_and(|last| Rc::ptr_eq(last, shared));
                if !shared.is_empty() && !is_repeated {
                    gathered.push(Rc::clone(shared));
                }
            });
        }
        match &gathered[..] {
            [] => Inputs::default(),
            [all] if self.replaced.is_empty() => Rc::clone(all),
            _ => self.put_together(&gathered),
        }
    }

    fn put_together(&self, gathered: &[Inputs]) -> Inputs {
        let mut parts = FxHashSet::default();
        let (mut found, mut inputs) = (FxHashSet::default(), Vec::new());
        let mut pending: Vec<u32> = Vec::new();
        for part in gathered.iter().filter(|part| parts.insert(part.as_ptr())) {
            pending.extend(part.iter().rev());
            while let Some(input) = pending.pop() {
                if found.insert(input) {
                    inputs.push(input);
                    pending.extend(self.replaced.get(&input).into_iter().flatten());
                }
            }
        }
        inputs.into()
    }
}

/// What an operation that is given indices looks at: these, and the sizes of what they index.
fn key(call: NodeCall<'_>) -> String {
    let mut key = call.operation().trim_matches('_').to_owned();
    call.args.iter().for_each(|arg| add_to_key(call.graph, *arg, &mut key));
    for name in call.keywords {
        key += call.graph.text(*name);
    }
    key
}

fn add_to_key(graph: &Graph, arg: Arg, key: &mut String) {
    let text = match arg {
        Arg::Node(id) => match graph.node(id).value {
            Value::Tensor(meta) if Data::of(&meta) == Data::Inexact => {
                format!("{:?}", graph.sizes(&meta))
            }
            _ => id.to_string(),
        },
        arg => match arg.elements() {
            Some(elements) => {
                key.push('(');
                graph.args(elements).iter().for_each(|element| add_to_key(graph, *element, key));
                ")".to_owned()
            }
            None => format!("{arg:?}"),
        },
    };
    key.push_str(&text);
    key.push(',');
}

/// Whether an operation writes to a tensor that indices may be in.
fn writes_integers(call: NodeCall<'_>) -> bool {
    let Some((_, targets)) = write_of(call) else { return false };
    let written = NodeCall { args: &targets, ..call };
    written.any_tensor(&|_, data| data != Data::Inexact)
}

/// Whether any node of a graph writes.
pub fn any(graph: &Graph) -> bool {
    let mut names = Names::default();
    graph
        .nodes()
        .any(|(id, _)| NodeCall::of(graph, id).is_some_and(|call| names.write_of(call).is_some()))
}

/// What the nodes up to one that raised may have written to inputs, if that isn't written again in the same
/// way; all nodes, if that is `None`. `is_unwritten`: no count of writes has changed. `is_in_turn`: somebody else ran the
/// operations, one after the other.
pub fn up_to(
    graph: &Graph,
    failed: Option<NodeId>,
    is_unwritten: bool,
    is_in_turn: bool,
) -> FxHashMap<u32, Written> {
    let mut writes = Writes::default();
    let is_repeatable = |id| NodeCall::of(graph, id).is_some_and(|call| call.is_repeatable());
    // An operation that writes one tensor counts when it has: before that it looks at what it is given.
    let writes_one = |id| {
        let written = NodeCall::of(graph, id).and_then(write_of);
        written.is_some_and(|(written, args)| {
            written == Written::DATA && matches!(args[..], [Arg::Node(_)])
        })
    };
    if is_unwritten && is_in_turn && counts_all(graph) {
        for (id, _) in graph.nodes() {
            writes.advance_to(graph, id.index() + 1, &|_| false);
            if writes.written.is_empty() {
                continue;
            }
            if writes_one(id) {
                // It would have counted, and so none behind it has run.
                return FxHashMap::default();
            }
            break;
        }
    }
    let end = match failed {
        Some(id) if is_repeatable(id) || is_unwritten && writes_one(id) => id.index(),
        Some(id) => id.index() + 1,
        None => usize::MAX,
    };
    writes.advance_to(graph, end, &|_| false);
    writes.written
}

/// Whether each write to the memory of an input counts: what `.data` gives counts for itself.
fn counts_all(graph: &Graph) -> bool {
    let is_apart =
        |call: NodeCall<'_>| call.operation() == "data" || call.name().contains(".data.");
    let is_apart = |id| NodeCall::of(graph, id).is_some_and(is_apart);
    !graph.nodes().any(|(id, _)| is_apart(id))
}

/// What an operation writes, and to which of its arguments: by PyTorch's convention for names, and those
/// that don't follow it.
pub fn write_of(call: NodeCall<'_>) -> Option<(Written, SmallVec<[Arg; 4]>)> {
    let (name, operation) = (call.name(), call.operation());
    let first = || call.args.iter().copied().take(1).collect();
    match call.target {
        Target::Operator(operator) => {
            return operator.is_in_place().then(|| (Written::DATA, first()));
        }
        Target::GetAttr { .. } | Target::Decide | Target::Catch => return None,
        _ => {}
    }
    if name.contains(".data.__") || operation == "set_data" {
        return Some((Written::LAYOUT, first()));
    }
    if name.contains(".grad.__") || call.sets_gradients() {
        return Some((Written::GRADIENT, first()));
    }
    if name.contains(".requires_grad.__") || matches!(operation, "requires_grad_" | "detach_") {
        return Some((Written::PLACE, first()));
    }
    if RESHAPING.contains(&operation) {
        return Some((Written::LAYOUT, first()));
    }
    if rollback::is_silent(operation) {
        // Statistics and states, which need no gradient.
        if operation.ends_with("batch_norm") && rollback::is_evaluating(call) {
            return None;
        }
        let state = |arg: &Arg| match arg {
            Arg::Node(id) => match call.graph.node(*id).value {
                Value::Tensor(meta) => !meta.requires_grad,
                _ => true,
            },
            _ => arg.elements().is_some(),
        };
        let skipped = usize::from(operation.ends_with("_norm"));
        return Some((
            Written::DATA,
            call.args.iter().copied().skip(skipped).filter(state).collect(),
        ));
    }
    let keyword = |wanted: &str| {
        let at = call.keywords.iter().position(|name| call.graph.text(*name) == wanted)?;
        call.args.get(call.args.len() - call.keywords.len() + at).copied()
    };
    if let Some(out) = keyword("out") {
        return Some((Written::DATA, SmallVec::from_slice(&[out])));
    }
    let is_in_place = (operation.ends_with('_') && !operation.ends_with("__"))
        || (operation.starts_with("__i") && !matches!(operation, "__invert__" | "__index__"))
        || matches!(operation, "__setitem__" | "__delitem__")
        || keyword("inplace").is_some_and(|given| given != Arg::bool(false));
    is_in_place.then(|| (Written::DATA, first()))
}

/// Whether nobody can tell that it was done twice: it reads and computes, draws nothing, and writes nothing.
pub fn is_idle(call: NodeCall<'_>) -> bool {
    match call.target {
        Target::Operator(operator) => !operator.is_in_place(),
        Target::GetAttr { .. } | Target::Decide | Target::Catch => true,
        Target::Function { .. } | Target::Method { .. } => {
            let reads = matches!(
                call.operation(),
                "item" | "tolist" | "allclose" | "contains" | "equal" | "is_nonzero"
            );
            let computes = call.is_determined() || call.is_of_array_values();
            (reads && !call.is_users() || computes) && write_of(call).is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use stator_graph::{Arg, Graph, Target, Value};

    use super::Writes;

    /// A foreach operation on lists of equal length, and the elements of what it gives.
    fn foreach(graph: &mut Graph, name: &str, lists: &[&[Arg]]) -> Vec<Arg> {
        let args: Vec<Arg> = lists.iter().map(|list| graph.list(list)).collect();
        let object = graph.add_object(name);
        let target = Target::Function { name: graph.intern(name), object };
        let node = graph.call(target, &args, None);
        let length = u32::try_from(lists[0].len()).expect("a short list");
        graph.set_value(node, Value::Structure(length));
        (0..length).map(|index| Arg::Node(graph.get_item(node, index))).collect()
    }

    #[test]
    fn elements_of_one_result_share_one_set_of_inputs() {
        let mut graph = Graph::default();
        let mut inputs = |name: &str| -> Vec<Arg> {
            (0..200)
                .map(|at| Arg::Node(graph.placeholder(&format!("{name}[{at}]"), Value::Unknown)))
                .collect()
        };
        let (weights, gradients) = (inputs("weights"), inputs("gradients"));
        let scaled = foreach(&mut graph, "torch._foreach_mul_", &[&weights, &gradients]);
        let added = foreach(&mut graph, "torch._foreach_add_", &[&scaled, &gradients]);
        let mut writes = Writes::default();
        writes.advance(&graph, &|_| false);
        let shared = |arg: &Arg| match arg {
            Arg::Node(id) => Rc::clone(&writes.shared[id.index()]),
            _ => unreachable!("it is a node"),
        };
        // The second operation's result shares what the first one's does, not a copy of it for each element.
        let first = shared(&scaled[0]);
        assert!(scaled.iter().chain(&added).all(|arg| Rc::ptr_eq(&shared(arg), &first)));
        assert_eq!(first.len(), 200);
        let mut written: Vec<u32> = writes.written.keys().copied().collect();
        written.sort_unstable();
        assert_eq!(written, (0..200).collect::<Vec<_>>());
    }
}

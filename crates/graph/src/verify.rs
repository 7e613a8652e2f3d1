//! The verifier: what must hold of a finished graph, and where it doesn't.
//!
//! 1. A node reads only nodes before it; placeholders read none.
//! 2. What is read was made: no node with [`Value::Nothing`] is read, and only placeholders that
//!    are still taken are read.
//! 3. The list of placeholders names placeholder nodes, none twice, no source twice.
//! 4. Runs of arguments and keywords lie inside their pools, and a nested run ends before the run
//!    that holds it begins (so nesting is finite).
//! 5. Dicts have a value for each key, slices three parts.
//! 6. There are at most as many keywords as arguments, none twice.
//! 7. Operators have their number of operands and no keywords; methods have a first argument by
//!    position; attribute reads have exactly one argument.
//! 8. `GetItem` reads a node whose value is a structure with more elements than its index.
//! 9. Metadata lies inside the pool; sizes aren't negative; symbolic sizes have the tensor's rank.
//! 10. Texts, objects and stacks are the graph's own; a frame's parent stands before it.
//! 11. Local names aren't empty.
//! 12. Outputs read existing nodes.

use std::fmt;

use rustc_hash::FxHashSet;

use crate::arg::{Arg, ArgList, Constant};
use crate::graph::{Graph, KeywordList, Node, NodeKind, Target};
use crate::ids::{NodeId, ObjectId, StackId, TextId};
use crate::print::raw;
use crate::tensor::Value;

/// What is wrong with a graph. The number in front is the invariant's in the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the printed message says what each one is")]
pub enum Problem {
    ReadsLaterNode(NodeId),
    ReadsNothing(NodeId),
    ReadsRemovedPlaceholder(NodeId),
    ListedIsNoPlaceholder(NodeId),
    ListedTwice(NodeId),
    SourceTwice(String),
    ArgsOutsidePool,
    KeywordsOutsidePool,
    NestedAfterParent,
    DictWithoutValue,
    SliceParts(usize),
    MoreKeywordsThanArgs,
    KeywordTwice(String),
    Operands { expected: usize, found: usize },
    OperatorWithKeywords,
    MethodWithoutSelf,
    AttributeArguments(usize),
    NoSuchElement { of: NodeId, index: u32 },
    DimsOutsidePool,
    NegativeSize(i64),
    SymbolicRank { rank: usize, found: usize },
    UnknownText(TextId),
    UnknownObject(ObjectId),
    UnknownStack(StackId),
    ParentAfterFrame(StackId),
    EmptyLocalName,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadsLaterNode(node) => write!(f, "1: reads {node}, which isn't before it"),
            Self::ReadsNothing(node) => write!(f, "2: reads {node}, which makes no value"),
            Self::ReadsRemovedPlaceholder(node) => {
                write!(f, "2: reads {node}, a placeholder that is no longer taken")
            }
            Self::ListedIsNoPlaceholder(node) => {
                write!(f, "3: {node} is listed as a placeholder but isn't one")
            }
            Self::ListedTwice(node) => write!(f, "3: placeholder {node} is listed twice"),
            Self::SourceTwice(source) => write!(f, "3: source {source} is taken twice"),
            Self::ArgsOutsidePool => write!(f, "4: arguments outside the pool"),
            Self::KeywordsOutsidePool => write!(f, "4: keywords outside the pool"),
            Self::NestedAfterParent => {
                write!(f, "4: a nested run of arguments doesn't stand before its parent")
            }
            Self::DictWithoutValue => write!(f, "5: a dict has a key without a value"),
            Self::SliceParts(found) => write!(f, "5: a slice has {found} parts instead of 3"),
            Self::MoreKeywordsThanArgs => write!(f, "6: more keywords than arguments"),
            Self::KeywordTwice(name) => write!(f, "6: keyword {name} is given twice"),
            Self::Operands { expected, found } => {
                write!(f, "7: an operator with {expected} operands is given {found}")
            }
            Self::OperatorWithKeywords => write!(f, "7: an operator is given keywords"),
            Self::MethodWithoutSelf => write!(f, "7: a method has no argument to be looked up in"),
            Self::AttributeArguments(found) => {
                write!(f, "7: an attribute read has {found} arguments instead of 1")
            }
            Self::NoSuchElement { of, index } => write!(f, "8: {of} has no element {index}"),
            Self::DimsOutsidePool => write!(f, "9: sizes outside the pool"),
            Self::NegativeSize(size) => write!(f, "9: a size of {size}"),
            Self::SymbolicRank { rank, found } => {
                write!(f, "9: {found} symbolic sizes for a tensor with {rank} dimensions")
            }
            Self::UnknownText(id) => write!(f, "10: {id} is no text of this graph"),
            Self::UnknownObject(id) => write!(f, "10: {id} is no object of this graph"),
            Self::UnknownStack(id) => write!(f, "10: {id} is no stack of this graph"),
            Self::ParentAfterFrame(id) => write!(f, "10: the parent of {id} isn't before it"),
            Self::EmptyLocalName => write!(f, "11: an empty local name"),
        }
    }
}

/// A problem, with the nodes around the one that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The node, or `None` for the outputs and the tables.
    pub node: Option<NodeId>,
    /// What is wrong.
    pub problem: Problem,
    /// The nodes around it, as raw text.
    pub neighbourhood: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => writeln!(f, "graph node {node}: {}", self.problem)?,
            None => writeln!(f, "graph: {}", self.problem)?,
        }
        f.write_str(&self.neighbourhood)
    }
}

impl std::error::Error for VerifyError {}

impl Graph {
    /// Checks every invariant; linear in the size of the graph.
    ///
    /// # Errors
    /// The first problem found, with its neighbourhood.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let error = |node, problem| VerifyError {
            node,
            problem,
            neighbourhood: raw::neighbourhood(self, node),
        };
        let checker = Checker::new(self).map_err(|problem| error(None, problem))?;
        for (id, node) in self.nodes() {
            checker.node(id, node).map_err(|problem| error(Some(id), problem))?;
        }
        checker.run(self.outputs, self.len()).map_err(|problem| error(None, problem))
    }
}

struct Checker<'g> {
    graph: &'g Graph,
    taken: FxHashSet<NodeId>,
}

type Check = Result<(), Problem>;

impl<'g> Checker<'g> {
    /// Checks the tables that nodes refer to.
    fn new(graph: &'g Graph) -> Result<Self, Problem> {
        let mut checker = Self { graph, taken: FxHashSet::default() };
        let mut sources = FxHashSet::default();
        for &id in &graph.placeholders {
            let Some(Node { kind: NodeKind::Placeholder { source }, .. }) =
                graph.nodes.get(id.index())
            else {
                return Err(Problem::ListedIsNoPlaceholder(id));
            };
            ensure(checker.taken.insert(id), || Problem::ListedTwice(id))?;
            checker.text(*source)?;
            let is_named = !graph.text(*source).is_empty();
            ensure(!is_named || sources.insert(*source), || {
                Problem::SourceTwice(graph.text(*source).to_owned())
            })?;
        }
        for &printed in &graph.objects {
            checker.text(printed)?;
        }
        for (id, frame) in graph.stacks.iter() {
            ensure(frame.parent.is_none_or(|parent| parent < id), || {
                Problem::ParentAfterFrame(id)
            })?;
        }
        Ok(checker)
    }

    fn node(&self, id: NodeId, node: &Node) -> Check {
        match node.kind {
            NodeKind::Placeholder { source } => self.text(source)?,
            NodeKind::GetItem { of, index } => {
                self.read(of, id.index())?;
                let Value::Structure(len) = self.graph.node(of).value else {
                    return Err(Problem::NoSuchElement { of, index });
                };
                ensure(index < len, || Problem::NoSuchElement { of, index })?;
            }
            NodeKind::Call { target, args, keywords } => {
                self.run(args, id.index())?;
                self.keywords(args, keywords)?;
                self.target(target, args, keywords)?;
            }
        }
        if let Some(stack) = node.stack {
            ensure(self.graph.stacks.get(stack).is_some(), || Problem::UnknownStack(stack))?;
        }
        if let Some(local) = node.local {
            self.text(local)?;
            ensure(!self.graph.text(local).is_empty(), || Problem::EmptyLocalName)?;
        }
        self.value(id, node.value)
    }

    /// A read by the node with this index, or by the outputs.
    fn read(&self, of: NodeId, reader: usize) -> Check {
        ensure(of.index() < reader, || Problem::ReadsLaterNode(of))?;
        let node = self.graph.node(of);
        ensure(node.value != Value::Nothing, || Problem::ReadsNothing(of))?;
        let is_removed =
            matches!(node.kind, NodeKind::Placeholder { .. }) && !self.taken.contains(&of);
        ensure(!is_removed, || Problem::ReadsRemovedPlaceholder(of))
    }

    fn run(&self, list: ArgList, reader: usize) -> Check {
        let args = self.graph.args.get(list.range()).ok_or(Problem::ArgsOutsidePool)?;
        args.iter().try_for_each(|&arg| self.arg(arg, list, reader))
    }

    fn arg(&self, arg: Arg, parent: ArgList, reader: usize) -> Check {
        match arg {
            Arg::Node(node) => return self.read(node, reader),
            Arg::Object(object) => return self.object(object),
            Arg::Constant(Constant::BigInt(text) | Constant::Str(text) | Constant::Bytes(text)) => {
                return self.text(text);
            }
            Arg::Constant(_) | Arg::List(_) | Arg::Tuple(_) => {}
            Arg::Dict(items) => {
                ensure(items.len() % 2 == 0, || Problem::DictWithoutValue)?;
            }
            Arg::Slice(parts) => {
                ensure(parts.len() == 3, || Problem::SliceParts(parts.len()))?;
            }
        }
        let Some(elements) = arg.elements() else { return Ok(()) };
        ensure(elements.range().end <= parent.range().start, || Problem::NestedAfterParent)?;
        self.run(elements, reader)
    }

    fn keywords(&self, args: ArgList, keywords: KeywordList) -> Check {
        let names =
            self.graph.keywords.get(keywords.range()).ok_or(Problem::KeywordsOutsidePool)?;
        ensure(names.len() <= args.len(), || Problem::MoreKeywordsThanArgs)?;
        for (position, &name) in names.iter().enumerate() {
            self.text(name)?;
            ensure(!names[..position].contains(&name), || {
                Problem::KeywordTwice(self.graph.text(name).to_owned())
            })?;
        }
        Ok(())
    }

    fn target(&self, target: Target, args: ArgList, keywords: KeywordList) -> Check {
        let found = args.len();
        match target {
            Target::Function { name, object } => {
                self.text(name)?;
                self.object(object)
            }
            Target::Method { name, object } => {
                self.text(name)?;
                object.map_or(Ok(()), |object| self.object(object))?;
                ensure(found > keywords.len(), || Problem::MethodWithoutSelf)
            }
            Target::Operator(operator) => {
                let expected = operator.arity();
                ensure(found == expected, || Problem::Operands { expected, found })?;
                ensure(keywords.is_empty(), || Problem::OperatorWithKeywords)
            }
            Target::GetAttr { name } => {
                self.text(name)?;
                ensure(found == 1 && keywords.is_empty(), || Problem::AttributeArguments(found))
            }
            Target::Catch => {
                ensure(keywords.is_empty(), || Problem::Operands { expected: 0, found })
            }
            Target::Decide => ensure(found >= 2 && keywords.is_empty(), || Problem::Operands {
                expected: 2,
                found,
            }),
        }
    }

    fn value(&self, id: NodeId, value: Value) -> Check {
        let Value::Tensor(meta) = value else { return Ok(()) };
        let rank = meta.dims.rank();
        let numbers = if meta.dims.has_strides { 2 * rank } else { rank };
        let end = meta.dims.start as usize + numbers;
        ensure(end <= self.graph.dims.len(), || Problem::DimsOutsidePool)?;
        let sizes = self.graph.sizes(&meta);
        sizes.iter().try_for_each(|&size| ensure(size >= 0, || Problem::NegativeSize(size)))?;
        let Some(symbolic) = self.graph.symbolic_sizes(id) else { return Ok(()) };
        let found = symbolic.len();
        ensure(found == rank, || Problem::SymbolicRank { rank, found })
    }

    fn text(&self, id: TextId) -> Check {
        ensure(self.graph.texts.get(id).is_some(), || Problem::UnknownText(id))
    }

    fn object(&self, id: ObjectId) -> Check {
        ensure(id.index() < self.graph.objects.len(), || Problem::UnknownObject(id))
    }
}

fn ensure(holds: bool, problem: impl FnOnce() -> Problem) -> Check {
    if holds { Ok(()) } else { Err(problem()) }
}

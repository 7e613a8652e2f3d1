//! From the notes of a trace to a program: sizes are read from the inputs, tensors from outside become
//! constants, functions and other objects get the names that they have in the text.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::heap::tensor;
use stator_graph::program::{ATTRIBUTES, ConstantType, Program, Requirement, TensorType, Tree};
use stator_graph::{Arg, Dtype, Graph, Node, NodeId, NodeKind, ObjectId, StackId, Target, Value};
use stator_shapes::{Style, SymbolId};

use crate::breaks::{Break, Place, Reason};
use crate::locate::Places;
use crate::recorder::{Arguments, State, Stop, TensorInput};
use crate::symbolic::Part;

/// A program, and the tensors that are its constants.
pub struct Built {
    /// The program.
    pub program: Program,
    /// Its constants: the user's tensors, as they are.
    pub constants: Vec<Py<PyAny>>,
    /// Where in the user's code its nodes were recorded, outermost first; behind them, what it requires.
    pub places: FxHashMap<NodeId, Vec<Place>>,
}

/// Why there is no program.
pub enum Failed {
    /// The trace holds what a program can't.
    Break(Break),
    /// Python code raised.
    Raised(PyErr),
}

impl From<PyErr> for Failed {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Stop> for Failed {
    fn from((reason, detail): Stop) -> Self {
        Self::Break(Break { reason, detail, stack: Vec::new() })
    }
}

type Made<T> = Result<T, Failed>;

/// Builds the program of a finished trace. `leaves` are the tensors and numbers of its result.
pub fn build<'py>(
    tracing: &Bound<'py, PyAny>,
    mut state: State,
    leaves: &Bound<'py, PyList>,
    gives: Tree,
) -> Made<Built> {
    let py = tracing.py();
    let inputs: Vec<Bound<'py, PyAny>> = tracing.getattr("inputs")?.extract()?;
    let default_dtype = super::dtype(&tracing.getattr("default_dtype")?.extract::<String>()?)?;
    let stand_in = tracing.getattr("stand_in")?;
    let is_stand_in = |object: &Bound<'_, PyAny>| object.get_type().is(&stand_in);
    let (mut outputs, mut types) = (Vec::new(), Vec::new());
    for leaf in leaves.iter() {
        let is_tensor = tensor::info(leaf.as_borrowed()).is_some();
        if is_tensor && state.origin(leaf.as_borrowed()).is_none() {
            if is_stand_in(&leaf) {
                let detail = "a tensor in the result".to_string();
                return Err((Reason::UnknownOrigin, detail).into());
            }
            // One that was in an object which nobody read.
            let source = state.graph.placeholders().len();
            let node = state.graph.placeholder(&format!("result {source}"), Value::Unknown);
            let position = u32::try_from(source).expect("fewer than 2^32 inputs");
            state.inputs.add_result(position, leaf.clone().unbind());
            outputs.push(Arg::Node(node));
        } else {
            outputs.push(state.graph_arg(leaf.as_borrowed())?);
        }
        types.push(output_type(&mut state, &leaf, default_dtype)?);
    }
    let inputs_by_address: FxHashMap<usize, usize> =
        inputs.iter().enumerate().map(|(at, input)| (input.as_ptr() as usize, at)).collect();
    let mut found: Vec<Option<Found>> = vec![None; state.graph.placeholders().len()];
    let mut constants: Vec<Py<PyAny>> = Vec::new();
    for TensorInput { position, tensor, .. } in state.inputs.tensors() {
        let object = tensor.bind(py);
        let input = inputs_by_address.get(&(object.as_ptr() as usize));
        found[*position as usize] = Some(match input {
            Some(&input) => Found::Input(input),
            None if is_stand_in(object) => {
                let detail = "a tensor without data that is no input".to_string();
                return Err((Reason::NotInProgram, detail).into());
            }
            None => {
                let known = constants.iter().position(|known| known.is(object));
                Found::Constant(known.unwrap_or_else(|| {
                    constants.push(object.clone().unbind());
                    constants.len() - 1
                }))
            }
        });
    }
    let (requirements, required_at) = requirements(&mut state, &inputs, &mut found)?;
    let constant_types = constants
        .iter()
        .map(|constant| constant_type(constant.bind(py)))
        .collect::<Made<Vec<_>>>()?;
    let input_types = tracing.getattr("types")?.extract::<Vec<(String, Vec<Option<u64>>)>>()?;
    let input_types = input_types
        .into_iter()
        .map(|(name, sizes)| Ok(TensorType { dtype: super::dtype(&name)?, sizes: sizes.into() }))
        .collect::<PyResult<Vec<_>>>()?;
    let mut builder = Builder {
        tracing,
        codes: state.frames.codes(),
        objects: state.graph_objects.all(),
        old: &state.graph,
        graph: Graph::new(),
        nodes: vec![None; state.graph.len()],
        texts: FxHashMap::default(),
        here: None,
        places: FxHashMap::default(),
    };
    builder.run(&found, input_types.len(), constants.len(), &outputs)?;
    let places = std::mem::take(&mut builder.places);
    let mut places: FxHashMap<_, _> =
        places.into_iter().map(|(node, stack)| (node, builder.walk(stack))).collect();
    for (index, stack) in required_at.into_iter().enumerate() {
        if let Some(stack) = stack {
            places.insert(place_of_requirement(&builder.graph, index), builder.walk(stack));
        }
    }
    let program = Program {
        graph: builder.graph,
        inputs: input_types,
        constants: constant_types,
        requirements,
        outputs: types,
        default_dtype,
        takes: super::tree(&tracing.getattr("takes")?)?,
        gives,
    };
    Ok(Built { program, constants, places })
}

/// Where among the places of a program's nodes that of a requirement is.
#[must_use]
pub fn place_of_requirement(graph: &Graph, index: usize) -> NodeId {
    NodeId::new(graph.len() + index)
}

/// What a program asks of its inputs' sizes, and where that was assumed; and which placeholders are sizes.
fn requirements(
    state: &mut State,
    inputs: &[Bound<'_, PyAny>],
    found: &mut [Option<Found>],
) -> Made<(Vec<Requirement>, Vec<Option<StackId>>)> {
    let sources: FxHashMap<_, _> = inputs
        .iter()
        .enumerate()
        .filter_map(|(at, input)| Some((state.source(input.as_borrowed())?, at)))
        .collect();
    let mut requirements = Vec::new();
    let mut facts = Vec::new();
    if let Some(symbols) = state.symbols.as_mut() {
        let slots: Vec<Option<(usize, usize)>> = symbols
            .slots()
            .iter()
            .map(|slot| match slot.part {
                Part::Size(dim) => sources.get(&slot.source).map(|input| (*input, dim)),
                _ => None,
            })
            .collect();
        for &(position, slot) in symbols.inputs() {
            found[position] = slots[slot].map(|(input, dim)| Found::Size(input, dim));
        }
        let name = |symbol: SymbolId| match slots[symbol.index()] {
            Some((input, dim)) => format!("%{input}.size({dim})").into(),
            None => "?".into(),
        };
        for fact in symbols.context.facts() {
            let text = symbols.context.display_cond(fact.cond, Style::Python, &name);
            // Of sizes that data decides nothing is assumed: no operation gives fewer than none.
            let is_of_data = symbols.asks_data(&symbols.context, fact.cond);
            if fact.implicit || is_of_data || is_plain(&text) {
                continue;
            }
            match Requirement::parse(&text) {
                Ok(requirement) => {
                    requirements.push(requirement);
                    facts.push(fact.cond);
                }
                Err(_) => return Err((Reason::VaryingSize, text).into()),
            }
        }
    }
    let places = facts.into_iter().map(|fact| state.assumed_at(|assumed| assumed == fact));
    Ok((requirements, places.collect()))
}

/// What a placeholder of the trace is.
#[derive(Clone, Copy)]
enum Found {
    Input(usize),
    Constant(usize),
    Size(usize, usize),
}

/// No size is negative.
fn is_plain(text: &str) -> bool {
    text.strip_prefix("0 <= %").is_some_and(|rest| !rest.contains(' '))
}

fn sizes_type(dtype: i32, sizes: Box<[Option<u64>]>) -> Made<TensorType> {
    let dtype = Dtype(i8::try_from(dtype).unwrap_or(-1));
    if dtype.known_name().is_none() {
        return Err((Reason::NotInProgram, format!("a tensor of {dtype}")).into());
    }
    Ok(TensorType { dtype, sizes })
}

fn output_type(state: &mut State, leaf: &Bound<'_, PyAny>, default: Dtype) -> Made<TensorType> {
    let number = |dtype| Ok(TensorType { dtype, sizes: Box::default() });
    if leaf.is_exact_instance_of::<PyBool>() {
        return number(super::dtype("bool")?);
    }
    if leaf.is_exact_instance_of::<PyInt>() {
        return number(super::dtype("int64")?);
    }
    if leaf.is_exact_instance_of::<PyFloat>() {
        return number(default);
    }
    let unknown = || (Reason::Result, "an object that is no tensor".to_string());
    let info = tensor::info(leaf.as_borrowed()).ok_or_else(unknown)?;
    let known = |size: &i64| u64::try_from(*size).ok();
    let sizes = match state.symbolic_sizes(leaf.as_borrowed()) {
        None => info.sizes.iter().map(known).collect(),
        Some(sizes) => {
            let symbols = state.symbols.as_mut().expect("there are symbolic sizes");
            let size = |size| {
                let size = symbols.context.simplify(size);
                symbols.context.as_constant(size).as_ref().and_then(known)
            };
            sizes.into_iter().map(size).collect()
        }
    };
    sizes_type(info.dtype, sizes)
}

fn constant_type(object: &Bound<'_, PyAny>) -> Made<ConstantType> {
    let unknown = || (Reason::NotInProgram, "an object that is no tensor".to_string());
    let info = tensor::info(object.as_borrowed()).ok_or_else(unknown)?;
    if info.layout != 0 {
        return Err((Reason::NotInProgram, "a sparse tensor from outside".to_string()).into());
    }
    let sizes = info.sizes.iter().map(|size| u64::try_from(*size).ok()).collect();
    let tensor = sizes_type(info.dtype, sizes)?;
    if tensor.dtype.bytes().is_none() {
        let detail = format!("a tensor of {} from outside", tensor.dtype);
        return Err((Reason::NotInProgram, detail).into());
    }
    Ok(ConstantType { tensor, requires_grad: info.requires_grad })
}

struct Builder<'a, 'py> {
    tracing: &'a Bound<'py, PyAny>,
    codes: &'a [Py<PyAny>],
    objects: &'a [Py<PyAny>],
    old: &'a Graph,
    graph: Graph,
    /// The new nodes of old ones.
    nodes: Vec<Option<NodeId>>,
    texts: FxHashMap<String, ObjectId>,
    /// Where the node that is being made was recorded.
    here: Option<StackId>,
    /// Where the new nodes were recorded.
    places: FxHashMap<NodeId, StackId>,
}

impl Builder<'_, '_> {
    fn run(
        &mut self,
        found: &[Option<Found>],
        inputs: usize,
        constants: usize,
        outputs: &[Arg],
    ) -> Made<()> {
        for input in 0..inputs {
            self.graph.placeholder(&format!("input {input}"), Value::Unknown);
        }
        for constant in 0..constants {
            self.graph.placeholder(&format!("constant {constant}"), Value::Unknown);
        }
        let used = self.used(outputs);
        let old = self.old;
        for (&placeholder, found) in old.placeholders().iter().zip(found) {
            if !used.contains(&placeholder) {
                continue;
            }
            let node = match *found {
                Some(Found::Input(input)) => NodeId::new(input),
                Some(Found::Constant(constant)) => NodeId::new(inputs + constant),
                Some(Found::Size(input, dim)) => {
                    let target = self.named(&format!("{METHOD}size"));
                    let dim = Arg::int(i64::try_from(dim).unwrap_or_default());
                    self.graph.call(target, &[Arg::Node(NodeId::new(input)), dim], None)
                }
                None => return Err(self.refuse("an object that is no tensor, as an input")),
            };
            self.nodes[placeholder.index()] = Some(node);
        }
        for (id, node) in old.nodes() {
            self.here = node.stack;
            let new = match node.kind {
                NodeKind::Placeholder { .. } => continue,
                _ if is_dispensable(old, node) && !used.contains(&id) => continue,
                NodeKind::GetItem { of, index } => {
                    let of = self.node(of)?;
                    self.graph.get_item(of, index)
                }
                NodeKind::Call { target, args, keywords } => {
                    let target = self.target(target)?;
                    let args = old
                        .args(args)
                        .iter()
                        .map(|arg| self.arg(*arg))
                        .collect::<Made<Vec<_>>>()?;
                    let names: Vec<_> = old
                        .keywords(keywords)
                        .iter()
                        .map(|name| self.graph.intern(old.text(*name)))
                        .collect();
                    self.graph.call_with_keywords(target, &args, &names, None)
                }
            };
            if let Value::Structure(_) = node.value {
                self.graph.set_value(new, node.value);
            }
            self.nodes[id.index()] = Some(new);
            if let Some(stack) = node.stack {
                self.places.insert(new, stack);
            }
        }
        self.here = None;
        let outputs = outputs.iter().map(|output| self.arg(*output)).collect::<Made<Vec<_>>>()?;
        self.graph.set_outputs(&outputs);
        debug_assert!(self.graph.verify().is_ok(), "{:?}", self.graph.verify());
        Ok(())
    }

    /// The nodes that others need: all that may do more than make a value, and what they read.
    fn used(&self, outputs: &[Arg]) -> FxHashSet<NodeId> {
        let mut used = FxHashSet::default();
        for &output in outputs {
            self.old.visit_nodes(output, &mut |node| _ = used.insert(node));
        }
        let all: Vec<_> = self.old.nodes().collect();
        for (id, node) in all.into_iter().rev() {
            if used.contains(&id) || !is_dispensable(self.old, node) {
                self.old.visit_inputs(id, &mut |input| _ = used.insert(input));
            }
        }
        used
    }

    fn target(&mut self, target: Target) -> Made<Target> {
        match target {
            Target::Operator(_) => Ok(target),
            Target::Function { name, object } => {
                let text = self.name_of(object, self.old.text(name))?;
                Ok(self.named(&text))
            }
            Target::Method { name, object } => {
                let name = self.old.text(name);
                let py = self.tracing.py();
                let object = object.map(|object| self.objects[object.index()].bind(py));
                let is_known = self.tracing.call_method1("method", (name, object))?;
                if !is_known.is_truthy()? {
                    return Err(self.refuse(&format!("the method {name} of a tensor")));
                }
                Ok(self.named(&format!("{METHOD}{name}")))
            }
            Target::GetAttr { name } => {
                let name = self.old.text(name);
                if !ATTRIBUTES.contains(&name) {
                    return Err(self.refuse(&format!("the attribute {name} of a tensor")));
                }
                Ok(Target::GetAttr { name: self.graph.intern(name) })
            }
            Target::Decide => Err(self.refuse("a decision on data")),
            Target::Catch => Err(self.refuse("a way out for what an operation raises")),
        }
    }

    fn named(&mut self, text: &str) -> Target {
        let object = self.object(text);
        Target::Function { name: self.graph.intern(text), object }
    }

    fn object(&mut self, text: &str) -> ObjectId {
        if let Some(&known) = self.texts.get(text) {
            return known;
        }
        let id = self.graph.add_object(text);
        self.texts.insert(text.to_string(), id);
        id
    }

    /// The name of an object in the text.
    fn name_of(&self, object: ObjectId, printed: &str) -> Made<String> {
        let object = self.objects[object.index()].bind(self.tracing.py());
        let name: Option<String> = self.tracing.call_method1("name", (object,))?.extract()?;
        name.ok_or_else(|| self.refuse(printed))
    }

    fn node(&self, old: NodeId) -> Made<NodeId> {
        self.nodes[old.index()]
            .ok_or_else(|| self.refuse("the result of an operation that left it out"))
    }

    fn arg(&mut self, arg: Arg) -> Made<Arg> {
        let old = self.old;
        let mut all = |items| -> Made<Vec<Arg>> {
            old.args(items).iter().map(|item| self.arg(*item)).collect()
        };
        Ok(match arg {
            Arg::Node(node) => Arg::Node(self.node(node)?),
            Arg::List(items) => {
                let items = all(items)?;
                self.graph.list(&items)
            }
            Arg::Tuple(items) => {
                let items = all(items)?;
                self.graph.tuple(&items)
            }
            Arg::Dict(items) => {
                let items = all(items)?;
                let pairs: Vec<_> = items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
                self.graph.dict(&pairs)
            }
            Arg::Slice(items) => match all(items)?[..] {
                [start, stop, step] => self.graph.slice(start, stop, step),
                _ => unreachable!("a verified slice has three parts"),
            },
            Arg::Constant(constant) => Arg::Constant(self.constant(constant)),
            Arg::Object(id) => self.constant_object(id)?,
        })
    }

    fn constant(&mut self, constant: stator_graph::Constant) -> stator_graph::Constant {
        use stator_graph::Constant as C;
        let old = self.old;
        match constant {
            C::BigInt(text) => C::BigInt(self.graph.intern(old.text(text))),
            C::Str(text) => C::Str(self.graph.intern(old.text(text))),
            C::Bytes(text) => C::Bytes(self.graph.intern(old.text(text))),
            C::None | C::Ellipsis | C::Bool(_) | C::Int(_) | C::Float(_) | C::Complex(..) => {
                constant
            }
        }
    }

    /// An object as an argument: by its name, or what a tuple of numbers holds.
    fn constant_object(&mut self, id: ObjectId) -> Made<Arg> {
        let object = self.objects[id.index()].bind(self.tracing.py());
        if let Ok(tuple) = object.cast::<PyTuple>() {
            let sizes: Option<Vec<i64>> = tuple.iter().map(|item| item.extract().ok()).collect();
            if let Some(sizes) = sizes {
                let sizes: Vec<Arg> = sizes.into_iter().map(Arg::int).collect();
                return Ok(self.graph.tuple(&sizes));
            }
        }
        let text = self.name_of(id, self.old.object_text(id))?;
        Ok(Arg::Object(self.object(&text)))
    }

    /// The places on a stack, outermost first.
    fn walk(&self, stack: StackId) -> Vec<Place> {
        let places = Places { py: self.tracing.py(), codes: self.codes };
        let frames = self.old.stacks().walk(stack);
        let mut stack: Vec<Place> = frames
            .filter_map(|frame| places.place(frame.code, frame.instruction))
            .map(|(file, line, function)| Place { file, line, function })
            .collect();
        stack.reverse();
        stack
    }

    /// The place of the node that is being made.
    fn refuse(&self, what: &str) -> Failed {
        let stack = self.here.map(|here| self.walk(here)).unwrap_or_default();
        Failed::Break(Break { reason: Reason::NotInProgram, detail: what.to_string(), stack })
    }
}

const METHOD: &str = "torch.Tensor.";

/// Whether a node does nothing but make its value.
fn is_dispensable(graph: &Graph, node: &Node) -> bool {
    match node.kind {
        NodeKind::GetItem { .. } => true,
        NodeKind::Placeholder { .. } => false,
        NodeKind::Call { target, .. } => {
            matches!(node.value, Value::Integer | Value::Float)
                || matches!(target, Target::Method { name, .. } if graph.text(name) == "size")
        }
    }
}

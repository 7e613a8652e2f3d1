//! Graph to program: everything that can be decided once is decided here.
//!
//! * Methods whose class attribute was recorded are called through it, the object in front, if it
//!   is a plain method (a C method descriptor, a slot wrapper or a Python function); others are
//!   looked up by name at each run.
//! * Operators become functions of the C API.
//! * Arguments without nodes become constants. Containers that hold nodes are built by steps of
//!   their own; so are mutable containers handed to anything but a C callable, which might keep or
//!   change them.
//! * Registers are reused as soon as their value is dead.
//! * Calls that end in one operator of PyTorch's call that operator.
//! * Calls that only give an argument back are left out.
//! * A part of a cut graph is one step; what it gives is taken out of its result by one step each.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyFunction, PySlice, PyString, PyTuple};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_cpython::modules;
use stator_cpython::vectorcall::{BinaryFunction, UnaryFunction};
use stator_graph::{
    Arg, ArgList, Graph, KeywordList, LastUse, LastUses, NodeId, NodeKind, ObjectId, Operator,
    Target, Value,
};
use stator_operators::functional::Function;

use super::constant::to_object;
use super::cut::{Cut, Part};
use super::direct::{self, Argument, Named};
use super::program::{Action, Operand, Program, Run, Step};
use crate::raises::LABEL_END;

impl Program {
    /// Compiles a (verified) graph. `objects` is the tracer's table for it.
    ///
    /// # Errors
    /// If a constant can't be made.
    pub fn new(py: Python<'_>, graph: &Graph, objects: &[Py<PyAny>]) -> PyResult<Self> {
        Self::cut(py, graph, objects, &Cut { parts: Vec::new() })
    }

    /// As [`Program::new`], with one step for each of these parts.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn cut(py: Python<'_>, graph: &Graph, objects: &[Py<PyAny>], cut: &Cut) -> PyResult<Self> {
        let mut compiler = Compiler::new(py, graph, objects)?;
        let mut parts = (0..).zip(&cut.parts).peekable();
        let mut within = 0..0;
        for (id, node) in graph.nodes() {
            let index = id.index();
            if let Some((number, part)) = parts.next_if(|(_, part)| part.nodes.start == index) {
                compiler.part(number, part);
                within = part.nodes.clone();
            }
            if within.contains(&index) {
                continue;
            }
            match node.kind {
                NodeKind::Placeholder { .. } => {}
                NodeKind::GetItem { of, index } => compiler.element(id, of, index),
                NodeKind::Call { args, .. }
                    if graph.is_idle(id) && compiler.last_uses.get(id) == LastUse::Unused =>
                {
                    compiler.idle(id, args);
                }
                NodeKind::Call { target, args, keywords } => {
                    compiler.call(id, target, args, keywords)?;
                }
            }
        }
        compiler.outputs()?;
        Ok(compiler.program)
    }
}

/// Types of which it matters whether something is one.
struct CallableTypes<'py> {
    method_descriptor: Bound<'py, PyAny>,
    slot_wrapper: Bound<'py, PyAny>,
}

impl<'py> CallableTypes<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let types = modules::import(py, "types")?;
        Ok(Self {
            method_descriptor: types.getattr("MethodDescriptorType")?,
            slot_wrapper: types.getattr("WrapperDescriptorType")?,
        })
    }

    /// A class attribute that takes the instance as its first argument when called.
    fn is_plain_method(&self, object: &Bound<'py, PyAny>) -> bool {
        self.is_c_method(object) || object.is_exact_instance_of::<PyFunction>()
    }

    /// Something that runs C code of a library: it neither keeps nor changes a container of
    /// constants.
    fn is_c_callable(&self, object: &Bound<'py, PyAny>) -> bool {
        self.is_c_method(object) || object.is_exact_instance_of::<PyCFunction>()
    }

    fn is_c_method(&self, object: &Bound<'py, PyAny>) -> bool {
        let ty = object.get_type();
        ty.is(&self.method_descriptor) || ty.is(&self.slot_wrapper)
    }
}

struct Compiler<'g, 'py> {
    py: Python<'py>,
    graph: &'g Graph,
    objects: &'g [Py<PyAny>],
    types: CallableTypes<'py>,
    last_uses: LastUses,
    /// Where each node's value is while it is alive.
    places: Vec<Option<Operand>>,
    free_registers: Vec<u32>,
    /// The exits of decisions.
    exits: FxHashMap<NodeId, u32>,
    program: Program,
}

/// What may be a call of one operator.
enum Ending {
    /// One that indexes.
    Item,
    /// One by its name.
    Operator(Named),
    /// One behind a function of `torch.nn.functional`.
    Function(&'static Function),
}

/// The operands of one step, and the registers that die with it.
#[derive(Default)]
struct Reads {
    operands: SmallVec<[Operand; 8]>,
    dying: SmallVec<[u32; 8]>,
}

impl<'g, 'py> Compiler<'g, 'py> {
    fn new(py: Python<'py>, graph: &'g Graph, objects: &'g [Py<PyAny>]) -> PyResult<Self> {
        let mut places = vec![None; graph.len()];
        for (position, node) in graph.placeholders().iter().enumerate() {
            places[node.index()] = Some(Operand::Input(index(position)));
        }
        let program = Program {
            steps: Vec::with_capacity(graph.call_count()),
            operands: Vec::with_capacity(2 * graph.call_count()),
            frees: Vec::with_capacity(graph.call_count()),
            constants: Vec::new(),
            names: Vec::new(),
            keywords: Vec::new(),
            outputs: Vec::new(),
            direct: Vec::new(),
            input_count: graph.placeholders().len(),
            register_count: 0,
            sites: None,
        };
        Ok(Self {
            py,
            graph,
            objects,
            types: CallableTypes::new(py)?,
            last_uses: graph.last_uses(),
            places,
            free_registers: Vec::new(),
            exits: FxHashMap::default(),
            program,
        })
    }

    fn element(&mut self, id: NodeId, of: NodeId, index: u32) {
        let mut reads = Reads::default();
        self.read_node(of, Some(id), &mut reads);
        self.step_of_node(id, Action::Element { index }, &reads);
    }

    fn part(&mut self, number: u32, part: &Part) {
        let mut reads = Reads::default();
        for &input in &part.inputs {
            let is_last = matches!(
                self.last_uses.get(input),
                LastUse::Node(reader) if part.nodes.contains(&reader.index())
            );
            self.read_for(input, is_last, &mut reads);
        }
        self.free_registers.extend(&reads.dying);
        let made = (!part.outputs.is_empty()).then(|| self.new_register());
        let first = NodeId::new(part.nodes.start);
        self.step(first, Action::Part { part: number }, &reads.operands, &reads.dying, made);
        let Some(made) = made else { return };
        let last = part.outputs.len() - 1;
        for (index, &output) in part.outputs.iter().enumerate() {
            let frees = if index == last { &[made][..] } else { &[] };
            self.free_registers.extend(frees);
            let register = self.new_register();
            self.places[output.index()] = Some(Operand::Register(register));
            let element = Action::Element { index: self::index(index) };
            self.step(part.last(), element, &[Operand::Register(made)], frees, Some(register));
        }
    }

    fn call(
        &mut self,
        id: NodeId,
        target: Target,
        args: ArgList,
        keywords: KeywordList,
    ) -> PyResult<()> {
        let keywords = self.keywords(keywords)?;
        let (action, takes_shared) = match target {
            Target::Decide => (self.decision(id, args), true),
            Target::Catch => (Action::Catch { exit: self.exit(id) }, true),
            Target::Function { object, name } if self.graph.text(name) == LABEL_END => {
                (self.end_of_label(object)?, true)
            }
            target => self.action(target, keywords),
        };
        let mut reads = Reads::default();
        for &arg in self.graph.args(args) {
            self.read(arg, id, Some(id), takes_shared, &mut reads)?;
        }
        let action = self.direct(id, target, action, &reads.operands).unwrap_or(action);
        self.step_of_node(id, action, &reads);
        Ok(())
    }

    /// The call of an operator that an action ends in.
    fn direct(
        &mut self,
        id: NodeId,
        target: Target,
        action: Action,
        operands: &[Operand],
    ) -> Option<Action> {
        let (ending, keywords) = match (target, action) {
            (Target::Operator(Operator::GetItem), Action::Binary(_)) => (Ending::Item, None),
            // What is done to numbers alone.
            (Target::Operator(_), _)
                if matches!(
                    self.graph.node(id).value,
                    Value::Integer | Value::Float | Value::Text
                ) =>
            {
                return None;
            }
            (Target::Operator(operator), Action::Unary(_) | Action::Binary(_)) => {
                (Ending::Operator(Named::of_operator(operator.name())?), None)
            }
            (_, Action::Call { callable, keywords }) => {
                let callable = self.program.constants[callable as usize].bind(self.py);
                let ending = match direct::of_function(callable) {
                    // What it raises has the function's own frame.
                    Some(_) if self.is_caught(id) => return None,
                    Some(function) => Ending::Function(function),
                    None => Ending::Operator(Named::of_callable(callable)?),
                };
                (ending, keywords)
            }
            _ => return None,
        };
        let constant = |index: u32| self.program.constants[index as usize].bind(self.py).clone();
        let arguments: SmallVec<[Argument<'_>; 8]> = (0..)
            .zip(operands)
            .map(|(number, operand)| match operand {
                Operand::Constant(index) => Argument::Constant(constant(*index)),
                Operand::Input(_) | Operand::Register(_) => Argument::Operand(number),
            })
            .collect();
        let names = keywords.map(|index| self.program.keywords[index as usize].bind(self.py));
        let names: SmallVec<[_; 4]> = names.into_iter().flatten().collect();
        let names: Option<SmallVec<[&str; 4]>> =
            names.iter().map(|name| name.cast::<PyString>().ok()?.to_str().ok()).collect();
        let call = match ending {
            Ending::Item => direct::of_item(&arguments),
            Ending::Operator(named) => direct::of(&named, &arguments, &names?),
            Ending::Function(function) => direct::of_call(self.py, function, &arguments, &names?),
        }?;
        self.program.direct.push((call, action));
        Some(Action::Direct { call: index(self.program.direct.len() - 1) })
    }

    /// Whether the program is left where the node raises.
    fn is_caught(&self, id: NodeId) -> bool {
        let behind = id.index() + 1;
        behind < self.graph.len()
            && matches!(
                self.graph.node(NodeId::new(behind)).kind,
                NodeKind::Call { target: Target::Catch, .. }
            )
    }

    /// A call that does nothing is no step, unless a value dies with it.
    fn idle(&mut self, id: NodeId, args: ArgList) {
        let mut reads = Reads::default();
        for &arg in self.graph.args(args) {
            if let Arg::Node(read) = arg {
                self.read_node(read, Some(id), &mut reads);
            }
        }
        if !reads.dying.is_empty() {
            reads.operands.clear();
            self.step_of_node(id, Action::Nothing, &reads);
        }
    }

    fn outputs(&mut self) -> PyResult<()> {
        let last = NodeId::new(self.graph.len());
        let mut reads = Reads::default();
        for &output in self.graph.outputs() {
            self.read(output, last, None, false, &mut reads)?;
        }
        self.program.outputs = reads.operands.to_vec();
        Ok(())
    }

    /// What a call does, and whether containers of constants may be shared between runs.
    fn action(&mut self, target: Target, keywords: Option<u32>) -> (Action, bool) {
        match target {
            Target::Function { object, .. } => self.direct_call(object, keywords),
            Target::Method { name, object } => {
                let plain = object.filter(|object| {
                    self.types.is_plain_method(self.objects[object.index()].bind(self.py))
                });
                match plain {
                    Some(object) => self.direct_call(object, keywords),
                    None => (Action::Method { name: self.name(name), keywords }, false),
                }
            }
            Target::GetAttr { name } => (Action::GetAttr { name: self.name(name) }, true),
            Target::Operator(operator) => (operator_action(operator), true),
            Target::Decide | Target::Catch => unreachable!("it has a way out"),
        }
    }

    /// A decision, which leaves by an exit of its own or as an earlier one.
    fn decision(&mut self, id: NodeId, args: ArgList) -> Action {
        if let Some(earlier) = self.graph.earlier_decision(self.graph.args(args)) {
            return Action::DecideToo { exit: self.exits[&earlier] };
        }
        Action::Decide { exit: self.exit(id) }
    }

    /// The node's exit, which is the next one.
    fn exit(&mut self, id: NodeId) -> u32 {
        let exit = index(self.exits.len());
        self.exits.insert(id, exit);
        exit
    }

    fn direct_call(&mut self, object: ObjectId, keywords: Option<u32>) -> (Action, bool) {
        let callable = self.objects[object.index()].bind(self.py);
        let takes_shared = self.types.is_c_callable(callable);
        let callable = self.constant(callable.clone());
        (Action::Call { callable, keywords }, takes_shared)
    }

    /// PyTorch asks what ends a label for overrides where these are on: twice, and by exceptions of C++'s.
    fn end_of_label(&mut self, object: ObjectId) -> PyResult<Action> {
        let callable = self.constant(self.objects[object.index()].bind(self.py).clone());
        let off = modules::import(self.py, "torch")?
            .getattr("_C")?
            .getattr("DisableTorchFunctionSubclass")?;
        Ok(Action::CallPlain { callable, off: self.constant(off) })
    }

    fn keywords(&mut self, keywords: KeywordList) -> PyResult<Option<u32>> {
        if keywords.is_empty() {
            return Ok(None);
        }
        let names = self.graph.keywords(keywords).iter();
        let names = names.map(|&name| PyString::intern(self.py, self.graph.text(name)));
        let names = PyTuple::new(self.py, names.collect::<SmallVec<[_; 8]>>())?;
        self.program.keywords.push(names.unbind());
        Ok(Some(index(self.program.keywords.len() - 1)))
    }

    /// Adds what `reader` (the outputs, if `None`) reads. `node` is for the errors of the steps
    /// that build containers.
    fn read(
        &mut self,
        arg: Arg,
        node: NodeId,
        reader: Option<NodeId>,
        takes_shared: bool,
        reads: &mut Reads,
    ) -> PyResult<()> {
        if let Arg::Node(read) = arg {
            self.read_node(read, reader, reads);
            return Ok(());
        }
        if !self.must_build(arg, takes_shared) {
            let object = to_object(self.py, self.graph, self.objects, arg)?;
            let constant = self.constant(object);
            reads.operands.push(Operand::Constant(constant));
            return Ok(());
        }
        let (action, elements) = match arg {
            Arg::List(elements) => (Action::List, elements),
            Arg::Tuple(elements) => (Action::Tuple, elements),
            Arg::Dict(elements) => (Action::Dict, elements),
            Arg::Slice(elements) => {
                let callable = self.constant(self.py.get_type::<PySlice>().into_any());
                (Action::Call { callable, keywords: None }, elements)
            }
            Arg::Node(_) | Arg::Constant(_) | Arg::Object(_) => {
                unreachable!("only containers are built")
            }
        };
        // Nodes inside die with the whole read, not with the container's construction: the
        // container holds them anyway.
        let mut inner = Reads::default();
        for &element in self.graph.args(elements) {
            self.read(element, node, reader, takes_shared, &mut inner)?;
        }
        let register = self.new_register();
        self.step(node, action, &inner.operands, &[], Some(register));
        reads.operands.push(Operand::Register(register));
        reads.dying.extend(inner.dying);
        if reader.is_some() {
            reads.dying.push(register);
        }
        Ok(())
    }

    fn read_node(&mut self, read: NodeId, reader: Option<NodeId>, reads: &mut Reads) {
        let dies = reader.is_some_and(|reader| self.last_uses.get(read) == LastUse::Node(reader));
        self.read_for(read, dies, reads);
    }

    /// Reads a node's value, which is dead behind the step if it `dies`.
    fn read_for(&mut self, read: NodeId, dies: bool, reads: &mut Reads) {
        let place = self.places[read.index()].expect("a verified graph reads what was made");
        reads.operands.push(place);
        if let Operand::Register(register) = place
            && dies
            && !reads.dying.contains(&register)
        {
            reads.dying.push(register);
        }
    }

    /// Whether an argument must be made anew at each run.
    fn must_build(&self, arg: Arg, takes_shared: bool) -> bool {
        let is_mutable = matches!(arg, Arg::List(_) | Arg::Dict(_));
        let Some(elements) = arg.elements() else { return matches!(arg, Arg::Node(_)) };
        (is_mutable && !takes_shared)
            || self.graph.args(elements).iter().any(|&arg| self.must_build(arg, takes_shared))
    }

    fn step_of_node(&mut self, id: NodeId, action: Action, reads: &Reads) {
        let mut dying = reads.dying.clone();
        dying.sort_unstable();
        dying.dedup();
        // The result may take a register that this very step frees: it is stored afterwards.
        self.free_registers.extend(&dying);
        let is_used = self.last_uses.get(id) != LastUse::Unused;
        let result = is_used.then(|| self.new_register());
        self.places[id.index()] = result.map(Operand::Register);
        self.step(id, action, &reads.operands, &dying, result);
    }

    fn step(
        &mut self,
        node: NodeId,
        action: Action,
        operands: &[Operand],
        frees: &[u32],
        result: Option<u32>,
    ) {
        let operands = extend(&mut self.program.operands, operands);
        let frees = extend(&mut self.program.frees, frees);
        // What builds an output belongs to no node.
        let place = action.may_warn().then(|| self.graph.node(node).stack).flatten();
        self.program.steps.push(Step { action, operands, frees, result, node, place });
    }

    fn new_register(&mut self) -> u32 {
        self.free_registers.pop().unwrap_or_else(|| {
            self.program.register_count += 1;
            index(self.program.register_count - 1)
        })
    }

    fn constant(&mut self, object: Bound<'py, PyAny>) -> u32 {
        self.program.constants.push(object.unbind());
        index(self.program.constants.len() - 1)
    }

    fn name(&mut self, name: stator_graph::TextId) -> u32 {
        let name = PyString::intern(self.py, self.graph.text(name));
        self.program.names.push(name.unbind());
        index(self.program.names.len() - 1)
    }
}

fn operator_action(operator: Operator) -> Action {
    match operator {
        Operator::SetItem => Action::SetItem,
        Operator::DelItem => Action::DelItem,
        _ => BinaryFunction::by_name(operator.name())
            .map(Action::Binary)
            .or_else(|| UnaryFunction::by_name(operator.name()).map(Action::Unary))
            .expect("each operator is a function of the C API"),
    }
}

fn extend<T: Copy>(table: &mut Vec<T>, items: &[T]) -> Run {
    let start = index(table.len());
    table.extend_from_slice(items);
    Run { start, end: index(table.len()) }
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a program's tables fit into 32 bits")
}

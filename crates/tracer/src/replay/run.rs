//! Running a program.
//!
//! Inputs and constants are borrowed; results live in registers and are dropped right after their
//! last use, so a replay holds less than the function's own locals would. Small programs keep
//! their registers on the stack; arguments are gathered on the stack as well. What one operator of PyTorch's gives and
//! others take is never a Python object: whoever needs one has it made.
//!
//! Other threads get their turn in the operations themselves, as PyTorch releases the GIL around its
//! kernels. Signals are asked for before each step; whoever runs the program says what is done then.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;
use stator_cpython::aten::{Seen, Value};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Asking;
use stator_cpython::vectorcall;
use stator_faults::{self as faults, Fault, Stage};
use stator_graph::NodeId;

use super::program::{Action, Operand, Program, Step};
use crate::callers::Calling;

/// The values a run hands back, in the order of the graph's outputs.
pub type Outputs<'py> = SmallVec<[Object<'py>; 4]>;

/// A node raised.
#[derive(Debug)]
pub struct Failure {
    /// Which node. What earlier nodes wrote to their inputs has happened.
    pub node: NodeId,
    /// What it raised.
    pub error: PyErr,
    /// Whether it is an error of Stator's own.
    pub is_own: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph node {} raised {}", self.node, self.error)
    }
}

impl std::error::Error for Failure {}

/// What runs the parts of a cut graph.
pub trait Parts {
    /// Runs one on these inputs, in the order of the part's: a tuple or list of what it gives.
    ///
    /// # Errors
    /// Why it didn't.
    fn run<'py>(
        &self,
        py: Python<'py>,
        part: u32,
        inputs: &[Borrowed<'_, 'py>],
        care: Care,
    ) -> Result<Object<'py>, Unrun>;
}

/// What a run does for the code of the part that it stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// Whatever is due.
    All,
    /// A backend is asked for code that is compiled beside the program: that takes no time to speak of.
    Asking,
    /// Nothing more. The part runs with the code there is, or without.
    Nothing,
}

/// Why a part didn't run, or didn't end.
#[derive(Debug)]
pub enum Unrun {
    /// Its code is to be looked after: there is none for such inputs yet, or it was never used. Nothing was done.
    Missing,
    /// A node has raised.
    Node(Failure),
    /// A backend's code has raised.
    Code(PyErr),
    /// Stator has failed before anything was done.
    Own(PyErr),
}

type Registers<'py> = SmallVec<[Option<Value<'py>>; 32]>;

impl Program {
    /// Runs the program on the graph's placeholders, given in their order.
    ///
    /// # Errors
    /// The node that raised, and what. Nothing is undone.
    ///
    /// # Panics
    /// If the number of inputs is wrong.
    pub fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Outputs<'py>, Failure> {
        self.start().go_on(py, inputs).map_err(|early| match early {
            Early::Failed(failure) => failure,
            Early::Asked => unreachable!("nobody is to be asked"),
            Early::Left(..) => unreachable!("who runs a program with decisions goes on by itself"),
            Early::Missing(..) | Early::Code(..) => unreachable!("it has no parts"),
        })
    }

    /// A run that stands at the beginning.
    #[must_use]
    pub fn start<'py>(&self) -> Running<'_, 'py> {
        let mut registers = Registers::with_capacity(self.register_count);
        registers.resize_with(self.register_count, || None);
        let (fresh, pass, asking, answered) = (None, Pass::First, None, usize::MAX);
        Running {
            program: self,
            registers,
            at: 0,
            fresh,
            parts: None,
            attended: usize::MAX,
            has_taken_time: false,
            pass,
            asking,
            answered,
        }
    }
}

/// A run of a program. Where it ends early, it stands at the step that failed.
pub struct Running<'p, 'py> {
    program: &'p Program,
    registers: Registers<'py>,
    at: usize,
    /// What the step it stands at has given, if that was executed.
    fresh: Option<Value<'py>>,
    /// What runs the parts, if the program has any.
    parts: Option<&'p dyn Parts>,
    /// The step whose code was looked after last.
    attended: usize,
    /// Whether a part has taken the time that a run has for that: the others are only asked for.
    has_taken_time: bool,
    pass: Pass,
    asking: Option<Asking<'py>>,
    /// The step before which it was asked last.
    answered: usize,
}

/// Why a run doesn't go on.
enum Halt {
    /// A step has raised.
    Raised(PyErr),
    /// Stator has failed.
    Own(PyErr),
    /// Something asks it to.
    Asked,
    /// A decision fell out otherwise.
    Left(u32),
    /// A part didn't run.
    Part(Unrun),
}

impl From<PyErr> for Halt {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Own(fault.into())
    }
}

/// How a run ends early. It can go on, unless a node has raised, or it has left by an exit.
#[derive(Debug)]
pub enum Early<'py> {
    /// A decision fell out otherwise than in the trace: by this exit, with these values.
    Left(u32, Outputs<'py>),
    /// A node raised, or Stator failed.
    Failed(Failure),
    /// A signal waits, or an exception from another thread.
    Asked,
    /// The code of a part is to be looked after, which has these inputs.
    Missing(u32, Outputs<'py>),
    /// A backend's code for a part has raised, given these inputs.
    Code(u32, Outputs<'py>, PyErr),
}

/// How often Stator has failed in a replay that can't be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Not that often.
    First,
    /// The rest is done once more, and nothing but that: no copies, no tests' faults.
    Last,
}

impl Pass {
    /// As [`faults::at`]: the last pass doesn't fail for a test's sake.
    ///
    /// # Errors
    /// As the test asked.
    #[inline(always)]
    pub fn at(self, stage: Stage) -> Result<(), Fault> {
        if self == Self::First { faults::at(stage) } else { Ok(()) }
    }
}

impl<'p, 'py> Running<'p, 'py> {
    /// What runs the parts.
    pub fn set_parts(&mut self, parts: &'p dyn Parts) {
        self.parts = Some(parts);
    }

    /// What it does for the code of the part that it stands at.
    #[must_use]
    pub fn care(&self) -> Care {
        match self.has_taken_time {
            _ if self.attended == self.at => Care::Nothing,
            true => Care::Asking,
            false => Care::All,
        }
    }

    /// The code of the part that it stands at is looked after now. It runs behind that, with what there is.
    pub fn attend(&mut self) {
        self.attended = self.at;
    }

    /// That has taken the time that a run has for it.
    pub fn took_time(&mut self) {
        self.has_taken_time = true;
    }

    /// Runs the steps from the one it stands at.
    ///
    /// # Errors
    /// As [`Program::run`]. After an error of Stator's own it can go on.
    ///
    /// # Panics
    /// If the number of inputs is wrong.
    pub fn go_on(
        &mut self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Outputs<'py>, Early<'py>> {
        let program = self.program;
        assert_eq!(inputs.len(), program.input_count, "one input for each placeholder");
        let ended = match catch_unwind(AssertUnwindSafe(|| self.steps(py, inputs))) {
            Ok(ended) => ended,
            Err(payload) => Err(Halt::Own(Fault::of_panic(&*payload).error(py))),
        };
        ended.map_err(|halt| {
            let (error, is_own) = match halt {
                Halt::Raised(error) => (error, false),
                Halt::Own(error) | Halt::Part(Unrun::Own(error)) => (error, true),
                Halt::Part(Unrun::Node(failure)) => return Early::Failed(failure),
                Halt::Part(Unrun::Missing) => {
                    let (part, given) = self.part(py, inputs);
                    return Early::Missing(part, given);
                }
                Halt::Part(Unrun::Code(error)) => {
                    let (part, given) = self.part(py, inputs);
                    return Early::Code(part, given, error);
                }
                Halt::Asked => return Early::Asked,
                Halt::Left(exit) => match self.kept(py, inputs, &program.steps[self.at]) {
                    Ok(kept) => return Early::Left(exit, kept),
                    Err(error) => (error, false),
                },
            };
            let node = program.steps[self.at.min(program.steps.len() - 1)].node;
            Early::Failed(Failure { node, error, is_own })
        })
    }

    /// The exit by which the run can be left where it stands, before the node that it stands at or because that
    /// has raised; and the values that the exit needs.
    #[must_use]
    pub fn way_out(
        &self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Option<(u32, Outputs<'py>)> {
        let steps = self.program.steps.get(self.at..).filter(|_| self.fresh.is_none())?;
        let here = steps.first()?;
        let of_others =
            |step: &&Step| step.node != here.node && !matches!(step.action, Action::Element { .. });
        match (here.action, steps.iter().find(of_others)) {
            (Action::Decide { exit } | Action::DecideToo { exit }, _) => {
                Some((exit, self.kept(py, inputs, here).ok()?))
            }
            (_, Some(step)) => {
                let Action::Catch { exit } = step.action else { return None };
                Some((exit, self.kept(py, inputs, step).ok()?))
            }
            _ => None,
        }
    }

    /// The part that it stands at, and its inputs, which are objects since it was to run.
    fn part(&self, py: Python<'py>, inputs: &[Borrowed<'_, 'py>]) -> (u32, Outputs<'py>) {
        let program = self.program;
        let step = &program.steps[self.at];
        let Action::Part { part } = step.action else { unreachable!("it stands at a part") };
        let given = self.frame(py, inputs).gather(step.operands.of(&program.operands));
        (part, given.iter().map(|given| (*given).to_owned()).collect())
    }

    fn kept(
        &self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
        step: &Step,
    ) -> PyResult<Outputs<'py>> {
        self.frame(py, inputs).kept(step)
    }

    #[inline]
    fn frame<'a>(&'a self, py: Python<'py>, inputs: &'a [Borrowed<'a, 'py>]) -> Frame<'a, 'py> {
        Frame { program: self.program, py, inputs, registers: &self.registers }
    }

    /// The first node that hasn't run; `None`: all have.
    #[must_use]
    pub fn stands_before(&self) -> Option<NodeId> {
        let steps = &self.program.steps[self.at.min(self.program.steps.len())..];
        let here = steps.first()?.node;
        match self.fresh {
            None => Some(here),
            Some(_) => steps.iter().map(|step| step.node).find(|node| *node != here),
        }
    }

    /// Before each step it is asked whether a signal waits, if anything is given that can be asked.
    pub fn ask(&mut self, asking: Option<Asking<'py>>) {
        self.asking = asking;
    }

    /// From here on nothing is done but the steps.
    pub fn set_pass(&mut self, pass: Pass) {
        self.pass = pass;
    }

    #[inline]
    fn steps(
        &mut self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Outputs<'py>, Halt> {
        let program = self.program;
        let mut calling = program.sites.as_ref().map(|sites| Calling::new(py, sites));
        while let Some(step) = program.steps.get(self.at) {
            // No step is executed twice: what it has given stays until it's where it belongs.
            if self.fresh.is_none() {
                // What takes a result apart belongs to the step before it.
                let is_within = matches!(step.action, Action::Element { .. });
                let asks = || self.asking.is_some_and(|asking| asking.is_asked());
                if !is_within && self.answered != self.at && asks() {
                    self.answered = self.at;
                    return Err(Halt::Asked);
                }
                self.pass.at(Stage::Operation)?;
                let made = match (step.place, &mut calling) {
                    (Some(place), Some(calling)) => {
                        calling.call(place, || self.execute(py, inputs, step))
                    }
                    _ => self.execute(py, inputs, step),
                };
                self.fresh = Some(made?);
                self.pass.at(Stage::Kept)?;
            }
            for &register in step.frees.of(&program.frees) {
                self.registers[register as usize] = None;
            }
            if let Some(register) = step.result {
                let place = &mut self.registers[register as usize];
                *place = self.fresh.take();
            }
            self.at += 1;
            self.fresh = None;
        }
        self.make_objects(py, &program.outputs)?;
        let frame = self.frame(py, inputs);
        Ok(program.outputs.iter().map(|&output| frame.read(output).to_owned()).collect())
    }

    /// What a step gives.
    #[inline]
    fn execute(
        &mut self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
        step: &Step,
    ) -> Result<Value<'py>, Halt> {
        let program = self.program;
        let operands = step.operands.of(&program.operands);
        let action = match step.action {
            Action::Direct { call } => {
                let (call, otherwise) = &program.direct[call as usize];
                let frame = self.frame(py, inputs);
                let seen: SmallVec<[Seen<'_, 'py>; 16]> =
                    operands.iter().map(|&operand| frame.see(operand)).collect();
                if let Some(made) = call.run(py, &seen) {
                    return Ok(made?);
                }
                *otherwise
            }
            action => action,
        };
        let read = match action {
            Action::Nothing | Action::Catch { .. } => &[],
            // What is for the exit alone is left as it is.
            Action::Decide { .. } | Action::DecideToo { .. } if step.result.is_none() => {
                &operands[..2]
            }
            _ => operands,
        };
        self.make_objects(py, read)?;
        let frame = self.frame(py, inputs);
        let made = match action {
            Action::Part { part } => {
                let parts = self.parts.expect("a cut program is given what runs its parts");
                let given = frame.gather(operands);
                parts.run(py, part, &given, self.care()).map_err(Halt::Part)?
            }
            action => frame.act(step, action)?,
        };
        Ok(Value::Object(made))
    }

    /// Makes objects for what has none yet.
    #[inline]
    fn make_objects(&mut self, py: Python<'py>, operands: &[Operand]) -> PyResult<()> {
        for operand in operands {
            if let Operand::Register(register) = operand
                && let Some(value) = &mut self.registers[*register as usize]
            {
                value.object(py)?;
            }
        }
        Ok(())
    }
}

/// Of a run that ended early, what its steps have made is dropped latest first: handles of modes within
/// each other put back what was on before them.
impl Drop for Running<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if self.at == self.program.steps.len() {
            return;
        }
        for step in self.program.steps[..self.at].iter().rev() {
            if let Some(register) = step.result {
                self.registers[register as usize] = None;
            }
        }
    }
}

/// What a step sees.
struct Frame<'a, 'py> {
    program: &'a Program,
    py: Python<'py>,
    inputs: &'a [Borrowed<'a, 'py>],
    registers: &'a [Option<Value<'py>>],
}

impl<'a, 'py> Frame<'a, 'py> {
    #[inline]
    fn see(&self, operand: Operand) -> Seen<'a, 'py> {
        Seen::Object(match operand {
            Operand::Input(input) => self.inputs[input as usize],
            Operand::Constant(constant) => {
                self.program.constants[constant as usize].bind_borrowed(self.py)
            }
            Operand::Register(register) => {
                let value = self.registers[register as usize].as_ref();
                return value.expect("a register is written before it is read").seen();
            }
        })
    }

    /// What is an object by now.
    #[inline]
    fn read(&self, operand: Operand) -> Borrowed<'a, 'py> {
        match self.see(operand) {
            Seen::Object(object) => object,
            Seen::Tensor(_) => unreachable!("its object was made before the step"),
        }
    }

    #[inline]
    fn act(&self, step: &Step, action: Action) -> Result<Object<'py>, Halt> {
        let operands = step.operands.of(&self.program.operands);
        let made = match action {
            Action::Call { callable, keywords } => {
                let callable = self.program.constants[callable as usize].bind_borrowed(self.py);
                vectorcall::call(callable, &self.gather(operands), self.keywords(keywords))
            }
            Action::Binary(function) => {
                function.call(self.read(operands[0]), self.read(operands[1]))
            }
            Action::Method { name, keywords } => {
                let name = self.program.names[name as usize].bind(self.py);
                vectorcall::call_method(name, &self.gather(operands), self.keywords(keywords))
            }
            Action::Unary(function) => function.call(self.read(operands[0])),
            Action::GetAttr { name } => {
                self.read(operands[0]).getattr(self.program.names[name as usize].bind(self.py))
            }
            Action::Element { index } => element(self.read(operands[0]), index as usize),
            Action::SetItem => self
                .read(operands[0])
                .set_item(self.read(operands[1]), self.read(operands[2]))
                .map(|()| self.none()),
            Action::DelItem => {
                self.read(operands[0]).del_item(self.read(operands[1])).map(|()| self.none())
            }
            Action::List => Ok(PyList::new(self.py, self.gather(operands))?.into_any()),
            Action::Tuple => Ok(PyTuple::new(self.py, self.gather(operands))?.into_any()),
            Action::Dict => self.dict(operands),
            Action::Decide { exit } | Action::DecideToo { exit } => {
                if !self.read(operands[0]).is(self.read(operands[1])) {
                    return Err(Halt::Left(exit));
                }
                match step.result {
                    Some(_) => Ok(PyTuple::new(self.py, self.gather(&operands[2..]))?.into_any()),
                    None => Ok(self.none()),
                }
            }
            Action::CallPlain { callable, off } => self.call_plain(callable, off, operands),
            Action::Nothing | Action::Catch { .. } => Ok(self.none()),
            Action::Part { .. } | Action::Direct { .. } => unreachable!("others run it"),
        };
        Ok(made?)
    }

    fn call_plain(&self, callable: u32, off: u32, operands: &[Operand]) -> PyResult<Object<'py>> {
        let constant = |index: u32| self.program.constants[index as usize].bind_borrowed(self.py);
        let off = constant(off).call0()?;
        off.call_method0(intern!(self.py, "__enter__"))?;
        let result = vectorcall::call(constant(callable), &self.gather(operands), None);
        let none = self.py.None();
        off.call_method1(intern!(self.py, "__exit__"), (&none, &none, &none))?;
        result
    }

    /// What a step keeps alive for its exit: its operands, behind the answer where it's a decision.
    fn kept(&self, step: &Step) -> PyResult<Outputs<'py>> {
        let operands = step.operands.of(&self.program.operands);
        match (step.action, operands) {
            (Action::DecideToo { .. }, [_, _, earlier]) => {
                match self.see(*earlier).to_object(self.py)?.cast::<PyTuple>() {
                    Ok(kept) => Ok(kept.iter().collect()),
                    Err(_) => unreachable!("a decision that others read gives a tuple"),
                }
            }
            (Action::Decide { .. }, [_, _, kept @ ..]) | (_, kept) => {
                kept.iter().map(|&operand| self.see(operand).to_object(self.py)).collect()
            }
        }
    }

    #[inline]
    fn gather(&self, operands: &[Operand]) -> SmallVec<[Borrowed<'a, 'py>; 16]> {
        operands.iter().map(|&operand| self.read(operand)).collect()
    }

    #[inline]
    fn keywords(&self, keywords: Option<u32>) -> Option<&'a Bound<'py, PyTuple>> {
        keywords.map(|keywords| self.program.keywords[keywords as usize].bind(self.py))
    }

    fn dict(&self, operands: &[Operand]) -> PyResult<Object<'py>> {
        let dict = PyDict::new(self.py);
        for pair in operands.chunks_exact(2) {
            dict.set_item(self.read(pair[0]), self.read(pair[1]))?;
        }
        Ok(dict.into_any())
    }

    fn none(&self) -> Object<'py> {
        self.py.None().into_bound(self.py)
    }
}

/// An element of a structured result: a tuple, a named tuple, a list.
fn element<'py>(structure: Borrowed<'_, 'py>, index: usize) -> PyResult<Object<'py>> {
    match structure.cast::<PyTuple>() {
        Ok(tuple) => tuple.get_item(index),
        Err(_) => structure.get_item(index),
    }
}

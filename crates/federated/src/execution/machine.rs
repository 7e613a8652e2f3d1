//! Frames, and how the machine goes from one to the next.

use std::ops::Range;
use std::sync::Arc;

use super::code::{Act, Code, Slot};
use super::leaves::leafwise;
use super::perform::Then;
use super::{Function, Interpreter, Items, Kernels, Value};
use crate::ast::BlockKind;
use crate::error::{Class, Error};

/// What happens next.
pub(super) enum Flow<L> {
    /// A function is called.
    Call(Function<L>, Option<Value<L>>),
    /// The innermost frame gets the value that it waits for.
    Return(Value<L>),
}

/// Something that waits for the value of a call.
pub(super) enum Frame<L> {
    /// A function at one of its steps.
    Steps(Steps<L>),
    /// A function is called with one argument after the other.
    Each { function: Function<L>, calls: Calls<L>, done: Vec<Value<L>>, then: Then<L> },
    /// A function is called with what it gave for the elements so far and the next element.
    Fold { function: Function<L>, elements: Items<L>, at: usize, then: Then<L> },
    /// The value is made into a federated or other one.
    Then(Then<L>),
}

/// The calls of a function that is called several times.
pub(super) enum Calls<L> {
    /// With each of these.
    With(Items<L>),
    /// So many times without an argument.
    Without(usize),
}

impl<L: Clone> Calls<L> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::With(arguments) => arguments.len(),
            Self::Without(count) => *count,
        }
    }

    /// Some of the calls.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        match self {
            Self::With(arguments) => Self::With(Items::new(arguments[range].to_vec())),
            Self::Without(_) => Self::Without(range.len()),
        }
    }

    /// The argument of a call, if there is such a call.
    pub(super) fn get(&self, at: usize) -> Option<Option<Value<L>>> {
        match self {
            Self::With(arguments) => arguments.get(at).cloned().map(Some),
            Self::Without(count) => (at < *count).then_some(None),
        }
    }
}

/// A function that is running.
pub(super) struct Steps<L> {
    code: Arc<Code>,
    /// The step that runs or waits.
    at: usize,
    slots: Vec<Option<Value<L>>>,
}

impl<L> Steps<L> {
    fn read(&self, slot: Slot) -> &Value<L> {
        self.slots[slot as usize].as_ref().expect("a slot is written before it is read")
    }
}

impl<L: Clone> Steps<L> {
    /// The value that this step is the last to read, or a copy: what nobody reads any more isn't held while something
    /// is called with it.
    fn pass(&mut self, slot: Slot) -> Value<L> {
        if self.code.steps[self.at].last_read.contains(&slot) {
            return self.slots[slot as usize].take().expect("a slot is written before it is read");
        }
        self.read(slot).clone()
    }

    /// Ends the step with its value.
    fn finish(&mut self, value: Value<L>) {
        let step = &self.code.steps[self.at];
        self.slots[step.out as usize] = Some(value);
        for &slot in &step.last_read {
            self.slots[slot as usize] = None;
        }
        self.at += 1;
    }
}

impl<K: Kernels> Interpreter<K> {
    pub(super) fn run(
        &self,
        function: Function<K::Leaf>,
        argument: Option<Value<K::Leaf>>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        self.finish(Vec::new(), Flow::Call(function, argument))
    }

    /// Goes on until all frames have their values.
    pub(super) fn finish(
        &self,
        mut frames: Vec<Frame<K::Leaf>>,
        flow: Flow<K::Leaf>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        let mut flow = Ok(flow);
        loop {
            self.go_on_or_err()?;
            flow = match flow {
                Ok(Flow::Call(function, argument)) => self.enter(&mut frames, function, argument),
                Ok(Flow::Return(value)) => match frames.pop() {
                    Some(frame) => self.resume(&mut frames, frame, value),
                    None => return Ok(value),
                },
                Err(error) => return Err(self.say_client(&frames, error)),
            }
        }
    }

    /// The error with the client whose work failed, if it was that of one.
    fn say_client(&self, frames: &[Frame<K::Leaf>], error: K::Error) -> K::Error {
        if self.at_client {
            return error;
        }
        let client = frames.iter().find_map(|frame| match frame {
            Frame::Each { done, then: Then::Clients, .. } => Some(done.len()),
            Frame::Fold { at, then: Then::Report(_), .. } => Some(*at),
            _ => None,
        });
        match client {
            Some(client) => self.kernels.at_client(error, self.first + client),
            None => error,
        }
    }

    fn enter(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        function: Function<K::Leaf>,
        argument: Option<Value<K::Leaf>>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        match function {
            Function::Compiled(compiled, ty) => {
                if self.puts_off() && !self.kernels.is_pure(&compiled, &ty) {
                    self.settle_effects()?;
                }
                let argument = match argument {
                    Some(argument) if !self.at_client => Some(self.here(argument)?),
                    argument => argument,
                };
                Ok(Flow::Return(self.kernels.compiled(&compiled, &ty, argument)?))
            }
            Function::Operation(operation, ty) => {
                let Some(argument) = argument else {
                    let uri = operation.uri();
                    return Err(Error::new(Class::Type, format!("`{uri}` needs an argument"))
                        .found("no argument")
                        .into());
                };
                self.perform(frames, operation, &ty, argument)
            }
            Function::Closure { code, captured } => {
                let mut slots = vec![None; code.slots as usize];
                for (&slot, value) in code.captures.iter().zip(captured.iter()) {
                    slots[slot as usize] = Some(value.clone());
                }
                if let Some(slot) = code.parameter {
                    slots[slot as usize] = argument;
                }
                self.go_on(frames, Steps { code, at: 0, slots })
            }
        }
    }

    /// Takes steps up to the next call or the end.
    fn go_on(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        mut running: Steps<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        loop {
            let code = Arc::clone(&running.code);
            let Some(step) = code.steps.get(running.at) else {
                let result = running.slots[code.result as usize].take();
                return Ok(Flow::Return(result.expect("the result was written")));
            };
            let value = match &step.act {
                Act::Call(function, argument) => {
                    let Value::Function(function) = running.read(*function).clone() else {
                        return Err(not_this("a function", running.read(*function)).into());
                    };
                    let argument = argument.map(|slot| running.pass(slot));
                    frames.push(Frame::Steps(running));
                    return Ok(Flow::Call(function, argument));
                }
                Act::Constant(block) => match block.kind() {
                    BlockKind::Literal(array) => {
                        Value::Leaf(self.kernels.literal(array, block.ty())?)
                    }
                    BlockKind::Data(data) => self.kernels.data(data, block.ty())?,
                    _ => unreachable!("no other block is a constant"),
                },
                Act::Placement(placement) => Value::Placement(*placement),
                Act::Zero(ty) => leafwise(ty, [], |ty, []| self.kernels.zero(ty))?,
                Act::Operation(operation, ty) => {
                    Value::Function(Function::Operation(*operation, ty.clone()))
                }
                Act::Compiled(compiled, ty) => {
                    Value::Function(Function::Compiled(compiled.clone(), ty.clone()))
                }
                Act::Select(source, index) => {
                    let source = running.read(*source);
                    let Value::Struct(fields) = source else {
                        return Err(not_this("a struct", source).into());
                    };
                    fields[*index as usize].clone()
                }
                Act::Struct(row) => {
                    Value::structure(row.iter().map(|&slot| running.read(slot).clone()).collect())
                }
                Act::Closure(code, row) => {
                    let captured = row.iter().map(|&slot| running.read(slot).clone()).collect();
                    let code = Arc::clone(code);
                    Value::Function(Function::Closure { code, captured: Items::new(captured) })
                }
            };
            running.finish(value);
        }
    }

    fn resume(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        frame: Frame<K::Leaf>,
        value: Value<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        match frame {
            Frame::Steps(mut running) => {
                running.finish(value);
                self.go_on(frames, running)
            }
            Frame::Each { function, calls, mut done, then } => {
                done.push(value);
                self.each(frames, function, calls, done, then)
            }
            Frame::Fold { function, elements, at, then } => {
                self.fold(frames, function, value, elements, at + 1, then)
            }
            Frame::Then(then) => self.then(frames, then, value),
        }
    }

    /// Calls the function with the arguments that are left.
    pub(super) fn each(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        function: Function<K::Leaf>,
        calls: Calls<K::Leaf>,
        done: Vec<Value<K::Leaf>>,
        then: Then<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        let Some(argument) = calls.get(done.len()) else {
            return self.then(frames, then, Value::sequence(done));
        };
        let call = Flow::Call(function.clone(), argument);
        frames.push(Frame::Each { function, calls, done, then });
        Ok(call)
    }

    /// Calls the function with what it gave so far and the elements from `at` on.
    pub(super) fn fold(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        function: Function<K::Leaf>,
        so_far: Value<K::Leaf>,
        elements: Items<K::Leaf>,
        at: usize,
        then: Then<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        let Some(element) = elements.get(at).cloned() else {
            return self.then(frames, then, so_far);
        };
        let call = Flow::Call(function.clone(), Some(Value::structure(vec![so_far, element])));
        frames.push(Frame::Fold { function, elements, at, then });
        Ok(call)
    }
}

/// What a function that only selects and makes structs gives for each of some arguments: no frames are needed for that.
pub(super) fn rearranged<L: Clone>(
    code: &Code,
    arguments: &[Value<L>],
) -> Result<Vec<Value<L>>, Error> {
    let mut slots: Vec<Option<Value<L>>> = vec![None; code.slots as usize];
    let made = arguments.iter().map(|argument| {
        if let Some(slot) = code.parameter {
            slots[slot as usize] = Some(argument.clone());
        }
        for step in &code.steps {
            let read = |slot: u32| slots[slot as usize].as_ref().expect("a slot is written first");
            let value = match &step.act {
                Act::Select(source, index) => match read(*source) {
                    Value::Struct(fields) => fields[*index as usize].clone(),
                    other => return Err(not_this("a struct", other)),
                },
                Act::Struct(row) => {
                    Value::structure(row.iter().map(|&slot| read(slot).clone()).collect())
                }
                _ => unreachable!("it only rearranges"),
            };
            slots[step.out as usize] = Some(value);
        }
        Ok(slots[code.result as usize].clone().expect("the result was written"))
    });
    made.collect()
}

/// A value is of another kind than its type says. Kernels and callers check what they bring in.
pub(super) fn not_this<L>(expected: &str, found: &Value<L>) -> Error {
    Error::new(Class::Type, "a value isn't of its type").expected(expected).found(found.describe())
}

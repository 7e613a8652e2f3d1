//! What an instruction does with the result of a Python function that it has called: a property's
//! getter, `__init__`, `__add__`, ...
//!
//! While such a function runs, its caller's frame waits in the middle of the instruction. A frame
//! that is made again behind a graph break waits in the same way: when the function returns,
//! [`Evaluation::finish`] does the rest of the instruction.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use stator_bytecode::{Meaning, Truth};
use stator_cpython::frame::Running;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, Asked, BinaryOp, CompareOp};
use stator_cpython::{Raised, Result, generic};

use super::builtins::End;
use super::{Done, Evaluation, Sites, Stop};

/// What the function is to the instruction that calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What is called.
    Callee,
    /// `__init__`; the instance waits beside the operands.
    Init,
    /// `__new__`; the operands wait.
    New,
    /// `__enter__`; the bound `__exit__` waits beside the operands.
    Enter,
    /// It gives an attribute. If it raises `AttributeError`, `__getattr__` is asked `next`.
    Getter {
        /// Whether there is a `__getattr__`.
        next: bool,
    },
    /// `__setattr__`, `__delattr__`, a property's setter.
    Setter,
    /// `__getitem__`.
    Item,
    /// `__setitem__`, `__delitem__`.
    SetItem,
    /// The method of an operator; `NotImplemented` makes CPython ask others.
    Operator(Asked),
    /// `__contains__`.
    Contains,
    /// `__iter__`.
    Iter,
    /// `__next__`.
    Next,
    /// `__bool__`.
    Bool,
    /// `__len__`, for the truth value.
    Length,
    /// What a builtin function calls, or a placeholder of an f-string.
    Builtin(End),
}

/// How the instruction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// The result is pushed.
    Push,
    /// The result is `None`; the instance lies on the stack.
    Init,
    /// What `__new__` made, which `__init__` is yet to be called on.
    New {
        /// How many arguments the class is called with.
        count: u32,
        /// The constant that names the last ones.
        names: Option<u32>,
    },
    /// The same, of a call whose last arguments are named by the tuple on top.
    NewNamed {
        /// How many arguments the class is called with.
        count: u32,
    },
    /// The same, of a call with unpacked arguments.
    NewUnpacked {
        /// Whether some are named.
        has_kwargs: bool,
    },
    /// The result takes the place of so many operands.
    Replace(u8),
    /// So many operands go, and the result.
    Drop(u8),
    /// The result is an attribute, or `AttributeError` isn't the last word.
    Attribute {
        /// Index of the attribute's name.
        name: u32,
        /// Whether `CALL` comes next.
        is_method: bool,
        /// Whether there is a `__getattr__`.
        next: bool,
    },
    /// A binary operator's.
    Binary(BinaryOp, Asked),
    /// A comparison's.
    Compare(CompareOp, Asked),
    /// The truth of a comparison's.
    CompareTruth(CompareOp, Asked),
    /// `in`, or `not in`.
    Contains {
        /// `not in`.
        inverted: bool,
    },
    /// An iterator.
    Iterator,
    /// The next item; behind the last one, a jump.
    Next(u32),
    /// `__bool__`'s.
    Bool(Truth),
    /// `__len__`'s.
    Length(Truth),
    /// What a builtin function makes of it, whose operands wait on the stack.
    Builtin {
        /// What that is.
        end: End,
        /// How many arguments the function has.
        count: u32,
        /// Whether the names of the last ones lie above them.
        named: bool,
    },
    /// What a placeholder of an f-string makes of it, whose operands wait on the stack.
    Format {
        /// What that is.
        end: End,
        /// `FORMAT_VALUE`'s argument.
        arg: u32,
    },
    /// The text that a placeholder's conversion makes of it.
    Convert(End),
}

impl Link {
    /// How an instruction ends whose function has this role, and how many of its operands it is done
    /// with when it calls; `None`: it has no such function.
    #[must_use]
    pub fn of(meaning: Meaning, role: Role) -> Option<(Self, usize)> {
        let operands = match meaning {
            // Callable and a `NULL`, or function and receiver.
            _ if matches!(role, Role::Builtin(_) | Role::New) => 0,
            Meaning::Call { count } => count as usize + 2,
            Meaning::CallNamed { count } => count as usize + 3,
            Meaning::CallUnpacked { has_kwargs } => 3 + usize::from(has_kwargs),
            Meaning::Enter => 1,
            _ => 0,
        };
        let link = match (meaning, role) {
            (
                Meaning::Call { .. }
                | Meaning::CallNamed { .. }
                | Meaning::CallUnpacked { .. }
                | Meaning::Exit,
                Role::Callee,
            )
            | (Meaning::Enter, Role::Enter) => Link::Push,
            (
                Meaning::Call { .. } | Meaning::CallNamed { .. } | Meaning::CallUnpacked { .. },
                Role::Init,
            ) => Link::Init,
            (Meaning::Call { count }, Role::New) => Link::New { count, names: None },
            (Meaning::CallNamed { count }, Role::New) => Link::NewNamed { count },
            (Meaning::CallUnpacked { has_kwargs }, Role::New) => Link::NewUnpacked { has_kwargs },
            (Meaning::Attribute { name, is_method }, Role::Getter { next }) => {
                Link::Attribute { name, is_method, next }
            }
            (Meaning::SetAttribute, Role::Setter) => Link::Drop(2),
            (Meaning::DeleteAttribute, Role::Setter) => Link::Drop(1),
            (Meaning::Item, Role::Item) => Link::Replace(2),
            (Meaning::ItemSlice, Role::Item) => Link::Replace(3),
            (Meaning::SetItem, Role::SetItem) => Link::Drop(3),
            (Meaning::SetItemSlice, Role::SetItem) => Link::Drop(4),
            (Meaning::DeleteItem, Role::SetItem) => Link::Drop(2),
            (Meaning::Binary(operator), Role::Operator(asked)) => {
                Link::Binary(BinaryOp::from_arg(operator)?, asked)
            }
            (Meaning::Compare { operator, tests }, Role::Operator(asked)) => {
                let operator = CompareOp::from_arg(operator)?;
                match tests {
                    false => Link::Compare(operator, asked),
                    true => Link::CompareTruth(operator, asked),
                }
            }
            (Meaning::Unary, Role::Operator(Asked::Only)) => Link::Replace(1),
            (Meaning::Contains { inverted }, Role::Contains) => Link::Contains { inverted },
            (Meaning::Iterate, Role::Iter) => Link::Iterator,
            (Meaning::Next { units }, Role::Next) => Link::Next(units),
            (Meaning::Call { count }, Role::Builtin(end)) => {
                Link::Builtin { end, count, named: false }
            }
            (Meaning::CallNamed { count }, Role::Builtin(end)) => {
                Link::Builtin { end, count, named: true }
            }
            (Meaning::Format(arg), Role::Builtin(end)) => Link::Format { end, arg },
            (Meaning::Convert(_), Role::Builtin(end)) => Link::Convert(end),
            (Meaning::Test(truth), Role::Bool) => Link::Bool(truth),
            (Meaning::Test(truth), Role::Length) => Link::Length(truth),
            _ => return None,
        };
        Some((link, operands))
    }
}

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    /// Ends the instruction that has waited for `result`.
    pub(super) fn finish(&mut self, link: Link, result: Result<Object<'py>>) -> Done {
        match link {
            Link::Push => self.run.push(result?),
            Link::Init => {
                let result = result?;
                if !result.is_none() {
                    return Err(generic::raise_init_result(result.as_borrowed()).into());
                }
            }
            Link::New { count, names } => {
                let count = count as usize;
                let code = self.code();
                let names = names.map(|names| code.const_at(names as usize));
                let args = self.run.peek_many(count);
                let class = called_class(self.run.peek(Running::callable_below(count)));
                let made = result.and_then(|made| {
                    self.sites.initialize(&self.frame, class.as_borrowed(), made, args, names)
                });
                self.run.finish_call(count + 2, made)?;
            }
            Link::NewNamed { count } => {
                let count = count as usize;
                let (names, args) = (self.run.peek(1), &self.run.peek_many(count + 1)[..count]);
                let class = called_class(self.run.peek(Running::callable_below(count + 1)));
                let made = result.and_then(|made| {
                    self.sites.initialize(&self.frame, class.as_borrowed(), made, args, Some(names))
                });
                self.run.finish_call(count + 3, made)?;
            }
            Link::NewUnpacked { has_kwargs } => {
                let at = 1 + usize::from(has_kwargs);
                let kwargs = has_kwargs.then(|| self.run.peek(1));
                let class = self.run.peek(Running::callable_below(at));
                let args = self.run.peek(at);
                let made =
                    result.and_then(|made| self.initialize_unpacked(class, made, args, kwargs));
                self.run.finish_call(at + 2, made)?;
            }
            Link::Replace(1) => self.run.finish_one(result)?,
            Link::Replace(2) => self.run.finish_two(result)?,
            Link::Replace(count) => {
                self.run.drop_many(usize::from(count));
                self.run.push(result?);
            }
            Link::Drop(count) => {
                self.run.drop_many(usize::from(count));
                result?;
            }
            Link::Attribute { name, is_method, next } => {
                let result = if next { self.or_getattr(name, result) } else { result };
                let result = result.map_err(|raised| {
                    ops::lacks(self.run.peek(1), self.code().name_at(name as usize), raised)
                });
                if is_method {
                    self.run.replace_by_callable(result?);
                } else {
                    let value = result?;
                    drop(self.run.replace(1, value));
                }
            }
            Link::Binary(operator, asked) => {
                let result = self.or_others(result, asked, |run| {
                    ops::binary_rest(operator, asked, run.peek(2), run.peek(1))
                });
                self.run.finish_two(result)?;
            }
            Link::Compare(operator, asked) => {
                let result = self.compared(operator, asked, result);
                self.run.finish_two(result)?;
            }
            Link::CompareTruth(operator, asked) => {
                let truth = self.compared(operator, asked, result).and_then(|result| {
                    self.truth_of(&result, "the truth value of what a comparison gives")
                });
                let result = truth.map(|truth| self.bool_object(truth));
                self.run.finish_two(result)?;
            }
            Link::Contains { inverted } => {
                let found = result.and_then(|result| {
                    self.truth_of(&result, "the truth value of what __contains__ gives")
                });
                let result = found.map(|found| self.bool_object(found ^ inverted));
                self.run.finish_two(result)?;
            }
            Link::Iterator => {
                let result = result.and_then(ops::checked_iterator);
                self.run.finish_one(result)?;
            }
            Link::Next(units) => match result {
                Ok(item) => self.run.push(item),
                Err(raised) => {
                    if !ops::is_exhausted(self.py()) {
                        return Err(raised.into());
                    }
                    drop(self.run.pop());
                    self.run.jump_forward(units);
                }
            },
            Link::Bool(truth) => {
                let value = result.and_then(|result| ops::checked_bool(result.as_borrowed()));
                return self.take_truth(truth, value);
            }
            Link::Length(truth) => {
                let value = result.and_then(|result| ops::checked_length(result.as_borrowed()));
                return self.take_truth(truth, value.map(|length| length > 0));
            }
            Link::Builtin { end, count, named } => {
                let (count, above) = (count as usize, usize::from(named));
                let interrupts = |what| self.sites.interrupts(&self.frame, what);
                let args = &self.run.peek_many(count + above)[..count];
                let result = end.finish(args, result, interrupts);
                self.run.finish_call(count + above + 2, result)?;
            }
            Link::Format { end, arg } => self.finish_format(end, arg, result)?,
            Link::Convert(end) => {
                let interrupts = |what| self.sites.interrupts(&self.frame, what);
                let text = end.finish(&[self.run.peek(1)], result, interrupts);
                self.run.finish_one(text)?;
            }
        }
        Ok(())
    }

    /// The rest of a class's call with unpacked arguments.
    fn initialize_unpacked(
        &self,
        class: Borrowed<'_, 'py>,
        made: Object<'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        let (py, class) = (self.py(), called_class(class));
        let raise = |error: PyErr| Raised::set(py, error);
        let positional = args.cast::<PyTuple>().map_err(|error| raise(error.into()))?;
        let kwargs = kwargs.and_then(|kwargs| kwargs.cast::<PyDict>().ok());
        let named: Vec<_> = kwargs.iter().flat_map(|kwargs| kwargs.iter()).collect();
        let positional: Vec<_> = positional.iter().collect();
        let values = positional.iter().chain(named.iter().map(|(_, value)| value));
        let all: Vec<Borrowed<'_, 'py>> = values.map(Bound::as_borrowed).collect();
        let names = PyTuple::new(py, named.iter().map(|(name, _)| name)).map_err(raise)?;
        let names = (!named.is_empty()).then(|| names.as_any().as_borrowed());
        self.sites.initialize(&self.frame, class.as_borrowed(), made, &all, names)
    }

    /// `__getattr__`, where what was asked first has raised `AttributeError`.
    fn or_getattr(&self, name: u32, result: Result<Object<'py>>) -> Result<Object<'py>> {
        let py = self.py();
        if result.is_ok() || !generic::exception_matches::<pyo3::exceptions::PyAttributeError>(py) {
            return result;
        }
        self.sites.interrupts(&self.frame, "an attribute that __getattr__ gives");
        let code = self.code();
        ops::getattr_hook(self.run.peek(1), code.name_at(name as usize)).unwrap_or(Err(Raised))
    }

    /// What CPython asks next, where the result is `NotImplemented`.
    fn or_others(
        &self,
        result: Result<Object<'py>>,
        asked: Asked,
        rest: impl FnOnce(&stator_cpython::frame::Running<'py>) -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let refused = result.as_ref().is_ok_and(|result| ops::is_not_implemented(result));
        if !refused || asked == Asked::Only {
            return result;
        }
        self.sites.interrupts(&self.frame, "an operator whose first operand refuses it");
        rest(self.run)
    }

    fn compared(
        &self,
        operator: CompareOp,
        asked: Asked,
        result: Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.or_others(result, asked, |run| {
            ops::compare_rest(operator, asked, run.peek(2), run.peek(1))
        })
    }

    /// The truth value of any result.
    fn truth_of(&self, result: &Object<'py>, what: &'static str) -> Result<bool> {
        if let Some(truth) = ops::plain_truth(result.as_borrowed()) {
            return Ok(truth);
        }
        self.sites.interrupts(&self.frame, what);
        ops::truth(result.as_borrowed())
    }

    /// Goes where a truth value leads; the operand is on top.
    fn take_truth(&mut self, truth: Truth, value: Result<bool>) -> Done {
        match truth {
            Truth::Jump { when, forward, units } => {
                drop(self.run.pop());
                match (value? == when, forward) {
                    (false, _) => Ok(()),
                    (true, true) => self.jump_forward(units),
                    (true, false) => self.jump_backward(units),
                }
            }
            Truth::JumpOrPop { when, units } => {
                if value? == when {
                    return self.jump_forward(units);
                }
                drop(self.run.pop());
                Ok(())
            }
            Truth::Not | Truth::Value => {
                let result = value.map(|value| self.bool_object(value == (truth == Truth::Value)));
                self.run.finish_one(result).map_err(Stop::from)
            }
        }
    }
}

/// The class that a call makes an instance of: what is called, or what its `type.__call__` is bound to.
pub fn called_class<'py>(callable: Borrowed<'_, 'py>) -> Object<'py> {
    if callable.is_instance_of::<PyType>() {
        return callable.to_owned();
    }
    generic::wrapper_parts(callable).map_or_else(|| callable.to_owned(), |(receiver, _)| receiver)
}

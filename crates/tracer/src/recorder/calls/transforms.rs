//! Transforms of `torch.func` (`vmap`, `grad`, `jacrev`, ...): a call of what one gives is one node, whose code a replay
//! runs. `vjp` is one itself: of the function that it gives nodes know alone what it holds, so each call of that is one more.
//!
//! The program's function runs within the node, on tensors that stand for others (`Kinds::begin_transform`). What it
//! reads is guarded as all code within a node is. What a transform holds itself (the function, `in_dims`, `argnums`) is
//! read here, because its own code isn't looked at.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyTuple};
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_cpython::{Result, modules, ops};
use stator_guards::{Source, SourceId};

use crate::breaks::Reason;
use crate::compiling;
use crate::functions::{Class, Determined};
use crate::locate::text;
use crate::raises::TRANSFORM;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Looks, Operations};
use crate::recorder::notes::call::{Call, library, with_receiver};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::passing::{is_transform, pulls_back};
use crate::recorder::notes::state::{Noted, Origin, State};

/// The variable in which a transform keeps the program's function.
const FUNCTION: &str = "func";

impl Recorder {
    /// Calls what a transform has given; `None`: it's something else.
    pub(in crate::recorder) fn call_transform<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        if self.is_stopped()
            || !self.session.is_replayed()
            || compiling::answer()
            || !is_transform_function(callable)
            || pulls_back(callable) && !self.state.borrow().is_given(callable)
        {
            return None;
        }
        let py = frame.py();
        load(callable).ok()?;
        let is_operation = |function: Borrowed<'_, '_>| self.is_plain_operation(function);
        let (caller, lent) = self.note(frame, |state| {
            state.write_early(frame)?;
            if !state.is_given(callable) {
                state.know_transform(callable, args.first().copied(), &is_operation)?;
            }
            state.give(callable, frame)?;
            let mut lent = Vec::new();
            args.iter().try_for_each(|arg| match is_operation(*arg) {
                true => Ok(()),
                false => state.give_to_transform(*arg, frame, &mut lent),
            })?;
            Ok((library(py, "operator", "call")?, lent))
        })?;
        let name = heap::name_of(callable);
        let target =
            |state: &mut State| state.seen_target(caller.as_borrowed(), TRANSFORM.to_owned());
        let all = with_receiver(callable, args);
        let result = self.operation(frame, target, &all, names, || {
            self.transforms(true);
            let result = self.enclose(frame, &name, args, || ops::call(callable, args, names));
            self.transforms(false);
            let result = result?;
            self.refuse_known_tensors(frame, &name, args, result.as_borrowed());
            Ok(result)
        });
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.given.take_back(&lent);
        }
        self.note(frame, |state| {
            state.enclosed.add_function();
            state.take_out(frame)
        });
        Some(result)
    }

    /// Whether a function is one of PyTorch's in C that computes new tensors, as its arguments' metadata says: nothing runs
    /// in it that would have to be looked at.
    fn is_plain_operation(&self, function: Borrowed<'_, '_>) -> bool {
        let class = function.is_exact_instance_of::<PyCFunction>();
        let class = class.then(|| self.functions.class(function)).flatten();
        matches!(class, Some(Class::Operation(operation)) if operation.determined == Determined::Always)
            && !heap::name_of(function).ends_with('_')
    }

    /// A transform begins, or the innermost one has ended.
    fn transforms(&self, begins: bool) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            if begins {
                state.kinds_mut().begin_transform()
            } else {
                state.kinds_mut().end_transform()
            }
        }
    }
}

impl State {
    /// Whether a node has given a function, which holds what that node gave it.
    fn is_given(&self, function: Borrowed<'_, '_>) -> bool {
        matches!(self.origin(function), Some(Origin::Handle(_)))
    }

    /// Guards what a transform holds. `first`: what it is called with, which may be the program's function.
    fn know_transform<'py>(
        &mut self,
        transform: Borrowed<'_, 'py>,
        first: Option<Borrowed<'_, 'py>>,
        is_operation: &dyn Fn(Borrowed<'_, '_>) -> bool,
    ) -> Noted<()> {
        let unknown = || (Reason::Machinery, heap::name_of(transform));
        let outside = match self.origin(transform) {
            Some(Origin::Source(source)) => Some(source),
            Some(_) => None,
            None => return Err(unknown()),
        };
        if outside.is_some() && !self.enter_known(transform)? {
            return Err(unknown());
        }
        let variables = variables(transform).ok_or_else(unknown)?;
        let mut function = first.map(|first| first.to_owned());
        for (index, (name, cell, held)) in variables.iter().enumerate() {
            let Some(held) = held else { return Err(unknown()) };
            if let Some(parent) = outside {
                self.know_variable(parent, index, cell.as_borrowed(), held.as_borrowed())?;
            }
            if name == FUNCTION {
                function = Some(held.clone());
            } else {
                self.fix(held.as_borrowed(), "a transform's own");
                if self.kind(held.as_borrowed()) != Kind::Module {
                    self.adopt_deep(held.as_borrowed())?;
                }
            }
        }
        let function = function.ok_or_else(unknown)?;
        let function = function.as_borrowed();
        if self.is_given(function) || is_operation(function) {
            Ok(())
        } else if is_transform_function(function) {
            self.know_transform(function, None, is_operation)
        } else {
            self.know_hook(function)
        }
    }

    /// Reads a variable of a transform from outside.
    fn know_variable(
        &mut self,
        parent: SourceId,
        index: usize,
        cell: Borrowed<'_, '_>,
        held: Borrowed<'_, '_>,
    ) -> Noted<()> {
        let source = match self.source(cell) {
            Some(known) => known,
            None => {
                let source = self.sources.intern(Source::ClosureCell { parent, index });
                self.objects.adopt(cell, source);
                source
            }
        };
        self.read_cell(cell, source, Some(held))
    }

    /// Gives a node what a transform is called with, which reads containers whole. `lent`: the objects from outside that
    /// are handed over themselves.
    fn give_to_transform(
        &mut self,
        object: Borrowed<'_, '_>,
        frame: &Frame<'_>,
        lent: &mut Vec<usize>,
    ) -> Noted<()> {
        match self.kind(object) {
            Kind::Tensor | Kind::Constant | Kind::Singleton | Kind::Type => Ok(()),
            Kind::Tuple if object.is_exact_instance_of::<PyTuple>() => heap::tuple_items(object)
                .iter()
                .try_for_each(|item| self.give_to_transform(item.as_borrowed(), frame, lent)),
            Kind::Tuple if heap::is_plain_tuple(object) => self.give(object, frame).map(drop),
            Kind::List | Kind::Dict | Kind::Tuple if let Some(source) = self.source(object) => {
                self.graph_arg(object)?;
                let node = self.object_node(source);
                lent.extend(self.given.lend(object, node));
                Ok(())
            }
            Kind::List
            | Kind::Dict
            | Kind::Tuple
            | Kind::Function
            | Kind::Method
            | Kind::Partial => self.give(object, frame).map(drop),
            _ => {
                let detail = format!("a {} that a transform is given", heap::type_name(object));
                Err((Reason::Machinery, detail))
            }
        }
    }
}

/// A variable of a function around another one: its name, its cell, and what that holds.
type Variable<'py> = (String, Object<'py>, Option<Object<'py>>);

/// The variables that a function has from those around it.
fn variables<'py>(function: Borrowed<'_, 'py>) -> Option<Vec<Variable<'py>>> {
    let code = value(function, Field::Code)?;
    let names = code.getattr("co_freevars").ok()?;
    let closure = function.getattr("__closure__").ok()?;
    let Ok(cells) = closure.cast::<PyTuple>() else { return Some(Vec::new()) };
    let names = heap::tuple_items(names.as_borrowed());
    let cells = heap::tuple_items(cells.as_any().as_borrowed());
    let variable = |(name, cell): (Object<'py>, Object<'py>)| {
        let held = value(cell.as_borrowed(), Field::CellContents);
        (heap::text(name.as_borrowed()), cell, held)
    };
    Some(names.into_iter().zip(cells).map(variable).collect())
}

/// Loads what a transform loads when it is first called: what runs then is no part of the node.
fn load(transform: Borrowed<'_, '_>) -> PyResult<()> {
    let py = transform.py();
    let _native = Suspended::new(py);
    let _deferred = Deferred::new(py);
    modules::import(py, "torch._functorch.vmap")?.call_method0("lazy_load_decompositions")?;
    if goes_ahead(transform) {
        modules::import(py, "torch._decomp.decompositions_for_jvp")?;
    }
    Ok(())
}

/// Whether a transform, or one that it's given, goes through its function in forward mode.
fn goes_ahead(transform: Borrowed<'_, '_>) -> bool {
    let code = value(transform, Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    let name = code.map_or_else(String::new, |code| text(code.qualname()));
    if name == "jvp" || name.starts_with("jacfwd.") {
        return true;
    }
    let found = variables(transform).unwrap_or_default();
    found.iter().any(|(name, _, held)| {
        let held = held.as_ref().map(Bound::as_borrowed);
        name == FUNCTION && held.is_some_and(|held| is_transform_function(held) && goes_ahead(held))
    })
}

/// Whether a function is one that a transform gives, or a transform that is given its function with the arguments.
fn is_transform_function(function: Borrowed<'_, '_>) -> bool {
    let code = value(function, Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    code.is_some_and(|code| is_transform(&text(code.filename()), &text(code.qualname())))
}

//! A call, as the rooms hand it on: what is called, where, and with what; and as the graph has it.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, modules, ops};
use stator_graph::{Arg, NodeId, TextId};

use super::above::Arguments;
use super::heap;
use super::state::{Noted, State, Stop};
use crate::breaks::Reason;

/// One call.
#[derive(Clone, Copy)]
pub(in crate::recorder) struct Call<'a, 'py> {
    /// The frame whose instruction calls.
    pub frame: &'a Frame<'py>,
    /// What is called.
    pub callable: Borrowed<'a, 'py>,
    /// Its arguments: positional, then those that are named.
    pub args: &'a [Borrowed<'a, 'py>],
    /// The names of the last ones, as a tuple.
    pub names: Option<Borrowed<'a, 'py>>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// A call without named arguments.
    #[inline]
    pub fn new(
        frame: &'a Frame<'py>,
        callable: Borrowed<'a, 'py>,
        args: &'a [Borrowed<'a, 'py>],
    ) -> Self {
        Self { frame, callable, args, names: None }
    }

    /// The same call of something else.
    #[inline]
    pub fn of(self, callable: Borrowed<'a, 'py>) -> Self {
        Self { callable, ..self }
    }

    /// A call of something else with other arguments, of which as many have the same names.
    #[inline]
    pub fn with(self, callable: Borrowed<'a, 'py>, args: &'a [Borrowed<'a, 'py>]) -> Self {
        Self { callable, args, ..self }
    }

    /// The arguments that have no names.
    pub fn positional(&self) -> &'a [Borrowed<'a, 'py>] {
        &self.args[..self.args.len() - self.names.map_or(0, |names| heap::tuple_items(names).len())]
    }

    /// As CPython executes it.
    ///
    /// # Errors
    /// What the callable raises.
    #[inline]
    pub fn natively(&self) -> Result<Object<'py>> {
        ops::call(self.callable, self.args, self.names)
    }
}

/// Arguments of one call: positional, then those named by `names`.
pub type Args<'a, 'py> = SmallVec<[Borrowed<'a, 'py>; 8]>;

/// The arguments of a method: its receiver, then those it was given.
#[inline]
pub(in crate::recorder) fn with_receiver<'a, 'py>(
    receiver: Borrowed<'a, 'py>,
    args: &[Borrowed<'a, 'py>],
) -> Args<'a, 'py> {
    let mut all = Args::new();
    all.push(receiver);
    for arg in args {
        all.push(*arg);
    }
    all
}

/// Calls with `*args` and `**kwargs`, an exact tuple and a dictionary, taken apart behind `first`: with all arguments, and
/// the names of the last ones.
///
/// # Errors
/// `MemoryError`; nothing was called.
pub(in crate::recorder) fn spread<'py, T>(
    first: Option<Borrowed<'_, 'py>>,
    args: Borrowed<'_, 'py>,
    kwargs: Option<Borrowed<'_, 'py>>,
    call: impl FnOnce(&Args<'_, 'py>, Option<Borrowed<'_, 'py>>) -> T,
) -> PyResult<T> {
    let pairs = kwargs.filter(|kwargs| heap::dict_length(*kwargs) > 0);
    let pairs = pairs.map_or_else(Vec::new, heap::dict_items);
    // Whoever calls holds the tuple, and nobody changes one.
    let items = args.cast::<PyTuple>().expect("positional arguments are a tuple");
    let mut all: Args<'_, 'py> = first.into_iter().chain(items.iter_borrowed()).collect();
    if pairs.is_empty() {
        return Ok(call(&all, None));
    }
    all.extend(pairs.iter().map(|(_, value)| value.as_borrowed()));
    let names = PyTuple::new(args.py(), pairs.iter().map(|(name, _)| name))?;
    Ok(call(&all, Some(names.as_any().as_borrowed())))
}

/// The argument of a call that is the one of this position, or of this name.
pub(in crate::recorder) fn argument<'a, 'py>(
    args: &[Borrowed<'a, 'py>],
    names: Option<Borrowed<'_, 'py>>,
    position: usize,
    name: &str,
) -> Option<Borrowed<'a, 'py>> {
    let names = names.map_or_else(Vec::new, heap::tuple_items);
    let (positional, named) = args.split_at(args.len() - names.len());
    let at = || names.iter().position(|found| heap::text(found.as_borrowed()) == name);
    positional.get(position).or_else(|| named.get(at()?)).copied()
}

/// Arguments of a call as the graph holds them.
#[derive(Default)]
pub struct RecordedArgs {
    pub args: SmallVec<[Arg; 8]>,
    pub names: SmallVec<[TextId; 4]>,
}

impl RecordedArgs {
    /// Fails for objects that no graph holds.
    pub fn of(
        state: &mut State,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
    ) -> std::result::Result<Self, Stop> {
        let args = args
            .iter()
            .map(|arg| state.graph_arg(*arg))
            .collect::<std::result::Result<_, Stop>>()?;
        let names = names.map_or_else(Vec::new, heap::tuple_items);
        let intern = |name: &Object<'_>| state.graph.intern(&heap::text(name.as_borrowed()));
        Ok(Self { args, names: names.iter().map(intern).collect() })
    }
}

/// A function or class of the standard library.
pub(in crate::recorder) fn library<'py>(
    py: Python<'py>,
    module: &str,
    name: &str,
) -> Noted<Object<'py>> {
    let found = modules::import(py, module).and_then(|module| modules::attribute(&module, name));
    found.map_err(|error| (Reason::Unsupported, error.to_string()))
}

impl State {
    /// The node of a call of a function, which prints with this name.
    pub(in crate::recorder) fn called(
        &mut self,
        frame: &Frame<'_>,
        function: Borrowed<'_, '_>,
        name: String,
        args: &[Arg],
    ) -> NodeId {
        let target = self.function_target(function, name);
        let stack = self.place(frame);
        self.graph.call(target, args, stack)
    }
}

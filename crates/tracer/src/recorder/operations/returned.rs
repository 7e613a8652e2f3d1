//! Operations that return an argument itself for some numbers.
//!
//! `dropout(x, p)` is `x` where `p` is zero, `x.sum_to_size(n)` where nothing is to be summed, and `x.contiguous()`
//! where `x` is. What a trace does with such a result holds for the numbers that lead to it only.

use pyo3::prelude::*;
use pyo3::types::PyBool;
use stator_cpython::object::Borrowed;
use stator_graph::{NodeId, Target};
use stator_shapes::Cmp;

use crate::recorder::notes::call::argument;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;
use crate::recorder::notes::symbols::Number;
use crate::recorder::numbers::dimensions::Given;

impl State {
    /// From here on the trace is for numbers with which the operation returns its argument as it
    /// did now, or doesn't.
    pub fn keep_returned(&mut self, target: Target, given: &Given<'_>, result: Borrowed<'_, '_>) {
        if self.writes_first(target) || given.names.iter().any(|name| name == "out") {
            return;
        }
        if given.args.iter().any(|arg| arg.is(result)) {
            let why = format!("{} returned its argument", self.operation_name(target));
            for arg in &given.args {
                self.fix(arg.as_borrowed(), &why);
            }
        } else if self.is_dropout(target) {
            for arg in &given.args {
                self.keep_zero(arg.as_borrowed());
            }
        }
    }

    /// From here on the trace is for tensors that lie in memory such that the operation returns its argument as it did
    /// now, or doesn't. The answer is whether that can't be said: then the node asks again, and what it gave is its own.
    pub fn keep_laid_out(
        &mut self,
        node: NodeId,
        target: Target,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
        result: Borrowed<'_, '_>,
    ) -> bool {
        let ([tensor, arguments @ ..], true) = (args, self.symbols.is_some()) else { return false };
        let arranges = || names.is_some_and(|it| it.contains("memory_format").unwrap_or(true));
        let is_given_back = tensor.is(result);
        match stator_operators::torch::bare(&self.operation_name(target)) {
            "contiguous" => {
                self.keep_contiguous(*tensor, arguments.is_empty(), node, is_given_back)
            }
            "to" if arranges() => self.keep_contiguous(*tensor, false, node, is_given_back),
            _ => false,
        }
    }

    /// An operation that gave an argument back and did nothing else is left out of replays. Metadata decides that,
    /// and numbers that [`keep_returned`](Self::keep_returned) fixes.
    pub fn keep_idle(
        &mut self,
        node: NodeId,
        target: Target,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
        result: Borrowed<'_, '_>,
    ) {
        if !args.iter().any(|arg| arg.is(result)) || self.kind(result) != Kind::Tensor {
            return;
        }
        // `dropout(x, p, training, inplace)`.
        let in_place = argument(args, names, 3, "inplace");
        let may_write = in_place.is_some_and(|it| !it.is(&*PyBool::new(result.py(), false)));
        if !may_write && stator_operators::torch::is_idle(&self.operation_name(target)) {
            self.graph.set_idle(node);
        }
    }

    fn is_dropout(&self, target: Target) -> bool {
        let Target::Function { name, .. } = target else { return false };
        stator_operators::torch::returns_argument(self.graph.text(name))
    }

    /// A number that is zero remains so, and one that isn't doesn't become it.
    fn keep_zero(&mut self, object: Borrowed<'_, '_>) {
        let Some(id) = self.number(object) else { return };
        let number = self.number_of(id);
        let Some(symbols) = self.symbols.as_mut() else { return };
        let context = &mut symbols.context;
        let is_zero = match number {
            Number::Read(_) => return self.refuse_read("whether it is zero"),
            Number::Integer(integer) => {
                let zero = context.constant(0);
                context.compare(Cmp::Eq, integer, zero)
            }
            Number::Float(float) => {
                let zero = context.float_constant(0.0);
                context.compare_floats(Cmp::Eq, float, zero)
            }
        };
        self.decide(object.py(), is_zero);
    }
}

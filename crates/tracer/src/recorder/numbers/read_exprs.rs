//! What is known of integers that were read from tensors (`read_numbers.rs`).
//!
//! Each is a symbol of the middle, as a size that data decides (`data_sizes.rs`), or an expression of such symbols. So a trace
//! knows that `n - 1` is less than `n`, and that `pad(x[:n], (0, most - n))` is as long as `most`. Where an operation is given
//! one as a size, a bound or an index, a node gives it that number in each replay. What the operation's shape rule asks is
//! decided before it: one trace serves all numbers that are alike in that.

use pyo3::prelude::*;
use pyo3::types::PyFloat;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::BinaryOp;
use stator_graph::{NodeId, Value};
use stator_operators::torch::bare;
use stator_operators::{Determined, is_numbered};
use stator_shapes::{Cmp, ExprId};

use super::arithmetic::{Term, binary};
use super::tensors::holds_tensor;
use crate::functions::Operation;
use crate::known_ranges;
use crate::recorder::Recorder;
use crate::recorder::notes::call::{Call, argument};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State, Stop};
use crate::recorder::notes::symbols::{Number, NumberId, Operand, Sizes, Symbols};

impl Symbols {
    /// A number that was read is a symbol of its own.
    fn begin_read(&mut self, id: NumberId, hint: i64, range: (i64, i64)) {
        let symbol = self.middle_symbol(hint, range);
        self.data_sizes.add(symbol.id, id);
        self.data_sizes.set_expr(id, symbol.expr);
    }

    /// What an integer among operands is.
    fn integer(&self, term: &Term) -> Option<ExprId> {
        match (term.number, term.operand) {
            (Number::Integer(expr), _) => Some(expr),
            (Number::Read(false), Operand::Number(id)) => self.read_expr(id),
            _ => None,
        }
    }
}

impl State {
    /// The least and the greatest integer that a node may read. `None`: nobody knows.
    fn range_of_reads(&mut self, node: NodeId) -> Option<(i64, i64)> {
        known_ranges::of_reads(&self.graph, node).or_else(|| {
            let weights = known_ranges::weights_of_reads(&self.graph, node)?;
            let count = *self.node_sizes(weights)?.last()?;
            let count = self.symbols.as_ref()?.context.as_constant(count)?;
            Some((0, count - 1))
        })
    }

    /// A node gives a list of these numbers.
    pub(super) fn carry_row(&mut self, node: NodeId, items: &[Object<'_>]) {
        let range = self.range_of_reads(node);
        self.carry_row_between(node, items, range);
    }

    /// A node gives these lists of numbers, so many deep.
    pub(in crate::recorder) fn carry_rows(
        &mut self,
        node: NodeId,
        list: &Object<'_>,
        depth: usize,
    ) {
        let range = self.range_of_reads(node);
        self.carry_rows_between(node, list, depth, range);
    }

    pub(in crate::recorder) fn carry_rows_between(
        &mut self,
        node: NodeId,
        list: &Object<'_>,
        depth: usize,
        range: Option<(i64, i64)>,
    ) {
        self.set_fresh(list.as_borrowed());
        let items = heap::list_items(list.as_borrowed());
        if depth == 1 {
            return self.carry_row_between(node, &items, range);
        }
        let length = u32::try_from(items.len()).expect("short lists");
        self.graph.set_value(node, Value::Structure(length));
        for (index, item) in (0..length).zip(&items) {
            let row = self.graph.get_item(node, index);
            self.carry_rows_between(row, item, depth - 1, range);
        }
    }

    fn carry_row_between(&mut self, node: NodeId, items: &[Object<'_>], range: Option<(i64, i64)>) {
        let length = u32::try_from(items.len()).expect("a short list");
        self.graph.set_value(node, Value::Structure(length));
        for (index, item) in (0..length).zip(items) {
            let element = self.graph.get_item(node, index);
            self.carry_between(item, element, None, range);
        }
    }

    /// A number that a node gives. `expr` says what it is of others, where that is known.
    pub(in crate::recorder) fn carry_read(
        &mut self,
        own: &Object<'_>,
        node: NodeId,
        expr: Option<ExprId>,
    ) -> NumberId {
        let is_symbol = expr.is_none() && !own.is_exact_instance_of::<PyFloat>();
        let range = if is_symbol { self.range_of_reads(node) } else { None };
        self.carry_between(own, node, expr, range)
    }

    /// As [`State::carry_read`], of a number of which bounds may be known.
    pub(in crate::recorder) fn carry_between(
        &mut self,
        own: &Object<'_>,
        node: NodeId,
        expr: Option<ExprId>,
        range: Option<(i64, i64)>,
    ) -> NumberId {
        let is_float = own.is_exact_instance_of::<PyFloat>();
        self.graph.set_value(node, if is_float { Value::Float } else { Value::Integer });
        let symbols = self.begin_symbols(own.py());
        let id = symbols.insert_read(own, node);
        match expr {
            Some(expr) => symbols.data_sizes.set_expr(id, expr),
            None if is_float => {}
            None => {
                let hint = own.extract().expect("an integer of 64 bits");
                let range = range.filter(|(low, high)| (*low..=*high).contains(&hint));
                symbols.begin_read(id, hint, range.unwrap_or((i64::MIN, i64::MAX)));
            }
        }
        id
    }

    /// What arithmetic makes of integers of which one was read at least, if there is an expression for it.
    pub(super) fn result_expr(
        &mut self,
        op: BinaryOp,
        terms: &[Term],
        value: &Object<'_>,
    ) -> Option<ExprId> {
        use BinaryOp as B;
        let symbols = self.symbols.as_mut()?;
        let [left, right] = terms else { return None };
        let (left, right) = (symbols.integer(left)?, symbols.integer(right)?);
        let context = &mut symbols.context;
        match op {
            B::Add | B::InPlaceAdd | B::Subtract | B::InPlaceSubtract => {}
            B::Multiply | B::InPlaceMultiply => {}
            B::FloorDivide | B::InPlaceFloorDivide | B::Remainder | B::InPlaceRemainder
                if context.as_constant(right).is_some_and(|divisor| divisor != 0) => {}
            _ => return None,
        }
        let made = binary(context, op, Number::Integer(left), Number::Integer(right))?;
        let Ok(Number::Integer(expr)) = made else { return None };
        value.extract::<i64>().is_ok_and(|value| value == context.hint(expr)).then_some(expr)
    }

    /// A number is the largest of these, or the smallest.
    pub(super) fn learn_extreme(
        &mut self,
        extreme: Borrowed<'_, '_>,
        is_max: bool,
        terms: &[Term],
    ) {
        let Some(id) = self.number(extreme) else { return };
        let Some(symbols) = self.symbols.as_mut() else { return };
        let Some(extreme) = symbols.read_expr(id) else { return };
        let others: SmallVec<[ExprId; 4]> =
            terms.iter().filter_map(|term| symbols.integer(term)).collect();
        let comparison = if is_max { Cmp::Ge } else { Cmp::Le };
        for other in others {
            symbols.learn_comparison(comparison, extreme, other);
        }
    }

    /// Whether there are integers in these objects that were read, and no matter what else.
    /// Whether the trace has read numbers from tensors.
    pub(super) fn has_read_numbers(&self) -> bool {
        self.symbols.as_ref().is_some_and(|symbols| symbols.has_read)
    }

    fn hold_read_integer(&mut self, objects: &[Borrowed<'_, '_>]) -> bool {
        !self.read_exprs(objects).is_empty()
    }

    /// The expressions of integers in these objects that were read.
    pub(super) fn read_exprs(&mut self, objects: &[Borrowed<'_, '_>]) -> Sizes {
        if !self.has_read_numbers() {
            return Sizes::new();
        }
        let mut numbers = Vec::new();
        for object in objects {
            self.numbers_in(*object, &mut numbers);
        }
        let symbols = self.symbols.as_ref().expect("numbers were read");
        let is_read = |id: &NumberId| matches!(self.number_of(*id), Number::Read(false));
        numbers.into_iter().filter(is_read).filter_map(|id| symbols.read_expr(id)).collect()
    }
}

impl Recorder {
    /// A number of the program's is what a node gives, and is carried from here on. `None`: the trace has ended.
    pub(in crate::recorder) fn carries(
        &self,
        frame: &Frame<'_>,
        number: &Object<'_>,
        node: impl FnOnce(&mut State) -> Noted<NodeId>,
    ) -> Option<()> {
        self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
        self.note(frame, |state| {
            let node = node(state)?;
            state.carry_read(number, node, None);
            Ok(())
        })
    }

    /// Whether an operation takes the integers among its arguments that were read as they come. `problem` says why it can't
    /// be a node; `is_held`: what it fills its result with is no reason.
    pub(in crate::recorder) fn takes_read<'py>(
        &self,
        operation: &Operation,
        call: Call<'_, 'py>,
        is_held: bool,
        problem: impl FnOnce() -> Option<Stop>,
    ) -> bool {
        let Call { frame, args, names, .. } = call;
        // What it writes into has other sizes then.
        let has_out = || {
            let names = names.map_or_else(Vec::new, heap::tuple_items);
            names.iter().any(|name| heap::text(name.as_borrowed()) == "out")
        };
        self.state.borrow().has_read_numbers()
            && is_numbered(bare(&operation.name))
            && !has_out()
            && (is_held || !self.fills_with_read(operation, call))
            && self.is_numbered(frame, args, problem)
    }

    /// As [`Recorder::takes_read`], of a tensor's index.
    pub(in crate::recorder) fn index_takes_read(
        &self,
        frame: &Frame<'_>,
        index: Borrowed<'_, '_>,
        problem: impl FnOnce() -> Option<Stop>,
    ) -> bool {
        // What PyTorch makes a tensor of isn't asked for its numbers.
        let is_plain = |part: Borrowed<'_, '_>| match self.kind(part) {
            Kind::Constant | Kind::Slice => true,
            _ => !self.state.borrow_mut().hold_read_integer(&[part]),
        };
        let is_known = if heap::is_plain_tuple(index) {
            heap::tuple_items(index).iter().all(|part| is_plain(part.as_borrowed()))
        } else {
            is_plain(index)
        };
        is_known && self.is_numbered(frame, &[index], problem)
    }

    /// Whether integers that were read are all that keeps an operation from being a node.
    fn is_numbered(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
        problem: impl FnOnce() -> Option<Stop>,
    ) -> bool {
        // What other backends make of a part is for sizes that are known when it's made.
        let may_be = self.session.is_replayed() && self.may_read(frame);
        if !(may_be || self.session.program.is_some())
            || !self.state.borrow_mut().hold_read_integer(objects)
        {
            return false;
        }
        let pass = |passes| {
            let mut state = self.state.borrow_mut();
            state.symbols.as_mut().expect("numbers were read").passes_integers = passes;
        };
        pass(true);
        let is_numbered = problem().is_none();
        pass(false);
        self.numbered.set(is_numbered);
        is_numbered
    }

    /// Whether what an operation fills its result with was read: a type may not hold it.
    fn fills_with_read(&self, operation: &Operation, call: Call<'_, '_>) -> bool {
        let Determined::Filled(_, places) = operation.determined else { return false };
        places.iter().any(|(place, name)| {
            let given = argument(call.args, call.names, *place, name);
            given.is_some_and(|given| self.state.borrow_mut().holds_read(given))
        })
    }

    /// Whether an object holds a tensor; numbers that were read are none.
    pub(in crate::recorder) fn holds_own_tensor(&self, object: Borrowed<'_, '_>) -> bool {
        let mut state = self.state.borrow_mut();
        let pass = |state: &mut State, passes| {
            if let Some(symbols) = state.symbols.as_mut() {
                symbols.passes_integers = passes;
            }
        };
        pass(&mut state, true);
        let holds = holds_tensor(&mut state, object);
        pass(&mut state, false);
        holds
    }
}

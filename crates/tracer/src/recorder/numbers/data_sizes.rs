//! Sizes that data decides: those of `x[mask]`, `torch.nonzero(x)`, `torch.unique(x)`.
//!
//! Each is a symbol *of the middle*: shape rules compute with it as with the size of an input, but nothing is known of
//! it when a call begins. So what a trace assumes of it is no guard but a decision (`ending/deciding.rs`), which a replay
//! asks of the real result's `size()`, right before the operation that relies on it. Facts are found on a copy of
//! what is known, so that the ways out know nothing that hasn't been decided yet.
//!
//! As a number of the program's, such a size is one that was read from a tensor (`read_numbers.rs`), of which an
//! expression is known.

use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::CompareOp;
use stator_graph::{Arg, NodeId, Operator, Target, Value};
use stator_guards::SourceId;
use stator_operators::Determined;
use stator_operators::torch::{ATEN, bare, last_part};
use stator_shapes::{Cmp, CondId, Context, ExprId, SIZE_LIMIT, Symbol, SymbolId, Tree};

use super::arithmetic::Term;
use super::program_sizes::one_mask;
use super::symbols::comparison;
use crate::breaks::Reason;
use crate::functions::Operation;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Decides, Ends};
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::notes::symbols::{
    Made, MaskKey, Number, NumberId, Operand, Sizes, Symbols, TensorKey,
};
use crate::symbolic::{Part, Slot};

/// So often facts are looked for before an operation at most: making a way out may change what is known.
const ATTEMPTS: usize = 4;

/// Operations that return their argument itself, or a view of it, where it lies in memory as it should, or has the size:
/// for sizes of 0 and 1 more often.
const RETURNING: &[&str] =
    &["contiguous", "flatten", "ravel", "reshape", "reshape_as", "sum_to_size", "to"];

/// Operations that raise for sizes of which their shape rules say nothing: what a tensor is written to, how it lies in memory.
const REFUSING: &[&str] = &["setitem", "__setitem__", "view", "view_as", "unflatten", "as_strided"];

/// Which sizes of an operation's results data decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recorder) enum SizedBy {
    /// The first one, the same in each result.
    First,
    /// The first one: it says how many elements a mask keeps, and the others are those of the tensor that the mask leaves.
    Mask,
    /// Any.
    All,
}

/// A fact that is to be decided.
struct Asked {
    comparison: Cmp,
    left: Tree,
    right: Tree,
}

/// What a mask leaves of a tensor that it indexes.
struct Unmasked {
    /// Which size of the result it decides.
    at: usize,
    /// Which mask it is, where that is known.
    mask: Option<MaskKey>,
    /// The other sizes.
    sizes: Sizes,
}

/// Facts that are to be decided before an operation.
struct Facts {
    /// `None`: there is one that nodes can't compute.
    asked: Option<Vec<Asked>>,
    /// What is known when all have been.
    known: Context,
    /// What of it is a matter of guards.
    guards: Vec<CondId>,
    /// What was known when they were found.
    before: usize,
}

impl Symbols {
    /// A number that was read is this one wherever the trace goes on.
    pub(super) fn learn_size(&mut self, id: NumberId, value: i64) {
        let Some(expr) = self.read_expr(id) else { return };
        let value = self.context.constant(value);
        self.learn_comparison(Cmp::Eq, expr, value);
    }

    /// A symbol of the middle of the trace; [`DataSizes::add`] is to say which number it is.
    pub(super) fn middle_symbol(&mut self, hint: i64, range: (i64, i64)) -> Symbol {
        let symbol = self.context.symbol(hint, range, None);
        let name = format!("u{}", self.data_sizes.numbers.len());
        self.add_slot(Slot { source: SourceId::default(), part: Part::Middle }, name, false);
        symbol
    }

    /// What has been decided needs no guard.
    pub(super) fn learn_comparison(&mut self, op: Cmp, left: ExprId, right: ExprId) {
        let before = self.context.take_added();
        let fact = self.context.compare(op, left, right);
        self.context.evaluate(fact);
        debug_assert!(before.is_empty(), "facts are logged where they are assumed");
        self.context.take_added();
    }

    /// Two integers of which data decides one.
    fn of_data(&self, terms: &[Term]) -> Option<[ExprId; 2]> {
        let expr = |term: &Term| match (term.number, term.operand) {
            (Number::Integer(expr), _) => Some(expr),
            (Number::Read(false), Operand::Number(id)) => self.read_expr(id),
            _ => None,
        };
        let [left, right] = terms else { return None };
        Some([expr(left)?, expr(right)?])
    }

    /// An object for a number that data decides.
    pub(super) fn insert_data_size<'py>(
        &mut self,
        py: Python<'py>,
        expr: ExprId,
        made: Made,
        stack: Option<stator_graph::StackId>,
    ) -> (Object<'py>, NumberId) {
        let own = self.own_object(py, Number::Integer(expr));
        let id = self.insert(&own, Number::Read(false), made, stack, None);
        self.data_sizes.set_expr(id, expr);
        self.has_read = true;
        (own, id)
    }
}

impl Operation {
    /// Which sizes of the operation's results data decides, where a trace may go on behind it.
    fn sized_by(&self) -> Option<SizedBy> {
        match self.determined {
            Determined::Sized => Some(match bare(&self.name) {
                "unique" | "unique_consecutive" | "unique_dim" => SizedBy::All,
                "_pack_padded_sequence" | "_pad_packed_sequence" => SizedBy::All,
                // A custom operator's: nobody knows which.
                _ if self.name.starts_with("torch.ops.") && !self.name.starts_with(ATEN) => {
                    SizedBy::All
                }
                _ => SizedBy::First,
            }),
            Determined::AtLeast(_) => Some(SizedBy::First),
            Determined::Counts | Determined::IfGiven(..) => Some(SizedBy::All),
            _ => None,
        }
    }
}

impl Recorder {
    /// Whether an operation whose results' sizes data decides is a node, and the trace goes on.
    pub(in crate::recorder) fn goes_on_behind(
        &self,
        frame: &Frame<'_>,
        problem: &Stop,
        sized: Option<SizedBy>,
    ) -> bool {
        let Some(sized) = sized else { return false };
        if self.session.program.is_some() {
            return self.goes_on_in_program(problem, sized);
        }
        let goes_on = problem.0 == Reason::DynamicOutput
            && self.session.is_replayed()
            && self.is_untouched(frame)
            && self.state.borrow().claims.draws.is_none();
        if goes_on {
            self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
            self.sized.set(Some(sized));
        }
        goes_on
    }

    /// As [`Recorder::goes_on_behind`], of a call.
    pub(in crate::recorder) fn call_goes_on(
        &self,
        frame: &Frame<'_>,
        problem: &Stop,
        operation: &Operation,
    ) -> bool {
        self.goes_on_behind(frame, problem, operation.sized_by())
    }

    /// As [`Recorder::goes_on_behind`], of a tensor with an index.
    pub(in crate::recorder) fn item_goes_on(
        &self,
        frame: &Frame<'_>,
        problem: &Stop,
        index: Borrowed<'_, '_>,
    ) -> bool {
        let is_one = self.kind(index) == Kind::Tensor || self.has_one_mask(index);
        let sized = if is_one { SizedBy::Mask } else { SizedBy::All };
        self.goes_on_behind(frame, problem, Some(sized))
    }

    /// Whether data decides sizes of any of these.
    pub(in crate::recorder) fn are_data_sized(&self, objects: &[Borrowed<'_, '_>]) -> bool {
        let Ok(mut state) = self.state.try_borrow_mut() else { return false };
        state.symbols.as_ref().is_some_and(|symbols| symbols.has_data_sizes())
            && objects.iter().any(|object| !state.data_sizes_in(*object, 0).is_empty())
    }

    /// Decides what an operation relies on of sizes that data decides, and of the integers that it is given if it's
    /// `numbered`. If that can't be, the trace ends before it.
    pub(in crate::recorder) fn decide_sizes<'py>(
        &self,
        frame: &Frame<'py>,
        target: Target,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        numbered: bool,
    ) {
        let mut name = String::new();
        let mut is_decided = self.decide_facts(frame, |state| {
            name = state.operation_name(target);
            state.assume_rule(&name, args, names, numbered);
        });
        if !is_decided && numbered && !self.is_stopped() && self.settle_read(frame, args) {
            is_decided = self.decide_facts(frame, |state| {
                state.assume_rule(&name, args, names, numbered);
            });
        }
        if !is_decided {
            self.stop(frame, Reason::DynamicOutput, format!("{name} of what data has sized"));
        }
    }

    /// Decides that sizes that data decides are what they are in this call; false: not all could be.
    pub(in crate::recorder) fn settle_sizes(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
    ) -> bool {
        !self.are_data_sized(objects)
            || self.decide_facts(frame, |state| {
                let sizes: Vec<_> =
                    objects.iter().flat_map(|object| state.data_sizes_in(*object, 0)).collect();
                state.assume_hints(&sizes);
            })
    }

    /// Decides what is assumed of sizes that data decides.
    fn decide_facts(&self, frame: &Frame<'_>, mut assume: impl FnMut(&mut State)) -> bool {
        for _ in 0..ATTEMPTS {
            let Some(facts) = self.note(frame, |state| Ok(state.facts_of(&mut assume))) else {
                return true;
            };
            let Some(facts) = facts else { return true };
            let Some(asked) = facts.asked else { return false };
            for fact in &asked {
                let node = |state: &mut State| {
                    let stack = state.place(frame);
                    let left = state.tree_arg(&fact.left, stack)?;
                    let right = state.tree_arg(&fact.right, stack)?;
                    let operator = operator(fact.comparison);
                    let node = state.graph.call(Target::Operator(operator), &[left, right], stack);
                    Ok(Arg::Node(node))
                };
                let decided = self.decided(frame, Asks::Operation, node, || Ok(true));
                if !matches!(decided, Some(Ok(true))) {
                    return false;
                }
            }
            let installed = self.note(frame, |state| {
                let symbols = state.symbols.as_mut().expect("there are facts");
                let is_same = symbols.context.fact_count() == facts.before;
                if is_same {
                    symbols.context = facts.known;
                    state.log_conditions(frame.py(), facts.guards, None);
                }
                Ok(is_same)
            });
            if installed != Some(false) {
                return true;
            }
        }
        false
    }
}

impl State {
    /// What is assumed beyond what is known; `None`: nothing of sizes that data decides.
    fn facts_of(&mut self, assume: &mut dyn FnMut(&mut State)) -> Option<Facts> {
        let saved = self.symbols.as_ref()?.context.clone();
        assume(self);
        let symbols = self.symbols.as_mut()?;
        let added = symbols.context.take_added();
        let known = std::mem::replace(&mut symbols.context, saved);
        let (asked, guards): (Vec<_>, Vec<_>) = added
            .iter()
            .flat_map(|fact| known.parts(*fact))
            .partition(|fact| symbols.asks_data(&known, *fact));
        if asked.is_empty() {
            return None;
        }
        let asked = asked
            .into_iter()
            .map(|fact| {
                let (comparison, left, right) = known.comparison(fact)?;
                Some(Asked { comparison, left, right })
            })
            .collect();
        let before = symbols.context.fact_count();
        Some(Facts { asked, known, guards, before })
    }

    /// Whether an operation may raise for sizes that data decides, whatever has been decided.
    pub(in crate::recorder) fn refuses_sizes(&self, target: Target) -> bool {
        let name = self.operation_name(target);
        REFUSING.contains(&last_part(&name))
    }

    /// Assumes what an operation's shape rule does; where there is none that says its results, that sizes are what
    /// they are.
    fn assume_rule<'py>(
        &mut self,
        name: &str,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        numbered: bool,
    ) {
        let Some(given) = self.given(args, names, numbered) else { return };
        let mut sizes: Vec<_> = args.iter().flat_map(|arg| self.data_sizes_in(*arg, 0)).collect();
        let base = last_part(name);
        if numbered {
            sizes.extend(self.read_exprs(args));
        } else if has_no_result(base) {
            return;
        }
        let before = self.symbols.as_ref().map(|symbols| symbols.context.clone());
        if !matches!(self.infer_sizes(name, &given), Some(Ok(_))) {
            if let (Some(symbols), Some(before)) = (self.symbols.as_mut(), before) {
                symbols.context = before;
            }
            self.assume_hints(&sizes);
        }
        if RETURNING.contains(&base) {
            self.assume_many(&sizes);
        }
    }

    /// Assumes that sizes are what they are in this call.
    pub(in crate::recorder) fn assume_hints(&mut self, sizes: &[ExprId]) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        for size in sizes {
            symbols.context.specialize(*size);
        }
    }

    /// Assumes that the symbols in sizes are at least 2; those that aren't, that they are what they are.
    fn assume_many(&mut self, sizes: &[ExprId]) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        let exprs: Vec<ExprId> = sizes
            .iter()
            .flat_map(|size| symbols.context.symbols_of(*size))
            .filter_map(|symbol| symbols.read_expr(*symbols.data_sizes.numbers.get(&symbol)?))
            .collect();
        let context = &mut symbols.context;
        for size in exprs {
            if context.hint(size) < 2 {
                context.specialize(size);
                continue;
            }
            let two = context.constant(2);
            let many = context.compare(Cmp::Ge, size, two);
            context.evaluate(many);
        }
    }

    /// Whether data decides sizes of a tensor in an object.
    pub(super) fn is_data_sized(&mut self, object: Borrowed<'_, '_>) -> bool {
        !self.data_sizes_in(object, 0).is_empty()
    }

    /// The sizes of tensors in an object that data decides.
    pub(in crate::recorder) fn data_sizes_in(
        &mut self,
        object: Borrowed<'_, '_>,
        depth: usize,
    ) -> Sizes {
        if let Some(mut sizes) = self.symbolic_sizes(object) {
            let symbols = self.symbols.as_ref().expect("there are sizes");
            sizes.retain(|size| symbols.is_data_sized(*size));
            return sizes;
        }
        if depth >= 8 {
            return Sizes::new();
        }
        let parts = heap::plain_parts(object);
        parts.iter().flat_map(|part| self.data_sizes_in(part.as_borrowed(), depth + 1)).collect()
    }

    /// An expression as an argument of nodes.
    fn tree_arg(&mut self, tree: &Tree, stack: Option<stator_graph::StackId>) -> Result<Arg, Stop> {
        let (operator, parts): (_, SmallVec<[&Tree; 2]>) = match tree {
            Tree::Constant(value) => return Ok(Arg::int(*value)),
            Tree::Symbol(symbol) => return self.symbol_node(*symbol).map(Arg::Node),
            Tree::Sum(parts) => (Operator::Add, parts.iter().collect()),
            Tree::Product(parts) => (Operator::Mul, parts.iter().collect()),
            Tree::FloorDiv(parts) => (Operator::FloorDiv, [&parts.0, &parts.1].into()),
            Tree::Mod(parts) => (Operator::Mod, [&parts.0, &parts.1].into()),
        };
        let mut result: Option<Arg> = None;
        for part in parts {
            let part = self.tree_arg(part, stack)?;
            result = Some(match result {
                None => part,
                Some(left) => {
                    let target = Target::Operator(operator);
                    let node = self.graph.call(target, &[left, part], stack);
                    self.graph.set_value(node, Value::Integer);
                    Arg::Node(node)
                }
            });
        }
        Ok(result.unwrap_or(Arg::int(0)))
    }

    /// The node that gives a symbol's number.
    fn symbol_node(&mut self, symbol: SymbolId) -> Result<NodeId, Stop> {
        let unknown = || (Reason::DynamicOutput, "a size that isn't in the graph".to_owned());
        let symbols = self.symbols.as_ref().ok_or_else(unknown)?;
        if let Some(&number) = symbols.data_sizes.numbers.get(&symbol) {
            return Ok(self.number_node(number));
        }
        if let Some(&node) = symbols.placeholders.get(&(symbol.index() as u32)) {
            return Ok(node);
        }
        let Slot { source, part } = symbols.slots[symbol.index()];
        match (part, symbols.outside.get(&source).copied()) {
            (Part::Integer, Some(number)) => Ok(self.number_node(number)),
            _ => Err(unknown()),
        }
    }

    /// The answer to a comparison with a size that data decides, if it follows from what is known.
    pub(super) fn known_of_sizes(&mut self, op: CompareOp, terms: &[Term]) -> Option<bool> {
        let symbols = self.symbols.as_mut()?;
        let [left, right] = symbols.of_data(terms)?;
        let asked = symbols.context.compare(comparison(op), left, right);
        symbols.context.decide(asked)
    }

    /// A comparison with a size that data decides has been decided.
    pub(super) fn learn_of_sizes(&mut self, op: CompareOp, terms: &[Term]) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        if let Some([left, right]) = symbols.of_data(terms) {
            symbols.learn_comparison(comparison(op), left, right);
        }
    }

    /// An operation has given results whose sizes data decides.
    pub(in crate::recorder) fn begin_data_sizes(
        &mut self,
        sized: SizedBy,
        args: &[Borrowed<'_, '_>],
        result: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        let py = result.py();
        let others = if sized == SizedBy::Mask { self.unmasked(args) } else { None };
        let at = others.as_ref().map_or(0, |others| others.at);
        let mask = others.as_ref().and_then(|others| others.mask);
        let mut shared = mask.and_then(|mask| self.size_by_mask(mask));
        for tensor in self.result_tensors(result) {
            let (Some(TensorKey::Node(_)), Some(info), Ok(node)) = (
                self.tensor_key(tensor.as_borrowed()),
                tensor::info(tensor.as_borrowed()),
                self.tensor_node(tensor.as_borrowed()),
            ) else {
                return Err((Reason::DynamicOutput, "a result that is no new tensor".into()));
            };
            let mut sizes = Sizes::new();
            for (index, &size) in info.sizes.iter().enumerate() {
                let known = match sized {
                    SizedBy::First | SizedBy::Mask if index == at => shared,
                    SizedBy::First => Some(self.begin_symbols(py).context.constant(size)),
                    SizedBy::Mask => {
                        let other = index - usize::from(index > at);
                        others.as_ref().and_then(|others| others.sizes.get(other)).copied()
                    }
                    SizedBy::All => None,
                };
                let known = known.filter(|known| {
                    self.symbols.as_ref().is_some_and(|all| all.context.hint(*known) == size)
                });
                let expr = known.unwrap_or_else(|| self.data_size(py, node, index, size));
                if index == at && sized == SizedBy::First {
                    shared = Some(expr);
                }
                if index == at
                    && let Some(mask) = mask
                {
                    self.note_size_by_mask(mask, expr);
                }
                sizes.push(expr);
            }
            self.set_sizes(TensorKey::Node(node.index() as u32), sizes);
        }
        Ok(())
    }

    /// What a mask leaves of a tensor that it indexes.
    fn unmasked(&mut self, args: &[Borrowed<'_, '_>]) -> Option<Unmasked> {
        let [owner, index] = *args else { return None };
        let (at, mask) = one_mask(index);
        let masked = tensor::info(mask.as_borrowed())?.sizes.len();
        let mut sizes = match self.symbolic_sizes(owner) {
            Some(sizes) => sizes,
            None => {
                let info = tensor::info(owner)?;
                let context = &mut self.begin_symbols(owner.py()).context;
                info.sizes.iter().map(|size| context.constant(*size)).collect()
            }
        };
        if at + masked > sizes.len() {
            return None;
        }
        sizes.drain(at..at + masked);
        let mask = self.mask_in_program(mask.as_borrowed());
        Some(Unmasked { at, mask, sizes })
    }

    /// A symbol for a size of a node's result.
    fn data_size(&mut self, py: Python<'_>, tensor: NodeId, index: usize, hint: i64) -> ExprId {
        let symbol = self.begin_symbols(py).middle_symbol(hint, (0, SIZE_LIMIT));
        let stack = self.here_stack();
        let symbols = self.symbols.as_mut().expect("just begun");
        let made = Made::Element { tensor, method: "size", index: index as u32 };
        let (_, number) = symbols.insert_data_size(py, symbol.expr, made, stack);
        symbols.data_sizes.add(symbol.id, number);
        symbol.expr
    }

    /// Facts about sizes that data decides were assumed where nothing decides them: the trace ends before the
    /// instruction.
    pub(super) fn refuse_undecided(&mut self, added: &[CondId]) {
        let symbols = self.symbols.as_ref().expect("there are facts");
        if added.iter().any(|fact| symbols.asks_data(&symbols.context, *fact)) {
            self.refuse_read("a size that data decides");
        }
    }
}

/// Whether an operation has no result whose sizes anybody could ask: what it wants of sizes it says itself.
pub(super) fn has_no_result(name: &str) -> bool {
    matches!(name, "setitem" | "__setitem__")
}

/// The operator that compares so.
const fn operator(comparison: Cmp) -> Operator {
    match comparison {
        Cmp::Eq => Operator::Eq,
        Cmp::Ne => Operator::Ne,
        Cmp::Lt => Operator::Lt,
        Cmp::Le => Operator::Le,
        Cmp::Gt => Operator::Gt,
        Cmp::Ge => Operator::Ge,
    }
}

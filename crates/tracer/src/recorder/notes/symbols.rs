//! The table of numbers that may differ from call to call: symbols, what is computed from them, what was read from tensors.
//!
//! Invariants:
//! * An object of the table stands for one number, and is kept: nothing else gets its address.
//! * Each slot has a name, and is a symbol of the context: their indices are the same.
//! * A number of [`Number::Read`] has a node, or what makes one; if an expression of it is known, it's in [`DataSizes`].
//! * Nothing here executes anything: `numbers` computes, and notes here what came of it.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyFloat;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_cpython::object::Object;
use stator_graph::{Arg, NodeId, StackId, Target, TextId};
use stator_guards::SourceId;
use stator_shapes::{CondId, Context, ExprId, FloatId, Style, SymbolId};

use super::in_containers::Lending;
use super::state::Slot as FrameSlot;
use crate::symbolic::Slot;

/// A number's expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// An int's.
    Integer(ExprId),
    /// A float's.
    Float(FloatId),
    /// It was read from a tensor's data, or computed from such a number: nothing is known of it when a call
    /// begins, so no guard can speak of it. Whether it's a float.
    Read(bool),
}

/// A place in the table of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberId(u32);

/// How a number comes to be a node.
#[derive(Clone, Debug)]
pub enum Made {
    /// It's an outside object.
    Outside(SourceId),
    /// It's drawn from a random generator: the number of its symbol.
    Drawn(usize),
    /// It's an element of what `size()` or `stride()` of a tensor gives.
    Element {
        /// The tensor.
        tensor: NodeId,
        /// The method.
        method: &'static str,
        /// Which.
        index: u32,
    },
    /// It's what a node gives that is there already.
    Node,
    /// It's what a call gives.
    Call {
        /// What is called.
        target: Target,
        /// With what.
        operands: SmallVec<[Operand; 2]>,
    },
}

/// An operand of a call.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A symbolic number.
    Number(NumberId),
    /// Anything else.
    Other(Arg),
}

/// What is known of a number.
pub struct Entry {
    pub number: Number,
    pub made: Made,
    pub node: Option<NodeId>,
    pub stack: Option<StackId>,
    /// The outside object that this one stands for.
    pub outside: Option<Py<PyAny>>,
    /// The operand that CPython gives as the result: `abs(n)` is `n` itself, unless that is negative.
    pub operand: Option<Py<PyAny>>,
    /// Kept, so that nothing else gets the address.
    pub object: Py<PyAny>,
}

/// Sizes of a tensor.
pub type Sizes = SmallVec<[ExprId; 5]>;

/// A tensor that may have symbolic sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorKey {
    /// From outside.
    Source(u32),
    /// Made by a node.
    Node(u32),
}

/// What a user's mark asks of a symbol.
pub struct Marked {
    pub expr: ExprId,
    /// How it prints.
    pub name: String,
    /// Where and why it was found to be fixed.
    pub fixed: Option<String>,
}

/// The symbols of a trace.
#[derive(Default)]
pub struct Symbols {
    /// The expressions, and what is assumed of them.
    pub context: Context,
    pub slots: Vec<Slot>,
    pub names: Vec<String>,
    /// The number in the names `s0`, `s1`, ... of symbols that no other one stands for.
    pub numbers: Vec<Option<u32>>,
    /// Where the graph takes sizes in: the placeholder's position, and the slot.
    pub inputs: Vec<(usize, usize)>,
    pub placeholders: FxHashMap<u32, NodeId>,
    pub entries: Vec<Entry>,
    pub known: FxHashMap<usize, NumberId>,
    /// What stands for outside numbers, by source.
    pub outside: FxHashMap<SourceId, NumberId>,
    /// Objects that fast locals of the frame are to hold.
    pub substitutes: Vec<(usize, Py<PyAny>)>,
    pub sizes: FxHashMap<TensorKey, Sizes>,
    pub layouts: Layouts,
    pub elements: FxHashMap<(NodeId, &'static str), NodeId>,
    pub slot_sources: FxHashMap<FrameSlot, SourceId>,
    /// What outside containers hold in place of numbers.
    pub lending: Lending,
    /// Tuples that stand for outside ones, by source.
    pub copies: FxHashMap<SourceId, Py<PyAny>>,
    /// What they stand for, by their addresses.
    pub originals: FxHashMap<usize, Py<PyAny>>,
    /// Texts that spell numbers, by address: who reads one reads those.
    pub texts: FxHashMap<usize, Text>,
    /// What texts were found in by a number, by address.
    pub tables: FxHashMap<usize, Table>,
    /// Outside dictionaries, by address, and the numbers that are or were keys of theirs.
    pub open_keys: Vec<(usize, Py<PyAny>)>,
    /// What floats were.
    pub float_tables: FxHashMap<usize, Table>,
    pub marked: Vec<Marked>,
    pub data_sizes: DataSizes,
    /// Whether numbers were read from tensors.
    pub has_read: bool,
    /// Integers among them aren't taken for tensors: it's asked what else an operation is given.
    pub passes_integers: bool,
    /// Where one was asked that can't be fixed: only before this instruction the trace can end.
    pub refused_at: Option<(u32, u32)>,
    /// Lines of the `dynamic` log.
    pub log: Vec<String>,
}

/// A text that spells numbers.
pub struct Text {
    pub numbers: Vec<NumberId>,
    pub object: Py<PyAny>,
    /// How it is made again. `None`: nobody knows, so the numbers are fixed where it's kept.
    pub spelling: Option<Rc<Spelling>>,
    pub node: Option<NodeId>,
}

/// Texts or floats by numbers, from `first` on and before `end`.
pub struct Table {
    pub first: i64,
    pub end: i64,
    /// What nodes look into.
    pub copy: Py<PyAny>,
}

impl Table {
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { first: self.first, end: self.end, copy: self.copy.clone_ref(py) }
    }
}

/// What makes a text.
pub struct Spelling {
    pub target: Target,
    pub pieces: Vec<Piece>,
    pub keywords: SmallVec<[TextId; 2]>,
    pub stack: Option<StackId>,
}

/// What a text is made of, as it was when it was made.
pub enum Piece {
    Number(NumberId),
    Text(Py<PyAny>),
    Plain(Arg),
    Row {
        is_list: bool,
        pieces: Vec<Piece>,
    },
    /// A `torch.Size`.
    Size(Vec<Piece>),
    Dict(Vec<(Piece, Piece)>),
}

/// What is known of how tensors lie in memory.
#[derive(Default)]
pub struct Layouts {
    /// Outside tensors' strides.
    pub outside: FxHashMap<TensorKey, Sizes>,
    /// Those of nodes, as far as somebody has asked.
    pub computed: FxHashMap<NodeId, Option<Sizes>>,
    /// The nodes before this one are known to leave the strides of their arguments alone.
    pub scanned: usize,
    /// An operation may have changed a tensor's strides in place: nothing is known any more.
    pub lost: bool,
    /// Operations that gave their argument back in this call, and may copy it in the next.
    pub given_back: Vec<NodeId>,
    /// As these, of those that copied it.
    pub copied: Vec<NodeId>,
}

/// What is known of sizes that data decides.
#[derive(Default)]
pub struct DataSizes {
    /// The numbers that the symbols are.
    pub numbers: FxHashMap<SymbolId, NumberId>,
    /// The expressions of numbers that were read.
    pub exprs: FxHashMap<NumberId, ExprId>,
    /// How many elements masks of a program choose.
    pub masks: FxHashMap<MaskKey, ExprId>,
}

/// A mask: the node that gives it, and how often it had been written to.
pub type MaskKey = (NodeId, u32);

impl DataSizes {
    /// A symbol is this number.
    pub fn add(&mut self, symbol: SymbolId, number: NumberId) {
        self.numbers.insert(symbol, number);
    }

    /// What a number is.
    pub fn set_expr(&mut self, number: NumberId, expr: ExprId) {
        self.exprs.insert(number, expr);
    }
}

impl Layouts {
    /// Says what strides the result of a node has.
    pub fn know(&mut self, node: NodeId, strides: Sizes) {
        self.computed.insert(node, Some(strides));
    }
}

impl Symbols {
    /// All numbers so far.
    pub fn ids(&self) -> impl Iterator<Item = NumberId> + use<> {
        (0..self.entries.len() as u32).map(NumberId)
    }

    /// What is known of a number.
    pub fn entry(&self, id: NumberId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    pub fn entry_mut(&mut self, id: NumberId) -> &mut Entry {
        &mut self.entries[id.0 as usize]
    }

    /// A new object of a number's value, which no other number has.
    pub fn own_object<'py>(&self, py: Python<'py>, number: Number) -> Object<'py> {
        match number {
            Number::Integer(expr) => stator_cpython::generic::own_int(py, self.context.hint(expr)),
            Number::Float(float) => PyFloat::new(py, self.context.float_hint(float)).into_any(),
            Number::Read(_) => unreachable!("it was read with its object"),
        }
    }

    /// A number that a node gives, and the object that it is from here on.
    pub fn insert_read(&mut self, own: &Object<'_>, node: NodeId) -> NumberId {
        let is_float = own.is_exact_instance_of::<PyFloat>();
        let id = self.insert(own, Number::Read(is_float), Made::Node, None, None);
        self.entry_mut(id).node = Some(node);
        self.has_read = true;
        id
    }

    /// A number that was read is this one wherever the trace goes on.
    pub fn settle(&mut self, id: NumberId, value: i64) {
        self.entry_mut(id).number = Number::Integer(self.context.constant(value));
    }

    /// The object that a number is.
    pub fn object(&self, id: NumberId) -> &Py<PyAny> {
        &self.entry(id).object
    }

    pub fn insert(
        &mut self,
        object: &Object<'_>,
        number: Number,
        made: Made,
        stack: Option<StackId>,
        outside: Option<Py<PyAny>>,
    ) -> NumberId {
        let id = NumberId(u32::try_from(self.entries.len()).expect("fewer than 2^32 numbers"));
        self.known.insert(object.as_ptr() as usize, id);
        let object = object.clone().unbind();
        let entry = Entry { number, made, node: None, stack, outside, operand: None, object };
        self.entries.push(entry);
        id
    }

    /// The integer that a node stands for.
    pub fn integer_of(&self, node: NodeId) -> Option<ExprId> {
        let entry = self.entries.iter().find(|entry| entry.node == Some(node))?;
        match entry.number {
            Number::Integer(expr) => Some(expr),
            Number::Float(_) | Number::Read(_) => None,
        }
    }

    /// Where each symbol is found.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Where the graph takes sizes in: the placeholder's position, and the symbol's.
    pub fn inputs(&self) -> &[(usize, usize)] {
        &self.inputs
    }

    pub fn add_slot(&mut self, slot: Slot, name: String, is_named: bool) {
        let number = self.numbers.iter().flatten().count() as u32;
        self.slots.push(slot);
        self.names.push(name);
        self.numbers.push(is_named.then_some(number));
    }

    /// The source of the number that a dictionary's slot held at the start.
    pub fn slot_source(&self, slot: FrameSlot) -> Option<SourceId> {
        self.slot_sources.get(&slot).copied()
    }

    /// A dictionary's slot holds a number that is a symbol.
    pub fn add_slot_source(&mut self, slot: FrameSlot, source: SourceId) {
        self.slot_sources.insert(slot, source);
    }

    pub fn is_open(&mut self, id: NumberId) -> bool {
        let number = match (self.entry(id).number, self.read_expr(id)) {
            (Number::Read(_), Some(expr)) => Number::Integer(expr),
            (number, _) => number,
        };
        self.is_open_number(number)
    }

    /// Whether facts leave more than one value.
    pub fn is_open_number(&mut self, number: Number) -> bool {
        match number {
            Number::Integer(expr) => {
                let expr = self.context.simplify(expr);
                self.context.as_constant(expr).is_none()
            }
            Number::Float(float) => self.context.as_float_constant(float).is_none(),
            Number::Read(_) => true,
        }
    }

    /// A condition in terms of `s0`, `s1`, ...
    pub fn print(&self, condition: CondId) -> String {
        self.context.display_cond(condition, Style::Math, &|symbol| self.short(symbol).into())
    }

    /// How a symbol prints in logs.
    pub fn short(&self, symbol: SymbolId) -> String {
        self.short_name(symbol.index())
    }

    /// The same, of a slot's symbol.
    pub fn short_name(&self, slot: usize) -> String {
        match self.numbers.get(slot).copied().flatten() {
            Some(number) => format!("s{number}"),
            None => self.names.get(slot).cloned().unwrap_or_default(),
        }
    }

    /// Remembers which line fixed the symbols that users marked.
    pub fn note_fixed(&mut self, line: &str) {
        for marked in &mut self.marked {
            if marked.fixed.is_none() {
                let expr = self.context.simplify(marked.expr);
                if self.context.as_constant(expr).is_some() {
                    marked.fixed = Some(line.to_string());
                }
            }
        }
    }

    /// What of the marks wasn't kept: the size, and why.
    pub fn broken_mark(&self) -> Option<(String, String)> {
        let broken = self.marked.iter().find(|marked| marked.fixed.is_some())?;
        Some((broken.name.clone(), broken.fixed.clone().unwrap_or_default()))
    }

    /// A marked size of which hardly another one is admitted than that of the recorded call: there are as many
    /// pieces of it as a list has.
    pub fn narrowed_mark(&mut self) -> Option<String> {
        let Self { marked, context, .. } = self;
        let found = marked.iter().find(|marked| {
            let (hint, admitted) = (context.hint(marked.expr), context.interval(marked.expr));
            admitted.lo > hint / 2 && admitted.hi < hint.saturating_mul(2)
        })?;
        Some(found.name.clone())
    }

    /// Whether data decides an integer.
    pub fn is_data_sized(&self, expr: ExprId) -> bool {
        !self.data_sizes.numbers.is_empty()
            && self.context.symbols_of(expr).iter().any(|symbol| self.is_of_data(*symbol))
    }

    /// Whether a symbol is a size that data decides.
    pub fn is_of_data(&self, symbol: SymbolId) -> bool {
        self.data_sizes.numbers.contains_key(&symbol)
    }

    /// Whether a condition speaks of sizes that data decides.
    pub fn asks_data(&self, context: &Context, condition: CondId) -> bool {
        !self.data_sizes.numbers.is_empty()
            && context.symbols_in(condition).iter().any(|symbol| self.is_of_data(*symbol))
    }

    /// The expression of a number that was read, as far as it has one.
    pub fn read_expr(&self, id: NumberId) -> Option<ExprId> {
        self.data_sizes.exprs.get(&id).copied()
    }

    /// Whether data decides the number of anything in this trace.
    pub fn has_data_sizes(&self) -> bool {
        !self.data_sizes.numbers.is_empty()
    }

    /// The sizes of a tensor in simpler terms; those that no data decides stay so.
    pub fn simple_size(&mut self, size: ExprId) -> ExprId {
        let simple = self.context.simplify(size);
        if self.is_data_sized(simple) && !self.is_data_sized(size) { size } else { simple }
    }
}

//! Which sizes and numbers a trace takes as symbols: what the user asked for, and what earlier traces
//! that began at the same place found to change.

use std::rc::Rc;

use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_cpython::object::{Borrowed, references};

/// What decides over one trace.
#[derive(Clone, Default)]
pub struct Policy {
    /// `stator.compile`'s `dynamic`: everything, nothing, or what has changed.
    pub dynamic: Option<bool>,
    /// Whether another backend gets the graph. Strides stay as they are then where they don't follow from sizes: what is made
    /// reads memory as it lay when that was made.
    is_for_compiler: bool,
    history: Rc<History>,
    carried: Rc<Carried>,
}

/// What earlier traces found, by the printed source.
#[derive(Debug, Default)]
pub struct History {
    numbers: FxHashMap<String, Vec<Seen>>,
    tensors: FxHashMap<String, Vec<Dims>>,
    lengths: FxHashMap<String, Vec<usize>>,
    /// Whether one of the traces has symbols: what it took to be equal may differ.
    has_symbols: bool,
}

/// A number, as a trace took it.
#[derive(Debug)]
pub enum Seen {
    /// A constant.
    Integer(i64),
    /// A constant.
    Float(f64),
    /// A symbol.
    Symbol,
}

/// A tensor's sizes and strides, as a trace took them; `None`: any.
#[derive(Debug)]
pub struct Dims {
    /// Sizes.
    pub sizes: Box<[Option<i64>]>,
    /// Strides.
    pub strides: Box<[Option<i64>]>,
}

/// One for each dimension.
pub type Flags = SmallVec<[bool; 6]>;

/// What was symbolic when the trace before this one ended, by address.
#[derive(Debug, Default)]
pub struct Carried {
    /// Numbers: objects of their own, kept as such.
    pub numbers: FxHashMap<usize, Py<PyAny>>,
    /// Tensors, and which of their sizes.
    pub tensors: FxHashMap<usize, Flags>,
    /// Objects that traces of this call made for numbers, symbols still or not, each with that which plain Python
    /// would have there.
    pub plain: FxHashMap<usize, (Py<PyAny>, Py<PyAny>)>,
}

impl Carried {
    /// What plain Python would have in the place of an object that a trace made for a number.
    #[must_use]
    pub fn plain_of(&self, number: Borrowed<'_, '_>) -> Option<&Py<PyAny>> {
        self.plain.get(&(number.as_ptr() as usize)).map(|(_, plain)| plain)
    }

    /// Forgets what nobody else holds: a loop makes such objects in each round.
    pub fn forget_dead(&mut self, py: Python<'_>) {
        self.plain.retain(|_, (own, _)| references(own.bind_borrowed(py)) > 1);
    }

    /// Remembers also what plain Python would have in the places of these.
    pub fn add_plain(&mut self, py: Python<'_>, others: &Self) {
        let pairs = others.plain.iter();
        self.plain.extend(
            pairs.map(|(address, (own, plain))| {
                (*address, (own.clone_ref(py), plain.clone_ref(py)))
            }),
        );
    }

    /// What of it a trace has to know that takes nothing as a symbol.
    #[must_use]
    pub fn without_symbols(self) -> Self {
        Self { plain: self.plain, ..Self::default() }
    }
}

impl History {
    /// A trace took a number so.
    pub fn add_number(&mut self, source: String, seen: Seen) {
        self.has_symbols |= matches!(seen, Seen::Symbol);
        self.numbers.entry(source).or_default().push(seen);
    }

    /// A trace guards that a container is so long.
    pub fn add_length(&mut self, source: String, length: usize) {
        self.lengths.entry(source).or_default().push(length);
    }

    /// A trace took a tensor so.
    pub fn add_tensor(&mut self, source: String, dims: Dims) {
        self.has_symbols |= dims.sizes.iter().any(Option::is_none);
        self.tensors.entry(source).or_default().push(dims);
    }
}

impl Policy {
    /// The policy for a new trace beside those that `history` tells of.
    pub fn new(dynamic: Option<bool>, history: History) -> Self {
        Self { dynamic, history: Rc::new(history), ..Self::default() }
    }

    /// The policy for a tensor program: symbols are what is declared, and nothing is taken to be equal
    /// because it is at hand.
    pub fn for_program() -> Self {
        let history = History { has_symbols: true, ..History::default() };
        Self { dynamic: Some(false), history: Rc::new(history), ..Self::default() }
    }

    /// The same, for a trace behind a graph break.
    #[must_use]
    pub fn carrying(mut self, carried: Carried) -> Self {
        self.carried = Rc::new(carried);
        self
    }

    /// The same, for a graph that another backend gets.
    #[must_use]
    pub const fn for_compiler(mut self, is_for_compiler: bool) -> Self {
        self.is_for_compiler = is_for_compiler;
        self
    }

    /// Whether another backend gets the graph.
    #[must_use]
    pub const fn is_for_compiler(&self) -> bool {
        self.is_for_compiler
    }

    /// As [`Carried::plain_of`], of numbers of an earlier trace of this call.
    pub fn plain_of(&self, number: Borrowed<'_, '_>) -> Option<&Py<PyAny>> {
        self.carried.plain_of(number)
    }

    /// Whether no earlier trace of this call has made objects for numbers.
    pub fn has_no_plain(&self) -> bool {
        self.carried.plain.is_empty()
    }

    /// Whether nothing but marks on tensors can make a symbol.
    pub fn is_static(&self) -> bool {
        self.dynamic != Some(true)
            && self.history.numbers.is_empty()
            && self.history.tensors.is_empty()
            && self.carried.numbers.is_empty()
            && self.carried.tensors.is_empty()
    }

    /// Whether symbols of equal sizes may be taken for one: not where that has failed before.
    pub fn ducks(&self) -> bool {
        !self.history.has_symbols
    }

    /// Whether a number is a symbol. `is_root`: it's an argument, or a local variable at a break.
    pub fn takes_number(
        &self,
        number: Borrowed<'_, '_>,
        value: f64,
        is_root: bool,
        source: impl FnOnce() -> String,
    ) -> bool {
        match self.dynamic {
            Some(false) => return false,
            Some(true) if is_root => return true,
            _ => {}
        }
        if self.carried.numbers.contains_key(&(number.as_ptr() as usize)) {
            return true;
        }
        if self.history.numbers.is_empty() {
            return false;
        }
        let Some(seen) = self.history.numbers.get(&source()) else { return false };
        seen.iter().any(|seen| match *seen {
            Seen::Symbol => true,
            Seen::Integer(before) => before as f64 != value,
            Seen::Float(before) => before.to_bits() != value.to_bits(),
        })
    }

    /// Whether a list has been found to be of two other lengths before: it grows, or shrinks.
    pub fn takes_length(&self, length: usize, source: impl FnOnce() -> String) -> bool {
        if self.dynamic == Some(false) || self.history.lengths.is_empty() {
            return false;
        }
        let Some(seen) = self.history.lengths.get(&source()) else { return false };
        let mut others = seen.iter().filter(|before| **before != length);
        let Some(first) = others.next() else { return false };
        others.any(|before| before != first)
    }

    /// Whether a number was a symbol of the trace before this one: its object is its own.
    pub fn carries(&self, number: Borrowed<'_, '_>) -> bool {
        self.carried.numbers.contains_key(&(number.as_ptr() as usize))
    }

    /// Which sizes of a tensor are symbols, and which strides have been seen to differ.
    pub fn takes_sizes(
        &self,
        tensor: Borrowed<'_, '_>,
        sizes: &[i64],
        strides: &[i64],
        source: impl FnOnce() -> String,
    ) -> Option<(Flags, Flags)> {
        let rank = sizes.len();
        let mut taken = SmallVec::from_elem(self.dynamic == Some(true), rank);
        let mut loose = SmallVec::from_elem(false, rank);
        if self.dynamic == Some(false) {
            return None;
        }
        if let Some(carried) = self.carried.tensors.get(&(tensor.as_ptr() as usize)) {
            for (taken, carried) in taken.iter_mut().zip(carried) {
                *taken |= carried;
            }
        }
        if !self.history.tensors.is_empty()
            && let Some(seen) = self.history.tensors.get(&source())
        {
            for dims in seen.iter().filter(|dims| dims.sizes.len() == rank) {
                for index in 0..rank {
                    taken[index] |= dims.sizes[index] != Some(sizes[index]);
                    let before = dims.strides.get(index).copied().flatten();
                    loose[index] |= !self.is_for_compiler
                        && before.is_some_and(|before| before != strides[index]);
                }
            }
        }
        (taken.contains(&true) || loose.contains(&true)).then_some((taken, loose))
    }
}

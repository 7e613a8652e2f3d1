//! The symbols, expressions and conditions of one trace.

use rustc_hash::FxHashMap;

use crate::condition::Condition;
use crate::float::FloatNode;
use crate::interval::Interval;
use crate::knowledge::Knowledge;
use crate::poly::{Atom, Poly};
use crate::{CondId, Error, ExprId, FloatId, Result, Rounding, SymbolId};

/// The largest expression that is built, counted as the symbols and operations that it prints.
/// Whoever needs a larger one specialises.
pub const MAX_SIZE: u32 = 1000;

/// How deep opaque terms (quotients, rests, minima, ...) may be nested in each other.
pub const MAX_DEPTH: u32 = 48;

/// The upper bound of sizes, and the one to give to integers without bounds of their own: below it
/// floats are exact, and sums and small multiples stay within 64 bits. It is checked, but it isn't
/// printed among the guards.
pub const SIZE_LIMIT: i64 = 1 << 52;

/// An integer expression in normal form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Node {
    /// A polynomial that is no single atom: also the constants.
    Poly(Poly),
    Symbol(SymbolId),
    FloorDiv(ExprId, ExprId),
    Mod(ExprId, ExprId),
    /// Two or more, sorted, different.
    Min(Box<[ExprId]>),
    /// Two or more, sorted, different.
    Max(Box<[ExprId]>),
    Abs(ExprId),
    Round(Rounding, FloatId),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Facets {
    pub(crate) hint: Option<i64>,
    pub(crate) size: u32,
    pub(crate) depth: u32,
    /// No symbol and no float is in it.
    pub(crate) constant: bool,
    /// Only polynomials of symbols.
    pub(crate) plain: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SymbolData {
    pub(crate) duck: Option<Duck>,
    /// The expression that is the symbol; None for floats.
    pub(crate) expr: Option<ExprId>,
}

/// Which symbols are one if their hints are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duck(pub u8);

impl Duck {
    /// Sizes of tensors, and what is unified with them.
    pub const SIZE: Duck = Duck(0);
}

/// A new symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The slot that it stands for.
    pub id: SymbolId,
    /// What to compute with: another symbol, if it was unified with that.
    pub expr: ExprId,
}

/// The symbols and expressions of one trace, and what the trace has assumed of them. Plain data.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub(crate) symbols: Vec<SymbolData>,
    /// The first symbol of each kind and hint.
    ducks: FxHashMap<(Duck, i64), ExprId>,
    nodes: Vec<Node>,
    facets: Vec<Facets>,
    ids: FxHashMap<Node, ExprId>,
    pub(crate) floats: Vec<FloatNode>,
    pub(crate) float_hints: Vec<f64>,
    /// Size and depth.
    pub(crate) float_sizes: Vec<(u32, u32)>,
    pub(crate) float_ids: FxHashMap<FloatNode, FloatId>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) condition_hints: Vec<bool>,
    pub(crate) condition_ids: FxHashMap<Condition, CondId>,
    pub(crate) known: Knowledge,
    /// The facts, as they were assumed: ranges and equalities of symbols too.
    pub(crate) log: Vec<CondId>,
    /// Facts that nobody has asked for since [`Context::take_added`].
    pub(crate) added: Vec<CondId>,
}

impl Context {
    /// A context without symbols.
    pub fn new() -> Self {
        Self::default()
    }

    /// A symbol for an integer that was `hint` in the recorded call and that is in `range`, both
    /// ends included, whenever the trace is used. With `duck`, it is the symbol of the same kind and
    /// hint, if there is one, and a guard says so.
    ///
    /// # Panics
    /// If the hint isn't in the range.
    pub fn symbol(&mut self, hint: i64, range: (i64, i64), duck: Option<Duck>) -> Symbol {
        let range = Interval::new(range.0, range.1);
        assert!(range.contains(hint), "the hint {hint} isn't in {range:?}");
        let id = SymbolId::new(self.symbols.len());
        let own = self.push_unique(Node::Symbol(id), Some(hint), 1, 0, false, true);
        self.symbols.push(SymbolData { duck, expr: Some(own) });
        let first = duck.map(|duck| *self.ducks.entry((duck, hint)).or_insert(own));
        let expr = match first {
            Some(first) if first != own => {
                // Both sides are plain symbols: neither fails.
                let equal = self.int_condition(crate::Cmp::Eq, own, first);
                self.declare(equal);
                first
            }
            _ => own,
        };
        self.declare_range(own, range);
        Symbol { id, expr: self.simplify(expr) }
    }

    /// A symbol for a size: from 2 to [`SIZE_LIMIT`], one with others of the same hint.
    ///
    /// # Panics
    /// If the hint isn't in that range: sizes of 0 and 1 are never symbols.
    pub fn size_symbol(&mut self, hint: i64) -> Symbol {
        self.symbol(hint, (2, SIZE_LIMIT), Some(Duck::SIZE))
    }

    /// A symbol for an integer of the program: it may be negative. Beyond [`SIZE_LIMIT`] it has
    /// no bounds.
    pub fn int_symbol(&mut self, hint: i64) -> Symbol {
        let range = if (-SIZE_LIMIT..=SIZE_LIMIT).contains(&hint) {
            (-SIZE_LIMIT, SIZE_LIMIT)
        } else {
            (i64::MIN, i64::MAX)
        };
        self.symbol(hint, range, None)
    }

    /// How many symbols there are, floats and unified ones too.
    pub fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// Whether the symbol is a float.
    pub fn is_float(&self, symbol: SymbolId) -> bool {
        self.symbols[symbol.index()].expr.is_none()
    }

    /// The kind by which the symbol was unified with others.
    pub fn duck_of(&self, symbol: SymbolId) -> Option<Duck> {
        self.symbols[symbol.index()].duck
    }

    /// A constant.
    pub fn constant(&mut self, value: i64) -> ExprId {
        self.push(Node::Poly(Poly::constant(value)), Some(value), 1, 0, true, true)
    }

    /// The value of an expression that doesn't vary.
    pub fn as_constant(&self, e: ExprId) -> Option<i64> {
        match &self.nodes[e.index()] {
            Node::Poly(poly) => poly.as_constant(),
            _ => None,
        }
    }

    /// The symbol that the expression is.
    pub fn as_symbol(&self, e: ExprId) -> Option<SymbolId> {
        match self.nodes[e.index()] {
            Node::Symbol(symbol) => Some(symbol),
            _ => None,
        }
    }

    /// The expression's value in the recorded call.
    pub fn hint(&self, e: ExprId) -> i64 {
        self.facets[e.index()].hint.expect("expressions without hint don't leave the crate")
    }

    pub(crate) fn node(&self, e: ExprId) -> &Node {
        &self.nodes[e.index()]
    }

    pub(crate) fn facets(&self, e: ExprId) -> Facets {
        self.facets[e.index()]
    }

    pub(crate) fn symbol_expr(&self, symbol: SymbolId) -> ExprId {
        self.symbols[symbol.index()].expr.expect("a symbol of integers")
    }

    /// The expression as a polynomial; opaque terms are atoms of it.
    pub(crate) fn poly(&self, e: ExprId) -> Poly {
        match self.node(e) {
            Node::Poly(poly) => poly.clone(),
            Node::Symbol(symbol) => Poly::atom(Atom::symbol(*symbol)),
            _ => Poly::atom(Atom::opaque(e)),
        }
    }

    pub(crate) fn atom_expr(&self, atom: Atom) -> ExprId {
        match (atom.as_symbol(), atom.as_opaque()) {
            (Some(symbol), _) => self.symbol_expr(symbol),
            (None, opaque) => opaque.expect("an atom is a symbol or opaque"),
        }
    }

    /// The polynomial as an expression.
    pub(crate) fn intern_poly(&mut self, poly: Poly) -> Result<ExprId> {
        let hint = self.poly_hint(&poly)?;
        self.intern_poly_with(poly, Some(hint))
    }

    /// Also where the hint leaves 64 bits, for expressions that only serve decisions.
    pub(crate) fn intern_poly_unhinted(&mut self, poly: Poly) -> Option<ExprId> {
        let hint = self.poly_hint(&poly).ok();
        self.intern_poly_with(poly, hint).ok()
    }

    fn intern_poly_with(&mut self, poly: Poly, hint: Option<i64>) -> Result<ExprId> {
        if let Some(atom) = poly.as_atom() {
            return Ok(self.atom_expr(atom));
        }
        let (mut size, mut depth, mut plain) = (0u32, 0, true);
        for term in &poly.terms {
            size += 1;
            for &(atom, power) in &term.factors {
                let facets = self.facets(self.atom_expr(atom));
                size = size.saturating_add(facets.size).saturating_add(power - 1);
                depth = depth.max(facets.depth);
                plain &= facets.plain;
            }
        }
        if size > MAX_SIZE {
            return Err(Error::TooComplex);
        }
        let constant = poly.as_constant().is_some();
        Ok(self.push(Node::Poly(poly), hint, size, depth, constant, plain))
    }

    /// Computed in the order in which programs compute it, so that a program gets as far.
    fn poly_hint(&self, poly: &Poly) -> Result<i64> {
        let mut sum = 0i64;
        for (i, term) in poly.terms.iter().enumerate() {
            let mut product = term.coefficient;
            for (j, &(atom, power)) in term.factors.iter().enumerate() {
                let value = self.facets(self.atom_expr(atom)).hint.ok_or(Error::Overflow)?;
                let value = value.checked_pow(power).ok_or(Error::Overflow)?;
                product = if j == 0 && product == 1 {
                    value
                } else {
                    product.checked_mul(value).ok_or(Error::Overflow)?
                };
            }
            sum = if i == 0 { product } else { sum.checked_add(product).ok_or(Error::Overflow)? };
        }
        Ok(sum)
    }

    /// An opaque term over expressions that were resolved.
    pub(crate) fn opaque(
        &mut self,
        node: Node,
        over: &[ExprId],
        hint: impl FnOnce(&[i64]) -> Result<i64>,
    ) -> Result<ExprId> {
        if let Some(&id) = self.ids.get(&node) {
            return Ok(id);
        }
        let (mut size, mut depth) = (1u32, 0);
        let mut hints = Vec::with_capacity(over.len());
        let mut hinted = true;
        for &operand in over {
            let facets = self.facets(operand);
            size = size.saturating_add(facets.size);
            depth = depth.max(facets.depth);
            match facets.hint {
                Some(hint) => hints.push(hint),
                None => hinted = false,
            }
        }
        if size > MAX_SIZE || depth >= MAX_DEPTH {
            return Err(Error::TooComplex);
        }
        let hint = if hinted { Some(hint(&hints)?) } else { None };
        Ok(self.push(node, hint, size, depth + 1, false, false))
    }

    /// A term over a float.
    pub(crate) fn rounded(&mut self, node: Node, hint: i64, size: u32, depth: u32) -> ExprId {
        self.push(node, Some(hint), size, depth, false, false)
    }

    fn push(
        &mut self,
        node: Node,
        hint: Option<i64>,
        size: u32,
        depth: u32,
        constant: bool,
        plain: bool,
    ) -> ExprId {
        match self.ids.get(&node) {
            Some(&id) => id,
            None => self.push_unique(node, hint, size, depth, constant, plain),
        }
    }

    fn push_unique(
        &mut self,
        node: Node,
        hint: Option<i64>,
        size: u32,
        depth: u32,
        constant: bool,
        plain: bool,
    ) -> ExprId {
        let id = ExprId::new(self.nodes.len());
        self.nodes.push(node.clone());
        self.facets.push(Facets { hint, size, depth, constant, plain });
        self.ids.insert(node, id);
        id
    }

    /// How many facts there are.
    pub fn fact_count(&self) -> usize {
        self.log.len()
    }

    /// The facts that were added since this was asked last, in order: those of
    /// [`Context::evaluate`], and those that building an expression needed (a divisor isn't zero).
    pub fn take_added(&mut self) -> Vec<CondId> {
        std::mem::take(&mut self.added)
    }
}

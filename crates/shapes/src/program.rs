//! Guards and expressions compiled for calls: plain data, no context needed.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::arith;
use crate::condition::Condition;
use crate::context::Node;
use crate::float::FloatNode;
use crate::poly::Poly;
use crate::{Cmp, CondId, Context, ExprId, Fact, FloatId, FloatOp, FloatUnary, Rounding, SymbolId};

/// An operation on two stacks, one of integers (conditions among them: 0 or 1) and one of floats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Op {
    Constant(i64),
    Slot(u32),
    Add,
    Mul,
    MulBy(i64),
    AddTo(i64),
    Pow(u32),
    FloorDiv,
    Mod,
    Min,
    Max,
    Abs,
    Compare(Cmp),
    And,
    Or,
    Not,
    Float(f64),
    FloatSlot(u32),
    FromInt,
    TrueDiv,
    Unary(FloatUnary),
    Binary(FloatOp),
    CompareFloats(Cmp),
    SameBits(u64),
    Round(Rounding),
}

/// A guard, the common ones without code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Check {
    Range {
        slot: u32,
        lo: i64,
        hi: i64,
    },
    Equal {
        slot: u32,
        other: u32,
    },
    /// `slot % modulus == rest`, the modulus positive.
    Rest {
        slot: u32,
        modulus: i64,
        rest: i64,
    },
    Code(Box<[Op]>),
}

/// Guards on the integers and floats of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    checks: Box<[Check]>,
    /// For each check the facts that it comes from: for ranges the lower and the upper bound's.
    facts: Box<[(u32, u32)]>,
}

/// An integer expression, computed from the integers and floats of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ExprProgram {
    code: Box<[Op]>,
}

/// A float expression, computed from the integers and floats of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatProgram {
    code: Box<[Op]>,
}

impl Program {
    /// Whether all guards hold. Where the arithmetic leaves 64 bits, divides by zero, or a slot is
    /// missing, they don't.
    pub fn check(&self, slots: &[i64], floats: &[f64]) -> bool {
        self.checks.iter().all(|check| check.holds(slots, floats).unwrap_or(false))
    }

    /// The place of a guard that doesn't hold in the list that was compiled; for messages.
    pub fn first_failing(&self, slots: &[i64], floats: &[f64]) -> Option<usize> {
        let at =
            self.checks.iter().position(|check| !check.holds(slots, floats).unwrap_or(false))?;
        let (lower, upper) = self.facts[at];
        let above = matches!(self.checks[at], Check::Range { slot, hi, .. }
            if slots.get(slot as usize).is_some_and(|&value| value > hi));
        Some(if above { upper } else { lower } as usize)
    }

    /// Whether every call passes.
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty()
    }
}

impl Check {
    #[inline]
    fn holds(&self, slots: &[i64], floats: &[f64]) -> Option<bool> {
        let slot = |slot: u32| slots.get(slot as usize).copied();
        Some(match self {
            &Check::Range { slot: at, lo, hi } => {
                let value = slot(at)?;
                lo <= value && value <= hi
            }
            &Check::Equal { slot: at, other } => slot(at)? == slot(other)?,
            &Check::Rest { slot: at, modulus, rest } => slot(at)?.rem_euclid(modulus) == rest,
            Check::Code(code) => run(code, slots, floats)?.0 != 0,
        })
    }
}

impl ExprProgram {
    /// The value; None where the arithmetic leaves 64 bits or Python would raise.
    pub fn eval(&self, slots: &[i64], floats: &[f64]) -> Option<i64> {
        match self.code[..] {
            [Op::Slot(slot)] => slots.get(slot as usize).copied(),
            [Op::Constant(value)] => Some(value),
            _ => run(&self.code, slots, floats).map(|(integer, _)| integer),
        }
    }

    /// The value that it has whatever the slots are.
    pub fn as_constant(&self) -> Option<i64> {
        match self.code[..] {
            [Op::Constant(value)] => Some(value),
            _ => None,
        }
    }

    /// The slot that it is.
    pub fn as_slot(&self) -> Option<usize> {
        match self.code[..] {
            [Op::Slot(slot)] => Some(slot as usize),
            _ => None,
        }
    }
}

impl FloatProgram {
    /// The value; None where Python would raise.
    pub fn eval(&self, slots: &[i64], floats: &[f64]) -> Option<f64> {
        run(&self.code, slots, floats).map(|(_, float)| float)
    }
}

/// The tops of both stacks at the end; the default for the one that is empty.
#[allow(clippy::cast_precision_loss)]
fn run(code: &[Op], slots: &[i64], float_slots: &[f64]) -> Option<(i64, f64)> {
    let mut integers: SmallVec<[i64; 16]> = SmallVec::new();
    let mut floats: SmallVec<[f64; 4]> = SmallVec::new();
    for op in code {
        let value = match *op {
            Op::Constant(value) => value,
            Op::Slot(slot) => *slots.get(slot as usize)?,
            Op::MulBy(by) => integers.pop()?.checked_mul(by)?,
            Op::AddTo(by) => integers.pop()?.checked_add(by)?,
            Op::Pow(power) => integers.pop()?.checked_pow(power)?,
            Op::Abs => integers.pop()?.checked_abs()?,
            Op::Not => 1 - integers.pop()?,
            Op::Add
            | Op::Mul
            | Op::FloorDiv
            | Op::Mod
            | Op::Min
            | Op::Max
            | Op::Compare(_)
            | Op::And
            | Op::Or => {
                let (b, a) = (integers.pop()?, integers.pop()?);
                match *op {
                    Op::Add => a.checked_add(b)?,
                    Op::Mul => a.checked_mul(b)?,
                    Op::FloorDiv => arith::floor_div(a, b).ok()?,
                    Op::Mod => arith::modulo(a, b).ok()?,
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Compare(cmp) => cmp.holds(a, b).into(),
                    Op::And => a & b,
                    _ => a | b,
                }
            }
            Op::CompareFloats(cmp) => {
                let (b, a) = (floats.pop()?, floats.pop()?);
                cmp.holds(a, b).into()
            }
            Op::SameBits(bits) => (floats.pop()?.to_bits() == bits).into(),
            Op::Round(rounding) => rounding.round(floats.pop()?).ok()?,
            Op::Float(_)
            | Op::FloatSlot(_)
            | Op::FromInt
            | Op::TrueDiv
            | Op::Unary(_)
            | Op::Binary(_) => {
                let float = match *op {
                    Op::Float(value) => value,
                    Op::FloatSlot(slot) => *float_slots.get(slot as usize)?,
                    Op::FromInt => integers.pop()? as f64,
                    Op::TrueDiv => {
                        let (b, a) = (integers.pop()?, integers.pop()?);
                        arith::true_div(a, b).ok()?
                    }
                    Op::Unary(unary) => unary.apply(floats.pop()?).ok()?,
                    Op::Binary(binary) => {
                        let (b, a) = (floats.pop()?, floats.pop()?);
                        binary.apply(a, b).ok()?
                    }
                    _ => return None,
                };
                floats.push(float);
                continue;
            }
        };
        integers.push(value);
    }
    Some((integers.pop().unwrap_or_default(), floats.pop().unwrap_or_default()))
}

/// Where a symbol's value stands at a call: among the integers, or among the floats.
type SlotOf<'a> = &'a dyn Fn(SymbolId) -> usize;

struct Compiler<'a> {
    context: &'a Context,
    slot_of: SlotOf<'a>,
    code: Vec<Op>,
}

impl Context {
    /// The guards as a program. `slot_of` says at which place a symbol's value is handed over: of
    /// the integers' for those, of the floats' for floats.
    pub fn compile(&self, facts: &[Fact], slot_of: SlotOf<'_>) -> Program {
        let mut checks: Vec<(Check, (u32, u32))> = Vec::with_capacity(facts.len());
        for (place, fact) in facts.iter().enumerate() {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            let check = self.compile_check(fact.cond, slot_of);
            // Bounds of one slot are one check.
            if let Check::Range { slot, lo, hi } = check {
                let old = checks.iter_mut().find_map(|(check, places)| match check {
                    Check::Range { slot: other, lo, hi } if *other == slot => {
                        Some((lo, hi, places))
                    }
                    _ => None,
                });
                if let Some((old_lo, old_hi, places)) = old {
                    if lo > *old_lo {
                        (*old_lo, places.0) = (lo, place);
                    }
                    if hi < *old_hi {
                        (*old_hi, places.1) = (hi, place);
                    }
                    continue;
                }
            }
            checks.push((check, (place, place)));
        }
        // The cheap ones first.
        checks.sort_by_key(|(check, _)| matches!(check, Check::Code(_)));
        let (checks, facts): (Vec<Check>, Vec<(u32, u32)>) = checks.into_iter().unzip();
        Program { checks: checks.into_boxed_slice(), facts: facts.into_boxed_slice() }
    }

    /// The integer expression as a program.
    pub fn compile_expr(&self, e: ExprId, slot_of: SlotOf<'_>) -> ExprProgram {
        let mut compiler = Compiler { context: self, slot_of, code: Vec::new() };
        compiler.integer(e);
        ExprProgram { code: compiler.code.into_boxed_slice() }
    }

    /// The float expression as a program.
    pub fn compile_float(&self, f: FloatId, slot_of: SlotOf<'_>) -> FloatProgram {
        let mut compiler = Compiler { context: self, slot_of, code: Vec::new() };
        compiler.float(f);
        FloatProgram { code: compiler.code.into_boxed_slice() }
    }

    fn compile_check(&self, c: CondId, slot_of: SlotOf<'_>) -> Check {
        if let Condition::Int(op, a, b) = *self.condition(c)
            && let Some(check) = self.simple_check(op, a, b, slot_of)
        {
            return check;
        }
        let mut compiler = Compiler { context: self, slot_of, code: Vec::new() };
        compiler.condition(c);
        Check::Code(compiler.code.into_boxed_slice())
    }

    fn simple_check(&self, op: Cmp, a: ExprId, b: ExprId, slot_of: SlotOf<'_>) -> Option<Check> {
        let slot = |symbol: SymbolId| u32::try_from(slot_of(symbol)).ok();
        if let (Some(x), Some(y), Cmp::Eq) = (self.as_symbol(a), self.as_symbol(b), op) {
            return Some(Check::Equal { slot: slot(x)?, other: slot(y)? });
        }
        if let Some(check) = self.range_check(op, a, b, &slot) {
            return Some(check);
        }
        let value = self.as_constant(b)?;
        if let Node::Mod(x, k) = *self.node(a)
            && let (Some(symbol), Some(modulus), Cmp::Eq) =
                (self.as_symbol(x), self.as_constant(k).filter(|&k| k > 0), op)
        {
            return Some(Check::Rest { slot: slot(symbol)?, modulus, rest: value });
        }
        None
    }

    /// A comparison that bounds one symbol: `k * symbol + offset >= 0`.
    fn range_check(
        &self,
        op: Cmp,
        a: ExprId,
        b: ExprId,
        slot: &impl Fn(SymbolId) -> Option<u32>,
    ) -> Option<Check> {
        let (low, high, strict) = match op {
            Cmp::Le | Cmp::Eq => (a, b, 0),
            Cmp::Lt => (a, b, -1),
            Cmp::Ge => (b, a, 0),
            Cmp::Gt => (b, a, -1),
            Cmp::Ne => return None,
        };
        let difference = self.poly(high).sub(&self.poly(low)).ok()?;
        let [term] = difference.varying() else { return None };
        let symbol = term.as_atom()?.as_symbol()?;
        let offset = difference.constant_term().checked_add(strict)?;
        let k = term.coefficient;
        let (mut lo, mut hi) = (i64::MIN, i64::MAX);
        if op == Cmp::Eq {
            // Without an integer that solves it nothing passes.
            let solved = offset.checked_rem(k)? == 0;
            (lo, hi) = if solved { (-(offset / k), -(offset / k)) } else { (1, 0) };
        } else if k > 0 {
            lo = arith::floor_div(offset, k).ok()?.checked_neg()?;
        } else {
            hi = arith::floor_div(offset, k.checked_neg()?).ok()?;
        }
        Some(Check::Range { slot: slot(symbol)?, lo, hi })
    }
}

impl Compiler<'_> {
    fn slot(&self, symbol: SymbolId) -> u32 {
        // A slot beyond 32 bits is no slot: the program says no.
        u32::try_from((self.slot_of)(symbol)).unwrap_or(u32::MAX)
    }

    fn integer(&mut self, e: ExprId) {
        match self.context.node(e) {
            &Node::Symbol(symbol) => {
                let slot = self.slot(symbol);
                self.code.push(Op::Slot(slot));
            }
            Node::Poly(poly) => self.polynomial(poly),
            &Node::FloorDiv(a, b) => self.binary(a, b, Op::FloorDiv),
            &Node::Mod(a, b) => self.binary(a, b, Op::Mod),
            Node::Min(operands) => self.fold(operands, Op::Min),
            Node::Max(operands) => self.fold(operands, Op::Max),
            &Node::Abs(a) => {
                self.integer(a);
                self.code.push(Op::Abs);
            }
            &Node::Round(rounding, f) => {
                self.float(f);
                self.code.push(Op::Round(rounding));
            }
        }
    }

    fn binary(&mut self, a: ExprId, b: ExprId, op: Op) {
        self.integer(a);
        self.integer(b);
        self.code.push(op);
    }

    fn fold(&mut self, operands: &[ExprId], op: Op) {
        for (i, &operand) in operands.iter().enumerate() {
            self.integer(operand);
            if i > 0 {
                self.code.push(op);
            }
        }
    }

    /// In the order in which hints are computed.
    fn polynomial(&mut self, poly: &Poly) {
        if poly.terms.is_empty() {
            self.code.push(Op::Constant(0));
        }
        for (i, term) in poly.terms.iter().enumerate() {
            if term.is_constant() {
                let value = term.coefficient;
                self.code.push(if i == 0 { Op::Constant(value) } else { Op::AddTo(value) });
                continue;
            }
            for (j, &(atom, power)) in term.factors.iter().enumerate() {
                self.integer(self.context.atom_expr(atom));
                if power != 1 {
                    self.code.push(Op::Pow(power));
                }
                if j > 0 {
                    self.code.push(Op::Mul);
                } else if term.coefficient != 1 {
                    self.code.push(Op::MulBy(term.coefficient));
                }
            }
            if i > 0 {
                self.code.push(Op::Add);
            }
        }
    }

    fn float(&mut self, f: FloatId) {
        match self.context.floats[f.index()] {
            FloatNode::Constant(bits) => self.code.push(Op::Float(f64::from_bits(bits))),
            FloatNode::Symbol(symbol) => {
                let slot = self.slot(symbol);
                self.code.push(Op::FloatSlot(slot));
            }
            FloatNode::FromInt(a) => {
                self.integer(a);
                self.code.push(Op::FromInt);
            }
            FloatNode::TrueDiv(a, b) => self.binary(a, b, Op::TrueDiv),
            FloatNode::Unary(op, a) => {
                self.float(a);
                self.code.push(Op::Unary(op));
            }
            FloatNode::Binary(op, a, b) => {
                self.float(a);
                self.float(b);
                self.code.push(Op::Binary(op));
            }
        }
    }

    fn condition(&mut self, c: CondId) {
        match self.context.condition(c) {
            &Condition::Bool(value) => self.code.push(Op::Constant(value.into())),
            &Condition::Int(op, a, b) => self.binary(a, b, Op::Compare(op)),
            &Condition::Float(op, a, b) => {
                self.float(a);
                self.float(b);
                self.code.push(Op::CompareFloats(op));
            }
            &Condition::FloatIs(a, bits) => {
                self.float(a);
                self.code.push(Op::SameBits(bits));
            }
            Condition::And(parts) => self.junction(parts, Op::And),
            Condition::Or(parts) => self.junction(parts, Op::Or),
            &Condition::Not(inner) => {
                self.condition(inner);
                self.code.push(Op::Not);
            }
        }
    }

    fn junction(&mut self, parts: &[CondId], op: Op) {
        for (i, &part) in parts.iter().enumerate() {
            self.condition(part);
            if i > 0 {
                self.code.push(op);
            }
        }
    }
}

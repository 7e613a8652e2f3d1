//! An operation's arguments, as rules ask for them.

use super::registry::Signature;
use super::{Arg, Sizes, Unsupported, refuse};
use crate::{Cmp, Context, ExprId, FloatId, FloatOp, Rounding};

/// A call of an operation with a rule.
pub(super) struct Call<'a> {
    pub(super) ctx: &'a mut Context,
    pub(super) signature: &'a Signature,
    pub(super) bound: Vec<Option<Arg>>,
    pub(super) positional: &'a [Arg],
    pub(super) named: &'a [(&'a str, Arg)],
    /// The first argument is the result.
    pub(super) in_place: bool,
    /// Python called the right operand's method: `__rmatmul__`.
    pub(super) reflected: bool,
}

pub(super) type Attempt<T> = Result<T, Unsupported>;

impl Call<'_> {
    /// The argument, unless it is missing or `None`.
    pub(super) fn get(&self, name: &str) -> Option<&Arg> {
        let place = self
            .signature
            .parameters
            .iter()
            .position(|parameter| parameter.names.contains(&name))?;
        self.bound[place].as_ref().filter(|arg| !matches!(arg, Arg::None))
    }

    /// All tensors among the arguments, those in sequences as well.
    pub(super) fn tensors(&self) -> Vec<Sizes> {
        let named = self.named.iter().map(|(_, arg)| arg);
        self.positional
            .iter()
            .chain(named)
            .filter_map(|arg| match arg {
                Arg::Tensor { sizes, .. } => Some(sizes.clone()),
                _ => None,
            })
            .collect()
    }

    /// A tensor's sizes; those of a number are of no dimension.
    pub(super) fn tensor(&self, name: &str) -> Attempt<Sizes> {
        match self.get(name) {
            Some(Arg::Tensor { sizes, .. }) => Ok(sizes.clone()),
            Some(Arg::Int(_) | Arg::Float(_) | Arg::Bool(_)) => Ok(Sizes::new()),
            _ => refuse("an argument isn't a tensor"),
        }
    }

    /// A tensor that may be missing.
    pub(super) fn optional_tensor(&self, name: &str) -> Option<Sizes> {
        match self.get(name) {
            Some(Arg::Tensor { sizes, .. }) => Some(sizes.clone()),
            _ => None,
        }
    }

    pub(super) fn is_tensor(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Arg::Tensor { .. }))
    }

    /// The tensors in a sequence.
    pub(super) fn tensor_list(&self, name: &str) -> Attempt<Vec<Sizes>> {
        let Some(Arg::List(items) | Arg::Tuple(items)) = self.get(name) else {
            return refuse("an argument isn't a sequence of tensors");
        };
        items
            .iter()
            .map(|item| match item {
                Arg::Tensor { sizes, .. } => Ok(sizes.clone()),
                _ => refuse("an argument isn't a sequence of tensors"),
            })
            .collect()
    }

    pub(super) fn constant(&mut self, value: i64) -> ExprId {
        self.ctx.constant(value)
    }

    /// An integer expression.
    pub(super) fn expr_of(&mut self, arg: &Arg) -> Attempt<ExprId> {
        match arg {
            Arg::Int(e) => Ok(*e),
            Arg::Bool(value) => Ok(self.constant((*value).into())),
            _ => refuse("an argument isn't an integer"),
        }
    }

    /// An integer argument.
    pub(super) fn expr(&mut self, name: &str) -> Attempt<ExprId> {
        match self.get(name).cloned() {
            Some(arg) => self.expr_of(&arg),
            None => refuse("an integer is missing"),
        }
    }

    pub(super) fn expr_or(&mut self, name: &str, default: i64) -> Attempt<ExprId> {
        match self.get(name).cloned() {
            Some(arg) => self.expr_of(&arg),
            None => Ok(self.constant(default)),
        }
    }

    /// The value of an integer that rules branch on: it is specialised.
    pub(super) fn fixed(&mut self, e: ExprId) -> i64 {
        self.ctx.specialize(e);
        self.ctx.hint(e)
    }

    /// An integer argument such as a dimension, specialised.
    pub(super) fn int(&mut self, name: &str) -> Attempt<i64> {
        let e = self.expr(name)?;
        Ok(self.fixed(e))
    }

    pub(super) fn int_or(&mut self, name: &str, default: i64) -> Attempt<i64> {
        if self.get(name).is_none() { Ok(default) } else { self.int(name) }
    }

    pub(super) fn flag_or(&mut self, name: &str, default: bool) -> Attempt<bool> {
        match self.get(name).cloned() {
            None => Ok(default),
            Some(Arg::Bool(value)) => Ok(value),
            Some(Arg::Int(e)) => Ok(self.fixed(e) != 0),
            Some(_) => refuse("an argument isn't a truth value"),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Arg::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A sequence of integers; a single one counts as a sequence of one.
    pub(super) fn exprs(&mut self, name: &str) -> Attempt<Sizes> {
        match self.get(name).cloned() {
            Some(Arg::List(items) | Arg::Tuple(items)) => {
                items.iter().map(|item| self.expr_of(item)).collect()
            }
            Some(single) => Ok([self.expr_of(&single)?].into_iter().collect()),
            None => refuse("a sequence of integers is missing"),
        }
    }

    pub(super) fn ints(&mut self, name: &str) -> Attempt<Vec<i64>> {
        let exprs = self.exprs(name)?;
        Ok(exprs.into_iter().map(|e| self.fixed(e)).collect())
    }

    /// So many integers: one stands for all of them, none for the default.
    pub(super) fn each(&mut self, name: &str, count: usize, default: i64) -> Attempt<Sizes> {
        let given = match self.get(name) {
            None => [self.constant(default)].into_iter().collect(),
            Some(_) => self.exprs(name)?,
        };
        match given.len() {
            n if n == count => Ok(given),
            1 => Ok(std::iter::repeat_n(given[0], count).collect()),
            // An empty stride is the default.
            0 => {
                let default = self.constant(default);
                Ok(std::iter::repeat_n(default, count).collect())
            }
            _ => refuse("a sequence has another length than there are dimensions"),
        }
    }

    /// A float argument, or an integer as one.
    pub(super) fn float_of(&mut self, arg: &Arg) -> Attempt<FloatId> {
        match arg {
            Arg::Float(f) => Ok(*f),
            _ => {
                let e = self.expr_of(arg)?;
                Ok(self.ctx.float_from_int(e)?)
            }
        }
    }

    /// A dimension counted from either end.
    pub(super) fn wrap(dim: i64, rank: usize) -> Attempt<usize> {
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        let wrapped = if dim < 0 { dim + rank } else { dim };
        match usize::try_from(wrapped) {
            Ok(at) if wrapped < rank => Ok(at),
            _ => refuse("there is no such dimension"),
        }
    }

    /// A dimension of a tensor; tensors without dimensions have one, as PyTorch sees it.
    pub(super) fn dim(&mut self, name: &str, rank: usize) -> Attempt<usize> {
        let dim = self.int(name)?;
        Self::wrap(dim, rank.max(1))
    }

    pub(super) fn dim_or(&mut self, name: &str, default: i64, rank: usize) -> Attempt<usize> {
        let dim = self.int_or(name, default)?;
        Self::wrap(dim, rank.max(1))
    }

    /// The dimensions that are named; None if none are, which stands for all.
    pub(super) fn dims(&mut self, name: &str, rank: usize) -> Attempt<Option<Vec<usize>>> {
        if self.get(name).is_none() {
            return Ok(None);
        }
        let dims = self.ints(name)?;
        if dims.is_empty() {
            return Ok(None);
        }
        let dims: Attempt<Vec<usize>> =
            dims.into_iter().map(|dim| Self::wrap(dim, rank.max(1))).collect();
        dims.map(Some)
    }

    pub(super) fn add(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        Ok(self.ctx.add(a, b)?)
    }

    pub(super) fn sub(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        Ok(self.ctx.sub(a, b)?)
    }

    pub(super) fn mul(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        Ok(self.ctx.mul(a, b)?)
    }

    pub(super) fn plus(&mut self, a: ExprId, by: i64) -> Attempt<ExprId> {
        let by = self.constant(by);
        self.add(a, by)
    }

    pub(super) fn times(&mut self, a: ExprId, by: i64) -> Attempt<ExprId> {
        let by = self.constant(by);
        self.mul(a, by)
    }

    pub(super) fn floor_div(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        Ok(self.ctx.floordiv(a, b)?)
    }

    pub(super) fn ceil_div(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        Ok(self.ctx.ceildiv(a, b)?)
    }

    /// The quotient of what must be divisible.
    pub(super) fn exact_div(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        let zero = self.constant(0);
        let rest = self.ctx.modulus(a, b)?;
        self.require(Cmp::Eq, rest, zero, "a size isn't divisible")?;
        self.floor_div(a, b)
    }

    /// `floor(a * scale)`
    pub(super) fn scaled(&mut self, a: ExprId, scale: FloatId) -> Attempt<ExprId> {
        if let Some(value) = self.ctx.as_float_constant(scale)
            && value.fract() == 0.0
            && value.abs() < 1e9
        {
            #[allow(clippy::cast_possible_truncation)]
            return self.times(a, value as i64);
        }
        let a = self.ctx.float_from_int(a)?;
        let product = self.ctx.float_binary(FloatOp::Mul, a, scale)?;
        Ok(self.ctx.round(Rounding::Floor, product)?)
    }

    /// The product of all sizes.
    pub(super) fn numel(&mut self, sizes: &[ExprId]) -> Attempt<ExprId> {
        Ok(self.ctx.product(sizes)?)
    }

    /// Whether the comparison holds; a guard, unless it is known.
    pub(super) fn holds(&mut self, op: Cmp, a: ExprId, b: ExprId) -> bool {
        let c = self.ctx.compare(op, a, b);
        self.ctx.evaluate(c).value()
    }

    /// A precondition: it holds, as the operation has succeeded.
    pub(super) fn require(
        &mut self,
        op: Cmp,
        a: ExprId,
        b: ExprId,
        otherwise: &'static str,
    ) -> Attempt<()> {
        let c = self.ctx.compare(op, a, b);
        if !self.ctx.cond_hint(c) {
            return refuse(otherwise);
        }
        self.ctx.evaluate(c);
        Ok(())
    }

    /// A size that a number says: none is negative.
    pub(super) fn require_size(&mut self, size: ExprId) -> Attempt<()> {
        let zero = self.constant(0);
        self.require(Cmp::Ge, size, zero, "a negative size")
    }

    /// Two sizes that must be equal.
    pub(super) fn unify(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        if a != b {
            self.require(Cmp::Eq, a, b, "sizes that must be equal aren't")?;
        }
        Ok(self.ctx.simplify(a))
    }

    /// Tensors of equal sizes.
    pub(super) fn unify_all(&mut self, a: &Sizes, b: &Sizes) -> Attempt<Sizes> {
        if a.len() != b.len() {
            return refuse("tensors that must have as many dimensions haven't");
        }
        a.iter().zip(b).map(|(&a, &b)| self.unify(a, b)).collect()
    }

    /// The size of two that are equal, or of which one is 1.
    fn broadcast_size(&mut self, a: ExprId, b: ExprId) -> Attempt<ExprId> {
        if a == b {
            return Ok(a);
        }
        match (self.ctx.as_constant(a), self.ctx.as_constant(b)) {
            (Some(1), _) => return Ok(b),
            (_, Some(1)) => return Ok(a),
            _ => {}
        }
        let (x, y) = (self.ctx.hint(a), self.ctx.hint(b));
        let one = self.constant(1);
        if x == y {
            self.unify(a, b)
        } else if x == 1 {
            self.require(Cmp::Eq, a, one, "sizes don't broadcast")?;
            Ok(b)
        } else {
            self.require(Cmp::Eq, b, one, "sizes don't broadcast")?;
            Ok(a)
        }
    }

    /// The sizes of two tensors broadcast together.
    pub(super) fn broadcast(&mut self, a: &[ExprId], b: &[ExprId]) -> Attempt<Sizes> {
        let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
        let lead = long.len() - short.len();
        let mut sizes: Sizes = long[..lead].iter().copied().collect();
        for (&x, &y) in long[lead..].iter().zip(short) {
            sizes.push(self.broadcast_size(x, y)?);
        }
        Ok(sizes)
    }

    pub(super) fn broadcast_all(&mut self, all: &[Sizes]) -> Attempt<Sizes> {
        all.iter().try_fold(Sizes::new(), |sizes, next| self.broadcast(&sizes, next))
    }

    /// A tensor broadcast to sizes that don't change.
    pub(super) fn broadcast_to(&mut self, from: &[ExprId], to: &Sizes) -> Attempt<()> {
        if from.len() > to.len() {
            return refuse("sizes don't broadcast to the result's");
        }
        let all = self.broadcast(from, to)?;
        for (&size, &target) in all.iter().zip(to) {
            self.unify(size, target)?;
        }
        Ok(())
    }
}

//! Expressions taken apart, for who computes them elsewhere.

use crate::condition::Condition;
use crate::context::Node;
use crate::{Cmp, CondId, Context, ExprId, SymbolId};

/// An integer expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tree {
    /// A number.
    Constant(i64),
    /// A symbol.
    Symbol(SymbolId),
    /// A sum of two or more.
    Sum(Vec<Tree>),
    /// A product of two or more.
    Product(Vec<Tree>),
    /// A quotient, rounded down.
    FloorDiv(Box<(Tree, Tree)>),
    /// A rest, with the divisor's sign.
    Mod(Box<(Tree, Tree)>),
}

impl Context {
    /// A comparison of integers; `None`: the condition is another, or of what no [`Tree`] says.
    pub fn comparison(&self, c: CondId) -> Option<(Cmp, Tree, Tree)> {
        match *self.condition(c) {
            Condition::Int(op, a, b) => Some((op, self.tree(a)?, self.tree(b)?)),
            _ => None,
        }
    }

    /// An expression, taken apart; `None`: it holds a minimum, a maximum or a float.
    pub fn tree(&self, e: ExprId) -> Option<Tree> {
        Some(match self.node(e) {
            Node::Symbol(symbol) => Tree::Symbol(*symbol),
            Node::Poly(poly) => {
                let mut sum = Vec::with_capacity(poly.terms.len());
                for term in &poly.terms {
                    let mut product = Vec::new();
                    if term.coefficient != 1 || term.factors.is_empty() {
                        product.push(Tree::Constant(term.coefficient));
                    }
                    for &(atom, power) in &term.factors {
                        let factor = self.tree(self.atom_expr(atom))?;
                        product.extend((0..power).map(|_| factor.clone()));
                    }
                    sum.push(single_or(product, Tree::Product));
                }
                if sum.is_empty() { Tree::Constant(0) } else { single_or(sum, Tree::Sum) }
            }
            &Node::FloorDiv(a, b) => Tree::FloorDiv(Box::new((self.tree(a)?, self.tree(b)?))),
            &Node::Mod(a, b) => Tree::Mod(Box::new((self.tree(a)?, self.tree(b)?))),
            Node::Min(_) | Node::Max(_) | Node::Abs(_) | Node::Round(..) => return None,
        })
    }
}

/// The only one, or all of them.
fn single_or(mut parts: Vec<Tree>, all: impl FnOnce(Vec<Tree>) -> Tree) -> Tree {
    match parts.len() {
        1 => parts.remove(0),
        _ => all(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;
    use crate::{Cmp, Context};

    #[test]
    fn comparisons_are_taken_apart() {
        let mut context = Context::new();
        let s0 = context.symbol(6, (0, 100), None);
        let (two, three) = (context.constant(2), context.constant(3));
        let double = context.mul(s0.expr, two).expect("small");
        let sum = context.add(double, three).expect("small");
        let compared = context.compare(Cmp::Lt, sum, three);
        let product = Tree::Product(vec![Tree::Constant(2), Tree::Symbol(s0.id)]);
        let sum = Tree::Sum(vec![product, Tree::Constant(3)]);
        assert_eq!(context.comparison(compared), Some((Cmp::Lt, sum, Tree::Constant(3))));
        let quotient = context.floordiv(s0.expr, two).expect("small");
        let parts = Box::new((Tree::Symbol(s0.id), Tree::Constant(2)));
        assert_eq!(context.tree(quotient), Some(Tree::FloorDiv(parts)));
    }
}

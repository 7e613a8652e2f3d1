//! Merging what clients hold, some clients at a time.

use super::leaves::{columns, leafwise, not_tensors};
use super::machine::not_this;
use super::perform::fields;
use super::{Bound, Combine, Function, Interpreter, Kernels, Total, Value};
use crate::types::Type;

/// How what clients hold becomes one value.
#[derive(Clone, Debug)]
pub enum How<L> {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The mean of the first of two, weighted by the second.
    WeightedMean,
    /// The least or the greatest.
    End(Combine),
    /// What a function makes of what it has made so far, from this value on, and the next one.
    Fold(Function<L>, Value<L>),
}

/// A merge of which some has been done.
pub struct Merging<K: Kernels> {
    how: How<K::Leaf>,
    /// For each tensor.
    sums: Vec<K::Sums>,
    weights: Total,
    clients: usize,
    so_far: Option<Value<K::Leaf>>,
}

impl<K: Kernels> Merging<K> {
    /// Of nothing yet. `ty` is the type of the result's member.
    pub fn new(
        interpreter: &Interpreter<K>,
        how: &How<K::Leaf>,
        ty: &Type,
    ) -> Result<Self, K::Error> {
        let mut sums = Vec::new();
        let mut so_far = None;
        match how {
            How::Sum | How::Mean | How::WeightedMean => {
                for leaf in ty.leaves() {
                    let leaf = leaf.as_tensor().ok_or_else(|| not_tensors(leaf))?;
                    sums.push(interpreter.kernels.begin_sum(leaf)?);
                }
            }
            How::End(_) => {}
            How::Fold(_, zero) => so_far = Some(zero.clone()),
        }
        Ok(Self { how: how.clone(), sums, weights: Total::new(1), clients: 0, so_far })
    }

    /// Adds what further clients hold; the first of them is client `first`.
    pub fn add(
        &mut self,
        interpreter: &Interpreter<K>,
        ty: &Type,
        members: &[Value<K::Leaf>],
        first: usize,
    ) -> Result<(), K::Error> {
        self.clients += members.len();
        match &self.how {
            How::Sum | How::Mean => self.sum(interpreter, ty, members.iter(), None)?,
            How::WeightedMean => {
                let mut values = Vec::with_capacity(members.len());
                let mut weights = Vec::with_capacity(members.len());
                for member in members {
                    let [value, weight] = fields(member)?;
                    let Value::Leaf(weight) = weight else {
                        return Err(not_this("a number", weight).into());
                    };
                    values.push(value);
                    weights.push(interpreter.kernels.number(weight)?);
                }
                weights.iter().for_each(|weight| self.weights.add(&[*weight], 1.0));
                self.sum(interpreter, ty, values.into_iter(), Some(&weights))?;
            }
            How::End(how) => {
                let how = *how;
                for member in members {
                    self.so_far = Some(match self.so_far.take() {
                        None => member.clone(),
                        Some(so_far) => interpreter.combine(how, ty, &so_far, member)?,
                    });
                }
            }
            How::Fold(function, _) => {
                let at_client = interpreter.of_client();
                for (at, member) in members.iter().enumerate() {
                    interpreter.go_on_or_err()?;
                    let so_far = self.so_far.take().expect("it begins with zero");
                    let pair = Value::structure(vec![so_far, member.clone()]);
                    let made = at_client.run(function.clone(), Some(pair));
                    self.so_far = Some(made.map_err(|error| {
                        interpreter.kernels.at_client(error, interpreter.first + first + at)
                    })?);
                }
            }
        }
        Ok(())
    }

    fn sum<'a>(
        &mut self,
        interpreter: &Interpreter<K>,
        ty: &Type,
        members: impl Iterator<Item = &'a Value<K::Leaf>>,
        weights: Option<&[f64]>,
    ) -> Result<(), K::Error>
    where
        K::Leaf: 'a,
    {
        let mut sums = self.sums.iter_mut();
        let kernels = &interpreter.kernels;
        columns(ty, members, |ty, leaves| {
            let sum = sums.next().expect("one for each tensor");
            kernels.add_to_sum(sum, leaves, weights, ty)?;
            // What is made of them doesn't matter.
            leaves.first().map_or_else(|| kernels.zero(ty), |leaf| Ok((*leaf).clone()))
        })
        .map(drop)
    }

    /// The result at the server.
    pub fn finish(
        self,
        interpreter: &Interpreter<K>,
        ty: &Type,
    ) -> Result<Value<K::Leaf>, K::Error> {
        let divided_by = match &self.how {
            How::Sum => None,
            How::Mean => Some(self.clients as f64),
            How::WeightedMean => Some(self.weights.number()),
            How::Fold(..) => return self.one(interpreter, ty),
            How::End(_) => return Ok(Value::everywhere(self.one(interpreter, ty)?)),
        };
        let mut sums = self.sums.into_iter();
        let made = leafwise(ty, [], |ty, []| {
            let sum = sums.next().expect("one for each tensor");
            interpreter.kernels.finish_sum(sum, divided_by, ty)
        })?;
        Ok(Value::everywhere(made))
    }

    /// What is merged with that of other clients: sums that aren't rounded, of weights too.
    pub fn partial(
        self,
        interpreter: &Interpreter<K>,
        ty: &Type,
    ) -> Result<Value<K::Leaf>, K::Error> {
        if let How::Fold(..) | How::End(_) = self.how {
            return self.one(interpreter, ty);
        }
        let mut sums = self.sums.into_iter();
        let made = leafwise(ty, [], |ty, []| {
            let sum = sums.next().expect("one for each tensor");
            interpreter.kernels.unrounded(sum, ty)
        })?;
        Ok(match self.how {
            How::WeightedMean => Value::structure(vec![made, interpreter.numbers(self.weights)?]),
            _ => made,
        })
    }

    /// What a function has made of all, or the least or greatest of them.
    fn one(self, interpreter: &Interpreter<K>, ty: &Type) -> Result<Value<K::Leaf>, K::Error> {
        match (self.so_far, self.how) {
            (Some(found), _) => Ok(found),
            (None, How::End(Combine::Min)) => {
                leafwise(ty, [], |ty, []| interpreter.kernels.bound(Bound::Most, ty))
            }
            (None, _) => leafwise(ty, [], |ty, []| interpreter.kernels.bound(Bound::Least, ty)),
        }
    }
}

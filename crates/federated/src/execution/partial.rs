//! What is made of the values of all clients, in parts: of some clients each, merged, and finished.

use super::leaves::columns;
use super::machine::not_this;
use super::merges::How;
use super::perform::{fields, function, member_type};
use super::split::{Known, What};
use super::{Combine, Function, Interpreter, Kernels, Members, Operation, Run, Total, Value};
use crate::array::{Array, Content};
use crate::dtype::DType;
use crate::error::{Class, Error};
use crate::types::Type;

impl<K: Kernels> Interpreter<K> {
    /// What an operation makes of the values of these clients, before it is finished.
    pub(super) fn partial(
        &self,
        operation: Operation,
        ty: &Type,
        argument: &Value<K::Leaf>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        use Operation as Op;
        let result = result_of(ty);
        let (how, value) = match operation {
            Op::Collect => return Ok(Value::Sequence(self.members(argument)?)),
            Op::Min => (How::End(Combine::Min), argument),
            Op::Max => (How::End(Combine::Max), argument),
            Op::Aggregate => {
                let [value, zero, accumulate, ..] = aggregate(argument)?;
                (How::Fold(function(accumulate)?, zero.clone()), value)
            }
            Op::WeightedMean => (How::WeightedMean, argument),
            Op::SecureSum | Op::SecureSumBitwidth => {
                let [value, limit] = fields(argument)?;
                self.check_limit(operation, result, value, limit)?;
                (How::Sum, value)
            }
            _ => (How::Sum, argument),
        };
        let ty = member_type(result);
        self.merging(&how, ty, value)?.partial(self, ty)
    }

    /// Two of these, of clients that come one after the other, as one.
    fn merge_partials(
        &self,
        run: &Run<K>,
        node: usize,
        left: Value<K::Leaf>,
        right: Value<K::Leaf>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        use Operation as Op;
        let split = run.split();
        let (operation, ty) = split.operation(node);
        let result = member_type(result_of(ty));
        match operation {
            Op::Min => self.combine(Combine::Min, result, &left, &right),
            Op::Max => self.combine(Combine::Max, result, &left, &right),
            Op::Collect => {
                let (Value::Sequence(left), Value::Sequence(right)) = (left, right) else {
                    return Err(not_partial().into());
                };
                let mut members = left.into_values();
                members.extend(right.into_values());
                Ok(Value::sequence(members))
            }
            Op::Aggregate => {
                self.call(function_of(run, node, 3)?, Some(Value::structure(vec![left, right])))
            }
            Op::WeightedMean => {
                let ([left, weight], [right, other]) = (fields(&left)?, fields(&right)?);
                let mut total = Total::new(1);
                self.add_numbers(&mut total, weight)?;
                self.add_numbers(&mut total, other)?;
                let sums = self.merge_sums(result, left, right)?;
                Ok(Value::structure(vec![sums, self.numbers(total)?]))
            }
            _ => self.merge_sums(result, &left, &right),
        }
    }

    /// What one of all clients comes to.
    fn whole(
        &self,
        run: &Run<K>,
        node: usize,
        partial: Value<K::Leaf>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        use Operation as Op;
        let split = run.split();
        let (operation, ty) = split.operation(node);
        let result = member_type(result_of(ty));
        let round = |sums: &Value<K::Leaf>, divided_by: Option<f64>| {
            columns(result, [sums], |ty, leaves| self.kernels.round(leaves[0], divided_by, ty))
        };
        Ok(Value::everywhere(match operation {
            Op::Min | Op::Max | Op::Collect => partial,
            Op::Aggregate => self.call(function_of(run, node, 4)?, Some(partial))?,
            Op::Mean => round(&partial, Some(self.client_count()? as f64))?,
            Op::WeightedMean => {
                let [sums, weights] = fields(&partial)?;
                let mut total = Total::new(1);
                self.add_numbers(&mut total, weights)?;
                round(sums, Some(total.number()))?
            }
            _ => round(&partial, None)?,
        }))
    }

    fn merge_sums(
        &self,
        ty: &Type,
        left: &Value<K::Leaf>,
        right: &Value<K::Leaf>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        columns(ty, [left, right], |ty, leaves| self.kernels.merge_sums(leaves[0], leaves[1], ty))
    }

    /// A sum of numbers, not rounded, as a tensor.
    pub(super) fn numbers(&self, total: Total) -> Result<Value<K::Leaf>, K::Error> {
        let rows: Vec<f64> = total.into_rows().into_iter().flatten().collect();
        let bytes: Vec<u8> = rows.iter().flat_map(|number| number.to_le_bytes()).collect();
        let count = rows.len() as u64;
        let array = Array::new(DType::Float64, [count], Content::Numbers(bytes.into()))?;
        Ok(Value::Leaf(self.kernels.literal(&array, &array.tensor_type())?))
    }

    fn add_numbers(&self, total: &mut Total, from: &Value<K::Leaf>) -> Result<(), K::Error> {
        let Value::Leaf(leaf) = from else { return Err(not_this("numbers", from).into()) };
        for number in self.kernels.scalars(leaf)? {
            total.add(&[self.kernels.number(&number)?], 1.0);
        }
        Ok(())
    }
}

impl<K: Kernels> Run<K> {
    /// Takes what the next clients of a stage gave: those that come after the ones before.
    ///
    /// # Errors
    /// What merging them says.
    pub fn merge(&mut self, stage: usize, given: Members<K::Leaf>) -> Result<(), K::Error> {
        let split = self.split();
        let stage = &split.stages[stage];
        if given.len() != stage.merged.len() + stage.kept.len() {
            return Err(not_partial().into());
        }
        let mut given = given.into_iter();
        for (&node, next) in stage.merged.iter().zip(&mut given) {
            let merged = match self.partials.remove(&node) {
                None => next,
                Some(so_far) => self.interpreter.merge_partials(self, node, so_far, next)?,
            };
            self.partials.insert(node, merged);
        }
        for (&node, next) in stage.kept.iter().zip(given) {
            let Value::Each(next) = next else { return Err(not_partial().into()) };
            self.kept.entry(node).or_default().extend(next.into_values());
        }
        Ok(())
    }

    /// Ends a stage in which all clients have done their part.
    ///
    /// # Errors
    /// What finishing the values says.
    pub fn end(&mut self, stage: usize) -> Result<(), K::Error> {
        let split = self.split();
        for &node in &split.stages[stage].merged {
            let partial = self.partials.remove(&node).ok_or_else(not_partial)?;
            self.values[node] = Some(self.interpreter.whole(self, node, partial)?);
        }
        for &node in &split.stages[stage].kept {
            self.values[node] = Some(Value::each(self.kept.remove(&node).unwrap_or_default()));
        }
        Ok(())
    }
}

fn result_of(ty: &Type) -> &Type {
    &ty.as_function().expect("operations are functions").result
}

fn aggregate<L>(argument: &Value<L>) -> Result<&[Value<L>; 5], Error> {
    fields(argument)
}

/// A function in the argument of a node.
fn function_of<K: Kernels>(
    run: &Run<K>,
    node: usize,
    at: usize,
) -> Result<Function<K::Leaf>, Error> {
    let split = run.split();
    let What::Call(_, Some(Known::Struct(fields))) = &split.nodes[node].what else {
        return Err(not_partial());
    };
    function(&run.resolve(&fields[at]))
}

fn not_partial() -> Error {
    Error::new(Class::Value, "what clients gave isn't what this stage asks for")
}

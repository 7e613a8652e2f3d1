//! What each operation of the language does.

use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

use super::leaves::{leafwise, rebuild};
use super::machine::{Calls, Flow, Frame, not_this};
use super::merges::{How, Merging};
use super::{Combine, Function, Interpreter, Items, Kernels, Operation, Value};
use crate::error::{Class, Error};
use crate::types::Type;

/// What is made of the value, or of the values in a sequence, that a frame has waited for.
pub(super) enum Then<L> {
    /// Nothing.
    Value,
    /// One member for each client.
    Clients,
    /// The same at every place.
    Everywhere,
    /// A sequence.
    Sequence,
    /// For each client, the sequence of these of the values.
    Select(Vec<Vec<usize>>),
    /// What this function gives for it, at the server.
    Report(Function<L>),
}

impl<K: Kernels> Interpreter<K> {
    pub(super) fn perform(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        operation: Operation,
        ty: &Type,
        argument: Value<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        use Operation as Op;
        let result = &ty.as_function().ok_or_else(|| no_function(operation, ty))?.result;
        let map = match operation {
            Op::Map | Op::EvalAtClients => self.maps.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        let value = match operation {
            Op::Broadcast => argument,
            Op::ValueAtClients | Op::ValueAtServer => Value::everywhere(argument),
            Op::ZipAtClients | Op::ZipAtServer => self.zip(&argument)?,
            Op::EvalAtClients => {
                let function = function(&argument)?;
                let calls = Calls::Without(self.client_count()?);
                return self.at_clients(frames, function, calls, result, map);
            }
            Op::EvalAtServer => {
                frames.push(Frame::Then(Then::Everywhere));
                return Ok(Flow::Call(function(&argument)?, None));
            }
            Op::Apply | Op::MapAllEqual => {
                let [of, value] = fields(&argument)?;
                frames.push(Frame::Then(Then::Everywhere));
                let (of, value) = (function(of)?, self.everywhere(value)?);
                drop(argument);
                return Ok(Flow::Call(of, Some(value)));
            }
            Op::Map => {
                let [of, value] = fields(&argument)?;
                let of = function(of)?;
                if let Value::Later(value) = value
                    && let Some(value) = self.map_later(&of, value)
                {
                    return Ok(Flow::Return(value));
                }
                let calls = Calls::With(self.members(value)?);
                return self.at_clients(frames, of, calls, result, map);
            }
            Op::Aggregate => {
                let [value, zero, accumulate, _merge, report] = fields(&argument)?;
                let (accumulate, then) = (function(accumulate)?, Then::Report(function(report)?));
                if !accumulate.has_effects(&*self.kernels) {
                    let how = How::Fold(accumulate.clone(), zero.clone());
                    if let Some(Value::Merge(merge)) = self.merge_later(how, result, value) {
                        drop(argument);
                        let value = self.merged(&merge)?;
                        return self.then(frames, then, value);
                    }
                }
                let members = self.members(value)?;
                return self.fold(frames, accumulate, zero.clone(), members, 0, then);
            }
            Op::Collect => Value::everywhere(Value::Sequence(self.members(&argument)?)),
            Op::Sum => self.merge(How::Sum, result, &argument)?,
            Op::Min => self.merge(How::End(Combine::Min), result, &argument)?,
            Op::Max => self.merge(How::End(Combine::Max), result, &argument)?,
            Op::Mean => self.merge(How::Mean, result, &argument)?,
            Op::WeightedMean => self.merge(How::WeightedMean, result, &argument)?,
            Op::SecureSum | Op::SecureSumBitwidth => {
                let [value, limit] = fields(&argument)?;
                self.check_limit(operation, result, value, limit)?;
                self.merge(How::Sum, result, value)?
            }
            Op::Select | Op::SecureSelect => return self.select(frames, &argument),
            Op::Plus | Op::Multiply | Op::Divide => {
                let how = match operation {
                    Op::Plus => Combine::Add,
                    Op::Multiply => Combine::Multiply,
                    _ => Combine::Divide,
                };
                let [left, right] = fields(&argument)?;
                self.combine(how, result, left, right)?
            }
            Op::SequenceMap => {
                let [of, value] = fields(&argument)?;
                let calls = Calls::With(sequence(value)?.clone());
                return self.each(frames, function(of)?, calls, Vec::new(), Then::Sequence);
            }
            Op::SequenceReduce => {
                let [value, zero, reduce] = fields(&argument)?;
                let elements = sequence(value)?.clone();
                return self.fold(
                    frames,
                    function(reduce)?,
                    zero.clone(),
                    elements,
                    0,
                    Then::Value,
                );
            }
            Op::SequenceSum => {
                let mut sum = Merging::new(self, &How::Sum, result)?;
                sum.add(self, result, sequence(&argument)?, 0)?;
                everywhere(&sum.finish(self, result)?)?
            }
        };
        Ok(Flow::Return(value))
    }

    /// Makes the value that a frame has waited for into what was asked for.
    pub(super) fn then(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        then: Then<K::Leaf>,
        value: Value<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        let value = match then {
            Then::Value | Then::Sequence => value,
            Then::Everywhere => Value::everywhere(value),
            Then::Clients => Value::Each(sequence(&value)?.clone()),
            Then::Select(rows) => {
                let served = sequence(&value)?;
                let row = |row: Vec<usize>| {
                    Value::sequence(row.into_iter().map(|at| served[at].clone()).collect())
                };
                Value::each(rows.into_iter().map(row).collect())
            }
            Then::Report(report) => {
                frames.push(Frame::Then(Then::Everywhere));
                return Ok(Flow::Call(report, Some(value)));
            }
        };
        Ok(Flow::Return(value))
    }

    /// How many clients there are.
    pub(super) fn client_count(&self) -> Result<usize, K::Error> {
        let unknown = || {
            Error::new(Class::Value, "the number of clients isn't known")
                .expected("an argument with one value for each client, or a number of clients")
                .found("a computation whose arguments don't differ between clients")
                .hint("run it in a context that says how many: LocalContext(clients=N)")
                .into()
        };
        self.clients.ok_or_else(unknown)
    }

    /// What each client holds.
    pub(super) fn members(&self, value: &Value<K::Leaf>) -> Result<Items<K::Leaf>, K::Error> {
        match value {
            Value::Each(members) => Ok(members.clone()),
            Value::Later(later) => self.all(later),
            Value::Everywhere(member) => {
                Ok(Items::new(vec![member[0].clone(); self.client_count()?]))
            }
            Value::Merge(merge) => self.members(&self.merged(merge)?),
            other => Err(not_this("a federated value", other).into()),
        }
    }

    /// The member of a federated value that is the same everywhere.
    fn everywhere(&self, value: &Value<K::Leaf>) -> Result<Value<K::Leaf>, K::Error> {
        match value {
            Value::Merge(merge) => Ok(everywhere(&self.merged(merge)?)?),
            other => Ok(everywhere(other)?),
        }
    }

    /// What clients hold, merged at the server; put off, if that is. `ty` is that of the federated result.
    fn merge(
        &self,
        how: How<K::Leaf>,
        ty: &Type,
        of: &Value<K::Leaf>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        let ty = member_type(ty);
        if let Some(merge) = self.merge_later(how.clone(), ty, of) {
            return Ok(merge);
        }
        self.merging(&how, ty, of)?.finish(self, ty)
    }

    /// The merge of what clients hold, before it is finished. `ty` is that of the result's member.
    pub(super) fn merging(
        &self,
        how: &How<K::Leaf>,
        ty: &Type,
        of: &Value<K::Leaf>,
    ) -> Result<Merging<K>, K::Error> {
        let members = match (how, of) {
            (How::WeightedMean, Value::Struct(_)) => self.members(&self.zip(of)?)?,
            _ => self.members(of)?,
        };
        let mut merging = Merging::new(self, how, ty)?;
        merging.add(self, ty, &members, 0)?;
        Ok(merging)
    }

    /// A struct of federated values as a federated struct.
    fn zip(&self, value: &Value<K::Leaf>) -> Result<Value<K::Leaf>, K::Error> {
        let value = &rebuild(value, |part| match part {
            Value::Merge(merge) => self.merged(merge),
            other => Ok(other.clone()),
        })?;
        if let Some(zipped) = self.zip_later(value) {
            return Ok(zipped);
        }
        let value = &self.here(value.clone())?;
        let mut clients: Option<usize> = None;
        rebuild(value, |part| {
            let members = match part {
                Value::Each(members) => members,
                Value::Everywhere(_) => return Ok(part.clone()),
                other => return Err(not_this("a federated value", other)),
            };
            if clients.is_some_and(|clients| clients != members.len()) {
                return Err(Error::new(Class::Value, "values of different numbers of clients")
                    .expected(format!("{} clients", clients.unwrap_or_default()))
                    .found(format!("{} clients", members.len())));
            }
            clients = Some(members.len());
            Ok(part.clone())
        })?;
        let of_client = |client: usize| {
            rebuild(value, |part| match part {
                Value::Each(members) => Ok(members[client].clone()),
                Value::Everywhere(member) => Ok(member[0].clone()),
                other => Err(not_this("a federated value", other)),
            })
        };
        Ok(match clients {
            Some(clients) => Value::each((0..clients).map(of_client).collect::<Result<_, _>>()?),
            None => Value::everywhere(of_client(0)?),
        })
    }

    pub(super) fn combine(
        &self,
        how: Combine,
        ty: &Type,
        left: &Value<K::Leaf>,
        right: &Value<K::Leaf>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        leafwise(ty, [left, right], |ty, [left, right]| self.kernels.combine(how, left, right, ty))
    }

    /// Checks that what the clients bring to a secure sum is within its limit: a greatest value,
    /// or a number of bits; one for all, or one for each tensor.
    pub(super) fn check_limit(
        &self,
        operation: Operation,
        result: &Type,
        value: &Value<K::Leaf>,
        limit: &Value<K::Leaf>,
    ) -> Result<(), K::Error> {
        for (client, member) in self.members(value)?.iter().enumerate() {
            let check = |leaf: &K::Leaf, limit: &K::Leaf| {
                let limit = self.kernels.integer(limit)?;
                let (greatest, expected) = match operation {
                    Operation::SecureSum => (limit, format!("a value from 0 to {limit}")),
                    _ => {
                        let bits = u32::try_from(limit).unwrap_or(0).min(126);
                        ((1i128 << bits) - 1, format!("a value of {limit} bits, 0 or more"))
                    }
                };
                let Some((least, most)) = self.kernels.range(leaf)? else { return Ok(()) };
                if least >= 0 && most <= greatest {
                    return Ok(());
                }
                let message = "a client's value is out of the range of a secure sum";
                let found = if least < 0 { least } else { most };
                let error = Error::new(Class::Value, message)
                    .note("client", self.first + client)
                    .note("in", operation.uri())
                    .expected(expected)
                    .found(found);
                Err(K::Error::from(error))
            };
            // What is made of the tensors doesn't matter.
            match limit {
                Value::Leaf(limit) => leafwise(member_type(result), [member], |_, [leaf]| {
                    check(leaf, limit).map(|()| leaf.clone())
                })?,
                limits => leafwise(member_type(result), [member, limits], |_, [leaf, limit]| {
                    check(leaf, limit).map(|()| leaf.clone())
                })?,
            };
        }
        Ok(())
    }

    /// Serves each client its sequence of slices. A slice is made once, however many clients ask.
    fn select(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        argument: &Value<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        let [keys, max_key, database, of] = fields(argument)?;
        let database = self.everywhere(database)?;
        let max_key = self.everywhere(max_key)?;
        let Value::Leaf(max_key) = &max_key else {
            return Err(not_this("a number", &max_key).into());
        };
        let max_key = self.kernels.integer(max_key)?;
        let mut position_of: FxHashMap<i128, usize> = FxHashMap::default();
        let mut arguments = Vec::new();
        let mut rows = Vec::new();
        for (client, keys) in self.members(keys)?.iter().enumerate() {
            let Value::Leaf(keys) = keys else { return Err(not_this("keys", keys).into()) };
            let mut row = Vec::new();
            for key in self.kernels.scalars(keys)? {
                let number = self.kernels.integer(&key)?;
                if !(0..=max_key).contains(&number) {
                    return Err(Error::new(
                        Class::Value,
                        "a client asks for a key that isn't there",
                    )
                    .note("client", self.first + client)
                    .expected(format!("a key from 0 to max_key, {max_key}"))
                    .found(number)
                    .into());
                }
                row.push(*position_of.entry(number).or_insert_with(|| {
                    arguments.push(Value::structure(vec![database.clone(), Value::Leaf(key)]));
                    arguments.len() - 1
                }));
            }
            rows.push(row);
        }
        let calls = Calls::With(Items::new(arguments));
        self.each(frames, function(of)?, calls, Vec::new(), Then::Select(rows))
    }
}

/// The type of what each place holds.
pub(super) fn member_type(ty: &Type) -> &Type {
    ty.as_federated().map_or(ty, |federated| &federated.member)
}

fn no_function(operation: Operation, ty: &Type) -> Error {
    Error::new(Class::Type, format!("`{}` is a function", operation.uri()))
        .expected("a function type")
        .found(ty)
}

/// The fields of an operation's argument.
pub(super) fn fields<L, const N: usize>(value: &Value<L>) -> Result<&[Value<L>; N], Error> {
    let Value::Struct(fields) = value else { return Err(not_this("a struct", value)) };
    (&**fields).try_into().map_err(|_| not_this("a struct with as many arguments", value))
}

pub(super) fn function<L: Clone>(value: &Value<L>) -> Result<Function<L>, Error> {
    match value {
        Value::Function(function) => Ok(function.clone()),
        other => Err(not_this("a function", other)),
    }
}

fn sequence<L>(value: &Value<L>) -> Result<&Items<L>, Error> {
    match value {
        Value::Sequence(elements) => Ok(elements),
        other => Err(not_this("a sequence", other)),
    }
}

/// The member of a federated value that is the same everywhere.
fn everywhere<L: Clone>(value: &Value<L>) -> Result<Value<L>, Error> {
    match value {
        Value::Everywhere(member) => Ok(member[0].clone()),
        other => Err(not_this("a federated value, the same everywhere", other)),
    }
}

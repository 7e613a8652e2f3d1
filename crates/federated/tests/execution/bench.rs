//! What the tests run on: kernels without Python, and short ways to write programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stator_federated::array::{Array, Content};
use stator_federated::ast::{BuildingBlock, Compiled, Data, Payload, WirePayload};
use stator_federated::dtype::{DType, Kind};
use stator_federated::error::{Class, Error, Result};
use stator_federated::execution::{self, Bound, Combine, Interpreter, Kernels, Run, Split};
use stator_federated::placement::Placement;
use stator_federated::types::{Field, TensorType, Type};

pub type Value = execution::Value<Leaf>;

/// A scalar or a row of numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    Ints(Arc<[i64]>),
    Floats(Arc<[f64]>),
}

/// Kernels that count how many compiled computations they have run.
#[derive(Default)]
pub struct Small {
    pub runs: AtomicUsize,
}

/// A compiled computation.
pub struct Native(pub Box<dyn Fn(Option<Value>) -> Result<Value> + Send + Sync>);

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("native")
    }
}

impl Payload for Native {
    fn to_wire(&self) -> Result<WirePayload> {
        Err(Error::new(Class::Type, "it stays here"))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn zip<T: Copy>(a: &[T], b: &[T], f: impl Fn(T, T) -> T) -> Arc<[T]> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

impl Kernels for Small {
    type Leaf = Leaf;
    type Sums = Leaf;
    type Error = Error;

    fn literal(&self, array: &Array, _: &Type) -> Result<Leaf> {
        let Content::Numbers(bytes) = array.content() else { unreachable!() };
        let each = bytes.chunks(8).map(|bytes| bytes.try_into().unwrap());
        Ok(match array.dtype() {
            DType::Int64 => Leaf::Ints(each.map(i64::from_le_bytes).collect()),
            DType::Float64 => Leaf::Floats(each.map(f64::from_le_bytes).collect()),
            other => panic!("no test needs {other}"),
        })
    }

    fn data(&self, data: &Data, _: &Type) -> Result<Value> {
        Ok(int(data.value.len() as i64))
    }

    fn compiled(&self, compiled: &Compiled, _: &Type, argument: Option<Value>) -> Result<Value> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        (compiled.payload.as_any().downcast_ref::<Native>().unwrap().0)(argument)
    }

    fn zero(&self, ty: &TensorType) -> Result<Leaf> {
        let count = ty.shape.elements().unwrap() as usize;
        Ok(match ty.dtype.kind() {
            Kind::Float => Leaf::Floats(vec![0.0; count].into()),
            _ => Leaf::Ints(vec![0; count].into()),
        })
    }

    fn bound(&self, bound: Bound, ty: &TensorType) -> Result<Leaf> {
        let most = bound == Bound::Most;
        let count = ty.shape.elements().unwrap() as usize;
        Ok(match ty.dtype.kind() {
            Kind::Float => {
                let value = if most { f64::INFINITY } else { f64::NEG_INFINITY };
                Leaf::Floats(vec![value; count].into())
            }
            _ => Leaf::Ints(vec![if most { i64::MAX } else { i64::MIN }; count].into()),
        })
    }

    fn combine(&self, how: Combine, left: &Leaf, right: &Leaf, _: &TensorType) -> Result<Leaf> {
        Ok(match (left, right) {
            (Leaf::Ints(a), Leaf::Ints(b)) => Leaf::Ints(zip(a, b, |a, b| match how {
                Combine::Add => a.wrapping_add(b),
                Combine::Multiply => a.wrapping_mul(b),
                Combine::Divide => a / b,
                Combine::Min => a.min(b),
                Combine::Max => a.max(b),
            })),
            (Leaf::Floats(a), Leaf::Floats(b)) => Leaf::Floats(zip(a, b, |a, b| match how {
                Combine::Add => a + b,
                Combine::Multiply => a * b,
                Combine::Divide => a / b,
                Combine::Min => a.min(b),
                Combine::Max => a.max(b),
            })),
            _ => panic!("two kinds of numbers"),
        })
    }

    fn is_pure(&self, compiled: &Compiled, _: &Type) -> bool {
        &*compiled.name == "pure"
    }

    fn begin_sum(&self, ty: &TensorType) -> Result<Leaf> {
        self.zero(ty)
    }

    fn add_to_sum(
        &self,
        sum: &mut Leaf,
        leaves: &[&Leaf],
        weights: Option<&[f64]>,
        ty: &TensorType,
    ) -> Result<()> {
        for (at, leaf) in leaves.iter().enumerate() {
            let weighted = match (leaf, weights.map(|weights| weights[at])) {
                (Leaf::Floats(row), Some(by)) => Leaf::Floats(row.iter().map(|x| x * by).collect()),
                _ => (*leaf).clone(),
            };
            *sum = self.combine(Combine::Add, sum, &weighted, ty)?;
        }
        Ok(())
    }

    fn finish_sum(&self, sum: Leaf, divided_by: Option<f64>, _: &TensorType) -> Result<Leaf> {
        Ok(match (sum, divided_by) {
            (Leaf::Floats(row), Some(by)) => Leaf::Floats(row.iter().map(|x| x / by).collect()),
            (sum, _) => sum,
        })
    }

    fn unrounded(&self, sum: Leaf, _: &TensorType) -> Result<Leaf> {
        Ok(sum)
    }

    fn merge_sums(&self, left: &Leaf, right: &Leaf, ty: &TensorType) -> Result<Leaf> {
        self.combine(Combine::Add, left, right, ty)
    }

    fn round(&self, sum: &Leaf, divided_by: Option<f64>, ty: &TensorType) -> Result<Leaf> {
        self.finish_sum(sum.clone(), divided_by, ty)
    }

    fn number(&self, leaf: &Leaf) -> Result<f64> {
        Ok(match leaf {
            Leaf::Ints(row) => row[0] as f64,
            Leaf::Floats(row) => row[0],
        })
    }

    fn integer(&self, leaf: &Leaf) -> Result<i128> {
        Ok(ints(&Value::Leaf(leaf.clone()))[0].into())
    }

    fn range(&self, leaf: &Leaf) -> Result<Option<(i128, i128)>> {
        let value = Value::Leaf(leaf.clone());
        let row = ints(&value);
        let least = row.iter().min().map(|&x| x.into());
        Ok(least.zip(row.iter().max().map(|&x| x.into())))
    }

    fn scalars(&self, leaf: &Leaf) -> Result<Vec<Leaf>> {
        Ok(match leaf {
            Leaf::Ints(row) => row.iter().map(|&x| Leaf::Ints([x].into())).collect(),
            Leaf::Floats(row) => row.iter().map(|&x| Leaf::Floats([x].into())).collect(),
        })
    }

    fn at_client(&self, error: Error, client: usize) -> Error {
        error.note("client", client)
    }
}

/// Runs a block with so many clients, in one thread and in several: both must agree.
pub fn run(block: &BuildingBlock, clients: Option<usize>) -> Result<Value> {
    let small = Arc::new(Small::default());
    let one = Interpreter::new(&small).clients(clients).evaluate(block);
    let three = Interpreter::new(&small).clients(clients).threads(3).evaluate(block);
    assert_eq!(format!("{one:?}"), format!("{three:?}"));
    one
}

// Values.

pub fn int(x: i64) -> Value {
    Value::Leaf(Leaf::Ints([x].into()))
}

pub fn float(x: f64) -> Value {
    Value::Leaf(Leaf::Floats([x].into()))
}

pub fn ints(value: &Value) -> &[i64] {
    let Value::Leaf(Leaf::Ints(row)) = value else { panic!("no integers: {value:?}") };
    row
}

pub fn floats(value: &Value) -> &[f64] {
    let Value::Leaf(Leaf::Floats(row)) = value else { panic!("no floats: {value:?}") };
    row
}

/// The items of whatever has some.
pub fn items(value: &Value) -> &[Value] {
    match value {
        Value::Struct(items)
        | Value::Sequence(items)
        | Value::Each(items)
        | Value::Everywhere(items) => items,
        other => panic!("no items: {other:?}"),
    }
}

/// The integers in a row of values.
pub fn row(value: &Value) -> Vec<i64> {
    items(value).iter().map(|item| ints(item)[0]).collect()
}

// Types.

pub fn int64() -> Type {
    Type::scalar(DType::Int64)
}

pub fn float64() -> Type {
    Type::scalar(DType::Float64)
}

pub fn structure(types: &[Type]) -> Type {
    let field = |ty: &Type| Field { name: None, ty: ty.clone() };
    Type::structure(types.iter().map(field).collect(), None).unwrap()
}

pub fn clients(ty: Type) -> Type {
    Type::federated(ty, Placement::Clients, None).unwrap()
}

pub fn same_clients(ty: Type) -> Type {
    Type::federated(ty, Placement::Clients, Some(true)).unwrap()
}

pub fn server(ty: Type) -> Type {
    Type::federated(ty, Placement::Server, None).unwrap()
}

// Programs.

pub fn literal(x: i64) -> BuildingBlock {
    let content = Content::Numbers(x.to_le_bytes().into());
    BuildingBlock::literal(Array::new(DType::Int64, [], content).unwrap(), int64()).unwrap()
}

pub fn literal_row(row: &[i64]) -> BuildingBlock {
    let content = Content::Numbers(row.iter().flat_map(|x| x.to_le_bytes()).collect());
    let array = Array::new(DType::Int64, [row.len() as u64], content).unwrap();
    let ty = array.tensor_type();
    BuildingBlock::literal(array, ty).unwrap()
}

pub fn tuple(parts: Vec<BuildingBlock>) -> BuildingBlock {
    BuildingBlock::structure(parts.into_iter().map(|part| (None, part)).collect(), None).unwrap()
}

pub fn name(name: &str, ty: Type) -> BuildingBlock {
    BuildingBlock::reference(name, ty)
}

pub fn lambda(parameter: &str, ty: Type, result: BuildingBlock) -> BuildingBlock {
    BuildingBlock::lambda(Some((parameter.into(), ty)), result)
}

pub fn thunk(result: BuildingBlock) -> BuildingBlock {
    BuildingBlock::lambda(None, result)
}

pub fn call(function: BuildingBlock, argument: BuildingBlock) -> BuildingBlock {
    BuildingBlock::call(function, Some(argument)).unwrap()
}

pub fn block(locals: Vec<(&str, BuildingBlock)>, result: BuildingBlock) -> BuildingBlock {
    let local = |(name, value): (&str, BuildingBlock)| (name.into(), value);
    BuildingBlock::block(locals.into_iter().map(local).collect(), result)
}

pub fn select(source: BuildingBlock, index: usize) -> BuildingBlock {
    BuildingBlock::select_index(source, index).unwrap()
}

/// An operation applied to its arguments: one, or a struct of several.
pub fn apply(uri: &str, arguments: Vec<BuildingBlock>, result: Type) -> BuildingBlock {
    let mut arguments = arguments;
    let argument = if arguments.len() == 1 { arguments.remove(0) } else { tuple(arguments) };
    let ty = Type::function(Some(argument.ty().clone()), result);
    call(BuildingBlock::intrinsic(uri, ty), argument)
}

/// `(x -> x + by)`
pub fn adds(by: i64) -> BuildingBlock {
    let sum = apply("generic_plus", vec![name("x", int64()), literal(by)], int64());
    lambda("x", int64(), sum)
}

/// `(p -> p[0] + p[1])`
pub fn plus() -> BuildingBlock {
    let pair = structure(&[int64(), int64()]);
    let fields = (0..2).map(|at| select(name("p", pair.clone()), at)).collect();
    lambda("p", pair, apply("generic_plus", fields, int64()))
}

/// A compiled computation, which may have effects.
pub fn native(
    ty: Type,
    run: impl Fn(Option<Value>) -> Result<Value> + Send + Sync + 'static,
) -> BuildingBlock {
    let payload = Arc::new(Native(Box::new(run)));
    BuildingBlock::compiled(Compiled { name: "native".into(), payload }, ty)
}

/// A compiled computation of an integer; `is_pure`: it is known to have no effects.
pub fn native_int(
    is_pure: bool,
    run: impl Fn(i64) -> Result<i64> + Send + Sync + 'static,
) -> BuildingBlock {
    let run = move |argument: Option<Value>| run(ints(&argument.unwrap())[0]).map(int);
    let payload = Arc::new(Native(Box::new(run)));
    let name = if is_pure { "pure" } else { "native" };
    let ty = Type::function(Some(int64()), int64());
    BuildingBlock::compiled(Compiled { name: name.into(), payload }, ty)
}

/// Runs a function of one argument on what its clients hold.
pub fn run_with(
    parameter: Type,
    body: impl FnOnce(BuildingBlock) -> BuildingBlock,
    argument: Value,
    count: usize,
) -> Result<Value> {
    let small = Arc::new(Small::default());
    let function = lambda("argument", parameter.clone(), body(name("argument", parameter)));
    let outcome = |threads| {
        let interpreter = Interpreter::new(&small).clients(Some(count)).threads(threads);
        let Value::Function(function) = interpreter.evaluate(&function)? else { unreachable!() };
        interpreter.call(function, Some(argument.clone()))
    };
    let one = outcome(1);
    assert_eq!(format!("{one:?}"), format!("{:?}", outcome(3)));
    for chunk in [1, 3] {
        agree(&one, &in_parts(&function, argument.clone(), count, chunk));
    }
    one
}

/// What a function gives whose clients work in parts of so many; nothing, if it can't be split.
pub fn in_parts(
    function: &BuildingBlock,
    argument: Value,
    count: usize,
    chunk: usize,
) -> Option<Result<Value>> {
    if count == 0 {
        return None;
    }
    let split = Arc::new(Split::new(function).unwrap().ok()?);
    let here = Interpreter::new(&Arc::new(Small::default())).clients(Some(count));
    let run = || {
        let mut run = Run::new(&split, here, Some(argument))?;
        for stage in 0..split.stages() {
            run.begin(stage)?;
            for first in (0..count).step_by(chunk) {
                if !split.has_clients(stage) {
                    break;
                }
                // Another process knows the computation, and nothing else.
                let again = Split::new(function).unwrap().unwrap();
                let clients = first..count.min(first + chunk);
                let small = Arc::new(Small::default());
                let there = Interpreter::new(&small).clients(Some(clients.len())).first(first);
                let constants = there.constants(&again)?;
                let (sent, given) = (run.broadcast(stage)?, run.given(stage, clients)?);
                run.merge(stage, there.at_stage(&again, stage, &constants, sent, given)?)?;
            }
            if split.has_clients(stage) {
                run.end(stage)?;
            }
        }
        Ok(run.result())
    };
    Some(run())
}

/// Checks that parts make the same whole, up to rounding.
fn agree(whole: &Result<Value>, parts: &Option<Result<Value>>) {
    let Some(parts) = parts else { return };
    let mut left = match (whole, parts) {
        (Ok(whole), Ok(parts)) => vec![(whole, parts)],
        (Err(whole), Err(parts)) => return assert_eq!(whole.to_string(), parts.to_string()),
        _ => panic!("{whole:?} and {parts:?}"),
    };
    while let Some((whole, parts)) = left.pop() {
        match (whole, parts) {
            (Value::Leaf(Leaf::Floats(a)), Value::Leaf(Leaf::Floats(b))) => {
                let near =
                    |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 || a.to_bits() == b.to_bits();
                assert!(a.iter().zip(&**b).all(near), "{a:?} and {b:?}");
            }
            (Value::Leaf(_), _) | (Value::Placement(_), _) | (Value::Function(_), _) => {
                assert_eq!(format!("{whole:?}"), format!("{parts:?}"));
            }
            _ => {
                assert_eq!(whole_kind(whole), whole_kind(parts));
                assert_eq!(items(whole).len(), items(parts).len());
                left.extend(items(whole).iter().zip(items(parts)));
            }
        }
    }
}

fn whole_kind(value: &Value) -> std::mem::Discriminant<Value> {
    std::mem::discriminant(value)
}

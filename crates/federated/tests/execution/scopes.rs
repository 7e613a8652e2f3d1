//! Which value a name has, and how often a shared node is evaluated.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use stator_federated::ast::{BlockKind, BuildingBlock};
use stator_federated::execution::Interpreter;
use stator_federated::types::Type;

use crate::bench::*;

fn x() -> BuildingBlock {
    name("x", int64())
}

fn y() -> BuildingBlock {
    name("y", int64())
}

#[test]
fn inner_names_hide_outer_ones() {
    let shared = x();
    let inner = block(vec![("x", literal(2))], shared.clone());
    let program = block(vec![("x", literal(1))], tuple(vec![shared.clone(), inner, shared]));
    assert_eq!(row(&run(&program, None).unwrap()), [1, 2, 1]);
}

#[test]
fn a_name_may_be_bound_again_in_one_block() {
    let shared = tuple(vec![x()]);
    let program = block(
        vec![("x", literal(1)), ("a", shared.clone()), ("x", literal(2)), ("b", shared.clone())],
        tuple(vec![
            select(name("a", shared.ty().clone()), 0),
            select(name("b", shared.ty().clone()), 0),
            select(shared, 0),
        ]),
    );
    assert_eq!(row(&run(&program, None).unwrap()), [1, 2, 2]);
}

#[test]
fn closures_keep_the_names_of_where_they_stand() {
    let f = thunk(y());
    let of = f.ty().clone();
    let inner = block(
        vec![("f", f), ("y", literal(2))],
        tuple(vec![BuildingBlock::call(name("f", of), None).unwrap(), y()]),
    );
    let program = block(vec![("y", literal(1))], inner);
    assert_eq!(row(&run(&program, None).unwrap()), [1, 2]);
}

#[test]
fn a_closure_outlives_its_block() {
    let adder = lambda("x", int64(), apply("generic_plus", vec![x(), y()], int64()));
    let made = lambda("y", int64(), adder);
    let program = call(call(made, literal(30)), literal(4));
    assert_eq!(ints(&run(&program, None).unwrap()), [34]);
}

/// A compiled computation that gives 1.
fn one() -> BuildingBlock {
    let function = native(Type::function(None, int64()), |_| Ok(int(1)));
    BuildingBlock::call(function, None).unwrap()
}

fn count_runs(program: &BuildingBlock) -> usize {
    let small = Arc::new(Small::default());
    Interpreter::new(&small).clients(Some(2)).evaluate(program).unwrap();
    small.runs.load(Ordering::Relaxed)
}

#[test]
fn a_shared_node_is_evaluated_once_in_a_scope() {
    let shared = one();
    assert_eq!(count_runs(&tuple(vec![shared.clone(), shared.clone(), shared.clone()])), 1);
    // Also if it is doubled twenty times.
    let doubled = (0..20).fold(shared.clone(), |node, _| tuple(vec![node.clone(), node]));
    assert_eq!(count_runs(&doubled), 1);
    // Blocks around it don't matter.
    let again = block(vec![("a", shared.clone())], tuple(vec![shared.clone(), literal(1)]));
    assert_eq!(count_runs(&tuple(vec![shared.clone(), again.clone(), again])), 1);
    // Two nodes are two.
    assert_eq!(count_runs(&tuple(vec![one(), one()])), 2);
    // A function runs as often as it is called.
    let twice = lambda("x", int64(), tuple(vec![shared.clone(), shared]));
    let calls = (0..3).map(|_| call(twice.clone(), literal(1))).collect();
    assert_eq!(count_runs(&tuple(calls)), 3);
}

#[test]
fn blocks_in_blocks_share_too() {
    // Without care this takes 2^60 steps.
    let mut node = one();
    for _ in 0..60 {
        let pair = tuple(vec![name("x", node.ty().clone()), node.clone()]);
        node = block(vec![("x", node)], tuple(vec![select(pair, 0)]));
    }
    assert_eq!(count_runs(&node), 1);
}

#[test]
fn unused_locals_are_evaluated() {
    assert_eq!(count_runs(&block(vec![("unused", one())], literal(1))), 1);
}

/// Programs over integers with the names `x` and `y`, which share nodes.
fn program() -> impl Strategy<Value = BuildingBlock> {
    // Each step adds one more node made from those before it.
    prop::collection::vec((0..6u8, any::<u16>(), any::<u16>(), any::<bool>()), 1..40).prop_map(
        |steps| {
            let mut nodes = vec![literal(1), literal(2), x(), y()];
            for (kind, a, b, first) in steps {
                let pick = |at: u16| nodes[usize::from(at) % nodes.len()].clone();
                let (a, b) = (pick(a), pick(b));
                let called = if first { "x" } else { "y" };
                let made = match kind {
                    0 | 1 => apply("generic_plus", vec![a, b], int64()),
                    2 => block(vec![(called, a)], b),
                    3 => block(vec![("x", a.clone()), (called, b.clone()), ("y", a)], b),
                    4 => call(lambda(called, int64(), a), b),
                    _ => BuildingBlock::call(thunk(a), None).unwrap(),
                };
                nodes.push(made);
            }
            let last = nodes.pop().unwrap();
            block(vec![("x", literal(10)), ("y", literal(100))], last)
        },
    )
}

/// The value of such a program, by substitution as in a textbook, up to so many steps.
fn naive(block: &BuildingBlock, names: &mut Vec<(String, i64)>, fuel: &mut usize) -> Option<i64> {
    *fuel = fuel.checked_sub(1)?;
    match block.kind() {
        BlockKind::Reference(reference) => {
            let found = names.iter().rev().find(|(name, _)| **name == *reference.name);
            Some(found.expect("bound").1)
        }
        BlockKind::Literal(_) => Some(ints(&run(block, None).unwrap())[0]),
        BlockKind::Block(of) => {
            let before = names.len();
            for (name, value) in &of.locals {
                let value = naive(value, names, fuel)?;
                names.push((name.to_string(), value));
            }
            let result = naive(&of.result, names, fuel);
            names.truncate(before);
            result
        }
        BlockKind::Call(of) => match (of.function.kind(), &of.argument) {
            (BlockKind::Lambda(lambda), argument) => {
                let before = names.len();
                if let Some(argument) = argument {
                    let value = naive(argument, names, fuel)?;
                    let (name, _) = lambda.parameter.as_ref().unwrap();
                    names.push((name.to_string(), value));
                }
                let result = naive(&lambda.result, names, fuel);
                names.truncate(before);
                result
            }
            (_, Some(argument)) => {
                let fields = argument.as_struct().unwrap();
                let left = naive(&fields.elements[0].1, names, fuel)?;
                Some(left.wrapping_add(naive(&fields.elements[1].1, names, fuel)?))
            }
            _ => unreachable!(),
        },
        _ => unreachable!(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn names_mean_what_they_mean(program in program()) {
        // Sharing makes some of these exponential for the textbook.
        let mut fuel = 100_000;
        if let Some(value) = naive(&program, &mut Vec::new(), &mut fuel) {
            prop_assert_eq!(ints(&run(&program, None).unwrap())[0], value);
        }
    }
}

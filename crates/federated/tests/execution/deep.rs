//! Trees of 100,000 levels: no stack overflows, and time is linear.

use stator_federated::ast::BuildingBlock;

use crate::bench::*;

const DEEP: i64 = 100_000;

#[test]
fn calls() {
    let add = adds(1);
    let program = (0..DEEP).fold(literal(0), |value, _| call(add.clone(), value));
    assert_eq!(ints(&run(&program, None).unwrap()), [DEEP]);
}

#[test]
fn functions_that_call_functions() {
    let mut function = adds(0);
    for _ in 0..DEEP {
        let inner = call(function, name("x", int64()));
        function = lambda("x", int64(), inner);
    }
    assert_eq!(ints(&run(&call(function, literal(5)), None).unwrap()), [5]);
}

#[test]
fn blocks_inside_results_and_inside_values() {
    let x = || name("x", int64());
    let next = || call(adds(1), x());
    let program = (0..DEEP).fold(x(), |inner, _| block(vec![("x", next())], inner));
    let program = block(vec![("x", literal(0))], program);
    assert_eq!(ints(&run(&program, None).unwrap()), [DEEP]);
    let program = (0..DEEP).fold(literal(0), |inner, _| block(vec![("x", inner)], next()));
    assert_eq!(ints(&run(&program, None).unwrap()), [DEEP]);
}

#[test]
fn one_long_block() {
    let names: Vec<String> = (0..=DEEP).map(|at| format!("v{at}")).collect();
    let mut locals = vec![(&*names[0], literal(0))];
    for at in 1..names.len() {
        locals.push((&names[at], call(adds(1), name(&names[at - 1], int64()))));
    }
    let program = block(locals, name(&names[DEEP as usize], int64()));
    assert_eq!(ints(&run(&program, None).unwrap()), [DEEP]);
}

#[test]
fn structs_and_closures() {
    // Types of nested structs print and drop without recursion too.
    let program = (0..DEEP).fold(literal(7), |inner, _| tuple(vec![inner]));
    let mut value = run_once(&program);
    for _ in 0..DEEP {
        value = items(&value)[0].clone();
    }
    assert_eq!(ints(&value), [7]);
    // Each closure captures the one before it.
    let mut function = thunk(literal(3));
    for at in 0..DEEP {
        let called = name(&format!("f{at}"), function.ty().clone());
        let calls = thunk(BuildingBlock::call(called, None).unwrap());
        function = block(vec![(&*format!("f{at}"), function)], calls);
    }
    let program = BuildingBlock::call(function, None).unwrap();
    assert_eq!(ints(&run(&program, None).unwrap()), [3]);
}

#[test]
fn sequence_maps_in_sequence_maps() {
    // Operations that call functions use no stack either.
    let of = stator_federated::types::Type::sequence(int64()).unwrap();
    let mut function = adds(1);
    for _ in 0..20_000 {
        let one = apply("sequence_sum", vec![name("s", of.clone())], int64());
        let mapped = apply("sequence_map", vec![function, name("s", of.clone())], of.clone());
        let inner = lambda("s", of.clone(), block(vec![("unused", mapped)], one));
        let argument = name("x", int64());
        let run = call(inner, name("empty", of.clone()));
        function = lambda("x", int64(), apply("generic_plus", vec![argument, run], int64()));
    }
    let empty = stator_federated::execution::Value::sequence(vec![int(1)]);
    let value = run_with(
        of,
        |argument| block(vec![("empty", argument)], call(function, literal(5))),
        empty,
        0,
    );
    assert_eq!(ints(&value.unwrap()), [6]);
}

/// Without comparing what several threads say: printing a value uses the stack.
fn run_once(program: &BuildingBlock) -> Value {
    let small = std::sync::Arc::new(Small::default());
    stator_federated::execution::Interpreter::new(&small).evaluate(program).unwrap()
}

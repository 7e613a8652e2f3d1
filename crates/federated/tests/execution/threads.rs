//! The work of clients in several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use stator_federated::error::{Class, Error};
use stator_federated::execution::Interpreter;
use stator_federated::types::Type;

use crate::bench::*;

fn map_of(
    run: impl Fn(i64) -> Result<i64, Error> + Send + Sync + 'static,
) -> stator_federated::ast::BuildingBlock {
    let function = native(Type::function(Some(int64()), int64()), move |argument| {
        run(ints(&argument.unwrap())[0]).map(int)
    });
    let argument = name("argument", clients(int64()));
    let mapped = apply("federated_map", vec![function, argument], clients(int64()));
    lambda("argument", clients(int64()), mapped)
}

fn run_map(
    map: &stator_federated::ast::BuildingBlock,
    n: i64,
    threads: usize,
) -> Result<Value, Error> {
    let small = Arc::new(Small::default());
    let interpreter = Interpreter::new(&small).clients(Some(n as usize)).threads(threads);
    let Value::Function(function) = interpreter.evaluate(map)? else { unreachable!() };
    interpreter.call(function, Some(Value::each((0..n).map(int).collect())))
}

#[test]
fn results_stand_in_the_order_of_the_clients() {
    let map = map_of(|x| {
        std::thread::sleep(Duration::from_micros(((x * 7919) % 13) as u64 * 50));
        Ok(x * x)
    });
    for threads in [1, 2, 5, 64] {
        let expected: Vec<i64> = (0..40).map(|x| x * x).collect();
        assert_eq!(row(&run_map(&map, 40, threads).unwrap()), expected);
    }
}

#[test]
fn clients_work_at_the_same_time() {
    // Each waits for the other: one thread would wait for ever.
    let barrier = Arc::new(Barrier::new(2));
    let map = map_of(move |x| {
        barrier.wait();
        Ok(x)
    });
    assert_eq!(row(&run_map(&map, 2, 2).unwrap()), [0, 1]);
}

#[test]
fn the_first_failure_counts() {
    for threads in [1, 2, 8] {
        let begun = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&begun);
        let map = map_of(move |x| {
            seen.fetch_add(1, Ordering::Relaxed);
            // The later ones fail sooner.
            std::thread::sleep(Duration::from_millis(if x == 3 { 20 } else { 1 }));
            if x >= 3 { Err(Error::new(Class::Value, format!("{x} failed"))) } else { Ok(x) }
        });
        let error = run_map(&map, 100, threads).unwrap_err();
        assert!(error.to_string().starts_with("3 failed\n  client:   3"), "{error}");
        assert!(begun.load(Ordering::Relaxed) < 100, "no client is begun after a failure");
    }
}

#[test]
fn functions_of_blocks_stay_in_this_thread() {
    // Nothing but blocks: a thread would cost more than the work.
    let main = std::thread::current().id();
    let other = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&other);
    let check = native(Type::function(Some(int64()), int64()), move |argument| {
        seen.fetch_or(std::thread::current().id() != main, Ordering::Relaxed);
        Ok(argument.unwrap())
    });
    let small = Arc::new(Small::default());
    let interpreter = Interpreter::new(&small).clients(Some(3)).threads(2);
    let value = apply("federated_value_at_clients", vec![literal(1)], same_clients(int64()));
    interpreter
        .evaluate(&apply("federated_map", vec![adds(1), value.clone()], clients(int64())))
        .unwrap();
    assert!(!other.load(Ordering::Relaxed));
    interpreter.evaluate(&apply("federated_map", vec![check, value], clients(int64()))).unwrap();
    assert!(other.load(Ordering::Relaxed));
}

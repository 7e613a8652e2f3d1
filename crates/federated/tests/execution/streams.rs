//! What clients make is merged as it comes, and nothing else is seen of that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use stator_federated::ast::BuildingBlock;
use stator_federated::error::{Class, Error, Result};
use stator_federated::execution::Interpreter;
use stator_federated::types::Type;

use crate::bench::*;

type Log = Arc<Mutex<Vec<String>>>;

/// A computation that notes that it was called, and fails for one number.
fn noting(log: &Log, what: &'static str, is_pure: bool, fails_for: i64) -> BuildingBlock {
    let log = Arc::clone(log);
    native_int(is_pure, move |number| {
        log.lock().unwrap().push(format!("{what}{number}"));
        match number == fails_for {
            true => Err(Error::new(Class::Value, format!("{what} failed"))),
            false => Ok(number),
        }
    })
}

fn mapped(function: BuildingBlock, of: BuildingBlock) -> BuildingBlock {
    apply("federated_map", vec![function, of], clients(int64()))
}

fn summed(of: BuildingBlock) -> BuildingBlock {
    apply("federated_sum", vec![of], server(int64()))
}

fn held(at: &str) -> BuildingBlock {
    name(at, clients(int64()))
}

/// Runs a function of what clients hold, which is 0, 1, 2, ...
fn run_on(
    count: i64,
    threads: usize,
    body: impl FnOnce(BuildingBlock) -> BuildingBlock,
) -> Result<Value> {
    let small = Arc::new(Small::default());
    let function = lambda("x", clients(int64()), body(held("x")));
    let interpreter = Interpreter::new(&small).clients(Some(count as usize)).threads(threads);
    let Value::Function(function) = interpreter.evaluate(&function)? else { unreachable!() };
    interpreter.call(function, Some(Value::each((0..count).map(int).collect())))
}

/// A computation whose results are counted: how many there are at the same time.
fn counted(most: &Arc<AtomicUsize>) -> BuildingBlock {
    let made: Mutex<Vec<Weak<[i64]>>> = Mutex::default();
    let most = Arc::clone(most);
    native(Type::function(Some(int64()), int64()), move |argument| {
        let row: Arc<[i64]> = ints(&argument.unwrap()).into();
        let mut made = made.lock().unwrap();
        made.retain(|row| row.strong_count() > 0);
        made.push(Arc::downgrade(&row));
        most.fetch_max(made.len(), Ordering::Relaxed);
        Ok(Value::Leaf(Leaf::Ints(row)))
    })
}

/// How many results there are at the same time while so many clients work.
fn results(
    count: i64,
    threads: usize,
    body: impl FnOnce(BuildingBlock, BuildingBlock) -> BuildingBlock,
) -> usize {
    let most = Arc::new(AtomicUsize::new(0));
    run_on(count, threads, |x| body(counted(&most), x)).unwrap();
    most.load(Ordering::Relaxed)
}

#[test]
fn results_are_gone_when_they_are_merged() {
    let doubled = || {
        let both = vec![name("v", int64()), name("v", int64())];
        lambda("v", int64(), apply("generic_plus", both, int64()))
    };
    for threads in [1, 3] {
        let several = |count| {
            results(count, threads, |made, x| {
                let least = apply("federated_min", vec![held("made")], server(int64()));
                let twice = summed(mapped(doubled(), held("made")));
                let merges = tuple(vec![summed(held("made")), least, twice]);
                block(vec![("made", mapped(made, x))], merges)
            })
        };
        let few = several(400);
        assert!(few <= 64 * threads + 1, "{few}");
        assert_eq!(several(4000), few);
        let folded = results(4000, threads, |made, x| {
            let identity = lambda("r", int64(), name("r", int64()));
            let arguments = vec![mapped(made, x), literal(0), plus(), plus(), identity];
            apply("federated_aggregate", arguments, server(int64()))
        });
        assert_eq!(folded, few);
    }
}

#[test]
fn merges_further_down_are_known_in_time() {
    // Between the two sums stands something that wants the first.
    let most = results(4000, 1, |made, x| {
        let known =
            native(Type::function(Some(int64()), int64()), |argument| Ok(argument.unwrap()));
        let first =
            apply("federated_apply", vec![known, name("sum", server(int64()))], server(int64()));
        block(
            vec![
                ("made", mapped(made, x)),
                ("sum", summed(held("made"))),
                ("first", first),
                ("second", apply("federated_max", vec![held("made")], server(int64()))),
            ],
            tuple(vec![name("first", server(int64())), name("second", server(int64()))]),
        )
    });
    assert!(most <= 65, "{most}");
}

#[test]
fn what_is_wanted_for_all_clients_is_kept() {
    for threads in [1, 3] {
        let found = run_on(200, threads, |x| {
            let made = native_int(false, |number| Ok(number * 2));
            block(vec![("made", mapped(made, x))], tuple(vec![summed(held("made")), held("made")]))
        });
        let found = found.unwrap();
        assert_eq!(row(&items(&found)[0]), [199 * 200]);
        assert_eq!(row(&items(&found)[1]), (0..200).map(|x| 2 * x).collect::<Vec<_>>());
    }
}

#[test]
fn effects_keep_their_order() {
    let log = Log::default();
    run_on(3, 1, |x| {
        let none = -1;
        let server_call = apply(
            "federated_apply",
            vec![
                noting(&log, "s", false, none),
                apply("federated_value_at_server", vec![literal(9)], server(int64())),
            ],
            server(int64()),
        );
        block(
            vec![
                ("a", mapped(noting(&log, "a", false, none), x.clone())),
                ("server", server_call),
                ("b", mapped(noting(&log, "b", false, none), held("a"))),
                ("sum", summed(held("b"))),
                // Nobody wants it; it's done all the same.
                ("c", mapped(noting(&log, "c", false, none), x)),
            ],
            name("sum", server(int64())),
        )
    })
    .unwrap();
    let log = log.lock().unwrap().join(" ");
    assert_eq!(log, "a0 a1 a2 s9 b0 b1 b2 c0 c1 c2");
}

#[test]
fn each_client_works_once() {
    let log = Log::default();
    let found = run_on(3, 1, |x| {
        block(
            vec![
                ("a", mapped(noting(&log, "a", false, -1), x)),
                ("b", mapped(noting(&log, "b", true, -1), held("a"))),
                ("first", summed(held("b"))),
                ("again", mapped(noting(&log, "d", true, -1), held("b"))),
            ],
            tuple(vec![name("first", server(int64())), summed(held("again")), held("b")]),
        )
    });
    assert_eq!(row(&items(&found.unwrap())[2]), [0, 1, 2]);
    let mut log = log.lock().unwrap().clone();
    log.sort();
    assert_eq!(log.join(" "), "a0 a1 a2 b0 b1 b2 d0 d1 d2");
}

#[test]
fn the_failure_is_that_of_what_came_first() {
    let failure = |first_for: i64, then_for: i64| {
        let log = Log::default();
        let error = run_on(4, 1, |x| {
            block(
                vec![
                    ("a", mapped(noting(&log, "a", false, first_for), x)),
                    ("b", mapped(noting(&log, "b", true, then_for), held("a"))),
                ],
                summed(held("b")),
            )
        });
        let log = log.lock().unwrap().iter().filter(|what| what.starts_with('a')).count();
        (error.unwrap_err().to_string(), log)
    };
    assert_eq!(failure(2, -1), ("a failed\n  client:   2".to_owned(), 3));
    assert_eq!(failure(3, 1), ("a failed\n  client:   3".to_owned(), 4));
    // All clients have done what comes first.
    assert_eq!(failure(-1, 1), ("b failed\n  client:   1".to_owned(), 4));
}

#[test]
fn what_was_put_off_fails_before_what_came_later() {
    let log = Log::default();
    let error = run_on(2, 1, |x| {
        let fails = native_int(false, |_| Err(Error::new(Class::Value, "the server failed")));
        let value = apply("federated_value_at_server", vec![literal(9)], server(int64()));
        block(
            vec![
                ("a", mapped(noting(&log, "a", true, 1), x)),
                ("server", apply("federated_apply", vec![fails, value], server(int64()))),
            ],
            tuple(vec![summed(held("a")), name("server", server(int64()))]),
        )
    });
    assert_eq!(error.unwrap_err().to_string(), "a failed\n  client:   1");
}

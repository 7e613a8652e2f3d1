//! Computations in parts: what goes to which part, and what can't be split. That parts make the same whole is
//! checked wherever a test runs a computation (`run_with`).

use stator_federated::ast::BuildingBlock;
use stator_federated::execution::Split;

use crate::bench::*;

/// The operations of clients and of merging, stage by stage.
fn parts(function: &BuildingBlock) -> String {
    let split = match Split::new(function).unwrap() {
        Ok(split) => split,
        Err(reason) => return reason.to_owned(),
    };
    let stage = |(clients, merged): (Vec<&str>, Vec<&str>)| {
        format!("{} -> {}", clients.join(" "), merged.join(" "))
    };
    split.operations().into_iter().map(stage).collect::<Vec<_>>().join(" | ")
}

fn of_clients(body: impl FnOnce(BuildingBlock) -> BuildingBlock) -> BuildingBlock {
    lambda("x", clients(int64()), body(name("x", clients(int64()))))
}

fn sum(x: BuildingBlock) -> BuildingBlock {
    apply("federated_sum", vec![x], server(int64()))
}

fn map(function: BuildingBlock, x: BuildingBlock) -> BuildingBlock {
    apply("federated_map", vec![function, x], clients(int64()))
}

#[test]
fn one_round_is_one_stage() {
    let round = of_clients(|x| {
        let mapped = map(adds(1), x);
        block(
            vec![("mapped", mapped)],
            tuple(vec![
                sum(name("mapped", clients(int64()))),
                apply("federated_max", vec![name("mapped", clients(int64()))], server(int64())),
            ]),
        )
    });
    assert_eq!(parts(&round), "federated_map -> federated_sum federated_max |  -> ");
}

#[test]
fn functions_are_followed() {
    // A function of a value at clients, called twice.
    let function = lambda("y", clients(int64()), map(adds(1), name("y", clients(int64()))));
    let round = of_clients(|x| sum(call(function.clone(), call(function, x))));
    assert_eq!(parts(&round), "federated_map federated_map -> federated_sum |  -> ");
}

#[test]
fn what_clients_had_is_kept_for_the_next_stage() {
    let round = |x: BuildingBlock| {
        let total = apply(
            "federated_broadcast",
            vec![sum(name("mapped", clients(int64())))],
            same_clients(int64()),
        );
        let pairs = apply(
            "federated_zip_at_clients",
            vec![name("mapped", clients(int64())), total],
            clients(structure(&[int64(), int64()])),
        );
        block(vec![("mapped", map(adds(1), x))], sum(map(plus(), pairs)))
    };
    let whole = lambda("x", clients(int64()), round(name("x", clients(int64()))));
    assert_eq!(
        parts(&whole),
        "federated_map -> federated_sum | federated_zip_at_clients federated_map -> federated_sum |  -> "
    );
    let argument = Value::each((1..=5).map(int).collect());
    let value = run_with(clients(int64()), round, argument, 5).unwrap();
    assert_eq!(row(&value), [20 + 5 * 20]);
}

#[test]
fn members_of_the_result_come_back() {
    let round = |x: BuildingBlock| tuple(vec![map(adds(1), x.clone()), x]);
    let argument = Value::each((1..=5).map(int).collect());
    let value = run_with(clients(int64()), round, argument, 5).unwrap();
    assert_eq!(row(&items(&value)[0]), [2, 3, 4, 5, 6]);
    assert_eq!(row(&items(&value)[1]), [1, 2, 3, 4, 5]);
}

#[test]
fn what_all_clients_have_alike_is_the_servers() {
    let everywhere = lambda(
        "x",
        server(int64()),
        sum(apply("federated_broadcast", vec![name("x", server(int64()))], same_clients(int64()))),
    );
    assert_eq!(parts(&everywhere), " -> ");
}

#[test]
fn what_cannot_be_split_says_why() {
    assert_eq!(parts(&literal(1)), "it is no function");
    let of_function = lambda("f", adds(1).ty().clone(), literal(1));
    assert_eq!(parts(&of_function), "its argument has functions");
    // Each level calls the one below twice.
    let mut grows = lambda("x", clients(int64()), map(adds(1), name("x", clients(int64()))));
    for _ in 0..16 {
        let twice = call(
            name("f", grows.ty().clone()),
            call(name("f", grows.ty().clone()), name("x", clients(int64()))),
        );
        grows = block(vec![("f", grows)], lambda("x", clients(int64()), twice));
    }
    assert!(parts(&grows).starts_with("it is too large"));
}

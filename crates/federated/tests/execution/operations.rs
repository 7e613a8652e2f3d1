//! Each operation against what it means, written down in plain Rust.

use proptest::prelude::*;
use stator_federated::error::Class;
use stator_federated::execution::{Operation, ZERO};
use stator_federated::intrinsics;

use crate::bench::*;

fn each_int(values: &[i64]) -> Value {
    Value::each(values.iter().map(|&x| int(x)).collect())
}

fn each_float(values: &[f64]) -> Value {
    Value::each(values.iter().map(|&x| float(x)).collect())
}

fn sequence_of(values: &[i64]) -> Value {
    Value::sequence(values.iter().map(|&x| int(x)).collect())
}

fn int_sequence() -> stator_federated::types::Type {
    stator_federated::types::Type::sequence(int64()).unwrap()
}

#[test]
fn every_operation_of_the_language_is_known() {
    for def in intrinsics::all() {
        assert!(Operation::from_uri(def.uri).is_some() || def.uri == ZERO, "{}", def.uri);
    }
    assert_eq!(intrinsics::all().len(), Operation::ALL.len() + 1);
}

proptest! {
    #[test]
    fn sum_least_and_greatest(values in prop::collection::vec(any::<i64>(), 0..20)) {
        let n = values.len();
        let run = |uri| {
            let result = server(int64());
            let argument = each_int(&values);
            let value = run_with(clients(int64()), |x| apply(uri, vec![x], result), argument, n);
            ints(&items(&value.unwrap())[0])[0]
        };
        prop_assert_eq!(run("federated_sum"), values.iter().fold(0i64, |a, &b| a.wrapping_add(b)));
        prop_assert_eq!(run("federated_min"), values.iter().copied().min().unwrap_or(i64::MAX));
        prop_assert_eq!(run("federated_max"), values.iter().copied().max().unwrap_or(i64::MIN));
    }

    #[test]
    fn means(pairs in prop::collection::vec((-1e6..1e6f64, 0..100i64), 0..20)) {
        let n = pairs.len();
        let values: Vec<f64> = pairs.iter().map(|&(x, _)| x).collect();
        let weights: Vec<i64> = pairs.iter().map(|&(_, w)| w).collect();
        let mean = |x| apply("federated_mean", vec![x], server(float64()));
        let value = run_with(clients(float64()), mean, each_float(&values), n).unwrap();
        let naive = values.iter().sum::<f64>() / n as f64;
        let got = floats(&items(&value)[0])[0];
        prop_assert!(got == naive || (got - naive).abs() < 1e-6 || (n == 0 && got.is_nan()));

        let both = structure(&[clients(float64()), clients(int64())]);
        let argument = Value::structure(vec![each_float(&values), each_int(&weights)]);
        let mean = |x| apply("federated_weighted_mean", vec![x], server(float64()));
        let value = run_with(both, mean, argument, n).unwrap();
        let total = weights.iter().sum::<i64>() as f64;
        let naive = pairs.iter().map(|&(x, w)| x * w as f64).sum::<f64>() / total;
        let got = floats(&items(&value)[0])[0];
        prop_assert!((got - naive).abs() < 1e-6 || (total == 0.0 && got.is_nan()));
    }

    #[test]
    fn map_and_aggregate(values in prop::collection::vec(-1000..1000i64, 0..20), by in 0..9i64) {
        let n = values.len();
        let map = |x| apply("federated_map", vec![adds(by), x], clients(int64()));
        let value = run_with(clients(int64()), map, each_int(&values), n).unwrap();
        prop_assert_eq!(row(&value), values.iter().map(|x| x + by).collect::<Vec<_>>());

        let aggregate = |x| {
            let arguments = vec![x, literal(0), plus(), plus(), adds(by)];
            apply("federated_aggregate", arguments, server(int64()))
        };
        let value = run_with(clients(int64()), aggregate, each_int(&values), n).unwrap();
        prop_assert_eq!(row(&value), vec![values.iter().sum::<i64>() + by]);
    }

    #[test]
    fn sequences(values in prop::collection::vec(-1000..1000i64, 0..20), by in 0..9i64) {
        let program = |x: stator_federated::ast::BuildingBlock| tuple(vec![
            apply("sequence_map", vec![adds(by), x.clone()], int_sequence()),
            apply("sequence_sum", vec![x.clone()], int64()),
            apply("sequence_reduce", vec![x, literal(by), plus()], int64()),
        ]);
        let value = run_with(int_sequence(), program, sequence_of(&values), 0).unwrap();
        let sum = values.iter().sum::<i64>();
        let mapped: Vec<i64> = values.iter().map(|x| x + by).collect();
        prop_assert_eq!(row(&items(&value)[0]), mapped);
        prop_assert_eq!(ints(&items(&value)[1])[0], sum);
        prop_assert_eq!(ints(&items(&value)[2])[0], sum + by);
    }

    #[test]
    fn secure_sums(values in prop::collection::vec(-3..20i64, 0..6), limit in 0..20i64, bits in 0..6i64) {
        let n = values.len();
        for (uri, limit, most) in [
            ("federated_secure_sum", limit, limit),
            ("federated_secure_sum_bitwidth", bits, (1 << bits) - 1),
        ] {
            let secure = |x| apply(uri, vec![x, literal(limit)], server(int64()));
            let value = run_with(clients(int64()), secure, each_int(&values), n);
            match values.iter().position(|x| !(0..=most).contains(x)) {
                None => prop_assert_eq!(row(&value.unwrap()), vec![values.iter().sum::<i64>()]),
                Some(client) => {
                    let error = value.unwrap_err();
                    prop_assert_eq!(error.class(), Class::Value);
                    prop_assert!(error.to_string().contains(&format!("client:   {client}")), "{}", error);
                }
            }
        }
    }

    #[test]
    fn select_serves_slices(keys in prop::collection::vec((0..9i64, 0..9i64), 0..6), max in 4..9i64) {
        let n = keys.len();
        let rows: Vec<Vec<i64>> = keys.iter().map(|&(a, b)| vec![a, b]).collect();
        let keys = rows.iter().map(|row| Value::Leaf(Leaf::Ints(row.as_slice().into()))).collect();
        let of = clients(literal_row(&[0, 0]).ty().clone());
        for uri in ["federated_select", "federated_secure_select"] {
            let program = |keys| {
                let at_server = |x| apply("federated_value_at_server", vec![literal(x)], server(int64()));
                let arguments = vec![keys, at_server(max), at_server(100), plus()];
                apply(uri, arguments, clients(int_sequence()))
            };
            let value = run_with(of.clone(), program, Value::each(Clone::clone(&keys)), n);
            if rows.iter().flatten().any(|&key| key > max) {
                prop_assert_eq!(value.unwrap_err().class(), Class::Value);
                continue;
            }
            let value = value.unwrap();
            let got: Vec<Vec<i64>> = items(&value).iter().map(row).collect();
            let naive: Vec<Vec<i64>> =
                rows.iter().map(|row| row.iter().map(|key| key + 100).collect()).collect();
            prop_assert_eq!(got, naive);
        }
    }

    #[test]
    fn zips(values in prop::collection::vec((any::<i64>(), any::<i64>()), 0..9)) {
        let n = values.len();
        let first: Vec<i64> = values.iter().map(|&(a, _)| a).collect();
        let second: Vec<i64> = values.iter().map(|&(_, b)| b).collect();
        let inner = structure(&[clients(int64()), same_clients(int64())]);
        let ty = structure(&[clients(int64()), inner]);
        let argument = Value::structure(vec![
            each_int(&first),
            Value::structure(vec![each_int(&second), Value::everywhere(int(7))]),
        ]);
        let of = clients(structure(&[int64(), structure(&[int64(), int64()])]));
        let zip = |x| apply("federated_zip_at_clients", vec![x], of);
        let value = run_with(ty, zip, argument, n).unwrap();
        for (member, &(a, b)) in items(&value).iter().zip(&values) {
            prop_assert_eq!(ints(&items(member)[0])[0], a);
            prop_assert_eq!(row(&items(member)[1]), vec![b, 7]);
        }
        prop_assert_eq!(items(&value).len(), n);
    }
}

#[test]
fn values_at_places() {
    let seven = || literal(7);
    let at = |uri, ty| apply(uri, vec![seven()], ty);
    let value = run(&at("federated_value_at_clients", same_clients(int64())), None).unwrap();
    assert_eq!(row(&value), [7]);
    let at_server = at("federated_value_at_server", server(int64()));
    let sent = apply("federated_broadcast", vec![at_server.clone()], same_clients(int64()));
    let mapped =
        apply("federated_map_all_equal", vec![adds(1), sent.clone()], same_clients(int64()));
    assert_eq!(row(&run(&mapped, None).unwrap()), [8]);
    let applied = apply("federated_apply", vec![adds(2), at_server.clone()], server(int64()));
    assert_eq!(row(&run(&applied, None).unwrap()), [9]);
    let zipped = apply(
        "federated_zip_at_server",
        vec![at_server.clone(), at_server],
        server(structure(&[int64(), int64()])),
    );
    assert_eq!(row(&items(&run(&zipped, None).unwrap())[0]), [7, 7]);
    let total = apply("federated_sum", vec![sent], server(int64()));
    assert_eq!(row(&run(&total, Some(6)).unwrap()), [42]);
    let error = run(&total, None).unwrap_err();
    assert!(error.to_string().contains("the number of clients isn't known"));
}

#[test]
fn evaluates_at_places() {
    let at_clients = apply("federated_eval_at_clients", vec![thunk(literal(3))], clients(int64()));
    for clients in [0, 1, 4] {
        assert_eq!(row(&run(&at_clients, Some(clients)).unwrap()), vec![3; clients]);
    }
    assert_eq!(run(&at_clients, None).unwrap_err().class(), Class::Value);
    let at_server = apply("federated_eval_at_server", vec![thunk(literal(3))], server(int64()));
    assert_eq!(row(&run(&at_server, None).unwrap()), [3]);
}

#[test]
fn arithmetic_goes_into_structs() {
    let pair = |a, b| tuple(vec![literal(a), tuple(vec![literal(b)])]);
    let of = structure(&[int64(), structure(&[int64()])]);
    for (uri, first, second) in
        [("generic_plus", 9, 12), ("generic_multiply", 18, 32), ("generic_divide", 2, 2)]
    {
        let value = run(&apply(uri, vec![pair(6, 8), pair(3, 4)], of.clone()), None).unwrap();
        assert_eq!(ints(&items(&value)[0]), [first]);
        assert_eq!(row(&items(&value)[1]), [second]);
    }
    let zero = stator_federated::ast::BuildingBlock::intrinsic("generic_zero", of);
    assert_eq!(row(&items(&run(&zero, None).unwrap())[1]), [0]);
}

#[test]
fn operations_are_values() {
    let ty = stator_federated::types::Type::function(Some(structure(&[int64(), int64()])), int64());
    let plus = stator_federated::ast::BuildingBlock::intrinsic("generic_plus", ty.clone());
    let of = lambda("f", ty.clone(), call(name("f", ty), tuple(vec![literal(1), literal(2)])));
    assert_eq!(ints(&run(&call(of, plus), None).unwrap()), [3]);
}

#[test]
fn unknown_operations_and_names_are_errors() {
    let unknown = apply("no_such_thing", vec![literal(1)], int64());
    assert_eq!(run(&unknown, None).unwrap_err().class(), Class::NotImplemented);
    let error = run(&name("nobody", int64()), None).unwrap_err();
    assert!(error.to_string().contains("`nobody` is bound nowhere"), "{error}");
}

//! Random programs, compared with plain integer arithmetic at every assignment in range.
//!
//! What is compared is the whole promise: an assignment passes the compiled facts if and only if
//! plain Python answers every question about it as the recorded call did; and then every expression
//! has its value.

mod language;

use language::{Bool, Int, bools, grid, ints};
use proptest::prelude::*;
use stator_shapes::{Context, Duck, Error, SymbolId};

/// A step of a program.
#[derive(Clone, Debug)]
enum Step {
    Compute(Int),
    Ask(Bool),
    Specialize(Int),
}

const SYMBOLS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => ints(SYMBOLS).prop_map(Step::Compute),
        6 => bools(SYMBOLS).prop_map(Step::Ask),
        1 => ints(SYMBOLS).prop_map(Step::Specialize),
    ];
    prop::collection::vec(step, 1..6)
}

/// A range with a hint in it.
fn symbols() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    let symbol = (-5i64..4, 2i64..8).prop_flat_map(|(lo, length)| {
        (lo..=lo + length).prop_map(move |hint| (hint, lo, lo + length))
    });
    prop::collection::vec(symbol, SYMBOLS)
}

/// Assignments for which a program's answers and values were compared.
static COMPARED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn check_program(symbols: &[(i64, i64, i64)], duck: bool, steps: &[Step]) {
    let mut ctx = Context::new();
    let duck = duck.then_some(Duck::SIZE);
    let exprs: Vec<_> =
        symbols.iter().map(|&(hint, lo, hi)| ctx.symbol(hint, (lo, hi), duck).expr).collect();
    let hints: Vec<i64> = symbols.iter().map(|symbol| symbol.0).collect();
    // The steps that were built, and their values in the recorded call.
    let mut computed = Vec::new();
    let mut asked = Vec::new();
    for step in steps {
        match step {
            Step::Compute(int) | Step::Specialize(int) => match int.build(&mut ctx, &exprs) {
                Ok(e) => {
                    assert_eq!(Some(i128::from(ctx.hint(e))), int.value(&hints), "the hint");
                    computed.push((e, int));
                    if matches!(step, Step::Specialize(_)) {
                        ctx.specialize(e);
                        let simple = ctx.simplify(e);
                        assert_eq!(ctx.as_constant(simple), Some(ctx.hint(e)), "specialised");
                        let value = Int::Constant(ctx.hint(e));
                        asked.push((
                            Bool::Compare(stator_shapes::Cmp::Eq, int.clone(), value),
                            true,
                        ));
                    }
                }
                Err(error) => return check_error(error, || int.value(&hints)),
            },
            Step::Ask(bool) => match bool.build(&mut ctx, &exprs) {
                Ok(c) => {
                    let value = ctx.evaluate(c).value();
                    assert_eq!(Some(value), bool.value(&hints), "the answer at the hints");
                    assert_eq!(ctx.decide(c), Some(value), "known from now on");
                    asked.push((bool.clone(), value));
                }
                Err(error) => return check_error(error, || bool.value(&hints)),
            },
        }
    }
    let facts = ctx.facts();
    let slot = |symbol: SymbolId| symbol.index();
    let program = ctx.compile(&facts, &slot);
    let programs: Vec<_> = computed
        .iter()
        .map(|&(e, int)| {
            let simple = ctx.simplify(e);
            (ctx.compile_expr(e, &slot), ctx.compile_expr(simple, &slot), int)
        })
        .collect();
    let intervals: Vec<_> = computed.iter().map(|&(e, _)| ctx.interval(e)).collect();
    let ranges: Vec<(i64, i64)> = symbols.iter().map(|&(_, lo, hi)| (lo - 1, hi + 1)).collect();
    for values in grid(&ranges) {
        let in_range =
            symbols.iter().zip(&values).all(|(&(_, lo, hi), value)| (lo..=hi).contains(value));
        let unified = duck.is_none()
            || (0..SYMBOLS).all(|i| (0..i).all(|j| hints[i] != hints[j] || values[i] == values[j]));
        let same_answers = asked.iter().all(|(bool, value)| bool.value(&values) == Some(*value));
        let same_computations = computed.iter().all(|(_, int)| int.value(&values).is_some());
        let expected = in_range && unified && same_answers && same_computations;
        let passes = program.check(&values, &[]);
        assert_eq!(passes, expected, "whether {values:?} passes");
        assert_eq!(program.first_failing(&values, &[]).is_none(), passes);
        if passes {
            for (i, (built, simple, int)) in programs.iter().enumerate() {
                let value = int.value(&values).and_then(|value| i64::try_from(value).ok());
                assert_eq!(built.eval(&values, &[]), value, "the expression at {values:?}");
                assert_eq!(simple.eval(&values, &[]), value, "simplified, at {values:?}");
                assert!(value.is_none_or(|value| intervals[i].contains(value)), "the interval");
            }
        }
        COMPARED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Where building fails, so does Python, or 64 bits don't suffice.
fn check_error<T: std::fmt::Debug>(error: Error, value: impl FnOnce() -> Option<T>) {
    match error {
        Error::ZeroDivision => assert!(value().is_none(), "{:?}", "Python raises"),
        Error::Overflow | Error::TooComplex => {}
        Error::Undefined => panic!("no program here is undefined"),
    }
}

/// Enough programs that a million assignments are compared.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: CASES,
        max_shrink_iters: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

const CASES: u32 = 6_000;

#[test]
fn programs_do_as_python_does() {
    let programs = (symbols(), any::<bool>(), steps());
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let outcome = runner.run(&programs, |(symbols, duck, steps)| {
        check_program(&symbols, duck, &steps);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let compared = COMPARED.load(std::sync::atomic::Ordering::Relaxed);
    assert!(compared > 1_000_000, "only {compared} assignments were compared");
}

/// Symbols whose values are at the ends of 64 bits, of floats and of small numbers.
fn large_symbols() -> impl Strategy<Value = Vec<i64>> {
    let near = |centre: i64| (-3i64..4).prop_map(move |by| centre.saturating_add(by));
    let value = prop_oneof![
        near(0),
        near(i64::MAX),
        near(i64::MIN),
        near(1 << 31),
        near(1 << 53),
        near(-(1 << 53)),
        near(3_037_000_499),
        any::<i64>(),
    ];
    prop::collection::vec(value, SYMBOLS)
}

/// With numbers this large answers may be guards that few pass; none may be wrong.
fn check_large(hints: &[i64], others: &[Vec<i64>], steps: &[Step]) {
    let mut ctx = Context::new();
    let exprs: Vec<_> =
        hints.iter().map(|&hint| ctx.symbol(hint, (i64::MIN, i64::MAX), None).expr).collect();
    let mut computed = Vec::new();
    let mut asked = Vec::new();
    for step in steps {
        match step {
            Step::Compute(int) | Step::Specialize(int) => {
                let Ok(e) = int.build(&mut ctx, &exprs) else { break };
                assert_eq!(Some(i128::from(ctx.hint(e))), int.value(hints), "the hint");
                computed.push((e, int));
            }
            Step::Ask(bool) => {
                let Ok(c) = bool.build(&mut ctx, &exprs) else { break };
                let value = ctx.evaluate(c).value();
                assert_eq!(Some(value), bool.value(hints), "the answer at the hints");
                asked.push((bool, value));
            }
        }
    }
    let facts = ctx.facts();
    let slot = |symbol: SymbolId| symbol.index();
    let program = ctx.compile(&facts, &slot);
    assert!(program.check(hints, &[]), "the recorded call passes");
    for values in others {
        if !program.check(values, &[]) {
            continue;
        }
        for (bool, value) in &asked {
            // None: the model itself would need more than 128 bits.
            let expected = bool.value(values);
            assert!(expected.is_none_or(|expected| expected == *value), "at {values:?}");
        }
        for (e, int) in &computed {
            let computed = ctx.compile_expr(*e, &slot).eval(values, &[]);
            let expected = int.value(values);
            if let (Some(value), Some(expected)) = (computed, expected) {
                assert_eq!(i128::from(value), expected, "the expression at {values:?}");
            }
        }
    }
}

#[test]
fn nothing_wraps() {
    // Rounded quotients of such numbers have a test of their own.
    let steps = steps().prop_filter("no floats", |steps| !format!("{steps:?}").contains("Round("));
    let others = prop::collection::vec(large_symbols(), 60);
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 2000, ..config() });
    let outcome = runner.run(&(large_symbols(), others, steps), |(hints, others, steps)| {
        check_large(&hints, &others, &steps);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

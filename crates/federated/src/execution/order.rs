//! The order of a function's steps: merges of what clients make come right after it.
//!
//! What clients make is merged as it comes ([`super::streams`]) where all its merges are known when the first result is
//! asked for. A tree often has them elsewhere: the mean of the losses comes after the server's step. So what only puts
//! something off (selections from what a compiled computation gives for each client, structs of that, sums and means)
//! is moved up. It can't fail and has no effects. All other steps keep their order.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::code::{Act, Slot, Step};
use super::operation::Operation as Op;

/// The steps in an order in which they can be taken.
pub(super) fn merges_first(steps: Vec<Step>) -> Vec<Step> {
    let made_by: FxHashMap<Slot, usize> =
        steps.iter().enumerate().map(|(at, step)| (step.out, at)).collect();
    let early = early(&steps, &made_by);
    if !early.contains(&true) {
        return steps;
    }
    // For each step, how many of those that it reads haven't been taken, and who reads it.
    let mut missing = vec![0usize; steps.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (at, step) in steps.iter().enumerate().filter(|(at, _)| early[*at]) {
        for from in step.act.reads().filter_map(|slot| made_by.get(&slot)) {
            readers[*from].push(at);
            missing[at] += 1;
        }
    }
    let count = steps.len();
    let mut left: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    let mut order = Vec::with_capacity(count);
    let mut ready: VecDeque<usize> =
        (0..count).filter(|&at| early[at] && missing[at] == 0).collect();
    let mut next = 0;
    loop {
        let at = match ready.pop_front() {
            Some(at) => at,
            None if next == count => break,
            None => {
                next += 1;
                if early[next - 1] {
                    continue;
                }
                next - 1
            }
        };
        order.extend(left[at].take());
        for &reader in &readers[at] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                ready.push_back(reader);
            }
        }
    }
    order
}

/// Which steps are taken as early as they can be.
fn early(steps: &[Step], made_by: &FxHashMap<Slot, usize>) -> Vec<bool> {
    let act_of = |slot: Slot| made_by.get(&slot).map(|&at| &steps[at].act);
    // What is put off.
    let mut later = vec![false; steps.len()];
    let mut early = vec![false; steps.len()];
    let mut left = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let is_later = |slot: Slot| made_by.get(&slot).is_some_and(|&from| later[from]);
        let (puts_off, merges) = match &step.act {
            Act::Struct(row) => (row.iter().any(|&slot| is_later(slot)), false),
            Act::Select(source, _) => (is_later(*source), false),
            Act::Call(function, Some(argument)) => match act_of(*function) {
                Some(Act::Operation(Op::EvalAtClients, _)) => {
                    later[at] = true;
                    continue;
                }
                Some(Act::Operation(Op::Map, _)) => {
                    let mapped = match act_of(*argument) {
                        Some(Act::Struct(row)) => row.first().and_then(|&slot| act_of(slot)),
                        _ => None,
                    };
                    match mapped {
                        Some(Act::Closure(code, _)) if !code.runs_compiled => {
                            (is_later(*argument), is_later(*argument))
                        }
                        Some(Act::Closure(..) | Act::Compiled(..)) => {
                            later[at] = true;
                            continue;
                        }
                        _ => (false, false),
                    }
                }
                Some(Act::Operation(Op::ZipAtClients, _)) => {
                    (is_later(*argument), is_later(*argument))
                }
                Some(Act::Operation(
                    Op::Sum | Op::Mean | Op::WeightedMean | Op::Min | Op::Max,
                    _,
                )) => (false, is_later(*argument)),
                _ => (false, false),
            },
            _ => (false, false),
        };
        later[at] = puts_off;
        if merges {
            left.push(at);
        }
    }
    // And what these need: it's made of what is there.
    while let Some(at) = left.pop() {
        if std::mem::replace(&mut early[at], true) {
            continue;
        }
        let free = |&from: &usize| {
            let act = &steps[from].act;
            matches!(act, Act::Struct(_) | Act::Select(..) | Act::Operation(..) | Act::Closure(..))
        };
        left.extend(
            steps[at].act.reads().filter_map(|slot| made_by.get(&slot)).filter(|from| free(from)),
        );
    }
    early
}

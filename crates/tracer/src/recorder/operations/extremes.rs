//! `min` and `max` of tensors with one element (`max(loss, 0)`, `max([0, loss])`): comparisons, and of each a decision.

use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, CompareOp};

use crate::recorder::Recorder;
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::numbers::read_tensors::single;

/// So many are compared one by one.
const MOST: usize = 64;

fn is_list_or_tuple(object: Borrowed<'_, '_>) -> bool {
    heap::is_exact_list(object) || heap::is_plain_tuple(object)
}

impl Recorder {
    /// The least or greatest of what is given, if tensors are among it; `None`: it's something else.
    pub(in crate::recorder) fn extreme_tensor<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let op = self.functions.numeric(callable)?.extreme()?;
        let is_tensor = |arg: &Borrowed<'_, '_>| self.kind(*arg) == Kind::Tensor;
        let listed;
        let args: Args<'_, 'py> = match (names, args) {
            (None, [sequence]) if is_list_or_tuple(*sequence) => {
                listed = self.elements(*sequence)?;
                listed.iter().map(|item| item.as_borrowed()).collect()
            }
            (None, [_, _, ..]) => args.iter().copied().collect(),
            _ => return None,
        };
        let [first, others @ ..] = &args[..] else { return None };
        if args.len() > MOST || !args.iter().any(is_tensor) {
            return None;
        }
        let is_plain = |arg: &Borrowed<'_, '_>| {
            if is_tensor(arg) { single(*arg).is_some() } else { heap::is_number(*arg) }
        };
        if !args.iter().all(is_plain) || !self.session.is_replayed() || !self.is_untouched(frame) {
            return None;
        }
        Some(self.first_by(frame, op, *first, others))
    }

    /// As CPython looks for it: whichever comes before the best so far.
    fn first_by<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        first: Borrowed<'_, 'py>,
        others: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>> {
        let mut best = first;
        for other in others {
            let is_better = self.compare_op(frame, op, *other, best)?;
            if !self.is_stopped() {
                // To compare changes nothing: the instruction is as before.
                self.baseline.set(ops::executed());
            }
            if self.truth_of(frame, is_better.as_borrowed())? {
                best = *other;
            }
        }
        Ok(best.to_owned())
    }
}

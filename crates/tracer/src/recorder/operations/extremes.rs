//! `min` and `max` of tensors with one element (`max(loss, 0)`): comparisons, and of each a decision.

use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, CompareOp};

use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::numbers::read_tensors::single;

impl Recorder {
    /// The least or greatest of what is given, if tensors are among it; `None`: it's something else.
    pub(in crate::recorder) fn extreme_tensor<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let is_tensor = |arg: &Borrowed<'_, '_>| self.kind(*arg) == Kind::Tensor;
        let (None, [first, others @ ..]) = (names, args) else { return None };
        if others.is_empty() || !args.iter().any(is_tensor) {
            return None;
        }
        let op = self.functions.numeric(callable)?.extreme()?;
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

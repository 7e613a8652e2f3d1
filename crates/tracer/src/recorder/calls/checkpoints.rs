//! `torch.utils.checkpoint.checkpoint`: one node, whose code a replay runs, and runs again when it goes back.

use stator_cpython::code::Code;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, modules, ops};

use super::hidden::hidden;
use crate::breaks::Reason;
use crate::compiling;
use crate::locate::text;
use crate::raises::CHECKPOINT;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Operations;
use crate::recorder::notes::call::{Call, argument};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};

impl Recorder {
    /// Calls what PyTorch has hidden from its own tracer, if that is a checkpoint; `None`: it's something else.
    pub(in crate::recorder) fn call_checkpoint<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let named = names.map_or(0, |names| heap::tuple_items(names).len());
        let function = args.first().filter(|_| args.len() > named)?;
        if self.is_stopped() || !self.session.is_replayed() || compiling::answer() {
            return None;
        }
        if argument(args, names, usize::MAX, "context_fn").is_some() {
            // Modes of the program's own would run within operations.
            return None;
        }
        let checkpoint = hidden(callable).filter(|it| is_checkpoint(it.as_borrowed()))?;
        {
            // The first checkpoint loads it: what runs then is no part of the node.
            let _native = Suspended::new(frame.py());
            modules::import(frame.py(), "torch.utils._device").ok()?;
        }
        self.note(frame, |state| {
            state.write_early(frame)?;
            state.know_for_good(callable)?;
            state.know_hook(*function)?;
            args.iter().try_for_each(|arg| state.give(*arg, frame).map(drop))
        })?;
        let checkpoint = checkpoint.as_borrowed();
        let target = |state: &mut State| state.seen_target(checkpoint, CHECKPOINT.to_owned());
        let result = self.operation(frame, target, args, names, || {
            let run = || ops::call(checkpoint, args, names);
            let before = self.state.borrow().graph.len();
            let result = self.enclose(frame, "a checkpointed function", args, run)?;
            self.note(frame, |state| state.note_given_back(result.as_borrowed(), before));
            Ok(result)
        });
        self.note(frame, |state| {
            state.enclosed.given_back.clear();
            state.enclosed.add_function();
            state.take_out(frame)
        });
        Some(result)
    }
}

impl State {
    /// Which tensors of a result are the ones that the trace knew when it had so many nodes: with fixed sizes and strides
    /// the code gives back the same each time.
    fn note_given_back(&mut self, result: Borrowed<'_, '_>, before: usize) -> Noted<()> {
        match self.kind(result) {
            Kind::Tensor => {
                let is_known = match self.origin(result) {
                    Some(Origin::Source(_)) => true,
                    Some(Origin::Node(node)) => node.index() < before,
                    _ => false,
                };
                if is_known && self.symbolic_sizes(result).is_some() {
                    let detail = "a tensor of varying sizes that a checkpoint was given";
                    return Err((Reason::Unsupported, detail.into()));
                }
                if is_known {
                    self.enclosed.given_back.insert(result.as_ptr() as usize);
                }
                Ok(())
            }
            Kind::List | Kind::Tuple | Kind::Dict => {
                let items = heap::children(result);
                items.iter().try_for_each(|item| self.note_given_back(item.as_borrowed(), before))
            }
            _ => Ok(()),
        }
    }
}

fn is_checkpoint(function: Borrowed<'_, '_>) -> bool {
    let code = value(function, Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    code.is_some_and(|code| {
        text(code.qualname()) == "checkpoint"
            && text(code.filename()).ends_with("/torch/utils/checkpoint.py")
    })
}

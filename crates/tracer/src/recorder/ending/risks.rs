//! Operations that a trace ends before, because a replay in which they raise couldn't end as plain Python:
//! what was written before can't be put back, or only by large copies; or it is the program's own
//! code, which isn't called again, and the program may handle what it raises.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor::{self, TensorInfo};
use stator_graph::{Arg, Target, TextId, Value};

use crate::breaks::Reason;
use crate::handlers::{Handlers, Withs};
use crate::raises::NodeCall;
use crate::recorder::Recorder;
use crate::recorder::notes::inputs::TensorInput;
use crate::recorder::notes::state::{State, Stop};
use crate::undo::LARGE;
use crate::writes::write_of;

/// That a replay which an operation raises in couldn't go back to its start, or not as cheaply as it leaves by an exit;
/// and why the trace ends before the operation if there can be none.
pub(in crate::recorder) struct Risk(pub(in crate::recorder) Option<Stop>);

impl Recorder {
    /// Whether an operation is to have a way out for what it raises. `refuses`: it may refuse sizes that data decides.
    #[allow(clippy::too_many_arguments)]
    pub(in crate::recorder) fn risk(
        &self,
        state: &mut State,
        frame: &Frame<'_>,
        target: Target,
        args: &[Arg],
        keywords: &[TextId],
        refuses: bool,
    ) -> Option<Risk> {
        if self.session.program.is_some() {
            return None;
        }
        let call = NodeCall { graph: &state.graph, target, args, keywords, class: None };
        let call = state.writes.classified(call);
        if !refuses && !call.may_raise(&|_| false) {
            return None;
        }
        let name = call.operation().to_owned();
        let is_users = call.is_users();
        state.writes.advance(&state.graph, &|_| false);
        if !refuses && !state.writes.may_raise(call) {
            return None;
        }
        let own = if call.is_repeatable() { Vec::new() } else { state.writes.written_by(call) };
        let is_behind =
            !state.writes.written.is_empty() || !own.is_empty() || state.writes.has_called;
        // Copies are dear, but where there may be no break they are made.
        let fullgraph = self.session.fullgraph;
        let most = if fullgraph { u64::MAX } else { LARGE };
        if let Some(why) = state.irrevocable(frame.py(), target, args, keywords, most) {
            let stop = (Reason::Irrevocable, format!("{name}, behind {why}"));
            return Some(Risk(Some(stop)));
        }
        if is_users && self.is_handled(state, frame) {
            let detail = format!("{name}, whose errors the program may handle");
            return Some(Risk((!fullgraph).then_some((Reason::Irrevocable, detail))));
        }
        (is_behind || is_users && !state.written.is_empty()).then_some(Risk(None))
    }

    /// Why the trace ends before an operation that has no way out; `None`: it goes on.
    pub(in crate::recorder) fn runs_risk(&self, risk: Risk) -> Option<Stop> {
        let Risk(why) = risk;
        // A replay in which it raises would go back to the function's start, and print again.
        let prints = self.state.try_borrow().is_ok_and(|state| state.prints);
        why.or_else(|| {
            prints.then(|| (Reason::Irrevocable, "an operation behind a print".to_owned()))
        })
    }

    /// Whether the program may handle what the current instruction raises.
    fn is_handled(&self, state: &mut State, frame: &Frame<'_>) -> bool {
        let withs = self.plain_withs.borrow();
        let plain: Withs =
            withs.iter().map(|(code, unit)| (code.as_ptr() as usize, *unit)).collect();
        let Some(stack) = state.place(frame) else { return false };
        let (graph, codes) = (&state.graph, state.frames.codes());
        Handlers { py: frame.py(), graph, codes, plain: &plain }.may_handle_at(stack)
    }
}

impl State {
    /// What the trace has written and a replay couldn't put back, or by copies of more than `most` bytes, if
    /// this operation raises.
    fn irrevocable(
        &mut self,
        py: Python<'_>,
        target: Target,
        args: &[Arg],
        keywords: &[TextId],
        most: u64,
    ) -> Option<String> {
        let call = NodeCall { graph: &self.graph, target, args, keywords, class: None };
        let own = if call.is_repeatable() { None } else { write_of(call) };
        let own = own.map_or(0, |(_, targets)| self.bytes_of(&targets));
        let mut why = None;
        let (mut bytes, mut is_detached) = (own, false);
        for TensorInput { position, tensor, version, .. } in self.inputs.tensors() {
            let input = tensor.bind_borrowed(py);
            let Some(now) = tensor::info(input) else { continue };
            let node = self.graph.placeholders()[*position as usize];
            let Value::Tensor(before) = self.graph.node(node).value else { continue };
            is_detached |= before.requires_grad && !now.requires_grad;
            if now.version == *version {
                continue;
            }
            bytes += size(&now);
            let asks = |method: &str| {
                input.call_method0(method).and_then(|is| is.extract::<bool>()).unwrap_or(true)
            };
            let is_leaf = || input.getattr("is_leaf").and_then(|is| is.extract::<bool>());
            if now.requires_grad
                && !is_leaf().unwrap_or(true)
                && (before.requires_grad || asks("_is_view"))
            {
                why = Some("a write to a tensor that is part of a gradient's graph".to_owned());
            }
        }
        if why.is_none() && bytes <= most && !is_detached {
            return None;
        }
        if own > 0 && self.writes.written_by(call).is_empty() {
            // It is a tensor of the trace's own.
            bytes -= own;
        }
        if why.is_none() && self.writes.detached {
            why = Some("detach_ of an input".to_owned());
        }
        why.or_else(|| (bytes > most).then(|| format!("writes to {} MiB of inputs", bytes >> 20)))
    }
}

impl State {
    /// The bytes of the tensors among an operation's arguments.
    fn bytes_of(&self, args: &[Arg]) -> u64 {
        let mut bytes = 0;
        for &arg in args {
            self.graph.visit_nodes(arg, &mut |id| {
                if let Value::Tensor(meta) = self.graph.node(id).value {
                    let sizes = self.graph.sizes(&meta).iter().map(|size| size.unsigned_abs());
                    bytes += sizes.product::<u64>() * meta.dtype.bytes().unwrap_or(16);
                }
            });
        }
        bytes
    }
}

/// The bytes of a tensor's elements; types of unknown size count as large ones.
fn size(info: &TensorInfo) -> u64 {
    let dtype = i8::try_from(info.dtype).map(stator_graph::Dtype);
    let element = dtype.ok().and_then(stator_graph::Dtype::bytes).unwrap_or(16);
    info.sizes.iter().map(|size| size.unsigned_abs()).product::<u64>() * element
}

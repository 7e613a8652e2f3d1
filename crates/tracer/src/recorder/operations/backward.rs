//! `backward()` and `torch.autograd.grad` as nodes.
//!
//! A replay makes the calls of a trace again, and PyTorch takes its notes of them again: so going back through these
//! is one more node, and what it finds in `grad` of the tensors afterwards is what an operation gives. Each is a
//! node of its own, once somebody reads it.
//!
//! A gradient that is there already is added to in place: it's an input of the graph, and written.
//!
//! That holds where all that the gradients depend on is in the trace. Where it goes back through a graph that began
//! outside, as behind an exit, a replay [asks][Past] first whether that leads to the same leaves, as far as the trace
//! looks at them. What it does there can't be taken back: PyTorch lets go of what it has kept. Hooks and
//! custom functions are code within the node; the trace ends as well where other Python code runs on the way back: a
//! replay would run it, but what it does isn't noted.
//!
//! PyTorch computes the gradients of a device's tensors in a thread of its own. What code of the program's does there
//! can't be noted, so hooks and custom functions end the trace where a tensor isn't on the CPU; that none other began
//! there is [asked][Begun].

use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use stator_cpython::Result;
use stator_cpython::code::Code;
use stator_cpython::heap::{tensor, types};
use stator_cpython::hook::{Begun, Suspended};
use stator_cpython::object::{Borrowed, Object};
use stator_graph::Value;
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::held::Held;
use crate::past::{self, LOOKED_AT, Past};
use crate::raises::{BACKWARD, GRAD};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends, Operations};
use crate::recorder::notes::call::{Call, argument};
use crate::recorder::notes::gradients::Outer;
use crate::recorder::notes::heap;
use crate::recorder::notes::inputs::TensorInput;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::passing::is_looked_at;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};

/// A tensor that the trace is given and that may get a gradient, and the gradient that it has.
struct Leaf<'py> {
    tensor: Object<'py>,
    before: Option<Object<'py>>,
    /// Whether functions are called when its gradient is there.
    is_hooked: bool,
}

impl<'py> Leaf<'py> {
    fn gradient(&self) -> Option<Object<'py>> {
        tensor::gradient(self.tensor.as_borrowed()).filter(|gradient| !gradient.is_none())
    }
}

impl Recorder {
    /// `run_backward` of PyTorch's engine.
    pub(in crate::recorder) fn run_backward<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let py = frame.py();
        let accumulates = argument(args, names, 7, "accumulate_grad")
            .is_some_and(|it| it.is_truthy().unwrap_or(true));
        let are_hooks_known = {
            let _native = Suspended::new(py);
            tensor::find_hooks(py)
        };
        let leaves = self.leaves(call).and_then(|(leaves, outer)| {
            let bound = args[0].getattr(pyo3::intern!(py, "run_backward")).ok()?;
            Some((leaves, outer, bound))
        });
        let Some((leaves, mut outer, bound)) = leaves.filter(|_| are_hooks_known) else {
            self.stop(frame, Reason::OpaqueCall, "run_backward");
            return call.natively();
        };
        let is_hooked = leaves.iter().any(|leaf| leaf.is_hooked);
        let through_python = is_hooked || self.state.borrow().enclosed.has_functions();
        if through_python && !self.session.is_replayed() {
            // Code of other backends may be gone back through otherwise than plain PyTorch: with zeros.
            self.stop(frame, Reason::OpaqueCall, "run_backward, which runs Python code");
            return call.natively();
        }
        let is_elsewhere = self.state.borrow().graph.accelerator().is_some();
        if is_elsewhere && through_python {
            let detail = "run_backward, which runs Python code in another thread";
            self.stop(frame, Reason::OpaqueCall, detail);
            return call.natively();
        }
        // What it does there isn't done again.
        let text = match (accumulates, through_python || outer.is_some()) {
            (true, false) => "torch.autograd.backward",
            (false, false) => "torch.autograd.grad",
            (true, true) => BACKWARD,
            (false, true) => GRAD,
        };
        let target = |state: &mut State| state.seen_target(bound.as_borrowed(), text.to_owned());
        if through_python {
            self.note(frame, |state| state.write_early(frame));
        }
        let mut has_run = false;
        let elsewhere = is_elsewhere.then(|| Begun::new(py));
        let result = self.operation(frame, target, &args[1..], names, || {
            let call = || stator_cpython::ops::call(callable, args, names);
            if through_python {
                self.note(frame, |state| {
                    state.enclosed.go_back();
                    // Such code may ask for gradients that come out of what began outside.
                    state.gradients.outer.extend(outer.take());
                    if accumulates { state.foresee_gradients(&leaves) } else { Ok(()) }
                });
                return self.enclose(
                    frame,
                    "code that runs while gradients are computed",
                    &args[1..],
                    call,
                );
            }
            let result;
            (result, has_run) = past::told(py, call);
            result
        });
        has_run |= elsewhere.is_some_and(|begun| begun.has_begun());
        let result = result?;
        if has_run {
            self.stop(frame, Reason::OpaqueCall, "run_backward, which runs Python code");
        }
        self.note(frame, |state| {
            state.went_back(&leaves, accumulates)?;
            state.gradients.outer.extend(outer);
            state.take_out(frame)
        });
        Ok(result)
    }

    /// The leaves from outside that may get gradients, and what is known of a history that began outside; `None`: the
    /// trace has ended, or can't hold the call.
    fn leaves<'py>(&self, call: Call<'_, 'py>) -> Option<(Vec<Leaf<'py>>, Option<Outer>)> {
        let Call { frame, args, .. } = call;
        if !self.session.takes_steps() || args.is_empty() {
            return None;
        }
        // Those that nothing was done with so far are inputs as well.
        self.note(frame, |state| {
            args[1..].iter().try_for_each(|arg| state.graph_arg(*arg).map(drop))
        })?;
        let py = frame.py();
        let tensors: Vec<_> = {
            let state = self.state.borrow();
            let inputs = state.inputs.tensors().iter();
            inputs.map(|input| (input.tensor.bind(py).clone(), state.required(input))).collect()
        };
        let mut leaves = Vec::new();
        let mut begun = Vec::new();
        for (tensor, required) in &tensors {
            let info = tensor::info(tensor.as_borrowed())?;
            if info.requires_grad {
                let is_leaf =
                    tensor.getattr(pyo3::intern!(py, "is_leaf")).ok()?.is_truthy().ok()?;
                if !is_leaf {
                    // One that required no gradient has all of its history from the trace, which has written to it.
                    if *required {
                        begun.push(tensor.clone());
                    }
                    continue;
                }
                let mut leaf = Leaf { tensor: tensor.clone(), before: None, is_hooked: false };
                leaf.before = leaf.gradient();
                if tensor::has_hooks(tensor.as_borrowed()) == Some(true) {
                    if !self.session.is_replayed() {
                        return None;
                    }
                    leaf.is_hooked = true;
                    self.note(frame, |state| state.read_hooks(tensor.as_borrowed()))?;
                }
                leaves.push(leaf);
            }
        }
        let mut outer = None;
        if !begun.is_empty() {
            let is_written = {
                let state = self.state.borrow();
                begun.iter().any(|tensor| state.inputs.is_written(tensor.as_borrowed()))
            };
            let reached = {
                let _native = Suspended::new(py);
                // What was written has other notes than before, and what used it before has those.
                if is_written { tensors_in(args[1])? } else { reaches(args[1], &begun)? }
            };
            if !reached.is_empty() {
                outer = Some(self.goes_outside(call, &reached, &mut leaves)?);
            }
        }
        // What is there already is added to, in place.
        self.note(frame, |state| {
            leaves.iter().filter(|leaf| leaf.before.is_some()).try_for_each(|leaf| {
                let (tensor, gradient) = (leaf.tensor.as_borrowed(), leaf.before.as_ref());
                let gradient = gradient.expect("there is one").as_borrowed();
                if state.gradients.computed(tensor).is_some() {
                    return Ok(());
                }
                state.read_gradient(tensor, gradient)?;
                state.graph_arg(gradient).map(drop)
            })
        })?;
        Some((leaves, outer))
    }

    /// Makes a replay ask whether going back from these tensors leads where it does now. Their leaves that the trace
    /// knows are added. `None`: the trace can't go back through them.
    fn goes_outside<'py>(
        &self,
        call: Call<'_, 'py>,
        begun: &[Object<'py>],
        leaves: &mut Vec<Leaf<'py>>,
    ) -> Option<Outer> {
        let Call { frame, args, names, .. } = call;
        let py = frame.py();
        let is_off = |index: usize, name: &str| {
            argument(args, names, index, name)
                .is_none_or(|given| given.is_truthy().is_ok_and(|is| !is))
        };
        let accumulates = !is_off(7, "accumulate_grad");
        // What else is reached may be another thing in a replay.
        let is_asked = !is_off(if accumulates { 5 } else { 6 }, "");
        let may_go = {
            let state = self.state.borrow();
            self.session.is_replayed()
                && !is_asked
                && !state.enclosed.is_on()
                && !state.gradients.is_unknown
                && state.graph.accelerator().is_none()
        };
        if !may_go {
            return None;
        }
        let past = {
            let _native = Suspended::new(py);
            if !tensor::find_node_hooks(py) {
                return None;
            }
            Past::of(py, begun).ok().filter(|past| past.is_plain)?
        };
        let mut unknown = Vec::new();
        for leaf in &past.leaves {
            let tensor = leaf.bind(py);
            if leaves.iter().any(|known| known.tensor.is(tensor)) {
                continue;
            }
            let mut found = Leaf { tensor: tensor.clone(), before: None, is_hooked: false };
            found.before = found.gradient();
            if tensor::has_hooks(tensor.as_borrowed()) != Some(false) {
                self.state.borrow().source(tensor.as_borrowed())?;
                found.is_hooked = true;
                self.note(frame, |state| state.read_hooks(tensor.as_borrowed()))?;
            }
            if self.state.borrow().source(tensor.as_borrowed()).is_some() {
                leaves.push(found);
            } else {
                unknown.push((leaf.clone_ref(py), found.before.map(Bound::unbind)));
            }
        }
        let state = self.state.borrow();
        let owners = state.gradients.owners.iter().map(|owner| owner.bind(py).clone());
        let known: Vec<_> = leaves
            .iter()
            .map(|leaf| leaf.tensor.clone())
            .chain(owners.collect::<Vec<_>>())
            .collect();
        drop(state);
        let node = self.note(frame, |state| {
            let begun = begun.iter().map(|tensor| state.graph_arg(tensor.as_borrowed()));
            let begun = begun.collect::<std::result::Result<Vec<_>, Stop>>()?;
            let begun = state.graph.tuple(&begun);
            let hooked = past.hooked.iter();
            let hooked = hooked.map(|leaf| state.graph_arg(leaf.bind_borrowed(py)));
            let hooked = hooked.collect::<std::result::Result<Vec<_>, Stop>>()?;
            let hooked = state.graph.tuple(&hooked);
            state.asks_held(frame, Held::Past, &[begun, hooked])
        })?;
        let mut outer = Outer { node, known: Default::default(), unknown };
        let (reached, others): (Vec<_>, Vec<_>) =
            known.iter().partition(|tensor| past.leads_to(tensor));
        self.is_past(frame, &outer, &reached, &others).then_some(())?;
        outer.known.extend(known.iter().map(|tensor| tensor.as_ptr() as usize));
        Some(outer)
    }
}

/// The tensors of which going back begins; `None`: not all are.
fn tensors_in<'py>(roots: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
    let tensor = |root: PyResult<Object<'py>>| {
        root.ok().filter(|root| tensor::info(root.as_borrowed()).is_some())
    };
    roots.try_iter().ok()?.map(tensor).collect()
}

/// Those of the tensors whose history began outside that going back from these leads to; `None`: it can't be told.
fn reaches<'py>(roots: Borrowed<'_, 'py>, begun: &[Object<'py>]) -> Option<Vec<Object<'py>>> {
    let py = roots.py();
    let function = |tensor: &Object<'py>| tensor.getattr(pyo3::intern!(py, "grad_fn")).ok();
    // They are kept: PyTorch's objects for its notes live as long as somebody has them.
    let ends = begun.iter().map(function).collect::<Option<Vec<_>>>()?;
    let mut waiting = Vec::new();
    for root in roots.try_iter().ok()? {
        let root = root.ok()?;
        tensor::info(root.as_borrowed())?;
        waiting.push(function(&root)?);
    }
    let mut met: FxHashMap<usize, Object<'_>> = FxHashMap::default();
    let mut reached = Vec::new();
    while let Some(function) = waiting.pop() {
        if function.is_none() {
            continue;
        }
        let is_end = |(end, _): &(&Object<'py>, &Object<'py>)| end.is(&function);
        let mut ends_here = ends.iter().zip(begun).filter(is_end).peekable();
        if ends_here.peek().is_some() {
            if met.insert(function.as_ptr() as usize, function.clone()).is_none() {
                reached.extend(ends_here.map(|(_, tensor)| tensor.clone()));
            }
            continue;
        }
        if met.len() > LOOKED_AT {
            return None;
        }
        if met.insert(function.as_ptr() as usize, function.clone()).is_none() {
            for next in
                function.getattr(pyo3::intern!(py, "next_functions")).ok()?.try_iter().ok()?
            {
                waiting.push(next.ok()?.get_item(0).ok()?);
            }
        }
    }
    Some(reached)
}

impl State {
    /// Whether a tensor that comes in required a gradient then.
    fn required(&self, input: &TensorInput) -> bool {
        let node = self.graph.placeholders()[input.position as usize];
        match self.graph.node(node).value {
            Value::Tensor(before) => before.requires_grad,
            _ => true,
        }
    }

    /// Guards which functions a leaf's hooks are.
    fn read_hooks(&mut self, tensor: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        for (name, offset, hooks) in tensor::hooks(tensor) {
            self.read_member(
                Use::default(),
                tensor,
                name.as_any().as_borrowed(),
                offset,
                hooks.as_ref().map(|hooks| hooks.as_borrowed()),
            )?;
            let Some(hooks) = hooks else { continue };
            self.adopt_dict(hooks.as_borrowed())?;
            for (_, hook) in heap::dict_items(hooks.as_borrowed()) {
                self.know_hook(hook.as_borrowed())?;
            }
        }
        Ok(())
    }

    /// A hook is a function of Python's, or ends in one: C code would do what nobody notes.
    pub(in crate::recorder) fn know_hook(
        &mut self,
        hook: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let unknown = || (Reason::OpaqueCall, format!("{}, a hook", heap::name_of(hook)));
        if self.origin(hook) != Some(Origin::Fresh) {
            self.source(hook).ok_or_else(unknown)?;
        }
        match self.kind(hook) {
            Kind::Function => {
                let code = heap::function_code(hook);
                let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
                let is_seen = code.is_some_and(|code| is_looked_at(&code));
                is_seen.then_some(()).ok_or_else(unknown)
            }
            Kind::Method => self.know_hook(heap::method_parts(hook).0.as_borrowed()),
            Kind::Partial => self.know_hook(heap::partial_parts(hook).0.as_borrowed()),
            Kind::Object => {
                let ty = hook.get_type();
                let name = pyo3::intern!(hook.py(), "__call__").as_any().as_borrowed();
                let found = types::lookup(ty.as_borrowed(), name).ok_or_else(unknown)?;
                self.guard_lookup(&ty, name, Some(found.as_borrowed()), Use::default())?;
                self.know_hook(found.as_borrowed())
            }
            _ => Err(unknown()),
        }
    }

    /// Code that runs while gradients are computed finds them.
    fn foresee_gradients(&mut self, leaves: &[Leaf<'_>]) -> std::result::Result<(), Stop> {
        for leaf in leaves {
            if leaf.before.is_none() {
                self.read_no_gradient(leaf.tensor.as_borrowed())?;
            }
            self.gradients.compute(leaf.tensor.as_borrowed());
        }
        Ok(())
    }

    /// Takes note of the gradients that are there now and weren't before.
    fn went_back(
        &mut self,
        leaves: &[Leaf<'_>],
        accumulates: bool,
    ) -> std::result::Result<(), Stop> {
        for leaf in leaves {
            let tensor = leaf.tensor.as_borrowed();
            let unknown = || (Reason::UnknownOrigin, "a tensor that gets a gradient".to_owned());
            let source = self.source(tensor).ok_or_else(unknown)?;
            if !leaf.is_hooked {
                self.guard(source, GuardKind::NoTensorHooks);
            }
            let now = leaf.gradient();
            let is_same = match (&now, &leaf.before) {
                (Some(now), Some(before)) => now.is(before),
                (now, before) => now.is_none() && before.is_none(),
            };
            if accumulates && !is_same {
                if leaf.before.is_none() {
                    self.read_no_gradient(tensor)?;
                }
                self.gradients.compute(tensor);
            }
        }
        if accumulates {
            self.gradients.went_back();
        }
        Ok(())
    }
}

//! Calls of functions that the user marked: one node, a constant, a break, or another function.

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};

use crate::breaks::Reason;
use crate::marks;
use crate::marks::{Label, Mark, Registered};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends, Operations};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Alias, Noted, Origin, State};
use crate::recorder::notes::{heap, machinery};
use crate::recorder::reads::whole_containers::is_plain;

impl Recorder {
    /// Calls a function as its mark says; `None`: it has none, or one that only ends the trace.
    pub(in crate::recorder) fn call_marked<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable: function, args, names } = call;
        let known = self.machinery.known(function);
        let by_code = known.is_some_and(|known| known.is_marked);
        let mark = if by_code { marks::of_torch(function) } else { None };
        let taken = match mark {
            Some(Mark::Hides) => {
                self.prepare_hidden(frame, function);
                self.call_checkpoint(call).or_else(|| self.call_hidden(call))
            }
            Some(Mark::Hook) => self.call_hook_method(call),
            _ => None,
        };
        if taken.is_some() {
            return taken;
        }
        match mark.filter(|mark| !mark.is_tried()).or_else(|| marks::own(function)) {
            Some(Mark::Disabled(why)) => {
                if let Some(original) = marks::of_optimizer(&frame.code(), function) {
                    let original = original.as_borrowed();
                    self.note(frame, |state| state.know_for_good(function));
                    self.vouch(frame, original);
                    return Some(self.call_function(call.of(original)));
                }
                self.stop(frame, Reason::Disabled, why);
            }
            Some(Mark::Break) if is_optimizers(frame) => {
                return Some(Ok(frame.py().None().into_bound(frame.py())));
            }
            Some(Mark::Hint) => {
                self.note(frame, |state| state.know_for_good(function));
                let made = {
                    let _native = Suspended::new(frame.py());
                    call.natively()
                };
                if let (Ok(made), None) = (&made, names) {
                    self.note_alias(made, function, args);
                }
                return Some(made);
            }
            Some(Mark::Label(label)) if self.takes_labels() => {
                return Some(self.label(label, call));
            }
            Some(Mark::Label(Label::Made) | Mark::Hides | Mark::Hook) => {}
            // A tensor program has no labels: what is traced has them.
            Some(Mark::Label(_)) => {
                let _native = Suspended::new(frame.py());
                return Some(call.natively());
            }
            Some(Mark::Break) => self.stop(frame, Reason::Requested, break_message(args)),
            Some(Mark::InGraph) => return Some(self.call_as_node(call)),
            Some(Mark::Constant) => return Some(self.call_for_constant(call)),
            Some(Mark::Nothing) => {
                self.note(frame, |state| state.know_for_good(function));
                return Some(Ok(frame.py().None().into_bound(frame.py())));
            }
            None if self.is_allowed_by_torch(function) => return Some(self.call_as_node(call)),
            None => {
                if let Some(why) = known.and_then(|known| known.unfollowed) {
                    let taken = self.call_autograd_function(call);
                    if let Some(result) = taken.or_else(|| self.call_transform(call)) {
                        return Some(result);
                    }
                    self.stop(frame, why, machinery::name(function));
                }
            }
        }
        None
    }

    /// Calls what the user registered as that says; `None`: nothing is registered.
    pub(in crate::recorder) fn call_registered<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        Some(match marks::registered(callable)? {
            Registered::InGraph => self.call_as_node(call),
            Registered::Constant => self.call_for_constant(call),
            Registered::Substitute { folds: true, .. }
                if self.note(frame, |state| Ok(args.iter().all(|arg| is_plain(state, *arg))))
                    == Some(true) =>
            {
                self.pure_call(call)
            }
            Registered::Substitute { polyfill, .. } => {
                let polyfill = polyfill.into_bound(frame.py()).into_any();
                self.vouch(frame, polyfill.as_borrowed());
                self.call_object(call.of(polyfill.as_borrowed()))
            }
        })
    }

    /// The call as one node: its Python isn't traced. Replays make it again, so nothing it reads
    /// needs a guard but which function it is.
    fn call_as_node<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        self.note(frame, |state| {
            state.know_for_good(callable)?;
            if !state.written.is_empty() {
                // A replay writes when the graph has run: the function would see the old value.
                let name = heap::name_of(callable);
                let detail = format!("before {name}, which is called as one node of the graph");
                return Err((Reason::OutsideWrite, detail));
            }
            args.iter().try_for_each(|arg| state.give_parts(*arg, frame))?;
            state.gradients.set_unknown();
            Ok(())
        });
        let target = |state: &mut State| state.function_target(callable, heap::name_of(callable));
        self.operation(frame, target, args, names, || {
            let result = call.natively()?;
            self.refuse_known_tensors(frame, &heap::name_of(callable), args, result.as_borrowed());
            Ok(result)
        })
    }

    /// Ends the trace if a node has given a tensor that the trace knows already.
    pub(in crate::recorder) fn refuse_known_tensors(
        &self,
        frame: &Frame<'_>,
        name: &str,
        args: &[Borrowed<'_, '_>],
        result: Borrowed<'_, '_>,
    ) {
        if self.is_known_tensor(args, result) {
            // One object would be both, where another call may return another tensor.
            let detail = format!("a tensor that {name}, one node of the graph, didn't make");
            self.stop(frame, Reason::Unsupported, detail);
        }
    }

    /// Whether an object is or holds a tensor that the trace knows already.
    fn is_known_tensor(&self, args: &[Borrowed<'_, '_>], object: Borrowed<'_, '_>) -> bool {
        match self.kind(object) {
            Kind::Tensor => {
                matches!(self.origin(object), Some(Origin::Source(_)))
                    || args.iter().any(|arg| self.holds(*arg, object))
            }
            Kind::List | Kind::Tuple | Kind::Dict => heap::children(object)
                .iter()
                .any(|child| self.is_known_tensor(args, child.as_borrowed())),
            _ => false,
        }
    }

    fn holds(&self, container: Borrowed<'_, '_>, object: Borrowed<'_, '_>) -> bool {
        match self.kind(container) {
            Kind::List | Kind::Tuple | Kind::Dict => heap::children(container)
                .iter()
                .any(|child| self.holds(child.as_borrowed(), object)),
            _ => container.is(object),
        }
    }

    /// The call runs natively now, and never again: its result is a constant that the entry keeps.
    fn call_for_constant<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        self.note(frame, |state| state.know_for_good(callable));
        let result = {
            let _native = Suspended::new(frame.py());
            call.natively()
        };
        match &result {
            Ok(value) => {
                self.tally.steer();
                self.note(frame, |state| {
                    state.of_process.get_or_insert("it holds a function's result as a constant");
                    state.keep_constant(value.as_borrowed())
                });
            }
            Err(_) => self.stop(frame, Reason::OperationRaised, heap::name_of(callable)),
        }
        result
    }
}

/// Whether a graph break is asked for by PyTorch's optimizers, for its own compiler.
fn is_optimizers(frame: &Frame<'_>) -> bool {
    heap::text(frame.code().filename()).ends_with("torch/optim/optimizer.py")
}

/// What the user gave `graph_break` to say.
pub(in crate::recorder) fn break_message(args: &[Borrowed<'_, '_>]) -> String {
    let message = args.first().and_then(|message| message.cast::<PyString>().ok());
    message.map_or_else(String::new, |message| message.to_string_lossy().into_owned())
}

impl Recorder {
    /// `typing` has made an alias of these arguments, which a later frame may hold: as an annotation of a function.
    fn note_alias<'py>(
        &self,
        made: &Object<'py>,
        function: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
    ) {
        let mut state = self.state.borrow_mut();
        if state.origin(made.as_borrowed()).is_none() {
            let kept = |object: &Borrowed<'_, '_>| (**object).clone().unbind();
            let alias = Alias {
                made: made.clone().unbind(),
                function: kept(&function),
                args: args.iter().map(kept).collect(),
            };
            state.aliases.insert(made.as_ptr() as usize, alias);
        }
    }
}

impl State {
    /// Makes an outside object an input of the graph, for a node that is given it: `self` of a
    /// method, most of all. Nothing in it is guarded, because the node reads it when it runs.
    pub(in crate::recorder) fn object_input(&mut self, object: Borrowed<'_, '_>) -> Noted<()> {
        if self.kind(object) != Kind::Object {
            return Ok(());
        }
        if let Some(source) = self.source(object) {
            self.object_node(source);
        }
        Ok(())
    }

    /// Has a node given an object as it is: a graph holds tuples, lists and dictionaries of these very types.
    fn give_parts(&mut self, object: Borrowed<'_, '_>, frame: &Frame<'_>) -> Noted<()> {
        match self.kind(object) {
            Kind::Tuple | Kind::List | Kind::Dict if heap::is_exact_container(object) => {
                heap::plain_parts(object)
                    .iter()
                    .try_for_each(|part| self.give_parts(part.as_borrowed(), frame))
            }
            Kind::Tuple | Kind::List | Kind::Dict => self.give(object, frame).map(drop),
            Kind::Object if self.source(object).is_none() => self.give(object, frame).map(drop),
            _ => self.object_input(object),
        }
    }

    /// Takes the result of a call as a constant: what it is made of is guarded, as if it was found
    /// in a variable that holds it.
    fn keep_constant(&mut self, object: Borrowed<'_, '_>) -> Noted<()> {
        if self.kind(object) == Kind::Constant {
            return if heap::is_constant(object) {
                Ok(())
            } else {
                Err((Reason::Unsupported, format!("a {} of objects", heap::type_name(object))))
            };
        }
        let id = self.object(object);
        self.kept.insert(id);
        let source = self.sources.anchor(id, || heap::type_name(object).into());
        self.adopt(source, object)
    }
}

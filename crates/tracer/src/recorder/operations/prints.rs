//! `print` of what differs from call to call: a step, which a replay makes at its place.
//!
//! `print(f"loss {loss.item():.3f}")` is a node that calls `print`. What it printed can't be taken back, as what code of
//! the program's own has done; so there is a way out before it, for what its stream raises. Streams are C code: who is
//! told sees nothing of what a replay has yet to write. That is asked before each replay anew.
//!
//! What prints constants alone is a step where the trace has steps anyway: it has read data, or begins behind a way out, where
//! what frames hold counts as constant at first. A graph of nothing but operations on tensors stays one: there it's a break,
//! as in the document on TorchDynamo that the tests follow. With `fullgraph=True`, where a break is an error, it's a step.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::{tensor, types};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_graph::{Arg, TextId, Value};
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::listeners;
use crate::raises::PRINT;
use crate::recorder::Recorder;
use crate::recorder::ending::deciding::Prepared;
use crate::recorder::notes::above::{Arguments, Ends, PlainValues, Texts};
use crate::recorder::notes::call::{Call, library};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::objects::Mark;
use crate::recorder::notes::state::{Noted, State};
use crate::recorder::numbers::read_numbers::own;

/// A call of `print` as the graph holds it.
#[derive(Default)]
struct Printed {
    args: SmallVec<[Arg; 4]>,
    keywords: SmallVec<[TextId; 4]>,
    /// Whether it differs from call to call.
    varies: bool,
}

impl Recorder {
    /// A call of `print`; `None`: it isn't a step, and nothing was executed.
    pub(in crate::recorder) fn print<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let py = frame.py();
        let redirected = self.redirected(py, names);
        if !self.session.is_replayed()
            || self.is_stopped()
            || !self.may_print(py, redirected.is_some())
        {
            return None;
        }
        if let Some(stream) = listeners::stream_in_python(py) {
            self.stop(frame, Reason::OpaqueCall, stream);
            return None;
        }
        // An exception says what it was made with.
        let said: SmallVec<[Option<Object<'py>>; 4]> =
            args.iter().map(|arg| self.text_for_print(frame, *arg)).collect();
        let pairs = args.iter().zip(&said);
        let args: SmallVec<[Borrowed<'_, 'py>; 4]> = pairs
            .map(|(arg, said)| said.as_ref().map_or(*arg, |said| said.as_borrowed()))
            .collect();
        let tensors = args.iter().filter(|arg| self.kind(**arg) == Kind::Tensor);
        if !tensors.into_iter().all(|tensor| self.has_plain_text(frame, *tensor)) {
            return None;
        }
        let printed = self.note(frame, |state| {
            let Some(mut printed) = state.printed(&args, names)? else { return Ok(None) };
            if let Some(stream) = &redirected {
                let Some(stream) = state.value_arg(stream.as_borrowed())? else { return Ok(None) };
                printed.args.push(stream);
                printed.keywords.push(state.graph.intern("file"));
                printed.varies = true;
            }
            Ok(Some(printed))
        })?;
        let has_steps = || self.takes_iterators.get() || self.state.borrow().has_steps();
        let printed =
            printed.filter(|printed| printed.varies || self.session.fullgraph || has_steps())?;
        let way_out = self.way_around(frame)?;
        let result = {
            let _native = Suspended::new(py);
            let _deferred = Deferred::new(py);
            call.natively()
        };
        if result.is_err() {
            self.stop(frame, Reason::OperationRaised, "print");
            return Some(result);
        }
        self.note(frame, |state| {
            let target = state.function_target(callable, PRINT.to_owned());
            let stack = state.place(frame);
            let Printed { args, keywords, .. } = &printed;
            let node = state.graph.call_with_keywords(target, args, keywords, stack);
            state.graph.set_value(node, Value::Nothing);
            state.add_catch(way_out, stack);
            state.prints = true;
            Ok(())
        });
        Some(result)
    }

    /// The way out before what is printed; without one the trace had better break around this code.
    fn way_around(&self, frame: &Frame<'_>) -> Option<Prepared> {
        let way_out = self.catch(frame).or_else(|| self.catch_around());
        if way_out.is_none() {
            self.wants_way_around.set(!self.is_untouched(frame));
        }
        way_out
    }

    /// `write` and `flush` of a standard stream, as progress bars call them: steps like `print`. `None`: it isn't one, and
    /// nothing was executed.
    pub(in crate::recorder) fn write_to_stream<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let py = frame.py();
        let is_plain = match args {
            [_] => heap::is_named(callable, &["flush"]),
            [_, text] => text.is_exact_instance_of::<PyString>(),
            _ => false,
        };
        let may_be = is_plain
            && names.is_none()
            && self.session.is_replayed()
            && !self.is_stopped()
            && self.may_print(py, false)
            && listeners::stream_in_python(py).is_none();
        if !may_be {
            return None;
        }
        let varies = args[1..].iter().any(|text| self.state.borrow_mut().holds_numbers(*text));
        let has_steps = || self.takes_iterators.get() || self.state.borrow().has_steps();
        if !varies && !self.session.fullgraph && !has_steps() {
            return None;
        }
        let given = self.note(frame, |state| {
            let Some(stream) = state.stream_arg(args[0]) else { return Ok(None) };
            let mut given = SmallVec::<[Arg; 2]>::from_slice(&[stream]);
            for text in &args[1..] {
                let Some(text) = state.printed_arg(*text)? else { return Ok(None) };
                given.push(text);
            }
            Ok(Some(given))
        })??;
        let way_out = self.way_around(frame)?;
        let result = {
            let _native = Suspended::new(py);
            let _deferred = Deferred::new(py);
            call.natively()
        };
        let Ok(written) = &result else {
            self.stop(frame, Reason::OperationRaised, "write");
            return Some(result);
        };
        // How much was written follows from a text that doesn't vary.
        let count = own(written).filter(|_| varies);
        self.note(frame, |state| {
            let target = state.function_target(callable, PRINT.to_owned());
            let stack = state.place(frame);
            let node = state.graph.call(target, &given, stack);
            match &count {
                Some(count) => {
                    state.carry_read(count, node, None);
                }
                None if written.is_none() => state.graph.set_value(node, Value::Nothing),
                None => state.graph.set_value(node, Value::Integer),
            }
            state.add_catch(way_out, stack);
            state.prints = true;
            Ok(())
        });
        Some(Ok(count.unwrap_or_else(|| written.clone())))
    }

    /// The text of what is no text, number or tensor, where it's known; a stream of the trace's own is none.
    fn text_for_print<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_value(object) && heap::type_name(object) != "StringIO" {
            return self.value_text(frame, object);
        }
        self.said_by(frame, object)
    }

    /// Where `print` writes to, if the trace has put a text of its own there: `contextlib.redirect_stdout(io.StringIO())`. A
    /// replay sets `sys.stdout` at its end, so its node is told.
    fn redirected<'py>(
        &self,
        py: Python<'py>,
        names: Option<Borrowed<'_, 'py>>,
    ) -> Option<Object<'py>> {
        let names = names.map_or_else(Vec::new, heap::tuple_items);
        let says = names.iter().any(|name| heap::text(name.as_borrowed()) == "file");
        if says || !self.has_written(py, "stdout") {
            return None;
        }
        let stream = library(py, "sys", "stdout").ok()?;
        self.is_value(stream.as_borrowed()).then_some(stream)
    }

    fn has_written(&self, py: Python<'_>, name: &str) -> bool {
        let name = PyString::intern(py, name);
        self.state.borrow().written.any_at([name.as_ptr() as usize])
    }

    /// Whether what is printed comes behind all that the trace tells, to where it would go in a replay.
    fn may_print(&self, py: Python<'_>, is_redirected: bool) -> bool {
        // A replay gives warnings and log records at its end.
        let is_told = !self.state.borrow().written.emissions().is_empty();
        let is_written = self.has_written(py, "stdout") && !is_redirected;
        !is_told
            && !is_written
            && !self.has_written(py, "stderr")
            && !self.state.borrow().enclosed.is_on()
    }

    /// Whether PyTorch says what the text of a tensor is.
    fn has_plain_text<'py>(&self, frame: &Frame<'py>, tensor: Borrowed<'_, 'py>) -> bool {
        tensor::info(tensor).is_some_and(|info| info.is_plain())
            && !self.state.borrow().has_written_printing(frame.py())
            && self.has_text_of_pytorch(frame, tensor)
    }
}

impl State {
    /// Whether the trace can be left in its middle, or has read numbers from tensors.
    fn has_steps(&self) -> bool {
        let numbers = self.symbols.iter().flat_map(|symbols| symbols.ids());
        !self.exits.is_empty() || numbers.into_iter().any(|number| self.is_read(number))
    }

    /// The arguments of a call of `print`; `None`: there is one whose text may be anything.
    fn printed(
        &mut self,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
    ) -> Noted<Option<Printed>> {
        let names = names.map_or_else(Vec::new, heap::tuple_items);
        let (given, named) = args.split_at(args.len() - names.len());
        let mut printed = Printed::default();
        for arg in given {
            let is_tensor = self.kind(*arg) == Kind::Tensor;
            printed.varies |= is_tensor || self.holds_numbers(*arg);
            let arg = if is_tensor { Some(self.graph_arg(*arg)?) } else { self.printed_arg(*arg)? };
            let Some(arg) = arg else { return Ok(None) };
            printed.args.push(arg);
        }
        for (name, arg) in names.iter().zip(named) {
            let name = heap::text(name.as_borrowed());
            let is_text =
                |arg: &Borrowed<'_, '_>| arg.is_none() || arg.is_exact_instance_of::<PyString>();
            let arg = match &*name {
                "sep" | "end" if is_text(arg) => self.printed_arg(*arg)?,
                "flush" if arg.is_exact_instance_of::<PyBool>() => Some(self.graph_arg(*arg)?),
                "file" if arg.is_none() => Some(Arg::NONE),
                "file" if self.is_plain_value(*arg) => {
                    // Nothing else is written to it.
                    printed.varies = true;
                    self.value_arg(*arg)?
                }
                "file" => self.stream_arg(*arg),
                _ => None,
            };
            let Some(arg) = arg else { return Ok(None) };
            printed.args.push(arg);
            printed.keywords.push(self.graph.intern(&name));
        }
        Ok(Some(printed))
    }

    /// What a node prints for an object whose text runs no Python code.
    fn printed_arg(&mut self, object: Borrowed<'_, '_>) -> Noted<Option<Arg>> {
        if let Some(piece) = self.piece(object, 0) {
            return Ok(self.piece_arg(object.py(), &piece));
        }
        if object.is_exact_instance_of::<PyString>() {
            self.settle_text(object)?;
            return self.graph_arg(object).map(Some);
        }
        let is_constant = match self.kind(object) {
            Kind::Constant => heap::is_constant(object),
            // `torch.float32`, but no member of an enumeration.
            Kind::Singleton => types::is_immutable(object.get_type().as_borrowed()),
            _ => false,
        };
        if !is_constant || self.holds_numbers(object) {
            return Ok(None);
        }
        let Ok(text) = object.str() else { return Ok(None) };
        self.graph_arg(text.as_any().as_borrowed()).map(Some)
    }

    /// One of the streams that programs print to, which is then known by identity.
    fn stream_arg(&mut self, stream: Borrowed<'_, '_>) -> Option<Arg> {
        if !listeners::is_standard_stream(stream) {
            return None;
        }
        let source = self.source(stream)?;
        if !self.is_identity_guarded(stream) {
            let id = self.object(stream);
            self.guard(source, GuardKind::Is(id));
            self.objects.mark(stream, Mark::ByIdentity);
        }
        Some(Arg::Object(self.graph_object(stream, || "stream".into())))
    }
}

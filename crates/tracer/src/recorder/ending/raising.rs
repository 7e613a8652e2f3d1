//! Operations that raise while they are recorded, and what catches that: the trace goes on in the
//! handler where a replay would come there too.
//!
//! What an operation says of its inputs' sizes and types is as good as they are, and those are
//! guarded: so a replay needn't try it again. Whatever may have been about data, or about memory,
//! breaks the graph.

use pyo3::exceptions::{
    PyAttributeError, PyBaseException, PyIndexError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyString, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Thread;
use stator_graph::Target;
use stator_operators::torch::last_part;

use super::exceptions::is_raised_by_c_code;
use crate::breaks::{Break, Reason};
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::numbers::tensors::holds_tensor;

/// Operations that raise for what their inputs' metadata say, and for nothing else but want of
/// memory. Names without their modules and underscores.
const CHECKED: &str = "add iadd sub isub subtract mul imul multiply truediv itruediv matmul imatmul mm bmm mv dot vdot inner \
    outer addmm addmv baddbmm addbmm linear bilinear einsum tensordot kron cross eq ne lt le gt ge maximum minimum \
    fmax fmin lerp where view view_as reshape reshape_as expand expand_as broadcast_to permute transpose t mT \
    swapaxes swapdims movedim moveaxis squeeze unsqueeze flatten unflatten cat concat concatenate stack hstack \
    vstack dstack column_stack split split_with_sizes chunk unbind narrow select repeat tile flip roll diagonal \
    unfold size stride sum mean prod amax amin argmax argmin max min softmax log_softmax cumsum cumprod norm var std \
    logsumexp conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d \
    avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d layer_norm batch_norm group_norm rms_norm \
    scaled_dot_product_attention pixel_shuffle relu gelu silu tanh sigmoid exp neg abs";

/// Words of messages that say something else.
const OTHER_REASONS: &[&str] = &["memory", "alloc", "CUDA", "cuda", "INTERNAL ASSERT", "0x"];

impl Recorder {
    /// Whether the trace may go on with the handler of what an operation has raised.
    pub(in crate::recorder) fn goes_on(
        &self,
        frame: &Frame<'_>,
        target: Option<Target>,
        args: &[Borrowed<'_, '_>],
    ) -> bool {
        // Code that the operation called back may have ended the trace: the target is of that one's graph.
        let Some(target) = target.filter(|_| !self.is_stopped()) else { return false };
        if self.ends_recomputation(frame) {
            return true;
        }
        if self.session.program.is_some() || self.has_symbols() {
            return false;
        }
        let is_checked = {
            let mut state = self.state.borrow_mut();
            let name = state.operation_name(target);
            let name = last_part(&name).trim_matches('_');
            match name {
                "getitem" => args.get(1).is_some_and(|index| !holds_tensor(&mut state, *index)),
                name => CHECKED.split_whitespace().any(|checked| checked == name),
            }
        };
        let spot = self.markable_spot(frame);
        let (true, Some(spot)) = (is_checked, spot) else { return false };
        let speaks = asked(frame, speaks_of_metadata);
        if speaks {
            self.raised.borrow_mut().push(spot);
        }
        speaks
    }

    /// Ends the trace of a program whose operation has raised. The function's handlers run: what none
    /// of them catches is the user's to see as it is, and the rest is refused in the end.
    pub(in crate::recorder) fn leaves_to_handlers(&self, frame: &Frame<'_>) {
        if self.stopped.replace(true) {
            return;
        }
        self.guarded(frame.py(), || {
            let mut detail = String::new();
            asked(frame, |raised| {
                let text = text_of(raised.as_borrowed());
                detail = format!("{}: {text}", heap::type_name(raised.as_borrowed()));
                true
            });
            let stack = self.stack(frame);
            self.session.broke(Break { reason: Reason::OperationRaised, detail, stack });
            drop(self.gc.take());
        });
    }

    /// Whether code within a node has been run again as far as a checkpoint needs: PyTorch ends it by an exception, in
    /// each replay.
    fn ends_recomputation(&self, frame: &Frame<'_>) -> bool {
        if !self.state.borrow().enclosed.is_on() {
            return false;
        }
        asked(frame, |exception| {
            let class = exception.get_type();
            class.name().is_ok_and(|name| name == "_StopRecomputationError")
                && class.module().is_ok_and(|module| module == "torch.utils.checkpoint")
        })
    }

    /// The exception that an operation has raised can't be made again: marks the operation, so that
    /// the next trace ends there. False: no operation has raised.
    pub(in crate::recorder) fn avoid_raising(&self, stop: &Break) -> bool {
        let raised = self.raised.take();
        for spot in &raised {
            self.session.points.mark_spot(*spot, stop.clone());
        }
        if !raised.is_empty() && self.point.borrow().is_none() {
            self.session.retry(stop.clone());
        }
        !raised.is_empty()
    }

    /// A clause is about to look at an exception: one that C code has raised becomes the trace's own.
    pub(in crate::recorder) fn catches(&self, frame: &Frame<'_>, exception: Borrowed<'_, '_>) {
        self.note(frame, |state| {
            if state.origin(exception).is_none()
                && state.roots.carried(exception).is_none()
                && is_raised_by_c_code(exception)
                && !names_address(exception)
                && state.guard_named(exception)?
            {
                state.set_fresh(exception);
            }
            Ok(())
        });
    }

    /// `except*` takes a group apart, or what is left of it is put together.
    pub(in crate::recorder) fn splits_group(&self, frame: &Frame<'_>, exceptions: &[Object<'_>]) {
        self.note(frame, |state| {
            exceptions.iter().try_for_each(|exception| state.splits(exception.as_borrowed()))
        });
        for group in exceptions.iter().filter(|exception| is_group(exception)) {
            // By these it is taken apart, down to those that it holds.
            for name in ["split", "derive"] {
                let name = PyString::intern(frame.py(), name);
                self.lookup(frame, &group.get_type(), name.as_any().as_borrowed());
            }
        }
    }
}

impl State {
    /// What lacks an attribute is named by its class in the error's text: guards that name. False: the error doesn't say
    /// what it speaks of.
    pub(super) fn guard_named(&mut self, exception: Borrowed<'_, '_>) -> Result<bool, Stop> {
        if !exception.is_instance_of::<PyAttributeError>() {
            return Ok(true);
        }
        let part = |name: &str| exception.getattr(name).ok();
        let (Some(object), Some(name)) = (part("obj"), part("name")) else { return Ok(false) };
        if name.is_none() || object.is_instance_of::<PyModule>() {
            return Ok(false);
        }
        let class = object.cast::<PyType>().cloned().unwrap_or_else(|_| object.get_type());
        // What the C code has read: a metaclass may say something else.
        let Ok(own) = class.name() else { return Ok(false) };
        let class = class.as_any().as_borrowed();
        if self.origin(class).is_none() {
            self.anchor(class);
        }
        self.read_class_field(class, "__name__", own.as_any().as_borrowed())?;
        Ok(true)
    }

    fn splits(&mut self, exception: Borrowed<'_, '_>) -> Result<(), Stop> {
        if exception.is_none() {
            return Ok(());
        }
        if self.source(exception).is_some() || self.roots.carried(exception).is_some() {
            let detail = format!("except* on a {} from outside", heap::type_name(exception));
            return Err((Reason::Instruction, detail));
        }
        let Ok(parts) = exception.getattr("exceptions") else { return Ok(()) };
        if !is_group(&exception) {
            // A class of its own may say how it is taken apart.
            let detail = format!("except* on a {}", heap::type_name(exception));
            return Err((Reason::Instruction, detail));
        }
        heap::tuple_items(parts.as_borrowed())
            .iter()
            .try_for_each(|part| self.splits(part.as_borrowed()))
    }
}

/// Whether an exception is a group of a builtin class.
fn is_group(exception: &Object<'_>) -> bool {
    static CLASSES: PyOnceLock<[Py<PyAny>; 2]> = PyOnceLock::new();
    let py = exception.py();
    let classes = CLASSES.get_or_try_init(py, || -> PyResult<_> {
        let builtins = modules::import(py, "builtins")?;
        let class = |name: &str| builtins.getattr(name).map(Bound::unbind);
        Ok([class("BaseExceptionGroup")?, class("ExceptionGroup")?])
    });
    classes.is_ok_and(|classes| classes.iter().any(|class| class.is(exception.get_type())))
}

/// What is found out about the exception that an operation has raised, which stays raised.
fn asked(frame: &Frame<'_>, ask: impl FnOnce(&Object<'_>) -> bool) -> bool {
    let thread = Thread::current(frame.py());
    let exception = thread.take_exception();
    let answer = ask(&exception);
    let _ = thread.restore_exception(exception);
    answer
}

/// Whether an exception is one of those by which PyTorch refuses its arguments.
fn speaks_of_metadata(exception: &Object<'_>) -> bool {
    let py = exception.py();
    let class = exception.get_type();
    let known: [Bound<'_, PyType>; 4] = [
        py.get_type::<PyRuntimeError>(),
        py.get_type::<PyIndexError>(),
        py.get_type::<PyTypeError>(),
        py.get_type::<PyValueError>(),
    ];
    if !known.iter().any(|known| class.is(known)) || !is_raised_by_c_code(exception.as_borrowed()) {
        return false;
    }
    let text = text_of(exception.as_borrowed());
    !OTHER_REASONS.iter().any(|word| text.contains(word))
}

/// Whether the text of an exception holds an address, which no guard speaks of.
fn names_address(exception: Borrowed<'_, '_>) -> bool {
    text_of(exception).contains("0x")
}

fn text_of(exception: Borrowed<'_, '_>) -> String {
    let text = exception.py().get_type::<PyBaseException>().call_method1("__str__", (exception,));
    text.map_or_else(|_| String::new(), |text| text.to_string())
}

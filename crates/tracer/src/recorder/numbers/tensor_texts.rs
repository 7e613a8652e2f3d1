//! Texts of tensors.
//!
//! `f"{loss:.3f}"` is what `Tensor.__format__` says of a tensor without dimensions: the text of `loss.item()` (`texts.rs`). `%f`
//! asks `float(t)`, and `%d` asks `int(t)`. All other texts are what `Tensor.__repr__` gives: a node that calls it at
//! its place, between what is written to the tensor before and behind. It asks how tensors are printed, in each replay anew.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyModule, PyString, PyTuple, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::heap::{tensor, types};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, generic, ops};
use stator_graph::{NodeId, Value};

use super::read_tensors::TensorRead;
use super::texts::STR;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, ArrayValues, PlainValues, Texts};
use crate::recorder::notes::call::{Call, library};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;

impl Recorder {
    /// The number whose text is that of a tensor in a placeholder; `None`: the object is no such tensor, or the trace
    /// can't go on behind it. What was executed can be again.
    pub(super) fn placeholder_number<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let is_plain = self.kind(value) == Kind::Tensor
            && heap::type_name(value) == "Tensor"
            && tensor::info(value).is_some_and(|info| info.sizes.is_empty());
        if is_plain { self.number_for_text(frame, TensorRead::Item, value) } else { None }
    }

    /// What a tensor with one element gives to who makes a text of it.
    fn number_for_text<'py>(
        &self,
        frame: &Frame<'py>,
        read: TensorRead,
        tensor: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() || !self.session.takes_steps() {
            return None;
        }
        let native = || {
            let _native = Suspended::new(frame.py());
            let name = PyString::intern(frame.py(), read.method());
            ops::get_attr(tensor, name.as_any().as_borrowed())
                .and_then(|method| ops::call(method.as_borrowed(), &[], None))
        };
        let number = self.converted(frame, read, tensor, native)?;
        let number = Raised::unless(frame.py(), number)?;
        // To read changes nothing: the instruction is as before.
        self.baseline.set(ops::executed());
        (!self.is_stopped()).then_some(number)
    }

    /// What `repr` says of a tensor: a text that a node gives. `None`: the object is no such tensor, or the trace can't go on
    /// behind it. What was executed can be again.
    pub(super) fn tensor_text<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let is_plain = self.kind(value) == Kind::Tensor
            && tensor::info(value).is_some_and(|info| info.is_plain());
        let may_be = is_plain
            && !self.is_stopped()
            && self.session.is_replayed()
            && self.may_read(frame)
            && !self.state.borrow().enclosed.is_on()
            && !self.state.borrow().has_written_printing(frame.py());
        if !may_be || !self.has_text_of_pytorch(frame, value) {
            return None;
        }
        let py = frame.py();
        let repr = library(py, "builtins", "repr").ok()?;
        let text = {
            let _native = Suspended::new(py);
            ops::call(repr.as_borrowed(), &[value], None)
        };
        let text = Raised::unless(py, text)?;
        let own = text.cast_exact::<PyString>().ok().and_then(|text| generic::own_text(text))?;
        self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
        self.note(frame, |state| {
            let asked = state.graph_arg(value)?;
            let node = state.called(frame, repr.as_borrowed(), "builtins.repr".into(), &[asked]);
            state.carry_text(node, &own);
            Ok(())
        })?;
        // To read changes nothing: the instruction is as before.
        self.baseline.set(ops::executed());
        (!self.is_stopped()).then_some(own)
    }

    /// As [`Recorder::tensor_text`], of a tensor in a placeholder without a format.
    pub(super) fn placeholder_text<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let is_number = tensor::info(value).is_some_and(|info| info.sizes.is_empty())
            && heap::type_name(value) == "Tensor";
        if is_number { None } else { self.tensor_text(frame, value) }
    }

    /// What `%` is given, with numbers and texts where there are tensors, and Python's numbers where there are NumPy's; `None`:
    /// there is none, or one isn't carried.
    pub(super) fn percent_numbers<'py>(
        &self,
        frame: &Frame<'py>,
        takes: &[char],
        parts: &[Object<'py>],
    ) -> Option<Vec<Object<'py>>> {
        let is_tensor = |part: &Object<'py>| self.kind(part.as_borrowed()) == Kind::Tensor;
        let is_of_numpy = |part: &Object<'py>| is_number_of_numpy(part.as_borrowed());
        let is_value = |part: &Object<'py>| self.is_value(part.as_borrowed());
        let is_one = |part: &Object<'py>| is_tensor(part) || is_of_numpy(part) || is_value(part);
        if takes.len() != parts.len() || !parts.iter().any(is_one) {
            return None;
        }
        let number = |(directive, part): (&char, &Object<'py>)| match directive {
            _ if !is_one(part) => Some(part.clone()),
            's' if is_value(part) => self.value_text(frame, part.as_borrowed()),
            _ if is_value(part) => None,
            // Its own text isn't that of Python's number.
            'r' | 's' if is_of_numpy(part) => None,
            _ if is_of_numpy(part) => self.with_plain_numbers(frame, part.as_borrowed()),
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                self.number_for_text(frame, TensorRead::Float, part.as_borrowed())
            }
            'd' | 'i' | 'u' => self.number_for_text(frame, TensorRead::Integer, part.as_borrowed()),
            'r' | 's' => self.tensor_text(frame, part.as_borrowed()),
            _ => None,
        };
        takes.iter().zip(parts).map(number).collect()
    }

    /// What `str` says of a decimal, a date or such: a text that a node gives. What was executed can be again.
    pub(in crate::recorder) fn value_text<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let text = Raised::unless(frame.py(), self.text_of_value(frame, value, STR, None)?)?;
        self.baseline.set(ops::executed());
        (!self.is_stopped()).then_some(text)
    }

    /// The arguments of `"...".format(...)`, the text first, with numbers and texts where there are tensors, and Python's
    /// numbers where there are NumPy's; `None`: there is none, or a field asks for something else than its text.
    pub(in crate::recorder) fn format_numbers<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Vec<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let [text, rest @ ..] = args else { return None };
        if !text.is_exact_instance_of::<PyString>()
            || !rest.iter().any(|arg| {
                self.kind(*arg) == Kind::Tensor || is_number_of_numpy(*arg) || self.is_value(*arg)
            })
            || !text.get_type().getattr("format").ok()?.is(callable)
            || !are_simple(&heap::text(*text))
        {
            return None;
        }
        // A text takes other formats than a tensor.
        let is_formatted = heap::text(*text).contains(':');
        let number = |arg: &Borrowed<'_, 'py>| {
            if is_number_of_numpy(*arg) {
                return self.with_plain_numbers(frame, *arg);
            }
            if self.is_value(*arg) {
                return if is_formatted { None } else { self.value_text(frame, *arg) };
            }
            if self.kind(*arg) != Kind::Tensor {
                return Some((*arg).to_owned());
            }
            let number = self.placeholder_number(frame, *arg);
            number.or_else(|| if is_formatted { None } else { self.placeholder_text(frame, *arg) })
        };
        std::iter::once(Some((*text).to_owned())).chain(rest.iter().map(number)).collect()
    }

    /// Several values, as `%` takes them.
    pub(super) fn percent_operand<'py>(
        &self,
        frame: &Frame<'py>,
        parts: &[Object<'py>],
    ) -> Option<Object<'py>> {
        let tuple = PyTuple::new(frame.py(), parts).ok()?.into_any();
        self.note(frame, |state| {
            state.set_fresh(tuple.as_borrowed());
            Ok(())
        })?;
        Some(tuple)
    }
}

/// Whether an object may be a number of NumPy's, which `%f` and `format` take as Python's.
fn is_number_of_numpy(object: Borrowed<'_, '_>) -> bool {
    matches!(heap::array_kind(object), Some('f' | 'i' | 'u'))
}

impl State {
    /// A node gives this text: who looks into it asks for data.
    pub(in crate::recorder) fn carry_text(&mut self, node: NodeId, text: &Object<'_>) {
        // It stands for what was read; nobody is given it.
        let read = PyFloat::new(text.py(), 0.0).into_any();
        let number = self.carry_read(&read, node, None);
        self.graph.set_value(node, Value::Text);
        self.set_given(text, number, node);
    }

    /// Whether the trace has written to what says how tensors are printed. A replay writes that when its graph has run, so a
    /// node would find what was there before.
    pub(in crate::recorder) fn has_written_printing(&self, py: Python<'_>) -> bool {
        let effects = self.written.effects();
        if effects.is_empty() {
            return false;
        }
        let options = library(py, "torch._tensor_str", "PRINT_OPTS").ok();
        let fields = options.as_ref().and_then(|options| options.getattr("__dict__").ok());
        effects.iter().any(|effect| {
            let object = effect.object.bind_borrowed(py);
            options.iter().chain(&fields).any(|own| own.is(&*object))
                || is_namespace_of_pytorch(object)
        })
    }
}

/// Whether names of PyTorch's are looked up in an object: one of its modules, the dictionary of one, or one of its classes.
fn is_namespace_of_pytorch(object: Borrowed<'_, '_>) -> bool {
    let py = object.py();
    let name = |text| PyString::intern(py, text).into_any();
    let name = if heap::is_exact_dict(object) {
        heap::dict_get(object, name("__name__").as_borrowed())
    } else if let Ok(module) = object.cast_exact::<PyModule>() {
        module.getattr("__name__").ok()
    } else if let Ok(class) = object.cast::<PyType>() {
        types::lookup(class.as_borrowed(), name("__module__").as_borrowed())
    } else {
        None
    };
    name.and_then(|name| name.extract::<String>().ok())
        .is_some_and(|name| name == "torch" || name.starts_with("torch."))
}

/// Whether no field of a text converts what it's given (`{!r}`), or looks into it (`{0.shape}`).
fn are_simple(format: &str) -> bool {
    format.split('{').skip(1).all(|field| {
        let name = field.split(['}', ':']).next().unwrap_or_default();
        !name.contains(['!', '.', '['])
    })
}

/// What `"...".format(..., **more)` is given, without the keywords that its text doesn't name, which it ignores; `None`:
/// there are none, or it's another function.
pub(in crate::recorder) fn named_fields<'a, 'py>(
    call: Call<'a, 'py>,
) -> Option<(Vec<Borrowed<'a, 'py>>, Option<Bound<'py, PyTuple>>)> {
    let Call { callable, args, names, .. } = call;
    let text = args.first().filter(|text| text.is_exact_instance_of::<PyString>())?;
    let names = heap::tuple_items(names?);
    if !text.get_type().getattr("format").ok()?.is(callable) {
        return None;
    }
    let text = heap::text(*text);
    let fields: Vec<&str> = text
        .split('{')
        .skip(1)
        .map(|field| field.split(['}', ':', '!', '.', '[']).next().unwrap_or_default())
        .collect();
    let is_named = |name: &Object<'py>| fields.contains(&&*heap::text(name.as_borrowed()));
    let (positional, named) = args.split_at(args.len() - names.len());
    let kept: Vec<_> = names.iter().zip(named).filter(|(name, _)| is_named(name)).collect();
    if kept.len() == names.len() {
        return None;
    }
    let given = positional.iter().copied().chain(kept.iter().map(|(_, value)| **value)).collect();
    let names = PyTuple::new(call.frame.py(), kept.iter().map(|(name, _)| *name)).ok()?;
    Some((given, (!names.is_empty()).then_some(names)))
}

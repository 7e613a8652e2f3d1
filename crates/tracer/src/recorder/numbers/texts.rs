//! Texts of numbers that were read from tensors: carried like the numbers themselves.
//!
//! `f"{loss.item():.3f}"` is what nodes give: C functions of values, which a replay calls again. In Python such a text is
//! a `str` object of its own, known by its address. Who looks into it asks for the numbers that it spells
//! ([`State::spelt`]), which ends the trace before that instruction.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp};
use stator_cpython::{Result, generic};
use stator_graph::{Arg, NodeId, Operator, Target, TextId, Value};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Origin, State, Stop};

/// How `FORMAT_VALUE` numbers what it begins with.
const FORMAT: u32 = 0;
const STR: u32 = 1;
const REPR: u32 = 2;

/// How deep lists and tuples of what makes a text are looked into.
const DEPTH: usize = 4;

/// What makes a text, as the graph holds it.
struct Spelling {
    target: Target,
    args: SmallVec<[Arg; 4]>,
    keywords: SmallVec<[TextId; 2]>,
}

impl Recorder {
    /// `format`, `str` or `repr` of a number that was read or of such a number's text. `None`: nothing was executed.
    pub(in crate::recorder) fn carried_format<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        if !self.is_carried(value) || spec.is_some_and(|spec| !self.formats_any(spec)) {
            return None;
        }
        let py = frame.py();
        let method = |object: Borrowed<'_, 'py>, name| object.get_type().getattr(name).ok();
        let converted = match conversion {
            FORMAT => value.to_owned(),
            STR => {
                let text = py.get_type::<PyString>().into_any();
                match self.spelt_by(frame, text.as_borrowed(), &[value], None)? {
                    Ok(text) => text,
                    Err(raised) => return Some(Err(raised)),
                }
            }
            REPR => {
                let repr = method(value, "__repr__")?;
                match self.spelt_by(frame, repr.as_borrowed(), &[value], None)? {
                    Ok(text) => text,
                    Err(raised) => return Some(Err(raised)),
                }
            }
            _ => return None,
        };
        if conversion != FORMAT && spec.is_none() {
            return Some(Ok(converted));
        }
        let empty = PyString::new(py, "").into_any();
        let spec = spec.unwrap_or(empty.as_borrowed());
        let format = method(converted.as_borrowed(), "__format__")?;
        self.spelt_by(frame, format.as_borrowed(), &[converted.as_borrowed(), spec], None)
    }

    /// `"%.3f" % x`.
    pub(in crate::recorder) fn carried_percent<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        [left, right]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        let is_percent = matches!(op, BinaryOp::Remainder | BinaryOp::InPlaceRemainder)
            && self.has_symbols()
            && left.is_exact_instance_of::<PyString>();
        if !is_percent || self.is_carried(left) {
            return None;
        }
        let takes = directives(&heap::text(left))?;
        let parts = match heap::is_plain_tuple(right) {
            true => heap::tuple_items(right),
            false => vec![right.to_owned()],
        };
        if takes.len() != parts.len()
            || !takes.iter().zip(&parts).all(|(directive, part)| fits(*directive, part))
        {
            return None;
        }
        let native = || ops::binary(op, left, right);
        self.spelt(frame, |_| Target::Operator(Operator::Mod), &[left, right], None, native)
    }

    /// Two texts, one of which is carried, become one.
    pub(in crate::recorder) fn carried_sum<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        operands: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        let [left, right] = operands;
        let native = || ops::binary(op, left, right);
        self.spelt(frame, |_| Target::Operator(Operator::Add), &operands, None, native)
    }

    /// Calls of `str.join` and `str.format`.
    pub(in crate::recorder) fn carried_method<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        let [receiver, rest @ ..] = args else { return None };
        if !self.has_symbols() || !receiver.is_exact_instance_of::<PyString>() {
            return None;
        }
        let name = heap::callable_name(callable);
        let own = match &*name {
            "join" | "format" => receiver.get_type().getattr(&*name).ok()?,
            _ => return None,
        };
        if !own.is(callable) {
            return None;
        }
        let may_be = match &*name {
            "join" => rest.len() == 1 && heap::children(rest[0]).iter().all(is_text),
            _ => !self.is_carried(*receiver) && are_fields_plain(&heap::text(*receiver)),
        };
        if may_be { self.spelt_by(frame, callable, args, names) } else { None }
    }

    /// The parts of an f-string have become this text: the object that it is from here on, if it's carried.
    pub(in crate::recorder) fn joined<'py>(
        &self,
        frame: &Frame<'py>,
        parts: &[Borrowed<'_, 'py>],
        text: &Object<'py>,
    ) -> Option<Object<'py>> {
        if !self.has_symbols() {
            return None;
        }
        if !parts.iter().any(|part| self.is_carried(*part)) {
            self.spells(frame, parts, text.as_borrowed());
            return None;
        }
        let py = frame.py();
        let join = py.get_type::<PyString>().getattr("join").ok()?;
        let empty = PyString::new(py, "").into_any();
        let spelling = self.note(frame, |state| {
            let target = state.value_function(join.as_borrowed());
            let Some(parts) = state.text_args(parts, 0) else { return Ok(None) };
            let args = [state.graph_arg(empty.as_borrowed())?, state.graph.tuple(&parts)];
            Ok(Some(Spelling {
                target,
                args: SmallVec::from_slice(&args),
                keywords: SmallVec::new(),
            }))
        });
        match spelling.flatten() {
            Some(spelling) => Some(self.carry(frame, &spelling, parts, text)),
            None => {
                self.spells(frame, parts, text.as_borrowed());
                None
            }
        }
    }

    /// A call of a C function of values, of which one was read.
    fn spelt_by<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        let native = || ops::call(callable, args, names);
        self.spelt(frame, |state| state.value_function(callable), args, names, native)
    }

    fn spelt<'py>(
        &self,
        frame: &Frame<'py>,
        target: impl FnOnce(&mut State) -> Target,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let spelling = self.note(frame, |state| {
            if !args.iter().any(|arg| state.holds_read(*arg)) {
                return Ok(None);
            }
            let Some(args) = state.text_args(args, 0) else { return Ok(None) };
            let names = names.map_or_else(Vec::new, heap::tuple_items);
            let intern = |name: &Object<'_>| state.graph.intern(&heap::text(name.as_borrowed()));
            let keywords = names.iter().map(intern).collect();
            Ok(Some(Spelling { target: target(state), args, keywords }))
        });
        let spelling = spelling.flatten()?;
        Some(match native() {
            Ok(text) => Ok(self.carry(frame, &spelling, args, &text)),
            Err(raised) => {
                self.concrete(frame, args, "an error");
                Err(raised)
            }
        })
    }

    /// The object that a text is from here on: what a node gives.
    fn carry<'py>(
        &self,
        frame: &Frame<'py>,
        spelling: &Spelling,
        operands: &[Borrowed<'_, 'py>],
        text: &Object<'py>,
    ) -> Object<'py> {
        if self.is_carried(text.as_borrowed()) {
            return text.clone();
        }
        let own = match text.cast_exact::<PyString>() {
            Ok(text) => generic::own_text(text),
            Err(_) => None,
        };
        let Some(own) = own else {
            self.stop(frame, Reason::DataRead, "an empty text that depends on it");
            return text.clone();
        };
        let noted = self.note(frame, |state| {
            let stack = state.place(frame);
            let Spelling { target, args, keywords } = spelling;
            let node = state.graph.call_with_keywords(*target, args, keywords, stack);
            state.graph.set_value(node, Value::Text);
            state.carry_text(&own, operands, node);
            Ok(())
        });
        if noted.is_some() { own } else { text.clone() }
    }

    /// Whether an object is a number that was read, or such a number's text.
    fn is_carried(&self, object: Borrowed<'_, '_>) -> bool {
        if !self.has_symbols() {
            return false;
        }
        let mut state = self.state.borrow_mut();
        state.carried_text(object).is_some()
            || state.number(object).is_some_and(|number| state.is_read(number))
    }

    /// Whether a format raises for no number of a type if it raises for none, and asks for no setting.
    fn formats_any(&self, spec: Borrowed<'_, '_>) -> bool {
        spec.is_exact_instance_of::<PyString>()
            && self.state.borrow().spelt(spec).is_empty()
            && is_steady(&heap::text(spec))
    }
}

impl State {
    /// The node of a text that is carried.
    pub fn carried_text(&self, object: Borrowed<'_, '_>) -> Option<NodeId> {
        let carried = &self.symbols.as_ref()?.carried_texts;
        carried.get(&(object.as_ptr() as usize)).copied()
    }

    fn carry_text(&mut self, own: &Object<'_>, operands: &[Borrowed<'_, '_>], node: NodeId) {
        let mut numbers = Vec::new();
        for operand in operands {
            self.numbers_in(*operand, 0, &mut numbers);
        }
        numbers.sort_unstable();
        numbers.dedup();
        self.set_spelt(own.as_borrowed(), numbers);
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.carried_texts.insert(own.as_ptr() as usize, node);
        }
    }

    /// A C function of values as the graph calls it.
    fn value_function(&mut self, callable: Borrowed<'_, '_>) -> Target {
        let name = callable.getattr("__qualname__").map(|name| heap::text(name.as_borrowed()));
        let text = format!("builtins.{}", name.unwrap_or_default());
        let name = self.graph.intern(&text);
        Target::Function { name, object: self.graph_object(callable, || text) }
    }

    /// Plain values, numbers and texts as the graph holds them; `None`: there is something else.
    fn text_args(
        &mut self,
        objects: &[Borrowed<'_, '_>],
        depth: usize,
    ) -> Option<SmallVec<[Arg; 4]>> {
        objects.iter().map(|object| self.text_arg(*object, depth)).collect()
    }

    fn text_arg(&mut self, object: Borrowed<'_, '_>, depth: usize) -> Option<Arg> {
        if let Some(node) = self.carried_text(object) {
            return Some(Arg::Node(node));
        }
        if !self.spelt(object).is_empty() {
            return None;
        }
        let is_value = object.is_none()
            || object.is_exact_instance_of::<PyString>()
            || object.is_exact_instance_of::<PyInt>()
            || object.is_exact_instance_of::<PyFloat>()
            || object.is_exact_instance_of::<PyBool>();
        if is_value {
            return self.graph_arg(object).ok();
        }
        let is_list = heap::is_exact_list(object);
        let is_own = self.origin(object) == Some(Origin::Fresh);
        if depth >= DEPTH || !is_own || !is_list && !heap::is_plain_tuple(object) {
            return None;
        }
        let items = heap::children(object);
        let items: SmallVec<[Borrowed<'_, '_>; 8]> =
            items.iter().map(|item| item.as_borrowed()).collect();
        let items = self.text_args(&items, depth + 1)?;
        Some(if is_list { self.graph.list(&items) } else { self.graph.tuple(&items) })
    }

    /// Fails for a text that is carried: what it says decides what an operation does.
    pub(in crate::recorder) fn refuse_text(
        &mut self,
        object: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        if self.carried_text(object).is_none() {
            return Ok(());
        }
        Err((
            Reason::DataRead,
            "the text of a number that was read from one, as an argument".into(),
        ))
    }
}

fn is_text(object: &Object<'_>) -> bool {
    object.is_exact_instance_of::<PyString>()
}

/// Whether a format says of a number nothing that depends on its value (`c` has a range) or on the locale (`n`).
fn is_steady(spec: &str) -> bool {
    !spec.ends_with(['c', 'n'])
}

/// The conversions of a text that `%` is applied to; `None`: one that asks for more than its value.
fn directives(format: &str) -> Option<Vec<char>> {
    let mut found = Vec::new();
    let mut rest = format.chars();
    while let Some(char) = rest.next() {
        if char != '%' {
            continue;
        }
        let is_modifier = |char: char| char.is_ascii_digit() || "#0- +.hlL".contains(char);
        match rest.by_ref().find(|char| !is_modifier(*char))? {
            '%' => {}
            char if "diouxXeEfFgGrs".contains(char) => found.push(char),
            _ => return None,
        }
    }
    Some(found)
}

/// Whether a conversion takes any number of this one's type: those of integers raise for some floats.
fn fits(directive: char, part: &Object<'_>) -> bool {
    match directive {
        'r' | 's' => true,
        'd' | 'i' | 'o' | 'u' | 'x' | 'X' => part.is_exact_instance_of::<PyInt>(),
        _ => part.is_exact_instance_of::<PyInt>() || part.is_exact_instance_of::<PyFloat>(),
    }
}

/// Whether the fields of a text that is formatted are values, with formats that are known.
fn are_fields_plain(format: &str) -> bool {
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        let (brace, behind) = rest[at..].split_at(1);
        if let Some(behind) = behind.strip_prefix(brace) {
            rest = behind;
            continue;
        }
        let Some(end) = behind.find(['{', '}']) else { return false };
        let (field, behind) = (&behind[..end], &behind[end..]);
        let name = field.split([':', '!']).next().unwrap_or_default();
        if brace != "{"
            || !behind.starts_with('}')
            || name.contains(['.', '['])
            || !is_steady(field)
        {
            return false;
        }
        rest = &behind[1..];
    }
    true
}

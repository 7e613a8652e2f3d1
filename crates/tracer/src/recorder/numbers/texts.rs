//! Texts of numbers that differ from call to call: carried like the numbers themselves.
//!
//! `f"step {i}: {loss.item():.3f}"` is what nodes give: C functions of values, which a replay calls again. In Python such
//! a text is a `str` object of its own, known by its address, with the way in which it was made. Its nodes are made when
//! it is needed ([`State::text_node`]): most texts of sizes are messages of errors that nobody raises. Who looks into a
//! text asks for the numbers that it spells ([`State::spelt`]): those that are symbols are fixed, and for one that was
//! read from a tensor the trace ends before that instruction.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp};
use stator_cpython::{Result, generic};
use stator_graph::{Arg, NodeId, Operator, Target, Value};

use crate::breaks::Reason;
use crate::raises::{MADE, SIZE};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, PlainValues};
use crate::recorder::notes::call::{Call, library};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::notes::symbols::{NumberId, Piece, Spelling, Text};

/// How `FORMAT_VALUE` numbers what it begins with.
const FORMAT: u32 = 0;
pub(in crate::recorder) const STR: u32 = 1;
const REPR: u32 = 2;

/// How deep lists and tuples of what makes a text are looked into.
const DEPTH: usize = 4;

/// Methods of texts that raise for no text, if they raise for none.
const STEADY: [&str; 12] = [
    "capitalize",
    "center",
    "ljust",
    "lower",
    "lstrip",
    "replace",
    "rjust",
    "rstrip",
    "strip",
    "title",
    "upper",
    "zfill",
];

/// How often a text may be repeated without a look at its length.
const MOST_REPEATED: i64 = 1 << 20;

impl Recorder {
    /// `format`, `str` or `repr` of a number that is carried or of such a number's text. `None`: nothing was executed.
    pub(in crate::recorder) fn carried_format<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        if spec.is_some_and(|spec| !self.formats_any(spec)) {
            return None;
        }
        if let Some(text) = self.text_of_value(frame, value, conversion, spec) {
            return Some(text);
        }
        if conversion == FORMAT
            && let Some(number) = self.placeholder_number(frame, value)
        {
            let number = number.as_borrowed();
            let text = self.carried_format(frame, number, conversion, spec);
            // A truth value was decided.
            return Some(text.unwrap_or_else(|| ops::format(number, conversion, spec)));
        }
        let is_empty = |spec: Borrowed<'_, '_>| heap::text(spec).is_empty();
        let of_tensor = match conversion {
            FORMAT if spec.is_none_or(is_empty) => self.placeholder_text(frame, value),
            FORMAT => None,
            _ => self.tensor_text(frame, value),
        };
        // What makes its text by itself is given no format.
        let is_row = of_tensor.is_none() && self.is_row_of_carried(value);
        let is_of_tensor = of_tensor.is_some();
        if !is_of_tensor && !is_row && !self.is_carried(value)
            || is_row && conversion == FORMAT && !spec.is_none_or(is_empty)
        {
            return None;
        }
        let py = frame.py();
        let method = |object: Borrowed<'_, 'py>, name| object.get_type().getattr(name).ok();
        let converted = match (of_tensor, conversion) {
            (Some(text), _) => text,
            (None, FORMAT) if !is_row => value.to_owned(),
            (None, FORMAT | STR) => {
                let text = py.get_type::<PyString>().into_any();
                match self.spelt_by(Call::new(frame, text.as_borrowed(), &[value]))? {
                    Ok(text) => text,
                    Err(raised) => return Some(Err(raised)),
                }
            }
            (None, REPR) => {
                let repr = method(value, "__repr__")?;
                match self.spelt_by(Call::new(frame, repr.as_borrowed(), &[value]))? {
                    Ok(text) => text,
                    Err(raised) => return Some(Err(raised)),
                }
            }
            _ => return None,
        };
        let is_whole = match is_of_tensor || is_row {
            true => spec.is_none_or(is_empty),
            false => conversion != FORMAT && spec.is_none(),
        };
        if is_whole {
            return Some(Ok(converted));
        }
        let empty = PyString::new(py, "").into_any();
        let spec = spec.unwrap_or(empty.as_borrowed());
        let format = method(converted.as_borrowed(), "__format__")?;
        self.spelt_by(Call::new(frame, format.as_borrowed(), &[converted.as_borrowed(), spec]))
    }

    /// `"%.3f" % x`.
    pub(in crate::recorder) fn carried_percent<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        [left, right]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        let is_percent = matches!(op, BinaryOp::Remainder | BinaryOp::InPlaceRemainder)
            && left.is_exact_instance_of::<PyString>();
        if !is_percent || self.is_carried(left) {
            return None;
        }
        let takes = directives(&heap::text(left))?;
        // C code takes a named tuple for the tuple that it is.
        let is_tuple = right.is_instance_of::<PyTuple>();
        let mut parts = if is_tuple { heap::tuple_items(right) } else { vec![right.to_owned()] };
        let mut right = right.to_owned();
        if is_tuple
            && !heap::is_plain_tuple(right.as_borrowed())
            && parts.iter().any(|part| self.is_carried(part.as_borrowed()))
        {
            right = self.percent_operand(frame, &parts)?;
        }
        if let Some(numbers) = self.percent_numbers(frame, &takes, &parts) {
            right = self.percent_operand(frame, &numbers)?;
            parts = numbers;
        }
        let right = right.as_borrowed();
        if !self.has_symbols() {
            return None;
        }
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

    /// A text that is repeated, or is carried itself: `"=" * n`.
    pub(in crate::recorder) fn carried_times<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        operands: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        if !matches!(op, BinaryOp::Multiply | BinaryOp::InPlaceMultiply) || !self.has_symbols() {
            return None;
        }
        let [left, right] = operands;
        let is_count = |object: Borrowed<'_, '_>| object.is_exact_instance_of::<PyInt>();
        let (text, count) = match is_text(&left.to_owned()) {
            true => (left, right),
            false => (right, left),
        };
        let is_repeated = is_text(&text.to_owned()) && is_count(count);
        if !is_repeated
            || !self.session.takes_steps()
            || !operands.iter().any(|it| self.is_carried(*it))
        {
            return None;
        }
        if self.is_carried(count) {
            // No text of its own is empty. A longer one may be too long.
            if count.extract::<i64>().is_ok_and(|count| count < 1) {
                return None;
            }
            let most = PyInt::new(frame.py(), MOST_REPEATED).into_any();
            match self.symbolic_compare(frame, CompareOp::Le, count, most.as_borrowed()) {
                Some(Ok(found)) if found.is_truthy().unwrap_or(false) => {}
                Some(Err(raised)) => return Some(Err(raised)),
                _ => return None,
            }
        }
        let native = || Ok(apart(ops::binary(op, left, right)?, text));
        self.spelt(frame, |_| Target::Operator(Operator::Mul), &operands, None, native)
    }

    /// Calls of methods of texts that raise for no text.
    pub(in crate::recorder) fn carried_method<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { callable, args, .. } = call;
        if let Some(bytes) = self.pickled(call) {
            return Some(bytes);
        }
        let [receiver, rest @ ..] = args else { return None };
        if !self.has_symbols() || !receiver.is_exact_instance_of::<PyString>() {
            return None;
        }
        let name = heap::callable_name(callable);
        let own = match &*name {
            "join" | "format" => receiver.get_type().getattr(&*name).ok()?,
            _ if STEADY.contains(&&*name) => receiver.get_type().getattr(&*name).ok()?,
            _ => return None,
        };
        if !own.is(callable) {
            return None;
        }
        let may_be = match &*name {
            "join" => rest.len() == 1 && heap::children(rest[0]).iter().all(is_text),
            name if STEADY.contains(&name) => {
                return if self.is_carried(*receiver) {
                    self.carried_by_method(call)
                } else {
                    None
                };
            }
            _ => !self.is_carried(*receiver) && are_fields_plain(&heap::text(*receiver)),
        };
        if may_be { self.spelt_by(call) } else { None }
    }

    /// A method of a text that is carried: what calls it looks at the text, finding it doesn't.
    pub(in crate::recorder) fn method_of_text<'py>(
        &self,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !self.has_symbols() || !is_text(&owner.to_owned()) || !self.is_carried(owner) {
            return None;
        }
        let is_steady = STEADY.contains(&&*heap::text(name));
        is_steady.then(|| types::lookup(owner.get_type().as_borrowed(), name)).flatten()
    }

    /// A call of a method of a text that is carried, given plain arguments.
    fn carried_by_method<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let (receiver, rest) = args.split_first()?;
        if names.is_some() || rest.iter().any(|arg| self.is_carried(*arg)) {
            return None;
        }
        let native = || Ok(apart(call.natively()?, *receiver));
        self.spelt(frame, |state| state.value_function(callable), args, None, native)
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
        if !self.session.takes_steps() || !parts.iter().any(|part| self.is_carried(*part)) {
            self.spells(frame, parts, text.as_borrowed());
            return None;
        }
        let py = frame.py();
        let join = py.get_type::<PyString>().getattr("join").ok()?;
        let empty = PyString::new(py, "").into_any();
        let spelling = self.note(frame, |state| {
            let Some(parts) = state.pieces(parts, 0) else { return Ok(None) };
            let empty = Piece::Plain(state.graph_arg(empty.as_borrowed())?);
            let parts = Piece::Row { is_list: false, pieces: parts };
            let target = state.value_function(join.as_borrowed());
            let (keywords, stack) = (SmallVec::new(), state.place(frame));
            Ok(Some(Spelling { target, pieces: vec![empty, parts], keywords, stack }))
        });
        match spelling.flatten() {
            Some(spelling) => Some(self.carry(frame, spelling, parts, text)),
            None => {
                self.spells(frame, parts, text.as_borrowed());
                None
            }
        }
    }

    /// A text was made of these values. Who reads it reads them; often nobody does.
    pub(in crate::recorder) fn spells(
        &self,
        frame: &Frame<'_>,
        values: &[Borrowed<'_, '_>],
        text: Borrowed<'_, '_>,
    ) {
        if !self.has_symbols() {
            return;
        }
        self.note(frame, |state| {
            let numbers = state.numbers_of(values);
            state.set_spelt(text, numbers, None);
            Ok(())
        });
    }

    /// A call of a C function of values, of which one is carried.
    fn spelt_by<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let native = || call.natively();
        self.spelt(frame, |state| state.value_function(callable), args, names, native)
    }

    /// As [`Recorder::spelt_by`], where it is known what the function is given first; its other arguments are plain.
    pub(super) fn spelt_pieces<'py>(
        &self,
        call: Call<'_, 'py>,
        mut pieces: Vec<Piece>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        if !self.session.is_replayed() || !args.iter().any(|arg| self.holds_any_number(*arg)) {
            return None;
        }
        let spelling = self.note(frame, |state| {
            for arg in &args[pieces.len()..] {
                pieces.push(Piece::Plain(state.graph_arg(*arg)?));
            }
            let names = names.map_or_else(Vec::new, heap::tuple_items);
            let intern = |name: &Object<'_>| state.graph.intern(&heap::text(name.as_borrowed()));
            let keywords = names.iter().map(intern).collect();
            let (target, stack) = (state.value_function(callable), state.place(frame));
            Ok(Spelling { target, pieces, keywords, stack })
        })?;
        Some(call.natively().map(|text| self.carry(frame, spelling, args, &text)))
    }

    fn holds_any_number(&self, object: Borrowed<'_, '_>) -> bool {
        self.has_symbols() && self.state.borrow_mut().holds_numbers(object)
    }

    fn spelt<'py>(
        &self,
        frame: &Frame<'py>,
        target: impl FnOnce(&mut State) -> Target,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        if !self.session.takes_steps() {
            return None;
        }
        let is_replayed = self.session.is_replayed();
        let spelling = self.note(frame, |state| {
            if !args.iter().any(|arg| state.holds_numbers(*arg)) {
                return Ok(None);
            }
            // A step of Stator's own for a symbol alone would keep a graph from being one.
            if !is_replayed && !args.iter().any(|arg| state.holds_read(*arg)) {
                return Ok(None);
            }
            let Some(pieces) = state.pieces(args, 0) else { return Ok(None) };
            let names = names.map_or_else(Vec::new, heap::tuple_items);
            let intern = |name: &Object<'_>| state.graph.intern(&heap::text(name.as_borrowed()));
            let keywords = names.iter().map(intern).collect();
            let stack = state.place(frame);
            Ok(Some(Spelling { target: target(state), pieces, keywords, stack }))
        });
        let spelling = spelling.flatten()?;
        Some(match native() {
            Ok(text) => Ok(self.carry(frame, spelling, args, &text)),
            Err(raised) => {
                self.concrete(frame, args, "an error");
                Err(raised)
            }
        })
    }

    /// The object that a text is from here on: what nodes give.
    pub(super) fn carry<'py>(
        &self,
        frame: &Frame<'py>,
        spelling: Spelling,
        operands: &[Borrowed<'_, 'py>],
        text: &Object<'py>,
    ) -> Object<'py> {
        // A sum with an empty text is the other one. What a format has left as it was, it may pad in another call.
        let is_sum = matches!(spelling.target, Target::Operator(Operator::Add));
        if is_sum && self.is_carried(text.as_borrowed()) {
            return text.clone();
        }
        let own = match text.cast_exact::<PyString>() {
            Ok(text) => generic::own_text(text),
            // A pickle is a new object.
            Err(_) => Some(text.clone()).filter(|text| text.is_exact_instance_of::<PyBytes>()),
        };
        let noted = self.note(frame, |state| {
            let numbers = state.numbers_of(operands);
            match &own {
                Some(own) => state.set_spelt(own.as_borrowed(), numbers, Some(spelling)),
                None if numbers.iter().any(|number| state.is_read(*number)) => {
                    return Err((Reason::DataRead, "an empty text that depends on it".into()));
                }
                None => state.set_spelt(text.as_borrowed(), numbers, None),
            }
            Ok(())
        });
        own.filter(|_| noted.is_some()).unwrap_or_else(|| text.clone())
    }

    /// Whether an object is a number that differs from call to call, or such a number's text.
    fn is_carried(&self, object: Borrowed<'_, '_>) -> bool {
        if !self.has_symbols() {
            return false;
        }
        let mut state = self.state.borrow_mut();
        state.is_carried_text(object) || state.number(object).is_some()
    }

    /// Whether an object is a container of the trace's own that holds such numbers or texts.
    fn is_row_of_carried(&self, value: Borrowed<'_, '_>) -> bool {
        self.has_symbols()
            && matches!(self.kind(value), Kind::List | Kind::Tuple | Kind::Dict)
            && self.holds_any_number(value)
    }

    /// Whether a format raises for no number of a type if it raises for none, and asks for no setting.
    fn formats_any(&self, spec: Borrowed<'_, '_>) -> bool {
        spec.is_exact_instance_of::<PyString>()
            && self.state.borrow().spelt(spec).is_empty()
            && is_steady(&heap::text(spec))
    }
}

/// A text that may be its operand itself, for this operand: for another it may be a new one.
fn apart<'py>(text: Object<'py>, operand: Borrowed<'_, 'py>) -> Object<'py> {
    let own = text.is(&*operand).then(|| text.cast_exact::<PyString>().ok()).flatten();
    own.and_then(|text| generic::own_text(text)).unwrap_or(text)
}

impl Piece {
    /// The pieces of a list, a tuple or a `torch.Size`.
    pub(super) fn row(of: Borrowed<'_, '_>, pieces: Vec<Self>) -> Self {
        match heap::is_exact_list(of) || of.is_exact_instance_of::<PyTuple>() {
            true => Self::Row { is_list: heap::is_exact_list(of), pieces },
            false => Self::Size(pieces),
        }
    }
}

impl State {
    fn text(&self, object: Borrowed<'_, '_>) -> Option<&Text> {
        self.symbols.as_ref()?.texts.get(&(object.as_ptr() as usize))
    }

    /// Whether nodes can give a text.
    fn is_carried_text(&self, object: Borrowed<'_, '_>) -> bool {
        self.text(object).is_some_and(|text| text.spelling.is_some() || text.node.is_some())
    }

    /// A node that is there gives this text, of which a number stands for what it tells.
    pub(super) fn set_given(&mut self, text: &Object<'_>, number: NumberId, node: NodeId) {
        let object = text.clone().unbind();
        let text = Text { numbers: vec![number], object, spelling: None, node: Some(node) };
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.texts.insert(text.object.as_ptr() as usize, text);
        }
    }

    /// The numbers that a text spells.
    pub fn spelt(&self, object: Borrowed<'_, '_>) -> Vec<NumberId> {
        self.text(object).map_or_else(Vec::new, |text| text.numbers.clone())
    }

    /// The node of a text, if it spells numbers that differ from call to call, and nodes can give it.
    pub(in crate::recorder) fn text_node(&mut self, object: Borrowed<'_, '_>) -> Option<NodeId> {
        let text = self.text(object)?;
        if text.node.is_some() {
            return text.node;
        }
        let spelling = text.spelling.clone()?;
        let args = self.piece_args(object.py(), &spelling.pieces)?;
        let Spelling { target, keywords, stack, .. } = &*spelling;
        let node = self.graph.call_with_keywords(*target, &args, keywords, *stack);
        self.graph.set_value(node, Value::Text);
        let texts = self.symbols.as_mut().map(|symbols| &mut symbols.texts);
        if let Some(text) = texts.and_then(|texts| texts.get_mut(&(object.as_ptr() as usize))) {
            text.node = Some(node);
        }
        Some(node)
    }

    fn piece_args(&mut self, py: Python<'_>, pieces: &[Piece]) -> Option<SmallVec<[Arg; 4]>> {
        pieces.iter().map(|piece| self.piece_arg(py, piece)).collect()
    }

    /// What makes a piece of a text, as the graph holds it.
    pub(in crate::recorder) fn piece_arg(&mut self, py: Python<'_>, piece: &Piece) -> Option<Arg> {
        Some(match piece {
            Piece::Number(number) => Arg::Node(self.number_node(*number)),
            Piece::Text(text) => Arg::Node(self.text_node(text.bind_borrowed(py))?),
            Piece::Plain(arg) => *arg,
            Piece::Row { is_list, pieces } => {
                let args = self.piece_args(py, pieces)?;
                if *is_list { self.graph.list(&args) } else { self.graph.tuple(&args) }
            }
            Piece::Size(pieces) => {
                let args = self.piece_args(py, pieces)?;
                let items = self.graph.tuple(&args);
                let class = library(py, "torch", "Size").ok()?;
                let target = self.function_target(class.as_borrowed(), format!("{MADE}{SIZE}"));
                Arg::Node(self.graph.call(target, &[items], None))
            }
            Piece::Dict(items) => {
                let mut args = SmallVec::<[(Arg, Arg); 4]>::new();
                for (key, value) in items {
                    args.push((self.piece_arg(py, key)?, self.piece_arg(py, value)?));
                }
                self.graph.dict(&args)
            }
        })
    }

    /// A text outlives the trace that no node gives: what it spells is fixed.
    pub fn fix_spelt(&mut self, text: Borrowed<'_, '_>) {
        for number in self.spelt(text) {
            self.specialise(text.py(), number, "its text is kept");
        }
    }

    /// A text spells these numbers.
    fn set_spelt(
        &mut self,
        text: Borrowed<'_, '_>,
        numbers: Vec<NumberId>,
        spelling: Option<Spelling>,
    ) {
        if numbers.is_empty() || self.is_carried_text(text) {
            return;
        }
        let object = text.to_owned().unbind();
        let text = Text { numbers, object, spelling: spelling.map(Rc::new), node: None };
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.texts.insert(text.object.as_ptr() as usize, text);
        }
    }

    /// The numbers in objects, each once.
    fn numbers_of(&mut self, objects: &[Borrowed<'_, '_>]) -> Vec<NumberId> {
        let mut numbers = Vec::new();
        for object in objects {
            self.numbers_in(*object, &mut numbers);
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    pub(in crate::recorder) fn holds_numbers(&mut self, object: Borrowed<'_, '_>) -> bool {
        !self.numbers_of(&[object]).is_empty()
    }

    /// A C function of values as the graph calls it.
    pub(super) fn value_function(&mut self, callable: Borrowed<'_, '_>) -> Target {
        let name = callable.getattr("__qualname__").map(|name| heap::text(name.as_borrowed()));
        self.function_target(callable, format!("builtins.{}", name.unwrap_or_default()))
    }

    /// Plain values, numbers and texts; `None`: there is something else.
    fn pieces(&mut self, objects: &[Borrowed<'_, '_>], depth: usize) -> Option<Vec<Piece>> {
        objects.iter().map(|object| self.piece(*object, depth)).collect()
    }

    pub(in crate::recorder) fn piece(
        &mut self,
        object: Borrowed<'_, '_>,
        depth: usize,
    ) -> Option<Piece> {
        if let Some(number) = self.number(object) {
            return Some(Piece::Number(number));
        }
        if self.is_carried_text(object) {
            return Some(Piece::Text(object.to_owned().unbind()));
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
            return self.graph_arg(object).ok().map(Piece::Plain);
        }
        // What a `torch.Size` holds is known wherever it was found.
        let is_size = heap::is_plain_tuple(object) && !object.is_exact_instance_of::<PyTuple>();
        let is_own = self.origin(object) == Some(Origin::Fresh);
        if depth >= DEPTH || !is_own && !is_size {
            return None;
        }
        if heap::is_exact_dict(object) {
            let items = heap::dict_items(object).into_iter().map(|(key, value)| {
                let key = self.piece(key.as_borrowed(), depth + 1)?;
                Some((key, self.piece(value.as_borrowed(), depth + 1)?))
            });
            return items.collect::<Option<_>>().map(Piece::Dict);
        }
        if !heap::is_exact_list(object) && !heap::is_plain_tuple(object) {
            return None;
        }
        let items = heap::children(object);
        let items: SmallVec<[Borrowed<'_, '_>; 8]> =
            items.iter().map(|item| item.as_borrowed()).collect();
        let pieces = self.pieces(&items, depth + 1)?;
        Some(Piece::row(object, pieces))
    }

    /// A text is about to decide what an operation does: what it spells is fixed.
    ///
    /// # Errors
    /// It spells a number that was read from a tensor.
    pub(in crate::recorder) fn settle_text(
        &mut self,
        object: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let numbers = self.spelt(object);
        if numbers.iter().any(|number| self.is_read(*number)) {
            let detail = "the text of a number that was read from one, as an argument";
            return Err((Reason::DataRead, detail.into()));
        }
        for number in numbers {
            self.specialise(object.py(), number, "its text is an argument");
        }
        Ok(())
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

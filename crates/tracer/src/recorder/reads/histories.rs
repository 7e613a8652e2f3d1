//! What a trace asks of a list or deque from outside without fixing what that holds: how long it is, an element, a part, the
//! sum, the least and the greatest of its numbers.
//!
//! `losses.append(loss); mean = sum(losses) / len(losses)` is another list in each call, so a trace that guards what the list
//! holds serves no other. The list is an input of the graph, and what is asked of it a node, which is asked at its place: a
//! replay writes behind its graph, so the node finds what the list held before, and is given what the trace has added.
//! Numbers are carried, like those that are read from tensors. That they are of the type that they have in the recorded call is a decision.
//!
//! Only a list or deque that nobody has read is asked so ([`only_added`](super::only_added)). Who looks at it otherwise reads it whole.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PySlice};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::container;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp};

use stator_graph::{Arg, NodeId, Operator, Target, Value};
use stator_guards::{Source, SourceId};

use super::only_added::keeps_noticed;
use crate::breaks::Reason;
use crate::functions::{Class, Model, Numeric};
use crate::held::Held;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Decides};
use crate::recorder::notes::call::{Call, library};
use crate::recorder::notes::effects::CONTENTS;
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::reads::{PartOf, Use};
use crate::recorder::notes::state::{Noted, Origin, State};
use crate::recorder::numbers::read_numbers::own;

/// How many numbers of a part are carried one by one.
const MOST_APART: usize = 64;

/// A list or deque whose contents nothing guards.
pub(super) struct History<'py> {
    base: Base,
    /// A tuple or list of what it held before the trace wrote to it.
    held: Object<'py>,
    /// How many of these the trace has taken out in front.
    pub(super) dropped: usize,
    /// What the trace has added behind.
    pub(super) added: Vec<Object<'py>>,
    /// How many it holds at most.
    pub(super) most: Option<usize>,
}

/// What the graph has of it.
#[derive(Clone, Copy)]
enum Base {
    /// An object from outside.
    Outside(SourceId),
    /// What a node gives.
    Part(NodeId),
}

impl<'py> History<'py> {
    /// How many it held before the trace wrote to it.
    fn held_long(&self) -> usize {
        let held = self.held.as_borrowed();
        container::tuple_length(held).or_else(|| container::list_length(held)).unwrap_or(0)
    }

    /// Where it's found, if it isn't a part of another.
    pub(super) fn outside(&self) -> Option<SourceId> {
        match self.base {
            Base::Outside(source) => Some(source),
            Base::Part(_) => None,
        }
    }

    /// How many of these it still holds, if nothing made room.
    pub(super) fn left_long(&self) -> usize {
        self.held_long() - self.dropped
    }

    /// One of these.
    pub(super) fn left(&self, index: usize) -> Option<Object<'py>> {
        let (held, index) = (self.held.as_borrowed(), self.dropped + index);
        container::tuple_item(held, index).or_else(|| container::list_item(held, index))
    }

    /// How many elements it holds now.
    pub(super) fn now_long(&self) -> usize {
        let length = self.left_long() + self.added.len();
        self.most.map_or(length, |most| most.min(length))
    }

    /// The first element that it holds now.
    fn first_now(&self) -> Option<Object<'py>> {
        let (left, added) = (self.left_long(), &self.added);
        let at = left + added.len() - self.now_long();
        if at < left { self.left(at) } else { added.get(at - left).cloned() }
    }

    /// The type of its numbers, if it holds floats alone, integers alone, or NumPy's floats alone.
    fn class(&self) -> Option<Object<'py>> {
        let first = self.first_now()?;
        if own(&first).is_none() && !is_scalar_of_numpy(&first) {
            return None;
        }
        let class = first.get_type().into_any();
        let is_alike = |number: &Object<'py>| number.get_type().is(&class);
        // What made room is asked, too.
        let mut left = (0..self.left_long()).filter_map(|index| self.left(index));
        (left.all(|number| is_alike(&number)) && self.added.iter().all(is_alike)).then_some(class)
    }
}

impl Recorder {
    /// What is asked of a list or deque by a function of builtins. `None`: it's something else, or the list is to be read.
    pub(in crate::recorder) fn asks_history<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let ([list], None) = (args, names) else { return None };
        if matches!(class, Class::Model(Model::Len)) {
            if self.added_early(*list) > 0 {
                return self.length_now(frame, *list).map(Ok);
            }
            let history = self.history(frame, *list)?;
            return self.history_length(frame, &history).map(Ok);
        }
        match self.functions.numeric(callable)? {
            Numeric::Sum | Numeric::Least | Numeric::Greatest => self.folded_history(call, *list),
            _ => None,
        }
    }

    fn history<'py>(&self, frame: &Frame<'py>, list: Borrowed<'_, 'py>) -> Option<History<'py>> {
        let may_be = heap::is_exact_list(list) || heap::is_deque(list);
        if !may_be || self.is_stopped() || !self.session.is_replayed() || !self.may_read(frame) {
            return None;
        }
        self.note(frame, |state| state.history(list)).flatten()
    }

    /// How many elements the trace has added behind what a list held that nobody reads, if a node wrote them. What it held
    /// can't be asked for any more, but these are the trace's own.
    fn added_early(&self, list: Borrowed<'_, '_>) -> usize {
        let state = self.state.borrow();
        let address = list.as_ptr() as usize;
        let Some(unread) = state.unread.get(&address).filter(|unread| unread.early.is_some())
        else {
            return 0;
        };
        let enclosed = &state.enclosed;
        if enclosed.is_on() || enclosed.hides(address) || enclosed.lists.contains_key(&address) {
            return 0;
        }
        let now = container::list_length(list).unwrap_or(0);
        now.saturating_sub(unread.before.bind(list.py()).len() - unread.dropped)
    }

    /// How long a list is to which nodes have added.
    fn length_now<'py>(&self, frame: &Frame<'py>, list: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        if self.is_stopped() || !self.may_read(frame) {
            return None;
        }
        let (source, early) = {
            let state = self.state.borrow();
            let unread = state.unread.get(&(list.as_ptr() as usize))?;
            (unread.source, unread.early?)
        };
        let added = container::list_length(list)?.checked_sub(early)?;
        let written = own(&PyInt::new(frame.py(), early).into_any())?;
        self.carries(frame, &written, |state| {
            let list = state.object_node(source);
            state.asks_length(frame, list)
        })?;
        self.changed_length(frame, written, 0, added)
    }

    /// A length less what was taken out, with what was added.
    fn changed_length<'py>(
        &self,
        frame: &Frame<'py>,
        mut length: Object<'py>,
        dropped: usize,
        added: usize,
    ) -> Option<Object<'py>> {
        let changes =
            [(dropped, BinaryOp::Subtract, Operator::Sub), (added, BinaryOp::Add, Operator::Add)];
        for (number, op, operator) in changes.into_iter().filter(|(number, ..)| *number > 0) {
            let number = PyInt::new(frame.py(), number).into_any();
            let operands = [length.as_borrowed(), number.as_borrowed()];
            length = self.symbolic_binary(frame, op, operator, &operands)?.ok()?;
        }
        Some(length)
    }

    /// How long it is.
    fn history_length<'py>(
        &self,
        frame: &Frame<'py>,
        history: &History<'py>,
    ) -> Option<Object<'py>> {
        let py = frame.py();
        let before = own(&PyInt::new(py, history.held_long()).into_any())?;
        self.carries(frame, &before, |state| state.length_of(frame, history))?;
        let mut length =
            self.changed_length(frame, before, history.dropped, history.added.len())?;
        if let Some(most) = history.most.filter(|_| !history.added.is_empty()) {
            let most = PyInt::new(py, most).into_any();
            let least = library(py, "builtins", "min").ok()?;
            let operands = [length.as_borrowed(), most.as_borrowed()];
            let found = self.symbolic_function(
                Numeric::Least,
                Call::new(frame, least.as_borrowed(), &operands),
            )?;
            length = found.ok()?;
        }
        // To ask changes nothing: the instruction is as before, for who asks more.
        self.baseline.set(ops::executed());
        Some(length)
    }

    /// What `list.pop(0)` or `deque.popleft()` gives, of what it held before the trace, and before it's taken out. `None`: it's
    /// something else, or the list is to be read.
    pub(in crate::recorder) fn first_of_history<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        match (args, names) {
            ([list, index], None)
                if heap::is_exact_list(*list) && heap::is_named(callable, &["pop"]) =>
            {
                self.first_left(frame, *list, *index)
            }
            ([deque], None) if heap::is_deque(*deque) && heap::is_named(callable, &["popleft"]) => {
                self.first_held(frame, *deque)
            }
            _ => None,
        }
    }

    /// As [`Recorder::first_of_history`] of a list's element at an index, if that's the first one.
    pub(in crate::recorder) fn first_left<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
        index: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let is_first = index.is_exact_instance_of::<PyInt>()
            && index.extract::<i64>().is_ok_and(|index| index == 0)
            && self.state.borrow_mut().number(index).is_none();
        if is_first { self.first_held(frame, list) } else { None }
    }

    fn first_held<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let history = self.history(frame, list)?;
        if history.most.is_some() && !history.added.is_empty() {
            return None;
        }
        let first = history.left(0)?;
        if own(&first).is_none() {
            return self.first_item(frame, &history, list, 0);
        }
        self.number_at(frame, &history, history.dropped.cast_signed(), &first)
    }

    /// Whether it holds anything. `None`: it's something else, or to be read.
    pub(in crate::recorder) fn truth_of_history<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
    ) -> Option<bool> {
        if self.added_early(list) > 0 {
            return Some(true);
        }
        let history = self.history(frame, list)?;
        if !history.added.is_empty() && history.most != Some(0) {
            return Some(true);
        }
        let asked = |state: &mut State| {
            let length = state.length_of(frame, &history)?;
            state.graph.set_value(length, Value::Integer);
            let stack = state.place(frame);
            let args = [Arg::Node(length), Arg::int(history.dropped as i64)];
            let target = Target::Operator(Operator::Gt);
            Ok(Arg::Node(state.graph.call(target, &args, stack)))
        };
        let answer = history.left_long() > 0;
        self.decided(frame, Asks::Program, asked, || Ok(answer))?.ok()
    }

    /// An element or a part of it. `None`: the list is to be read.
    pub(in crate::recorder) fn item_of_history<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let is_index = key.is_exact_instance_of::<PyInt>();
        if !is_index && !key.is_exact_instance_of::<PySlice>()
            || self.state.borrow_mut().holds_numbers(key)
            || !heap::is_constant(key)
        {
            return None;
        }
        if is_index
            && let Some(from_end) = key.extract::<isize>().ok().and_then(isize::checked_neg)
            && from_end > 0
            && self.added_early(list) >= from_end.cast_unsigned()
        {
            return Some(ops::get_item(list, key));
        }
        let history = self.history(frame, list)?;
        if !is_index {
            return self.part_of_history(frame, &history, list, key);
        }
        let index: isize = key.extract().ok()?;
        let (added, length) = (history.added.len().cast_signed(), history.now_long());
        if index < 0 && -index <= added && -index <= length.cast_signed() {
            // The trace has added it.
            return Some(ops::get_item(list, key));
        }
        let index = match index {
            0.. if added > 0 && history.most.is_some() => {
                return self.front_of_bounded(frame, &history, index.cast_unsigned());
            }
            0.. => index,
            _ if -index > length.cast_signed() => return None,
            _ => index + added,
        };
        let at = if index < 0 { index + history.left_long().cast_signed() } else { index };
        let at = usize::try_from(at).ok()?;
        let found = history.left(at)?;
        if own(&found).is_none() {
            return match index < 0 {
                true => self.last_item(frame, &history, list, at),
                false => self.first_item(frame, &history, list, at),
            };
        }
        let index = if index < 0 { index } else { index + history.dropped.cast_signed() };
        self.number_at(frame, &history, index, &found)
    }

    /// A number at an index from the front of what is bounded and was added to. Which one that is depends on how many made
    /// room: none or as many as were added, as a decision has it. `None`: others did, or it's among those that were added.
    fn front_of_bounded<'py>(
        &self,
        frame: &Frame<'py>,
        history: &History<'py>,
        index: usize,
    ) -> Option<Result<Object<'py>>> {
        let (most, left, added) = (history.most?, history.left_long(), history.added.len());
        let (operator, length, at) = if left + added <= most {
            (Operator::Le, most - added, index)
        } else if left == most {
            (Operator::Eq, most, index + added)
        } else {
            return None;
        };
        let found = history.left(at).filter(|_| at < left)?;
        own(&found)?;
        let asked = |state: &mut State| {
            let before = state.length_of(frame, history)?;
            state.graph.set_value(before, Value::Integer);
            let stack = state.place(frame);
            let args = [Arg::Node(before), Arg::int((length + history.dropped) as i64)];
            Ok(Arg::Node(state.graph.call(Target::Operator(operator), &args, stack)))
        };
        match self.decided(frame, Asks::Program, asked, || Ok(true))? {
            Ok(_) => self.number_at(frame, history, (at + history.dropped).cast_signed(), &found),
            Err(raised) => Some(Err(raised)),
        }
    }

    /// A number that it held, at an index. `None`: it can't be asked here of what type that is.
    fn number_at<'py>(
        &self,
        frame: &Frame<'py>,
        history: &History<'py>,
        index: isize,
        found: &Object<'py>,
    ) -> Option<Result<Object<'py>>> {
        let number = own(found)?;
        let class = number.get_type().into_any();
        let base = Arg::Node(self.note(frame, |state| Ok(state.base_of(history)))?);
        let asked = |state: &mut State| {
            let class = state.graph_arg(class.as_borrowed())?;
            let first = Arg::int(history.dropped as i64);
            let args = [base, first, Arg::int(index as i64), class];
            state.asks_held(frame, Held::At, &args).map(Arg::Node)
        };
        match self.decided(frame, Asks::Program, asked, || Ok(true))? {
            Ok(_) => {}
            Err(raised) => return Some(Err(raised)),
        }
        self.carries(frame, &number, |state| {
            let stack = state.place(frame);
            let target = Target::Operator(Operator::GetItem);
            Ok(state.graph.call(target, &[base, Arg::int(index as i64)], stack))
        })?;
        self.state.borrow_mut().stands_in_for(number.as_borrowed(), found);
        Some(Ok(number))
    }

    /// A list of a part of it, of which nothing is fixed either.
    fn part_of_history<'py>(
        &self,
        frame: &Frame<'py>,
        history: &History<'py>,
        list: Borrowed<'_, 'py>,
        slice: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !heap::is_exact_list(list) {
            return None;
        }
        if history.class().is_none() && history.outside().is_some() {
            let places = history.places_from_end(slice)?;
            return self.last_items(frame, history, list, &places);
        }
        let given = self.note(frame, |state| Ok(state.history_args(history, Some(slice))))??;
        let part = match ops::get_item(list, slice) {
            Ok(part) => part,
            Err(raised) => return Some(Err(raised)),
        };
        self.note(frame, |state| {
            let node = state.asks_held(frame, Held::Part, &given)?;
            state.set_origin(part.as_borrowed(), Origin::Handle(node));
            let kept = PartOf { part: part.clone().unbind(), of: list.to_owned().unbind() };
            state.parts.insert(part.as_ptr() as usize, kept);
            Ok(())
        });
        Some(Ok(part))
    }

    /// Gives whoever looks at each number of a part of a list numbers of their own there, which are carried. How many there
    /// are is decided. What it can't be done for, the list is read whole for.
    pub(in crate::recorder) fn take_part_apart<'py>(
        &self,
        frame: &Frame<'py>,
        part: Borrowed<'_, 'py>,
    ) -> Result<()> {
        let address = part.as_ptr() as usize;
        if !self.state.borrow().parts.contains_key(&address) {
            return Ok(());
        }
        let taken = self.numbers_of_part(frame, part).transpose()?;
        let list = part.cast::<PyList>().ok().filter(|_| !self.is_stopped());
        if let (Some(numbers), Some(list)) = (taken, list) {
            for (index, number) in numbers.into_iter().enumerate() {
                list.set_item(index, number).expect("a part of a list is a list as long");
            }
            let mut state = self.state.borrow_mut();
            state.parts.remove(&address);
            state.set_fresh(part);
        }
        Ok(())
    }

    fn numbers_of_part<'py>(
        &self,
        frame: &Frame<'py>,
        part: Borrowed<'_, 'py>,
    ) -> Option<Result<Vec<Object<'py>>>> {
        let history = self.history(frame, part)?;
        let class = history.class()?;
        let length = history.held_long();
        let found = heap::list_items(part);
        let own: Vec<Object<'py>> = found.iter().filter_map(own).collect();
        if own.len() != length || length > MOST_APART {
            return None;
        }
        let base = Arg::Node(self.note(frame, |state| Ok(state.base_of(&history)))?);
        let is_as_long = |state: &mut State| {
            let found = state.length_of(frame, &history)?;
            state.graph.set_value(found, Value::Integer);
            let stack = state.place(frame);
            let args = [Arg::Node(found), Arg::int(length as i64)];
            Ok(Arg::Node(state.graph.call(Target::Operator(Operator::Eq), &args, stack)))
        };
        let are_alike = |state: &mut State| {
            let class = state.graph_arg(class.as_borrowed())?;
            let args = [base, Arg::int(0), Arg::int(length as i64), class];
            state.asks_held(frame, Held::All, &args).map(Arg::Node)
        };
        if let Err(raised) = self.decided(frame, Asks::Program, is_as_long, || Ok(true))? {
            return Some(Err(raised));
        }
        if let Err(raised) = self.decided(frame, Asks::Program, are_alike, || Ok(true))? {
            return Some(Err(raised));
        }
        for (index, (number, found)) in own.iter().zip(&found).enumerate() {
            self.carries(frame, number, |state| {
                let stack = state.place(frame);
                let args = [base, Arg::int(index as i64)];
                Ok(state.graph.call(Target::Operator(Operator::GetItem), &args, stack))
            })?;
            self.state.borrow_mut().stands_in_for(number.as_borrowed(), found);
        }
        Some(Ok(own))
    }

    /// The sum, the least or the greatest of its numbers.
    fn folded_history<'py>(
        &self,
        call: Call<'_, 'py>,
        list: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, .. } = call;
        let numbers = match self.numbers_of_history(frame, list, false)? {
            Ok(numbers) => numbers,
            Err(raised) => return Some(Err(raised)),
        };
        let value = call.natively();
        let number = value.as_ref().ok().and_then(own);
        let Some(number) = number else {
            self.concrete(frame, &[list], "a sum beyond 64 bits");
            return Some(value);
        };
        self.carries(frame, &number, |state| {
            let name = format!("builtins.{}", heap::callable_name(callable));
            Ok(state.called(frame, callable, name, &[numbers]))
        })?;
        Some(Ok(number))
    }

    /// A list of all its numbers, or of its floats, as the graph has it: one at least. `None`: the list is to be read.
    pub(in crate::recorder) fn numbers_of_history<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
        are_floats: bool,
    ) -> Option<Result<Arg>> {
        let history = self.history(frame, list)?;
        let class = history.class()?;
        let is_numpys = is_scalar_of_numpy(&history.first_now()?);
        if are_floats && !class.is(frame.py().get_type::<PyFloat>()) && !is_numpys
            || is_numpys && !are_floats
        {
            return None;
        }
        let given = self.note(frame, |state| Ok(state.history_args(&history, None)))??;
        let base = given[0];
        let least = i64::from(history.added.is_empty());
        let asked = |state: &mut State| {
            let class = state.graph_arg(class.as_borrowed())?;
            let first = Arg::int(history.dropped as i64);
            let args = [base, first, Arg::int(least), class];
            state.asks_held(frame, Held::All, &args).map(Arg::Node)
        };
        match self.decided(frame, Asks::Program, asked, || Ok(true))? {
            Ok(_) => {}
            Err(raised) => return Some(Err(raised)),
        }
        if history.added.is_empty() && history.dropped == 0 {
            return Some(Ok(base));
        }
        let all = self.note(frame, |state| state.asks_held(frame, Held::Part, &given))?;
        Some(Ok(Arg::Node(all)))
    }
}

/// Whether it's a `numpy.float64`, as `np.mean` gives one.
fn is_scalar_of_numpy(object: &Object<'_>) -> bool {
    object.is_instance_of::<PyFloat>() && heap::array_kind(object.as_borrowed()) == Some('f')
}

impl State {
    /// A list or deque that nobody has read, or a part of one.
    fn history<'py>(&mut self, list: Borrowed<'_, 'py>) -> Noted<Option<History<'py>>> {
        let address = list.as_ptr() as usize;
        if self.enclosed.is_on() || self.enclosed.hides(address) || self.program.is_some() {
            return Ok(None);
        }
        if self.claims.is_in_block() {
            // Nothing can be decided there.
            return Ok(None);
        }
        if self.parts.contains_key(&address)
            && let Some(Origin::Handle(base)) = self.origin(list)
        {
            let (base, held, added) = (Base::Part(base), (*list).clone(), Vec::new());
            return Ok(Some(History { base, held, dropped: 0, added, most: None }));
        }
        let slot = (address, CONTENTS);
        let is_deque = heap::is_deque(list);
        if is_deque
            && !self.unread.contains_key(&address)
            && !self.reads.has(&slot)
            && !self.written.has(&slot)
            && let Some(source) = self.source(list)
            && self.is_deque_to_differ(source, list)
            && !keeps_noticed(list)
        {
            // It's read by whoever looks at it.
            self.leave_unread(source, list, Use::default());
        }
        let Some(unread) = self.unread.get(&address) else { return Ok(None) };
        if unread.early.is_some() {
            // Nodes don't find any more what it held before.
            return Ok(None);
        }
        if unread.used.only_adds && !self.written.has(&slot) {
            // Nobody has added to it: a guard is cheaper, until its length changes.
            let length = unread.before.bind(list.py()).len();
            let print = || self.sources.print(unread.source);
            if !self.policy.takes_length(length, print) {
                return Ok(None);
            }
        }
        let source = unread.source;
        let held = unread.before.bind(list.py()).clone();
        let mut most = None;
        let changed = if is_deque {
            self.read_max_length(list)?;
            let length = container::deque_max_length(list);
            most = length.and_then(|length| length.extract().ok());
            self.changes_of_deque(list, most.is_some())
        } else {
            let (kept, dropped) = (held.len() - unread.dropped, unread.dropped);
            let now = container::list_length(list).filter(|now| *now >= kept);
            let items = |now| (kept..now).filter_map(|at| container::list_item(list, at)).collect();
            now.map(|now| (dropped, items(now)))
        };
        let Some((dropped, added)) = changed else { return Ok(None) };
        let (base, held) = (Base::Outside(source), held.into_any());
        Ok(Some(History { base, held, dropped, added, most }))
    }

    /// Whether a deque was found to have another length in another call, or other numbers.
    fn is_deque_to_differ(&mut self, source: SourceId, deque: Borrowed<'_, '_>) -> bool {
        let items = container::deque_items(deque).unwrap_or_default();
        self.policy.takes_length(items.len(), || self.sources.print(source))
            || items.iter().enumerate().any(|(index, item)| {
                let child = self.sources.intern(Source::DequeItem { parent: source, index });
                self.takes_number(child, item.as_borrowed(), false)
            })
    }

    /// The node that has what it held before the trace wrote to it.
    fn base_of(&mut self, history: &History<'_>) -> NodeId {
        match history.base {
            Base::Part(node) => node,
            Base::Outside(source) => {
                let asked = self.unread.values_mut().find(|unread| unread.source == source);
                if let Some(unread) = asked {
                    unread.is_asked = true;
                }
                self.object_node(source)
            }
        }
    }

    /// How many elements the trace has taken out in front of what a deque held, and what it has added behind.
    /// `None`: it has done something else, too.
    fn changes_of_deque<'py>(
        &mut self,
        deque: Borrowed<'_, 'py>,
        is_bounded: bool,
    ) -> Option<(usize, Vec<Object<'py>>)> {
        let py = deque.py();
        let (mut dropped, mut added) = (0, Vec::new());
        let Some(calls) = self.written.calls(&(deque.as_ptr() as usize, CONTENTS)) else {
            return Some((dropped, added));
        };
        for call in calls.iter() {
            match (&*call.method, call.args.as_slice()) {
                ("append", [arg]) => added.push(arg.bind(py).clone()),
                ("extend", [arg]) => added.extend(heap::list_items(arg.bind_borrowed(py))),
                // In a bounded one others have made room before.
                ("popleft", []) if !is_bounded || added.is_empty() => dropped += 1,
                _ => return None,
            }
        }
        Some((dropped, added))
    }

    /// What makes a list of a part of a history. `None`: the graph can't hold what was added.
    fn history_args(
        &mut self,
        history: &History<'_>,
        slice: Option<Borrowed<'_, '_>>,
    ) -> Option<SmallVec<[Arg; 8]>> {
        let most = history.most.map_or(Arg::NONE, |most| Arg::int(most as i64));
        let slice = slice.map_or(Ok(Arg::NONE), |slice| self.graph_arg(slice)).ok()?;
        let base = Arg::Node(self.base_of(history));
        let first = Arg::int(history.dropped as i64);
        let mut args: SmallVec<[Arg; 8]> = [base, first, most, slice].into_iter().collect();
        for added in &history.added {
            args.push(self.graph_arg(added.as_borrowed()).ok()?);
        }
        Some(args)
    }

    pub(in crate::recorder) fn asks_held(
        &mut self,
        frame: &Frame<'_>,
        held: Held,
        args: &[Arg],
    ) -> Noted<NodeId> {
        let refused = |error: PyErr| (Reason::Unsupported, error.to_string());
        let function = held.function(frame.py()).map_err(refused)?;
        Ok(self.called(frame, function.as_borrowed(), held.name(), args))
    }

    /// The node of how long it was before the trace wrote to it.
    fn length_of(&mut self, frame: &Frame<'_>, history: &History<'_>) -> Noted<NodeId> {
        let base = self.base_of(history);
        self.asks_length(frame, base)
    }

    /// The node of how long a list is.
    fn asks_length(&mut self, frame: &Frame<'_>, list: NodeId) -> Noted<NodeId> {
        let len = library(frame.py(), "builtins", "len")?;
        Ok(self.called(frame, len.as_borrowed(), "builtins.len".into(), &[Arg::Node(list)]))
    }

    /// A part of a history is looked at: what it was taken from is read, and it's a list of the trace's own.
    #[cold]
    pub(super) fn read_part(&mut self, part: Borrowed<'_, '_>) -> bool {
        let Some(known) = self.parts.remove(&(part.as_ptr() as usize)) else { return false };
        self.set_fresh(part);
        self.kind(known.of.bind_borrowed(part.py()));
        true
    }
}

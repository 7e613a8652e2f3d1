//! Methods that change a container: free on what this trace made, effects on what is from outside.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::set_table::Table;
use stator_cpython::heap::types::compares_by_identity;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp};
use stator_operators::only_adds;

use super::dictionaries::MethodArgs;
use crate::breaks::Reason;
use crate::functions::{Traits, Writes};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends, Looks};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::effects::{CONTENTS, MethodCall};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::numbers::tensors::holds_tensor;
use crate::recorder::reads::identity::is_nan;
use crate::recorder::reads::only_added::keeps_noticed;

impl Recorder {
    /// A method that changes its receiver, its first argument.
    pub(in crate::recorder) fn container_write<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let Some((&receiver, args)) = args.split_first() else { return call.natively() };
        let name = heap::callable_name(callable);
        let traits = self.functions.traits(callable);
        let writes = self.functions.writes(callable);
        let given = self.note(frame, |state| state.given_value(writes, receiver, args)).flatten();
        if !traits.has(Traits::STORES) {
            self.go_on_in_all(frame, args);
        }
        self.note(frame, |state| {
            let kind = state.kind_alone(receiver);
            if heap::passes_order(callable, receiver) {
                return Err(refuse(&format!("dict.{name}"), receiver));
            }
            if matches!(kind, Kind::Set | Kind::Dict) {
                args.iter().for_each(|arg| state.note_hashed(*arg));
                if let Some(key) = args.first() {
                    state.refuse_own_answers(*key, &["__hash__", "__eq__"])?;
                }
            } else {
                let all: SmallVec<[_; 4]> = args.iter().copied().chain([receiver]).collect();
                state.note_searched(self.functions, callable, &all);
            }
            args.iter().try_for_each(|arg| {
                if state.is_others_iterator(*arg) {
                    return Err((Reason::OutsideIterator, heap::type_name(*arg)));
                }
                if traits.has(Traits::STORES) { Ok(()) } else { state.adopt_deep(*arg) }
            })?;
            let numbers = [(Traits::COUNTS, 0), (Traits::FLAGGED, 1)];
            let number = numbers.iter().find(|(takes, _)| traits.has(*takes));
            let number = number.and_then(|(_, place)| args.get(*place));
            if number.is_some_and(|number| holds_tensor(state, *number)) {
                return Err((
                    Reason::DataRead,
                    format!("a tensor as a number that {name} is given"),
                ));
            }
            let compares = compares(traits);
            // The numbers among them have been fixed, or put in order by decisions.
            let tensors = |state: &mut State, object| {
                compares
                    && heap::any_within(object, MOST_DEEP, &mut |part| {
                        state.kind_alone(part) == Kind::Tensor
                    })
            };
            let holds_tensors =
                tensors(state, receiver) || args.iter().any(|arg| tensors(state, *arg));
            let orders = traits.has(Traits::ORDERS);
            if holds_tensors && !(orders && state.are_told_apart(receiver, args)) {
                return Err((Reason::DataRead, format!("{name} of a list of tensors")));
            }
            if compares {
                state.refuse_own_equality(receiver)?;
                args.iter().try_for_each(|arg| state.refuse_own_equality(*arg))?;
            }
            if state.origin(receiver) == Some(Origin::Fresh) {
                return state.write_own(receiver);
            }
            match (state.kind_alone(receiver), writes) {
                (Kind::Dict, Some(writes)) => {
                    state.write_dict(&name, writes, receiver, MethodArgs { args, names })
                }
                _ => state.write_container(&name, writes, receiver, args),
            }
        });
        self.guard_compared(frame, traits, receiver, args);
        let set = self.state.borrow_mut().kind_alone(receiver) == Kind::Set;
        if set && name == "pop" {
            // Which element it takes depends on those it took before, too.
            self.note(frame, |state| state.check_order(receiver));
        }
        for arg in args {
            if !set {
                self.note(frame, |state| state.check_order(*arg));
            }
            self.guarded(frame.py(), || self.guard_callback(frame, *arg));
        }
        // C code that only keeps what a generator yields, and calls no operation itself.
        let extends = traits.has(Traits::MOVES) && traits.has(Traits::ITERATES);
        let taken = args.first().filter(|arg| extends && ops::is_generator(**arg));
        let _collecting = taken.map(|_| self.collecting(frame));
        // Methods that only move references call no operation.
        let plain = traits.has(Traits::QUIET) || taken.is_some();
        let native = || call.natively();
        let result = if plain { native() } else { self.with_mode(frame, native) };
        let result = self.unless_raised(frame, receiver, result)?;
        if let Some(given) = given {
            return Ok(given);
        }
        self.note(frame, |state| state.register(result.as_borrowed()));
        Ok(result)
    }

    /// `list.pop(0)` or `deque.popleft()` of what nobody has read: a replay takes out as many. `None`: it's something
    /// else, or the list is to be read.
    pub(in crate::recorder) fn take_first<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, args, .. } = call;
        let first = match self.first_of_history(call)? {
            Ok(first) => first,
            Err(raised) => return Some(Err(raised)),
        };
        let list = args[0];
        self.note(frame, |state| {
            if heap::is_deque(list) {
                let call = MethodCall { method: "popleft".into(), args: Vec::new() };
                return state.write_call(list, call);
            }
            state.drop_first(list)
        });
        Some(call.natively().map(|_| first))
    }

    /// `del list[0]` of what nobody has read, as [`Recorder::take_first`]. `None`: it's something else, or the list is to be
    /// read.
    pub(in crate::recorder) fn delete_first<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<()>> {
        if !heap::is_exact_list(list) {
            return None;
        }
        if let Err(raised) = self.first_left(frame, list, key)? {
            return Some(Err(raised));
        }
        self.note(frame, |state| state.drop_first(list));
        Some(ops::set_item(list, key, None))
    }

    /// Guards how the elements that a method compares do that.
    fn guard_compared<'py>(
        &self,
        frame: &Frame<'py>,
        traits: Traits,
        receiver: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
    ) {
        if !compares(traits) {
            return;
        }
        let names: &[&'static str] =
            if traits.has(Traits::ORDERS) { &["__lt__", "__gt__"] } else { &["__eq__"] };
        for item in heap::list_items(receiver) {
            self.guard_protocol(frame, item.as_borrowed(), names);
        }
        for arg in args {
            self.guard_protocol(frame, *arg, names);
        }
    }

    /// `deque[i] = x` and `del deque[i]` of an outside deque.
    pub(in crate::recorder) fn set_deque_item<'py>(
        &self,
        frame: &Frame<'py>,
        deque: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        self.note(frame, |state| {
            if !heap::is_constant(key) {
                return Err((Reason::OutsideWrite, "an item of a deque".into()));
            }
            match value {
                Some(value) => {
                    state.write_deque("__setitem__", Writes::Arguments, deque, &[key, value])
                }
                None => state.write_deque("__delitem__", Writes::Arguments, deque, &[key]),
            }
        });
        self.unless_raised(frame, deque, ops::set_item(deque, key, value))
    }

    /// A method of a set or deque that raised has changed nothing: a replay doesn't call it.
    fn unless_raised<T>(
        &self,
        frame: &Frame<'_>,
        receiver: Borrowed<'_, '_>,
        result: Result<T>,
    ) -> Result<T> {
        if result.is_err() {
            self.note(frame, |state| state.drop_call(receiver));
        }
        result
    }

    /// `list[i] = x`, `list[i:j] = xs` and `del list[i]` of an outside list.
    pub(in crate::recorder) fn set_list_item<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        let slice = key.is_instance_of::<pyo3::types::PySlice>();
        self.note(frame, |state| {
            if !heap::is_constant(key) {
                return Err((Reason::OutsideWrite, "an item of a list".into()));
            }
            state.write_elements(list)
        });
        match value {
            Some(iterable) if slice => {
                if self.kind(iterable) == Kind::Tensor {
                    self.stop(frame, Reason::Unsupported, "a slice of a list set to a tensor");
                }
                self.take_elements(frame, iterable);
                self.with_mode(frame, || ops::set_item(list, key, value))
            }
            _ => ops::set_item(list, key, value),
        }
    }
}

/// So deep what is compared is looked into for tensors.
const MOST_DEEP: usize = 16;

/// Whether a method compares the elements of its receiver.
fn compares(traits: Traits) -> bool {
    traits.has(Traits::SEARCHES) || traits.has(Traits::ORDERS)
}

pub fn refuse(what: &str, container: Borrowed<'_, '_>) -> Stop {
    (Reason::OutsideWrite, format!("{what} of a {}", heap::type_name(container)))
}

/// So many rows are compared with one another.
const MOST_ROWS: usize = 64;

impl State {
    /// Whether C code that orders rows never comes to a tensor in one: what stands before it is another in each of them.
    fn are_told_apart(&mut self, list: Borrowed<'_, '_>, more: &[Borrowed<'_, '_>]) -> bool {
        let items = heap::list_items(list);
        let all = items.iter().map(Bound::as_borrowed).chain(more.iter().copied());
        let rows: Option<Vec<_>> =
            all.take(MOST_ROWS + 1).map(|item| self.constants_ahead(item)).collect();
        let Some(rows) = rows.filter(|rows| rows.len() <= MOST_ROWS) else { return false };
        // Constants: comparing them runs no code of a user's.
        let differ = |a: &Object<'_>, b: &Object<'_>| !a.is(b) && a.ne(b).unwrap_or(false);
        let are_apart =
            |a: &[Object<'_>], b: &[Object<'_>]| a.iter().zip(b).any(|(a, b)| differ(a, b));
        rows.iter()
            .enumerate()
            .all(|(at, row)| rows[..at].iter().all(|other| are_apart(row, other)))
    }

    /// The constants that a tuple or list begins with; `None`: it's something else.
    fn constants_ahead<'py>(&mut self, row: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
        let is_row = heap::is_plain_tuple(row) || heap::is_exact_list(row);
        let items = is_row.then(|| heap::sequence_items(row))?;
        let mut is_constant =
            |item: &Object<'py>| self.kind_alone(item.as_borrowed()) == Kind::Constant;
        Some(items.into_iter().take_while(|item| is_constant(item)).collect())
    }

    /// A list that nobody has read loses its first element.
    fn drop_first(&mut self, list: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        self.write_elements(list)?;
        if let Some(unread) = self.unread.get_mut(&(list.as_ptr() as usize)) {
            unread.dropped += 1;
        }
        Ok(())
    }

    /// Takes note of a method that changes an outside container, before it does.
    fn write_container(
        &mut self,
        name: &str,
        writes: Option<Writes>,
        receiver: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        let is_set = self.kind_alone(receiver) == Kind::Set;
        if !self.is_blind(receiver, name)
            || is_set && args.iter().any(|arg| self.may_be_outside_object(*arg))
        {
            // What it does depends on the contents.
            self.kind(receiver);
        }
        match (self.kind_alone(receiver), writes) {
            (Kind::List, _) => self.write_elements(receiver),
            (Kind::Set, Some(writes)) => self.write_set(name, writes, receiver, args),
            (Kind::Object, Some(writes)) if heap::is_deque(receiver) => {
                self.write_deque(name, writes, receiver, args)
            }
            _ => Err(refuse(name, receiver)),
        }
    }

    fn write_set(
        &mut self,
        name: &str,
        writes: Writes,
        set: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        if writes == Writes::Arguments {
            args.iter().try_for_each(|element| self.check_element(*element))?;
        }
        let given = args;
        let args: Vec<_> = if writes == Writes::Arguments {
            self.written_arguments(writes, args)?
        } else {
            args.iter()
                .map(|other| self.copy_for_set(*other))
                .collect::<std::result::Result<_, _>>()?
        };
        for item in heap::set_items(set) {
            // One that nobody has read is told from no other, and needn't be.
            if !self.is_equal_to_itself_alone(item.as_borrowed()) {
                self.check_element(item.as_borrowed())?;
            }
        }
        // How much it holds afterwards depends on which of them are the same.
        self.tell_apart_elements(set);
        for arg in given {
            match self.kind_alone(*arg) {
                Kind::Set | Kind::FrozenSet => self.tell_apart_elements(*arg),
                Kind::List | Kind::Tuple => self.tell_apart_all(&heap::children(*arg)),
                Kind::Dict => {
                    let keys: Vec<_> = heap::dict_items(*arg).into_iter().map(|it| it.0).collect();
                    self.tell_apart_all(&keys);
                }
                _ => self.tell_apart(*arg),
            }
        }
        self.write_call(set, MethodCall { method: name.into(), args })
    }

    fn write_deque(
        &mut self,
        name: &str,
        writes: Writes,
        deque: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        let address = deque.as_ptr() as usize;
        let blind = only_adds(Some("collections:deque"), name);
        if !blind {
            self.read_deque(deque)?;
        } else if !self.reads.has(&(address, CONTENTS)) && self.source(deque).is_some() {
            // What it held before, should somebody look later.
            let source = self.source(deque).expect("asked before");
            if !self.unread.contains_key(&address) {
                if keeps_noticed(deque) {
                    self.read_deque(deque)?;
                } else {
                    self.leave_unread(source, deque, Use::default());
                }
            }
        }
        let args = self.written_arguments(writes, args)?;
        self.write_call(deque, MethodCall { method: name.into(), args })
    }

    /// What a replay gives the method.
    fn written_arguments(
        &mut self,
        writes: Writes,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<Vec<Py<PyAny>>, Stop> {
        let given = |arg: &Borrowed<'_, '_>| match writes {
            Writes::Arguments => Ok((*arg).to_owned().unbind()),
            _ => self.copy_elements(*arg),
        };
        args.iter().map(given).collect()
    }

    /// Fails for what a set can't hold without running code of its own.
    fn check_element(&mut self, element: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        if self.is_equal_to_itself_alone(element) && self.origin(element).is_some() {
            return Ok(());
        }
        self.check_value(element)
    }

    /// As [`State::check_element`], of an element that isn't equal to itself alone, or a part of a tuple.
    fn check_value(&mut self, element: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        match self.kind(element) {
            // A new one is another element.
            Kind::Constant if is_nan(element) => {
                Err((Reason::Identity, "a set that holds a NaN".into()))
            }
            Kind::Builtin if !self.is_own_method(element) => Ok(()),
            Kind::Constant
            | Kind::Type
            | Kind::Singleton
            | Kind::Function
            | Kind::Module
            | Kind::TorchCallable => Ok(()),
            Kind::Tuple => heap::tuple_items(element)
                .iter()
                .try_for_each(|item| self.check_value(item.as_borrowed())),
            _ => {
                let detail = format!("a set that holds a {}", heap::type_name(element));
                Err((Reason::OutsideWrite, detail))
            }
        }
    }

    /// Whether an argument of a set's method is an object from outside, or holds one: whether the set has it is a question of
    /// its contents.
    fn may_be_outside_object(&mut self, arg: Borrowed<'_, '_>) -> bool {
        match self.kind_alone(arg) {
            Kind::Constant | Kind::Type => false,
            Kind::Tensor | Kind::Object => self.source(arg).is_some(),
            Kind::List | Kind::Tuple | Kind::Set | Kind::FrozenSet
                if self.origin(arg) == Some(Origin::Fresh) || heap::is_constant(arg) =>
            {
                let is_sequence = matches!(self.kind_alone(arg), Kind::List | Kind::Tuple);
                let held = if is_sequence { heap::children(arg) } else { heap::set_items(arg) };
                held.iter().any(|item| self.may_be_outside_object(item.as_borrowed()))
            }
            _ => true,
        }
    }

    /// Whether an object is a tensor, or another one that is hashed by its address.
    fn is_equal_to_itself_alone(&mut self, object: Borrowed<'_, '_>) -> bool {
        match self.kind_alone(object) {
            Kind::Tensor => true,
            Kind::Object => compares_by_identity(object),
            _ => false,
        }
    }

    /// A copy of what a method of a set's is given. How far the set's table grows, and so in which order it is
    /// iterated over, depends on what holds the elements: of sets and dictionaries it asks how many they have.
    fn copy_for_set(&mut self, other: Borrowed<'_, '_>) -> std::result::Result<Py<PyAny>, Stop> {
        let (py, kind) = (other.py(), self.kind(other));
        let refused = |_| (Reason::OutsideWrite, "the elements of a set".to_string());
        let copy = match kind {
            Kind::Set | Kind::FrozenSet => {
                let items = heap::elements(other);
                items.iter().try_for_each(|element| self.check_element(element.as_borrowed()))?;
                let copy = PySet::new(py, items).map_err(refused)?;
                if let Some(table) = Table::of(other).map_err(refused)? {
                    let _ = table.lay_out(copy.as_any().as_borrowed());
                }
                copy.into_any()
            }
            Kind::Dict if other.is_exact_instance_of::<PyDict>() => {
                let copy = PyDict::new(py);
                for (key, _) in heap::dict_items(other) {
                    self.check_element(key.as_borrowed())?;
                    copy.set_item(key, py.None()).map_err(refused)?;
                }
                copy.into_any()
            }
            _ => return self.copy_elements(other),
        };
        self.set_fresh(copy.as_borrowed());
        Ok(copy.unbind())
    }

    /// A list of what an iterable holds now.
    fn copy_elements(
        &mut self,
        iterable: Borrowed<'_, '_>,
    ) -> std::result::Result<Py<PyAny>, Stop> {
        let items = match self.kind(iterable) {
            Kind::Tuple => heap::tuple_items(iterable),
            Kind::List if heap::is_exact_list(iterable) => heap::elements(iterable),
            Kind::Set | Kind::FrozenSet => heap::elements(iterable),
            Kind::Dict => heap::dict_items(iterable).into_iter().map(|(key, _)| key).collect(),
            _ => {
                let detail = format!("the elements of a {}", heap::type_name(iterable));
                return Err((Reason::OutsideWrite, detail));
            }
        };
        let copy = PyList::new(iterable.py(), items);
        let copy = copy.map_err(|_| (Reason::OutsideWrite, "a list".to_string()))?;
        self.set_fresh(copy.as_any().as_borrowed());
        Ok(copy.into_any().unbind())
    }

    /// Takes note of an in-place operator on a container, before it changes it.
    pub fn write_in_place(
        &mut self,
        op: BinaryOp,
        left: Borrowed<'_, '_>,
        right: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let kind = self.kind(left);
        if kind == Kind::List {
            self.check_order(right)?;
        }
        if self.origin(left) == Some(Origin::Fresh) {
            return self.write_own(left);
        }
        match (kind, op) {
            (Kind::List, BinaryOp::InPlaceAdd | BinaryOp::InPlaceMultiply) => {
                self.write_elements(left)
            }
            (Kind::Object, BinaryOp::InPlaceAdd) => {
                self.write_deque("extend", Writes::Elements, left, &[right])
            }
            (Kind::Set, _) => {
                let name = match op {
                    BinaryOp::InPlaceOr => "update",
                    BinaryOp::InPlaceAnd => "intersection_update",
                    BinaryOp::InPlaceSubtract => "difference_update",
                    BinaryOp::InPlaceXor => "symmetric_difference_update",
                    _ => return Err(refuse(op.symbol(), left)),
                };
                if !matches!(self.kind(right), Kind::Set | Kind::FrozenSet) {
                    // Other operands raise, or answer themselves.
                    return Err(refuse(op.symbol(), left));
                }
                self.write_set(name, Writes::Elements, left, &[right])
            }
            (Kind::Dict, _) => self.merge_dict(op, left, right),
            _ => Err(refuse(op.symbol(), left)),
        }
    }
}

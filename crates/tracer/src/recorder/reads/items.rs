//! Items, iteration and unpacking.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PySet, PyString};
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator;
use stator_cpython::heap::types::{self, compares_by_identity};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_evaluator::Role;
use stator_graph::{Operator, Target};

use super::identity::is_nan;
use super::tensor_items::{index_depends_on_data, slice_problem};
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{
    Arguments, ArrayValues, Changes, Decides, Ends, HashedKeys, Looks, Operations, Protocols,
};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::effects::{CONTENTS, KEYS};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Kind, is_plain_iterator};
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::notes::text_wrappers::is_in_wrapper;
use crate::recorder::numbers::tensors::holds_tensor;

impl Recorder {
    /// `BINARY_SUBSCR`.
    pub(in crate::recorder) fn get_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::get_item(owner, key);
        }
        if key.is_exact_instance_of::<PyString>() && self.state.borrow().shows_entries(owner) {
            return self.entry_beside(frame, owner, key);
        }
        if let Some(element) = self.element_left(frame, owner, key) {
            return Ok(element);
        }
        if let Some(own) = self.own_array(frame, owner) {
            return self.get_item(frame, own?.as_borrowed(), key);
        }
        if let Some(item) = self.item_of_history(frame, owner, key) {
            return item;
        }
        let kind = self.kind(owner);
        if kind == Kind::Iterator
            && let Some(shown) = self.shown_by(frame, owner)
        {
            return self.get_item(frame, shown.as_borrowed(), key);
        }
        if kind == Kind::Object
            && let Some(method) = self.python_item(frame, owner)
        {
            // That looks at the key.
            self.note(frame, |state| state.refuse_native_state(owner));
            return self.item_by(frame, method.as_borrowed(), owner, key);
        }
        if kind == Kind::Opaque
            && let Some(item) = self.item_of_array(frame, owner, key)
        {
            return item;
        }
        if matches!(kind, Kind::Tensor | Kind::List | Kind::Tuple | Kind::Constant)
            && let Some(key) = self.with_plain_places(frame, key)
        {
            return self.get_item(frame, owner, key.as_borrowed());
        }
        let of_table = self.text_at(frame, owner, key);
        if let Some(found) = of_table.or_else(|| self.float_at(frame, owner, key)) {
            return found;
        }
        if kind != Kind::Tensor && !self.keeps_key(frame, owner, key) {
            self.concrete(frame, &[key], "an index or key");
            self.guard_key(frame, &[key]);
        }
        if kind == Kind::Constant {
            self.concrete(frame, &[owner], "a part of a text");
        }
        if let Some(key) = self.place_by_tensor(frame, kind, key) {
            return self.get_item(frame, owner, key.as_borrowed());
        }
        if self.asks_bounds(frame, kind, key) {
            return ops::get_item(owner, key);
        }
        match kind {
            Kind::Tensor if let Some(place) = self.place_of_member(key) => {
                self.tensor_item(frame, owner, place.as_borrowed())
            }
            Kind::Tensor => self.tensor_item(frame, owner, key),
            // Lists and tuples are guarded as a whole when they are found. A text that is known by identity never changes.
            Kind::Singleton if !owner.is_instance_of::<PyString>() => {
                self.no_item(frame, owner, key)
            }
            Kind::List | Kind::Tuple | Kind::Constant | Kind::Singleton => {
                self.guard_answers(frame, key, &["__index__"]);
                let value = self.subclass_item(frame, owner, key)?;
                self.note(frame, |state| state.register(value.as_borrowed()));
                Ok(value)
            }
            Kind::Dict => self.dict_item(frame, owner, key),
            Kind::Type => self.class_item(frame, owner, key),
            Kind::Object | Kind::Module => self.subclass_item(frame, owner, key),
            // A mapping proxy: what it shows was guarded when it was made.
            Kind::Iterator if self.origin(owner) == Some(Origin::Fresh) => {
                let value = self.with_mode(frame, || ops::get_item(owner, key))?;
                self.note(frame, |state| state.register(value.as_borrowed()));
                Ok(value)
            }
            _ => self.no_item(frame, owner, key),
        }
    }

    /// An item of an object of which nothing is known.
    fn no_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let detail = format!("an item of a {}", heap::type_name(owner));
        self.stop(frame, Reason::Unsupported, detail);
        ops::get_item(owner, key)
    }

    /// An item of a tensor: an operation.
    fn tensor_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if let Some(function) = self.item_by_number(frame.py(), key, false) {
            self.vouch(frame, function.as_borrowed());
            return self.item_by(frame, function.as_borrowed(), owner, key);
        }
        self.know_arrays(frame, &[key]);
        let problem = || index_depends_on_data(&mut self.state.borrow_mut(), key);
        let problem = if self.index_takes_read(frame, key, problem) {
            None
        } else {
            self.problem_of(frame, &[key], problem)
        };
        if let Some(problem) = problem
            && !self.item_goes_on(frame, &problem, key)
        {
            if let Some(key) = self.settled_bounds(frame, key) {
                return self.get_item(frame, owner, key.as_borrowed());
            }
            self.stop(frame, problem.0, problem.1);
        }
        let target = |_: &mut State| Target::Operator(Operator::GetItem);
        let there = self.index_without_data(key);
        let execute = || ops::get_item(owner, there.as_borrowed());
        self.operation(frame, target, &[owner, key], None, execute)
    }

    /// An element of a list that code within a node has put there.
    fn element_left<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !self.state.borrow().enclosed.lists.contains_key(&(owner.as_ptr() as usize))
            || !heap::is_exact_list(owner)
            || !key.is_exact_instance_of::<PyInt>()
            || self.state.borrow_mut().holds_numbers(key)
        {
            return None;
        }
        let index = key.extract::<i64>().ok()?;
        let items = heap::list_items(owner);
        let place = if index < 0 { items.len() as i64 + index } else { index };
        let value = items.get(usize::try_from(place).ok()?)?.clone();
        let is_taken = self.note(frame, |state| match state.source(owner) {
            Some(source) => state.take_left(owner, source, key, value.as_borrowed()),
            None => Ok(false),
        });
        (is_taken == Some(true)).then_some(value)
    }

    /// An entry of a dictionary to which code within a node has written: of the rest nothing is read.
    fn entry_beside<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.concrete(frame, &[key], "an index or key");
        let found = heap::dict_get(owner, key);
        self.note(frame, |state| {
            let held = found.as_ref().map(Bound::as_borrowed);
            state.read_dict_slot(owner, key, held)?;
            held.map_or(Ok(()), |held| state.register(held))
        });
        found.map_or_else(|| ops::get_item(owner, key), Ok)
    }

    /// An item of a dictionary: one slot is read.
    fn dict_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let is_plain = self.reads_items_plainly(frame, owner);
        if !is_plain && self.python_item(frame, owner).is_some() {
            // The storage is that method's business: it may hold nothing under this key.
            let value = self.subclass_item(frame, owner, key)?;
            self.note(frame, |state| state.register(value.as_borrowed()));
            return Ok(value);
        }
        if is_plain && let Some(value) = self.item_by_hash(frame, owner, key) {
            return value;
        }
        let found = heap::dict_get(owner, key);
        let own = self.note(frame, |state| {
            match &found {
                Some(value)
                    if is_plain && state.takes_stand_ins(owner) && state.is_plain_key(key) =>
                {
                    let own = state.read_slot_value(owner, key, value.as_borrowed())?;
                    if own.is_some() {
                        return Ok(own);
                    }
                }
                _ => {}
            }
            state.read_key(owner, key, found.clone()).map(|()| None)
        });
        if let Some(Some(own)) = own {
            return Ok(own);
        }
        if self.is_stopped() {
            // It may hold what isn't found without code of the program's. The key may be found in an error.
            let plain = self.plain_left(key).unwrap_or_else(|| key.to_owned());
            return ops::get_item(owner, plain.as_borrowed());
        }
        if found.is_none()
            && is_plain
            && self.origin(owner) != Some(Origin::Fresh)
            && let Some(method) =
                self.special_of_any(frame, owner, pyo3::intern!(frame.py(), "__missing__"))
        {
            return self.item_by(frame, method.as_borrowed(), owner, key);
        }
        if found.is_none()
            && self.origin(owner) != Some(Origin::Fresh)
            && !owner.get_type().is(frame.py().get_type::<pyo3::types::PyDict>())
            && !(is_plain && types::lookup_named(&owner.get_type(), "__missing__").is_none())
        {
            if let Some(value) = self.missing_item(frame, owner, key) {
                return value;
            }
            self.stop(frame, Reason::OutsideWrite, "a missing key of a dictionary's subclass");
        }
        let value = self.subclass_item(frame, owner, key)?;
        self.note(frame, |state| state.register(value.as_borrowed()));
        Ok(value)
    }

    /// Whether a dictionary gives what its own storage holds.
    fn reads_items_plainly(&self, frame: &Frame<'_>, dict: Borrowed<'_, '_>) -> bool {
        if heap::is_exact_dict(dict) {
            return true;
        }
        let name = pyo3::intern!(frame.py(), "__getitem__").as_any().as_borrowed();
        let plain = frame.py().get_type::<pyo3::types::PyDict>();
        let plain = stator_cpython::heap::types::lookup(plain.as_borrowed(), name);
        let found = self.lookup(frame, &dict.get_type(), name);
        found.zip(plain).is_some_and(|(found, plain)| found.is(&plain))
    }

    /// The class's own `__getitem__`, if it's Python.
    fn python_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        self.special_of_any(frame, owner, pyo3::intern!(frame.py(), "__getitem__"))
    }

    fn item_by<'py>(
        &self,
        frame: &Frame<'py>,
        method: Borrowed<'_, 'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.call_linked(Role::Item, None, Call::new(frame, method, &[owner, key]))
    }

    /// An item by the class's own `__getitem__`, if it's Python; natively otherwise.
    fn subclass_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let ty = owner.get_type();
        self.note(frame, |state| state.refuse_native_state(owner));
        if stator_cpython::heap::types::is_immutable(ty.as_borrowed()) {
            if self.kind(owner) == Kind::Object
                && self.origin(owner) != Some(Origin::Fresh)
                && !(heap::is_deque(owner) && heap::is_constant(key))
            {
                self.stop(
                    frame,
                    Reason::Unsupported,
                    format!("an item of a {}", heap::type_name(owner)),
                );
            }
            return ops::get_item(owner, key);
        }
        if let Some(method) = self.python_item(frame, owner) {
            return self.item_by(frame, method.as_borrowed(), owner, key);
        }
        if self.kind(owner) == Kind::Dict {
            self.guard_protocol_of(frame, owner, &["__missing__"]);
        }
        ops::get_item(owner, key)
    }

    /// A tensor's index whose slices have integers where these have tensors. `None`: none has, or not all can be read.
    pub(in crate::recorder) fn settled_bounds<'py>(
        &self,
        frame: &Frame<'py>,
        index: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let has_tensors =
            |part: Borrowed<'_, 'py>| self.kind(part) == Kind::Slice && self.holds_own_tensor(part);
        if has_tensors(index) {
            return self.settled(frame, index);
        }
        if !heap::is_plain_tuple(index) {
            return None;
        }
        let parts = heap::tuple_items(index);
        if !parts.iter().any(|part| has_tensors(part.as_borrowed())) {
            return None;
        }
        let settled = parts.into_iter().map(|part| {
            if has_tensors(part.as_borrowed()) {
                self.settled(frame, part.as_borrowed())
            } else {
                Some(part)
            }
        });
        let settled = settled.collect::<Option<Vec<_>>>()?;
        Some(pyo3::types::PyTuple::new(frame.py(), settled).ok()?.into_any())
    }

    /// A place in a list or a tuple with numbers where it has tensors.
    pub(in crate::recorder) fn place_by_tensor<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Kind,
        key: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let has_tensor = matches!(owner, Kind::List | Kind::Tuple)
            && matches!(self.kind(key), Kind::Tensor | Kind::Slice)
            && holds_tensor(&mut self.state.borrow_mut(), key);
        if has_tensor { self.settled(frame, key) } else { None }
    }

    /// The number that C code takes for a member of an enumeration of integers: its value as an integer, whatever its class says.
    pub(in crate::recorder) fn place_of_member<'py>(
        &self,
        key: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let is_number = key.is_instance_of::<PyInt>() && self.kind(key) == Kind::Singleton;
        if !is_number || !self.state.borrow().is_identity_guarded(key) {
            return None;
        }
        let place: isize = key.extract().ok()?;
        Some(PyInt::new(key.py(), place).into_any())
    }

    /// Ends the trace where C code would ask a key for numbers that nothing guards: a tensor, or a
    /// slice bounded by other than constants. (Tensors look at their indices themselves.)
    pub(in crate::recorder) fn asks_bounds(
        &self,
        frame: &Frame<'_>,
        owner: Kind,
        key: Borrowed<'_, '_>,
    ) -> bool {
        let stop = match self.kind(key) {
            _ if matches!(owner, Kind::Tensor | Kind::Dict) => return false,
            Kind::Tensor => (Reason::DataRead, "a tensor as index".into()),
            Kind::Slice => slice_problem(&mut self.state.borrow_mut(), key),
            _ => return false,
        };
        self.stop(frame, stop.0, stop.1);
        true
    }

    /// `CONTAINS_OP`.
    pub(in crate::recorder) fn contains_item<'py>(
        &self,
        frame: &Frame<'py>,
        container: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        if self.is_stopped() {
            return ops::contains(container, item);
        }
        if container.is_exact_instance_of::<PySet>() && is_in_wrapper(frame) {
            return self.is_text_made(frame, container, item);
        }
        if let Some(shown) = self.shown_by(frame, container) {
            return self.contains_item(frame, shown.as_borrowed(), item);
        }
        if let Some(found) = self.symbolic_contains(frame, container, item) {
            return Ok(found);
        }
        if self.is_unread_set(container) {
            self.concrete(frame, &[item], "a search");
            if self.state.borrow_mut().asks_set(container, item).is_some() {
                return ops::contains(container, item);
            }
        }
        if self.kind(container) == Kind::Dict {
            // It's searched for a key: no value is looked at.
            if !self.keeps_key(frame, container, item) {
                self.concrete(frame, &[item], "an index or key");
            }
            if let Some(found) = self.entry_by_hash(frame, container, item) {
                return found.map(|found| found.is_some());
            }
        } else {
            self.concrete(frame, &[container, item], "a search");
        }
        if self.kind(container) == Kind::Tensor
            && let Some(found) = self.answered_search(frame, container, item)
        {
            return found;
        }
        self.guard_key(frame, &[item]);
        self.note(frame, |state| {
            state.note_hashed(item);
            if matches!(state.kind(container), Kind::List | Kind::Tuple) {
                state.note_equated(container);
            }
            Ok(())
        });
        self.note(frame, |state| match state.kind(container) {
            Kind::Constant => Ok(()),
            Kind::Dict => {
                let value = heap::dict_get(container, item);
                state.asks_membership(container, item, value)
            }
            Kind::List | Kind::Tuple => {
                if holds_tensor(state, container) || holds_tensor(state, item) {
                    return Err((Reason::DataRead, "membership of a tensor".into()));
                }
                state.refuse_own_equality(container)?;
                state.adopt_deep(container)
            }
            Kind::Set | Kind::FrozenSet => match state.kind(item) {
                _ if state.holds_objects(container) => state.search_objects(container, item),
                Kind::Builtin if !state.is_own_method(item) => Ok(()),
                Kind::Constant
                | Kind::Type
                | Kind::Singleton
                | Kind::Function
                | Kind::TorchCallable => Ok(()),
                Kind::Tuple if heap::is_constant(item) => Ok(()),
                _ if state.origin(container) == Some(Origin::Fresh) => Ok(()),
                _ => state.search_objects(container, item),
            },
            Kind::Object => state.adopt_whole(container, false),
            Kind::Type | Kind::Singleton => Ok(()),
            Kind::Iterator if state.origin(container) == Some(Origin::Fresh) => {
                state.adopt_whole(container, false)
            }
            Kind::Tensor => Err((Reason::DataRead, "membership in a tensor".into())),
            _ => Err((
                Reason::Unsupported,
                format!("membership in a {}", heap::type_name(container)),
            )),
        });
        self.guard_protocol_of(frame, container, &["__contains__", "__iter__", "__getitem__"]);
        if self.kind(container) == Kind::Type {
            let meta = container.get_type();
            let name = pyo3::intern!(frame.py(), "__contains__").as_any().as_borrowed();
            self.lookup(frame, &meta, name);
        }
        if let Some(found) = self.python_contains(frame, container, item) {
            return found;
        }
        match self.kind(container) {
            Kind::Dict | Kind::Set | Kind::FrozenSet | Kind::Constant => {
                ops::contains(container, item)
            }
            _ => {
                let _reading = self.reads_on(frame, &[container]);
                self.with_mode(frame, || ops::contains(container, item))
            }
        }
    }

    /// Guards an iterable whose elements C code is about to take.
    pub(in crate::recorder) fn take_elements(&self, frame: &Frame<'_>, iterable: Borrowed<'_, '_>) {
        if self.kind(iterable) == Kind::Constant {
            self.concrete(frame, &[iterable], "the parts of a text");
        }
        let is_iterator = self.kind(iterable) == Kind::Iterator;
        if is_iterator && self.own_view(frame, iterable).is_some() {
            // What it shows has been read whole.
            return;
        }
        let is_others = is_iterator && !self.is_own_iterator(frame, iterable);
        self.note(frame, |state| match state.kind(iterable) {
            Kind::Dict => state.adopt_dict_for(state.moving(), iterable),
            Kind::Iterator if is_others => {
                Err((Reason::OutsideIterator, heap::type_name(iterable)))
            }
            Kind::Opaque => {
                Err((Reason::Unsupported, format!("iteration of a {}", heap::type_name(iterable))))
            }
            Kind::Object if state.origin(iterable).is_none() => {
                Err((Reason::UnknownOrigin, heap::type_name(iterable)))
            }
            Kind::Object => state.refuse_native_state(iterable),
            Kind::Set | Kind::FrozenSet => state.check_order(iterable),
            _ => Ok(()),
        });
        self.guard_protocol_of(
            frame,
            iterable,
            &["__iter__", "__getitem__", "__len__", "__length_hint__", "__reversed__", "keys"],
        );
    }

    /// `GET_ITER`.
    pub(in crate::recorder) fn iterate<'py>(
        &self,
        frame: &Frame<'py>,
        iterable: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::get_iter(iterable);
        }
        self.take_part_apart(frame, iterable)?;
        if self.kind(iterable) == Kind::Tensor {
            return self.iterate_tensor(frame, iterable);
        }
        if let Some(shown) = self.shown_by(frame, iterable) {
            return self.iterate(frame, shown.as_borrowed());
        }
        if let Some(own) = self.own_array(frame, iterable) {
            return self.iterate(frame, own?.as_borrowed());
        }
        if let Some(rows) = self.rows_of_array(frame, iterable) {
            return self.iterate(frame, rows?.as_borrowed());
        }
        let is_others =
            |state: &State| state.source(iterable).is_some() || state.is_made_over(iterable);
        if self.kind(iterable) == Kind::Iterator
            && is_others(&self.state.borrow())
            && (iterator::is_known(iterable)
                || iterator::calling(iterable).is_some()
                || self.state.borrow().is_made_over(iterable))
        {
            // It's its own iterator, and nothing is taken from it here.
            return ops::get_iter(iterable);
        }
        self.take_elements(frame, iterable);
        if let Some(iterator) = self.python_iter(frame, iterable) {
            return iterator;
        }
        let iterator = match self.kind(iterable) {
            Kind::Object => self.with_mode(frame, || ops::get_iter(iterable))?,
            _ => ops::get_iter(iterable)?,
        };
        self.note(frame, |state| {
            if state.origin(iterator.as_borrowed()).is_none() {
                state.set_fresh(iterator.as_borrowed());
            }
            Ok(())
        });
        Ok(iterator)
    }

    /// Iterating a tensor is iterating its `unbind(0)`.
    fn iterate_tensor<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if is_scalar(tensor) {
            // Raises, with the message of tensors' own `__iter__`.
            self.stop(frame, Reason::OperationRaised, "iteration over a 0-d tensor");
            return ops::get_iter(tensor);
        }
        let parts = self.tensor_parts(frame, tensor)?;
        let iterator = ops::get_iter(parts.as_borrowed())?;
        self.note(frame, |state| {
            state.set_fresh(iterator.as_borrowed());
            Ok(())
        });
        Ok(iterator)
    }

    /// The tuple of a tensor's parts along its first dimension.
    pub(in crate::recorder) fn tensor_parts<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let target =
            |state: &mut State| Target::Method { name: state.graph.intern("unbind"), object: None };
        // Nothing is executed before: what is asked of sizes leaves before the instruction.
        let unbind = || {
            let name = pyo3::intern!(py, "unbind").as_any().as_borrowed();
            ops::call(ops::get_attr(tensor, name)?.as_borrowed(), &[], None)
        };
        self.operation(frame, target, &[tensor], None, unbind)
    }

    /// `FOR_ITER`.
    pub(in crate::recorder) fn advance<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        if self.is_stopped() {
            return ops::next(iterator);
        }
        if let Some(item) = self.python_next(frame, iterator) {
            return item;
        }
        let foreseen = self.check_advanced(frame, iterator);
        let _reading = self.reads_on(frame, &[iterator]);
        let _collecting = self.collecting_from(frame, iterator);
        let next = || match is_plain_iterator(&iterator.get_type()) {
            true => ops::next(iterator),
            false => self.with_mode(frame, || ops::next(iterator)),
        };
        let item = match runs_frames(iterator) && self.goes_around(frame) {
            true => self.with_way_around(frame, next)?,
            false => next()?,
        };
        if foreseen.is_some() {
            return Ok(item.and(foreseen));
        }
        if let Some(item) = &item {
            self.note(frame, |state| state.register(item.as_borrowed()));
        }
        Ok(item)
    }

    /// Whether data was found to decide in a generator that the current instruction advances.
    fn goes_around(&self, frame: &Frame<'_>) -> bool {
        let is_direct = || self.are_linked(frame).then(|| self.frames_to(frame)).flatten();
        !self.is_stopped() && self.session.points.goes_around(is_direct)
    }

    /// `next(iterator)`: behind the last item the iterator's own `StopIteration` is raised, which may
    /// carry a generator's result.
    pub(in crate::recorder) fn next_item<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        if let Some(method) = self.special(frame, iterator, "__next__") {
            let role = Role::Next;
            return self.call_linked(
                role,
                None,
                Call::new(frame, method.as_borrowed(), &[iterator]),
            );
        }
        let foreseen = self.check_advanced(frame, iterator);
        let _reading = self.reads_on(frame, &[iterator]);
        let _collecting = self.collecting_from(frame, iterator);
        let is_plain = is_plain_iterator(&iterator.get_type());
        let item = if is_plain { native()? } else { self.with_mode(frame, native)? };
        if let Some(foreseen) = foreseen {
            return Ok(foreseen);
        }
        self.note(frame, |state| state.register(item.as_borrowed()));
        Ok(item)
    }

    /// An iterator that this trace didn't make is read or taken over, or the trace ends before it is advanced. What
    /// stands for the item that it gives, if something does.
    fn check_advanced<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() {
            return None;
        }
        if !self.is_own_iterator(frame, iterator) {
            return self.advance_outside(frame, iterator);
        }
        self.guard_protocol_of(frame, iterator, &["__next__"]);
        None
    }
}

/// Whether an iterator may run frames, and only hands on what they give.
pub(in crate::recorder) fn runs_frames(iterator: Borrowed<'_, '_>) -> bool {
    ops::is_generator(iterator) || iterator::combines(iterator) && iterator::hands_on(iterator)
}

/// Whether a tensor has no dimension to take apart.
pub(in crate::recorder) fn is_scalar(tensor: Borrowed<'_, '_>) -> bool {
    stator_cpython::heap::tensor::info(tensor).is_some_and(|info| info.sizes.is_empty())
}

impl State {
    /// A set of objects from outside is asked for one that is equal to itself alone, or for a constant: each element is
    /// guarded where it was found, and that it isn't another one than it was.
    fn search_objects(
        &mut self,
        set: Borrowed<'_, '_>,
        item: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let is_known = match self.kind(item) {
            Kind::Constant => !is_nan(item),
            Kind::Tensor => true,
            Kind::Type | Kind::Object => compares_by_identity(item) && self.origin(item).is_some(),
            _ => false,
        };
        if !is_known {
            return Err((Reason::Identity, "membership of an object in a set".into()));
        }
        self.tell_apart(item);
        self.tell_apart_elements(set);
        Ok(())
    }

    /// Guards, when the trace ends, that an object from outside is another one than all that were told apart.
    pub(in crate::recorder) fn tell_apart(&mut self, object: Borrowed<'_, '_>) {
        let is_object = matches!(self.kind_alone(object), Kind::Tensor | Kind::Object);
        if let Some(source) = self.source(object).filter(|_| is_object) {
            self.distinct.compare(source);
        }
    }

    /// As [`State::tell_apart`] of several objects.
    pub(in crate::recorder) fn tell_apart_all(&mut self, objects: &[Object<'_>]) {
        objects.iter().for_each(|object| self.tell_apart(object.as_borrowed()));
    }

    /// As [`State::tell_apart`] of what a set holds.
    pub(in crate::recorder) fn tell_apart_elements(&mut self, set: Borrowed<'_, '_>) {
        self.tell_apart_all(&heap::set_items(set));
    }

    /// Whether a set from outside holds objects, and was read in its order.
    fn holds_objects(&self, set: Borrowed<'_, '_>) -> bool {
        self.reads.has(&(set.as_ptr() as usize, KEYS))
    }

    /// Fails for a set whose order C code is about to read: objects hashed by their addresses come
    /// in another order from run to run.
    pub fn check_order(
        &mut self,
        object: Borrowed<'_, '_>,
    ) -> std::result::Result<(), crate::recorder::Stop> {
        if !matches!(self.kind(object), Kind::Set | Kind::FrozenSet) {
            return Ok(());
        }
        let items = heap::set_items(object);
        if items.iter().all(|item| heap::is_constant(item.as_borrowed())) {
            let is_number = |item: &Object<'_>| {
                item.is_exact_instance_of::<PyInt>() || item.is_exact_instance_of::<PyFloat>()
            };
            if !items.iter().all(is_number) {
                self.of_process
                    .get_or_insert("it reads a set in an order that each process has its own of");
            }
            return Ok(());
        }
        // One element has no order. A set of objects from outside was read in its own.
        let is_changed = self.written.has(&(object.as_ptr() as usize, CONTENTS));
        if items.len() < 2 || self.holds_objects(object) && !is_changed {
            return Ok(());
        }
        Err((Reason::Identity, "the order of a set of objects".into()))
    }
}

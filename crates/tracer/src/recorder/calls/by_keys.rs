//! `min`, `max` and `sorted` with a key that is a Python function: the recorder calls it for each item, so that what it gives may be a
//! number that was read, or a tensor with one. Their order is a row of decisions.

use std::iter;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyRange, PyTuple};
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::CompareOp;
use stator_cpython::{Raised, Result, ops};

use crate::breaks::Reason;
use crate::functions::Numeric;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::Origin;
use crate::recorder::numbers::orders::known_flag;
use crate::recorder::numbers::read_tensors::{LONGEST, single};
use crate::recorder::reads::whole_containers::is_plain;

/// The methods by which things are put in order.
const ORDERING: &[&str] = &["__lt__", "__gt__"];

impl<'py> Call<'_, 'py> {
    /// What a function of a sequence says of an empty one.
    fn of_nothing(&self) -> Result<Object<'py>> {
        let empty = PyTuple::empty(self.frame.py()).into_any();
        let rest = self.args.iter().skip(1).copied();
        let args: Args<'_, 'py> = iter::once(empty.as_borrowed()).chain(rest).collect();
        Call { args: &args, ..*self }.natively()
    }
}

/// How keys may be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// They are the same in each replay.
    Plain,
    /// Numbers, or tensors with one, that may differ.
    Numbers,
    /// Tuples and lists of numbers and constants, of which some may differ.
    Rows,
    /// Objects that say themselves which one is less, in Python: their methods are traced.
    Objects,
    /// In a way that the trace doesn't follow: it has ended.
    Unknown,
}

impl Recorder {
    /// A call that orders things by a Python function. `None`: it's none, or C code is to do it.
    pub(in crate::recorder) fn ordered_by_key<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let Some(names) = names.map(heap::tuple_items) else {
            return self.extreme_of_scalars(call);
        };
        let numeric = self.functions.numeric(callable);
        let op = numeric.and_then(Numeric::extreme);
        let is_in_place = numeric.is_none() && self.sorts_list(callable, args);
        let is_sort = is_in_place || numeric == Some(Numeric::Sorted);
        if op.is_none() && !is_sort {
            return None;
        }
        let [sequence, named @ ..] = args else { return None };
        if named.len() != names.len() || self.is_stopped() || !self.session.takes_steps() {
            return None;
        }
        let (mut key, mut is_reverse) = (None, false);
        for (name, value) in names.iter().zip(named) {
            match &*heap::text(name.as_borrowed()) {
                "key" => key = Some(*value),
                "reverse" if is_sort => is_reverse = known_flag(*value)?,
                "default" if !is_sort => {}
                _ => return None,
            }
        }
        let key = key.filter(|key| self.may_be_key(*key, is_sort) || self.is_known_getter(*key))?;
        if is_sort && self.kind(*sequence) == Kind::Iterator {
            return self.sorted_iterator(call, *sequence);
        }
        if let Some(op) = op
            && self.runs_here(frame, *sequence)
        {
            let generator = *sequence;
            let _collecting = self.collecting(frame);
            let found = self.extreme_by(frame, key, op, || {
                let item = ops::next(generator)?;
                if let Some(item) = &item {
                    self.note(frame, |state| state.register(item.as_borrowed()));
                }
                Ok(item)
            });
            return Some(found.and_then(|found| match found {
                Some(found) => Ok(found),
                None => call.of_nothing(),
            }));
        }
        let items = match self.listed(frame, *sequence)? {
            Ok(items) => items,
            Err(raised) => return Some(Err(raised)),
        };
        if is_in_place {
            return self.sort_by(frame, key, *sequence, &items, is_reverse);
        }
        Some(match op {
            None => self.sorted_by(frame, key, &items, is_reverse),
            Some(op) => {
                let mut items = items.into_iter();
                let found = self.extreme_by(frame, key, op, || Ok(items.next()));
                found.map(|found| found.expect("there is one"))
            }
        })
    }

    /// `list(d)`, `tuple(d)`, `sorted(d)`, `min(d)` and `max(d)` of a dictionary: C code gets its keys, and looks at no value.
    /// `None`: it's another call, or the dictionary says in Python what is gone over.
    pub(super) fn takes_keys<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let ([dict], None) = (args, names) else { return None };
        let py = frame.py();
        let [list, tuple] =
            [py.get_type::<PyList>().into_any(), py.get_type::<PyTuple>().into_any()];
        let keeps = callable.is(&list) || callable.is(&tuple);
        let numeric = self.functions.numeric(callable);
        let orders = matches!(numeric, Some(Numeric::Sorted | Numeric::Least | Numeric::Greatest));
        let is_dict = (keeps || orders)
            && !self.is_stopped()
            && self.kind(*dict) == Kind::Dict
            && is_gone_over_by_c(*dict);
        if !is_dict {
            return None;
        }
        if !keeps {
            let keys = self.call_object(Call::new(frame, list.as_borrowed(), args));
            return Some(keys.and_then(|keys| {
                self.call_object(Call::new(frame, callable, &[keys.as_borrowed()]))
            }));
        }
        self.guard_protocol_of(frame, *dict, &["__iter__", "__len__", "__length_hint__"]);
        self.note(frame, |state| state.adopt_keys(*dict))?;
        Some(call.natively().inspect(|keys| {
            self.note(frame, |state| state.register(keys.as_borrowed()));
        }))
    }

    /// Whether the recorder calls a key itself: a Python function, a dictionary's `get`, and where things are sorted what takes
    /// an item out of a list or dictionary, or out of what it's given.
    fn may_be_key(&self, key: Borrowed<'_, '_>, is_sort: bool) -> bool {
        match self.kind(key) {
            Kind::Function => true,
            Kind::Method | Kind::Partial => is_sort,
            // The place of the largest number of a list is a node.
            Kind::Builtin => takes_items(key) && (is_sort || heap::is_named(key, &["get"])),
            Kind::Object => is_sort && takes_items(key),
            _ => false,
        }
    }

    /// `sorted` of what an iterator gives, which it takes all of before it calls the key.
    fn sorted_iterator<'py>(
        &self,
        call: Call<'_, 'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let list = frame.py().get_type::<PyList>();
        let made = self.call_object(Call::new(frame, list.as_any().as_borrowed(), &[iterator]));
        Some(made.and_then(|made| {
            let all: Args<'_, 'py> =
                std::iter::once(made.as_borrowed()).chain(args[1..].iter().copied()).collect();
            self.call_object(Call { frame, callable, args: &all, names })
        }))
    }

    /// Whether a generator may be run here, item by item, or an iterator of the trace's own over a container.
    fn runs_here(&self, frame: &Frame<'_>, iterator: Borrowed<'_, '_>) -> bool {
        if self.kind(iterator) != Kind::Iterator {
            return false;
        }
        let is_own = self.origin(iterator) == Some(Origin::Fresh) && is_over_container(iterator);
        let may_run =
            is_own || heap::type_name(iterator) == "generator" && self.may_advance(frame, iterator);
        may_run && !self.is_stopped()
    }

    /// The items of a container that can be gone over again.
    fn listed<'py>(
        &self,
        frame: &Frame<'py>,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Result<Vec<Object<'py>>>> {
        let py = frame.py();
        let is_known = heap::is_exact_list(sequence)
            || heap::is_plain_tuple(sequence)
            || self.kind(sequence) == Kind::Dict && is_gone_over_by_c(sequence)
            || sequence.is_exact_instance_of::<PyRange>()
            || heap::view_items(sequence).is_some();
        let fits = |length: usize| (1..=LONGEST as usize).contains(&length);
        if !is_known || !sequence.len().is_ok_and(fits) {
            return None;
        }
        let list = py.get_type::<PyList>();
        let made = self.call_object(Call::new(frame, list.as_any().as_borrowed(), &[sequence]));
        Some(made.map(|made| heap::list_items(made.as_borrowed())))
    }

    fn key_of<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        item: &Object<'py>,
    ) -> Result<Object<'py>> {
        let is_taken = || heap::callable_name(key) == "__getitem__";
        let owner = heap::bound_parts(key).filter(|_| self.kind(key) == Kind::Builtin);
        if let Some((owner, _)) = owner.filter(|_| is_taken()) {
            let (owner, item) = (owner.as_borrowed(), item.as_borrowed());
            let taken = || self.get_item(frame, owner, item);
            return self.part(frame.py(), taken, || ops::get_item(owner, item));
        }
        let args = [item.as_borrowed()];
        let call = Call::new(frame, key, &args);
        let recorded = || {
            self.links.clear();
            let _collecting = self.collecting(frame);
            self.call_object(call)
        };
        self.part(frame.py(), recorded, || call.natively())
    }

    /// How keys may be compared; ends the trace if it doesn't follow that.
    fn kind_of_keys(&self, frame: &Frame<'_>, keys: &[&Object<'_>]) -> Keys {
        let keys: Vec<_> = keys.iter().map(|key| key.as_borrowed()).collect();
        let found = self.guarded(frame.py(), || {
            if self.is_stopped() {
                return Keys::Unknown;
            }
            if keys.iter().all(|key| self.is_plain_key(*key)) {
                self.concrete(frame, &keys, "put in order");
                return if self.is_stopped() { Keys::Unknown } else { Keys::Plain };
            }
            let is_number = |key: &Borrowed<'_, '_>| match self.kind(*key) {
                Kind::Tensor => single(*key).is_some(),
                _ => heap::is_number(*key),
            };
            if keys.iter().all(is_number) {
                return Keys::Numbers;
            }
            // One that is compared with itself is gone through to its end.
            if keys.iter().all(|key| self.is_less_now(*key, *key).is_some()) {
                return Keys::Rows;
            }
            let says_itself = |key: &Borrowed<'_, '_>| {
                self.kind(*key) == Kind::Object && heap::is_ordered_in_python(*key)
            };
            if keys.iter().all(says_itself) {
                keys.iter().for_each(|key| self.guard_answers(frame, *key, ORDERING));
                return if self.is_stopped() { Keys::Unknown } else { Keys::Objects };
            }
            self.stop(frame, Reason::DataRead, "keys that are no numbers");
            Keys::Unknown
        });
        found.unwrap_or(Keys::Unknown)
    }

    /// Whether a key has no numbers that may differ.
    fn is_plain_key(&self, key: Borrowed<'_, '_>) -> bool {
        if self.kind(key) == Kind::Tensor {
            return false;
        }
        let mut state = self.state.borrow_mut();
        let mut numbers = Vec::new();
        state.numbers_in(key, &mut numbers);
        numbers.is_empty() && is_plain(&mut state, key)
    }

    /// As CPython looks for it: whichever comes before the best so far.
    fn extreme_by<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        op: CompareOp,
        mut items: impl FnMut() -> Result<Option<Object<'py>>>,
    ) -> Result<Option<Object<'py>>> {
        let Some(mut best) = items()? else { return Ok(None) };
        let mut greatest = self.key_of(frame, key, &best)?;
        while let Some(item) = items()? {
            let next = self.key_of(frame, key, &item)?;
            let is_better = match self.kind_of_keys(frame, &[&next, &greatest]) {
                Keys::Numbers | Keys::Rows => self.decided_key(frame, op, &next, &greatest)?,
                Keys::Objects => {
                    let _consuming = self.consuming(frame);
                    self.with_mode(frame, || is_ordered(op, &next, &greatest))?
                }
                Keys::Plain | Keys::Unknown => is_ordered(op, &next, &greatest)?,
            };
            if is_better {
                greatest = next;
                best = item;
            }
        }
        Ok(Some(best))
    }

    fn sorted_by<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        items: &[Object<'py>],
        is_reverse: bool,
    ) -> Result<Object<'py>> {
        let (order, done) = self.in_order(frame, key, items, is_reverse)?;
        done?;
        let sorted = PyList::new(frame.py(), order.iter().map(|place| &items[*place]));
        let sorted = sorted.map_err(|error| Raised::set(frame.py(), error))?.into_any();
        self.note(frame, |state| {
            state.set_fresh(sorted.as_borrowed());
            Ok(())
        });
        Ok(sorted)
    }

    /// The places of items in their order, or in that which they have come to where a comparison raises.
    fn in_order<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        items: &[Object<'py>],
        is_reverse: bool,
    ) -> Result<(Vec<usize>, Result<()>)> {
        let py = frame.py();
        let mut keys = Vec::with_capacity(items.len());
        for item in items {
            keys.push(self.key_of(frame, key, item)?);
        }
        let kind = self.kind_of_keys(frame, &keys.iter().collect::<Vec<_>>());
        let in_order = || order_of(py, &keys, is_reverse).map_err(|error| Raised::set(py, error));
        let (order, done) = if kind == Keys::Objects {
            let _consuming = self.consuming(frame);
            self.with_mode(frame, in_order)?
        } else {
            let _native = (kind != Keys::Unknown).then(|| Suspended::new(py));
            in_order()?
        };
        if let Err(error) = done {
            // Which ones are compared follows from what they are.
            self.behind(frame, || self.stop(frame, Reason::DataRead, "keys that have no order"));
            return Ok((order, Err(Raised::set(py, error))));
        }
        if matches!(kind, Keys::Numbers | Keys::Rows) {
            self.decide_order(frame, &keys, &order, is_reverse)?;
        }
        Ok((order, Ok(())))
    }

    /// Whether a call is that of `sort` of a list that the trace has made or found.
    fn sorts_list(&self, callable: Borrowed<'_, '_>, args: &[Borrowed<'_, '_>]) -> bool {
        let [list, ..] = args else { return false };
        let sort = || callable.py().get_type::<PyList>().getattr("sort");
        heap::is_named(callable, &["sort"])
            && heap::is_exact_list(*list)
            && sort().is_ok_and(|sort| sort.is(callable))
            && matches!(self.origin(*list), Some(Origin::Fresh | Origin::Source(_)))
    }

    /// `list.sort(key=...)`: while it's put in order, the list is empty.
    fn sort_by<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        list: Borrowed<'_, 'py>,
        items: &[Object<'py>],
        is_reverse: bool,
    ) -> Option<Result<Object<'py>>> {
        let py = frame.py();
        let plain = list.cast_exact::<PyList>().ok()?;
        self.note(frame, |state| match state.origin(list) {
            Some(Origin::Fresh) => state.write_own(list),
            _ => state.write_elements(list),
        })?;
        ops::count();
        plain.set_slice(0, items.len(), PyList::empty(py).as_any()).ok()?;
        let sorted = self.in_order(frame, key, items, is_reverse);
        let is_changed = !plain.is_empty();
        let (order, done) = match sorted {
            Ok(sorted) => sorted,
            Err(raised) => ((0..items.len()).collect(), Err(raised)),
        };
        let ordered = PyList::new(py, order.iter().map(|place| &items[*place]));
        let put = ordered.and_then(|ordered| plain.set_slice(0, plain.len(), ordered.as_any()));
        Some(done.and_then(|()| {
            put.map_err(|error| Raised::set(py, error))?;
            if is_changed {
                let error = PyValueError::new_err("list modified during sort");
                return Err(Raised::set(py, error));
            }
            Ok(py.None().into_bound(py))
        }))
    }

    /// That keys are in this order: of each and the next one. A NaN isn't in order.
    fn decide_order<'py>(
        &self,
        frame: &Frame<'py>,
        keys: &[Object<'py>],
        order: &[usize],
        is_reverse: bool,
    ) -> Result<()> {
        for pair in order.windows(2) {
            let [first, second] = [pair[0], pair[1]];
            let op = match (first < second, is_reverse) {
                (true, false) => CompareOp::Le,
                (false, false) => CompareOp::Lt,
                (true, true) => CompareOp::Ge,
                (false, true) => CompareOp::Gt,
            };
            let pair = [&keys[first], &keys[second]];
            let is_asked = self.guarded(frame.py(), || {
                !self.is_stopped() && !pair.iter().all(|key| self.is_plain_key(key.as_borrowed()))
            });
            if is_asked == Some(true) && !self.decided_key(frame, op, pair[0], pair[1])? {
                self.behind(frame, || self.stop(frame, Reason::DataRead, "the order of a NaN"));
            }
        }
        Ok(())
    }

    /// Whether two keys compare so: a decision.
    fn decided_key<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: &Object<'py>,
        right: &Object<'py>,
    ) -> Result<bool> {
        let (py, operands) = (frame.py(), (left.as_borrowed(), right.as_borrowed()));
        let compare = || self.compare_op(frame, op, operands.0, operands.1);
        let answer = self.part(py, compare, || ops::compare(op, operands.0, operands.1))?;
        let answer = answer.as_borrowed();
        self.part(py, || self.truth_of(frame, answer), || ops::truth(answer))
    }
}

/// Whether a key is C code that takes an item out of a list or dictionary, or out of what it's given.
pub(super) fn takes_items(key: Borrowed<'_, '_>) -> bool {
    match heap::bound_parts(key) {
        Some((receiver, _)) => {
            heap::is_exact_list(receiver.as_borrowed())
                || heap::is_exact_dict(receiver.as_borrowed())
                // Others have a `__missing__`, which `get` doesn't ask.
                || heap::is_named(key, &["get"]) && receiver.is_instance_of::<PyDict>()
        }
        None => heap::type_name(key) == "itemgetter",
    }
}

/// Whether C code goes over a dictionary: its class says nothing of that in Python.
fn is_gone_over_by_c(dict: Borrowed<'_, '_>) -> bool {
    let ty = dict.get_type();
    ["__iter__", "__len__"].into_iter().all(|name| {
        types::lookup_named(&ty, name).is_some_and(|own| !own.is_instance_of::<PyFunction>())
    })
}

/// Whether an iterator goes over a list, tuple or dictionary.
fn is_over_container(iterator: Borrowed<'_, '_>) -> bool {
    const NAMES: [&str; 5] = [
        "list_iterator",
        "tuple_iterator",
        "dict_keyiterator",
        "dict_valueiterator",
        "dict_itemiterator",
    ];
    NAMES.contains(&heap::type_name(iterator).as_str())
}

/// Whether two keys compare so, as Python says.
fn is_ordered(op: CompareOp, left: &Object<'_>, right: &Object<'_>) -> Result<bool> {
    ops::truth(ops::compare(op, left.as_borrowed(), right.as_borrowed())?.as_borrowed())
}

/// The places of keys in their order, or in that which they have come to where a comparison raises.
fn order_of(
    py: Python<'_>,
    keys: &[Object<'_>],
    is_reverse: bool,
) -> PyResult<(Vec<usize>, PyResult<()>)> {
    let keys = PyList::new(py, keys)?;
    let named = PyDict::new(py);
    named.set_item("key", keys.getattr("__getitem__")?)?;
    named.set_item("reverse", is_reverse)?;
    let places = PyList::new(py, 0..keys.len())?;
    let done = places.call_method("sort", (), Some(&named)).map(|_| ());
    Ok((places.extract()?, done))
}

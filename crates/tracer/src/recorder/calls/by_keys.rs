//! `min`, `max` and `sorted` with a key that is a Python function: the recorder calls it for each item, so that what it gives may be a
//! number that was read, or a tensor with one. Their order is a row of decisions.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyRange};
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
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
use crate::recorder::numbers::orders::known_flag;
use crate::recorder::numbers::read_tensors::{LONGEST, single};
use crate::recorder::reads::whole_containers::is_plain;

/// How keys may be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// They are the same in each replay.
    Plain,
    /// Numbers, or tensors with one, that may differ.
    Numbers,
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
        let names = heap::tuple_items(names?);
        let numeric = self.functions.numeric(callable)?;
        let op = numeric.extreme();
        let is_sort = numeric == Numeric::Sorted;
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
                _ => return None,
            }
        }
        let key = key.filter(|key| self.may_be_key(*key, is_sort))?;
        if is_sort && self.kind(*sequence) == Kind::Iterator {
            return self.sorted_iterator(call, *sequence);
        }
        let items = match self.listed(frame, *sequence)? {
            Ok(items) => items,
            Err(raised) => return Some(Err(raised)),
        };
        Some(match op {
            None => self.sorted_by(frame, key, &items, is_reverse),
            Some(op) => self.extreme_by(frame, key, op, &items),
        })
    }

    /// Whether the recorder calls a key itself: a Python function, and where things are sorted what takes an item out of a
    /// list or dictionary, or out of what it's given.
    fn may_be_key(&self, key: Borrowed<'_, '_>, is_sort: bool) -> bool {
        match self.kind(key) {
            Kind::Function => true,
            Kind::Method | Kind::Partial => is_sort,
            Kind::Builtin | Kind::Object => is_sort && takes_items(key),
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

    /// The items of a container that can be gone over again.
    fn listed<'py>(
        &self,
        frame: &Frame<'py>,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Result<Vec<Object<'py>>>> {
        let py = frame.py();
        let is_known = heap::is_exact_list(sequence)
            || heap::is_plain_tuple(sequence)
            || heap::is_exact_dict(sequence)
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
        items: &[Object<'py>],
    ) -> Result<Object<'py>> {
        let mut best = items[0].clone();
        let mut greatest = self.key_of(frame, key, &best)?;
        for item in &items[1..] {
            let next = self.key_of(frame, key, item)?;
            let is_better = match self.kind_of_keys(frame, &[&next, &greatest]) {
                Keys::Numbers => self.decided_key(frame, op, &next, &greatest)?,
                Keys::Plain | Keys::Unknown => is_ordered(op, &next, &greatest)?,
            };
            if is_better {
                greatest = next;
                best = item.clone();
            }
        }
        Ok(best)
    }

    fn sorted_by<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        items: &[Object<'py>],
        is_reverse: bool,
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let mut keys = Vec::with_capacity(items.len());
        for item in items {
            keys.push(self.key_of(frame, key, item)?);
        }
        let kind = self.kind_of_keys(frame, &keys.iter().collect::<Vec<_>>());
        let order = {
            let _native = (kind != Keys::Unknown).then(|| Suspended::new(py));
            order_of(py, &keys, is_reverse).map_err(|error| Raised::set(py, error))
        }?;
        if kind == Keys::Numbers {
            self.decide_order(frame, &keys, &order, is_reverse)?;
        }
        let sorted = PyList::new(py, order.iter().map(|place| &items[*place]));
        let sorted = sorted.map_err(|error| Raised::set(py, error))?.into_any();
        self.note(frame, |state| {
            state.set_fresh(sorted.as_borrowed());
            Ok(())
        });
        Ok(sorted)
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
        }
        None => heap::type_name(key) == "itemgetter",
    }
}

/// Whether two keys compare so, as Python says.
fn is_ordered(op: CompareOp, left: &Object<'_>, right: &Object<'_>) -> Result<bool> {
    ops::truth(ops::compare(op, left.as_borrowed(), right.as_borrowed())?.as_borrowed())
}

/// The places of keys in their order.
fn order_of(py: Python<'_>, keys: &[Object<'_>], is_reverse: bool) -> PyResult<Vec<usize>> {
    let keys = PyList::new(py, keys)?;
    let named = PyDict::new(py);
    named.set_item("key", keys.getattr("__getitem__")?)?;
    named.set_item("reverse", is_reverse)?;
    static SORTED: Named = Named::new("builtins", "sorted");
    let places = py.get_type::<PyRange>().call1((keys.len(),))?;
    SORTED.get(py)?.call((places,), Some(&named))?.extract()
}

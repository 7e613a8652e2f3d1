//! Numbers that are keys of outside dictionaries, and may differ from call to call.
//!
//! A hook that is registered within a call gets the next number of a counter as its key, and is removed by it:
//!
//! ```python
//! hook = module.register_forward_hook(f)      # module._forward_hooks[hook.id] = f
//! ```
//!
//! The program finds such an entry by the number's own object, or by one that is shown to equal it. So the value isn't looked
//! at: what the trace assumes is that it's none of the dictionary's other keys. An entry that is still there at the end is
//! written by a replay under the number of its call.
//!
//! Invariants:
//! * A dictionary with such a key is known key by key, and was before the first of them.
//! * Each of its keys, now or earlier in the trace, equals such a number or differs from it in all calls.
//! * Who reads all keys as values fixes them first: [`State::settle_keys`].

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};

use crate::recorder::Recorder;
use crate::recorder::notes::effects::Part;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::notes::symbols::Number;

/// So many keys of a dictionary are compared with a number.
const MOST: usize = 64;

impl Recorder {
    /// Whether a key by which a dictionary is asked or written may stay a number that differs from call to call.
    pub(in crate::recorder) fn keeps_key(
        &self,
        frame: &Frame<'_>,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
    ) -> bool {
        if self.is_stopped() || !self.has_symbols() || self.kind(dict) != Kind::Dict {
            return false;
        }
        self.note(frame, |state| state.opens_key(dict, key)) == Some(true)
    }
}

impl State {
    /// As [`Recorder::keeps_key`] of a dictionary.
    fn opens_key(&mut self, dict: Borrowed<'_, '_>, key: Borrowed<'_, '_>) -> Result<bool, Stop> {
        let Some(id) = self.number(key) else { return Ok(false) };
        let number = self.number_of(id);
        let Number::Integer(expr) = number else { return Ok(false) };
        let is_plain = heap::is_exact_dict(dict)
            || heap::is_ordered_dict(dict) && types::is_immutable(dict.get_type().as_borrowed());
        if !is_plain
            || self.source(dict).is_none()
            || self.program.is_some()
            || self.enclosed.is_on()
            || self.is_from_draw(number)
            || self.symbols.as_ref().is_some_and(|symbols| symbols.is_data_sized(expr))
        {
            return Ok(false);
        }
        let open = self.open_keys(dict);
        if open.iter().any(|known| known.is(&*key)) {
            return Ok(true);
        }
        let others = self.keys_so_far(dict);
        let is_int = |other: &Object<'_>| other.is_exact_instance_of::<PyInt>();
        let is_value = |other: &Object<'_>| is_int(other) || is_no_number(other.as_borrowed());
        if others.len() > MOST || !others.iter().all(is_value) {
            return Ok(false);
        }
        self.know_keys(dict)?;
        for other in others.iter().filter(|other| is_int(other)) {
            if self.is_one_key(other.as_borrowed(), key) {
                return Ok(open.iter().any(|known| known.is(other)));
            }
        }
        let own = (dict.as_ptr() as usize, key.to_owned().unbind());
        self.begin_symbols(dict.py()).open_keys.push(own);
        Ok(true)
    }

    /// The one object that stands for all keys that a dictionary takes for `key`: see `Objects::canonical`.
    pub fn key_in<'py>(&mut self, dict: Borrowed<'_, 'py>, key: Borrowed<'_, 'py>) -> Object<'py> {
        if self.symbols.as_ref().is_none_or(|symbols| symbols.open_keys.is_empty()) {
            return self.objects.canonical(key);
        }
        let may_equal = !is_no_number(key);
        let found = self
            .open_keys(dict)
            .into_iter()
            .find(|open| open.is(&*key) || may_equal && self.is_one_key(open.as_borrowed(), key));
        found.unwrap_or_else(|| {
            if let Some(id) = self.number(key) {
                self.specialise(key.py(), id, "a key");
            }
            self.objects.canonical(key)
        })
    }

    /// Guards an outside dictionary as a whole, for a method of this name: what `items()` gives are the keys themselves.
    pub fn adopt_dict_of(&mut self, name: &str, dict: Borrowed<'_, '_>) -> Result<(), Stop> {
        if !matches!(name, "items" | "keys" | "values") {
            self.settle_keys(dict);
        }
        self.adopt_entries(self.moving(), dict)
    }

    /// All keys of a dictionary are read as the values that they are.
    pub fn settle_keys(&mut self, dict: Borrowed<'_, '_>) {
        for key in self.open_keys(dict) {
            if heap::dict_get(dict, key.as_borrowed()).is_some() {
                self.fix(key.as_borrowed(), "a key of a dictionary that is read");
            }
        }
    }

    /// Whether a written entry has such a key.
    pub(in crate::recorder) fn has_open_key(
        &self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
    ) -> bool {
        self.open_keys(dict).iter().any(|known| known.is(&*key))
    }

    fn open_keys<'py>(&self, dict: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
        let Some(symbols) = self.symbols.as_ref() else { return Vec::new() };
        let of = |(known, key): &(usize, Py<PyAny>)| {
            (*known == dict.as_ptr() as usize).then(|| key.bind(dict.py()).clone())
        };
        symbols.open_keys.iter().filter_map(of).collect()
    }

    /// The dictionaries that have such keys.
    pub(in crate::recorder) fn open_dicts(&self) -> impl Iterator<Item = usize> {
        self.symbols.iter().flat_map(|symbols| symbols.open_keys.iter().map(|(dict, _)| *dict))
    }

    /// The keys that a dictionary has and had in this trace.
    fn keys_so_far<'py>(&self, dict: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
        let py = dict.py();
        let address = dict.as_ptr() as usize;
        let mut keys = heap::stored_keys(dict);
        keys.extend(self.open_keys(dict));
        let before = self.written.rekeyed().get(&address).map(|keys| &keys.stored);
        keys.extend(before.into_iter().flatten().map(|key| key.bind(py).clone()));
        keys.extend(self.written.effects().iter().filter_map(|effect| match &effect.part {
            Part::Item { key, .. } if effect.object.as_ptr() as usize == address => {
                Some(key.bind(py).clone())
            }
            _ => None,
        }));
        keys
    }

    /// Whether two numbers, the first of them an int, are the same key: in this call, and so in all calls of the trace.
    fn is_one_key(&mut self, key: Borrowed<'_, '_>, other: Borrowed<'_, '_>) -> bool {
        let py = key.py();
        let operands = [key, other];
        let is_bool = operands.iter().any(|operand| operand.is_instance_of::<PyBool>());
        if !is_bool
            && let Some([left, right]) = self.terms(&operands).as_deref()
            && let (Number::Integer(left), Number::Integer(right)) = (left.number, right.number)
        {
            let equal = self.begin_symbols(py).context.eq(left, right);
            return self.decide(py, equal);
        }
        operands.iter().for_each(|operand| self.fix(*operand, "a key beside others"));
        heap::equal_keys(key, other)
    }
}

/// Whether a key equals no int, whatever its value.
fn is_no_number(key: Borrowed<'_, '_>) -> bool {
    key.is_none()
        || key.is_exact_instance_of::<PyString>()
        || key.is_exact_instance_of::<PyBytes>()
        || heap::is_plain_tuple(key) && heap::is_constant(key)
}

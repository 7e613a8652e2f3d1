//! Methods that change an outside dictionary, as the slots that they write.

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::BinaryOp;

use super::containers::refuse;
use crate::breaks::Reason;
use crate::functions::Writes;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};

/// The arguments of a method of a dictionary.
#[derive(Clone, Copy)]
pub struct MethodArgs<'a, 'b, 'py> {
    /// Positional ones, then those by name.
    pub args: &'a [Borrowed<'b, 'py>],
    /// The names.
    pub names: Option<Borrowed<'a, 'py>>,
}

impl<'a, 'b, 'py> MethodArgs<'a, 'b, 'py> {
    fn names(&self) -> Vec<Object<'py>> {
        self.names.map_or_else(Vec::new, heap::tuple_items)
    }

    fn positional(&self) -> &'a [Borrowed<'b, 'py>] {
        &self.args[..self.args.len() - self.names().len()]
    }

    /// Whether the flag `last` is set, given at a position or by name.
    fn last(&self, position: usize) -> bool {
        let given = match self.names().as_slice() {
            [] => self.args.get(position),
            _ => self.args.last(),
        };
        given.is_none_or(|flag| flag.is_truthy().unwrap_or(true))
    }
}

impl State {
    /// Whether the storage of an outside dictionary can be written without more than its own C type's
    /// methods.
    pub fn is_writable_dict(&mut self, dict: Borrowed<'_, '_>) -> bool {
        self.kind(dict) == Kind::Dict && self.source(dict).is_some()
    }

    /// What a method that gives the value at a key is to give in place of a number that is a symbol.
    pub fn given_value<'py>(
        &mut self,
        writes: Option<Writes>,
        dict: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
    ) -> Result<Option<Object<'py>>, Stop> {
        let (Some(Writes::Popped | Writes::Missing), [key, ..]) = (writes, args) else {
            return Ok(None);
        };
        if !self.takes_stand_ins(dict) || !self.is_plain_key(*key) {
            return Ok(None);
        }
        let Some(value) = heap::dict_get(dict, *key) else { return Ok(None) };
        self.read_slot_value(dict, *key, value.as_borrowed())
    }

    /// Takes note of a method that changes an outside dictionary, before it does. Who calls it has
    /// taken [`State::given_value`].
    pub fn write_dict(
        &mut self,
        name: &str,
        writes: Writes,
        dict: Borrowed<'_, '_>,
        given: MethodArgs<'_, '_, '_>,
    ) -> Result<(), Stop> {
        if !self.is_writable_dict(dict)
            || (matches!(writes, Writes::Missing | Writes::Merged) && may_call_back(dict))
        {
            return Err(refuse(name, dict));
        }
        match (writes, given.positional()) {
            (Writes::Entry, [key, _]) => self.write_key(dict, *key, false),
            (Writes::Deleted, [key]) | (Writes::Popped, [key] | [key, _])
                if given.names.is_none() =>
            {
                let found = heap::dict_get(dict, *key);
                self.asks_key(dict, *key, found.clone())?;
                if found.is_some() { self.write_key(dict, *key, true) } else { Ok(()) }
            }
            (Writes::Missing, [key] | [key, _]) => {
                let found = heap::dict_get(dict, *key);
                self.asks_key(dict, *key, found.clone())?;
                if found.is_none() { self.write_key(dict, *key, false) } else { Ok(()) }
            }
            (Writes::Every, []) => {
                self.adopt_keys(dict)?;
                heap::dict_items(dict)
                    .iter()
                    .try_for_each(|(key, _)| self.write_key(dict, key.as_borrowed(), true))
            }
            (Writes::End, _) => {
                self.adopt_keys(dict)?;
                let items = heap::dict_items(dict);
                let ordered = heap::is_ordered_dict(dict);
                let item = if ordered && !given.last(0) { items.first() } else { items.last() };
                let Some((key, value)) = item else { return Ok(()) };
                self.read_key(dict, key.as_borrowed(), Some(value.clone()))?;
                self.write_key(dict, key.as_borrowed(), true)
            }
            (Writes::Moved, [key, ..]) if heap::is_ordered_dict(dict) => {
                self.move_key(dict, *key, given.last(1))
            }
            (Writes::Merged, positional) => {
                for other in positional {
                    self.update_from(dict, *other)?;
                }
                let names = given.names();
                names.iter().try_for_each(|key| self.write_key(dict, key.as_borrowed(), false))
            }
            _ => Err(refuse(name, dict)),
        }
    }

    /// Takes note of `dict |= other`.
    pub fn merge_dict(
        &mut self,
        op: BinaryOp,
        dict: Borrowed<'_, '_>,
        other: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        if op != BinaryOp::InPlaceOr || !self.is_writable_dict(dict) || may_call_back(dict) {
            return Err(refuse(op.symbol(), dict));
        }
        self.update_from(dict, other)
    }

    fn update_from(&mut self, dict: Borrowed<'_, '_>, other: Borrowed<'_, '_>) -> Result<(), Stop> {
        let pair = |pair: &Object<'_>| match heap::sequence_items(pair.as_borrowed()).as_slice() {
            [key, _] => Some(key.clone().unbind()),
            _ => None,
        };
        let py = dict.py();
        let keys: Vec<Py<PyAny>> = match self.kind(other) {
            Kind::Dict if heap::is_builtin_type(other.get_type().as_any().as_borrowed()) => {
                self.adopt_dict(other)?;
                heap::dict_items(other).into_iter().map(|(key, _)| key.unbind()).collect()
            }
            Kind::Tuple | Kind::List
                if heap::is_builtin_type(other.get_type().as_any().as_borrowed()) =>
            {
                self.adopt_deep(other)?;
                let pairs = heap::sequence_items(other).iter().map(pair).collect::<Option<_>>();
                pairs.ok_or_else(|| refuse("update", dict))?
            }
            _ => return Err(refuse("update", dict)),
        };
        keys.iter().try_for_each(|key| self.write_key(dict, key.bind_borrowed(py), false))
    }

    /// `move_to_end`: the entries whose place changes are read.
    fn move_key(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        last: bool,
    ) -> Result<(), Stop> {
        self.rekey(dict)?;
        for (other, value) in heap::dict_items(dict) {
            // What goes to the front makes all others move behind it.
            if !last || heap::same_key(other.as_borrowed(), key) {
                self.read_key(dict, other.as_borrowed(), Some(value))?;
                self.write_key(dict, other.as_borrowed(), false)?;
            }
        }
        Ok(())
    }

    fn write_key(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        deletes: bool,
    ) -> Result<(), Stop> {
        let unknown = || (Reason::UnknownOrigin, format!("a {}", heap::type_name(dict)));
        let source = self.source(dict).ok_or_else(unknown)?;
        match key.cast_exact::<PyString>() {
            Ok(_) => {
                let key = heap::interned(key);
                self.write_slot(dict, source, key.as_borrowed(), deletes)
            }
            Err(_) => self.write_slot(dict, source, key, deletes),
        }
    }
}

/// Whether `update`, `|=` and `setdefault` may call methods that a class on top of `OrderedDict` has. The others go past them.
fn may_call_back(dict: Borrowed<'_, '_>) -> bool {
    heap::is_ordered_dict(dict) && !types::is_immutable(dict.get_type().as_borrowed())
}

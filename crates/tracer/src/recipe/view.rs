//! Views of dictionaries, and iterators over dictionaries and sets.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};
use serde::{Deserialize, Serialize};
use stator_cpython::heap::iterator::{Shown, over_ordered};
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};

/// Objects that show what is in a dictionary or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// `d.keys()`
    Keys,
    /// `d.values()`
    Values,
    /// `d.items()`
    Items,
    /// `iter(d)`
    KeyIterator,
    /// `iter(d.values())`
    ValueIterator,
    /// `iter(d.items())`
    ItemIterator,
    /// `iter(s)`
    SetIterator,
    /// `d.keys()` of an `OrderedDict`
    OrderedKeys,
    /// `d.values()` of one
    OrderedValues,
    /// `d.items()` of one
    OrderedItems,
    /// `iter(d)` of one
    OrderedKeyIterator,
    /// `iter(d.values())` of one
    OrderedValueIterator,
    /// `iter(d.items())` of one
    OrderedItemIterator,
}

impl View {
    /// Whether it has a position.
    pub(super) fn is_iterator(self) -> bool {
        !matches!(
            self,
            Self::Keys
                | Self::Values
                | Self::Items
                | Self::OrderedKeys
                | Self::OrderedValues
                | Self::OrderedItems
        )
    }

    /// What `object` shows of which container, and how many entries it has passed. `None` for
    /// other objects, for iterators that have said that there is no more, and for those whose container
    /// has grown or shrunk behind them, which will raise.
    pub fn of<'py>(object: Borrowed<'_, 'py>) -> Option<(Self, Object<'py>, usize)> {
        let py = object.py();
        let view = match object.get_type().name().ok()?.to_str().ok()? {
            "dict_keys" => Self::Keys,
            "dict_values" => Self::Values,
            "dict_items" => Self::Items,
            "dict_keyiterator" => Self::KeyIterator,
            "dict_valueiterator" => Self::ValueIterator,
            "dict_itemiterator" => Self::ItemIterator,
            "set_iterator" => Self::SetIterator,
            "odict_keys" => Self::OrderedKeys,
            "odict_values" => Self::OrderedValues,
            "odict_items" => Self::OrderedItems,
            _ => return Self::of_ordered(object),
        };
        static GET_REFERENTS: Named = Named::new("gc", "get_referents");
        let referents = GET_REFERENTS.get(py).ok()?.call1((object,)).ok()?;
        let container = referents.get_item(0).ok()?;
        let passed = match view {
            _ if !view.is_iterator() => 0,
            _ => {
                // By the storage: the program's class may count otherwise.
                let length = match container.cast::<PyDict>() {
                    Ok(dict) => dict.len(),
                    Err(_) => container.cast::<PySet>().ok()?.len(),
                };
                // A list of what a copy of the iterator finds; `__length_hint__` knows of no change.
                let reduced = object.call_method0("__reduce__").ok()?;
                length - reduced.get_item(1).ok()?.get_item(0).ok()?.len().ok()?
            }
        };
        Some((view, container, passed))
    }

    fn of_ordered<'py>(iterator: Borrowed<'_, 'py>) -> Option<(Self, Object<'py>, usize)> {
        let (shown, dict, passed) = over_ordered(iterator)?;
        let view = match shown {
            Shown::Keys => Self::OrderedKeyIterator,
            Shown::Values => Self::OrderedValueIterator,
            Shown::Entries => Self::OrderedItemIterator,
        };
        Some((view, dict, passed))
    }

    pub(super) fn make<'py>(self, container: &Object<'py>, passed: usize) -> PyResult<Object<'py>> {
        let dict = |name| {
            let dict = container.py().get_type::<PyDict>();
            dict.call_method1(name, (container,))
        };
        // Past the methods that a class on top of it has.
        let ordered = |name| {
            static ORDERED: Named = Named::new("collections", "OrderedDict");
            ORDERED.get(container.py())?.call_method1(name, (container,))
        };
        let iterator = match self {
            Self::OrderedKeys => return ordered("keys"),
            Self::OrderedValues => return ordered("values"),
            Self::OrderedItems => return ordered("items"),
            Self::OrderedKeyIterator => ordered("__iter__")?,
            Self::OrderedValueIterator => ordered("values")?.try_iter()?.into_any(),
            Self::OrderedItemIterator => ordered("items")?.try_iter()?.into_any(),
            Self::Keys => return dict("keys"),
            Self::Values => return dict("values"),
            Self::Items => return dict("items"),
            Self::KeyIterator => dict("__iter__")?,
            Self::ValueIterator => dict("values")?.try_iter()?.into_any(),
            Self::ItemIterator => dict("items")?.try_iter()?.into_any(),
            Self::SetIterator => {
                container.py().get_type::<PySet>().call_method1("__iter__", (container,))?
            }
        };
        for _ in 0..passed {
            drop(iterator.call_method0("__next__")?);
        }
        Ok(iterator)
    }
}

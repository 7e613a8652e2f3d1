//! Side effects as a replay makes them: what the recorded call left in outside objects.
//!
//! A replay repeats no write; it leaves behind what the writes came to, one [`Store`] for each part of
//! an object that was written, in the order of the first writes. What already is as it should be
//! stays untouched, so that snapshots of it stay valid.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyListMethods, PyString, PyTuple, PyType};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::{context, dict};
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, generator, generic, ops};
use stator_faults::Stage;
use stator_guards::ObjectId;

use crate::recipe::RecipeId;
use crate::replay::Pass;

/// What a replay writes to one part of an outside object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Store {
    /// The object's position among the sources that are resolved for a replay.
    pub object: u32,
    /// The part.
    pub part: Part,
    /// The value's recipe; `None` deletes, where the part has one.
    pub value: Option<RecipeId>,
    /// Where the last write was: code object and unit.
    pub place: (u32, u32),
}

/// The key of a dictionary's entry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Key {
    /// A constant.
    Constant(ObjectId),
    /// An object from outside, as a parameter in an optimizer's state: its position among the sources that are
    /// resolved for a replay. The entry doesn't keep it alive.
    Resolved(u32),
}

impl Key {
    fn object<'a, 'py>(
        self,
        objects: &[Borrowed<'a, 'py>],
        table: &'a [Py<PyAny>],
    ) -> Borrowed<'a, 'py> {
        match self {
            Key::Constant(id) => table[id.index()].bind_borrowed(objects[0].py()),
            Key::Resolved(position) => objects[position as usize],
        }
    }
}

/// A part of an object.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Part {
    /// The value at a key of a dictionary.
    Item {
        /// The key.
        key: Key,
        /// Whether the entry was deleted in between and so moves to the end.
        moves: bool,
    },
    /// The value at a key of a dictionary, where the key is a number that differs from call to call, and new there. The
    /// value is a tuple: the key, and what stands there; nothing if the entry is deleted.
    Entry,
    /// The contents of a closure cell.
    Cell,
    /// The value of a context variable.
    Context,
    /// A context variable that is reset; the value is a token from before the trace.
    Reset,
    /// A `__slots__` member, by name.
    Member(ObjectId),
    /// An attribute of a class, by name.
    ClassAttribute(ObjectId),
    /// All elements of a list; the value is a list of them.
    Elements,
    /// Elements at the end of a list; the value is a list of them.
    Added {
        /// How many in front are taken out.
        dropped: u32,
    },
    /// Calls of methods of a set or a deque, or of a cached function; the value is a list of tuples, name and
    /// arguments.
    Calls,
    /// How far an iterator has come: it's advanced so often. There is no value.
    Advanced(u32),
    /// Where a generator stands; the value is one that stands there. Without a value it has ended.
    Generator,
}

/// A call of a cached function that finds its result in the cache: a tuple of arguments, and a dictionary if some have
/// names.
pub const HIT: &str = "__call__";

/// What a part of an object was before a replay wrote to it.
enum Before<'py> {
    Item { dict: Object<'py>, key: Object<'py>, value: Option<Object<'py>> },
    Cell { cell: Object<'py>, value: Option<Object<'py>> },
    Context { variable: Object<'py>, value: Option<Object<'py>> },
    Member { object: Object<'py>, name: Object<'py>, value: Option<Object<'py>> },
    ClassAttribute { class: Object<'py>, name: Object<'py>, value: Option<Object<'py>> },
    Elements { list: Object<'py>, elements: Object<'py> },
    Length { list: Object<'py>, length: usize },
    Unknown,
}

/// What a replay has written so far, so that it can be taken back if Stator fails in between.
#[derive(Default)]
pub struct Written<'py> {
    before: SmallVec<[Before<'py>; 4]>,
    /// The stores that are done.
    done: usize,
}

impl<'py> Written<'py> {
    /// Whether all of it can be put back.
    #[must_use]
    pub fn can_be_taken_back(&self) -> bool {
        let is_lost =
            |it: &Before<'_>| matches!(it, Before::Context { value: None, .. } | Before::Unknown);
        !self.before.iter().any(is_lost)
    }

    /// Puts back what was there, the last write first.
    ///
    /// # Errors
    /// What a write raises.
    pub fn take_back(self, py: Python<'py>) -> PyResult<()> {
        for before in self.before.into_iter().rev() {
            match before {
                Before::Item { dict, key, value } => {
                    set_item(dict.as_borrowed(), key.as_borrowed(), value.as_ref(), false)?;
                }
                Before::Cell { cell, value } => set_cell(cell.as_borrowed(), value.as_ref()),
                Before::Context { variable, value: Some(value) } => {
                    context::set(variable.as_borrowed(), value.as_borrowed())
                        .map_err(|raised| raised.take(py))?;
                }
                Before::Member { object, name, value } => {
                    set_member(object.as_borrowed(), name.as_borrowed(), value.as_ref())?;
                }
                Before::ClassAttribute { class, name, value: Some(value) } => {
                    set_class_attribute(class.as_borrowed(), name.as_borrowed(), Some(&value))?;
                }
                Before::ClassAttribute { class, name, value: None } => {
                    class.delattr(name.cast::<PyString>()?)?;
                }
                Before::Elements { list, elements } => {
                    set_elements(list.as_borrowed(), &elements)?;
                }
                Before::Length { list, length } => {
                    let list = list.cast::<PyList>()?;
                    list.del_slice(length.min(list.len()), list.len())?;
                }
                Before::Context { value: None, .. } | Before::Unknown => {}
            }
        }
        Ok(())
    }

    fn note(
        &mut self,
        store: &Store,
        new: Option<&Object<'py>>,
        objects: &[Borrowed<'_, 'py>],
        table: &[Py<PyAny>],
    ) -> PyResult<()> {
        let object = objects[store.object as usize];
        let py = object.py();
        let entry = |id: ObjectId| table[id.index()].bind(py).clone();
        let own = || object.to_owned();
        self.before.push(match store.part {
            Part::Item { key, .. } => {
                let key = key.object(objects, table).to_owned();
                let value = object.cast::<PyDict>()?.get_item(&key)?;
                Before::Item { dict: own(), key, value }
            }
            Part::Entry => {
                let (key, _) = entry_of(new)?;
                let value = object.cast::<PyDict>()?.get_item(&key)?;
                Before::Item { dict: own(), key, value }
            }
            Part::Cell => Before::Cell { cell: own(), value: value(object, Field::CellContents) },
            Part::Context => Before::Context { variable: own(), value: context::own_value(object) },
            Part::Member(name) => {
                let value = generic::generic_get_attr(object, entry(name).as_borrowed());
                let value = Raised::unless(py, value);
                Before::Member { object: own(), name: entry(name), value }
            }
            Part::ClassAttribute(name) => {
                let class = object.cast::<PyType>()?;
                let value = generic::class_value(&class, entry(name).as_borrowed());
                Before::ClassAttribute { class: own(), name: entry(name), value }
            }
            Part::Elements | Part::Added { dropped: 1.. } => {
                let list = object.cast::<PyList>()?;
                Before::Elements { list: own(), elements: list.get_slice(0, list.len()).into_any() }
            }
            Part::Added { .. } => {
                Before::Length { list: own(), length: object.cast::<PyList>()?.len() }
            }
            Part::Calls | Part::Reset | Part::Advanced(_) | Part::Generator => Before::Unknown,
        });
        Ok(())
    }
}

/// Writes what the trace left behind. `objects` are the resolved sources, `values` the rebuilt
/// values, one for each store that has one, `table` the trace's objects. `written` gets what was there
/// before, unless this is the last pass; the stores that it knows as done are left out.
///
/// # Errors
/// What a write raises.
pub fn replay<'py>(
    py: Python<'py>,
    stores: &[Store],
    objects: &[Borrowed<'_, 'py>],
    values: &[Object<'py>],
    table: &[Py<PyAny>],
    written: &mut Written<'py>,
    pass: Pass,
) -> PyResult<()> {
    let mut values = values.iter();
    for (index, store) in stores.iter().enumerate() {
        let object = objects[store.object as usize];
        let value = store.value.map(|_| values.next().expect("one value for each store"));
        if index < written.done {
            continue;
        }
        let entry = |id: ObjectId| table[id.index()].bind_borrowed(py);
        pass.at(Stage::Effect)?;
        if pass == Pass::First {
            written.note(store, value, objects, table)?;
        }
        match store.part {
            Part::Item { key, moves } => {
                set_item(object, key.object(objects, table), value, moves)?;
            }
            Part::Entry => {
                let (key, value) = entry_of(value)?;
                set_item(object, key.as_borrowed(), value.as_ref(), false)?;
            }
            Part::Cell => set_cell(object, value),
            Part::Context => {
                let value = value.expect("context variables aren't emptied").as_borrowed();
                context::set(object, value).map_err(|raised| raised.take(py))?;
            }
            Part::Reset => {
                let token = value.expect("a token").as_borrowed();
                context::reset(object, token).map_err(|raised| raised.take(py))?;
            }
            Part::Member(name) => {
                set_member(object, entry(name), value)?;
            }
            Part::ClassAttribute(name) => set_class_attribute(object, entry(name), value)?,
            Part::Elements => set_elements(object, value.expect("a list of the elements"))?,
            Part::Added { dropped } => {
                object.cast::<PyList>()?.del_slice(0, dropped as usize)?;
                add_elements(object, value.expect("a list of the elements"))?;
            }
            Part::Calls => call_methods(object, value.expect("a list of calls"))?,
            Part::Generator => match value {
                Some(other) => generator::move_to(object, other)?,
                None => generator::end(object)?,
            },
            Part::Advanced(times) => {
                for _ in 0..times {
                    // Behind the last item a loop has ended, too.
                    drop(ops::next(object).map_err(|raised| raised.take(py))?);
                }
            }
        }
        written.done = index + 1;
    }
    Ok(())
}

/// The key and the value of a [`Part::Entry`].
fn entry_of<'py>(value: Option<&Object<'py>>) -> PyResult<(Object<'py>, Option<Object<'py>>)> {
    let entry = value.expect("a tuple of key and value").cast::<PyTuple>()?;
    Ok((entry.get_item(0)?, entry.iter().nth(1)))
}

fn set_item<'py>(
    object: Borrowed<'_, 'py>,
    key: Borrowed<'_, 'py>,
    value: Option<&Object<'py>>,
    moves: bool,
) -> PyResult<()> {
    let now = object.cast::<PyDict>()?.get_item(key)?;
    let set = |value| dict::set_item(object, key, value);
    let Some(value) = value else {
        return if now.is_some() { set(None) } else { Ok(()) };
    };
    if moves && now.is_some() {
        set(None)?;
    } else if now.is_some_and(|now| now.is(value)) {
        return Ok(());
    }
    set(Some(value.as_borrowed()))
}

fn set_cell<'py>(cell: Borrowed<'_, 'py>, new: Option<&Object<'py>>) {
    let now = value(cell, Field::CellContents);
    let same = match (&now, new) {
        (Some(now), Some(new)) => now.is(new),
        (None, None) => true,
        _ => false,
    };
    if !same {
        ops::store_cell(cell, new.cloned());
    }
}

fn set_member<'py>(
    object: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
    value: Option<&Object<'py>>,
) -> PyResult<()> {
    let py = object.py();
    if value.is_none()
        && let Err(raised) = generic::generic_get_attr(object, name)
    {
        // Unset already.
        raised.clear(py);
        return Ok(());
    }
    let value = value.map(|value| value.as_borrowed());
    generic::generic_set_attr(object, name, value).map_err(|raised| raised.take(py))
}

fn set_class_attribute<'py>(
    class: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
    value: Option<&Object<'py>>,
) -> PyResult<()> {
    let class = class.cast::<PyType>()?;
    let value = value.expect("class attributes aren't deleted");
    if generic::class_value(&class, name).is_some_and(|now| now.is(value)) {
        return Ok(());
    }
    generic::set_class_attr(&class, name, value.as_borrowed())
        .map_err(|raised| raised.take(class.py()))
}

fn set_elements<'py>(list: Borrowed<'_, 'py>, elements: &Object<'py>) -> PyResult<()> {
    let (list, elements) = (list.cast::<PyList>()?, elements.cast::<PyList>()?);
    let same = list.len() == elements.len()
        && list.iter().zip(elements.iter()).all(|(now, element)| now.is(&element));
    if same { Ok(()) } else { list.set_slice(0, list.len(), elements.as_any()) }
}

fn add_elements<'py>(list: Borrowed<'_, 'py>, elements: &Object<'py>) -> PyResult<()> {
    let list = list.cast::<PyList>()?;
    elements.cast::<PyList>()?.iter().try_for_each(|element| list.append(element))
}

/// The object is of a C type, by its exact type: its methods are that type's. The guards have found what hits ask for.
fn call_methods<'py>(object: Borrowed<'_, 'py>, calls: &Object<'py>) -> PyResult<()> {
    for call in calls.cast::<PyList>()?.iter() {
        let call = call.cast_into::<PyTuple>()?;
        let name = call.get_item(0)?.cast_into::<PyString>()?;
        if name == HIT {
            let args = call.get_item(1)?.cast_into::<PyTuple>()?;
            let named = call.get_item(2).ok();
            let named = named.as_ref().map(|named| named.cast::<PyDict>()).transpose()?;
            drop(object.call(args, named)?);
            continue;
        }
        if dict::is_ordered_dict(object) {
            // It's put in order. A class on top of it may have a method of this name.
            static OWN: Named = Named::new("collections", "OrderedDict");
            OWN.get(object.py())?.call_method1(name, (object, call.get_item(1)?))?;
            continue;
        }
        object.call_method1(name, call.get_slice(1, call.len()))?;
    }
    Ok(())
}

/// What a node may write, by the name that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// [`Part::Item`].
    Item,
    /// [`Part::Item`] that moves to the end.
    MovedItem,
    /// [`Part::Cell`].
    Cell,
    /// [`Part::Member`].
    Member,
    /// [`Part::ClassAttribute`].
    ClassAttribute,
    /// [`Part::Elements`].
    Elements,
    /// [`Part::Added`], with nothing taken out.
    Added,
}

impl Early {
    /// Its name in graphs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::MovedItem => "moved",
            Self::Cell => "cell",
            Self::Member => "member",
            Self::ClassAttribute => "class_attribute",
            Self::Elements => "elements",
            Self::Added => "added",
        }
    }

    /// The function that writes one part of an object: given that, the part's name, its key and its value. Without a value
    /// it deletes.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn function(py: Python<'_>) -> PyResult<Object<'_>> {
        static MADE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let make = || Ok::<_, PyErr>(wrap_pyfunction!(write_early, py)?.into_any().unbind());
        MADE.get_or_try_init(py, make).map(|function| function.bind(py).clone())
    }
}

#[pyfunction]
#[pyo3(signature = (object, part, key, *value))]
fn write_early<'py>(
    object: &Bound<'py, PyAny>,
    part: &str,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyTuple>,
) -> PyResult<()> {
    let (object, key) = (object.as_borrowed(), key.as_borrowed());
    let value = value.get_item(0).ok();
    let given = || value.clone().ok_or_else(|| PyValueError::new_err("no value"));
    let is = |known: Early| known.name() == part;
    match () {
        () if is(Early::Cell) => set_cell(object, value.as_ref()),
        () if is(Early::Member) => set_member(object, key, value.as_ref())?,
        () if is(Early::ClassAttribute) => set_class_attribute(object, key, value.as_ref())?,
        () if is(Early::Elements) => set_elements(object, &given()?)?,
        () if is(Early::Added) => add_elements(object, &given()?)?,
        () => set_item(object, key, value.as_ref(), is(Early::MovedItem))?,
    }
    Ok(())
}

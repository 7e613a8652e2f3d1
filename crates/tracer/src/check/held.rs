//! The objects that guards and sources mention: constants kept, others known weakly.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_cpython::heap::weak::Liveness;
use stator_cpython::heap::{Any, constant, container};
use stator_guards::{Guard, GuardKind, ObjectId, Objects, Source, Sources};

use super::explain::describe;
use super::keys::{Key, Part};

/// The mentioned objects, by their ids.
#[derive(Debug)]
pub(super) struct Held(Vec<Option<Known>>);

/// An object as a checker remembers it.
#[derive(Debug)]
pub(super) enum Known {
    /// Kept.
    Constant(Py<PyAny>),
    /// Its address; the liveness has it.
    Identity(usize),
    /// A set whose elements are known.
    Set(Box<KnownSet>),
    /// The key of a cache whose parts are known.
    Parts(Box<[Part]>),
}

/// A guarded set.
#[derive(Debug)]
pub(super) struct KnownSet {
    address: usize,
    /// Its elements in order.
    items: Box<[Key]>,
    /// It, printed.
    text: Box<str>,
}

impl Held {
    pub(super) fn build(
        py: Python<'_>,
        sources: &Sources,
        guards: &[Guard],
        objects: &[Py<PyAny>],
        liveness: &mut Liveness,
    ) -> PyResult<Self> {
        let mut held = Held(Vec::new());
        held.0.resize_with(objects.len(), || None);
        // Most ids are those of a few names and types.
        let mut met = vec![false; objects.len()];
        let mut hold_as = |id: ObjectId, anchored: bool| -> PyResult<()> {
            let object = get(objects, id)?.bind(py).as_borrowed();
            let is_constant = constant::is_constant(object);
            if anchored || !is_constant {
                liveness.add(object)?;
            }
            if held.0[id.index()].is_none() {
                held.0[id.index()] = Some(if is_constant {
                    Known::Constant(object.to_owned().unbind())
                } else {
                    Known::Identity(object.as_ptr() as usize)
                });
            }
            Ok(())
        };
        let mut hold = |id: ObjectId| match met.get_mut(id.index()) {
            Some(true) => Ok(()),
            Some(met) => {
                *met = true;
                hold_as(id, false)
            }
            None => Err(unknown(id)),
        };
        let mut keys_of_caches = Vec::new();
        for (_, source) in sources.iter() {
            match source {
                Source::DictItem { .. }
                    if let Some(found) = key_of_cache(py, sources, objects, source) =>
                {
                    keys_of_caches.push(found);
                }
                Source::DictItem { key, .. } => hold(*key)?,
                Source::TypeLookup { name, .. } => hold(check_name(py, objects, *name)?)?,
                Source::SuperLookup { after, name, .. } => {
                    hold(*after)?;
                    hold(check_name(py, objects, *name)?)?;
                }
                _ => {}
            }
        }
        for guard in guards {
            match &guard.kind {
                GuardKind::TypeIs(object) | GuardKind::Is(object) => hold(*object)?,
                GuardKind::Equals(object) | GuardKind::Holds(object) => {
                    if !constant::is_constant(get(objects, *object)?.bind(py).as_borrowed()) {
                        let source = sources.print(guard.source);
                        let text = format!("the guard {source} == ... compares with no constant");
                        return Err(PyValueError::new_err(text));
                    }
                    hold(*object)?;
                }
                GuardKind::Vacant(vacancy) => {
                    for (key, _) in vacancy.absent.iter().chain(&vacancy.empty) {
                        hold(check_name(py, objects, *key)?)?;
                    }
                }
                GuardKind::AbsentWithin { key, holders, .. } => {
                    hold(check_name(py, objects, *key)?)?;
                    for (holder, _) in &holders.0 {
                        hold(check_name(py, objects, *holder)?)?;
                    }
                }
                GuardKind::LookupAbsent { name, .. } => hold(check_name(py, objects, *name)?)?,
                GuardKind::DictKeys(keys) => keys.iter().try_for_each(|key| hold(*key))?,
                GuardKind::KeyAbsent { key, .. } => hold(*key)?,
                GuardKind::SetHolds { item, .. } => hold(*item)?,
                GuardKind::Tensor(tensor) => hold(tensor.python_type)?,
                _ => {}
            }
        }
        for (_, source) in sources.iter() {
            if let Source::Anchor { object, .. } = source {
                hold_as(*object, true)?;
            }
        }
        for (id, key) in keys_of_caches {
            held.0[id.index()] = Some(Known::Parts(Part::all(key, liveness)?));
        }
        // The elements of a guarded set are known each by itself.
        for guard in guards {
            if let GuardKind::SetEquals(set) = &guard.kind {
                let object = get(objects, *set)?.bind(py).as_borrowed();
                let items = set_items(object)?;
                for item in &items {
                    if !constant::is_constant(item.as_borrowed()) {
                        liveness.add(item.as_borrowed())?;
                    }
                }
                held.0[set.index()] = Some(Known::Set(Box::new(KnownSet {
                    address: object.as_ptr() as usize,
                    items: items.iter().map(|item| Key::of(item.as_borrowed())).collect(),
                    text: describe_set(object).into(),
                })));
            }
        }
        Ok(held)
    }

    fn known(&self, id: ObjectId) -> PyResult<&Known> {
        self.0.get(id.index()).and_then(Option::as_ref).ok_or_else(|| unknown(id))
    }

    /// The address of a mentioned object.
    pub(super) fn address(&self, id: ObjectId) -> PyResult<usize> {
        Ok(match self.known(id)? {
            Known::Constant(object) => object.as_ptr() as usize,
            Known::Identity(address) => *address,
            Known::Set(set) => set.address,
            Known::Parts(_) => return Err(unknown(id)),
        })
    }

    /// The parts of a cache's key.
    pub(super) fn parts(&self, id: ObjectId) -> Option<&[Part]> {
        match self.known(id).ok()? {
            Known::Parts(parts) => Some(parts),
            _ => None,
        }
    }

    /// A mentioned object as a key.
    pub(super) fn key(&self, py: Python<'_>, id: ObjectId) -> PyResult<Key> {
        Ok(match self.known(id)? {
            Known::Constant(object) => Key::Constant(object.clone_ref(py)),
            known => Key::Known(match known {
                Known::Set(set) => set.address,
                Known::Identity(address) => *address,
                Known::Parts(_) => return Err(unknown(id)),
                Known::Constant(_) => unreachable!("asked first"),
            }),
        })
    }

    /// A mentioned constant: a name, or what a value is compared with.
    pub(super) fn constant(&self, id: ObjectId) -> PyResult<&Py<PyAny>> {
        match self.known(id)? {
            Known::Constant(object) => Ok(object),
            _ => Err(unknown(id)),
        }
    }

    /// A mentioned object, of a set a tuple of its elements; `None` if it has died.
    pub(super) fn object(
        &self,
        py: Python<'_>,
        id: ObjectId,
        liveness: &Liveness,
    ) -> Option<Py<PyAny>> {
        let alive = |address| Some(liveness.get(py, address)?.unbind());
        match self.known(id).ok()? {
            Known::Constant(object) => Some(object.clone_ref(py)),
            Known::Identity(address) => alive(*address),
            Known::Set(set) => {
                let items = set.items.iter().map(|item| match item {
                    Key::Constant(object) => Some(object.clone_ref(py)),
                    Key::Known(address) => alive(*address),
                });
                let items = items.collect::<Option<Vec<_>>>()?;
                Some(PyTuple::new(py, items).ok()?.into_any().unbind())
            }
            Known::Parts(parts) => Part::tuple(parts, py, liveness),
        }
    }

    /// The elements of a guarded set.
    pub(super) fn items(&self, py: Python<'_>, id: ObjectId) -> PyResult<Vec<Key>> {
        match self.known(id)? {
            Known::Set(set) => Ok(set.items.iter().map(|item| item.clone_ref(py)).collect()),
            _ => Err(unknown(id)),
        }
    }

    pub(super) fn bind<'a, 'py>(
        &'a self,
        py: Python<'py>,
        liveness: &'a Liveness,
    ) -> Printer<'a, 'py> {
        Printer { held: self, py, liveness }
    }
}

/// The key of an item of a cache, if it's a tuple in which there are objects.
fn key_of_cache<'a, 'py>(
    py: Python<'py>,
    sources: &Sources,
    objects: &'a [Py<PyAny>],
    source: &Source,
) -> Option<(ObjectId, &'a Bound<'py, PyTuple>)> {
    let Source::DictItem { parent, key, .. } = source else { return None };
    if !matches!(sources.get(*parent), Source::Cache(_)) {
        return None;
    }
    let tuple = get(objects, *key).ok()?.bind(py).cast_exact::<PyTuple>().ok()?;
    (!constant::is_constant(tuple.as_any().as_borrowed())).then_some((*key, tuple))
}

/// The id, if it is that of a string.
fn check_name(py: Python<'_>, objects: &[Py<PyAny>], id: ObjectId) -> PyResult<ObjectId> {
    if get(objects, id)?.bind(py).is_exact_instance_of::<pyo3::types::PyString>() {
        return Ok(id);
    }
    Err(PyValueError::new_err("the name of an attribute must be a string"))
}

fn unknown(id: ObjectId) -> PyErr {
    PyValueError::new_err(format!("a guard mentions {id:?}, which isn't there"))
}

/// The object with this id.
pub(super) fn get(objects: &[Py<PyAny>], id: ObjectId) -> PyResult<&Py<PyAny>> {
    objects.get(id.index()).ok_or_else(|| unknown(id))
}

/// The elements of a guarded set, in order: a set, or a tuple, which keeps any order (a copy of a
/// set may iterate in another one).
pub(super) fn set_items<'py>(set: Any<'_, 'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    elements(set).ok_or_else(|| PyValueError::new_err("SetEquals of what is no set"))
}

fn elements<'py>(set: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    container::set_items(set).or_else(|| {
        let length = container::tuple_length(set)?;
        (0..length).map(|index| container::tuple_item(set, index)).collect()
    })
}

fn describe_set(set: Any<'_, '_>) -> String {
    let items = elements(set).unwrap_or_default();
    let items: Vec<_> = items.iter().map(|item| describe(item.as_borrowed())).collect();
    format!("{{{}}}", items.join(", "))
}

/// Prints held objects without running user code.
pub(super) struct Printer<'a, 'py> {
    held: &'a Held,
    py: Python<'py>,
    liveness: &'a Liveness,
}

impl Printer<'_, '_> {
    fn known(&self, object: ObjectId) -> Option<&Known> {
        self.held.0.get(object.index())?.as_ref()
    }
}

impl<'py> Printer<'_, 'py> {
    /// A constant that a guard mentions.
    pub(super) fn constant(&self, object: ObjectId) -> Option<Any<'_, 'py>> {
        Some(self.held.constant(object).ok()?.bind_borrowed(self.py))
    }
}

impl Objects for Printer<'_, '_> {
    fn address(&self, object: ObjectId) -> usize {
        match self.known(object) {
            Some(Known::Constant(object)) => object.as_ptr() as usize,
            Some(Known::Identity(address)) => *address,
            Some(Known::Set(_) | Known::Parts(_)) | None => 0,
        }
    }

    fn type_address(&self, object: ObjectId) -> usize {
        match self.known(object) {
            Some(Known::Constant(object)) => object.bind(self.py).get_type().as_ptr() as usize,
            _ => 0,
        }
    }

    fn repr(&self, object: ObjectId) -> String {
        match self.known(object) {
            Some(Known::Constant(object)) => describe(object.bind(self.py).as_borrowed()),
            Some(Known::Identity(address)) => match self.liveness.get(self.py, *address) {
                Some(object) => describe(object.as_borrowed()),
                None => "<an object that is gone>".to_owned(),
            },
            Some(Known::Set(set)) => set.text.to_string(),
            Some(Known::Parts(parts)) => match Part::tuple(parts, self.py, self.liveness) {
                Some(key) => describe(key.bind(self.py).as_borrowed()),
                None => "<a key of which a part is gone>".to_owned(),
            },
            None => format!("{object:?}"),
        }
    }
}

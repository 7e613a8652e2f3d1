//! The container of values with and without names.

use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PySlice, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;
use stator_federated::Name;

use super::describe::{describe, index_error, index_key};

/// Names that elements can't have, because they mean something else.
const RESERVED_NAMES: &[&str] =
    &["_asdict", "_element_array", "_elements_cache", "_hash", "_name_array", "_name_to_index"];

/// A container of values, each with or without a name, in order: `Struct([('a', 1), (None, 2)])`.
///
/// Struct types are such containers too, of types.
#[pyclass(name = "Struct", module = "stator.federated.common_libs.structure", subclass, frozen)]
pub struct StructBase;

/// A struct of any objects.
#[pyclass(
    name = "Struct",
    module = "stator.federated.common_libs.structure",
    extends = StructBase,
    frozen,
    weakref
)]
pub struct Struct {
    elements: Vec<Element>,
    /// From names to positions, in a struct of many elements.
    positions: OnceLock<FxHashMap<Name, u32>>,
}

/// A name, if there is one, and a value.
pub type Element = (Option<Name>, Py<PyAny>);

impl Struct {
    /// A struct of these elements.
    ///
    /// # Errors
    /// `ValueError`: a name is reserved or given twice.
    pub fn create(py: Python<'_>, elements: Vec<Element>) -> PyResult<Bound<'_, Self>> {
        let made = Self { elements, positions: OnceLock::new() };
        for (at, (name, _)) in made.elements.iter().enumerate() {
            let Some(name) = name else { continue };
            if RESERVED_NAMES.contains(&&**name) {
                return Err(PyValueError::new_err(format!("'{name}' can't name an element")));
            }
            if made.position(name) != Some(at) {
                return Err(PyValueError::new_err(format!("two elements are named '{name}'")));
            }
        }
        Bound::new(py, PyClassInitializer::from(StructBase).add_subclass(made))
    }

    /// Its elements.
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// The position of the first element with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        // Below this, looking at each element is quicker.
        const MANY: usize = 8;
        if self.elements.len() <= MANY {
            return self.elements.iter().position(|(of, _)| of.as_deref() == Some(name));
        }
        let positions = self.positions.get_or_init(|| {
            let named = |(at, (name, _)): (usize, &Element)| Some((name.clone()?, at as u32));
            self.elements.iter().enumerate().rev().filter_map(named).collect()
        });
        positions.get(name).map(|&at| at as usize)
    }

    fn field<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        if let Some(at) = self.position(name) {
            return Ok(self.elements[at].1.bind(py).clone());
        }
        const SHOWN: usize = 10;
        let names: Vec<&str> =
            self.elements.iter().filter_map(|(name, _)| name.as_deref()).take(SHOWN + 1).collect();
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        let names = match names.is_empty() {
            true => "no names".to_owned(),
            false => names[..names.len().min(SHOWN)].join(", ") + more,
        };
        Err(PyAttributeError::new_err(format!(
            "the struct has no element '{name}'\n  found:    {names}"
        )))
    }
}

#[pymethods]
impl StructBase {
    #[new]
    fn new<'py>(elements: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Struct>> {
        let pair = |item: PyResult<Bound<'py, PyAny>>| {
            let item = item?;
            let bad = || {
                PyTypeError::new_err(format!(
                    "an element of a struct is a pair of its name, or None, and its value\n  \
                     found:    {}",
                    describe(&item)
                ))
            };
            let parts = item.try_iter().map_err(|_| bad())?;
            let parts: Vec<_> = parts.take(3).collect::<PyResult<_>>()?;
            let [name, value] = &parts[..] else { return Err(bad()) };
            let name = match name.cast::<PyString>() {
                Ok(name) => Some(Name::from(name.to_str()?)),
                Err(_) if name.is_none() => None,
                Err(_) => return Err(bad()),
            };
            Ok((name, value.clone().unbind()))
        };
        let py = elements.py();
        Struct::create(py, elements.try_iter()?.map(pair).collect::<PyResult<_>>()?)
    }

    /// A struct of named elements.
    #[classmethod]
    #[pyo3(signature = (**kwargs))]
    fn named<'py>(
        cls: &Bound<'py, PyType>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match kwargs {
            Some(kwargs) => cls.call1((kwargs.items(),)),
            None => cls.call1((PyTuple::empty(cls.py()),)),
        }
    }

    /// A struct of elements without names.
    #[classmethod]
    #[pyo3(signature = (*args))]
    fn unnamed<'py>(
        cls: &Bound<'py, PyType>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        let pairs = args.iter().map(|value| (py.None(), value));
        cls.call1((PyList::new(py, pairs.collect::<Vec<_>>())?,))
    }
}

#[pymethods]
impl Struct {
    fn __len__(&self) -> usize {
        self.elements.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyTuple::new(py, self.elements.iter().map(|(_, value)| value))?.try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyTuple::new(py, self.elements.iter().rev().map(|(_, value)| value))?.try_iter()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        if let Ok(name) = key.cast::<PyString>() {
            return self.field(py, name.to_str()?);
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            let range = slice.indices(self.elements.len() as isize)?;
            let at = (0..range.slicelength as isize).map(|step| range.start + step * range.step);
            let values = at.map(|at| &self.elements[at as usize].1);
            return Ok(PyTuple::new(py, values.collect::<Vec<_>>())?.into_any());
        }
        let at = index_key(key, "a struct")?;
        match usize::try_from(at).ok().and_then(|at| self.elements.get(at)) {
            Some((_, value)) => Ok(value.bind(py).clone()),
            None => Err(index_error("the struct", at, self.elements.len())),
        }
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, name)
    }

    fn __dir__(&self) -> Vec<&str> {
        let mut names: Vec<_> =
            self.elements.iter().filter_map(|(name, _)| name.as_deref()).collect();
        names.sort_unstable();
        names
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        let (py, theirs) = (other.py(), &other.get().elements);
        let names = |elements: &[Element]| {
            elements.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        if self.elements.len() != theirs.len() || names(&self.elements) != names(theirs) {
            return Ok(false);
        }
        for ((_, a), (_, b)) in self.elements.iter().zip(theirs) {
            if !a.is(b) && !a.bind(py).eq(b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        let names = self.elements.iter().map(|(name, _)| name.as_deref());
        let names = PyTuple::new(py, names.collect::<Vec<_>>())?;
        let values = PyTuple::new(py, self.elements.iter().map(|(_, value)| value))?;
        (names, values).into_pyobject(py)?.hash()
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = "<".to_owned();
        for (at, (name, value)) in self.elements.iter().enumerate() {
            text.push_str(if at > 0 { "," } else { "" });
            if let Some(name) = name {
                text.push_str(name);
                text.push('=');
            }
            text.push_str(&value.bind(py).str()?.to_string_lossy());
        }
        Ok(text + ">")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let pairs = PyList::new(
            py,
            self.elements.iter().map(|(name, value)| (name.as_deref(), value)).collect::<Vec<_>>(),
        )?;
        Ok(format!("Struct({})", pairs.repr()?.to_string_lossy()))
    }

    /// The elements as an `OrderedDict`; with `recursive`, also of structs in it.
    #[pyo3(signature = (recursive=false))]
    fn _asdict<'py>(slf: &Bound<'py, Self>, recursive: bool) -> PyResult<Bound<'py, PyAny>> {
        super::nest::to_odict(slf.as_any(), recursive)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, (Py<PyAny>,))> {
        let pairs = self.elements.iter().map(|(name, value)| (name.as_deref(), value));
        let pairs = PyList::new(py, pairs.collect::<Vec<_>>())?;
        Ok((py.get_type::<StructBase>(), (pairs.into_any().unbind(),)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.elements.iter().try_for_each(|(_, value)| visit.call(value))
    }
}

thread_local! {
    /// How many structs are being dropped around this point.
    static DROPPING: Cell<usize> = const { Cell::new(0) };
    /// Elements of structs that are to die when those around them are gone.
    static LATER: RefCell<Vec<Vec<Element>>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Struct {
    /// Structs nest as deeply as users like: beyond a depth, what is inside dies in a loop.
    fn drop(&mut self) {
        const DEEP: usize = 100;
        let elements = std::mem::take(&mut self.elements);
        if elements.is_empty() {
            return;
        }
        let depth = DROPPING.get();
        if depth >= DEEP {
            LATER.with_borrow_mut(|later| later.push(elements));
            return;
        }
        DROPPING.set(depth + 1);
        drop(elements);
        if depth == 0 {
            while let Some(elements) = LATER.with_borrow_mut(Vec::pop) {
                drop(elements);
            }
        }
        DROPPING.set(depth);
    }
}

/// Adds `Struct`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StructBase>()
}

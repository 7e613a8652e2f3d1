//! What nodes ask of lists and deques from outside that a trace doesn't fix: functions of what they hold when the node runs.
//!
//! They run no code of the program's: classes are compared by identity, elements are handed on as they are.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PySlice, PyTuple, PyType};
use stator_cpython::modules::Named;
use stator_cpython::object::Object;

use crate::past;
use crate::raises::HELD;

/// The functions, each made once.
#[derive(Clone, Copy)]
pub enum Held {
    /// Whether all elements behind the first ones, of which there are so many at least, are of a class.
    All,
    /// Whether there is an element at an index, not among the first ones, of a class.
    At,
    /// A list of a part of the elements, with more behind them.
    Part,
    /// Whether an array of NumPy's has this type, these sizes and strides, and may be written.
    Array,
    /// Whether no code in Python says what the time zone of a date or time is.
    Zone,
    /// What going back through tensors from outside leads to.
    Past,
    /// Whether that is plain, leads to the first leaves, and to none of the others.
    IsPast,
}

impl Held {
    /// The function's name in graphs.
    pub fn name(self) -> String {
        let name = match self {
            Self::All => "are_all",
            Self::At => "is_at",
            Self::Part => "part",
            Self::Array => "is_array",
            Self::Zone => "is_zone_plain",
            Self::Past => "past",
            Self::IsPast => "is_past",
        };
        format!("{HELD}{name}")
    }

    /// The function.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn function(self, py: Python<'_>) -> PyResult<Object<'_>> {
        static MADE: [PyOnceLock<Py<PyAny>>; 7] = [const { PyOnceLock::new() }; 7];
        let make = || {
            let function = match self {
                Self::All => wrap_pyfunction!(are_all, py),
                Self::At => wrap_pyfunction!(is_at, py),
                Self::Part => wrap_pyfunction!(part, py),
                Self::Array => wrap_pyfunction!(is_array, py),
                Self::Zone => wrap_pyfunction!(is_zone_plain, py),
                Self::Past => wrap_pyfunction!(past::past, py),
                Self::IsPast => wrap_pyfunction!(past::is_past, py),
            };
            function.map(|function| function.into_any().unbind())
        };
        MADE[self as usize].get_or_try_init(py, make).map(|function| function.bind(py).clone())
    }
}

#[pyfunction]
fn are_all(
    container: &Bound<'_, PyAny>,
    first: usize,
    least: usize,
    class: &Bound<'_, PyType>,
) -> PyResult<bool> {
    let mut found = 0;
    for element in container.try_iter()?.skip(first) {
        if !element?.get_type().is(class) {
            return Ok(false);
        }
        found += 1;
    }
    Ok(found >= least)
}

#[pyfunction]
fn is_at(
    container: &Bound<'_, PyAny>,
    first: usize,
    index: isize,
    class: &Bound<'_, PyType>,
) -> PyResult<bool> {
    let length = container.len()?;
    let at = if index < 0 { index + length.cast_signed() } else { index };
    let at = at.cast_unsigned();
    Ok((first..length).contains(&at) && container.get_item(at)?.get_type().is(class))
}

/// `first` is how many in front are left out, `most` how many the container holds at most: those in front make room.
#[pyfunction]
#[pyo3(signature = (container, first, most, slice, *added))]
fn part<'py>(
    container: &Bound<'py, PyAny>,
    first: usize,
    most: Option<usize>,
    slice: Option<&Bound<'py, PySlice>>,
    added: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyList>> {
    let py = container.py();
    let Some(slice) = slice else {
        let mut all = container.try_iter()?.skip(first).collect::<PyResult<Vec<_>>>()?;
        all.extend(added.iter());
        let room = most.unwrap_or(all.len()).min(all.len());
        return PyList::new(py, all.split_off(all.len() - room));
    };
    // Of a list, which nothing makes room in.
    let before = container.len()?.saturating_sub(first);
    let indices = slice.indices((before + added.len()).cast_signed())?;
    let found = PyList::empty(py);
    for step in 0..indices.slicelength {
        let at = (indices.start + step.cast_signed() * indices.step).cast_unsigned();
        found.append(match at.checked_sub(before) {
            None => container.get_item(first + at)?,
            Some(behind) => added.get_item(behind)?,
        })?;
    }
    Ok(found)
}

/// The facts of an array that the results of NumPy's functions follow from; its type is guarded.
///
/// # Errors
/// If there is no memory for them.
pub fn array_facts<'py>(array: &Bound<'py, PyAny>) -> PyResult<[Object<'py>; 4]> {
    let py = array.py();
    let flags = array.getattr(pyo3::intern!(py, "flags"))?;
    Ok([
        array.getattr(pyo3::intern!(py, "dtype"))?,
        array.getattr(pyo3::intern!(py, "shape"))?,
        array.getattr(pyo3::intern!(py, "strides"))?,
        flags.getattr(pyo3::intern!(py, "writeable"))?,
    ])
}

#[pyfunction]
fn is_array(
    array: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    shape: &Bound<'_, PyTuple>,
    strides: &Bound<'_, PyTuple>,
    is_writable: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let [own_dtype, own_shape, own_strides, own_writable] = array_facts(array)?;
    Ok(own_dtype.is(dtype)
        && own_shape.eq(shape)?
        && own_strides.eq(strides)?
        && own_writable.is(is_writable))
}

/// Whether no code in Python says what the time zone of a date or time is.
///
/// # Errors
/// If it's neither.
#[pyfunction]
pub fn is_zone_plain(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static PLAIN: Named = Named::new("datetime", "timezone");
    let zone = value.getattr(pyo3::intern!(value.py(), "tzinfo"))?;
    Ok(zone.is_none() || PLAIN.is(zone.get_type().as_any().as_borrowed()))
}

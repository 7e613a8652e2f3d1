//! Values on their way to another process: few large arrays instead of many small objects.
//!
//! Values of one type are taken column by column: tensors of the same sizes become one array, ragged ones one
//! row and their sizes. What travels is a list of parts, each before those in it, which are tuples that
//! `pickle` writes: `("struct", fields, count)`, `("sequence", lengths)`, `("each", lengths)`,
//! `("everywhere",)` and tensors (`("stacked", array)`, `("ragged", row, shapes)`, `("objects", list)`).

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use stator_federated::execution::Value;
use stator_federated::{Class, Error};

use super::leaf::{Leaf, numpy};
use super::pause::pause;
use super::torch::{is_torch, sizes, torch, torch_to_numpy};
use crate::federated::errors::raise;
use crate::federated::types::dtypes;

type Column = Vec<Value<Leaf>>;

/// Values of one type as parts.
pub fn pack<'py>(py: Python<'py>, values: Column) -> PyResult<Bound<'py, PyList>> {
    let parts = PyList::empty(py);
    let mut left = vec![values];
    while let Some(column) = left.pop() {
        pause(py)?;
        match column.first() {
            None => parts.append(("objects", PyList::empty(py), false))?,
            Some(Value::Leaf(_)) => {
                let leaves: Vec<Leaf> = column
                    .into_iter()
                    .map(|value| match value {
                        Value::Leaf(leaf) => Ok(leaf),
                        _ => Err(uneven()),
                    })
                    .collect::<PyResult<_>>()?;
                parts.append(tensors(py, &leaves)?)?;
            }
            Some(Value::Struct(fields)) => {
                let (width, count) = (fields.len(), column.len());
                let mut columns: Vec<Column> =
                    std::iter::repeat_with(|| Vec::with_capacity(count)).take(width).collect();
                for value in column {
                    let Value::Struct(fields) = value else { return Err(uneven()) };
                    if fields.len() != width {
                        return Err(uneven());
                    }
                    for (column, field) in columns.iter_mut().zip(fields.into_values()) {
                        column.push(field);
                    }
                }
                parts.append(("struct", width, count))?;
                left.extend(columns.into_iter().rev());
            }
            Some(first) => {
                let kind = match first {
                    Value::Sequence(_) => "sequence",
                    Value::Each(_) => "each",
                    Value::Everywhere(_) => "everywhere",
                    _ => {
                        let error = Error::new(Class::Type, "a function can't be sent to clients");
                        return Err(raise(&error.expected("a value of tensors")));
                    }
                };
                let mut lengths = Vec::with_capacity(column.len());
                let mut flat = Vec::new();
                for value in column {
                    match (kind, value) {
                        ("sequence", Value::Sequence(items))
                        | ("each", Value::Each(items))
                        | ("everywhere", Value::Everywhere(items)) => {
                            lengths.push(items.len());
                            flat.extend(items.into_values());
                        }
                        _ => return Err(uneven()),
                    }
                }
                parts.append((kind, lengths))?;
                left.push(flat);
            }
        }
    }
    Ok(parts)
}

/// The values of parts.
pub fn unpack(parts: &Bound<'_, PyList>) -> PyResult<Column> {
    let py = parts.py();
    // From the end: what is in a part is there before it.
    let mut done: Vec<Column> = Vec::new();
    for part in parts.iter().rev() {
        pause(py)?;
        let part = part.cast_into::<PyTuple>()?;
        let kind: String = part.get_item(0)?.extract()?;
        let made = match &*kind {
            "struct" => {
                let (width, count): (usize, usize) =
                    (part.get_item(1)?.extract()?, part.get_item(2)?.extract()?);
                let mut columns = Vec::with_capacity(width);
                for _ in 0..width {
                    columns.push(done.pop().ok_or_else(uneven)?.into_iter());
                }
                let row = |_| {
                    let fields = columns.iter_mut().map(|column| column.next().ok_or_else(uneven));
                    Ok(Value::structure(fields.collect::<PyResult<_>>()?))
                };
                (0..count).map(row).collect::<PyResult<_>>()?
            }
            "sequence" | "each" | "everywhere" => {
                let lengths: Vec<usize> = part.get_item(1)?.extract()?;
                let mut flat = done.pop().ok_or_else(uneven)?.into_iter();
                let of = |length: usize| {
                    let mut items: Column = flat.by_ref().take(length).collect();
                    match &*kind {
                        "sequence" => Ok(Value::sequence(items)),
                        "each" => Ok(Value::each(items)),
                        _ => items.pop().map(Value::everywhere).ok_or_else(uneven),
                    }
                };
                lengths.into_iter().map(of).collect::<PyResult<_>>()?
            }
            _ => read_tensors(&kind, &part)?,
        };
        done.push(made);
    }
    match (done.pop(), done.is_empty()) {
        (Some(column), true) => Ok(column),
        _ => Err(uneven()),
    }
}

/// A column of tensors; the last item says whether they are PyTorch's.
fn tensors<'py>(py: Python<'py>, leaves: &[Leaf]) -> PyResult<Bound<'py, PyTuple>> {
    let numpy = numpy(py)?;
    let given = leaves.iter().map(|leaf| leaf.bind(py)).collect::<PyResult<Vec<_>>>()?;
    let given = PyList::new(py, given)?;
    let objects = || ("objects", &given, false).into_pyobject(py);
    let in_torch = is_torch(leaves[0].bind(py)?)?;
    let mut arrays: Vec<Bound<'py, PyAny>> = Vec::with_capacity(leaves.len());
    let mut dtype: Option<Bound<'py, PyAny>> = None;
    let mut sizes: Option<Bound<'py, PyAny>> = None;
    let mut is_even = true;
    for leaf in leaves {
        let leaf = leaf.bind(py)?;
        if is_torch(leaf)? != in_torch {
            return objects();
        }
        let array = match in_torch {
            true => match torch_to_numpy(leaf)? {
                Some(array) => array,
                None => return objects(),
            },
            false => leaf.clone(),
        };
        // Strings are bytes, and rows of strings arrays of objects.
        let Some(found) = array.getattr_opt("dtype")? else { return objects() };
        match &dtype {
            None => {
                let kind: String = found.getattr("kind")?.extract()?;
                // PyTorch makes no tensors of what NumPy calls a void, such as bfloat16.
                if kind == "O" || (in_torch && kind == "V") {
                    return objects();
                }
                dtype = Some(found);
            }
            Some(dtype) if dtype.is(&found) || dtype.eq(&found)? => {}
            Some(_) => return objects(),
        }
        let found = array.getattr("shape")?;
        match &sizes {
            None => sizes = Some(found),
            Some(sizes) => is_even = is_even && sizes.eq(&found)?,
        }
        arrays.push(array);
    }
    if let [array] = &*arrays {
        let array = numpy.call_method1("asarray", (array,))?;
        return ("stacked", array.get_item((py.None(),))?, in_torch).into_pyobject(py);
    }
    if is_even {
        return ("stacked", numpy.call_method1("stack", (arrays,))?, in_torch).into_pyobject(py);
    }
    let shapes = arrays.iter().map(|array| array.getattr("shape"));
    let shapes = PyList::new(py, shapes.collect::<PyResult<Vec<_>>>()?)?;
    let rows = arrays.iter().map(|array| array.call_method1("reshape", (-1,)));
    let rows = rows.collect::<PyResult<Vec<_>>>()?;
    let row = numpy.call_method1("concatenate", (rows,))?;
    ("ragged", row, shapes, in_torch).into_pyobject(py)
}

fn read_tensors(kind: &str, part: &Bound<'_, PyTuple>) -> PyResult<Column> {
    let py = part.py();
    let in_torch: bool = part.get_item(part.len() - 1)?.extract()?;
    let content = part.get_item(1)?;
    let content = match torch(py)? {
        // What came may not be written to, and PyTorch has no tensors like that.
        Some(torch) if in_torch => {
            torch.call_method1("from_numpy", (content.call_method0("copy")?,))?
        }
        None if in_torch => {
            py.import("torch")?;
            return read_tensors(kind, part);
        }
        _ => content,
    };
    let is_array = !in_torch && content.is_exact_instance(dtypes::ndarray(py)?);
    // What has no sizes is a scalar.
    let leaf = |object: Bound<'_, PyAny>, sizes: &[u64]| {
        Value::Leaf(match is_array && !sizes.is_empty() {
            true => Leaf::of_array(object, Some(sizes.into())),
            false => Leaf::new(object),
        })
    };
    match kind {
        "objects" => content.try_iter()?.map(|object| Ok(leaf(object?, &[]))).collect(),
        "stacked" => {
            let sizes = sizes(&content)?;
            content.try_iter()?.map(|object| Ok(leaf(object?, &sizes[1..]))).collect()
        }
        "ragged" => {
            let mut from = 0;
            let mut made = Vec::new();
            for shape in part.get_item(2)?.try_iter()? {
                let shape = shape?;
                let sizes: Vec<u64> = shape.extract()?;
                let to = from + sizes.iter().product::<u64>() as isize;
                let row = content.get_item(pyo3::types::PySlice::new(py, from, to, 1))?;
                made.push(leaf(row.call_method1("reshape", (shape,))?, &sizes));
                from = to;
            }
            Ok(made)
        }
        _ => Err(PyTypeError::new_err(format!("no part is called {kind}"))),
    }
}

fn uneven() -> PyErr {
    PyValueError::new_err("what came from another process isn't what was sent")
}

/// How large the tensors in values are, as far as NumPy and PyTorch say so.
pub fn bytes_in(py: Python<'_>, value: &Value<Leaf>) -> PyResult<u64> {
    let mut left = vec![value];
    let mut bytes = 0;
    while let Some(value) = left.pop() {
        match value {
            Value::Leaf(leaf) => {
                let leaf = leaf.bind(py)?;
                if leaf.is_instance(dtypes::ndarray(py)?)? || is_torch(leaf)? {
                    bytes += leaf.getattr("nbytes")?.extract::<u64>()?;
                }
            }
            Value::Struct(items)
            | Value::Sequence(items)
            | Value::Each(items)
            | Value::Everywhere(items) => left.extend(items.iter()),
            Value::Function(_) | Value::Placement(_) => {}
            Value::Later(_) | Value::Merge(_) => unreachable!("a call gives no such"),
        }
    }
    Ok(bytes)
}

//! Shapes of arrays: tuples of sizes, `None` for a size that isn't known; `None` if not even the
//! rank is.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stator_federated::types::Shape;
use stator_federated::wire;

use crate::federated::errors::IntoPython;
use crate::federated::types::{dtypes, shape_object, to_shape};
use crate::federated::wire::bytes_of;

/// The message of a shape, as bytes.
#[pyfunction]
fn array_shape_to_proto<'py>(shape: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(shape.py(), &wire::encode_shape(&to_shape(shape)?).py()?))
}

/// The shape in a message.
#[pyfunction]
fn array_shape_from_proto<'py>(shape_pb: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let shape = wire::decode_shape(&bytes_of(shape_pb, "shape_pb")?).py()?;
    shape_object(shape_pb.py(), &shape)
}

/// Whether some array has both shapes.
#[pyfunction]
fn array_shape_is_compatible_with(
    target: &Bound<'_, PyAny>,
    other: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    Ok(to_shape(target)?.is_compatible_with(&to_shape(other)?))
}

/// Whether every size is known.
#[pyfunction]
fn array_shape_is_fully_defined(shape: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(to_shape(shape)?.is_fully_defined())
}

/// Whether it is the shape of a single element.
#[pyfunction]
fn array_shape_is_scalar(shape: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(to_shape(shape)?.is_scalar())
}

/// The number of elements, or `None` if a size isn't known.
#[pyfunction]
fn num_elements_in_array_shape<'py>(
    shape: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let of = to_shape(shape)?;
    let Some(sizes) = of.dims().filter(|_| of.is_fully_defined()) else { return Ok(None) };
    // Python's numbers don't overflow.
    let mut product = 1u64.into_pyobject(shape.py())?.into_any();
    for size in sizes.iter().flatten() {
        product = product.mul(size)?;
    }
    Ok(Some(product))
}

/// Whether a value is of this shape. Whatever is no array of NumPy is a single element.
#[pyfunction]
fn array_is_compatible_shape(value: &Bound<'_, PyAny>, shape: &Bound<'_, PyAny>) -> PyResult<bool> {
    let shape = to_shape(shape)?;
    if !value.is_instance(dtypes::ndarray(value.py())?)? {
        return Ok(shape.is_scalar());
    }
    let sizes: Vec<Option<u64>> = value.getattr("shape")?.extract()?;
    Ok(Shape::new(sizes).is_compatible_with(&shape))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(array_shape_to_proto, module)?)?;
    module.add_function(wrap_pyfunction!(array_shape_from_proto, module)?)?;
    module.add_function(wrap_pyfunction!(array_shape_is_compatible_with, module)?)?;
    module.add_function(wrap_pyfunction!(array_shape_is_fully_defined, module)?)?;
    module.add_function(wrap_pyfunction!(array_shape_is_scalar, module)?)?;
    module.add_function(wrap_pyfunction!(num_elements_in_array_shape, module)?)?;
    module.add_function(wrap_pyfunction!(array_is_compatible_shape, module)?)
}

//! Types and trees as the bytes of their messages.
//!
//! A message is `bytes`: this is what `to_proto` gives. What takes a message takes objects of the
//! protobuf library too.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyType};
use stator_federated::ast::BuildingBlock;
use stator_federated::types::Type;
use stator_federated::wire;

use super::errors::IntoPython;
use super::{blocks, types};

/// The bytes of the message that was given for the argument `name`.
pub fn bytes_of(message: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = message.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(bytes) = message.cast::<PyByteArray>() {
        return Ok(bytes.to_vec());
    }
    if let Some(serialize) = message.getattr_opt("SerializeToString")? {
        let options = PyDict::new(message.py());
        options.set_item("deterministic", true)?;
        let encoded = serialize.call((), Some(&options))?;
        return Ok(encoded.cast::<PyBytes>()?.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!(
        "`{name}` is no message\n  expected: bytes, or a protobuf message\n  found:    {}",
        types::describe(message)
    )))
}

/// The message of a type.
pub fn type_to_bytes<'py>(py: Python<'py>, ty: &Type) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &wire::encode_type(ty).py()?))
}

/// The type in a message, which has to be of `class` or of a class below it; with this Python class,
/// if it is a struct.
pub fn type_from_message<'py>(
    class: &Bound<'py, PyType>,
    message: &Bound<'py, PyAny>,
    container_type: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let bytes = bytes_of(message, "message")?;
    let ty = if class.is(py.get_type::<types::AbstractTypeObject>()) {
        py.detach(|| wire::decode_template(&bytes))
    } else {
        py.detach(|| wire::decode_type(&bytes))
    };
    let found = types::wrap(py, &ty.py()?)?;
    // Messages don't say the Python classes of structs.
    let with_container = py.get_type::<types::StructWithPythonTypeObject>();
    if !class.is(&with_container) {
        if container_type.is_some() {
            return Err(PyTypeError::new_err(format!(
                "`container_type` is for structs with a Python class\n  expected: a call of \
                 StructWithPythonType\n  found:    one of {}",
                class.name()?
            )));
        }
        expect_class(class, &found)?;
        return Ok(found);
    }
    expect_class(&py.get_type::<types::StructTypeObject>(), &found)?;
    match container_type {
        Some(container) => with_container.call1((found.call_method0("items")?, container)),
        None => Ok(found),
    }
}

/// The message of a tree.
pub fn block_to_bytes<'py>(
    py: Python<'py>,
    block: &BuildingBlock,
) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &wire::encode_block(block).py()?))
}

/// The tree in the bytes of a message. Other threads run meanwhile.
pub fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<BuildingBlock> {
    py.detach(|| wire::decode_block(bytes)).py()
}

/// The tree in a message, which has to be of `class` or of a class below it.
pub fn block_from_message<'py>(
    class: &Bound<'py, PyType>,
    message: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = bytes_of(message, "message")?;
    let found = blocks::wrap(class.py(), &decode(class.py(), &bytes)?)?;
    expect_class(class, &found)?;
    Ok(found)
}

fn expect_class(class: &Bound<'_, PyType>, found: &Bound<'_, PyAny>) -> PyResult<()> {
    if found.is_instance(class)? {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "the message is of another kind\n  expected: a {}\n  found:    a {}, {}",
        class.name()?,
        found.get_type().name()?,
        found.str()?,
    )))
}

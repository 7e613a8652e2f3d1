//! `stator-bytecode` for the Python tests: round trips, stack effects and depths on plain bytes.
//!
//! The functions speak the bytecode of the interpreter they run in.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stator_bytecode::{Error, Version};

/// Adds the functions to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(code_roundtrip, m)?)?;
    m.add_function(wrap_pyfunction!(exception_table_roundtrip, m)?)?;
    m.add_function(wrap_pyfunction!(line_table_roundtrip, m)?)?;
    m.add_function(wrap_pyfunction!(stack_effect, m)?)?;
    m.add_function(wrap_pyfunction!(max_depth, m)?)
}

/// The bytecode version of the running interpreter.
fn version(py: Python<'_>) -> PyResult<Version> {
    let running = py.version_info();
    Version::from_numbers(running.major, running.minor).ok_or_else(|| {
        let (major, minor) = (running.major, running.minor);
        PyValueError::new_err(format!("the bytecode of Python {major}.{minor} isn't known"))
    })
}

fn to_value_error(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Decodes `co_code` and assembles it again.
#[pyfunction(name = "_bytecode_roundtrip")]
fn code_roundtrip<'py>(py: Python<'py>, code: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let again = stator_bytecode::roundtrip(version(py)?, code).map_err(to_value_error)?;
    Ok(PyBytes::new(py, &again))
}

/// Decodes `co_exceptiontable` and encodes it again.
#[pyfunction(name = "_bytecode_exception_table_roundtrip")]
fn exception_table_roundtrip<'py>(py: Python<'py>, table: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let again = stator_bytecode::roundtrip_exception_table(table).map_err(to_value_error)?;
    Ok(PyBytes::new(py, &again))
}

/// Decodes `co_linetable` and encodes it again.
#[pyfunction(name = "_bytecode_line_table_roundtrip")]
fn line_table_roundtrip<'py>(
    py: Python<'py>,
    table: &[u8],
    first_line: i32,
) -> PyResult<Bound<'py, PyBytes>> {
    let again = stator_bytecode::roundtrip_line_table(table, first_line).map_err(to_value_error)?;
    Ok(PyBytes::new(py, &again))
}

/// The stack effect of an opcode, or `None` if there is no such opcode.
#[pyfunction(name = "_bytecode_stack_effect")]
#[pyo3(signature = (opcode, arg, jump=None))]
fn stack_effect(py: Python<'_>, opcode: u8, arg: u32, jump: Option<bool>) -> PyResult<Option<i32>> {
    Ok(stator_bytecode::stack_effect(version(py)?, opcode, arg, jump))
}

/// The largest stack depth that control can reach.
#[pyfunction(name = "_bytecode_max_depth")]
fn max_depth(py: Python<'_>, code: &[u8], exception_table: &[u8]) -> PyResult<u32> {
    stator_bytecode::max_depth(version(py)?, code, exception_table).map_err(to_value_error)
}

//! Calls of the user's functions from walks over trees.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_federated::Error;
use stator_federated::ast::BuildingBlock;
use stator_federated::ast::walk::Transformed;

use super::{unwrap, wrap};
use crate::federated::errors::raise;
use crate::federated::types::describe;

/// An exception that the user's function raised, or one for an error of ours.
pub struct Raised(pub PyErr);

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        Self(raise(&error))
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Raised> for PyErr {
    fn from(raised: Raised) -> Self {
        raised.0
    }
}

/// What a function says of a block: a block and whether it is another one.
pub fn transformed(answer: &Bound<'_, PyAny>) -> PyResult<Transformed> {
    let wrong = || {
        PyTypeError::new_err(format!(
            "the function that transforms must answer with a pair\n  expected: a tuple of a \
             building block and whether it is another one\n  found:    {}",
            describe(answer)
        ))
    };
    let pair = answer.cast::<PyTuple>().map_err(|_| wrong())?;
    if pair.len() != 2 {
        return Err(wrong());
    }
    let block = unwrap(&pair.get_item(0)?).ok_or_else(wrong)?;
    Ok((block, pair.get_item(1)?.is_truthy()?))
}

/// What `function` says of a block.
pub fn call_transform(
    function: &Bound<'_, PyAny>,
    block: &BuildingBlock,
) -> Result<Transformed, Raised> {
    let answer = function.call1((wrap(function.py(), block)?,))?;
    Ok(transformed(&answer)?)
}

/// Whether `predicate` holds for a block.
pub fn call_predicate(predicate: &Bound<'_, PyAny>, block: &BuildingBlock) -> PyResult<bool> {
    predicate.call1((wrap(predicate.py(), block)?,))?.is_truthy()
}

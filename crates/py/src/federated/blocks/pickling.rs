//! Building blocks as what `pickle` writes: a row of constructor calls, each block once, after those
//! that it uses. Unlike messages it keeps shared blocks shared, names of fields and Python classes;
//! and it doesn't recurse, however deep the tree is.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;
use stator_federated::ast::{BlockKind, BuildingBlock, Key, walk};

use super::{data, literals};
use crate::federated::execution::{computation, payload};
use crate::federated::types::{self, containers, placements};
use crate::federated::{blocks, wire};

/// The row of calls that makes a tree: for each the class's name, and its arguments, where a block is
/// its place in the row.
/// With `functions` a Python function is an argument too, which `pickle` may know how to write.
pub fn calls<'py>(
    py: Python<'py>,
    root: &BuildingBlock,
    functions: bool,
) -> PyResult<Bound<'py, PyList>> {
    let blocks = walk::distinct(root);
    let places: FxHashMap<usize, usize> =
        blocks.iter().enumerate().map(|(at, block)| (block.address(), at)).collect();
    let at = |block: &BuildingBlock| places[&block.address()];
    let row = PyList::empty(py);
    for block in blocks {
        let ty = || types::wrap(py, block.ty());
        let call = match block.kind() {
            BlockKind::Reference(of) => {
                ("Reference", (&*of.name, ty()?, of.context.as_deref())).into_pyobject(py)?
            }
            BlockKind::Selection(of) => {
                let (name, index) = match &of.key {
                    Key::Name(name) => (Some(&**name), None),
                    Key::Index(index) => (None, Some(*index)),
                };
                ("Selection", (at(&of.source), name, index)).into_pyobject(py)?
            }
            BlockKind::Struct(of) => {
                let pairs: Vec<_> =
                    of.elements.iter().map(|(name, value)| (name.as_deref(), at(value))).collect();
                let container = block.ty().as_struct().and_then(|of| of.container());
                let container =
                    container.map(|container| containers::class_of(py, container)).transpose()?;
                ("Struct", (pairs, container)).into_pyobject(py)?
            }
            BlockKind::Call(of) => {
                ("Call", (at(&of.function), of.argument.as_ref().map(at))).into_pyobject(py)?
            }
            BlockKind::Lambda(of) => {
                let (name, ty) = match &of.parameter {
                    Some((name, ty)) => (Some(&**name), Some(types::wrap(py, ty)?)),
                    None => (None, None),
                };
                ("Lambda", (name, ty, at(&of.result))).into_pyobject(py)?
            }
            BlockKind::Block(of) => {
                let locals: Vec<_> =
                    of.locals.iter().map(|(name, value)| (&**name, at(value))).collect();
                ("Block", (locals, at(&of.result))).into_pyobject(py)?
            }
            BlockKind::Intrinsic(uri) => ("Intrinsic", (&**uri, ty()?)).into_pyobject(py)?,
            BlockKind::Data(content) => {
                ("Data", (data::wrap(py, content)?, ty()?)).into_pyobject(py)?
            }
            BlockKind::Placement(placement) => {
                ("Placement", (placements::wrap(py, *placement)?,)).into_pyobject(py)?
            }
            BlockKind::Literal(array) => {
                ("Literal", (literals::from_array(py, array)?, ty()?)).into_pyobject(py)?
            }
            BlockKind::Compiled(of) => {
                if functions && let Some(arguments) = payload::python_function(py, of, block.ty())?
                {
                    row.append(("callable_computation", arguments))?;
                    continue;
                }
                let bytes: Bound<'_, PyBytes> = wire::block_to_bytes(py, block)?;
                let origins = payload::origins(py, of)?;
                ("CompiledComputation", (bytes, &*of.name, ty()?, origins)).into_pyobject(py)?
            }
        };
        row.append(call)?;
    }
    Ok(row)
}

/// The row of calls that makes a tree in another process, Python functions in it as they are.
#[pyfunction]
fn calls_with_functions<'py>(block: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = block.py();
    match blocks::unwrap(block) {
        Some(block) => calls(py, &block, true),
        None => calls(py, &computation(block)?.0, true),
    }
}

/// The tree that a row of calls makes: what `pickle` calls.
#[pyfunction]
fn _block_from_calls<'py>(row: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyAny>> {
    let py = row.py();
    let module = py.import("stator._stator")?.getattr("federated")?;
    let mut made: Vec<Bound<'py, PyAny>> = Vec::with_capacity(row.len());
    for call in row.iter() {
        let (name, arguments): (Bound<'py, PyString>, Bound<'py, PyTuple>) = call.extract()?;
        let mut arguments: Vec<_> = arguments.iter().collect();
        let block = |place: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
            if place.is_none() {
                return Ok(place.clone());
            }
            let found = made.get(place.extract::<usize>()?).cloned();
            found.ok_or_else(|| PyValueError::new_err("a block uses one that isn't there yet"))
        };
        let pairs = |pairs: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
            let pairs: Vec<(Option<String>, Bound<'py, PyAny>)> = pairs.extract()?;
            let pairs = pairs.into_iter().map(|(name, place)| Ok((name, block(&place)?)));
            Ok(PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)?.into_any())
        };
        let name = name.to_str()?;
        let (blocks, rows): (&[usize], &[usize]) = match name {
            "Selection" => (&[0], &[]),
            "Struct" => (&[], &[0]),
            "Call" => (&[0, 1], &[]),
            "Lambda" => (&[2], &[]),
            "Block" => (&[1], &[0]),
            _ => (&[], &[]),
        };
        for &at in blocks {
            arguments[at] = block(&arguments[at])?;
        }
        for &at in rows {
            arguments[at] = pairs(&arguments[at])?;
        }
        // `Struct` is also the name of the container.
        let name = if name == "Struct" { "StructBlock" } else { name };
        let origins = match name {
            "CompiledComputation" if arguments.len() > 3 => arguments.pop(),
            _ => None,
        };
        let block = module.getattr(name)?.call1(PyTuple::new(py, arguments)?)?;
        if let Some(origins) = origins.filter(|origins| !origins.is_none())
            && let Some(made) = blocks::unwrap(&block)
            && let BlockKind::Compiled(of) = made.kind()
        {
            payload::remember(of, origins.unbind());
        }
        made.push(block);
    }
    made.pop().ok_or_else(|| PyValueError::new_err("no block was pickled"))
}

/// Adds what `pickle` calls.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(calls_with_functions, module)?)?;
    module.add_function(wrap_pyfunction!(_block_from_calls, module)?)
}

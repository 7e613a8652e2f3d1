//! Walks and questions about trees.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet};
use rustc_hash::FxHashSet;
use stator_federated::Name;
use stator_federated::analysis;
use stator_federated::ast::BuildingBlock;
use stator_federated::ast::{passes, walk};
use stator_federated::intrinsics::AggregationKind;

use super::callbacks::call_predicate;
use super::intrinsics::{aggregation_kind, to_aggregation_kind};
use super::passes::to_names;
use super::{unwrap, unwrap_or_err, wrap};
use crate::federated::errors::{IntoPython, NonuniqueNameError};
use crate::federated::types::{describe, placements};

/// Calls `function` with each block of a tree, before those below it.
#[pyfunction]
fn visit_preorder(tree: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<()> {
    let root = unwrap_or_err(tree, "tree")?;
    walk::preorder(&root).try_for_each(|block| {
        function.call1((wrap(tree.py(), block)?,))?;
        Ok(())
    })
}

/// Calls `function` with each block of a tree, after those below it.
#[pyfunction]
fn visit_postorder(tree: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<()> {
    let root = unwrap_or_err(tree, "tree")?;
    walk::postorder(&root).try_for_each(|block| {
        function.call1((wrap(tree.py(), block)?,))?;
        Ok(())
    })
}

/// How many blocks a tree has for which `predicate` holds. A block that occurs several times
/// counts as often, but is asked about once.
#[pyfunction]
#[pyo3(signature = (tree, predicate=None))]
fn computation_count(
    tree: &Bound<'_, PyAny>,
    predicate: Option<&Bound<'_, PyAny>>,
) -> PyResult<u128> {
    let root = unwrap_or_err(tree, "tree")?;
    walk::count(&root, |block| predicate.map_or(Ok(true), |of| call_predicate(of, block)))
}

/// Whether `predicate` holds for a block of a tree.
fn any(
    root: &BuildingBlock,
    mut predicate: impl FnMut(&BuildingBlock) -> PyResult<bool>,
) -> PyResult<bool> {
    let mut failed = None;
    let found = walk::contains(root, |block| match predicate(block) {
        Ok(holds) => holds,
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    failed.map_or(Ok(found), Err)
}

/// Whether `predicate` holds for a block of a tree.
#[pyfunction]
fn tree_contains(tree: &Bound<'_, PyAny>, predicate: &Bound<'_, PyAny>) -> PyResult<bool> {
    any(&unwrap_or_err(tree, "tree")?, |block| call_predicate(predicate, block))
}

/// Whether `predicate` holds for every block of a tree.
#[pyfunction]
fn tree_contains_only(tree: &Bound<'_, PyAny>, predicate: &Bound<'_, PyAny>) -> PyResult<bool> {
    let root = unwrap_or_err(tree, "tree")?;
    Ok(!any(&root, |block| Ok(!call_predicate(predicate, block)?))?)
}

/// The tree of a computation.
fn tree_of(computation: &Bound<'_, PyAny>) -> PyResult<BuildingBlock> {
    if let Some(block) = unwrap(computation) {
        return Ok(block);
    }
    if let Some(method) = computation.getattr_opt("to_building_block")?
        && let Some(block) = unwrap(&method.call0()?)
    {
        return Ok(block);
    }
    Err(PyTypeError::new_err(format!(
        "`computation` is none\n  expected: a computation\n  found:    {}",
        describe(computation)
    )))
}

/// Whether `predicate` holds for a block of a computation's tree.
#[pyfunction]
fn computation_contains(
    computation: &Bound<'_, PyAny>,
    predicate: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    any(&tree_of(computation)?, |block| call_predicate(predicate, block))
}

/// Whether a computation calls an operation that aggregates so that the server sees the result
/// only.
#[pyfunction]
fn computation_contains_secure_aggregation(computation: &Bound<'_, PyAny>) -> PyResult<bool> {
    let root = tree_of(computation)?;
    Ok(!analysis::find_aggregations(&root, |kind| kind == AggregationKind::Secure).py()?.is_empty())
}

/// Whether a computation calls an operation that aggregates so that the server may see the values
/// of single clients.
#[pyfunction]
fn computation_contains_unsecure_aggregation(computation: &Bound<'_, PyAny>) -> PyResult<bool> {
    let root = tree_of(computation)?;
    Ok(!analysis::find_aggregations(&root, |kind| kind == AggregationKind::Default)
        .py()?
        .is_empty())
}

/// The calls in a tree of operations that aggregate, with arguments that hold tensors. With
/// `kind_predicate`, of those for whose `AggregationKind` it holds.
#[pyfunction]
#[pyo3(signature = (comp, kind_predicate=None))]
fn find_aggregations_in_tree<'py>(
    comp: &Bound<'py, PyAny>,
    kind_predicate: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let py = comp.py();
    let root = unwrap_or_err(comp, "comp")?;
    let mut failed = None;
    let found = analysis::find_aggregations(&root, |kind| {
        let Some(predicate) = kind_predicate.filter(|_| failed.is_none()) else {
            return failed.is_none();
        };
        let answer = aggregation_kind(py, kind)
            .and_then(|kind| predicate.call1((kind,)))
            .and_then(|answer| answer.is_truthy());
        answer.unwrap_or_else(|error| {
            failed = Some(error);
            false
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let found = found.py()?.into_iter().map(|block| wrap(py, block));
    PyList::new(py, found.collect::<PyResult<Vec<_>>>()?)
}

/// The uris that `uri` says: one, or some.
fn uris(uri: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<Name>>> {
    uri.map(|uri| Ok(to_names(uri)?.into_iter().collect())).transpose()
}

/// Whether a tree calls an operation; with `uri`, the one, or one of those, with that uri.
#[pyfunction]
#[pyo3(signature = (tree, uri=None))]
fn contains_called_intrinsic(
    tree: &Bound<'_, PyAny>,
    uri: Option<&Bound<'_, PyAny>>,
) -> PyResult<bool> {
    let root = unwrap_or_err(tree, "tree")?;
    Ok(analysis::contains_called_intrinsic(&root, uris(uri)?.as_deref()))
}

/// Whether a block is a call of an operation; with `uri`, of the one, or one of those, with that
/// uri.
#[pyfunction]
#[pyo3(signature = (comp, uri=None))]
fn is_called_intrinsic(comp: &Bound<'_, PyAny>, uri: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let block = unwrap_or_err(comp, "comp")?;
    Ok(analysis::is_called_intrinsic(&block, uris(uri)?.as_deref()))
}

/// Whether a block is a call of an operation that aggregates in this way.
#[pyfunction]
fn is_called_aggregation(
    building_block: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let block = unwrap_or_err(building_block, "building_block")?;
    let kind = to_aggregation_kind(kind)?;
    Ok(kind.is_some_and(|kind| analysis::is_called_aggregation(&block, kind)))
}

/// Whether a block is a lambda that gives back its parameter.
#[pyfunction]
fn is_identity_function(comp: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(analysis::is_identity_function(&unwrap_or_err(comp, "comp")?))
}

/// Every name that a tree uses or binds.
#[pyfunction]
fn get_unique_names<'py>(comp: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PySet>> {
    let root = unwrap_or_err(comp, "comp")?;
    PySet::new(comp.py(), passes::all_names(&root).iter().map(|name| &**name))
}

/// For each block of a tree, the names that it uses and doesn't bind.
#[pyfunction]
fn get_map_of_unbound_references<'py>(comp: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = comp.py();
    let root = unwrap_or_err(comp, "comp")?;
    let map = PyDict::new(py);
    for (block, names) in analysis::unbound_names_of_all(&root) {
        let names = PySet::new(py, names.iter().map(|name| &**name))?;
        map.set_item(wrap(py, block)?, names)?;
    }
    Ok(map)
}

fn excluded(excluding: Option<&Bound<'_, PyAny>>) -> PyResult<FxHashSet<Name>> {
    excluding.map_or_else(|| Ok(FxHashSet::default()), to_names)
}

/// Whether a tree binds all names that it uses, but for those of `excluding`.
#[pyfunction]
#[pyo3(signature = (tree, excluding=None))]
fn contains_no_unbound_references(
    tree: &Bound<'_, PyAny>,
    excluding: Option<&Bound<'_, PyAny>>,
) -> PyResult<bool> {
    let root = unwrap_or_err(tree, "tree")?;
    Ok(analysis::unbound_names(&root, &excluded(excluding)?).is_empty())
}

/// Raises `ValueError` if a tree uses a name that it doesn't bind and `excluding` doesn't have.
#[pyfunction]
#[pyo3(signature = (tree, excluding=None))]
fn check_contains_no_unbound_references(
    tree: &Bound<'_, PyAny>,
    excluding: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let root = unwrap_or_err(tree, "tree")?;
    analysis::check_contains_no_unbound_references(&root, &excluded(excluding)?).py()
}

/// Raises `ValueError` if one tree leaves a name open that another one doesn't.
#[pyfunction]
fn check_contains_no_new_unbound_references(
    old_tree: &Bound<'_, PyAny>,
    new_tree: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let old = unwrap_or_err(old_tree, "old_tree")?;
    let new = unwrap_or_err(new_tree, "new_tree")?;
    analysis::check_contains_no_new_unbound_references(&old, &new).py()
}

/// Raises `NonuniqueNameError` if a tree binds a name twice, or binds one that it also leaves open.
#[pyfunction]
fn check_has_unique_names(comp: &Bound<'_, PyAny>) -> PyResult<()> {
    let root = unwrap_or_err(comp, "comp")?;
    let Some(name) = analysis::repeated_name(&root) else { return Ok(()) };
    let error = NonuniqueNameError::new_err(format!(
        "the name `{name}` doesn't stand for one thing\n  expected: each name bound once, and not \
         left open elsewhere\n  found:    {}",
        analysis::short(&root)
    ));
    let value = error.value(comp.py());
    value.setattr("comp", comp)?;
    value.setattr("name", &*name)?;
    Err(error)
}

/// Raises `ValueError` if a value in a tree is placed elsewhere than at `single_placement`.
#[pyfunction]
fn check_has_single_placement(
    comp: &Bound<'_, PyAny>,
    single_placement: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let root = unwrap_or_err(comp, "comp")?;
    let placement = placements::expect(single_placement, "single_placement")?;
    analysis::check_has_single_placement(&root, placement).py()
}

macro_rules! checks {
    ($($name:ident $argument:ident $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[pyfunction]
            fn $name($argument: &Bound<'_, PyAny>) -> PyResult<()> {
                analysis::$name(&unwrap_or_err($argument, stringify!($argument))?).py()
            }
        )*

        fn register_checks(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
}

checks! {
    check_contains_only_reducible_intrinsics comp
        "Raises `ValueError` if a tree has an operation that isn't made of aggregations and broadcasts.";
    check_broadcast_not_dependent_on_aggregate tree
        "Raises `ValueError` if what is broadcast depends on an aggregate.";
    check_aggregate_not_dependent_on_aggregate tree
        "Raises `ValueError` if what is aggregated depends on another aggregate.";
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_checks(module)?;
    module.add_function(wrap_pyfunction!(visit_preorder, module)?)?;
    module.add_function(wrap_pyfunction!(visit_postorder, module)?)?;
    module.add_function(wrap_pyfunction!(computation_count, module)?)?;
    module.add_function(wrap_pyfunction!(tree_contains, module)?)?;
    module.add_function(wrap_pyfunction!(tree_contains_only, module)?)?;
    module.add_function(wrap_pyfunction!(computation_contains, module)?)?;
    module.add_function(wrap_pyfunction!(computation_contains_secure_aggregation, module)?)?;
    module.add_function(wrap_pyfunction!(computation_contains_unsecure_aggregation, module)?)?;
    module.add_function(wrap_pyfunction!(find_aggregations_in_tree, module)?)?;
    module.add_function(wrap_pyfunction!(contains_called_intrinsic, module)?)?;
    module.add_function(wrap_pyfunction!(is_called_intrinsic, module)?)?;
    module.add_function(wrap_pyfunction!(is_called_aggregation, module)?)?;
    module.add_function(wrap_pyfunction!(is_identity_function, module)?)?;
    module.add_function(wrap_pyfunction!(get_unique_names, module)?)?;
    module.add_function(wrap_pyfunction!(get_map_of_unbound_references, module)?)?;
    module.add_function(wrap_pyfunction!(contains_no_unbound_references, module)?)?;
    module.add_function(wrap_pyfunction!(check_contains_no_unbound_references, module)?)?;
    module.add_function(wrap_pyfunction!(check_contains_no_new_unbound_references, module)?)?;
    module.add_function(wrap_pyfunction!(check_has_unique_names, module)?)?;
    module.add_function(wrap_pyfunction!(check_has_single_placement, module)?)
}

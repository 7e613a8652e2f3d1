//! Transformations: the user's, and the passes.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString, PyTuple};
use rustc_hash::FxHashSet;
use stator_federated::Name;
use stator_federated::ast::passes::{self, NameGenerator};
use stator_federated::ast::walk::{self, Transformed};

use super::callbacks::{Raised, call_transform};
use super::{unwrap_or_err, wrap};
use crate::federated::errors::IntoPython;

/// A block and whether it is another one than before, as a pair.
pub fn pair<'py>(py: Python<'py>, (block, changed): Transformed) -> PyResult<Bound<'py, PyTuple>> {
    let changed = PyBool::new(py, changed).to_owned().into_any();
    PyTuple::new(py, [wrap(py, &block)?, changed])
}

/// Replaces each block of a tree by what `transform(block)` says, what is below it first.
///
/// `transform` answers with a block and whether it is another one; so does this. What stays the
/// same keeps its identity. A block that occurs several times is asked about once.
#[pyfunction]
fn transform_postorder<'py>(
    comp: &Bound<'py, PyAny>,
    transform: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let root = unwrap_or_err(comp, "comp")?;
    let made = walk::transform_postorder(&root, |block| call_transform(transform, block));
    pair(comp.py(), made.map_err(PyErr::from)?)
}

/// Replaces each block of a tree by what `transform(block)` says, and looks below those only that
/// it leaves as they are. Otherwise like `transform_postorder`.
#[pyfunction]
fn transform_preorder<'py>(
    comp: &Bound<'py, PyAny>,
    transform: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let root = unwrap_or_err(comp, "comp")?;
    let made = walk::transform_preorder(&root, |block| call_transform(transform, block));
    pair(comp.py(), made.map_err(PyErr::from)?)
}

macro_rules! passes {
    ($($name:ident $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[doc = ""]
            #[doc = "The answer is a pair: the tree, and whether it is another one."]
            #[pyfunction]
            fn $name<'py>(comp: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
                let root = unwrap_or_err(comp, "comp")?;
                pair(comp.py(), passes::$name(&root).py()?)
            }
        )*

        fn register_plain(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
}

passes! {
    replace_called_lambda_with_block
        "Makes each call of a lambda a block: `(x -> f(x))(y)` becomes `(let x=y in f(x))`.";
    remove_unused_block_locals
        "Takes out the locals of blocks that nothing needs, and blocks without locals.";
    merge_chained_selections
        "Takes the field itself where one is selected from a struct that is written out.";
    selections_by_index
        "Selects by position wherever a name is selected: `s.a` becomes `s[0]`.";
}

/// Puts the values of names in their places: `(let v=f(x) in <v,v>)` becomes `<f(x),f(x)>`. With
/// `variable_names`, of these names alone.
///
/// The answer is a pair: the tree, and whether it is another one.
#[pyfunction]
#[pyo3(signature = (comp, variable_names=None))]
fn inline_block_locals<'py>(
    comp: &Bound<'py, PyAny>,
    variable_names: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let root = unwrap_or_err(comp, "comp")?;
    let only = variable_names.map(|names| to_names(names)).transpose()?;
    pair(comp.py(), passes::inline_block_locals(&root, only.as_ref()).py()?)
}

/// Gives everything that is bound a name of its own: `_var1`, `_var2`, ..., or those of the
/// iterator `name_generator`, which must give names that the tree doesn't have.
///
/// The answer is a pair: the tree, and whether it is another one.
#[pyfunction]
#[pyo3(signature = (comp, name_generator=None))]
fn uniquify_reference_names<'py>(
    comp: &Bound<'py, PyAny>,
    name_generator: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let root = unwrap_or_err(comp, "comp")?;
    let made = match name_generator {
        None => {
            let mut names = NameGenerator::new(&root, Some("_var"));
            let fresh = || Ok::<_, Raised>(names.next().expect("names don't end"));
            passes::uniquify_reference_names(&root, fresh)
        }
        Some(names) => {
            let next = names.try_iter()?;
            passes::uniquify_reference_names(&root, || {
                let name = next.call_method0("__next__")?;
                Ok(super::classes::text(&name, "a name of name_generator")?)
            })
        }
    };
    pair(comp.py(), made.map_err(PyErr::from)?)
}

/// A name, or some, as a set.
pub fn to_names(names: &Bound<'_, PyAny>) -> PyResult<FxHashSet<Name>> {
    if let Ok(name) = names.cast::<PyString>() {
        return Ok(FxHashSet::from_iter([Name::from(name.to_str()?)]));
    }
    names.try_iter()?.map(|name| super::classes::text(&name?, "a name")).collect()
}

/// Names that a tree doesn't have: `_var1`, `_var2`, ...
#[pyclass(name = "NameGenerator", module = "stator.federated.framework")]
struct NameGeneratorObject(NameGenerator);

#[pymethods]
impl NameGeneratorObject {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<String> {
        Some(self.0.next()?.to_string())
    }
}

/// An iterator over names that a tree, if one is given, doesn't have: `_var1`, `_var2`, ... If `prefix` is `None` or
/// a name of the tree begins so, three letters after a line stand for it.
#[pyfunction]
#[pyo3(signature = (comp, prefix=Some("_var")))]
fn unique_name_generator(
    comp: &Bound<'_, PyAny>,
    prefix: Option<&str>,
) -> PyResult<NameGeneratorObject> {
    let root = (!comp.is_none()).then(|| unwrap_or_err(comp, "comp")).transpose()?;
    Ok(NameGeneratorObject(NameGenerator::new(root.as_ref(), prefix)))
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_plain(module)?;
    module.add_function(wrap_pyfunction!(transform_postorder, module)?)?;
    module.add_function(wrap_pyfunction!(transform_preorder, module)?)?;
    module.add_function(wrap_pyfunction!(inline_block_locals, module)?)?;
    module.add_function(wrap_pyfunction!(uniquify_reference_names, module)?)?;
    module.add_function(wrap_pyfunction!(unique_name_generator, module)?)
}

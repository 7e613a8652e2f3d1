//! The functions of NumPy's that are nodes: those of its generators, which draw, those that seed them, and
//! what takes a part of an array.

use pyo3::prelude::*;
use stator_cpython::modules;

use super::{Class, Functions, Model};

/// Methods of both kinds of generators. How many numbers they draw their arguments say.
const DRAWS: &str = "rand randn random random_sample randint integers uniform normal standard_normal beta binomial \
    choice dirichlet exponential gamma geometric laplace lognormal multinomial multivariate_normal permutation \
    permuted poisson shuffle standard_exponential standard_gamma triangular";

/// Functions of the module.
const FUNCTIONS: &str = "seed default_rng";

/// Functions that make one number of a list of numbers.
pub const REDUCTIONS: [&str; 6] = ["mean", "std", "var", "median", "max", "min"];

/// Adds them to the table, if there is a NumPy.
pub fn add(py: Python<'_>, functions: &mut Functions) -> PyResult<()> {
    let Ok(module) = modules::import(py, "numpy.random") else { return Ok(()) };
    let mut found = Vec::new();
    for class in ["RandomState", "Generator"] {
        let class = module.getattr(class)?;
        for name in DRAWS.split_whitespace() {
            found.extend(class.getattr_opt(name)?);
        }
    }
    found.push(modules::import(py, "numpy")?.getattr("ndarray")?.getattr("__getitem__")?);
    for name in REDUCTIONS {
        found.extend(modules::import(py, "numpy")?.getattr_opt(name)?);
    }
    for name in FUNCTIONS.split_whitespace() {
        found.extend(module.getattr_opt(name)?);
    }
    for function in found {
        functions.insert(&function, Class::Model(Model::Numpy));
    }
    Ok(())
}

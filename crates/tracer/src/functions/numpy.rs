//! The functions of NumPy's that are nodes: those of its generators, which draw, those that seed them, and
//! those that compute arrays and scalars.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString};
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

use super::{ArrayUse, Class, Functions, Model};

/// Methods of both kinds of generators. How many numbers they draw their arguments say.
const DRAWS: &str = "rand randn random random_sample randint integers uniform normal standard_normal beta binomial \
    choice dirichlet exponential gamma geometric laplace lognormal multinomial multivariate_normal permutation \
    permuted poisson shuffle standard_exponential standard_gamma triangular";

/// Functions of the module.
const FUNCTIONS: &str = "seed default_rng RandomState";

/// Functions that make one number of a list of numbers.
pub const REDUCTIONS: [&str; 6] = ["mean", "std", "var", "median", "max", "min"];

/// Universal functions that give floats, whatever integers they are given.
const FLOATS: &str = "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh \
    true_divide divide arctan2 hypot deg2rad rad2deg degrees radians";

/// Functions of the module that compute elements of elements. Constants among their arguments say where.
const ELEMENTS: &str =
    "clip round around where interp nan_to_num full_like array asarray ascontiguousarray copy";

/// As [`ELEMENTS`]; integers among their arguments say sizes, dimensions or places.
const SIZES: &str = "sum prod amax amin argmax argmin all any ptp cumsum cumprod diff sort argsort dot inner outer \
    trace diag diagonal average zeros ones full zeros_like ones_like arange linspace eye identity concatenate stack \
    vstack hstack column_stack transpose swapaxes reshape ravel squeeze expand_dims flip fliplr flipud roll tile \
    broadcast_to take searchsorted triu tril split array_split hsplit vsplit";

/// Methods of arrays and of scalars, as [`SIZES`].
const METHODS: &str = "mean std var sum prod max min argmax argmin all any cumsum cumprod dot trace diagonal round clip \
    astype copy reshape ravel flatten transpose swapaxes squeeze argsort take __abs__ __neg__";

/// Methods that write to their array.
const WRITERS: &str = "fill sort __setitem__";

/// Functions of the module that write to their first argument, and give nothing.
const WRITING: &str = "put_along_axis put putmask place copyto fill_diagonal";

/// The context variable that NumPy asks what to do about errors, the only one that computing asks. `None`: this version
/// has none by this name.
pub fn error_variable(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let module = modules::import(py, "numpy._core.umath").ok()?;
    module.getattr_opt("_extobj_contextvar").ok().flatten()
}

/// SciPy's matcher of rows with columns, in the module that it is written in.
const MATCHER: [&str; 2] = ["scipy.optimize._lsap", "linear_sum_assignment"];

/// The class of a C function of SciPy's that gives arrays as large as those that it is given say. Nobody loads SciPy to know.
pub fn of_scipy(callable: Borrowed<'_, '_>) -> Option<&'static Class> {
    static COMPUTES: Class = Class::Model(Model::Arrays(ArrayUse::Sizes));
    let [module, name] = MATCHER;
    let is_named = callable.is_exact_instance_of::<PyCFunction>()
        && callable.getattr("__name__").is_ok_and(|own| own.eq(name).unwrap_or(false));
    if !is_named {
        return None;
    }
    let loaded = modules::loaded(callable.py())?;
    let module = loaded.get_item(PyString::intern(callable.py(), module)).ok()??;
    module.getattr(name).is_ok_and(|own| callable.is(&own)).then_some(&COMPUTES)
}

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
    for name in REDUCTIONS {
        found.extend(modules::import(py, "numpy")?.getattr_opt(name)?);
    }
    for name in FUNCTIONS.split_whitespace() {
        found.extend(module.getattr_opt(name)?);
    }
    for function in found {
        functions.insert(&function, Class::Model(Model::Numpy));
    }
    add_array_functions(py, functions)
}

fn add_array_functions(py: Python<'_>, functions: &mut Functions) -> PyResult<()> {
    let numpy = modules::import(py, "numpy")?;
    let mut add = |owner: &Bound<'_, PyAny>, names: &str, what| -> PyResult<()> {
        for name in names.split_whitespace() {
            if let Some(function) = owner.getattr_opt(name)? {
                functions.insert_new(&function, Class::Model(Model::Arrays(what)));
            }
        }
        Ok(())
    };
    let ufunc = numpy.getattr("ufunc")?;
    add(&ufunc, "at", ArrayUse::Writes)?;
    for (name, function) in numpy.dict() {
        let is_one = function.get_type().is(&ufunc)
            && function.getattr("nout")?.extract::<usize>()? == 1
            && function.getattr("nin")?.extract::<usize>()? <= 2;
        if is_one {
            let is_float = FLOATS.split_whitespace().any(|float| name.eq(float).unwrap_or(false));
            let what = if is_float { ArrayUse::Floats } else { ArrayUse::Elements };
            let name = name.extract::<String>()?;
            add(&numpy, &name, what)?;
        }
    }
    add(&numpy, ELEMENTS, ArrayUse::Elements)?;
    add(&numpy, SIZES, ArrayUse::Sizes)?;
    add(&numpy, WRITING, ArrayUse::Writes)?;
    add(&numpy, "float64 float32 float16", ArrayUse::Floats)?;
    add(&numpy, "int8 int16 int32 int64 uint8 uint16 uint32 uint64", ArrayUse::Elements)?;
    for owner in ["ndarray", "generic"] {
        let owner = numpy.getattr(owner)?;
        add(&owner, METHODS, ArrayUse::Sizes)?;
        add(&owner, "item", ArrayUse::Number)?;
        add(&owner, "tolist", ArrayUse::List)?;
    }
    add(&numpy.getattr("ndarray")?, WRITERS, ArrayUse::Writes)
}

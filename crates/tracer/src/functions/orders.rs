//! `random.shuffle`, `random.sample` and `random.choices`. Each of their draws says which element comes next, so a trace of their
//! code would be one for an order. Where the elements are numbers a Python function is traced in their place, which has one
//! call draw all of them: what that gives is carried. Elsewhere they are called as a whole, behind a break.
//!
//! What is asked here decides which function is traced. That one calls the library's, so it does the same.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyRange, PyTuple};
use stator_cpython::heap::twister;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::{self, Named};
use stator_cpython::object::{Borrowed, Object};

use super::python::{Asked, KnownFunction};
use super::{Class, Functions, Model};

/// What is traced in their place. `drawn` is the function below.
const SOURCE: &std::ffi::CStr = c"
class Random:
    def shuffle(self, x):
        x[:] = drawn(self, 'shuffle', [*x])

    def sample(self, population, k, *, counts=None):
        if type(population) is not range:
            return drawn(self, 'sample', [*population], k)
        start, step = population.start, population.step
        return [start + step * at for at in drawn(self, 'sample', len(population), k)]

    def choices(self, population, weights=None, *, cum_weights=None, k=1):
        if cum_weights is not None:
            len(cum_weights)
        if weights is not None:
            k = weights
            raise TypeError(f'The number of choices must be a keyword argument: {k=}')
        if type(population) is not range:
            return drawn(self, 'choices', [*population], k)
        start, step = population.start, population.step
        return [start + step * at for at in drawn(self, 'choices', len(population), k)]
";

/// So many numbers are carried at most.
const MOST: usize = 256;

/// The orders of so many elements are ways that a trace may go.
const FEW: usize = 4;

static RANDOM: Named = Named::new("random", "Random");

/// Adds them to the table.
///
/// # Errors
/// If something isn't where Python has it.
pub(super) fn add(py: Python<'_>, functions: &mut Functions) -> PyResult<()> {
    let instead = PyModule::from_code(py, SOURCE, c"<stator>", c"_stator_random")?;
    let function = wrap_pyfunction!(drawn, py)?;
    instead.setattr("drawn", &function)?;
    functions.insert_new(function.as_any(), Class::Model(Model::Order));
    let instead = instead.getattr("Random")?;
    let library = modules::import(py, "random")?.getattr("__file__")?;
    let methods: [(&str, Asked); 3] =
        [("shuffle", shuffles_numbers), ("sample", samples_numbers), ("choices", chooses_numbers)];
    for (name, gives_numbers) in methods {
        let known = RANDOM.get(py)?.getattr(name)?;
        let Some(code) = known.getattr_opt("__code__")? else { continue };
        if code.getattr("co_filename")?.eq(&library)? {
            let known = KnownFunction::new(&known, &code).replaced_by(instead.getattr(name)?);
            functions.replace(known.only_for(gives_numbers).whole_for(orders_many));
        }
    }
    Ok(())
}

/// Numbers as one of the library's functions takes them from what it is given. In place of a range there is its length.
#[pyfunction]
#[pyo3(signature = (generator, method, items, count = None))]
fn drawn<'py>(
    generator: &Object<'py>,
    method: &str,
    items: &Object<'py>,
    count: Option<usize>,
) -> PyResult<Object<'py>> {
    let py = generator.py();
    let _native = Suspended::new(py);
    let function = RANDOM.get(py)?.getattr(method)?;
    let Some(count) = count else {
        let list = items.cast::<PyList>()?.get_slice(0, usize::MAX >> 1).into_any();
        function.call1((generator, &list))?;
        return Ok(list);
    };
    let population = match items.extract::<isize>() {
        Ok(length) => PyRange::new(py, 0, length)?.into_any(),
        Err(_) => items.clone(),
    };
    let counted = PyDict::new(py);
    counted.set_item("k", count)?;
    function.call((generator, population), Some(&counted))
}

/// What a call of a generator's method is given behind that; `None`: the generator may do something else.
fn given<'a, 'b, 'py>(args: &'a [Borrowed<'b, 'py>]) -> Option<&'a [Borrowed<'b, 'py>]> {
    let (generator, given) = args.split_first()?;
    let class = RANDOM.get(generator.py()).ok()?;
    (generator.get_type().is(class) && twister::is_known(*generator)).then_some(given)
}

fn shuffles_numbers(args: &[Borrowed<'_, '_>]) -> bool {
    let Some([list]) = given(args) else { return false };
    list.is_exact_instance_of::<PyList>() && numbers(*list).is_some_and(|count| count > 1)
}

fn samples_numbers(args: &[Borrowed<'_, '_>]) -> bool {
    let Some([elements, count]) = given(args) else { return false };
    let most = numbers(*elements).unwrap_or(0);
    how_many(*count).is_some_and(|count| count <= most)
}

fn chooses_numbers(args: &[Borrowed<'_, '_>]) -> bool {
    let Some([elements, rest @ ..]) = given(args) else { return false };
    let is_counted = match rest {
        [] => true,
        [count] => how_many(*count).is_some(),
        _ => false,
    };
    is_counted && numbers(*elements).is_some_and(|count| count > 0)
}

/// How many are drawn, if that isn't too many.
fn how_many(count: Borrowed<'_, '_>) -> Option<usize> {
    let is_int = count.is_exact_instance_of::<PyInt>();
    is_int.then(|| count.extract().ok()).flatten().filter(|count| *count <= MOST)
}

/// How many elements there are; `None`: they aren't numbers, or too many.
fn numbers(elements: Borrowed<'_, '_>) -> Option<usize> {
    if let Ok(range) = elements.cast_exact::<PyRange>() {
        return range.len().ok();
    }
    let items: Vec<_> = match (elements.cast_exact::<PyList>(), elements.cast_exact::<PyTuple>()) {
        (Ok(list), _) if list.len() <= MOST => list.iter().collect(),
        (_, Ok(tuple)) if tuple.len() <= MOST => tuple.iter().collect(),
        _ => return None,
    };
    let is_int =
        |item: &Object<'_>| item.is_exact_instance_of::<PyInt>() && item.extract::<i64>().is_ok();
    let are_numbers =
        items.iter().all(is_int) || items.iter().all(|item| item.is_exact_instance_of::<PyFloat>());
    are_numbers.then_some(items.len())
}

/// Whether there are more orders than anybody wants traces of.
fn orders_many(args: &[Borrowed<'_, '_>]) -> bool {
    static DEQUE: Named = Named::new("collections", "deque");
    given(args).and_then(<[_]>::first).is_some_and(|elements| {
        let is_plain = elements.is_exact_instance_of::<PyList>()
            || elements.is_exact_instance_of::<PyTuple>()
            || DEQUE.is(elements.get_type().as_any().as_borrowed());
        is_plain && elements.len().is_ok_and(|length| length > FEW)
    })
}

//! Sizes that data decides, in tensor programs (`data_sizes.rs`), and numbers that they read from tensors.
//!
//! A program has no ways out, so nothing is decided of them and nothing assumed: its operations are PyTorch's own, which do
//! in each run what they do for the sizes that there are. What an operation gives has the sizes that its shape rule
//! says, if that needs no assumption, and otherwise sizes that are its own. Where it would have more or fewer
//! results, or dimensions, for other sizes, the function can't be one program.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PySlice, PyTuple};
use stator_cpython::heap::tensor::{self, TensorInfo};
use stator_cpython::object::{Borrowed, Object};
use stator_operators::torch::last_part;
use stator_shapes::ExprId;

use super::data_sizes::{SizedBy, has_no_result};
use super::dimensions::Given;
use super::read_tensors::single;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::notes::symbols::{MaskKey, Number, NumberId};

/// Operations whose results have as many dimensions as there are sizes other than 1.
const RANKED: &[&str] = &["squeeze", "squeeze_"];

/// Stands for a number that is read: as a bound or a size it leaves something of most tensors.
const READ: i32 = 2;

/// Where the one mask of an index stands among the dimensions, and it: behind slices of all elements.
pub(super) fn one_mask<'py>(index: Borrowed<'_, 'py>) -> (usize, Object<'py>) {
    let parts = heap::tuple_items(index);
    let at = parts.iter().position(|part| tensor::is_tensor(part.as_borrowed()));
    match at {
        Some(at) => (at, parts[at].clone()),
        None => (0, index.to_owned()),
    }
}

/// Whether a part of an index stands for all of a dimension.
fn is_whole(part: &Object<'_>) -> bool {
    let Ok(slice) = part.cast::<PySlice>() else { return false };
    ["start", "stop", "step"].iter().all(|name| slice.getattr(*name).is_ok_and(|it| it.is_none()))
}

impl Recorder {
    /// Whether an operation of a program whose results' sizes data decides is a node.
    pub(super) fn goes_on_in_program(&self, problem: &Stop, sized: SizedBy) -> bool {
        let goes_on = problem.0 == Reason::DynamicOutput && !self.is_stopped();
        if goes_on {
            self.sized.set(Some(sized));
        }
        goes_on
    }

    /// What is known of a tensor with one element, which can be read. Those of programs have no data.
    pub(super) fn one_element(&self, tensor: Borrowed<'_, '_>) -> Option<TensorInfo> {
        match self.session.program {
            Some(_) => tensor::info(tensor).filter(|info| info.sizes.iter().all(|size| *size == 1)),
            None => single(tensor),
        }
    }

    /// A number in the place of the one that a program reads from a tensor, by one of its methods. Nothing is known of that, so
    /// nothing may be decided by it.
    pub(super) fn stand_in_for_read<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        tensor: Borrowed<'_, '_>,
    ) -> Option<Object<'py>> {
        let is_float = matches!(tensor::info(tensor)?.dtype, 5..=7 | 15);
        Some(match method {
            "__int__" => PyInt::new(py, READ).into_any(),
            "item" if !is_float => PyInt::new(py, READ).into_any(),
            _ => PyFloat::new(py, READ as f64).into_any(),
        })
    }

    /// An index with the first place for each that data says: a program's tensors have none of these, and an item has the
    /// same sizes wherever it is.
    pub(in crate::recorder) fn index_without_data<'py>(
        &self,
        index: Borrowed<'_, 'py>,
    ) -> Object<'py> {
        match self.session.program {
            Some(_) => first_for_data(&mut self.state.borrow_mut(), index),
            None => index.to_owned(),
        }
    }

    /// Whether an index of a program's consists of one mask, beside slices of all elements.
    pub(super) fn has_one_mask(&self, index: Borrowed<'_, '_>) -> bool {
        if self.session.program.is_none() || !index.is_exact_instance_of::<PyTuple>() {
            return false;
        }
        let parts = heap::tuple_items(index);
        let (masks, others): (Vec<_>, Vec<_>) =
            parts.iter().partition(|part| tensor::is_tensor(part.as_borrowed()));
        masks.len() == 1 && others.into_iter().all(is_whole)
    }
}

fn first_for_data<'py>(state: &mut State, index: Borrowed<'_, 'py>) -> Object<'py> {
    let py = index.py();
    if heap::is_plain_tuple(index) {
        let parts = heap::tuple_items(index);
        let parts = parts.iter().map(|part| first_for_data(state, part.as_borrowed()));
        let parts: Vec<_> = parts.collect();
        return PyTuple::new(py, parts).map_or_else(|_| index.to_owned(), Bound::into_any);
    }
    match state.number(index) {
        Some(id) if state.is_of_data(id) => PyInt::new(py, 0).into_any(),
        _ => index.to_owned(),
    }
}

impl State {
    /// Whether data decides an integer.
    fn is_of_data(&self, id: NumberId) -> bool {
        match self.number_of(id) {
            Number::Integer(expr) => {
                self.symbols.as_ref().is_some_and(|symbols| symbols.is_data_sized(expr))
            }
            Number::Read(is_float) => !is_float,
            Number::Float(_) => false,
        }
    }

    /// Which mask a tensor of a program is, as it is now.
    pub(super) fn mask_in_program(&self, mask: Borrowed<'_, '_>) -> Option<MaskKey> {
        let (Some(_), Some(Origin::Node(node))) = (&self.program, self.origin(mask)) else {
            return None;
        };
        Some((node, tensor::info(mask)?.version?))
    }

    /// How many elements a mask has chosen before.
    pub(super) fn size_by_mask(&self, mask: MaskKey) -> Option<ExprId> {
        self.symbols.as_ref()?.data_sizes.masks.get(&mask).copied()
    }

    /// How many elements a mask chooses.
    pub(super) fn note_size_by_mask(&mut self, mask: MaskKey, size: ExprId) {
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.data_sizes.masks.insert(mask, size);
        }
    }

    /// Gives the results of an operation of a program their sizes, where data decides some that it was given.
    pub(in crate::recorder) fn infer_in_program(
        &mut self,
        name: &str,
        given: &Given<'_>,
        result: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        let base = last_part(name);
        if has_no_result(base) {
            return Ok(());
        }
        let Some(before) = self.symbols.as_ref().map(|symbols| symbols.context.clone()) else {
            return Ok(());
        };
        let results = self.result_tensors(result);
        let inferred = self.inferred(name, given, result, &results);
        let symbols = self.symbols.as_mut().expect("there were some");
        let added = symbols.context.take_added();
        let assumes = added
            .iter()
            .flat_map(|fact| symbols.context.parts(*fact))
            .any(|fact| symbols.asks_data(&symbols.context, fact));
        if let Some(Ok(sizes)) = inferred
            && !assumes
            && self.fits(&sizes, &results)
        {
            for (sizes, tensor) in sizes.into_iter().zip(&results) {
                if let Some(key) = self.tensor_key(tensor.as_borrowed()) {
                    self.set_sizes(key, sizes);
                }
            }
            self.log_conditions(result.py(), added, None);
            return Ok(());
        }
        self.symbols.as_mut().expect("there were some").context = before;
        let is_row = heap::is_exact_list(result) || result.is_exact_instance_of::<PyTuple>();
        if is_row || RANKED.contains(&base) {
            return Err((Reason::DynamicOutput, format!("{name} of what data has sized")));
        }
        self.begin_data_sizes(SizedBy::All, &[], result)
    }
}

//! Which indices of a tensor depend on data.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor::info;
use stator_cpython::object::Borrowed;
use stator_cpython::{Result, ops};
use stator_operators::Determined;

use crate::breaks::Reason;
use crate::functions::Operation;
use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::numbers::tensors::holds_tensor;

/// Why indexing a tensor with `index` depends on data: boolean masks do, and tensors in slices.
/// With `stores`, masks are fine: the result has the indexed tensor's shape.
pub fn index_depends_on_data(state: &mut State, index: Borrowed<'_, '_>) -> Option<Stop> {
    index_problem(state, index, false)
}

/// As [`index_depends_on_data`] for an assignment, where masks are fine.
pub fn store_depends_on_data(state: &mut State, index: Borrowed<'_, '_>) -> Option<Stop> {
    index_problem(state, index, true)
}

/// Why a slice that isn't a constant can't be an index: C code asks its bounds for numbers.
pub fn slice_problem(state: &mut State, slice: Borrowed<'_, '_>) -> Stop {
    if holds_tensor(state, slice) {
        (Reason::DataRead, "a slice bounded by a tensor".into())
    } else {
        (Reason::Unsupported, "a slice bounded by an object".into())
    }
}

fn index_problem(state: &mut State, index: Borrowed<'_, '_>, stores: bool) -> Option<Stop> {
    let mask = || Some((Reason::DynamicOutput, "indexing with a boolean mask".to_string()));
    if state.holds_read(index) {
        return Some((Reason::DataRead, "a number that was read from one, as index".into()));
    }
    match state.kind(index) {
        Kind::Tensor => {
            let info = info(index)?;
            // c10::ScalarType: 0 is uint8 and 11 is bool, both masks.
            if matches!(info.dtype, 0 | 11) && !stores { mask() } else { None }
        }
        Kind::List | Kind::Tuple => {
            let held = (Reason::Unsupported, "an index that holds itself".to_owned());
            state.once(index, Some(held), |state| {
                let parts = heap::sequence_items(index);
                parts.iter().find_map(|part| index_problem(state, part.as_borrowed(), stores))
            })
        }
        Kind::Constant => None,
        Kind::Slice => Some(slice_problem(state, index)),
        Kind::Opaque if state.is_array_value(index) => match heap::array_kind(index) {
            Some('i' | 'u') => None,
            Some('b') if stores => None,
            Some('b') => mask(),
            _ => Some((Reason::Unsupported, "an index of an unknown type".into())),
        },
        _ => Some((Reason::Unsupported, "an index of an unknown type".into())),
    }
}

impl Recorder {
    /// `number in tensor`, as [`Recorder::answered`].
    pub(in crate::recorder) fn answered_search<'py>(
        &self,
        frame: &Frame<'py>,
        tensor: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Option<Result<bool>> {
        let name = pyo3::intern!(frame.py(), "__contains__").as_any().as_borrowed();
        let method = self.lookup(frame, &tensor.get_type(), name)?;
        let determined = Determined::Answer;
        let operation = Operation { name: "__contains__".into(), is_method: true, determined };
        let args = [tensor, item];
        let call = Call::new(frame, method.as_borrowed(), &args);
        let found = self.answered(&operation, call)?;
        Some(found.and_then(|found| ops::truth(found.as_borrowed())))
    }
}

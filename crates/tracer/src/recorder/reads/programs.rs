//! What is read in the trace of a tensor program: gradients of its own tensors, items by numbers that are tensors.

use pyo3::prelude::*;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::object::{Borrowed, Object};

use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};

impl Recorder {
    /// The gradient of a tensor of the trace, which the trace made; and what may be put there.
    pub(in crate::recorder) fn is_known_gradient(&self, value: Borrowed<'_, '_>) -> bool {
        self.session.program.is_some() && matches!(self.origin(value), Some(Origin::Node(_)))
    }

    /// Whether a tensor is one of the trace's own, where a program is traced.
    pub(in crate::recorder) fn is_stand_in(&self, tensor: Borrowed<'_, '_>) -> bool {
        self.session.program.as_ref().is_some_and(|rules| rules.is_stand_in(tensor))
    }

    /// An array from outside, for what NumPy code does with it, as an array of the program's; `None`: the object is no
    /// such array.
    pub(in crate::recorder) fn own_array<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let rules = self.session.program.as_ref()?;
        if !rules.is_numpy() || !heap::is_array(object) || heap::type_name(object) != "ndarray" {
            return None;
        }
        let convert = rules.array_function(frame.py());
        self.vouch(frame, convert.as_borrowed());
        Some(self.call_object(Call::new(frame, convert.as_borrowed(), &[object])))
    }

    /// What gives an item of a tensor whose index says a position by a tensor without dimensions: as an
    /// operation the position would be read.
    pub(in crate::recorder) fn item_by_number<'py>(
        &self,
        py: Python<'py>,
        key: Borrowed<'_, 'py>,
        is_store: bool,
    ) -> Option<Object<'py>> {
        let rules = self.session.program.as_ref()?;
        if self.is_stopped() || !holds_number(&mut self.state.borrow_mut(), key) {
            return None;
        }
        Some(rules.item_function(py, is_store))
    }
}

/// Whether an index is, or has as a part, an integer that is a tensor without dimensions; as a bound of a slice, too.
fn holds_number(state: &mut State, key: Borrowed<'_, '_>) -> bool {
    match state.kind(key) {
        // c10::ScalarType: int8, int16, int32, int64. Others are masks.
        Kind::Tensor => tensor::info(key)
            .is_some_and(|info| info.sizes.is_empty() && matches!(info.dtype, 1..=4)),
        Kind::Tuple => {
            heap::tuple_items(key).iter().any(|part| holds_number(state, part.as_borrowed()))
        }
        Kind::Slice => {
            heap::plain_parts(key).iter().any(|part| holds_number(state, part.as_borrowed()))
        }
        _ => false,
    }
}

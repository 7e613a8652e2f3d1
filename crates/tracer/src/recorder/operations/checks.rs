//! `torch._check_tensor_all` and `torch._check_tensor_all_with`: one node, which raises if an element is false.
//!
//! A replay in which it raises is undone, and the call runs natively; or the replay leaves by an exit, and the check
//! is made natively. So the node says nothing of the error's class and message, which plain Python makes.

use stator_cpython::Result;
use stator_cpython::heap::tensor;
use stator_cpython::modules::Named;
use stator_cpython::object::Object;

use crate::functions::{Determined, Operation};
use crate::raises::CHECK;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Operations};
use crate::recorder::notes::call::{Call, argument};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;

/// The node's function, in `torch`.
const FUNCTION: &str = "_check_tensor_all";
/// `c10::ScalarType`.
const BOOL: i32 = 11;

impl Recorder {
    /// A check of all elements of a tensor.
    pub(in crate::recorder) fn check_tensor<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let py = frame.py();
        let place = usize::from(heap::callable_name(callable) != FUNCTION);
        let condition = argument(args, names, place, "cond");
        static CHECK_ALL: Named = Named::new("torch", FUNCTION);
        let check = CHECK_ALL.get(py);
        // What other backends make of such a node, nobody knows.
        let (Some(condition), Ok(check)) = (condition, check) else {
            return self.call_python(call);
        };
        let is_bools = self.kind(condition) == Kind::Tensor
            && tensor::info(condition).is_some_and(|info| info.dtype == BOOL);
        if !is_bools || !self.session.is_replayed() {
            return self.call_python(call);
        }
        let operation =
            Operation { name: CHECK.into(), is_method: false, determined: Determined::Always };
        let target = |state: &mut State| operation.target(state, check.as_borrowed());
        self.operation(frame, target, &[condition], None, || call.natively())
    }
}

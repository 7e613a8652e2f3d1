//! `Counter.update` of a counter from outside: the C function that counts for it.
//!
//! It reads and writes the counter's slots, one by one, as the same loop in Python does. So they are read and written here
//! like that: only the slots of what is counted are guarded, and a replay writes only these.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stator_cpython::Result;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::BinaryOp;

use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::Origin;

/// So many elements are counted one by one at most.
const MOST: usize = 256;

impl Recorder {
    /// `None`: it's another function, or counts in another way.
    pub(super) fn count_elements<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let &[counter, elements] = args else { return None };
        // Nothing is read of what isn't a counter.
        let [kind, of_elements] =
            [counter, elements].map(|object| self.state.borrow_mut().kind_alone(object));
        if kind != Kind::Dict
            || self.origin(counter) == Some(Origin::Fresh)
            || heap::callable_name(callable) != "_count_elements"
        {
            return None;
        }
        let py = frame.py();
        // C code asks the counter itself only if its class has others.
        let ty = counter.get_type();
        let base = py.get_type::<PyDict>();
        for name in [pyo3::intern!(py, "get"), pyo3::intern!(py, "__setitem__")] {
            let own = self.lookup(frame, &ty, name.as_any().as_borrowed())?;
            if !base.getattr(name).is_ok_and(|plain| plain.is(&own)) {
                return None;
            }
        }
        let keys = match of_elements {
            Kind::List if heap::is_exact_list(elements) => heap::list_items(elements),
            Kind::Tuple => heap::tuple_items(elements),
            Kind::Constant => Vec::new(),
            _ => return None,
        };
        let is_constant = |key: &Object<'py>| heap::is_constant(key.as_borrowed());
        let count = elements.len().ok().filter(|count| *count <= MOST)?;
        if !keys.iter().all(is_constant) {
            return None;
        }
        let iterator = match self.iterate(frame, elements) {
            Ok(iterator) => iterator,
            Err(raised) => return Some(Err(raised)),
        };
        let mut keys = Vec::with_capacity(count);
        loop {
            match self.advance(frame, iterator.as_borrowed()) {
                Ok(Some(key)) => keys.push(key),
                Ok(None) => break,
                Err(raised) => return Some(Err(raised)),
            }
        }
        if self.is_stopped() || !keys.iter().all(is_constant) {
            return None;
        }
        let get = base.getattr(pyo3::intern!(py, "get")).ok()?;
        let counted = keys.iter().try_for_each(|key| {
            self.count_one(call, counter, get.as_borrowed(), key.as_borrowed())
        });
        Some(counted.map(|()| py.None().into_bound(py)))
    }

    fn count_one<'py>(
        &self,
        call: Call<'_, 'py>,
        counter: Borrowed<'_, 'py>,
        get: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<()> {
        let (frame, py) = (call.frame, call.frame.py());
        let number = |number: u8| number.into_pyobject(py).map(Bound::into_any);
        let (Ok(none), Ok(one)) = (number(0), number(1));
        let before = [counter, key, none.as_borrowed()];
        let before = self.call_object(Call::new(frame, get, &before))?;
        let after =
            self.binary_op(frame, BinaryOp::Add, before.as_borrowed(), one.as_borrowed())?;
        self.set_item(frame, counter, key, Some(after.as_borrowed()))
    }
}

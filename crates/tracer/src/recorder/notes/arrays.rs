//! What a trace knows of NumPy's arrays.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::SourceId;

use super::heap;
use super::kinds::Kind;
use super::state::{Origin, State};

/// What a trace knows of arrays and scalars of NumPy's.
#[derive(Default)]
pub struct Arrays {
    /// Those that nodes gave: nothing else comes to their addresses.
    pub(in crate::recorder) kept: Vec<Py<PyAny>>,
    /// Universal functions that are guarded by identity: `np.add` of `np.add.at`.
    pub(in crate::recorder) universal: FxHashSet<usize>,
    /// Those from outside whose facts were decided.
    pub(in crate::recorder) known: FxHashSet<SourceId>,
    /// Whether the trace has come upon one.
    met: bool,
    /// Containers that hold none, by address. As long as the trace hasn't come upon one, it puts none into them either.
    without: FxHashSet<usize>,
}

impl State {
    /// Whether an object is an array or a scalar of NumPy's that the graph may have.
    pub fn is_array_value(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.kind(object) == Kind::Opaque
            && matches!(self.origin(object), Some(Origin::Handle(_) | Origin::Source(_)))
            && heap::is_array(object)
    }

    /// An array or a scalar of NumPy's that a builtin container holds, however deep. Its number is in no guard, so C code that
    /// looks at what the container holds would read what nobody knows.
    pub fn array_within<'py>(&mut self, container: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        let is_known = |state: &Self, part: Borrowed<'_, '_>| {
            let Arrays { kept, met, without, .. } = &state.arrays;
            !met && kept.is_empty() && without.contains(&(part.as_ptr() as usize))
        };
        let holds_none = matches!(
            self.kind_alone(container),
            Kind::Constant
                | Kind::Tensor
                | Kind::Function
                | Kind::Builtin
                | Kind::Method
                | Kind::Type
                | Kind::Module
                | Kind::Singleton
                | Kind::Cell
                | Kind::Code
        );
        if holds_none || is_known(self, container) {
            return None;
        }
        let mut waiting = parts(container);
        // A container of others only: most hold none.
        let mut seen = FxHashSet::default();
        while let Some(part) = waiting.pop() {
            match self.kind_alone(part.as_borrowed()) {
                Kind::Opaque if heap::is_array(part.as_borrowed()) => return Some(part),
                Kind::List
                | Kind::Tuple
                | Kind::Dict
                | Kind::Set
                | Kind::FrozenSet
                | Kind::Object
                    if !part.is(&*container)
                        && !is_known(self, part.as_borrowed())
                        && seen.insert(part.as_ptr() as usize) =>
                {
                    waiting.extend(parts(part.as_borrowed()));
                }
                _ => {}
            }
        }
        self.arrays.without.extend(seen);
        self.arrays.without.insert(container.as_ptr() as usize);
        None
    }

    /// An object is opaque: whether it's the first array that the trace comes upon.
    #[cold]
    pub(super) fn meet_opaque(&mut self, object: Borrowed<'_, '_>) {
        if !self.arrays.met && heap::is_array(object) {
            self.arrays.met = true;
        }
    }
}

/// What a container of a builtin type holds, keys and all.
fn parts<'py>(container: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if heap::is_deque(container) {
        return heap::elements(container);
    }
    let held = heap::plain_parts(container);
    if held.is_empty() { heap::view_items(container).unwrap_or_default() } else { held }
}

//! What C code calls back: `map(d.get, xs)`, `filter(pattern.match, xs)`, `sorted(xs, key=len)`.
//!
//! Python functions are traced where they run. Functions and methods of C types run unseen: what they read has to be known, or is
//! guarded before.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::Borrowed;

use crate::breaks::Reason;
use crate::disabled;
use crate::functions::{Class, Model};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Looks};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;

/// Functions of the table's transparent class that call nothing they are given in their places.
const FOLDS: &[&str] = &["all", "any", "max", "min", "sorted", "sum"];

/// Methods of builtin containers that only read them.
const ASKS: &[&str] = &["__contains__", "__getitem__", "count", "get", "index"];

impl Recorder {
    /// C code may call this argument back: the trace ends if what that reads or does isn't known.
    pub(super) fn guard_called_back(&self, frame: &Frame<'_>, argument: Borrowed<'_, '_>) {
        if self.is_stopped() {
            return;
        }
        if let Some(why) = disabled::reason(argument) {
            return self.stop(frame, Reason::Disabled, why);
        }
        let fine = match self.kind(argument) {
            _ if self.is_marked(argument) => false,
            Kind::Builtin => match self.functions.class(argument) {
                class if let Some((receiver, _)) = heap::bound_parts(argument) => {
                    self.may_ask(frame, argument, class, receiver.as_borrowed())
                }
                Some(Class::Pure | Class::Operation(_) | Class::StateRead) => true,
                Some(Class::Transparent) => {
                    heap::is_named(argument, FOLDS) || makes_dictionaries(argument)
                }
                Some(Class::Model(model)) => matches!(
                    model,
                    Model::Len
                        | Model::Scalar
                        | Model::Binary(_)
                        | Model::Unary(_)
                        | Model::Compare(_)
                        | Model::IsInstance
                ),
                _ => false,
            },
            Kind::Function => !self.functions.is_tensor_hash(argument),
            // Bound by the evaluator: the receiver's state is what the method reads.
            Kind::Method => {
                let (function, receiver) = heap::method_parts(argument);
                self.kind(function.as_borrowed()) != Kind::Builtin
                    || self.is_own(receiver.as_borrowed())
            }
            Kind::Partial => {
                let (function, ..) = heap::partial_parts(argument);
                self.guard_called_back(frame, function.as_borrowed());
                true
            }
            Kind::Object => {
                let ty = argument.get_type();
                let own = types::slot(ty.as_borrowed(), types::SlotName::Call);
                own != types::Slot::Native || heap::type_name(argument) == "itemgetter"
            }
            _ => true,
        };
        if !fine {
            let detail = format!("{} called by C code", heap::name_of(argument));
            self.stop(frame, Reason::OpaqueCall, detail);
        }
    }

    /// Whether C code may call a method of a C type: it reads what the trace knows, or what is guarded here.
    fn may_ask(
        &self,
        frame: &Frame<'_>,
        method: Borrowed<'_, '_>,
        class: Option<&Class>,
        receiver: Borrowed<'_, '_>,
    ) -> bool {
        if self.is_own(receiver) {
            return true;
        }
        match self.kind(receiver) {
            // A compiled pattern: its methods' answers follow from it and from what they are given.
            Kind::Singleton => {
                types::is_immutable(receiver.get_type().as_borrowed())
                    && matches!(class, Some(Class::Pure))
            }
            Kind::Dict | Kind::List | Kind::Tuple | Kind::Set | Kind::FrozenSet => {
                let is_exact = types::is_immutable(receiver.get_type().as_borrowed());
                let reads = is_exact && ASKS.contains(&heap::callable_name(method).as_ref());
                reads && self.note(frame, |state| state.adopt_deep(receiver)).is_some()
            }
            _ => false,
        }
    }
}

/// Whether this is `dict.fromkeys`: what it makes is new, and of what it is given it reads the keys.
fn makes_dictionaries(callable: Borrowed<'_, '_>) -> bool {
    heap::is_named(callable, &["fromkeys"])
        && heap::bound_class_method(callable)
            .is_some_and(|(class, _)| class.is(callable.py().get_type::<PyDict>()))
}

//! Abstract base classes: what `isinstance` says of them depends on registrations, in a table that
//! only grows.

use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefMethods, PyWeakrefReference};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::abc;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Looks};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};

impl Recorder {
    /// Guards what `isinstance(object, class)` may ask of registrations, and `issubclass`.
    pub(in crate::recorder) fn guard_registrations(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, '_>,
        classes: &[Object<'_>],
    ) {
        // An instance of the very class is one, whatever its metaclass says.
        let asks = |class: &Object<'_>| {
            !object.get_type().is(class) && has_registrations(&class.get_type())
        };
        if classes.iter().any(asks) {
            self.note(frame, State::guard_abstract_classes);
        }
    }

    /// `_abc_instancecheck(class, instance)` and `_abc_subclasscheck(class, other)`, which a metaclass's Python code has
    /// called. The class remembers the answer until another class is registered, so hooks that give it are asked once,
    /// and what they read and write is no part of a replay.
    pub(in crate::recorder) fn abstract_check<'py>(
        &self,
        call: Call<'_, 'py>,
        [class, asked]: [Borrowed<'_, 'py>; 2],
    ) -> Result<Object<'py>> {
        let frame = call.frame;
        self.note(frame, |state| {
            state.adopt_deep(class)?;
            match state.kind(asked) {
                Kind::Opaque if !state.is_array_value(asked) => {
                    Err((Reason::Unsupported, heap::type_name(asked)))
                }
                _ => state.guard_abstract_classes(),
            }
        });
        self.guard_protocol(frame, asked, &["__class__"]);
        let checks = ["__subclasscheck__"];
        self.guard_protocol_of(frame, class, &checks);
        let result = {
            let _native = Suspended::new(frame.py());
            call.natively()
        };
        let is_instance = heap::is_named(call.callable, &["_abc_instancecheck"]);
        let ty = if is_instance { asked.get_type().into_any() } else { asked.to_owned() };
        if !remembers(class, &ty, result.as_ref().ok()).unwrap_or(false) {
            self.stop(
                frame,
                Reason::OpaqueCall,
                "an abstract class that doesn't remember its answer",
            );
        }
        result
    }
}

/// Whether an abstract class knows of this type, and says what it said.
fn remembers(
    class: Borrowed<'_, '_>,
    ty: &Object<'_>,
    answer: Option<&Object<'_>>,
) -> Option<bool> {
    static DUMP: Named = Named::new("_abc", "_get_dump");
    let known = DUMP.get(class.py()).ok()?.call1((class,)).ok()?;
    // The registered, those that are subclasses, those that aren't.
    let place = if answer?.is_truthy().ok()? { 1 } else { 2 };
    let known = known.get_item(place).ok()?;
    let is_it = |reference: PyResult<Object<'_>>| {
        let reference = reference.ok()?.cast_into::<PyWeakrefReference>().ok()?;
        Some(reference.upgrade()?.is(ty))
    };
    Some(known.try_iter().ok()?.any(|reference| is_it(reference).unwrap_or(false)))
}

impl State {
    /// Guards that no class was registered with an abstract class since.
    pub fn guard_abstract_classes(&mut self) -> std::result::Result<(), Stop> {
        if !self.lookups.first_abstract() {
            return Ok(());
        }
        let unreadable = || (Reason::Unsupported, "an abstract class".to_string());
        let count = Python::attach(abc::registrations).ok_or_else(unreadable)?;
        let source = self.sources.intern(Source::GlobalState);
        self.guard(source, GuardKind::AbstractClasses(count));
        Ok(())
    }
}

/// Whether a metaclass may answer by what was registered: all but those known not to.
fn has_registrations(meta: &Bound<'_, PyType>) -> bool {
    if stator_cpython::heap::types::is_immutable(meta.as_borrowed()) {
        return false;
    }
    !asks_type(meta)
}

fn full_name(meta: &Bound<'_, PyType>) -> String {
    meta.fully_qualified_name().map_or_else(|_| String::new(), |name| name.to_string())
}

/// Whether a metaclass has an `__instancecheck__` that depends on types alone, and no registrations.
fn asks_type(meta: &Bound<'_, PyType>) -> bool {
    static USUAL: [Named; 3] = [
        Named::new("enum", "EnumType"),
        Named::new("torch._C", "_TensorMeta"),
        Named::new("torch.nn.parameter", "_ParameterMeta"),
    ];
    let class = meta.as_any().as_borrowed();
    USUAL.iter().any(|usual| usual.is(class)) || full_name(meta).starts_with("torch.")
}

/// Whether a metaclass is one whose `__instancecheck__` depends on types alone.
pub(in crate::recorder) fn is_library_metaclass(meta: &Bound<'_, PyType>) -> bool {
    if meta.is(meta.py().get_type::<PyType>()) {
        return false;
    }
    static ABSTRACT: Named = Named::new("abc", "ABCMeta");
    ABSTRACT.is(meta.as_any().as_borrowed()) || asks_type(meta)
}

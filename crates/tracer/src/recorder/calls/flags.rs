//! Members of flags that nobody has asked for so far: `Access(3)`, `Access.READ | Access.WRITE`.
//!
//! The library makes such a member when it's first asked for, and its class keeps it for good. So it's made before the
//! call that asks is traced. The trace finds it there, as all later calls do, and a guard says that it's there.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyType};
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops;

use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;

static ENUM: Named = Named::new("enum", "Enum");
static FLAG: Named = Named::new("enum", "Flag");

impl Recorder {
    /// Has the library make a member that `Enum.__new__` is asked for and doesn't have.
    pub(super) fn make_member(&self, call: Call<'_, '_>) {
        let Call { frame, callable, args, names } = call;
        let ([class, value], None) = (args, names) else { return };
        let Ok(class) = class.cast::<PyType>() else { return };
        if !value.is_exact_instance_of::<PyInt>() || self.is_stopped() {
            return;
        }
        if is_asked_of_library(callable, &class).is_none_or(|map| has(&map, *value)) {
            return;
        }
        // The class keeps CPython's own number, not one that is known by its address.
        let Ok(number) = value.extract::<i64>() else { return };
        let number = PyInt::new(frame.py(), number).into_any();
        let _native = Suspended::new(frame.py());
        let args = [class.as_any().as_borrowed(), number.as_borrowed()];
        if let Err(raised) = ops::call(callable, &args, None) {
            // The traced call raises it again.
            raised.clear(frame.py());
        }
        // To make it again changes nothing.
        self.baseline.set(ops::executed());
    }
}

fn has(map: &Object<'_>, value: Borrowed<'_, '_>) -> bool {
    !heap::is_exact_dict(map.as_borrowed()) || heap::dict_get(map.as_borrowed(), value).is_some()
}

/// The members by their values of a class of flags, if none but the library's code makes one.
fn is_asked_of_library<'py>(
    callable: Borrowed<'_, 'py>,
    class: &Bound<'py, PyType>,
) -> Option<Object<'py>> {
    let py = class.py();
    let missing = "_missing_";
    let of_flag = || types::lookup_named(FLAG.get(py).ok()?.cast::<PyType>().ok()?, missing);
    let is_new =
        ENUM.get(py).and_then(|own| own.getattr("__new__")).is_ok_and(|own| callable.is(&own));
    if !is_new || !class.is_subclass(FLAG.get(py).ok()?).ok()? {
        return None;
    }
    let object = py.get_type::<PyAny>();
    let member = types::lookup_named(class, "_member_type_")?;
    let is_plain = types::lookup_named(class, missing)?.is(&of_flag()?)
        && types::lookup_named(class, "__setattr__")?
            .is(&types::lookup_named(&object, "__setattr__")?)
        && (member.is(&object) || member.is(py.get_type::<PyInt>()));
    if is_plain { types::lookup_named(class, "_value2member_map_") } else { None }
}

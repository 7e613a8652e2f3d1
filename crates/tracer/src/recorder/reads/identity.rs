//! `id()` and `hash()`: allowed where the number is the same in every call that passes the guards.
//!
//! An address is that of one object: a replay finds the same one only if the object is known by
//! identity, and then it is alive (an entry dies with what it knows by identity). An object that something from outside
//! holds, as a trainer its optimizer, is guarded to be this one; an argument may be another one at each call. Hashes of
//! constants follow from their values, except that of NaN, which is an address too.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyComplexMethods, PyFloat};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::Conversion;
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Conversions;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State, Stop};
use crate::recorder::notes::text_wrappers::is_in_wrapper;

impl Recorder {
    /// `id()`.
    pub(in crate::recorder) fn identity_of<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        if is_in_wrapper(frame) {
            // Nobody else sees it.
            return native();
        }
        let is_key = self.keys_memo(frame);
        self.note(frame, |state| {
            if !is_key && !unwraps(frame) {
                state.of_process.get_or_insert("it asks where an object lies");
            }
            if is_key || is_immortal(object) || state.is_identity_guarded(object) {
                return Ok(());
            }
            // It holds what it has met, and only asks whether it meets it again: another object never lies there.
            if unwraps(frame) && state.origin(object) == Some(Origin::Fresh) {
                return Ok(());
            }
            if state.is_held_outside(object) {
                return state.know_for_good(object);
            }
            if heap::type_name(object) == "Parameter" {
                // It stays, as a dictionary's key.
                let refused = |_| (Reason::Identity, "id() of a Parameter".to_string());
                return state.know_tensor_key(object, false).map_err(refused);
            }
            Err((Reason::Identity, format!("id() of a {}", heap::type_name(object))))
        });
        native()
    }

    /// `hash()`: an instance's own `__hash__` is traced, if it's Python.
    pub(in crate::recorder) fn hash_of<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let name = pyo3::intern!(frame.py(), "__hash__").as_any().as_borrowed();
        let own = self.lookup(frame, &object.get_type(), name);
        if let Some(own) = own
            && self.kind(own.as_borrowed()) == Kind::Function
            && !self.functions.is_tensor_hash(own.as_borrowed())
        {
            let hash = self.python_converted(frame, object, "__hash__", Conversion::Hash);
            return hash.unwrap_or_else(native);
        }
        self.note(frame, |state| {
            state
                .of_process
                .get_or_insert("it asks for a hash, which is another one in each process");
            state.check_hash(object)
        });
        native()
    }
}

impl State {
    /// Whether an object was found in another one from outside, and isn't of a kind that calls make anew.
    fn is_held_outside(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.kind(object) == Kind::Object
            && self.source(object).is_some_and(|source| self.sources.get(source).parent().is_some())
    }

    /// Whether the hash that C code computes is the same in every call that passes the guards.
    fn check_hash(&mut self, object: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        let refuse = || Err((Reason::Identity, format!("hash() of a {}", heap::type_name(object))));
        match self.kind(object) {
            Kind::Constant if is_nan(object) => refuse(),
            Kind::Constant => Ok(()),
            Kind::Tuple => heap::tuple_items(object)
                .iter()
                .try_for_each(|item| self.check_hash(item.as_borrowed())),
            Kind::FrozenSet => heap::set_items(object)
                .iter()
                .try_for_each(|item| self.check_hash(item.as_borrowed())),
            // Lists and such have no hash: `hash` raises.
            Kind::Dict | Kind::Set => Ok(()),
            Kind::List if heap::is_exact_list(object) => Ok(()),
            _ if self.is_identity_guarded(object) => Ok(()),
            _ => refuse(),
        }
    }
}

/// Whether there is one such object in a process, for good.
fn is_immortal(object: Borrowed<'_, '_>) -> bool {
    object.is_none() || object.is_exact_instance_of::<PyBool>() || object.is(object.py().Ellipsis())
}

pub(in crate::recorder) fn is_nan(object: Borrowed<'_, '_>) -> bool {
    if let Ok(value) = object.cast_exact::<PyFloat>() {
        return value.value().is_nan();
    }
    object
        .cast_exact::<PyComplex>()
        .is_ok_and(|value| value.real().is_nan() || value.imag().is_nan())
}

impl State {
    /// Guards that a callable is this very one, because nothing in it is guarded: its body isn't
    /// traced, or it stands for another function.
    pub(in crate::recorder) fn know_for_good(&mut self, function: Borrowed<'_, '_>) -> Noted<()> {
        match self.origin(function) {
            Some(Origin::Source(_)) if self.is_identity_guarded(function) => Ok(()),
            Some(Origin::Source(source)) => {
                let id = self.object(function);
                self.guard(source, GuardKind::Is(id));
                Ok(())
            }
            _ if self.kind(function) != Kind::Function => Ok(()),
            _ => Err((
                Reason::Unsupported,
                format!("{}, a marked function that this call made", heap::name_of(function)),
            )),
        }
    }
}

/// Whether a frame is one of `inspect.unwrap`, which asks where functions lie to know them again, and nothing else.
fn unwraps(frame: &Frame<'_>) -> bool {
    static UNWRAP: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let py = frame.py();
    let known = UNWRAP.get_or_init(py, || {
        let inspect = modules::import(py, "inspect").ok()?;
        Some(inspect.getattr("unwrap").ok()?.getattr("__code__").ok()?.unbind())
    });
    known.as_ref().is_some_and(|code| frame.code().object().is(code.bind(py)))
}

//! Change witnesses: what tells that a dictionary has changed.
//!
//! There are two makings. The *version word* of a dictionary is another one after each change: whoever remembers it
//! looks at one word of each dictionary, at each check. From CPython 3.12 on a dictionary can also be *watched*
//! (`PyDict_Watch`): a callback is told of each change, so nobody looks at dictionaries that don't change. From 3.13 on
//! version words miss changes of attributes that stand in their object ([`super::dict::is_versioned`]): without watchers
//! the dictionary of such an object is looked into at each check.
//!
//! A subscription is for one change: the callback takes it away. So a dictionary that changes all the time costs each
//! of its changes a look-up in a table, whoever subscribed.
//!
//! # The callback comes before the change
//!
//! What is looked at from within a change is still the old content. Between our callback and the change only
//! watchers of other libraries run. Should one of those call a compiled function, that call must not trust
//! the dictionary for good: so who subscribes looks at the content again at a *later* check before it trusts
//! silence (see [`super::snapshot`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Any;

#[cfg(not(Py_3_12))]
pub use words_only::{can_watch, let_go, prepare, watch};

#[cfg(Py_3_12)]
pub use watchers::{can_watch, let_go, prepare, watch};

/// Which of the dictionaries that somebody subscribed to have changed or died, by the numbers they gave them.
#[derive(Debug, Default)]
pub struct Changes {
    any: AtomicBool,
    numbers: Mutex<Vec<u32>>,
}

impl Changes {
    /// Whether there are any.
    #[inline(always)]
    #[must_use]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Those since the last time.
    #[must_use]
    pub fn take(&self) -> Vec<u32> {
        let mut numbers = self.numbers();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *numbers)
    }

    #[cfg_attr(not(Py_3_12), expect(dead_code, reason = "nobody tells of changes"))]
    fn tell(&self, number: u32) {
        let mut numbers = self.numbers();
        numbers.push(number);
        self.any.store(true, Ordering::Relaxed);
    }

    fn numbers(&self) -> MutexGuard<'_, Vec<u32>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(Py_3_12))]
mod words_only {
    use super::{Any, Changes};
    use pyo3::Python;
    use std::sync::Arc;

    /// Nothing to do.
    pub fn prepare(_py: Python<'_>) {}

    /// CPython has no watchers.
    #[inline(always)]
    #[must_use]
    pub const fn can_watch() -> bool {
        false
    }

    /// Never.
    #[must_use]
    pub fn watch(_dict: Any<'_, '_>, _changes: &Arc<Changes>, _number: u32) -> bool {
        false
    }

    /// Nothing to do.
    pub fn let_go(_dict: Any<'_, '_>) {}
}

#[cfg(Py_3_12)]
mod watchers {
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

    use pyo3::ffi;
    use pyo3::prelude::*;
    use pyo3::types::PyCFunction;
    use smallvec::SmallVec;

    use super::super::address::AddressMap;
    use super::{Any, Changes};
    use crate::ffi as shim;
    use crate::modules;

    /// The watcher's identifier, one for the process; negative where there is none.
    static WATCHER: AtomicI32 = AtomicI32::new(-1);

    struct Subscription {
        changes: Weak<Changes>,
        number: u32,
    }

    /// By the dictionary's address; its death is a change, so an address names one dictionary.
    type Subscriptions = AddressMap<SmallVec<[Subscription; 1]>>;

    static SUBSCRIPTIONS: LazyLock<Mutex<Subscriptions>> = LazyLock::new(Mutex::default);

    fn subscriptions() -> MutexGuard<'static, Subscriptions> {
        SUBSCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(subscribed: impl IntoIterator<Item = Subscription>) {
        for Subscription { changes, number } in subscribed {
            if let Some(changes) = changes.upgrade() {
                changes.tell(number);
            }
        }
    }

    /// Called before each change of a watched dictionary, and before its end. Runs no Python code, and can't fail.
    unsafe extern "C" fn changes(
        _event: c_int,
        dict: *mut ffi::PyObject,
        _key: *mut ffi::PyObject,
        _value: *mut ffi::PyObject,
    ) -> c_int {
        let subscribed = subscriptions().remove(&(dict as usize));
        tell(subscribed.into_iter().flatten());
        0
    }

    /// Takes one of the process's few identifiers (CPython has eight; its own optimizer and PyTorch use some), at the
    /// first call; without one nothing is watched. It is given back when the process ends.
    pub fn prepare(py: Python<'_>) {
        static TRIED: AtomicBool = AtomicBool::new(false);
        if !TRIED.swap(true, Ordering::Relaxed)
            && let Err(error) = take_identifier(py)
        {
            // Another library has them all, or the process is ending: versions are compared.
            drop(error);
        }
    }

    fn take_identifier(py: Python<'_>) -> PyResult<()> {
        let give_back = PyCFunction::new_closure(py, None, None, |args, _| give_back(args.py()))?;
        modules::import(py, "atexit")?.call_method1("register", (give_back,))?;
        // SAFETY: the callback is a function of this library, which is never unloaded.
        let id = unsafe { shim::PyDict_AddWatcher(Some(changes)) };
        if id < 0 {
            return Err(PyErr::fetch(py));
        }
        WATCHER.store(id, Ordering::Relaxed);
        Ok(())
    }

    /// Who subscribed isn't told of anything any more: all have changed, as far as they know.
    fn give_back(_py: Python<'_>) {
        let id = WATCHER.swap(-1, Ordering::Relaxed);
        if id >= 0 {
            // SAFETY: the identifier was this library's; the GIL is held.
            if unsafe { shim::PyDict_ClearWatcher(id) } < 0 {
                // SAFETY: as above.
                unsafe { ffi::PyErr_Clear() };
            }
            let all = std::mem::take(&mut *subscriptions());
            tell(all.into_values().flatten());
        }
    }

    /// Whether dictionaries can be watched.
    #[inline]
    #[must_use]
    pub fn can_watch() -> bool {
        WATCHER.load(Ordering::Relaxed) >= 0
    }

    /// From now on `changes` is told of the next change of a dictionary, or of its end; false: it isn't.
    #[must_use]
    pub fn watch(dict: Any<'_, '_>, changes: &Arc<Changes>, number: u32) -> bool {
        let id = WATCHER.load(Ordering::Relaxed);
        if id < 0 {
            return false;
        }
        // SAFETY: a live object; what isn't a dictionary is refused.
        if unsafe { shim::PyDict_Watch(id, dict.as_ptr()) } < 0 {
            // SAFETY: the GIL is held, which `Any` proves.
            unsafe { ffi::PyErr_Clear() };
            return false;
        }
        let mut subscriptions = subscriptions();
        let subscribed = subscriptions.entry(dict.as_ptr() as usize).or_default();
        // Who subscribed may have gone since.
        if subscribed.len() >= 4 && subscribed.len() == subscribed.capacity() {
            subscribed.retain(|it| it.changes.strong_count() > 0);
        }
        subscribed.push(Subscription { changes: Arc::downgrade(changes), number });
        true
    }

    /// Has a dictionary's changes cost nothing again, if nobody subscribes to it.
    pub fn let_go(dict: Any<'_, '_>) {
        let id = WATCHER.load(Ordering::Relaxed);
        if id < 0 || subscriptions().contains_key(&(dict.as_ptr() as usize)) {
            return;
        }
        // SAFETY: a live object; what isn't a dictionary is refused.
        if unsafe { shim::PyDict_Unwatch(id, dict.as_ptr()) } < 0 {
            // SAFETY: the GIL is held, which `Any` proves.
            unsafe { ffi::PyErr_Clear() };
        }
    }
}

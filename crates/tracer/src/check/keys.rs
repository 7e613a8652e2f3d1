//! Keys that steps look for: constants, objects known by identity, and the tuples that caches make of arguments.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_cpython::heap::weak::Liveness;
use stator_cpython::heap::{Any, constant, container, dict};

/// A key, or an object known by identity.
#[derive(Debug)]
pub(super) enum Key {
    Constant(Py<PyAny>),
    Known(usize),
}

impl Key {
    pub(super) fn of(object: Any<'_, '_>) -> Self {
        if constant::is_constant(object) {
            Self::Constant(object.to_owned().unbind())
        } else {
            Self::Known(object.as_ptr() as usize)
        }
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Constant(object) => Self::Constant(object.clone_ref(py)),
            Self::Known(address) => Self::Known(*address),
        }
    }
}

/// A part of a key of `functools.lru_cache`. The cache makes such a tuple of a call's arguments and keeps it: who asks for its
/// result knows the parts alone, so that a program that clears the cache lets go of them.
#[derive(Clone, Debug)]
pub(super) enum Part {
    One(Arc<Key>),
    Tuple(Box<[Part]>),
}

impl Part {
    /// The parts of a tuple, which the liveness knows from now on.
    pub(super) fn all(
        tuple: &Bound<'_, PyTuple>,
        liveness: &mut Liveness,
    ) -> PyResult<Box<[Self]>> {
        tuple.iter_borrowed().map(|part| Self::of(part, liveness)).collect()
    }

    fn of(object: Any<'_, '_>, liveness: &mut Liveness) -> PyResult<Self> {
        if constant::is_constant(object) {
            return Ok(Self::One(Key::of(object).into()));
        }
        // Named tuples are equal to others with the same parts.
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return Ok(Self::Tuple(Self::all(&tuple.to_owned(), liveness)?));
        }
        liveness.add(object)?;
        Ok(Self::One(Key::of(object).into()))
    }

    fn is(&self, object: Any<'_, '_>) -> bool {
        match self {
            Self::One(key) => match &**key {
                Key::Constant(own) => {
                    constant::keys_equal(object, own.bind_borrowed(object.py())) == Some(true)
                }
                Key::Known(address) => object.as_ptr() as usize == *address,
            },
            Self::Tuple(parts) => Self::are(parts, object),
        }
    }

    fn are(parts: &[Self], tuple: Any<'_, '_>) -> bool {
        container::tuple_length(tuple) == Some(parts.len())
            && parts.iter().enumerate().all(|(index, part)| {
                container::tuple_item(tuple, index).is_some_and(|it| part.is(it.as_borrowed()))
            })
    }

    /// The key of these parts in a cache's dictionary, and what lies there.
    pub(super) fn find<'py>(
        parts: &[Self],
        cache: Any<'_, 'py>,
    ) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        dict::find(cache, |key| Self::are(parts, key))
    }

    /// The parts as a tuple; `None` if one of them has died.
    pub(super) fn tuple(parts: &[Self], py: Python<'_>, liveness: &Liveness) -> Option<Py<PyAny>> {
        let parts = parts.iter().map(|part| match part {
            Self::One(key) => match &**key {
                Key::Constant(object) => Some(object.clone_ref(py)),
                Key::Known(address) => Some(liveness.get(py, *address)?.unbind()),
            },
            Self::Tuple(parts) => Self::tuple(parts, py, liveness),
        });
        let parts = parts.collect::<Option<Vec<_>>>()?;
        Some(PyTuple::new(py, parts).ok()?.into_any().unbind())
    }
}

//! Explaining failures in the user's terms, without running the user's code.

use pyo3::prelude::*;
use stator_cpython::heap::{Any, constant, tensor};
use stator_guards::{GlobalState, Guard, GuardKind, Sources};

use super::failure::{Failure, Found};
use super::held::Printer;

/// Longer texts are cut.
const LENGTH: usize = 120;

/// What a failed guard says, and what was found instead: one pair, or one for each fact of the
/// global state that differs.
pub(super) fn explain(
    py: Python<'_>,
    sources: &Sources,
    guards: &[Guard],
    printer: &Printer<'_, '_>,
    failure: &Failure,
) -> Vec<(String, String)> {
    let guard = failure.guard.and_then(|index| guards.get(index));
    let found = match (&failure.found, guard.map(|guard| &guard.kind)) {
        (Found::GlobalState, Some(GuardKind::GlobalState(expected))) => {
            return explain_global_state(py, expected);
        }
        (Found::Object(object), Some(GuardKind::TypeIs(_))) => {
            format!("found type {}", type_name(object.bind(py).as_borrowed()))
        }
        (Found::Object(object), _) => format!("found {}", describe(object.bind(py).as_borrowed())),
        (Found::Missing, _) => "found nothing there".to_owned(),
        (Found::Registered, _) => "a class was registered with an abstract class".to_owned(),
        (Found::Dead, _) => "found one that is gone".to_owned(),
        (Found::GlobalState, _) => "another global state".to_owned(),
    };
    let says = guard.map_or_else(
        || "all objects known by identity are alive".to_owned(),
        |guard| sources.print_guard(guard, printer),
    );
    vec![(says, found)]
}

fn explain_global_state(py: Python<'_>, expected: &GlobalState) -> Vec<(String, String)> {
    let now = match super::global::read(py) {
        Ok(now) => now,
        Err(error) => return vec![("global state".into(), format!("it can't be read: {error}"))],
    };
    let differences = expected.differences(&now);
    differences
        .map(|(fact, value)| match value {
            Some(value) => (fact.to_string(), format!("found {value}")),
            None => (fact.to_string(), "found nothing".to_owned()),
        })
        .collect()
}

/// A short text for any object: constants by `repr`, tensors by metadata, others by type.
pub(super) fn describe(object: Any<'_, '_>) -> String {
    if constant::is_constant(object) {
        let text = object.repr().map_or_else(|_| type_name(object), |text| text.to_string());
        return cut(text);
    }
    if let Some(info) = tensor::info(object) {
        let guard = stator_guards::TensorGuard {
            python_type: stator_guards::ObjectId::new(0),
            dtype: info.dtype,
            device_type: info.device_type,
            device_index: info.device_index,
            layout: info.layout,
            requires_grad: info.requires_grad,
            sizes: info.sizes.iter().copied().map(Some).collect(),
            strides: info.strides.iter().copied().map(Some).collect(),
            key_set: info.key_set,
        };
        let requires_grad = if info.requires_grad { "True" } else { "False" };
        return format!(
            "{}({}, device=({}, {}), requires_grad={requires_grad}, size={:?}, stride={:?})",
            type_name(object),
            guard.dtype_name(),
            info.device_type,
            info.device_index,
            info.sizes,
            info.strides,
        );
    }
    format!("<{} object at {:#x}>", type_name(object), object.as_ptr() as usize)
}

fn type_name(object: Any<'_, '_>) -> String {
    object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

fn cut(text: String) -> String {
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

//! Explaining failures in the user's terms, without running the user's code.

use pyo3::prelude::*;
use stator_cpython::heap::{Any, constant, dict, tensor};
use stator_guards::{GlobalState, GuardKind, Holders, ObjectId, SourceId, Sources, Vacancy};

use super::Facts;
use super::failure::{Failure, Found};
use super::held::Printer;

/// Longer texts are cut.
const LENGTH: usize = 120;

/// What a failed guard says, and what was found instead: one pair, or one for each fact of the
/// global state that differs.
pub(super) fn explain<'py>(
    py: Python<'py>,
    facts: Facts<'_>,
    printer: &Printer<'_, 'py>,
    failure: &Failure,
) -> Vec<(String, String)> {
    let guard = failure.guard.and_then(|index| facts.guards.get(index));
    let found = match (&failure.found, guard.map(|guard| &guard.kind)) {
        (Found::GlobalState, Some(GuardKind::GlobalState(expected))) => {
            return explain_global_state(py, expected);
        }
        (Found::Object(dict), Some(GuardKind::Vacant(vacancy))) => {
            let dict = dict.bind(py).as_borrowed();
            let source = guard.map(|guard| guard.source);
            let found = source
                .and_then(|source| explain_vacancy(dict, vacancy, printer, facts.sources, source));
            match found {
                Some(explained) => return vec![explained],
                None => "found it changed".to_owned(),
            }
        }
        (Found::Object(dict), Some(GuardKind::AbsentWithin { key, text, holders })) => {
            let dict = dict.bind(py).as_borrowed();
            let source = guard.map(|guard| guard.source);
            let found = source.and_then(|source| {
                let sources = facts.sources;
                explain_presence(dict, (*key, text), holders, printer, sources, source)
            });
            match found {
                Some(explained) => return vec![explained],
                None => "found it changed".to_owned(),
            }
        }
        (Found::Object(object), Some(GuardKind::TypeIs(_))) => {
            format!("found type {}", type_name(object.bind(py).as_borrowed()))
        }
        (Found::Object(object), _) => format!("found {}", describe(object.bind(py).as_borrowed())),
        (Found::Missing, _) => "found nothing there".to_owned(),
        (Found::Registered, _) => "a class was registered with an abstract class".to_owned(),
        (Found::Dead, _) => "found one that is gone".to_owned(),
        (Found::GlobalState, _) => "another global state".to_owned(),
        (Found::Answer(answer), _) => format!("found {}", spelt(*answer)),
        (Found::Numbers(text) | Found::Accelerator(text), _) => format!("found {text}"),
    };
    let says = guard.map_or_else(
        || match failure.found {
            Found::Answer(answer) => {
                format!("torch.compiler.is_compiling() == {}", spelt(!answer))
            }
            Found::Numbers(_) => "all numbers are within the bounds of symbols".to_owned(),
            _ => "all objects known by identity are alive".to_owned(),
        },
        |guard| facts.sources.print_guard(guard, printer),
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

fn spelt(answer: bool) -> &'static str {
    if answer { "True" } else { "False" }
}

/// The first fact of a vacancy that doesn't hold, printed, and what was found.
fn explain_vacancy<'py>(
    dict: Any<'_, 'py>,
    vacancy: &Vacancy,
    printer: &Printer<'_, 'py>,
    sources: &Sources,
    source: SourceId,
) -> Option<(String, String)> {
    for (key, text) in &vacancy.absent {
        if let Some(value) = get(printer, dict, *key) {
            return Some((
                sources.print_absence(source, text),
                format!("found {}", describe(value.as_borrowed())),
            ));
        }
    }
    for (key, text) in &vacancy.empty {
        let found = match get(printer, dict, *key) {
            Some(value) if dict::is_plain_empty(value.as_borrowed()) => continue,
            Some(value) => match dict::length(value.as_borrowed()) {
                Some(length) if length > 0 => format!("found {length}"),
                _ => format!("found {}", describe(value.as_borrowed())),
            },
            None => "found nothing there".to_owned(),
        };
        return Some((sources.print_emptiness(source, text), found));
    }
    None
}

/// The first fact of an `AbsentWithin` that doesn't hold, printed, and what was found.
fn explain_presence<'py>(
    dict: Any<'_, 'py>,
    (key, text): (ObjectId, &str),
    holders: &Holders,
    printer: &Printer<'_, 'py>,
    sources: &Sources,
    source: SourceId,
) -> Option<(String, String)> {
    let found = |value: &Bound<'_, PyAny>| format!("found {}", describe(value.as_borrowed()));
    if let Some(value) = get(printer, dict, key) {
        return Some((sources.print_absence(source, text), found(&value)));
    }
    for (holder, name) in &holders.0 {
        let Some(held) = get(printer, dict, *holder) else {
            return Some((sources.print_plainness(source, name), "found nothing there".to_owned()));
        };
        let held = held.as_borrowed();
        if !dict::is_plain(held) {
            let found = format!("found type {}", type_name(held));
            return Some((sources.print_plainness(source, name), found));
        }
        if let Some(value) = get(printer, held, key) {
            return Some((sources.print_absence_within(source, name, text), found(&value)));
        }
    }
    None
}

/// What a dictionary holds at a key.
fn get<'py>(
    printer: &Printer<'_, 'py>,
    dict: Any<'_, 'py>,
    key: ObjectId,
) -> Option<Bound<'py, PyAny>> {
    match dict::get(dict, printer.constant(key)?) {
        dict::Lookup::Found(value) => Some(value),
        dict::Lookup::Absent | dict::Lookup::Refused => None,
    }
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

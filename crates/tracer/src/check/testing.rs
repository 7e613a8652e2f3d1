//! Checkers as Python objects: for tests and measurements, not for users.

use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stator_cpython::generic;
use stator_cpython::heap::{dict, function, member, tensor, types};
use stator_guards::{
    Gives, Guard, GuardKind, Holders, ObjectId, Rests, Source, SourceId, Sources, TensorGuard, Text,
};

use super::{Checker, Facts};

/// Collects sources and guards, then checks them.
#[pyclass(name = "GuardSet", module = "stator._stator")]
#[derive(Default)]
pub struct GuardSet {
    sources: Sources,
    guards: Vec<Guard>,
    objects: Vec<Py<PyAny>>,
    ids: Vec<SourceId>,
    checker: Option<Checker>,
}

impl GuardSet {
    fn add(&mut self, object: &Bound<'_, PyAny>) -> ObjectId {
        let known = self.objects.iter().position(|known| known.is(object));
        ObjectId::new(known.unwrap_or_else(|| {
            self.objects.push(object.clone().unbind());
            self.objects.len() - 1
        }))
    }

    fn id(&self, source: usize) -> PyResult<SourceId> {
        self.ids.get(source).copied().ok_or_else(|| PyValueError::new_err("no such source"))
    }

    fn facts(&self) -> Facts<'_> {
        Facts { sources: &self.sources, guards: &self.guards }
    }

    fn checker(&self) -> PyResult<&Checker> {
        self.checker.as_ref().ok_or_else(|| PyValueError::new_err("build() first"))
    }
}

#[pymethods]
impl GuardSet {
    #[new]
    fn new() -> Self {
        GuardSet::default()
    }

    /// Adds a source; answers its number.
    #[pyo3(signature = (kind, parent=None, key=None, index=0, after=None))]
    fn source(
        &mut self,
        kind: &str,
        parent: Option<usize>,
        key: Option<Bound<'_, PyAny>>,
        index: usize,
        after: Option<Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let parent = parent.map(|parent| self.id(parent)).transpose();
        let parent = || {
            parent
                .as_ref()
                .ok()
                .copied()
                .flatten()
                .ok_or_else(|| PyValueError::new_err("no parent"))
        };
        let text = |key: &Option<Bound<'_, PyAny>>| -> PyResult<Text> {
            Ok(key.as_ref().map(ToString::to_string).unwrap_or_default().into())
        };
        let repr = || -> PyResult<Text> {
            Ok(key
                .as_ref()
                .map_or(Ok(String::new()), |key| key.repr().map(|t| t.to_string()))?
                .into())
        };
        let object = key.as_ref().map(|key| self.add(key));
        let object = || object.ok_or_else(|| PyValueError::new_err("no key"));
        let after = after.map(|after| self.add(&after));
        let source = match kind {
            "local" => Source::Local { index: index as u16, name: text(&key)? },
            "anchor" => Source::Anchor { object: object()?, text: repr()? },
            "module" => Source::SysModule { name: text(&key)? },
            "global_state" => Source::GlobalState,
            "dict" => Source::Dict(parent()?),
            "item" => Source::DictItem { parent: parent()?, key: object()?, text: repr()? },
            "hashed" => Source::HashedItem { parent: parent()?, hash: index as isize },
            "hashed_key" => Source::HashedKey { parent: parent()?, hash: index as isize },
            "list" => Source::ListItem { parent: parent()?, index },
            "last" => Source::LastItem { parent: parent()?, index },
            "tuple" => Source::TupleItem { parent: parent()?, index },
            "slot" => Source::Slot { parent: parent()?, offset: index, name: text(&key)? },
            "lookup" => {
                Source::TypeLookup { parent: parent()?, name: object()?, text: text(&key)? }
            }
            "super" => Source::SuperLookup {
                parent: parent()?,
                after: after.ok_or_else(|| PyValueError::new_err("no class"))?,
                name: object()?,
                text: text(&key)?,
            },
            "type" => Source::TypeOf(parent()?),
            "globals" => Source::Globals(parent()?),
            "builtins" => Source::Builtins(parent()?),
            "code" => Source::Code(parent()?),
            "defaults" => Source::Defaults(parent()?),
            "kwdefaults" => Source::KwDefaults(parent()?),
            "cell" => Source::ClosureCell { parent: parent()?, index },
            "contents" => Source::CellContents(parent()?),
            "method_self" => Source::MethodSelf(parent()?),
            "method_func" => Source::MethodFunc(parent()?),
            "partial_func" => Source::PartialFunc(parent()?),
            "partial_args" => Source::PartialArgs(parent()?),
            "partial_keywords" => Source::PartialKeywords(parent()?),
            "shown_mapping" => Source::ShownMapping(parent()?),
            "fget" => Source::PropertyGet(parent()?),
            "fset" => Source::PropertySet(parent()?),
            "static_func" => Source::StaticFunc(parent()?),
            "class_func" => Source::ClassFunc(parent()?),
            "referent" => Source::Referent(parent()?),
            "deque" => Source::DequeItem { parent: parent()?, index },
            "deque_maxlen" => Source::DequeMaxLength(parent()?),
            "context" => Source::ContextValue(parent()?),
            "iterated" => Source::Iterated { parent: parent()?, index },
            "upcoming" => Source::Upcoming { parent: parent()?, index },
            "upcoming_key" => Source::UpcomingKey { parent: parent()?, index },
            "generator_function" => Source::GeneratorFunction(parent()?),
            "generator_slot" => Source::GeneratorSlot { parent: parent()?, index },
            "grad" => Source::Gradient(parent()?),
            "context_default" => Source::ContextDefault(parent()?),
            _ => return Err(PyValueError::new_err(format!("no source {kind}"))),
        };
        self.ids.push(self.sources.intern(source));
        Ok(self.ids.len() - 1)
    }

    /// Adds a guard; `value` is what its kind compares with.
    #[pyo3(signature = (source, kind, value=None))]
    fn guard(
        &mut self,
        py: Python<'_>,
        source: usize,
        kind: &str,
        value: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let source = self.id(source)?;
        let value = value.unwrap_or_else(|| py.None().into_bound(py));
        let kind = match kind {
            "type" => GuardKind::TypeIs(self.add(&value)),
            "is" => GuardKind::Is(self.add(&value)),
            "none" => GuardKind::IsNone,
            "not_none" => GuardKind::IsNotNone,
            "equals" => GuardKind::Equals(self.add(&value)),
            "value" => GuardKind::Holds(self.add(&value)),
            "length" => GuardKind::Length(value.extract()?),
            "keys" => {
                let keys = dict::keys(value.as_borrowed())
                    .ok_or_else(|| PyValueError::new_err("no dict"))?;
                GuardKind::DictKeys(keys.iter().map(|key| self.add(key)).collect())
            }
            "dict_length" => GuardKind::DictLength(value.extract()?),
            "absent" => GuardKind::KeyAbsent {
                text: value.repr()?.to_string().into(),
                key: self.add(&value),
            },
            "hash_absent" => GuardKind::HashAbsent(value.extract()?),
            "absent_within" => {
                let (key, holders): (Bound<'_, PyAny>, Vec<Bound<'_, PyAny>>) = value.extract()?;
                let mut named = |key: &Bound<'_, PyAny>| -> PyResult<(_, Text)> {
                    Ok((self.add(key), key.repr()?.to_string().into()))
                };
                let (key, text) = named(&key)?;
                let holders = holders.iter().map(named).collect::<PyResult<_>>()?;
                GuardKind::AbsentWithin { key, text, holders: Holders(holders).into() }
            }
            "set" => GuardKind::SetEquals(self.add(&value)),
            "holds" => GuardKind::SetHolds { item: self.add(&value), holds: true },
            "lacks" => GuardKind::SetHolds { item: self.add(&value), holds: false },
            "lookup_absent" => {
                GuardKind::LookupAbsent { text: value.to_string().into(), name: self.add(&value) }
            }
            "unset" => GuardKind::SlotUnset { offset: value.extract()?, name: "slot".into() },
            "cell_empty" => GuardKind::CellEmpty,
            "method_of" => {
                let made_from = generic::made_from(value.as_borrowed());
                let refuse = || PyValueError::new_err("no method of a C type");
                let made_from = made_from.ok_or_else(refuse)?;
                GuardKind::MethodOf { made_from, name: "method".into() }
            }
            "iterator_at" => GuardKind::IteratorAt(value.extract()?),
            "gives" => {
                let (items, ends, parts) = value.extract()?;
                GuardKind::Gives(Gives { items, ends, parts })
            }
            "generator_at" => {
                let (unit, started, slots, live, bound) = value.extract()?;
                GuardKind::GeneratorAt(Rests { unit, started, slots, live, bound })
            }
            "no_hooks" => GuardKind::NoTensorHooks,
            "place" => {
                let (is_leaf, view) = value.extract()?;
                GuardKind::Place { is_leaf, view }
            }
            "context_unset" => GuardKind::ContextUnset,
            "no_defaults" => GuardKind::NoDefaults,
            "no_kwdefaults" => GuardKind::NoKwDefaults,
            "no_dict" => GuardKind::NoInstanceDict,
            "tensor" => GuardKind::Tensor(self.tensor(&value)?.into()),
            "token_of" => GuardKind::TokenOf(self.id(value.extract()?)?),
            "same" => GuardKind::SameAs(self.id(value.extract()?)?),
            "distinct" => {
                let others: Vec<usize> = value.extract()?;
                GuardKind::Distinct(
                    others.into_iter().map(|id| self.id(id)).collect::<PyResult<_>>()?,
                )
            }
            "global_state" => GuardKind::GlobalState(super::read_global_state(py)?),
            _ => return Err(PyValueError::new_err(format!("no guard {kind}"))),
        };
        self.guards.push(Guard { source, kind, location: None });
        Ok(())
    }

    fn build(&mut self, py: Python<'_>, wanted: Vec<usize>) -> PyResult<()> {
        let wanted = wanted.into_iter().map(|id| self.id(id)).collect::<PyResult<Vec<_>>>()?;
        let checker = Checker::build(py, self.facts(), &self.objects, wanted)?;
        checker.plan(py, self.facts())?;
        self.checker = Some(checker);
        self.objects.clear();
        Ok(())
    }

    /// The wanted objects as a list, or the explanation of what failed.
    fn check<'py>(
        &self,
        py: Python<'py>,
        args: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let borrowed: Vec<_> = args.iter().map(Bound::as_borrowed).collect();
        match self.checker()?.check(py, self.facts(), &borrowed) {
            Ok(objects) => Ok(objects.into_vec().into_pyobject(py)?),
            Err(failure) => {
                let failures = self.checker()?.explain(py, self.facts(), &failure);
                let texts: Vec<_> =
                    failures.iter().map(|(guard, found)| format!("{guard}, {found}")).collect();
                Ok(texts.join("; ").into_pyobject(py)?.into_any())
            }
        }
    }

    /// Whether the guards hold, by looking at everything they speak of.
    fn walks(&self, py: Python<'_>, args: Vec<Bound<'_, PyAny>>) -> PyResult<bool> {
        let borrowed: Vec<_> = args.iter().map(Bound::as_borrowed).collect();
        Ok(self.checker()?.check_walking(py, self.facts(), &borrowed))
    }

    /// Nanoseconds per check, the least of several rounds; with `walk`, without snapshots.
    #[pyo3(signature = (args, rounds=20, calls=1000, walk=false))]
    fn time(
        &self,
        py: Python<'_>,
        args: Vec<Bound<'_, PyAny>>,
        rounds: usize,
        calls: usize,
        walk: bool,
    ) -> PyResult<f64> {
        let borrowed: Vec<_> = args.iter().map(Bound::as_borrowed).collect();
        let checker = self.checker()?;
        let mut least = f64::INFINITY;
        for _ in 0..rounds {
            let start = Instant::now();
            for _ in 0..calls {
                let passed = if walk {
                    checker.check_walking(py, self.facts(), &borrowed)
                } else {
                    checker.check(py, self.facts(), &borrowed).is_ok()
                };
                if !passed {
                    return Err(PyValueError::new_err("the guards don't hold"));
                }
            }
            least = least.min(start.elapsed().as_nanos() as f64 / calls as f64);
        }
        Ok(least)
    }

    fn is_alive(&self) -> PyResult<bool> {
        Ok(self.checker()?.is_alive())
    }

    fn print(&self, source: usize) -> PyResult<String> {
        Ok(self.sources.print(self.id(source)?))
    }

    fn print_guards(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let checker = self.checker()?;
        Ok(self.guards.iter().flat_map(|guard| checker.print(py, &self.sources, guard)).collect())
    }

    /// Of the snapshot used last: the dictionaries of whose changes CPython tells, and those of them that the next
    /// check looks into all the same.
    fn watched(&self) -> PyResult<(usize, usize)> {
        Ok(self.checker()?.report().watched)
    }

    /// (fast, walked, snapshots, words, reason)
    fn report(&self) -> PyResult<(u64, u64, usize, usize, Option<&'static str>)> {
        let report = self.checker()?.report();
        Ok((report.fast, report.walked, report.snapshots, report.compared.0, report.unwatchable))
    }
}

impl GuardSet {
    fn tensor(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<TensorGuard> {
        let info =
            tensor::info(tensor.as_borrowed()).ok_or_else(|| PyValueError::new_err("no tensor"))?;
        Ok(TensorGuard {
            python_type: self.add(tensor.get_type().as_any()),
            dtype: info.dtype,
            device_type: info.device_type,
            device_index: info.device_index,
            layout: info.layout,
            requires_grad: info.requires_grad,
            sizes: info.sizes.iter().copied().map(Some).collect(),
            strides: info.strides.iter().copied().map(Some).collect(),
            key_set: info.key_set,
        })
    }
}

/// Offset of a `__slots__` member, from its descriptor.
#[pyfunction]
fn member_offset(descriptor: Bound<'_, PyAny>) -> Option<usize> {
    member::offset_of(descriptor.as_borrowed())
}

/// What is known of an object, for tests: (type version, dict version, is tensor, slots).
#[pyfunction]
fn inspect(object: Bound<'_, PyAny>) -> (u32, u64, bool, bool) {
    let object = object.as_borrowed();
    (
        types::version_tag(types::of(object).as_borrowed()),
        dict::version(object),
        tensor::is_tensor(object),
        function::Field::Code.applies(object),
    )
}

/// Adds the testing interface to a module.
///
/// # Errors
/// What adding to a module raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<GuardSet>()?;
    module.add_function(wrap_pyfunction!(member_offset, module)?)?;
    module.add_function(wrap_pyfunction!(inspect, module)?)
}

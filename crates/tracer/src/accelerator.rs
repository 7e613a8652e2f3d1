//! The accelerator's selected device and streams, and its random generators: what PyTorch says of them.
//!
//! PyTorch has one accelerator in a process (`torch.accelerator`), which is started by its first use. Nothing
//! here starts it. All that is asked goes through [`Accelerator`], so a test can put another one there
//! (`stator._testing.accelerator`).

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use stator_cpython::hook::Suspended;
use stator_cpython::modules;
use stator_cpython::object::Object;
use stator_graph::{Device, Graph, Value};
use stator_guards::{Accelerator as Guarded, GuardKind, Stream};

use crate::lock;

/// Whom to ask.
struct Accelerator {
    /// The name of its device type, and PyTorch's number for that.
    name: Arc<str>,
    kind: i8,
    /// What there is to call of it: `torch.cuda`, `torch.xpu`, ...
    module: Py<PyAny>,
    /// Gives the selected device's number.
    device: Py<PyAny>,
    /// Gives the selected stream of a device.
    stream: Py<PyAny>,
    /// Says whether the selected stream is captured, where that can be.
    capturing: Option<Py<PyAny>>,
}

/// What a trace has asked of the accelerator, besides having tensors of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Which device is selected, or what that one can do.
    pub device: bool,
    /// Whether the selected stream is captured, and what the answer was.
    pub capturing: Option<bool>,
}

/// What is selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    kind: i8,
    name: Arc<str>,
    device: i64,
    /// Of each device.
    streams: Vec<i64>,
}

/// The function of its module that says whether the selected stream is captured.
const CAPTURING: &str = "is_current_stream_capturing";

/// `None`: it hasn't been looked for. `Some(None)`: there is none.
static CURRENT: Mutex<Option<Option<Arc<Accelerator>>>> = Mutex::new(None);

fn current(py: Python<'_>) -> Option<Arc<Accelerator>> {
    if let Some(known) = &*lock(&CURRENT) {
        return known.clone();
    }
    stator_cpython::heap::torch::get(py)?;
    let found = find(py).ok().flatten().map(Arc::new);
    lock(&CURRENT).insert(found).clone()
}

/// PyTorch's own; `None` where it is built without one, or is too old to say.
fn find(py: Python<'_>) -> PyResult<Option<Accelerator>> {
    let torch = modules::import(py, "torch")?;
    let core = torch.getattr("_C")?;
    let device = core.call_method0("_accelerator_getAccelerator")?;
    if device.is_none() {
        return Ok(None);
    }
    let name: String = device.getattr("type")?.extract()?;
    let module = torch.getattr(name.as_str())?;
    Ok(Some(Accelerator {
        kind: Device::kind_of(&name),
        capturing: module.getattr_opt(CAPTURING)?.map(Bound::unbind),
        module: module.unbind(),
        device: core.getattr("_accelerator_getDeviceIndex")?.unbind(),
        stream: core.getattr("_accelerator_getStream")?.unbind(),
        name: name.into(),
    }))
}

impl Accelerator {
    /// Whether it says itself that nothing has started it.
    fn is_idle(&self, py: Python<'_>) -> PyResult<bool> {
        let flag = self.module.bind(py).getattr_opt(pyo3::intern!(py, "_initialized"))?;
        Ok(flag.is_some_and(|flag| flag.is(PyBool::new(py, false))))
    }

    fn is_started(&self, py: Python<'_>) -> PyResult<bool> {
        // Asked first, because `is_initialized` is Python code, which takes what other threads send.
        if self.is_idle(py)? {
            return Ok(false);
        }
        let module = self.module.bind(py);
        let asks = match module.getattr_opt("is_initialized")? {
            Some(asks) => asks,
            None => module.getattr("is_available")?,
        };
        asks.call0()?.is_truthy()
    }

    fn device(&self, py: Python<'_>) -> PyResult<i64> {
        self.device.bind(py).call0()?.extract()
    }

    fn stream(&self, py: Python<'_>, device: i64) -> PyResult<i64> {
        self.stream.bind(py).call1((device,))?.getattr("stream_id")?.extract()
    }

    /// What isn't started captures nothing.
    fn is_capturing(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.capturing {
            Some(capturing) if !self.is_idle(py)? => capturing.bind(py).call0()?.is_truthy(),
            _ => Ok(false),
        }
    }

    fn selected(&self, py: Python<'_>) -> PyResult<Selected> {
        let devices: i64 = self.module.bind(py).call_method0("device_count")?.extract()?;
        let streams = (0..devices).map(|device| self.stream(py, device));
        let streams = streams.collect::<PyResult<_>>()?;
        let (kind, name) = (self.kind, self.name.clone());
        Ok(Selected { kind, name, device: self.device(py)?, streams })
    }

    fn generators<'py>(&self, py: Python<'py>) -> PyResult<Vec<Object<'py>>> {
        let module = self.module.bind(py);
        if let Some(generators) = module.getattr_opt("default_generators")? {
            return generators.try_iter()?.collect();
        }
        let only = module.getattr_opt("_get_default_mps_generator")?;
        only.map(|only| only.call0()).into_iter().collect()
    }
}

/// What is selected; `None` where there is no accelerator, or none is started.
///
/// # Errors
/// What PyTorch raises.
pub fn selected(py: Python<'_>) -> PyResult<Option<Selected>> {
    let _native = Suspended::new(py);
    match current(py) {
        Some(accelerator) if accelerator.is_started(py)? => accelerator.selected(py).map(Some),
        _ => Ok(None),
    }
}

/// As [`selected`], where a trace begins that may have nothing to do with the accelerator: one that can't say
/// what is selected counts as not started.
///
/// # Errors
/// What isn't PyTorch's answer.
pub fn selected_at_entry(py: Python<'_>) -> PyResult<Option<Selected>> {
    selected(py).or_else(|error| match error.is_instance_of::<PyRuntimeError>(py) {
        true => Ok(None),
        false => Err(error),
    })
}

/// Whether there is an accelerator, and it is started.
///
/// # Errors
/// What PyTorch raises.
pub fn is_started(py: Python<'_>) -> PyResult<bool> {
    let _native = Suspended::new(py);
    current(py).map_or(Ok(false), |accelerator| accelerator.is_started(py))
}

/// Whether the selected stream is captured; `None` if there is no accelerator.
///
/// # Errors
/// What PyTorch raises.
pub fn is_capturing(py: Python<'_>) -> PyResult<Option<bool>> {
    let _native = Suspended::new(py);
    current(py).map(|accelerator| accelerator.is_capturing(py)).transpose()
}

/// The accelerator's default generators; none before it is started.
///
/// # Errors
/// What PyTorch raises.
pub fn generators(py: Python<'_>) -> PyResult<Vec<Object<'_>>> {
    let _native = Suspended::new(py);
    match current(py) {
        Some(accelerator) if accelerator.is_started(py)? => accelerator.generators(py),
        _ => Ok(Vec::new()),
    }
}

/// What a trace with this graph depends on: nothing, unless a tensor of the accelerator's is in it, or it has asked.
///
/// What only starts while a call is recorded had its defaults selected when that began: nothing in a trace selects
/// others, because what does that isn't in the table of callables, and ends the trace.
///
/// # Errors
/// If an operation has selected another device or stream.
pub fn guard(
    py: Python<'_>,
    graph: &Graph,
    at_entry: Option<&Selected>,
    asked: Asked,
) -> Result<Option<GuardKind>, String> {
    let Some(accelerator) = current(py) else { return Ok(None) };
    let mut devices: Vec<i64> = graph
        .nodes()
        .filter_map(|(_, node)| match &node.value {
            Value::Tensor(meta) if meta.device.kind == accelerator.kind => Some(meta.device.index),
            _ => None,
        })
        .map(i64::from)
        .collect();
    let has_tensors = !devices.is_empty();
    let capturing = asked.capturing;
    if !has_tensors && !asked.device && capturing.is_none() {
        return Ok(None);
    }
    let guarded = |device, streams, kind| {
        GuardKind::Accelerator(Guarded { kind, device, streams, capturing }.into())
    };
    let Some(now) = selected(py).map_err(|error| error.to_string())? else {
        let kind = accelerator.name.clone();
        return Ok(capturing.map(|_| guarded(None, Box::default(), kind)));
    };
    if at_entry.is_some_and(|before| *before != now) {
        return Err(format!("an operation selected another device or stream of {}", now.name));
    }
    if has_tensors {
        devices.push(now.device);
    }
    devices.sort_unstable();
    devices.dedup();
    let stream = |device: i64| {
        let number = *now.streams.get(usize::try_from(device).ok()?)?;
        Some((device, role(number)))
    };
    let streams = devices.into_iter().filter_map(stream).collect();
    let device = (has_tensors || asked.device).then_some(now.device);
    Ok(Some(guarded(device, streams, now.name)))
}

/// What a stream is by its number: 0 is the one that a device has from the start.
fn role(stream: i64) -> Stream {
    if stream == 0 { Stream::Default } else { Stream::Made }
}

/// Whether what a guard says is selected.
///
/// # Errors
/// What is, for the user to read.
pub fn check(py: Python<'_>, guarded: &Guarded) -> Result<(), String> {
    let Some(accelerator) = current(py).filter(|it| it.name == guarded.kind) else {
        return Err("no such accelerator".to_owned());
    };
    let read = || -> PyResult<_> {
        let streams = guarded.streams.iter();
        let streams = streams
            .map(|(device, _)| Ok((*device, role(accelerator.stream(py, *device)?))))
            .collect::<PyResult<_>>()?;
        let device = guarded.device.map(|_| accelerator.device(py)).transpose()?;
        let capturing = guarded.capturing.map(|_| accelerator.is_capturing(py)).transpose()?;
        Ok(Guarded { kind: guarded.kind.clone(), device, streams, capturing })
    };
    match read() {
        Ok(found) if found == *guarded => Ok(()),
        Ok(found) => Err(found.to_string()),
        Err(error) => Err(format!("what can't be read: {error}")),
    }
}

/// Puts another accelerator there, whose tensors are those of a device type; without a module, PyTorch's own.
///
/// `module` has `is_initialized()`, `device_count()`, `current_device()`, `current_stream(device)`,
/// `default_generators` and perhaps `is_current_stream_capturing()`, as `torch.cuda` has.
#[pyfunction(name = "_set_accelerator", signature = (name=None, module=None))]
fn set(name: Option<&str>, module: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    let fake = match (name, module) {
        (Some(name), Some(module)) => Some(Some(Arc::new(Accelerator {
            name: name.into(),
            kind: Device::kind_of(name),
            device: module.getattr("current_device")?.unbind(),
            stream: module.getattr("current_stream")?.unbind(),
            capturing: module.getattr_opt(CAPTURING)?.map(Bound::unbind),
            module: module.unbind(),
        }))),
        _ => None,
    };
    let old = std::mem::replace(&mut *lock(&CURRENT), fake);
    drop(old);
    Ok(())
}

/// Adds the function to `_stator`.
///
/// # Errors
/// What Python raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(set, module)?)
}

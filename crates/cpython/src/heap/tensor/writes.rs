//! What PyTorch's notes of a write through a view hold: `CopySlices` is what goes back for the tensor that is viewed, and has
//! the note of the write itself, which no attribute tells. It's looked for as other fields are (`search.rs`): in notes
//! of writes that are made for that.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::{NODE, node_address, node_hook_offsets};
use crate::heap::{Any, words};
use crate::modules;

/// So many bytes behind those that all notes begin with are looked at: two shapes with strides come before.
const WINDOW: Range<usize> = NODE..NODE + 512;

/// What is known of such notes.
struct Known {
    /// The type that Python has for them.
    ty: Py<PyAny>,
    /// The offset of the note of the write.
    write: usize,
    /// The first words of notes of writes that save no tensor, one for each class of C++.
    classes: Vec<u64>,
}

static KNOWN: PyOnceLock<Option<Known>> = PyOnceLock::new();

/// Whether one of PyTorch's notes is of a write through a view that saved no tensor, as that of other tensors' values;
/// `None`: it's no such note. Runs code of PyTorch's, once.
pub fn writes_plainly(function: Any<'_, '_>) -> Option<bool> {
    let (py, ty) = (function.py(), function.get_type());
    let known = match KNOWN.get(py) {
        Some(Some(known)) if ty.is(&known.ty) => known,
        Some(Some(_)) => return None,
        found => {
            if ty.name().ok()?.to_string_lossy() != "CopySlices" {
                return None;
            }
            let known = match found {
                Some(_) => None,
                None => KNOWN.get_or_init(py, || find(py).ok().flatten()).as_ref(),
            };
            let Some(known) = known.filter(|known| ty.is(&known.ty)) else { return Some(false) };
            known
        }
    };
    let (hooks, address) = (node_hook_offsets(py), node_address(function));
    let (Some(hooks), Some(address)) = (hooks, address) else { return Some(false) };
    // SAFETY: a live note of this type, in which that offset was found; what is there is null, since it was let go of, or
    // points to a live note.
    let is_plain = unsafe {
        let write = words::word(address as *const _, known.write) as usize;
        write != 0
            && known.classes.contains(&words::word(write as *const _, 0))
            && hooks.iter().all(|offset| words::word(write as *const _, offset * 8) == 0)
    };
    Some(is_plain)
}

/// Looks for all that in notes of some writes.
fn find(py: Python<'_>) -> PyResult<Option<Known>> {
    let module = PyModule::from_code(py, WRITES, c"<stator>", c"_stator_writes")?;
    let made = module.getattr("writes")?.call1((modules::import(py, "torch")?,))?;
    let made: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> = made.extract()?;
    let Some((_, first)) = made.first() else { return Ok(None) };
    let ty = first.get_type().into_any().unbind();
    let mapped = mapped();
    let is_mapped = |address: usize, length: usize| {
        mapped.iter().any(|part| part.start <= address && address + length <= part.end)
    };
    let mut classes = Vec::new();
    let mut offsets: Vec<usize> = WINDOW.step_by(8).collect();
    for (alone, through) in &made {
        let (Some(alone), Some(node)) =
            (node_address(alone.as_borrowed()), node_address(through.as_borrowed()))
        else {
            return Ok(None);
        };
        if !is_mapped(node, WINDOW.end) {
            return Ok(None);
        }
        // SAFETY: all that is read is memory of this process, as the system has just said.
        unsafe {
            let class = words::word(alone as *const _, 0);
            offsets.retain(|offset| {
                let write = words::word(node as *const _, *offset) as usize;
                write.is_multiple_of(8)
                    && is_mapped(write, 8)
                    && words::word(write as *const _, 0) == class
            });
            classes.push(class);
        }
    }
    let [write] = *offsets else { return Ok(None) };
    classes.sort_unstable();
    classes.dedup();
    Ok(Some(Known { ty, write, classes }))
}

/// The addresses that this process can read; none where the system doesn't say.
fn mapped() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let part = |line: &str| {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        rest.starts_with('r').then_some(number(start)?..number(end)?)
    };
    maps.lines().filter_map(part).collect()
}

/// For each write the note of it alone, and that of it through a view. Those that save a tensor are left out.
const WRITES: &std::ffi::CStr = c"
def writes(torch):
    from torch.utils._python_dispatch import _disable_current_modes
    with torch._C.DisableTorchFunction(), _disable_current_modes(), \
            torch.inference_mode(False), torch.enable_grad():
        made = []
        for write in (
            lambda x, y: x.copy_(y), lambda x, y: x.fill_(0.0), lambda x, y: x.fill_(y[0]), lambda x, y: x.zero_(),
            lambda x, y: x.add_(y), lambda x, y: x.add_(1.0), lambda x, y: x.sub_(y), lambda x, y: x.sub_(1.0),
            lambda x, y: x.neg_(),
        ):
            y = torch.ones(2, device='cpu', dtype=torch.float32).requires_grad_(True)
            alone, viewed = y.clone(), y.repeat(2)
            write(alone, y)
            write(viewed[:2], y)
            alone, viewed = alone.grad_fn, viewed.grad_fn
            saves = any(name.startswith('_raw_saved_') for name in dir(alone))
            if type(viewed).__name__ == 'CopySlices' and not saves:
                made.append((alone, viewed))
        return made
";

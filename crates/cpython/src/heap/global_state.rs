//! PyTorch's process and thread state as a few words, read in nanoseconds.
//!
//! The words don't say what the state *is*, only that it is the same as when they were taken: the
//! names and values that a user understands are read through Python when a guard is made or words
//! differ. Each word is a value or a set of bits, never an address, so words taken in one thread
//! may be compared in another.
//!
//! | state | read from |
//! |---|---|
//! | grad mode, inference mode, forward-AD mode | the bits byte of `c10::AutogradState`, by its thread-local address |
//! | autocast per device, functorch, Python dispatch | `c10::impl::raw_local_dispatch_key_set`, by its thread-local address |
//! | autocast dtypes of all device types that have one, cache flag | `at::autocast::get_autocast_dtype`, `is_autocast_cache_enabled` |
//! | default dtype | `c10::get_default_dtype_as_scalartype` |
//! | torch-function modes and switch | `at::impl::PythonTorchFunctionTLS::stack_len`, `get_disabled_state` |
//! | dispatch modes | `c10::impl::TorchDispatchModeTLS::stack_len` |
//! | anomaly mode | the flags `torch::autograd::AnomalyMode::_enabled`, `_check_nan` |
//! | saved-tensor hooks | the thread-local `SavedTensorDefaultHooksTLS`: no words unless empty and enabled |
//! | `torch.jit.trace` at work | `torch::jit::tracer::getTracingState`, a thread-local pointer |
//! | forward-AD level | version tag of `torch.autograd.forward_ad`'s dictionary |
//! | methods of tensors | version tag of `torch.nn.Parameter`, which changes with its bases' |
//! | deterministic, matmul, cuDNN, attention, mkldnn flags | the plain fields of `at::Context` as raw words, and its map of precisions |
//!
//! Fields are located by calibration: each must agree with PyTorch's own answer, or the whole
//! fast reading is absent and callers compare through Python.

use crate::modules;
use std::cell::Cell;
use std::ffi::c_void;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::libraries::Library;
use super::torch::is_hidden;
use super::{dict, getter, words};

/// Room for the words; the rest stays zero.
const WORDS: usize = 26;
/// Words before those of `at::Context`.
const FIXED: usize = 8;
/// Device types with an autocast dtype of their own, beside the CPU and CUDA: as PyTorch names and numbers
/// them. One byte of a word each.
const AUTOCAST: [(&str, i8); 8] = [
    ("maia", 8),
    ("xla", 9),
    ("xpu", 12),
    ("mps", 13),
    ("hpu", 15),
    ("ipu", 18),
    ("mtia", 19),
    ("privateuseone", 20),
];
/// `fp32_precision` has this many entries at most.
const PRECISIONS: usize = 16;

/// The state, as words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words([u64; WORDS]);

/// Reads the state; `None` where it can't be told by words.
#[inline]
pub fn read(py: Python<'_>) -> Option<Words> {
    reader(py)?.read(py)
}

/// Whether the state is one that words can tell, and is this one.
#[inline]
pub fn is(py: Python<'_>, words: &Words) -> bool {
    read(py).is_some_and(|now| now == *words)
}

/// Whether this PyTorch's state was found.
pub(super) fn is_found(py: Python<'_>) -> bool {
    reader(py).is_some()
}

fn reader(py: Python<'_>) -> Option<&Reader> {
    static READER: PyOnceLock<Option<Reader>> = PyOnceLock::new();
    super::torch::get(py)?;
    READER.get_or_init(py, || Reader::find(py).ok().flatten()).as_ref()
}

type AddressOf = unsafe extern "C" fn() -> *const c_void;

struct Reader {
    autograd_state: AddressOf,
    saved_hooks: AddressOf,
    tracing: AddressOf,
    default_dtype: unsafe extern "C" fn() -> i8,
    autocast_dtype: unsafe extern "C" fn(i8) -> i8,
    /// Which of [`AUTOCAST`] this PyTorch knows; it throws for others.
    autocast_known: [bool; AUTOCAST.len()],
    autocast_cache: unsafe extern "C" fn() -> bool,
    function_modes: unsafe extern "C" fn() -> i64,
    function_switch: unsafe extern "C" fn() -> u8,
    dispatch_modes: unsafe extern "C" fn() -> i64,
    anomaly: [*const u8; 2],
    forward_ad: Py<PyAny>,
    /// Fields of `at::Context`: first word and count of words.
    flags: (*const u64, usize),
    /// The values of `at::Context`'s map of precisions.
    precisions: Vec<*const u32>,
}

// SAFETY: the pointers are to objects that live as long as the process, read under the GIL only.
unsafe impl Send for Reader {}
// SAFETY: as above.
unsafe impl Sync for Reader {}

thread_local! {
    /// Addresses of this thread's `AutogradState`, key sets, saved-tensor hooks and tracing state.
    static THREAD: Cell<[*const c_void; 4]> = const { Cell::new([std::ptr::null(); 4]) };
}

/// Offset of the bits in `AutogradState`.
const AUTOGRAD_BITS: usize = 24;
/// Offsets in `SavedTensorDefaultHooksTLS`: a deque's first and last element, the presence of the
/// message that says hooks are disabled, and the tracing flag.
const HOOKS: [usize; 4] = [16, 48, 112, 120];

impl Reader {
    /// The addresses of this thread's state.
    fn thread(&self) -> Option<[*const c_void; 4]> {
        let known = THREAD.get();
        if !known[0].is_null() {
            return Some(known);
        }
        // SAFETY: accessors without arguments that return references to thread-locals, which stay
        // where they are as long as the thread; `dlsym` of a thread-local gives this thread's.
        let found = unsafe {
            [(self.autograd_state)(), key_sets()?, (self.saved_hooks)(), (self.tracing)()]
        };
        THREAD.set(found);
        Some(found)
    }

    #[inline]
    fn read(&self, py: Python<'_>) -> Option<Words> {
        let [autograd, keys, hooks, tracing] = self.thread()?;
        let mut out = [0; WORDS];
        // SAFETY: thread-locals of this thread at their calibrated offsets; getters without side
        // effects that don't throw (autocast knows both devices); fields of the process-wide
        // context and flags, located in `find`.
        unsafe {
            let hook = |index: usize| words::word(hooks.cast(), HOOKS[index]);
            if hook(0) != hook(1) || (hook(2) | hook(3)) & 0xff != 0 {
                return None;
            }
            out[0] = words::word(autograd.cast(), AUTOGRAD_BITS) & 0x1f;
            out[1] = words::word(keys.cast(), 0);
            out[2] = words::word(keys.cast(), 8);
            out[3] = u64::from((self.default_dtype)() as u8)
                | u64::from((self.autocast_dtype)(0) as u8) << 8
                | u64::from((self.autocast_dtype)(1) as u8) << 16
                | u64::from((self.autocast_cache)()) << 24
                | u64::from((self.function_switch)()) << 32
                | u64::from(self.anomaly[0].read()) << 40
                | u64::from(self.anomaly[1].read()) << 48
                | u64::from(words::word(tracing.cast(), 0) != 0) << 56;
            out[4] = (self.function_modes)() as u64 | ((self.dispatch_modes)() as u64) << 32;
            out[5] = dict::version(self.forward_ad.bind(py).as_borrowed());
            out[7] = u64::from(super::torch::get(py)?.version(py)?);
            for (index, known) in self.autocast_known.iter().enumerate() {
                if *known {
                    let dtype = (self.autocast_dtype)(AUTOCAST[index].1);
                    out[6] |= u64::from(dtype as u8) << (8 * index);
                }
            }
            for (place, index) in out[FIXED..].iter_mut().zip(0..self.flags.1) {
                *place = self.flags.0.add(index).read();
            }
            let after = FIXED + self.flags.1;
            for (index, value) in self.precisions.iter().enumerate() {
                out[after + index / 2] |= u64::from(value.read()) << (32 * (index % 2));
            }
        }
        Some(Words(out))
    }

    fn find(py: Python<'_>) -> PyResult<Option<Self>> {
        if is_hidden() {
            return Ok(None);
        }
        let forward_ad = modules::import(py, "torch.autograd.forward_ad")?.getattr("__dict__")?;
        let torch = modules::import(py, "torch")?;
        let autocast_known =
            AUTOCAST.map(|(device, _)| torch.call_method1("get_autocast_dtype", (device,)).is_ok());
        // SAFETY: the mangled names carry the argument types: all functions take nothing, except
        // `get_autocast_dtype(c10::DeviceType)`; results are references (returned as addresses),
        // one-byte enums, booleans and `int64_t`.
        let reader = unsafe {
            (|| {
                let (flags, precisions) = context()?;
                Some(Reader {
                    autograd_state: Library::C10
                        .function(c"_ZN3c1013AutogradState13get_tls_stateEv")?,
                    saved_hooks: Library::Cpu
                        .function(c"_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv")?,
                    tracing: Library::Cpu.function(c"_ZN5torch3jit6tracer15getTracingStateEv")?,
                    default_dtype: Library::C10
                        .function(c"_ZN3c1031get_default_dtype_as_scalartypeEv")?,
                    autocast_dtype: Library::Cpu
                        .function(c"_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE")?,
                    autocast_known,
                    autocast_cache: Library::Cpu
                        .function(c"_ZN2at8autocast25is_autocast_cache_enabledEv")?,
                    function_modes: Library::Cpu
                        .function(c"_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv")?,
                    function_switch: Library::Cpu
                        .function(c"_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv")?,
                    dispatch_modes: Library::C10
                        .function(c"_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv")?,
                    anomaly: [
                        Library::Cpu.symbol(c"_ZN5torch8autograd11AnomalyMode8_enabledE")?.cast(),
                        Library::Cpu
                            .symbol(c"_ZN5torch8autograd11AnomalyMode10_check_nanE")?
                            .cast(),
                    ],
                    forward_ad: forward_ad.unbind(),
                    flags,
                    precisions,
                })
            })()
        };
        match reader {
            Some(reader) if reader.agrees(py)? => Ok(Some(reader)),
            _ => Ok(None),
        }
    }

    /// Whether changing this thread's state through Python changes the words that it should.
    fn agrees(&self, py: Python<'_>) -> PyResult<bool> {
        let source = c"
import contextlib

def calibrate(torch, read):
    hooks = torch.autograd.graph
    before = read()
    seen = []
    def inside(make):
        with make():
            seen.append(read())
        return read() == before
    identity = lambda tensor: tensor
    @contextlib.contextmanager
    def other_dtype(device):
        before = torch.get_autocast_dtype(device)
        torch.set_autocast_dtype(device, torch.float64)
        yield
        torch.set_autocast_dtype(device, before)
    same = [
        inside(make) for make in (
            lambda: torch.no_grad() if torch.is_grad_enabled() else torch.enable_grad(),
            lambda: torch.inference_mode(not torch.is_inference_mode_enabled()),
            lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(not torch._C._is_fwd_grad_enabled()),
            lambda: torch.autocast('cpu', enabled=not torch.is_autocast_enabled('cpu')),
            lambda: other_dtype('xpu'), lambda: other_dtype('hpu'),
            lambda: torch._C.DisableTorchFunctionSubclass(),
            lambda: hooks.saved_tensors_hooks(identity, identity),
            lambda: hooks.disable_saved_tensors_hooks('calibration'),
        )
    ]
    return all(same) and all(words != before for words in seen) and seen[-1] is seen[-2] is None
";
        let torch = modules::import(py, "torch")?;
        let calibrate = PyModule::from_code(py, source, c"<stator>", c"_stator_calibration")?
            .getattr("calibrate")?;
        let address = std::ptr::from_ref(self) as usize;
        let read = pyo3::types::PyCFunction::new_closure(py, None, None, move |args, _| {
            // SAFETY: the closure is called only by `calibrate`, while `self` is borrowed.
            let reader = unsafe { &*(address as *const Reader) };
            reader.read(args.py()).map(|words| words.0.to_vec())
        })?;
        calibrate.call1((torch, read))?.extract()
    }
}

/// This thread's key sets. On macOS the variable has no public name, and a function gives it.
fn key_sets() -> Option<*const c_void> {
    if let Some(found) = Library::C10.symbol(c"_ZN3c104impl26raw_local_dispatch_key_setE") {
        return Some(found);
    }
    // SAFETY: the compiler's accessor of that variable, which takes nothing and returns its address.
    let address: AddressOf =
        unsafe { Library::C10.function(c"_ZTWN3c104impl26raw_local_dispatch_key_setE")? };
    // SAFETY: as above.
    Some(unsafe { address() })
}

type Flags = (*const u64, usize);

/// Locates the flags of `at::Context` and the values of its map of precisions.
///
/// The flags lie between the field of the first getter and the map. The map is an
/// `unordered_map`, known by its shape: bucket count twice, element count, load factor 1.
fn context() -> Option<(Flags, Vec<*const u32>)> {
    // SAFETY: `globalContext` takes nothing and returns a reference to a static object of more
    // than 1 KiB (22 once-flags of 48 bytes lead); the search stops within the library's data.
    // Nodes of the map are (next, key, value, hash) and never move.
    unsafe {
        let global: AddressOf = Library::Cpu.function(c"_ZN2at13globalContextEv")?;
        let base = global().cast::<u64>();
        let field = |name| getter::byte_offset(Library::Cpu.symbol(name)?.cast_const().cast());
        let first = field(c"_ZNK2at7Context16userEnabledCuDNNEv")?;
        let last = field(c"_ZNK2at7Context21allowFP16ReductionCPUEv")?;
        let from = first / 8;
        let map = (last / 8..last / 8 + 8).find(|index| {
            let word = |offset: usize| base.add(index + offset).read();
            word(1) == word(5)
                && word(4) == 0x3f80_0000
                && (1..=PRECISIONS as u64).contains(&word(3))
        })?;
        let count = map - from;
        let mut precisions = Vec::new();
        let mut node = base.add(map + 2).read() as *const u64;
        while !node.is_null() && precisions.len() < PRECISIONS {
            precisions.push(node.cast::<u32>().add(4));
            node = node.read() as *const u64;
        }
        let complete = precisions.len() as u64 == base.add(map + 3).read();
        (complete && last / 8 < map && FIXED + count + precisions.len().div_ceil(2) <= WORDS)
            .then(|| ((base.add(from), count), precisions))
    }
}

//! Python functions whose work the recorder does itself, or has another function do:
//! * `nn.Module.__getattr__`: each parameter and submodule that a module reads ends in one, and
//!   evaluating its frame costs more than all else about the read;
//! * `logging.Logger.isEnabledFor`, whose cache and lock would be all that a trace sees of it;
//! * `torch.inference_mode`'s entry and exit, which end in methods of a C++ object;
//! * `json.JSONEncoder.encode`: see `json.rs`;
//! * `random.shuffle` and such: see `orders.rs`.
//!
//! A function is taken for a known one if its bytecode is that of the source below, compiled by this
//! interpreter. Where PyTorch's differs it is traced, like any other.

use pyo3::prelude::*;
use stator_bytecode::Version;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
use stator_cpython::opcode::TARGET;

/// What `torch.nn.Module.__getattr__` does.
const MODULE_MEMBER: &std::ffi::CStr = c"
def member(self, name):
    if '_parameters' in self.__dict__:
        first = self.__dict__['_parameters']
        if name in first:
            return first[name]
    if '_buffers' in self.__dict__:
        second = self.__dict__['_buffers']
        if name in second:
            return second[name]
    if '_modules' in self.__dict__:
        third = self.__dict__['_modules']
        if name in third:
            return third[name]
    raise AttributeError(f\"'{type(self).__name__}' object has no attribute '{name}'\")
";

/// What `torch.Tensor.__hash__` does.
const TENSOR_HASH: &std::ffi::CStr = c"
def member(self):
    return id(self)
";

/// What `logging.Logger.isEnabledFor` does, until CPython 3.12, from 3.13 on and from 3.13.4 on; and what it comes to.
const IS_ENABLED_FOR: &std::ffi::CStr = c"
def until_312(self, level):
    '''
        Is this logger enabled for level 'level'?
        '''
    if self.disabled:
        return False
    try:
        return self._cache[level]
    except KeyError:
        _acquireLock()
        try:
            if self.manager.disable >= level:
                is_enabled = self._cache[level] = False
            else:
                is_enabled = self._cache[level] = (
                    level >= self.getEffectiveLevel()
                )
        finally:
            _releaseLock()
        return is_enabled

def since_313(self, level):
    '''
        Is this logger enabled for level 'level'?
        '''
    if self.disabled:
        return False

    try:
        return self._cache[level]
    except KeyError:
        with _lock:
            if self.manager.disable >= level:
                is_enabled = self._cache[level] = False
            else:
                is_enabled = self._cache[level] = (
                    level >= self.getEffectiveLevel()
                )
        return is_enabled

def since_3134(self, level):
    '''
        Is this logger enabled for level 'level'?
        '''
    if self._is_disabled():
        return False

    try:
        return self._cache[level]
    except KeyError:
        with _lock:
            if self.manager.disable >= level:
                is_enabled = self._cache[level] = False
            else:
                is_enabled = self._cache[level] = (
                    level >= self.getEffectiveLevel()
                )
        return is_enabled

def isEnabledFor(self, level):
    if self.disabled:
        return False
    if self.manager.disable >= level:
        return False
    return level >= self.getEffectiveLevel()

def is_enabled_since_3134(self, level):
    if self._is_disabled():
        return False
    if self.manager.disable >= level:
        return False
    return level >= self.getEffectiveLevel()
";

/// What `torch.inference_mode` does when it is entered and left; and what is traced for it.
const INFERENCE_MODE: &std::ffi::CStr = c"
import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

def known_enter(self):
    self._inference_mode_context = torch._C._InferenceMode(self.mode)
    self._inference_mode_context.__enter__()

def known_exit(self, exc_type, exc_value, traceback):
    self._inference_mode_context.__exit__(exc_type, exc_value, traceback)

def __enter__(self):
    self._inference_mode_context = _enter_inference_mode(self.mode)

def __exit__(self, exc_type, exc_value, traceback):
    _exit_inference_mode(self._inference_mode_context)
";

/// What makes two code objects do the same; names of local variables and lines don't.
const BEHAVIOUR: [&str; 11] = [
    "co_code",
    "co_consts",
    "co_names",
    "co_exceptiontable",
    "co_flags",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_nlocals",
    "co_cellvars",
    "co_freevars",
];

/// What is asked of the arguments of a call.
pub(super) type Asked = fn(&[Borrowed<'_, '_>]) -> bool;

/// A function that does what the recorder's model of it does, as long as its code isn't replaced.
#[derive(Debug)]
pub struct KnownFunction {
    function: Py<PyAny>,
    code: Py<PyAny>,
    /// A function to be traced in its place.
    instead: Option<Py<PyAny>>,
    /// Of which calls that function does the same; `None`: of all.
    only_for: Option<Asked>,
    /// Which calls are no part of a trace, as a whole; `None`: all may be.
    whole_for: Option<Asked>,
}

impl KnownFunction {
    /// `torch.nn.Module.__getattr__`, if it is the known one.
    ///
    /// # Errors
    /// If something isn't where Python or PyTorch have it.
    pub fn module_member(torch: &Bound<'_, PyModule>) -> PyResult<Option<Self>> {
        let function = torch.getattr("nn")?.getattr("Module")?.getattr("__getattr__")?;
        Self::find(&function, MODULE_MEMBER)
    }

    /// `torch.Tensor.__hash__`, if it is the known one.
    ///
    /// # Errors
    /// As [`KnownFunction::module_member`].
    pub fn tensor_hash(torch: &Bound<'_, PyModule>) -> PyResult<Option<Self>> {
        Self::find(&torch.getattr("Tensor")?.getattr("__hash__")?, TENSOR_HASH)
    }

    fn find(function: &Bound<'_, PyAny>, source: &std::ffi::CStr) -> PyResult<Option<Self>> {
        let known = PyModule::from_code(function.py(), source, c"<stator>", c"_stator_member")?;
        Self::of(function, &known.getattr("member")?, None)
    }

    /// `logging.Logger.isEnabledFor`, if it is the known one.
    ///
    /// # Errors
    /// If something isn't where Python has it.
    pub fn is_enabled_for(py: Python<'_>) -> PyResult<Option<Self>> {
        let function =
            modules::import(py, "logging")?.getattr("Logger")?.getattr("isEnabledFor")?;
        let known = PyModule::from_code(py, IS_ENABLED_FOR, c"<stator>", c"_stator_logging")?;
        let names: &[_] = if TARGET >= Version::V313 {
            &[("since_313", "isEnabledFor"), ("since_3134", "is_enabled_since_3134")]
        } else {
            &[("until_312", "isEnabledFor")]
        };
        for (name, instead) in names {
            let found = Self::of(&function, &known.getattr(name)?, Some(known.getattr(instead)?))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Entry and exit of `torch.inference_mode`, if they are the known ones.
    ///
    /// # Errors
    /// As [`KnownFunction::module_member`].
    pub fn inference_mode(torch: &Bound<'_, PyModule>) -> PyResult<Vec<Self>> {
        let class = torch.getattr("inference_mode")?;
        let known =
            PyModule::from_code(torch.py(), INFERENCE_MODE, c"<stator>", c"_stator_inference")?;
        let mut found = Vec::new();
        for (name, known_name) in [("__enter__", "known_enter"), ("__exit__", "known_exit")] {
            let instead = known.getattr(name)?;
            found.extend(Self::of(
                &class.getattr(name)?,
                &known.getattr(known_name)?,
                Some(instead),
            )?);
        }
        Ok(found)
    }

    pub(super) fn of<'py>(
        function: &Bound<'py, PyAny>,
        known: &Bound<'py, PyAny>,
        instead: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Self>> {
        let Some(code) = function.getattr_opt("__code__")? else { return Ok(None) };
        let known = known.getattr("__code__")?;
        for name in BEHAVIOUR {
            if !code.getattr(name)?.eq(known.getattr(name)?)? {
                return Ok(None);
            }
        }
        let instead = instead.map(Bound::unbind);
        let function = function.clone().unbind();
        Ok(Some(Self { function, code: code.unbind(), instead, only_for: None, whole_for: None }))
    }

    /// The same, where the function in its place is for some calls only.
    pub(super) fn only_for(self, asked: Asked) -> Self {
        Self { only_for: Some(asked), ..self }
    }

    /// The same, where some of the other calls are no part of a trace, as a whole.
    pub(super) fn whole_for(self, asked: Asked) -> Self {
        Self { whole_for: Some(asked), ..self }
    }

    /// The same, with another function that is traced in its place.
    pub(super) fn replaced_by(self, instead: Bound<'_, PyAny>) -> Self {
        Self { instead: Some(instead.unbind()), ..self }
    }

    /// Whether a call of this function is no part of a trace, as a whole.
    #[must_use]
    pub fn is_whole_for(&self, function: Borrowed<'_, '_>, args: &[Borrowed<'_, '_>]) -> bool {
        self.whole_for.is_some_and(|asked| asked(args)) && self.is(function)
    }

    /// Whether the function in its place is for a call with these arguments.
    #[must_use]
    pub fn is_for(&self, args: &[Borrowed<'_, '_>]) -> bool {
        self.only_for.is_none_or(|asked| asked(args))
    }

    /// The function's address.
    #[must_use]
    pub fn address(&self) -> usize {
        self.function.as_ptr() as usize
    }

    /// The function to be traced in place of this one.
    #[must_use]
    pub fn instead<'py>(&self, function: Borrowed<'_, 'py>) -> Option<Bound<'py, PyAny>> {
        let instead = self.instead.as_ref().filter(|_| self.is(function));
        instead.map(|instead| instead.bind(function.py()).clone())
    }

    /// A function, with the code it has.
    pub(super) fn new(function: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) -> Self {
        let (function, code) = (function.clone().unbind(), code.clone().unbind());
        Self { function, code, instead: None, only_for: None, whole_for: None }
    }

    /// The function.
    #[must_use]
    pub fn function(&self) -> &Py<PyAny> {
        &self.function
    }

    /// The code's address.
    #[must_use]
    pub fn code(&self) -> usize {
        self.code.as_ptr() as usize
    }

    /// Whether this is the function, with the code it had when it was found to be the known one.
    #[must_use]
    pub fn is(&self, function: Borrowed<'_, '_>) -> bool {
        self.function.is(&*function)
            && value(function, Field::Code).is_some_and(|code| code.is(&self.code))
    }
}

//! Python functions of PyTorch whose work the recorder does itself: each parameter and submodule that
//! a module reads ends in one, and evaluating its frame costs more than all else about the read.
//!
//! A function is taken for a known one if its bytecode is that of the source below, compiled by this
//! interpreter. Where PyTorch's differs it is traced, like any other.

use pyo3::prelude::*;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::Borrowed;

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

/// A function that does what the recorder's model of it does, as long as its code isn't replaced.
pub struct KnownFunction {
    function: Py<PyAny>,
    code: Py<PyAny>,
}

impl KnownFunction {
    /// `torch.nn.Module.__getattr__`, if it is the known one.
    ///
    /// # Errors
    /// If something isn't where Python or PyTorch have it.
    pub fn module_member(torch: &Bound<'_, PyModule>) -> PyResult<Option<Self>> {
        let function = torch.getattr("nn")?.getattr("Module")?.getattr("__getattr__")?;
        let Some(code) = function.getattr_opt("__code__")? else { return Ok(None) };
        let known = PyModule::from_code(torch.py(), MODULE_MEMBER, c"<stator>", c"_stator_member")?;
        let known = known.getattr("member")?.getattr("__code__")?;
        for name in BEHAVIOUR {
            if !code.getattr(name)?.eq(known.getattr(name)?)? {
                return Ok(None);
            }
        }
        Ok(Some(Self { function: function.unbind(), code: code.unbind() }))
    }

    /// A function, with the code it has.
    pub(super) fn new(function: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) -> Self {
        Self { function: function.clone().unbind(), code: code.clone().unbind() }
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

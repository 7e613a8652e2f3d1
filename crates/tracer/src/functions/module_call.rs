//! How `torch.nn.Module.__call__` gets to `forward`: two frames, each of which begins with a stretch of
//! instructions that finds no hooks and goes on. The recorder does the work of such a stretch at once.
//!
//! The stretches are found in PyTorch's own bytecode, and what they read with them: a PyTorch that
//! does something else has none, and its frames are evaluated like any other.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_bytecode::{Instruction, Meaning, Truth, decode};
use stator_cpython::opcode::{NULL_IS_ABOVE, TARGET};

use super::python::KnownFunction;

/// Both frames. Names are interned strings.
pub struct ModuleCall {
    /// `__call__`: goes on to the other one, unless the module was compiled by PyTorch.
    pub outer: KnownFunction,
    /// Where its stretch ends: with a `NULL` and the other one, bound, on the stack.
    pub outer_end: usize,
    /// The attribute that is `None` where the module wasn't compiled.
    pub compiled: Py<PyAny>,
    /// The attribute that is the other frame's function.
    pub call: Py<PyAny>,
    /// `_call_impl`: goes on to `forward`, unless there are hooks or PyTorch's JIT traces.
    pub inner: KnownFunction,
    /// Where its stretch ends: with `forward`, bound, in its cell.
    pub inner_end: usize,
    /// Fast locals that are the cells of the module and of `forward`.
    pub cells: [usize; 2],
    /// The attribute that is called.
    pub forward: Py<PyAny>,
    /// The attributes that are dictionaries of hooks.
    pub hooks: Vec<Py<PyAny>>,
    /// The globals that are such dictionaries.
    pub global_hooks: Vec<Py<PyAny>>,
    /// A global, an attribute of it and so on: the function that says whether the JIT traces.
    pub tracing: Vec<Py<PyAny>>,
}

impl ModuleCall {
    /// Finds the stretches; `None` if PyTorch's functions don't begin with them.
    ///
    /// # Errors
    /// If something isn't where Python or PyTorch have it.
    pub fn find(torch: &Bound<'_, PyModule>) -> PyResult<Option<Self>> {
        let module = torch.getattr("nn")?.getattr("Module")?;
        let (Some(outer), Some(inner)) =
            (module.getattr_opt("__call__")?, module.getattr_opt("_call_impl")?)
        else {
            return Ok(None);
        };
        let (Some(mut first), Some(mut second)) = (Reader::of(&outer)?, Reader::of(&inner)?) else {
            return Ok(None);
        };
        let known = [&outer, &inner]
            .map(|function| Ok(KnownFunction::new(function, &function.getattr("__code__")?)));
        let [outer, inner] = known;
        let (Some((compiled, call, outer_end)), Some(stretch)) = (first.outer(), second.inner())
        else {
            return Ok(None);
        };
        let Stretch { tracing, cells, forward, hooks, global_hooks, end } = stretch;
        let (outer, inner): (PyResult<_>, PyResult<_>) = (outer, inner);
        let (outer, inner) = (outer?, inner?);
        Ok(Some(Self {
            outer,
            outer_end,
            compiled,
            call,
            inner,
            inner_end: end,
            cells,
            forward,
            hooks,
            global_hooks,
            tracing,
        }))
    }
}

/// What the second frame's stretch reads.
struct Stretch {
    tracing: Vec<Py<PyAny>>,
    cells: [usize; 2],
    forward: Py<PyAny>,
    hooks: Vec<Py<PyAny>>,
    global_hooks: Vec<Py<PyAny>>,
    end: usize,
}

/// The whole names of functions that say whether the JIT traces; PyTorch asks the second since 2.15.
const TRACING: [[&str; 3]; 2] =
    [["torch", "_C", "_get_tracing_state"], ["torch", "_C", "_is_tracing"]];

/// Reads instructions one after the other.
struct Reader<'py> {
    instructions: Vec<Instruction>,
    names: Bound<'py, PyTuple>,
    at: usize,
}

impl<'py> Reader<'py> {
    fn of(function: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let Some(code) = function.getattr_opt("__code__")? else { return Ok(None) };
        let bytes: Vec<u8> = code.getattr("co_code")?.extract()?;
        let names = code.getattr("co_names")?.cast_into()?;
        let instructions = decode(TARGET, &bytes).ok();
        Ok(instructions.map(|instructions| Self { instructions, names, at: 0 }))
    }

    /// What `read` makes of the next instruction; moves behind it, if that is something.
    fn take<T>(&mut self, read: impl FnOnce(Meaning) -> Option<T>) -> Option<T> {
        let found = read(self.instructions.get(self.at)?.meaning(TARGET))?;
        self.at += 1;
        Some(found)
    }

    /// Moves behind the next instruction, if it does this.
    fn pass(&mut self, meaning: Meaning) -> Option<()> {
        self.take(|found| (found == meaning).then_some(()))
    }

    /// Takes a jump and goes where it leads.
    fn jump(&mut self, is_it: impl FnOnce(Meaning) -> bool) -> Option<()> {
        let target = self.instructions.get(self.at)?.target;
        self.take(|found| is_it(found).then_some(()))?;
        self.at = target?.index();
        Some(())
    }

    /// Takes a jump for this truth value and goes where it leads; some versions ask for it in an instruction of
    /// its own.
    fn test(&mut self, value: bool) -> Option<()> {
        let _ = self.pass(Meaning::Test(Truth::Value));
        self.jump(|found| is_jump(found, value))
    }

    /// The same, of a jump that isn't taken.
    fn skip_test(&mut self, value: bool) -> Option<()> {
        let _ = self.pass(Meaning::Test(Truth::Value));
        self.take(|found| is_jump(found, value).then_some(()))
    }

    /// The index of the name of an attribute that is read, to be called or not.
    fn attribute_name(&mut self, called: bool) -> Option<usize> {
        self.take(|found| match found {
            Meaning::Attribute { name, is_method } if is_method == called => Some(name as usize),
            _ => None,
        })
    }

    /// The index of the name of a global that isn't called.
    fn global_name(&mut self) -> Option<usize> {
        self.take(|found| match found {
            Meaning::Global { name, with_null: false } => Some(name as usize),
            _ => None,
        })
    }

    fn name(&self, index: usize) -> Option<Py<PyAny>> {
        self.names.get_item(index).ok().map(Bound::unbind)
    }

    /// The attribute of such an owner that the next two instructions read.
    fn attribute(&mut self, owner: Meaning) -> Option<Py<PyAny>> {
        self.pass(owner)?;
        let index = self.attribute_name(false)?;
        self.name(index)
    }

    fn unit(&self) -> Option<usize> {
        self.instructions.get(self.at).map(|next| next.offset as usize)
    }

    /// The two attributes that the first frame's stretch reads, and the unit behind it.
    fn outer(&mut self) -> Option<(Py<PyAny>, Py<PyAny>, usize)> {
        self.pass(Meaning::Begin)?;
        let compiled = self.attribute(Meaning::Local(0))?;
        self.jump(|found| found == Meaning::TestNone { when: true })?;
        if !NULL_IS_ABOVE {
            self.pass(Meaning::PushNull)?;
        }
        let call = self.attribute(Meaning::Local(0))?;
        if NULL_IS_ABOVE {
            self.pass(Meaning::PushNull)?;
        }
        Some((compiled, call, self.unit()?))
    }

    fn inner(&mut self) -> Option<Stretch> {
        while self.pass(Meaning::MakeCell).is_some() {}
        self.pass(Meaning::Begin)?;
        let indices =
            [self.global_name()?, self.attribute_name(false)?, self.attribute_name(true)?];
        let tracing: Vec<_> =
            indices.into_iter().map(|index| self.name(index)).collect::<Option<_>>()?;
        let py = self.names.py();
        let is_known = TRACING.iter().any(|known| {
            tracing.iter().zip(known).all(|(name, known)| {
                name.bind(py).extract::<&str>().is_ok_and(|name| name == *known)
            })
        });
        if !is_known {
            return None;
        }
        while self.pass(Meaning::Nothing).is_some() {}
        self.pass(Meaning::Call { count: 0 })?;
        self.test(false)?;
        let at = self.instructions.get(self.at)?.meaning(TARGET);
        let Meaning::Free(module) = at else { return None };
        let forward = self.attribute(at)?;
        let cell = self.take(|found| match found {
            Meaning::SetFree(cell) => Some(cell as usize),
            _ => None,
        })?;
        let (mut hooks, mut global_hooks) = (Vec::new(), Vec::new());
        while let Some(hook) = self.attempt(|it| {
            let hook = it.attribute(Meaning::Free(module))?;
            it.skip_test(true)?;
            Some(hook)
        }) {
            hooks.push(hook);
        }
        while let Some(hook) = self.attempt(|it| {
            let index = it.global_name()?;
            it.skip_test(true)?;
            it.name(index)
        }) {
            global_hooks.push(hook);
        }
        let end = self.unit()?;
        Some(Stretch { tracing, cells: [module as usize, cell], forward, hooks, global_hooks, end })
    }

    /// Goes back if the instructions aren't those.
    fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let at = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = at;
        }
        found
    }
}

/// Whether an instruction jumps forward for this truth value.
fn is_jump(meaning: Meaning, value: bool) -> bool {
    matches!(
        meaning,
        Meaning::Test(Truth::Jump { when, forward: true, .. }) if when == value
    )
}

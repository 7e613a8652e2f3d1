//! How `torch.nn.Module.__call__` gets to `forward`: two frames, each of which begins with a stretch of
//! instructions that finds no hooks, and then hands its arguments on. The recorder does the work of both at once.
//!
//! The stretches are found in PyTorch's own bytecode, and what they read with them: a PyTorch that
//! does something else has none, and its frames are evaluated like any other.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_bytecode::{Instruction, Meaning, Opcode, Truth, decode};
use stator_cpython::opcode::{NULL_IS_ABOVE, TARGET};

use super::python::KnownFunction;

/// Both frames. Names are interned strings.
pub struct ModuleCall {
    /// `__call__`: goes on to the other one, unless the module was compiled by PyTorch.
    pub outer: KnownFunction,
    /// Where its stretch ends: with a `NULL` and the other one, bound, on the stack.
    pub outer_end: usize,
    /// How it calls the other one.
    pub outer_passes: Option<Passes>,
    /// The attribute that is `None` where the module wasn't compiled.
    pub compiled: Py<PyAny>,
    /// The attribute that is the other frame's function.
    pub call: Py<PyAny>,
    /// `_call_impl`: goes on to `forward`, unless there are hooks or PyTorch's JIT traces.
    pub inner: KnownFunction,
    /// Where its stretch ends: with `forward`, bound, in its cell.
    pub inner_end: usize,
    /// How it calls `forward`.
    pub inner_passes: Option<Passes>,
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

/// `f(*args, **kwargs)`, of a frame's own `args` and `kwargs`, behind a stretch.
#[derive(Clone, Copy)]
pub struct Passes {
    /// The fast local that is `args`, or its cell.
    pub args: usize,
    /// The same of `kwargs`.
    pub kwargs: usize,
    /// The instruction that calls.
    pub unit: usize,
    /// How many there are up to it.
    pub instructions: usize,
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
        let outer_passes = first.passes(|found| match found {
            Meaning::Local(local) => Some(local),
            _ => None,
        });
        let inner_passes = second.passes_to(stretch.cells[1]);
        let Stretch { tracing, cells, forward, hooks, global_hooks, end } = stretch;
        let (outer, inner): (PyResult<_>, PyResult<_>) = (outer, inner);
        let (outer, inner) = (outer?, inner?);
        Ok(Some(Self {
            outer,
            outer_end,
            outer_passes,
            compiled,
            call,
            inner,
            inner_end: end,
            inner_passes,
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

    /// As [`Reader::pass`], by opcode and argument.
    fn pass_opcode(&mut self, opcode: Opcode, arg: u32) -> Option<()> {
        let next = self.instructions.get(self.at)?;
        let is_it = next.opcode == opcode && next.arg == arg;
        self.at += usize::from(is_it);
        is_it.then_some(())
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

    /// How a callable that is on the stack is called with the frame's `args` and `kwargs`, which `read` finds.
    fn passes(&mut self, read: impl Fn(Meaning) -> Option<u32>) -> Option<Passes> {
        let first = self.at;
        let args = self.take(&read)? as usize;
        self.pass_opcode(Opcode::BUILD_MAP, 0)?;
        let kwargs = self.take(&read)? as usize;
        self.pass_opcode(Opcode::DICT_MERGE, 1)?;
        let unit = self.unit()?;
        self.pass(Meaning::CallUnpacked { has_kwargs: true })?;
        Some(Passes { args, kwargs, unit, instructions: self.at - first })
    }

    /// The same of a callable, and of `args` and `kwargs`, in cells.
    fn passes_to(&mut self, cell: usize) -> Option<Passes> {
        let cell = Meaning::Free(u32::try_from(cell).ok()?);
        if !NULL_IS_ABOVE {
            self.pass(Meaning::PushNull)?;
        }
        self.pass(cell)?;
        if NULL_IS_ABOVE {
            self.pass(Meaning::PushNull)?;
        }
        self.passes(|found| match found {
            Meaning::Free(cell) => Some(cell),
            _ => None,
        })
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

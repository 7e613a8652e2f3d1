//! The frames that are being evaluated, the code they run, and where the trace stands in it.
//!
//! Invariants:
//! * code objects are numbered in the order they were met, and each is kept alive;
//! * the place of a guard is written down once for all guards that were read at one instruction;
//! * a call of a module is written down where its first node is: most readers of graphs never ask.

use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use rustc_hash::FxHashMap;
use stator_cpython::frame::Frame;
use stator_graph::{Graph, StackId};
use stator_guards::{SourceId, grow_in_leaps};

use crate::callers::Callers;
use crate::trace::ModuleCall;

/// Where the caller of a frame stands. Most frames hold no node, so the graph's entry is made when one
/// needs it.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// At this entry of the graph; none: nobody knows.
    Known(Option<StackId>),
    /// At this unit of the frame before.
    At(u32),
}

/// A frame being evaluated.
#[derive(Clone, Copy, Debug)]
pub struct ActiveFrame {
    /// Address of the frame.
    pub id: usize,
    /// Index of its code object in [`Frames::codes`].
    pub code: u32,
    /// Where its caller stands.
    pub caller: Caller,
    /// Whether its caller, evaluated as well, only waits for what it returns.
    pub is_direct: bool,
    /// If it is the first frame of a module's call: the module's index in [`Frames::modules`].
    pub module: Option<u32>,
}

/// The frames of a trace.
#[derive(Default)]
pub struct Frames {
    active: Vec<ActiveFrame>,
    codes: Vec<Py<PyAny>>,
    /// The global variables that each is evaluated with.
    globals: Vec<Py<PyAny>>,
    /// By the addresses of both.
    numbers: FxHashMap<(usize, usize), u32>,
    /// Code and unit of the instruction that is being evaluated.
    here: (u32, u32),
    /// The same of guards.
    read: Vec<(u32, u32)>,
    /// The modules whose calls were entered: source and class.
    modules: Vec<(SourceId, Py<PyWeakrefReference>)>,
    /// Calls of modules with nodes in them: where the first frame stands, and the module's index.
    module_calls: Vec<(StackId, u32)>,
}

/// What a trace keeps of its frames: see [`crate::trace::Traced`].
pub struct Kept {
    /// The code objects, and what their frames are made of.
    pub callers: Callers,
    /// The places of guards.
    pub locations: Vec<(u32, u32)>,
    /// The calls of modules.
    pub module_calls: Box<[ModuleCall]>,
}

impl Frames {
    /// Frames with room for the places of so many guards.
    pub fn with_room(places: usize) -> Self {
        Self { read: Vec::with_capacity(places), ..Self::default() }
    }

    /// The frames being evaluated, outermost first.
    pub fn active(&self) -> &[ActiveFrame] {
        &self.active
    }

    /// The innermost one.
    pub fn innermost(&self) -> Option<&ActiveFrame> {
        self.active.last()
    }

    /// A frame is entered.
    pub fn enter(&mut self, frame: ActiveFrame) {
        self.active.push(frame);
    }

    /// The innermost frame is the first one of a call of the module with this source.
    pub fn calls_module(&mut self, source: SourceId, class: Py<PyWeakrefReference>) {
        if let Some(innermost) = self.active.last_mut() {
            innermost.module = u32::try_from(self.modules.len()).ok();
            self.modules.push((source, class));
        }
    }

    /// The frame leaves, if it's the innermost one. Then: how many are around it.
    pub fn leave(&mut self, frame: &Frame<'_>) -> Option<usize> {
        self.active.pop_if(|active| active.id == frame.id())?;
        Some(self.active.len())
    }

    /// The same frames are being evaluated as in other notes, which have been taken out: their modules are no longer known.
    pub fn stay(&mut self, others: &Self) {
        self.active.clone_from(&others.active);
        self.active.iter_mut().for_each(|frame| frame.module = None);
    }

    /// The number of a frame's code object.
    pub fn number(&mut self, frame: &Frame<'_>) -> u32 {
        let (code, globals) = (frame.code(), frame.globals());
        let next = u32::try_from(self.codes.len()).expect("fewer than 2^32 code objects");
        let key = (code.as_ptr() as usize, globals.as_ptr() as usize);
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.codes.push(code.object().to_owned().unbind());
            self.globals.push(globals.to_owned().unbind());
        }
        number
    }

    /// The code objects, by number.
    pub fn codes(&self) -> &[Py<PyAny>] {
        &self.codes
    }

    /// The number of the code that is being evaluated, and the unit.
    pub fn here(&self) -> (u32, u32) {
        self.here
    }

    /// The code that is being evaluated.
    pub fn code_here(&self) -> Option<&Py<PyAny>> {
        self.codes.get(self.here.0 as usize)
    }

    /// The next guards are read at the instruction that `frame` stands at.
    pub fn locate(&mut self, frame: &Frame<'_>) {
        if let Some(active) = self.active.last() {
            self.here = (active.code, unit(frame));
        }
    }

    /// As [`Frames::locate`] for an instruction of the current frame that is yet to come.
    pub fn locate_unit(&mut self, unit: usize) {
        self.here.1 = u32::try_from(unit).unwrap_or(u32::MAX);
    }

    /// A guard is read here: which of the places that is.
    pub fn read(&mut self) -> u32 {
        if self.read.last() != Some(&self.here) {
            let read = &mut self.read;
            grow_in_leaps(read.len(), read.capacity(), |more| read.reserve(more));
            read.push(self.here);
        }
        (self.read.len() - 1) as u32
    }

    /// How many places guards were read at.
    pub fn places(&self) -> usize {
        self.read.len()
    }

    /// The place of the instruction that `frame` stands at, as a node's stack.
    pub fn stack(&mut self, graph: &mut Graph, frame: &Frame<'_>) -> Option<StackId> {
        let active = *self.active.last()?;
        let caller = self.caller(graph);
        Some(graph.stack(caller, active.code, unit(frame)))
    }

    /// The same of the place that the next guards are read at.
    pub fn stack_here(&mut self, graph: &mut Graph) -> Option<StackId> {
        self.active.last()?;
        let caller = self.caller(graph);
        Some(graph.stack(caller, self.here.0, self.here.1))
    }

    /// Where the caller of the innermost frame stands, as a node's stack.
    pub fn caller(&mut self, graph: &mut Graph) -> Option<StackId> {
        let last = self.active.len().checked_sub(1)?;
        let mut known = last;
        let mut stack = loop {
            match self.active[known].caller {
                Caller::Known(stack) => break stack,
                // Only a frame with one before it is given this.
                Caller::At(_) => known -= 1,
            }
        };
        for at in known + 1..=last {
            let Caller::At(unit) = self.active[at].caller else { continue };
            let place = graph.stack(stack, self.active[at - 1].code, unit);
            if let Some(module) = self.active[at - 1].module {
                self.module_calls.push((place, module));
            }
            stack = Some(place);
            self.active[at].caller = Caller::Known(stack);
        }
        stack
    }

    /// What a trace keeps of them.
    pub fn into_kept(mut self, py: Python<'_>) -> Kept {
        self.read.shrink_to_fit();
        let modules = &self.modules;
        let call = |(stack, module)| {
            let (source, class) = &modules[module as usize];
            ModuleCall { stack, source: *source, class: class.clone_ref(py) }
        };
        let module_calls = self.module_calls.into_iter().map(call).collect();
        let callers = Callers::new(self.codes, self.globals);
        Kept { callers, locations: self.read, module_calls }
    }
}

/// The unit that a frame stands at.
pub fn unit(frame: &Frame<'_>) -> u32 {
    u32::try_from(frame.unit()).expect("code objects have fewer than 2^32 units")
}

//! The frames that a replay's calls are made from: none of the program's is on the stack then.
//!
//! C code that warns says where the current frame stands, looks there for a filter's module, and notes there that it has
//! warned; what it calls in Python counts frames from there. In a replay that frame would be the compiled function's
//! caller. So each call is made from a frame object that stands where plain Python's frame would, and is called by
//! others that do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use stator_cpython::code::Code;
use stator_cpython::frame::StandIn;
use stator_graph::{Graph, StackId};

/// What a trace knows of its frames.
#[derive(Debug)]
pub struct Callers {
    codes: Vec<Py<PyAny>>,
    /// The global variables that each is evaluated with.
    globals: Vec<Py<PyAny>>,
    /// For each of the graphs that are made of the trace. Nobody's while no replay calls from them: two threads may replay
    /// the same trace, and a graph's replay runs that of its part.
    idle: Mutex<Vec<Option<Box<Frames>>>>,
}

/// Frames of one replay at a time. All of them have callers of the same graph.
#[derive(Debug, Default)]
struct Frames {
    /// Those that wait, by their places in the graph.
    waiting: Vec<Option<StandIn>>,
    /// The innermost ones, by their codes.
    innermost: Vec<Option<StandIn>>,
}

impl Callers {
    /// Of these code objects, and the global variables that each is evaluated with.
    #[must_use]
    pub fn new(codes: Vec<Py<PyAny>>, globals: Vec<Py<PyAny>>) -> Self {
        Self { codes, globals, idle: Mutex::default() }
    }

    /// The code objects, by their numbers in places.
    #[must_use]
    pub fn codes(&self) -> &[Py<PyAny>] {
        &self.codes
    }

    /// The code objects, and the global variables that each is evaluated with.
    #[must_use]
    pub fn pairs(&self, py: Python<'_>) -> Vec<(Py<PyAny>, Py<PyAny>)> {
        let pairs = self.codes.iter().zip(&self.globals);
        pairs.map(|(code, globals)| (code.clone_ref(py), globals.clone_ref(py))).collect()
    }

    /// A code object, by its number, and the global variables that it is evaluated with.
    #[must_use]
    pub fn code<'py>(
        &self,
        py: Python<'py>,
        number: u32,
    ) -> Option<(Code<'py>, &Bound<'py, PyDict>)> {
        let code = Code::of(self.codes.get(number as usize)?.bind_borrowed(py))?;
        Some((code, self.globals.get(number as usize)?.bind(py).cast().ok()?))
    }

    /// Shows the garbage collector what they hold.
    ///
    /// # Errors
    /// What `visit` says.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.globals.iter().try_for_each(|globals| visit.call(globals))?;
        // Who has locked it has the GIL: not now.
        let Ok(idle) = self.idle.try_lock() else { return Ok(()) };
        let idle = idle.iter().flatten();
        let frames = idle.flat_map(|frames| frames.waiting.iter().chain(&frames.innermost));
        frames.flatten().flat_map(StandIn::objects).try_for_each(|object| visit.call(object))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Box<Frames>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn frame(&self, py: Python<'_>, code: u32) -> Option<StandIn> {
        let (code, globals) = self.code(py, code)?;
        match StandIn::new(&code, globals) {
            Ok(frame) => Some(frame),
            Err(raised) => {
                raised.clear(py);
                None
            }
        }
    }
}

/// The places that a graph's calls are made from.
#[derive(Debug)]
pub struct CallSites {
    callers: Arc<Callers>,
    /// The graph's among those of the trace.
    graph: usize,
    sites: Box<[Site]>,
}

#[derive(Clone, Copy, Debug)]
struct Site {
    code: u32,
    unit: u32,
    /// Where the caller of this frame stands, and the outermost caller.
    callers: Option<(u32, u32)>,
}

impl CallSites {
    /// Those of a graph; its codes are numbered as those of `callers`.
    #[must_use]
    pub fn new(callers: &Arc<Callers>, graph: &Graph) -> Self {
        let mut sites: Vec<Site> = Vec::with_capacity(graph.stacks().len());
        for index in 0..graph.stacks().len() {
            let frame = graph.stacks().get(StackId::new(index)).expect("an entry of the table");
            let parent = frame.parent.map(|parent| parent.index());
            let callers = parent.map(|parent| {
                let outermost =
                    sites[parent].callers.map_or(parent, |(_, outermost)| outermost as usize);
                (as_number(parent), as_number(outermost))
            });
            sites.push(Site { code: frame.code, unit: frame.instruction, callers });
        }
        let mut idle = callers.lock();
        idle.push(None);
        Self { callers: callers.clone(), graph: idle.len() - 1, sites: sites.into() }
    }
}

/// A replay that makes calls from frames of its own.
pub struct Calling<'a, 'py> {
    py: Python<'py>,
    sites: &'a CallSites,
    frames: Option<Box<Frames>>,
    /// The code of the last call.
    last: Option<u32>,
}

impl<'a, 'py> Calling<'a, 'py> {
    /// Calls are made from these places.
    #[must_use]
    pub fn new(py: Python<'py>, sites: &'a CallSites) -> Self {
        Self { py, sites, frames: None, last: None }
    }

    /// Makes a call from a place. Without a frame, if memory is short.
    #[inline]
    pub fn call<R>(&mut self, place: StackId, call: impl FnOnce() -> R) -> R {
        let py = self.py;
        let Some(&site) = self.sites.sites.get(place.index()) else { return call() };
        if self.last != Some(site.code) {
            self.let_go();
            self.last = Some(site.code);
        }
        let callers = &self.sites.callers;
        let frames = self.frames.get_or_insert_with(|| {
            let idle = callers.lock()[self.sites.graph].take();
            idle.unwrap_or_default()
        });
        let Frames { waiting, innermost } = &mut **frames;
        if let Some((parent, _)) = site.callers
            && let None | Some(None) = waiting.get(parent as usize)
            && self.sites.wait(py, waiting, parent).is_none()
        {
            return call();
        }
        let at = site.code as usize;
        if innermost.len() <= at {
            innermost.resize_with(at + 1, || None);
        }
        if innermost[at].is_none() {
            innermost[at] = callers.frame(py, site.code);
        }
        let Some(frame) = &mut innermost[at] else { return call() };
        let parent = site.callers.and_then(|(parent, _)| waiting[parent as usize].as_ref());
        frame.stand(py, site.unit as usize, parent);
        let outermost =
            site.callers.and_then(|(_, outermost)| waiting[outermost as usize].as_mut());
        frame.call(py, outermost, call)
    }

    /// Somebody may have kept the frame of the last call: others are made from another one.
    fn let_go(&mut self) {
        let (Some(frames), Some(code)) = (&mut self.frames, self.last) else { return };
        let innermost = &mut frames.innermost[code as usize];
        if innermost.as_ref().is_some_and(|frame| frame.is_kept(self.py)) {
            *innermost = None;
        }
    }
}

impl Drop for Calling<'_, '_> {
    fn drop(&mut self) {
        self.let_go();
        if let Some(frames) = self.frames.take() {
            let before = self.sites.callers.lock()[self.sites.graph].replace(frames);
            drop(before);
        }
    }
}

impl CallSites {
    /// Has frames stand at a place and where its callers do.
    #[cold]
    fn wait(&self, py: Python<'_>, waiting: &mut Vec<Option<StandIn>>, place: u32) -> Option<()> {
        waiting.resize_with(self.sites.len(), || None);
        let missing = |place: &u32| waiting[*place as usize].is_none();
        let up = |place: &u32| self.sites[*place as usize].callers.map(|(parent, _)| parent);
        let places: Vec<u32> =
            std::iter::successors(Some(place), up).take_while(|place| missing(place)).collect();
        for place in places.into_iter().rev() {
            let site = self.sites[place as usize];
            let mut frame = self.callers.frame(py, site.code)?;
            let parent = site.callers.and_then(|(parent, _)| waiting[parent as usize].as_ref());
            frame.stand(py, site.unit as usize, parent);
            waiting[place as usize] = Some(frame);
        }
        Some(())
    }
}

fn as_number(place: usize) -> u32 {
    u32::try_from(place).expect("places are numbered by 32 bits")
}

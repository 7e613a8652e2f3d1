//! From notes to a cache entry: runs the call, then turns its result into recipes.

use std::rc::Rc;
use std::sync::Arc;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::frame::Frame;
use stator_cpython::generic::WithoutGc;
use stator_cpython::heap::mortal;
use stator_cpython::hook::{Active, Evaluated, Suspended};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::{Deferred, Thread};
use stator_cpython::{Result, ops};
use stator_evaluator::{Link, Plain, evaluate};
use stator_faults as faults;
use stator_faults::{Escape, Fault, Stage, contain};
use stator_guards::{GlobalState, GuardKind, ObjectId, Source, SourceId};

use crate::breaks::{Break, Reason};
use crate::effects::{Key, Part, Store};
use crate::frames::anatomy::Anatomy;
use crate::handlers::Withs;
use crate::policy::Policy;
use crate::profit::Work;
use crate::recipe::{GraphOutputs, Recipe, RecipeId, Recipes};
use crate::recorder::ending::drawn::keep_drawn;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::effects;
use crate::recorder::notes::effects::Last;
use crate::recorder::notes::frames::Kept;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::numbers::symbols::PlainLists;
use crate::recorder::{Recorder, Recording, mode};
use crate::resume::point::{Waiting, slots};
use crate::resume::session::Session;
use crate::rollback::Generators;
use crate::trace::{Broken, Ending, FrameRecipe, Raised, Traced};
use crate::{accelerator, compiling};

/// How the recorded program ends or stands still.
pub enum End<'a, 'py> {
    /// It returns.
    Return(Borrowed<'a, 'py>),
    /// It stands at a graph break.
    Break(&'a [Standing<'py>]),
}

/// A frame that stands at a graph break.
pub struct Standing<'py> {
    /// The frame, where it goes on and what counts of its stack.
    pub waiting: Waiting<'py>,
    /// The unit that tracebacks name.
    pub current: usize,
    /// The unit of the breaking instruction itself.
    pub last: usize,
    /// Its code.
    pub anatomy: Rc<Anatomy>,
}

impl Standing<'_> {
    /// Whether the program may still read a fast local when the frame goes on.
    pub fn is_live(&self, slot: usize) -> bool {
        if self.waiting.link.is_some() {
            self.anatomy.is_live_behind(self.waiting.frame.unit(), slot)
        } else {
            self.anatomy.is_live_before(self.waiting.next, slot)
        }
    }
}

/// Records a call of a Python function: executes it, once, and returns its result; what was
/// recorded goes to the session. `global` and `generators` are the state at entry.
///
/// # Errors
/// If the tables that recording needs can't be built.
pub fn record<'py>(
    function: Borrowed<'_, 'py>,
    args: Borrowed<'_, 'py>,
    kwargs: Option<Borrowed<'_, 'py>>,
    global: Arc<GlobalState>,
    generators: Generators,
    session: Rc<Session>,
    policy: Policy,
) -> PyResult<Result<Object<'py>>> {
    let py = function.py();
    let code = heap::function_code(function).map_or(0, |code| code.as_ptr() as usize);
    let deferred = Deferred::new(py);
    faults::at(Stage::Begin)?;
    let recorder = Recorder::new(py, code, session)?;
    crate::recorder::warm_up(py);
    {
        let mut state = recorder.state.borrow_mut();
        state.policy = policy.for_compiler(!recorder.session.is_eager);
        let source = state.sources.intern(Source::GlobalState);
        state.guard(source, GuardKind::GlobalState(global));
    }
    *recorder.generators.borrow_mut() = generators;
    *recorder.selected.borrow_mut() = accelerator::selected_at_entry(py)?;
    *recorder.gc.borrow_mut() = Some(WithoutGc::new(py));
    recorder.session.begins();
    drop(deferred);
    let result = recorder.evaluating(py, || ops::call_ex(function, args, kwargs));
    let mut lists = PlainLists::default();
    let mut plain = |value| recorder.state.borrow().plain_result(value, &mut lists);
    let left = |value: &Object<'py>| recorder.plain_left(value.as_borrowed());
    let plain = || result.as_ref().ok().and_then(|value| plain(value).or_else(|| left(value)));
    let plain = recorder.guarded(py, plain).flatten();
    recorder.close(py, result.as_ref().ok().map(|value| value.as_borrowed()));
    // The result is there: what fails now isn't the call.
    match contain(py, || lists.settle()) {
        Ok(()) => Ok(plain.map_or(result, Ok)),
        Err(Escape::Raised(error)) => Err(error),
        Err(Escape::Fault(fault)) => {
            recorder.fault(py, fault);
            Ok(result)
        }
    }
}

/// Who evaluates a frame that begins in a recorded call.
enum By {
    /// CPython alone.
    Cpython,
    /// Nobody takes notes, and each frame that it calls is asked for again.
    Between,
    /// The recorder.
    Recorder,
    /// Whoever would without it.
    Others,
}

/// Evaluates a frame that begins in a recorded call.
pub(in crate::recorder) fn evaluate_recorded<'py>(
    py: Python<'py>,
    frame: Frame<'py>,
    throw: bool,
) -> Evaluated<'py> {
    let Some(recorder) = crate::recorder::current() else {
        return compiling::pass_on(py, frame, throw);
    };
    // Where asking fails, the frame runs natively.
    match recorder.guarded(py, || recorder.evaluator_of(&frame)) {
        Some(By::Cpython) => {
            let _native = Suspended::new(py);
            stator_cpython::hook::default(py, frame, throw)
        }
        Some(By::Between) => {
            recorder.between.borrow_mut().push(frame.id());
            let result = compiling::pass_on_to(py, frame, throw, evaluate_between);
            recorder.between.borrow_mut().pop();
            result
        }
        Some(By::Recorder) => evaluate(py, frame, throw, &*recorder),
        _ if mode::is_on() => {
            // What runs natively is not to meet it: PyTorch's own tracer would trace it.
            recorder.suspend_mode(py);
            let result = compiling::pass_on(py, frame, throw);
            recorder.resume_mode(py);
            result
        }
        _ => compiling::pass_on(py, frame, throw),
    }
}

/// Evaluates a frame of PyTorch's own within a node. CPython's loop would enter the `__init__` of a class without asking
/// who evaluates it (since 3.13, once a call is warm): nobody would see what the program's own code does in there.
fn evaluate_between<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    evaluate(py, frame, throw, &Plain)
}

impl Recorder {
    /// Runs a frame natively that weak references have entered from somewhere: it is no part of the
    /// program, but tensors without data stand in such dictionaries of PyTorch's.
    fn is_weak_callback(&self, frame: &Frame<'_>) -> bool {
        let Some(rules) = &self.session.program else { return false };
        rules.is_weak_callback(frame.code().as_ptr() as usize)
    }

    /// Runs code whose frames are to be recorded.
    pub fn evaluating<'py, T>(self: &Rc<Self>, py: Python<'py>, run: impl FnOnce() -> T) -> T {
        let _recording = Recording::start(self.clone());
        self.observers.set(Thread::current(py).observers());
        let _active = Active::new(py, evaluate_recorded);
        run()
    }

    fn evaluator_of(&self, frame: &Frame<'_>) -> By {
        // What CPython tells of the program isn't a part of it.
        let is_observer = Thread::current(frame.py()).observers() > self.observers.get();
        if is_observer || self.is_weak_callback(frame) {
            By::Cpython
        } else if self.is_between(frame) {
            By::Between
        } else if self.records(frame) {
            By::Recorder
        } else {
            By::Others
        }
    }

    /// The recorded call has ended.
    pub fn close(&self, py: Python<'_>, result: Option<Borrowed<'_, '_>>) {
        let _deferred = Deferred::new(py);
        self.guarded(py, || self.end_call(py, result));
        drop(self.gc.take());
    }

    fn end_call(&self, py: Python<'_>, result: Option<Borrowed<'_, '_>>) {
        if let Some(value) = result
            && !self.stopped.replace(true)
            && !self.watching.get()
            && let Err((reason, detail)) = self.end_with(py, End::Return(value))
        {
            if reason == Reason::Internal {
                return self.fault(py, Fault::new(detail));
            }
            let stop = Break { reason, detail, stack: Vec::new() };
            if !self.avoid_raising(&stop) && !self.avoid_reading(&stop) {
                self.fail(&stop);
            }
            self.session.broke(stop);
        }
        self.end_refusal(py);
    }
}

/// Turns notes into a finished trace.
pub struct Finish<'s> {
    pub(in crate::recorder) state: &'s mut State,
    pub(in crate::recorder) recipes: Recipes,
    /// Whether the trace goes on: its recipes are those of all exits.
    pub(in crate::recorder) is_exit: bool,
    pub(in crate::recorder) made: FxHashMap<usize, RecipeId>,
    /// The objects made by the trace that recipes were made of, if it has symbols.
    pub(in crate::recorder) visited: Vec<Py<PyAny>>,
    /// What was taken out of them and of what was written.
    pub(in crate::recorder) exchanged: Vec<Py<PyAny>>,
    /// What stands in their places, by their addresses.
    pub(in crate::recorder) exchanged_for: FxHashMap<usize, Py<PyAny>>,
    /// The keys of `made`, in the order in which they came.
    pub(in crate::recorder) order: Vec<usize>,
    /// The frame objects of the frames that are made, by address; 0 where there is none.
    pub(in crate::recorder) standing: Vec<usize>,
    /// The exceptions that the trace raised.
    pub(in crate::recorder) raised: Vec<Raised>,
    /// Recipes of instance dictionaries.
    pub(in crate::recorder) instance_dicts: FxHashSet<RecipeId>,
    /// Recipes of tokens of context variables.
    pub(in crate::recorder) tokens_made: Vec<RecipeId>,
    pub(in crate::recorder) outputs: GraphOutputs,
    pub(in crate::recorder) kept: FxHashSet<ObjectId>,
    /// Objects that exist only while recipes are made.
    pub(in crate::recorder) temporaries: Vec<Py<PyAny>>,
}

pub(in crate::recorder) type Made<T> = std::result::Result<T, Stop>;

impl<'s> Finish<'s> {
    /// Nothing is made yet.
    pub(in crate::recorder) fn new(state: &'s mut State) -> Self {
        let kept = std::mem::take(&mut state.kept);
        Finish {
            state,
            recipes: Recipes::new(),
            is_exit: false,
            made: FxHashMap::default(),
            visited: Vec::new(),
            exchanged: Vec::new(),
            exchanged_for: FxHashMap::default(),
            order: Vec::new(),
            standing: Vec::new(),
            raised: Vec::new(),
            instance_dicts: FxHashSet::default(),
            tokens_made: Vec::new(),
            outputs: GraphOutputs::default(),
            kept,
            temporaries: Vec::new(),
        }
    }

    /// Makes recipes of what the end needs, and takes the notes apart. `exchanged` gets what has to live on for now.
    pub fn run(
        mut state: State,
        py: Python<'_>,
        end: End<'_, '_>,
        handled: Option<&Object<'_>>,
        exchanged: &mut Vec<Py<PyAny>>,
    ) -> Made<Traced> {
        let mut finish = Finish::new(&mut state);
        let mut ending = finish.ending(end, handled)?;
        let written = finish.state.take_effects(py);
        let (effects, targets) = finish.effects(py, &written)?;
        finish.raised_beside(&mut ending);
        let ending_last = finish.ending_last(&ending, &targets);
        let emissions = finish.emissions(py)?;
        let known_lists =
            if emissions.is_empty() { Box::default() } else { finish.known_lists(py) };
        let locks = finish.locks();
        if let Some(stop) = finish.state.failure.take() {
            return Err(stop);
        }
        finish.check_made(py)?;
        finish.share_numbers(py, &written);
        drop(written);
        exchanged.append(&mut finish.exchanged);
        let Finish { recipes, mut outputs, kept, .. } = finish;
        if state.policy.is_for_compiler() {
            keep_drawn(&state.graph, &mut outputs);
        }
        outputs.set(&mut state.graph);
        if state.graph.reads_withdrawn() {
            return Err((Reason::UnknownOrigin, "a value of code within a node".into()));
        }
        debug_assert!(state.graph.verify().is_ok(), "{:?}", state.graph.verify());
        let written = state.inputs.written(py);
        state.check_foreseen()?;
        state.guard_tensors_distinct();
        state.guard_written_distinct(py);
        state.guard_compared_distinct();
        state.guard_owners_distinct();
        let symbolic = state.finish_symbols();
        state.sources.shrink_to_fit();
        state.guards.shrink_to_fit();
        let Kept { callers, locations, module_calls } = state.frames.into_kept(py);
        let (left, begins) = state.roots.into_parts();
        let (exits, exit_recipes, rebuilt) = state.exits.into_parts();
        Ok(Traced {
            sources: state.sources,
            guards: state.guards,
            objects: state.objects.into_inner(),
            graph: state.graph,
            graph_objects: state.graph_objects.into_inner(),
            inputs: state.inputs.into_sources(),
            rebuilt,
            recipes,
            ending,
            exits,
            exit_recipes,
            begins,
            left: left.into(),
            callers: Arc::new(callers),
            locations,
            module_calls,
            writes_inputs: !written.is_empty(),
            written,
            plain_withs: Withs::default(),
            generators: Vec::new(),
            kept,
            effects,
            ending_last,
            first_effect: state.written.first(),
            emissions,
            known_lists,
            prints: state.prints,
            symbolic,
            locks,
            draws: state.claims.draws.map(|(_, draws)| draws),
            asked: state.asked,
            of_process: state.of_process,
            work: Work::default(),
        })
    }

    /// Fails if the trace has made an object with a finalizer that is yet to run, and that nothing which is left refers
    /// to: it's in a cycle.
    fn check_made(&self, py: Python<'_>) -> Made<()> {
        let is_left = |object: &Object<'_>| self.made.contains_key(&(object.as_ptr() as usize));
        match self.state.mortal.made(py).find(|object| !is_left(object)) {
            None => Ok(()),
            Some(object) => {
                let what = heap::type_name(object.as_borrowed());
                let detail =
                    format!("a {what} with a finalizer, which nothing refers to but itself");
                Err((Reason::Unsupported, detail))
            }
        }
    }

    /// How the program ends or stands still.
    pub(in crate::recorder) fn ending(
        &mut self,
        end: End<'_, '_>,
        handled: Option<&Object<'_>>,
    ) -> Made<Ending> {
        let frames = match end {
            End::Return(result) => return Ok(Ending::Return(self.recipe(result)?)),
            End::Break(frames) => frames,
        };
        self.standing =
            frames.iter().map(|standing| standing.waiting.frame.object_address()).collect();
        let frames = frames.iter().map(|frame| self.frame(frame)).collect::<Made<_>>()?;
        let handled = handled.map(|handled| self.recipe(handled.as_borrowed())).transpose()?;
        let raised = std::mem::take(&mut self.raised);
        Ok(Ending::Break(Box::new(Broken { frames, handled, raised })))
    }

    /// Exceptions that only what was written holds get their tracebacks, too.
    pub(in crate::recorder) fn raised_beside(&mut self, ending: &mut Ending) {
        if let Ending::Break(broken) = ending {
            broken.raised.append(&mut self.raised);
        }
    }

    fn frame(&mut self, standing: &Standing<'_>) -> Made<FrameRecipe> {
        let Standing { waiting, current, last, .. } = standing;
        let frame = &waiting.frame;
        if has_kept_locals(frame) {
            let detail = "a frame whose `locals()` somebody keeps";
            return Err((Reason::Unsupported, detail.into()));
        }
        let slots = slots(waiting);
        let (bound, stack) = slots.split_at(frame.code().nlocalsplus());
        let mut locals = Vec::with_capacity(bound.len());
        for (slot, value) in bound.iter().enumerate() {
            let Some(value) = value else { continue };
            let is_live = standing.is_live(slot);
            if slot >= frame.code().first_free() && self.state.origin(*value).is_none() {
                // A variable of an enclosing function that nothing has read yet.
                self.state.cell_source(frame, *value)?;
            }
            let recipe = match self.state.roots.held((frame.id(), slot), *value) {
                Some(source) => Ok(self.source(source)),
                None => self.try_recipe(*value),
            };
            match recipe {
                Ok(recipe) => locals.push((slot as u32, recipe)),
                // Nothing but a debugger will miss it.
                Err(_) if !is_live => {}
                Err(stop) => return Err(stop),
            }
        }
        // Nothing of it can fail when the frame is moved: what the trace did stands by then.
        let (units, room) = (frame.code().units().len(), frame.code().stacksize());
        if stack.len() > room || [*current, waiting.next, *last].iter().any(|unit| *unit >= units) {
            let detail = format!("a frame at {} with {} of {room} values", current, stack.len());
            return Err((Reason::Internal, detail));
        }
        let stack = stack.iter().map(|value| value.map(|value| self.recipe(value)).transpose());
        Ok(FrameRecipe {
            stack: stack.collect::<Made<_>>()?,
            function: self.recipe(frame.function())?,
            code: frame.code().as_ptr() as usize,
            locals: locals.into(),
            current: *current as u32,
            next: waiting.next as u32,
            last: *last as u32,
            link: waiting.link.unwrap_or(Link::Push),
        })
    }

    /// The recipe of an outside object.
    pub(in crate::recorder) fn source(&mut self, source: SourceId) -> RecipeId {
        let position = self.state.exits.resolved(source);
        self.recipes.push(Recipe::Source(position))
    }

    /// What each part that was written holds at the end, and the recipes of the objects that were written.
    pub(in crate::recorder) fn effects(
        &mut self,
        py: Python<'_>,
        effects: &[effects::Effect],
    ) -> Made<(Vec<Store>, FxHashSet<RecipeId>)> {
        let mut stores = Vec::with_capacity(effects.len());
        for effect in effects {
            let object = self.state.exits.resolved(effect.source);
            let mut value = match effect.last(py) {
                Last::Value(value) => Some(self.recipe(value.as_borrowed())?),
                Last::Nothing => None,
                Last::Elements(items) => {
                    let items = self.all(&items)?;
                    Some(self.recipes.push(Recipe::List(items)))
                }
                Last::Calls(calls) => Some(self.calls(py, calls)?),
                Last::Rested => self.rested(effect.object.bind_borrowed(py))?,
            };
            let part = match &effect.part {
                effects::Part::Item { key, .. }
                    if self
                        .state
                        .has_open_key(effect.object.bind_borrowed(py), key.bind_borrowed(py)) =>
                {
                    let key = self.recipe(key.bind_borrowed(py))?;
                    let entry = std::iter::once(key).chain(value).collect();
                    value = Some(self.recipes.push(Recipe::Tuple(entry)));
                    Part::Entry
                }
                effects::Part::Item { key, moves } => {
                    let key = match self.state.key_source(key.bind_borrowed(py)) {
                        Some(source) => Key::Resolved(self.state.exits.resolved(source)),
                        None => Key::Constant(self.keep_constant(key.bind_borrowed(py))),
                    };
                    Part::Item { key, moves: *moves }
                }
                effects::Part::Cell => Part::Cell,
                effects::Part::Context => Part::Context,
                effects::Part::Reset(_) => Part::Reset,
                effects::Part::Member(member) => Part::Member(self.keep(member.bind_borrowed(py))),
                effects::Part::ClassAttribute(attribute) => {
                    Part::ClassAttribute(self.keep(attribute.bind_borrowed(py)))
                }
                effects::Part::Elements => Part::Elements,
                effects::Part::Added { dropped, .. } => {
                    Part::Added { dropped: u32::try_from(*dropped).unwrap_or(u32::MAX) }
                }
                effects::Part::Calls(_) => Part::Calls,
                effects::Part::Generator => Part::Generator,
                effects::Part::Advanced(times) => {
                    Part::Advanced(u32::try_from(*times).unwrap_or(u32::MAX))
                }
            };
            stores.push(Store { object, part, value, place: effect.place });
        }
        // What ends lets go of what it holds, and a finalizer that notices has to find the other writes made. What those
        // replace is kept until all are made.
        stores.sort_by_key(|store| matches!(store.part, Part::Generator));
        let written = effects.iter().map(|effect| effect.object.as_ptr() as usize);
        let written = written.filter_map(|address| self.made.get(&address).copied()).collect();
        let stored: Vec<RecipeId> = stores.iter().filter_map(|store| store.value).collect();
        // A replay makes what it stores before it writes.
        if self.recipes.iterate_over(&stored, &written) {
            let detail = "an iterator over what the same trace writes, kept in an object";
            return Err((Reason::Result, detail.to_owned()));
        }
        Ok((stores, written))
    }

    /// [`Traced::ending_last`].
    pub(in crate::recorder) fn ending_last(
        &self,
        ending: &Ending,
        written: &FxHashSet<RecipeId>,
    ) -> Option<Box<[RecipeId]>> {
        let roots: Vec<RecipeId> = ending.roots().collect();
        let last = self.recipes.iterate_over(&roots, written);
        last.then(|| self.tokens_made.as_slice().into())
    }

    /// A list of tuples: a method's name and its arguments.
    fn calls(&mut self, py: Python<'_>, calls: &[effects::MethodCall]) -> Made<RecipeId> {
        let mut made = Vec::with_capacity(calls.len());
        for call in calls {
            let name = pyo3::types::PyString::intern(py, &call.method);
            let name = self.recipe(name.as_any().as_borrowed())?;
            let mut parts = vec![name];
            for argument in &call.args {
                parts.push(self.recipe(argument.bind_borrowed(py))?);
            }
            made.push(self.recipes.push(Recipe::Tuple(parts.into())));
        }
        Ok(self.recipes.push(Recipe::List(made.into())))
    }
}

/// Whether somebody has the dictionary that `locals()` of a function gives before CPython 3.13, or has put more into it: the
/// frame would have another one if it were made again.
fn has_kept_locals(frame: &Frame<'_>) -> bool {
    const OPTIMIZED: u32 = 1;
    if frame.code().flags() & OPTIMIZED == 0 {
        return false;
    }
    frame.locals().is_some_and(|dict| {
        let code = frame.code();
        let is_own =
            |name: &Object<'_>| (0..code.nlocalsplus()).any(|slot| code.local_name(slot).is(name));
        mortal::is_shared(dict) || !heap::dict_items(dict).iter().all(|(name, _)| is_own(name))
    })
}

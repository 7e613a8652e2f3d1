//! Warnings and log records: executed natively, and given again by replays, as a side effect.
//!
//! That is sound where nobody can tell when it happens: the arguments are plain values, and those who are
//! told neither look at nor change what the program works with. Otherwise the trace ends before the
//! call ([`Reason::Told`]), which so sees and changes what it would in plain Python.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use rustc_hash::FxHashSet;
use stator_cpython::Result;
use stator_cpython::frame::{Frame, Owner};
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};

use crate::breaks::{Break, Reason};
use crate::emission::Told;
use crate::functions::Emitter;
use crate::listeners::{self, Kept};
use crate::raises::{ARRAY_WRITES, NodeCall};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Looks, Texts};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::effects::Emitted;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State, Stop};
use crate::recorder::numbers::tensors::holds_tensor;
use crate::resume::point::Spot;
use crate::writes::write_of;

/// What the checks before the call find.
struct Plan<'py> {
    told: Told<usize>,
    kept: Kept,
    asked: Vec<usize>,
    frames: Vec<Frame<'py>>,
    /// Whether tensors are among its arguments.
    has_tensors: bool,
}

/// The parameters of an emitter that matter here.
const WARN: &[&str] = &["message", "category", "stacklevel", "source"];
const WARN_EXPLICIT: &[&str] = &[
    "message",
    "category",
    "filename",
    "lineno",
    "module",
    "registry",
    "module_globals",
    "source",
];
const LOG: &[&str] =
    &["self", "level", "msg", "args", "exc_info", "extra", "stack_info", "stacklevel"];

impl Recorder {
    /// Calls a function that gives a warning or a log record.
    pub(in crate::recorder) fn emit<'py>(
        &self,
        emitter: Emitter,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let plan = self.plan(emitter, call);
        let result = {
            let _native = Suspended::new(frame.py());
            call.natively()
        };
        let Some(plan) = plan else { return result };
        if result.is_err() {
            self.stop(frame, Reason::Told, format!("{} that raised", heap::name_of(callable)));
            return result;
        }
        let spot = self.markable_spot(frame);
        self.note(frame, |state| {
            let own = |args: &[Borrowed<'_, 'py>]| {
                args.iter().map(|arg| (*arg).to_owned().unbind()).collect::<Vec<_>>()
            };
            let unbind = |(container, parts): (Object<'py>, Vec<Object<'py>>)| {
                (container.unbind(), parts.into_iter().map(Bound::unbind).collect())
            };
            let contents = containers(args).into_iter().map(unbind).collect();
            let place = state.user_place(&plan.frames, callable);
            let frames = plan.frames.iter().map(|frame| {
                (frame.function().to_owned().unbind(), u32::try_from(frame.unit()).unwrap_or(0))
            });
            let nodes = state.graph.len();
            let emitted = Emitted {
                frames: frames.collect(),
                callable: callable.to_owned().unbind(),
                args: own(args),
                names: names.map(|names| names.to_owned().unbind()),
                told: plan.told,
                after: state.written.len(),
                text: text(emitter, plan.told, args).into(),
                place,
                kept: plan.kept,
                asked: plan.asked,
                contents,
                tensors_at: plan.has_tensors.then_some(nodes),
                spot,
            };
            state.written.tell(emitted, nodes);
            Ok(())
        });
        result
    }

    /// Whether a replay can give it as a side effect; otherwise the trace has ended.
    fn plan<'py>(&self, emitter: Emitter, call: Call<'_, 'py>) -> Option<Plan<'py>> {
        let Call { frame, args, names, .. } = call;
        if self.is_stopped() {
            return None;
        }
        if emitter != Emitter::Log && self.state.borrow().claims.has_filters {
            self.stop(frame, Reason::Told, "where the trace has said which warnings are shown");
            return None;
        }
        let frames = self.frames_to(frame);
        let mut tensors = Vec::new();
        args.iter().for_each(|arg| plain_tensors(*arg, &mut tensors));
        let are_shown = emitter == Emitter::Log
            && tensors.iter().all(|tensor| self.has_text_of_pytorch(frame, tensor.as_borrowed()));
        self.note(frame, |state| {
            let told = what_is_told(state, emitter, args, names, are_shown)?;
            let frames = frames.filter(|frames| {
                frames.iter().all(|frame| {
                    frame.owner() == Owner::Thread
                        && frame.is_complete()
                        && state.origin(frame.function()).is_some()
                })
            });
            let frames =
                frames.ok_or((Reason::Told, "given where a frame can't be made again".into()))?;
            let at = |index: usize| args[index];
            let told_now = match told {
                Told::Record { logger } => Told::Record { logger: at(logger) },
                Told::Warning { text, category } => {
                    Told::Warning { text: at(text), category: category.map(at) }
                }
            };
            let unknown = || match emitter {
                Emitter::Log => "a log record for a logger with other code than the library's",
                _ => "a warning, with filters or a showwarning that may do anything",
            };
            let kept = told_now.kept(frame.py()).ok_or((Reason::Told, unknown().into()))?;
            if kept.iter().any(|list| state.is_known_at(*list)) {
                return Err((Reason::Told, "kept in a list that the function works with".into()));
            }
            let logger = match told_now {
                Told::Record { logger } => Some(logger),
                Told::Warning { .. } => None,
            };
            let asked = listeners::asked(frame.py(), logger);
            Ok(Plan { told, kept, asked, frames, has_tensors: !tensors.is_empty() })
        })
    }

    /// Fails if something about a warning or record has turned out otherwise since. Then the next trace
    /// ends before it.
    pub(in crate::recorder) fn check_emissions(&self, py: Python<'_>, state: &State) -> Noted<()> {
        let Some((emitted, detail)) = state.doubtful_emission(py) else { return Ok(()) };
        self.mark_emissions(&[emitted.spot], detail);
        Err((Reason::Told, detail.into()))
    }

    /// The next trace ends before these.
    pub(in crate::recorder) fn mark_emissions(&self, spots: &[Option<Spot>], detail: &str) {
        for spot in spots.iter().flatten() {
            let stop = Break { reason: Reason::Told, detail: detail.into(), stack: Vec::new() };
            self.session.points.mark_spot(*spot, stop.clone());
            self.session.try_again(self.point.borrow().is_none(), stop);
        }
    }
}

/// What is told of, by positions among the arguments.
fn what_is_told(
    state: &mut State,
    emitter: Emitter,
    args: &[Borrowed<'_, '_>],
    names: Option<Borrowed<'_, '_>>,
    are_shown: bool,
) -> std::result::Result<Told<usize>, Stop> {
    // What a record says may depend on data: a replay makes it anew. Who is told doesn't look at it, or shows tensors as
    // PyTorch does.
    let is_data = |state: &mut State, arg: Borrowed<'_, '_>| {
        holds_tensor(state, arg) && !(emitter == Emitter::Log && is_plain(state, arg, are_shown))
    };
    if args.iter().any(|arg| is_data(state, *arg)) {
        return Err((Reason::DataRead, "a tensor in a warning or log record".into()));
    }
    let refuse = |what: String| (Reason::Told, what);
    let params = match emitter {
        Emitter::Warn => WARN,
        Emitter::WarnExplicit => WARN_EXPLICIT,
        Emitter::Log => LOG,
    };
    let names = names.map_or_else(Vec::new, heap::tuple_items);
    let positional = args.len() - names.len();
    let find = |param: &str| {
        let index = params.iter().position(|known| *known == param)?;
        if index < positional {
            return Some(index);
        }
        let named = names.iter().position(|name| heap::text(name.as_borrowed()) == param)?;
        Some(positional + named)
    };
    let is_given = |param: &str| {
        find(param).filter(|at| !args[*at].is_none() && !matches!(args[*at].extract(), Ok(false)))
    };
    let told = match emitter {
        Emitter::Log => {
            let logger = find("self").filter(|at| *at == 0 && state.source(args[0]).is_some());
            if is_given("exc_info").is_some() {
                return Err(refuse("a log record with an exception".into()));
            }
            let unknown = || refuse("a log record for a logger of this call's own".into());
            Told::Record { logger: logger.ok_or_else(unknown)? }
        }
        Emitter::Warn | Emitter::WarnExplicit => {
            let hidden = ["registry", "module_globals", "source"];
            if let Some(given) = hidden.iter().find(|param| is_given(param).is_some()) {
                return Err(refuse(format!("a warning with a {given}")));
            }
            let text = find("message").filter(|at| args[*at].is_exact_instance_of::<PyString>());
            let text = text.ok_or_else(|| refuse("a warning that isn't a text".into()))?;
            // Who is told, and whether, depends on it.
            state.settle_text(args[text])?;
            let category = is_given("category");
            if category.is_some_and(|at| state.kind(args[at]) != Kind::Type) {
                return Err(refuse("a warning whose category isn't a class".into()));
            }
            Told::Warning { text, category }
        }
    };
    let first = usize::from(emitter == Emitter::Log);
    for arg in &args[first..] {
        state.adopt_deep(*arg)?;
        if !is_plain(state, *arg, are_shown) {
            let what = heap::type_name(*arg);
            return Err(refuse(format!("a warning or log record with a {what}")));
        }
    }
    Ok(told)
}

/// Whether turning an object into text runs no Python code, and a replay can make it again.
fn is_plain(state: &mut State, object: Borrowed<'_, '_>, with_tensors: bool) -> bool {
    let py = object.py();
    match state.kind(object) {
        Kind::Tensor => {
            with_tensors
                && state.origin(object).is_some()
                && tensor::info(object).is_some_and(|info| info.is_plain())
        }
        Kind::Constant => heap::is_constant(object),
        Kind::Function | Kind::Builtin => state.origin(object).is_some(),
        Kind::Type => object.get_type().is(py.get_type::<PyType>()),
        Kind::List if state.origin(object).is_some() => {
            has_plain_parts(state, object, with_tensors)
        }
        Kind::Tuple => {
            object.is_exact_instance_of::<PyTuple>() && has_plain_parts(state, object, with_tensors)
        }
        Kind::Dict if heap::is_exact_dict(object) && state.origin(object).is_some() => {
            has_plain_parts(state, object, with_tensors)
        }
        _ => false,
    }
}

fn has_plain_parts(state: &mut State, object: Borrowed<'_, '_>, with_tensors: bool) -> bool {
    state.once(object, false, |state| {
        let parts = heap_children(object);
        parts.iter().all(|part| is_plain(state, part.as_borrowed(), with_tensors))
    })
}

/// The tensors that an argument is, or that the containers hold which it is made of.
fn plain_tensors<'py>(object: Borrowed<'_, 'py>, found: &mut Vec<Object<'py>>) {
    if tensor::is_tensor(object) {
        found.push(object.to_owned());
        return;
    }
    let parts = containers(&[object]).into_iter().flat_map(|(_, parts)| parts);
    found.extend(parts.filter(|part| tensor::is_tensor(part.as_borrowed())));
}

/// What a container holds, the keys of a dictionary included.
fn heap_children<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if heap::is_exact_dict(object) {
        heap::dict_items(object).into_iter().flat_map(|(key, value)| [key, value]).collect()
    } else {
        heap::sequence_items(object)
    }
}

/// The containers that arguments are or hold, each once, with what they hold.
fn containers<'py>(args: &[Borrowed<'_, 'py>]) -> Vec<(Object<'py>, Vec<Object<'py>>)> {
    let (mut seen, mut found) = (FxHashSet::default(), Vec::new());
    let mut pending: Vec<_> = args.iter().map(|arg| (**arg).clone()).collect();
    while let Some(object) = pending.pop() {
        if heap::is_exact_container(object.as_borrowed()) && seen.insert(object.as_ptr() as usize) {
            let children = heap_children(object.as_borrowed());
            pending.extend(children.iter().cloned());
            found.push((object, children));
        }
    }
    found
}

/// As the `side_effects` log prints it.
fn text(emitter: Emitter, told: Told<usize>, args: &[Borrowed<'_, '_>]) -> String {
    let repr = |at: usize| heap::short_repr(args[at]);
    match (emitter, told) {
        (_, Told::Record { logger }) => {
            let name = crate::list_handlers::own(args[logger], "name");
            let name = name.map_or_else(|| "?".into(), |name| heap::short_repr(name.as_borrowed()));
            format!("logging.getLogger({name}).log({}, {})", repr(1), repr(2))
        }
        (Emitter::WarnExplicit, Told::Warning { text, .. }) => {
            format!("warnings.warn_explicit({})", repr(text))
        }
        (_, Told::Warning { text, category: None }) => format!("warnings.warn({})", repr(text)),
        (_, Told::Warning { text, category: Some(category) }) => {
            format!("warnings.warn({}, {})", repr(text), heap::name_of(args[category]))
        }
    }
}

impl State {
    /// A warning or record that a replay couldn't give any more as it was given, and why.
    pub(in crate::recorder) fn doubtful_emission(
        &self,
        py: Python<'_>,
    ) -> Option<(&Emitted, &'static str)> {
        self.written.emissions().iter().find_map(|emitted| {
            let is_as_it_was = emitted.contents.iter().all(|(container, before)| {
                let now = heap_children(container.bind_borrowed(py));
                now.len() == before.len()
                    && now.iter().zip(before).all(|(now, before)| now.is(before))
            });
            if !is_as_it_was {
                return Some((emitted, "with an argument that changes behind it"));
            }
            if emitted.tensors_at.is_some_and(|at| self.is_written_behind(at)) {
                return Some((emitted, "with a tensor where something is written behind it"));
            }
            if self.written.any_behind_emissions(&emitted.asked) {
                return Some((emitted, "where something changes behind it of who is told"));
            }
            let is_known = emitted.kept.iter().any(|list| self.is_known_at(*list));
            is_known.then_some((emitted, "kept in a list that the function works with"))
        })
    }

    /// Whether a node from this place on may write to a tensor, whichever it is.
    fn is_written_behind(&self, at: usize) -> bool {
        self.graph.nodes().skip(at).any(|(id, _)| {
            NodeCall::of(&self.graph, id).is_some_and(|call| {
                write_of(call).is_some()
                    || call.may_write()
                    || call.name().starts_with(ARRAY_WRITES)
            })
        })
    }

    /// Whether the trace knows the object at an address.
    fn is_known_at(&self, address: usize) -> bool {
        self.objects.origin(address).is_some()
    }

    /// The place of the innermost frame that isn't in the emitter's own file.
    fn user_place(&mut self, frames: &[Frame<'_>], emitter: Borrowed<'_, '_>) -> (u32, u32) {
        let globals = heap::function_globals(emitter);
        let is_own = |frame: &&Frame<'_>| {
            globals.as_ref().is_none_or(|globals| !frame.globals().is(globals))
        };
        let frame = frames.iter().rev().find(is_own).or(frames.last());
        frame.map_or(self.frames.here(), |frame| {
            let code = self.frames.number(frame);
            (code, u32::try_from(frame.unit()).unwrap_or(0))
        })
    }
}

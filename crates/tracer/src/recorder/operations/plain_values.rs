//! Values of C types of the standard library that are neither numbers nor texts: decimals, dates, times, spans of time, and texts
//! that are written piece by piece (`io.StringIO`). What functions, methods and operators make of them are nodes.
//!
//! Nobody looks at what such a value says: it's what a node gives, or an object from outside, of which the type is guarded
//! and which is an input of the graph. Numbers and texts that come of it are carried, and truth values decided. What type a
//! result has follows from the types of what it's made of.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generic, ops};
use stator_graph::{Arg, NodeId, Value};

use crate::breaks::Reason;
use crate::functions::Model;
use crate::held::{self, Held};
use crate::raises::{ARRAY_WRITES, VALUES};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Calls, Decides, Ends, PlainValues};
use crate::recorder::notes::call::{Call, RecordedArgs, library};
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::plain_values::{has_zone, is_of_value_type};
use crate::recorder::notes::state::{Noted, Origin, State};
use crate::recorder::numbers::read_numbers::own;

/// Attributes that are integers.
const FIELDS: [&str; 11] = [
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "microsecond",
    "fold",
    "days",
    "seconds",
    "microseconds",
];

/// Functions that raise for no value, and whose results say nothing but what they are given.
const STEADY: [&str; 9] = [
    "total_seconds",
    "isoformat",
    "ctime",
    "weekday",
    "isoweekday",
    "toordinal",
    "date",
    "time",
    "timetz",
];

/// Functions that look at a clock.
const CLOCKS: [&str; 3] = ["now", "utcnow", "today"];

impl State {
    /// What a function is given, as the graph holds it; `None`: it's no plain value.
    pub(super) fn value_arg(&mut self, object: Borrowed<'_, '_>) -> Noted<Option<Arg>> {
        if self.is_plain_value(object) {
            return Ok(match self.origin(object) {
                Some(Origin::Handle(node)) => Some(Arg::Node(node)),
                _ => self.source(object).map(|source| Arg::Node(self.object_node(source))),
            });
        }
        match self.piece(object, 0) {
            Some(piece) => Ok(self.piece_arg(object.py(), &piece)),
            None => Ok(None),
        }
    }
}

impl Recorder {
    /// Whether an object is a value of which nodes compute.
    fn computes_with(&self, object: Borrowed<'_, '_>) -> bool {
        self.kind(object) == Kind::Object && self.state.borrow_mut().is_plain_value(object)
    }

    /// Whether such values may be computed with here.
    fn may_compute_values(&self, frame: &Frame<'_>) -> bool {
        if self.is_stopped() || !self.session.is_replayed() || !self.may_read(frame) {
            return false;
        }
        let state = self.state.borrow();
        // How decimals are rounded is asked of a context variable, and a replay sets these at its end.
        !state.enclosed.is_on() && !state.context.is_written() && state.program.is_none()
    }

    /// Whether no code in Python says what the time zone of a value is: a decision, if it's from outside.
    fn knows_zone(&self, frame: &Frame<'_>, value: Borrowed<'_, '_>) -> bool {
        let Some(Origin::Source(source)) = self.origin(value) else { return true };
        if !has_zone(value) || self.state.borrow().arrays.known.contains(&source) {
            return true;
        }
        let py = frame.py();
        let Ok(function) = Held::Zone.function(py) else { return false };
        if !held::is_zone_plain(&value).unwrap_or(false) {
            return false;
        }
        let asked = |state: &mut State| {
            let args = [Arg::Node(state.object_node(source))];
            let node = state.called(frame, function.as_borrowed(), Held::Zone.name(), &args);
            Ok(Arg::Node(node))
        };
        let decided = self.decided(frame, Asks::Operation, asked, || Ok(true));
        if !matches!(decided, Some(Ok(true))) || self.is_stopped() {
            return false;
        }
        self.state.borrow_mut().arrays.known.insert(source);
        true
    }

    /// A call of a function or a method of the table.
    pub(in crate::recorder) fn call_values<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        self.value_node(call, &heap::callable_name(call.callable))
    }

    /// A function of `statistics` that makes one float of a list of floats, some of which were read; `None`: it's another
    /// call. The library's own code computes with their digits.
    pub(in crate::recorder) fn statistic<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        const FUNCTIONS: [&str; 9] = [
            "mean",
            "fmean",
            "geometric_mean",
            "harmonic_mean",
            "median",
            "stdev",
            "pstdev",
            "variance",
            "pvariance",
        ];
        let ([list], None) = (call.args, call.names) else { return None };
        if !heap::is_exact_list(*list) {
            return None;
        }
        let module = call.callable.getattr("__module__").ok()?;
        let is_one = heap::is_named(call.callable, &FUNCTIONS)
            && module.is_exact_instance_of::<PyString>()
            && heap::text(module.as_borrowed()) == "statistics"
            && modules::loaded(call.frame.py())
                .and_then(|loaded| loaded.get_item("statistics").ok()?)
                .and_then(|module| module.getattr(&*heap::callable_name(call.callable)).ok())
                .is_some_and(|own| call.callable.is(&own));
        let items = heap::list_items(*list);
        let are_read = is_one
            && items.iter().all(|item| item.is_exact_instance_of::<PyFloat>())
            && self.may_compute_values(call.frame);
        if !are_read {
            return None;
        }
        let history = match self.numbers_of_history(call.frame, *list, true) {
            Some(Ok(history)) => Some(history),
            Some(Err(raised)) => return Some(Err(raised)),
            None if !self.state.borrow_mut().holds_read(*list) => return None,
            None if self.origin(*list) == Some(Origin::Fresh) => None,
            None => Some(self.note(call.frame, |state| state.graph_arg(*list))?),
        };
        let name = heap::callable_name(call.callable).into_owned();
        Some(self.node_given(call, &name, history))
    }

    /// `with` of a text that is written piece by piece: what leaves it, and what entering it gives. `None`: it's another manager.
    pub(in crate::recorder) fn enter_value<'py>(
        &self,
        frame: &Frame<'py>,
        manager: Borrowed<'_, 'py>,
        enter: Option<&Object<'py>>,
    ) -> Option<Result<(Object<'py>, Object<'py>)>> {
        let enter = enter?.as_borrowed();
        if self.functions.model(enter) != Some(Model::Values) || !self.computes_with(manager) {
            return None;
        }
        let exit = pyo3::intern!(frame.py(), "__exit__").as_any().as_borrowed();
        let entered = self.call_object(Call::new(frame, enter, &[manager]));
        Some(entered.and_then(|entered| Ok((self.get_attr(frame, manager, exit)?, entered))))
    }

    /// Executes a function of such values, and appends its node.
    fn value_node<'py>(&self, call: Call<'_, 'py>, name: &str) -> Result<Object<'py>> {
        self.node_given(call, name, None)
    }

    /// As [`Recorder::value_node`]; `first` is what the graph has for the first argument, if that's known.
    fn node_given<'py>(
        &self,
        call: Call<'_, 'py>,
        name: &str,
        first: Option<Arg>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let writes = heap::type_name(*args.first().unwrap_or(&callable)) == "StringIO";
        // Nobody looks at one that the graph has.
        let asked = &args[usize::from(first.is_some())..];
        // A replay gives warnings and log records at its end, maybe into that text.
        let is_in_order = !writes || self.state.borrow().written.emissions().is_empty();
        let is_known = is_in_order
            && self.may_compute_values(frame)
            && asked.iter().all(|arg| !self.computes_with(*arg) || self.knows_zone(frame, *arg));
        if !is_known {
            self.stop(frame, Reason::OpaqueCall, name.to_owned());
            return call.natively();
        }
        self.state.borrow_mut().repeated.see();
        let prefix = match name {
            _ if self.kind(callable) == Kind::Type => VALUES,
            "getvalue" => VALUES,
            _ if writes => ARRAY_WRITES,
            _ if CLOCKS.contains(&name) => "time.",
            _ if STEADY.contains(&name) || FIELDS.contains(&name) => "builtins.",
            _ => VALUES,
        };
        let recorded = |state: &mut State| {
            let mut recorded = RecordedArgs::default();
            recorded.args.extend(first);
            for arg in &args[recorded.args.len()..] {
                let given = match state.kind(*arg) == Kind::Type {
                    // Of a class method.
                    true => Some(Arg::Object(state.graph_object(*arg, || heap::name_of(*arg)))),
                    false => state.value_arg(*arg)?,
                };
                let refused =
                    || (Reason::OpaqueCall, format!("{name} of a {}", heap::type_name(*arg)));
                recorded.args.push(given.ok_or_else(refused)?);
            }
            recorded.names = RecordedArgs::of(state, &[], names)?.names;
            Ok((state.function_target(callable, format!("{prefix}{name}")), recorded))
        };
        let mut own = None;
        let bind = |state: &mut State, node, value: &Object<'py>| {
            own = own_of(value);
            state.bind_value(node, own.as_ref().unwrap_or(value), name)
        };
        let (value, node) = self.node_at_risk(call, name, recorded, bind)?;
        let Some(node) = node else { return Ok(value) };
        if value.is_exact_instance_of::<PyBool>() {
            self.decide_answer(frame, node, &value);
        } else if own.is_some() {
            self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
        }
        Ok(own.unwrap_or(value))
    }

    /// A truth value that a node gives is decided where it's made.
    fn decide_answer<'py>(&self, frame: &Frame<'py>, node: NodeId, value: &Object<'py>) {
        // What was computed can be again.
        self.baseline.set(ops::executed());
        let class = frame.py().get_type::<PyBool>().into_any();
        let asked = |state: &mut State| {
            let given = [Arg::Node(node)];
            let node = state.called(frame, class.as_borrowed(), "builtins.bool".into(), &given);
            Ok(Arg::Node(node))
        };
        let native = || Ok(value.is_truthy().unwrap_or(false));
        if !matches!(self.decided(frame, Asks::Program, asked, native), Some(Ok(_))) {
            self.stop(
                frame,
                Reason::DataRead,
                "a comparison of values that differ from call to call",
            );
        }
    }

    /// The function of this name in `operator`, or a builtin one, of such a value.
    fn of_library<'py>(
        &self,
        frame: &Frame<'py>,
        [module, name]: [&str; 2],
        args: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        let function = library(frame.py(), module, name).ok()?;
        let call = Call::new(frame, function.as_borrowed(), args);
        Some(self.value_node(call, name.trim_matches('_')))
    }
}

/// The object that stands for a number or a text that a node gives.
fn own_of<'py>(value: &Object<'py>) -> Option<Object<'py>> {
    match value.cast_exact::<PyString>() {
        Ok(text) => generic::own_text(text),
        Err(_) if value.is_exact_instance_of::<PyBool>() => None,
        Err(_) => own(value),
    }
}

impl State {
    /// What a node of such values gives.
    fn bind_value(&mut self, node: NodeId, value: &Object<'_>, name: &str) -> Noted<()> {
        let object = value.as_borrowed();
        if value.is_none() {
            self.graph.set_value(node, Value::Nothing);
        } else if value.is_exact_instance_of::<PyBool>() {
        } else if value.is_exact_instance_of::<PyString>() {
            // An empty text is one object wherever it comes from.
            if heap::text(object).is_empty() {
                return Err((Reason::DataRead, "an empty text that depends on it".into()));
            }
            self.carry_text(node, value);
        } else if value.is_exact_instance_of::<PyFloat>() || value.is_exact_instance_of::<PyInt>() {
            if own(value).is_none() {
                return Err((Reason::DataRead, "an integer beyond 64 bits".into()));
            }
            self.carry_read(value, node, None);
        } else if self.is_plain_value(object) {
            // A writer that gives itself.
        } else if is_of_value_type(object) {
            self.arrays.kept.push(value.clone().unbind());
            self.set_origin(object, Origin::Handle(node));
        } else {
            let of = heap::type_name(object);
            return Err((Reason::OpaqueCall, format!("{name} that gives a {of}")));
        }
        Ok(())
    }
}

impl PlainValues for Recorder {
    fn is_value(&self, object: Borrowed<'_, '_>) -> bool {
        self.computes_with(object)
    }

    fn value_operator<'py>(
        &self,
        frame: &Frame<'py>,
        names: &[&'static str],
        operands: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        if !operands.iter().any(|operand| self.computes_with(*operand))
            || !self.may_compute_values(frame)
        {
            return None;
        }
        let is_fine = |operand: &Borrowed<'_, '_>| {
            self.computes_with(*operand) || self.kind(*operand) == Kind::Constant
        };
        if !operands.iter().all(is_fine) {
            return None;
        }
        self.of_library(frame, ["operator", names[0]], operands)
    }

    fn attribute_of_value<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !is_of_value_type(owner) {
            return None;
        }
        let text = heap::text(name);
        if !FIELDS.contains(&&*text)
            || !self.computes_with(owner)
            || !self.may_compute_values(frame)
        {
            return None;
        }
        let found = types::lookup(owner.get_type().as_borrowed(), name)?;
        let get = found.getattr(pyo3::intern!(frame.py(), "__get__")).ok()?;
        let args = [owner];
        Some(self.value_node(Call::new(frame, get.as_borrowed(), &args), &text))
    }

    fn truth_of_value<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Result<bool>> {
        if !is_of_value_type(value) {
            return None;
        }
        if !self.computes_with(value) || !self.may_compute_values(frame) {
            return None;
        }
        let answer = self.of_library(frame, ["builtins", "bool"], &[value])?;
        Some(answer.map(|answer| answer.is_truthy().unwrap_or(false)))
    }

    fn scalar_of_value<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let is_one = names.is_none()
            && args.iter().any(|arg| self.computes_with(*arg))
            && self.may_compute_values(frame);
        is_one.then(|| self.value_node(call, &heap::callable_name(callable)))
    }

    fn text_of_value<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        const FUNCTIONS: [&str; 4] = ["format", "str", "repr", "ascii"];
        if !is_of_value_type(value) {
            return None;
        }
        if !self.computes_with(value) || !self.may_compute_values(frame) {
            return None;
        }
        let spec = spec.filter(|spec| !heap::text(*spec).is_empty());
        if conversion == 0 {
            let args: Vec<_> = std::iter::once(value).chain(spec).collect();
            return self.of_library(frame, ["builtins", FUNCTIONS[0]], &args);
        }
        let name = FUNCTIONS.get(conversion as usize)?;
        if spec.is_some() {
            return None;
        }
        self.of_library(frame, ["builtins", name], &[value])
    }
}

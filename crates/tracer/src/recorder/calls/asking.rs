//! C code that may ask tensors, run a generator or call a function of the program's: a way out is made before it
//! (`ending/deciding.rs`).

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet};
use stator_cpython::heap::iterator;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generator, ops};

use crate::functions::{Class, Model, Numeric, Traits};
use crate::recorder::Recorder;
use crate::recorder::calls::by_keys::takes_items;
use crate::recorder::notes::above::{Calls, Decides};
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Kind, is_plain_iterator};
use crate::recorder::notes::state::{Origin, State};

/// Whether an object finds what it holds by hashes.
fn is_hashed(object: Borrowed<'_, '_>) -> bool {
    object.is_instance_of::<PyDict>()
        || object.is_instance_of::<PySet>()
        || object.is_instance_of::<PyFrozenSet>()
}

/// Whether C code that `compares` what it is given, or `orders` it, asks an element for what data decides.
fn may_be_asked(
    state: &mut State,
    element: Borrowed<'_, '_>,
    compares: bool,
    orders: bool,
) -> bool {
    match state.kind_alone(element) {
        Kind::Tensor => compares,
        Kind::Object => orders && heap::is_ordered_in_python(element),
        Kind::Tuple => orders && state.asks_objects(element),
        _ => false,
    }
}

impl Recorder {
    /// Calls a function of the table that is no operation of PyTorch's.
    pub(super) fn call_asking<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.orders_rows(call) {
            let list = call.frame.py().get_type::<PyList>().into_any();
            return self.with_way_around(call.frame, || {
                let rows = call.with(list.as_borrowed(), &call.args[..1]);
                let rows = self.call_object(Call { names: None, ..rows })?;
                let mut args: Args<'_, 'py> = call.args.iter().copied().collect();
                args[0] = rows.as_borrowed();
                self.call_asking(class, Call { args: &args, ..call })
            });
        }
        let _reading = self.reads_on(call.frame, call.args);
        let known = |consumes: bool| {
            if let Some(result) = self.fills_from_pairs(call).or_else(|| self.takes_keys(call)) {
                return result;
            }
            if let Some(result) = self.ordered_by_key(call) {
                return result;
            }
            if self.meets_symbols() || self.folds_generator(call) || self.meets_arrays(class, call)
            {
                return self.symbolic_call(class, call);
            }
            let _consuming = consumes.then(|| self.consuming(call.frame));
            self.call_known(class, call)
        };
        if self.may_ask_within(class, call) {
            let moves = self.functions.traits(call.callable).has(Traits::MOVES);
            return self.with_way_around(call.frame, || known(!moves));
        }
        known(false)
    }

    /// Whether a call puts the rows in order that a `zip` or `enumerate` of the trace's own gives: they may hold numbers that
    /// were read, and are listed first.
    fn orders_rows(&self, call: Call<'_, '_>) -> bool {
        static ENUMERATE: Named = Named::new("builtins", "enumerate");
        let Call { frame, callable, .. } = call;
        let [rows] = call.positional() else { return false };
        let is_plain = |part: Object<'_>| {
            is_plain_iterator(&part.get_type()) && !ops::is_generator(part.as_borrowed())
        };
        let parts = || (0..).map_while(|index| iterator::over(*rows, index));
        let holds_numbers = |part: &Object<'_>| {
            let over = iterator::over(part.as_borrowed(), 0);
            over.is_some_and(|over| self.state.borrow_mut().holds_numbers(over.as_borrowed()))
        };
        let is_enumerate =
            || ENUMERATE.get(frame.py()).is_ok_and(|class| rows.get_type().is(class));
        let numeric = self.functions.numeric(callable);
        matches!(numeric, Some(Numeric::Sorted | Numeric::Least | Numeric::Greatest))
            && !self.is_stopped()
            && self.session.takes_steps()
            && self.meets_symbols()
            && (iterator::is_zip(*rows) || is_enumerate())
            && self.origin(*rows) == Some(Origin::Fresh)
            && parts().all(is_plain)
            && parts().any(|part| holds_numbers(&part))
    }

    /// Whether a call is given containers with NumPy's numbers in them, and may look at these.
    fn meets_arrays(&self, class: &Class, call: Call<'_, '_>) -> bool {
        let Call { callable, args, .. } = call;
        let compares = || {
            self.functions.traits(callable).has(Traits::ORDERS)
                || heap::is_named(callable, &["remove"])
        };
        let looked_at = match (class, args) {
            (Class::Model(Model::Len), _) => &[],
            // A key that could be such a number's is refused by the lookup.
            (
                Class::Model(
                    Model::GetItem | Model::Contains | Model::DictSlotRead | Model::ContainerWrite,
                ),
                [receiver, rest @ ..],
            ) if is_hashed(*receiver) => rest,
            (Class::Model(Model::ContainerWrite), [_, rest @ ..]) if !compares() => rest,
            _ => args,
        };
        let mut state = self.state.borrow_mut();
        looked_at.iter().any(|arg| state.array_within(*arg).is_some())
    }

    /// Whether C code may be in the middle of a call where data decides: it runs a generator, calls a function of the
    /// program's, or asks tensors.
    fn may_ask_within(&self, class: &Class, call: Call<'_, '_>) -> bool {
        let Call { callable, args, .. } = call;
        let traits = self.functions.traits(callable);
        let orders = traits.has(Traits::ORDERS);
        let args = match class {
            Class::Transparent | Class::Model(Model::Next) => args,
            Class::Model(Model::ContainerWrite) if orders => args,
            Class::Pure if self.folds_generator(call) => args,
            Class::Model(Model::ContainerWrite) => args.get(1..).unwrap_or_default(),
            _ => return false,
        };
        if args.is_empty() || !self.session.takes_steps() {
            return false;
        }
        const LAZY: [&str; 6] = ["map", "zip", "enumerate", "filter", "reversed", "accumulate"];
        let is_lazy = || heap::is_named(callable, &LAZY);
        let compares = matches!(class, Class::Transparent) && !traits.has(Traits::MOVES);
        let mut state = self.state.borrow_mut();
        // Nobody reads a container for that.
        let state = &mut *state;
        let mut may_ask = |arg: Borrowed<'_, '_>| match state.kind_alone(arg) {
            Kind::Function | Kind::Method | Kind::Partial => true,
            // What it gives is compared.
            _ if orders && heap::is_getter(arg) => true,
            Kind::Object if orders && heap::is_ordered_in_python(arg) => true,
            Kind::Object if heap::is_deque(arg) && (compares || orders) => {
                let first = heap::elements(arg).into_iter().next();
                first
                    .is_some_and(|first| may_be_asked(state, first.as_borrowed(), compares, orders))
            }
            Kind::Builtin | Kind::Object => state.has_symbols() && takes_items(arg),
            Kind::List | Kind::Tuple if compares || orders => {
                let first = heap::children(arg).into_iter().next();
                first
                    .is_some_and(|first| may_be_asked(state, first.as_borrowed(), compares, orders))
            }
            Kind::Iterator => {
                let runs = ops::is_generator(arg) || !matches!(class, Class::Model(Model::Next));
                runs && state.source(arg).is_none() && self.may_run_questions(arg, compares)
            }
            _ => false,
        };
        args.iter().any(|arg| may_ask(*arg)) && !is_lazy()
    }

    /// Whether an iterator may ask while it is run, or `compares` what it yields may. An exit costs more to make than
    /// all else that is recorded of `tuple(field for field in fields if field.kind is KIND)`.
    fn may_run_questions(&self, iterator: Borrowed<'_, '_>, compares: bool) -> bool {
        let asks = generator::look(iterator, |frame, _| {
            let code = frame.code();
            let Some(anatomy) = self.anatomy(&code) else { return true };
            let questions = anatomy.questions(&code);
            let is_fed_plainly = || {
                let fed = (code.argcount() > 0).then(|| frame.local(0)).flatten();
                fed.is_some_and(|fed| {
                    iterator::is_known(fed) && !iterator::combines(fed) && !iterator::wraps(fed)
                })
            };
            questions.asks || compares && !questions.yields_answers || !is_fed_plainly()
        });
        asks.unwrap_or(true)
    }
}

//! `random.Random(seed)`: a generator of the trace's own, as samplers and splits of data make one. A node makes it, so its
//! state is what nodes make of it from the beginning, as behind `random.seed` ([`seeds`](super::seeds)).
//!
//! Beside its state it has an attribute (`gauss_next`). That is read and written as those of other objects that the trace makes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyFunction, PyInt, PyString, PyType};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::{self, Named};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends};
use crate::recorder::notes::call::{Call, RecordedArgs};
use crate::recorder::notes::state::Origin;
use crate::recorder::numbers::read_numbers::own;

static RANDOM: Named = Named::new("random", "Random");

/// What making and seeding one looks up.
const METHODS: [&str; 3] = ["__new__", "__init__", "seed"];

impl Recorder {
    /// `random.Random(...)`; `None`: it's no node.
    pub(in crate::recorder) fn new_random<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable: class, args, names } = call;
        let ty = class.cast::<PyType>().ok()?;
        let may_make = self.session.is_replayed()
            && args.len() < 2
            && args.iter().all(|seed| is_seed(*seed))
            && self.may_read(frame)
            && !self.state.borrow().enclosed.is_on()
            && self.makes_as_known(frame, &ty);
        if !may_make {
            return None;
        }
        let given = self.note(frame, |state| RecordedArgs::of(state, args, names));
        let made = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()
        };
        if let (Some(given), Ok(generator)) = (given, &made) {
            self.note(frame, |state| {
                let target = state.function_target(class, "random.Random".into());
                let stack = state.place(frame);
                let node = state.graph.call_with_keywords(target, &given.args, &given.names, stack);
                state.set_origin(generator.as_borrowed(), Origin::Handle(node));
                state.claims.seeded.push(generator.clone().unbind());
                Ok(())
            });
        }
        Some(made)
    }

    /// Whether an integer below another one is drawn by a node: the generator's state is what nodes make of it.
    pub(in crate::recorder) fn may_draw_below(&self, call: Call<'_, '_>) -> bool {
        let ([generator, end], None) = (call.args, call.names) else { return false };
        let state = self.state.borrow();
        RANDOM.is(generator.get_type().as_any().as_borrowed())
            && state.is_seeded(*generator)
            && !state.enclosed.is_on()
            && end.is_exact_instance_of::<PyInt>()
            && self.may_read(call.frame)
    }

    /// An integer below another one, as the library's functions draw it. They draw until a number fits, which would be a
    /// question each time.
    pub(in crate::recorder) fn draw_below<'py>(
        &self,
        call: Call<'_, 'py>,
        generator: Borrowed<'_, 'py>,
        end: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        self.concrete(frame, &args[1..], "read by a random generator");
        let given = self
            .note(frame, |state| Ok([state.random_generator(generator), state.graph_arg(end)?]));
        let value = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()?
        };
        let Some(given) = given else { return Ok(value) };
        let (Some(number), Ok(most)) = (own(&value), end.extract::<i64>()) else {
            self.stop(frame, Reason::RandomNumber, "of more than 63 bits");
            return Ok(value);
        };
        self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
        self.note(frame, |state| {
            let node = state.called(frame, callable, "random._randbelow".into(), &given);
            state.carry_between(&number, node, None, Some((0, most - 1)));
            Ok(())
        });
        Ok(number)
    }

    /// Whether the methods that a generator is made by are the library's own.
    fn makes_as_known(&self, frame: &Frame<'_>, ty: &Bound<'_, PyType>) -> bool {
        METHODS.iter().all(|name| {
            let name = PyString::intern(frame.py(), name).into_any();
            let found = self.lookup(frame, ty, name.as_borrowed());
            found.is_some_and(|found| is_of_library(&found))
        })
    }
}

/// Whether a method is C code's, or one of the module `random`.
fn is_of_library(method: &Object<'_>) -> bool {
    if !method.is_instance_of::<PyFunction>() {
        return true;
    }
    let file = modules::import(method.py(), "random").and_then(|module| module.getattr("__file__"));
    let own = method.getattr("__code__").and_then(|code| code.getattr("co_filename"));
    matches!((file, own), (Ok(file), Ok(own)) if file.eq(&own).unwrap_or(false))
}

/// Whether any generator takes an object for its seed.
fn is_seed(seed: Borrowed<'_, '_>) -> bool {
    let is_small = || seed.extract::<i64>().is_ok();
    seed.is_none()
        || seed.is_exact_instance_of::<PyInt>() && is_small()
        || seed.is_exact_instance_of::<PyFloat>()
        || seed.is_exact_instance_of::<PyString>()
        || seed.is_exact_instance_of::<PyBytes>()
}

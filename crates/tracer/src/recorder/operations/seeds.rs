//! `torch.manual_seed`, `Generator.manual_seed` and `random.seed`: a node, which makes a generator's state of a number.
//!
//! What is drawn behind it is drawn by nodes, so a replay draws the same numbers. Where a replay is undone, the states
//! of all generators that it may have seeded are put back (`rollback`).

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::heap::twister;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_graph::{Arg, NodeId, Value};
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends, Operations};
use crate::recorder::notes::call::{Call, RecordedArgs};
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::numbers::read_numbers::own;

impl Recorder {
    /// Seeds a generator, or all of PyTorch's.
    pub(in crate::recorder) fn seed<'py>(
        &self,
        call: Call<'_, 'py>,
        seed: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        let is_state = heap::is_named(callable, &["set_state"]);
        // A number of 64 bits never raises, nor does the state of another generator of that kind.
        let is_fine = if is_state {
            args.first().is_some_and(|generator| is_on_cpu(*generator))
                && self.state.borrow().is_generator_state(seed)
        } else {
            seed.is_exact_instance_of::<PyInt>() && seed.extract::<i64>().is_ok()
        };
        if let [generator, _] = *args
            && twister::is_known(generator)
        {
            return self.seed_python(call, generator, seed, is_fine);
        }
        let given = self.note(frame, |state| {
            let may_be = match (self.session.program.is_some(), args) {
                (true, [generator, _]) => state.is_own_generator(*generator) && !is_state,
                _ => self.session.is_replayed(),
            };
            // Code within a node seeds generators at its place, and sets what it has asked for.
            let may_be = may_be && (is_fine || is_state && state.enclosed.is_on());
            if !may_be {
                return Err((Reason::OpaqueCall, heap::name_of(callable)));
            }
            RecordedArgs::of(state, args, None)
        });
        let result = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()?
        };
        if let Some(given) = given {
            self.note(frame, |state| {
                if state.origin(result.as_borrowed()).is_none() {
                    state.anchor(result.as_borrowed());
                }
                let name = if args.len() == 1 { "torch" } else { "torch.Generator" };
                let name = format!("{name}.{}", if is_state { "set_state" } else { "manual_seed" });
                let node = state.called(frame, callable, name, &given.args);
                state.graph.set_value(node, Value::Nothing);
                Ok(())
            });
        }
        Ok(result)
    }

    /// `get_state` of a generator: a tensor that a node gives.
    pub(in crate::recorder) fn generator_state<'py>(
        &self,
        call: Call<'_, 'py>,
        generator: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        self.note(frame, |_| {
            let may_be = self.session.is_replayed() && is_on_cpu(generator);
            if may_be { Ok(()) } else { Err((Reason::OpaqueCall, heap::name_of(callable))) }
        });
        let target =
            |state: &mut State| state.function_target(callable, "torch.Generator.get_state".into());
        let tensor = self.operation(frame, target, args, None, || call.natively())?;
        self.note(frame, |state| {
            if let Some(Origin::Node(node)) = state.origin(tensor.as_borrowed()) {
                state.claims.states.push(node);
            }
            Ok(())
        });
        Ok(tensor)
    }

    /// Makes a generator of PyTorch's on the CPU: what a node gives, which others seed and draw from.
    pub(in crate::recorder) fn new_generator<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let given = self.note(frame, |state| {
            let may_be = self.session.is_replayed() || self.session.program.is_some();
            if !may_be || state.enclosed.is_on() || !args.iter().all(|arg| is_cpu(*arg)) {
                return Err((Reason::OpaqueCall, "creation of a Generator".into()));
            }
            RecordedArgs::of(state, args, names)
        });
        let generator = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()?
        };
        if let Some(given) = given {
            self.note(frame, |state| {
                let target = state.function_target(callable, "torch.Generator".into());
                let stack = state.place(frame);
                let node = state.graph.call_with_keywords(target, &given.args, &given.names, stack);
                state.set_origin(generator.as_borrowed(), Origin::Handle(node));
                Ok(())
            });
        }
        Ok(generator)
    }

    /// Seeds a generator of the module `random`.
    fn seed_python<'py>(
        &self,
        call: Call<'_, 'py>,
        generator: Borrowed<'_, 'py>,
        seed: Borrowed<'_, 'py>,
        is_fine: bool,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let may_read = self.session.is_replayed() && self.may_read(frame);
        let given = self.note(frame, |state| {
            let may_seed = is_fine && may_read && !state.enclosed.is_on();
            let refused = || (Reason::OpaqueCall, heap::name_of(callable));
            let generator = state.take_generator(generator, may_seed).ok_or_else(refused)?;
            Ok([generator, state.graph_arg(seed)?])
        });
        if given.is_none() {
            // It may be read by C code.
            self.concrete(frame, &[seed], "read by a random generator");
        }
        let result = call.natively()?;
        if let Some(given) = given {
            self.note(frame, |state| {
                let node = state.called(frame, callable, "random.seed".into(), &given);
                state.graph.set_value(node, Value::Nothing);
                state.has_taken(generator, node);
                Ok(())
            });
        }
        Ok(result)
    }

    /// What a generator gives that a node has seeded: a number that is carried.
    pub(super) fn draw_behind_seed<'py>(
        &self,
        call: Call<'_, 'py>,
        generator: Borrowed<'_, 'py>,
        given: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let may_read = self.may_read(frame);
        let args = self.note(frame, |state| {
            if !may_read || state.enclosed.is_on() {
                return Err((Reason::RandomNumber, "where none can be carried".into()));
            }
            let mut args: SmallVec<[Arg; 2]> =
                [state.random_generator(generator)].into_iter().collect();
            for arg in given {
                args.push(state.graph_arg(*arg)?);
            }
            Ok(args)
        });
        let value = call.natively()?;
        let Some(args) = args else { return Ok(value) };
        let Some(number) = own(&value) else {
            self.stop(frame, Reason::RandomNumber, "of more than 63 bits");
            return Ok(value);
        };
        self.carries(frame, &number, |state| {
            let name = format!("random.{}", heap::name_of(callable));
            Ok(state.called(frame, callable, name, &args))
        });
        Ok(number)
    }
}

/// Whether a generator of PyTorch's is one of the CPU's.
fn is_on_cpu(generator: Borrowed<'_, '_>) -> bool {
    generator.getattr("device").is_ok_and(|device| is_cpu(device.as_borrowed()))
}

/// Whether an argument is the CPU: its name, or the device.
fn is_cpu(device: Borrowed<'_, '_>) -> bool {
    if device.is_exact_instance_of::<PyString>() {
        return heap::text(device) == "cpu";
    }
    heap::type_name(device) == "device"
        && device
            .getattr("type")
            .is_ok_and(|kind| kind.extract::<&str>().is_ok_and(|kind| kind == "cpu"))
}

impl State {
    /// Whether a tensor is what `get_state` of a generator on the CPU gave, and nothing has written to it.
    fn is_generator_state(&self, tensor: Borrowed<'_, '_>) -> bool {
        let Some(Origin::Node(node)) = self.origin(tensor) else { return false };
        let version = || tensor.getattr("_version").and_then(|version| version.extract::<u64>());
        self.claims.states.contains(&node) && version().is_ok_and(|version| version == 0)
    }

    /// Whether the trace has made a generator: it goes with the call.
    fn is_own_generator(&self, generator: Borrowed<'_, '_>) -> bool {
        matches!(self.origin(generator), Some(Origin::Handle(_)))
    }

    /// A generator of Python's that a node is about to seed or to draw from; `None`: none can.
    pub(super) fn take_generator(
        &mut self,
        generator: Borrowed<'_, '_>,
        may_take: bool,
    ) -> Option<Arg> {
        if self.is_own_random(generator) {
            return may_take.then(|| self.random_generator(generator));
        }
        // A replay draws at its beginning what the trace has drawn before; of another generator, it may be this one
        // in another call.
        let drawn = self.claims.draws.as_ref();
        let is_another = drawn.is_some_and(|(known, _)| !generator.is(known));
        let source = self.source(generator).filter(|_| may_take && !is_another)?;
        if !self.is_identity_guarded(generator) {
            let id = self.object(generator);
            self.guard(source, GuardKind::Is(id));
        }
        Some(self.random_generator(generator))
    }

    /// A node has seeded a generator or drawn from it: from here on its state is what nodes make of it.
    pub(super) fn has_taken(&mut self, generator: Borrowed<'_, '_>, node: NodeId) {
        if self.is_own_random(generator) {
            return;
        }
        if let Some((_, draws)) = &mut self.claims.draws {
            draws.seeded.get_or_insert(node.index());
        }
        if !self.is_seeded(generator) {
            self.claims.seeded.push(generator.to_owned().unbind());
        }
    }

    /// A generator of Python's as the graph holds it.
    pub(super) fn random_generator(&mut self, generator: Borrowed<'_, '_>) -> Arg {
        if let Some(Origin::Handle(node)) = self.origin(generator) {
            return Arg::Node(node);
        }
        Arg::Object(self.graph_object(generator, || "random.Random".into()))
    }
}

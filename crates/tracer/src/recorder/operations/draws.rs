//! Numbers that the trace draws from a `random.Random` generator: symbols.

use pyo3::prelude::*;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::twister::{self, Draw, Drawn, peek};
use stator_cpython::object::{Borrowed, Object};
use stator_graph::Target;
use stator_guards::SourceId;

use crate::breaks::Reason;
use crate::draws::Draws;
use crate::raises::NodeCall;
use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Noted, State};
use crate::recorder::notes::symbols::{Made, Number};
use crate::symbolic::{Part, Slot};

/// What is to be drawn.
struct Planned {
    source: SourceId,
    part: Part,
    draw: Draw,
}

impl Recorder {
    /// `random()` or `getrandbits()` of a generator.
    pub(in crate::recorder) fn draw<'py>(
        &self,
        call: Call<'_, 'py>,
        generator: Borrowed<'_, 'py>,
        given: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        self.concrete(frame, given, "read by a random generator");
        if self.state.borrow().is_seeded(generator) {
            return self.draw_behind_seed(call, generator, given);
        }
        let planned = self.note(frame, |state| state.plan_draw(callable, generator, given));
        let foretold = planned.as_ref().and_then(|planned| peek(generator, 0, planned.draw));
        let result = call.natively()?;
        let Some(planned) = planned else { return Ok(result) };
        let own = self.note(frame, |state| {
            let number = match foretold {
                Some(Drawn::Float(number)) => result.extract().ok() == Some(number),
                Some(Drawn::Integer(number)) => result.extract().ok() == Some(number),
                None => false,
            };
            if !number {
                return Err((Reason::OpaqueCall, heap::name_of(callable)));
            }
            Ok(state.drawn(&planned, generator, &result))
        });
        Ok(own.unwrap_or(result))
    }

    /// Lets a generator that a function of a module is bound to (`random.random`) be known by the function.
    pub(in crate::recorder) fn know_generator(
        &self,
        frame: &Frame<'_>,
        bound: Borrowed<'_, '_>,
        generator: Borrowed<'_, '_>,
    ) {
        self.note(frame, |state| {
            if state.origin(generator).is_none()
                && state.is_identity_guarded(bound)
                && twister::is_known(generator)
            {
                state.anchor(generator);
            }
            Ok(())
        });
    }
}

impl State {
    fn plan_draw(
        &mut self,
        callable: Borrowed<'_, '_>,
        generator: Borrowed<'_, '_>,
        given: &[Borrowed<'_, '_>],
    ) -> Noted<Planned> {
        let refuse = |what: &str| Err((Reason::RandomNumber, what.to_string()));
        let bits = |bits: &Borrowed<'_, '_>| bits.extract().ok().filter(|it| (1..=32).contains(it));
        let draw = match given {
            [] => Some(Draw::Float),
            [number] => bits(number).map(Draw::Bits),
            _ => None,
        };
        let Some(draw) = draw else { return refuse("of more than 32 bits") };
        if self.program.is_some() || !twister::is_known(generator) {
            return Err((Reason::OpaqueCall, heap::name_of(callable)));
        }
        let Some(source) = self.source(generator) else {
            return refuse("of a generator that the function made");
        };
        if self.has_unseen_nodes() {
            return refuse("behind code of the program's own, which may have drawn");
        }
        let drawn = self.claims.draws.as_ref();
        if drawn.is_some_and(|(known, _)| !generator.is(known)) {
            return refuse("of a second generator");
        }
        let words = drawn.map_or(0, |(_, draws)| draws.words());
        Ok(Planned { source, part: Part::Drawn(words, draw), draw })
    }

    /// Takes what was drawn as a symbol; the object that it is.
    fn drawn<'py>(
        &mut self,
        planned: &Planned,
        generator: Borrowed<'_, 'py>,
        value: &Object<'py>,
    ) -> Object<'py> {
        let (own, slot) = self.adopt_drawn(planned.source, planned.part, value);
        let nodes = self.graph.len();
        let first = || (generator.to_owned().unbind(), Draws { slot, ..Draws::default() });
        let (_, draws) = self.claims.draws.get_or_insert_with(first);
        draws.made.push((nodes, planned.draw.words()));
        own
    }

    /// Takes a number that was drawn from the generator at `source` as a symbol; the object that stands for
    /// it, and the symbol's number.
    fn adopt_drawn<'py>(
        &mut self,
        source: SourceId,
        part: Part,
        value: &Object<'py>,
    ) -> (Object<'py>, usize) {
        let py = value.py();
        let name = part.print(self.sources.print(source));
        self.begin_symbols(py);
        let stack = self.here_stack();
        let symbols = self.begin_symbols(py);
        let number = if part.is_float() {
            let hint = value.extract().unwrap_or(f64::NAN);
            let (_, float) = symbols.context.float_symbol(hint);
            Number::Float(float)
        } else {
            let hint = value.extract().unwrap_or(0);
            let most = match part {
                Part::Drawn(_, Draw::Bits(bits)) => (1 << bits) - 1,
                _ => i64::MAX,
            };
            let symbol = symbols.context.symbol(hint, (0, most), None);
            Number::Integer(symbol.expr)
        };
        let own = symbols.own_object(py, number);
        symbols.add_slot(Slot { source, part }, name, true);
        let slot = symbols.slots.len() - 1;
        let outside = Some(value.clone().unbind());
        symbols.insert(&own, number, Made::Drawn(slot), stack, outside);
        self.log_facts(py);
        (own, slot)
    }

    /// Why code of the program's own can't be a node: a replay draws numbers and takes locks before it runs.
    pub(in crate::recorder) fn refuse_users_node(&self, target: Target) -> Noted<()> {
        let call = NodeCall { graph: &self.graph, target, args: &[], keywords: &[], class: None };
        if (self.claims.draws.is_none() && self.claims.locks.is_empty()) || !call.is_users() {
            return Ok(());
        }
        let name = call.name();
        if !self.claims.locks.is_empty() {
            return Err((Reason::Lock, format!("before {name}, which may take it")));
        }
        if self.is_seen(target) {
            return Ok(());
        }
        Err((Reason::RandomNumber, format!("before {name}, which may draw another")))
    }
}

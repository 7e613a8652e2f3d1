//! Numbers that the trace draws: no guard may fix them.

use stator_cpython::heap::twister::Draw;
use stator_graph::{NodeId, Value};
use stator_shapes::SymbolId;

use crate::breaks::Reason;
use crate::recorder::notes::state::State;
use crate::recorder::notes::symbols::{Number, Symbols};
use crate::symbolic::Part;

/// So many bits a number has at most of which a decision says what it is.
const CHOICE_BITS: u8 = 4;

impl Symbols {
    /// The symbols that a number is computed of.
    fn within_number(&mut self, number: Number) -> Vec<SymbolId> {
        match number {
            Number::Read(_) => Vec::new(),
            Number::Integer(expr) => self.context.symbols_of(expr),
            Number::Float(float) => {
                let hint = self.context.float_hint(float);
                let is = self.context.float_is(float, hint);
                self.context.symbols_in(is)
            }
        }
    }
}

impl State {
    /// Whether a number was read from a tensor or depends on one that was drawn: no guard may fix it. If so, the trace ends.
    pub(in crate::recorder) fn refuses_to_fix(&mut self, number: Number, why: &str) -> bool {
        let Some(symbols) = self.symbols.as_mut() else { return false };
        match number {
            Number::Read(_) => {
                self.refuse_read(why);
                return true;
            }
            Number::Integer(expr) if symbols.is_data_sized(expr) => {
                self.refuse_read(why);
                return true;
            }
            _ => {}
        }
        if let Some(size) = self.size_of_program(number) {
            self.failure.get_or_insert((Reason::VaryingSize, format!("{size}, {why}")));
            return true;
        }
        if !self.is_from_draw(number) {
            return false;
        }
        self.failure.get_or_insert((Reason::RandomNumber, why.to_string()));
        true
    }

    /// A size that a program is traced for all values of, if a number is computed of one.
    fn size_of_program(&mut self, number: Number) -> Option<String> {
        self.program.as_ref()?;
        let symbols = self.symbols.as_mut()?;
        let within = symbols.within_number(number);
        let marked = symbols.marked.iter().find(|marked| {
            symbols.context.as_symbol(marked.expr).is_some_and(|symbol| within.contains(&symbol))
        });
        marked.map(|marked| marked.name.clone())
    }

    /// Whether a number was drawn, or is computed from one that was.
    pub(in crate::recorder) fn is_from_draw(&mut self, number: Number) -> bool {
        let (true, Some(symbols)) = (self.claims.draws.is_some(), self.symbols.as_mut()) else {
            return false;
        };
        let within = symbols.within_number(number);
        let is_drawn = |it: &SymbolId| matches!(symbols.slots[it.index()].part, Part::Drawn(..));
        within.iter().any(is_drawn)
    }

    /// Whether a number is an integer that was drawn among so few that a decision about it often holds: a choice.
    pub(in crate::recorder) fn is_small_draw(&mut self, number: Number) -> bool {
        let (Number::Integer(expr), Some(symbols)) = (number, self.symbols.as_mut()) else {
            return false;
        };
        if !symbols.is_open_number(number) {
            return false;
        }
        let within = symbols.context.symbols_of(expr);
        let is_small = |it: &SymbolId| {
            let part = symbols.slots[it.index()].part;
            matches!(part, Part::Drawn(_, Draw::Bits(bits)) if bits <= CHOICE_BITS)
        };
        !within.is_empty() && within.iter().all(is_small)
    }

    /// Makes a number that was drawn an input of the graph.
    pub(in crate::recorder) fn drawn_input(&mut self, slot: usize, value: Value) -> NodeId {
        let symbols = self.symbols.as_mut().expect("a number of this trace");
        symbols.inputs.push((self.graph.placeholders().len(), slot));
        let name = symbols.short_name(slot);
        self.graph.placeholder(&name, value)
    }
}

//! What a trace has assumed of its symbols, as guards of the entry.

use smallvec::SmallVec;
use stator_graph::{NodeId, Value};
use stator_guards::{Guard, GuardKind};
use stator_shapes::{Style, SymbolId};

use crate::recorder::notes::state::State;
use crate::recorder::notes::symbols::{Symbols, TensorKey};
use crate::symbolic::{Fact, Part, Symbolic};

impl State {
    /// Turns what was assumed into guards, and gives the graph its symbolic sizes.
    pub fn finish_symbols(&mut self) -> Option<Box<Symbolic>> {
        let mut symbols = self.symbols.take()?;
        self.print_sizes(&mut symbols);
        let all = symbols.slots.len();
        let short: Vec<_> = (0..all).map(|slot| symbols.short_name(slot)).collect();
        let facts = self.guarded_facts(&mut symbols);
        // Those of the middle have been decided, and have no slots.
        let is_of_entry = |slot: &usize| symbols.slots[*slot].part != Part::Middle;
        let kept: Vec<usize> = (0..all).filter(is_of_entry).collect();
        let position = |slot: usize| kept.partition_point(|kept| *kept < slot);
        let slot = |symbol: SymbolId| position(symbol.index());
        if let Some((_, draws)) = &mut self.claims.draws {
            draws.slot = position(draws.slot);
        }
        let program = symbols.context.compile(&facts, &slot);
        let mut compiled = Vec::with_capacity(facts.len());
        for fact in facts {
            let context = &symbols.context;
            let Some(&first) = context.symbols_in(fact.cond).first() else { continue };
            let name = |symbol: SymbolId| symbols.names[symbol.index()].clone().into();
            let text = context.display_cond(fact.cond, Style::Math, &name);
            let program = context.compile(std::slice::from_ref(&fact), &slot);
            let guard = (!fact.implicit).then(|| {
                let source = symbols.slots[first.index()].source;
                let kind = GuardKind::Symbolic { text: text.as_str().into() };
                self.guards.push(Guard { source, kind, location: None });
                self.guards.len() - 1
            });
            compiled.push(Fact { guard, text, program });
        }
        let Symbols { slots, names, inputs, log, .. } = *symbols;
        let inputs = inputs.into_iter().map(|(input, slot)| (input, position(slot)));
        Some(Box::new(Symbolic {
            slots: kept.iter().map(|slot| slots[*slot]).collect(),
            names: kept.iter().map(|slot| names[*slot].clone()).collect(),
            short: kept.iter().map(|slot| short[*slot].clone()).collect(),
            program,
            facts: compiled.into(),
            inputs: inputs.collect(),
            log,
        }))
    }

    /// The facts that an entry guards.
    fn guarded_facts(&mut self, symbols: &mut Symbols) -> Vec<stator_shapes::Fact> {
        if !symbols.has_data_sizes() {
            return symbols.context.facts();
        }
        let mut context = std::mem::take(&mut symbols.context);
        let facts = context.facts_where(|context, fact| !symbols.asks_data(context, fact));
        symbols.context = context;
        facts
    }

    /// How symbolic sizes print in the `graph_sizes` log.
    fn print_sizes(&mut self, symbols: &mut Symbols) {
        let sizes = std::mem::take(&mut symbols.sizes);
        for (key, sizes) in sizes {
            let node = match key {
                TensorKey::Source(source) => match self.inputs.node_at(source) {
                    Some(node) => node,
                    None => continue,
                },
                TensorKey::Node(node) => NodeId::new(node as usize),
            };
            // The node says what it made; a tensor that was changed in place since has other sizes.
            if let Value::Tensor(made) = self.graph.node(node).value {
                let now = sizes.iter().map(|size| symbols.context.hint(*size));
                if !now.eq(self.graph.sizes(&made).iter().copied()) {
                    continue;
                }
            }
            let texts: SmallVec<[Option<String>; 5]> = sizes
                .iter()
                .map(|size| {
                    let size = symbols.context.simplify(*size);
                    symbols.context.as_constant(size).is_none().then(|| {
                        symbols.context.display(size, &|symbol| symbols.short(symbol).into())
                    })
                })
                .collect();
            if texts.iter().any(Option::is_some) {
                let texts: SmallVec<[Option<&str>; 5]> =
                    texts.iter().map(Option::as_deref).collect();
                self.graph.set_symbolic_sizes(node, &texts);
            }
        }
    }
}

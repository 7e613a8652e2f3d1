//! What a trace has assumed of its symbols, as guards of the entry.

use smallvec::SmallVec;
use stator_graph::{NodeId, Value};
use stator_guards::{Guard, GuardKind};
use stator_shapes::{Style, SymbolId};

use super::symbols::{Symbols, TensorKey};
use crate::recorder::notes::state::State;
use crate::symbolic::{Fact, Symbolic};

impl State {
    /// Turns what was assumed into guards, and gives the graph its symbolic sizes.
    pub fn finish_symbols(&mut self) -> Option<Box<Symbolic>> {
        let mut symbols = self.symbols.take()?;
        self.print_sizes(&mut symbols);
        let facts = symbols.context.facts();
        let slot = |symbol: SymbolId| symbol.index();
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
        let short = (0..symbols.slots.len()).map(|slot| symbols.short_name(slot)).collect();
        let Symbols { slots, names, inputs, log, .. } = *symbols;
        Some(Box::new(Symbolic {
            slots: slots.into(),
            names: names.into(),
            short,
            program,
            facts: compiled.into(),
            inputs: inputs.into(),
            log,
        }))
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

//! The scope of a function that is being traced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Name;
use crate::ast::BuildingBlock;
use crate::types::Type;

/// The names that a traced function has given to values: the locals of the block that its body
/// becomes.
#[derive(Debug)]
pub struct Scope {
    name: Name,
    open: Open,
    /// In the order in which they were bound, so that each uses only those before it.
    symbols: Vec<(Name, BuildingBlock)>,
    /// The innermost scope around this one that a value used here belongs to.
    outer: Option<Open>,
}

/// Whether a scope is still being traced: values of a scope mean nothing outside it.
#[derive(Clone, Debug)]
pub struct Open(Arc<State>);

#[derive(Debug)]
struct State {
    open: AtomicBool,
    /// How many scopes are around it.
    depth: usize,
    /// What is being traced, to name it in errors.
    what: Name,
}

impl Open {
    /// Whether it is still being traced.
    pub fn is_open(&self) -> bool {
        self.0.open.load(Ordering::Relaxed)
    }

    /// What is, or was, traced.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Whether both are of one scope.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The inner one of two scopes of which one is around the other.
    #[must_use]
    pub fn inner(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if a.0.depth >= b.0.depth { a } else { b }),
            (a, b) => a.or(b),
        }
    }
}

impl Scope {
    /// A scope named `suggested`, with a number behind it if a scope around it has that name.
    /// `what` names it in errors.
    pub fn new(suggested: &str, around: &[Name], what: Name) -> Self {
        let taken = |name: &str| around.iter().any(|other| **other == *name);
        let numbered = |number: u32| format!("{suggested}_{number}");
        let name = if taken(suggested) {
            (1..)
                .map(numbered)
                .find(|name| !taken(name))
                .expect("there are more numbers than scopes")
        } else {
            suggested.to_owned()
        };
        let state = State { open: AtomicBool::new(true), depth: around.len(), what };
        let open = Open(Arc::new(state));
        Self { name: name.into(), open, symbols: Vec::new(), outer: None }
    }

    /// Its name, different from those around it.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// To ask whether it is still being traced.
    pub fn open(&self) -> &Open {
        &self.open
    }

    /// The names bound so far.
    pub fn symbols(&self) -> &[(Name, BuildingBlock)] {
        &self.symbols
    }

    /// A new name for a value.
    pub fn bind(&mut self, value: BuildingBlock) -> BuildingBlock {
        let name: Name = format!("fc_{}_symbol_{}", self.name, self.symbols.len()).into();
        let reference = BuildingBlock::reference(name.clone(), value.ty().clone());
        self.symbols.push((name, value));
        reference
    }

    /// Notes that a value of `scope` is used here.
    pub fn uses(&mut self, scope: &Open) {
        if !scope.is(&self.open) {
            self.outer = Open::inner(self.outer.take(), Some(scope.clone()));
        }
    }

    /// The stand-in for the function's argument.
    pub fn parameter(&self, suffix: &str, ty: Type) -> BuildingBlock {
        BuildingBlock::reference(format!("{}_{suffix}", self.name), ty)
    }

    /// The traced function, from its parameter's stand-in and its result; and the scope whose
    /// values it uses, if it does. Its own values mean nothing from now on.
    pub fn finish(
        mut self,
        parameter: Option<&BuildingBlock>,
        result: BuildingBlock,
    ) -> (BuildingBlock, Option<Open>) {
        let symbols = std::mem::take(&mut self.symbols);
        let body = match symbols.is_empty() {
            true => result,
            false => BuildingBlock::block(symbols, result),
        };
        let parameter = parameter.map(|parameter| {
            let reference = parameter.as_reference().expect("the parameter is a name");
            (reference.name.clone(), parameter.ty().clone())
        });
        (BuildingBlock::lambda(parameter, body), self.outer.take())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.open.0.open.store(false, Ordering::Relaxed);
    }
}

//! Facts about process and thread state: what a call reads without being given it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Facts about process and thread state at a call's entry, in the order of the reader's table.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GlobalState {
    /// The facts. Two states of one process have the same names in the same order.
    pub facts: Box<[Fact]>,
}

/// A named fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The expression a user would write to read it, such as `torch.is_grad_enabled()`.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A count, level or set of bits.
    Int(i64),
    /// Anything else, by its `repr`.
    Text(Box<str>),
}

impl GlobalState {
    /// The value of a fact.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| &fact.value)
    }

    /// The facts in which `found` differs from `self`, each with the value it has there, if any.
    pub fn differences<'a>(
        &'a self,
        found: &'a GlobalState,
    ) -> impl Iterator<Item = (&'a Fact, Option<&'a Value>)> {
        let pairs = self.facts.iter().map(|fact| (fact, found.get(fact.name)));
        pairs.filter(|(fact, value)| *value != Some(&fact.value))
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} == {}", self.name, self.value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

//! The Python classes that the values of struct types come in.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A class of containers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// `list`
    List,
    /// `tuple`
    Tuple,
    /// `dict`
    Dict,
    /// `collections.OrderedDict`
    OrderedDict,
    /// Any other class: a named tuple, a data class, ...
    Other(Arc<dyn ContainerClass>),
}

/// A class that is known only to whoever made the type.
pub trait ContainerClass: fmt::Debug + Send + Sync + 'static {
    /// Its name, as in printed types.
    fn name(&self) -> &str;

    /// The same number for the same class, another one for every other.
    fn identity(&self) -> usize;

    /// Itself, for whoever made it.
    fn as_any(&self) -> &dyn std::any::Any;
}

impl PartialEq for dyn ContainerClass {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for dyn ContainerClass {}

impl Hash for dyn ContainerClass {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl Container {
    /// The name of the class.
    pub fn name(&self) -> &str {
        match self {
            Self::List => "list",
            Self::Tuple => "tuple",
            Self::Dict => "dict",
            Self::OrderedDict => "OrderedDict",
            Self::Other(class) => class.name(),
        }
    }
}

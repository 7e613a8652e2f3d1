//! The types of federated computations: immutable and interned, so that equality is identity.

mod analysis;
mod assign;
mod concrete;
mod container;
mod diff;
mod intern;
mod leaves;
mod parse;
mod print;
mod repr;
mod shape;

use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use container::{Container, ContainerClass};
pub use leaves::WithoutContainers;
pub use shape::Shape;

use crate::Name;
use crate::dtype::DType;
use crate::error::{Class, Error, Result};
use crate::placement::Placement;

/// A type. Equal types are one node: comparing and hashing look at its address.
#[derive(Clone)]
pub struct Type(Arc<Node>);

/// What a type is made of, with what is asked of it often.
struct Node {
    kind: TypeKind,
    facts: Facts,
    /// The hash of the parts, by which the table of types finds it.
    hash: u64,
}

/// The kinds of types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// `int32[2,?]`
    Tensor(TensorType),
    /// `<a=int32,bool>`
    Struct(StructType),
    /// `int32*`: elements that come one after another.
    Sequence(Type),
    /// `(int32 -> bool)`
    Function(FunctionType),
    /// `{int32}@CLIENTS`, `int32@SERVER`
    Federated(FederatedType),
    /// `placement`: the type of a placement.
    Placement,
    /// `T`: stands for some type in a template.
    Abstract(Name),
}

/// The type of arrays of one element type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The size of each dimension as far as it is known.
    pub shape: Shape,
}

/// The type of a struct: fields with or without names.
#[derive(Clone, Debug)]
pub struct StructType {
    fields: Box<[Field]>,
    /// The Python class that values of the type come in, if it says one.
    container: Option<Container>,
    /// From names to positions, in a struct of many fields.
    positions: Option<FxHashMap<Name, u32>>,
}

/// One field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name, if it has one.
    pub name: Option<Name>,
    /// Its type.
    pub ty: Type,
}

/// The type of a function of no or one parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionType {
    /// The parameter, if it takes one.
    pub parameter: Option<Type>,
    /// The result.
    pub result: Type,
}

/// The type of a value that lives at a placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FederatedType {
    /// What each place holds.
    pub member: Type,
    /// Where.
    pub placement: Placement,
    /// Whether every place holds the same.
    pub all_equal: bool,
}

/// Kinds of types that occur in a type, itself included: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts(u8);

impl Facts {
    /// A tensor type occurs.
    pub const TENSOR: Self = Self(1);
    /// A struct type occurs.
    pub const STRUCT: Self = Self(2);
    /// A sequence type occurs.
    pub const SEQUENCE: Self = Self(4);
    /// A function type occurs.
    pub const FUNCTION: Self = Self(8);
    /// A federated type occurs.
    pub const FEDERATED: Self = Self(16);
    /// The type of placements occurs.
    pub const PLACEMENT: Self = Self(32);
    /// An abstract type occurs.
    pub const ABSTRACT: Self = Self(64);
    /// A struct type with a Python container occurs.
    pub const CONTAINER: Self = Self(128);

    /// Whether any of the kinds of `other` occurs.
    pub fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The kinds that occur in either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Names that fields can't have: attributes of the Python class of struct types, and names that
/// elements of a `Struct` can't have. Sorted.
pub const RESERVED_NAMES: &[&str] = &[
    "__class__",
    "__class_getitem__",
    "__copy__",
    "__deepcopy__",
    "__delattr__",
    "__dict__",
    "__dir__",
    "__doc__",
    "__eq__",
    "__format__",
    "__ge__",
    "__getattr__",
    "__getattribute__",
    "__getitem__",
    "__getstate__",
    "__gt__",
    "__hash__",
    "__init__",
    "__init_subclass__",
    "__iter__",
    "__le__",
    "__len__",
    "__lt__",
    "__module__",
    "__ne__",
    "__new__",
    "__reduce__",
    "__reduce_ex__",
    "__repr__",
    "__reversed__",
    "__setattr__",
    "__setstate__",
    "__sizeof__",
    "__slots__",
    "__str__",
    "__subclasshook__",
    "__weakref__",
    "_asdict",
    "_element_array",
    "_elements_cache",
    "_hash",
    "_name_array",
    "_name_to_index",
    "check_assignable_from",
    "check_equivalent_to",
    "children",
    "compact_representation",
    "fields",
    "formatted_representation",
    "from_bytes",
    "from_proto",
    "is_assignable_from",
    "is_equivalent_to",
    "is_identical_to",
    "items",
    "named",
    "python_container",
    "to_bytes",
    "to_proto",
    "unnamed",
];

impl Type {
    /// The type of arrays of `dtype` and `shape`.
    pub fn tensor(dtype: DType, shape: Shape) -> Self {
        Self::intern(TypeKind::Tensor(TensorType { dtype, shape }))
    }

    /// The type of single elements of `dtype`.
    pub fn scalar(dtype: DType) -> Self {
        Self::tensor(dtype, Shape::scalar())
    }

    /// The type of structs of these fields.
    ///
    /// # Errors
    /// `Class::Value`: two fields have one name, or one has a reserved name.
    pub fn structure(fields: Vec<Field>, container: Option<Container>) -> Result<Self> {
        let made = StructType::new(fields.into(), container);
        made.check_names()?;
        Ok(Self::intern(TypeKind::Struct(made)))
    }

    /// The type of sequences of `element`. Lists inside the element become tuples, because
    /// elements of a sequence are values that nobody appends to.
    ///
    /// # Errors
    /// `Class::Value`: the element contains a federated, function or sequence type.
    pub fn sequence(element: Self) -> Result<Self> {
        let refused = Facts::FEDERATED.or(Facts::FUNCTION).or(Facts::SEQUENCE);
        if element.facts().any(refused) {
            return Err(Error::new(
                Class::Value,
                "the element of a sequence can't contain a federated, function or sequence type",
            )
            .found(element));
        }
        Ok(Self::intern(TypeKind::Sequence(element.with_tuples())))
    }

    /// The type of functions from `parameter`, or from nothing, to `result`.
    pub fn function(parameter: Option<Self>, result: Self) -> Self {
        Self::intern(TypeKind::Function(FunctionType { parameter, result }))
    }

    /// The type of values that hold a `member` at each place of `placement`. Where `all_equal` is
    /// `None`, the placement decides.
    ///
    /// # Errors
    /// `Class::Value`: the member contains a federated or function type.
    pub fn federated(member: Self, placement: Placement, all_equal: Option<bool>) -> Result<Self> {
        if member.facts().any(Facts::FEDERATED.or(Facts::FUNCTION)) {
            return Err(Error::new(
                Class::Value,
                "the member of a federated type can't contain a federated or function type",
            )
            .found(member));
        }
        let all_equal = all_equal.unwrap_or(placement.default_all_equal());
        Ok(Self::intern(TypeKind::Federated(FederatedType { member, placement, all_equal })))
    }

    /// The type of placements.
    pub fn placement() -> Self {
        Self::intern(TypeKind::Placement)
    }

    /// The type with a label that stands for any type.
    pub fn abstract_type(label: impl Into<Name>) -> Self {
        Self::intern(TypeKind::Abstract(label.into()))
    }

    /// What it is made of.
    pub fn kind(&self) -> &TypeKind {
        &self.0.kind
    }

    /// The kinds of types that occur in it.
    pub fn facts(&self) -> Facts {
        self.0.facts
    }

    /// Where its one node lives: different for different types, for as long as they live.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// As a tensor type.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self.kind() {
            TypeKind::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// As a struct type.
    pub fn as_struct(&self) -> Option<&StructType> {
        match self.kind() {
            TypeKind::Struct(structure) => Some(structure),
            _ => None,
        }
    }

    /// The element, of a sequence type.
    pub fn as_sequence(&self) -> Option<&Self> {
        match self.kind() {
            TypeKind::Sequence(element) => Some(element),
            _ => None,
        }
    }

    /// As a function type.
    pub fn as_function(&self) -> Option<&FunctionType> {
        match self.kind() {
            TypeKind::Function(function) => Some(function),
            _ => None,
        }
    }

    /// As a federated type.
    pub fn as_federated(&self) -> Option<&FederatedType> {
        match self.kind() {
            TypeKind::Federated(federated) => Some(federated),
            _ => None,
        }
    }

    /// The types that it is made of, in order: a parameter comes before its result.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = &Self> {
        let (fields, first, second): (&[Field], Option<&Self>, Option<&Self>) = match self.kind() {
            TypeKind::Tensor(_) | TypeKind::Placement | TypeKind::Abstract(_) => (&[], None, None),
            TypeKind::Struct(structure) => (&structure.fields, None, None),
            TypeKind::Sequence(element) => (&[], Some(element), None),
            TypeKind::Function(of) => (&[], of.parameter.as_ref(), Some(&of.result)),
            TypeKind::Federated(federated) => (&[], Some(&federated.member), None),
        };
        fields.iter().map(|field| &field.ty).chain(first).chain(second)
    }
}

impl StructType {
    fn new(fields: Box<[Field]>, container: Option<Container>) -> Self {
        // Below this, looking at each field is quicker.
        const MANY: usize = 8;
        let positions = (fields.len() > MANY).then(|| {
            let named = |(at, field): (usize, &Field)| Some((field.name.clone()?, at as u32));
            // From the end, so that the first of two equal names stays.
            fields.iter().enumerate().rev().filter_map(named).collect()
        });
        Self { fields, container, positions }
    }

    /// The fields in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The Python class of its values, if it says one.
    pub fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// How many fields it has.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether it has no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The position of the field with this name; the first one, in a struct that is being made.
    pub fn position(&self, name: &str) -> Option<usize> {
        match &self.positions {
            Some(positions) => positions.get(name).map(|&at| at as usize),
            None => self.fields.iter().position(|field| field.name.as_deref() == Some(name)),
        }
    }

    /// The type of the field with this name.
    pub fn field(&self, name: &str) -> Option<&Type> {
        Some(&self.fields[self.position(name)?].ty)
    }

    fn check_names(&self) -> Result<()> {
        for (at, field) in self.fields.iter().enumerate() {
            let Some(name) = &field.name else { continue };
            if RESERVED_NAMES.binary_search(&&**name).is_ok() {
                return Err(Error::new(
                    Class::Value,
                    format!(
                        "a field can't be named `{name}`: struct types have an attribute of that name"
                    ),
                ));
            }
            if self.position(name) != Some(at) {
                return Err(Error::new(Class::Value, format!("two fields are named `{name}`")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::RESERVED_NAMES;

    #[test]
    fn reserved_names_are_sorted() {
        assert!(RESERVED_NAMES.is_sorted());
    }
}

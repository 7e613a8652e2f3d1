//! The syntax tree: building blocks, immutable and shared.
//!
//! A block is shared by all trees that it occurs in, so what looks like a tree is a graph without
//! cycles. Walks, passes, comparing, hashing and dropping use no recursion, and look at a shared
//! block once where its place doesn't matter: a program of 100,000 nested calls is an ordinary one.

pub mod names;
pub mod passes;
mod print;
mod repr;
mod same;
mod structural;
pub mod walk;

use std::fmt;
use std::sync::Arc;

use crate::Name;
use crate::array::Array;
use crate::error::{Class, Error, Result};
use crate::placement::Placement;
use crate::types::{Container, Field, Type};

/// A node of the syntax tree with everything below it.
#[derive(Clone)]
pub struct BuildingBlock(Arc<Node>);

struct Node {
    kind: BlockKind,
    ty: Type,
    /// Of the structure; a reference's is of its name and type.
    hash: u64,
}

/// The kinds of building blocks.
#[derive(Clone, Debug)]
pub enum BlockKind {
    /// A name that something around it gives a value.
    Reference(Reference),
    /// A field of a struct.
    Selection(Selection),
    /// A struct of values.
    Struct(Struct),
    /// A function applied to its argument.
    Call(Call),
    /// A function of no or one parameter.
    Lambda(Lambda),
    /// Names for values, one after another, and a result that uses them.
    Block(Block),
    /// An operation of the language.
    Intrinsic(Name),
    /// Data that only an executor knows.
    Data(Data),
    /// A placement as a value.
    Placement(Placement),
    /// An array of numbers or strings.
    Literal(Array),
    /// A computation that is no tree of blocks: a tensor program, or another language's.
    Compiled(Compiled),
}

/// See [`BlockKind::Reference`].
#[derive(Clone, Debug)]
pub struct Reference {
    /// The name.
    pub name: Name,
    /// The name of the scope that the name belongs to, for readers only.
    pub context: Option<Name>,
}

/// See [`BlockKind::Selection`].
#[derive(Clone, Debug)]
pub struct Selection {
    /// The struct.
    pub source: BuildingBlock,
    /// Which field.
    pub key: Key,
}

/// How a selection says which field it means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// By its name.
    Name(Name),
    /// By its position.
    Index(u32),
}

/// See [`BlockKind::Struct`].
#[derive(Clone, Debug)]
pub struct Struct {
    /// Each field's name, if it has one, and value.
    pub elements: Box<[(Option<Name>, BuildingBlock)]>,
}

/// See [`BlockKind::Call`].
#[derive(Clone, Debug)]
pub struct Call {
    /// What is called.
    pub function: BuildingBlock,
    /// What it is given, if it takes something.
    pub argument: Option<BuildingBlock>,
}

/// See [`BlockKind::Lambda`].
#[derive(Clone, Debug)]
pub struct Lambda {
    /// The parameter's name and type, if it takes one.
    pub parameter: Option<(Name, Type)>,
    /// What it gives back.
    pub result: BuildingBlock,
}

/// See [`BlockKind::Block`].
#[derive(Clone, Debug)]
pub struct Block {
    /// The names with their values; each value may use the names before it.
    pub locals: Box<[(Name, BuildingBlock)]>,
    /// The value of the whole.
    pub result: BuildingBlock,
}

/// See [`BlockKind::Data`]: the content of a message of some type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    /// The type of the content, as `google.protobuf.Any` names it.
    pub type_url: Name,
    /// The content.
    pub value: Arc<[u8]>,
}

/// See [`BlockKind::Compiled`].
#[derive(Clone, Debug)]
pub struct Compiled {
    /// A name to print.
    pub name: Name,
    /// The computation.
    pub payload: Arc<dyn Payload>,
}

/// A computation that is no tree of blocks.
pub trait Payload: fmt::Debug + Send + Sync + 'static {
    /// The member of the message `Computation` that it is, with that member's bytes.
    ///
    /// # Errors
    /// It can't leave this process.
    fn to_wire(&self) -> Result<WirePayload>;

    /// Itself, for whoever made it.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A compiled computation as it stands in a message, also as a payload that was read from one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WirePayload {
    /// Which message of another language.
    pub language: Language,
    /// The encoded message.
    pub bytes: Arc<[u8]>,
}

/// The languages that `Computation` has a member for. The number is the member's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// `tensorflow`
    TensorFlow = 2,
    /// `xla`
    Xla = 12,
}

impl Payload for WirePayload {
    fn to_wire(&self) -> Result<WirePayload> {
        Ok(self.clone())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Selection {
    /// The position of the field.
    pub fn position(&self) -> usize {
        match &self.key {
            Key::Index(index) => *index as usize,
            Key::Name(name) => {
                let structure = self.source.ty().as_struct().expect("selections are from structs");
                structure.position(name).expect("the field was there when it was selected")
            }
        }
    }
}

impl BuildingBlock {
    fn new(kind: BlockKind, ty: Type) -> Self {
        let hash = same::shallow_hash(&kind, &ty);
        Self(Arc::new(Node { kind, ty, hash }))
    }

    /// A name of type `ty`.
    pub fn reference(name: impl Into<Name>, ty: Type) -> Self {
        Self::reference_in(name, ty, None)
    }

    /// A name of type `ty` that belongs to the scope `context`.
    pub fn reference_in(name: impl Into<Name>, ty: Type, context: Option<Name>) -> Self {
        let name = name.into();
        Self::new(BlockKind::Reference(Reference { name, context }), ty)
    }

    /// The field of `source` with this name.
    ///
    /// # Errors
    /// `Class::Type`: `source` is no struct. `Class::Value`: it has no such field.
    pub fn select_name(source: Self, name: impl Into<Name>) -> Result<Self> {
        let name = name.into();
        let Some(structure) = source.ty().as_struct() else {
            return Err(not_a_struct(&source));
        };
        let Some(ty) = structure.field(&name).cloned() else {
            return Err(Error::new(Class::Value, format!("the struct has no field `{name}`"))
                .found(source.ty()));
        };
        let key = Key::Name(name);
        Ok(Self::new(BlockKind::Selection(Selection { source, key }), ty))
    }

    /// The field of `source` at this position.
    ///
    /// # Errors
    /// As for [`Self::select_name`].
    pub fn select_index(source: Self, index: usize) -> Result<Self> {
        let Some(structure) = source.ty().as_struct() else {
            return Err(not_a_struct(&source));
        };
        let Some(field) = structure.fields().get(index) else {
            let count = structure.len();
            return Err(Error::new(
                Class::Value,
                format!("there is no field {index}: the struct has {count}"),
            )
            .found(source.ty()));
        };
        let ty = field.ty.clone();
        let key = Key::Index(u32::try_from(index).expect("a struct has fewer fields"));
        Ok(Self::new(BlockKind::Selection(Selection { source, key }), ty))
    }

    /// A struct of these values; its type says `container`.
    ///
    /// # Errors
    /// `Class::Value`: a name is empty, reserved or given twice.
    pub fn structure(
        elements: Vec<(Option<Name>, Self)>,
        container: Option<Container>,
    ) -> Result<Self> {
        if elements.iter().any(|(name, _)| name.as_deref() == Some("")) {
            return Err(Error::new(Class::Value, "the name of a field is empty"));
        }
        let field = |(name, value): &(Option<Name>, Self)| Field {
            name: name.clone(),
            ty: value.ty().clone(),
        };
        let ty = Type::structure(elements.iter().map(field).collect(), container)?;
        let elements = elements.into();
        Ok(Self::new(BlockKind::Struct(Struct { elements }), ty))
    }

    /// `function` applied to `argument`.
    ///
    /// # Errors
    /// `Class::Type`: it is no function, or the argument is missing, not wanted or of another type.
    pub fn call(function: Self, argument: Option<Self>) -> Result<Self> {
        let Some(of) = function.ty().as_function() else {
            return Err(Error::new(Class::Type, "only a function can be called")
                .expected("a function")
                .found(function.ty()));
        };
        match (&of.parameter, &argument) {
            (None, None) => {}
            (Some(parameter), Some(argument)) => {
                if !parameter.is_assignable_from(argument.ty())? {
                    return Err(Error::new(
                        Class::Type,
                        "the argument doesn't fit the function's parameter",
                    )
                    .expected(parameter)
                    .found(argument.ty()));
                }
            }
            (Some(parameter), None) => {
                return Err(Error::new(Class::Type, "the function needs an argument")
                    .expected(parameter)
                    .found("no argument"));
            }
            (None, Some(argument)) => {
                return Err(Error::new(Class::Type, "the function takes no argument")
                    .expected("no argument")
                    .found(argument.ty()));
            }
        }
        let ty = of.result.clone();
        Ok(Self::new(BlockKind::Call(Call { function, argument }), ty))
    }

    /// The function that gives `result`, in which the parameter's name may be used.
    pub fn lambda(parameter: Option<(Name, Type)>, result: Self) -> Self {
        let of = parameter.as_ref().map(|(_, ty)| ty.clone());
        let ty = Type::function(of, result.ty().clone());
        Self::new(BlockKind::Lambda(Lambda { parameter, result }), ty)
    }

    /// `result`, in which the names of `locals` may be used.
    pub fn block(locals: Vec<(Name, Self)>, result: Self) -> Self {
        let ty = result.ty().clone();
        let locals = locals.into();
        Self::new(BlockKind::Block(Block { locals, result }), ty)
    }

    /// An operation of the language, by its uri. Its type is checked where the uri is known:
    /// see `intrinsics`.
    pub fn intrinsic(uri: impl Into<Name>, ty: Type) -> Self {
        Self::new(BlockKind::Intrinsic(uri.into()), ty)
    }

    /// Data that only an executor knows.
    pub fn data(data: Data, ty: Type) -> Self {
        Self::new(BlockKind::Data(data), ty)
    }

    /// A placement as a value.
    pub fn placement(placement: Placement) -> Self {
        Self::new(BlockKind::Placement(placement), Type::placement())
    }

    /// An array, said to be of type `ty`.
    ///
    /// # Errors
    /// `Class::Value`: the array is not of that type.
    pub fn literal(array: Array, ty: Type) -> Result<Self> {
        let of = array.tensor_type();
        if !ty.is_assignable_from(&of)? {
            return Err(Error::new(Class::Value, "the literal's type doesn't fit its value")
                .expected(ty)
                .found(of));
        }
        Ok(Self::new(BlockKind::Literal(array), ty))
    }

    /// A computation of function type `ty` that is no tree of blocks.
    pub fn compiled(compiled: Compiled, ty: Type) -> Self {
        Self::new(BlockKind::Compiled(compiled), ty)
    }

    /// What it is made of.
    pub fn kind(&self) -> &BlockKind {
        &self.0.kind
    }

    /// Its type.
    pub fn ty(&self) -> &Type {
        &self.0.ty
    }

    /// Where its node lives.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Whether the node has other owners: if not, it is at one place of one tree only.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether both are one node.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The blocks directly below it, in the order in which they are evaluated: a function before
    /// its argument, locals before the result.
    pub fn children(&self) -> Vec<&Self> {
        match self.kind() {
            BlockKind::Reference(_)
            | BlockKind::Intrinsic(_)
            | BlockKind::Data(_)
            | BlockKind::Placement(_)
            | BlockKind::Literal(_)
            | BlockKind::Compiled(_) => Vec::new(),
            BlockKind::Selection(selection) => vec![&selection.source],
            BlockKind::Struct(structure) => {
                structure.elements.iter().map(|(_, value)| value).collect()
            }
            BlockKind::Call(call) => {
                std::iter::once(&call.function).chain(&call.argument).collect()
            }
            BlockKind::Lambda(lambda) => vec![&lambda.result],
            BlockKind::Block(block) => {
                let locals = block.locals.iter().map(|(_, value)| value);
                locals.chain([&block.result]).collect()
            }
        }
    }

    /// A hash that equal trees share.
    pub fn structural_hash(&self) -> u64 {
        self.0.hash
    }

    /// As a reference.
    pub fn as_reference(&self) -> Option<&Reference> {
        match self.kind() {
            BlockKind::Reference(reference) => Some(reference),
            _ => None,
        }
    }

    /// As a lambda.
    pub fn as_lambda(&self) -> Option<&Lambda> {
        match self.kind() {
            BlockKind::Lambda(lambda) => Some(lambda),
            _ => None,
        }
    }

    /// As a selection.
    pub fn as_selection(&self) -> Option<&Selection> {
        match self.kind() {
            BlockKind::Selection(selection) => Some(selection),
            _ => None,
        }
    }

    /// As a call.
    pub fn as_call(&self) -> Option<&Call> {
        match self.kind() {
            BlockKind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// As names for values with a result.
    pub fn as_block(&self) -> Option<&Block> {
        match self.kind() {
            BlockKind::Block(block) => Some(block),
            _ => None,
        }
    }

    /// The uri of an operation.
    pub fn as_intrinsic(&self) -> Option<&Name> {
        match self.kind() {
            BlockKind::Intrinsic(uri) => Some(uri),
            _ => None,
        }
    }

    /// As a struct.
    pub fn as_struct(&self) -> Option<&Struct> {
        match self.kind() {
            BlockKind::Struct(structure) => Some(structure),
            _ => None,
        }
    }
}

fn not_a_struct(source: &BuildingBlock) -> Error {
    Error::new(Class::Type, "only a struct has fields").expected("a struct").found(source.ty())
}

//! What a function takes or returns: containers around tensors.

use std::fmt;

use super::lexer::{Lexer, Token};
use super::{DEPTH, Malformed};
use crate::print::repr_str;

/// A container, or a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// A tensor.
    Leaf,
    /// A container.
    Node {
        /// Which kind.
        shape: Shape,
        /// What it holds, in order.
        fields: Vec<Field>,
    },
}

/// An element of a container, and its name where it has one.
pub type Field = (Option<String>, Tree);

/// The kinds of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The arguments of a call: positional ones, then named ones.
    Arguments,
    /// `tuple`
    Tuple,
    /// `list`
    List,
    /// `dict` with strings as keys
    Dict,
    /// `collections.OrderedDict`
    OrderedDict,
    /// A named tuple, with its type's name.
    NamedTuple(String),
    /// A struct of fields with and without names.
    Struct,
}

impl Shape {
    /// What stands before the elements, between and behind them.
    fn signs(&self) -> (&str, char) {
        match self {
            Self::Arguments => ("arguments(", ')'),
            Self::Tuple => ("(", ')'),
            Self::List => ("[", ']'),
            Self::Dict => ("{", '}'),
            Self::OrderedDict => ("ordered{", '}'),
            Self::NamedTuple(_) => ("named(", ')'),
            Self::Struct => ("struct(", ')'),
        }
    }

    /// Whether this field belongs in such a container.
    fn takes(&self, field: &Field, earlier: &[Field]) -> bool {
        let is_named = field.0.is_some();
        match self {
            Self::Struct => true,
            Self::Tuple | Self::List => !is_named,
            Self::Arguments => is_named || earlier.iter().all(|(name, _)| name.is_none()),
            Self::Dict | Self::OrderedDict | Self::NamedTuple(_) => is_named,
        }
    }
}

impl Tree {
    /// The number of leaves.
    pub fn leaves(&self) -> usize {
        match self {
            Self::Leaf => 1,
            Self::Node { fields, .. } => fields.iter().map(|(_, tree)| tree.leaves()).sum(),
        }
    }

    /// Whether it is nested no deeper than a text may be.
    pub fn is_shallow(&self) -> bool {
        fn within(tree: &Tree, room: usize) -> bool {
            match tree {
                Tree::Leaf => true,
                Tree::Node { fields, .. } => {
                    room > 0 && fields.iter().all(|(_, tree)| within(tree, room - 1))
                }
            }
        }
        within(self, DEPTH)
    }

    pub(super) fn parse(lexer: &mut Lexer<'_>, depth: usize) -> Result<Self, Malformed> {
        if depth == 0 {
            return Err(lexer.error("structures are nested too deep"));
        }
        let (mut shape, close) = match lexer.next()? {
            Token::Sign("*") => return Ok(Self::Leaf),
            Token::Sign("(") => (Shape::Tuple, ")"),
            Token::Sign("[") => (Shape::List, "]"),
            Token::Sign("{") => (Shape::Dict, "}"),
            Token::Name("arguments") => (Shape::Arguments, ")"),
            Token::Name("ordered") => (Shape::OrderedDict, "}"),
            Token::Name("struct") => (Shape::Struct, ")"),
            Token::Name("named") => (Shape::NamedTuple(String::new()), ")"),
            other => return Err(lexer.unexpected(&other, "a structure")),
        };
        match shape {
            Shape::Arguments | Shape::NamedTuple(_) | Shape::Struct => lexer.expect("(")?,
            Shape::OrderedDict => lexer.expect("{")?,
            Shape::Tuple | Shape::List | Shape::Dict => {}
        }
        if let Shape::NamedTuple(name) = &mut shape {
            *name = lexer.string()?;
            if !lexer.takes(",") && lexer.peek()? != Token::Sign(")") {
                return Err(lexer.error("expected \",\" or \")\" behind a named tuple's name"));
            }
        }
        let mut fields = Vec::new();
        while !lexer.takes(close) {
            let name = match lexer.peek()? {
                Token::Text(name) => {
                    lexer.next()?;
                    lexer.expect(":")?;
                    Some(name)
                }
                _ => None,
            };
            let field = (name, Self::parse(lexer, depth - 1)?);
            if !shape.takes(&field, &fields) {
                return Err(lexer.error("a name that is missing or out of place"));
            }
            if field.0.is_some() && fields.iter().any(|(name, _)| *name == field.0) {
                return Err(lexer.error("two fields of one name"));
            }
            fields.push(field);
            if !lexer.takes(",") && lexer.peek()? != Token::Sign(close) {
                return Err(lexer.error(&format!("expected \",\" or {close:?}")));
            }
        }
        Ok(Self::Node { shape, fields })
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Node { shape, fields } = self else { return f.write_str("*") };
        let (open, close) = shape.signs();
        f.write_str(open)?;
        let mut separator = "";
        if let Shape::NamedTuple(name) = shape {
            f.write_str(&repr_str(name))?;
            separator = ", ";
        }
        for (name, tree) in fields {
            f.write_str(separator)?;
            if let Some(name) = name {
                write!(f, "{}: ", repr_str(name))?;
            }
            tree.fmt(f)?;
            separator = ", ";
        }
        if *shape == Shape::Tuple && fields.len() == 1 {
            f.write_str(",")?;
        }
        write!(f, "{close}")
    }
}

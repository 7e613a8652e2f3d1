//! Types from their notation, the inverse of printing: `<a=int32,{bool[2,?]}@CLIENTS>`.
//!
//! Blanks and line breaks may stand between any two parts. Python containers aren't written, so
//! what is read has none.

use super::{Field, Shape, Type};
use crate::Name;
use crate::dtype::DType;
use crate::error::{Class, Error, Result};
use crate::placement::Placement;

/// What is open around the place that is being read, with where it was opened.
enum Open {
    /// `<`, the fields before, and the name of the one that is being read.
    Struct(usize, Vec<Field>, Option<Name>),
    /// `(`, and the parameter once the arrow was read.
    Function(usize, Option<Option<Type>>),
    /// `{`
    Federated(usize),
}

struct Parser<'a> {
    text: &'a str,
    /// The next byte.
    at: usize,
}

impl Type {
    /// The type that a text says.
    ///
    /// # Errors
    /// `Class::Value`: the text says none, with the column where it fails.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser { text, at: 0 };
        let mut open: Vec<Open> = Vec::new();
        loop {
            // Something begins here: a type, or what closes an empty struct.
            parser.blanks();
            let mut start = parser.at;
            let mut ty = match parser.peek() {
                Some('<') => {
                    parser.at += 1;
                    if parser.takes('>') {
                        Self::structure(Vec::new(), None)?
                    } else {
                        let name = parser.field_name();
                        open.push(Open::Struct(start, Vec::new(), name));
                        continue;
                    }
                }
                Some('(') => {
                    parser.at += 1;
                    let none = parser.takes_arrow().then_some(None);
                    open.push(Open::Function(start, none));
                    continue;
                }
                Some('{') => {
                    parser.at += 1;
                    open.push(Open::Federated(start));
                    continue;
                }
                _ => parser.leaf()?,
            };
            // It ends here, and with it what is around it, as far as that is closed.
            loop {
                ty = parser.suffixes(ty, start)?;
                let Some(around) = open.pop() else {
                    if parser.at == text.len() {
                        return Ok(ty);
                    }
                    return Err(parser.expected("the end"));
                };
                start = match around {
                    Open::Struct(opened, mut fields, name) => {
                        fields.push(Field { name, ty });
                        if parser.takes(',') {
                            let name = parser.field_name();
                            open.push(Open::Struct(opened, fields, name));
                            break;
                        }
                        if !parser.takes('>') {
                            return Err(parser.expected("`,` or `>`"));
                        }
                        let made = Self::structure(fields, None);
                        ty = made.map_err(|error| parser.at_column(error, opened))?;
                        opened
                    }
                    Open::Function(opened, None) => {
                        if !parser.takes_arrow() {
                            return Err(parser.expected("`->`"));
                        }
                        open.push(Open::Function(opened, Some(Some(ty))));
                        break;
                    }
                    Open::Function(opened, Some(parameter)) => {
                        if !parser.takes(')') {
                            return Err(parser.expected("`)`"));
                        }
                        ty = Self::function(parameter, ty);
                        opened
                    }
                    Open::Federated(opened) => {
                        if !parser.takes('}') {
                            return Err(parser.expected("`}`"));
                        }
                        if !parser.takes('@') {
                            return Err(parser.expected("`@` and a placement"));
                        }
                        let placement = parser.placement()?;
                        let made = Self::federated(ty, placement, Some(false));
                        ty = made.map_err(|error| parser.at_column(error, opened))?;
                        opened
                    }
                };
            }
        }
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Whether this comes next, behind blanks; if so, it is read.
    fn takes(&mut self, wanted: char) -> bool {
        self.blanks();
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn takes_arrow(&mut self) -> bool {
        self.blanks();
        let found = self.text[self.at..].starts_with("->");
        self.at += if found { 2 } else { 0 };
        found
    }

    /// A name or a number: everything up to a mark of the notation.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let ends = |letter: char| letter.is_whitespace() || "<>()[]{}=,@*-'?".contains(letter);
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// The name of a field, if one stands here.
    fn field_name(&mut self) -> Option<Name> {
        self.blanks();
        let start = self.at;
        let word = self.word();
        if self.takes('=') {
            return Some(Name::from(word));
        }
        self.at = start;
        None
    }

    /// A type that is one word, with the sizes behind it.
    fn leaf(&mut self) -> Result<Type> {
        let start = self.at;
        if self.takes('\'') {
            let word = self.word();
            let end = "'(shape=None)";
            let Some(dtype) =
                DType::from_name(word).filter(|_| self.text[self.at..].starts_with(end))
            else {
                self.at = start;
                return Err(self.expected("a dtype in quotes and `(shape=None)`"));
            };
            self.at += end.len();
            return Ok(Type::tensor(dtype, Shape::unknown_rank()));
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.expected("a type"));
        }
        let Some(dtype) = DType::from_name(word) else {
            return Ok(match word {
                "placement" => Type::placement(),
                label => Type::abstract_type(label),
            });
        };
        if !self.takes('[') {
            return Ok(Type::scalar(dtype));
        }
        let mut dims = Vec::new();
        loop {
            self.blanks();
            let start = self.at;
            dims.push(match self.takes('?') {
                true => None,
                false => match self.word().parse() {
                    Ok(size) => Some(size),
                    Err(_) => {
                        self.at = start;
                        return Err(self.expected("a size or `?`"));
                    }
                },
            });
            if self.takes(']') {
                return Ok(Type::tensor(dtype, Shape::new(dims)));
            }
            if !self.takes(',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    /// The type with what stands behind it: `*`, `@` and a placement.
    fn suffixes(&mut self, mut ty: Type, start: usize) -> Result<Type> {
        loop {
            if self.takes('*') {
                ty = Type::sequence(ty).map_err(|error| self.at_column(error, start))?;
            } else if self.takes('@') {
                let placement = self.placement()?;
                let made = Type::federated(ty, placement, Some(true));
                ty = made.map_err(|error| self.at_column(error, start))?;
            } else {
                return Ok(ty);
            }
        }
    }

    fn placement(&mut self) -> Result<Placement> {
        self.blanks();
        let start = self.at;
        let word = self.word();
        Placement::ALL.into_iter().find(|at| at.name() == word).ok_or_else(|| {
            self.at = start;
            self.expected("a placement, CLIENTS or SERVER")
        })
    }

    /// The error that something else stands here.
    fn expected(&self, what: &str) -> Error {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(letter) => format!("`{letter}`"),
        };
        self.at_column(Error::new(Class::Value, "the text says no type"), self.at)
            .expected(what)
            .found(found)
    }

    /// An error, with the place in the text: the lines around it, cut where they are long.
    fn at_column(&self, error: Error, at: usize) -> Error {
        const AROUND: usize = 30;
        let (before, behind) = self.text.split_at(at);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let column = line.chars().count() + 1;
        let from: String = line.chars().skip(column.saturating_sub(AROUND + 1)).collect();
        let to: String = behind.lines().next().unwrap_or_default().chars().take(AROUND).collect();
        let row = before.matches('\n').count() + 1;
        let blanks = " ".repeat(from.chars().count());
        error
            .in_context(format!("line {row}, column {column}"))
            .note("there", format!("{from}{to}\n{blanks}^"))
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;

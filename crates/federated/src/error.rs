//! What went wrong, for the user: what happened, what was expected and found, what to do.

use std::fmt::{self, Write};

/// The result of whatever checks its input.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an error: each is an exception class of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A value of the wrong kind: `TypeError`.
    Type,
    /// A value of the right kind that doesn't do: `ValueError`.
    Value,
    /// A position that isn't there: `IndexError`.
    Index,
    /// A key that isn't there: `KeyError`.
    Key,
    /// A name that isn't there: `AttributeError`.
    Attribute,
    /// Something that the language has no place for: `NotImplementedError`.
    NotImplemented,
    /// A construct that can't be written so: `SyntaxError`.
    Syntax,
    /// A failure at run time: `RuntimeError`.
    Runtime,
    /// Used outside a context that it needs: `ContextError`, a `RuntimeError`.
    Context,
    /// `TypeNotAssignableError`, a `TypeError`.
    NotAssignable,
    /// `TypesNotEquivalentError`, a `TypeError`.
    NotEquivalent,
    /// `UnexpectedTypeError`, a `TypeError`.
    UnexpectedType,
    /// `UnexpectedBlockError`, a `TypeError`.
    UnexpectedBlock,
    /// `NonuniqueNameError`, a `ValueError`.
    NonuniqueName,
    /// `SumIncompatibleError`, a `TypeError`.
    SumIncompatible,
    /// `NotConcreteTypeError`, a `TypeError`.
    NotConcrete,
    /// `MismatchedStructureError`, a `TypeError`.
    MismatchedStructure,
    /// `MismatchedConcreteTypesError`, a `TypeError`.
    MismatchedConcreteTypes,
    /// `UnassignableConcreteTypesError`, a `TypeError`.
    UnassignableConcreteTypes,
    /// `MissingDefiningUsageError`, a `TypeError`.
    MissingDefiningUsage,
    /// `InvalidNonAllEqualValueError`, a `TypeError`.
    InvalidNonAllEqual,
    /// `ComputationReturnedNoneError`, a `ValueError`.
    ReturnedNone,
    /// Bytes that are no message: `ValueError`.
    Malformed,
}

/// An error of the user's program, found by us.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Clone, PartialEq, Eq)]
struct Parts {
    class: Class,
    message: String,
    notes: Vec<(&'static str, String)>,
}

impl Error {
    /// An error with one line that says what happened.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self(Box::new(Parts { class, message: message.into(), notes: Vec::new() }))
    }

    /// What would have done.
    #[must_use]
    pub fn expected(self, what: impl fmt::Display) -> Self {
        self.note("expected", what)
    }

    /// What was there.
    #[must_use]
    pub fn found(self, what: impl fmt::Display) -> Self {
        self.note("found", what)
    }

    /// Where the computation concerned was declared; what was said of it before stays. It stands
    /// before the hint.
    #[must_use]
    pub fn declared(mut self, place: impl fmt::Display) -> Self {
        let notes = &mut self.0.notes;
        if notes.iter().all(|(title, _)| *title != "declared") {
            let hint = notes.iter().position(|(title, _)| *title == "hint");
            notes.insert(hint.unwrap_or(notes.len()), ("declared", place.to_string()));
        }
        self
    }

    /// What the user can do. Only what is sure to help.
    #[must_use]
    pub fn hint(self, what: impl fmt::Display) -> Self {
        self.note("hint", what)
    }

    /// A further line below the message: its title and text.
    #[must_use]
    pub fn note(mut self, title: &'static str, what: impl fmt::Display) -> Self {
        const LONG: usize = 2000;
        self.0.notes.push((title, brief(what, LONG)));
        self
    }

    /// The same error, its first line beginning with what was being done.
    #[must_use]
    pub fn in_context(mut self, doing: impl fmt::Display) -> Self {
        self.0.message = format!("{doing}: {}", self.0.message);
        self
    }

    /// The exception class.
    pub fn class(&self) -> Class {
        self.0.class
    }

    /// The first line.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

/// A text of at most so many letters, with `...` for what is cut off. Types and trees with shared
/// parts may be longer than any memory, so they must not be printed first and cut then.
pub fn brief(what: impl fmt::Display, letters: usize) -> String {
    let mut limited = Limited { text: String::new(), left: letters };
    match write!(limited, "{what}") {
        Ok(()) => limited.text,
        Err(_) => limited.text + "...",
    }
}

struct Limited {
    text: String,
    left: usize,
}

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(letter);
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    /// The message, then one indented line for each note, their texts in one column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (title, text) in &self.0.notes {
            let mut lines = text.lines();
            write!(f, "\n  {:<10}{}", format!("{title}:"), lines.next().unwrap_or(""))?;
            for line in lines {
                write!(f, "\n            {line}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.class)
    }
}

impl std::error::Error for Error {}

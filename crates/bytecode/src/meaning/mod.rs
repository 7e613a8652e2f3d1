//! What instructions do, whichever version of CPython spells them.
//!
//! The evaluator's dispatch knows opcodes by number. Whoever else looks at code asks for the
//! [`Meaning`]: `CALL`, `LOAD_METHOD` and the bits of their arguments are a version's own affair. Each
//! version's function is generated from the rows of `tools/instructions.toml`.

mod v311;
mod v312;
mod v313;

use crate::opcode::Opcode;
use crate::version::Version;

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing.
    Nothing,
    /// A function's body begins, or goes on behind a `yield`.
    Begin,
    /// It is a part of the next one: the upper bits of its argument.
    Extend,

    /// Drops the top of the stack.
    Pop,
    /// Pushes the `NULL` in front of a callable.
    PushNull,
    /// Copies a value of the stack to its top.
    Copy,
    /// Swaps the top of the stack with another value of it.
    Swap,

    /// Pushes a constant, by its index.
    Constant(u32),
    /// Pushes a fast local.
    Local(u32),
    /// Stores a fast local.
    SetLocal(u32),
    /// Pushes two fast locals.
    Locals(u32, u32),
    /// Stores two fast locals: the top in the first.
    SetLocals(u32, u32),
    /// Pushes a global or a builtin.
    Global {
        /// Index of its name.
        name: u32,
        /// Whether it is called next: the `NULL` is pushed, too.
        with_null: bool,
    },
    /// Pushes what a name of a class's or module's body stands for.
    Name(u32),
    /// Makes a cell of a fast local.
    MakeCell,
    /// Takes the cells of the function's closure.
    CopyFree,
    /// Pushes what a cell holds, by its index among the fast locals.
    Free(u32),
    /// Stores what a cell holds.
    SetFree(u32),

    /// An attribute takes its owner's place.
    Attribute {
        /// Index of its name.
        name: u32,
        /// Whether it is called next: a method leaves function and receiver.
        is_method: bool,
    },
    /// Stores an attribute.
    SetAttribute,
    /// Deletes an attribute.
    DeleteAttribute,
    /// `a[k]`.
    Item,
    /// `a[i:j]`, of three operands.
    ItemSlice,
    /// `a[k] = v`.
    SetItem,
    /// `a[i:j] = v`, of four operands.
    SetItemSlice,
    /// `del a[k]`.
    DeleteItem,

    /// A binary operator, by the number that [`BinaryOp`](crate::BinaryOp) has it by.
    Binary(u32),
    /// A comparison.
    Compare {
        /// The number that [`CompareOp`](crate::CompareOp) has it by.
        operator: u32,
        /// Whether the truth of the result takes its place.
        tests: bool,
    },
    /// `+a`, `-a`, `~a`.
    Unary,
    /// `is`, or `is not`.
    Identity,
    /// `in`.
    Contains {
        /// `not in`.
        inverted: bool,
    },
    /// A placeholder of an f-string; the flags say how.
    Format(u32),
    /// A placeholder's conversion (`!r`), which is formatted by the next instruction.
    Convert(u32),

    /// Names the last arguments of the call behind it, by the index of a constant.
    Keywords(u32),
    /// A call.
    Call {
        /// How many arguments it has.
        count: u32,
    },
    /// A call whose last arguments are named by the tuple on top.
    CallNamed {
        /// How many arguments it has.
        count: u32,
    },
    /// `f(*args, **kwargs)`.
    CallUnpacked {
        /// Whether there is a `**kwargs`.
        has_kwargs: bool,
    },
    /// `with` enters.
    Enter,
    /// `with` ends by an exception.
    Exit,

    /// Jumps.
    Jump,
    /// Asks for a truth value.
    Test(Truth),
    /// Jumps or doesn't, as the top is `None`.
    TestNone {
        /// Whether it jumps if it is.
        when: bool,
    },

    /// Makes an iterator.
    Iterate,
    /// Pushes an iterator's next item, or jumps behind the loop.
    Next {
        /// How far.
        units: u32,
    },
    /// A loop has ended: drops its iterator, and what stands above that.
    EndLoop,
    /// Unpacks so many values of a sequence.
    Unpack,
    /// Makes a tuple of the top values.
    Tuple {
        /// How many.
        count: u32,
    },

    /// A handler begins: the exception is the one that is handled.
    BeginHandling,
    /// A handler ends: the exception before is handled again.
    EndHandling,

    /// The frame returns.
    Return,
    /// A generator yields.
    Yield,
    /// Something that nobody but the evaluator asks for.
    Other,
}

/// What becomes of a truth value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    /// A jump, which pops the value.
    Jump {
        /// For which value.
        when: bool,
        /// Forward.
        forward: bool,
        /// How far.
        units: u32,
    },
    /// A jump, or the value is popped.
    JumpOrPop {
        /// For which value.
        when: bool,
        /// How far, forward.
        units: u32,
    },
    /// `not`.
    Not,
    /// It takes the operand's place: who jumps by it has no more to ask.
    Value,
}

impl Meaning {
    /// What this opcode of a version does with this argument. Nobody has asked yet what those of 3.14 do.
    #[inline]
    #[must_use]
    pub const fn of(version: Version, opcode: Opcode, arg: u32) -> Self {
        match version {
            Version::V311 => v311::meaning(opcode, arg),
            Version::V312 => v312::meaning(opcode, arg),
            Version::V313 => v313::meaning(opcode, arg),
            Version::V314 => Self::Other,
        }
    }

    /// As [`Meaning::of`], by the opcode's number.
    #[inline]
    #[must_use]
    pub const fn of_number(version: Version, number: u8, arg: u32) -> Self {
        match version.opcode(number) {
            Some(opcode) => Self::of(version, opcode, arg),
            None => Self::Other,
        }
    }
}

//! Operators, as opcodes name them.

/// A unary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `+x`.
    Positive,
    /// `-x`.
    Negative,
    /// `~x`.
    Invert,
}

/// A comparison; the discriminant is `COMPARE_OP`'s argument and the C API's `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompareOp {
    /// `<`.
    Lt = 0,
    /// `<=`.
    Le = 1,
    /// `==`.
    Eq = 2,
    /// `!=`.
    Ne = 3,
    /// `>`.
    Gt = 4,
    /// `>=`.
    Ge = 5,
}

impl CompareOp {
    /// The operator of a `COMPARE_OP` argument.
    #[inline]
    pub fn from_arg(arg: u32) -> Option<Self> {
        const ALL: [CompareOp; 6] = {
            use CompareOp::*;
            [Lt, Le, Eq, Ne, Gt, Ge]
        };
        ALL.get(arg as usize).copied()
    }

    /// The one that means the same with the operands exchanged.
    pub fn reflected(self) -> Self {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
            same => same,
        }
    }

    /// As Python spells it.
    pub fn symbol(self) -> &'static str {
        ["<", "<=", "==", "!=", ">", ">="][self as usize]
    }
}

/// A binary operator; the discriminant is `BINARY_OP`'s argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BinaryOp {
    /// `+`.
    Add = 0,
    /// `&`.
    And = 1,
    /// `//`.
    FloorDivide = 2,
    /// `<<`.
    Lshift = 3,
    /// `@`.
    MatrixMultiply = 4,
    /// `*`.
    Multiply = 5,
    /// `%`.
    Remainder = 6,
    /// `|`.
    Or = 7,
    /// `**`.
    Power = 8,
    /// `>>`.
    Rshift = 9,
    /// `-`.
    Subtract = 10,
    /// `/`.
    TrueDivide = 11,
    /// `^`.
    Xor = 12,
    /// `+=`.
    InPlaceAdd = 13,
    /// `&=`.
    InPlaceAnd = 14,
    /// `//=`.
    InPlaceFloorDivide = 15,
    /// `<<=`.
    InPlaceLshift = 16,
    /// `@=`.
    InPlaceMatrixMultiply = 17,
    /// `*=`.
    InPlaceMultiply = 18,
    /// `%=`.
    InPlaceRemainder = 19,
    /// `|=`.
    InPlaceOr = 20,
    /// `**=`.
    InPlacePower = 21,
    /// `>>=`.
    InPlaceRshift = 22,
    /// `-=`.
    InPlaceSubtract = 23,
    /// `/=`.
    InPlaceTrueDivide = 24,
    /// `^=`.
    InPlaceXor = 25,
}

impl BinaryOp {
    /// All operators, by `BINARY_OP`'s argument.
    pub const ALL: [BinaryOp; 26] = {
        use BinaryOp::*;
        [
            Add,
            And,
            FloorDivide,
            Lshift,
            MatrixMultiply,
            Multiply,
            Remainder,
            Or,
            Power,
            Rshift,
            Subtract,
            TrueDivide,
            Xor,
            InPlaceAdd,
            InPlaceAnd,
            InPlaceFloorDivide,
            InPlaceLshift,
            InPlaceMatrixMultiply,
            InPlaceMultiply,
            InPlaceRemainder,
            InPlaceOr,
            InPlacePower,
            InPlaceRshift,
            InPlaceSubtract,
            InPlaceTrueDivide,
            InPlaceXor,
        ]
    };

    /// As Python spells it.
    pub fn symbol(self) -> &'static str {
        const SYMBOLS: [&str; 26] = [
            "+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^", "+=", "&=", "//=",
            "<<=", "@=", "*=", "%=", "|=", "**=", ">>=", "-=", "/=", "^=",
        ];
        SYMBOLS[self as usize]
    }

    /// The operator of a `BINARY_OP` argument.
    #[inline]
    pub fn from_arg(arg: u32) -> Option<Self> {
        Self::ALL.get(arg as usize).copied()
    }

    /// Whether this is an augmented assignment's operator.
    pub fn is_in_place(self) -> bool {
        self as u8 >= BinaryOp::InPlaceAdd as u8
    }
}

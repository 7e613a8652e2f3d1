//! The element types of tensors.

use std::fmt;

/// What kind of number, or not a number, an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// True or false.
    Bool,
    /// An integer with a sign.
    Signed,
    /// An integer without one.
    Unsigned,
    /// A floating-point number, bfloat16 among them.
    Float,
    /// A pair of floating-point numbers.
    Complex,
    /// A string of bytes, of any length.
    String,
}

macro_rules! dtypes {
    ($($variant:ident $name:literal $wire:literal $size:literal $kind:ident;)*) => {
        /// The element type of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each is named by its text")]
        pub enum DType { $($variant),* }

        impl DType {
            /// Every element type.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// NumPy's name, as types are printed: `int32`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The number of the enumeration `DataType` in messages.
            pub fn wire(self) -> i32 {
                match self { $(Self::$variant => $wire),* }
            }

            /// Bytes of one element; 0 for strings, which have no fixed size.
            pub fn size(self) -> usize {
                match self { $(Self::$variant => $size),* }
            }

            /// The kind of its elements.
            pub fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind),* }
            }
        }
    };
}

dtypes! {
    Bool "bool" 10 1 Bool;
    Int8 "int8" 6 1 Signed;
    Int16 "int16" 5 2 Signed;
    Int32 "int32" 3 4 Signed;
    Int64 "int64" 9 8 Signed;
    UInt8 "uint8" 4 1 Unsigned;
    UInt16 "uint16" 17 2 Unsigned;
    UInt32 "uint32" 22 4 Unsigned;
    UInt64 "uint64" 23 8 Unsigned;
    Float16 "float16" 19 2 Float;
    BFloat16 "bfloat16" 14 2 Float;
    Float32 "float32" 1 4 Float;
    Float64 "float64" 2 8 Float;
    Complex64 "complex64" 8 8 Complex;
    Complex128 "complex128" 18 16 Complex;
    Str "str" 7 0 String;
}

impl DType {
    /// The element type that NumPy calls so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// The element type with this number in messages.
    pub fn from_wire(number: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.wire() == number)
    }

    /// Whether its elements are integers. Booleans are not.
    pub fn is_integer(self) -> bool {
        matches!(self.kind(), Kind::Signed | Kind::Unsigned)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

//! Operators, items, truth, formatting.

use std::ptr;

use pyo3::ffi::{self, PyObject};

use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};

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

type BinaryFunction = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

macro_rules! binary_ops {
    ($($name:ident = $number:literal $symbol:literal $function:expr;)*) => {
        /// A binary operator; the discriminant is `BINARY_OP`'s argument.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum BinaryOp {
            $(#[doc = concat!("`", $symbol, "`.")] $name = $number,)*
        }

        impl BinaryOp {
            /// All operators, by `BINARY_OP`'s argument.
            pub const ALL: [BinaryOp; 26] = [$(BinaryOp::$name,)*];

            /// As Python spells it.
            pub fn symbol(self) -> &'static str {
                match self { $(BinaryOp::$name => $symbol,)* }
            }
        }

        static FUNCTIONS: [BinaryFunction; 26] = [$($function,)*];
    };
}

unsafe extern "C" fn power(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller gives valid objects.
    unsafe { ffi::PyNumber_Power(left, right, ffi::Py_None()) }
}

unsafe extern "C" fn in_place_power(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller gives valid objects.
    unsafe { ffi::PyNumber_InPlacePower(left, right, ffi::Py_None()) }
}

binary_ops! {
    Add = 0 "+" ffi::PyNumber_Add;
    And = 1 "&" ffi::PyNumber_And;
    FloorDivide = 2 "//" ffi::PyNumber_FloorDivide;
    Lshift = 3 "<<" ffi::PyNumber_Lshift;
    MatrixMultiply = 4 "@" ffi::PyNumber_MatrixMultiply;
    Multiply = 5 "*" ffi::PyNumber_Multiply;
    Remainder = 6 "%" ffi::PyNumber_Remainder;
    Or = 7 "|" ffi::PyNumber_Or;
    Power = 8 "**" power;
    Rshift = 9 ">>" ffi::PyNumber_Rshift;
    Subtract = 10 "-" ffi::PyNumber_Subtract;
    TrueDivide = 11 "/" ffi::PyNumber_TrueDivide;
    Xor = 12 "^" ffi::PyNumber_Xor;
    InPlaceAdd = 13 "+=" ffi::PyNumber_InPlaceAdd;
    InPlaceAnd = 14 "&=" ffi::PyNumber_InPlaceAnd;
    InPlaceFloorDivide = 15 "//=" ffi::PyNumber_InPlaceFloorDivide;
    InPlaceLshift = 16 "<<=" ffi::PyNumber_InPlaceLshift;
    InPlaceMatrixMultiply = 17 "@=" ffi::PyNumber_InPlaceMatrixMultiply;
    InPlaceMultiply = 18 "*=" ffi::PyNumber_InPlaceMultiply;
    InPlaceRemainder = 19 "%=" ffi::PyNumber_InPlaceRemainder;
    InPlaceOr = 20 "|=" ffi::PyNumber_InPlaceOr;
    InPlacePower = 21 "**=" in_place_power;
    InPlaceRshift = 22 ">>=" ffi::PyNumber_InPlaceRshift;
    InPlaceSubtract = 23 "-=" ffi::PyNumber_InPlaceSubtract;
    InPlaceTrueDivide = 24 "/=" ffi::PyNumber_InPlaceTrueDivide;
    InPlaceXor = 25 "^=" ffi::PyNumber_InPlaceXor;
}

impl BinaryOp {
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

/// A unary operation.
#[inline]
pub fn unary<'py>(op: UnaryOp, operand: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    super::begin()?;
    let function = match op {
        UnaryOp::Positive => ffi::PyNumber_Positive,
        UnaryOp::Negative => ffi::PyNumber_Negative,
        UnaryOp::Invert => ffi::PyNumber_Invert,
    };
    // SAFETY: a valid object.
    unsafe { owned(operand.py(), function(operand.as_ptr())) }
}

/// A binary operation, in-place forms included.
#[inline]
pub fn binary<'py>(
    op: BinaryOp,
    left: Borrowed<'_, 'py>,
    right: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects.
    unsafe { owned(left.py(), FUNCTIONS[op as usize](left.as_ptr(), right.as_ptr())) }
}

/// A comparison; its result needn't be a `bool`.
#[inline]
pub fn compare<'py>(
    op: CompareOp,
    left: Borrowed<'_, 'py>,
    right: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects, and a comparison that the C API knows.
    unsafe {
        let result = ffi::PyObject_RichCompare(left.as_ptr(), right.as_ptr(), op as i32);
        owned(left.py(), result)
    }
}

/// `item in container`.
#[inline]
pub fn contains(container: Borrowed<'_, '_>, item: Borrowed<'_, '_>) -> Result<bool> {
    super::begin()?;
    // SAFETY: valid objects.
    let found = unsafe { ffi::PySequence_Contains(container.as_ptr(), item.as_ptr()) };
    Ok(status(found)? != 0)
}

/// The truth value.
#[inline]
pub fn truth(operand: Borrowed<'_, '_>) -> Result<bool> {
    super::begin()?;
    // SAFETY: a valid object.
    Ok(status(unsafe { ffi::PyObject_IsTrue(operand.as_ptr()) })? != 0)
}

/// `owner[key]`.
#[inline]
pub fn get_item<'py>(owner: Borrowed<'_, 'py>, key: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects.
    unsafe { owned(owner.py(), ffi::PyObject_GetItem(owner.as_ptr(), key.as_ptr())) }
}

/// `owner[key] = value`, or `del owner[key]`.
#[inline]
pub fn set_item<'py>(
    owner: Borrowed<'_, 'py>,
    key: Borrowed<'_, 'py>,
    value: Option<Borrowed<'_, 'py>>,
) -> Result<()> {
    super::begin()?;
    // SAFETY: valid objects.
    status(unsafe {
        match value {
            Some(value) => ffi::PyObject_SetItem(owner.as_ptr(), key.as_ptr(), value.as_ptr()),
            None => ffi::PyObject_DelItem(owner.as_ptr(), key.as_ptr()),
        }
    })?;
    Ok(())
}

/// `FORMAT_VALUE`: `conversion` is 0 (none), 1 (str), 2 (repr) or 3 (ascii).
pub fn format<'py>(
    value: Borrowed<'_, 'py>,
    conversion: u32,
    spec: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    super::begin()?;
    let py = value.py();
    // SAFETY: valid objects; the specification is a string, or null for none.
    unsafe {
        let converted = match conversion {
            0 => value.to_owned(),
            1 => owned(py, ffi::PyObject_Str(value.as_ptr()))?,
            2 => owned(py, ffi::PyObject_Repr(value.as_ptr()))?,
            3 => owned(py, ffi::PyObject_ASCII(value.as_ptr()))?,
            _ => return Err(Raised::system_error(py, c"unexpected conversion flag")),
        };
        if spec.is_none() && ffi::PyUnicode_CheckExact(converted.as_ptr()) != 0 {
            return Ok(converted);
        }
        let spec = spec.map_or(ptr::null_mut(), |spec| spec.as_ptr());
        owned(py, ffi::PyObject_Format(converted.as_ptr(), spec))
    }
}

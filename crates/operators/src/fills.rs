//! Numbers that are given as tensors, and fill tensors (`torch.full((2,), t)`, `torch.linspace(t, 1, 10)`):
//! between which types that raises for no number.

/// How an operation's result gets its type, if no `dtype` is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// That of the number: the default one for floats.
    Number,
    /// The default one.
    Default,
    /// That of the first argument.
    First,
}

/// Kinds of types that numbers have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Signed(u32),
    Unsigned(u32),
    Float,
    Complex,
}

fn kind(dtype: &str) -> Option<Kind> {
    let bits = |prefix| dtype.strip_prefix(prefix).and_then(|bits| bits.parse().ok());
    Some(match dtype {
        "bool" => Kind::Bool,
        "float16" | "bfloat16" | "float32" | "float64" => Kind::Float,
        "complex64" | "complex128" => Kind::Complex,
        _ => match bits("uint") {
            Some(bits) => Kind::Unsigned(bits),
            None => Kind::Signed(bits("int")?),
        },
    })
}

/// Whether each number of one type can be one of another, without an error. Types are called as PyTorch calls
/// them. Of complex numbers little is said.
#[must_use]
pub fn fits(from: &str, to: &str) -> bool {
    let (Some(number), Some(element)) = (kind(from), kind(to)) else { return false };
    if from == to {
        return true;
    }
    match (number, element) {
        (Kind::Bool, _) | (_, Kind::Bool) => true,
        (Kind::Complex, _) => to == "complex128",
        (_, Kind::Complex) => to == "complex128" || from != "float64",
        (Kind::Float, Kind::Float) => match to {
            "float64" => true,
            "float32" => from != "float64",
            "bfloat16" => from == "float16",
            _ => false,
        },
        (Kind::Float, _) => false,
        (Kind::Signed(bits), Kind::Float) => to != "float16" || bits <= 16,
        (Kind::Unsigned(bits), Kind::Float) => to != "float16" || bits <= 8,
        (Kind::Signed(bits), Kind::Signed(most) | Kind::Unsigned(most)) => bits <= most,
        (Kind::Unsigned(bits), Kind::Unsigned(most)) => bits <= most,
        (Kind::Unsigned(bits), Kind::Signed(most)) => bits < most,
    }
}

/// How large a number of a program's may be, whichever sign it has, for a type of floats to hold it. `None`: it's no such
/// type, or holds all of Python's floats.
#[must_use]
pub fn largest(dtype: &str) -> Option<f64> {
    match dtype {
        "float32" => Some(f64::from(f32::MAX)),
        "float16" => Some(65504.0),
        "bfloat16" => Some(f64::from(f32::from_bits(0x7f7f_0000))),
        _ => None,
    }
}

/// The type of a result that gets it from the number, or the default one. `None`: it is the default one.
#[must_use]
pub fn type_of_number(number: &str) -> Option<&'static str> {
    match kind(number)? {
        Kind::Bool => Some("bool"),
        Kind::Signed(_) | Kind::Unsigned(_) => Some("int64"),
        Kind::Float | Kind::Complex => None,
    }
}

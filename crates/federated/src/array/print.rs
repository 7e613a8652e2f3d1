//! Arrays as NumPy's `str` prints them: `1`, `[1 2]`, `b'hi'`.

use std::fmt::{self, Write};

use super::decimal::{Float, Trim, from_half, to_half};
use super::{Array, Content};
use crate::dtype::{DType, Kind};

/// Columns of a line.
const WIDTH: usize = 75;
/// Arrays of more elements are printed with `...` in place of those in the middle.
const MANY: usize = 1000;
/// Elements on each side of `...`.
const EDGE: usize = 3;
/// Digits behind the point of numbers in arrays.
const PRECISION: usize = 8;

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.elements();
        if self.dims.is_empty() {
            return f.write_str(&self.scalar());
        }
        if size == 0 {
            return f.write_str("[]");
        }
        let summarized = size > MANY;
        let shown = Shown { array: self, summarized };
        let words = Words::new(self, &shown.positions());
        f.write_str(&shown.print(&words, 0, 0, " ", WIDTH))
    }
}

impl Array {
    fn elements(&self) -> usize {
        match &self.content {
            Content::Strings(strings) => strings.len(),
            Content::Numbers(bytes) => bytes.len() / self.dtype.size(),
        }
    }

    /// The bytes of one element.
    fn bytes(&self, at: usize) -> &[u8] {
        match &self.content {
            Content::Strings(strings) => &strings[at],
            Content::Numbers(bytes) => {
                let size = self.dtype.size();
                &bytes[at * size..(at + 1) * size]
            }
        }
    }

    fn integer(&self, at: usize) -> String {
        let bytes = self.bytes(at);
        match self.dtype {
            DType::Int8 => i8::from_le_bytes(fixed(bytes)).to_string(),
            DType::Int16 => i16::from_le_bytes(fixed(bytes)).to_string(),
            DType::Int32 => i32::from_le_bytes(fixed(bytes)).to_string(),
            DType::Int64 => i64::from_le_bytes(fixed(bytes)).to_string(),
            DType::UInt8 => u8::from_le_bytes(fixed(bytes)).to_string(),
            DType::UInt16 => u16::from_le_bytes(fixed(bytes)).to_string(),
            DType::UInt32 => u32::from_le_bytes(fixed(bytes)).to_string(),
            DType::UInt64 => u64::from_le_bytes(fixed(bytes)).to_string(),
            _ => unreachable!("{} is no integer type", self.dtype),
        }
    }

    /// A floating-point element; of a complex one, its real part or the other.
    fn float(&self, at: usize, imaginary: bool) -> Float {
        let bytes = self.bytes(at);
        let half = |bytes: &[u8]| from_half(u16::from_le_bytes(fixed(bytes)));
        let single = |bytes: &[u8]| Float::Single(f32::from_le_bytes(fixed(bytes)));
        let double = |bytes: &[u8]| Float::Double(f64::from_le_bytes(fixed(bytes)));
        match self.dtype {
            DType::Float16 => Float::Half(half(bytes)),
            DType::BFloat16 => {
                let high = u16::from_le_bytes(fixed(bytes));
                Float::Single(f32::from_bits(u32::from(high) << 16))
            }
            DType::Float32 => single(bytes),
            DType::Float64 => double(bytes),
            DType::Complex64 => single(if imaginary { &bytes[4..] } else { &bytes[..4] }),
            DType::Complex128 => double(if imaginary { &bytes[8..] } else { &bytes[..8] }),
            _ => unreachable!("{} is no type of floating-point numbers", self.dtype),
        }
    }

    /// The one element of an array without dimensions.
    fn scalar(&self) -> String {
        match self.dtype.kind() {
            Kind::Bool => if self.bytes(0)[0] == 0 { "False" } else { "True" }.to_owned(),
            Kind::Signed | Kind::Unsigned => self.integer(0),
            Kind::String => bytes_repr(self.bytes(0)),
            Kind::Float if self.dtype == DType::BFloat16 => self.float(0, false).general(),
            Kind::Float => scalar_float(self.float(0, false), Trim::OneZero),
            Kind::Complex => {
                let (real, imaginary) = (self.float(0, false), self.float(0, true));
                let imaginary_text = scalar_float(imaginary, Trim::All);
                if real.value() == 0.0 && real.value().is_sign_positive() {
                    return format!("{imaginary_text}j");
                }
                let plus = if imaginary_text.starts_with('-') { "" } else { "+" };
                format!("({}{plus}{imaginary_text}j)", scalar_float(real, Trim::All))
            }
        }
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("an element has the size of its type")
}

/// Numbers of so many digits and more before the point are written with an exponent.
fn large(number: Float, double: f64) -> f64 {
    match number {
        Float::Half(_) => 1e3,
        Float::Single(_) => 1e6,
        Float::Double(_) => double,
    }
}

fn not_finite(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_nan() => Some("nan"),
        f64::INFINITY => Some("inf"),
        f64::NEG_INFINITY => Some("-inf"),
        _ => None,
    }
}

/// A number by itself.
fn scalar_float(number: Float, trim: Trim) -> String {
    let size = number.value().abs();
    if let Some(text) = not_finite(number.value()) {
        text.to_owned()
    } else if size == 0.0 || (1e-4..large(number, 1e16)).contains(&size) {
        number.positional(None, 0, trim)
    } else {
        number.scientific(None, 0, Trim::All, 2)
    }
}

/// Bytes as Python writes them: `b'hi'`.
fn bytes_repr(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    let mut text = format!("b{quote}");
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b' '..=b'~' => {
                if char::from(byte) == quote {
                    text.push('\\');
                }
                text.push(char::from(byte));
            }
            _ => write!(text, "\\x{byte:02x}").expect("writing to a string"),
        }
    }
    text.push(quote);
    text
}

/// How the elements of an array are written: mostly in words of one length.
enum Words {
    Bools,
    Integers(usize),
    Floats(Column),
    Complex(Column, Column),
    Strings,
    General,
}

impl Words {
    /// The format for these elements of an array.
    fn new(array: &Array, positions: &[usize]) -> Self {
        let floats = |imaginary| -> Vec<Float> {
            positions.iter().map(|&at| array.float(at, imaginary)).collect()
        };
        match array.dtype.kind() {
            Kind::Bool => Self::Bools,
            Kind::Signed | Kind::Unsigned => {
                let lengths = positions.iter().map(|&at| array.integer(at).len());
                Self::Integers(lengths.max().unwrap_or(0))
            }
            Kind::String => Self::Strings,
            Kind::Float if array.dtype == DType::BFloat16 => Self::General,
            Kind::Float => Self::Floats(Column::new(&floats(false), false)),
            Kind::Complex => {
                Self::Complex(Column::new(&floats(false), false), Column::new(&floats(true), true))
            }
        }
    }

    fn word(&self, array: &Array, at: usize) -> String {
        match self {
            Self::Bools => if array.bytes(at)[0] == 0 { "False" } else { " True" }.to_owned(),
            Self::Integers(width) => format!("{:>width$}", array.integer(at)),
            Self::Floats(column) => column.word(array.float(at, false)),
            Self::Complex(real, imaginary) => {
                let real = real.word(array.float(at, false));
                let imaginary = imaginary.word(array.float(at, true));
                let number = imaginary.trim_end();
                format!("{real}{number}j{}", &imaginary[number.len()..])
            }
            Self::Strings => bytes_repr(array.bytes(at)),
            Self::General => array.float(at, false).general(),
        }
    }
}

/// How floating-point numbers are written one below the other.
struct Column {
    /// Whether numbers that aren't negative have a sign too.
    signed: bool,
    /// Digits of the exponent, if there is one.
    exponent: Option<usize>,
    precision: usize,
    before: usize,
    behind: usize,
}

impl Column {
    fn new(numbers: &[Float], signed: bool) -> Self {
        let finite: Vec<Float> =
            numbers.iter().copied().filter(|number| number.value().is_finite()).collect();
        let mut column =
            Self { signed, exponent: None, precision: PRECISION, before: 0, behind: 0 };
        if !finite.is_empty() && wants_exponent(&finite) {
            let (mut digits, mut precision) = (0, 0);
            for number in &finite {
                let text = column
                    .with_sign(*number, number.scientific(Some(PRECISION), 0, Trim::Point, 2));
                let (number, exponent) = text.split_once('e').expect("there is an exponent");
                let (whole, fraction) = number.split_once('.').expect("there is a point");
                column.before = column.before.max(whole.len());
                precision = precision.max(fraction.len());
                digits = digits.max(exponent.len() - 1);
            }
            column.exponent = Some(digits);
            column.precision = precision;
            column.behind = digits + 2 + precision;
        } else {
            for number in &finite {
                let text =
                    column.with_sign(*number, number.positional(Some(PRECISION), 0, Trim::Point));
                let (whole, fraction) = text.split_once('.').expect("there is a point");
                column.before = column.before.max(whole.len());
                column.behind = column.behind.max(fraction.len());
            }
        }
        if finite.len() < numbers.len() {
            let negative =
                signed || numbers.iter().any(|number| number.value() == f64::NEG_INFINITY);
            let point = column.behind + 1;
            let inf = 3 + usize::from(negative);
            column.before =
                column.before.max(3usize.saturating_sub(point)).max(inf.saturating_sub(point));
        }
        column
    }

    fn with_sign(&self, number: Float, text: String) -> String {
        if self.signed && !number.value().is_sign_negative() { format!("+{text}") } else { text }
    }

    fn word(&self, number: Float) -> String {
        let width = self.before + self.behind + 1;
        if let Some(text) = not_finite(number.value()) {
            let sign = if self.signed && !text.starts_with('-') { "+" } else { "" };
            return format!("{:>width$}", format!("{sign}{text}"));
        }
        let text = match self.exponent {
            Some(digits) => {
                number.scientific(Some(self.precision), self.precision, Trim::Keep, digits)
            }
            None => number.positional(Some(PRECISION), 0, Trim::Point),
        };
        let text = self.with_sign(number, text);
        let whole = text.find('.').expect("there is a point");
        let padded = format!("{}{text}", " ".repeat(self.before.saturating_sub(whole)));
        format!("{padded:<width$}")
    }
}

/// Whether numbers are too large, too small or too different for fractions of few digits.
fn wants_exponent(finite: &[Float]) -> bool {
    let sizes = finite.iter().map(|number| number.value().abs()).filter(|&size| size != 0.0);
    let (mut least, mut most) = (f64::INFINITY, 0f64);
    for size in sizes {
        least = least.min(size);
        most = most.max(size);
    }
    if most == 0.0 {
        return false;
    }
    // NumPy computes in the element type.
    let (small, ratio) = match finite[0] {
        Float::Half(_) => (to_half(1e-4), to_half(most / least)),
        Float::Single(_) => (f64::from(1e-4f32), f64::from(most as f32 / least as f32)),
        Float::Double(_) => (1e-4, most / least),
    };
    most >= large(finite[0], 1e8) || least < small || ratio > 1000.0
}

/// What of an array is shown.
struct Shown<'a> {
    array: &'a Array,
    /// Whether `...` stands for what is in the middle of long dimensions.
    summarized: bool,
}

impl Shown<'_> {
    /// The positions along a dimension before and behind `...`, if there is one.
    fn along(&self, axis: usize) -> (std::ops::Range<usize>, Option<std::ops::Range<usize>>) {
        let len = self.array.dims[axis] as usize;
        if self.summarized && len > 2 * EDGE {
            (0..EDGE, Some(len - EDGE..len))
        } else {
            (0..len, None)
        }
    }

    /// The positions of all elements that are shown.
    fn positions(&self) -> Vec<usize> {
        let mut positions = vec![0];
        for axis in 0..self.array.dims.len() {
            let (first, last) = self.along(axis);
            let indices: Vec<usize> = first.chain(last.into_iter().flatten()).collect();
            let len = self.array.dims[axis] as usize;
            positions = positions
                .into_iter()
                .flat_map(|at| indices.iter().map(move |index| at * len + index))
                .collect();
        }
        positions
    }

    /// The part of the array at `at`, where the dimensions from `axis` on are left. NumPy allows
    /// 64 dimensions, so recursion is bounded.
    fn print(&self, words: &Words, axis: usize, at: usize, indent: &str, width: usize) -> String {
        let left = self.array.dims.len() - axis;
        if left == 0 {
            return words.word(self.array, at);
        }
        let len = self.array.dims[axis] as usize;
        let (first, last) = self.along(axis);
        let inner = format!("{indent} ");
        let nested =
            |index: usize| self.print(words, axis + 1, at * len + index, &inner, width - 1);
        let dots = last.is_some().then(|| "...".to_owned());
        let parts = first.map(nested).chain(dots).chain(last.into_iter().flatten().map(nested));
        let mut text = String::new();
        if left == 1 {
            let mut line = indent.to_owned();
            for (at, word) in parts.enumerate() {
                if at > 0 {
                    line.push(' ');
                }
                if line.len() > indent.len() && line.len() + word.len() > width - 1 {
                    text.push_str(line.trim_end());
                    text.push('\n');
                    line = indent.to_owned();
                }
                line.push_str(&word);
            }
            text.push_str(&line);
        } else {
            for (at, part) in parts.enumerate() {
                if at > 0 {
                    text.push_str(&"\n".repeat(left - 1));
                }
                text.push_str(indent);
                text.push_str(&part);
            }
        }
        format!("[{}]", &text[indent.len()..])
    }
}

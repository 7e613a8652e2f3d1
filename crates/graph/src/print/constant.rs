//! Constants as Python's `repr` prints them.

use std::fmt::Write;

use crate::arg::Constant;
use crate::graph::Graph;

pub(crate) fn repr(graph: &Graph, constant: Constant) -> String {
    match constant {
        Constant::None => "None".to_owned(),
        Constant::Ellipsis => "Ellipsis".to_owned(),
        Constant::Bool(true) => "True".to_owned(),
        Constant::Bool(false) => "False".to_owned(),
        Constant::Int(value) => value.to_string(),
        Constant::BigInt(digits) => graph.text(digits).to_owned(),
        Constant::Float(value) => repr_float(value),
        Constant::Complex(real, imaginary) => repr_complex(real, imaginary),
        Constant::Str(text) => repr_str(graph.text(text)),
        Constant::Bytes(text) => repr_bytes(graph.text(text)),
    }
}

/// A float: the shortest digits that read back as the same number, with an exponent below `1e-4`
/// and from `1e16` on.
pub fn repr_float(value: f64) -> String {
    if !value.is_finite() || (value != 0.0 && !(1e-4..1e16).contains(&value.abs())) {
        return repr_exponent(value);
    }
    let text = value.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

fn repr_exponent(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').expect("an exponent was asked for");
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

fn repr_complex(real: f64, imaginary: f64) -> String {
    let part = |value: f64| {
        let text = repr_float(value);
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    };
    if real == 0.0 && real.is_sign_positive() {
        return format!("{}j", part(imaginary));
    }
    let sign = if imaginary.is_sign_negative() && !imaginary.is_nan() { "" } else { "+" };
    format!("({}{sign}{}j)", part(real), part(imaginary))
}

/// A str. Control characters are escaped; other characters stand for themselves.
pub fn repr_str(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    let quote = quote_for(text);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => push_hex(&mut out, c),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// A bytes object, given as text in which each char is one byte.
pub fn repr_bytes(bytes: &str) -> String {
    let mut out = String::from("b");
    let quote = quote_for(bytes);
    out.push(quote);
    for c in bytes.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c => push_hex(&mut out, c),
        }
    }
    out.push(quote);
    out
}

fn quote_for(text: &str) -> char {
    if text.contains('\'') && !text.contains('"') { '"' } else { '\'' }
}

fn push_hex(out: &mut String, c: char) {
    write!(out, "\\x{:02x}", u32::from(c)).expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::{repr_bytes, repr_complex, repr_float, repr_str};

    #[test]
    fn floats() {
        let cases: &[(f64, &str)] = &[
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1_234_567_890_123_456.0, "1234567890123456.0"),
            (1e16, "1e+16"),
            (1.234e100, "1.234e+100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "nan"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ];
        for &(value, expected) in cases {
            assert_eq!(repr_float(value), expected);
        }
    }

    #[test]
    fn complex_numbers() {
        assert_eq!(repr_complex(1.0, 2.0), "(1+2j)");
        assert_eq!(repr_complex(0.0, -2.5), "-2.5j");
        assert_eq!(repr_complex(-0.0, 1.0), "(-0+1j)");
        assert_eq!(repr_complex(1e20, -0.0), "(1e+20-0j)");
        assert_eq!(repr_complex(0.5, f64::NAN), "(0.5+nanj)");
    }

    #[test]
    fn strings() {
        assert_eq!(repr_str("a'b"), "\"a'b\"");
        assert_eq!(repr_str("a'b\"c"), "'a\\'b\"c'");
        assert_eq!(repr_str("tab\tnl\n\\ \x07 \u{85} ä"), "'tab\\tnl\\n\\\\ \\x07 \\x85 ä'");
        assert_eq!(repr_bytes("a\u{ff}\0'"), "b\"a\\xff\\x00'\"");
    }
}

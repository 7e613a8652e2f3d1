//! Floating-point numbers as decimals, as NumPy writes them.

/// A floating-point number of one of the element types.
#[derive(Clone, Copy, Debug)]
pub enum Float {
    /// float16, as the same number in more bits.
    Half(f64),
    /// float32
    Single(f32),
    /// float64
    Double(f64),
}

/// What becomes of zeros at the end of a fraction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    /// As many digits as asked for.
    Keep,
    /// None stays, the point does: `1.`.
    Point,
    /// One stays if nothing else does: `1.0`.
    OneZero,
    /// None stays, nor does the point: `1`.
    All,
}

impl Float {
    /// The number itself.
    pub fn value(self) -> f64 {
        match self {
            Self::Half(value) | Self::Double(value) => value,
            Self::Single(value) => f64::from(value),
        }
    }

    /// Whether a decimal is read as this number's size.
    fn is_said_by(self, text: &str) -> bool {
        match self {
            Self::Single(value) => text.parse() == Ok(value.abs()),
            Self::Double(value) => text.parse() == Ok(value.abs()),
            Self::Half(value) => text.parse().is_ok_and(|read| to_half(read) == value.abs()),
        }
    }

    /// The fewest digits that say the number, and the power of ten of the first one. Of those,
    /// the digits nearest to the number; of two that are as near, those that end in an even one.
    fn shortest(self) -> (String, i32) {
        let size = self.value().abs();
        let rounded = |digits: usize| format!("{size:.digits$e}");
        let text = match self {
            Self::Single(_) | Self::Double(_) => {
                let text = match self {
                    Self::Single(value) => format!("{:e}", value.abs()),
                    _ => format!("{size:e}"),
                };
                let digits =
                    text.bytes().take_while(|&byte| byte != b'e').filter(u8::is_ascii_digit);
                Some(rounded(digits.count() - 1))
                    .filter(|text| self.is_said_by(text))
                    .unwrap_or(text)
            }
            Self::Half(_) => (0..5)
                .flat_map(|digits| [Some(rounded(digits)), digit_more(&rounded(digits))])
                .flatten()
                .find(|text| self.is_said_by(text))
                .unwrap_or_else(|| format!("{size:e}")),
        };
        parts(&text)
    }

    /// Like `12.5`, with at most `precision` digits behind the point, if there is a limit, and at
    /// least `min_digits`.
    pub fn positional(self, precision: Option<usize>, min_digits: usize, trim: Trim) -> String {
        let (digits, exponent) = self.shortest();
        let behind = (digits.len() as i32 - 1 - exponent).max(0) as usize;
        let text = match precision {
            Some(precision) if behind > precision => {
                format!("{:.precision$}", self.value().abs())
            }
            _ if exponent < 0 => {
                format!("0.{}{digits}", "0".repeat((-exponent - 1) as usize))
            }
            _ => {
                let whole = exponent as usize + 1;
                let padded = format!("{digits:0<whole$}");
                format!("{}.{}", &padded[..whole], &padded[whole..])
            }
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        format!("{}{whole}{}", self.minus(), trimmed(fraction, min_digits, trim))
    }

    /// Like `1.25e+01`, with at most `precision` digits behind the point, if there is a limit, and
    /// at least `min_digits`, and an exponent of at least `exponent_digits`.
    pub fn scientific(
        self,
        precision: Option<usize>,
        min_digits: usize,
        trim: Trim,
        exponent_digits: usize,
    ) -> String {
        let (mut digits, mut exponent) = self.shortest();
        let behind = digits.len() - 1;
        let wanted = behind.max(min_digits).min(precision.unwrap_or(usize::MAX));
        if wanted != behind {
            (digits, exponent) = parts(&format!("{:.wanted$e}", self.value().abs()));
        }
        let fraction = trimmed(&digits[1..], min_digits, trim);
        let sign = if exponent < 0 { '-' } else { '+' };
        let exponent = exponent.abs();
        format!("{}{}{fraction}e{sign}{exponent:0exponent_digits$}", self.minus(), &digits[..1])
    }

    fn minus(self) -> &'static str {
        if self.value().is_sign_negative() { "-" } else { "" }
    }

    /// As C writes it with `%g`: six digits.
    pub fn general(self) -> String {
        let value = self.value();
        if value.is_nan() {
            return "nan".to_owned();
        }
        if value.is_infinite() {
            return format!("{}inf", self.minus());
        }
        let text = format!("{:.5e}", value.abs());
        let exponent: i32 = text.split_once('e').map_or(0, |(_, power)| power.parse().unwrap_or(0));
        let rounded = Self::Double(text.parse().expect("a number that was just written"));
        let text = match exponent {
            -4..=5 => rounded.positional(None, 0, Trim::All),
            _ => rounded.scientific(None, 0, Trim::All, 2),
        };
        format!("{}{text}", self.minus())
    }
}

/// The digits of a number like `1.25e1`, without zeros at the end, and its exponent.
fn parts(text: &str) -> (String, i32) {
    let (digits, exponent) = text.split_once('e').expect("there is an exponent");
    let digits = digits.replace('.', "");
    let digits = digits.trim_end_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    (digits.to_owned(), exponent.parse().expect("an exponent is an integer"))
}

/// A number like `1.25e1` with one more in its last digit, if that leaves it as long.
fn digit_more(text: &str) -> Option<String> {
    let (number, exponent) = text.split_once('e')?;
    let (first, last) = number.split_at(number.len() - 1);
    let last: u8 = last.parse().ok()?;
    (last < 9).then(|| format!("{first}{}e{exponent}", last + 1))
}

/// A fraction with its point.
fn trimmed(fraction: &str, min_digits: usize, trim: Trim) -> String {
    let digits = match trim {
        Trim::Keep => return format!(".{fraction:0<min_digits$}"),
        _ => fraction.trim_end_matches('0'),
    };
    match (digits, trim) {
        ("", Trim::All) => String::new(),
        ("", Trim::OneZero) => ".0".to_owned(),
        _ => format!(".{digits}"),
    }
}

/// The float16 nearest to a number, as that number.
pub fn to_half(value: f64) -> f64 {
    const LARGEST: f64 = 65504.0;
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = (value.abs().log2().floor() as i32).max(-14);
    let unit = f64::powi(2.0, exponent - 10);
    let rounded = (value / unit).round_ties_even() * unit;
    if rounded.abs() > LARGEST { f64::INFINITY.copysign(value) } else { rounded }
}

/// The number that the bits of a float16 are.
pub fn from_half(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let exponent = i32::from(bits >> 10 & 0x1f);
    let size = match exponent {
        0 => fraction * f64::powi(2.0, -24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * f64::powi(2.0, exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

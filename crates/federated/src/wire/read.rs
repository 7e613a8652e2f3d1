//! Messages taken apart into their fields, with the place of whatever is wrong.

use smallvec::{SmallVec, smallvec};

use crate::error::{Class, Error, Result};

/// What is wrong, and at which byte.
#[derive(Debug)]
pub struct Fault {
    pub at: usize,
    pub error: Error,
}

/// The result of reading.
pub type Read<T> = std::result::Result<T, Fault>;

pub fn malformed<T>(at: usize, what: impl Into<String>) -> Read<T> {
    let error = Error::new(Class::Malformed, what).expected("bytes that `to_bytes` wrote");
    Err(Fault { at, error })
}

/// The result of making something of what was read at `at`.
pub fn made<T>(at: usize, result: Result<T>) -> Read<T> {
    result.map_err(|error| Fault { at, error })
}

impl Fault {
    pub fn into_error(self) -> Error {
        let place = format!("byte {} of the message", self.at);
        self.error.in_context(place)
    }
}

/// A part of the input: a string, or the fields of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    // Messages have less than 2^31 bytes.
    start: u32,
    end: u32,
}

impl Span {
    pub fn all(input: &[u8]) -> Read<Self> {
        match u32::try_from(input.len()) {
            Ok(end) if u64::from(end) <= super::MAX_LENGTH => Ok(Self { start: 0, end }),
            _ => malformed(0, format!("{} bytes are too many for a message", input.len())),
        }
    }

    pub fn start(self) -> usize {
        self.start as usize
    }

    pub fn of(self, input: &[u8]) -> &[u8] {
        &input[self.start as usize..self.end as usize]
    }

    /// As UTF-8.
    pub fn text(self, input: &[u8]) -> Read<&str> {
        std::str::from_utf8(self.of(input))
            .or_else(|error| malformed(self.start() + error.valid_up_to(), "the text is not UTF-8"))
    }
}

/// The fields of a message. Where a message stands more than once in a field that holds one, the
/// fields of all are one message.
#[derive(Clone, Debug)]
pub struct Message {
    spans: SmallVec<[Span; 1]>,
    /// Where it, or what should have had it, begins.
    at: usize,
}

impl Message {
    pub fn new(span: Span) -> Self {
        Self { spans: smallvec![span], at: span.start() }
    }

    /// One that isn't there, of a message that begins at `at`.
    pub fn missing(at: usize) -> Self {
        Self { spans: SmallVec::new(), at }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_missing(&self) -> bool {
        self.spans.is_empty()
    }

    /// Its only span, if it has one.
    pub fn span(&self) -> Option<Span> {
        match self.spans[..] {
            [span] => Some(span),
            _ => None,
        }
    }

    /// Adds the fields of another occurrence.
    pub fn merge(&mut self, field: Field) -> Read<()> {
        let span = field.span()?;
        if self.spans.is_empty() {
            self.at = span.start();
        }
        self.spans.push(span);
        Ok(())
    }

    /// All its bytes.
    pub fn bytes(&self, input: &[u8]) -> Vec<u8> {
        self.spans.iter().flat_map(|span| span.of(input)).copied().collect()
    }

    pub fn fields<'a>(&'a self, input: &'a [u8]) -> Fields<'a> {
        Fields { input, spans: self.spans.iter(), at: 0, end: 0 }
    }
}

/// One of several members, of which a message has the last one that it names.
#[derive(Debug)]
pub struct Member {
    pub number: u32,
    pub message: Message,
}

impl Member {
    /// The members before any field was read, of a message that begins at `at`.
    pub fn none(at: usize) -> Self {
        Self { number: 0, message: Message::missing(at) }
    }

    pub fn set(&mut self, field: Field) -> Read<()> {
        if self.number != field.number {
            self.number = field.number;
            self.message.spans.clear();
        }
        self.message.merge(field)
    }
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub number: u32,
    pub value: Value,
    /// Where its key begins.
    pub at: usize,
}

/// The value of a field as far as the wire knows it.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Varint(u64),
    Fixed64(u64),
    Bytes(Span),
    Fixed32(u32),
}

impl Field {
    /// The value of a field that holds a message, bytes or text.
    pub fn span(self) -> Read<Span> {
        match self.value {
            Value::Bytes(span) => Ok(span),
            _ => self.wrong("bytes with a length"),
        }
    }

    /// The value of a field that holds an integer.
    pub fn varint(self) -> Read<u64> {
        match self.value {
            Value::Varint(value) => Ok(value),
            _ => self.wrong("a varint"),
        }
    }

    /// The values of a field that holds integers: one, or all in a row of bytes.
    pub fn varints(self, input: &[u8], mut each: impl FnMut(u64)) -> Read<()> {
        match self.value {
            Value::Varint(value) => each(value),
            Value::Bytes(span) => {
                let mut at = span.start();
                while at < span.end as usize {
                    each(varint(&input[..span.end as usize], &mut at)?);
                }
            }
            _ => return self.wrong("varints"),
        }
        Ok(())
    }

    pub fn wrong<T>(self, wanted: &str) -> Read<T> {
        let is = match self.value {
            Value::Varint(_) => "a varint",
            Value::Fixed64(_) => "eight bytes",
            Value::Bytes(_) => "bytes with a length",
            Value::Fixed32(_) => "four bytes",
        };
        malformed(self.at, format!("field {} is {is}, not {wanted}", self.number))
    }
}

/// The fields of a message, in the order in which they stand.
pub struct Fields<'a> {
    input: &'a [u8],
    spans: std::slice::Iter<'a, Span>,
    at: usize,
    end: usize,
}

impl Iterator for Fields<'_> {
    type Item = Read<Field>;

    fn next(&mut self) -> Option<Read<Field>> {
        while self.at == self.end {
            let span = self.spans.next()?;
            (self.at, self.end) = (span.start(), span.end as usize);
        }
        Some(field(&self.input[..self.end], &mut self.at))
    }
}

/// The field that begins at `at`, in a message that ends with `input`.
fn field(input: &[u8], at: &mut usize) -> Read<Field> {
    let start = *at;
    let key = varint(input, at)?;
    let number = match u32::try_from(key >> 3) {
        Ok(number @ 1..=0x1fff_ffff) => number,
        _ => return malformed(start, format!("there is no field {}", key >> 3)),
    };
    let cut = || malformed(start, format!("field {number} is cut short"));
    let value = match key & 7 {
        0 => Value::Varint(varint(input, at)?),
        1 => {
            let Some((bytes, _)) = input[*at..].split_first_chunk() else { return cut() };
            *at += 8;
            Value::Fixed64(u64::from_le_bytes(*bytes))
        }
        2 => {
            let length = varint(input, at)?;
            if length > (input.len() - *at) as u64 {
                return malformed(
                    start,
                    format!(
                        "field {number} is cut short: {length} bytes long, {} left",
                        input.len() - *at
                    ),
                );
            }
            let span = Span { start: *at as u32, end: *at as u32 + length as u32 };
            *at = span.end as usize;
            Value::Bytes(span)
        }
        3 | 4 => return malformed(start, format!("field {number} is a group")),
        5 => {
            let Some((bytes, _)) = input[*at..].split_first_chunk() else { return cut() };
            *at += 4;
            Value::Fixed32(u32::from_le_bytes(*bytes))
        }
        wire => return malformed(start, format!("field {number} is of wire type {wire}")),
    };
    Ok(Field { number, value, at: start })
}

/// The integer that begins at `at`.
fn varint(input: &[u8], at: &mut usize) -> Read<u64> {
    let start = *at;
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let Some(&byte) = input.get(*at) else {
            return malformed(start, "a varint is cut short");
        };
        *at += 1;
        // Nine bytes have 63 bits.
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    malformed(start, "a varint of more than 64 bits")
}

//! Arrays and their shapes as messages.

use prost::encoding::{WireType, encode_key, encode_varint};

use super::read::{Fault, Field, Member, Message, Read, Span, Value, made, malformed};
use super::{MAX_LENGTH, too_long, wire_dim};
use crate::array::{Array, Content};
use crate::dtype::{DType, Kind};
use crate::error::{Class, Error, Result};
use crate::types::Shape;

/// The field of `Array` with the elements as they are in memory.
const CONTENT: u32 = 18;

/// The field of `Array` with a list of elements of this type.
fn list(dtype: DType) -> u32 {
    match dtype {
        DType::Bool => 3,
        DType::Int8 => 4,
        DType::Int16 => 5,
        DType::Int32 => 6,
        DType::Int64 => 7,
        DType::UInt8 => 8,
        DType::UInt16 => 9,
        DType::UInt32 => 10,
        DType::UInt64 => 11,
        DType::Float16 => 12,
        DType::Float32 => 13,
        DType::Float64 => 14,
        DType::Complex64 => 15,
        DType::Complex128 => 16,
        DType::Str => 17,
        DType::BFloat16 => 19,
    }
}

/// How the elements of a list stand in it.
enum Form {
    /// Each as a varint: of its value, or of its bits where they are half a float.
    Varints,
    /// As they are in memory, in words of so many bytes.
    Words(usize),
    Strings,
}

fn form(dtype: DType) -> Form {
    match (dtype.kind(), dtype.size()) {
        (Kind::String, _) => Form::Strings,
        (Kind::Complex, size) => Form::Words(size / 2),
        (Kind::Float, size @ (4 | 8)) => Form::Words(size),
        _ => Form::Varints,
    }
}

pub fn encode(array: &Array) -> Result<Vec<u8>> {
    let mut elements = Vec::new();
    match (array.content(), form(array.dtype())) {
        (Content::Strings(strings), _) => {
            for string in strings {
                put_bytes(1, string, &mut elements);
            }
        }
        // Packed numbers are left out where there are none.
        (Content::Numbers(bytes), _) if bytes.is_empty() => {}
        (Content::Numbers(bytes), Form::Varints) => {
            let mut varints = Vec::with_capacity(bytes.len());
            let signed = array.dtype().kind() == Kind::Signed;
            for element in bytes.chunks_exact(array.dtype().size()) {
                // A negative number is written with all its 64 bits.
                let fill = if signed && element[element.len() - 1] >= 0x80 { 0xff } else { 0 };
                let mut wide = [fill; 8];
                wide[..element.len()].copy_from_slice(element);
                encode_varint(u64::from_le_bytes(wide), &mut varints);
            }
            put_bytes(1, &varints, &mut elements);
        }
        (Content::Numbers(bytes), _) => put_bytes(1, bytes, &mut elements),
    }
    with_elements(array, list(array.dtype()), &elements)
}

pub fn encode_content(array: &Array) -> Result<Vec<u8>> {
    match array.content() {
        Content::Numbers(bytes) => with_elements(array, CONTENT, bytes),
        Content::Strings(_) => {
            Err(Error::new(Class::NotImplemented, "strings have no content in fixed places")
                .found(array.tensor_type()))
        }
    }
}

fn with_elements(array: &Array, field: u32, elements: &[u8]) -> Result<Vec<u8>> {
    let mut output = Vec::with_capacity(elements.len() + 32);
    encode_key(1, WireType::Varint, &mut output);
    encode_varint(array.dtype().wire() as u64, &mut output);
    let dims: Vec<Option<u64>> = array.dims().iter().map(|&dim| Some(dim)).collect();
    put_bytes(2, &encode_shape(&Shape::new(dims))?, &mut output);
    put_bytes(field, elements, &mut output);
    if output.len() as u64 > MAX_LENGTH {
        return Err(too_long());
    }
    Ok(output)
}

pub fn encode_shape(shape: &Shape) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    match shape.dims() {
        Some([]) => {}
        Some(dims) => {
            let mut packed = Vec::new();
            for &dim in dims {
                encode_varint(wire_dim(dim)? as u64, &mut packed);
            }
            put_bytes(1, &packed, &mut output);
        }
        None => {
            encode_key(2, WireType::Varint, &mut output);
            encode_varint(1, &mut output);
        }
    }
    Ok(output)
}

fn put_bytes(number: u32, bytes: &[u8], output: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, output);
    encode_varint(bytes.len() as u64, output);
    output.extend_from_slice(bytes);
}

pub fn decode(input: &[u8]) -> Result<Array> {
    let read = Span::all(input).and_then(|span| read(input, &Message::new(span)));
    read.map_err(Fault::into_error)
}

pub fn decode_shape(input: &[u8]) -> Result<Shape> {
    let read = Span::all(input).and_then(|span| read_shape(input, &Message::new(span)));
    read.map_err(Fault::into_error)
}

/// The array in a message that is part of `input`.
pub fn read(input: &[u8], message: &Message) -> Read<Array> {
    let mut dtype = 0;
    let mut shape = Message::missing(message.at());
    let mut list = Member::none(message.at());
    let mut content = None;
    for field in message.fields(input) {
        let field = field?;
        match field.number {
            1 => dtype = field.varint()?,
            2 => shape.merge(field)?,
            3..=17 | 19 => list.set(field)?,
            CONTENT => content = Some(field.span()?),
            _ => {}
        }
    }
    let dtype = read_dtype(dtype, message.at())?;
    let of = read_shape(input, &shape)?;
    let dims: Option<Box<[u64]>> = of.dims().and_then(|dims| dims.iter().copied().collect());
    let Some(dims) = dims else {
        return malformed(shape.at(), format!("an array has a shape without gaps, not `{of}`"));
    };
    let elements = match content {
        Some(span) => whole(dtype, span.of(input), span.start())?,
        None => read_list(input, dtype, &list)?,
    };
    made(message.at(), Array::new(dtype, dims, elements))
}

/// The element type with this number.
pub fn read_dtype(number: u64, at: usize) -> Read<DType> {
    // An enumeration has 32 bits.
    let number = number as i32;
    let dtype = DType::from_wire(number).ok_or_else(|| {
        Error::new(Class::NotImplemented, format!("there is no element type {number}"))
    });
    made(at, dtype)
}

/// The shape in a message that is part of `input`. Where it says that the rank is unknown, any
/// sizes in it mean nothing.
fn read_shape(input: &[u8], message: &Message) -> Read<Shape> {
    let mut dims = Vec::new();
    let mut unknown_rank = false;
    for field in message.fields(input) {
        let field = field?;
        match field.number {
            1 => field.varints(input, |dim| dims.push(read_dim(dim)))?,
            2 => unknown_rank = field.varint()? != 0,
            _ => {}
        }
    }
    Ok(if unknown_rank { Shape::unknown_rank() } else { Shape::new(dims) })
}

/// A size, of which a negative number means that it isn't known.
pub fn read_dim(dim: u64) -> Option<u64> {
    (dim as i64 >= 0).then_some(dim)
}

/// Elements as they are in memory.
fn whole(dtype: DType, bytes: &[u8], at: usize) -> Read<Content> {
    match dtype.kind() {
        Kind::String => made(
            at,
            Err(Error::new(Class::NotImplemented, "strings have no content in fixed places")),
        ),
        Kind::Bool => Ok(Content::Numbers(bytes.iter().map(|&byte| u8::from(byte != 0)).collect())),
        _ => Ok(Content::Numbers(bytes.into())),
    }
}

/// The elements in a list; none where the message has no list.
fn read_list(input: &[u8], dtype: DType, member: &Member) -> Read<Content> {
    let message = &member.message;
    if member.number != list(dtype) && member.number != 0 {
        return malformed(
            message.at(),
            format!("field {} holds no elements of type {dtype}", member.number),
        );
    }
    let values = message.fields(input).filter(|field| !matches!(field, Ok(it) if it.number != 1));
    if let Form::Strings = form(dtype) {
        let strings = values.map(|field| Ok(field?.span()?.of(input).into()));
        return Ok(Content::Strings(strings.collect::<Read<_>>()?));
    }
    let mut bytes = Vec::new();
    for field in values {
        let field = field?;
        match (form(dtype), field.value) {
            (Form::Words(4), Value::Fixed32(word)) => bytes.extend_from_slice(&word.to_le_bytes()),
            (Form::Words(8), Value::Fixed64(word)) => bytes.extend_from_slice(&word.to_le_bytes()),
            (Form::Words(size), Value::Bytes(span)) => {
                let words = span.of(input);
                if words.len() % size != 0 {
                    let what = format!("{} bytes are no whole number of {dtype}", words.len());
                    return malformed(span.start(), what);
                }
                bytes.extend_from_slice(words);
            }
            (Form::Words(_), _) => return field.wrong(&format!("numbers of type {dtype}")),
            _ => read_varints(input, dtype, field, &mut bytes)?,
        }
    }
    Ok(Content::Numbers(bytes.into()))
}

/// Adds the numbers in a field, as they are in memory.
fn read_varints(input: &[u8], dtype: DType, field: Field, bytes: &mut Vec<u8>) -> Read<()> {
    let size = dtype.size();
    let mut outside = None;
    field.varints(input, |value| {
        // Numbers of up to 32 bits are cut to 32, and then must fit.
        let value = match dtype.kind() {
            Kind::Bool => u64::from(value != 0),
            Kind::Signed if size < 8 => i64::from(value as i32) as u64,
            _ if dtype == DType::UInt32 => u64::from(value as u32),
            _ if size < 8 => i64::from(value as i32) as u64,
            _ => value,
        };
        let unused = 64 - 8 * size as u32;
        let fits = match dtype.kind() {
            Kind::Signed => ((value as i64) << unused) >> unused == value as i64,
            _ => (value << unused) >> unused == value,
        };
        if !fits {
            outside.get_or_insert(value as i64);
        }
        bytes.extend_from_slice(&value.to_le_bytes()[..size]);
    })?;
    match outside {
        Some(value) => malformed(field.at, format!("{value} has no place in {dtype}")),
        None => Ok(()),
    }
}

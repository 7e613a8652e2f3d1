//! Types, arrays and trees as protobuf messages, byte for byte those of `federated_language`.
//!
//! A message carries the type of every computation in it, and a shared block once for each place
//! it stands at: it is a tree, and can be far longer than what it is made from. Encoding measures
//! every type and block once, then writes each once and copies it to its other places. Decoding
//! reads equal bytes of types once. Neither recurses.
//!
//! The order of fields is ascending, and a field that is empty, zero or false is left out unless
//! its presence says something; decoding takes fields in any order and skips those it doesn't know.

mod array;
mod decode;
mod encode;
mod read;
#[cfg(test)]
mod tests;

use crate::array::Array;
use crate::ast::{BuildingBlock, WirePayload};
use crate::error::{Class, Error, Result};
use crate::types::{Shape, Type};

/// The longest message that protobuf allows.
pub const MAX_LENGTH: u64 = i32::MAX as u64;

/// The message `Type`. Containers are not in it.
///
/// # Errors
/// `Class::Value`: it is longer than [`MAX_LENGTH`], or a dimension has more than 63 bits.
pub fn encode_type(ty: &Type) -> Result<Vec<u8>> {
    encode::encode(encode::Node::Type(ty))
}

/// The type in a message `Type`.
///
/// # Errors
/// `Class::Malformed`: the bytes are no such message. `Class::NotImplemented`: it is an abstract
/// type, or of no kind that we know. `Class::Value`: no type is made so.
pub fn decode_type(bytes: &[u8]) -> Result<Type> {
    decode::decode_type(bytes, decode::Labels::Refused)
}

/// As [`decode_type`], abstract types too.
///
/// # Errors
/// As for [`decode_type`].
pub fn decode_template(bytes: &[u8]) -> Result<Type> {
    decode::decode_type(bytes, decode::Labels::Taken)
}

/// The message `Computation`.
///
/// # Errors
/// `Class::Value`: it is longer than [`MAX_LENGTH`]. A compiled computation in it has no message.
pub fn encode_block(block: &BuildingBlock) -> Result<Vec<u8>> {
    encode::encode(encode::Node::Block(block))
}

/// The tree in a message `Computation`.
///
/// # Errors
/// `Class::Malformed`: the bytes are no such message, or a computation is not of the type that
/// they say. Others as for the constructors of blocks and for [`decode_type`].
pub fn decode_block(bytes: &[u8]) -> Result<BuildingBlock> {
    decode::decode_block(bytes)
}

/// The message `Array`, with its elements in the list for its element type.
///
/// # Errors
/// `Class::Value`: it is longer than [`MAX_LENGTH`].
pub fn encode_array(array: &Array) -> Result<Vec<u8>> {
    array::encode(array)
}

/// The message `Array`, with its elements in the field `content`, as they are in memory.
///
/// # Errors
/// As for [`encode_array`]. `Class::NotImplemented`: the elements are strings.
pub fn encode_array_content(array: &Array) -> Result<Vec<u8>> {
    array::encode_content(array)
}

/// The array in a message `Array`, wherever it has its elements.
///
/// # Errors
/// `Class::Malformed`: the bytes are no such message, or a number has no place in the element
/// type. `Class::Value`: there are more or fewer elements than the shape says.
pub fn decode_array(bytes: &[u8]) -> Result<Array> {
    array::decode(bytes)
}

/// The message `ArrayShape`.
///
/// # Errors
/// `Class::Value`: a dimension has more than 63 bits.
pub fn encode_shape(shape: &Shape) -> Result<Vec<u8>> {
    array::encode_shape(shape)
}

/// The shape in a message `ArrayShape`.
///
/// # Errors
/// `Class::Malformed`: the bytes are no such message.
pub fn decode_shape(bytes: &[u8]) -> Result<Shape> {
    array::decode_shape(bytes)
}

/// The name of a compiled computation that was given none: a checksum of its message.
///
/// # Errors
/// As for [`encode_type`].
pub fn default_name(payload: &WirePayload, ty: &Type) -> Result<String> {
    let message = encode::encode(encode::Node::Payload(payload, ty))?;
    Ok(format!("{:x}", adler32(&message)))
}

/// The checksum Adler-32.
fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    // The longest run after which neither sum has overflown.
    const RUN: usize = 5552;
    let (mut low, mut high) = (1u32, 0u32);
    for run in bytes.chunks(RUN) {
        for &byte in run {
            low += u32::from(byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    high << 16 | low
}

impl Type {
    /// See [`encode_type`].
    ///
    /// # Errors
    /// As there.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        encode_type(self)
    }

    /// See [`decode_type`].
    ///
    /// # Errors
    /// As there.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        decode_type(bytes)
    }
}

impl BuildingBlock {
    /// See [`encode_block`].
    ///
    /// # Errors
    /// As there.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        encode_block(self)
    }

    /// See [`decode_block`].
    ///
    /// # Errors
    /// As there.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        decode_block(bytes)
    }
}

fn too_long() -> Error {
    Error::new(Class::Value, "the message would be longer than protobuf allows")
        .expected(format!("at most {MAX_LENGTH} bytes"))
        .hint("in a message every computation carries its whole type, and what is shared stands at each of its places: let fewer places use large structs")
}

/// A size as it stands in messages.
fn wire_dim(dim: Option<u64>) -> Result<i64> {
    let Some(dim) = dim else { return Ok(-1) };
    i64::try_from(dim).map_err(|_| {
        Error::new(Class::Value, "a dimension is too large for a message")
            .expected(format!("at most {}", i64::MAX))
            .found(dim)
    })
}

//! From types and trees to messages.
//!
//! A message is written from its end to its beginning: the length of a field is known once the
//! field is written, and then stands before it. What is left to write is a stack of steps, of
//! which the last one is the next: pushed in the order of the fields, they are taken from the end.
//! Nodes at more than one place are written once and then copied.

use prost::encoding::{WireType, encode_varint};
use rustc_hash::FxHashMap;

use super::{MAX_LENGTH, array, too_long, wire_dim};
use crate::ast::{BlockKind, BuildingBlock, WirePayload};
use crate::error::Result;
use crate::placement::Placement;
use crate::types::{Type, TypeKind};

/// Messages up to this length are written without knowing it before. Others might fill the
/// memory, so they are measured first.
const SHORT: u64 = 16 << 20;

/// What is a message of its own.
#[derive(Clone, Copy)]
pub enum Node<'a> {
    Type(&'a Type),
    Block(&'a BuildingBlock),
    /// A compiled computation of this type.
    Payload(&'a WirePayload, &'a Type),
}

impl Node<'_> {
    /// Different for different nodes; none for a node that is at one place only.
    fn address(self) -> Option<usize> {
        match self {
            Self::Type(ty) => Some(ty.address()),
            Self::Block(block) => block.is_shared().then(|| block.address()),
            Self::Payload(..) => None,
        }
    }
}

/// The message of a node.
pub fn encode(root: Node<'_>) -> Result<Vec<u8>> {
    if let Some(bytes) = write(root, Output::new(Keep::All, SHORT))?.into_bytes() {
        return Ok(bytes);
    }
    let measured = write(root, Output::new(Keep::Length, MAX_LENGTH))?;
    if measured.full {
        return Err(too_long());
    }
    let output = write(root, Output::new(Keep::All, measured.length))?;
    Ok(output.into_bytes().expect("it is as long as it was"))
}

fn write(root: Node<'_>, output: Output) -> Result<Output> {
    let mut writer = Writer { output, steps: Vec::new(), written: FxHashMap::default() };
    writer.node(root)?;
    while let Some(step) = writer.steps.pop() {
        writer.step(step)?;
        if writer.output.full {
            break;
        }
    }
    Ok(writer.output)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    All,
    /// Nothing is kept but the number of bytes.
    Length,
}

/// The end of a message, as far as it is written.
struct Output {
    keep: Keep,
    /// The last `length` bytes are written.
    buffer: Vec<u8>,
    length: u64,
    limit: u64,
    /// More was written than `limit` bytes. Then what is written is worth nothing.
    full: bool,
}

impl Output {
    fn new(keep: Keep, limit: u64) -> Self {
        Self { keep, buffer: Vec::new(), length: 0, limit, full: false }
    }

    fn into_bytes(mut self) -> Option<Vec<u8>> {
        if self.full {
            return None;
        }
        let start = self.buffer.len() - self.length as usize;
        self.buffer.drain(..start);
        Some(self.buffer)
    }

    /// Makes place for bytes, and says where in the buffer.
    fn place(&mut self, length: u64) -> Option<usize> {
        if self.full || length > self.limit - self.length {
            self.full = true;
            return None;
        }
        self.length += length;
        if self.keep == Keep::Length {
            return None;
        }
        if self.length > self.buffer.len() as u64 {
            self.grow(length);
        }
        Some(self.buffer.len() - self.length as usize)
    }

    /// A longer buffer, with what was written before the last `new` bytes at its end.
    fn grow(&mut self, new: u64) {
        const FIRST: u64 = 1 << 10;
        let capacity = (2 * self.length).max(FIRST).min(self.limit) as usize;
        let written = (self.length - new) as usize;
        let mut buffer = vec![0; capacity];
        buffer[capacity - written..].copy_from_slice(&self.buffer[self.buffer.len() - written..]);
        self.buffer = buffer;
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(at) = self.place(bytes.len() as u64) {
            self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Again what was written between two lengths.
    fn put_again(&mut self, from: u64, to: u64) {
        if let Some(at) = self.place(to - from) {
            let end = self.buffer.len();
            self.buffer.copy_within(end - to as usize..end - from as usize, at);
        }
    }

    fn put_varint(&mut self, value: u64) {
        if value < 0x80 {
            return self.put(&[value as u8]);
        }
        const LONGEST: usize = 10;
        let mut bytes = [0; LONGEST];
        let mut rest = &mut bytes[..];
        encode_varint(value, &mut rest);
        let left = rest.len();
        self.put(&bytes[..LONGEST - left]);
    }

    fn put_key(&mut self, number: u32, wire: WireType) {
        self.put_varint(u64::from(number << 3 | wire as u32));
    }

    /// The key and length of a field that was written from the length `mark` on.
    fn put_header(&mut self, number: u32, mark: u64) {
        self.put_varint(self.length - mark);
        self.put_key(number, WireType::LengthDelimited);
    }

    fn put_bytes(&mut self, number: u32, bytes: &[u8]) {
        self.put(bytes);
        self.put_varint(bytes.len() as u64);
        self.put_key(number, WireType::LengthDelimited);
    }

    /// A field of bytes or text, left out where it is empty.
    fn put_some(&mut self, number: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put_bytes(number, bytes);
        }
    }

    /// A field of a number, left out where it is zero.
    fn put_number(&mut self, number: u32, value: u64) {
        if value != 0 {
            self.put_varint(value);
            self.put_key(number, WireType::Varint);
        }
    }
}

/// What is left to write.
enum Step<'a> {
    /// A field that holds a node's message.
    Child(u32, Node<'a>),
    /// A field that holds a message of a name and a node's message.
    Named(u32, &'a str, Node<'a>),
    /// A field of text, left out where it is empty.
    Text(u32, &'a str),
    /// A field of a number, left out where it is zero.
    Number(u32, u64),
    /// A field `PlacementSpec`.
    Spec(u32, Placement),
    /// The key and length of a field written from this length on.
    Header(u32, u64),
    /// As `Header`, of the message of the node at this address.
    Close(u32, u64, usize),
}

struct Writer<'a> {
    output: Output,
    steps: Vec<Step<'a>>,
    /// From which length to which the messages of shared nodes were written.
    written: FxHashMap<usize, (u64, u64)>,
}

impl<'a> Writer<'a> {
    fn step(&mut self, step: Step<'a>) -> Result<()> {
        match step {
            Step::Child(number, node) => return self.child(number, node),
            Step::Named(number, name, node) => {
                self.steps.push(Step::Header(number, self.output.length));
                self.steps.push(Step::Text(1, name));
                return self.child(2, node);
            }
            Step::Text(number, text) => self.output.put_some(number, text.as_bytes()),
            Step::Number(number, value) => self.output.put_number(number, value),
            Step::Spec(number, placement) => {
                let mark = self.output.length;
                self.output.put_bytes(1, placement.uri().as_bytes());
                self.output.put_header(2, mark);
                self.output.put_header(number, mark);
            }
            Step::Header(number, mark) => self.output.put_header(number, mark),
            Step::Close(number, mark, address) => {
                self.written.insert(address, (mark, self.output.length));
                self.output.put_header(number, mark);
            }
        }
        Ok(())
    }

    fn child(&mut self, number: u32, node: Node<'a>) -> Result<()> {
        let mark = self.output.length;
        match node.address() {
            None => self.steps.push(Step::Header(number, mark)),
            Some(address) => {
                if let Some(&(from, to)) = self.written.get(&address) {
                    self.output.put_again(from, to);
                    self.output.put_header(number, mark);
                    return Ok(());
                }
                self.steps.push(Step::Close(number, mark, address));
            }
        }
        self.node(node)
    }

    /// Writes or pushes the fields of a node's message.
    fn node(&mut self, node: Node<'a>) -> Result<()> {
        match node {
            Node::Type(ty) => self.type_fields(ty),
            Node::Block(block) => {
                self.steps.push(Step::Child(1, Node::Type(block.ty())));
                self.block_fields(block)
            }
            Node::Payload(payload, ty) => {
                self.steps.push(Step::Child(1, Node::Type(ty)));
                self.output.put_bytes(payload.language as u32, &payload.bytes);
                Ok(())
            }
        }
    }

    /// Begins the last field, which holds a message: its fields are pushed after it.
    fn last(&mut self, number: u32) {
        self.steps.push(Step::Header(number, self.output.length));
    }

    fn ty(&mut self, number: u32, ty: &'a Type) {
        self.steps.push(Step::Child(number, Node::Type(ty)));
    }

    fn block(&mut self, number: u32, block: &'a BuildingBlock) {
        self.steps.push(Step::Child(number, Node::Block(block)));
    }

    /// A last field that holds a message of nothing but a text, left out where it is empty.
    fn only_text(&mut self, number: u32, text: &str) {
        let mark = self.output.length;
        self.output.put_some(1, text.as_bytes());
        self.output.put_header(number, mark);
    }

    /// The message `Type`.
    fn type_fields(&mut self, ty: &'a Type) -> Result<()> {
        match ty.kind() {
            TypeKind::Function(function) => {
                self.last(1);
                if let Some(parameter) = &function.parameter {
                    self.ty(1, parameter);
                }
                self.ty(2, &function.result);
            }
            TypeKind::Struct(structure) => {
                self.last(2);
                for field in structure.fields() {
                    let name = field.name.as_deref().unwrap_or("");
                    self.steps.push(Step::Named(1, name, Node::Type(&field.ty)));
                }
            }
            TypeKind::Sequence(element) => {
                self.last(3);
                self.ty(1, element);
            }
            TypeKind::Tensor(tensor) => {
                let mark = self.output.length;
                let dims = tensor.shape.dims();
                self.output.put_number(3, u64::from(dims.is_none()));
                let dims_mark = self.output.length;
                for &dim in dims.unwrap_or_default().iter().rev() {
                    self.output.put_varint(wire_dim(dim)? as u64);
                }
                if self.output.length > dims_mark {
                    self.output.put_header(2, dims_mark);
                }
                self.output.put_number(1, tensor.dtype.wire() as u64);
                self.output.put_header(4, mark);
            }
            TypeKind::Abstract(label) => self.only_text(5, label),
            TypeKind::Placement => self.only_text(6, ""),
            TypeKind::Federated(federated) => {
                self.last(7);
                self.steps.push(Step::Spec(1, federated.placement));
                self.steps.push(Step::Number(2, u64::from(federated.all_equal)));
                self.ty(3, &federated.member);
            }
        }
        Ok(())
    }

    /// The message `Computation`, without the type.
    fn block_fields(&mut self, block: &'a BuildingBlock) -> Result<()> {
        match block.kind() {
            BlockKind::Intrinsic(uri) => self.only_text(3, uri),
            BlockKind::Lambda(lambda) => {
                self.last(4);
                if let Some((name, _)) = &lambda.parameter {
                    self.steps.push(Step::Text(1, name));
                }
                self.block(2, &lambda.result);
            }
            BlockKind::Block(block) => {
                self.last(5);
                for (name, value) in &block.locals {
                    self.steps.push(Step::Named(1, name, Node::Block(value)));
                }
                self.block(2, &block.result);
            }
            BlockKind::Reference(reference) => self.only_text(6, &reference.name),
            BlockKind::Call(call) => {
                self.last(7);
                self.block(1, &call.function);
                if let Some(argument) = &call.argument {
                    self.block(2, argument);
                }
            }
            BlockKind::Struct(structure) => {
                self.last(8);
                for (name, value) in &structure.elements {
                    let name = name.as_deref().unwrap_or("");
                    self.steps.push(Step::Named(1, name, Node::Block(value)));
                }
            }
            BlockKind::Selection(selection) => {
                self.last(9);
                self.block(1, &selection.source);
                self.steps.push(Step::Number(3, selection.position() as u64));
            }
            BlockKind::Data(data) => {
                let mark = self.output.length;
                self.output.put_some(2, &data.value);
                self.output.put_some(1, data.type_url.as_bytes());
                self.output.put_header(3, mark);
                self.output.put_header(10, mark);
            }
            BlockKind::Placement(placement) => self.only_text(11, placement.uri()),
            BlockKind::Literal(array) => {
                let mark = self.output.length;
                self.output.put_bytes(1, &array::encode(array)?);
                self.output.put_header(14, mark);
            }
            BlockKind::Compiled(compiled) => {
                let payload = compiled.payload.to_wire()?;
                self.output.put_bytes(payload.language as u32, &payload.bytes);
            }
        }
        Ok(())
    }
}

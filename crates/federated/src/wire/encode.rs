//! From types and trees to messages.
//!
//! Each node is described by the steps that write it, of which some are other nodes. A node is
//! described twice: to measure it, when all nodes in it have been measured, and to write it.

use std::borrow::Cow;
use std::cell::Cell;

use prost::encoding::{WireType, encode_varint, encoded_len_varint};
use rustc_hash::FxHashMap;

use super::{MAX_LENGTH, array, too_long, wire_dim};
use crate::ast::{BlockKind, BuildingBlock, Key, WirePayload};
use crate::error::Result;
use crate::placement::Placement;
use crate::types::{Type, TypeKind};

/// What is a message of its own, shared by whatever contains it.
#[derive(Clone, Copy)]
pub enum Node<'a> {
    Type(&'a Type),
    Block(&'a BuildingBlock),
    /// A compiled computation of this type.
    Payload(&'a WirePayload, &'a Type),
}

/// What is known of a node's message.
struct Known<'a> {
    length: u64,
    /// What is in it beside names and nodes.
    content: Cow<'a, [u8]>,
    /// The member of `Computation` that a compiled computation is.
    language: u32,
    /// Where it begins in the output, once it is there.
    start: Cell<Option<usize>>,
}

/// Nodes by their addresses.
type Table<'a> = FxHashMap<usize, Known<'a>>;

/// What is left to write.
enum Step<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Node(Node<'a>),
}

/// The message of a node.
pub fn encode(root: Node<'_>) -> Result<Vec<u8>> {
    let table = measure(root)?;
    let mut output = Vec::with_capacity(table[&root.address()].length as usize);
    // The last step is the next one.
    let mut steps = vec![Step::Node(root)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Varint(value) => encode_varint(value, &mut output),
            Step::Bytes(bytes) => output.extend_from_slice(bytes),
            Step::Node(node) => {
                let known = &table[&node.address()];
                if let Some(start) = known.start.get() {
                    output.extend_from_within(start..start + known.length as usize);
                    continue;
                }
                known.start.set(Some(output.len()));
                let first = steps.len();
                Description { table: &table, steps: &mut steps, length: 0 }.node(node, known);
                steps[first..].reverse();
            }
        }
    }
    Ok(output)
}

/// The lengths of a node and of all below it, each after those in it.
fn measure(root: Node<'_>) -> Result<Table<'_>> {
    let mut table: Table<'_> = FxHashMap::default();
    let mut nodes = vec![(root, false)];
    while let Some((node, ready)) = nodes.pop() {
        if table.contains_key(&node.address()) {
            continue;
        }
        if !ready {
            nodes.push((node, true));
            node.push_children(&mut nodes);
            continue;
        }
        let mut known = node.unmeasured()?;
        let mut steps = Vec::new();
        let mut description = Description { table: &table, steps: &mut steps, length: 0 };
        description.node(node, &known);
        known.length = description.length;
        if known.length > MAX_LENGTH {
            return Err(too_long());
        }
        table.insert(node.address(), known);
    }
    Ok(table)
}

impl<'a> Node<'a> {
    /// Different for different nodes.
    fn address(self) -> usize {
        match self {
            Self::Type(ty) => ty.address(),
            Self::Block(block) => block.address(),
            Self::Payload(payload, _) => std::ptr::from_ref(payload) as usize,
        }
    }

    /// Adds the nodes in it, as not yet ready.
    fn push_children(self, nodes: &mut Vec<(Self, bool)>) {
        match self {
            Self::Type(ty) => nodes.extend(ty.children().map(|ty| (Self::Type(ty), false))),
            Self::Block(block) => {
                nodes.push((Self::Type(block.ty()), false));
                let children = block.children().into_iter();
                nodes.extend(children.map(|block| (Self::Block(block), false)));
            }
            Self::Payload(_, ty) => nodes.push((Self::Type(ty), false)),
        }
    }

    /// What has to be known of it before it can be described.
    fn unmeasured(self) -> Result<Known<'a>> {
        let mut language = 0;
        let content = match self {
            Self::Type(ty) => match ty.as_tensor() {
                Some(tensor) => {
                    let mut dims = Vec::new();
                    for &dim in tensor.shape.dims().unwrap_or_default() {
                        encode_varint(wire_dim(dim)? as u64, &mut dims);
                    }
                    Cow::Owned(dims)
                }
                None => Cow::default(),
            },
            Self::Block(block) => match block.kind() {
                BlockKind::Literal(array) => Cow::Owned(array::encode(array)?),
                BlockKind::Compiled(compiled) => {
                    let payload = compiled.payload.to_wire()?;
                    language = payload.language as u32;
                    Cow::Owned(payload.bytes.to_vec())
                }
                _ => Cow::default(),
            },
            Self::Payload(payload, _) => {
                language = payload.language as u32;
                Cow::Borrowed(&*payload.bytes)
            }
        };
        Ok(Known { length: 0, content, language, start: Cell::new(None) })
    }
}

/// The steps that write a node, in their order, and the length of what they write.
struct Description<'s, 'a> {
    table: &'a Table<'a>,
    steps: &'s mut Vec<Step<'a>>,
    length: u64,
}

impl<'a> Description<'_, 'a> {
    fn varint(&mut self, value: u64) {
        self.steps.push(Step::Varint(value));
        self.length += encoded_len_varint(value) as u64;
    }

    fn key(&mut self, number: u32, wire: WireType) {
        self.varint(u64::from(number << 3 | wire as u32));
    }

    /// A field of bytes or text, empty or not.
    fn bytes(&mut self, number: u32, bytes: &'a [u8]) {
        self.key(number, WireType::LengthDelimited);
        self.varint(bytes.len() as u64);
        self.steps.push(Step::Bytes(bytes));
        self.length += bytes.len() as u64;
    }

    /// A field of bytes or text, left out where it is empty.
    fn some_bytes(&mut self, number: u32, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            self.bytes(number, bytes);
        }
    }

    /// A field of a number, left out where it is zero.
    fn some_number(&mut self, number: u32, value: u64) {
        if value != 0 {
            self.key(number, WireType::Varint);
            self.varint(value);
        }
    }

    /// A field that holds the message of another node.
    fn child(&mut self, number: u32, node: Node<'a>) {
        let length = self.table[&node.address()].length;
        self.key(number, WireType::LengthDelimited);
        self.varint(length);
        self.steps.push(Step::Node(node));
        self.length += length;
    }

    /// A field that holds a message with these fields.
    fn message(&mut self, number: u32, fields: impl FnOnce(&mut Self)) {
        self.key(number, WireType::LengthDelimited);
        let place = self.steps.len();
        self.steps.push(Step::Varint(0));
        let before = self.length;
        fields(self);
        let length = self.length - before;
        self.steps[place] = Step::Varint(length);
        self.length += encoded_len_varint(length) as u64;
    }

    fn ty(&mut self, number: u32, ty: &'a Type) {
        self.child(number, Node::Type(ty));
    }

    fn block(&mut self, number: u32, block: &'a BuildingBlock) {
        self.child(number, Node::Block(block));
    }

    /// A field that holds a value with a name.
    fn named(&mut self, number: u32, name: &'a str, value: Node<'a>) {
        self.message(number, |element| {
            element.some_bytes(1, name.as_bytes());
            element.child(2, value);
        });
    }

    fn placement(&mut self, number: u32, placement: Placement) {
        self.message(number, |it| it.bytes(1, placement.uri().as_bytes()));
    }

    fn node(&mut self, node: Node<'a>, known: &'a Known<'a>) {
        match node {
            Node::Type(ty) => self.type_fields(ty, &known.content),
            Node::Block(block) => {
                self.ty(1, block.ty());
                self.block_fields(block, known);
            }
            Node::Payload(_, ty) => {
                self.ty(1, ty);
                self.bytes(known.language, &known.content);
            }
        }
    }

    /// The message `Type`.
    fn type_fields(&mut self, ty: &'a Type, dims: &'a [u8]) {
        match ty.kind() {
            TypeKind::Function(function) => self.message(1, |it| {
                if let Some(parameter) = &function.parameter {
                    it.ty(1, parameter);
                }
                it.ty(2, &function.result);
            }),
            TypeKind::Struct(structure) => self.message(2, |it| {
                for field in structure.fields() {
                    it.named(1, field.name.as_deref().unwrap_or(""), Node::Type(&field.ty));
                }
            }),
            TypeKind::Sequence(element) => self.message(3, |it| it.ty(1, element)),
            TypeKind::Tensor(tensor) => self.message(4, |it| {
                it.some_number(1, tensor.dtype.wire() as u64);
                it.some_bytes(2, dims);
                it.some_number(3, u64::from(tensor.shape.dims().is_none()));
            }),
            TypeKind::Abstract(label) => self.message(5, |it| it.some_bytes(1, label.as_bytes())),
            TypeKind::Placement => self.message(6, |_| {}),
            TypeKind::Federated(federated) => self.message(7, |it| {
                it.message(1, |spec| spec.placement(2, federated.placement));
                it.some_number(2, u64::from(federated.all_equal));
                it.ty(3, &federated.member);
            }),
        }
    }

    /// The message `Computation`, without the type.
    fn block_fields(&mut self, block: &'a BuildingBlock, known: &'a Known<'a>) {
        match block.kind() {
            BlockKind::Intrinsic(uri) => self.message(3, |it| it.some_bytes(1, uri.as_bytes())),
            BlockKind::Lambda(lambda) => self.message(4, |it| {
                if let Some((name, _)) = &lambda.parameter {
                    it.some_bytes(1, name.as_bytes());
                }
                it.block(2, &lambda.result);
            }),
            BlockKind::Block(block) => self.message(5, |it| {
                for (name, value) in &block.locals {
                    it.named(1, name, Node::Block(value));
                }
                it.block(2, &block.result);
            }),
            BlockKind::Reference(reference) => {
                self.message(6, |it| it.some_bytes(1, reference.name.as_bytes()));
            }
            BlockKind::Call(call) => self.message(7, |it| {
                it.block(1, &call.function);
                if let Some(argument) = &call.argument {
                    it.block(2, argument);
                }
            }),
            BlockKind::Struct(structure) => self.message(8, |it| {
                for (name, value) in &structure.elements {
                    it.named(1, name.as_deref().unwrap_or(""), Node::Block(value));
                }
            }),
            BlockKind::Selection(selection) => self.message(9, |it| {
                it.block(1, &selection.source);
                it.some_number(3, index(&selection.source, &selection.key));
            }),
            BlockKind::Data(data) => self.message(10, |it| {
                it.message(3, |any| {
                    any.some_bytes(1, data.type_url.as_bytes());
                    any.some_bytes(2, &data.value);
                });
            }),
            BlockKind::Placement(placement) => self.placement(11, *placement),
            BlockKind::Literal(_) => self.message(14, |it| it.bytes(1, &known.content)),
            BlockKind::Compiled(_) => self.bytes(known.language, &known.content),
        }
    }
}

/// The position that a key means: messages have no other.
fn index(source: &BuildingBlock, key: &Key) -> u64 {
    match key {
        Key::Index(index) => u64::from(*index),
        Key::Name(name) => {
            let position = source.ty().as_struct().and_then(|of| of.position(name));
            position.expect("a selection is checked when it is made") as u64
        }
    }
}

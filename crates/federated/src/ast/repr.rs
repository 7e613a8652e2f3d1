//! The tree as Python's `repr` shows it: the calls that make it.

use super::{BlockKind, BuildingBlock, Key};
use crate::array::Array;

/// What is left to print of a tree.
enum Step<'a> {
    Block(&'a BuildingBlock),
    Text(&'static str),
    Made(String),
}

impl BuildingBlock {
    /// As Python's `repr`: `Call(Reference('f', ...), ...)`. How an array is shown is up to
    /// whoever knows Python's numbers.
    pub fn repr(&self, literal: &mut dyn FnMut(&Array) -> String) -> String {
        let mut text = String::new();
        // The last step is the next one.
        let mut steps = vec![Step::Block(self)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Text(piece) => text.push_str(piece),
                Step::Made(piece) => text.push_str(&piece),
                Step::Block(block) => {
                    let start = steps.len();
                    expand(block, literal, &mut steps);
                    steps[start..].reverse();
                }
            }
        }
        text
    }
}

/// Adds the texts of a block and the blocks in it, in the order of reading.
fn expand<'a>(
    block: &'a BuildingBlock,
    literal: &mut dyn FnMut(&Array) -> String,
    steps: &mut Vec<Step<'a>>,
) {
    let made = |text: String| Step::Made(text);
    let ty = || block.ty().repr();
    match block.kind() {
        BlockKind::Reference(reference) => {
            let context = reference.context.as_deref();
            let context = context.map(|context| format!(", {}", quoted(context)));
            let context = context.unwrap_or_default();
            let name = quoted(&reference.name);
            steps.push(made(format!("Reference({name}, {}{context})", ty())));
        }
        BlockKind::Selection(selection) => {
            steps.extend([Step::Text("Selection("), Step::Block(&selection.source)]);
            steps.push(made(match &selection.key {
                Key::Name(name) => format!(", name={})", quoted(name)),
                Key::Index(index) => format!(", index={index})"),
            }));
        }
        BlockKind::Struct(structure) => {
            steps.push(Step::Text("Struct(["));
            for (at, (name, value)) in structure.elements.iter().enumerate() {
                let comma = if at > 0 { ", " } else { "" };
                let name = name.as_deref().map_or_else(|| "None".to_owned(), quoted);
                steps.push(made(format!("{comma}({name}, ")));
                steps.extend([Step::Block(value), Step::Text(")")]);
            }
            steps.push(Step::Text("])"));
        }
        BlockKind::Call(call) => {
            steps.extend([Step::Text("Call("), Step::Block(&call.function)]);
            if let Some(argument) = &call.argument {
                steps.extend([Step::Text(", "), Step::Block(argument)]);
            }
            steps.push(Step::Text(")"));
        }
        BlockKind::Lambda(lambda) => {
            steps.push(match &lambda.parameter {
                Some((name, ty)) => made(format!("Lambda({}, {}, ", quoted(name), ty.repr())),
                None => Step::Text("Lambda(None, None, "),
            });
            steps.extend([Step::Block(&lambda.result), Step::Text(")")]);
        }
        BlockKind::Block(block) => {
            steps.push(Step::Text("Block(["));
            for (at, (name, value)) in block.locals.iter().enumerate() {
                let comma = if at > 0 { ", " } else { "" };
                steps.push(made(format!("{comma}({}, ", quoted(name))));
                steps.extend([Step::Block(value), Step::Text(")")]);
            }
            steps.extend([Step::Text("], "), Step::Block(&block.result), Step::Text(")")]);
        }
        BlockKind::Intrinsic(uri) => {
            steps.push(made(format!("Intrinsic({}, {})", quoted(uri), ty())));
        }
        BlockKind::Placement(placement) => {
            steps.push(made(format!("Placement('{}')", placement.uri())));
        }
        BlockKind::Literal(array) => {
            steps.push(made(format!("Literal({}, {})", literal(array), ty())));
        }
        BlockKind::Data(data) => {
            let (url, size) = (quoted(&data.type_url), data.value.len());
            steps.push(made(format!("Data(AnyMessage({url}, {size} bytes), {})", ty())));
        }
        BlockKind::Compiled(compiled) => {
            let name = quoted(&compiled.name);
            steps.push(made(format!("CompiledComputation({name}, {})", ty())));
        }
    }
}

/// A string as Python writes it.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c == quote => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push(quote);
    quoted
}

//! The tree as a line of text, and spread over several.

use std::borrow::Cow;
use std::fmt;

use super::{BlockKind, BuildingBlock, Key};

/// What is left to print of a tree.
enum Step<'a> {
    Block(&'a BuildingBlock),
    Text(Cow<'a, str>),
    /// In the spread form a line break, indented by as many steps more or less than before.
    Line(i8),
    /// In the form of one line, a blank.
    Blank,
}

impl BuildingBlock {
    /// The text over several lines: each field of a struct and each local on its own, indented by
    /// two.
    pub fn formatted(&self) -> String {
        let mut text = String::new();
        print(self, &mut text, true).expect("writing to a string");
        text
    }
}

impl fmt::Display for BuildingBlock {
    /// One line: `(x -> x[0])`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self, f, false)
    }
}

fn print(block: &BuildingBlock, f: &mut impl fmt::Write, lines: bool) -> fmt::Result {
    let mut depth = 0usize;
    // Blanks come with what they are before: there are none at the end of a line.
    let mut blanks = 0usize;
    // The last step is the next one.
    let mut steps = vec![Step::Block(block)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Text(text) => write!(f, "{:1$}{text}", "", std::mem::take(&mut blanks))?,
            Step::Line(_) if !lines => {}
            Step::Blank if lines => {}
            Step::Blank => f.write_char(' ')?,
            Step::Line(change) => {
                depth = depth.saturating_add_signed(change.into());
                f.write_char('\n')?;
                blanks = 2 * depth;
            }
            Step::Block(block) => {
                let start = steps.len();
                expand(block, &mut steps);
                steps[start..].reverse();
            }
        }
    }
    Ok(())
}

/// Adds the texts of a block and the blocks below it, in the order of reading.
fn expand<'a>(block: &'a BuildingBlock, steps: &mut Vec<Step<'a>>) {
    let text = |text: &'a str| Step::Text(Cow::Borrowed(text));
    match block.kind() {
        BlockKind::Reference(reference) => {
            steps.push(text(&reference.name));
            if let Some(context) = &reference.context {
                steps.extend([text("@"), text(context)]);
            }
        }
        BlockKind::Selection(selection) => {
            steps.push(Step::Block(&selection.source));
            match &selection.key {
                Key::Name(name) => steps.extend([text("."), text(name)]),
                Key::Index(index) => steps.push(Step::Text(Cow::Owned(format!("[{index}]")))),
            }
        }
        BlockKind::Struct(structure) => {
            steps.push(text("<"));
            for (at, (name, value)) in structure.elements.iter().enumerate() {
                if at > 0 {
                    steps.push(text(","));
                }
                steps.push(Step::Line(i8::from(at == 0)));
                if let Some(name) = name {
                    steps.extend([text(name), text("=")]);
                }
                steps.push(Step::Block(value));
            }
            if !structure.elements.is_empty() {
                steps.push(Step::Line(-1));
            }
            steps.push(text(">"));
        }
        BlockKind::Call(call) => {
            steps.extend([Step::Block(&call.function), text("(")]);
            steps.extend(call.argument.as_ref().map(Step::Block));
            steps.push(text(")"));
        }
        BlockKind::Lambda(lambda) => {
            let name = lambda.parameter.as_ref().map_or("", |(name, _)| name);
            steps.extend([text("("), text(name), text(" -> ")]);
            steps.extend([Step::Block(&lambda.result), text(")")]);
        }
        BlockKind::Block(block) => {
            steps.push(text("(let"));
            steps.push(Step::Blank);
            steps.push(Step::Line(1));
            for (at, (name, value)) in block.locals.iter().enumerate() {
                if at > 0 {
                    steps.extend([text(","), Step::Line(0)]);
                }
                steps.extend([text(name), text("="), Step::Block(value)]);
            }
            steps.push(Step::Line(-1));
            steps.extend([text(" in "), Step::Block(&block.result), text(")")]);
        }
        BlockKind::Intrinsic(uri) => steps.push(text(uri)),
        BlockKind::Placement(placement) => steps.push(text(placement.name())),
        BlockKind::Compiled(compiled) => steps.extend([text("comp#"), text(&compiled.name)]),
        BlockKind::Literal(array) => steps.push(Step::Text(Cow::Owned(array.to_string()))),
        BlockKind::Data(data) => {
            let address = data.value.as_ptr() as usize;
            steps.push(Step::Text(Cow::Owned(address.to_string())));
        }
    }
}

impl fmt::Debug for BuildingBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

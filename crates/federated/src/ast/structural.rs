//! The tree as a drawing:
//!
//! ```text
//!       Call
//!      /    \
//! Ref(f)      Ref(x)
//! ```

use std::borrow::Cow;
use std::collections::VecDeque;

use super::{BlockKind, BuildingBlock, Key};
use crate::Name;

/// At least so many blanks between parts that stand side by side, below their first lines.
const APART: i64 = 4;

/// A text and the column it starts at.
type Piece<'a> = (i64, Cow<'a, str>);

/// The drawing of a part of the tree. Its first line is never empty.
#[derive(Default)]
struct Drawing<'a> {
    /// From above, each from left to right. Columns count from `origin`.
    lines: VecDeque<VecDeque<Piece<'a>>>,
    /// The column that the whole is moved by; may be negative while it is being made.
    origin: i64,
}

impl BuildingBlock {
    /// The tree as a drawing, one line for each level, functions and locals to the left.
    pub fn structural(&self) -> String {
        enum Step<'a> {
            Visit(&'a BuildingBlock),
            Build(&'a BuildingBlock),
        }
        let mut steps = vec![Step::Visit(self)];
        let mut done: Vec<Drawing<'_>> = Vec::new();
        while let Some(step) = steps.pop() {
            match step {
                Step::Visit(block) => {
                    steps.push(Step::Build(block));
                    steps.extend(block.children().into_iter().rev().map(Step::Visit));
                }
                Step::Build(block) => {
                    let parts = done.split_off(done.len() - block.children().len());
                    done.push(draw(block, parts));
                }
            }
        }
        done.pop().expect("the whole tree").print()
    }
}

/// The drawing of a block from those of the blocks directly below it.
fn draw<'a>(block: &'a BuildingBlock, mut parts: Vec<Drawing<'a>>) -> Drawing<'a> {
    let mut below = || parts.pop().expect("a drawing for each child");
    match block.kind() {
        BlockKind::Reference(reference) => leaf(format!("Ref({})", reference.name)),
        BlockKind::Literal(array) => {
            // An array of several dimensions prints as several lines.
            let value = array.to_string();
            let words: Vec<&str> = value.lines().map(str::trim).collect();
            leaf(format!("Lit({})", words.join(" ")))
        }
        BlockKind::Placement(_) => leaf("Placement"),
        BlockKind::Intrinsic(uri) => leaf(&**uri),
        BlockKind::Compiled(compiled) => leaf(format!("Compiled({})", compiled.name)),
        BlockKind::Data(data) => leaf(format!("Data({})", data.value.as_ptr() as usize)),
        BlockKind::Selection(selection) => {
            let label = match &selection.key {
                Key::Name(name) => format!("Sel({name})"),
                Key::Index(index) => format!("Sel({index})"),
            };
            below().under(label)
        }
        BlockKind::Lambda(lambda) => {
            let name = lambda.parameter.as_ref().map_or("None", |(name, _)| name);
            below().under(format!("Lambda({name})"))
        }
        BlockKind::Struct(structure) => {
            let names = structure.elements.iter().map(|(name, _)| name.as_ref());
            row(names, parts).under("Struct")
        }
        BlockKind::Call(call) => {
            let argument = call.argument.as_ref().map(|_| below());
            fork("Call", below(), argument)
        }
        BlockKind::Block(block) => {
            let result = below();
            let names = block.locals.iter().map(|(name, _)| Some(name));
            fork("Block", row(names, parts), Some(result))
        }
    }
}

fn leaf<'a>(text: impl Into<Cow<'a, str>>) -> Drawing<'a> {
    let line = VecDeque::from([(0, text.into())]);
    Drawing { lines: VecDeque::from([line]), origin: 0 }
}

/// Drawings side by side, each after its name, in brackets.
fn row<'a>(names: impl Iterator<Item = Option<&'a Name>>, parts: Vec<Drawing<'a>>) -> Drawing<'a> {
    let mut row: Option<Drawing<'a>> = None;
    for (name, mut part) in names.zip(parts) {
        if let Some(name) = name {
            part.add_left(Cow::Owned(format!("{name}=")));
        }
        row = Some(match row {
            None => {
                part.add_left(Cow::Borrowed("["));
                part
            }
            Some(mut row) => {
                row.add_right(Cow::Borrowed(","));
                row.beside(part, 1).0
            }
        });
    }
    let mut row = row.unwrap_or_else(|| leaf("["));
    row.add_right(Cow::Borrowed("]"));
    row
}

/// One or two drawings below a label, with strokes to each.
fn fork<'a>(label: &'static str, left: Drawing<'a>, right: Option<Drawing<'a>>) -> Drawing<'a> {
    let slash = left.first_end();
    let mut strokes = vec![(slash, "/")];
    let mut both = match right {
        None => left,
        Some(right) => {
            // The strokes stand in the gap too.
            let (both, start) = left.beside(right, width(label) + 2);
            strokes.push((start - 1, "\\"));
            both
        }
    };
    both.put_above(strokes);
    both.put_above([(slash + 1, label)]);
    both
}

fn width(text: &str) -> i64 {
    text.chars().count() as i64
}

fn end((column, text): &Piece<'_>) -> i64 {
    column + width(text)
}

impl<'a> Drawing<'a> {
    /// Where the ink of the first line begins.
    fn first_start(&self) -> i64 {
        self.origin + self.lines[0].front().expect("a first line isn't empty").0
    }

    /// Where the ink of the first line ends.
    fn first_end(&self) -> i64 {
        self.origin + end(self.lines[0].back().expect("a first line isn't empty"))
    }

    /// A line above the first one.
    fn put_above<T: Into<Cow<'a, str>>>(&mut self, pieces: impl IntoIterator<Item = (i64, T)>) {
        let origin = self.origin;
        let pieces = pieces.into_iter().map(|(column, text)| (column - origin, text.into()));
        self.lines.push_front(pieces.collect());
    }

    /// The drawing below a label and a stroke, which stand above the first ink.
    fn under(mut self, label: impl Into<Cow<'a, str>>) -> Self {
        let column = self.first_start();
        self.put_above([(column, "|")]);
        self.put_above([(column, label)]);
        self
    }

    /// A text directly before the first line.
    fn add_left(&mut self, text: Cow<'a, str>) {
        let column = self.first_start() - self.origin - width(&text);
        self.lines[0].push_front((column, text));
    }

    /// A text directly behind the first line.
    fn add_right(&mut self, text: Cow<'a, str>) {
        let column = self.first_end() - self.origin;
        self.lines[0].push_back((column, text));
    }

    /// Both, the other one to the right: in the first lines with `gap` blanks between or more.
    /// Also where the first line of the other one begins.
    ///
    /// What stands to one side of the other's lower lines is moved, whichever is less; so drawing
    /// takes no longer than printing, nearly.
    fn beside(self, mut right: Self, gap: i64) -> (Self, i64) {
        let lines = self.lines.iter().zip(&right.lines).enumerate();
        let needed = lines.filter_map(|(at, (ours, theirs))| {
            let end = self.origin + end(ours.back()?);
            let start = right.origin + theirs.front()?.0;
            Some(end + if at == 0 { gap } else { APART } - start)
        });
        right.origin += needed.max().expect("first lines");
        let start = right.first_start();
        let ours_are_more = self.lines.len() >= right.lines.len();
        let (mut tall, short) = if ours_are_more { (self, right) } else { (right, self) };
        let shift = short.origin - tall.origin;
        for (into, from) in tall.lines.iter_mut().zip(short.lines) {
            let from = from.into_iter().map(|(column, text)| (column + shift, text));
            if ours_are_more {
                into.extend(from);
            } else {
                from.rev().for_each(|piece| into.push_front(piece));
            }
        }
        (tall, start)
    }

    /// The lines, without blanks at their ends, so far to the right that all fits.
    fn print(&self) -> String {
        let starts = self.lines.iter().filter_map(|line| line.front());
        let left = starts.map(|(column, _)| *column).min().unwrap_or_default();
        let mut text = String::new();
        for (at, line) in self.lines.iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            let mut column = left;
            for piece in line {
                text.extend(std::iter::repeat_n(' ', (piece.0 - column) as usize));
                text.push_str(&piece.1);
                column = end(piece);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::ast::BuildingBlock;
    use crate::dtype::DType;
    use crate::types::Type;

    #[test]
    fn deep_trees_are_drawn_in_one_column() {
        const DEPTH: usize = 100_000;
        let mut tree = BuildingBlock::reference("x", Type::scalar(DType::Int32));
        for _ in 0..DEPTH {
            tree = BuildingBlock::lambda(None, tree);
        }
        let drawing = tree.structural();
        assert_eq!(drawing.lines().count(), 2 * DEPTH + 1);
        assert!(drawing.ends_with("|\nRef(x)"));
    }
}

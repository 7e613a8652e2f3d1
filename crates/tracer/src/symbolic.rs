//! The symbolic facts of an entry: which numbers it reads from what its sources hold, and the
//! compiled conditions on them.

use pyo3::types::{PyFloat, PyInt};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use stator_cpython::heap::tensor;
use stator_cpython::heap::twister::{self, Draw, Drawn};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{SourceId, refused};
use stator_shapes::Program;

/// A number that a symbol stands for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// Where the object is found.
    pub source: SourceId,
    /// What of it.
    pub part: Part,
}

/// What of an object is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// An int itself.
    Integer,
    /// A float itself.
    Float,
    /// A size of a tensor.
    Size(usize),
    /// A stride of a tensor.
    Stride(usize),
    /// Where in its storage a tensor begins.
    Offset,
    /// No part: data decides it in the middle of the trace. An entry has none.
    Middle,
    /// What a random generator gives after so many words of its own.
    Drawn(u32, #[serde(with = "refused")] Draw),
}

/// A fact, compiled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fact {
    /// The guard that says it; none for bounds that go without saying.
    pub guard: Option<usize>,
    /// As it prints.
    pub text: String,
    /// The condition.
    pub program: Program,
}

/// What an entry knows of symbols.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Symbolic {
    /// One slot for each symbol.
    pub slots: Box<[Slot]>,
    /// How each slot's source and part print.
    pub names: Box<[String]>,
    /// What the `dynamic` log calls each: `s0`, `s1`, ... where it has such a name.
    pub short: Box<[String]>,
    /// Whether all facts hold.
    pub program: Program,
    /// The facts, each by itself, for messages.
    pub facts: Box<[Fact]>,
    /// Sizes among the graph's inputs: their positions there, ascending, and their slots.
    pub inputs: Box<[(usize, usize)]>,
    /// What the `dynamic` log says of the trace. Facts are there if it's on or sizes are marked.
    pub log: Vec<String>,
}

/// The numbers of one call.
#[derive(Default)]
pub struct Numbers {
    integers: SmallVec<[i64; 8]>,
    floats: SmallVec<[f64; 8]>,
}

impl Part {
    /// The integer in an object; `None` if there is none of 64 bits, or it's a float.
    pub fn integer(self, object: Borrowed<'_, '_>) -> Option<i64> {
        match self {
            Self::Integer => object.extract().ok(),
            Self::Size(index) => tensor::size(object, index),
            Self::Stride(index) => tensor::stride(object, index),
            Self::Offset => tensor::info(object).map(|info| info.storage_offset),
            Self::Drawn(skipped, draw) => match twister::peek(object, skipped, draw)? {
                Drawn::Integer(number) => Some(number),
                Drawn::Float(_) => None,
            },
            Self::Float | Self::Middle => None,
        }
    }

    /// The float in an object; `None` if there is none.
    pub fn float(self, object: Borrowed<'_, '_>) -> Option<f64> {
        match self {
            Self::Float => object.extract().ok(),
            Self::Drawn(skipped, draw) => match twister::peek(object, skipped, draw)? {
                Drawn::Float(number) => Some(number),
                Drawn::Integer(_) => None,
            },
            _ => None,
        }
    }

    /// Whether the number is a float.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Drawn(_, Draw::Float))
    }

    /// How the number prints that is this of an object.
    pub fn print(self, object: String) -> String {
        match self {
            Self::Stride(index) => format!("{object}.stride()[{index}]"),
            Self::Size(index) => format!("{object}.size()[{index}]"),
            Self::Offset => format!("{object}.storage_offset()"),
            Self::Integer | Self::Float | Self::Middle => object,
            Self::Drawn(skipped, Draw::Float) => format!("{object}.random()[{skipped}]"),
            Self::Drawn(skipped, Draw::Bits(bits)) => {
                format!("{object}.getrandbits({bits})[{skipped}]")
            }
        }
    }
}

impl Slot {
    /// The number in what its source holds, as an object of its own.
    pub fn number<'py>(&self, object: &Object<'py>) -> Option<Object<'py>> {
        let py = object.py();
        if self.part.is_float() {
            let number = self.part.float(object.as_borrowed())?;
            return Some(PyFloat::new(py, number).into_any());
        }
        Some(PyInt::new(py, self.integer(object)?).into_any())
    }

    /// The integer in what its source holds; `None` if there is none of 64 bits, or it's a float.
    pub fn integer(&self, object: &Object<'_>) -> Option<i64> {
        self.part.integer(object.as_borrowed())
    }
}

impl Symbolic {
    /// The numbers in the objects that the slots' sources hold; `None` where one doesn't fit.
    pub fn read(&self, objects: &[Object<'_>]) -> Option<Numbers> {
        let mut numbers = Numbers::default();
        for (slot, object) in self.slots.iter().zip(objects) {
            let (integer, float) = match slot.part.is_float() {
                true => (0, slot.part.float(object.as_borrowed())?),
                false => (slot.integer(object)?, 0.0),
            };
            numbers.integers.push(integer);
            numbers.floats.push(float);
        }
        Some(numbers)
    }

    /// Whether all facts hold.
    #[inline]
    pub fn holds(&self, numbers: &Numbers) -> bool {
        self.program.check(&numbers.integers, &numbers.floats)
    }

    /// The first fact that doesn't hold.
    pub fn failing(&self, numbers: &Numbers) -> Option<&Fact> {
        let holds = |fact: &&Fact| !fact.program.check(&numbers.integers, &numbers.floats);
        self.facts.iter().find(holds)
    }

    /// The numbers, printed.
    pub fn describe(&self, numbers: &Numbers) -> String {
        let mut text = String::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            let value = match slot.part.is_float() {
                true => numbers.floats[index].to_string(),
                false => numbers.integers[index].to_string(),
            };
            text += &format!("{separator}{} = {value}", self.names[index]);
        }
        text
    }
}

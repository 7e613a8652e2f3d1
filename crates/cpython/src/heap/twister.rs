//! The state of `random.Random` objects: Mersenne twisters, whose next numbers are foretold and which are moved
//! on in place, without a call.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use super::Any;
use crate::{generic, modules};

/// Words of state.
const STATE: usize = 624;
/// How far apart the words are that are mixed.
const MIDDLE: usize = 397;
/// Where `_randommodule.c` has the number of words that were used, and the words behind it.
const INDEX: usize = 16;

/// A generator's state.
#[derive(Clone, PartialEq, Eq)]
pub struct Twister {
    words: Box<[u32; STATE]>,
    used: usize,
}

/// A number that a generator gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// `random()`: a float of two words.
    Float,
    /// `getrandbits(k)`, for 1 to 32 bits: an int of one word.
    Bits(u8),
}

/// What was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drawn {
    /// A float.
    Float(f64),
    /// An int.
    Integer(i64),
}

impl Draw {
    /// How many words it takes.
    #[must_use]
    pub fn words(self) -> u32 {
        match self {
            Self::Float => 2,
            Self::Bits(_) => 1,
        }
    }

    fn of(self, mut next: impl FnMut() -> u32) -> Drawn {
        match self {
            Self::Float => {
                let (high, low) = (f64::from(next() >> 5), f64::from(next() >> 6));
                Drawn::Float((high * 67_108_864.0 + low) * (1.0 / 9_007_199_254_740_992.0))
            }
            Self::Bits(bits) => Drawn::Integer(i64::from(next() >> (32 - u32::from(bits)))),
        }
    }
}

impl Twister {
    /// The state of a generator; `None`: it is none, or no twister that this knows.
    #[must_use]
    pub fn of(generator: Any<'_, '_>) -> Option<Self> {
        is_known(generator).then(|| Self::read(generator))
    }

    fn read(generator: Any<'_, '_>) -> Self {
        // SAFETY: an instance of `_random.Random`, whose struct begins with the index and the words. Nothing
        // else writes there while the GIL is held.
        unsafe {
            let at = generator.as_ptr().cast::<u8>().add(INDEX);
            let used = at.cast::<i32>().read();
            let words = Box::new(at.add(4).cast::<[u32; STATE]>().read());
            Self { words, used: usize::try_from(used).unwrap_or(STATE) }
        }
    }

    /// Gives a generator this state; false: it is none.
    #[must_use]
    pub fn write(&self, generator: Any<'_, '_>) -> bool {
        if !is_known(generator) {
            return false;
        }
        // SAFETY: as in `read`.
        unsafe {
            let at = generator.as_ptr().cast::<u8>().add(INDEX);
            at.cast::<i32>().write(i32::try_from(self.used).expect("at most 624"));
            at.add(4).cast::<[u32; STATE]>().write(*self.words);
        }
        true
    }

    /// Moves on by so many words.
    pub fn skip(&mut self, words: u32) {
        for _ in 0..words {
            self.next();
        }
    }

    /// What is drawn next.
    pub fn draw(&mut self, draw: Draw) -> Drawn {
        draw.of(|| self.next())
    }

    fn next(&mut self) -> u32 {
        if self.used >= STATE {
            self.mix();
        }
        let word = self.words[self.used];
        self.used += 1;
        tempered(word)
    }

    fn mix(&mut self) {
        let words = &mut self.words;
        for at in 0..STATE {
            let both = (words[at] & 0x8000_0000) | (words[(at + 1) % STATE] & 0x7fff_ffff);
            let odd = if both & 1 == 1 { 0x9908_b0df } else { 0 };
            words[at] = words[(at + MIDDLE) % STATE] ^ (both >> 1) ^ odd;
        }
        self.used = 0;
    }
}

fn tempered(mut word: u32) -> u32 {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c_5680;
    word ^= (word << 15) & 0xefc6_0000;
    word ^ (word >> 18)
}

/// Whether an object is a generator whose state can be read.
#[must_use]
pub fn is_known(generator: Any<'_, '_>) -> bool {
    class(generator.py()).is_some_and(|class| class.is_known(generator))
}

/// What a generator gives after so many words. `None`: it is no generator that this knows.
#[must_use]
pub fn peek(generator: Any<'_, '_>, skipped: u32, draw: Draw) -> Option<Drawn> {
    if !is_known(generator) {
        return None;
    }
    // SAFETY: as in `Twister::read`.
    let used = unsafe { generator.as_ptr().cast::<u8>().add(INDEX).cast::<i32>().read() };
    let first = usize::try_from(used).ok()?.checked_add(skipped as usize)?;
    if first + draw.words() as usize > STATE {
        let mut twister = Twister::read(generator);
        twister.skip(skipped);
        return Some(twister.draw(draw));
    }
    let mut at = first;
    Some(draw.of(|| {
        // SAFETY: as in `Twister::read`; fewer words are asked for than are left.
        let word = unsafe {
            let words = generator.as_ptr().cast::<u8>().add(INDEX + 4).cast::<u32>();
            words.add(at).read()
        };
        at += 1;
        tempered(word)
    }))
}

/// `_random.Random`, if its instances are laid out as this module reads them.
struct Class(Py<PyType>);

impl Class {
    fn is_known(&self, generator: Any<'_, '_>) -> bool {
        generic::is_of_class(generator, self.0.bind(generator.py()).as_any())
    }
}

/// The first call imports `_random`, and compares a generator with what it says of itself.
fn class(py: Python<'_>) -> Option<&'static Class> {
    static CLASS: PyOnceLock<Option<Class>> = PyOnceLock::new();
    let find = || -> PyResult<Option<Class>> {
        let class = modules::import(py, "_random")?.getattr("Random")?.cast_into::<PyType>()?;
        let size: usize = class.getattr("__basicsize__")?.extract()?;
        if size < INDEX + 4 + STATE * 4 {
            return Ok(None);
        }
        let one = class.call1((5,))?;
        for _ in 0..3 {
            one.call_method0("random")?;
        }
        let said: Vec<u32> = one.call_method0("getstate")?.cast::<PyTuple>()?.extract()?;
        let mut found = Twister::read(one.as_borrowed());
        let fits = said.len() == STATE + 1
            && found.words[..] == said[..STATE]
            && found.used == said[STATE] as usize
            && found.used < STATE
            && found.draw(Draw::Float) == Drawn::Float(one.call_method0("random")?.extract()?);
        Ok(fits.then(|| Class(class.unbind())))
    };
    CLASS.get_or_init(py, || find().unwrap_or(None)).as_ref()
}

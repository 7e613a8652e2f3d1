//! Building something from a nested Python object, bottom up and without recursion: objects nest
//! as deeply as users like.

use std::fmt::Write;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_federated::Name;

/// What an object is.
pub enum Step<'py, N, T> {
    /// Nothing nested: this is made of it.
    Leaf(T),
    /// Something with these objects in it, and what is needed to close it.
    Open(N, Vec<Bound<'py, PyAny>>),
}

/// An object whose parts are being built.
pub struct Frame<'py, N, T> {
    /// What opening it left for closing it.
    pub node: N,
    address: usize,
    /// What is left to build, last first.
    left: Vec<Bound<'py, PyAny>>,
    /// What has been built.
    done: Vec<T>,
}

impl<N, T> Frame<'_, N, T> {
    /// The position of the part that is being built.
    pub fn at(&self) -> usize {
        self.done.len()
    }
}

/// Opens `root` and all that is in it, and closes each when its parts are built.
///
/// # Errors
/// `ValueError` if an object is in itself; and what `open` and `close` raise. `open` gets the
/// frames around an object, for its messages.
pub fn build<'py, N, T>(
    root: &Bound<'py, PyAny>,
    mut open: impl FnMut(&Bound<'py, PyAny>, &[Frame<'py, N, T>]) -> PyResult<Step<'py, N, T>>,
    mut close: impl FnMut(N, Vec<T>) -> PyResult<T>,
) -> PyResult<T> {
    let mut frames: Vec<Frame<'py, N, T>> = Vec::new();
    let mut inside: FxHashSet<usize> = FxHashSet::default();
    let mut next = root.clone();
    loop {
        let address = next.as_ptr() as usize;
        let mut built = None;
        match open(&next, &frames)? {
            Step::Leaf(leaf) => built = Some(leaf),
            Step::Open(node, mut left) => {
                if !inside.insert(address) {
                    return Err(PyValueError::new_err("an object contains itself"));
                }
                left.reverse();
                let done = Vec::with_capacity(left.len());
                frames.push(Frame { node, address, left, done });
            }
        }
        // Upwards, until an object has a part left.
        loop {
            let Some(top) = frames.last_mut() else {
                return Ok(built.expect("only a leaf leaves no frame"));
            };
            top.done.extend(built.take());
            if let Some(part) = top.left.pop() {
                next = part;
                break;
            }
            let top = frames.pop().expect("there is a last one");
            inside.remove(&top.address);
            built = Some(close(top.node, top.done)?);
            if frames.is_empty() {
                return Ok(built.expect("it was just closed"));
            }
        }
    }
}

/// Where a part stands, as one would select it: `['a'][0]`. `name` gives the names of parts.
pub fn path<'a, 'py, N, T>(
    frames: &'a [Frame<'py, N, T>],
    name: impl Fn(&'a N, usize) -> Option<&'a Name>,
) -> String {
    let mut text = String::new();
    for frame in frames {
        let written = match name(&frame.node, frame.at()) {
            Some(name) => write!(text, "['{name}']"),
            None => write!(text, "[{}]", frame.at()),
        };
        written.expect("writing to a string");
    }
    text
}

//! Laying arguments out as the System V ABI for x86-64 and PyTorch's types want them.
//!
//! What doesn't change is laid out once; what comes from operands is put in at each call.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use smallvec::SmallVec;

use super::entering::{FLOATS, IN_REGISTERS, Laid, ON_STACK};
use super::number::{Number, int};
use super::runtime::Runtime;
use super::signature::Signature;
use super::spare::Spare;
use super::values::{Seen, Value};
use super::wrapped::Wrapped;
use super::{Constant, Given, Gives, Indexed, Kind, Operator};
use crate::heap::tensor;
use crate::heap::torch::{self, Torch};
use crate::object::{Borrowed, Object};

/// A call of an operator, laid out but for its operands.
#[derive(Debug)]
pub(super) struct Call {
    function: *const c_void,
    runtime: &'static Runtime,
    laid: Laid,
    operands: SmallVec<[Slot; 4]>,
    /// What the words of `laid` point to.
    kept: Vec<Box<[u128]>>,
    /// Tensors that stand for numbers, and the words that point to them.
    wrapped: SmallVec<[(u8, Wrapped); 1]>,
    gives: Gives,
    /// Whether an operand that is a number may be given for a tensor: not once a tensor made of one was kept.
    takes_numbers: AtomicBool,
    /// If the types of tensors have to be as they were: their versions.
    versions: Option<[u32; 2]>,
}

// SAFETY: what it points to is its own, or a function or a constant of PyTorch's.
unsafe impl Send for Call {}
// SAFETY: as above; nothing is written after it was made.
unsafe impl Sync for Call {}

/// An argument that comes from operands.
#[derive(Debug)]
struct Slot {
    kind: Kind,
    /// The first of its words.
    word: u8,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Operand(u8),
    Ints(Box<[Result<i64, usize>]>),
    Dimension(Indexed),
}

/// How many words of each kind are taken.
#[derive(Default)]
struct Taken {
    registers: usize,
    stack: usize,
    floats: usize,
}

impl Taken {
    /// The first of so many words, which lie together.
    fn words(&mut self, count: usize) -> Option<usize> {
        if self.registers + count <= IN_REGISTERS {
            self.registers += count;
            return Some(self.registers - count);
        }
        self.on_stack(count)
    }

    fn on_stack(&mut self, count: usize) -> Option<usize> {
        self.stack += count;
        (self.stack <= ON_STACK).then(|| IN_REGISTERS + self.stack - count)
    }

    fn float(&mut self) -> Option<usize> {
        self.floats += 1;
        (self.floats <= FLOATS).then(|| self.floats - 1)
    }
}

/// Memory for what arguments of one call point to.
struct Scratch {
    words: MaybeUninit<[u128; 64]>,
    used: usize,
}

impl Scratch {
    fn new() -> Self {
        Self { words: MaybeUninit::uninit(), used: 0 }
    }

    /// A place for so many words of 8 bytes, at a multiple of 16; `None`: there is no more.
    #[inline]
    fn take(&mut self, words: usize) -> Option<*mut u64> {
        let start = self.used;
        let end = start + words.div_ceil(2);
        if end > 64 {
            return None;
        }
        self.used = end;
        // SAFETY: within the array.
        Some(unsafe { self.words.as_mut_ptr().cast::<u128>().add(start).cast() })
    }

    /// Puts words there; their address.
    #[inline]
    fn put(&mut self, words: &[u64]) -> Option<u64> {
        let place = self.take(words.len())?;
        // SAFETY: so many words were taken.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), place, words.len()) };
        Some(place as u64)
    }
}

fn boolean(py: Python<'_>, value: bool) -> Object<'_> {
    PyBool::new(py, value).to_owned().into_any()
}

/// The words of a `Scalar`: a tag, and a value that may be as large as a complex number.
fn scalar(number: Number) -> [u64; 4] {
    let (tag, value) = number.parts();
    [tag, 0, value, 0]
}

impl Call {
    /// As [`super::Call::new`].
    pub(super) fn new(
        operator: &Operator,
        arguments: &[(Kind, Given)],
        by_type: bool,
    ) -> Option<Self> {
        let signature = Signature::of(operator)?;
        let mut call = Self {
            function: signature.address,
            runtime: Runtime::get()?,
            laid: Laid::default(),
            operands: SmallVec::new(),
            kept: Vec::new(),
            wrapped: SmallVec::new(),
            gives: operator.gives,
            takes_numbers: AtomicBool::new(operator.takes_numbers),
            versions: match by_type {
                true => Some(Python::attach(|py| torch::get(py)?.versions(py))?),
                false => None,
            },
        };
        let kinds = signature.parameters.iter();
        // It is handed over in front, where the place of a result would be.
        let (arguments, kinds) = match (operator.gives, arguments) {
            (Gives::Itself, [(Kind::Tensor, Given::Operand(0)), rest @ ..]) => (rest, kinds),
            (Gives::Truth, [(Kind::Tensor, Given::Operand(0)), rest @ ..]) => {
                (rest, kinds.as_slice().strip_prefix(&[Kind::Tensor])?.iter())
            }
            (Gives::Itself | Gives::Truth, _) => return None,
            _ => (arguments, kinds),
        };
        if !arguments.iter().map(|(kind, _)| kind).eq(kinds) {
            return None;
        }
        let mut taken = Taken::default();
        for (kind, given) in arguments {
            call.lay(&mut taken, *kind, given)?;
        }
        Some(call)
    }

    fn lay(&mut self, taken: &mut Taken, kind: Kind, given: &Given) -> Option<()> {
        let word = match kind {
            Kind::Tensors | Kind::Ints | Kind::OptionalInt | Kind::Text => taken.words(2)?,
            // A class of 24 bytes that is copied as it is.
            Kind::OptionalInts => taken.on_stack(3)?,
            Kind::Float => taken.float()?,
            Kind::OptionalFloat => {
                let Given::Constant(constant) = given else { return None };
                let (value, has) = match constant {
                    Constant::Nothing => (0.0, false),
                    constant => (constant.float()?, true),
                };
                // A value and a flag: each in a register of its kind, or both on the stack.
                if taken.registers == IN_REGISTERS {
                    let word = taken.on_stack(2)?;
                    self.laid.words[word] = value.to_bits();
                    self.laid.words[word + 1] = u64::from(has);
                } else {
                    self.laid.floats[taken.float()?] = value;
                    self.laid.words[taken.words(1)?] = u64::from(has);
                }
                return Some(());
            }
            _ => taken.words(1)?,
        };
        let source = match given {
            Given::Constant(constant) => return self.constant(word, kind, constant),
            Given::Wrapped(number) => return self.wrap(word, kind, *number),
            Given::Operand(operand) => Source::Operand(u8::try_from(*operand).ok()?),
            Given::Ints(items) => Source::Ints(items.as_slice().into()),
            Given::Dimension(indexed) if kind == Kind::Int => Source::Dimension(*indexed),
            Given::Dimension(_) => return None,
        };
        self.operands.push(Slot { kind, word: word as u8, source });
        Some(())
    }

    fn constant(&mut self, word: usize, kind: Kind, constant: &Constant) -> Option<()> {
        let optional = |has: bool, value: u64| [value, u64::from(has)];
        let first = match (kind, constant) {
            (Kind::Bool, Constant::Bool(value)) => u64::from(*value),
            // `{bool, bool}`: the value, and whether there is one.
            (Kind::OptionalBool, Constant::Bool(value)) => u64::from(*value) | 1 << 8,
            (Kind::OptionalBool | Kind::OptionalCode, Constant::Nothing) => 0,
            (Kind::Int, Constant::Int(value)) => *value as u64,
            (Kind::OptionalInt, Constant::Nothing) => 0,
            (Kind::OptionalInt, Constant::Int(value)) => {
                self.laid.words[word + 1] = 1;
                *value as u64
            }
            (Kind::Size, Constant::Int(value)) => self.keep(&[*value as u64]),
            (Kind::OptionalSize, Constant::Nothing) => self.keep(&optional(false, 0)),
            (Kind::OptionalSize, Constant::Int(value)) => self.keep(&optional(true, *value as u64)),
            (Kind::OptionalTensor, Constant::Nothing) => self.keep(&optional(false, 0)),
            (Kind::Scalar, Constant::Number(number)) => self.keep(&scalar(*number)),
            (Kind::OptionalScalar, Constant::Nothing) => self.keep(&[0; 6]),
            (Kind::OptionalScalar, Constant::Number(number)) => {
                let [tag, gap, value, rest] = scalar(*number);
                self.keep(&[tag, gap, value, rest, 1, 0])
            }
            (Kind::Float, constant) => {
                self.laid.floats[word] = constant.float()?;
                return Some(());
            }
            (Kind::Ints | Kind::OptionalInts, Constant::Ints(values)) => {
                let words: Vec<u64> = values.iter().map(|value| *value as u64).collect();
                self.laid.words[word + 1] = words.len() as u64;
                if kind == Kind::OptionalInts {
                    self.laid.words[word + 2] = 1;
                }
                self.keep(&words)
            }
            (Kind::OptionalInts, Constant::Nothing) => 0,
            (Kind::Text, Constant::Text(text)) => {
                // `std::string_view`: the length, then the address.
                let mut words = vec![0_u64; text.len().div_ceil(8)];
                for (index, byte) in text.bytes().enumerate() {
                    words[index / 8] |= u64::from(byte) << (8 * (index % 8));
                }
                self.laid.words[word + 1] = self.keep(&words);
                text.len() as u64
            }
            _ => return None,
        };
        self.laid.words[word] = first;
        Some(())
    }

    /// A tensor that stands for a number: PyTorch's own function makes it.
    fn wrap(&mut self, word: usize, kind: Kind, number: Number) -> Option<()> {
        if kind != Kind::Tensor {
            return None;
        }
        let wrapped = Python::attach(|py| Wrapped::new(py, number))?;
        self.laid.words[word] = wrapped.place();
        self.wrapped.push((word as u8, wrapped));
        Some(())
    }

    /// Keeps words for as long as the call; their address.
    fn keep(&mut self, words: &[u64]) -> u64 {
        let mut kept = vec![0_u128; words.len().div_ceil(2).max(1)].into_boxed_slice();
        let place = kept.as_mut_ptr().cast::<u64>();
        // SAFETY: there is room for them.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), place, words.len()) };
        self.kept.push(kept);
        place as u64
    }

    /// As [`super::Call::run`].
    #[inline]
    pub(super) fn run<'py>(
        &self,
        py: Python<'py>,
        operands: &[Seen<'_, 'py>],
    ) -> Option<PyResult<Value<'py>>> {
        let torch = torch::get(py)?;
        let has_types = self.versions.is_none_or(|versions| torch.has_versions(versions));
        if !has_types || self.runtime.has_modes() {
            return None;
        }
        let is_dispatched = self.runtime.is_dispatched();
        let mut laid = self.laid;
        let mut scratch = Scratch::new();
        let mut number = None;
        for slot in &self.operands {
            if slot.put(torch, operands, &mut laid, &mut scratch).is_none() {
                let is_another = number.replace(self.number(slot, operands)?).is_some();
                if is_another || is_dispatched {
                    return None;
                }
            }
        }
        let first = match self.gives {
            Gives::Itself | Gives::Truth => Some(handle(torch, operands[0])?),
            Gives::Tensor | Gives::Number => None,
        };
        let spare = match number {
            Some((word, number)) => {
                let tensor = self.only_tensor(&laid, first, Some(word))?;
                // SAFETY: the address of an `at::Tensor`, which its owner keeps.
                let spare = unsafe { Spare::take(py, torch, tensor, number)? };
                laid.words[usize::from(word)] = spare.place();
                Some(spare)
            }
            None => None,
        };
        if let [(word, wrapped)] = &self.wrapped[..]
            && !is_dispatched
            && let Some(tensor) = self.only_tensor(&laid, first, None)
            // SAFETY: the address of an `at::Tensor`, which its owner keeps.
            && let Some(place) = unsafe { wrapped.place_beside(py, torch, tensor) }
        {
            laid.words[usize::from(*word)] = place;
        }
        let made = self.enter(py, torch, operands, &laid, first, !is_dispatched);
        if spare.is_some_and(|spare| !spare.give_back()) {
            self.takes_numbers.store(false, Ordering::Relaxed);
        }
        made
    }

    /// Calls the function; `may_hold`: what it gives needs no object.
    #[inline]
    fn enter<'py>(
        &self,
        py: Python<'py>,
        torch: &Torch,
        operands: &[Seen<'_, 'py>],
        laid: &Laid,
        first: Option<u64>,
        may_hold: bool,
    ) -> Option<PyResult<Value<'py>>> {
        let (runtime, function) = (self.runtime, self.function);
        // SAFETY: the function's signature says what it takes and gives; operands were looked at.
        Some(unsafe {
            match (self.gives, first) {
                (Gives::Itself, Some(first)) => runtime
                    .enter(py, function, laid, first as *mut c_void)
                    .and_then(|_| operands[0].to_value(py)),
                (Gives::Truth, Some(first)) => runtime
                    .enter(py, function, laid, first as *mut c_void)
                    // A `bool` is the lowest byte of the register.
                    .map(|register| Value::Object(boolean(py, register as usize & 0xff != 0))),
                (Gives::Number, _) => {
                    if !tensor::holds_number_at(torch, laid.words[0]) {
                        return None;
                    }
                    let mut scalar = [0_u64; 4];
                    let place = ptr::from_mut(&mut scalar).cast();
                    runtime
                        .enter(py, function, laid, place)
                        .and_then(|_| {
                            let number = Number::from_parts(scalar[0], scalar[2]);
                            number.expect("its dtype was looked at").to_object(py)
                        })
                        .map(Value::Object)
                }
                _ => runtime.call(py, torch, function, laid, may_hold),
            }
        })
    }

    /// The number that an operand is which stands for a tensor, and its word. It isn't the first one: `1 - x` is another
    /// operator than `x - 1`.
    #[cold]
    fn number(&self, slot: &Slot, operands: &[Seen<'_, '_>]) -> Option<(u8, Number)> {
        let Source::Operand(operand) = slot.source else { return None };
        let is_first = slot.word == 0 && self.gives != Gives::Itself;
        let takes =
            slot.kind == Kind::Tensor && !is_first && self.takes_numbers.load(Ordering::Relaxed);
        let object = operands[usize::from(operand)].object().filter(|_| takes)?;
        Some((slot.word, Number::of(object)?))
    }

    /// The address of the one `at::Tensor` that it's given, `first` or another, beside what is in a word; `None`: there are
    /// more, or none.
    #[inline]
    fn only_tensor(&self, laid: &Laid, first: Option<u64>, beside: Option<u8>) -> Option<u64> {
        let is_tensor = |slot: &&Slot| slot.kind == Kind::Tensor && Some(slot.word) != beside;
        let mut tensors = self.operands.iter().filter(is_tensor);
        match (first, tensors.next(), tensors.next()) {
            (Some(place), None, _) => Some(place),
            (None, Some(slot), None) => Some(laid.words[usize::from(slot.word)]),
            _ => None,
        }
    }
}

impl Constant {
    fn float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Int(value) => Some(*value as f64),
            _ => None,
        }
    }
}

impl Slot {
    /// Puts what an operand is where the operator looks for it. `None`: it is something else.
    #[inline]
    fn put(
        &self,
        torch: &Torch,
        operands: &[Seen<'_, '_>],
        laid: &mut Laid,
        scratch: &mut Scratch,
    ) -> Option<()> {
        let word = usize::from(self.word);
        let operand = match &self.source {
            Source::Operand(operand) => operands[usize::from(*operand)],
            Source::Ints(items) => {
                let value = |item: &Result<i64, usize>| match item {
                    Ok(value) => Some(*value),
                    Err(operand) => int(operands[*operand].object()?),
                };
                return self.array(laid, scratch, items.iter().map(value));
            }
            Source::Dimension(indexed) => {
                let tensor = handle(torch, *operands.first()?)?;
                // SAFETY: the address of an `at::Tensor`, which its owner keeps.
                laid.words[word] = unsafe { indexed.dimension(torch, tensor)? } as u64;
                return Some(());
            }
        };
        match self.kind {
            Kind::Tensor => {
                laid.words[word] = handle(torch, operand)?;
                return Some(());
            }
            Kind::OptionalTensor => {
                let tensor = handle(torch, operand)?;
                // SAFETY: the address of a pointer in a live tensor's object.
                laid.words[word] = scratch.put(&[unsafe { (tensor as *const u64).read() }, 1])?;
                return Some(());
            }
            _ => {}
        }
        let operand = operand.object()?;
        laid.words[word] = match self.kind {
            Kind::Tensors | Kind::TensorList => {
                let items = items(&operand)?;
                let place = scratch.take(items.len())?;
                for (index, item) in items.iter().enumerate() {
                    // SAFETY: a live item of a container that nobody changes meanwhile.
                    let item = unsafe { Borrowed::from_ptr(operand.py(), *item) };
                    let tensor = handle(torch, Seen::Object(item))?;
                    // SAFETY: so many words were taken; a pointer in a live tensor's object.
                    unsafe { place.add(index).write((tensor as *const u64).read()) };
                }
                let (place, count) = (place as u64, items.len() as u64);
                if self.kind == Kind::TensorList {
                    // An array of tensors, and the tag of such.
                    scratch.put(&[place, count, 0])?
                } else {
                    laid.words[word + 1] = count;
                    place
                }
            }
            Kind::Int => int(operand)? as u64,
            Kind::OptionalInt => {
                laid.words[word + 1] = 1;
                int(operand)? as u64
            }
            Kind::Size => scratch.put(&[int(operand)? as u64])?,
            Kind::OptionalSize => scratch.put(&[int(operand)? as u64, 1])?,
            Kind::Ints | Kind::OptionalInts => {
                // SAFETY: live items of a container that nobody changes meanwhile.
                let value = |item: &_| int(unsafe { Borrowed::from_ptr(operand.py(), *item) });
                return self.array(laid, scratch, items(&operand)?.iter().map(value));
            }
            Kind::Scalar => scratch.put(&scalar(Number::of(operand)?))?,
            Kind::Float => {
                let Number::Float(value) = Number::of(operand)? else { return None };
                laid.floats[word] = value;
                return Some(());
            }
            _ => return None,
        };
        Some(())
    }

    /// Puts integers in a row, and where they are and how many.
    #[inline]
    fn array(
        &self,
        laid: &mut Laid,
        scratch: &mut Scratch,
        values: impl ExactSizeIterator<Item = Option<i64>>,
    ) -> Option<()> {
        let (word, count) = (usize::from(self.word), values.len());
        let place = scratch.take(count)?;
        for (index, value) in values.enumerate() {
            // SAFETY: so many words were taken.
            unsafe { place.add(index).write(value? as u64) };
        }
        laid.words[word] = place as u64;
        laid.words[word + 1] = count as u64;
        if self.kind == Kind::OptionalInts {
            laid.words[word + 2] = 1;
        }
        Some(())
    }
}

/// The address of an `at::Tensor`, if no code of the program's wants to see what is done to it.
#[inline]
fn handle(torch: &Torch, seen: Seen<'_, '_>) -> Option<u64> {
    match seen {
        Seen::Object(object) => torch.handle(object).map(|place| place as u64),
        Seen::Tensor(tensor) => Some(tensor.place() as u64),
    }
}

/// The items of an exact tuple or list.
fn items<'a>(object: &'a Borrowed<'_, '_>) -> Option<&'a [*mut ffi::PyObject]> {
    let pointer = object.as_ptr();
    // SAFETY: a live object; the items of a tuple or list lie in one piece, and their number is known.
    unsafe {
        let (first, count) = if ffi::PyTuple_CheckExact(pointer) != 0 {
            (
                (*pointer.cast::<ffi::PyTupleObject>()).ob_item.as_ptr(),
                ffi::PyTuple_GET_SIZE(pointer),
            )
        } else if ffi::PyList_CheckExact(pointer) != 0 {
            let first = (*pointer.cast::<ffi::PyListObject>()).ob_item.cast_const();
            (first.cast(), ffi::PyList_GET_SIZE(pointer))
        } else {
            return None;
        };
        if count == 0 {
            return Some(&[]);
        }
        Some(std::slice::from_raw_parts(first, count as usize))
    }
}

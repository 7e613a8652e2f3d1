//! The sites at which evaluated code reads, writes or calls something outside its own frame.
//!
//! The evaluator steps through bytecode and keeps the value stack; everything that touches the
//! heap goes through one of these methods. The defaults do what CPython does, so [`Plain`] is an
//! exact evaluator; the recorder overrides them to record operations, sources and side effects.
//!
//! Sites take `&self`: a site may run Python code, whose frames come back through the same object.
//! A site that fails leaves the exception in the thread state and returns [`Raised`].

use std::any::Any;

use smallvec::SmallVec;
use stator_bytecode::Opcode;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp, Method, UnaryOp};

/// What the evaluator does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Evaluate the instruction.
    Evaluate,
    /// Put the [`Sites::substitutes`] into the frame, then evaluate the instruction.
    Substitute,
    /// Give the frame, as it stands before the instruction, to CPython for good.
    HandOver,
    /// Don't evaluate the instruction: an exception is set, and raised here.
    Raise,
}

/// A stretch of instructions whose work a site has done.
pub struct Skip<'py> {
    /// What it leaves on the stack; `None` is a `NULL`.
    pub push: SmallVec<[Option<Object<'py>>; 2]>,
    /// The unit behind it.
    pub unit: usize,
    /// Whether that is a call with `*args` and `**kwargs` which is left to [`Sites::call_prepared`]: callable,
    /// exact tuple and exact dictionary are pushed, and nothing is left to be done for the call.
    pub calls: bool,
}

/// Behaviour of evaluated code at the borders of its frame; see the module's documentation.
#[allow(unused_variables)]
pub trait Sites<'py>: Sized {
    /// Whether [`Sites::step`] is to be called; a constant, so that `Plain` pays nothing.
    const STEPS: bool = false;

    /// Before every instruction (also the first), if [`Sites::STEPS`]. The frame's unit is that of the
    /// instruction itself, behind its `EXTENDED_ARG`s; `opcode` is de-optimised.
    fn step(&self, frame: &Frame<'py>, opcode: u8, arg: u32) -> Step {
        Step::Evaluate
    }

    /// The frame was entered, or resumed if it is a generator's. Says whether there are
    /// [`Sites::substitutes`].
    fn enters(&self, frame: &Frame<'py>) -> bool {
        false
    }
    /// Fast locals of the frame, and behind them values of its stack, that are to be other objects of the
    /// same type and value.
    fn substitutes(&self, frame: &Frame<'py>) -> Vec<(usize, Object<'py>)> {
        Vec::new()
    }
    /// The object that plain Python would have where the frame holds this one, if that is another: asked before CPython
    /// goes on in a frame.
    fn plain(&self, held: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        None
    }
    /// These, or what they hold, are about to be keys of a dictionary or elements of a set.
    fn takes_keys(&self, frame: &Frame<'py>, values: &[Borrowed<'_, 'py>]) {}
    /// Parts of an f-string became one: the object that it is from here on.
    fn joins(
        &self,
        frame: &Frame<'py>,
        parts: &[Borrowed<'_, 'py>],
        text: Object<'py>,
    ) -> Object<'py> {
        text
    }
    /// The frame is about to return or yield this value.
    fn returns(&self, frame: &Frame<'py>, value: Borrowed<'_, 'py>) {}
    /// The frame leaves: it returned, yielded, raised or was handed over.
    fn leaves(&self, frame: &Frame<'py>) {}
    /// A site or the evaluator has panicked. Says whether nothing of the current instruction is known to
    /// have been executed.
    fn fails(&self, frame: &Frame<'py>, payload: &(dyn Any + Send)) -> bool {
        false
    }
    /// The instruction that a frame waits in is about to do something that no site tells of.
    fn interrupts(&self, frame: &Frame<'py>, what: &'static str) {}

    /// A signal handler has raised, or another thread: no instruction of the frame has.
    fn disturbed(&self, frame: &Frame<'py>) {}

    /// Behind the `RESUME` that begins a call, if [`Sites::STEPS`]: the site may have done the work of
    /// the instructions that follow.
    fn skips(&self, frame: &Frame<'py>) -> Option<Skip<'py>> {
        None
    }

    // -- names ---------------------------------------------------------------------------------

    /// `LOAD_GLOBAL`: globals, then builtins; raises `NameError`.
    fn load_global(&self, frame: &Frame<'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        ops::load_global(frame, name)
    }
    /// `LOAD_NAME`: locals mapping, globals, builtins.
    fn load_name(&self, frame: &Frame<'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        ops::load_name(frame, name)
    }
    /// `STORE_NAME`, or `DELETE_NAME` if `value` is `None`.
    fn store_name(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        ops::store_name(frame, name, value)
    }
    /// `STORE_GLOBAL`, or `DELETE_GLOBAL` if `value` is `None`.
    fn store_global(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        ops::store_global(frame, name, value)
    }
    /// `LOAD_DEREF` / `LOAD_CLASSDEREF`'s cell part: contents of a cell (`None`: unbound; the evaluator
    /// raises). `index` is the cell's index among the frame's fast locals.
    fn load_cell(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
        index: usize,
    ) -> Option<Object<'py>> {
        ops::load_cell(cell)
    }
    /// `STORE_DEREF`, or `DELETE_DEREF` if `value` is `None`.
    fn store_cell(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
        index: usize,
        value: Option<Object<'py>>,
    ) {
        ops::store_cell(cell, value);
    }
    /// After `STORE_FAST` of `value` to fast local `index`.
    fn stored_fast(&self, frame: &Frame<'py>, index: usize, value: Borrowed<'_, 'py>) {}

    // -- attributes and items ------------------------------------------------------------------

    /// `LOAD_ATTR`.
    fn load_attr(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::get_attr(owner, name)
    }
    /// `LOAD_METHOD`.
    fn load_method(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Method<'py>> {
        ops::get_method(owner, name)
    }
    /// `STORE_ATTR`, or `DELETE_ATTR` if `value` is `None`.
    fn store_attr(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        ops::set_attr(owner, name, value)
    }
    /// `BINARY_SUBSCR`.
    fn load_item(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::get_item(owner, key)
    }
    /// `STORE_SUBSCR`, or `DELETE_SUBSCR` if `value` is `None`.
    fn store_item(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        ops::set_item(owner, key, value)
    }

    // -- operators -----------------------------------------------------------------------------

    /// `UNARY_NEGATIVE`, `UNARY_POSITIVE`, `UNARY_INVERT`.
    fn unary(
        &self,
        frame: &Frame<'py>,
        op: UnaryOp,
        operand: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::unary(op, operand)
    }
    /// `BINARY_OP`, in-place forms included.
    fn binary(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::binary(op, left, right)
    }
    /// `COMPARE_OP`.
    fn compare(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::compare(op, left, right)
    }
    /// The truth of a comparison's result: `COMPARE_OP` of CPython 3.13, in front of a jump.
    fn compare_truth(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        let result = self.compare(frame, op, left, right)?;
        match ops::plain_truth(result.as_borrowed()) {
            Some(truth) => Ok(truth),
            None => self.truth(frame, result.as_borrowed()),
        }
    }
    /// `CONTAINS_OP`, before its inversion.
    fn contains(
        &self,
        frame: &Frame<'py>,
        container: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        ops::contains(container, item)
    }
    /// `IS_OP` (and the `is None` jumps), before its inversion.
    fn is_same(
        &self,
        frame: &Frame<'py>,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> bool {
        left.as_ptr() == right.as_ptr()
    }
    /// Truth value, wherever an opcode asks for one and the operand is neither `True`, `False` nor
    /// `None` (`POP_JUMP_*_IF_TRUE/FALSE`, `JUMP_IF_*_OR_POP`, `UNARY_NOT`, ...).
    fn truth(&self, frame: &Frame<'py>, operand: Borrowed<'_, 'py>) -> Result<bool> {
        ops::truth(operand)
    }
    /// `FORMAT_VALUE`: `conversion` is 0 (none), 1 (str), 2 (repr) or 3 (ascii).
    fn format(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        ops::format(value, conversion, spec)
    }
    /// `CONVERT_VALUE`: what `FORMAT_VALUE` begins with.
    fn convert(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
    ) -> Result<Object<'py>> {
        ops::convert(value, conversion)
    }

    // -- calls ---------------------------------------------------------------------------------

    /// The rest of a class's call, whose `__new__` has returned `object`.
    fn initialize(
        &self,
        frame: &Frame<'py>,
        class: Borrowed<'_, 'py>,
        object: Object<'py>,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        ops::initialized(class, object, args, names)
    }

    /// `CALL`. `names` is the `KW_NAMES` tuple: the last `names.len()` of `args` are keyword arguments.
    fn call(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        ops::call(callable, args, names)
    }
    /// `CALL_FUNCTION_EX`: `args` is already an exact tuple, `kwargs` an exact dict.
    fn call_ex(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        ops::call_ex(callable, args, kwargs)
    }
    /// The call that a [`Skip`] ends with; its operands are as those of [`Sites::call_ex`]. The frame stands at its
    /// instruction, of which [`Sites::step`] wasn't told.
    fn call_prepared(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::call_ex(callable, args, Some(kwargs))
    }
    /// `BEFORE_WITH`: looks up `__exit__` and `__enter__` on the type, calls the latter; returns
    /// (bound exit, result of enter).
    fn before_with(
        &self,
        frame: &Frame<'py>,
        manager: Borrowed<'_, 'py>,
    ) -> Result<(Object<'py>, Object<'py>)> {
        ops::before_with(manager)
    }
    /// Import of a module: `IMPORT_NAME`.
    fn import_name(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
        from: Borrowed<'_, 'py>,
        level: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::import_name(frame, name, from, level)
    }
    /// `IMPORT_FROM`.
    fn import_from(
        &self,
        frame: &Frame<'py>,
        module: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        ops::import_from(module, name)
    }

    // -- iteration and containers --------------------------------------------------------------

    /// `GET_ITER` (and `GET_YIELD_FROM_ITER` where it iterates).
    fn get_iter(&self, frame: &Frame<'py>, iterable: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        ops::get_iter(iterable)
    }
    /// `FOR_ITER`: `None` when exhausted (a `StopIteration` is cleared).
    fn next(&self, frame: &Frame<'py>, iterator: Borrowed<'_, 'py>) -> Result<Option<Object<'py>>> {
        ops::next(iterator)
    }
    /// `SEND` to something that is no exact generator or coroutine included: `Ok(Ok(v))` yielded `v`,
    /// `Ok(Err(v))` returned `v`.
    fn send(
        &self,
        frame: &Frame<'py>,
        receiver: Borrowed<'_, 'py>,
        value: Borrowed<'_, 'py>,
    ) -> Result<std::result::Result<Object<'py>, Object<'py>>> {
        ops::send(receiver, value)
    }
    /// `UNPACK_SEQUENCE` / `UNPACK_EX`: something foreign is about to be unpacked, iterated by C code or merged
    /// (`LIST_EXTEND`, `SET_UPDATE`, `CALL_FUNCTION_EX`'s conversions,
    /// `MATCH_KEYS`). Called before the evaluator does it.
    ///
    /// What it returns takes the operand's place (the parts of a tensor, say).
    fn consumes(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        Ok(None)
    }
    /// `LIST_EXTEND` is about to take all that an operand gives, before [`Sites::consumes`] is asked. What it returns takes
    /// the operand's place.
    fn gathers(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        Ok(None)
    }
    /// `DICT_UPDATE` and `DICT_MERGE` are about to read an operand whole, as a mapping. It may be none.
    fn reads_mapping(&self, frame: &Frame<'py>, operand: Borrowed<'_, 'py>) {}
    /// Runs the C code for which [`Sites::consumes`] was called, if the operand computes what it gives (`map`, an
    /// object with an `__iter__`): it calls other C code, of which no site hears.
    fn calls_back<T>(&self, frame: &Frame<'py>, run: impl FnOnce() -> Result<T>) -> Result<T> {
        run()
    }
    /// As [`Sites::calls_back`], of C code that only keeps what the operand gives (`LIST_EXTEND`, `UNPACK_SEQUENCE`).
    fn collects<T>(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.calls_back(frame, run)
    }
    /// `MATCH_SEQUENCE`, `MATCH_MAPPING` and `GET_LEN`: a pattern asks what a subject is, which stays where it is.
    fn matches(&self, frame: &Frame<'py>, subject: Borrowed<'_, 'py>) {}
    /// `MATCH_KEYS` is about to ask a subject for values.
    fn matches_keys(&self, frame: &Frame<'py>, subject: Borrowed<'_, 'py>) {}
    /// The evaluator made a new mutable or composite object (`BUILD_*`, `MAKE_FUNCTION`, `MAKE_CELL`,
    /// `LIST_TO_TUPLE`, `RETURN_GENERATOR`, slices, class dictionaries, ...).
    fn creates(&self, frame: &Frame<'py>, object: Borrowed<'_, 'py>) {}
    /// An object was hashed and compared with others (`SET_ADD`, `MAP_ADD`), or the members of a
    /// container were (`SET_UPDATE`, ...).
    fn hashes(&self, frame: &Frame<'py>, object: Borrowed<'_, 'py>) {}
    /// The evaluator is about to change `container`, as [`Sites::extends`] will tell.
    fn grows(&self, frame: &Frame<'py>, container: Borrowed<'_, 'py>) {}
    /// The evaluator changed `container` in place through an opcode that only ever sees objects of its
    /// own making (`LIST_APPEND`, `SET_ADD`, `MAP_ADD`, `LIST_EXTEND`, ...).
    fn extends(&self, frame: &Frame<'py>, container: Borrowed<'_, 'py>) {}
    /// `MATCH_CLASS` with so many positional parts and these names; the attributes, or `None`: no match.
    fn match_class(
        &self,
        frame: &Frame<'py>,
        subject: Borrowed<'_, 'py>,
        class: Borrowed<'_, 'py>,
        count: usize,
        names: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        ops::match_class(subject, class, count, names)
    }
    /// `CHECK_EXC_MATCH` / `CHECK_EG_MATCH` is about to compare `exception` with `classes`.
    fn matches_exception(
        &self,
        frame: &Frame<'py>,
        exception: Borrowed<'_, 'py>,
        classes: Borrowed<'_, 'py>,
    ) {
    }
    /// `CHECK_EG_MATCH` is about to split `exceptions`, or `PREP_RERAISE_STAR` to put together what is left
    /// of them; `None` is none.
    fn splits(&self, frame: &Frame<'py>, exceptions: &[Object<'py>]) {}
    /// `RAISE_VARARGS` and `RERAISE` are about to raise `exception` (a class or an instance), or the
    /// one that is being handled. Raising changes an instance: its traceback grows.
    fn raises(&self, frame: &Frame<'py>, exception: Option<Borrowed<'_, 'py>>) {}
    /// Anything rare that only the exact semantics matter for (`SETUP_ANNOTATIONS`, `LOAD_BUILD_CLASS`,
    /// `IMPORT_STAR`, `PRINT_EXPR`, async protocol steps): a recorder that can't follow gives up here.
    fn opaque(&self, frame: &Frame<'py>, opcode: Opcode) {}
}

/// The exact evaluator: every site does what CPython does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Sites<'_> for Plain {}

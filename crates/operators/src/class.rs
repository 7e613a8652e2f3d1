//! What callables do, as far as a trace is concerned.

use crate::fills::Filled;
use stator_bytecode::{BinaryOp, CompareOp, UnaryOp};

/// What a callable does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Executed and recorded as one node, if its results' metadata is determined.
    Operation(Determined),
    /// The result depends on argument values alone; only for constants and containers of them.
    Pure,
    /// Moves references or calls its arguments back; reads containers whole.
    Transparent,
    /// Reads or writes what guards and side effects must know of.
    Model(Model),
    /// An instance of a C class that holds nothing but its arguments (exceptions, `object`, ...).
    Constructor,
    /// `torch.compiler.is_compiling()` and its relatives.
    IsCompiling,
    /// `stator.graph_break()`.
    GraphBreak,
    /// Reads process or thread state that is guarded at entry or switched by recorded nodes.
    StateRead,
    /// Gives a warning or a log record.
    Emitter(Emitter),
    /// Known to be untraceable.
    Untraceable(Why),
}

/// Why a callable can't be traced: reasons of the break table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It hasn't been taught.
    Unsupported,
    /// What it gives depends on where an object is.
    Identity,
    /// It looks at frames.
    Frames,
    /// It looks at the world.
    Opaque,
}

/// When the shapes and types of an operation's results follow from its inputs' metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determined {
    /// Always.
    Always,
    /// Never: its result's shape depends on data.
    Never,
    /// Never: data says how large its results are. Of everything else their metadata says it: their types, how many
    /// dimensions they have, and how many results there are.
    Sized,
    /// Never: its result holds more than its metadata says (sparse, quantized tensors).
    Unusual,
    /// Never: its result is data, or it does what a graph can't say.
    ReadsData,
    /// Never: its result is `True` or `False`, and data says which.
    Answer,
    /// Unless there is a tensor among the arguments from this one on (sizes given as tensors).
    UnlessTensorBeyond(usize),
    /// As [`Determined::UnlessTensorBeyond`] the first; but tensors may be numbers that the result is filled with,
    /// at these places, if none of their type can raise.
    Filled(Filled, &'static [(usize, &'static str)]),
    /// If it's given at least so many arguments.
    AtLeast(usize),
    /// If this argument is given, and says all: no `None`, no tensor, no -1.
    IfGiven(usize, &'static str),
    /// If it's given two arguments or more, no tensor among the further ones (counts given as tensors).
    Counts,
    /// Always, but only a replay of the trace as it is does what it does.
    EagerOnly,
    /// As what stands here, but only a replay of the trace as it is does what it does.
    EagerIf(&'static Determined),
    /// Unless this argument is given, which has a name wherever it is.
    UnlessNamed(&'static str),
    /// If the arguments from this one on are constants, or lists and tuples of such.
    OfNumbers(usize),
    /// Indexing: unless the index (second argument) holds a mask or a slice with tensors.
    Indexing,
}

/// Callables whose reads and writes are modelled one by one (`recorder/calls/models.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Model {
    Len,
    /// `id()`.
    Id,
    /// `hash()`.
    Hash,
    IsInstance,
    /// What `abc.ABCMeta` asks of a class for `isinstance` and `issubclass`.
    AbstractCheck,
    GetAttr,
    HasAttr,
    SetAttr,
    DelAttr,
    Iter,
    Next,
    TypeOf,
    Vars,
    /// `locals()`.
    Locals,
    /// `globals()`.
    Globals,
    /// `sys.getrecursionlimit()`.
    RecursionLimit,
    Repr,
    Super,
    /// Reads a number or truth value: `int`, `bool`, `round`, ...
    Scalar,
    Binary(BinaryOp),
    Unary(UnaryOp),
    Compare(CompareOp),
    GetItem,
    Contains,
    /// `dict.get` and such: reads the slot of its first argument.
    DictSlotRead,
    /// `dict.items` and such: reads the dictionary whole.
    DictRead,
    /// `list.index` and such: reads a list or tuple whole, by value.
    SequenceRead,
    /// Changes its receiver.
    ContainerWrite,
    /// `bisect.insort` and such: puts an object into a list that is in order.
    Insort,
    /// `object.__new__` and such: makes an instance of its first argument.
    New,
    /// `object.__init__`: does nothing.
    Nothing,
    /// `object.__setattr__`.
    ObjectSetAttr,
    /// `object.__delattr__`.
    ObjectDelAttr,
    /// `object.__getattribute__`.
    ObjectGetAttr,
    /// `torch._C._set_grad_enabled` and such: a node without tensors.
    StateSwitch,
    /// Switches which kernels PyTorch's operations may take, for the whole process.
    KernelSwitch,
    /// `_enter_inference_mode`: a node whose value is the handle that the mode is left by.
    InferenceEnter,
    /// `_exit_inference_mode`.
    InferenceExit,
    /// `ContextVar.get`.
    ContextGet,
    /// `ContextVar.set`.
    ContextSet,
    /// `ContextVar.reset`.
    ContextReset,
    /// `contextvars.copy_context`.
    ContextCopy,
    /// `type.__call__`.
    TypeCall,
    /// `generator.send` and such.
    GeneratorStep,
    /// `operator.setitem`.
    SetItem,
    /// `operator.delitem`.
    DelItem,
    /// `operator.call`.
    Call,
    /// `re.Pattern.sub` and such.
    Substitute,
    /// `operator.is_`, or `is_not`.
    IsSame {
        /// `is_not`
        inverted: bool,
    },
    /// `object.__reduce_ex__`.
    Reduce,
    /// `random.Random.random` and such: moves its receiver on.
    Draw,
    /// `random.Random(seed)`: a generator of the trace's own.
    NewRandom,
    /// `random.Random._randbelow`: as any Python function, unless a node has seeded its receiver.
    DrawBelow,
    /// `torch._check_tensor_all` and such.
    Check,
    /// `time.perf_counter` and such: a number that no two calls have in common.
    Clock,
    /// `threading.get_ident`.
    ThisThread,
    /// `write` and `flush` of a stream of texts.
    Stream,
    /// `print`.
    Print,
    /// `sys.exc_info`, `sys.exception`.
    Handled,
    /// `sys._getframemodulename`.
    FrameModule,
    /// `torch.manual_seed` and such: a generator's state is made of a number, or is another's.
    Seed,
    /// `torch.Generator.get_state`: a tensor with a generator's state.
    GeneratorState,
    /// `torch.Generator()`: a generator of the trace's own.
    NewGenerator,
    /// `numpy.random.rand` and such: NumPy's generators.
    Numpy,
    /// Numbers in an order that a generator of Python's draws.
    Order,
    /// `numpy.sqrt` and such: functions and methods of arrays and of NumPy's scalars.
    Arrays(ArrayUse),
    /// `datetime.datetime.now`, `decimal.Decimal` and such: functions and methods of values that are neither numbers nor texts.
    Values,
    /// `warnings.catch_warnings` and such: which warnings are shown.
    Filters,
    /// `torch.Tensor.backward`: as any Python function where it can be a node.
    TensorBackward,
    /// `run_backward` of PyTorch's engine: what `backward()` and `torch.autograd.grad` come to.
    Backward,
    /// `torch.cuda.current_device` and such: what the accelerator's selected device decides.
    SelectedDevice,
    /// Whether the accelerator's selected stream is captured.
    Capturing,
    /// `with torch.device(...)` begins.
    DeviceEnter,
    /// It ends.
    DeviceExit,
    /// `lock.acquire` and such.
    LockTake,
    /// `lock.release` and such.
    LockGive,
    /// `copy.deepcopy`: as one piece, or followed as any Python function is.
    DeepCopy,
    /// `copy.copy`: of a tensor one operation, else it's followed as any Python function is.
    Copy,
}

/// What a function of NumPy's does with what it is given. That of its result says how large that is and of what type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayUse {
    /// Elements are computed from elements: numbers may vary.
    Elements,
    /// As that, and floats come of it whatever integers go in.
    Floats,
    /// Integers among its arguments say sizes, dimensions or types.
    Sizes,
    /// One number is taken out.
    Number,
    /// All numbers are taken out, in a list.
    List,
    /// It writes to an array.
    Writes,
}

/// What a method that changes a set, a deque or a dictionary writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// A set or a deque: a replay calls the method with its arguments.
    Arguments,
    /// A set or a deque: with lists of what its arguments hold now.
    Elements,
    /// A dictionary: the entry of its first argument.
    Entry,
    /// The entry of its first argument, if there is none.
    Missing,
    /// It takes the entry of its first argument out.
    Deleted,
    /// The same, and gives the value.
    Popped,
    /// It takes all entries out.
    Every,
    /// It takes the entry at one end out; a second argument says at which.
    End,
    /// It moves the entry of its first argument to one end; a second argument says to which.
    Moved,
    /// The entries of other dictionaries, pairs and keywords.
    Merged,
}

/// Functions that give warnings and log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emitter {
    /// `warnings.warn`
    Warn,
    /// `warnings.warn_explicit`
    WarnExplicit,
    /// `logging.Logger._log`
    Log,
}

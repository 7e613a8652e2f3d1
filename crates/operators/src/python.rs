//! The rows of builtins and of the standard library.
//!
//! An owner is a module, or a module and what is found in it (`builtins:list`). The name `*` stands for all
//! callables of an owner that have no row of their own, special methods of `object` aside.

use stator_bytecode::{BinaryOp, CompareOp, UnaryOp};
use stator_shapes::{FloatUnary, Rounding};

use crate::class::{Class, Emitter, Model, Why, Writes};
use crate::numeric::Numeric;
use crate::row::{Row, Traits, row};
use Class::{Constructor, GraphBreak, IsCompiling, Pure, Transparent, Untraceable};
use Class::{Emitter as Emits, Model as Modelled};
use Emitter::{Log, Warn, WarnExplicit};
use Model::{
    Binary, Call, Clock, Compare, ContainerWrite, Contains, ContextCopy, ContextGet, ContextReset,
    ContextSet, DeepCopy, DelAttr, DelItem, DictRead, DictSlotRead, Draw, GeneratorStep, GetAttr,
    GetItem, Handled, HasAttr, Hash, Id, Insort, IsInstance, IsSame, Iter, Len, LockGive, LockTake,
    New, Next, Nothing, ObjectDelAttr, ObjectGetAttr, ObjectSetAttr, RecursionLimit, Reduce, Repr,
    Scalar, Seed, SequenceRead, SetAttr, SetItem, Substitute, Super, TypeCall, TypeOf, Unary, Vars,
};
use Numeric::{
    Absolute, Float, FloatPower, Function, Greatest, Least, OfFloats, Place, Power, Product,
    QuotientAndRest, Rounded, Sorted, Sum, Truth,
};
use Traits as T;

const NONE: Traits = T::NONE;
const COMPARES: Traits = T::COMPARES;
const COUNTS: Traits = T::COUNTS;
const FLAGGED: Traits = T::FLAGGED;
const HANDS_ON: Traits = T::HANDS_ON;
const ITERATES: Traits = T::ITERATES;
const MOVES: Traits = T::MOVES;
const ONLY_ADDS: Traits = T::ONLY_ADDS;
const ORDERS: Traits = T::ORDERS;
const QUIET: Traits = T::QUIET;
const SEARCHES: Traits = T::SEARCHES;
const STORES: Traits = T::STORES;
const UNORDERED: Traits = T::UNORDERED;

/// The rows.
pub const PYTHON: &[Row] = &[
    row("stator._stator", "graph_break", GraphBreak, NONE),
    row("stator._stator", "is_compiling", IsCompiling, NONE),
    row("math", "ceil", Pure, NONE).of_numbers(Rounded(Rounding::Ceil)),
    row("math", "floor", Pure, NONE).of_numbers(Rounded(Rounding::Floor)),
    row("math", "trunc", Pure, NONE).of_numbers(Rounded(Rounding::Trunc)),
    row("math", "exp", Pure, NONE).of_numbers(Function(FloatUnary::Exp)),
    row("math", "log", Pure, NONE).of_numbers(Function(FloatUnary::Log)),
    row("math", "log2", Pure, NONE).of_numbers(Function(FloatUnary::Log2)),
    row("math", "log10", Pure, NONE).of_numbers(Function(FloatUnary::Log10)),
    row("math", "sin", Pure, NONE).of_numbers(Function(FloatUnary::Sin)),
    row("math", "cos", Pure, NONE).of_numbers(Function(FloatUnary::Cos)),
    row("math", "tanh", Pure, NONE).of_numbers(Function(FloatUnary::Tanh)),
    row("math", "sqrt", Pure, NONE).of_numbers(Function(FloatUnary::Sqrt)),
    row("math", "isfinite", Pure, NONE).of_numbers(OfFloats(true)),
    row("math", "isinf isnan", Pure, NONE).of_numbers(OfFloats(false)),
    row("math", "pow", Pure, NONE).of_numbers(FloatPower),
    row("math", "prod", Pure, NONE).of_numbers(Product),
    row("math", "*", Pure, NONE),
    row("cmath", "*", Pure, NONE),
    row("struct", "calcsize pack unpack", Pure, NONE),
    row("binascii", "a2b_base64 a2b_hex b2a_base64 b2a_hex crc32 hexlify unhexlify", Pure, NONE),
    row("zlib", "adler32 crc32", Pure, NONE),
    row("unicodedata", "bidirectional category combining decimal decomposition digit", Pure, NONE),
    row("unicodedata", "east_asian_width is_normalized lookup mirrored name", Pure, NONE),
    row("unicodedata", "normalize numeric", Pure, NONE),
    row("builtins", "abs", Modelled(Scalar), NONE).of_numbers(Absolute),
    row("builtins", "round", Modelled(Scalar), NONE).of_numbers(Rounded(Rounding::Round)),
    row("builtins", "divmod", Modelled(Scalar), NONE).of_numbers(QuotientAndRest),
    row("builtins", "pow", Modelled(Scalar), NONE).of_numbers(Power),
    row("builtins", "ord chr bin hex oct", Pure, NONE),
    row("builtins", "repr str ascii format", Modelled(Repr), NONE),
    row("builtins", "len", Modelled(Len), NONE),
    row("builtins", "isinstance issubclass callable", Modelled(IsInstance), MOVES),
    row("builtins", "getattr", Modelled(GetAttr), MOVES),
    row("builtins", "hasattr", Modelled(HasAttr), MOVES),
    row("builtins", "setattr", Modelled(SetAttr), MOVES),
    row("builtins", "delattr", Modelled(DelAttr), NONE),
    row("builtins", "iter", Modelled(Iter), MOVES.and(ITERATES).and(HANDS_ON)),
    row("builtins", "next", Modelled(Next), MOVES),
    row("builtins", "type", Modelled(TypeOf), MOVES),
    row("builtins", "vars", Modelled(Vars), MOVES),
    row("builtins", "super", Modelled(Super), MOVES),
    row("builtins", "id", Modelled(Id), NONE),
    row("builtins", "hash", Modelled(Hash), NONE),
    row("builtins", "sorted", Transparent, ORDERS).of_numbers(Sorted),
    row("builtins", "min", Transparent, ORDERS).of_numbers(Least),
    row("builtins", "max", Transparent, ORDERS).of_numbers(Greatest),
    row("builtins", "sum", Transparent, NONE).of_numbers(Sum),
    row("builtins", "any all filter", Transparent, NONE),
    row("builtins", "map", Transparent, MOVES.and(ITERATES)),
    row("builtins", "zip enumerate reversed", Transparent, MOVES.and(ITERATES).and(HANDS_ON)),
    row("builtins", "list tuple", Transparent, MOVES.and(ITERATES).and(HANDS_ON)),
    row("builtins", "dict", Transparent, MOVES),
    row("builtins", "set frozenset", Transparent, UNORDERED),
    row("builtins", "int", Modelled(Scalar), NONE).of_numbers(Rounded(Rounding::Trunc)),
    row("builtins", "float", Modelled(Scalar), NONE).of_numbers(Float),
    row("builtins", "bool", Modelled(Scalar), NONE).of_numbers(Truth { inverted: false }),
    row("builtins", "complex", Modelled(Scalar), NONE),
    row("builtins", "range slice bytes", Pure, NONE),
    row("builtins", "object", Constructor, MOVES),
    row("builtins", "property staticmethod classmethod", Constructor, NONE),
    row("builtins:property", "__new__ __init__", Constructor, NONE),
    row("builtins:object", "__new__", Modelled(New), MOVES),
    row("builtins:object", "__init__", Modelled(Nothing), MOVES),
    row("builtins:object", "__init_subclass__", Modelled(Nothing), NONE),
    row("builtins:object", "__setattr__", Modelled(ObjectSetAttr), MOVES),
    row("builtins:object", "__delattr__", Modelled(ObjectDelAttr), NONE),
    row("builtins:object", "__getattribute__", Modelled(ObjectGetAttr), MOVES),
    row("builtins:object", "__reduce_ex__", Modelled(Reduce), MOVES),
    row("copy", "deepcopy", Modelled(DeepCopy), NONE),
    row("builtins:type", "__call__", Modelled(TypeCall), NONE),
    row("types:GeneratorType", "send throw close", Modelled(GeneratorStep), MOVES),
    row("operator", "setitem", Modelled(SetItem), MOVES),
    row("_abc", "_abc_instancecheck _abc_subclasscheck", Modelled(IsInstance), NONE),
    row("builtins:tuple", "__new__", Modelled(New), MOVES),
    row("builtins:dict", "__new__", Modelled(New), MOVES),
    row("builtins:list", "__new__", Modelled(New), MOVES),
    row("builtins:BaseException", "__new__", Modelled(New), MOVES),
    row("builtins:BaseException", "__init__", Modelled(ContainerWrite), MOVES),
    row("builtins:BaseException", "with_traceback", Modelled(ContainerWrite), NONE),
    row("builtins:BaseException", "add_note", Modelled(ContainerWrite), NONE),
    row("builtins:str", "*", Pure, NONE),
    row("builtins:bytes", "*", Pure, NONE),
    row("builtins:int", "*", Pure, NONE),
    row("builtins:float", "*", Pure, NONE),
    row("builtins:complex", "*", Pure, NONE),
    row("builtins:range", "*", Pure, NONE),
    row("builtins:slice", "indices", Pure, NONE),
    row(
        "builtins:tuple",
        "index count __contains__ __eq__ __ne__ __lt__",
        Modelled(SequenceRead),
        NONE,
    ),
    row("builtins:tuple", "__getitem__ __iter__ __len__ __add__ __mul__", Transparent, NONE),
    row("builtins:list", "index count __contains__ __eq__ __ne__", Modelled(SequenceRead), NONE),
    row("builtins:list", "copy", Transparent, MOVES),
    row("builtins:list", "__getitem__ __iter__ __len__ __add__ __reversed__", Transparent, NONE),
    row(
        "builtins:list",
        "append",
        Modelled(ContainerWrite),
        MOVES.and(QUIET).and(ONLY_ADDS).and(STORES),
    ),
    row("builtins:list", "extend", Modelled(ContainerWrite), MOVES.and(ITERATES).and(ONLY_ADDS)),
    row("builtins:list", "insert", Modelled(ContainerWrite), QUIET.and(STORES).and(COUNTS)),
    row("builtins:list", "pop", Modelled(ContainerWrite), QUIET.and(COUNTS)),
    row("builtins:list", "clear", Modelled(ContainerWrite), QUIET),
    row("builtins:list", "remove", Modelled(ContainerWrite), SEARCHES),
    row("builtins:list", "sort", Modelled(ContainerWrite), ORDERS),
    row("builtins:list", "__setitem__", Modelled(ContainerWrite), STORES.and(COUNTS)),
    row("builtins:list", "__delitem__", Modelled(ContainerWrite), COUNTS),
    row("builtins:list", "reverse __iadd__", Modelled(ContainerWrite), NONE),
    row("builtins:list", "__init__", Modelled(ContainerWrite), MOVES),
    row("builtins:dict", "get __getitem__ __contains__", Modelled(DictSlotRead), NONE),
    row("builtins:dict", "keys values items copy", Modelled(DictRead), MOVES),
    row("builtins:dict", "__iter__ __len__ __reversed__ __or__", Modelled(DictRead), NONE),
    row("builtins:dict", "fromkeys", Transparent, NONE),
    row("collections:OrderedDict", "fromkeys", Transparent, NONE),
    row("builtins:dict", "pop", Modelled(ContainerWrite), QUIET).writes(Writes::Popped),
    row("builtins:dict", "popitem", Modelled(ContainerWrite), QUIET).writes(Writes::End),
    row("builtins:dict", "clear", Modelled(ContainerWrite), QUIET).writes(Writes::Every),
    row("builtins:dict", "setdefault", Modelled(ContainerWrite), QUIET.and(STORES))
        .writes(Writes::Missing),
    row("builtins:dict", "update", Modelled(ContainerWrite), NONE).writes(Writes::Merged),
    row("builtins:dict", "__delitem__", Modelled(ContainerWrite), NONE).writes(Writes::Deleted),
    row("builtins:dict", "__ior__", Modelled(ContainerWrite), NONE),
    row("builtins:dict", "__setitem__", Modelled(ContainerWrite), STORES).writes(Writes::Entry),
    row("builtins:dict", "__init__", Modelled(ContainerWrite), MOVES),
    row("collections:OrderedDict", "keys values items copy", Modelled(DictRead), MOVES),
    row("collections:OrderedDict", "__iter__", Modelled(DictRead), NONE),
    row("collections:OrderedDict", "pop", Modelled(ContainerWrite), QUIET).writes(Writes::Popped),
    row("collections:OrderedDict", "popitem", Modelled(ContainerWrite), QUIET).writes(Writes::End),
    row("collections:OrderedDict", "clear", Modelled(ContainerWrite), QUIET).writes(Writes::Every),
    row("collections:OrderedDict", "setdefault", Modelled(ContainerWrite), QUIET.and(STORES))
        .writes(Writes::Missing),
    row("collections:OrderedDict", "move_to_end", Modelled(ContainerWrite), QUIET.and(FLAGGED))
        .writes(Writes::Moved),
    row("collections:OrderedDict", "update", Modelled(ContainerWrite), NONE).writes(Writes::Merged),
    row("collections:OrderedDict", "__delitem__", Modelled(ContainerWrite), NONE)
        .writes(Writes::Deleted),
    row("collections:OrderedDict", "__setitem__", Modelled(ContainerWrite), STORES)
        .writes(Writes::Entry),
    row("collections:OrderedDict", "__init__", Modelled(ContainerWrite), MOVES),
    row("collections:defaultdict", "__missing__", Modelled(ContainerWrite), NONE),
    row("collections:defaultdict", "__init__", Modelled(ContainerWrite), MOVES),
    row("collections:defaultdict", "copy", Modelled(DictRead), MOVES),
    row(
        "builtins:set",
        "union intersection difference symmetric_difference issubset issuperset isdisjoint \
         __contains__ __len__",
        Transparent,
        UNORDERED,
    ),
    row("builtins:set", "copy", Transparent, MOVES.and(UNORDERED)),
    row("builtins:set", "__iter__", Transparent, NONE),
    row("builtins:set", "add clear", Modelled(ContainerWrite), QUIET.and(ONLY_ADDS))
        .writes(Writes::Arguments),
    row("builtins:set", "discard", Modelled(ContainerWrite), ONLY_ADDS).writes(Writes::Arguments),
    row("builtins:set", "remove", Modelled(ContainerWrite), NONE).writes(Writes::Arguments),
    row("builtins:set", "update", Modelled(ContainerWrite), ONLY_ADDS).writes(Writes::Elements),
    row(
        "builtins:set",
        "intersection_update difference_update symmetric_difference_update",
        Modelled(ContainerWrite),
        NONE,
    )
    .writes(Writes::Elements),
    row("builtins:set", "pop", Modelled(ContainerWrite), QUIET),
    row("builtins:set", "__init__", Modelled(ContainerWrite), MOVES),
    row(
        "builtins:frozenset",
        "union intersection difference symmetric_difference issubset issuperset isdisjoint \
         __contains__",
        Transparent,
        UNORDERED,
    ),
    row("builtins:frozenset", "copy", Transparent, MOVES.and(UNORDERED)),
    row(
        "collections:deque",
        "append",
        Modelled(ContainerWrite),
        MOVES.and(QUIET).and(ONLY_ADDS).and(STORES),
    )
    .writes(Writes::Arguments),
    row(
        "collections:deque",
        "appendleft",
        Modelled(ContainerWrite),
        MOVES.and(QUIET).and(ONLY_ADDS).and(STORES),
    )
    .writes(Writes::Arguments),
    row("collections:deque", "clear", Modelled(ContainerWrite), QUIET.and(ONLY_ADDS))
        .writes(Writes::Arguments),
    row(
        "collections:deque",
        "extend",
        Modelled(ContainerWrite),
        MOVES.and(ITERATES).and(ONLY_ADDS),
    )
    .writes(Writes::Elements),
    row("collections:deque", "extendleft", Modelled(ContainerWrite), ONLY_ADDS)
        .writes(Writes::Elements),
    row("collections:deque", "pop popleft", Modelled(ContainerWrite), QUIET)
        .writes(Writes::Arguments),
    row("collections:deque", "insert", Modelled(ContainerWrite), QUIET.and(STORES).and(COUNTS))
        .writes(Writes::Arguments),
    row("collections:deque", "rotate __delitem__", Modelled(ContainerWrite), COUNTS)
        .writes(Writes::Arguments),
    row("collections:deque", "__setitem__", Modelled(ContainerWrite), STORES.and(COUNTS))
        .writes(Writes::Arguments),
    row("collections:deque", "reverse", Modelled(ContainerWrite), NONE).writes(Writes::Arguments),
    row("collections:deque", "remove", Modelled(ContainerWrite), SEARCHES),
    row("collections:deque", "copy", Transparent, MOVES),
    row("collections:deque", "count index", Transparent, SEARCHES),
    row("collections:deque", "__getitem__ __len__ __iter__", Transparent, NONE),
    row("collections", "OrderedDict", Transparent, MOVES),
    row("collections", "deque defaultdict", Transparent, NONE),
    row("_collections", "_count_elements", Modelled(ContainerWrite), NONE),
    row("functools", "reduce", Transparent, NONE),
    row("functools", "partial", Constructor, MOVES),
    row("functools:partial", "__new__", Constructor, MOVES),
    row(
        "types:MappingProxyType",
        "get __getitem__ __iter__ __len__ __contains__",
        Transparent,
        NONE,
    ),
    row("types:MappingProxyType", "keys values items copy", Transparent, MOVES),
    row("types", "MethodType SimpleNamespace MappingProxyType GenericAlias", Constructor, NONE),
    row("types:FunctionType", "__get__", Constructor, MOVES),
    row("itertools", "chain islice", Transparent, MOVES.and(ITERATES)),
    row("itertools", "repeat", Transparent, MOVES),
    row("itertools", "groupby", Transparent, SEARCHES),
    row("itertools", "*", Transparent, NONE),
    row("itertools:chain", "from_iterable", Transparent, MOVES.and(ITERATES)),
    row("operator", "add", Modelled(Binary(BinaryOp::Add)), MOVES),
    row("operator", "sub", Modelled(Binary(BinaryOp::Subtract)), MOVES),
    row("operator", "mul", Modelled(Binary(BinaryOp::Multiply)), MOVES),
    row("operator", "truediv", Modelled(Binary(BinaryOp::TrueDivide)), MOVES),
    row("operator", "floordiv", Modelled(Binary(BinaryOp::FloorDivide)), MOVES),
    row("operator", "mod", Modelled(Binary(BinaryOp::Remainder)), MOVES),
    row("operator", "pow", Modelled(Binary(BinaryOp::Power)), MOVES),
    row("operator", "matmul", Modelled(Binary(BinaryOp::MatrixMultiply)), NONE),
    row("operator", "and_", Modelled(Binary(BinaryOp::And)), NONE),
    row("operator", "or_", Modelled(Binary(BinaryOp::Or)), NONE),
    row("operator", "xor", Modelled(Binary(BinaryOp::Xor)), NONE),
    row("operator", "lshift", Modelled(Binary(BinaryOp::Lshift)), NONE),
    row("operator", "rshift", Modelled(Binary(BinaryOp::Rshift)), NONE),
    row("operator", "is_", Modelled(IsSame { inverted: false }), COMPARES),
    row("operator", "is_not", Modelled(IsSame { inverted: true }), COMPARES),
    row("operator", "concat length_hint", Transparent, NONE),
    row("operator", "countOf indexOf", Transparent, SEARCHES.and(COMPARES)),
    row("operator", "pos", Modelled(Unary(UnaryOp::Positive)), NONE),
    row("operator", "abs", Modelled(Scalar), NONE).of_numbers(Absolute),
    row("operator", "itruediv", Modelled(Binary(BinaryOp::InPlaceTrueDivide)), NONE),
    row("operator", "ifloordiv", Modelled(Binary(BinaryOp::InPlaceFloorDivide)), NONE),
    row("operator", "imod", Modelled(Binary(BinaryOp::InPlaceRemainder)), NONE),
    row("operator", "ipow", Modelled(Binary(BinaryOp::InPlacePower)), NONE),
    row("operator", "iand", Modelled(Binary(BinaryOp::InPlaceAnd)), NONE),
    row("operator", "ior", Modelled(Binary(BinaryOp::InPlaceOr)), NONE),
    row("operator", "ixor", Modelled(Binary(BinaryOp::InPlaceXor)), NONE),
    row("operator", "ilshift", Modelled(Binary(BinaryOp::InPlaceLshift)), NONE),
    row("operator", "irshift", Modelled(Binary(BinaryOp::InPlaceRshift)), NONE),
    row("operator", "imatmul", Modelled(Binary(BinaryOp::InPlaceMatrixMultiply)), NONE),
    row("operator", "delitem", Modelled(DelItem), NONE),
    row("_thread:LockType", "acquire acquire_lock __enter__", Modelled(LockTake), NONE),
    row("_thread:LockType", "release release_lock __exit__", Modelled(LockGive), NONE),
    row("_thread:RLock", "acquire __enter__", Modelled(LockTake), NONE),
    row("_thread:RLock", "release __exit__", Modelled(LockGive), NONE),
    row("_random:Random", "random getrandbits", Modelled(Draw), NONE),
    row("_random:Random", "seed", Modelled(Seed), MOVES),
    row("bisect", "bisect bisect_right", Pure, NONE).of_numbers(Place { behind: true }),
    row("bisect", "bisect_left", Pure, NONE).of_numbers(Place { behind: false }),
    row("bisect", "insort insort_left insort_right", Modelled(Insort), ORDERS),
    row("posix", "fspath", Pure, NONE),
    row("re", "_compile", Pure, NONE),
    row("re:Pattern", "split findall match search fullmatch finditer", Pure, NONE),
    row("re:Match", "group groups groupdict start end span __getitem__", Transparent, NONE),
    row("re:Pattern", "sub", Modelled(Substitute), MOVES),
    row("re:Pattern", "subn", Modelled(Substitute), NONE),
    row(
        "_heapq",
        "heapify heappush heappop heappushpop heapreplace _heapify_max _heappop_max _heapreplace_max",
        Modelled(ContainerWrite),
        SEARCHES.and(ORDERS),
    ),
    row("operator", "call", Modelled(Call), NONE),
    row("operator", "iconcat", Modelled(Binary(BinaryOp::InPlaceAdd)), NONE),
    row("operator", "iadd", Modelled(Binary(BinaryOp::InPlaceAdd)), MOVES),
    row("operator", "imul", Modelled(Binary(BinaryOp::InPlaceMultiply)), MOVES),
    row("operator", "isub", Modelled(Binary(BinaryOp::InPlaceSubtract)), MOVES),
    row("operator", "neg", Modelled(Unary(UnaryOp::Negative)), MOVES),
    row("operator", "invert inv", Modelled(Unary(UnaryOp::Invert)), NONE),
    row("operator", "lt", Modelled(Compare(CompareOp::Lt)), MOVES),
    row("operator", "le", Modelled(Compare(CompareOp::Le)), MOVES),
    row("operator", "eq", Modelled(Compare(CompareOp::Eq)), MOVES.and(COMPARES)),
    row("operator", "ne", Modelled(Compare(CompareOp::Ne)), MOVES.and(COMPARES)),
    row("operator", "gt", Modelled(Compare(CompareOp::Gt)), MOVES),
    row("operator", "ge", Modelled(Compare(CompareOp::Ge)), MOVES),
    row("operator", "getitem", Modelled(GetItem), MOVES),
    row("operator", "contains", Modelled(Contains), COMPARES),
    row("operator", "index", Modelled(Scalar), SEARCHES).of_numbers(Rounded(Rounding::Trunc)),
    row("operator", "truth", Modelled(Scalar), NONE).of_numbers(Truth { inverted: false }),
    row("operator", "not_", Modelled(Scalar), NONE).of_numbers(Truth { inverted: true }),
    row("operator", "attrgetter itemgetter methodcaller", Constructor, NONE),
    row("_contextvars:ContextVar", "get", Modelled(ContextGet), NONE),
    row("_contextvars:ContextVar", "set", Modelled(ContextSet), NONE),
    row("_contextvars:ContextVar", "reset", Modelled(ContextReset), NONE),
    row("_contextvars", "copy_context", Modelled(ContextCopy), NONE),
    row("warnings", "warn", Emits(Warn), NONE),
    row("warnings", "warn_explicit", Emits(WarnExplicit), NONE),
    row("logging:Logger", "_log", Emits(Log), NONE),
    row("sys", "getrecursionlimit", Modelled(RecursionLimit), NONE),
    row("sys", "exc_info exception", Modelled(Handled), NONE),
    row("sys", "_getframe", Untraceable(Why::Frames), NONE),
    row("time", "time perf_counter monotonic process_time thread_time", Modelled(Clock), NONE),
    row("time", "time_ns perf_counter_ns monotonic_ns", Modelled(Clock), NONE),
    row("time", "process_time_ns thread_time_ns", Modelled(Clock), NONE),
    row("time", "sleep", Untraceable(Why::Opaque), NONE),
];

/// Whether a method of a container changes it without looking at what it holds. `owner` is the container's class
/// as in a row; `None` stands for any.
#[must_use]
pub fn only_adds(owner: Option<&str>, name: &str) -> bool {
    let rows = PYTHON.iter().filter(|row| row.traits.has(Traits::ONLY_ADDS));
    rows.filter(|row| owner.is_none_or(|owner| row.owner == owner))
        .any(|row| row.names().any(|found| found == name))
}

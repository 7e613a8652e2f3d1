//! Rows for builtins and the standard library: owner, names, class.

use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::ops::{BinaryOp, CompareOp, UnaryOp};

use super::{Class, Emitter, Functions, Model};
use crate::breaks::Reason;

/// A row: `module` or `module:Class` (or `module:expression`), names of its callables, their class.
type Row = (&'static str, &'static str, Class);

fn model(model: Model) -> Class {
    Class::Model(model)
}

fn table() -> Vec<Row> {
    use Class::{Constructor, GraphBreak, IsCompiling, Pure, Transparent, Untraceable};
    vec![
        ("stator._stator", "graph_break", GraphBreak),
        ("stator._stator", "is_compiling", IsCompiling),
        ("math", "*", Pure),
        ("cmath", "*", Pure),
        ("builtins", "abs round divmod pow", model(Model::Scalar)),
        ("builtins", "ord chr bin hex oct", Pure),
        ("builtins", "repr str ascii format", model(Model::Repr)),
        ("builtins", "len", model(Model::Len)),
        ("builtins", "isinstance issubclass callable", model(Model::IsInstance)),
        ("builtins", "getattr", model(Model::GetAttr)),
        ("builtins", "hasattr", model(Model::HasAttr)),
        ("builtins", "setattr", model(Model::SetAttr)),
        ("builtins", "delattr", model(Model::DelAttr)),
        ("builtins", "iter", model(Model::Iter)),
        ("builtins", "next", model(Model::Next)),
        ("builtins", "type", model(Model::TypeOf)),
        ("builtins", "vars", model(Model::Vars)),
        ("builtins", "super", model(Model::Super)),
        ("builtins", "id", model(Model::Id)),
        ("builtins", "hash", model(Model::Hash)),
        ("builtins", "sorted min max sum any all map filter zip enumerate reversed", Transparent),
        ("builtins", "list tuple dict set frozenset", Transparent),
        ("builtins", "int float complex bool", model(Model::Scalar)),
        ("builtins", "range slice bytes", Pure),
        ("builtins", "object property staticmethod classmethod", Constructor),
        ("builtins:object", "__new__", model(Model::New)),
        ("builtins:object", "__init__ __init_subclass__", model(Model::Nothing)),
        ("builtins:object", "__setattr__", model(Model::ObjectSetAttr)),
        ("builtins:object", "__delattr__", model(Model::ObjectDelAttr)),
        ("builtins:object", "__getattribute__", model(Model::ObjectGetAttr)),
        ("builtins:object", "__reduce_ex__", model(Model::Reduce)),
        ("copy", "deepcopy", model(Model::DeepCopy)),
        ("builtins:type", "__call__", model(Model::TypeCall)),
        ("types:GeneratorType", "send throw close", model(Model::GeneratorStep)),
        ("operator", "setitem", model(Model::SetItem)),
        ("_abc", "_abc_instancecheck _abc_subclasscheck", model(Model::IsInstance)),
        ("builtins:tuple", "__new__", model(Model::New)),
        ("builtins:dict", "__new__", model(Model::New)),
        ("builtins:list", "__new__", model(Model::New)),
        ("builtins:BaseException", "__new__", model(Model::New)),
        ("builtins:BaseException", "__init__", model(Model::ContainerWrite)),
        ("builtins:BaseException", "with_traceback", model(Model::ContainerWrite)),
        ("builtins:BaseException", "add_note", model(Model::ContainerWrite)),
        ("builtins:str", "*", Pure),
        ("builtins:bytes", "*", Pure),
        ("builtins:int", "*", Pure),
        ("builtins:float", "*", Pure),
        ("builtins:complex", "*", Pure),
        ("builtins:range", "*", Pure),
        ("builtins:slice", "indices", Pure),
        (
            "builtins:tuple",
            "index count __contains__ __eq__ __ne__ __lt__",
            model(Model::SequenceRead),
        ),
        ("builtins:tuple", "__getitem__ __iter__ __len__ __add__ __mul__", Transparent),
        ("builtins:list", "index count __contains__ __eq__ __ne__", model(Model::SequenceRead)),
        ("builtins:list", "copy __getitem__ __iter__ __len__ __add__ __reversed__", Transparent),
        (
            "builtins:list",
            "append extend insert pop remove clear sort reverse __setitem__ __delitem__ __init__ __iadd__",
            model(Model::ContainerWrite),
        ),
        ("builtins:dict", "get __getitem__ __contains__", model(Model::DictSlotRead)),
        (
            "builtins:dict",
            "keys values items copy __iter__ __len__ __reversed__ __or__",
            model(Model::DictRead),
        ),
        ("builtins:dict", "fromkeys", Transparent),
        (
            "builtins:dict",
            "pop popitem setdefault update clear __setitem__ __delitem__ __init__ __ior__",
            model(Model::ContainerWrite),
        ),
        ("collections:OrderedDict", "keys values items copy __iter__", model(Model::DictRead)),
        (
            "collections:OrderedDict",
            "pop popitem setdefault update clear move_to_end __setitem__ __delitem__ __init__",
            model(Model::ContainerWrite),
        ),
        ("collections:defaultdict", "__missing__ __init__", model(Model::ContainerWrite)),
        ("collections:defaultdict", "copy", model(Model::DictRead)),
        (
            "builtins:set",
            "union intersection difference symmetric_difference issubset issuperset isdisjoint copy __contains__ __len__ __iter__",
            Transparent,
        ),
        (
            "builtins:set",
            "add remove discard pop clear update intersection_update difference_update symmetric_difference_update __init__",
            model(Model::ContainerWrite),
        ),
        (
            "builtins:frozenset",
            "union intersection difference symmetric_difference issubset issuperset isdisjoint copy __contains__",
            Transparent,
        ),
        (
            "collections:deque",
            "append appendleft extend extendleft pop popleft rotate reverse clear remove insert __setitem__ __delitem__",
            model(Model::ContainerWrite),
        ),
        ("collections:deque", "copy count index __getitem__ __len__ __iter__", Transparent),
        ("collections", "OrderedDict deque defaultdict", Transparent),
        ("_collections", "_count_elements", model(Model::ContainerWrite)),
        ("functools", "reduce", Transparent),
        ("functools", "partial", Constructor),
        ("functools:partial", "__new__", Constructor),
        (
            "types:MappingProxyType",
            "get keys values items copy __getitem__ __iter__ __len__ __contains__",
            Transparent,
        ),
        ("types", "MethodType SimpleNamespace MappingProxyType", Constructor),
        ("itertools", "*", Transparent),
        ("itertools:chain", "from_iterable", Transparent),
        ("operator", "add", model(Model::Binary(BinaryOp::Add))),
        ("operator", "sub", model(Model::Binary(BinaryOp::Subtract))),
        ("operator", "mul", model(Model::Binary(BinaryOp::Multiply))),
        ("operator", "truediv", model(Model::Binary(BinaryOp::TrueDivide))),
        ("operator", "floordiv", model(Model::Binary(BinaryOp::FloorDivide))),
        ("operator", "mod", model(Model::Binary(BinaryOp::Remainder))),
        ("operator", "pow", model(Model::Binary(BinaryOp::Power))),
        ("operator", "matmul", model(Model::Binary(BinaryOp::MatrixMultiply))),
        ("operator", "and_", model(Model::Binary(BinaryOp::And))),
        ("operator", "or_", model(Model::Binary(BinaryOp::Or))),
        ("operator", "xor", model(Model::Binary(BinaryOp::Xor))),
        ("operator", "lshift", model(Model::Binary(BinaryOp::Lshift))),
        ("operator", "rshift", model(Model::Binary(BinaryOp::Rshift))),
        ("operator", "is_", model(Model::IsSame { inverted: false })),
        ("operator", "is_not", model(Model::IsSame { inverted: true })),
        ("operator", "concat countOf indexOf length_hint", Transparent),
        ("operator", "pos", model(Model::Unary(UnaryOp::Positive))),
        ("operator", "abs", model(Model::Scalar)),
        ("operator", "itruediv", model(Model::Binary(BinaryOp::InPlaceTrueDivide))),
        ("operator", "ifloordiv", model(Model::Binary(BinaryOp::InPlaceFloorDivide))),
        ("operator", "imod", model(Model::Binary(BinaryOp::InPlaceRemainder))),
        ("operator", "ipow", model(Model::Binary(BinaryOp::InPlacePower))),
        ("operator", "iand", model(Model::Binary(BinaryOp::InPlaceAnd))),
        ("operator", "ior", model(Model::Binary(BinaryOp::InPlaceOr))),
        ("operator", "ixor", model(Model::Binary(BinaryOp::InPlaceXor))),
        ("operator", "ilshift", model(Model::Binary(BinaryOp::InPlaceLshift))),
        ("operator", "irshift", model(Model::Binary(BinaryOp::InPlaceRshift))),
        ("operator", "imatmul", model(Model::Binary(BinaryOp::InPlaceMatrixMultiply))),
        ("operator", "delitem", model(Model::DelItem)),
        ("bisect", "bisect bisect_left bisect_right", Pure),
        ("posix", "fspath", Pure),
        ("re:Pattern", "split findall", Pure),
        ("re:Pattern", "sub subn", model(Model::Substitute)),
        (
            "_heapq",
            "heapify heappush heappop heappushpop heapreplace",
            model(Model::ContainerWrite),
        ),
        ("operator", "call", model(Model::Call)),
        ("operator", "iconcat", model(Model::Binary(BinaryOp::InPlaceAdd))),
        ("operator", "iadd", model(Model::Binary(BinaryOp::InPlaceAdd))),
        ("operator", "imul", model(Model::Binary(BinaryOp::InPlaceMultiply))),
        ("operator", "isub", model(Model::Binary(BinaryOp::InPlaceSubtract))),
        ("operator", "neg", model(Model::Unary(UnaryOp::Negative))),
        ("operator", "invert", model(Model::Unary(UnaryOp::Invert))),
        ("operator", "lt", model(Model::Compare(CompareOp::Lt))),
        ("operator", "le", model(Model::Compare(CompareOp::Le))),
        ("operator", "eq", model(Model::Compare(CompareOp::Eq))),
        ("operator", "ne", model(Model::Compare(CompareOp::Ne))),
        ("operator", "gt", model(Model::Compare(CompareOp::Gt))),
        ("operator", "ge", model(Model::Compare(CompareOp::Ge))),
        ("operator", "getitem", model(Model::GetItem)),
        ("operator", "contains", model(Model::Contains)),
        ("operator", "index truth not_", model(Model::Scalar)),
        ("operator", "attrgetter itemgetter methodcaller", Constructor),
        ("_contextvars:ContextVar", "get", model(Model::ContextGet)),
        ("_contextvars:ContextVar", "set", model(Model::ContextSet)),
        ("_contextvars:ContextVar", "reset", model(Model::ContextReset)),
        ("warnings", "warn", Class::Emitter(Emitter::Warn)),
        ("warnings", "warn_explicit", Class::Emitter(Emitter::WarnExplicit)),
        ("logging:Logger", "_log", Class::Emitter(Emitter::Log)),
        ("sys", "getrecursionlimit", model(Model::RecursionLimit)),
        ("sys", "exc_info _getframe", Untraceable(Reason::Instruction)),
        ("time", "time perf_counter monotonic sleep", Untraceable(Reason::OpaqueCall)),
    ]
}

/// Adds the rows to the table.
pub fn add(py: Python<'_>, functions: &mut Functions) -> PyResult<()> {
    for (owner, names, class) in table() {
        let (module, path) = owner.split_once(':').map_or((owner, None), |(a, b)| (a, Some(b)));
        let mut owner = modules::import(py, module)?.into_any();
        if let Some(path) = path {
            owner = owner.getattr(path)?;
        }
        if names == "*" {
            for name in owner.dir()?.iter() {
                let name: String = name.extract()?;
                let found = owner.getattr(name.as_str())?;
                let special = matches!(
                    name.as_str(),
                    "__class__"
                        | "__doc__"
                        | "__new__"
                        | "__init__"
                        | "__init_subclass__"
                        | "__subclasshook__"
                        | "__dir__"
                        | "__reduce__"
                        | "__reduce_ex__"
                        | "__setattr__"
                        | "__delattr__"
                        | "__getattribute__"
                        | "__hash__"
                        | "__sizeof__"
                        | "__loader__"
                        | "__spec__"
                );
                if found.is_callable() && !special {
                    functions.insert_new(&found, class.clone());
                }
            }
            continue;
        }
        for name in names.split_whitespace() {
            if let Some(found) = owner.getattr_opt(name)? {
                functions.insert(&found, class.clone());
            }
        }
    }
    for (_, value) in modules::import(py, "builtins")?.dict().iter() {
        if value.cast::<pyo3::types::PyType>().is_ok_and(|ty| is_exception(ty)) {
            functions.insert_new(&value, Class::Constructor);
            functions.insert(&value.getattr("__new__")?, model(Model::New));
            functions.insert(&value.getattr("__init__")?, model(Model::ContainerWrite));
        }
    }
    Ok(())
}

fn is_exception(ty: &Bound<'_, pyo3::types::PyType>) -> bool {
    ty.is_subclass_of::<pyo3::exceptions::PyBaseException>().unwrap_or(false)
}
